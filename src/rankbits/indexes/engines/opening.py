"""Checks that all engines make when an index is opened."""

from __future__ import annotations

import importlib
import re
from typing import Any

from rankbits import _check
from rankbits.indexes.hamming import MOST_BITS

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def import_package(name: str, engine: str, extra: str) -> Any:
    """Import an engine's package; where it is missing, refuse and say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").split(".")[0] not in (name.split(".")[0], "pkg_resources"):
            raise
        _check.refuse(f"{engine} needs a package: pip install 'rankbits[{extra}]'.")


def check_name(what: str, value: Any) -> str:
    """Check the name of a table or column: plain, so that every engine reads it alike.

    >>> check_name("table", "codes_64")
    'codes_64'
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        _check.refuse(
            f"{what} must be a name of letters, digits and underscores, at most 63, no digit "
            f"first; got {value!r}."
        )
    return value


def check_writable(place: object, mode: str) -> None:
    if mode == "r":
        _check.refuse(f"{place} is open for reading: mode='w' writes to it.")


def agree_on_bits(place: str, stored: int | None, bits: Any) -> int:
    """The bits of an index: those ``stored`` in it, or ``bits`` where it is new."""
    if bits is not None and _check.whole("bits", bits, 1) > MOST_BITS:
        _check.refuse(f"bits must be at most {MOST_BITS:,}; got {bits:,}.")
    if stored is None:
        if bits is None:
            _check.refuse(f"{place} does not exist; give bits to make it.")
        return int(bits)
    if bits is not None and bits != stored:
        _check.refuse(f"{place} holds codes of {stored} bits; got bits={bits}.")
    return stored


def first_line(error: BaseException) -> str:
    """The first line of a database's message, without its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
