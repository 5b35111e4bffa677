"""The reference of commands, from the fields of their dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any

from rankbits.commands import COMMANDS


def spelled(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text}`" if text else ""


def row(field: Any, places: tuple[str, ...]) -> str:
    flag = f"--{field.name.replace('_', '-')}"
    short = field.metadata["short"]
    shown = field.name.upper() if field.name in places else flag
    shown = f"`{shown}`" + (f", `-{short}`" if short else "")
    said = field.metadata["help"].replace("|", "\\|").replace("*", "\\*")
    return f"| {shown} | {spelled(field.default)} | {said} |"


def page() -> str:
    text = (
        "# Commands\n\nFlags override `--config FILE.toml`, which overrides the defaults below. In "
        "TOML a flag is a key with `_` or `-`. An unknown flag or key is refused, and the nearest "
        "name is suggested. An error is one line on stderr and exit status 1.\n"
    )
    for command in COMMANDS:
        usage = " ".join(place.upper() for place in command.places)
        if getattr(command, "config_place", False):
            usage = "RUN.toml"
        said = " ".join((command.__doc__ or "").split())
        rows = "\n".join(row(f, command.places) for f in dataclasses.fields(command))
        text += (
            f"\n## rankbits {command.name}\n\n```text\nrankbits {command.name} {usage} "
            f"[--flags]\n```\n\n{said}\n\n| | default | |\n|---|---|---|\n{rows}\n"
        )
    return text
