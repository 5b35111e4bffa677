"""The contract on a real Milvus server, which the package ``milvus`` brings along.

    pip install --no-deps milvus==2.3.5
    pytest tests/test_milvus_server.py

It takes some three minutes, most of which the server needs to start; without the package it is
skipped. Figures: ``benchmarks/results/milvus_server.jsonl`` (``benchmarks/milvus_server.py``).
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes.addresses import open_index
from test_engines import check, draw_tied

milvus = pytest.importorskip("milvus", reason="needs pip install --no-deps milvus==2.3.5")
pytest.importorskip("pymilvus", reason="needs pip install 'rankbits[milvus]'")

# the package leaves its sockets and logs to the garbage collector
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

ADDING = """
import sys
import numpy as np
import rankbits as rb
from rankbits.indexes.addresses import open_index

with open_index(sys.argv[1], 64, table=sys.argv[2]) as index:
    for step in range(5):
        rng = np.random.default_rng([int(sys.argv[3]), step])
        index.add(rb.Codes(rng.integers(0, 256, (20, 8), dtype=np.uint8), 64))
        print(step, flush=True)
"""


class Server:
    """A server in a folder, which can be killed and started again."""

    def __init__(self, folder):
        self.folder, self.running = folder, None

    def start(self):
        self.running = milvus.MilvusServer()
        self.running.set_base_dir(str(self.folder))
        self.running.start()

    def kill(self):
        self.running.server_proc.kill()
        self.running.server_proc.wait(30)
        self.running.server_proc = None

    @property
    def address(self):
        return f"milvus:http://127.0.0.1:{self.running.listen_port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("milvus"))
    server.start()
    try:
        yield server
    finally:
        if server.running.server_proc is not None:
            server.kill()


@pytest.mark.parametrize(("bits", "strings"), [(64, False), (13, True), (1024, False)])
def test_a_life_on_a_server(server, bits, strings):
    rng = np.random.default_rng(bits)
    queries, truth, table = draw_tied(rng, 4, bits), {}, f"life{bits}"

    def name(numbers):
        return [f"'; {i}" for i in numbers] if strings else numbers

    with open_index(server.address, bits, table=table) as index:
        check(index, truth, queries)
        for _ in range(2):
            codes, ids = draw_tied(rng, 90, bits), name(rng.permutation(200)[:90].tolist())
            index.add(codes, ids)
            truth.update(zip(ids, codes.packed.tolist(), strict=True))
            gone = name([*rng.permutation(200)[:25].tolist(), 999])
            assert index.remove(gone) == len(set(gone) & set(truth))
            truth = {i: code for i, code in truth.items() if i not in gone}
            check(index, truth, queries)
        check(index, truth, queries, among=name([3, 5, 999, *range(40, 70)]))
        some = list(truth)[:20]
        assert index.codes(some).packed.tolist() == [truth[i] for i in some]
    with open_index(server.address, table=table) as index:
        assert index.bits == bits
        check(index, truth, queries)


def test_four_processes_add_at_once_and_all_rows_are_there(server):
    with open_index(server.address, 64, table="many") as index:
        commands = [
            [sys.executable, "-c", ADDING, server.address, "many", str(i)] for i in range(4)
        ]
        writers = [subprocess.Popen(words, stdout=subprocess.PIPE) for words in commands]
        assert [writer.communicate(timeout=180)[0].split() for writer in writers] == [
            [b"0", b"1", b"2", b"3", b"4"]
        ] * 4
        assert index.count() == 400
        rng = np.random.default_rng([3, 4])
        last = rb.Codes(rng.integers(0, 256, (20, 8), dtype=np.uint8), 64)
        assert index.search(last, 1).distances.tolist() == [[0]] * 20


def test_a_killed_server_loses_nothing_acknowledged(server):
    rng = np.random.default_rng(0)
    codes, queries = draw_tied(rng, 300, 64), draw_tied(rng, 4, 64)
    with open_index(server.address, 64, table="kept") as index:
        index.add(codes[:200], range(200))
        index.remove(range(50))
        index.add(codes[200:], range(200, 300))
    server.kill()
    server.start()
    truth = dict(enumerate(codes.packed.tolist()))
    truth = {i: code for i, code in truth.items() if i >= 50}
    with open_index(server.address, table="kept") as index:
        check(index, truth, queries)
        index.add(codes[:50], range(50))
        check(index, dict(enumerate(codes.packed.tolist())), queries)
