"""Doctests are collected from every module that this machine can import; parallel workers take one
thread each, for two workers with two threads each on two cores spend their time waiting. Tests that
share what is dear to make go to one of them (the marks of xdist itself are lost on pytest 9.2)."""

import os
from importlib.util import find_spec
from typing import Any

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

collect_ignore_glob = [] if find_spec("triton") else ["src/rankbits/kernels/cuda/*"]

TOGETHER = (
    "tests/test_quickstart.py",  # one quickstart
    "tests/test_scale.py",  # one cluster
    "tests/test_serve_abuse.py",  # one server
    "tests/test_train.py::test_two_processes",  # one pair of them
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid)

    return Scheduling(config, log)
