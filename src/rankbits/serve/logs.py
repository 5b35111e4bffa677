"""The log: a line of JSON for each request, with its method, route, status, milliseconds and id.

A line never holds a body, a token, an address or a path of the request: instead of the path it has
the template of the route.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO

MOST_LINES = 64  # that wait to be written


class Log:
    """Collects lines and writes them to ``stream``. Requests wait for ``flush``; events do not.

    >>> log = Log(sys.stdout, clock=lambda: 0.0)
    >>> log.write_request("GET", "/health", 200, 0.0012, "a1"); log.flush()
    {"time":"1970-01-01T00:00:00.000Z","method":"GET","path":"/health","status":200,"ms":1.2,"id":"a1"}
    """

    def __init__(self, stream: TextIO | None = None, clock: Any = time.time) -> None:
        self._stream, self._clock = stream, clock
        self._lines: list[str] = []
        self._second, self._stamp = -1, ""

    def _spell_time(self) -> str:
        now = self._clock()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{int(1000 * (now - second)):03d}Z"

    def write_request(self, method: str, path: str, status: int, seconds: float, id: str) -> None:
        self._lines.append(
            f'{{"time":"{self._spell_time()}","method":"{method}","path":"{path}",'
            f'"status":{status},"ms":{1000 * seconds:.4g},"id":"{id}"}}\n'
        )
        if len(self._lines) >= MOST_LINES:
            self.flush()

    def write_event(self, what: str, **facts: Any) -> None:
        line = {"time": self._spell_time(), "event": what, **facts}
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
        except (OSError, ValueError):  # the reader of the log has gone: searches go on
            pass
