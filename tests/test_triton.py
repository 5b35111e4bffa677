"""The Triton kernels where there is no GPU: interpreted on the CPU, and compiled for GPUs.

Interpreted kernels give what their definition gives (``tests/interpreted``). The launches of that
run are then compiled to machine code, by the same steps of Triton as on a GPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from unmeasured import UNMEASURED

pytest.importorskip("triton", reason="needs triton")

ROOT = Path(__file__).parent.parent
KERNELS = [
    f"{path.stem}.{name}"
    for path in sorted((ROOT / "src/rankbits/kernels/cuda").glob("*.py"))
    for name in re.findall(r"^def (\w+_kernel)\(", path.read_text("utf-8"), re.MULTILINE)
]


@pytest.fixture(scope="module")
def interpreted(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[subprocess.CompletedProcess, Path]:
    """The run of ``tests/interpreted``, and the file of its launches."""
    path = tmp_path_factory.mktemp("interpreted") / "launches"
    words = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    variables = UNMEASURED | {"TRITON_INTERPRET": "1", "RANKBITS_LAUNCHES": str(path)}
    done = subprocess.run(
        [*words, "tests/interpreted"], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    return done, path


def test_interpreted_kernels_give_what_their_definition_gives(interpreted):
    done, _ = interpreted
    assert done.returncode == 0, done.stdout + done.stderr


def find_facts(arguments: list, constants: dict[str, Any]) -> set[tuple]:
    """What Triton compiles a kernel for: dtypes, constants, and which numbers are 1 or multiples of
    16."""
    facts: set[tuple] = set(constants.items())
    for place, value in enumerate(arguments):
        number = isinstance(value, int | float)
        facts.add((place, value == 1, value % 16 == 0) if number else (place, value))
    return facts


def choose_launches(path: Path, kernel: str) -> list[tuple[list, dict[str, Any]]]:
    """A few launches of a kernel with every fact of all its launches."""
    chosen, seen = [], set()
    for name, arguments, constants in map(json.loads, path.read_text().splitlines()):
        facts = find_facts(arguments, constants)
        if name == kernel and not facts <= seen:
            seen |= facts
            chosen.append((arguments, constants))
    return chosen


class AbsentGPU:
    """A driver of Triton for a GPU of another machine: kernels can be compiled, not launched."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> str:
        """A name, so that Triton keeps these kernels apart from those of a real GPU."""
        return f"absent {self.capability}"

    def get_current_stream(self, device: str) -> int:
        return 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_compile_for_gpus(kernel, interpreted, monkeypatch):
    from triton.runtime.driver import driver

    launches = choose_launches(interpreted[1], kernel)
    assert launches, f"tests/interpreted never launches {kernel}"
    room, _, name = kernel.partition(".")
    function = getattr(import_module(f"rankbits.kernels.cuda.{room}"), name)
    # Triton keeps machine code in files, by all that it was made of
    monkeypatch.setenv("TRITON_CACHE_DIR", str(ROOT / "build" / "triton"))
    for capability, part in ((90, launches), (80, launches[:1])):
        monkeypatch.setattr(driver, "_active", AbsentGPU(capability))
        for arguments, constants in part:
            types = [getattr(torch, a) if isinstance(a, str) else a for a in arguments]
            compiled = function.warmup(*types, grid=(1,), **constants)
            assert compiled.asm["cubin"]
