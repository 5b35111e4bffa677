"""The service behind the routes: an index, what its ids stand for, and how questions become codes.

Nothing here knows HTTP. Methods that a route awaits do their work in threads: searches in one, by
batches; writes in another, one after the other; decoding and drawing in a few.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._check import Refusal
from rankbits.encoder import Encoder
from rankbits.indexes import HammingIndex, Index
from rankbits.serve import asks
from rankbits.serve.answers import Unavailable, answer, shown
from rankbits.serve.asks import Ask
from rankbits.serve.batching import Batcher
from rankbits.serve.compare import Comparison
from rankbits.serve.ids import known_ids, new_ids, one_id
from rankbits.serve.items import Items
from rankbits.serve.limits import Limits, Rejected, brief, reject
from rankbits.serve.questions import Questions, check_bits, make_queries, questions_of
from rankbits.serve.uploads import checked
from rankbits.serve.views import Labels, View, view_of
from rankbits.types import Codes
from rankbits.types.codes import check_same_encoder

PAGE = 500  # items listed at a time, at most


class Service:
    """Searches and writes of one index. ``token``: what a writer must know; None: nobody writes.

    >>> from rankbits import HammingIndex, pack
    >>> service = Service(HammingIndex(2).add(pack([[1, 1], [1, -1]])))
    >>> reply = asyncio.run(service.search(b'{"code": "c0", "k": 1}'))
    >>> b'"bands":[{"distance":0,"items":[{"id":"0","code":"c0"' in reply
    True
    >>> service.close()
    """

    def __init__(
        self,
        index: Index,
        *,
        encoder: Encoder | Questions | None = None,
        items: Items | None = None,
        compare: Comparison | None = None,
        report: dict[str, Any] | None = None,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.index, self.items, self.report = index, items, report
        self.limits = limits or Limits()
        self.questions = check_bits(questions_of(encoder), index.bits)
        check_same_encoder(self.questions.fingerprint, index.fingerprint, "the index")
        if token is not None and not re.fullmatch(r"[!-~]{8,}", token):
            _check.refuse("The token must be at least 8 printable ASCII characters, no spaces.")
        self._token = token
        here = isinstance(index, HammingIndex)
        self.accepts = (*(("id",) if here else ()), "code", *self.questions.accepts)
        self._labels = Labels(items)
        self.batcher = Batcher(self._answer, waiting=self.limits.waiting)
        self._threads = ThreadPoolExecutor(2, "rankbits-decode")
        # a connection to a database elsewhere is one thread's; a file's writer leaves searches be
        self._writer = ThreadPoolExecutor(1, "rankbits-write") if here else self.batcher._thread
        self._began = monotonic()
        self.comparison = compare

    @property
    def writable(self) -> bool:
        return self._token is not None

    def _view(self) -> View:
        return view_of(self.index, self._labels)

    def _answer(self, jobs: list[Ask]) -> list[Any]:
        vectors = [job for job in jobs if job.vector is not None]
        if vectors:
            make_queries(vectors, self.questions)
        return answer(jobs, self._view(), self.items, self.index.bits)

    def parsed(self, raw: bytes) -> Ask:
        """The question of a /search body; it can go into a batch unless it is a text."""
        held = self.index.fingerprint
        ask = asks.parse(raw, self.index.bits, self.limits, self.accepts, held)
        if ask.vector is not None:
            self._width(len(ask.vector))
        if ask.floats and self.questions.ask is None:
            reject(422, "This service has no encoder that keeps floats: ask by bits.")
        return ask

    def warm(self) -> None:
        """Answer one question at the start, because the first compiles what a search needs."""
        if isinstance(self.index, HammingIndex) and self.index.count():
            code = "00" * -(-self.index.bits // 8)
            self._answer([self.parsed(f'{{"code": "{code}", "k": 1}}'.encode())])

    async def search(self, raw: bytes) -> bytes:
        """The reply to a /search body."""
        return await self.answered(self.parsed(raw))

    async def answered(self, ask: Ask) -> bytes:
        if ask.text is not None:
            ask.code = await self._encoded(self.questions.text, ask.text)
        return await self.batcher.ask(ask)

    async def search_image(self, raw: bytes, k: int, histogram: bool = True) -> bytes:
        """The reply to an uploaded image."""
        if self.questions.image is None:
            reject(422, f"This service cannot search by image; it takes {', '.join(self.accepts)}.")
        ask = Ask(k, histogram=histogram, began=perf_counter())

        def seen(file: bytes) -> Codes:
            return self.questions.image(checked(file, self.limits.pixels))  # type: ignore[misc]

        ask.code = await self._encoded(seen, raw)
        return await self.batcher.ask(ask)

    async def _encoded(self, make: Any, value: Any) -> bytes:
        def made() -> bytes:
            try:
                return make(value).packed[0].tobytes()
            except Rejected:
                raise
            except Refusal as sentence:
                raise Rejected(422, str(sentence)) from sentence

        return await asyncio.get_running_loop().run_in_executor(self._threads, made)

    def _width(self, width: int) -> None:
        if self.questions.dims and width not in self.questions.dims:
            wanted = " or ".join(map(str, dict.fromkeys(self.questions.dims)))
            reject(422, f"vector must have {wanted} numbers; got {width:,}.")

    def authorise(self, header: str | None) -> None:
        """Refuse a request without the token, in a time that does not depend on the token."""
        if self._token is None:
            reject(403, "This service is read-only: it was started without a token.")
        kind, _, given = (header or "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())
        if kind.lower() != "bearer" or not same:
            reject(401, "Writing needs the header 'Authorization: Bearer TOKEN' with this token.")

    async def add(self, raw: bytes) -> dict[str, int]:
        body = asks.fields(raw, ("ids", "codes", "vectors", "fingerprint"))
        asks.refuse_other_encoder(body, self.index.fingerprint)
        ids = asks.listed("ids", body.get("ids"), self.limits.batch)
        if ("codes" in body) == ("vectors" in body):
            reject(422, "Give either codes or vectors with the ids.")
        name = "codes" if "codes" in body else "vectors"
        rows = asks.listed(name, body[name], self.limits.batch)
        if len(rows) != len(ids) or not rows:
            reject(
                422, f"{name} must have one row for each of {len(ids):,} ids; got {len(rows):,}."
            )
        codes = await self._rows(name, rows)
        return await self._written(lambda: self._add(ids, codes))

    async def _rows(self, name: str, rows: list[Any]) -> Codes:
        bits = self.index.bits
        if name == "codes":
            packed = np.frombuffer(b"".join(asks.code(row, bits) for row in rows), np.uint8)
            return Codes(packed.reshape(len(rows), -1), bits)
        if self.questions.vector is None:
            reject(
                422, "This service cannot make codes of vectors: it was started without a model."
            )
        found = [asks.vector(row, "Each of vectors") for row in rows]
        for width in {len(row) for row in found}:
            self._width(width)
        if len({len(row) for row in found}) > 1:
            reject(422, "vectors must all be of one width.")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.questions.vector, np.stack(found))

    def _add(self, given: list[Any], codes: Codes) -> dict[str, int]:
        self.index.add(codes, new_ids(given, self._view().strings))
        return {"added": len(codes), "count": self.index.count()}

    async def remove(self, raw: bytes) -> dict[str, int]:
        given = asks.listed("ids", asks.fields(raw, ("ids",)).get("ids"), self.limits.batch)

        def work() -> dict[str, int]:
            ids = known_ids(given, self._view().strings)
            gone = self.index.remove(ids) if len(ids) and self.index.count() else 0
            return {"removed": gone, "count": self.index.count()}

        return await self._written(work)

    async def _written(self, work: Callable[[], dict[str, int]]) -> dict[str, int]:
        """Run a write to its end, even where the client has closed the connection."""
        loop = asyncio.get_running_loop()
        try:
            return await asyncio.shield(loop.run_in_executor(self._writer, work))
        except Rejected:
            raise
        except Refusal as sentence:
            raise Unavailable(str(sentence)) from sentence

    def stats(self) -> dict[str, Any]:
        labelled = self.items is not None and self.items.labels is not None
        return {
            "count": self.index.count(),
            "bits": self.index.bits,
            "fingerprint": self.index.fingerprint or self.questions.fingerprint,
            "accepts": list(self.accepts),
            "labels": labelled,
            "items": self.items is not None,
            "compare": list(self.comparison.names) if self.comparison else [],
            "report": self.report is not None,
            "writable": self.writable,
            "limits": self.limits.shown(),
            "uptime_s": round(monotonic() - self._began, 3),
            "searches": self.batcher.jobs,
            "mean_batch": round(self.batcher.mean, 2),
        }

    async def compare(self, name: str, k: int) -> dict[str, Any]:
        if self.comparison is None:
            reject(404, "This service compares nothing: it was started without --compare.")
        loop = asyncio.get_running_loop()
        work = self.comparison.answer
        return await loop.run_in_executor(self._threads, work, name, k, self.items)

    def listed(self, offset: int, limit: int, label: str | None) -> dict[str, Any]:
        """Items in order: those described, or, where none are, the ids of the index."""
        if self.items is not None:
            rows = np.arange(len(self.items)) if not label else self.items.labelled(label)
            names = self.items.ids.at(rows[offset : offset + limit]).tolist()
            return {"total": len(rows), "items": [shown(name, self.items) for name in names]}
        if label or not isinstance(self.index, HammingIndex):
            return {"total": 0, "items": []}
        names = _ids(self._view(), offset, limit)
        return {"total": self.index.count(), "items": [shown(name, None) for name in names]}

    def item(self, given: str) -> tuple[dict[str, Any], int]:
        """One item as JSON, and its row among the items, -1 where it has none."""
        strings = self.items.ids.strings if self.items is not None else self._view().strings
        name = one_id(given, strings)
        row = -1 if self.items is None or name is None else self.items.row(name)
        here = self.items is None and name is not None and self._holds(name)
        if name is None or (row < 0 and not here):
            reject(404, f"There is no item {brief(given)}.")
        return shown(name, self.items), row

    def _holds(self, name: int | str) -> bool:
        view = self._view()
        try:
            found = view.codes_of(known_ids([name], view.strings))
        except Rejected:
            return False
        return found is not None and bool(found[1].all())

    async def picture(self, given: str) -> tuple[bytes, str]:
        row = self.item(given)[1]
        if self.items is None or not self.items.pictured(row):
            reject(404, f"The item {brief(given)} has no image.")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, self.items.picture, row)
        except Refusal as sentence:
            raise Rejected(404, f"The image of item {brief(given)} cannot be read.") from sentence
        assert found is not None
        return found

    def close(self) -> None:
        """Finish the work that has begun, then close the index."""
        self.batcher.close()
        self._writer.shutdown()
        self._threads.shutdown(cancel_futures=True)
        self.index.close()


def _ids(view: Any, offset: int, limit: int) -> list[Any]:
    """Ids by order of insertion, without making the column of all."""
    found: list[Any] = []
    for segment in view.state.segments:
        if offset >= segment.live:
            offset -= segment.live
            continue
        rows = np.arange(len(segment.words))
        if segment.alive is not None:
            rows = rows[segment.alive]
        found += segment.ids.at(rows[offset : offset + limit - len(found)]).tolist()
        offset = 0
        if len(found) >= limit:
            break
    return found
