"""Parse the bodies of requests, and refuse what is wrong in them before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.serve.limits import Limits, Rejected, reject, shorten
from rankbits.serve.wire import loads
from rankbits.types import Questions
from rankbits.types.codes import check_fingerprint, check_same_encoder

KINDS = ("id", "code", "vector", "text", "image")
ROWS = ("codes", "vectors", "texts")  # what /add takes, one of them
OPTIONS = ("k", "radius", "among", "histogram", "ask", "fingerprint")
DEFAULT_K = 20


@dataclass
class Ask:
    """One search. ``code`` is packed (bytes); for an id, a vector or a text it is filled in later.
    ``floats``: search by the floats of the query, as a ``question``; None: as the encoder prefers.
    ``refusal``: why no code could be made."""

    k: int = DEFAULT_K
    id: Any = None
    code: bytes | None = None
    vector: np.ndarray | None = None
    text: str | None = None
    radius: int | None = None
    among: list[Any] | None = None
    histogram: bool = True
    floats: bool | None = None
    question: Questions | None = None
    refusal: Rejected | None = None
    began: float = 0.0


def parse_fields(raw: bytes, known: Sequence[str]) -> dict[str, Any]:
    """Read a JSON object; a key that is not ``known`` is refused."""
    body = loads(raw)
    if not isinstance(body, dict):
        reject(422, f"The body must be a JSON object; got {shorten(body)}.")
    for name in body:
        if name not in known:
            near = _check.suggest(name[:60], known)
            reject(422, f"There is no field {shorten(name)}{near}; known: {', '.join(known)}.")
    return body


def refuse_other_encoder(body: dict[str, Any], index_fingerprint: str | None) -> None:
    """Refuse codes whose fingerprint is not that of the index's encoder."""
    fingerprint = body.get("fingerprint")
    try:
        check_fingerprint(fingerprint)
    except _check.Refusal as sentence:
        reject(422, str(sentence))
    try:
        check_same_encoder(fingerprint, index_fingerprint, "this service")
    except _check.Refusal as sentence:
        reject(409, str(sentence))


def parse_search(
    raw: bytes, bits: int, limits: Limits, accepts: Sequence[str], fingerprint: str | None = None
) -> Ask:
    """Parse a /search body; ``fingerprint`` is that of the index's encoder.

    >>> parse_search(b'{"code": "b0", "k": 2}', 4, Limits(), ("id", "code")).code
    b'\\xb0'
    """
    body = parse_fields(raw, ("id", "code", "vector", "text", *OPTIONS))
    refuse_other_encoder(body, fingerprint)
    kinds = [kind for kind in KINDS if kind in body]
    if len(kinds) != 1:
        reject(422, f"Give one of {', '.join(accepts)} to search by; got {len(kinds)}.")
    kind = kinds[0]
    if kind not in accepts:
        reject(422, f"This service cannot search by {kind}; it takes {', '.join(accepts)}.")
    ask = Ask(check_whole("k", body.get("k", DEFAULT_K), 1, limits.k), began=perf_counter())
    if kind == "code":
        ask.code = parse_code(body["code"], bits)
    elif kind == "id":
        ask.id = body["id"]
        if isinstance(ask.id, bool) or not isinstance(ask.id, (str, int)):
            reject(422, f"id must be a string or a whole number; got {shorten(ask.id)}.")
    elif kind == "vector":
        ask.vector = parse_vector(body["vector"])
    else:
        ask.text = check_words(body["text"])
    _parse_options(ask, body, limits)
    if ask.floats and kind in ("id", "code"):
        reject(422, f"Only a vector, an image or a text has floats to search by; got {kind}.")
    if ask.floats and ask.radius is not None:
        reject(422, "radius is a Hamming distance, which needs ask to be 'bits'.")
    return ask


def _parse_options(ask: Ask, body: dict[str, Any], limits: Limits) -> None:
    if body.get("radius") is not None:
        ask.radius = check_whole("radius", body["radius"], 0, 1 << 20)
    if body.get("among") is not None:
        ask.among = parse_list("among", body["among"], limits.batch)
    ask.floats = parse_floats(body.get("ask"))
    ask.histogram = check_flag("histogram", body.get("histogram", True))


def parse_floats(value: Any) -> bool | None:
    """Say whether ``ask`` is "floats" and not "bits"; None where the request does not say."""
    if value not in (None, "bits", "floats"):
        reject(422, f"ask must be 'bits' or 'floats'; got {shorten(value)}.")
    return None if value is None else value == "floats"


def check_whole(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        reject(
            422, f"{name} must be a whole number from {least} to {most:,}; got {shorten(value)}."
        )
    return value


def parse_add(raw: bytes, limits: Limits, fingerprint: str | None) -> tuple[list, str, list]:
    """Parse an /add body -> the ids, "codes", "vectors" or "texts", and as many rows of them."""
    body = parse_fields(raw, ("ids", *ROWS, "fingerprint"))
    refuse_other_encoder(body, fingerprint)
    ids = parse_list("ids", body.get("ids"), limits.batch)
    names = [name for name in ROWS if name in body]
    if len(names) != 1:
        reject(422, f"Give one of codes, vectors or texts with the ids; got {len(names)}.")
    name = names[0]
    rows = parse_list(name, body[name], limits.batch)
    if len(rows) != len(ids) or not rows:
        reject(422, f"{name} must have one row for each of {len(ids):,} ids; got {len(rows):,}.")
    return ids, name, rows


def parse_number(name: str, text: str, least: int, most: int) -> int:
    """Parse a whole number of a query string."""
    plain = text.isascii() and text.isdigit() and len(text) < 19
    return check_whole(name, int(text) if plain else text, least, most)


def check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        reject(422, f"{name} must be true or false; got {shorten(value)}.")
    return value


def parse_list(name: str, value: Any, most: int) -> list[Any]:
    if not isinstance(value, list):
        reject(422, f"{name} must be a list; got {shorten(value)}.")
    if len(value) > most:
        reject(413, f"{name} may have at most {most:,} entries; got {len(value):,}.")
    return value


def check_words(value: Any, name: str = "text") -> str:
    if not isinstance(value, str) or not value.strip():
        reject(422, f"{name} must be some words; got {shorten(value)}.")
    return value


def parse_code(value: Any, bits: int) -> bytes:
    """Parse a code in hex digits -> its packed bytes."""
    width = (bits + 7) // 8
    try:
        packed = bytes.fromhex(value) if len(value) == 2 * width else b""
    except (ValueError, TypeError):
        packed = b""
    if len(packed) != width:
        reject(422, f"A code must be {2 * width} hex digits for {bits} bits; got {shorten(value)}.")
    if bits % 8 and packed[-1] & ((1 << (8 - bits % 8)) - 1):
        reject(422, f"The pad bits after the last of {bits} bits must be zero; some are set.")
    return packed


def parse_vector(value: Any, name: str = "vector") -> np.ndarray:
    """Parse a list of finite numbers -> float32 (dim,)."""
    plain = isinstance(value, list) and all(type(x) in (int, float) for x in value)
    if not plain or not value:
        reject(422, f"{name} must be a list of numbers; got {shorten(value)}.")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(value, np.float64).astype(np.float32)
    except OverflowError:  # a whole number past what float64 holds
        numbers = np.full(1, np.inf, np.float32)
    if not np.isfinite(numbers).all():
        reject(422, f"{name} must be finite in 32 bits; some number is not.")
    return numbers


def parse_vectors(rows: list[Any]) -> np.ndarray:
    """Parse lists of numbers of one width -> float32 (n, dim)."""
    vectors = [parse_vector(row, "Each of vectors") for row in rows]
    if len({len(vector) for vector in vectors}) > 1:
        reject(422, "vectors must all be of one width.")
    return np.stack(vectors)
