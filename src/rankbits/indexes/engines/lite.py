"""milvus-lite: a Milvus in one file, had by one process at a time, and loud if let."""

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
    """A client of the server at ``place``, or of the file; let go of it by ``release``."""
    milvus = quietly(lambda: import_package("pymilvus", "Milvus", "milvus"))
    with _opening:
        if file is not None:
            _check_file(file, mode)
        try:
            client = quietly(lambda: milvus.MilvusClient(place, timeout=seconds))
        except (milvus.MilvusException, RuntimeError) as error:
            if "Open local" in str(error):
                _check.refuse(
                    f"{file} is open in another process, or is no milvus-lite file: one process "
                    "has it at a time."
                )
            _check.refuse(f"Milvus cannot be reached: {first_line(error)}.")
        if file is not None:
            _open.add(str(file.resolve()))
    return client


def _check_file(file: Path, mode: str) -> None:
    quietly(lambda: import_package("milvus_lite", "A Milvus file", "milvus"))
    if not file.parent.is_dir():
        _check.refuse(f"Cannot write {file}: the folder {file.parent} does not exist.")
    if mode == "r" and not file.is_file():
        _check.refuse(f"{file} does not exist or is not a file.")
    if str(file.resolve()) in _open:
        _check.refuse(f"{file} is open already: one index a file in one process.")


def release(client: Any, file: Path | None) -> None:
    """Closing a client leaves milvus-lite's own process running, and the file with it."""
    client.close()
    if file is not None:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(str(file))
        _open.discard(str(file.resolve()))


def quietly(call: Callable[[], Any]) -> Any:
    """It warns of its own use of pkg_resources and logs tracebacks of what we say in words."""
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()
