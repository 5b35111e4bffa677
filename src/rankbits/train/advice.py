"""Advice for the user of a run that does not learn; each warning is given once.

The lines depend on the run's validations alone, so a resumed run does not repeat a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankbits.train.config import TrainConfig

STILL = 3  # validations in a row without progress before the user is warned
ABOVE_CHANCE = 0.02  # share of the way from chance to 1 that counts as nothing learned
CONSTANT = 0.1  # share of the bits that may be constant without a warning
AGAIN = 2  # validations in a row with more: bits that are constant at the first often change later


@dataclass(frozen=True)
class Advisor:
    """Turns the validations of a run into lines for its user.

    ``chance`` is the mAP of a random order, ``rows`` the number of validation rows and ``kind`` the
    kind of the inputs: 'images' or 'features'.
    """

    config: TrainConfig
    kind: str
    chance: float
    rows: int

    def advise(self, history: Sequence[dict[str, Any]], last: bool = False) -> list[str]:
        """Return the lines that are new since the validation before. The last row of ``history``
        is a validation; ``last`` says that no other follows."""
        rows = [row for row in history if "validation_mAP" in row]
        figures = [row["validation_mAP"] for row in rows]
        constant = [row.get("constant_bits", 0) for row in rows]
        lines = []
        if self._stands_still(figures) and not any(
            self._stands_still(figures[:end]) for end in range(len(figures))
        ):
            lines.append(self._describe_standstill(figures[-1]))
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
        """Whether the last figures are all at chance, or all equal and no better than the run's
        first: a run that has learned may end on equal figures."""
        last = figures[-STILL:]
        if len(last) < STILL:
            return False
        if all(self._at_chance(figure) for figure in last):
            return True
        digits = {round(figure, 4) for figure in last}
        return len(digits) == 1 and max(digits) <= round(figures[0], 4) and max(digits) < 1

    def _at_chance(self, figure: float) -> bool:
        return figure <= self.chance + ABOVE_CHANCE * (1 - self.chance)

    def _describe_standstill(self, figure: float) -> str:
        if self._at_chance(figure):
            why = f"is no better than chance ({self.chance:.4f})"
        else:
            why = f"has not moved from {figure:.4f}"
        return (
            f"validation mAP {why} over {STILL} validations, so the network does not learn: try "
            f"{self._list_remedies()}."
        )

    def _list_remedies(self) -> str:
        config, remedies = self.config, []
        if self.kind == "images":
            if not config.weights and config.model != "own":
                remedies.append("a pretrained network (--preset fine-tune)")
            remedies.append("the outputs of a frozen one (--preset frozen)")
        return " or ".join([*remedies, f"a smaller lr than {config.lr:g}"])
