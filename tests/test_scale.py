"""Many workers give what one process gives, to the last bit, and a lost one changes nothing."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import rankbits as rb
from rankbits import scale
from rankbits.cli import main
from rankbits.indexes.addresses import open_index
from rankbits.scale.cluster import join_cluster, run_parts
from rankbits.types import Decoder

pytest.importorskip("ray", reason="needs ray")

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def ray():
    with join_cluster("local") as found:
        found.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers lack the tests
        yield found


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 1500)
    x = (rng.normal(size=(1500, 24)) + rng.normal(size=(5, 24))[labels]).astype(np.float32)
    return x, labels


def die_once(flag):
    """End this worker as a crash would, the first time."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(rb.Sign):
    """A quantizer whose worker is killed in the middle of the job, once."""

    flag = ""

    def encode(self, embeddings):
        if embeddings[0, 0] == 777:
            die_once(self.flag)
        return super().encode(embeddings)


def test_encode_is_the_local_one(ray, rows, tmp_path):
    x, _ = rows
    quantizer = rb.ITQ(seed=0).fit(x)
    wanted = quantizer.encode(x)
    assert scale.encode(quantizer, x, rows=400) == wanted
    np.save(tmp_path / "a.npy", x[:700])
    np.savez(tmp_path / "b.npz", embeddings=x[700:])
    assert scale.encode(quantizer, tmp_path / "a.npy", rows=256) == wanted[:700]
    assert scale.encode(quantizer, [tmp_path / "a.npy", tmp_path / "b.npz"]) == wanted
    assert len(scale.encode(quantizer, x[:0])) == 0
    bad = x.copy()
    bad[1000, 3] = np.nan
    with pytest.raises(rb.Refusal, match="must be finite; row") as refusal:
        scale.encode(quantizer, bad, rows=400)
    assert "\n" not in str(refusal.value)


def test_a_killed_worker_costs_a_retry(ray, rows, tmp_path):
    x = rows[0].copy()
    x[900, 0] = 777  # first row of the fourth part
    quantizer = Deadly().fit(x)
    quantizer.flag = str(tmp_path / "died")
    found = scale.encode(quantizer, x, rows=300)
    assert (tmp_path / "died").exists()
    assert found == rb.Sign().fit(x).encode(x)


def count_or_die(flag, queries, shard):
    die_once(flag)
    return rb.hamming_counts(queries, shard, [0] * len(queries), [0] * len(shard))


def test_counts_survive_a_killed_worker(ray, rows, tmp_path):
    codes = rb.pack(rows[0])
    parts = [(str(tmp_path / "died"), codes[:9], codes[s : s + 500]) for s in range(0, 1500, 500)]
    counts = sum(run_parts(ray, count_or_die, parts, "count"))
    assert (tmp_path / "died").exists()
    wanted = rb.hamming_counts(codes[:9], codes, [0] * 9, [0] * 1500)
    assert (counts == wanted).all()


def same_reports(found, wanted):
    assert found.to_json() == wanted.to_json()
    assert found.per_query.keys() == wanted.per_query.keys()
    for name, values in wanted.per_query.items():
        np.testing.assert_array_equal(found.per_query[name], values, strict=True)


@pytest.mark.parametrize("kind", ["classes", "any", "count", "itself"])
def test_evaluate_is_the_local_one(ray, rows, kind):
    x, labels = rows
    codes = rb.pack(x)
    options = {"k": (1, 10, 5000), "radius": 3, "gain": "linear"}
    if kind in ("any", "count"):
        labels = np.random.default_rng(1).random((1500, 7)) < 0.3
        options["relevance"] = kind
    if kind == "itself":
        given = (codes[:300], codes[:300], labels[:300], None)
        options["exclude_self"] = True
    else:
        given = (codes[:200], codes[200:], labels[:200], labels[200:])
    same_reports(scale.evaluate(*given, rows=270, **options), rb.evaluate(*given, **options))


def test_evaluate_slices_queries_as_well(ray, rows, monkeypatch):
    from rankbits.evaluate import rankings
    from rankbits.scale import judging

    x, labels = rows
    codes = rb.pack(x)
    for room in (rankings, judging):
        monkeypatch.setattr(room, "COUNTS", 1)
    given = (codes[:200], codes, labels[:200], labels)
    same_reports(scale.evaluate(*given, rows=600), rb.evaluate(*given))


def test_search_is_the_local_one(ray, rows, monkeypatch):
    from rankbits.scale import searching

    monkeypatch.setattr(searching, "QUERIES", 16)
    codes = rb.pack(rows[0][:, :9])  # nine bits: almost all is tied
    for queries in (codes[:40], codes[:0]):
        found = scale.search(queries, codes, 25, rows=333)
        wanted = rb.hamming_topk(queries, codes, 25)
        np.testing.assert_array_equal(found.ids, wanted.ids, strict=True)
        np.testing.assert_array_equal(found.distances, wanted.distances, strict=True)
        found = scale.search(queries, codes, radius=1, rows=333)
        wanted = rb.hamming_within(queries, codes, 1)
        for name in ("ids", "distances", "offsets"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_search_of_indexes(ray, rows, tmp_path, monkeypatch):
    codes = rb.pack(rows[0][:, :9])
    names = [f"n{i}" for i in range(1500)]
    monkeypatch.chdir(tmp_path)  # a relative address must mean the same to a worker
    for part, place in ((slice(0, 600), "a.index"), (slice(600, 1500), "file:b.index")):
        with open_index(place, 9) as index:
            index.add(codes[part], names[part])
    found = scale.search(codes[:20], ["a.index", "file:b.index"], 30)
    wanted = rb.hamming_topk(codes[:20], codes, 30)
    assert found.ids.tolist() == np.array(names)[wanted.ids].tolist()
    alone = scale.search(codes[:20], tmp_path / "a.index", radius=0)
    assert len(alone.ids) == len(rb.hamming_within(codes[:20], codes[:600], 0).ids)
    with pytest.raises(rb.Refusal, match=r"none\.index does not exist"):
        scale.search(codes[:20], "none.index", 3)


def test_the_commands(ray, rows, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, labels = rows
    np.save("x.npy", x)
    np.savez("xy.npz", embeddings=x[:40], labels=labels[:40])
    np.save("y.npy", labels)
    rb.ITQ(seed=0).fit(x).save("q")
    assert main(["encode", "q", "x.npy", "--labels", "y.npy", "-o", "c.npz", "--ray", "local"]) == 0
    assert main(["encode", "q", "xy.npz", "-o", "few.npz", "--ray", "local"]) == 0
    assert rb.Codes.load("c.npz") == rb.load("q").encode(x)
    told = []
    for words in (["evaluate", "few.npz", "c.npz", "--json"], ["search", "i", "few.npz", "--json"]):
        assert main(["index", "c.npz", "-o", "i"]) == 0
        capsys.readouterr()
        for way in ([], ["--ray", "local"]):
            assert main([*words, *way]) == 0
            told.append(capsys.readouterr().out)
    assert told[0] == told[1] and told[2] == told[3] and len(told[3]) > 1000
    assert main(["evaluate", "few.npz", "c.npz", "--ray", "nowhere"]) == 1
    assert "The address of Ray must be local" in capsys.readouterr().err


def test_the_page_of_scale_runs_on_a_small_cluster(ray, tmp_path, monkeypatch):
    """What it takes for granted is made first; "auto" joins the Ray that is running here."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.syspath_prepend(str(DOCS))
    import blocks

    monkeypatch.chdir(tmp_path)
    drawn = np.random.default_rng(0)
    x, labels = drawn.normal(size=(400, 64)).astype(np.float32), drawn.integers(0, 4, 400)
    quantizer = rb.RandomRotation().fit(x)
    quantizer.save("q")
    codes, ids = quantizer.encode(x), np.arange(400)
    codes.save("codes.npz", labels=labels)
    codes[:5].save("queries.npz", labels=labels[:5])
    for name, part in (("x", x), ("x0", x[:200]), ("x1", x[200:])):
        np.save(f"{name}.npy", part)
    for number, part in enumerate((slice(0, 200), slice(200, 400))):
        rb.HammingIndex(64).add(codes[part], ids[part]).save(f"shard{number}.index")
    with rb.open_index("duckdb:shop.duckdb", bits=64):
        pass
    with duckdb.connect("shop.duckdb") as shop:
        [(table,)] = shop.sql("select table_name from duckdb_tables() limit 1").fetchall()
        shop.sql(f"alter table {table} add column price double default 5")
    given = {
        "rb": rb, "codes": codes, "ids": ids, "query_codes": codes[:5], "labels": labels,
        "query_labels": labels[:5], "quantizer": quantizer,
    }  # fmt: skip
    np.save("y.npy", labels)
    # the page encodes without labels, and judges what it encoded
    text = (DOCS / "scale.md").read_text("utf-8")
    printed = [out for _, out in blocks.run(text, given)]
    assert len(printed) >= 5 and (tmp_path / "codes.index").is_file()


def test_refusals(ray, rows):
    codes, labels = rb.pack(rows[0]), rows[1]
    judge = partial(scale.evaluate, codes, codes)
    for call, sentence in [
        (lambda: judge(labels, labels, tie_break=(1, 2)), "tie_break cannot be used with Ray"),
        (lambda: judge(labels, labels[:9]), "must have one row for each of its codes"),
        (lambda: scale.evaluate(rows[0], rows[0], labels, labels), "must be Codes here; got"),
        (lambda: scale.evaluate(codes[:0], codes, labels, labels), "queries must not be empty"),
        (lambda: judge(labels, labels, rows=0), "rows must be a whole number of at least 1"),
        (lambda: judge(labels, labels, address="nowhere"), "address of Ray must be local, auto"),
        (lambda: scale.search(codes, codes), "Give either k or a radius"),
        (lambda: scale.search(codes, codes, 3, radius=3), "Give either k or a radius"),
        (lambda: scale.search(codes, codes[:0], 3), "database must not be empty"),
        (lambda: scale.search(codes, [], 3), "list of indexes must not be empty"),
        (lambda: scale.encode(rb.Sign(), rows[0]), "not fitted yet"),
    ]:
        with pytest.raises(rb.Refusal, match=sentence):
            call()


def test_ray_is_an_extra(monkeypatch, rows):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(rb.Refusal, match=r"pip install 'rankbits\[ray\]'"):
        scale.encode(rb.Sign().fit(rows[0]), rows[0])


def test_questions_are_searched_as_here(ray, rows, tmp_path):
    codes = rb.pack(rows[0][:, :9])
    questions = rb.Questions(rows[0][:30, :9])
    draw = np.random.default_rng(0)
    decoder = Decoder(draw.normal(size=(3, 16, 5)), bits=9)
    vectors = draw.normal(size=(30, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    decoded = rb.Questions(rows[0][:30, :9], np.ones(30), decoder, vectors)
    for asked, how in ((questions, {}), (questions, {"precision": "float"}), (decoded, {})):
        found = scale.search(asked, codes, 25, rows=333, **how)
        wanted = rb.HammingIndex(9).add(codes).search(asked, 25, **how)
        np.testing.assert_array_equal(found.ids, wanted.ids, strict=True)
        np.testing.assert_array_equal(found.distances, wanted.distances, strict=True)
    found = scale.search(questions, codes, 5, rows=333, shortlist=60)
    with open_index(tmp_path / "x.index", 9) as index:
        index.add(codes)
        wanted = index.search(questions, 5, shortlist=60)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    found = scale.search(questions, tmp_path / "x.index", 5, shortlist=60)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.distances, wanted.distances)
    with pytest.raises(rb.Refusal, match="A radius is a Hamming distance"):
        scale.search(questions, codes, radius=3)
    with pytest.raises(rb.Refusal, match="shortlist is for questions"):
        scale.search(questions.codes(), codes, 3, shortlist=9)
