"""Every state that a crash could leave is opened again and compared with what was acknowledged.

``python tests/test_crash_states.py 10000`` makes so many states and prints what became of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import rankbits as rb
from faulty_disk import SECTOR, FaultyDisk, Killed
from rankbits.indexes import FileIndex, HammingIndex, durable, repair
from rankbits.train.checkpoints import Progress, load_checkpoint, save_checkpoint

BITS = 70
ERRORS = (errno.EIO, errno.ENOSPC)


def draw(rng, rows):
    return rb.pack(rng.integers(0, 2, (rows, BITS)))


def read_all(index):
    """All that an index holds, as something that can be compared."""
    return tuple(index.ids.tolist()), index.codes().packed.tobytes(), tuple(index.facts.items())


def make_steps(rng, strings):
    """What an index is asked to do, each a function of it; some rewrite the file, some are longer
    than a page."""
    names = (lambda ids: [f"n{i}" for i in ids]) if strings else (lambda ids: ids)
    chosen = []
    for turn in range(14):
        kind = rng.choice(["add", "add", "upsert", "remove", "remember", "compact", "large"])
        if turn == 0 or kind == "add":
            ids = names(list(range(100 * turn, 100 * turn + int(rng.integers(1, 12)))))
        elif kind == "large":
            ids = names(list(range(10_000 * turn, 10_000 * turn + 500)))
        else:
            ids = names(rng.choice(100 * turn, int(rng.integers(1, 30)), replace=False).tolist())
        codes = draw(rng, len(ids))
        known = {
            "remove": lambda index, ids=ids: index.remove(ids),
            "remember": lambda index, turn=turn: index.remember({"inputs": f"of turn {turn}"}),
            "compact": lambda index: index.compact() if hasattr(index, "compact") else None,
        }
        added = partial(HammingIndex.add, codes=codes, ids=ids)
        chosen.append(known.get(kind, added) if turn else added)
    return chosen


@dataclass
class Life:
    """What happened to an index: the disk's log, and after each step what it held and when."""

    disk: FaultyDisk
    states: list[tuple] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)  # calls before the step was acknowledged

    def allowed(self, at: int) -> list[tuple]:
        """What may be there after a crash: all that was acknowledged, and the step in flight."""
        done = sum(moment <= at for moment in self.moments)
        return self.states[max(0, done - 1) : done + 1]


def run_life(folder, seed):
    """The life of an index on a disk that does not fail."""
    rng = np.random.default_rng(seed)
    life, plain = Life(FaultyDisk(folder)), HammingIndex(BITS)
    salts = mock.patch.object(os, "urandom", np.random.default_rng(seed).bytes)
    with life.disk.watching(), mock.patch.object(durable, "LEAST", 4000), salts:
        index = FileIndex(folder / "i", BITS)
        life.states.append(read_all(index))
        life.moments.append(len(life.disk.log))
        for step in make_steps(rng, strings=seed % 2 == 1):
            step(index)
            step(plain)
            assert read_all(index) == read_all(plain)
            life.states.append(read_all(index))
            life.moments.append(len(life.disk.log))
        index.close()
    return life


def put(folder, files):
    for name, data in files.items():
        (folder / name).write_bytes(data)


def check_index(folder, files, allowed, rng):
    """Open what a crash left, compare, write on, and open that again; a second crash may come while
    the first is recovered from."""
    put(folder, files)
    if "i" not in files:  # it was not yet made
        return allowed[:1]
    disk = FaultyDisk(folder)
    for name in sorted(files):
        disk.inodes += 1
        disk.names[name] = disk.inodes
        disk.log += [("name", name, disk.inodes), ("write", disk.inodes, 0, files[name])]
        disk.log += [("sync", disk.inodes), ("sync", None)]
    start = len(disk.log)
    with disk.watching():
        assert read_all(FileIndex(folder / "i", mode="r")) in allowed
        with FileIndex(folder / "i") as index:
            state = read_all(index)
            assert state in allowed, "what was acknowledged is gone"
            opened = len(disk.log)
            extra = ["extra"] if state[0] and isinstance(state[0][0], str) else [987_654]
            index.add(draw(rng, 1), extra)
            after = read_all(index)
        with FileIndex(folder / "i", mode="r") as index:
            assert read_all(index) == after
    assert sorted(os.listdir(folder)) == ["i"], "what was unfinished stays behind"
    again = folder.with_name(folder.name + "-again")
    again.mkdir()
    put(again, disk.after_crash(int(rng.integers(start, opened + 1)), rng))
    assert read_all(HammingIndex.open(again / "i")) == state, "a second crash lost it"
    return [state]


def make_folder(folder, name):
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(place.with_name(name + "-again"), ignore_errors=True)
    place.mkdir()
    return place


def explore_crashes(folder, seed, count):
    """``count`` states of one life, after any call."""
    life = run_life(make_folder(folder, "life"), seed)
    rng, told = np.random.default_rng([seed, 1]), Counter()
    for _ in range(count):
        at = int(rng.integers(life.moments[0], len(life.disk.log) + 1))
        files = life.disk.after_crash(at, rng)
        state = check_index(make_folder(folder, "crash"), files, life.allowed(at), rng)
        told["with the step in flight" if state[0] != life.allowed(at)[0] else "without it"] += 1
    return told


def explore_errors(folder, seed, error, every=1):
    """The same life with one call failing, each in turn, or with the process killed there and begun
    again; then a crash."""
    told, at = Counter(), 1
    while True:
        rng, place = np.random.default_rng([seed, at]), make_folder(folder, "failing")
        disk, plain = FaultyDisk(place, at, error), HammingIndex(BITS)
        with disk.watching(), mock.patch.object(durable, "LEAST", 4000):
            index = open_again(disk, None)
            for step in make_steps(np.random.default_rng(seed), strings=seed % 2 == 1):
                before = read_all(plain)
                try:
                    step(index)
                    step(plain)
                except (rb.Refusal, Killed) as end:
                    told["refused or killed"] += 1
                    gone = isinstance(end, Killed) or "open it again" in str(end)
                    gone |= "the old or the new" in str(end)
                    if gone or index._closed:
                        index = open_again(disk, index)
                    if gone and read_all(index) != before:  # it was done before its end was told
                        step(plain)
                    assert read_all(index) == read_all(plain), "half of a step was done"
            assert read_all(index) == read_all(plain)
            index.close()
        if disk.calls < at:
            return told
        told["failed calls"] += 1
        files = disk.after_crash(len(disk.log), rng)
        check_index(make_folder(folder, "crash"), files, [read_all(plain)], rng)
        at += every


def open_again(disk, index):
    """The index, by another process where the first was killed; a second attempt succeeds."""
    for attempt in range(3):
        disk.dead = False
        if index is not None:
            index.close()
        try:
            return FileIndex(disk.root / "i", BITS)
        except (rb.Refusal, Killed):
            assert not attempt
    return None


def explore_rot(folder, seed, count):
    """Flipped bits, and sectors of zeros or of anything, in a file whose records were all
    acknowledged: it is refused, or nothing is lost; and a repair saves no code that never was."""
    place = make_folder(folder, "life")
    life = run_life(place, seed)
    whole, rng, told = (place / "i").read_bytes(), np.random.default_rng([seed, 2]), Counter()
    for _ in range(count):
        data, kind = bytearray(whole), rng.choice(["bit", "zeros", "anything", "cut"])
        at = int(rng.integers(0, len(data)))
        if kind == "bit":
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == "cut":
            del data[at // SECTOR * SECTOR : at // SECTOR * SECTOR + SECTOR]
        else:
            start = at // SECTOR * SECTOR
            size = min(SECTOR, len(data) - start)
            data[start : start + size] = bytes(size) if kind == "zeros" else rng.bytes(size)
        rotten = make_folder(folder, "rotten")
        (rotten / "i").write_bytes(data)
        try:
            with FileIndex(rotten / "i") as index:
                state = read_all(index)
            # nothing tells that the last record was acknowledged once its mark is gone with it
            lost_end = at // SECTOR * SECTOR + SECTOR >= len(whole)
            assert state == life.states[-1] or lost_end, "damage passed for an unfinished end"
            assert state in life.states
            told["unharmed" if state == life.states[-1] else "its end lost"] += 1
        except rb.Refusal:
            told["refused"] += 1
            assert (rotten / "i").read_bytes() == data
            with contextlib.suppress(rb.Refusal):
                repaired = repair(rotten / "i", rotten / "new")
                told["repaired"] += 1
                assert repaired.rows == len(FileIndex(rotten / "new", mode="r"))
    return told


@cache
def fit(number):
    rows = np.random.default_rng(number).normal(size=(40, 6 + number)).astype(np.float32)
    return rb.RandomRotation(seed=number).fit(rows)


def write_quantizer(folder, number):
    fit(number).save(folder / "q")


def read_quantizer(folder):
    return rb.load(folder / "q").fingerprint


def write_encoder(folder, number):
    rb.Encoder.of(fit(number)).save(folder / "e.encoder")


def read_encoder(folder):
    encoder = rb.load(folder / "e.encoder")
    return encoder.fingerprint, encoder.reads.dim


def write_run(folder, number):
    model, loss = torch.nn.Linear(3, number), torch.nn.Identity()
    torch.nn.init.constant_(model.weight, number)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    save_checkpoint(folder, model, loss, optimiser, Progress(step=number), {})


def read_run(folder):
    for number in (1, 2):
        model = torch.nn.Linear(3, number)
        with contextlib.suppress(rb.Refusal):
            optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
            progress, _ = load_checkpoint(folder, model, torch.nn.Identity(), optimiser)
            return progress.step, model.weight.sum().item()
    return None


@cache
def judge(number):
    codes = rb.pack(np.random.default_rng(0).normal(size=(9, 8)))
    labels = np.arange(9) % (number + 1)
    return rb.evaluate(codes, codes, labels, labels)


def write_report(folder, number):
    judge(number).to_html(folder / "r.html")


def read_report(folder):
    return (folder / "r.html").read_bytes()


def write_codes(folder, number):
    rb.pack(np.full((30 * number, 8), number)).save(folder / "c.npz")


def read_codes(folder):
    return len(rb.Codes.load(folder / "c.npz"))


WRITERS = {
    "quantizer": (write_quantizer, read_quantizer),
    "encoder": (write_encoder, read_encoder),
    "checkpoint": (write_run, read_run),
    "report": (write_report, read_report),
    "codes": (write_codes, read_codes),
}


def explore_files(folder, name, count, seed=0):
    """The old file or the new, whole, after a crash in the writing of the new one, and after any
    call of it has failed."""
    write, read = WRITERS[name]
    rng, told = np.random.default_rng([seed, 3]), Counter()
    place = make_folder(folder, "written")
    disk = FaultyDisk(place)
    with disk.watching():
        write(place, 1)
        old, first = read(place), len(disk.log)
        calls = disk.calls
        write(place, 2)
        new, calls = read(place), disk.calls - calls
    assert old != new
    for _ in range(count):
        at = int(rng.integers(first, len(disk.log) + 1))
        crashed = make_folder(folder, "crash")
        for path, data in disk.after_crash(at, rng).items():
            (crashed / path).parent.mkdir(exist_ok=True)
            (crashed / path).write_bytes(data)
        found = read(crashed)
        assert found == new or (found == old and at < len(disk.log)), "neither the old nor the new"
        told["new" if found == new else "old"] += 1
    for error in ERRORS:
        for at in range(1, calls + 1):
            broken = make_folder(folder, "failing")
            write(broken, 1)
            failing = FaultyDisk(broken, at, error)
            with failing.watching():
                try:
                    write(broken, 2)
                except rb.Refusal:
                    told["refused"] += 1
            assert read(broken) in (old, new), "neither the old nor the new"
            unfinished = [p for p in broken.rglob(".*") if p.is_file()]
            assert len(unfinished) <= 1  # where the deletion itself failed
    return told


@pytest.mark.parametrize("seed", range(4))
def test_after_a_crash_all_that_was_acknowledged_is_there(tmp_path, seed):
    told = explore_crashes(tmp_path, seed, 150)
    assert told["with the step in flight"] and told["without it"]


@pytest.mark.parametrize("error", [*ERRORS, 0], ids=["EIO", "ENOSPC", "kill"])
def test_any_call_may_fail_or_be_the_last(tmp_path, error):
    told = explore_errors(tmp_path, seed=error, error=error, every=2)
    assert told["refused or killed"] > 15


@pytest.mark.parametrize("seed", [10, 11])
def test_rot_is_never_taken_for_an_unfinished_end(tmp_path, seed):
    told = explore_rot(tmp_path, seed, 120)
    assert told["refused"] > 60 and told["repaired"]


@pytest.mark.parametrize("name", WRITERS)
def test_other_files_are_old_or_new_and_whole(tmp_path, name):
    told = explore_files(tmp_path, name, 60)
    assert told["old"] and told["new"] and told["refused"]


def explore(count, seed):
    """Print what became of ``count`` states, three in four of an index after a crash."""
    print(f"seed {seed}")
    told: dict[str, Counter] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, made = Path(name), 0
        while made < count:
            parts = {
                "crash": explore_crashes(folder, seed, 300),
                "rot": explore_rot(folder, seed, 60),
            }
            error = (*ERRORS, 0)[seed % 3]
            parts["failing call"] = explore_errors(folder, seed, error, every=3)
            for writer in WRITERS:
                parts[writer] = explore_files(folder, writer, 8, seed)
            for part, counts in parts.items():
                told.setdefault(part, Counter()).update(counts)
                made += counts.total() - counts["repaired"] - counts["refused or killed"]
            seed += 1
    for part, counts in told.items():
        print(f"{part}: " + ", ".join(f"{counts[what]:,} {what}" for what in sorted(counts)))
    print(f"{made:,} states, each of them as promised")


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    explore(words[0] if words else 10_000, words[1] if len(words) > 1 else 0)
