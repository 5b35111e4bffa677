"""Rows of embeddings for quantizers: check, sample, and split into chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rankbits import _check

CHUNK = 1 << 20  # numbers in a chunk: few enough to stay in the cache until they are packed
SMALL = ("int8", "uint8")  # quantized embeddings, as services sell them


def check_embeddings(name: str, value: Any, dim: int | None = None) -> Any:
    """Check (n, dim) floats, int8 or uint8 and return them as they are: an array, perhaps mapped,
    or a tensor on any device. If ``dim`` is given, one row (dim,) is taken as (1, dim).
    """
    if hasattr(value, "tocsr") or getattr(value, "is_sparse", False):
        _check.refuse(f"{name} must be a dense array, not a sparse one (toarray makes it dense).")
    if not isinstance(value, torch.Tensor):
        value = _check.array(name, value)
        floats = value.dtype.kind == "f"
    else:
        floats = value.is_floating_point()
    if dim is not None and value.ndim == 1:
        value = value[None]
    if value.ndim != 2:
        _check.refuse(f"{name} must have two dimensions (n, dim); got shape {tuple(value.shape)}.")
    if not floats and str(value.dtype).removeprefix("torch.") not in SMALL:
        _check.refuse(f"{name} must be floats, int8 or uint8; got {value.dtype}.")
    if dim is not None and value.shape[1] != dim:
        _check.refuse(f"{name} must have dim {dim}, as in fit; got {value.shape[1]}.")
    if value.shape[1] == 0:
        _check.refuse(f"{name} must have at least one column; got shape {tuple(value.shape)}.")
    return value


def to_tensor(rows: Any) -> torch.Tensor:
    """Float32 (float64 stays) on the device the rows are on."""
    if not isinstance(rows, torch.Tensor):
        rows = np.asarray(rows)
        rows = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)
        rows = torch.from_numpy(rows if rows.flags.writeable else rows.copy())
    rows = rows.detach()
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def split_chunks(value: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield (start, rows), a few rows at a time."""
    size = max(1, CHUNK // value.shape[1])
    for start in range(0, len(value), size):
        yield start, to_tensor(value[start : start + size])


def sample(value: Any, most: int, seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """Draw at most ``most`` rows, in their order, and the numbers of the drawn rows."""
    if len(value) <= most:
        return to_tensor(value), np.arange(len(value))
    chosen = np.sort(np.random.default_rng(seed).choice(len(value), most, replace=False))
    index = torch.from_numpy(chosen) if isinstance(value, torch.Tensor) else chosen
    return to_tensor(value[index]), chosen


def check_finite(name: str, rows: torch.Tensor, start: int = 0) -> None:
    """Refuse nan and inf; ``start`` is the number of the first row."""
    if not torch.isfinite(rows).all():
        bad = start + int(torch.isfinite(rows).all(dim=1).int().argmin())
        _check.refuse(f"{name} must be finite; row {bad} has nan or inf.")


def scale_to_sphere(name: str, rows: torch.Tensor) -> torch.Tensor:
    """Scale rows to norm sqrt(dim), that of +-1 codes; refuse a row of zeros."""
    check_finite(name, rows)
    norm = rows.norm(dim=1, keepdim=True)
    if len(rows) and not bool((norm > 0).all()):
        zero = int(norm.squeeze(1).argmin())
        _check.refuse(f"{name} must have no row of zeros; row {zero} is one.")
    return rows * (rows.shape[1] ** 0.5 / norm)


def check_enough_rows(name: str, value: Any, bits: int) -> None:
    if len(value) < bits:
        _check.refuse(f"{name} must have at least as many rows as bits, {bits}; got {len(value)}.")


def refuse_constant_columns(name: str, rows: torch.Tensor) -> None:
    same = (rows == rows[:1]).all(dim=0)
    if len(rows) > 1 and bool(same.any()):
        _check.refuse(
            f"{name} must not have constant columns, whose bit would say nothing; column "
            f"{int(same.int().argmax())} is one (Projection leaves them out)."
        )
