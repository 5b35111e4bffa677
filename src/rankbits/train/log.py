"""The log of a run: ``log.jsonl`` always, TensorBoard's files where it is installed."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankbits._files import write_whole

LOG = "log.jsonl"


def read_log(folder: Path, until: int | None = None) -> list[dict[str, Any]]:
    """Read the rows of a run's log, up to a step. A line that a kill cut short is left out."""
    rows = []
    path = folder / LOG
    if path.is_file():
        for line in path.read_text("utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if until is None or row.get("step", 0) <= until:
                rows.append(row)
    return rows


@dataclass(eq=False)
class Log:
    """The rows of a run's log, kept in memory and, with a folder, on disk."""

    folder: Path | None
    tensorboard: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    writer: Any = None

    def open(self, until: int) -> None:
        """Open the log, and drop the rows after step ``until``, which a killed run wrote past its
        checkpoint."""
        if self.folder is None:
            return
        self.rows = read_log(self.folder, until)
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        write_whole(self.folder / LOG, lambda file: file.write(text.encode()))
        if self.tensorboard:
            self.writer = _open_tensorboard(self.folder, until)

    def write(self, row: dict[str, Any]) -> None:
        """Add a row, without the values that are ``None``."""
        row = {name: value for name, value in row.items() if value is not None}
        self.rows.append(row)
        if self.folder is not None:
            with open(self.folder / LOG, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if self.writer is not None:
            for name in row.keys() - {"step", "epoch"}:
                self.writer.add_scalar(name, row[name], row["step"])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def _open_tensorboard(folder: Path, step: int) -> Any:
    """Open TensorBoard's writer after a step; None where TensorBoard is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
