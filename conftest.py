"""Doctests are collected from every module that this machine can import; parallel workers take one
thread each, for two workers with two threads each on two cores spend their time waiting. Tests that
share what is dear to make go to one of them (the marks of xdist itself are lost on pytest 9.2)."""

import multiprocessing
import os
import subprocess
import sys
from importlib.util import find_spec
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    # Many tests start processes, and each would compile the source of torch again, which takes
    # longer than all else that an import does. The bytecode goes to a folder of its own instead.
    os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "bytecode")
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

# tests keep decoded images and weights apart from those of the person who runs them
os.environ["RANKBITS_DATA"] = str(ROOT / "build" / "data")

collect_ignore_glob = [] if find_spec("triton") else ["src/rankbits/kernels/cuda/*"]
if not find_spec("sentence_transformers"):
    collect_ignore_glob.append("src/rankbits/texts/evaluators.py")
if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob.append("tests/interpreted/*")  # tests/test_triton.py runs it

TOGETHER = (
    "tests/test_engine_faults.py",  # one PostgreSQL
    "tests/test_engines.py",  # one PostgreSQL, one server of forks
    "tests/test_gather.py",  # one pair of processes
    "tests/test_machines.py",  # one fit on each machine
    "tests/test_milvus_server.py",  # one server
    "tests/test_page.py",  # one Chromium, one service
    "tests/test_quickstart.py",  # one quickstart
    "tests/test_results_page.py",  # one reading of the recipes
    "tests/test_scale.py",  # one cluster
    "tests/test_scale_nodes.py",  # one cluster of four nodes
    "tests/test_serve_abuse.py",  # one server
    "tests/test_text",  # one import of sentence-transformers
    "tests/test_train.py::test_two_processes",  # one pair of them
    "tests/test_triton.py",  # one run of the interpreter
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


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels before parallel workers start, which would each compile them."""
    if session.config.getoption("dist", "no") == "loadgroup":
        words = [sys.executable, str(ROOT / "tests" / "compile_kernels.py")]
        unmeasured = {n: v for n, v in os.environ.items() if n != "COVERAGE_PROCESS_CONFIG"}
        halves = [subprocess.Popen([*words, h], env=unmeasured) for h in ("nearest", "rest")]
        assert [process.wait() for process in halves] == [0, 0]


@pytest.fixture(scope="session")
def forks() -> Any:
    """Processes that begin with rankbits and its engines imported, for tests that kill them."""
    context = multiprocessing.get_context("forkserver")
    engines = ["duckdb", "psycopg", "pymilvus", "milvus_lite"]
    context.set_forkserver_preload(["rankbits", "rankbits.kernels.cpu.codes", *engines])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        forkserver.ensure_running()
    return context
