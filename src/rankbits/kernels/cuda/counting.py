"""Counts of Hamming distances in Triton.

A program holds a few queries and walks a stretch of the database. It counts distances in a
histogram of its own for each query, so that no two programs share a counter and the result does not
depend on their order.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

QUERIES = 4  # queries a program holds together: each word it loads serves all of them
COLUMNS = 512  # rows of the database that it compares together
PROGRAMS = 2048  # enough to keep every multiprocessor busy
AT_ONCE = 4096  # queries whose histograms are in memory at a time


@triton.jit
def count_differing(queries, words, row, column, rows, columns, W, QUERIES: tl.constexpr,
               COLUMNS: tl.constexpr):  # fmt: skip
    """Hamming distances int32 (QUERIES, COLUMNS)."""
    total = tl.zeros((QUERIES, COLUMNS), tl.int32)
    for w in range(W):
        theirs = tl.load(words + w * columns + column, mask=column < columns, other=0)
        ours = tl.load(queries + row * W + w, mask=row < rows, other=0)
        total += libdevice.popc(ours[:, None] ^ theirs[None, :])
    return total


@triton.jit
def _count_common(query_sets, sets, row, column, rows, columns, L, most, QUERIES: tl.constexpr,
            COLUMNS: tl.constexpr):  # fmt: skip
    """The number of common labels, at most ``most``."""
    total = tl.zeros((QUERIES, COLUMNS), tl.int32)
    for w in range(L):
        theirs = tl.load(sets + w * columns + column, mask=column < columns, other=0)
        ours = tl.load(query_sets + row * L + w, mask=row < rows, other=0)
        total += libdevice.popc(ours[:, None] & theirs[None, :])
    return tl.minimum(total, most)


@triton.jit
def _count_kernel(
    queries, words, mine, theirs, partial, rows, columns, stretch, W, L, most,
    KIND: tl.constexpr, BINS: tl.constexpr, QUERIES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Count items by (stretch, query, distance x grades + grade); the last bin counts columns past
    the end."""
    slot = tl.arange(0, QUERIES)
    row = tl.program_id(0).to(tl.int64) * QUERIES + slot
    first = tl.program_id(1).to(tl.int64) * stretch
    last = tl.minimum(first + stretch, columns)
    total = tl.zeros((QUERIES * BINS,), tl.int32)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        key = count_differing(queries, words, row, column, rows, columns, W, QUERIES, COLUMNS)
        if KIND == 1:
            own = tl.load(mine + row, mask=row < rows, other=0)
            other = tl.load(theirs + column, mask=column < columns, other=0)
            key = key * 2 + (own[:, None] == other[None, :]).to(tl.int32)
        if KIND == 2:
            key = key * (most + 1) + _count_common(
                mine, theirs, row, column, rows, columns, L, most, QUERIES, COLUMNS
            )
        if KIND == 3:
            at = row[:, None] * columns + column[None, :]
            inside = (row < rows)[:, None] & (column < columns)[None, :]
            key = key * (most + 1) + tl.load(theirs + at, mask=inside, other=0).to(tl.int32)
        key = tl.where((column < last)[None, :], key, BINS - 1) + slot[:, None] * BINS
        total += tl.histogram(tl.reshape(key, (QUERIES * COLUMNS,)), QUERIES * BINS)
    at = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * QUERIES * BINS
    tl.store(partial + at + tl.arange(0, QUERIES * BINS), total)


def move_words(
    words: torch.Tensor | np.ndarray, device: str | torch.device = "cuda"
) -> torch.Tensor:
    """Move words (W, n) uint64 to a device, as int32 (2 W, n); a tensor stays where it is."""
    if isinstance(words, torch.Tensor):
        return words
    halves = np.ascontiguousarray(words).view(np.uint32).reshape(*words.shape, 2)
    moved = torch.from_numpy(halves.view(np.int32).copy()).to(device)
    return moved.permute(0, 2, 1).reshape(2 * words.shape[0], words.shape[1]).contiguous()


def move_both(
    left: np.ndarray, right: torch.Tensor | np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Query words (Q, 2 W) and database words (2 W, n), int32 on one device."""
    database = move_words(right)
    halves = np.ascontiguousarray(left).view(np.int32).reshape(len(left), -1)
    return torch.from_numpy(halves.copy()).to(database.device), database


def count_parts(
    queries: torch.Tensor, words: torch.Tensor, keys: int, kind: int = 0, most: int = 1,
    mine: torch.Tensor | None = None, theirs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, int]:  # fmt: skip
    """(stretches, Q, keys) int32 counts, and the rows in a stretch."""
    rows, columns = len(queries), words.shape[1]
    bins = triton.next_power_of_2(keys + 1)
    together = QUERIES if QUERIES * bins <= 4096 else 1
    groups = triton.cdiv(rows, together)
    parts = max(1, min(triton.cdiv(columns, COLUMNS), triton.cdiv(PROGRAMS, groups)))
    stretch = triton.cdiv(triton.cdiv(columns, parts), COLUMNS) * COLUMNS
    parts = triton.cdiv(columns, stretch)
    out = torch.empty((parts, groups * together, bins), dtype=torch.int32, device=words.device)
    length = mine.shape[1] if kind == 2 and mine is not None else 0
    _count_kernel[(groups, parts)](
        queries, words, queries if mine is None else mine, words if theirs is None else theirs,
        out, rows, columns, stretch, words.shape[0], length, most,
        KIND=kind, BINS=bins, QUERIES=together, COLUMNS=COLUMNS,
    )  # fmt: skip
    return out[:, :rows, :keys], stretch


def _count(left, right, bits, kind, most, mine, theirs):  # type: ignore[no-untyped-def]
    queries, words = move_both(left, right)
    grades = most + 1
    out = np.empty((len(left), bits + 1, grades), np.int64)
    for s in range(0, len(left), AT_ONCE):
        part = slice(s, s + AT_ONCE)
        own = None if mine is None else mine[part].contiguous()
        grade_rows = theirs[part].contiguous() if kind == 3 else theirs
        partial, _ = count_parts(
            queries[part].contiguous(), words, (bits + 1) * grades, kind, most, own, grade_rows
        )
        out[part] = partial.sum(0, dtype=torch.int64).view(-1, bits + 1, grades).cpu().numpy()
    return out


def count_classes(left, right, query_labels, database_labels, bits):  # type: ignore[no-untyped-def]
    words = move_words(right)
    mine, theirs = (
        torch.from_numpy(np.array(x)).to(words.device) for x in (query_labels, database_labels)
    )
    return _count(left, words, bits, 1, 1, mine, theirs)


def count_shared(left, right, query_sets, database_sets, bits, most):  # type: ignore[no-untyped-def]
    words = move_words(right)
    mine, theirs = move_both(query_sets, move_words(database_sets, words.device))
    return _count(left, words, bits, 2, most, mine, theirs)


def count_grades(left, right, grades, bits, most):  # type: ignore[no-untyped-def]
    words = move_words(right)
    theirs = torch.from_numpy(np.array(grades)).to(words.device)
    return _count(left, words, bits, 3, most, None, theirs)
