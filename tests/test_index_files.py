"""Index files: they come back, survive kill -9 and full disks, and damage is refused."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from contextlib import suppress

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes import FileIndex, HammingIndex, durable, file, journal


def draw(rows, bits, seed=0):
    return rb.pack(np.random.default_rng(seed).integers(0, 2, (rows, bits)))


IDS = {
    "counted": lambda n: None,
    "numbers": lambda n: np.random.default_rng(1).permutation(n) * 3 - n,
    "strings": lambda n: [f"naïve {i}" for i in range(n)],
}


def is_same(a, b):
    return a.ids.tolist() == b.ids.tolist() and a.codes() == b.codes() and a.bits == b.bits


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("bits", [1, 12, 64, 65, 1000])
def test_saved_indexes_come_back(kind, bits, tmp_path):
    path, codes = tmp_path / "i", draw(50, bits)
    index = HammingIndex(bits).add(codes, IDS[kind](50))
    index.remove(index.ids[[3, 4, 20]])
    index.save(path)
    for again in (HammingIndex.open(path), HammingIndex.open(path, verify=False)):
        assert is_same(again, index)
        again.add(codes[:2], None if kind != "strings" else ["a", "b"])  # in memory only
        assert again.remove(again.ids[:4]) == 4 and len(again) == 45
    assert is_same(HammingIndex.open(path), index)
    found, wanted = HammingIndex.open(path).search(codes, 5), index.search(codes, 5)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    living = FileIndex(path)
    assert is_same(living, index)
    living.close()


def test_an_empty_index_comes_back(tmp_path):
    HammingIndex(77).save(tmp_path / "i")
    again = HammingIndex.open(tmp_path / "i")
    assert again.bits == 77 and len(again) == 0 and (tmp_path / "i").stat().st_size == 128
    assert again.search(draw(2, 77), 3).ids.shape == (2, 0)


def test_the_layout_is_the_documented_one(tmp_path):
    """Read by hand, so that a change of layout cannot pass unseen."""
    codes = draw(3, 70)
    HammingIndex(70).add(codes, ["a", "é", "ccc"]).save(tmp_path / "i")
    data = (tmp_path / "i").read_bytes()
    head = struct.unpack("<8sIIQQqQII", data[:56])
    assert head[:7] == (b"RANKBITS", 1, 2, 70, 3, 0, 6)
    assert struct.unpack("<I", data[124:128])[0] == zlib.crc32(data[:124])
    packed = np.concatenate([codes.packed, np.zeros((3, 7), np.uint8)], axis=1)
    assert data[128 : 128 + 48] == packed[:, :8].tobytes() + packed[:, 8:].tobytes()
    assert data[176:214] == struct.pack("<4Q", 0, 1, 3, 6) + "aéccc".encode()
    assert head[7:] == (zlib.crc32(data[128:176]), zlib.crc32(data[176:214]))
    assert data[214:] == bytes(10) and len(data) == 224
    with FileIndex(tmp_path / "i") as index:
        index.remove("é")
    record = (tmp_path / "i").read_bytes()[224:]
    payload = struct.pack("<IIQqQ", 2, 0, 1, 0, 2) + struct.pack("<2Q", 0, 2) + "é".encode()
    salt = record[20:24]
    start = struct.pack("<4sIQI4sI", b"RBJ2", 2, len(payload), zlib.crc32(payload), salt, 1)
    wanted = start + struct.pack("<I", zlib.crc32(start)) + payload
    assert record == wanted + bytes(-(len(wanted) + 8) % 32) + b"kept" + salt


def test_a_living_index_is_compacted(tmp_path, monkeypatch):
    monkeypatch.setattr(durable, "LEAST", 1000)
    path, plain = tmp_path / "i", HammingIndex(64)
    before = None
    with FileIndex(path, 64) as index:
        for turn in range(60):
            codes = draw(4, 64, seed=turn)
            plain.add(codes, np.arange(4) + turn % 9)
            index.add(codes, np.arange(4) + turn % 9)
            if turn == 30:
                before = FileIndex(path, mode="r")
                held, ids = before.codes(), before.ids.tolist()
        assert is_same(index, plain)
        index.compact()
        assert path.stat().st_size == index._body == 128 + 8 * 12 + 8 * 12 + 0
        assert is_same(index, plain)
        assert before.codes() == held and before.ids.tolist() == ids  # as it was when opened
        index.add(codes, [100, 101, 102, 103])
    assert os.listdir(tmp_path) == ["i"]
    assert len(FileIndex(path, mode="r")) == 16


def test_where_a_second_file_has_no_room_the_journal_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(durable, "LEAST", 500)
    asked = []

    def no_room(path, state, keep=None):
        asked.append(state.count)
        rb._check.refuse("Cannot write: no room.")

    path, codes = tmp_path / "i", draw(10, 64)
    with FileIndex(path, 64) as index:
        monkeypatch.setattr(durable, "replace_whole", no_room)
        for _ in range(40):
            index.add(codes)
        assert len(index) == len(FileIndex(path, mode="r")) == 400
        assert 1 < len(asked) < 10  # it tries again, at growing distances
        with pytest.raises(rb.Refusal, match="no room"):
            index.compact()
        monkeypatch.undo()
        index.compact()
        assert path.stat().st_size == 128 + 8 * 400
    assert len(FileIndex(path, mode="r")) == 400


def test_nothing_is_written_to_a_file_that_lost_its_name(tmp_path, monkeypatch):
    """The new file is in place but its folder could not be synced: the old one is nobody's now."""
    monkeypatch.setattr(durable, "LEAST", 100)
    path, codes = tmp_path / "i", draw(10, 64)
    index = FileIndex(path, 64)

    def fails(folder):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("rankbits._files.sync_folder", fails)
    with pytest.raises(rb.Refusal, match="was deleted or replaced by others: open it again"):
        index.add(codes)
    assert len(index) == 0
    index.close()
    monkeypatch.undo()
    assert len(FileIndex(path)) == 10  # not acknowledged, but whole


def test_what_a_killed_rewrite_left_is_swept(tmp_path):
    """And nothing else is: a file may be called much like what is swept."""
    end = "rankbits-unfinished"
    others = [f".i1.abcd_f00.{end}", ".i[1].archived", ".i[1].keep.me", f".i[1].mine.{end}", "i[1]"]
    for name in (f".i[1].abcd_f00.{end}", *others[:-1]):
        (tmp_path / name).write_bytes(b"half")
    FileIndex(tmp_path / "i[1]", 64).close()
    assert sorted(os.listdir(tmp_path)) == others


def test_a_large_batch_is_written_once(tmp_path):
    path, codes = tmp_path / "i", rb.Codes(np.zeros((300_000, 8), np.uint8), 64)
    with FileIndex(path, 64) as index:
        index.add(codes)
        assert path.stat().st_size == 128 + 8 * 300_000 == index._end
        index.remove(np.arange(3))
    assert len(FileIndex(path, mode="r")) == 299_997


def test_a_write_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    path, codes = tmp_path / "i", draw(10, 64)
    with FileIndex(path, 64) as index:
        index.add(codes)

        def interrupted(handle):
            raise KeyboardInterrupt

        size, fsync = path.stat().st_size, os.fsync
        calls = iter([interrupted, fsync])
        monkeypatch.setattr(os, "fsync", lambda handle: next(calls)(handle))
        with pytest.raises(KeyboardInterrupt):
            index.add(codes)
        monkeypatch.undo()
        assert len(index) == 10 and path.stat().st_size == size
        index.add(codes[:1])
    assert len(FileIndex(path, mode="r")) == 11


def test_one_writer_and_many_readers(tmp_path):
    path, codes = tmp_path / "i", draw(5, 32)
    with FileIndex(path, 32) as index:
        index.add(codes)
        for call in (lambda: FileIndex(path), lambda: HammingIndex(32).save(path)):
            with pytest.raises(rb.Refusal, match=r"open for writing elsewhere: one writer at a"):
                call()
        reader = FileIndex(path, mode="r")
        index.compact()
        with pytest.raises(rb.Refusal, match="open for writing elsewhere"):
            FileIndex(path)
        index.add(codes)
        assert len(reader) == 5 and len(FileIndex(path, mode="r")) == 10
        with pytest.raises(rb.Refusal, match="is open for reading: mode='w' writes to it"):
            reader.add(codes)
        assert len(reader) == 5
    with pytest.raises(rb.Refusal, match="is closed"):
        index.add(codes)
    with pytest.raises(rb.Refusal, match="is closed"):
        index.search(codes, 1)
    HammingIndex(32).add(codes[:2]).save(path)
    with FileIndex(path) as index:
        assert len(index) == 2
        path.unlink()
        with pytest.raises(rb.Refusal, match="was deleted or replaced by others"):
            index.add(codes)
        assert len(index) == 2


def test_refusals_of_paths(tmp_path):
    codes = draw(3, 16)
    HammingIndex(16).add(codes).save(tmp_path / "i")
    codes.save(tmp_path / "codes.npz")
    for call, sentence in (
        (lambda: FileIndex(tmp_path / "none"), "does not exist; give bits to make it."),
        (lambda: FileIndex(tmp_path / "none", mode="r"), "does not exist or is not a file."),
        (lambda: FileIndex(tmp_path / "no" / "i", 16), "does not exist."),
        (lambda: HammingIndex(16).save(tmp_path / "no" / "i"), "does not exist."),
        (lambda: HammingIndex.open(tmp_path), "does not exist or is not a file."),
        (lambda: FileIndex(tmp_path), "does not exist or is not a file."),
        (lambda: FileIndex(tmp_path / "i", 32), "holds codes of 16 bits; got bits=32."),
        (lambda: FileIndex(tmp_path / "i", mode="a"), "mode must be one of 'r', 'w'; got 'a'."),
        (lambda: HammingIndex.open(tmp_path / "codes.npz"), "is not a rankbits index file."),
        (lambda: FileIndex(tmp_path / "codes.npz"), "is not a rankbits index file."),
    ):
        with pytest.raises(rb.Refusal) as caught:
            call()
        assert str(caught.value).endswith(sentence)
    FileIndex(tmp_path / "i", 16).close()  # the refused opening has let go of the lock


def take_step(index, step):
    if step % 3 == 2:
        index.remove(np.arange(10 * step - 5, 10 * step))
    else:
        index.add(draw(10, 96, seed=step), np.arange(10 * step, 10 * step + 10))


def write_until_killed(path, pipe):
    durable.LEAST = 3000
    index = FileIndex(path)
    for step in range(100_000):
        take_step(index, step)
        pipe.send(step)


def replay_steps(steps):
    plain = HammingIndex(96)
    for step in range(steps):
        take_step(plain, step)
    return plain


def test_what_was_acknowledged_survives_kill_9(tmp_path, forks):
    """Killed at some acknowledged step, past several compactions: all acknowledged steps are there,
    and of the one in flight all or nothing."""
    rng = np.random.default_rng(0)
    for turn, target in enumerate(rng.integers(0, 120, 4)):
        path = tmp_path / f"i{turn}"
        FileIndex(path, 96).close()
        ours, theirs = forks.Pipe(duplex=False)
        writer = forks.Process(target=write_until_killed, args=(path, theirs))
        writer.start()
        theirs.close()
        while (last := ours.recv()) < target:
            pass
        writer.kill()
        writer.join()
        with suppress(EOFError):
            while True:
                last = ours.recv()
        with FileIndex(path) as again:
            steps = [n for n in (last + 1, last + 2) if is_same(again, replay_steps(n))]
            assert len(steps) == 1
            again.add(draw(1, 96), [10**6])
        assert len(FileIndex(path, mode="r")) == len(replay_steps(steps[0])) + 1


def journalled(path):
    """A file with a body and a journal of three records, and the state after each of them."""
    HammingIndex(70).add(draw(6, 70), [f"b{i}" for i in range(6)]).save(path)
    states, ends = [HammingIndex.open(path)], [path.stat().st_size]
    with FileIndex(path) as index:
        for change in (
            lambda: index.add(draw(3, 70, 1), ["x", "y", "b2"]),
            lambda: index.remove(["b0", "x"]),
            lambda: index.add(draw(2, 70, 2), ["x", "z"]),
        ):
            change()
            states.append(HammingIndex.open(path))
            ends.append(path.stat().st_size)
    return path.read_bytes(), states, ends


def test_a_torn_tail_is_cut_wherever_it_tears(tmp_path):
    path = tmp_path / "i"
    whole, states, ends = journalled(path)
    for cut in range(ends[0], len(whole)):
        path.write_bytes(whole[:cut])
        kept = max(i for i, end in enumerate(ends) if end <= cut)
        assert is_same(HammingIndex.open(path), states[kept])
    for cut in range(ends[2], len(whole), 32):  # sectors that never reached the disk read as zero
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        assert is_same(HammingIndex.open(path), states[2])
    path.write_bytes(whole[: ends[1] + 40])
    with FileIndex(path) as index:
        assert path.stat().st_size == ends[1]
        index.remove("y")
    assert is_same(HammingIndex.open(path), index_after(states[1], "y"))


def index_after(state, name):
    state.remove(name)
    return state


def test_any_flipped_bit_is_seen_or_changes_nothing(tmp_path):
    """Bytes that fill a record up to its end, and its mark, hold nothing."""
    path = tmp_path / "i"
    whole, states, _ = journalled(path)
    unchanged = 0
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        with suppress(rb.Refusal):
            assert is_same(HammingIndex.open(path), states[-1])
            unchanged += 1
    assert unchanged < 3 * 40


FULL = """
import resource, sys
import numpy as np
import rankbits as rb
from rankbits.indexes import FileIndex, HammingIndex
path, limit = sys.argv[1], int(sys.argv[2])
codes = rb.Codes(np.random.default_rng(0).integers(0, 256, (100, 8), dtype=np.uint8), 64)
index = FileIndex(path, 64)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
added = 0
try:
    for added in range(10_000):
        index.add(codes)
except rb.Refusal as sentence:
    print(sentence)
print(added, len(index), len(FileIndex(path, mode="r")))
try:
    index.compact() if limit else HammingIndex(64).add(codes[[0] * 99_999]).save(path + "2")
except rb.Refusal as sentence:
    print(sentence)
else:
    print()
index.remove(np.arange(3))
print(len(index), len(FileIndex(path, mode="r")))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)  # for what ends with it
"""


def run_on_full_disk(path, limit, reason):
    done = subprocess.run(
        [sys.executable, "-c", FULL, path, str(limit)], capture_output=True, text=True, check=True
    )
    sentence, counts, rewritten, after = done.stdout.split("\n")[:4]
    assert sentence == f"Cannot write {path}: {reason}; what was there before is whole."
    added, memory, disk = map(int, counts.split())
    assert added > 5 and memory == disk == 100 * added
    assert after == f"{memory - 3} {memory - 3}"
    assert len(FileIndex(path, mode="r")) == memory - 3
    assert [name for name in os.listdir(path.parent) if name.startswith(".")] == []
    return rewritten


def test_a_full_disk_changes_nothing(tmp_path):
    """A limit on the size of a file stands for the disk: write fails with EFBIG there."""
    assert run_on_full_disk(tmp_path / "i", 20_000, "File too large") == ""


def test_a_really_full_disk_changes_nothing(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this machine mounts nothing")
    try:
        rewritten = run_on_full_disk(tmp_path / "i", 0, "No space left on device")
        assert rewritten.endswith("No space left on device; what was there before is whole.")
    finally:
        subprocess.run(["umount", tmp_path], check=True)


HOSTILE = [
    {"rows": 2**62}, {"rows": 2**63}, {"rows": 7}, {"bits": 0}, {"bits": 2**40}, {"bits": 2**63},
    {"kind": 1}, {"kind": 3}, {"kind": 0}, {"first": 5}, {"text": 2**63}, {"text": 2**64 - 1},
    {"text": 0}, {"rows": 0}, {"bits": 65, "rows": 3},
]  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE, ids=str)
@pytest.mark.parametrize("verify", [True, False])
def test_headers_that_lie_are_refused(change, verify, tmp_path):
    """Sound checksums, impossible claims; memory is capped in ``test_fuzz.py``."""
    path = tmp_path / "i"
    whole = journalled(path)[0][:480]
    facts = file.read_header(whole[:128], len(whole), path).__dict__
    head = file.HEAD.pack(file.MAGIC, 1, *(facts | change).values())
    path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + whole[128:])
    with pytest.raises(rb.Refusal) as caught:
        HammingIndex.open(path, verify=verify)
    assert str(path) in str(caught.value)


def make_lying_record(verb, kind, rows, first, text, data):
    payload = journal.FACTS.pack(kind, 0, rows, first, text) + data
    head = journal.HEAD.pack(b"RBJ2", verb, len(payload), zlib.crc32(payload), 5, 1)
    end = bytes(-(len(payload) + 8) % 32) + b"kept" + struct.pack("<I", 5)
    return head + struct.pack("<I", zlib.crc32(head)) + payload + end


@pytest.mark.parametrize(
    "record",
    [
        make_lying_record(2, 0, 5, 0, 0, b""),
        make_lying_record(2, 0, 2**50, 0, 0, b""),
        make_lying_record(2, 0, 2**63, 0, 0, b""),
        make_lying_record(2, 1, 2, 0, 0, struct.pack("<2q", 1, 1)),
        make_lying_record(1, 0, 1, 2**63 - 1, 0, bytes(9)[:8]),
        make_lying_record(1, 0, 2, 2**63 - 1, 0, bytes(18)),
        make_lying_record(1, 0, 1, 0, 0, b"\xff" * 9),
        make_lying_record(1, 2, 1, 0, 1, bytes(9) + struct.pack("<2Q", 0, 1) + b"a"),
        make_lying_record(1, 2, 1, 0, 1, bytes(9) + struct.pack("<2Q", 0, 1) + b"\xff"),
        make_lying_record(1, 2, 2, 0, 1, bytes(18) + struct.pack("<3Q", 0, 2**63, 1) + b"a"),
        make_lying_record(1, 1, 0, 0, 0, b""),
        make_lying_record(3, 0, 1, 0, 0, bytes(9)),
        make_lying_record(1, 9, 1, 0, 0, bytes(9)),
    ],
    ids=range(13),
)
def test_records_that_lie_are_refused(record, tmp_path):
    path = tmp_path / "i"
    HammingIndex(70).add(draw(4, 70)).save(path)
    path.write_bytes(path.read_bytes() + record)
    for call in (HammingIndex.open, FileIndex):
        with pytest.raises(rb.Refusal, match="damaged"):
            call(path)
