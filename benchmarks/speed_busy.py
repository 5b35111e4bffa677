"""How fast images are embedded while other programs want the processor, by how long idle threads of
torch look for work before they sleep.

    python benchmarks/speed_busy.py [--quick] [--save]

Every sample is a process of its own, for the setting is read once. As many processes as there are
cores compute beside it, and then none does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from _bench import SETTLE, Bench, Timing, _clocks
from rankbits._threads import SPINS
from speed_memory import count_children

CASE = ("embed", "EfficientNet-lite0", 128, 16, 32)
WAYS = {"rankbits": SPINS, "libgomp's own": "300000"}
BUSY = "while True: sum(range(100_000))"


def measure(bench: Bench, busy: int, repeats: int) -> None:
    clocks, own = _clocks(), count_children()
    computing = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        for number in range(repeats):
            for way in list(WAYS)[:: 1 if number % 2 else -1]:
                time.sleep(SETTLE)
                script = Path(__file__).with_name("speed_memory.py")
                row = subprocess.check_output(
                    [sys.executable, str(script), "--case", json.dumps(CASE)],
                    env=os.environ | {"GOMP_SPINCOUNT": WAYS[way]}, text=True,
                )  # fmt: skip
                samples[way].append(json.loads(row)["seconds"])
        elsewhere, total = _clocks() - clocks  # those that compute are not counted before they end
        others = round(max(0.0, float((elsewhere - count_children() + own) / total)), 3)
    finally:
        for process in computing:
            process.kill()
            process.wait()
    what, name, side, rows, batches = CASE
    timings = [Timing(way, samples[way], rows * batches, "images", others) for way in WAYS]
    title = f"{what}: {name} at {side}, beside {busy} processes that compute"
    bench.report(title, timings, ("rankbits",), spins=WAYS, busy=busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    bench = Bench("speed_busy", threads=2, seed=0)
    for busy in (os.cpu_count() or 1, 0):
        measure(bench, busy, 2 if arguments.quick else 9)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
