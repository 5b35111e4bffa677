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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from _bench import SETTLE, Bench, Timing, _clocks, _field
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.models.efficientnet import EfficientNetLite
from rankbits.models.heap import CHOSEN_BY_USER, keep_memory
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


def compare_ways(
    bench: Bench,
    title: str,
    rows: int,
    once: Callable[[dict[str, str]], tuple[float, int]],
    repeats: int,
) -> None:
    """Report the seconds and the peak memory of ``once`` with the environment of each way, in turn.
    ``once`` starts a process and waits for it."""
    usual = {name: value for name, value in os.environ.items() if name not in CHOSEN_BY_USER}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks: dict[str, list[float]] = {way: [] for way in WAYS}
    clocks, own = _clocks(), count_children()
    for number in range(repeats):
        for way in list(WAYS)[:: 1 if number % 2 else -1]:
            time.sleep(SETTLE)
            taken, peak = once(usual | WAYS[way])
            seconds[way].append(taken)
            peaks[way].append(peak / 1e6)
    elsewhere, total = _clocks() - clocks
    others = round(max(0.0, float((elsewhere - count_children() + own) / total)), 3)
    timings = [Timing(way, seconds[way], rows, "images", others) for way in WAYS]
    megabytes = {way: float(np.median(values)) for way, values in peaks.items()}
    bench.report(title, timings, ("rankbits",), megabytes=megabytes)


def count_children() -> float:
    """Seconds that processes which this one started have had of all cores."""
    times = os.times()
    return times.children_user + times.children_system


def time_batches(bench: Bench, case: tuple, repeats: int) -> None:
    what, name, side, rows, batches = case
    values = set()

    def once(environment: dict[str, str]) -> tuple[float, int]:
        words = [sys.executable, __file__, "--case", json.dumps(case)]
        row = json.loads(subprocess.check_output(words, env=environment, text=True))
        values.add(row["value"])
        return row["seconds"], row["peak"]

    title = f"{what}: {name} at {side}, {rows} at a time"
    compare_ways(bench, title, rows * batches, once, repeats)
    assert len(values) == 1, f"the two ways must compute the same: {values}"


def time_command(bench: Bench, birds: str, repeats: int) -> None:
    """Time ``rankbits train``, with data and features kept in a folder that begins empty."""

    def once(environment: dict[str, str]) -> tuple[float, int]:
        with tempfile.TemporaryDirectory() as folder:
            words = ["-m", "rankbits", "train", birds, "-o", f"{folder}/encoder"]
            environment |= {"RANKBITS_DATA": folder}
            begin = time.perf_counter()
            child = subprocess.Popen(
                [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL
            )
            _, status, used = os.wait4(child.pid, 0)
            seconds = time.perf_counter() - begin
            child.returncode = os.waitstatus_to_exitcode(status)
            assert child.returncode == 0, words
            return seconds, used.ru_maxrss * 1024

    files = sum(path.is_file() for path in Path(birds).rglob("*"))
    compare_ways(bench, "rankbits train, a whole command", files, once, repeats)


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
            time_batches(bench, case, repeats)
    if arguments.save:
        bench.add() if arguments.birds else bench.save()


if __name__ == "__main__":
    main()
