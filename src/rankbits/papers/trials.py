"""Choose the settings of a recipe by trials: the row of another recipe that validates best.

Trials hold rows out for validation; the recipe then learns from all rows. The choice is read from
the rows of the trials, so nobody has to copy it into the recipe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits.papers.recipe import Recipe, combine, read_recipes
from rankbits.papers.rows import Settings, name_file, read_rows


def list_candidates(recipe: Recipe, settings: Settings) -> list[dict[str, Any]]:
    """List the settings that a cell tries: the candidates of [choose], or the best trial's."""
    if not recipe.trials:
        return combine(recipe.choose)
    (trials,) = read_recipes(settings.recipes, [recipe.trials])
    if settings.short:
        return trials.variants[:1]
    results = Path(settings.results or Path(settings.recipes) / "results")
    rows = [
        row for row in read_rows(name_file(results, trials.paper)) if row["name"] == trials.name
    ]
    tried = [
        row for row in rows if row["vary"] in trials.variants and row["validation"] is not None
    ]
    missing = [vary for vary in trials.variants if vary not in [row["vary"] for row in tried]]
    if missing:
        _check.refuse(
            f"{recipe.name} takes its settings from trials, which are not complete "
            f"({len(missing)} missing); first run: rankbits reproduce {trials.name}."
        )
    best: dict[str, Any] = max(tried, key=lambda row: row["validation"])["vary"]
    return [best]
