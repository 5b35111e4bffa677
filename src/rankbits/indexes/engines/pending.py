"""A note of an unfinished write, beside a database that could leave the write half done."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbits._files import read_arrays, sweep_unfinished, write_arrays


class Pending:
    """The note ``<file>.pending``: one write, to be done again if it was interrupted."""

    def __init__(self, file: Path) -> None:
        self.path = file.with_name(f"{file.name}.pending")

    def write(self, verb: str, table: str, keys: list, packed: np.ndarray | None) -> None:
        """Write the note: ``keys``, whole numbers or strings without line ends, and their codes."""
        strings = bool(keys) and isinstance(keys[0], str)
        facts = {"verb": verb, "table": table, "strings": str(int(strings))}
        arrays = {"ids": np.frombuffer("\n".join(map(str, keys)).encode(), np.uint8)}
        if packed is not None:
            arrays["packed"] = packed
        write_arrays(self.path, "pending write", facts, arrays, form=".npz")

    def read(self) -> tuple[str, str, list, np.ndarray | None] | None:
        """The table, verb, keys and codes of the note; None where there is no note."""
        if not self.path.exists():
            return None
        facts, arrays = read_arrays(self.path, "pending write")
        lines = arrays["ids"].tobytes().decode().split("\n")
        keys = lines if facts["strings"] == "1" else [int(line) for line in lines]
        return facts["table"], facts["verb"], keys, arrays.get("packed")

    def forget(self) -> None:
        """Delete the note, and unfinished ones of killed processes."""
        sweep_unfinished(self.path.parent, self.path.name)
        self.path.unlink(missing_ok=True)
