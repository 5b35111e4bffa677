"""The papers' claims on real data: recipes, the cells they are run in, the rows they give."""

from rankbits.reproduce.recipe import Cell, Recipe, names, read_recipe, recipes

__all__ = ["Cell", "Recipe", "names", "read_recipe", "recipes"]
