"""The window: ``__all__`` is exactly the surface, and looking through it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import rankbits as rb
from unmeasured import UNMEASURED


def test_all_is_exactly_the_surface():
    public = {
        name
        for name, value in vars(rb).items()
        if not name.startswith("_") and name != "VERSION" and not isinstance(value, ModuleType)
    }
    assert public == set(rb.__all__)


def test_every_public_name_is_documented_and_shown():
    for name in rb.__all__:
        assert ">>>" in (getattr(rb, name).__doc__ or ""), name


def test_importing_loads_neither_numba_nor_triton_nor_a_server():
    code = (
        "import sys, rankbits; "
        "heavy = {'numba', 'triton', 'httptools', 'matplotlib', 'sklearn', 'torch._dynamo'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=UNMEASURED
    )
    assert done.stdout.strip() == "[]"
