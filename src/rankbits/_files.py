"""Write files whole or not at all, and read them back as data, never as code; and say where
downloaded and computed data lie."""

from __future__ import annotations

import glob
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as safetensors_bytes

from rankbits._check import refuse

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ROOT = "RANKBITS_DATA"
UNFINISHED = "rankbits-unfinished"  # the ending of a file that is still being written
SUM = ", crc32 of facts "  # separates the kind of a file from the checksum of its facts
MOST_RATIO = 20  # how many times its own size an .npz may unpack to: we do not compress


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of published datasets, weights and caches: ``root``, or the environment variable
    RANKBITS_DATA, or ``~/.cache/rankbits/data``.

    >>> data_root("here").name
    'here'
    """
    chosen = root if root is not None else os.environ.get(ROOT)
    return Path(chosen) if chosen else Path.home() / ".cache" / "rankbits" / "data"


def write_whole(
    path: str | os.PathLike[str], write: Callable[[IO[bytes]], object], *, replace: bool = True
) -> None:
    """Call ``write(file)`` on a temporary neighbour of ``path``, then put it in place in one step.

    A crash, a kill or a full disk leaves whatever stood at ``path`` before, and no temporary file
    unless the process itself was killed (``sweep_unfinished`` deletes those). Where ``path`` is a
    symbolic link, the file that it names is written and the link stays. With ``replace=False`` an
    existing file stays, even one that another process has made in the meantime.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        refuse(f"Cannot write {path}: the folder {target.parent} does not exist.")
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(f".{UNFINISHED}", f".{target.name}.", target.parent)
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_read_umask())
        os.replace(temporary, target) if replace else _link(temporary, target)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            refuse_write(path, error)
        raise
    try:
        sync_folder(target.parent)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        refuse(
            f"Cannot tell whether {path} is safely on the disk: {reason}; "
            "it is whole, the old or the new."
        )


def refuse_write(path: str | os.PathLike[str], error: OSError) -> NoReturn:
    reason = os.strerror(error.errno) if error.errno else str(error)
    refuse(f"Cannot write {path}: {reason}; what was there before is whole.")


def _link(temporary: str, target: Path) -> None:
    """Give the file its name unless another file has it."""
    try:
        os.link(temporary, target)
    except OSError:
        if not target.exists():  # a file system without links
            os.rename(temporary, target)
            return
    with suppress(FileNotFoundError):  # the process that was quicker may have swept it
        os.unlink(temporary)


def sweep_unfinished(folder: str | os.PathLike[str], name: str | None = None) -> None:
    """Delete what killed processes left unfinished in ``folder``: versions of the file ``name``, or
    of any file. Call it only where no other process can be writing there."""
    start = "*" if name is None else glob.escape(name)
    for stale in Path(folder).glob(f".{start}.????????.{UNFINISHED}"):
        with suppress(OSError):
            stale.unlink()


@contextmanager
def lock_folder(folder: str | os.PathLike[str], *, wait: bool = True) -> Iterator[None]:
    """Let one process at a time in, where the system has locks; others wait, or are refused. The
    lock is on the folder, because each write replaces the file. It ends with the process."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems have no locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                refuse(f"Another process is writing to {folder}: wait for it, or end it.")
        yield
    finally:
        os.close(handle)


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_files(folder: Path) -> None:
    """Have all files below a folder, and the folders, on the disk."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def write_arrays(
    path: str | os.PathLike[str],
    kind: str,
    facts: dict[str, str],
    arrays: dict[str, np.ndarray],
    form: str | None = None,
) -> None:
    """Write arrays and a few facts as ``.npz`` or ``.safetensors``: ``form``, or the path's end."""
    suffix = form or Path(path).suffix
    facts = {**facts, **_sum_arrays(arrays)}
    marked = {"rankbits": f"{kind}{SUM}{_sum_facts(facts, arrays)}", **facts}
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
    """Read facts and arrays that ``write_arrays`` wrote; checks their checksums, unpickles
    nothing."""
    source = Path(path)
    if not source.is_file():
        refuse(f"{source} does not exist or is not a file.")
    with open(source, "rb") as file:
        zipped = file.read(2) == b"PK"
    try:
        facts, arrays = _read_npz(source) if zipped else _read_safetensors(source)
    except Exception:  # parsers raise all kinds of errors on hostile bytes
        refuse(f"{source} is truncated, damaged or not a rankbits {kind} file.")
    named, _, wanted = facts.pop("rankbits", "").partition(SUM)
    if named != kind:
        refuse(f"{source} is not a rankbits {kind} file.")
    if wanted and wanted != _sum_facts(facts, arrays):  # older files have no checksum of facts
        refuse(f"{source} is damaged: the checksum of its facts does not match.")
    for name, wanted in _sum_arrays(arrays).items():
        if facts.pop(name, None) != wanted:
            refuse(f"{source} is damaged: the checksum of '{name[6:]}' does not match.")
    return facts, arrays


def read_kind(path: str | os.PathLike[str]) -> str | None:
    """The kind that ``write_arrays`` gave the file, read without its arrays; None where it did not
    write the file."""
    source = Path(path)
    if not source.is_file():
        refuse(f"{source} does not exist or is not a file.")
    try:
        if zipfile.is_zipfile(source):
            with np.load(source, allow_pickle=False) as archive:
                kind = str(archive["fact.rankbits"]) if "fact.rankbits" in archive else None
        else:
            with safe_open(source, framework="numpy") as archive:
                kind = (archive.metadata() or {}).get("rankbits")
    except Exception:  # parsers raise all kinds of errors on hostile bytes
        return None
    return None if kind is None else kind.partition(SUM)[0]


def _sum_arrays(arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """A checksum of each array, under the name that it has among the facts."""
    return {f"crc32.{name}": f"{_sum_array(a):08x}" for name, a in arrays.items()}


def _sum_array(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B")) if array.size else 0


def _sum_facts(facts: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    """A checksum of all facts, and of the names, dtypes and shapes of the arrays."""
    shapes = {name: [array.dtype.str, *array.shape] for name, array in arrays.items()}
    return f"{zlib.crc32(json.dumps([facts, shapes], sort_keys=True).encode()):08x}"


def _read_npz(source: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    with zipfile.ZipFile(source) as members:
        if (
            sum(member.file_size for member in members.infolist())
            > MOST_RATIO * source.stat().st_size
        ):
            raise ValueError("more than a file of this size can hold")
    with open(source, "rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    facts = {n[5:]: str(arrays.pop(n)) for n in list(arrays) if n.startswith("fact.")}
    return facts, arrays


def _read_safetensors(source: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    try:
        with safe_open(source, framework="numpy") as archive:
            facts = dict(archive.metadata() or {})
            return facts, {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError) as error:
        raise ValueError(str(error)) from error
