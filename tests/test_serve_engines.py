"""A service over a database server: ids as it spells them, and what /health says of a lost one."""

from __future__ import annotations

import os

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes.addresses import open_index
from rankbits.serve import Service
from serving import TOKEN, Asked
from test_engines import server  # noqa: F401

CODES = rb.pack(np.random.default_rng(0).normal(size=(40, 16)))
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def asked(request):
    pytest.importorskip("psycopg", reason="needs rankbits[postgres]")
    address = f"{request.getfixturevalue('server')}&table=t{os.urandom(8).hex()}"
    asked = Asked(Service(open_index(address, bits=16), token=TOKEN))
    asked.server = request.getfixturevalue("server")
    yield asked
    asked.service.close()


def add(asked, ids, rows):
    codes = [row.tobytes().hex() for row in CODES[rows].packed]
    return asked("POST", "/add", json={"ids": ids, "codes": codes}, headers=BEARER)


def ids_of(reply):
    assert reply.status_code == 200, reply.text
    return [item["id"] for band in reply.json()["bands"] for item in band["items"]]


@pytest.mark.parametrize("name", ["{}", "n{}"], ids=["numbers", "strings"])
def test_ids_are_taken_as_they_are_told(asked, name):
    numbers = range(780, 820)
    spelled = [name.format(i) for i in numbers]
    ids = list(numbers) if name == "{}" else spelled
    assert add(asked, ids[:39], slice(39)).json() == {"added": 39, "count": 39}
    assert add(asked, spelled[39:], slice(39, 40)).json() == {"added": 1, "count": 40}
    code = CODES.packed[1].tobytes().hex()
    assert spelled[1] in ids_of(asked.search(code=code, k=3))
    among = ids_of(asked.search(code=code, among=[spelled[1], spelled[3], "nobody"]))
    assert sorted(among) == [spelled[1], spelled[3]]
    assert add(asked, [spelled[1]], slice(0, 1)).json() == {"added": 1, "count": 40}
    gone = asked("POST", "/remove", json={"ids": [spelled[1], "nobody"]}, headers=BEARER)
    assert gone.json() == {"removed": 1, "count": 39}


def test_health_asks_the_index(asked):
    """Whether the engine connects again is its own affair; /health says what searches would."""
    psycopg = pytest.importorskip("psycopg")
    add(asked, list(range(40)), slice(40))
    assert asked("GET", "/health").status_code == 200
    with psycopg.connect(asked.server) as other:
        ended = other.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        assert ended.fetchone()[0] > 0
    code = CODES.packed[1].tobytes().hex()
    asked.search(code=code)  # finds out
    searched, health = asked.search(code=code), asked("GET", "/health")
    assert searched.status_code == health.status_code
    assert health.status_code in (200, 503)
    assert asked("GET", "/metrics").status_code == 200
    asked.service.index.close()
    assert asked("GET", "/health").status_code == 503
    assert asked("GET", "/ready").status_code == asked.search(code=code).status_code == 503
