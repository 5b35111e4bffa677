"""Forget compiled loops when any source of the kernels has changed.

Numba keeps a compiled loop in a file and compiles it again only if the loop's own source file has
another date or size. But a compiled loop contains the loops of other files that it calls, and
constants from ``kernels/reference``: after an update of those files alone (``git pull`` in an
editable installation) the old code would still run, and give old results.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from numba import njit

KERNELS = Path(__file__).parent.parent
SEEN = "rankbits-kernels.txt"  # beside the compiled loops: a digest of the sources they are made of


@njit(cache=True)
def _do_nothing():
    return 0


def forget_changed(kept: Path | None = None, sources: Path = KERNELS) -> None:
    """Delete numba's list of the loops in the folder ``kept`` (by default the one where numba keeps
    those of this package) unless the files below ``sources`` are those that were compiled.

    Where the folder cannot be written, numba keeps nothing in it either.
    """
    kept = kept or find_kept()
    if kept is None:
        return
    digest = digest_sources(sources)
    with suppress(OSError):
        seen = kept / SEEN
        if seen.is_file() and seen.read_text() == digest:
            return
        for path in kept.glob("*.nbi"):
            path.unlink(missing_ok=True)
        kept.mkdir(parents=True, exist_ok=True)
        seen.write_text(digest)


def find_kept() -> Path | None:
    """The folder in which numba keeps the loops of this package; None where it compiles none."""
    stats = getattr(_do_nothing, "stats", None)  # a plain function under NUMBA_DISABLE_JIT
    return Path(stats.cache_path) if stats and stats.cache_path else None


def digest_sources(folder: Path) -> str:
    """32 hexadecimal digits that change with the name, date or size of a Python file below."""
    facts = []
    for path in sorted(folder.rglob("*.py")):
        state = path.stat()
        facts.append((str(path.relative_to(folder)), state.st_mtime_ns, state.st_size))
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()
