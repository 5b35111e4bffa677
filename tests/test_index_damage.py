"""Index files whose checksums are right and whose content is not, and disks that let one down."""

from __future__ import annotations

import errno
import os
import zlib

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes import FileIndex, HammingIndex, durable, lock
from rankbits.indexes.file import ALIGN, Header
from rankbits.indexes.ids import NUMBERS, STRINGS
from rankbits.kernels import histogram

CODES = rb.pack(np.random.default_rng(0).normal(size=(3, 12)))
WORDS = np.zeros((3, 8), np.uint8)
WORDS[:, :2] = CODES.packed


def write_sealed(path, kind, codes, ids, text=0):
    """A file with checksums of whatever is in it."""
    head = Header(kind, 12, 3, 0, text, zlib.crc32(codes), zlib.crc32(ids))
    body = head.to_bytes() + codes + ids
    path.write_bytes(body + bytes(-len(body) % ALIGN))
    return path


def strings(ends, text):
    return np.array(ends, "<u8").tobytes() + text


def test_sealed_and_right(tmp_path):
    path = write_sealed(
        tmp_path / "i", NUMBERS, WORDS.tobytes(), np.array([7, 8, 9], "<i8").tobytes()
    )
    assert FileIndex.open(path).codes([7, 8, 9]) == CODES
    path = write_sealed(tmp_path / "s", STRINGS, WORDS.tobytes(), strings([0, 1, 2, 3], b"abc"), 3)
    assert HammingIndex.open(path).ids.tolist() == ["a", "b", "c"]


def test_sealed_and_wrong(tmp_path):
    past = WORDS.copy()
    past[1, 1] |= 1
    good, numbers = WORDS.tobytes(), np.array([7, 8, 7], "<i8").tobytes()
    for name, kind, codes, ids, text, said in (
        ("pad", NUMBERS, past.tobytes(), numbers, 0, "bits are set past the end of a code"),
        ("twice", NUMBERS, good, numbers, 0, "it holds an id twice"),
        ("nul", STRINGS, good, strings([0, 1, 2, 3], b"a\0c"), 3, "its ids cannot be read"),
        ("torn", STRINGS, good, strings([0, 2, 1, 3], b"abc"), 3, "its ids cannot be read"),
        ("bytes", STRINGS, good, strings([0, 1, 2, 3], b"ab\xff"), 3, "its ids cannot be read"),
    ):
        path = write_sealed(tmp_path / name, kind, codes, ids, text)
        for open_it in (HammingIndex.open, FileIndex):
            with pytest.raises(rb.Refusal, match=f"truncated or damaged: {said}"):
                open_it(path)


def make_failing(number):
    def fails(*given, **more):
        raise OSError(number, os.strerror(number))

    return fails


def test_a_file_that_may_not_be_touched(tmp_path, monkeypatch):
    path = tmp_path / "i"
    FileIndex(path, 12).add(CODES).close()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", make_failing(errno.EACCES))
        with pytest.raises(rb.Refusal, match=r"Cannot write .*: Permission denied"):
            lock.open_locked(path)
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", make_failing(errno.EIO))
        with pytest.raises(rb.Refusal, match=r"Cannot read .*: Input/output error"):
            HammingIndex.open(path)
    assert len(HammingIndex.open(path)) == 3


def test_a_file_that_is_replaced_while_it_is_locked(tmp_path, monkeypatch):
    path = tmp_path / "i"
    FileIndex(path, 12).add(CODES).close()
    looked, real = [], lock.is_at
    monkeypatch.setattr(lock, "is_at", lambda *given: bool(looked.append(1) or len(looked) > 1))
    handle = lock.open_locked(path)
    monkeypatch.setattr(lock, "is_at", real)
    assert len(looked) == 2 and lock.is_at(handle, path)
    lock.release(handle)


def test_a_file_system_without_links_and_a_quicker_neighbour(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", make_failing(errno.EPERM))
    with FileIndex(tmp_path / "i", 12) as index:
        index.add(CODES)
    assert len(HammingIndex.open(tmp_path / "i")) == 3

    def quicker(made, path):
        if not os.path.exists(path):
            monkeypatch.undo()
            FileIndex(path, 12).add(CODES[:1]).close()
        raise FileExistsError

    monkeypatch.setattr(os, "link", quicker)
    with FileIndex(tmp_path / "theirs", 12) as index:
        assert len(index) == 1
    assert sorted(os.listdir(tmp_path)) == ["i", "theirs"]


def test_a_disk_that_fails_and_cannot_be_put_right_is_let_go(tmp_path, monkeypatch):
    index = FileIndex(tmp_path / "i", 12).add(CODES)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "_write", make_failing(errno.EIO))
        with pytest.raises(rb.Refusal, match="Input/output error; what was there before is whole"):
            index.add(CODES, [7, 8, 9])
        assert len(index) == 3
        patch.setattr(os, "ftruncate", make_failing(errno.EIO))
        with pytest.raises(rb.Refusal, match="Input/output error"):
            index.add(CODES, [7, 8, 9])
    with pytest.raises(rb.Refusal, match="closed"):
        index.add(CODES, [7, 8, 9])
    assert len(HammingIndex.open(tmp_path / "i")) == 3


def test_masks_may_be_tensors():
    import torch

    index = rb.HammingIndex(12).add(CODES)
    mask = torch.tensor([False, True, True])
    assert sorted(index.search(CODES[:1], 3, among=mask).ids[0].tolist()) == [1, 2]


def test_other_devices_take_the_definition():
    """A stand-in for a tensor elsewhere: the module is chosen by the device alone."""
    from types import SimpleNamespace

    import torch

    for device in ("mps", "xpu"):
        there = SimpleNamespace(device=torch.device(device), dtype=torch.float32)
        assert histogram._choose_module(there).__name__ == "rankbits.kernels.reference.histogram"
