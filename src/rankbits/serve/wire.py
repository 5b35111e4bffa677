"""JSON on the wire: orjson where it is installed, the standard library elsewhere."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from rankbits.serve.limits import reject

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def loads(raw: bytes) -> Any:
    """The value of a body. ``NaN`` and ``Infinity``, which JSON lacks, are refused.

    >>> loads(b'{"k": 3}')
    {'k': 3}
    """
    try:
        if orjson is not None:
            return orjson.loads(raw)
        return json.loads(raw.decode(), parse_constant=_constant)
    except (ValueError, RecursionError):
        reject(400, "The body must be JSON in UTF-8, without NaN or Infinity.")


def dumps(value: Any) -> bytes:
    """
    >>> dumps({"k": 3})
    b'{"k":3}'
    """
    if orjson is not None:
        return orjson.dumps(value)
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
