"""Ray on several nodes: a head and three workers, each a raylet with an object store of its own.

Once all are processes of one machine. Once each worker is a host of its own, with a network and a
disk that the others do not see, where namespaces may be made (root, ``ip``). One node is killed in
the middle of a job, and what comes out is what one process gives. Two busy cores do not start four
raylets in time: ``make nodes`` runs this, ``make test`` does not.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import networks
import rankbits as rb
from rankbits import scale
from rankbits.indexes.addresses import open_index

if "RANKBITS_NODES" in os.environ:  # Ray reads these when it is imported, nodes when they start
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
pytest.importorskip("ray", reason="needs ray")
pytestmark = pytest.mark.skipif(
    "RANKBITS_NODES" not in os.environ, reason="several nodes: run by make nodes"
)

STORE = 80 << 20  # bytes of each node's object store


@contextmanager
def processes():
    """The address of a head and three raylets that share a network and a disk."""
    from ray.cluster_utils import Cluster

    bounded = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **bounded})
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=1, object_store_memory=STORE)
        yield cluster.address
    finally:
        cluster.shutdown()


@contextmanager
def hosts():
    """The address of a head and three hosts, each of which has a disk of its own at ``DISK``."""
    address = f"{networks.HEAD}:6389"
    start = [str(Path(sys.executable).with_name("ray")), "start", "--block"]
    start += [f"--object-store-memory={STORE}", "--disable-usage-stats"]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, DISK, ignore_errors=True)
        DISK.mkdir()
        log = stack.enter_context(tempfile.TemporaryFile())

        def run(*command):
            running = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
            stack.callback(running.wait, 30)
            stack.callback(os.killpg, running.pid, signal.SIGKILL)

        addresses = stack.enter_context(networks.hosts(3))
        own = [f"--node-ip-address={networks.HEAD}", f"--temp-dir={DISK}", "--port=6389"]
        run(*start, "--head", "--num-cpus=0", "--include-dashboard=false", *own)
        networks.wait_for_port(networks.HEAD, 6389, 60)
        for host in addresses:
            join = [f"--address={address}", f"--node-ip-address={host}", "--num-cpus=1"]
            run(*networks.on_host(host, DISK, *start, *join))
        yield address


DISK = Path(tempfile.gettempdir()) / f"rankbits{os.getpid()}"  # short: Ray's sockets lie below it


@pytest.fixture(scope="module", params=[processes, hosts])
def nodes(request):
    """The address of a cluster whose head takes no work."""
    import ray

    if request.param is hosts and not networks.allowed():
        pytest.skip("needs root and ip to make hosts")
    with request.param() as address:
        try:
            joined = {"_node_ip_address": networks.HEAD} if request.param is hosts else {}
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **joined)
            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # they lack the tests
            wait_for_nodes(4)
            yield address
        finally:
            ray.shutdown()


def living():
    import ray

    return sum(node["Alive"] for node in ray.nodes())


def wait_for_nodes(number):
    until = time.monotonic() + 120
    while living() != number and time.monotonic() < until:
        time.sleep(0.5)
    assert living() == number


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
    hold_against_one_process(nodes, rows, tmp_path)


def test_codes_larger_than_the_store_of_a_node(nodes):
    """Shards that together exceed every object store go to the disk of the head meanwhile."""
    rng = np.random.default_rng(0)
    codes = rb.Codes(rng.integers(0, 256, (STORE // 8 + STORE // 16, 8), dtype=np.uint8), 64)
    assert codes.packed.nbytes > STORE
    found = scale.search(codes[:3], codes, 5, address=nodes)
    assert found.ids.tolist() == rb.hamming_topk(codes[:3], codes, 5).ids.tolist()


def write_shard(codes, first):
    """Write an index on the disk of the node that runs this, which alone has it then."""
    with open_index(str(DISK / "shard.index"), codes.bits) as index:
        index.add(codes, range(first, first + len(codes)))


def test_shards_stay_on_the_disks_of_their_hosts(nodes, rows):
    import ray

    if not nodes.startswith(networks.HEAD):
        pytest.skip("these nodes share a disk")
    codes = rb.Sign().fit(rows[0]).encode(rows[0])
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    workers = {
        node["NodeManagerAddress"]: strategy(node["NodeID"], soft=False)
        for node in ray.nodes()
        if node["NodeManagerAddress"] != networks.HEAD
    }
    assert len(workers) == 3
    places = []
    for i, (host, there) in enumerate(sorted(workers.items())):
        part = slice(1000 * i, 1000 * i + 1000)
        write = ray.remote(scheduling_strategy=there)(write_shard)
        ray.get(write.remote(codes[part], part.start))
        places.append(f"node:{host}:{DISK / 'shard.index'}")
    assert not (DISK / "shard.index").exists()  # the head does not see what they have
    found = scale.search(codes[:30], places, 10, address=nodes)
    whole = rb.HammingIndex(24).add(codes[:3000])
    assert found.ids.tolist() == whole.search(codes[:30], 10).ids.tolist()
    with pytest.raises(ValueError, match="No node of this Ray cluster has the address"):
        scale.search(codes[:3], "node:10.9.9.9:/shard.index", 1, address=nodes)


def test_a_killed_node_costs_a_retry(nodes, rows, tmp_path):
    x = rows[0].copy()
    x[2000, 0] = 777  # the first row of a part
    quantizer = KillsItsNode().fit(x)
    wanted = rb.Sign().fit(x).encode(x)
    quantizer.flag = str(tmp_path / "died")
    assert scale.encode(quantizer, x, nodes, rows=400) == wanted
    assert os.path.exists(quantizer.flag)
    wait_for_nodes(3)
    hold_against_one_process(nodes, rows, tmp_path)
