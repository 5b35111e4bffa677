"""Run a command as if on other machines: ``python tests/machines.py pytest -m learned``.

The last digits of a product depend on the instruction set and on the number of threads, and what is
learned from many products depends on their last digits. Both can be chosen by the environment, so
that one processor stands for several: an old one without AVX, one with AVX2 and two threads, one
with AVX-512 (or this one as it is). The command is run once for each that this processor can be.
Those that fail are named, and the status of the first of them is returned.

    python tests/machines.py --list
    python tests/machines.py --only sse make test
    python tests/machines.py --first make test           # the oldest of them
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

SSE = {
    "ATEN_CPU_CAPABILITY": "default",  # torch's own loops
    "MKL_CBWR": "COMPATIBLE",  # torch's products and decompositions
    "DNNL_MAX_CPU_ISA": "SSE41",  # torch's convolutions
    "OPENBLAS_CORETYPE": "Nehalem",  # numpy's products and decompositions
    "NUMBA_CPU_NAME": "generic",  # our kernels
}
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NUMBA_CPU_NAME": "haswell",
}
AVX512 = {
    "ATEN_CPU_CAPABILITY": "avx512",
    "MKL_CBWR": "AVX512",
    "DNNL_MAX_CPU_ISA": "AVX512_CORE",
    "OPENBLAS_CORETYPE": "SkylakeX",
    "NUMBA_CPU_NAME": "skylake-avx512",
}
# numpy's own loops: a level that it does not find in the processor must not be named
LEVELS = {"X86_V3": "avx2", "X86_V4": "avx512f"}


def processor_flags() -> set[str]:
    """What the processor says it has; nothing where it cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def simulated(flags: set[str] | None = None) -> dict[str, dict[str, str]]:
    """Name -> environment of the machines that a processor with these flags can be."""
    flags = processor_flags() if flags is None else flags
    if platform.machine() not in ("x86_64", "AMD64"):  # instruction sets of others have other names
        return {f"{n}-threads": {"OMP_NUM_THREADS": str(n)} for n in (1, 2, 3)}
    machines = {"sse": {**SSE, **_without(flags, "X86_V3", "X86_V4"), "OMP_NUM_THREADS": "1"}}
    if {"avx2", "fma"} <= flags:
        machines["avx2"] = {**AVX2, **_without(flags, "X86_V4"), "OMP_NUM_THREADS": "2"}
    if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags:
        machines["avx512"] = {**AVX512, "OMP_NUM_THREADS": "1"}
    else:
        machines["native"] = {"OMP_NUM_THREADS": "2"}
    return machines


def _without(flags: set[str], *levels: str) -> dict[str, str]:
    present = [level for level in levels if LEVELS[level] in flags]
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(present)} if present else {}


def run_on(machine: str, setting: Mapping[str, str], command: list[str]) -> int:
    """Run the command with ``RANKBITS_MACHINE`` and the machine's settings -> its status."""
    begin = time.monotonic()
    print(f"== {machine}: {' '.join(f'{k}={v}' for k, v in setting.items())}", flush=True)
    status = subprocess.call(command, env={**os.environ, **setting, "RANKBITS_MACHINE": machine})
    print(f"== {machine}: status {status}, {time.monotonic() - begin:.0f} s", flush=True)
    return status


def main(words: list[str]) -> int:
    machines = simulated()
    if words[:1] == ["--list"]:
        for name, setting in machines.items():
            print(name, *(f"{k}={v}" for k, v in setting.items()))
        return 0
    if words[:1] == ["--first"]:
        machines, words = dict(list(machines.items())[:1]), words[1:]
    if words[:1] == ["--only"]:
        chosen, words = words[1].split(","), words[2:]
        unknown = [name for name in chosen if name not in machines]
        if unknown:
            print(f"this processor cannot be {unknown[0]}; it can be {', '.join(machines)}")
            return 2
        machines = {name: machines[name] for name in chosen}
    if not words:
        print(__doc__)
        return 2
    statuses = {name: run_on(name, setting, words) for name, setting in machines.items()}
    failed = [name for name, status in statuses.items() if status]
    print(f"== {len(statuses) - len(failed)} of {len(statuses)} machines agree", *failed)
    return statuses[failed[0]] if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
