"""The service behind the routes: an index, what its ids stand for, and how queries become codes.

Nothing here knows HTTP. Methods that a route awaits do their work in threads: searches in one, in
batches; writes in another, one after the other; decoding and drawing in two more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._check import Refusal
from rankbits.encoder import Encoder
from rankbits.indexes import HammingIndex, Index
from rankbits.serve import asks
from rankbits.serve.answers import Unavailable, answer, describe_item
from rankbits.serve.asks import Ask
from rankbits.serve.batching import Batcher
from rankbits.serve.compare import SideBySide
from rankbits.serve.health import has_room
from rankbits.serve.ids import check_new_ids, convert_ids, parse_id
from rankbits.serve.items import WHOLE, Items
from rankbits.serve.limits import Limits, Rejected, reject, shorten
from rankbits.serve.queries import QueryReader, check_bits, make_queries, make_reader, read_query
from rankbits.serve.uploads import check_upload
from rankbits.serve.views import IndexView, Labels, LocalView, take_view
from rankbits.types import Codes
from rankbits.types.codes import check_same_encoder

PAGE = 500  # the most items that are listed at a time


class Service:
    """Searches one index and writes to it. ``token``: what a writer must show; None: read-only.

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
        encoder: Encoder | QueryReader | None = None,
        items: Items | None = None,
        compare: SideBySide | None = None,
        report: dict[str, Any] | None = None,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.index, self.items, self.report = index, items, report
        self.comparison, self.limits = compare, limits or Limits()
        self.reader = check_bits(make_reader(encoder), index.bits)
        check_same_encoder(self.reader.fingerprint, index.fingerprint, "the index")
        if token is not None and not re.fullmatch(r"[!-~]{8,}", token):
            _check.refuse("The token must be at least 8 printable ASCII characters, no spaces.")
        self.token = token
        local = isinstance(index, HammingIndex)
        self.accepts = (*(("id",) if local else ()), "code", *self.reader.accepts)
        self._labels = Labels(items)
        self.batcher = Batcher(self._answer, waiting=self.limits.waiting, cost=lambda ask: ask.k)
        self._threads = ThreadPoolExecutor(2, "rankbits-decode")
        # a connection to a database belongs to one thread; a local index is searched while written
        self._writer = ThreadPoolExecutor(1, "rankbits-write") if local else self.batcher.thread
        self._embedding, self._write_failed = asyncio.Lock(), False
        self._began = monotonic()

    @property
    def writable(self) -> bool:
        return self.token is not None

    def _take_view(self) -> IndexView:
        return take_view(self.index, self._labels)

    def _answer(self, jobs: list[Ask]) -> list[Any]:
        vectors = [job for job in jobs if job.vector is not None and job.code is None]
        if vectors:
            make_queries(vectors, self.reader)
        try:
            return answer(jobs, self._take_view(), self.items, self.index.bits)
        except Refusal as sentence:
            raise Unavailable(str(sentence)) from sentence

    def _parse(self, raw: bytes) -> Ask:
        fingerprint = self.index.fingerprint
        ask = asks.parse_search(raw, self.index.bits, self.limits, self.accepts, fingerprint)
        if ask.vector is not None:
            self.reader.check_width(len(ask.vector))
        self.reader.check_floats(ask.floats)
        return ask

    def warm(self) -> None:
        """Search once at the start, because the first search compiles kernels."""
        if isinstance(self.index, HammingIndex) and self.index.count():
            code = "00" * -(-self.index.bits // 8)
            self._answer([self._parse(f'{{"code": "{code}", "k": 1}}'.encode())])
        if self.reader.text is not None:
            self.reader.text("a first sentence")

    async def search(self, raw: bytes) -> bytes:
        """Answer a /search body."""
        ask = self._parse(raw)
        if ask.text is not None:
            read = self.reader.text
            await self._run(self._threads, read_query, ask, self.reader, read, ask.text)
        return await self.batcher.ask(ask)

    async def search_image(
        self, raw: bytes, k: int, histogram: bool = True, floats: bool | None = None
    ) -> bytes:
        """Answer an uploaded image."""
        if self.reader.image is None:
            reject(422, f"This service cannot search by image; it takes {', '.join(self.accepts)}.")
        self.reader.check_floats(floats)
        ask = Ask(k, histogram=histogram, floats=floats, began=perf_counter())
        await self._run(self._threads, self._read_upload, ask, raw)
        return await self.batcher.ask(ask)

    async def _run(self, threads: ThreadPoolExecutor, work: Any, *values: Any) -> Any:
        """Do work in a thread and await its result."""
        return await asyncio.get_running_loop().run_in_executor(threads, work, *values)

    def _read_upload(self, ask: Ask, raw: bytes) -> None:
        assert self.reader.image is not None
        upload = check_upload(raw, self.limits.pixels)
        try:
            read_query(ask, self.reader, self.reader.image, upload)
        except (OSError, SyntaxError, EOFError) as error:  # what Pillow raises in a user's function
            raise Rejected(422, "The upload is truncated or damaged.") from error

    async def add(self, raw: bytes) -> dict[str, int]:
        """Add the codes, vectors or texts of an /add body."""
        ids, name, rows = asks.parse_add(raw, self.limits, self.index.fingerprint)
        codes = await self._read_rows(name, rows)

        def work() -> dict[str, int]:
            self.index.add(codes, check_new_ids(ids, self.index.has_string_ids))
            return {"added": len(codes), "count": self.index.count()}

        return await self._write(work)

    async def _read_rows(self, name: str, rows: list[Any]) -> Codes:
        bits = self.index.bits
        if name == "codes":
            packed = np.frombuffer(b"".join(asks.parse_code(row, bits) for row in rows), np.uint8)
            return Codes(packed.reshape(len(rows), -1), bits)
        encode: Any = self.reader.texts if name == "texts" else self.reader.vector
        if encode is None:
            reject(422, f"This service cannot make codes of {name}: it has no model of them.")
        if name == "texts":
            texts = [asks.check_words(row, "Each of texts") for row in rows]
            async with self._embedding:  # one at a time: the other thread stays free for searches
                return await self._run(self._threads, encode, texts)
        vectors = asks.parse_vectors(rows)
        self.reader.check_width(vectors.shape[1])
        return await self._run(self._threads, encode, vectors)

    async def remove(self, raw: bytes) -> dict[str, int]:
        """Remove the ids of a /remove body."""
        body = asks.parse_fields(raw, ("ids",))
        names = asks.parse_list("ids", body.get("ids"), self.limits.batch)

        def work() -> dict[str, int]:
            ids = convert_ids(names, self.index.has_string_ids)
            removed = self.index.remove(ids) if len(ids) and self.index.count() else 0
            return {"removed": removed, "count": self.index.count()}

        return await self._write(work)

    async def _write(self, work: Callable[[], dict[str, int]]) -> dict[str, int]:
        """Run a write to its end, even if the client closes the connection."""
        try:
            counts = await asyncio.shield(self._run(self._writer, work))
        except Rejected:
            raise
        except Refusal as sentence:
            self._write_failed = True
            raise Unavailable(str(sentence)) from sentence
        self._write_failed = False
        return counts

    async def count(self) -> int:
        """Count the codes of the index, a database's in the thread of its connection."""
        try:
            if isinstance(self.index, HammingIndex):
                return self.index.count()
            return await self._run(self.batcher.thread, self.index.count)
        except Refusal as sentence:
            raise Unavailable(str(sentence)) from sentence

    async def check_index(self) -> None:
        """Refuse if the index does not answer."""
        try:
            await self.count()
        except Unavailable as error:
            raise Rejected(503, "The index does not answer.") from error

    async def check_writing(self) -> None:
        """Refuse if this service writes and the index cannot be written to."""
        path = getattr(self.index, "path", None)
        if self.writable and path is not None:
            probe = partial(has_room, path, try_writing=self._write_failed)
            self._write_failed = not await self._run(self._writer, probe)
        if self.writable and self._write_failed:
            reject(503, "The index cannot be written to at present.")

    async def stats(self) -> dict[str, Any]:
        """Say what is served, its limits, and how many searches there were."""
        labelled = self.items is not None and self.items.labels is not None
        return {
            "count": await self.count(),
            "bits": self.index.bits,
            "fingerprint": self.index.fingerprint or self.reader.fingerprint,
            "accepts": list(self.accepts),
            "labels": labelled,
            "items": self.items is not None,
            "compare": list(self.comparison.names) if self.comparison else [],
            "report": self.report is not None,
            "writable": self.writable,
            "limits": self.limits.to_dict(),
            "uptime_s": round(monotonic() - self._began, 3),
            "searches": self.batcher.jobs,
            "mean_batch": round(self.batcher.mean, 2),
        }

    async def compare(self, name: str, k: int, text: str | None = None) -> dict[str, Any]:
        """Compare what several codes of the items find for one item or one text."""
        if self.comparison is None:
            reject(404, "This service compares nothing: it was started without --compare.")
        if text is not None:
            return await self._run(self._threads, self._compare_text, text, k)
        return await self._run(self._threads, self.comparison.answer, name, k, self.items)

    def _compare_text(self, text: str, k: int) -> dict[str, Any]:
        assert self.comparison is not None
        embedding = None if self.reader.text is None else self.reader.text(asks.check_words(text))
        if not isinstance(embedding, np.ndarray):
            reject(422, "This service cannot embed a text: compare by an id.")
        return self.comparison.answer_embedding(embedding.reshape(1, -1), k, self.items)

    def list_items(self, offset: int, limit: int, label: str | None) -> dict[str, Any]:
        """List items in order, or the ids of the index where there are no items."""
        view, names, total = self._take_view(), [], 0
        if self.items is not None:
            rows = self.items.find_labelled(label) if label else np.arange(len(self.items))
            names, total = self.items.ids.at(rows[offset : offset + limit]).tolist(), len(rows)
        elif isinstance(view, LocalView) and not label:
            names, total = view.list_ids(offset, limit), view.state.count
        return {"total": total, "items": [describe_item(name, self.items) for name in names]}

    def item(self, text: str) -> tuple[dict[str, Any], int]:
        """Describe one item as JSON -> it, and its row among the items, -1 where it has none."""
        view = self._take_view()
        name, row, exists = None, -1, False
        if self.items is not None:
            name = parse_id(text, self.items.ids.strings)
            row = -1 if name is None else self.items.row(name)
            exists = row >= 0
        elif isinstance(view, LocalView):
            name = parse_id(text, view.strings)
            exists = name is not None and view.holds(name)
        if name is None or not exists:
            reject(404, f"There is no item {shorten(text)}.")
        return describe_item(name, self.items, most=WHOLE), row

    async def picture(self, text: str) -> tuple[bytes, str]:
        """Draw the thumbnail of an item -> its bytes and its type."""
        row = self.item(text)[1]
        if self.items is None or not self.items.has_picture(row):
            reject(404, f"The item {shorten(text)} has no image.")
        try:
            picture = await self._run(self._threads, self.items.picture, row)
        except Refusal as sentence:
            raise Rejected(404, f"The image of item {shorten(text)} cannot be read.") from sentence
        assert picture is not None
        return picture

    def close(self) -> None:
        """Finish the work that has begun, then close the index."""
        self.batcher.close()
        self._writer.shutdown()
        self._threads.shutdown(cancel_futures=True)
        self.index.close()
