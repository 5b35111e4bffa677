"""The service: every route's answer against the definition, writes, and its end."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import threading

import numpy as np
import pytest

import rankbits as rb
from rankbits.cli import main
from rankbits.indexes.addresses import open_index
from rankbits.quickstart import digits_service
from rankbits.serve import Items, Limits, QueryReader, Service, read_items
from rankbits.serve.asks import parse_vector
from rankbits.serve.batching import Batcher
from rankbits.serve.limits import Rejected
from rankbits.serve.queries import make_reader
from serving import PATIENCE, TOKEN, Asked, few_steps, read_all, running

RNG = np.random.default_rng(0)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def digits():
    codes, labels = rb.pack(RNG.normal(size=(60, 16))), RNG.integers(0, 3, 60)
    with few_steps():
        asked = Asked(digits_service(rb.evaluate(codes[:20], codes, labels[:20], labels, k=10)))
    yield asked
    asked.service.close()


@pytest.fixture
def small():
    """Twelve codes of 12 bits with three labels, one item without; some were removed."""
    codes = rb.pack(RNG.normal(size=(40, 12)))
    index = rb.HammingIndex(12).add(codes, range(100, 140))
    index.remove([101, 120])
    labels = RNG.integers(0, 3, 40)
    labels[5] = -1
    items = Items(range(100, 140), labels=labels, names=("a", "b", "c"))
    asked = Asked(Service(index, items=items, token=TOKEN))
    asked.codes, asked.labels = codes, labels
    yield asked
    asked.service.close()


def found(reply):
    assert reply.status_code == 200, reply.text
    bands = reply.json()["bands"]
    return [(item["id"], band["distance"]) for band in bands for item in band["items"]]


def test_a_search_is_the_index_in_bands(small):
    kept = np.array([i for i in range(40) if i not in (1, 20)])
    for k in (1, 7, 38, 1000):
        for row in (0, 3, 39):
            reply = small.search(id=str(100 + row), k=k)
            wanted = rb.hamming_topk(small.codes[row], small.codes[kept], k)
            ids = [str(100 + kept[i]) for i in wanted.ids[0]]
            assert found(reply) == list(zip(ids, wanted.distances[0].tolist(), strict=True))
            told = reply.json()
            near = rb.hamming(small.codes[row], small.codes[kept])[0]
            counts = np.bincount(near, minlength=13)
            assert told["histogram"]["all"] == counts.tolist()
            assert [band["count"] for band in told["bands"]] == [
                counts[band["distance"]] for band in told["bands"]
            ]
            assert told["cut"] == told["bands"][-1]["count"] - len(told["bands"][-1]["items"])
            assert told["query"]["code"] == small.codes.packed[row].tobytes().hex()


def test_ap_and_relevant_leave_the_query_out(small):
    kept = np.array([i for i in range(40) if i not in (1, 20)])
    for row in (0, 3, 30):
        told = small.search(id=str(100 + row), k=5).json()
        others = kept[kept != row]
        near = rb.hamming(small.codes[row], small.codes[others])
        ranking = rb.rank(near, (small.labels[others] == small.labels[row])[None])
        for ties in ("mean", "worst", "best"):
            wanted = rb.average_precision(ranking, ties=ties)[0]
            assert told["ap"][ties] == pytest.approx(wanted, abs=1e-12)
        alike = kept[small.labels[kept] == small.labels[row]]
        relevant = np.bincount(rb.hamming(small.codes[row], small.codes[alike])[0], minlength=13)
        assert told["histogram"]["relevant"] == relevant.tolist()
    unlabelled = small.search(id="105").json()
    assert unlabelled["ap"] is None and unlabelled["histogram"]["relevant"] is None
    assert unlabelled["query"]["label"] is None


def test_radius_among_and_no_histogram(small):
    everything = found(small.search(id="100", k=1000))
    near = [pair for pair in everything if pair[1] <= 4]
    assert found(small.search(id="100", k=1000, radius=4)) == near
    assert found(small.search(id="100", k=3, radius=4)) == near[:3]
    among = ["103", 104, "101", "nobody", "139"]
    reply = small.search(id="100", among=among)
    assert found(reply) == [p for p in everything if p[0] in ("103", "104", "139")]
    assert sum(reply.json()["histogram"]["all"]) == 3
    plain = small.search(code=small.codes.packed[0].tobytes().hex(), histogram=False).json()
    assert plain["histogram"] is None and plain["cut"] is None
    assert {band["count"] for band in plain["bands"]} == {None}
    assert found(small.search(id="100", among=[])) == []


def test_several_labels():
    codes = rb.pack(RNG.normal(size=(30, 8)))
    labels = RNG.random((30, 4)) < 0.4
    index = rb.HammingIndex(8).add(codes)
    asked = Asked(Service(index, items=Items(range(30), labels=labels, names=tuple("abcd"))))
    row = int(np.argmax(labels.sum(1)))
    told = asked.search(id=row).json()
    relevant = (labels & labels[row]).any(1)
    near = rb.hamming(codes[row], codes)[0]
    assert told["histogram"]["relevant"] == np.bincount(near[relevant], minlength=9).tolist()
    assert told["query"]["label"] == "|".join(np.array(list("abcd"))[labels[row]])
    listed = asked("GET", "/items", params={"label": "b"}).json()
    assert [item["id"] for item in listed["items"]] == [
        str(i) for i in np.flatnonzero(labels[:, 1])
    ]
    asked.service.close()


def test_an_empty_index_answers():
    asked = Asked(Service(rb.HammingIndex(8), token=TOKEN))
    told = asked.search(code="ff").json()
    assert told["bands"] == [] and told["histogram"]["all"] == [0] * 9 and told["cut"] == 0
    assert asked.search(id="1").status_code == 404
    assert asked("GET", "/items").json() == {"total": 0, "items": []}
    asked.service.close()


def test_vectors_images_and_text():
    from PIL import Image

    seen = []

    def text(words):
        seen.append(words)
        return rb.pack(np.ones((1, 8)))

    encoder = QueryReader(rb.pack, lambda file: rb.pack(_pixels(file)), text, dims=(8,), bits=8)
    codes = rb.pack(RNG.normal(size=(20, 8)))
    asked = Asked(Service(rb.HammingIndex(8).add(codes), encoder=encoder))
    assert asked.service.accepts == ("id", "code", "vector", "image", "text")
    vector = RNG.normal(size=8)
    by_code = asked.search(code=rb.pack(vector[None]).packed.tobytes().hex())
    assert found(asked.search(vector=vector.tolist())) == found(by_code)
    assert found(asked.search(text="words")) == found(asked.search(code="ff")) and seen == ["words"]
    out = io.BytesIO()
    Image.new("L", (8, 8), 255).save(out, "PNG")
    kind = {"Content-Type": "image/png"}
    reply = asked("POST", "/search/image?k=3", content=out.getvalue(), headers=kind)
    assert found(reply) == found(asked.search(code="ff", k=3))
    assert asked.search(vector=[1.0] * 7).status_code == 422
    asked.service.close()


def _pixels(file):
    from rankbits.data.images import decode

    return decode(file, 8, channels=1)[0].reshape(1, 8).astype(float)


def test_items_and_their_pictures(digits):
    from PIL import Image

    listed = digits("GET", "/items", params={"offset": 3, "limit": 2}).json()
    assert listed["total"] == 1497 and len(listed["items"]) == 2
    item = listed["items"][0]
    assert digits("GET", f"/items/{item['id']}").json() == item
    picture = digits("GET", item["image"])
    assert picture.headers["content-type"] == "image/png" and "max-age" in str(picture.headers)
    with Image.open(io.BytesIO(picture.content)) as image:
        assert image.size == (64, 64)
    kind = {"Content-Type": "image/png"}
    told = digits("POST", "/search/image", content=picture.content, headers=kind).json()
    assert told["bands"][0]["distance"] == 0
    assert item["id"] in [near["id"] for near in told["bands"][0]["items"]]
    sevens = digits("GET", "/items", params={"label": "7", "limit": 500}).json()
    assert {item["label"] for item in sevens["items"]} == {"7"} and sevens["total"] > 100


def test_compare_judges_each_method(digits):
    name = digits("GET", "/items?limit=1").json()["items"][0]["id"]
    told = digits("GET", "/compare", params={"id": name, "k": 5}).json()
    assert [m["name"] for m in told["methods"]] == ["float", "sign", "itq", "h2q", "supervised"]
    assert [m["bits"] for m in told["methods"]] == [None, 16, 16, 16, 16]
    assert [m["bytes"] for m in told["methods"]] == [256, 2, 2, 2, 2]
    own = digits.search(id=name, k=5).json()
    sign = told["methods"][1]
    assert sign["ap"]["mean"] == pytest.approx(own["ap"]["mean"], abs=1e-9)
    assert sign["cut"] == own["cut"]
    for method in told["methods"]:
        assert sum(len(band["items"]) for band in method["bands"]) == 5
        assert method["ap"]["worst"] <= method["ap"]["mean"] <= method["ap"]["best"]
    assert digits("GET", "/compare?id=none").status_code == 404


def test_what_is_told_about_the_service(digits):
    stats = digits("GET", "/stats").json()
    assert stats["count"] == 1497 and stats["bits"] == 16 and stats["writable"] is False
    assert stats["accepts"] == ["id", "code", "vector", "image"]
    assert stats["limits"] == Limits().to_dict()
    assert digits("GET", "/health").json() == {"status": "ok"}
    assert "mAP" in digits("GET", "/report").json()["figures"]
    metrics = digits("GET", "/metrics").text
    assert "rankbits_index_codes 1497" in metrics and 'route="/health",status="200"' in metrics
    assert "POST /search" in digits("GET", "/docs").text
    assert set(digits("GET", "/openapi.json").json()["paths"]) >= {"/search", "/add", "/remove"}


def test_headers_ids_and_the_log(small):
    reply = small("GET", "/items/100")
    assert reply.headers["content-security-policy"].startswith("default-src 'self'; img-src")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    small.app.log.flush()
    line = json.loads(small.log.getvalue().splitlines()[-1])
    assert line["id"] == reply.headers["x-request-id"] and line["path"] == "/items/{id}"
    assert (line["method"], line["status"]) == ("GET", 200) and line["ms"] > 0


def test_a_failure_is_one_sentence_and_its_trace_is_in_the_log(small, monkeypatch):
    def broken(*given):
        raise RuntimeError("secret of /srv/place")

    monkeypatch.setattr(small.service, "stats", broken)
    reply = small("GET", "/stats")
    assert reply.status_code == 500 and "secret" not in reply.text and "/srv" not in reply.text
    assert reply.json()["error"].endswith("the id of this request.")
    failures = [json.loads(x) for x in small.log.getvalue().splitlines() if '"failure"' in x]
    assert failures[-1]["id"] == reply.headers["x-request-id"]
    assert "secret of /srv/place" in failures[-1]["traceback"]


def test_writes(small):
    new = rb.pack(RNG.normal(size=(2, 12)))
    body = {"ids": ["200", 201], "codes": [row.tobytes().hex() for row in new.packed]}
    assert small("POST", "/add", json=body, headers=BEARER).json() == {"added": 2, "count": 40}
    assert found(small.search(code=body["codes"][1], k=1))[0][1] == 0
    assert "201" in [name for name, _ in found(small.search(id="201", k=40, radius=0))]
    gone = small("POST", "/remove", json={"ids": ["200", "999", "x"]}, headers=BEARER)
    assert gone.json() == {"removed": 1, "count": 39}
    for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": TOKEN}):
        reply = small("POST", "/add", json=body, headers=wrong)
        assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
    assert small.service.index.count() == 39


def test_without_a_token_nobody_writes(digits):
    reply = digits("POST", "/add", json={"ids": [1], "codes": ["ffff"]}, headers=BEARER)
    assert reply.status_code == 403 and "read-only" in reply.json()["error"]


def test_a_failing_disk_is_no_secret_kept(tmp_path):
    index = open_index(tmp_path / "idx", bits=8)
    asked = Asked(Service(index, token=TOKEN))
    (tmp_path / "idx").unlink()
    reply = asked("POST", "/add", json={"ids": [1], "codes": ["ff"]}, headers=BEARER)
    assert reply.status_code == 503 and str(tmp_path) not in reply.text
    assert str(tmp_path) in asked.log.getvalue()
    asked.service.close()


def test_questions_at_once_are_one_batch():
    sizes = []
    started, go = threading.Event(), threading.Event()

    def work(jobs):
        sizes.append(len(jobs))
        started.set()
        go.wait(PATIENCE)
        return [job * 10 if job % 3 else ValueError(job) for job in jobs]

    batcher = Batcher(work, most=8)

    async def ask():
        first = asyncio.create_task(batcher.ask(1))
        await asyncio.get_running_loop().run_in_executor(None, started.wait, PATIENCE)
        rest = [asyncio.create_task(batcher.ask(i)) for i in range(2, 22)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    answers = asyncio.run(ask())
    assert sizes == [1, 8, 8, 4] and batcher.mean == 21 / 4
    for i, answer in enumerate(answers, 1):
        assert answer == 10 * i if i % 3 else isinstance(answer, ValueError)
    batcher.close()


def test_large_questions_hold_up_no_small_one():
    batches = []
    started, go = threading.Event(), threading.Event()

    def work(jobs):
        batches.append(jobs)
        started.set()
        go.wait(PATIENCE)
        return jobs

    batcher = Batcher(work, most=64, waiting=100, cost=lambda job: job)

    async def ask():
        first = asyncio.create_task(batcher.ask(1))
        await asyncio.get_running_loop().run_in_executor(None, started.wait, PATIENCE)
        jobs = [5000] * 50 + [2] * 90
        rest = [asyncio.create_task(batcher.ask(job)) for job in jobs]
        await asyncio.sleep(0)
        with pytest.raises(Rejected, match="Too many searches are waiting"):
            await batcher.ask(5000)
        last = asyncio.create_task(batcher.ask(3))  # the line of small ones has room
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(first, *rest, last) == [1, *jobs, 3]

    asyncio.run(ask())
    batcher.close()
    assert batches[1] == [2] * 56 + [5000] * 4  # an eighth of the places, and they cost enough
    assert batches[2] == [2] * 34 + [3] + [5000] * 4
    assert all(len(batch) <= 4 for batch in batches[3:])


def test_items_of_folders_and_tables(tmp_path):
    from PIL import Image

    for name in ("cat/a.png", "dog/b.png"):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (300, 200), "red").save(tmp_path / "pets" / name)
    numbered = read_items(tmp_path / "pets", strings=False)
    assert numbered.title(1) == "b" and numbered.label(numbered.row(1)) == "dog"
    body, kind = numbered.picture(0)
    with Image.open(io.BytesIO(body)) as image:
        assert image.size == (200, 200) and kind == "image/jpeg"
    assert read_items(tmp_path / "pets", strings=True).row("cat/a.png") == 0
    table = tmp_path / "items.csv"
    table.write_text("id,title,label,path\n7,A cat,cat|pet,pets/cat/a.png\n9,A rock,,\n")
    found = read_items(table, strings=False)
    assert found.title(7) == "A cat" and found.label(0) == "cat|pet" and found.label(1) is None
    assert found.has_picture(0) and not found.has_picture(1)
    table.write_text("id,title\nx,A cat\n")
    with pytest.raises(rb.Refusal, match="must be whole numbers"):
        read_items(table, strings=False)


def test_encoders_of_quantizers_and_runs(tmp_path):
    x = RNG.normal(size=(80, 6)).astype(np.float32)
    quantizer = rb.ITQ().fit(x)
    rb.Encoder.of(quantizer).save(tmp_path / "q.encoder")
    asked = make_reader(rb.load(tmp_path / "q.encoder"))
    assert asked.vector(x[:5]) == quantizer.encode(x[:5]) and asked.dims == (6,)
    run = rb.train(
        rb.TrainConfig().with_changes(bits=8, epochs=1, out=str(tmp_path / "run")),
        examples=rb.data.Examples(x, RNG.integers(0, 2, 80)),
    )
    encoder = rb.load(tmp_path / "run")
    asked = make_reader(encoder)
    assert asked.vector(x[:5]) == rb.pack(run.embed(x[:5]).embeddings) and asked.bits == 8
    assert asked.dims == (6, 8) and asked.accepts == ("vector",)
    outputs = run.embed(x[:5]).embeddings
    assert asked.vector(outputs) == rb.pack(outputs)
    with pytest.raises(rb.Refusal, match="codes of 8 bits; the index holds 6"):
        Service(rb.HammingIndex(6), encoder=encoder)


def test_the_command_refuses_in_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("RANKBITS_TOKEN", raising=False)
    with open_index(tmp_path / "idx", bits=8) as index:
        index.add(rb.pack(RNG.normal(size=(5, 8))))
    for words, said in (
        ([], "Give the index"),
        ([str(tmp_path / "none")], "does not exist"),
        ([str(tmp_path / "idx"), "--port", "99999"], "at most 65535"),
        ([str(tmp_path / "idx"), "--token", "short"], "at least 8 printable"),
        ([str(tmp_path / "idx"), "--report", str(tmp_path / "idx")], "is not a report in JSON"),
    ):
        assert main(["serve", *words]) == 1
        assert said in capsys.readouterr().err


def test_killed_while_adding_nothing_acknowledged_is_lost(tmp_path):
    path = tmp_path / "idx"
    open_index(path, bits=16).close()
    from rankbits.client import Client

    acknowledged: list[int] = []
    codes = rb.pack(RNG.normal(size=(5000, 16)))
    with running(tmp_path, path) as server:
        enough = threading.Event()

        def stream():
            with Client(server.url, TOKEN, retries=0) as client:
                try:
                    for i in range(0, 5000, 2):
                        client.add([i, i + 1], codes[i : i + 2])
                        acknowledged.extend((i, i + 1))
                        if i == 100:
                            enough.set()
                except rb.Refusal:
                    pass

        thread = threading.Thread(target=stream)
        thread.start()
        assert enough.wait(PATIENCE)
        server.process.send_signal(signal.SIGKILL)
        thread.join(PATIENCE)
    assert 100 < len(acknowledged) < 5000
    with open_index(path) as index:
        assert set(acknowledged) <= set(index.ids.tolist())
        assert index.codes(acknowledged) == codes[acknowledged]
    with running(tmp_path, path) as server, Client(server.url, TOKEN) as client:
        assert client.stats()["count"] in (len(acknowledged), len(acknowledged) + 2)
        last = client.search(id=acknowledged[-1], k=1)
        assert last["query"]["code"] == codes.packed[acknowledged[-1]].tobytes().hex()


def test_sigterm_answers_what_is_in_flight(tmp_path):
    path, gate = tmp_path / "idx", tmp_path / "gate"
    os.mkfifo(gate)
    with open_index(path, bits=16) as index:
        index.add(rb.pack(RNG.normal(size=(300, 16))))
    with running(tmp_path, path, gate=gate) as server:
        body = b'{"id": "7", "k": 3}'
        long_way = b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        short = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        lines = []
        for i in range(12):
            line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            line.sendall(long_way + chunked if i % 2 else short + body)
            lines.append(line)
        while server.gauge("rankbits_requests_inside") < 13:
            pass
        server.process.send_signal(signal.SIGTERM)
        while True:
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE).close()
            except ConnectionResetError:
                continue  # it was in the queue when the server stopped listening
            except ConnectionRefusedError:
                break
        gate.open("w").close()
        for line in lines:
            with line:
                reply = read_all(line)
            head, _, told = reply.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200") and b"connection: close" in head
            assert json.loads(told)["bands"][0]["items"][0]["id"] == "7"
        assert server.process.wait(PATIENCE) == 0
        assert json.loads(server.log.read_text().splitlines()[-1])["event"] == "stopped"
    open_index(path).close()


@pytest.mark.parametrize("number", [3.4028235677973366e38, 1e308, 10**400])
def test_numbers_past_32_bits_are_refused(number):
    """Two of unlike sign too, whose sum is no number at all."""
    with pytest.raises(Rejected, match="finite in 32 bits"):
        parse_vector([number, -number])
