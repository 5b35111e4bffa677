"""Doctests are collected from every module that this machine can import; parallel workers take one
thread each, for two workers with two threads each on two cores spend their time waiting."""

import os
from importlib.util import find_spec

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

collect_ignore_glob = [] if find_spec("triton") else ["src/rankbits/kernels/cuda/*"]
