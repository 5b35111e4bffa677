"""The house: a room imports only rooms above it, and only kernels know numba and triton."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rankbits"
ROOMS = (
    "_threads", "_version", "_check", "_memory", "_option", "_files", "_progress", "_page", "types",
    "kernels", "metrics", "losses", "models", "quantizers", "indexes", "data", "evaluate", "train",
    "encoder", "texts", "account", "scale", "report", "client", "serve", "papers", "quickstart",
    "commands", "__init__", "cli", "__main__",
)  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    """Every module a file names in an import, wherever the import stands."""
    return imports_in(ast.parse(path.read_text()), path)


def imports_in(tree: ast.AST, path: Path) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> set[str]:
    """The modules of the package that a file imports, lazily or not. What stands under
    ``if TYPE_CHECKING`` is never imported."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    modules = set()
    for name in imports_in(tree, path):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        modules.add(name)
    return modules - {"", module_of(path)}


MODULES = {module_of(path): path for path in FILES}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "rankbits":
            inside = len(parts) > 1 and parts[1] in ROOMS
            rooms.add(parts[1] if inside else "__init__")
    return rooms


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_above_it(path):
    own = room_of(path)
    assert own in ROOMS, f"{own} is no room of the house"
    for other in imported_rooms(path) - {own}:
        assert ROOMS.index(other) < ROOMS.index(own), f"{own} may not import {other}"


def test_no_module_imports_itself_by_way_of_others():
    """Not even by an import inside a function; two modules that need each other are one."""
    waiting = {name: imported_modules(path) for name, path in MODULES.items()}
    while free := {name for name, others in waiting.items() if not others & waiting.keys()}:
        waiting = {name: others for name, others in waiting.items() if name not in free}
    knots = {name: sorted(others & waiting.keys()) for name, others in waiting.items()}
    assert not knots, f"modules that import in a circle, or depend on one: {knots}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_kernels_know_numba_and_triton(path):
    packages = {name.split(".")[0] for name in imports(path)}
    if room_of(path) != "kernels":
        assert not packages & {"numba", "triton", "llvmlite"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_is_one_idea(path):
    assert len(path.read_text().splitlines()) <= 300, "past 300 lines: split it by idea"


def test_no_room_is_a_cupboard():
    assert not {p.stem for p in FILES} & {"utils", "common", "base", "registry", "helpers"}


def test_the_picture_of_the_house_is_drawn_from_the_imports():
    """``python docs/generated/house.py`` draws it anew."""
    docs = SOURCE.parent.parent / "docs"
    spec = importlib.util.spec_from_file_location("house", docs / "generated" / "house.py")
    house = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(house)
    assert (docs / "pictures" / "house.svg").read_text("utf-8") == house.picture()
    page = (docs / "house.md").read_text("utf-8")
    for room in house.read_imports():
        assert f"`{room}`" in page, f"docs/house.md does not speak of {room}"
    for name in re.findall(r"`((?:[a-z]+/)+[a-z]+\.py)`", page):
        assert (SOURCE / name).is_file() or (docs.parent / name).is_file(), name
