"""What goes out to workers, and what is done when they fail: a stand-in for Ray does it all here.

The cluster itself is tested in ``test_scale``; here every part runs in this process, so that what
a worker would do is seen, and a worker is lost whenever the test says so.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import rankbits as rb
from rankbits import scale
from rankbits.indexes.addresses import open_index
from rankbits.scale.cluster import join_cluster, run_parts

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 12)).astype(np.float32)
CODES, LABELS = rb.pack(X), RNG.integers(0, 4, 200)


class TaskError(Exception):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Lost(Exception):
    pass


class Unschedulable(Exception):
    pass


class Here:
    """As much of Ray as is used. ``losses``: how many results are lost before any is had."""

    exceptions = SimpleNamespace(
        WorkerCrashedError=Lost, NodeDiedError=Lost, ObjectLostError=Lost, RayTaskError=TaskError,
        TaskUnschedulableError=Unschedulable,
    )  # fmt: skip
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft)
        )
    )

    def __init__(self, losses=0, starts=()):
        self.losses, self.sent, self.starts, self.stopped = losses, 0, list(starts), 0
        self.strategies, self.gone = [], False

    def is_initialized(self):
        return not self.starts

    def init(self, **given):
        failure = self.starts.pop(0)
        if failure is not None:
            raise failure

    def shutdown(self):
        self.stopped += 1

    def cluster_resources(self):
        return {"CPU": 1.0}

    def put(self, value):
        return value

    def remote(self, max_retries):
        def task(function):
            def send(*part):
                self.sent += 1
                return lambda: function(*part)

            def options(scheduling_strategy):
                self.strategies.append(scheduling_strategy)
                return SimpleNamespace(remote=send)

            return SimpleNamespace(remote=send, options=options)

        return task

    def nodes(self):
        hosts = {"10.0.0.1": True, "10.0.0.2": True, "10.0.0.3": False}
        return [
            {"NodeManagerAddress": host, "NodeID": f"id of {host}", "Alive": alive}
            for host, alive in hosts.items()
        ]

    def get(self, result):
        if self.gone:
            raise Unschedulable
        if self.losses:
            self.losses -= 1
            raise Lost
        try:
            return result()
        except Exception as error:
            raise TaskError(error) from error


@pytest.fixture
def here(monkeypatch):
    made = Here()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def test_parts_of_files_and_rows_are_encoded(here, tmp_path):
    quantizer = rb.ITQ(seed=0).fit(X)
    np.save(tmp_path / "a.npy", X)
    assert scale.encode(quantizer, X, rows=64) == quantizer.encode(X)
    assert scale.encode(quantizer, tmp_path / "a.npy", rows=64) == quantizer.encode(X)
    assert here.sent == 4 + 4


def test_shards_are_searched(here, tmp_path):
    wanted = rb.hamming_topk(CODES[:9], CODES, 7)
    found = scale.search(CODES[:9], CODES, 7, rows=64)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    near = scale.search(CODES[:9], CODES, radius=2, rows=64)
    np.testing.assert_array_equal(near.ids, rb.hamming_within(CODES[:9], CODES, 2).ids)
    for name, part in (("a", slice(0, 90)), ("b", slice(90, 200))):
        with open_index(tmp_path / name, 12) as index:
            index.add(CODES[part], np.arange(200)[part])
    places = [tmp_path / "a", tmp_path / "b"]
    np.testing.assert_array_equal(scale.search(CODES[:9], places, 7).ids, wanted.ids)
    few = scale.search(CODES[:9], places[0], radius=0)
    np.testing.assert_array_equal(few.ids, rb.hamming_within(CODES[:9], CODES[:90], 0).ids)
    with pytest.raises(rb.Refusal, match="Codes are wanted here"):
        scale.search(X, CODES, 3)
    with pytest.raises(rb.Refusal, match="address must be a path or begin with"):
        scale.search(CODES[:9], "nosuch://place", 3)


def test_shards_stay_on_their_nodes(here, tmp_path):
    wanted = rb.hamming_topk(CODES[:9], CODES, 7)
    for name, part in (("a", slice(0, 90)), ("b", slice(90, 200))):
        with open_index(tmp_path / name, 12) as index:
            index.add(CODES[part], np.arange(200)[part])
    places = [f"node:10.0.0.1:{tmp_path / 'a'}", f"node:10.0.0.2:{tmp_path / 'b'}"]
    np.testing.assert_array_equal(scale.search(CODES[:9], places, 7).ids, wanted.ids)
    assert here.strategies == [("id of 10.0.0.1", False), ("id of 10.0.0.2", False)]
    for place, sentence in (
        ("node:10.0.0.3:/x", "No node of this Ray cluster has the address 10.0.0.3"),
        ("node:10.0.0.1", "is written node:ADDRESS:PATH"),
    ):
        with pytest.raises(rb.Refusal, match=sentence):
            scale.search(CODES[:9], place, 7)
    here.gone = True
    with pytest.raises(rb.Refusal, match=r"The node 10\.0\.0\.1 was lost"):
        scale.search(CODES[:9], places, 7)


def test_shards_are_judged(here):
    given = (CODES[:40], CODES, LABELS[:40], LABELS)
    assert scale.evaluate(*given, rows=64).to_json() == rb.evaluate(*given).to_json()
    with pytest.raises(rb.Refusal, match="exclude_self needs the database to be the queries"):
        scale.evaluate(CODES[:9], CODES[9:18], LABELS[:9], LABELS[:9], exclude_self=True)


def test_a_lost_part_is_sent_again_once():
    ray = Here(losses=1)
    assert list(run_parts(ray, pow, [(2, 3), (3, 2)], "power")) == [8, 9] and ray.sent == 3
    ray = Here(losses=2)
    with pytest.raises(
        rb.Refusal, match="A part lost every worker that took it up: power gives up"
    ):
        list(run_parts(ray, pow, [(2, 3)], "power"))
    assert ray.sent == 2


def test_what_a_worker_raises_comes_home():
    def refused():
        raise rb.Refusal("This part cannot be.")

    with pytest.raises(rb.Refusal, match="This part cannot be"):
        list(run_parts(Here(), refused, [()], "it"))
    with pytest.raises(TaskError, match="by zero"):
        list(run_parts(Here(), divmod, [(1, 0)], "it"))


def test_a_start_that_fails_leaves_no_process(monkeypatch):
    pytest.importorskip("psutil")
    started = []

    class Late(Here):
        def init(self, **options):
            started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1))
            raise Exception("The node timed out during startup.")

    monkeypatch.setitem(sys.modules, "ray", Late(starts=["not yet"]))
    with pytest.raises(rb.Refusal, match="timed out"), join_cluster("local"):
        pass
    assert len(started) == 3
    for process in started:
        assert process.returncode is not None  # nobody has to wait for it, and Python is told
        process.stdin.close()


def test_a_start_that_takes_too_long_is_tried_again(monkeypatch):
    late = Exception("The node timed out during startup.")
    for starts, stopped, said in (
        ([late, None], 2, None),  # once before the second try, and once at the end
        (3 * [late], 2, "Ray cannot be joined at local: The node timed out during startup."),
        ([ConnectionError("No such host")], 0, "Ray cannot be joined at local: No such host."),
    ):
        ray = Here(starts=starts)
        monkeypatch.setitem(sys.modules, "ray", ray)
        if said is None:
            with join_cluster("local") as found:
                assert found is ray
        else:
            with pytest.raises(rb.Refusal) as told, join_cluster("local"):
                pass
            assert str(told.value).removesuffix(".") == said.removesuffix(".")
        assert ray.stopped == stopped
    monkeypatch.setitem(sys.modules, "ray", Here(starts=[KeyError("a bug")]))
    with pytest.raises(KeyError, match="a bug"), join_cluster("local"):
        pass
