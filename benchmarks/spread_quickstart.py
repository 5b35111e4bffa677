"""What ``rankbits quickstart`` prints on machines that round differently.

    python tests/machines.py python benchmarks/spread_quickstart.py --save

Each machine of ``tests/machines.py`` adds its rows to those of the others, one for each method: mAP
and the range that ties leave open. The table in the README states a spread that covers these rows,
and a test compares quickstart with that table.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import tempfile

from _bench import Bench
from rankbits.cli import main as rankbits

NUMBER = r"(0\.\d{4})"
LINE = re.compile(rf"^(\S+) +{NUMBER} +{NUMBER} to {NUMBER} +\d+$", re.M)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="add to benchmarks/results")
    asked = parser.parse_args()
    bench = Bench("spread_quickstart", threads=int(os.environ.get("OMP_NUM_THREADS", 1)), seed=0)
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        status = rankbits(["quickstart", "--folder", folder])
    figures = LINE.findall(printed.getvalue())
    if status or len(figures) != 5:
        raise SystemExit(f"quickstart printed no table:\n{printed.getvalue()}")
    for method, *values in figures:
        value, worst, best = map(float, values)
        machine = os.environ.get("RANKBITS_MACHINE", "native")
        bench.rows.append(
            {"machine": machine, "method": method, "mAP": value, "worst": worst, "best": best}
        )
        print(machine, method, value, worst, best)
    if asked.save:
        bench.add()


if __name__ == "__main__":
    main()
