"""Let idle threads of torch sleep soon. It must be imported before torch, which reads this once.

Between two loops a thread of OpenMP looks again and again whether there is more to do, and sleeps
only after some milliseconds. Where other programs want the processor, that is time which nobody
gets: embedding images beside them takes several times as long. With this a thread looks for a
thirtieth of that time, and where nothing else runs, nothing gets slower
(``benchmarks/speed_busy.py``).
"""

import os
import sys

SPINS = "10000"
CHOSEN_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")

if "torch" not in sys.modules and not any(name in os.environ for name in CHOSEN_BY_USER):
    os.environ["GOMP_SPINCOUNT"] = SPINS
