"""Memory that is kept for the next batch, and given back afterwards."""

import resource
import subprocess
import sys

import pytest

from rankbits.models.heap import CHOSEN_BY_USER, find_glibc, keep_memory

needs_glibc = pytest.mark.skipif(find_glibc() is None, reason="needs glibc with its own thresholds")

# a process of its own, for what others have allocated decides which blocks are kept
FAULTS = """
import ctypes
import resource
import sys
from contextlib import nullcontext

from rankbits.models.heap import keep_memory

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]


def work():
    for _ in range(20):
        block = library.malloc(48_000_000)  # more than glibc keeps by itself
        ctypes.memset(block, 1, 48_000_000)
        library.free(block)


def read_pages():
    return int(open("/proc/self/statm").read().split()[1])


before = read_pages()
with keep_memory() if sys.argv[1] == "keep" else nullcontext():
    work()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
print(faults, read_pages() - before)
"""


def count_faults(how):
    """Count the pages cleared for blocks of work that was done before, and the pages held after."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
    )
    return map(int, done.stdout.split())


@needs_glibc
def test_blocks_are_kept_inside_and_given_back_after():
    pages = 20 * 48_000_000 // resource.getpagesize()
    usual, _ = count_faults("usual")
    kept, held = count_faults("keep")
    if usual < pages / 2:
        pytest.skip("the system clears huge pages by itself")
    assert kept < usual / 20
    assert held < pages / 40  # less than half a block


class Recorded:
    def __init__(self):
        self.calls = []

    def mallopt(self, what, value):
        self.calls.append((what, value))

    def malloc_trim(self, pad):
        self.calls.append("trim")


def test_only_the_outermost_block_changes_thresholds(monkeypatch):
    library = Recorded()
    monkeypatch.setattr("rankbits.models.heap.find_glibc", lambda: library)
    with keep_memory(), keep_memory():
        inside = list(library.calls)
    assert len(inside) == 2 and library.calls[:2] == inside
    assert library.calls[2:][-1] == "trim" and len(library.calls) == 5
    with pytest.raises(ValueError, match="broken"), keep_memory():
        raise ValueError("broken")
    assert library.calls[-1] == "trim" and len(library.calls) == 10


@pytest.mark.parametrize("name", CHOSEN_BY_USER)
def test_thresholds_of_the_user_are_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert find_glibc() is None
    with keep_memory():
        pass


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert find_glibc() is None
    with keep_memory():
        pass
