"""Speed of the quantizers: time and objective of a fit, encoding, and a fit from a file.

    python benchmarks/speed_quantizers.py [--quick] [--save]

Rotations are fitted to 64 principal components of 20,000 Fashion-MNIST images (the publishers'
files, below RANKBITS_DATA), and objectives are those of all these rows. The paper's solver, 300
epochs of gradient steps on Householder vectors, is timed once; all others are timed in turn.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rankbits as rb
from _bench import Bench, Timing, compare, peak_memory
from rankbits.quantizers.rotations import quantization_error, sample_sphere

ROOT = Path(os.environ.get("RANKBITS_DATA") or Path.home() / ".cache/rankbits/data")
THREADS, SEED = 2, 0
BITS, DIM = 64, 384
PAPER, FAST, BARE = "H2Q, sgd, 300 epochs", "H2Q", "bare product"


def components(many: int, bits: int = BITS) -> np.ndarray:
    """float32 (many, bits): principal components of Fashion-MNIST's pixels."""
    path = ROOT / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    pixels = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16)
    pixels = pixels.reshape(-1, 784)[:many].astype(np.float32) / 255
    pixels -= pixels.mean(axis=0)
    directions = np.linalg.eigh(pixels.T @ pixels)[1][:, ::-1][:, :bits]
    return np.ascontiguousarray(pixels @ directions)


def fits(bench: Bench, faiss: Any, many: int, epochs: int, repeats: int) -> None:
    x = components(many)
    scaled = sample_sphere("x", x, SEED)
    rotations: dict[str, torch.Tensor] = {}

    def fit(name: str, quantizer: rb.quantizers.Quantizer) -> None:
        rotations[name] = quantizer.fit(x).rotation_

    def fit_faiss() -> None:
        made = faiss.ITQMatrix(BITS)
        made.train(scaled.numpy())
        rotations["faiss ITQ"] = torch.from_numpy(faiss.vector_to_array(made.A).reshape(BITS, -1))

    functions = {
        FAST: lambda: fit(FAST, rb.H2Q(seed=SEED)),
        "H2Q, 4 restarts": lambda: fit("H2Q, 4 restarts", rb.H2Q(restarts=4, seed=SEED)),
        "ITQ": lambda: fit("ITQ", rb.ITQ(seed=SEED)),
        "ITQ, random start": lambda: fit("ITQ, random start", rb.ITQ(start="random", seed=SEED)),
    }
    if faiss:
        faiss.omp_set_num_threads(THREADS)
        functions["faiss ITQ"] = fit_faiss
    timings = compare(functions, work=many, unit="rows", repeats=repeats)
    begin = time.perf_counter()
    fit(PAPER, rb.H2Q(solver="sgd", epochs=epochs, seed=SEED))
    once = time.perf_counter() - begin
    timings.append(Timing(PAPER, [once], many, "rows", timings[0].others))
    identity = torch.eye(BITS)
    objectives = {
        name: round(float(quantization_error(scaled @ rotation.T.to(scaled.dtype))), 5)
        for name, rotation in {"identity": identity, **rotations}.items()
    }
    title = f"fit to {many:,} x {BITS}, {epochs} epochs of the paper's solver"
    bench.report(title, timings, (FAST,), objectives=objectives, epochs=epochs)
    bench.note(f"quantization error after the {title}", **objectives)


def supervised(bench: Bench, many: int) -> None:
    """Once: it takes seconds."""
    path = ROOT / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    labels = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=8)[:many]
    x = components(many)
    begin = time.perf_counter()
    made = rb.SupervisedRotation(seed=SEED).fit(x, labels)
    seconds = round(time.perf_counter() - begin, 2)
    bench.note(f"SupervisedRotation fitted to {many:,} x {BITS}", seconds=seconds,
               chosen=made.chosen_, steps=made.climbs * made.steps)  # fmt: skip


def encoding(bench: Bench, many: int, repeats: int) -> None:
    x = torch.randn(many, BITS, generator=torch.Generator().manual_seed(SEED))
    made = rb.H2Q(seed=SEED).fit(x[:5000])
    wanted = rb.pack(x @ made.weight_.T)
    apart = np.unpackbits(made.encode(x).packed ^ wanted.packed).mean()
    if apart > 1e-6:  # sums in another order may change the sign of what is nearly zero
        raise AssertionError(f"encode differs from the product's signs in {apart:.1e} of the bits.")
    array, weight, outputs = x.numpy(), made.weight_.T, torch.empty(many, BITS)
    functions = {
        "encode, array": lambda: made.encode(array),
        "encode, tensor": lambda: made.encode(x),
        BARE: lambda: torch.mm(x, weight, out=outputs),
        "product and packbits": lambda: np.packbits((x @ weight).numpy() > 0, axis=1),
    }
    timings = compare(functions, work=many, unit="rows", repeats=repeats)
    bench.report(f"encode {many:,} x {BITS}", timings, (BARE,))


def _open(path: str) -> np.ndarray:
    torch.set_num_threads(THREADS)
    rows = np.load(path, mmap_mode="r")
    rb.Projection(BITS, seed=SEED).fit(np.array(rows[:1000]))
    return rows


def _fit(rows: np.ndarray) -> tuple[float, int]:
    """Seconds, and bytes of files that are mapped at the end: the kernel may take them back."""
    begin = time.perf_counter()
    rb.Projection(BITS, seed=SEED).fit(rows)
    seconds = time.perf_counter() - begin
    lines = Path("/proc/self/status").read_text().splitlines()
    return seconds, int(
        next(line for line in lines if line.startswith("RssFile")).split()[1]
    ) * 1024


def from_file(bench: Bench, many: int) -> None:
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (many, DIM))
        scale = np.arange(1, DIM + 1, dtype=np.float32) ** -0.5
        for start in range(0, many, 10_000):
            part = rows[start : start + 10_000]
            part[:] = rng.standard_normal(part.shape, np.float32) * scale
        rows.flush()
        del rows
        held, (seconds, mapped) = peak_memory(_open, _fit, str(path))
        size = path.stat().st_size
    bench.note(
        f"Projection({BITS}).fit, {many:,} x {DIM} in a file", seconds=round(seconds, 2),
        peak_megabytes=round(held / 1e6, 1), mapped_megabytes=round(mapped / 1e6, 1),
        file_megabytes=round(size / 1e6, 1),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, epochs and repeats")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    quick = arguments.quick
    bench = Bench("speed_quantizers", threads=THREADS, seed=SEED)
    faiss = bench.peer("faiss", "faiss-cpu")
    encoding(bench, 100_000 if quick else 1_000_000, 3 if quick else 7)
    from_file(bench, 20_000 if quick else 200_000)
    supervised(bench, 2_000 if quick else 20_000)
    fits(bench, faiss, 4_000 if quick else 20_000, 3 if quick else 300, 3 if quick else 5)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
