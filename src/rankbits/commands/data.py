"""The command that checks data before training, and converts published weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankbits import _check
from rankbits._option import option


@dataclass(frozen=True)
class Data:
    """Check data before training (rankbits data check FOLDER), or convert published weights
    (rankbits data weights NAME SOURCE)."""

    name: ClassVar[str] = "data"
    places: ClassVar[tuple[str, ...]] = ("action", "folder", "source")

    action: str | None = option(None, "check, or weights")
    folder: str | None = option(
        None, "class/*.png, category/class/*.png, .csv, .parquet, .npz, a protocol, or NAME"
    )
    source: str | None = option(None, "for weights: the publisher's package, or its folder")
    out: str | None = option(None, "for weights: a file or folder (default: the data root)", "o")
    seed: int = option(0, "seed of a protocol's splits")
    json: bool = option(False, "print the findings as JSON")

    def work(self) -> None:
        from rankbits.data.inspect import inspect
        from rankbits.papers.protocols import find_protocol

        action = _check.choice("The action of rankbits data", self.action, ("check", "weights"))
        if action == "weights":
            return self._convert_weights()
        if not self.folder:
            _check.refuse("Give the data to check: rankbits data check FOLDER.")
        findings = inspect(find_protocol(self.folder, seed=self.seed) or self.folder)
        print(findings.to_json() if self.json else findings)

    def _convert_weights(self) -> None:
        from rankbits.models import PUBLISHED, convert_weights

        if not self.folder or not self.source:
            _check.refuse(
                f"Give a name ({', '.join(PUBLISHED)}) and the source: "
                "rankbits data weights NAME SOURCE."
            )
        weights = convert_weights(self.folder, self.source, self.out)
        print(f"{weights.path}: {weights.bytes:,} bytes, sha256 of the layers {weights.sha256}")
