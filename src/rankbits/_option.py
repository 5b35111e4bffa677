"""A flag: a field of a command, with its help and maybe a short name."""

from __future__ import annotations

from dataclasses import field
from typing import Any

DEVICE = "'cpu', 'cuda', 'cuda:1'; auto: a GPU if there is one"  # help of every --device


def option(default: Any, text: str, short: str | None = None) -> Any:
    """A dataclass field that becomes a flag with the help ``text``."""
    return field(default=default, metadata={"help": text, "short": short})
