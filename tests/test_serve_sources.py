"""What a service is made from (items, models, comparisons), and how it listens."""

from __future__ import annotations

import http.client
import io
import json
import socket
import struct
import sys
import threading

import numpy as np
import pytest
from PIL import Image

import rankbits as rb
from rankbits.commands.serve import read_report
from rankbits.serve import (
    Items,
    Limits,
    QueryReader,
    Service,
    read_comparison,
    read_items,
    running,
)  # fmt: skip
from rankbits.serve.compare import make_comparison
from rankbits.serve.items import MOST_THUMBNAILS
from rankbits.serve.logs import Log
from rankbits.serve.pictures import draw_array
from serving import few_steps, listening, wait_for

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 8)).astype(np.float32)
CODES = rb.pack(X)


def test_labels_are_found_by_their_words():
    none = Items(range(3))
    assert none.find_labelled("a").tolist() == [] and none.label(0) is None
    numbered = Items(range(3), labels=[4, 0, 4])
    assert numbered.find_labelled("4").tolist() == [0, 2] and numbered.label(1) == "0"
    assert numbered.find_labelled("four").tolist() == []
    several = Items(range(2), labels=np.array([[1, 0], [1, 1]], bool))
    assert several.find_labelled("1").tolist() == [1] and several.find_labelled("9").tolist() == []
    assert not none.has_picture(-1) and none.picture(0) is None


def test_thumbnails_are_kept_only_so_many(tmp_path):
    grey = RNG.integers(0, 256, (MOST_THUMBNAILS + 2, 4, 4, 1), dtype=np.uint8)
    items = Items(range(len(grey)), images=grey)
    first = items.picture(0)
    assert items.picture(0) is first
    for row in range(len(grey)):
        items.picture(row)
    assert len(items._thumbnails) == MOST_THUMBNAILS and items.picture(0) is not first
    with Image.open(io.BytesIO(first[0])) as image:
        assert image.size == (64, 64) and image.mode == "L"
        assert (np.asarray(image)[::16, ::16] == grey[0, :, :, 0]).all()


def test_pictures_need_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(rb.Refusal, match=r"Images need Pillow: pip install 'rankbits\[images\]'"):
        draw_array(np.zeros((4, 4), np.uint8))


def test_tables_of_items(tmp_path):
    table = tmp_path / "t.tsv"
    table.write_text("name\tclass\nA cat\tcat\nA rock\t\nA dog\tdog\n")
    found = read_items(table, strings=True)
    assert found.row("2") == 2 and found.title("0") == "A cat"
    assert found.labels.tolist() == [0, -1, 1] and found.label(1) is None
    table.write_text("id\n7\n")
    assert read_items(table, strings=False).label(0) is None
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes.csv").write_bytes(b"id\n\xff\xfe\n")
    (tmp_path / "uneven.csv").write_text("id,title\n1\n")
    (tmp_path / "notes.txt").write_text("id\n")
    (tmp_path / "bare.csv").write_text("id\n")
    for name, said in (
        ("none.csv", "none.csv does not exist."),
        ("notes.txt", r"must be a folder or a table \(.csv, .tsv, .jsonl, .parquet\)."),
        ("empty", "empty holds no image .* and no text"),
        ("bytes.csv", "line 2 is not text in UTF-8."),
        ("uneven.csv", "line 2 must have 2 fields; got 1."),
        ("bare.csv", "must have a header and rows."),
    ):
        with pytest.raises(rb.Refusal, match=said):
            read_items(tmp_path / name, strings=False)


@pytest.fixture
def _few_steps():
    with few_steps():
        yield


@pytest.mark.usefixtures("_few_steps")
def test_comparisons_of_files(tmp_path):
    path, labels = tmp_path / "x.npz", np.arange(30) % 3
    np.savez(path, embeddings=X)
    plain = read_comparison(path, 8)
    assert plain.names == ("float", "sign", "itq", "h2q")
    told = plain.answer("4", 3, None)["methods"]
    assert [method["ap"] for method in told] == [None] * 4
    assert told[0]["bands"][0]["items"][0]["id"] == "4"
    named = read_comparison(path, 8, Items(range(30), labels=labels))
    np.testing.assert_array_equal(named.labels, labels)
    hidden = Items(range(30), labels=np.where(labels == 0, -1, labels))
    assert read_comparison(path, 8, hidden).labels is None
    assert read_comparison(path, 8, Items(range(9), labels=labels[:9])).labels is None
    np.savez(path, embeddings=X, labels=labels, ids=np.array([f"n{i}" for i in range(30)]))
    own = read_comparison(path, 4)
    assert own.names[-1] == "supervised" and own.answer("n4", 1, None)["query"]["id"] == "n4"
    lonely = make_comparison(X, np.where(np.arange(30) == 4, 7, labels), bits=8).answer(
        "4", 3, None
    )
    assert lonely["methods"][0]["ap"] is None  # nobody else has its label
    np.savez(path, rows=X)
    with pytest.raises(rb.Refusal, match="must hold an array called 'embeddings'"):
        read_comparison(path, 8)


def test_reports_are_read_or_refused(tmp_path):
    with pytest.raises(rb.Refusal, match="does not exist or is not a file"):
        read_report(tmp_path)
    path = tmp_path / "r.json"
    path.write_text('{"figures": {}}')
    assert read_report(path) == {"figures": {}}


def test_what_an_address_means(monkeypatch):
    assert not running.is_loopback("example.org") and running.is_loopback("::1")
    with running.open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(rb.Refusal, match=f"Cannot listen on 127.0.0.1, port {port}: "):
            running.open_socket("127.0.0.1", port)
    asked = []
    monkeypatch.setattr("resource.getrlimit", lambda kind: (256, 1000))
    monkeypatch.setattr("resource.setrlimit", lambda kind, both: asked.append(both))
    assert running.choose_connection_limit() == 500 and asked == [(1000, 1000)]
    monkeypatch.setitem(sys.modules, "resource", None)
    assert running.choose_connection_limit() == 500


LAZY = [f"rankbits.serve.{name}" for name in ("app", "connection", "crowd", "meters")]


def test_serving_needs_an_extra(monkeypatch):
    service = Service(rb.HammingIndex(8))
    for missing in ("httptools", "prometheus_client"):
        with monkeypatch.context() as patch:
            for name in [n for n in sys.modules if n in LAZY]:
                patch.delitem(sys.modules, name)
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(rb.Refusal, match=r"pip install 'rankbits\[serve\]'"):
                running.serve(service)
    service.close()


def test_a_log_that_nobody_reads_stops_nothing():
    log = Log(io.StringIO())
    log._stream.close()
    log.write_event("started")
    log.flush()
    assert log._lines == []


def posted(port, body, **headers):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("POST", "/search", json.dumps(body), headers)
    reply = line.getresponse()
    told = json.loads(reply.read())
    line.close()
    return reply.status, told


def test_what_a_socket_is_told_and_what_the_log():
    def text(words):
        if words == "none":
            raise rb.Refusal("There are no such words.")
        return CODES[3]

    encoder = QueryReader(rb.pack, None, text, dims=(8,), bits=8)
    service = Service(rb.HammingIndex(8).add(CODES), encoder=encoder, limits=Limits(waiting=1))
    began, go, work = threading.Event(), threading.Event(), service.batcher._work
    with listening(service, hosts=frozenset(("127.0.0.1", "localhost"))) as (port, crowd, log):
        by_code = posted(port, {"code": CODES.packed[3].tobytes().hex(), "k": 2})[1]
        status, by_text = posted(port, {"text": "words", "k": 2})
        assert status == 200 and by_text["bands"] == by_code["bands"]
        assert posted(port, {"text": "none"}) == (422, {"error": "There are no such words."})
        status, told = posted(port, {"id": 3}, Host="evil.example")
        assert status == 421 and "only under the name that it listens on" in told["error"]
        service.batcher._work = lambda jobs: (began.set(), go.wait(60), work(jobs))[2]
        body = b'{"id": 3, "k": 1}'
        head = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            line.sendall(head + body)
            assert began.wait(60)
            status, told = posted(port, {"id": 3})  # one is at work, and one may be
            assert status == 503 and told["error"].startswith("Too many requests are waiting")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
        wait_for(lambda: not crowd.open)
        go.set()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["status"] for line in lines if "status" in line] == [200, 200, 422, 421, 503, 499]
    assert lines[-1]["event"] == "stopped"
