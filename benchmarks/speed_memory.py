"""How fast batches of images go on a CPU if freed memory is kept for the next one, and if it is
given back to the system each time, as glibc does by itself.

    python benchmarks/speed_memory.py [--birds BIRDS] [--quick] [--save]

With a folder of photographs it times the whole command `rankbits train BIRDS -o ENCODER` instead,
and adds the rows to those of the batches. Every sample is a process of its own, for what a process
did before decides what glibc keeps. An empty GLIBC_TUNABLES tells rankbits to leave glibc alone.
Both ways run the same loops.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from _bench import SETTLE, Bench, Timing, _clocks, _field
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.models.efficientnet import EfficientNetLite
from rankbits.models.heap import keep_memory
from rankbits.models.resnet import ResNet50
from rankbits.train.embed import embed

THREADS, SEED, WARM = 2, 0, 2
CASES = (  # what, network, side, images in a batch, batches
    ("embed", "EfficientNet-lite0", 224, 16, 16),
    ("embed", "EfficientNet-lite0", 128, 16, 32),
    ("embed", "ResNet-50", 224, 16, 8),
    ("learn", "EfficientNet-lite0", 224, 32, 4),
    ("learn", "EfficientNet-lite0", 128, 64, 6),
    ("learn", "ResNet-50", 224, 16, 4),
)
NETWORKS = {"EfficientNet-lite0": lambda: EfficientNetLite(0), "ResNet-50": ResNet50}
WAYS = {"rankbits": {}, "given back each time": {"GLIBC_TUNABLES": ""}}


def run(what: str, name: str, side: int, rows: int, batches: int) -> None:
    """Print the seconds of the batches after the first ones, the peak memory, and a sum of what was
    computed."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    network = NETWORKS[name]()
    if what == "embed":
        draw = np.random.default_rng(SEED)
        images = draw.integers(0, 256, (rows * batches, side, side, 3), np.uint8)
        view, labels = View(side, 3), np.zeros(len(images), np.int64)
        embed(network, Examples(images[: WARM * rows], labels[: WARM * rows]), view)
        begin = time.perf_counter()
        value = embed(network, Examples(images, labels), view, batch_size=rows).embeddings.sum()
        seconds = time.perf_counter() - begin
    else:
        images = torch.rand(rows, 3, side, side)
        network.train()
        with keep_memory():
            for batch in range(WARM + batches):
                if batch == WARM:
                    begin = time.perf_counter()
                loss = network(images).square().mean()
                loss.backward()
            seconds, value = time.perf_counter() - begin, loss.detach()
    peak = int(_field("/proc/self/status", "VmHWM").split()[0]) * 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "value": float(value)}))


def measure(bench: Bench, case: tuple, repeats: int) -> None:
    what, name, side, rows, batches = case
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks: dict[str, list[float]] = {way: [] for way in WAYS}
    values, spent, begin = set(), 0.0, _clocks()
    environment = {name: v for name, v in os.environ.items() if not name.startswith("MALLOC_")}
    environment.pop("GLIBC_TUNABLES", None)
    for number in range(repeats):
        for way in list(WAYS)[:: 1 if number % 2 else -1]:
            time.sleep(SETTLE)
            before = os.times()
            done = subprocess.run(
                [sys.executable, __file__, "--case", json.dumps(case)],
                env=environment | WAYS[way], capture_output=True, text=True, check=True,
            )  # fmt: skip
            after = os.times()
            spent += after.children_user + after.children_system
            spent -= before.children_user + before.children_system
            row = json.loads(done.stdout)
            samples[way].append(row["seconds"])
            peaks[way].append(row["peak"] / 1e6)
            values.add(row["value"])
    assert len(values) == 1, f"the two ways must compute the same: {values}"
    elsewhere, total = _clocks() - begin
    others = round(max(0.0, float((elsewhere - spent) / total)), 3)
    timings = [Timing(way, samples[way], rows * batches, "images", others) for way in WAYS]
    title = f"{what}: {name} at {side}, {rows} at a time"
    megabytes = {way: float(np.median(peaks[way])) for way in WAYS}
    bench.report(title, timings, ("rankbits",), megabytes=megabytes, side=side, what=what)


def time_command(bench: Bench, birds: str, repeats: int) -> None:
    """Time ``rankbits train``, with data and features kept in a folder that begins empty."""
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks: dict[str, list[float]] = {way: [] for way in WAYS}
    files = sum(path.is_file() for path in Path(birds).rglob("*"))
    for number in range(repeats):
        for way in list(WAYS)[:: 1 if number % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                words = [
                    "-m",
                    "rankbits",
                    "train",
                    birds,
                    "-o",
                    f"{folder}/encoder",
                ]
                environment = os.environ | WAYS[way] | {"RANKBITS_DATA": folder}
                begin = time.perf_counter()
                child = subprocess.Popen(
                    [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL
                )
                _, status, used = os.wait4(child.pid, 0)
                samples[way].append(time.perf_counter() - begin)
                child.returncode = os.waitstatus_to_exitcode(status)
                assert child.returncode == 0, words
                peaks[way].append(used.ru_maxrss * 1024 / 1e6)
    timings = [Timing(way, samples[way], files, "images", 0.0) for way in WAYS]
    megabytes = {way: float(np.median(peaks[way])) for way in WAYS}
    bench.report("rankbits train, a whole command", timings, ("rankbits",), megabytes=megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--birds", help="a folder of photographs, a folder in it for each kind")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        run(*json.loads(arguments.case))
        return
    bench = Bench("speed_memory", threads=THREADS, seed=SEED)
    repeats = 2 if arguments.quick else 5
    if arguments.birds:
        time_command(bench, arguments.birds, repeats)
    else:
        for case in CASES:
            measure(bench, case, repeats)
    if arguments.save:
        bench.add() if arguments.birds else bench.save()


if __name__ == "__main__":
    main()
