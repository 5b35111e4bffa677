"""The papers' claims on real data: recipes, the cells they are run in, the rows that come of it."""

from rankbits.reproduce.recipe import Cell, Recipe, names, read_recipe, recipes

__all__ = ["Cell", "Recipe", "names", "read_recipe", "recipes"]
