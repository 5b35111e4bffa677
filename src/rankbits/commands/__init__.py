"""The commands of the command line. A command is a frozen dataclass: its fields are its flags, its
docstring is its help, ``places`` are the fields given without a flag, and ``work`` runs it."""

from typing import Any

from rankbits.commands.bits import Encode, Fit
from rankbits.commands.completion import Completion
from rankbits.commands.data import Data
from rankbits.commands.evaluate import Evaluate
from rankbits.commands.learn import Embed, Train
from rankbits.commands.quickstart import Quickstart
from rankbits.commands.report import WriteReport
from rankbits.commands.reproduce import Reproduce
from rankbits.commands.serve import Serve
from rankbits.commands.store import BuildIndex, Repair, Search

COMMANDS: tuple[Any, ...] = (
    Quickstart, Data, Train, Embed, Fit, Encode, BuildIndex, Search, Repair, Evaluate,
    WriteReport, Serve, Reproduce, Completion,
)  # fmt: skip
Completion.commands = COMMANDS  # it completes itself too

__all__ = ["COMMANDS"]
