"""How long the classical methods take to fit 5,000 x 1,280 features to 48 bits.

    python benchmarks/speed_classical.py [--quick] [--save]

The features are made: ten classes, each a mean and noise in 200 directions that all share, cut off
at zero like those of a network. A fit takes a minute or more, so each is timed once, after a fit of
200 rows that compiles. A row has the seconds of all threads, and the share of the machine that
other processes used meanwhile.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import rankbits as rb
from _bench import Bench, _clocks

THREADS, SEED = 2, 0
ROWS, DIM, BITS, CLASSES, DIRECTIONS = 5000, 1280, 48, 10, 200
METHODS = (rb.BRE, rb.FastHash, rb.MACHash, rb.StructHash)


def make_features(rows: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(SEED)
    labels = np.arange(rows) % CLASSES
    means = draw.standard_normal((CLASSES, DIM)) * 0.3
    noise = draw.standard_normal((rows, DIRECTIONS)) @ draw.standard_normal((DIRECTIONS, DIM))
    features = means[labels] + noise / DIRECTIONS**0.5 + 0.3 * draw.standard_normal((rows, DIM))
    return np.maximum(features, 0).astype(np.float32), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="500 rows, to try it out")
    parser.add_argument("--save", action="store_true", help="keep the rows in benchmarks/results")
    options = parser.parse_args()
    bench = Bench("speed_classical", threads=THREADS, seed=SEED)
    x, y = make_features(500 if options.quick else ROWS)
    for method in METHODS:
        method(2, seed=SEED).fit(x[:200], y[:200])
        begin, spent, clocks = time.perf_counter(), time.process_time(), _clocks()
        quantizer = method(BITS, seed=SEED).fit(x, y)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - spent
        others, total = _clocks() - clocks
        assert quantizer.encode(x).bits == BITS
        bench.note(
            f"Fit of {len(x):,} x {DIM:,} to {BITS} bits",
            name=method.__name__,
            seconds=round(seconds, 1),
            seconds_of_all_threads=round(cpu, 1),
            others_share=round(float(max(0.0, others / max(total, 0.01))), 3),
        )
        if options.save:  # after each, for all of them take long
            bench.save()


if __name__ == "__main__":
    main()
