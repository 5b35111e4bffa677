"""Everything that exists only to repeat papers: publishers' datasets, the papers' splits, recipes,
and the rows that they give. In the package only the commands import it."""

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
