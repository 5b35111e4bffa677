"""Repair: write all that can be read in a damaged index file to a new one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rankbits import _check
from rankbits.indexes.file import SIZE, read_body, read_header, replace_whole
from rankbits.indexes.journal import read_journal, replay
from rankbits.indexes.segments import Snapshot


@dataclass(frozen=True)
class Repaired:
    """What ``repair`` saved: the number of rows, and a description of each missing part."""

    rows: int
    missing: tuple[str, ...]


def repair(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, doubtful: bool = False
) -> Repaired:
    """Write what can be read in ``path`` to a new index file ``out``; ``path`` is not changed.

    A damaged record of the journal is skipped: an id that only it removed comes back, and an id
    that it replaced has the older code. If the checksum of the body's codes does not match, some
    unknown codes are wrong, so all of them are left out unless ``doubtful`` keeps them.

    >>> import tempfile, pathlib
    >>> from rankbits import pack
    >>> from rankbits.indexes import FileIndex
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with FileIndex(folder / "a.index", bits=2) as index:
    ...     for name in ("cat", "dog", "owl"):
    ...         _ = index.add(pack([[1, 1]]), ids=[name])
    >>> data = bytearray((folder / "a.index").read_bytes())
    >>> data[256] ^= 1  # in the second record
    >>> _ = (folder / "a.index").write_bytes(data)
    >>> repair(folder / "a.index", folder / "b.index")
    Repaired(rows=2, missing=('record 2 of the journal, bytes 224 to 319',))
    """
    source = Path(path)
    if not source.is_file():
        _check.refuse(f"{source} does not exist or is not a file.")
    if os.path.lexists(out):
        _check.refuse(f"{out} exists already; repair writes a new file.")
    size, missing = source.stat().st_size, []
    with open(source, "rb") as file:
        header = read_header(file.read(SIZE), size, source)
        try:
            state = read_body(file, source, verify=not doubtful, mapped=True).state
        except _check.Refusal as sentence:
            state = Snapshot(header.bits, facts=_read_facts(file, source))
            why = str(sentence).partition(": ")[2].partition(" (rankbits")[0].rstrip(".")
            missing.append(f"all {header.rows:,} rows of the body: {why}")
        file.seek(header.end)
        journal, gaps = read_journal(file.read(), header)
    missing += gaps
    for number, record in enumerate(journal.records, 1):
        try:
            state = replay(state, [record], strict=False)
        except ValueError:
            missing.append(f"readable record {number} of the journal: its ids are of another kind")
    replace_whole(out, state, replace=False)
    return Repaired(state.count, tuple(missing))


def _read_facts(file: IO[bytes], path: Path) -> Mapping[str, str]:
    try:
        return read_body(file, path, verify=False, mapped=True).state.facts
    except _check.Refusal:
        return {}
