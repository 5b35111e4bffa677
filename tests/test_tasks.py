"""Tasks of kernels are each done once, by the caller and its helpers; errors reach the caller."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rankbits.kernels.backend import run_tasks


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_every_task_is_done_once_and_results_keep_their_order(threads, count):
    done = []

    def square(task):
        done.append(task)
        return task * task

    assert run_tasks(square, range(count)) == [task * task for task in range(count)]
    assert sorted(done) == list(range(count))


def test_the_caller_works_too(threads):
    caller, began = threading.get_ident(), threading.Event()

    def work(task):
        if threading.get_ident() == caller:
            began.set()
        else:  # a helper ends only once the caller has begun a task of its own
            assert began.wait(60)
        return threading.get_ident()

    workers = set(run_tasks(work, range(99)))
    assert caller in workers
    assert len(workers) <= threads


@pytest.mark.parametrize("error", [IndexError, ValueError, KeyboardInterrupt])
def test_an_error_reaches_the_caller_and_ends_the_work(threads, error):
    done = []

    def fail(task):
        done.append(task)
        raise error(f"task {task}")

    with pytest.raises(error):
        run_tasks(fail, range(1000))
    assert len(done) <= threads
    assert run_tasks(abs, [-1, -2]) == [1, 2]  # the pool still works


def test_tasks_may_have_tasks_and_many_callers(threads):
    def add(task):
        return sum(run_tasks(lambda inner: task * inner, range(20)))

    with ThreadPoolExecutor(8) as callers:
        sums = list(callers.map(lambda _: run_tasks(add, range(10)), range(16)))
    assert sums == [[task * 190 for task in range(10)]] * 16
