"""Compiled loops are forgotten when a file that they contain has changed."""

from __future__ import annotations

import os
import subprocess
import sys

from rankbits.kernels.cpu.stale import SEEN, digest_sources, forget_changed

INNER = "from numba import njit\n\n@njit(cache=True)\ndef inner():\n    return {}\n"
OUTER = """from numba import njit

from inner import inner

@njit(cache=True)
def outer():
    return inner() + 0

print(outer())
"""
FORGET = """from pathlib import Path
from rankbits.kernels.cpu.stale import forget_changed
forget_changed(Path("__pycache__"), Path("."))
"""


def run(folder, script, **variables):
    environment = {n: v for n, v in os.environ.items() if n != "NUMBA_CACHE_DIR"} | variables
    words = [sys.executable, "-c", script]
    done = subprocess.run(
        words, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_loop_of_another_file_is_compiled_again(tmp_path):
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(1))
    assert run(tmp_path, FORGET + "import outer") == "1"
    (tmp_path / "inner.py").write_text(INNER.format("10 + 10"))
    assert run(tmp_path, "import outer") == "1"  # numba alone looks at outer.py only
    assert run(tmp_path, FORGET + "import outer") == "20"


def test_loops_stay_as_long_as_no_source_changes(tmp_path):
    sources, kept = tmp_path / "sources", tmp_path / "kept"
    (sources / "deep").mkdir(parents=True)
    for name in ("a.py", "deep/b.py"):
        (sources / name).write_text("x = 1\n")
    forget_changed(kept, sources)
    (kept / "a.loop.nbi").write_text("")
    (kept / "other.txt").write_text("")
    forget_changed(kept, sources)
    assert sorted(path.name for path in kept.iterdir()) == ["a.loop.nbi", "other.txt", SEEN]
    before = digest_sources(sources)
    (sources / "deep" / "b.py").write_text("x = 22\n")
    assert digest_sources(sources) != before
    forget_changed(kept, sources)
    assert sorted(path.name for path in kept.iterdir()) == ["other.txt", SEEN]


def test_numba_without_compilation_keeps_nothing(tmp_path):
    script = "from rankbits.kernels.cpu.stale import find_kept; print(find_kept())"
    assert run(tmp_path, script, NUMBA_DISABLE_JIT="1") == "None"
    assert run(tmp_path, script) != "None"


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "a.py").write_text("")
    forget_changed(tmp_path / "file" / "kept", tmp_path)
