"""How much one request may cost, and how it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from rankbits._check import Refusal

IDLE = 30.0  # seconds that a connection is kept without a request
PACE = 1 << 16  # bytes of a body that give their sender another second
WASTED = 64 << 20  # bytes after a refusal that are read and dropped, so that the sender reads it
PIPELINED = 32  # requests that may wait on one connection
WEIGHT = 1024  # bytes that a waiting request counts as beside its own
GONE = 499  # in the log only: the client has closed the connection


@dataclass(frozen=True)
class Limits:
    """What requests may cost. ``batch`` limits the rows of a write and the ids of a filter,
    ``waiting`` the requests that are open at once, ``held_bytes`` the bytes of all requests that
    are not answered yet, and ``seconds`` the time a client may take to send a request (a body gets
    another second for every 64 KiB) or to read an answer.

    >>> Limits(k=100).k
    100
    """

    k: int = 1000
    body_bytes: int = 8 << 20
    pixels: int = 1 << 24
    batch: int = 10_000
    waiting: int = 2000
    head_bytes: int = 1 << 16
    held_bytes: int = 256 << 20
    seconds: float = 20.0

    def to_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("k", "body_bytes", "pixels", "batch")}


class Rejected(Refusal):
    """A request is refused: the HTTP status, and one sentence for whoever sent it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def reject(status: int, sentence: str) -> NoReturn:
    raise Rejected(status, sentence)


def shorten(value: object, most: int = 60) -> str:
    """Spell a value of a request in quotes, cut where it is long.

    >>> shorten("x" * 100, 5)
    "'xxxx..."
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."
