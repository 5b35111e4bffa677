"""One line of JSON a request, written by the hundred: method, route, status, ms and id.

A line never holds a body, a token, an address or a path from the request; the route is written as
its template.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO

HELD = 64  # lines


class Log:
    """Lines are held for a moment; ``flush`` writes them. Failures are written at once.

    >>> log = Log(sys.stdout, clock=lambda: 0.0)
    >>> log.request("GET", "/health", 200, 0.0012, "a1"); log.flush()
    {"time":"1970-01-01T00:00:00.000Z","method":"GET","path":"/health","status":200,"ms":1.2,"id":"a1"}
    """

    def __init__(self, stream: TextIO | None = None, clock: Any = time.time) -> None:
        self._stream, self._clock = stream, clock
        self._lines: list[str] = []
        self._second, self._stamp = -1, ""

    def _time(self) -> str:
        now = self._clock()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{int(1000 * (now - second)):03d}Z"

    def request(self, method: str, path: str, status: int, seconds: float, name: str) -> None:
        self._lines.append(
            f'{{"time":"{self._time()}","method":"{method}","path":"{path}",'
            f'"status":{status},"ms":{1000 * seconds:.4g},"id":"{name}"}}\n'
        )
        if len(self._lines) >= HELD:
            self.flush()

    def event(self, what: str, **facts: Any) -> None:
        line = {"time": self._time(), "event": what, **facts}
        self._lines.append(json.dumps(line, separators=(",", ":"), default=str) + "\n")
        self.flush()

    def flush(self) -> None:
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        stream = self._stream if self._stream is not None else sys.stderr
        try:
            stream.write("".join(lines))
            stream.flush()
        except (OSError, ValueError):  # nobody reads the log any more: searches go on
            pass
