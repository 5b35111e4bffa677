"""Engines whose connection, server or neighbours let them down. Real engines only."""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes.addresses import open_index
from rankbits.indexes.engines import connection, postgres
from test_engines import address_of, check, draw_tied, server  # noqa: F401


def draw_codes(rows, bits=64, seed=0):
    return draw_tied(np.random.default_rng(seed), rows, bits)


@pytest.fixture
def place(request, tmp_path):
    return address_of("postgresql", request, tmp_path)


def end_connection(index, other):
    other._con.execute("SELECT pg_terminate_backend(%s, 5000)", [index._con.info.backend_pid])


def test_postgres_is_reached_again_after_the_connection_was_lost(place):
    codes = draw_codes(6)
    with open_index(place, 64) as index, open_index(place) as other:
        for call, wanted in (
            (lambda: index.add(codes[:3]).count(), 3),
            (lambda: index.add(codes[3:], [7, 8, 9]).count(), 6),
            (lambda: index.remove([8]), 1),
            (lambda: index.count(), 5),
            (lambda: index.search(codes[:1], 2).ids.shape, (1, 2)),
            (lambda: len(index.within(codes[:2], 64).ids), 10),
            (lambda: index.remember({"inputs": "here"}), None),
            (lambda: index.has_string_ids, False),
        ):
            end_connection(index, other)
            assert call() == wanted
        assert other.count() == 5
    with open_index(place, mode="r") as index:
        assert index.facts == {"inputs": "here"}


class LosesReply:
    """A connection that ends when the server has committed, before it can say so."""

    def __init__(self, con):
        self.con = con

    def __getattr__(self, name):
        return getattr(self.con, name)

    @contextlib.contextmanager
    def transaction(self):
        from psycopg import OperationalError

        with self.con.transaction():
            yield
        self.con.close()
        raise OperationalError("the connection is lost")


def test_a_write_to_postgres_is_done_once(place, monkeypatch):
    """Lost in its middle it is done again; lost after the commit it is not, so that ids that were
    not given are numbered once."""
    codes = draw_codes(4)
    with open_index(place, 64) as index, open_index(place) as other:
        index._con = LosesReply(index._con)
        index.add(codes)
        assert other.count() == 4
        index._con = LosesReply(index._con)
        assert index.remove([0, 1, 99]) == 2
        pieces = postgres.lay_out_rows

        def lost(*given):
            parts = list(pieces(*given))
            yield parts[0]
            monkeypatch.setattr(postgres, "lay_out_rows", pieces)
            end_connection(index, other)
            yield from parts[1:]

        monkeypatch.setattr(postgres, "lay_out_rows", lost)
        index.add(codes)
        assert other.count() == 6 and other.search(codes, 9).ids.max() == 7


def test_a_postgres_that_stays_away_is_told_and_found_again(place, monkeypatch):
    codes = draw_codes(3)
    with open_index(place, 64) as index, open_index(place) as other:
        index.add(codes)
        address = index._address
        index._address = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"
        end_connection(index, other)
        with pytest.raises(rb.Refusal, match="PostgreSQL cannot be reached"):
            index.search(codes, 1)
        with pytest.raises(rb.Refusal, match="PostgreSQL cannot be reached"):
            index.add(codes)
        index._address = address
        assert index.count() == 3

        index._con = LosesReply(index._con)
        index._address = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"
        with pytest.raises(rb.Refusal, match="it is unknown whether this write was done"):
            index.add(codes)
        index._address = address
        assert index.count() == 6
    with pytest.raises(rb.Refusal, match="is closed"):
        index.count()


def test_addresses_that_libpq_takes(place):
    assert connection.split_address("postgresql:///db?host=/run/pg&table=t&options=-c%20a=b") == (
        "postgresql:///db?host=/run/pg&options=-c%20a%3Db", "t",
    )  # fmt: skip
    assert connection.split_address("postgresql://u@h/db") == ("postgresql://u@h/db", None)
    with open_index(place, 64) as index:
        parts = index._con.info
        text = f"postgresql:///{parts.dbname}?host={parts.host}&port={parts.port}&user={parts.user}"
    with open_index(f"{text}&table=t{os.urandom(4).hex()}", 64) as index:
        assert index.add(draw_codes(2)).count() == 2


def test_duckdb_takes_words_of_sql_and_any_case(request, tmp_path):
    place = address_of("duckdb", request, tmp_path)
    codes = draw_codes(3)
    for table in ("select", "ORDER", "table", "Codes", "group"):
        with open_index(place, 64, table=table) as index:
            index.add(codes, ["a", "b", "c"], columns={"price": [1, 2, 3]})
            assert index.search(codes, 3, where="price < 3").ids.shape == (3, 2)
            assert index.remove("a") == 1
            with pytest.raises(rb.Refusal, match="is open already"):
                open_index(place, 64, table=table.swapcase())
        with open_index(place, table=table.lower(), mode="r") as index:
            check(index, dict(zip("bc", codes.packed[1:].tolist(), strict=True)), codes)
    with pytest.raises(rb.Refusal, match="rankbits uses the table"):
        open_index(place, 64, table="Rankbits_new")


@pytest.fixture
def shared(request, tmp_path, monkeypatch):
    """A Milvus server that several writers share: one milvus-lite behind all their clients."""
    address_of("milvus", request, tmp_path)
    from rankbits.indexes.engines import lite

    client = lite.connect(str(tmp_path / "codes.db"), tmp_path / "codes.db", "w", 60.0)
    monkeypatch.setattr(lite, "connect", lambda *_: client)
    monkeypatch.setattr(lite, "release", lambda *_: None)
    yield "milvus:http://a.server:19530"
    monkeypatch.undo()
    lite.release(client, tmp_path / "codes.db")


def test_writers_of_a_milvus_server_lose_nothing(shared):
    """Four that add without ids at once, as often as they like."""
    failed = []

    def write(seed):
        try:
            with open_index(shared, 64) as index:
                for step in range(5):
                    index.add(draw_codes(10, seed=10 * seed + step))
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert not failed
    with open_index(shared) as index:
        assert index.count() == 200


def test_a_milvus_server_that_answers_too_late_is_one_sentence(shared, monkeypatch):
    from grpc import RpcError

    class Late(RpcError):
        def details(self):
            return "Deadline Exceeded"

    def search(*_, **__):
        raise Late

    codes = draw_codes(4)
    with open_index(shared, 64) as index:
        index.add(codes)
        with monkeypatch.context() as slow:
            slow.setattr(index._client, "search", search)
            with pytest.raises(rb.Refusal, match=r"^Milvus refuses: Deadline Exceeded\.$"):
                index.search(codes, 1)
        assert index.search(codes, 1).distances.tolist() == [[0]] * 4


def test_a_first_add_to_a_milvus_server_drops_nothing(shared):
    codes = draw_codes(4)
    numbers, words, late = (open_index(shared, 64) for _ in range(3))
    assert [index.count() for index in (numbers, words, late)] == [0, 0, 0]
    numbers.add(codes, [1, 2, 3, 4])
    with pytest.raises(rb.Refusal, match="ids of this index are whole numbers; got strings"):
        words.add(codes, ["a", "b", "c", "d"])
    late.add(codes[:2], [5, 6])
    assert [index.count() for index in (numbers, words, late)] == [6, 6, 6]
    with pytest.raises(rb.Refusal, match="Milvus takes facts of an empty collection only"):
        words.remember({"inputs": "elsewhere"})
    assert numbers.remove([1, 2, 3, 4, 5, 6]) == 6
    assert words.has_string_ids is None and words.search(codes, 1).ids.shape == (4, 0)


def test_a_milvus_collection_made_in_between_is_left_alone(shared, monkeypatch):
    codes = draw_codes(4)
    first, second = open_index(shared, 64), open_index(shared, 64)
    from rankbits.indexes.engines import collection

    create = collection.create_collection

    def late(*given):
        monkeypatch.setattr(collection, "create_collection", create)
        first.add(codes, ["a", "b", "c", "d"])
        create(*given)

    monkeypatch.setattr(collection, "create_collection", late)
    with pytest.raises(rb.Refusal, match=r"Another writer has just made|Milvus refuses"):
        second.add(codes)
    assert first.count() == second.count() == 4
    with pytest.raises(rb.Refusal, match="ids must be given"):
        second.add(codes)
    assert second.add(codes, ["e", "f", "g", "h"]).count() == 8


def test_a_note_of_a_deleted_milvus_file_is_forgotten(request, tmp_path):
    place = address_of("milvus", request, tmp_path)
    codes = draw_codes(3)
    with open_index(place, 64) as index:
        index.add(codes)
        index._pending.write("add", "codes", [7, 8, 9], codes.packed)
    (tmp_path / "codes.db").unlink()
    (tmp_path / ".codes.db.pending.abcd1234.rankbits-unfinished").write_bytes(b"half")
    with open_index(place, 64) as index:
        assert index.count() == 0
    assert not [name for name in os.listdir(tmp_path) if "pending" in name]
