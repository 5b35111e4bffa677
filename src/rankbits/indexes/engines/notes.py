"""What an engine's table or collection says of itself in its comment: bits of a code, and facts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from rankbits import _check
from rankbits.indexes.checks import read_facts

NOTE = re.compile(r"rankbits (\d+)(?: (\{.*\}))?")


def write_note(bits: int, facts: Mapping[str, str]) -> str:
    """What a table's comment says: whose it is, the bits of a code, and the facts, if any.

    >>> write_note(64, {"fingerprint": "0123456789abcdef"})
    'rankbits 64 {"fingerprint": "0123456789abcdef"}'
    """
    return f"rankbits {bits} {json.dumps(dict(facts))}" if facts else f"rankbits {bits}"


def read_note(note: str, place: str) -> tuple[int, dict[str, str]]:
    """The bits and facts that ``write_note`` wrote; any other comment is not ours."""
    found = NOTE.fullmatch(note)
    try:
        if found is None:
            raise ValueError
        return int(found[1]), read_facts(found[2]) if found[2] else {}
    except (ValueError, RecursionError):
        _check.refuse(f"{place} was not made by rankbits; name another table.")
