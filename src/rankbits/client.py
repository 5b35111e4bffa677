"""A client of the service, which needs only the standard library and NumPy, and retries.

client = Client("http://127.0.0.1:8080", token="...")
for band in client.search(id="17", k=10)["bands"]: ...
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Sequence
from email.message import Message
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import numpy as np

from rankbits._check import Refusal, refuse
from rankbits.types import Codes

RETRIED = (429, 502, 503)


class ServiceError(Refusal):
    """The service refused, in its own sentence. ``status`` is the HTTP status, 0 where no answer
    came; ``request`` is the id under which the service's log says more."""

    def __init__(self, sentence: str, status: int, request: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.request = status, request


class Client:
    """Asks ``rankbits serve`` at ``url``, over one connection that stays open. Two threads need a
    client each.

    A request may be repeated without harm (adding again replaces), so after a lost connection and
    after the statuses 429, 502 and 503 it is sent up to ``retries`` times more. Each wait is longer
    than the last, as long as the service asks (``Retry-After``), and at most ``timeout``.

    >>> Client("http://127.0.0.1:8080", timeout=5)
    Client('http://127.0.0.1:8080')
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 30.0, retries: int = 4
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            refuse(f"url must be http://host:port or https://...; got {url!r}.")
        self.url, self._token, self._timeout = url.rstrip("/"), token, timeout
        self._retries, self._parts = retries, parts
        self._connection: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def search(
        self,
        *,
        id: int | str | None = None,
        code: Codes | str | None = None,
        vector: Any = None,
        text: str | None = None,
        image: bytes | None = None,
        k: int = 20,
        radius: int | None = None,
        among: Sequence[int | str] | None = None,
        histogram: bool = False,
        ask: str | None = None,
    ) -> dict[str, Any]:
        """Find the items nearest to one query: a stored ``id``, a ``code`` (one row of ``Codes``,
        or hex), a ``vector`` (dim,), a ``text`` or the bytes of an ``image`` -> the reply, with
        bands of equal distance.

        ``histogram``: also count the whole database by distance, which costs another search.
        ``ask``: ``"floats"`` searches by the floats of a vector, an image or a text, ``"bits"`` by
        its code; None leaves that to the service's encoder.
        """
        if image is not None:
            options: dict[str, Any] = {"k": k, "histogram": str(histogram).lower()}
            if ask is not None:
                options["ask"] = ask
            address = f"/search/image?{urlencode(options)}"
            return self._call("POST", address, image, "application/octet-stream")
        fingerprint = None
        if isinstance(code, Codes):
            if len(code) != 1:
                refuse(f"code must be one row of Codes; got {len(code):,}.")
            fingerprint, code = code.fingerprint, code.packed.tobytes().hex()
        if vector is not None:
            vector = np.asarray(vector).tolist()
        fields = {"id": id, "code": code, "vector": vector, "text": text, "radius": radius}
        fields |= {"fingerprint": fingerprint, "ask": ask}
        body: dict[str, Any] = {name: v for name, v in fields.items() if v is not None}
        if among is not None:
            body["among"] = list(among)
        return self._post("/search", {**body, "k": k, "histogram": histogram})

    def add(
        self,
        ids: Sequence[int | str],
        codes: Codes | None = None,
        *,
        vectors: Any = None,
        texts: Sequence[str] | None = None,
    ) -> dict[str, int]:
        """Add codes, vectors (n, dim) or texts under ids; they are durable when this returns. Add
        texts some hundred at a time: the service's model needs longer than ``timeout`` for many."""
        body: dict[str, Any] = {"ids": np.asarray(ids).tolist() if len(ids) else []}
        if codes is not None:
            body["codes"] = [row.tobytes().hex() for row in codes.packed]
            if codes.fingerprint is not None:
                body["fingerprint"] = codes.fingerprint
        if vectors is not None:
            body["vectors"] = np.asarray(vectors).tolist()
        if texts is not None:
            body["texts"] = list(texts)
        return self._post("/add", body)

    def remove(self, ids: Sequence[int | str]) -> dict[str, int]:
        """Remove ids; durable when this returns. Where an answer was lost and the request sent
        again, ``removed`` counts only what the second one removed."""
        return self._post("/remove", {"ids": list(ids)})

    def items(self, offset: int = 0, limit: int = 50, label: str | None = None) -> dict[str, Any]:
        """List items in order: all, or those of one label."""
        query: dict[str, Any] = {"offset": offset, "limit": limit}
        if label is not None:
            query["label"] = label
        return self._call("GET", f"/items?{urlencode(query)}")

    def item(self, id: int | str) -> dict[str, Any]:
        return self._call("GET", f"/items/{quote(str(id), safe='')}")

    def stats(self) -> dict[str, Any]:
        return self._call("GET", "/stats")

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        try:
            raw = json.dumps(body, allow_nan=False).encode()
        except ValueError:
            refuse("Numbers must be finite; got nan or inf.")
        return self._call("POST", path, raw, "application/json")

    def _call(
        self, method: str, path: str, body: bytes | None = None, kind: str | None = None
    ) -> Any:
        headers = {} if kind is None else {"Content-Type": kind}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        for attempt in range(self._retries + 1):
            least_wait = 0.0
            try:
                status, reply, raw = self._send(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                failure = ServiceError(f"No answer from {self.url}: {error or 'closed'}.", 0)
            else:
                if status < 400:
                    return json.loads(raw)
                failure = ServiceError(_read_sentence(raw, status), status, reply["X-Request-Id"])
                if status not in RETRIED:
                    raise failure
                least_wait = _read_seconds(reply["Retry-After"])
            if attempt < self._retries:
                # random, so that clients refused together do not all come back together
                wait = max(least_wait, 0.05 * 2**attempt) * (1 + random.random())
                time.sleep(min(wait, self._timeout))
        raise failure

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, Message, bytes]:
        if self._connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            assert self._parts.hostname is not None
            self._connection = kind(self._parts.hostname, self._parts.port, timeout=self._timeout)
        self._connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
        reply = self._connection.getresponse()
        return reply.status, reply.headers, reply.read()


def _read_seconds(header: str | None) -> float:
    """Read the seconds of ``Retry-After``; 0 where it is absent or a date."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0


def _read_sentence(raw: bytes, status: int) -> str:
    try:
        return str(json.loads(raw)["error"])
    except (ValueError, KeyError, TypeError):
        return f"The service answered with status {status}."
