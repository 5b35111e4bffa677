"""What a run tells its user when it does not learn, each thing once.

The lines are a function of the run's validations alone. So a run that was stopped and goes on does
not say again what it has said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankbits.train.config import TrainConfig

STILL = 3  # validations in a row after which a figure that stands still is mentioned
ABOVE_CHANCE = 0.02  # share of the way from chance to 1 that counts as nothing learned
CONSTANT = 0.1  # share of the bits that may be constant without a word
AGAIN = 2  # validations in a row with more of them: after the first, bits often come to life


@dataclass(frozen=True)
class Advisor:
    """Turns the validations of a run into lines for its user.

    ``chance`` is the mAP of a random order, ``rows`` the number of validation rows and ``kind``
    that of the inputs: 'images' or 'features'.
    """

    config: TrainConfig
    kind: str
    chance: float
    rows: int

    def lines(self, history: Sequence[dict[str, Any]], last: bool = False) -> list[str]:
        """The lines to say after the latest of the log's rows, which is a validation: those that
        no validation before it gave a reason for. ``last``: no validation comes after it."""
        rows = [row for row in history if "validation_mAP" in row]
        figures = [row["validation_mAP"] for row in rows]
        constant = [row.get("constant_bits", 0) for row in rows]
        lines = []
        if self._stands_still(figures) and not any(
            self._stands_still(figures[:end]) for end in range(len(figures))
        ):
            lines.append(self._still_line(figures[-1]))
        many = [count > CONSTANT * self.config.width for count in constant]
        again = [all(many[end - AGAIN : end]) for end in range(AGAIN, len(many) + 1)]
        if many[-1] and (last or again[-1:] == [True]) and not any(again[:-1]):
            lines.append(
                f"{constant[-1]} of {self.config.width} bits are the same for all {self.rows:,} "
                "validation rows, so they tell no rows apart: try fewer bits, or a smaller lr than "
                f"{self.config.lr:g}."
            )
        return lines

    def _stands_still(self, figures: list[float]) -> bool:
        """Whether the last figures are all at chance, or all equal and no better than the first of
        the run: a run that has learned may well end on equal figures."""
        last = figures[-STILL:]
        if len(last) < STILL:
            return False
        if all(self._at_chance(figure) for figure in last):
            return True
        digits = {round(figure, 4) for figure in last}
        return len(digits) == 1 and max(digits) <= round(figures[0], 4) and max(digits) < 1

    def _at_chance(self, figure: float) -> bool:
        return figure <= self.chance + ABOVE_CHANCE * (1 - self.chance)

    def _still_line(self, figure: float) -> str:
        if self._at_chance(figure):
            why = f"is no better than chance ({self.chance:.4f})"
        else:
            why = f"has not moved from {figure:.4f}"
        return (
            f"validation mAP {why} over {STILL} validations, so the network does not learn: try "
            f"{self._remedies()}."
        )

    def _remedies(self) -> str:
        config, remedies = self.config, []
        if self.kind == "images":
            if not config.weights and config.model != "own":
                remedies.append("a pretrained network (--preset fine-tune)")
            remedies.append("the outputs of a frozen one (--preset frozen)")
        return " or ".join([*remedies, f"a smaller lr than {config.lr:g}"])
