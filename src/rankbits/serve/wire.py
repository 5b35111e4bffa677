"""What travels between a connection and the routes: requests, replies and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

from rankbits.serve.limits import Rejected, reject

if TYPE_CHECKING:
    from rankbits.serve.app import Route

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
SAFE = (
    f"content-security-policy: {POLICY}\r\nx-content-type-options: nosniff\r\n"
    "referrer-policy: no-referrer\r\ncross-origin-resource-policy: same-origin\r\n"
)
PHRASES = {status.value: status.phrase for status in HTTPStatus}
ADVICE = {401: "www-authenticate: Bearer\r\n", 503: "retry-after: 1\r\n"}


@dataclass
class Request:
    """One request. ``refusal``: why it is refused, where its head alone says so."""

    method: str = "-"
    url: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    keep_alive: bool = True
    body: bytes = b""
    route: Route | None = None
    values: dict[str, str] = field(default_factory=dict)  # parts of the path, and the query
    refusal: Rejected | None = None
    id: str = ""
    began: float = field(default_factory=perf_counter)
    held: int = 0  # bytes that it counts as until it is answered

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1").strip()


@dataclass(frozen=True)
class Reply:
    """One reply; ``headers`` are whole lines."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    headers: str = ""

    def to_bytes(self, request_id: str, *, close: bool, head_only: bool = False) -> bytes:
        """Write the reply as it is sent, with the headers that all replies have."""
        last = "connection: close\r\n" if close else ""
        head = (
            f"HTTP/1.1 {self.status} {PHRASES[self.status]}\r\ncontent-type: {self.kind}\r\n"
            f"content-length: {len(self.body)}\r\n{self.headers}{SAFE}"
            f"x-request-id: {request_id}\r\n{last}\r\n"
        )
        return head.encode() if head_only else head.encode() + self.body


def make_refusal(error: Rejected) -> Reply:
    """Make the reply to a request that is refused."""
    body = dumps({"error": str(error)})
    return Reply(body, error.status, headers=ADVICE.get(error.status, ""))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def loads(raw: bytes) -> Any:
    """Read the JSON of a body; ``NaN`` and ``Infinity``, which JSON lacks, are refused.

    >>> loads(b'{"k": 3}')
    {'k': 3}
    """
    try:
        if orjson is not None:
            return orjson.loads(raw)
        return json.loads(raw.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        reject(400, "The body must be JSON in UTF-8, without NaN or Infinity.")


def dumps(value: Any) -> bytes:
    """Write a value as compact JSON.

    >>> dumps({"k": 3})
    b'{"k":3}'
    """
    if orjson is not None:
        return orjson.dumps(value)
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
