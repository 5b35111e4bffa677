"""Disks and neighbours that misbehave: damage in the middle of a file, forks, links, files that
others cut, overwrite or lock."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import zlib
from contextlib import suppress

import numpy as np
import pytest

import rankbits as rb
from rankbits import _files
from rankbits.cli import main
from rankbits.indexes import FileIndex, HammingIndex, file, journal, lock, repair


def draw(rows, bits=64, seed=0):
    return rb.pack(np.random.default_rng(seed).integers(0, 2, (rows, bits)))


def grow(path, adds=10, rows=100):
    """An index of so many acknowledged adds; where each record ends."""
    ends = []
    with FileIndex(path, 64) as index:
        ends.append(index._end)
        for step in range(adds):
            index.add(draw(rows, seed=step), np.arange(step * rows, (step + 1) * rows))
            ends.append(index._end)
    return ends


@pytest.mark.parametrize("part", ["head", "payload", "gone"])
@pytest.mark.parametrize("record", [0, 2, 8])
def test_damage_in_the_middle_is_refused_and_repaired(tmp_path, record, part, capsys):
    path, new = tmp_path / "i", tmp_path / "new"
    ends = grow(path)
    data = bytearray(path.read_bytes())
    start, end = ends[record : record + 2]
    if part == "gone":
        del data[start:end]
    else:
        at = start + (0 if part == "head" else 512)
        data[at : at + 32] = bytes(32)
    path.write_bytes(data)
    for opening in (HammingIndex.open, FileIndex, lambda p: FileIndex(p, mode="r")):
        with pytest.raises(rb.Refusal, match=rf"record {record + 1} of the journal.*rankbits repa"):
            opening(path)
    assert path.read_bytes() == data
    assert main(["repair", str(path), "-o", str(new)]) == 0
    printed = capsys.readouterr().out
    assert f"900 rows saved\nmissing: record {record + 1} of the journal, bytes" in printed
    lost = set(range(record * 100, record * 100 + 100))
    assert set(FileIndex(new).ids.tolist()) == set(range(1000)) - lost
    with pytest.raises(rb.Refusal, match="exists already; repair writes a new file"):
        repair(path, new)


def test_several_records_and_the_last_one_are_missing(tmp_path):
    path = tmp_path / "i"
    ends = grow(path)
    data = bytearray(path.read_bytes())
    data[ends[3] + 100] ^= 1
    data[ends[4] : ends[4] + 200] = os.urandom(200)
    data[ends[9] + 40] ^= 4
    path.write_bytes(data)
    repaired = repair(path, tmp_path / "new")
    assert repaired.rows == 700
    assert repaired.missing == (
        f"records 4 to 5 of the journal, bytes {ends[3]:,} to {ends[5] - 1:,}",
        f"the journal from byte {ends[9]:,} on",
    )


def test_a_damaged_body_is_left_out_or_kept_with_doubts(tmp_path):
    path = tmp_path / "i"
    grow(path)
    with FileIndex(path) as index:
        index.remember({"fingerprint": "0123456789abcdef"})
        index.add(draw(5), np.arange(5000, 5005))
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(rb.Refusal, match=r"checksum of its codes does not match .rankbits repair"):
        FileIndex(path)
    repaired = repair(path, tmp_path / "new")
    assert repaired.rows == 5
    assert repaired.missing == (
        "all 1,000 rows of the body: the checksum of its codes does not match",
    )
    assert FileIndex(tmp_path / "new").fingerprint == "0123456789abcdef"
    assert repair(path, tmp_path / "doubtful", doubtful=True).rows == 1005
    with pytest.raises(rb.Refusal, match="does not exist or is not a file"):
        repair(tmp_path / "none", tmp_path / "x")


def test_the_last_acknowledged_record_is_not_taken_for_an_unfinished_end(tmp_path):
    path = tmp_path / "i"
    ends = grow(path, adds=3)
    data = bytearray(path.read_bytes())
    data[ends[2] + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(rb.Refusal, match=r"the journal from byte .* on cannot be read"):
        FileIndex(path)


def test_a_torn_record_that_nobody_was_promised_is_dropped(tmp_path):
    """Any page of it may be missing, in its middle too, and zero or whatever stood there."""
    path = tmp_path / "i"
    grow(path, adds=2, rows=3)
    kept = path.read_bytes()
    with FileIndex(path) as index:
        index.add(draw(3000), np.arange(10_000, 13_000))
    whole = bytearray(path.read_bytes())
    whole[-8:] = bytes(8)  # its mark is written once it is acknowledged
    pages = range(len(kept) // 4096, -(-len(whole) // 4096))
    for page in pages:
        for filling in (bytes(4096), os.urandom(4096)):
            torn, start = whole.copy(), max(page * 4096, len(kept))
            end = min((page + 1) * 4096, len(whole))
            torn[start:end] = filling[: end - start]
            path.write_bytes(torn)
            assert FileIndex(path, mode="r").count() == 6
            with FileIndex(path) as index:
                assert index.count() == 6 and path.stat().st_size == len(kept)
                index.add(draw(1), [7777])
            with FileIndex(path, mode="r") as index:
                assert 7777 in index and index.count() == 7
    assert len(pages) > 5


def make_old_record(verb, ids, codes=None):
    """A record as versions before wrote it."""
    payload = journal.FACTS.pack(1, 0, len(ids), 0, 0)
    payload += (b"" if codes is None else codes.packed.tobytes()) + np.array(ids, "<i8").tobytes()
    head = struct.pack("<4sIQI8x", b"RBJ1", verb, len(payload), zlib.crc32(payload))
    end = bytes(-(len(payload) + 8) % 32) + b"written."
    return head + struct.pack("<I", zlib.crc32(head)) + payload + end


def test_files_of_earlier_versions_open_and_go_on(tmp_path):
    path, codes = tmp_path / "i", draw(6)
    HammingIndex(64).add(codes[:2], [1, 5]).save(path)
    body = path.read_bytes()
    records = [
        make_old_record(1, [7, 9], codes[2:4]),
        make_old_record(2, [5, 7]),
        make_old_record(1, [3, 1], codes[4:6]),
    ]
    path.write_bytes(body + b"".join(records))
    assert HammingIndex.open(path).ids.tolist() == [9, 3, 1]
    with FileIndex(path) as index:
        index.add(codes[:1], [100])
        index.remove(9)
    with FileIndex(path) as index:
        assert index.ids.tolist() == [3, 1, 100] and index._number == 5
    path.write_bytes(body + b"".join(records)[:-1])  # torn
    assert HammingIndex.open(path).ids.tolist() == [1, 9]
    middle = bytearray(b"".join(records))
    middle[len(records[0]) : len(records[0]) + 32] = bytes(32)
    last = bytearray(b"".join(records))
    last[-60] ^= 1
    for damage in (middle, last):
        path.write_bytes(body + damage)
        with pytest.raises(rb.Refusal, match=r"the journal.* cannot be read"):
            FileIndex(path)


def test_a_forked_child_does_not_end_the_parents_lock(tmp_path):
    path = tmp_path / "i"
    code = f"""
import os, sys
import numpy as np, rankbits as rb
from rankbits.indexes import FileIndex
codes = rb.pack(np.eye(8))
index = FileIndex({str(path)!r}, 8).add(codes)
for ending in ("close", "exit", "add"):
    child = os.fork()
    if not child:
        if ending == "add":
            try:
                index.add(codes)
            except rb.Refusal as sentence:
                print(sentence, flush=True)
        if ending == "close":
            index.close()
        if ending == "exit":
            sys.exit(0 if index.search(codes, 1).ids[0, 0] == 0 else 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    try:
        FileIndex({str(path)!r})
    except rb.Refusal as sentence:
        print(sentence, flush=True)
    index.add(codes)
print(index.count(), FileIndex({str(path)!r}, mode="r").count())
child = os.fork()
if not child:
    import time
    time.sleep(60)
index.close()
print(FileIndex({str(path)!r}).count())  # the child that still lives holds no lock
os.kill(child, 9)
os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    lines = done.stdout.splitlines()
    assert sum("open for writing elsewhere" in line for line in lines) == 3
    assert sum("opened before this process was forked: open it again" in x for x in lines) == 1
    assert lines[-2:] == ["32 32", "32"]


def test_nothing_is_printed_when_python_ends_with_an_open_index(tmp_path):
    code = f"""
import builtins
from rankbits.indexes import FileIndex
index = FileIndex({str(tmp_path / "i")!r}, 8)
index.remember({{"inputs": "here"}})
builtins.kept = index, FileIndex({str(tmp_path / "i")!r}, mode="r", verify=False)
del index  # they outlive the modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("limit", [0, 1 << 28], ids=["mapped", "in memory"])
def test_a_file_that_others_cut_or_overwrite(tmp_path, limit):
    """In a process of its own, for a map past the end of its file ends the process by SIGBUS."""
    code = f"""
import os, shutil, sys
import numpy as np, rankbits as rb
from rankbits.indexes import FileIndex, HammingIndex, file
file.IN_MEMORY = {limit}
codes = rb.pack(np.random.default_rng(0).normal(size=(20_000, 64)))
HammingIndex(64).add(codes).save("new")
for harm in ("cut", "copy", "copy same size"):
    HammingIndex(64).add(codes[::-1]).save("i")
    indexes = [FileIndex("i"), FileIndex("i", mode="r"), HammingIndex.open("i", verify={limit > 0})]
    if harm == "cut":
        os.truncate("i", 0)
    elif harm == "copy":
        HammingIndex(64).add(codes[:10]).save("small")
        shutil.copyfile("small", "i")
    else:
        shutil.copyfile("new", "i")
    for index in indexes:
        try:
            print(index.search(codes[:1], 1).ids[0, 0])
        except rb.Refusal as sentence:
            print(sentence)
    try:
        indexes[0].add(codes[:1])
        print("added")
    except rb.Refusal as sentence:
        print(sentence)
    for index in indexes:
        index.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if limit:
        assert [x for x in lines if x.isdigit()] == ["19999"] * 9
    else:
        assert sum("was cut short or overwritten while it was open" in x for x in lines) == 12
    assert "added" not in lines or limit


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.index", tmp_path / "link.index"
    link.symlink_to("there/real.index")
    with FileIndex(link, 64) as index:  # made through the link, too
        index.add(draw(50))
        index.remove(np.arange(10))
        index.compact()
        with pytest.raises(rb.Refusal, match="one writer at a time"):
            FileIndex(real)
        index.add(draw(1))
    assert link.is_symlink()
    assert len(FileIndex(real, mode="r")) == len(FileIndex(link, mode="r")) == 41
    HammingIndex(64).save(link)
    assert link.is_symlink() and len(FileIndex(real, mode="r")) == 0
    assert sorted(os.listdir(tmp_path / "there")) == ["real.index"]
    (tmp_path / "q").symlink_to("there/q.safetensors")
    rb.Sign().fit(np.eye(4, dtype=np.float32)).save(tmp_path / "q")
    assert (tmp_path / "q").is_symlink() and (tmp_path / "there" / "q.safetensors").is_file()


def test_locks_and_folders_that_refuse_are_said_in_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "i"
    FileIndex(path, 64).close()

    def fail(number):
        def fails(*_, **__):
            raise OSError(number, os.strerror(number))

        return fails

    with monkeypatch.context() as patch:
        patch.setattr(lock.fcntl, "flock", fail(errno.ENOLCK))
        with pytest.raises(rb.Refusal, match=r"Cannot lock .*: No locks available"):
            FileIndex(path)
    with monkeypatch.context() as patch:
        patch.setattr(lock, "fcntl", None)
        with pytest.raises(rb.Refusal, match="needs a system with file locks"):
            FileIndex(path)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkstemp", fail(errno.EROFS))
        for write in (
            lambda: FileIndex(tmp_path / "new", 64),
            lambda: HammingIndex(64).save(tmp_path / "new"),
            lambda: draw(3).save(tmp_path / "new.npz"),
            lambda: rb.Sign().fit(np.eye(4, dtype=np.float32)).save(tmp_path / "new"),
        ):
            with pytest.raises(rb.Refusal, match=r"Cannot write .*new.*: Read-only file system"):
                write()
    with monkeypatch.context() as patch:
        patch.setattr("rankbits._files.sync_folder", fail(errno.EIO))
        with pytest.raises(rb.Refusal, match="it is whole, the old or the new"):
            draw(3).save(tmp_path / "new.npz")
    assert rb.Codes.load(tmp_path / "new.npz") == draw(3)


def count_silent_flips(path, load, same, seed, count=400):
    """How many of so many flipped bits of the first 4 KB change what is loaded in silence."""
    whole, rng, silent = path.read_bytes(), np.random.default_rng(seed), 0
    for bit in rng.choice(min(len(whole), 4096) * 8, count, replace=False).tolist():
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with suppress(rb.Refusal):
            silent += not same(load())
    path.write_bytes(whole)
    return silent


@pytest.mark.parametrize("form", [".safetensors", ".npz"])
def test_facts_have_a_checksum(tmp_path, form):
    path = tmp_path / f"x{form}"
    facts = {"options": '{"bits": 64, "seed": 1234567}', "progress": '{"step": 123456789}' * 20}
    arrays = {"weight": np.zeros((6, 4), np.float32), "offset": np.arange(24, dtype=np.int32)}
    _files.write_arrays(path, "thing", facts, arrays)

    def same(loaded):
        named, values = loaded
        shapes = {n: (a.dtype, a.shape) for n, a in values.items()}
        return named == facts and shapes == {n: (a.dtype, a.shape) for n, a in arrays.items()}

    assert same(_files.read_arrays(path, "thing"))
    assert count_silent_flips(path, lambda: _files.read_arrays(path, "thing"), same, seed=0) == 0


def test_files_made_before_facts_had_a_checksum_are_read(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_files, "SUM", "")
        patch.setattr(_files, "_sum_facts", lambda *_: "")
        _files.write_arrays(tmp_path / "x.npz", "thing", {"a": "b"}, {"x": np.eye(2)})
    assert _files.read_arrays(tmp_path / "x.npz", "thing")[0] == {"a": "b"}
    assert _files.read_kind(tmp_path / "x.npz") == "thing"


def test_an_archive_that_unpacks_to_gigabytes_is_refused_first(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, packed=np.zeros((2_000_000, 8), np.uint8))
    monkeypatch.setattr(np, "load", None)  # nothing is unpacked
    with pytest.raises(rb.Refusal, match="truncated, damaged or not a rankbits codes file"):
        rb.Codes.load(path)


def test_the_header_of_a_body_says_what_the_file_must_hold(tmp_path):
    """Repair needs a header; without one nothing in the file has a place."""
    path = tmp_path / "i"
    grow(path, adds=1)
    path.write_bytes(bytes(file.SIZE) + path.read_bytes()[file.SIZE :])
    with pytest.raises(rb.Refusal, match="is not a rankbits index file"):
        repair(path, tmp_path / "new")
