"""Rows of embeddings as quantizers take them: checked, sampled, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rankbits import _check

CHUNK = 1 << 20  # numbers of one chunk: it stays in cache from the product to the packing


SMALL = ("int8", "uint8")  # what services sell as quantized embeddings


def embeddings(name: str, value: Any, dim: int | None = None) -> Any:
    """(n, dim) floats, int8 or uint8, as they came: an array, maybe memory-mapped, or a tensor on
    any device. Where ``dim`` is known, one row (dim,) is taken as (1, dim).
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
        _check.refuse(f"{name} must have dim {dim}, as what was fitted; got {value.shape[1]}.")
    if value.shape[1] == 0:
        _check.refuse(f"{name} must have at least one column; got shape {tuple(value.shape)}.")
    return value


def tensor(rows: Any) -> torch.Tensor:
    """Float32 (float64 stays) on the device the rows are on."""
    if not isinstance(rows, torch.Tensor):
        rows = np.asarray(rows)
        rows = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)
        rows = torch.from_numpy(rows if rows.flags.writeable else rows.copy())
    rows = rows.detach()
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def chunks(value: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """(start, rows) for a few rows at a time."""
    size = max(1, CHUNK // value.shape[1])
    for start in range(0, len(value), size):
        yield start, tensor(value[start : start + size])


def sample(value: Any, most: int, seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """At most ``most`` rows, and which: all, or a draw, in the order of the file."""
    if len(value) <= most:
        return tensor(value), np.arange(len(value))
    chosen = np.sort(np.random.default_rng(seed).choice(len(value), most, replace=False))
    index = torch.from_numpy(chosen) if isinstance(value, torch.Tensor) else chosen
    return tensor(value[index]), chosen


def finite(name: str, rows: torch.Tensor) -> None:
    if not torch.isfinite(rows).all():
        bad = int(torch.isfinite(rows).all(dim=1).int().argmin())
        _check.refuse(f"{name} must be finite; row {bad} has nan or inf.")


def on_sphere(name: str, rows: torch.Tensor) -> torch.Tensor:
    """Rows scaled to norm sqrt(dim), the sphere that holds the codes; a row of zeros is refused."""
    finite(name, rows)
    norm = rows.norm(dim=1, keepdim=True)
    if len(rows) and not bool((norm > 0).all()):
        zero = int(norm.squeeze(1).argmin())
        _check.refuse(f"{name} must have no row of zeros; row {zero} is one.")
    return rows * (rows.shape[1] ** 0.5 / norm)


def enough_rows(name: str, value: Any, bits: int) -> None:
    if len(value) < bits:
        _check.refuse(f"{name} must have at least as many rows as bits, {bits}; got {len(value)}.")


def no_constant_column(name: str, rows: torch.Tensor) -> None:
    same = (rows == rows[:1]).all(dim=0)
    if len(rows) > 1 and bool(same.any()):
        _check.refuse(
            f"{name} must not have constant columns, whose bit would say nothing; column "
            f"{int(same.int().argmax())} is one (Projection leaves them out)."
        )
