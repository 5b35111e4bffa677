"""One command for each arrow. A command is a frozen dataclass: its fields are its flags, its
docstring its help, ``places`` the fields given without a flag, ``work`` what it does."""

from typing import Any

from rankbits.commands.bits import Encode, Fit
from rankbits.commands.completion import Completion
from rankbits.commands.data import Data
from rankbits.commands.judge import Evaluate, Quickstart
from rankbits.commands.learn import Embed, Train
from rankbits.commands.report import Report
from rankbits.commands.reproduce import Reproduce
from rankbits.commands.serve import Serve
from rankbits.commands.store import Index, Repair, Search

COMMANDS: tuple[Any, ...] = (
    Quickstart, Data, Train, Embed, Fit, Encode, Index, Search, Repair, Evaluate, Report, Serve,
    Reproduce, Completion,
)  # fmt: skip

__all__ = ["COMMANDS"]
