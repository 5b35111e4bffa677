"""All that exists only to run papers again: publishers' datasets, the papers' splits, recipes, and
the rows they give. Nothing else in the package imports it but the commands."""

from rankbits.papers.protocols import PROTOCOLS, find_protocol, protocol
from rankbits.papers.recipe import Cell, Recipe, list_names, read_recipe, read_recipes

__all__ = [
    "PROTOCOLS",
    "Cell",
    "Recipe",
    "find_protocol",
    "list_names",
    "protocol",
    "read_recipe",
    "read_recipes",
]
