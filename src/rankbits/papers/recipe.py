"""Read recipes: TOML files that each describe one row of a paper's table, or one curve of a figure.

The name of ``reproduce/talr/table1-s1/dpsh.toml`` is ``talr/table1-s1/dpsh``. A recipe has a cell
for each code length, each value that it varies, and each seed; a cell is run as one job.
``extends = "talr/_frozen"`` begins a recipe with the tables of another file, or of several.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits.papers.extends import EXTENDS, read_table
from rankbits.train import TrainConfig

QUANTIZERS = (
    "none", "random", "itq", "itq-raw", "itq-port", "h2q", "h2q-sgd", "h2q-adam", "h2q-l1",
    "h2q-min", "h2q-variance", "supervised",
)  # fmt: skip
KINDS = ("train", "neighbours", "shallow", "example")
WORDS = ("paper", "place", "method", "differs")
OWN = ("bits", "seed", "out", "root", "device")  # set by the cell or the command, not by [train]


@dataclass(frozen=True)
class Cell:
    """One job of a recipe: a code length (None: [train] has dim), a seed, the varied settings."""

    bits: int | None
    seed: int
    vary: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{self.bits} bits"] if self.bits else []
        parts += [f"{name.removeprefix('options.')} {value}" for name, value in self.vary.items()]
        return ", ".join([*parts, f"seed {self.seed}"])


@dataclass(frozen=True)
class Recipe:
    """A checked recipe.

    ``figures``: the paper's figures by quantizer, nan where it has none, in the order of ``bits``
    (of the values of [vary], where there are no bits). ``choose``: lists of candidates by setting;
    each cell is judged with those that are best on its validation rows. ``trials``: a recipe whose
    best row on validation rows gives the settings that it varies. ``distances``: rows count the
    pairs of the same class and of others at each Hamming distance.

    >>> recipe = make_recipe("x/y", {
    ...     "paper": "X", "place": "Table 1", "method": "CEL", "differs": "the network",
    ...     "bits": [16, 32], "seeds": [0, 1], "figures": {"none": [0.8, 0.9]},
    ...     "train": {"data": "cifar10-s1", "loss": "cel"}})
    >>> [str(cell) for cell in recipe.cells(bits=16)]
    ['16 bits, seed 0', '16 bits, seed 1']
    >>> recipe.figure("none", recipe.cells()[-1]), recipe.config(recipe.cells()[-1]).bits
    (0.9, 32)
    """

    name: str
    paper: str
    place: str
    method: str
    differs: str
    train: dict[str, Any]
    metric: str = "mAP"
    bits: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    quantizers: tuple[str, ...] = ("none",)
    kind: str = "train"
    seen: int | None = None
    keep: bool = False
    scaled: bool = False
    distances: bool = False
    trials: str = ""
    figures: dict[str, tuple[float, ...]] = field(default_factory=dict)
    choose: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    vary: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def cells(self, bits: int | None = None, seed: int | None = None) -> list[Cell]:
        """List every cell, or those of one code length and one seed. The seed may be any; the code
        length must be one of the recipe's."""
        if bits is not None and bits not in self.bits:
            lengths = ", ".join(map(str, self.bits)) or "none"
            _check.refuse(f"{self.name} has no row of {bits} bits; it has {lengths}.")
        every = (bits,) if bits is not None else self.bits or (None,)
        seeds = (_check.whole("seed", seed, 0),) if seed is not None else self.seeds
        return [Cell(b, s, v) for v in self.variants for b in every for s in seeds]

    @property
    def variants(self) -> list[dict[str, Any]]:
        """Every combination of the values that [vary] lists."""
        return combine(self.vary)

    def config(self, cell: Cell, **changes: Any) -> TrainConfig:
        """Make the settings of a cell; ``changes`` override what it varies."""
        facts = change_settings(self.train, cell.vary) | {"seed": cell.seed}
        if cell.bits is not None:
            facts["bits"] = cell.bits
        return TrainConfig().with_changes(**{**facts, **changes})

    def figure(self, quantizer: str, cell: Cell) -> float | None:
        """Find the paper's figure of a cell, or None."""
        values = self.figures.get(quantizer, ())
        order: list[Any] = list(self.bits) or self.variants
        place = cell.bits if self.bits else cell.vary
        if not values or place not in order or math.isnan(values[order.index(place)]):
            return None
        return values[order.index(place)]


def combine(table: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """List every combination of one value per name; without names, one empty combination.

    >>> combine({"lr": (1, 2)}), combine({})
    ([{'lr': 1}, {'lr': 2}], [{}])
    """
    return [dict(zip(table, values, strict=True)) for values in itertools.product(*table.values())]


def change_settings(facts: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Change settings; ``options.x`` is option x of the loss.

    >>> change_settings({"lr": 1, "options": {"a": 1}}, {"options.b": 2})
    {'lr': 1, 'options': {'a': 1, 'b': 2}}
    """
    options = dict(facts.get("options") or {})
    merged = dict(facts)
    for name, value in changes.items():
        head, _, option = name.partition(".")
        if option:
            options[option] = value
        else:
            merged[head] = value
    return {**merged, "options": options} if options else merged


KEYS = tuple(f.name for f in dataclasses.fields(Recipe) if f.name != "name")


def make_recipe(name: str, table: dict[str, Any]) -> Recipe:
    """Make a recipe from a TOML table, or refuse the table in one sentence."""
    for key in table:
        if key not in KEYS:
            near = _check.suggest(key, (*KEYS, EXTENDS))
            _check.refuse(f"{name} has an unknown key '{key}'{near}.")
    for key in WORDS:
        if not isinstance(table.get(key), str) or not table[key].strip():
            _check.refuse(f"{name} must say its {key} in words; got {table.get(key)!r}.")
    if not table["paper"].replace("-", "").isalnum():  # it becomes the name of a file
        _check.refuse(f"The paper of {name} must be letters and digits; got {table['paper']!r}.")
    settings = [f.name for f in dataclasses.fields(TrainConfig) if f.name not in OWN]
    facts = {"train": None, **table}
    _check_settings(name, facts["train"], settings)
    for key in ("bits", "seeds", "quantizers"):
        if key in table:
            facts[key] = _check_list(f"{key} of {name}", table[key])
    for key in ("choose", "vary"):
        if key in table:
            facts[key] = _check_candidates(f"[{key}] of {name}", table[key], settings)
    figures = facts.pop("figures", {})
    recipe = Recipe(name, **facts)
    _check_values(recipe)
    return dataclasses.replace(recipe, figures=_check_figures(recipe, figures))


def _check_values(recipe: Recipe) -> None:
    """Refuse values of the wrong kind, values that exclude each other, and settings that
    TrainConfig refuses."""
    name = recipe.name
    if not isinstance(recipe.metric, str) or not recipe.metric:
        _check.refuse(f"The metric of {name} must be a figure's name; got {recipe.metric!r}.")
    _check.choice(f"The kind of {name}", recipe.kind, KINDS)
    for quantizer in recipe.quantizers if recipe.kind == "train" else ():
        _check.choice(f"A quantizer of {name}", quantizer, QUANTIZERS)
    for key in ("keep", "scaled", "distances"):
        if not isinstance(getattr(recipe, key), bool):
            _check.refuse(f"{key} of {name} must be true or false; got {getattr(recipe, key)!r}.")
    for bits in recipe.bits:
        _check.whole(f"bits of {name}", bits, 1)
    for seed in recipe.seeds:
        _check.whole(f"seeds of {name}", seed, 0)
    if recipe.seen is not None:
        _check.whole(f"seen of {name}", recipe.seen, 1)
    if bool(recipe.bits) == ("dim" in recipe.train):
        _check.refuse(f"{name} must have either bits or, in [train], dim.")
    if not recipe.seeds or not recipe.quantizers:
        _check.refuse(f"{name} must have at least one seed and one quantizer.")
    if not isinstance(recipe.trials, str) or (recipe.trials and recipe.choose):
        _check.refuse(
            f"trials of {name} must be a recipe's name, without [choose]; got {recipe.trials!r}."
        )
    if recipe.keep and (recipe.choose or recipe.scaled):
        _check.refuse(f"{name} keeps its runs, so it must neither choose nor have scaled = true.")
    for changes in combine(recipe.choose) + recipe.variants:
        try:
            recipe.config(Cell(recipe.bits[0] if recipe.bits else None, 0, changes))
        except _check.Refusal as sentence:
            _check.refuse(f"In {name}: {sentence}")


def _check_settings(name: str, table: Any, known: list[str]) -> None:
    if not isinstance(table, dict) or not table.get("data"):
        _check.refuse(f"{name} must have a table [train] that names its data.")
    for key in table:
        if key not in known:
            _check.refuse(f"[train] of {name} has no '{key}'{_check.suggest(key, known)}.")


def _check_list(what: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(set(map(str, value))) != len(value):
        _check.refuse(f"{what} must be a list without repeats; got {value!r}.")
    return tuple(value)


def _check_candidates(what: str, table: Any, known: list[str]) -> dict[str, tuple[Any, ...]]:
    if not isinstance(table, dict):
        _check.refuse(f"{what} must be a table of lists; got {table!r}.")
    for setting, values in table.items():
        head, dot, option = setting.partition(".")
        if (head != "options" or not option) if dot else head not in known:
            _check.refuse(f"{what} has no setting '{setting}'{_check.suggest(head, known)}.")
        if not _check_list(f"'{setting}' in {what}", values):
            _check.refuse(f"'{setting}' in {what} must have a value.")
    return {setting: tuple(values) for setting, values in table.items()}


def _check_figures(recipe: Recipe, table: Any) -> dict[str, tuple[float, ...]]:
    what = f"[figures] of {recipe.name}"
    if not isinstance(table, dict):
        _check.refuse(f"{what} must be a table of lists; got {table!r}.")
    wanted = len(recipe.bits) or len(recipe.variants)
    for quantizer, values in table.items():
        if quantizer not in recipe.quantizers:
            near = _check.suggest(quantizer, recipe.quantizers)
            _check.refuse(f"{what} names '{quantizer}', which it does not run{near}.")
        numbers = isinstance(values, list) and all(type(v) in (int, float) for v in values)
        if not numbers or len(values) != wanted:
            _check.refuse(
                f"{what} must have {wanted} numbers for '{quantizer}', nan where the paper has "
                f"none; got {values!r}."
            )
    return {quantizer: tuple(map(float, values)) for quantizer, values in table.items()}


def read_recipe(path: Path, name: str) -> Recipe:
    """Read the recipe of a file; its name says how deep it is below the folder of recipes."""
    folder = path.parents[min(name.count("/"), len(path.parents) - 1)]
    return make_recipe(name, read_table(path, folder))


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """List the names of all recipes below a folder, sorted; names with an underscore are none."""
    root = Path(folder)
    if not root.is_dir():
        _check.refuse(f"There is no folder of recipes {root}; give it as --recipes.")
    files = (p for p in root.rglob("*.toml") if not p.name.startswith("_"))
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in files)


def read_recipes(folder: str | os.PathLike[str], wanted: Iterable[str] = ()) -> list[Recipe]:
    """Read recipes by name; the name of a folder means all in it, and no name means all."""
    names = list_names(folder)
    chosen: dict[str, None] = {}
    for word in wanted or ("",):
        name = word.strip("/").removesuffix(".toml")
        matches = [n for n in names if not name or n == name or n.startswith(f"{name}/")]
        if not matches:
            every = {*names, *(str(p) for n in names for p in Path(n).parents if p.name)}
            near = _check.suggest(name, sorted(every))
            _check.refuse(f"There is no recipe '{word}' in {folder}{near}.")
        chosen |= dict.fromkeys(matches)
    return [read_recipe(Path(folder) / f"{n}.toml", n) for n in chosen]
