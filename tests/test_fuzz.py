"""Damaged files of every kind: refused in a sentence or read as they were, never anything else.

Thousands of mutations run in one process of their own whose memory is capped, so that a header that
claims the world shows as a failure and not as a dead machine.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rankbits as rb
from rankbits.indexes import FileIndex, HammingIndex, file
from unmeasured import UNMEASURED

MUTATIONS = 1500
ROOM = 256 << 20  # bytes above what the process has when it starts


def write_all(folder):
    """A valid file of each kind; the living one has a journal."""
    rng = np.random.default_rng(0)
    codes = rb.pack(rng.normal(size=(40, 70)))
    codes.save(folder / "codes.npz", labels=np.arange(40))
    codes.save(folder / "codes.safetensors", embeddings=rng.normal(size=(40, 3)))
    HammingIndex(70).add(codes, rng.permutation(40)).save(folder / "saved.index")
    with FileIndex(folder / "living.index", 70) as index:
        index.add(codes, [f"é{i}" for i in range(40)])
        index.remove(["é3", "é9"])
        index.compact()
        index.add(codes[:5], list("abcde"))
        index.remove(["a", "é30"])
    return ["codes.npz", "codes.safetensors", "saved.index", "living.index"]


def read(path, verify=True):
    if path.suffix == ".index":
        index = HammingIndex.open(path, verify=verify)
        return index.ids.tolist(), index.codes().packed.tobytes(), index.bits
    codes, columns = rb.Codes.load_columns(path)
    listed = [(name, column.tolist()) for name, column in sorted(columns.items())]
    return listed, codes.packed.tobytes(), codes.bits


def mutated(whole, others, rng):
    """One damage: flipped bits, a cut, a splice, bytes of another file, noise, wild numbers."""
    data = bytearray(whole)
    kind, at = int(rng.integers(8)), int(rng.integers(len(data)))
    to = min(len(data), at + int(rng.integers(1, 64)))
    if kind == 0:
        for place in rng.integers(0, len(data), int(rng.integers(1, 4))):
            data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        del data[at:to]
    elif kind == 3:
        data[at:at] = data[max(0, at - 40) : at]
    elif kind == 4:
        other = others[int(rng.integers(len(others)))]
        data[at:to] = other[at % len(other) :][: to - at]
    elif kind == 5:
        data[at:to] = rng.bytes(to - at)
    elif kind == 6:
        wild = (0, 1, -1, 2**31, 2**62, -(2**63), 2**63 - 1)[int(rng.integers(7))]
        place = 8 * int(rng.integers(min(30, len(data) // 8)))
        data[place : place + 8] = struct.pack("<q", wild)
    else:
        data += rng.bytes(int(rng.integers(1, 200)))
    return bytes(data)


def resealed(data, rng):
    """A header with lies in it and a checksum that agrees: only sense can refuse it."""
    data = bytearray(data)
    place = int(rng.choice([8, 12, 16, 24, 32, 40]))
    size = 4 if place < 16 else 8
    wild = (0, 1, 2, 3, 7, 64, 2**20, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
    value = int(wild[int(rng.integers(len(wild)))]) % 256**size
    data[place : place + size] = value.to_bytes(size, "little")
    if rng.random() < 0.8:
        rows = struct.unpack_from("<Q", data, 24)[0]
        bits = struct.unpack_from("<Q", data, 16)[0]
        end = 128 + 8 * -(-bits // 64) * rows
        if end < len(data):
            data[48:52] = struct.pack("<I", zlib.crc32(data[128:end]))
    data[124:128] = struct.pack("<I", zlib.crc32(data[:124]))
    return bytes(data)


def fuzz(folder, seed):
    """``MUTATIONS`` damages of every file; prints what went wrong and how many were refused."""
    import resource

    names = write_all(folder)
    wholes = [(folder / name).read_bytes() for name in names]
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, resource.RLIM_INFINITY))
    rng = np.random.default_rng(seed)
    for name, whole in zip(names, wholes, strict=True):
        path = folder / f"bad.{name}"
        path.write_bytes(whole)
        wanted, refused, same = read(path), 0, 0
        for turn in range(MUTATIONS):
            lies = name.endswith(".index") and turn % 5 == 0
            data = resealed(whole, rng) if lies else mutated(whole, wholes, rng)
            path.write_bytes(data)
            try:
                found = read(path)
            except rb.Refusal as sentence:
                text = str(sentence)
                if not text.endswith(".") or "\n" in text or "Traceback" in text:
                    print("FAULT", name, turn, repr(text))
                refused += 1
            except BaseException as error:
                print("FAULT", name, turn, type(error).__name__, str(error)[:200])
            else:
                if found == wanted:
                    same += 1
                elif not lies and not (name == "living.index" and _torn(found, wanted)):
                    print("FAULT", name, turn, "read as something else")
        print(name, refused, same)


def _torn(found, wanted):
    """A cut inside the journal is a torn tail: earlier states of it are right."""
    names = [f"é{i}" for i in range(40) if i not in (3, 9)]
    return found[0] in (names, [*names, *"abcde"])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is capped by RLIMIT_AS and /proc")
def test_thousands_of_damaged_files(tmp_path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_fuzz; "
    code += "test_fuzz.fuzz(test_fuzz.Path(sys.argv[2]), 0)"
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, folder, tmp_path],
        capture_output=True, text=True, env=UNMEASURED,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in lines if line.startswith("FAULT")] == []
    for line in lines:
        name, refused, _ = line.split()
        assert int(refused) > MUTATIONS // 2, name
    assert len(lines) == 4


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=400))
def test_noise_is_refused(tmp_path, data):
    for name in ("noise.index", "noise.npz", "noise.safetensors"):
        for start in (b"", file.MAGIC, b"PK\x03\x04"):
            (tmp_path / name).write_bytes(start + data)
            with pytest.raises(rb.Refusal):
                read(tmp_path / name)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1), st.booleans(),
)  # fmt: skip
def test_any_sealed_header_is_refused(
    tmp_path, version, kind, bits, rows, first, text, facts, near
):
    """Checksums agree, whatever the header claims; where it claims little it may even be true."""
    if near:
        version, kind, bits, rows = 1 + version % 2, kind % 4, bits % 200, rows % 5
        first, text, facts = first % 3 * (kind == 0), text % 9, facts % 9 * (version == 2)
    head = file.HEAD.pack(file.MAGIC, version, kind, bits, rows, first, text, 0, 0, facts, 0)
    path = tmp_path / "i.index"
    path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + bytes(256))
    try:
        ids, _, found = read(path, verify=False)
    except rb.Refusal:
        return
    assert near and found == bits and len(ids) == rows
