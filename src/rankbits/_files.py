"""Files are written whole or not at all, and what is read back is data, never code; and the one
place that knows where downloaded and computed data lie."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as safetensors_bytes

from rankbits._check import refuse

ROOT = "RANKBITS_DATA"


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of published datasets, weights and caches: ``root``, or what the environment
    variable RANKBITS_DATA says, or ``~/.cache/rankbits/data``.

    >>> data_root("here").name
    'here'
    """
    chosen = root if root is not None else os.environ.get(ROOT)
    return Path(chosen) if chosen else Path.home() / ".cache" / "rankbits" / "data"


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Call ``write(file)`` on a temporary neighbour of ``path``, then put it in place in one step.

    A crash, a kill or a full disk leaves whatever stood at ``path`` before, and no temporary file
    unless the process itself was killed.
    """
    target = Path(path)
    if not target.parent.is_dir():
        refuse(f"Cannot write {target}: the folder {target.parent} does not exist.")
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


@contextmanager
def alone(folder: str | os.PathLike[str]) -> Iterator[None]:
    """One process at a time, where the system has locks; others wait. The lock is on the folder,
    for a file is replaced by each writing, and it ends with whoever holds it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_arrays(
    path: str | os.PathLike[str],
    kind: str,
    facts: dict[str, str],
    arrays: dict[str, np.ndarray],
    form: str | None = None,
) -> None:
    """Write arrays and a few facts as ``.npz`` or ``.safetensors``: ``form``, or by ending."""
    suffix = form or Path(path).suffix
    marked = {"rankbits": kind, **facts, **_checksums(arrays)}
    if suffix == ".npz":
        texts = {f"fact.{name}": np.array(value) for name, value in marked.items()}
        write_whole(path, lambda file: np.savez(file, **texts, **arrays))  # type: ignore[arg-type]
    elif suffix == ".safetensors":
        contiguous = {name: np.asarray(a, order="C") for name, a in arrays.items()}
        write_whole(path, lambda file: file.write(safetensors_bytes(contiguous, metadata=marked)))
    else:
        refuse(f"{path} must end in .npz or .safetensors; got '{suffix}'.")


def read_arrays(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Read back ``write_arrays``: facts and arrays, checksums verified, nothing unpickled."""
    source = Path(path)
    if not source.is_file():
        refuse(f"{source} does not exist or is not a file.")
    with open(source, "rb") as file:
        zipped = file.read(2) == b"PK"
    try:
        facts, arrays = _read_npz(source) if zipped else _read_safetensors(source)
    except Exception:  # what parsers raise on hostile bytes has no end: OSError, TokenError, ...
        refuse(f"{source} is truncated, damaged or not a rankbits {kind} file.")
    if facts.pop("rankbits", None) != kind:
        refuse(f"{source} is not a rankbits {kind} file.")
    for name, wanted in _checksums(arrays).items():
        if facts.pop(name, None) != wanted:
            refuse(f"{source} is damaged: the checksum of '{name[6:]}' does not match.")
    return facts, arrays


def read_kind(path: str | os.PathLike[str]) -> str | None:
    """What ``write_arrays`` called the file: its kind, read without its arrays; None where the file
    is somebody else's."""
    source = Path(path)
    if not source.is_file():
        refuse(f"{source} does not exist or is not a file.")
    try:
        if zipfile.is_zipfile(source):
            with np.load(source, allow_pickle=False) as archive:
                return str(archive["fact.rankbits"]) if "fact.rankbits" in archive else None
        with safe_open(source, framework="numpy") as archive:
            return (archive.metadata() or {}).get("rankbits")
    except Exception:  # what parsers raise on hostile bytes has no end
        return None


def _checksums(arrays: dict[str, np.ndarray]) -> dict[str, str]:
    return {f"crc32.{name}": f"{_crc(a):08x}" for name, a in arrays.items()}


def _crc(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B")) if array.size else 0


def _read_npz(source: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    with open(source, "rb") as file, np.load(file, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive.files}
    facts = {n[5:]: str(found.pop(n)) for n in list(found) if n.startswith("fact.")}
    return facts, found


def _read_safetensors(source: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    try:
        with safe_open(source, framework="numpy") as archive:
            facts = dict(archive.metadata() or {})
            return facts, {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError) as error:
        raise ValueError(str(error)) from error
