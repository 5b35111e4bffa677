"""A recipe: one row of a paper's table, or one curve of a figure, as a TOML file says it.

The name of ``reproduce/talr/table1-s1/dpsh.toml`` is ``talr/table1-s1/dpsh``. A recipe has a cell
for each code length, each value of what it varies, and each seed; a cell is what is run at once.
``extends = "talr/_frozen"`` begins a recipe with the tables of another file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
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
    "none", "random", "itq", "h2q", "h2q-l1", "h2q-min", "h2q-variance", "supervised",
)  # fmt: skip
KINDS = ("train", "neighbours")
TEXTS = ("paper", "place", "method", "differs", "metric")
KEYS = (
    *TEXTS, "bits", "seeds", "quantizers", "kind", "seen", "figures", "train", "choose", "vary",
    "keep", "scaled",
)  # fmt: skip
OWN = ("bits", "seed", "out", "root", "device")  # of a cell or of the command, never of [train]


@dataclass(frozen=True)
class Cell:
    """What is run at once: a code length (None: [train] has dim), a seed, what is varied.

    >>> Cell(16, 0, {"options.bins": 5}).key
    '{"bits": 16, "options.bins": 5, "seed": 0}'
    """

    bits: int | None
    seed: int
    vary: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same text for the same cell, however its values were ordered."""
        return json.dumps({"bits": self.bits, "seed": self.seed, **self.vary}, sort_keys=True)

    def __str__(self) -> str:
        parts = [f"{self.bits} bits"] if self.bits else []
        parts += [f"{name.removeprefix('options.')} {value}" for name, value in self.vary.items()]
        return ", ".join([*parts, f"seed {self.seed}"])


@dataclass(frozen=True)
class Recipe:
    """What a TOML file says, checked. ``figures``: the paper's own by quantizer, nan where it has
    none, in the order of ``bits`` (of the values of [vary], where there are no bits). ``choose``:
    candidates by name, of which the one best on validation rows is judged, cell by cell.

    >>> one = recipe_of("x/y", {
    ...     "paper": "X", "place": "Table 1", "method": "CEL", "differs": "the network",
    ...     "bits": [16, 32], "seeds": [0, 1], "figures": {"none": [0.8, 0.9]},
    ...     "train": {"data": "cifar10-s1", "loss": "cel"}})
    >>> [str(cell) for cell in one.cells(bits=16)]
    ['16 bits, seed 0', '16 bits, seed 1']
    >>> one.figure("none", one.cells()[-1]), one.config(one.cells()[-1]).bits
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
    figures: dict[str, tuple[float, ...]] = field(default_factory=dict)
    choose: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    vary: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def cells(self, bits: int | None = None, seed: int | None = None) -> list[Cell]:
        """Every cell, or those of one code length and one seed; a seed of its own may be asked for,
        a code length the table has not is refused."""
        if bits is not None and bits not in self.bits:
            known = ", ".join(map(str, self.bits)) or "none"
            _check.refuse(f"{self.name} has no row of {bits} bits; it has {known}.")
        lengths = (bits,) if bits is not None else self.bits or (None,)
        seeds = (_check.whole("seed", seed, 0),) if seed is not None else self.seeds
        return [Cell(b, s, v) for v in self.varied() for b in lengths for s in seeds]

    def varied(self) -> list[dict[str, Any]]:
        return combinations(self.vary)

    def config(self, cell: Cell, **changes: Any) -> TrainConfig:
        """The settings of a cell; ``changes`` come after what it varies."""
        facts = changed(self.train, cell.vary) | {"seed": cell.seed}
        if cell.bits is not None:
            facts["bits"] = cell.bits
        return TrainConfig().with_changes(**{**facts, **changes})

    def figure(self, quantizer: str, cell: Cell) -> float | None:
        """The paper's figure of a cell, or None."""
        values = self.figures.get(quantizer, ())
        order: list[Any] = list(self.bits) or self.varied()
        place = cell.bits if self.bits else cell.vary
        if not values or place not in order or math.isnan(values[order.index(place)]):
            return None
        return values[order.index(place)]


def combinations(table: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Every choice of one value a name; one empty choice where there are no names.

    >>> combinations({"lr": (1, 2)}), combinations({})
    ([{'lr': 1}, {'lr': 2}], [{}])
    """
    return [dict(zip(table, each, strict=True)) for each in itertools.product(*table.values())]


def changed(facts: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Facts with changes; ``options.x`` is option x of the loss.

    >>> changed({"lr": 1, "options": {"a": 1}}, {"options.b": 2})
    {'lr': 1, 'options': {'a': 1, 'b': 2}}
    """
    made = {**facts, "options": dict(facts.get("options") or {})}
    for name, value in changes.items():
        head, _, option = name.partition(".")
        if option:
            made["options"][option] = value
        else:
            made[head] = value
    return made if made["options"] else {n: v for n, v in made.items() if n != "options"}


def recipe_of(name: str, table: dict[str, Any]) -> Recipe:
    """Make a recipe from a TOML table, or refuse the table in one sentence."""
    for key in table:
        if key not in KEYS:
            near = _check.nearest(key, (*KEYS, EXTENDS))
            _check.refuse(f"{name} has an unknown key '{key}'{near}.")
    for key in TEXTS[:4]:
        if not isinstance(table.get(key), str) or not table[key].strip():
            _check.refuse(f"{name} must say its {key} in words; got {table.get(key)!r}.")
    if not table["paper"].replace("-", "").isalnum():  # it becomes the name of a file
        _check.refuse(f"The paper of {name} must be letters and digits; got {table['paper']!r}.")
    metric = table.get("metric", "mAP")
    if not isinstance(metric, str) or not metric:
        _check.refuse(f"The metric of {name} must be a figure's name; got {metric!r}.")
    kind = _check.choice(f"The kind of {name}", table.get("kind", "train"), KINDS)
    quantizers = _listed(name, "quantizers", table.get("quantizers", ["none"]))
    for quantizer in quantizers if kind == "train" else ():
        _check.choice(f"A quantizer of {name}", quantizer, QUANTIZERS)
    seen = table.get("seen")
    for key in ("keep", "scaled"):
        if not isinstance(table.get(key, False), bool):
            _check.refuse(f"{key} of {name} must be true or false; got {table[key]!r}.")
    bits = _listed(name, "bits", table.get("bits", []))
    seeds = _listed(name, "seeds", table.get("seeds", [0, 1, 2, 3]))
    found = Recipe(
        name,
        paper=table["paper"],
        place=table["place"],
        method=table["method"],
        differs=table["differs"],
        train=_settings(name, table.get("train")),
        metric=metric,
        bits=tuple(_check.whole(f"bits of {name}", b, 1) for b in bits),
        seeds=tuple(_check.whole(f"seeds of {name}", s, 0) for s in seeds),
        quantizers=quantizers,
        kind=kind,
        seen=None if seen is None else _check.whole(f"seen of {name}", seen, 1),
        keep=table.get("keep", False),
        scaled=table.get("scaled", False),
        choose=_candidates(name, "choose", table.get("choose", {})),
        vary=_candidates(name, "vary", table.get("vary", {})),
    )
    return _whole(dataclasses.replace(found, figures=_figures(found, table.get("figures", {}))))


def _whole(recipe: Recipe) -> Recipe:
    """Refuse what only the whole shows: a code length and a dim, settings TrainConfig refuses."""
    name = recipe.name
    if bool(recipe.bits) == ("dim" in recipe.train):
        _check.refuse(f"{name} must have either bits or, in [train], dim.")
    if not recipe.seeds or not recipe.quantizers:
        _check.refuse(f"{name} must have at least one seed and one quantizer.")
    if recipe.keep and (recipe.choose or recipe.scaled):
        _check.refuse(f"{name} keeps its runs, so it must neither choose nor have scaled = true.")
    for choice in (combinations(recipe.choose), recipe.varied()):
        for changes in choice:
            cell = Cell(recipe.bits[0] if recipe.bits else None, 0, changes)
            try:
                recipe.config(cell)
            except _check.Refusal as sentence:
                _check.refuse(f"In {name}: {sentence}")
    return recipe


def _settings(name: str, table: Any) -> dict[str, Any]:
    known = [f.name for f in dataclasses.fields(TrainConfig) if f.name not in OWN]
    if not isinstance(table, dict) or not table.get("data"):
        _check.refuse(f"{name} must have a table [train] that names its data.")
    for key in table:
        if key not in known:
            _check.refuse(f"[train] of {name} has no '{key}'{_check.nearest(key, known)}.")
    return table


def _listed(name: str, key: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(set(map(str, value))) != len(value):
        _check.refuse(f"{key} of {name} must be a list without repeats; got {value!r}.")
    return tuple(value)


def _candidates(name: str, key: str, table: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(table, dict):
        _check.refuse(f"[{key}] of {name} must be a table of lists; got {table!r}.")
    known = [f.name for f in dataclasses.fields(TrainConfig) if f.name not in OWN]
    for setting, values in table.items():
        head, dot, option = setting.partition(".")
        if (head != "options" or not option) if dot else head not in known:
            near = _check.nearest(head, known)
            _check.refuse(f"[{key}] of {name} has no setting '{setting}'{near}.")
        if not _listed(name, f"'{setting}' in [{key}]", values):
            _check.refuse(f"'{setting}' in [{key}] of {name} must have a value.")
    return {setting: tuple(values) for setting, values in table.items()}


def _figures(recipe: Recipe, table: Any) -> dict[str, tuple[float, ...]]:
    if not isinstance(table, dict):
        _check.refuse(f"[figures] of {recipe.name} must be a table of lists; got {table!r}.")
    wanted = len(recipe.bits) or len(recipe.varied())
    found = {}
    for quantizer, values in table.items():
        if quantizer not in recipe.quantizers:
            near = _check.nearest(quantizer, recipe.quantizers)
            _check.refuse(
                f"[figures] of {recipe.name} names no quantizer of it: '{quantizer}'{near}."
            )
        numbers = isinstance(values, list) and all(type(v) in (int, float) for v in values)
        if not numbers or len(values) != wanted:
            _check.refuse(
                f"[figures] of {recipe.name} must have {wanted} numbers for '{quantizer}', nan "
                f"where the paper has none; got {values!r}."
            )
        found[quantizer] = tuple(float(v) for v in values)
    return found


def read_recipe(path: Path, name: str) -> Recipe:
    """The recipe in a file, which lies as deep below the folder of recipes as its name says."""
    folder = path.parents[min(name.count("/"), len(path.parents) - 1)]
    return recipe_of(name, read_table(path, folder))


def names(folder: str | os.PathLike[str]) -> list[str]:
    """The names of all recipes under a folder, sorted; a file named with an underscore is none."""
    root = Path(folder)
    if not root.is_dir():
        _check.refuse(f"There is no folder of recipes {root}; give it as --recipes.")
    files = (p for p in root.rglob("*.toml") if not p.name.startswith("_"))
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in files)


def recipes(folder: str | os.PathLike[str], wanted: Iterable[str] = ()) -> list[Recipe]:
    """The recipes called so: a file's name, or a folder's for all in it. None: all."""
    known = names(folder)
    chosen: list[str] = []
    for word in wanted or ("",):
        given = word.strip("/").removesuffix(".toml")
        found = [n for n in known if not given or n == given or n.startswith(f"{given}/")]
        if not found:
            every = {*known, *(str(p) for n in known for p in Path(n).parents if p.name)}
            near = _check.nearest(given, sorted(every))
            _check.refuse(f"There is no recipe '{word}' in {folder}{near}.")
        chosen += [n for n in found if n not in chosen]
    return [read_recipe(Path(folder) / f"{n}.toml", n) for n in chosen]
