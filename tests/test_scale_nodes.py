"""Ray on several nodes: a head and three workers, each a raylet with an object store of its own.

One node is killed in the middle of a job, and what comes out is what one process gives. Two busy
cores do not start four raylets in time: ``make nodes`` runs this, ``make test`` does not.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
import pytest

import rankbits as rb
from rankbits import scale
from rankbits.indexes.addresses import open_index

pytest.importorskip("ray", reason="needs ray")
pytestmark = pytest.mark.skipif(
    "RANKBITS_NODES" not in os.environ, reason="several nodes: run by make nodes"
)

STORE = 80 << 20  # bytes of each node's object store


@pytest.fixture(scope="module")
def nodes():
    """The address of a cluster whose head takes no work."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    bounded = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **bounded})
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=1, object_store_memory=STORE)
        cluster.wait_for_nodes(timeout=60)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers lack the tests
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def living():
    import ray

    return sum(node["Alive"] for node in ray.nodes())


class KillsItsNode(rb.Sign):
    """A quantizer that ends the node it runs on in the middle of the job, once."""

    flag = ""

    def encode(self, embeddings):
        if embeddings[0, 0] == 777:
            try:
                os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return super().encode(embeddings)
            os.kill(os.getppid(), signal.SIGKILL)  # a worker is a child of its node's raylet
            time.sleep(30)  # it ends with its raylet, and gives no answer before
        return super().encode(embeddings)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 4000)
    x = (rng.normal(size=(4000, 24)) + rng.normal(size=(5, 24))[labels]).astype(np.float32)
    return x, labels


def hold_against_one_process(nodes, rows, tmp_path):
    x, labels = rows
    codes = rb.Sign().fit(x).encode(x)
    assert scale.encode(rb.Sign().fit(x), x, nodes, rows=500) == codes
    wanted = rb.evaluate(codes[:50], codes, labels[:50], labels)
    report = scale.evaluate(codes[:50], codes, labels[:50], labels, address=nodes, rows=500)
    assert report.to_json() == wanted.to_json()
    whole = rb.HammingIndex(24).add(codes)
    places = [str(tmp_path / f"shard{i}.index") for i in range(4)]
    for i, place in enumerate(places):
        with open_index(place, 24) as shard:
            shard.add(codes[1000 * i : 1000 * i + 1000], range(1000 * i, 1000 * i + 1000))
    for database in (codes, places):
        found = scale.search(codes[:30], database, 10, address=nodes, rows=700)
        assert found.ids.tolist() == whole.search(codes[:30], 10).ids.tolist()


def test_nodes_give_what_one_process_gives(nodes, rows, tmp_path):
    assert living() == 4
    hold_against_one_process(nodes, rows, tmp_path)


def test_codes_larger_than_the_store_of_a_node(nodes):
    """Shards that together exceed every object store go to the disk of the head meanwhile."""
    rng = np.random.default_rng(0)
    codes = rb.Codes(rng.integers(0, 256, (STORE // 8 + STORE // 16, 8), dtype=np.uint8), 64)
    assert codes.packed.nbytes > STORE
    found = scale.search(codes[:3], codes, 5, address=nodes)
    assert found.ids.tolist() == rb.hamming_topk(codes[:3], codes, 5).ids.tolist()


def test_a_killed_node_costs_a_retry(nodes, rows, tmp_path):
    x = rows[0].copy()
    x[2000, 0] = 777  # the first row of a part
    quantizer = KillsItsNode().fit(x)
    wanted = rb.Sign().fit(x).encode(x)
    quantizer.flag = str(tmp_path / "died")
    assert scale.encode(quantizer, x, nodes, rows=400) == wanted
    assert os.path.exists(quantizer.flag)
    until = time.monotonic() + 60
    while living() > 3 and time.monotonic() < until:
        time.sleep(0.5)
    assert living() == 3
    hold_against_one_process(nodes, rows, tmp_path)
