"""Codes: packing, slicing, files."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankbits as rb


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_signs_come_back(bits, rows, seed):
    numbers = np.random.default_rng(seed).normal(size=(rows, bits))
    codes = rb.pack(numbers)
    assert codes.bits == bits and codes.packed.shape == (rows, -(-bits // 8))
    np.testing.assert_array_equal(codes.signs(), np.where(numbers > 0, 1, -1))
    assert rb.pack(codes.signs()) == codes


@pytest.mark.parametrize("bits", [12, 65, 1000])
@pytest.mark.parametrize(
    "form", [np.float32, np.float16, np.int8, bool, torch.float64, torch.bfloat16, torch.int32]
)
def test_any_dtype_packs_alike(bits, form):
    numbers = np.random.default_rng(0).integers(-2, 3, (6, bits))
    wanted = rb.pack(numbers)
    if isinstance(form, torch.dtype):
        assert rb.pack(torch.from_numpy(numbers).to(form)) == wanted
    elif form is bool:
        assert rb.pack(numbers > 0) == wanted
    else:
        assert rb.pack(numbers.astype(form)) == wanted


@pytest.mark.parametrize("bits", [1, 12, 64, 65])
def test_packing_where_the_tensor_lies(bits):
    from rankbits.types.codes import _pack_on_device

    numbers = torch.randn(7, bits)
    assert _pack_on_device(numbers) == rb.pack(numbers)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_packing_on_a_gpu():
    numbers = torch.randn(100, 65, device="cuda")
    assert rb.pack(numbers) == rb.pack(numbers.cpu())


def test_slicing_and_equality():
    codes = rb.pack(np.random.default_rng(0).normal(size=(10, 20)))
    assert codes[2:5] == rb.Codes(codes.packed[2:5], 20)
    assert codes[np.arange(10) % 2 == 0] == codes[::2] == codes[torch.arange(0, 10, 2)]
    assert len(codes[3]) == 1 and codes[-1] == codes[9]
    assert codes != codes[:5] and codes != rb.pack(np.ones((10, 21)))
    assert (codes == "codes") is False
    assert repr(codes) == "Codes(10 rows of 20 bits)"
    with pytest.raises(ValueError, match="read-only"):
        codes.packed[0, 0] = 1
    with pytest.raises(rb.Refusal, match="have no rows"):
        codes[10]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("bits", [1, 12, 65, 1000])
def test_files_come_back(tmp_path, suffix, bits):
    rng = np.random.default_rng(0)
    codes, path = rb.pack(rng.normal(size=(9, bits))), tmp_path / f"codes{suffix}"
    codes.save(path, labels=np.arange(9), embeddings=torch.randn(9, 3))
    assert rb.Codes.load(path) == codes
    again, columns = rb.Codes.load_columns(path)
    assert again == codes and set(columns) == {"labels", "embeddings"}
    np.testing.assert_array_equal(columns["labels"], np.arange(9))
    empty = tmp_path / f"empty{suffix}"
    codes[:0].save(empty)
    assert rb.Codes.load(empty) == codes[:0]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_damaged_files_are_refused_in_one_sentence(tmp_path, suffix):
    path = tmp_path / f"codes{suffix}"
    rb.pack(np.random.default_rng(0).normal(size=(500, 64))).save(path)
    whole = path.read_bytes()
    for cut in (0, 1, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(rb.Refusal, match="truncated, damaged or not a rankbits codes file"):
            rb.Codes.load(path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(rb.Refusal, match="damaged"):
        rb.Codes.load(path)


def test_foreign_files_are_refused(tmp_path):
    from safetensors.numpy import save_file

    np.savez(tmp_path / "a.npz", x=np.arange(3))
    save_file({"x": np.arange(3)}, tmp_path / "b.safetensors")
    (tmp_path / "c.npz").write_text("hello")
    np.savez(tmp_path / "d.npz", x=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for name in ("a.npz", "b.safetensors", "c.npz", "d.npz", "missing.npz"):
        with pytest.raises(rb.Refusal, match=r"codes file|does not exist"):
            rb.Codes.load(tmp_path / name)
    with pytest.raises(rb.Refusal, match="must end in"):
        rb.pack(np.eye(3)).save(tmp_path / "codes.bin")
    with pytest.raises(rb.Refusal, match="the folder"):
        rb.pack(np.eye(3)).save(tmp_path / "nowhere" / "codes.npz")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "codes.npz"
    old = rb.pack(np.eye(5))
    old.save(path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(rb.Refusal, match="No space left on device; what was there before is whole"):
        rb.pack(-np.eye(5)).save(path)
    assert rb.Codes.load(path) == old
    assert [p.name for p in tmp_path.iterdir()] == ["codes.npz"]


def save_for_ever(path, pipe):
    codes = rb.Codes(np.ones((2_000_000, 8), np.uint8), 64)
    pipe.send("ready")
    while True:
        codes.save(path)


def test_a_killed_writer_never_leaves_half_a_file(tmp_path, forks):
    path = tmp_path / "codes.npz"
    rb.pack(np.ones((4, 8))).save(path)

    def list_sizes():
        return {entry.name: entry.stat().st_size for entry in os.scandir(tmp_path)}

    for _ in range(3):
        before = list_sizes()
        ours, theirs = forks.Pipe(duplex=False)
        writer = forks.Process(target=save_for_ever, args=(path, theirs))
        writer.start()
        assert ours.recv() == "ready"
        while writer.is_alive() and list_sizes() == before:
            pass  # until it is in the middle of a write
        assert writer.is_alive()
        writer.kill()
        writer.join()
        assert rb.Codes.load(path).bits in (8, 64)
