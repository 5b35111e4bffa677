"""Float questions over the service."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.serve import QueryReader, Rejected, Service
from rankbits.serve.queries import make_reader
from rankbits.train.run import Inputs
from serving import Asked

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 20)).astype(np.float32)
WAYS = ("bits", "floats")
PNG = io.BytesIO()
Image.new("L", (8, 8), 200).save(PNG, "PNG")
PNG = PNG.getvalue()
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


@pytest.mark.parametrize("preferred", [False, True])
def test_images_and_texts_are_asked_by_their_floats(preferred):
    encoder = rb.Encoder.of(rb.ITQ().fit(X))
    reader = replace(
        make_reader(encoder),
        image=lambda file: QUERIES[0],
        text=lambda words: QUERIES[len(words)],
        prefers_floats=preferred,
    )
    service = Service(rb.HammingIndex(20).add(encoder.encode(X)), encoder=reader)
    wanted = [service.index.search(encoder.ask(row), 6).ids[0].tolist() for row in QUERIES]
    asked = {} if preferred else {"ask": "floats"}
    bodies = [{"text": "x" * row, "k": 6, **asked} for row in (1, 2, 3)]
    for row, reply in enumerate(ask(service, *bodies), 1):
        assert [name for name, _ in listed(reply)] == wanted[row]
        assert reply["histogram"] is None and reply["query"]["code"]
    bits = {"ask": "bits"} if preferred else {}
    (by_bits,) = ask(service, {"text": "x", "k": 6, **bits})
    assert all(isinstance(far, int) for _, far in listed(by_bits))

    app = Asked(service)
    kind = {"Content-Type": "image/png"}
    reply = app("POST", "/search/image", params={"k": 6, **asked}, content=PNG, headers=kind)
    assert [name for name, _ in listed(reply.json())] == wanted[0]
    reply = app("POST", "/search/image", params={"k": 6, **bits}, content=PNG, headers=kind)
    assert reply.json()["histogram"] is not None
    reply = app("POST", "/search/image?ask=words", content=PNG, headers=kind)
    assert reply.status_code == 422 and "ask must be 'bits' or 'floats'" in reply.text
    service.close()


def test_an_encoder_of_images_is_asked_by_its_floats(monkeypatch):
    monkeypatch.setattr(rb.Sign, "asks_with", "questions")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 12))
    pixels = RNG.normal(size=(30, 1, 8, 8)).astype(np.float32)
    embeddings = network(torch.from_numpy(pixels)).detach().numpy()
    reads = Inputs("images", side=8, channels=1)
    encoder = rb.Encoder(reads, network, rb.Sign().fit(embeddings))
    service = Service(
        rb.HammingIndex(12).add(encoder.encode_embeddings(embeddings)), encoder=encoder
    )
    reply = json.loads(asyncio.run(service.search_image(PNG, 5)))
    query = encoder.ask_embeddings(encoder.embed_image(io.BytesIO(PNG)))
    assert [name for name, _ in listed(reply)] == service.index.search(query, 5).ids[0].tolist()
    assert any(isinstance(far, float) for _, far in listed(reply))
    service.close()


def test_a_vector_that_the_encoder_refuses_spoils_no_other(service):
    bodies = [{"vector": q.tolist(), "k": 3, "ask": "floats"} for q in QUERIES]
    bodies.insert(2, {"vector": [3e38] * 20, "ask": "floats"})

    async def all_at_once():
        raw = [json.dumps(body).encode() for body in bodies]
        return await asyncio.gather(*map(service.search, raw), return_exceptions=True)

    replies = asyncio.run(all_at_once())
    refused = replies.pop(2)
    assert isinstance(refused, Rejected) and refused.status == 422
    assert replies and all(isinstance(reply, bytes) for reply in replies)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"vector": [0.0] * 20, "ask": "words"}, "ask must be 'bits' or 'floats'; got 'words'."),
        ({"code": "00" * 3, "ask": "floats"}, "has floats to search by; got code"),
        ({"id": 3, "ask": "floats"}, "Only a vector, an image or a text has floats"),
        ({"vector": [0.0] * 20, "ask": "floats", "radius": 3}, "radius is a Hamming distance"),
    ],
)
def test_refusals(service, body, sentence):
    with pytest.raises(Rejected, match=sentence):
        ask(service, body)


def test_a_service_without_an_encoder_says_so():
    own = QueryReader(rb.pack, text=lambda words: rb.pack(QUERIES[:1]), dims=(20,), bits=20)
    service = Service(rb.HammingIndex(20).add(rb.pack(X)), encoder=own)
    with pytest.raises(Rejected, match="no encoder that keeps floats"):
        ask(service, {"vector": [1.0] * 20, "ask": "floats"})
    service.batcher.close()
    own = replace(own, ask=rb.Questions)
    service = Service(rb.HammingIndex(20).add(rb.pack(X)), encoder=own)
    assert ask(service, {"vector": [1.0] * 20, "ask": "floats"})
    with pytest.raises(Rejected, match="makes a code of it, which has no floats"):
        ask(service, {"text": "words", "ask": "floats"})
    service.batcher.close()
