"""Float questions over the service."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

import rankbits as rb
from rankbits.serve import Service
from rankbits.serve.limits import Rejected

pytest.importorskip("httpx")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 20)).astype(np.float32)
WAYS = ("bits", "floats")
QUERIES = RNG.normal(size=(4, 20)).astype(np.float32)


@pytest.fixture
def service():
    encoder = rb.Encoder.of(rb.ITQ().fit(X))
    made = Service(rb.HammingIndex(20).add(encoder.encode(X)), encoder=encoder)
    yield made
    made.batcher.close()


def ask(service, *bodies):
    async def all_at_once():
        raw = [json.dumps(body).encode() for body in bodies]
        return await asyncio.gather(*map(service.search, raw))

    return [json.loads(reply) for reply in asyncio.run(all_at_once())]


def listed(reply):
    return [
        (int(item["id"]), band["distance"]) for band in reply["bands"] for item in band["items"]
    ]


def test_a_vector_is_asked_by_its_floats(service):
    index, encoder = service.index, rb.Encoder.of(rb.ITQ().fit(X))
    bodies = [{"vector": q.tolist(), "k": 6, "ask": way} for q in QUERIES for way in WAYS]
    bodies.append({"vector": QUERIES[0].tolist(), "k": 3, "ask": "floats", "among": [5, 9, 11]})
    *replies, among = ask(service, *bodies)
    for row, query in enumerate(QUERIES):
        by_bits = index.search(encoder.encode(query), 6)
        by_floats = index.search(encoder.ask(query), 6)
        bits, floats = replies[2 * row : 2 * row + 2]
        assert [far for _, far in listed(bits)] == by_bits.distances[0].tolist()
        assert bits["histogram"] is not None
        assert [name for name, _ in listed(floats)] == by_floats.ids[0].tolist()
        far = [far for _, far in listed(floats)]
        np.testing.assert_allclose(far, by_floats.distances[0], rtol=1e-5)
        assert floats["histogram"] is None and floats["ap"] is None and floats["cut"] is None
    wanted = index.search(encoder.ask(QUERIES[0]), 3, among=[5, 9, 11])
    assert [name for name, _ in listed(among)] == wanted.ids[0].tolist()


def test_an_encoder_that_prefers_floats_is_asked_so(monkeypatch):
    monkeypatch.setattr(rb.ITQ, "asks_with", "questions")
    encoder = rb.Encoder.of(rb.ITQ().fit(X))
    service = Service(rb.HammingIndex(20).add(encoder.encode(X)), encoder=encoder)
    plain = {"vector": QUERIES[0].tolist(), "k": 5}
    preferred, bits, near = ask(service, plain, plain | {"ask": "bits"}, plain | {"radius": 9})
    assert isinstance(listed(preferred)[1][1], float)
    assert isinstance(listed(bits)[0][1], int) and isinstance(listed(near)[0][1], int)
    service.batcher.close()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"vector": [0.0] * 20, "ask": "words"}, "ask must be 'bits' or 'floats'; got 'words'."),
        ({"code": "00" * 3, "ask": "floats"}, "Only a vector can be asked by its floats; got code"),
        ({"vector": [0.0] * 20, "ask": "floats", "radius": 3}, "radius is a Hamming distance"),
    ],
)
def test_refusals(service, body, sentence):
    with pytest.raises(Rejected, match=sentence):
        ask(service, body)


def test_a_service_without_an_encoder_says_so():
    from rankbits.serve import Questions

    own = Questions(rb.pack, dims=(20,), bits=20)
    service = Service(rb.HammingIndex(20).add(rb.pack(X)), encoder=own)
    with pytest.raises(Rejected, match="no encoder that keeps floats"):
        ask(service, {"vector": [1.0] * 20, "ask": "floats"})
    service.batcher.close()
