"""A disk that fails as disks do, for tests: it writes down every call that changes a folder, fails
the one it is told to, and makes the states that a power cut could have left.

Only what was synced is sure. Of the rest any write may be missing, in whole or in any of its
sectors; a file may have its new length without its new bytes, which are then zero or anything; and
of the names that changed since their folder was synced the first few may have, in order. What was
written to a file whose sync failed may be lost for good, whatever is synced later.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

SECTOR = 512
CHANGES = ("fsync", "pwrite", "ftruncate", "replace", "rename", "link", "unlink", "chmod")


class Killed(BaseException):
    """The process ends here; nothing that it would do afterwards is done."""


class LoggedFile(io.FileIO):
    """The file behind ``os.fdopen``, whose writes are seen."""

    def __init__(self, disk: FaultyDisk, handle: int) -> None:
        super().__init__(handle, "wb")
        self.disk, self.inode = disk, disk.handles[handle]

    def write(self, data):
        at = self.tell()
        self.disk.count("write")
        done = super().write(data)
        self.disk.log.append(("write", self.inode, at, bytes(data)[:done]))
        return done


class FaultyDisk:
    """All that happens in the folder ``root`` while ``watching``. Call ``fail_at`` fails with
    ``error``, or kills the process where that is 0; once ``dead`` is False again another one may
    begin, which sees all that was written, synced or not."""

    def __init__(self, root: Path, fail_at: int = 0, error: int = 0) -> None:
        self.root, self.fail_at, self.error = Path(root), fail_at, error
        self.calls, self.dead = 0, False
        self.log: list[tuple] = []
        self.handles: dict[int, int | None] = {}  # None: the folder itself
        self.names: dict[str, int] = {}
        self.inodes = 0
        self.real = {name: getattr(os, name) for name in (*CHANGES, "open", "close", "dup")}
        self.real["fdopen"] = os.fdopen

    def count(self, what: str) -> None:
        """One more call that may fail; the one told to does."""
        if self.dead:
            raise Killed
        self.calls += 1
        if self.calls == self.fail_at and not self.error:
            self.dead = True
            raise Killed
        if self.calls == self.fail_at:
            self.log.append(("failed", what))
            raise OSError(self.error, os.strerror(self.error))

    def name(self, path) -> str | None:
        """The name of a path below the root; None elsewhere."""
        text = os.path.realpath(os.path.dirname(os.path.abspath(path)))
        full = os.path.join(text, os.path.basename(os.path.abspath(path)))
        root = str(self.root)
        return os.path.relpath(full, root) if full.startswith(root + os.sep) else None

    @contextlib.contextmanager
    def watching(self) -> Iterator[FaultyDisk]:
        with contextlib.ExitStack() as stack:
            for name in self.real:
                stack.enter_context(mock.patch.object(os, name, getattr(self, f"_{name}")))
            yield self

    def _open(self, path, flags, mode=0o777, **more):
        name = self.name(path) if isinstance(path, (str, os.PathLike)) else None
        new = name is not None and not os.path.lexists(path) and flags & os.O_CREAT
        if new:
            self.count("create")
        handle = self.real["open"](path, flags, mode, **more)
        if os.path.isdir(path):
            if os.path.realpath(path).startswith(str(self.root)):
                self.handles[handle] = None
        elif name is not None:
            if new:
                self.inodes += 1
                self.names[name] = self.inodes
                self.log.append(("name", name, self.inodes))
            self.handles[handle] = self.names.get(name)
        return handle

    def _close(self, handle):
        self.handles.pop(handle, None)
        self.real["close"](handle)

    def _dup(self, handle):
        copy = self.real["dup"](handle)
        if handle in self.handles:
            self.handles[copy] = self.handles[handle]
        return copy

    def _fdopen(self, handle, mode="r", *more, **named):
        if handle not in self.handles or mode != "wb":
            return self.real["fdopen"](handle, mode, *more, **named)
        return io.BufferedWriter(LoggedFile(self, handle))

    def _fsync(self, handle):
        if handle not in self.handles:
            return self.real["fsync"](handle)
        inode = self.handles.get(handle, 0)
        try:
            self.count("fsync")
        except OSError:
            self.log.append(("sync failed", inode))
            raise
        return self.log.append(("sync", inode))  # of the real disk nothing is asked

    def _pwrite(self, handle, data, at):
        if handle not in self.handles:
            return self.real["pwrite"](handle, data, at)
        try:
            self.count("pwrite")
        except OSError:  # a disk that fills up takes the first part
            half = bytes(data)[: len(data) // 2]
            self.real["pwrite"](handle, half, at)
            self.log.append(("write", self.handles[handle], at, half))
            raise
        done = self.real["pwrite"](handle, data, at)
        self.log.append(("write", self.handles[handle], at, bytes(data)[:done]))
        return done

    def _ftruncate(self, handle, size):
        if handle not in self.handles:
            return self.real["ftruncate"](handle, size)
        self.count("ftruncate")
        self.real["ftruncate"](handle, size)
        return self.log.append(("cut", self.handles[handle], size))

    def _chmod(self, path, mode, **more):
        if self.name(path) is not None:
            self.count("chmod")
        self.real["chmod"](path, mode, **more)

    def _replace(self, old, new):
        if self.name(old) is None:
            return self.real["replace"](old, new)
        self.count("replace")
        self.real["replace"](old, new)
        inode = self.names.pop(self.name(old))
        self.names[self.name(new)] = inode
        return self.log.append(("move", self.name(old), self.name(new), inode))

    _rename = _replace

    def _link(self, old, new):
        if self.name(old) is None:
            return self.real["link"](old, new)
        self.count("link")
        self.real["link"](old, new)
        inode = self.names[self.name(new)] = self.names[self.name(old)]
        return self.log.append(("name", self.name(new), inode))

    def _unlink(self, path, **more):
        name = self.name(path)
        if name is not None:
            self.count("unlink")
        self.real["unlink"](path, **more)
        if name is not None:
            self.names.pop(name, None)
            self.log.append(("gone", name))

    def after_crash(self, at: int, rng: np.random.Generator) -> dict[str, bytes]:
        """A state that a power cut after the first ``at`` calls may leave: the files by name."""
        sure: dict[int, bytearray] = {}
        unsure: dict[int, list[tuple]] = {}
        names: dict[str, int] = {}
        renamed: list[tuple] = []
        chance = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])  # that what is not synced was written
        for entry in self.log[:at]:
            what = entry[0]
            if what in ("write", "cut"):
                unsure.setdefault(entry[1], []).append(entry)
            elif what in ("name", "move", "gone"):
                renamed.append(entry)
            elif what in ("sync", "sync failed"):
                inode = entry[1]
                if inode is None:
                    if what == "sync":
                        _rename(names, renamed)
                        renamed.clear()
                else:
                    part = 1.0 if what == "sync" else chance
                    held = unsure.pop(inode, [])
                    sure[inode] = _write(sure.get(inode, bytearray()), held, part, rng)
        for inode, held in unsure.items():
            sure[inode] = _write(sure.get(inode, bytearray()), held, chance, rng)
        _rename(names, renamed[: rng.integers(0, len(renamed) + 1)])
        return {name: bytes(sure.get(inode, b"")) for name, inode in names.items()}


def _rename(names: dict[str, int], entries: list[tuple]) -> None:
    for what, *rest in entries:
        if what == "gone":
            names.pop(rest[0], None)
        elif what == "name":
            names[rest[0]] = rest[1]
        else:
            names.pop(rest[0], None)
            names[rest[1]] = rest[2]


def _write(
    data: bytearray, entries: list[tuple], chance: float, rng: np.random.Generator
) -> bytearray:
    """Bytes after some of the entries were done, writes by sectors."""
    data, longest = bytearray(data), len(data)
    for what, _, *rest in entries:
        if what == "cut":
            if rng.random() < chance or chance == 1:
                data = data[: rest[0]] + bytes(max(0, rest[0] - len(data)))
                longest = len(data)
            continue
        at, new = rest
        longest = max(longest, at + len(new))
        start = at
        while start < at + len(new):
            end = min((start // SECTOR + 1) * SECTOR, at + len(new))
            if chance == 1 or rng.random() < chance:
                if len(data) < end:
                    hole = start - len(data)
                    if hole > 0:
                        data += bytes(hole) if rng.random() < 0.5 else rng.bytes(hole)
                    data += bytes(end - len(data))
                data[start:end] = new[start - at : end - at]
            start = end
    if chance < 1 and rng.random() < 0.5:  # the new length came, the bytes did not
        more = max(0, longest - len(data))
        data += bytes(more) if rng.random() < 0.5 else rng.bytes(more)
    return data
