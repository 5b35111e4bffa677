"""All that exists only to run papers again: publishers' datasets, the papers' splits, recipes, and
the rows they give. Nothing else in the package imports it but the commands."""

from rankbits.papers.protocols import PROTOCOLS, find_protocol, protocol
from rankbits.papers.recipe import Cell, Recipe, names, read_recipe, recipes

__all__ = [
    "PROTOCOLS",
    "Cell",
    "Recipe",
    "find_protocol",
    "names",
    "protocol",
    "read_recipe",
    "recipes",
]
