"""The note that a table or collection has as its comment: the bits of a code, and facts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from rankbits import _check
from rankbits.indexes.checks import read_facts

NOTE = re.compile(r"rankbits (\d+)(?: (\{.*\}))?")


def write_note(bits: int, facts: Mapping[str, str]) -> str:
    """The note of a table: that rankbits made it, the bits of a code, and facts, if any.

    >>> write_note(64, {"fingerprint": "0123456789abcdef"})
    'rankbits 64 {"fingerprint": "0123456789abcdef"}'
    """
    return f"rankbits {bits} {json.dumps(dict(facts))}" if facts else f"rankbits {bits}"


def read_note(note: str, place: str) -> tuple[int, dict[str, str]]:
    """The bits and facts of a note; refuse a comment that ``write_note`` did not write."""
    match = NOTE.fullmatch(note)
    try:
        if match is None:
            raise ValueError
        return int(match[1]), read_facts(match[2]) if match[2] else {}
    except (ValueError, RecursionError):
        _check.refuse(f"{place} was not made by rankbits; name another table.")
