"""The command that shows what rankbits does, in two minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rankbits._option import option


@dataclass(frozen=True)
class Quickstart:
    """Turn digits into bits in five ways, or texts into bits, and compare them in a table and a
    page; it prints each command that it runs."""

    name: ClassVar[str] = "quickstart"
    places: ClassVar[tuple[str, ...]] = ()
    runs_commands: ClassVar[bool] = True

    folder: str = option("rankbits-quickstart", "where the data, the codes and the page go")
    text: bool = option(False, "use short notes instead of digits (needs the extra text)")
    bits: int | None = option(
        None, "bits of every code (default: 16 for digits, where 61 are the most; 128 for texts)"
    )
    epochs: int = option(40, "passes over the digits when a network is trained")
    seed: int = option(0, "seed of the split and of the training")
    serve: bool = option(False, "then serve the items on a page where you can search them")
    port: int = option(8080, "where --serve listens; 0 for any free port")

    def work(self, run: Callable[[Sequence[str]], int]) -> None:
        from rankbits.quickstart import digits_service, quickstart, quickstart_texts

        if self.text:
            quickstart_texts(self.folder, run, bits=self.bits or 128)
            if self.serve:
                index, report = f"{self.folder}/notes.index", f"{self.folder}/report.json"
                run(["serve", index, "--report", report, "--port", str(self.port)])
            return
        bits = 16 if self.bits is None else self.bits
        judged = quickstart(self.folder, run, bits=bits, epochs=self.epochs, seed=self.seed)
        if self.serve:
            from rankbits.serve import serve

            serve(digits_service(judged, bits=bits, seed=self.seed), port=self.port)
