"""Connections to Milvus, and to milvus-lite: a Milvus in one file, for one process at a time."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits.indexes.engines.opening import first_line, import_package

_open: set[str] = set()
_opening = threading.Lock()


def connect(place: str, file: Path | None, mode: str, seconds: float) -> Any:
    """A client of the server at ``place`` or of ``file``; ``release`` closes it."""
    milvus = call_quietly(lambda: import_package("pymilvus", "Milvus", "milvus"))
    with _opening:
        if file is not None:
            _check_file(file, mode)
        try:
            client = call_quietly(lambda: milvus.MilvusClient(place, timeout=seconds))
        except (milvus.MilvusException, RuntimeError) as error:
            if "Open local" in str(error):
                _check.refuse(
                    f"{file} is open in another process or is not a milvus-lite file: one process "
                    "has it at a time."
                )
            _check.refuse(f"Milvus cannot be reached: {first_line(error)}.")
        if file is not None:
            _open.add(str(file.resolve()))
    return client


def _check_file(file: Path, mode: str) -> None:
    call_quietly(lambda: import_package("milvus_lite", "A Milvus file", "milvus"))
    if not file.parent.is_dir():
        _check.refuse(f"Cannot write {file}: the folder {file.parent} does not exist.")
    if mode == "r" and not file.is_file():
        _check.refuse(f"{file} does not exist or is not a file.")
    if str(file.resolve()) in _open:
        _check.refuse(f"{file} is open already: a process can open a file once.")


def release(client: Any, file: Path | None) -> None:
    """Close the client, and end milvus-lite's own process, which would keep the file open."""
    client.close()
    if file is not None:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(str(file))
        _open.discard(str(file.resolve()))


def call_quietly(call: Callable[[], Any]) -> Any:
    """Call a function of pymilvus without its noise: it warns of its own use of pkg_resources, and
    logs a traceback for each error that we turn into a sentence."""
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()
