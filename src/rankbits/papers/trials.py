"""Settings chosen by trials: rows of another recipe, of which the best on validation rows counts.

Trials hold rows out to choose by; what is judged then learns from all of them. The choice follows
from the rows of the trials, so nobody has to copy it into a recipe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits.papers.recipe import Recipe, combine, read_recipes
from rankbits.papers.rows import Settings, name_file, read_rows


def list_candidates(recipe: Recipe, settings: Settings) -> list[dict[str, Any]]:
    """What a cell is trained with in turn: the candidates of [choose], or its best trial."""
    if not recipe.trials:
        return combine(recipe.choose)
    (trials,) = read_recipes(settings.recipes, [recipe.trials])
    if settings.short:
        return trials.varied()[:1]
    results = Path(settings.results or Path(settings.recipes) / "results")
    rows = [
        row for row in read_rows(name_file(results, trials.paper)) if row["name"] == trials.name
    ]
    tried = [
        row for row in rows if row["vary"] in trials.varied() and row["validation"] is not None
    ]
    lacking = [vary for vary in trials.varied() if vary not in [row["vary"] for row in tried]]
    if lacking:
        _check.refuse(
            f"{recipe.name} takes its settings from trials, of which {len(lacking)} are missing; "
            f"first run: rankbits reproduce {trials.name}."
        )
    best: dict[str, Any] = max(tried, key=lambda row: row["validation"])["vary"]
    return [best]
