"""The command of the first two minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rankbits._option import option


@dataclass(frozen=True)
class Quickstart:
    """Turn digits into bits in five ways, by commands that it shows: a table and a page."""

    name: ClassVar[str] = "quickstart"
    places: ClassVar[tuple[str, ...]] = ()
    runs_commands: ClassVar[bool] = True

    folder: str = option("rankbits-quickstart", "where the data, the codes and the page go")
    bits: int = option(16, "bits of every code, 1 to 61")
    epochs: int = option(40, "passes over the digits when a network is trained")
    seed: int = option(0, "seed of the split and of the training")
    serve: bool = option(False, "then serve the digits and a page to search them")
    port: int = option(8080, "where --serve listens; 0 for any free port")

    def work(self, run: Callable[[Sequence[str]], int]) -> None:
        from rankbits.quickstart import digits_service, quickstart

        report = quickstart(self.folder, run, bits=self.bits, epochs=self.epochs, seed=self.seed)
        if self.serve:
            from rankbits.serve import serve

            serve(digits_service(report, bits=self.bits, seed=self.seed), port=self.port)
