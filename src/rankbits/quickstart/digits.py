"""Two minutes with digits: turn them into bits in five ways with commands that can be copied."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbits import _check
from rankbits._files import write_whole
from rankbits.data.digits import digits
from rankbits.encoder.files import load_encoder
from rankbits.evaluate import evaluate
from rankbits.kernels import hamming
from rankbits.quantizers.principal import principal_components
from rankbits.report import read_entry
from rankbits.types import Codes, Report, pack

if TYPE_CHECKING:
    from rankbits.serve import Service

QUERIES = 300
SHUFFLES = 20
SIDES = ("queries", "database")
METHODS = {
    "pca-sign": "PCA-sign",
    "itq": "ITQ",
    "supervised": "SupervisedRotation",
    "talr-ap": "TALR-AP",
    "fastap-h2q": "FastAP+H2Q",
}
Run = Callable[[Sequence[str]], int]
NEXT = """
With data of your own:
  rankbits train birds/ -o birds.encoder                            birds/CLASS/*.jpg
  rankbits fit embeddings.npy --bits 256 -o notes.encoder           or embeddings of any kind
  rankbits index birds.encoder birds/ -o birds.index
  rankbits search birds.index photo.jpg -k 10
  rankbits evaluate birds.index queries/ --html report.html
  rankbits serve birds.index
rankbits COMMAND --help explains each; rankbits quickstart --serve searches the digits on a page."""


def quickstart(
    folder: str | Path,
    run: Run,
    *,
    bits: int = 16,
    epochs: int = 40,
    seed: int = 0,
    say: Callable[[str], object] = print,
) -> Report:
    """Turn 1,797 digits into bits in five ways and compare them -> the report of PCA-sign.

    ``run`` (``rankbits.cli.main``) runs every command, and ``say`` prints it. The data, a folder
    for each method and the page are written to ``folder``. The networks learn from the database, as
    on CIFAR-10 (the TALR paper's second setting), not from queries.
    """
    threads = torch.get_num_threads()
    with enter_folder(folder, say):
        try:
            torch.set_num_threads(1)  # the fastest at this size
            return _compare_five_ways(run, bits, epochs, f"-seed{seed}" if seed else "", seed, say)
        finally:
            torch.set_num_threads(threads)


@contextmanager
def enter_folder(folder: str | Path, say: Callable[[str], object]) -> Iterator[None]:
    """Work in a folder, so that paths are as short as a reader would type them."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    before = os.getcwd()
    say(f"$ cd {shlex.quote(str(folder))}")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _compare_five_ways(
    run: Run, bits: int, epochs: int, tag: str, seed: int, say: Callable[[str], object]
) -> Report:
    data = _write_data(tag, bits, seed)

    def do(*words: object) -> str:
        return run_command(run, [str(word) for word in words], say, int(words[0] != "report"))

    names = {name: f"{name}-{bits}{tag}" for name in METHODS}
    seeded = ("--seed", seed) if seed else ()
    say(
        f"\n{QUERIES} digits of 8 x 8 pixels are queries, 1,497 the database, each of {bits} bits. "
        "A line that begins with $ is a command to copy.\n\nTheir principal components, turned "
        "into bits by three rotations: none, ITQ, and the one that ranks best."
    )
    for name, method in (("pca-sign", "sign"), ("itq", "itq"), ("supervised", "supervised")):
        folder = names[name]
        Path(folder).mkdir(exist_ok=True)
        inputs = data["components", "database"]
        words = ("--method", method, "--no-curve", *seeded)
        do("fit", inputs, *words, "-o", f"{folder}/quantizer")
        for side in SIDES:
            inputs = data["components", side]
            do("encode", f"{folder}/quantizer", inputs, "-o", f"{folder}/{side}.npz")
    say("\nTwo networks trained for the ranking itself: TALR's tie-aware AP, and FastAP with H2Q.")
    for name, words in (
        ("talr-ap", ("--bits", bits, "--loss", "tie-aware-ap", "--quantizer", "sign")),
        ("fastap-h2q", ("--dim", bits, "--loss", "fastap", "--quantizer", "h2q")),
    ):
        folder = names[name]
        do(
            "train", "--data", data["digits", "database"], "--model", "mlp", *words,
            "--epochs", epochs, *seeded, "-o", folder,
        )  # fmt: skip
        for side in SIDES:
            embedded = f"{folder}/embedded-{side}.npz"
            do("embed", folder, data["digits", side], "-o", embedded)
            do("encode", f"{folder}/quantizer.safetensors", embedded, "-o", f"{folder}/{side}.npz")
    say("\nAll five, judged and compared:")
    page = "report.html"
    table = do(
        "report", *(f"{METHODS[name]}={folder}" for name, folder in names.items()), "-o", page,
        "--query-images", data["digits", "queries"],
        "--database-images", data["digits", "database"],
    )  # fmt: skip
    say(table)
    report = _show_tie_blind(Path(names["pca-sign"]), say)
    _show_float_questions(Path(names["itq"]), data["components", "queries"], say)
    say(f"\nOpen the page: {Path(page).resolve().as_uri()}\n{NEXT}")
    return report


def run_command(run: Run, words: list[str], say: Callable[[str], object], lines: int = 1) -> str:
    """Print a command, run it and print its first lines of output -> all of its output."""
    say(f"$ {shlex.join(['rankbits', *words])}")
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(words)
    if status:
        _check.refuse(err.getvalue().strip().split("\n")[-1].removeprefix("rankbits: "))
    printed = out.getvalue().rstrip()
    for line in (printed or "done").splitlines()[:lines]:
        say(f"  {line}")
    return printed


def _write_data(tag: str, bits: int, seed: int) -> dict[tuple[str, str], str]:
    """Write the digits as files: features, images and labels, and principal components."""
    images, labels = digits()
    inputs = torch.from_numpy(images.reshape(len(images), -1)).double() / 16
    sides = dict(zip(SIDES, _split(len(inputs), seed), strict=True))
    mean, components = principal_components(inputs[sides["database"]])
    if _check.whole("bits", bits, 1) > components.shape[1]:
        _check.refuse(f"bits must be at most {components.shape[1]} here; got {bits}.")
    turned = (inputs - mean) @ components[:, :bits]
    shown = 255 - (images.astype(np.int64) * 255 // 16).astype(np.uint8)
    paths = {}
    for side, rows in sides.items():
        arrays = {
            "digits": {"features": inputs[rows].float().numpy(), "images": shown[rows]},
            f"components-{bits}": {"embeddings": turned[rows].float().numpy()},
        }
        for name, columns in arrays.items():
            path = f"{name}-{side}{tag}.npz"
            write_whole(path, partial(np.savez, **columns, labels=labels[rows]))
            paths[name.split("-")[0], side] = path
    return paths


def _show_tie_blind(codes: Path, say: Callable[[str], object]) -> Report:
    """Print the mAP of a script that sorts the same codes -> their true report."""
    entry = read_entry(codes, k=(10, 100))
    assert entry.evidence is not None and entry.evidence.codes and entry.evidence.labels
    pair = (*entry.evidence.codes, *entry.evidence.labels)
    blind = [tie_blind_map(*pair, np.random.default_rng(s)) for s in range(SHUFFLES)]
    say(
        f"\nA script that sorts the same PCA-sign codes says mAP {min(blind):.4f} to "
        f"{max(blind):.4f} over {SHUFFLES} shuffles of the database; the mean over all orders is "
        f"{entry.report['mAP']:.4f}."
    )
    return entry.report


def _show_float_questions(codes: Path, inputs: str, say: Callable[[str], object]) -> None:
    """Print the mAP of the same codes when queries keep their floats."""
    encoder = load_encoder(codes / "quantizer")
    database, columns = Codes.load_columns(codes / "database.npz")
    with np.load(inputs) as arrays:
        embeddings, labels = arrays["embeddings"], arrays["labels"]
    bits, floats = (
        evaluate(queries, database, labels, columns["labels"])["mAP"]
        for queries in (encoder.encode(embeddings), encoder.ask(embeddings))
    )
    say(
        f"\nQueries may keep their floats (rankbits search --ask floats): the same ITQ codes then "
        f"reach mAP {floats:.4f} instead of {bits:.4f}."
    )


def digits_service(report: Report, *, bits: int = 16, seed: int = 0) -> Service:
    """Make a service of the digits with images, labels, a comparison and the report.

    An id is the number of a digit in the whole set. An uploaded image is reduced to 8 x 8, and may
    be dark on light or light on dark.
    """
    from rankbits.indexes import HammingIndex
    from rankbits.serve import Items, QueryReader, Service, make_comparison

    images, labels = digits()
    inputs = torch.from_numpy(images.reshape(len(images), -1)).double()
    database = _split(len(inputs), seed)[1]
    mean, components = principal_components(inputs[database])

    def encode(vectors: np.ndarray) -> Codes:
        return pack((torch.from_numpy(vectors).double() - mean) @ components[:, :bits])

    items = Items(
        database,
        titles=[f"digit {number}" for number in database],
        labels=labels[database],
        images=(images[database] * np.float32(255 / 16)).astype(np.uint8),
    )
    features = inputs[database].numpy()
    return Service(
        HammingIndex(bits).add(encode(features), database),
        encoder=QueryReader(encode, lambda file: encode(_read_digit(file)), dims=(64,), bits=bits),
        items=items,
        compare=make_comparison(features, labels[database], bits=bits, ids=database),
        report=report.to_dict(),
    )


def _read_digit(file: Any) -> np.ndarray:
    """Read an image as a digit, (1, 64) from 0 to 16, ink brighter than paper."""
    from rankbits.data.images import decode

    grey = decode(file, 64, channels=1).astype(np.float64).reshape(8, 8, 8, 8).mean(axis=(1, 3))
    edge = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    ink = 255 - grey if np.median(edge) > 127 else grey
    return np.rint(ink * 16 / 255).reshape(1, 64)


def _split(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the rows into those of the queries and those of the database."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[:QUERIES], order[QUERIES:]


def tie_blind_map(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: np.ndarray,
    database_labels: np.ndarray,
    shuffle: np.random.Generator,
) -> float:
    """Compute mAP as most hashing scripts do: sort by distance, ties as the sort leaves them."""
    order = shuffle.permutation(len(database_codes))
    distances = hamming(query_codes, database_codes[order])
    values = []
    for row, label in zip(distances, query_labels, strict=True):
        relevant = (database_labels[order] == label)[np.argsort(row)]
        places = np.flatnonzero(relevant) + 1
        values.append(np.mean(np.arange(1, len(places) + 1) / places))
    return float(np.mean(values))
