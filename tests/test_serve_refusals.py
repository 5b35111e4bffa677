"""What a service says to those it cannot answer: each status with its sentence, and no more."""

from __future__ import annotations

import asyncio
import struct

import numpy as np
import pytest

import rankbits as rb
from rankbits.data.images import decode
from rankbits.serve import Items, Limits, QueryReader, Rejected, Service, wire
from rankbits.serve.batching import Batcher
from serving import TOKEN, Asked, sentence

RNG = np.random.default_rng(0)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
CODES = rb.pack(RNG.normal(size=(20, 12)))


def unreadable(words):
    raise rb.Refusal("These words are in no language.")


@pytest.fixture(scope="module")
def plain():
    """Codes and nothing else: no model, no items, no comparison."""
    asked = Asked(Service(rb.HammingIndex(12).add(CODES), token=TOKEN))
    yield asked
    asked.service.close()


@pytest.fixture(scope="module")
def able():
    """A model for vectors of 12 and of 3 numbers and for text, and items with a broken image."""
    encoder = QueryReader(
        lambda x: rb.pack(np.resize(x, (len(x), 12))), None, unreadable, (12, 3), 12
    )
    items = Items(range(20), paths=["nowhere.png", *[None] * 19])
    made = Service(rb.HammingIndex(12).add(CODES), encoder=encoder, items=items, token=TOKEN)
    asked = Asked(made)
    yield asked
    made.close()


SEARCHES = [
    ([1], "The body must be a JSON object; got [1]."),
    ({"codde": "fff0"}, "There is no field 'codde' (did you mean 'code'?); known: id, code,"),
    ({}, "Give one of id, code to search by; got 0."),
    ({"id": 1, "code": "fff0"}, "Give one of id, code to search by; got 2."),
    ({"vector": [1.0]}, "This service cannot search by vector; it takes id, code."),
    ({"id": True}, "id must be a string or a whole number; got True."),
    ({"code": 7}, "A code must be 4 hex digits for 12 bits; got 7."),
    ({"code": "ggg0"}, "A code must be 4 hex digits for 12 bits; got 'ggg0'."),
    ({"code": "fff1"}, "The pad bits after the last of 12 bits must be zero; some are set."),
    ({"code": "fff0", "k": 0}, "k must be a whole number from 1 to 1,000; got 0."),
    ({"code": "fff0", "histogram": 1}, "histogram must be true or false; got 1."),
    ({"code": "fff0", "among": "3"}, "among must be a list; got '3'."),
]


@pytest.mark.parametrize(("body", "said"), SEARCHES, ids=[str(b) for b, _ in SEARCHES])
def test_a_question_that_is_none(plain, body, said):
    reply = plain("POST", "/search", json=body)
    assert reply.status_code == 422 and sentence(reply.content).startswith(said)


ABLE = [
    ({"text": " "}, "text must be some words; got ' '."),
    ({"text": "words"}, "These words are in no language."),
    ({"vector": []}, "vector must be a list of numbers; got []."),
    ({"vector": [1, "2"]}, "vector must be a list of numbers; got [1, '2']."),
    ({"vector": [1, 2]}, "vector must have 12 or 3 numbers; got 2."),
]


@pytest.mark.parametrize(("body", "said"), ABLE, ids=[str(b) for b, _ in ABLE])
def test_a_question_that_the_model_cannot_take(able, body, said):
    reply = able("POST", "/search", json=body)
    assert reply.status_code == 422 and sentence(reply.content) == said


PATHS = [
    ("GET", "/items?limit=501", 422, "limit must be a whole number from 1 to 500; got 501."),
    ("GET", "/items/77", 404, "There is no item '77'."),
    ("GET", "/items/3/image", 404, "The item '3' has no image."),
    ("GET", "/compare?id=3", 404, "This service compares nothing"),
    ("GET", "/report", 404, "This service has no report"),
    ("POST", "/search/image", 415, "The body must be an image, with its Content-Type; got 'text/"),
    ("PATCH", "/search", 405, "This address takes another method."),
    ("GET", "/nowhere", 404, "There is nothing at this address."),
]


@pytest.mark.parametrize(("method", "path", "status", "said"), PATHS, ids=[p[1] for p in PATHS])
def test_an_address_that_has_nothing(plain, method, path, status, said):
    content = b"hello" if method == "POST" else None
    reply = plain(method, path, content=content, headers={"Content-Type": "text/plain"})
    assert reply.status_code == status and sentence(reply.content).startswith(said)


def test_images_where_there_are_none(plain, able):
    kind = {"Content-Type": "image/png"}
    reply = plain("POST", "/search/image", content=b"x", headers=kind)
    assert reply.status_code == 422
    assert sentence(reply.content) == "This service cannot search by image; it takes id, code."
    assert sentence(able("GET", "/items/0/image").content) == (
        "The image of item '0' cannot be read."
    )
    assert sentence(able("GET", "/items/1/image").content) == "The item '1' has no image."


WRITES = [
    ({"ids": [50]}, "Give one of codes, vectors or texts with the ids; got 0."),
    ({"ids": [50], "codes": ["fff0"], "vectors": [[1]]}, "Give one of codes, vectors or texts"),
    ({"ids": [50, 51], "codes": ["fff0"]}, "codes must have one row for each of 2 ids; got 1."),
    ({"ids": [50, 50], "codes": ["fff0"] * 2}, "ids must not hold an id twice; 1 are repeated."),
    ({"ids": [2**63], "codes": ["fff0"]}, "Ids of this index are whole numbers of 64 bits"),
    ({"ids": [None], "codes": ["fff0"]}, "An id must be a string or a whole number; got None."),
    ({"ids": [50], "vectors": [[1.0]]}, "This service cannot make codes of vectors"),
    ({"ids": [50], "texts": ["a cat"]}, "This service cannot make codes of texts"),
]


@pytest.mark.parametrize(("body", "said"), WRITES, ids=[str(b) for b, _ in WRITES])
def test_a_write_that_cannot_be(plain, body, said):
    reply = plain("POST", "/add", json=body, headers=BEARER)
    assert reply.status_code == 422 and sentence(reply.content).startswith(said)
    assert plain.service.index.count() == 20


def test_vectors_are_written_as_their_codes(able):
    rows = RNG.normal(size=(2, 12))
    mixed = {"ids": [60, 61], "vectors": [[1.0] * 12, [1.0] * 3]}
    reply = able("POST", "/add", json=mixed, headers=BEARER)
    assert sentence(reply.content) == "vectors must all be of one width."
    wrong = able("POST", "/add", json={"ids": [60], "vectors": [[1.0] * 5]}, headers=BEARER)
    assert sentence(wrong.content) == "vector must have 12 or 3 numbers; got 5."
    body = {"ids": [60, 61], "vectors": rows.tolist()}
    assert able("POST", "/add", json=body, headers=BEARER).json() == {"added": 2, "count": 22}
    assert able.service.index.codes([60, 61]) == rb.pack(rows)


def test_ids_of_an_empty_index_are_of_one_kind():
    asked = Asked(Service(rb.HammingIndex(8), token=TOKEN))
    reply = asked("POST", "/add", json={"ids": ["a", 1], "codes": ["ff", "00"]}, headers=BEARER)
    assert reply.status_code == 422 and "or all strings" in sentence(reply.content)
    reply = asked("POST", "/remove", json={"ids": ["a", 1]}, headers=BEARER)
    assert reply.status_code == 422 and "or all strings" in sentence(reply.content)
    gone = asked("POST", "/remove", json={"ids": ["a"]}, headers=BEARER)
    assert gone.json() == {"removed": 0, "count": 0}
    asked.service.close()


def test_ids_without_items_are_listed_in_order():
    index = rb.HammingIndex(12).add(CODES[:8]).add(CODES[8:])
    index.remove([2, 9])
    asked = Asked(Service(index))
    kept = [str(i) for i in range(20) if i not in (2, 9)]
    for offset, limit in ((0, 4), (3, 12), (8, 5), (17, 9), (99, 3)):
        told = asked("GET", "/items", params={"offset": offset, "limit": limit}).json()
        assert told["total"] == 18
        assert [item["id"] for item in told["items"]] == kept[offset : offset + limit]
    assert asked("GET", "/items/3").json()["id"] == "3"
    assert asked("GET", "/items/2").status_code == 404
    assert asked("GET", "/items/x").status_code == 404
    assert asked("GET", "/items?label=a").json() == {"total": 0, "items": []}
    asked.service.close()


def test_more_than_may_wait_is_told_so():
    asked = Asked(Service(rb.HammingIndex(12).add(CODES), limits=Limits(waiting=0)))
    reply = asked.search(code="fff0")
    assert reply.status_code == 503 and reply.headers["retry-after"]
    assert sentence(reply.content) == "Too many requests are waiting: try again in a moment."
    asked.service.close()


def test_a_batch_that_fails_fails_for_each_and_the_next_is_answered():
    def work(jobs):
        if "bad" in jobs:
            raise RuntimeError("all of it")
        return jobs

    async def ask():
        full = Batcher(work, waiting=0)
        with pytest.raises(Rejected, match="Too many searches are waiting"):
            await full.ask(1)
        full.close()
        batcher = Batcher(work)
        gone = asyncio.ensure_future(batcher.ask("gone"))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(RuntimeError, match="all of it"):
            await batcher.ask("bad")
        assert await batcher.ask("good") == "good"
        assert gone.cancelled()
        batcher.close()

    asyncio.run(ask())


def test_an_engine_that_fails_says_so_in_the_log_only():
    """An index elsewhere: it finds, but neither counts nor knows codes by id."""
    from rankbits.indexes import Index
    from rankbits.serve.views import RemoteView, take_view

    class Far(Index):
        bits = 12
        held = rb.HammingIndex(12).add(CODES)

        def count(self):
            return self.held.count()

        add = remove = within = None

        def _search_codes(self, queries, k, among):
            if k == 7:
                raise rb.Refusal("The database at db.example is gone.")
            return self.held.search(queries, k, among=among)

    far = Far()
    assert isinstance(take_view(far, None), RemoteView)
    asked = Asked(Service(far))
    assert asked.service.accepts == ("code",)
    code = CODES.packed[4].tobytes().hex()
    told = asked.search(code=code, k=3).json()
    assert told["bands"][0]["items"][0]["id"] == "4" and told["histogram"] is None
    assert asked("GET", "/items").json() == {"total": 0, "items": []}
    assert asked("GET", "/items/4").status_code == 404
    reply = asked.search(code=code, k=7)
    assert reply.status_code == 503 and "db.example" not in reply.text
    assert "db.example" in asked.log.getvalue()
    asked.service.close()


@pytest.mark.parametrize("library", [True, False], ids=["orjson", "json"])
def test_json_is_the_same_without_orjson(monkeypatch, library):
    if not library:
        monkeypatch.setattr(wire, "orjson", None)
    value = {"k": 3, "words": ["ä", None], "x": 0.5}
    assert wire.loads(wire.dumps(value)) == value
    for raw in (b"[NaN]", b"[Infinity]", b"\xff", b"[" * 100_000):
        with pytest.raises(Rejected, match="must be JSON in UTF-8, without NaN or Infinity"):
            wire.loads(raw)


def test_orjson_may_be_missing(monkeypatch):
    import importlib.util
    import sys

    monkeypatch.setitem(sys.modules, "orjson", None)
    spec = importlib.util.spec_from_file_location("wire_alone", wire.__file__)
    alone = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, alone)
    spec.loader.exec_module(alone)
    assert alone.orjson is None and alone.dumps({"k": 3}) == b'{"k":3}'


CUT = {
    "png": b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 9, b"IDAT") + bytes(13),
    "png end": b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 9, b"IEND") + bytes(4),
    "gif head": b"GIF89a" + bytes(6),
    "gif block": b"GIF89a" + bytes(7) + b"\x21\xf9\x04",
    "gif nothing": b"GIF89a" + bytes(7),
    "gif unknown": b"GIF89a" + bytes(7) + b"\x07",
    "webp": b"RIFF" + struct.pack("<I", 500) + b"WEBPVP8 ",
    "bmp": b"BM" + struct.pack("<I", 500) + bytes(20),
    "bmp head": b"BM\1",
}


@pytest.mark.parametrize("name", CUT)
def test_an_image_cut_short_is_told_so(name):
    def encode(file):
        return rb.pack(decode(file, 4, channels=1).reshape(1, 16)[:, :12].astype(float) - 127)

    reader = QueryReader(image=encode)
    asked = Asked(Service(rb.HammingIndex(12).add(CODES), encoder=reader))
    kind = {"Content-Type": "image/png"}
    reply = asked("POST", "/search/image", content=CUT[name], headers=kind)
    assert reply.status_code == 422 and sentence(reply.content).startswith("The upload ")
    asked.service.close()
