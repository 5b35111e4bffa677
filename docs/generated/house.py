"""The picture of docs/house.md: the rooms of the package, and which room imports which."""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "rankbits"
WIDTH, BOX, HIGH, GAP = 860, 104, 30, 34  # of the picture, a room, a room's height, between rows
LEFT_OUT = ("__init__", "__main__", "_version", "_threads", "_option")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222;text-anchor:middle}"
    "rect{fill:#eef3fa;stroke:#0072B2}path{fill:none;stroke:#999}"
)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def read_imports() -> dict[str, set[str]]:
    """For each room the other rooms that its files import, anywhere in them."""
    files = sorted(SOURCE.rglob("*.py"))
    rooms = {room_of(path) for path in files} - set(LEFT_OUT)
    found: dict[str, set[str]] = {room: set() for room in sorted(rooms)}
    for path in files:
        room = room_of(path)
        if room in LEFT_OUT:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for parts in (name.split(".") for name in names):
                if parts[0] == "rankbits" and len(parts) > 1 and parts[1] in rooms - {room}:
                    found[room].add(parts[1])
    return found


def depths(imports: dict[str, set[str]]) -> dict[str, int]:
    """How far each room lies below those that import nothing."""
    known: dict[str, int] = {}

    def depth(room: str) -> int:
        if room not in known:
            known[room] = 1 + max((depth(other) for other in imports[room]), default=-1)
        return known[room]

    return {room: depth(room) for room in imports}


def needed_arrows(imports: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Imports that do not follow from others: if a room imports b, and b imports c, the arrow from
    the room to c is left out."""
    below: dict[str, set[str]] = {}

    def reach(room: str) -> set[str]:
        if room not in below:
            below[room] = set(imports[room]).union(*(reach(other) for other in imports[room]))
        return below[room]

    return [
        (room, other)
        for room, others in imports.items()
        for other in sorted(others)
        if not any(other in reach(between) for between in others - {other})
    ]


def picture() -> str:
    """The SVG: rooms in rows by depth, the ones that import nothing at the top."""
    imports = read_imports()
    levels = depths(imports)
    rows = [
        sorted(r for r in levels if levels[r] == level) for level in range(1 + max(levels.values()))
    ]
    place = {}
    for level, rooms in enumerate(rows):
        step = WIDTH / (len(rooms) + 1)
        for number, room in enumerate(rooms, 1):
            place[room] = (step * number, 10 + level * (HIGH + GAP))
    parts = []
    for room, other in needed_arrows(imports):
        (x, y), (to_x, to_y) = place[room], place[other]
        to_y += HIGH
        middle = (y + to_y) / 2
        parts.append(
            f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} '
            f'{to_x:.0f} {to_y:.0f}"/>'
        )
    for room, (x, y) in place.items():
        corner = f'x="{x - BOX / 2:.0f}" y="{y:.0f}" width="{BOX}" height="{HIGH}"'
        parts.append(f'<rect {corner} rx="6"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + 20:.0f}">{escape(room)}</text>')
    high = 20 + len(rows) * (HIGH + GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" role="img">'
    title = "<title>The rooms of rankbits: each imports only rooms above it</title>"
    return f"{head}{title}<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    (Path(__file__).parents[1] / "pictures" / "house.svg").write_text(picture(), "utf-8")
