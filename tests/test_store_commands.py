"""rankbits index and rankbits search, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rankbits as rb
from rankbits.cli import main
from rankbits.indexes.addresses import open_index


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = rb.pack(np.random.default_rng(0).normal(size=(60, 12)))
    codes.save("codes.npz", labels=np.arange(60))
    codes[:25].save("queries.npz")
    codes.save("named.npz", ids=np.arange(60) * 10, other=np.arange(60) + 7)
    return codes


def refused(capsys, *words):
    assert main(list(words)) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("rankbits: ") and err.count("\n") == 1
    return err


@pytest.mark.parametrize("address", ["idx", "file:idx", "duckdb:idx.duckdb?table=t"])
def test_index_and_search(saved, capsys, address):
    if address.startswith("duckdb"):
        pytest.importorskip("duckdb")
    assert main(["index", "codes.npz", "-o", address]) == 0
    assert "Codes(60 rows of 12 bits) -> " in capsys.readouterr().out
    wanted = rb.hamming_topk(saved[:25], saved, 7)
    assert main(["search", address, "queries.npz", "-k", "7", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["queries"] == 25
    assert [row["ids"] for row in told["results"]] == wanted.ids.tolist()
    assert [row["distances"] for row in told["results"]] == wanted.distances.tolist()
    assert main(["search", address, "queries.npz", "-k", "7", "-o", "r.npz"]) == 0
    assert "25 queries, 175 found -> r.npz" in capsys.readouterr().out
    with np.load("r.npz") as found:
        assert (found["ids"] == wanted.ids).all()
        assert (found["distances"] == wanted.distances).all()
    assert main(["search", address, "queries.npz", "--radius", "2", "-o", "r.npz"]) == 0
    near = rb.hamming_within(saved[:25], saved, 2)
    with np.load("r.npz") as found:
        assert (found["ids"] == near.ids).all() and (found["offsets"] == near.offsets).all()


def test_a_table_of_a_few(saved, capsys):
    main(["index", "codes.npz", "-o", "idx"])
    capsys.readouterr()
    assert main(["search", "idx", "queries.npz", "-k", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["query", "rank", "distance", "id"]
    assert lines[1].split() == ["0", "1", "0", "0"] and len(lines) == 1 + 20 * 2 + 1
    assert lines[-1] == "and 5 more queries: -o RESULTS.npz writes all."
    assert main(["search", "idx", "queries.npz", "--radius", "0"]) == 0
    assert "0     1         0  0" in capsys.readouterr().out


def test_ids_of_a_column_a_file_or_text(saved, capsys):
    names = [f"item {i}\t'" for i in range(60)]
    np.save("ids.npy", np.array(names))
    Path("ids.txt").write_text("\n".join(names) + "\n")
    Path("open.txt").write_text("\n".join(names))
    for n, (words, first) in enumerate(
        [
            (["named.npz"], 0),
            (["named.npz", "--ids", "other"], 7),
            (["codes.npz", "--ids", "ids.npy"], names[0]),
            (["codes.npz", "--ids", "open.txt"], names[59]),
            (["codes.npz", "--ids", "ids.txt"], names[0]),
        ]
    ):
        assert main(["index", *words, "-o", f"i{n}"]) == 0
        with open_index(f"i{n}") as index:
            assert index.count() == 60
            row = 59 if first == names[59] else 0
            found = index.search(saved[row], 1, among=[first])
            assert found.distances.tolist() == [[0]]
    capsys.readouterr()
    assert main(["search", "i4", "queries.npz", "-k", "1"]) == 0
    assert "\t" not in capsys.readouterr().out  # an id cannot draw on the terminal
    assert main(["search", "i4", "queries.npz", "-k", "1", "-o", "r.npz"]) == 0
    with np.load("r.npz") as found:
        assert found["ids"][0, 0] == names[0]


def test_where_of_duckdb(saved, capsys):
    pytest.importorskip("duckdb")
    with open_index("duckdb:d", 12) as index:
        index.add(saved, columns={"price": np.arange(60)})
    assert main(["search", "duckdb:d", "queries.npz", "--where", "price < 3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert all(sorted(row["ids"]) == [0, 1, 2] for row in told["results"])


def test_refusals(saved, capsys, tmp_path):
    main(["index", "codes.npz", "-o", "idx"])
    rb.pack(np.eye(9)).save("nine.npz")
    capsys.readouterr()
    for words, sentence in [
        (("index", "codes.npz"), "rankbits index ENCODER INPUTS -o ADDRESS."),
        (("index", "nine.npz", "-o", "idx"), "idx holds codes of 12 bits; got bits=9."),
        (("index", "none.npz", "-o", "idx"), "none.npz does not exist or is not a file."),
        (("index", "codes.npz", "-o", "duckbd:x"), "did you mean 'duckdb'?"),
        (("index", "codes.npz", "-o", "x", "--ids", "none"), "a column of codes.npz, which holds"),
        (("index", "codes.npz", "-o", "x", "--ids", "none.npy"), "none.npy does not exist"),
        (("index", "codes.npz", "-o", "x", "--ids", "none.txt"), "none.txt does not exist"),
        (("index", "codes.npz", "-o", "x", "--ids", "nine.npz"), "no array called 'ids'."),
        (("search", "idx"), "rankbits search ADDRESS QUERIES."),
        (("search", "nowhere", "queries.npz"), "nowhere does not exist"),
        (("search", "idx", "nine.npz"), "same number of bits; got 9 and 12."),
        (("search", "idx", "queries.npz", "-k", "0"), "k must be a whole number of at least 1"),
        (("search", "idx", "queries.npz", "--radius", "-1"), "radius must be a whole number"),
        (("search", "idx", "queries.npz", "-o", "r.txt"), "r.txt must end in .npz."),
        (("search", "idx", "queries.npz", "--where", "a"), "--where is for an index in DuckDB"),
        (("search", "idx", "queries.npz", "--ray", "x"), "address of Ray must be local, auto"),
    ]:
        assert sentence in refused(capsys, *words), words
    assert not (tmp_path / "nowhere").exists() and not (tmp_path / "r.txt").exists()


def test_a_password_is_not_printed():
    from rankbits.commands.store import hide_password

    assert hide_password("postgresql://me:secret@host/db?table=t") == "postgresql://host/db?table=t"
    assert hide_password("duckdb:a@b/c") == "duckdb:a@b/c"


def test_more_refusals_of_the_store(saved, capsys):
    Path("ids.txt").write_bytes(b"\xff\xfe\n")
    said = refused(capsys, "index", "codes.npz", "--ids", "ids.txt", "-o", "idx")
    assert "ids.txt must be text in UTF-8, one id a line." in said
    words = ("search", "idx", "queries.npz", "--where", "x > 1", "--ray", "local")
    assert "--where and --ray cannot be used together." in refused(capsys, *words)
