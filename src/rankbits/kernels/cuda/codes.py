"""Hamming search in Triton: the nearest k, or all within a radius.

A program holds a few queries and walks a stretch of the database. The k nearest need no heap: the
histogram of a sample bounds the k-th distance, and one walk catches the few rows within the bound,
which are then sorted. Where too many are within it, the histogram of all rows says at which
distance the k-th stands, and a second walk writes down what lies before it, and of the tie at it as
many as fit, in order of rows: what each stretch will write is known from its own histogram.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.counting import (
    AT_ONCE,
    COLUMNS,
    PROGRAMS,
    both_on_device,
    count_classes,
    count_differing,
    count_grades,
    count_parts,
    count_shared,
    on_device,
)

__all__ = [
    "count_classes",
    "count_grades",
    "count_shared",
    "hamming",
    "hamming_topk",
    "hamming_within",
    "on_device",
]

NEAR_QUERIES = 8  # queries a program holds together where nothing is counted
SAMPLE = 1 << 14  # rows that give the first bound on the k-th distance
END = (1 << 63) - 1  # past every (distance << 40 | row)


@triton.jit
def _write_kernel(
    queries, words, bound, near, far, room, ids, distances, rows, columns, stretch, W,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Rows nearer than ``bound`` from place ``near`` on, rows at it from ``far`` on below
    ``room``."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    first = part * stretch
    last = tl.minimum(first + stretch, columns)
    limit = tl.load(bound + row)
    place = part * rows + row
    before, at_it, end = tl.load(near + place), tl.load(far + place), tl.load(room + row)
    one = row + tl.arange(0, 1)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        d = count_differing(queries, words, one, column, rows, columns, W, 1, COLUMNS)
        d = tl.reshape(d, (COLUMNS,))
        inside = column < last
        less = (inside & (d < limit)).to(tl.int32)
        same = (inside & (d == limit)).to(tl.int32)
        to = tl.where(less > 0, before + tl.cumsum(less, 0) - 1, at_it + tl.cumsum(same, 0) - 1)
        kept = (less > 0) | ((same > 0) & (to < end))
        tl.store(ids + to, column, mask=kept)
        tl.store(distances + to, d, mask=kept)
        before += tl.sum(less, 0)
        at_it += tl.sum(same, 0)


@triton.jit
def _catch_kernel(
    queries, words, bound, caught, count, rows, columns, stretch, W, room,
    QUERIES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Distance and row, as one number, of every row within the query's bound, in any order."""
    row = tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES)
    first = tl.program_id(1).to(tl.int64) * stretch
    last = tl.minimum(first + stretch, columns)
    limit = tl.load(bound + row, mask=row < rows, other=-1)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        d = count_differing(queries, words, row, column, rows, columns, W, QUERIES, COLUMNS)
        hit = (d <= limit[:, None]) & (column < last)[None, :]
        if tl.max(tl.max(hit.to(tl.int32), 1), 0) > 0:
            to = tl.atomic_add(count + row[:, None] + tl.zeros_like(d), 1, mask=hit)
            key = (d.to(tl.int64) << 40) | column.to(tl.int64)[None, :]
            tl.store(caught + row[:, None] * room + to, key, mask=hit & (to < room))


def _written(
    queries: torch.Tensor, words: torch.Tensor, partial: torch.Tensor, stretch: int,
    bound: torch.Tensor, tied: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Rows nearer than ``bound`` and ``tied`` of those at it, query after query: where each query
    starts (Q + 1,), ids and distances."""
    level = torch.arange(partial.shape[2], device=words.device)
    less = (partial * (level < bound[:, None])).sum(2, dtype=torch.int64)
    same = partial.gather(
        2, bound.clamp(max=partial.shape[2] - 1).expand(len(partial), -1)[..., None]
    )
    same = same[..., 0].to(torch.int64) * (bound < partial.shape[2])
    below = less.sum(0)
    starts = torch.nn.functional.pad((below + tied).cumsum(0), (1, 0))
    near = starts[:-1] + less.cumsum(0) - less
    far = starts[:-1] + below + same.cumsum(0) - same
    total = int(starts[-1])
    ids = torch.empty(total, dtype=torch.int64, device=words.device)
    distances = torch.empty(total, dtype=torch.int32, device=words.device)
    _write_kernel[(len(queries), len(partial))](
        queries, words, bound, near.contiguous(), far.contiguous(), starts[1:].contiguous(),
        ids, distances, len(queries), words.shape[1], stretch, words.shape[0], COLUMNS=COLUMNS,
    )  # fmt: skip
    return starts, ids, distances


def _exact(queries, words, k, bits):  # type: ignore[no-untyped-def]
    """ids and distances (Q, k) by counting the whole database, then writing down."""
    partial, stretch = count_parts(queries, words, bits + 1)
    total = partial.sum(0, dtype=torch.int64).cumsum(1)
    bound = (total < k).sum(1)  # the distance at which the k-th stands
    below = torch.where(bound > 0, total.gather(1, (bound - 1).clamp(min=0)[:, None])[:, 0], 0)
    _, ids, distances = _written(queries, words, partial, stretch, bound, k - below)
    # stretches wrote in order of rows: a stable sort leaves ties so
    distances, order = distances.view(-1, k).sort(dim=1, stable=True)
    return ids.view(-1, k).gather(1, order), distances


def _bounded(queries, words, k, bits, sample):  # type: ignore[no-untyped-def]
    """The same by a bound: the k-th distance among the first ``sample`` rows. Few rows are within
    it, and those are caught in any order and sorted; ``full`` says whose catch overflowed."""
    partial, _ = count_parts(queries, words[:, :sample].contiguous(), bits + 1)
    bound = (partial.sum(0, dtype=torch.int64).cumsum(1) < k).sum(1).to(torch.int32)
    rows, columns = len(queries), words.shape[1]
    room = _room(k)
    caught = torch.full((rows, room), END, dtype=torch.int64, device=words.device)
    count = torch.zeros(rows, dtype=torch.int32, device=words.device)
    groups = triton.cdiv(rows, NEAR_QUERIES)
    parts = max(1, min(triton.cdiv(columns, COLUMNS), triton.cdiv(PROGRAMS, groups)))
    stretch = triton.cdiv(triton.cdiv(columns, parts), COLUMNS) * COLUMNS
    _catch_kernel[(groups, triton.cdiv(columns, stretch))](
        queries, words, bound, caught, count, rows, columns, stretch, words.shape[0], room,
        QUERIES=NEAR_QUERIES, COLUMNS=COLUMNS,
    )  # fmt: skip
    most = int(count.max())
    found = caught[:, : max(k, min(most, room))].sort(dim=1).values[:, :k]
    return found & (END >> 23), (found >> 40).to(torch.int32), count > room


def _room(k: int) -> int:
    return max(1024, 4 * triton.next_power_of_2(k))


def hamming_topk(left, right, k, bits):  # type: ignore[no-untyped-def]
    queries, words = both_on_device(left, right)
    out = np.empty((len(left), k), np.int64), np.empty((len(left), k), np.int32)
    columns = words.shape[1]
    # a sample so large that four times what is expected within its bound has room
    sample = triton.cdiv(max(SAMPLE, 4 * k * columns // _room(k)), COLUMNS) * COLUMNS
    for s in range(0, len(left), AT_ONCE):
        part = queries[s : s + AT_ONCE].contiguous()
        if 2 * sample >= columns or columns >= 1 << 40:
            ids, distances = _exact(part, words, k, bits)
        else:
            ids, distances, full = _bounded(part, words, k, bits, sample)
            if bool(full.any()):
                again = full.nonzero()[:, 0]
                ids[again], distances[again] = _exact(part[again].contiguous(), words, k, bits)
        out[0][s : s + len(part)] = ids.cpu().numpy()
        out[1][s : s + len(part)] = distances.cpu().numpy()
    return out


def hamming_within(left, right, radius, bits):  # type: ignore[no-untyped-def]
    queries, words = both_on_device(left, right)
    offsets, every, far = [np.zeros(1, np.int64)], [], []
    for s in range(0, len(left), AT_ONCE):
        part = queries[s : s + AT_ONCE].contiguous()
        partial, stretch = count_parts(part, words, bits + 1)
        bound = torch.full((len(part),), radius + 1, device=words.device)
        starts, ids, distances = _written(
            part, words, partial, stretch, bound, torch.zeros_like(bound)
        )
        owner = torch.repeat_interleave(starts.diff())
        order = (owner * (bits + 1) + distances).sort(stable=True).indices
        offsets.append(starts[1:].cpu().numpy() + offsets[-1][-1])
        every.append(ids[order].cpu().numpy())
        far.append(distances[order].cpu().numpy())
    return np.concatenate(offsets), np.concatenate(every), np.concatenate(far)


def hamming(left, right, out):  # type: ignore[no-untyped-def]
    """All distances; a product of signs would do as well, but here bits stay bits."""
    queries, words = both_on_device(left, right)
    step = max(1, (1 << 26) // words.shape[1])
    table = torch.tensor([bin(i).count("1") for i in range(256)], device=words.device)
    table = table.to(torch.int32)
    for s in range(0, len(left), step):
        part = queries[s : s + step]
        found = torch.zeros((len(part), words.shape[1]), dtype=torch.int32, device=words.device)
        for w in range(words.shape[0]):
            differing = part[:, w, None] ^ words[w]
            for shift in (0, 8, 16, 24):
                found += table[(differing >> shift) & 255]
        out[s : s + step] = found.cpu().numpy()
