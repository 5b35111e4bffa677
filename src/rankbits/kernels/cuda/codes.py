"""Hamming distances in Triton: counted, the nearest k, or within a radius.

A program holds a few queries and walks a stretch of the database. Counting gives each distance its
place in a histogram in shared memory, one for each query, so that no two programs touch one
counter and nothing depends on their order. The k nearest need no heap: the histogram of a sample
bounds the k-th distance, and one walk catches the few rows within the bound, which are then sorted.
Where too many are within it, the histogram of all rows says at which distance the k-th stands, and
a second walk writes down what lies before it, and of the tie at it as many as fit, in order of
rows: what each stretch will write is known from its own histogram.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

QUERIES = 4  # queries a program holds together: each word it loads serves all of them
COLUMNS = 512  # rows of the database it looks at together
PROGRAMS = 2048  # enough to keep every multiprocessor busy
NEAR_QUERIES = 8  # the same where nothing is counted
SAMPLE = 1 << 14  # rows that give the first bound on the k-th distance
END = (1 << 63) - 1  # past every (distance << 40 | row)
AT_ONCE = 4096  # queries whose histograms are in memory at a time


@triton.jit
def _distances(queries, words, row, column, rows, columns, W, QUERIES: tl.constexpr,
               COLUMNS: tl.constexpr):  # fmt: skip
    """int32 (QUERIES, COLUMNS)."""
    found = tl.zeros((QUERIES, COLUMNS), tl.int32)
    for w in range(W):
        theirs = tl.load(words + w * columns + column, mask=column < columns, other=0)
        ours = tl.load(queries + row * W + w, mask=row < rows, other=0)
        found += libdevice.popc(ours[:, None] ^ theirs[None, :])
    return found


@triton.jit
def _shared(query_sets, sets, row, column, rows, columns, L, most, QUERIES: tl.constexpr,
            COLUMNS: tl.constexpr):  # fmt: skip
    """Labels in common, at most ``most``."""
    found = tl.zeros((QUERIES, COLUMNS), tl.int32)
    for w in range(L):
        theirs = tl.load(sets + w * columns + column, mask=column < columns, other=0)
        ours = tl.load(query_sets + row * L + w, mask=row < rows, other=0)
        found += libdevice.popc(ours[:, None] & theirs[None, :])
    return tl.minimum(found, most)


@triton.jit
def _count_kernel(
    queries, words, mine, theirs, partial, rows, columns, stretch, W, L, most,
    KIND: tl.constexpr, BINS: tl.constexpr, QUERIES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Items by (stretch, query, distance x grades + grade); the last bin is for none."""
    slot = tl.arange(0, QUERIES)
    row = tl.program_id(0).to(tl.int64) * QUERIES + slot
    first = tl.program_id(1).to(tl.int64) * stretch
    last = tl.minimum(first + stretch, columns)
    total = tl.zeros((QUERIES * BINS,), tl.int32)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        key = _distances(queries, words, row, column, rows, columns, W, QUERIES, COLUMNS)
        if KIND == 1:
            own = tl.load(mine + row, mask=row < rows, other=0)
            other = tl.load(theirs + column, mask=column < columns, other=0)
            key = key * 2 + (own[:, None] == other[None, :]).to(tl.int32)
        if KIND == 2:
            key = key * (most + 1) + _shared(
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
        d = _distances(queries, words, one, column, rows, columns, W, 1, COLUMNS)
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
        d = _distances(queries, words, row, column, rows, columns, W, QUERIES, COLUMNS)
        hit = (d <= limit[:, None]) & (column < last)[None, :]
        if tl.max(tl.max(hit.to(tl.int32), 1), 0) > 0:
            to = tl.atomic_add(count + row[:, None] + tl.zeros_like(d), 1, mask=hit)
            key = (d.to(tl.int64) << 40) | column.to(tl.int64)[None, :]
            tl.store(caught + row[:, None] * room + to, key, mask=hit & (to < room))


def on_device(words: np.ndarray, device: str | torch.device = "cuda") -> torch.Tensor:
    """Words (W, n) uint64 as int32 (2 W, n) on a device."""
    halves = np.ascontiguousarray(words).view(np.uint32).reshape(*words.shape, 2)
    moved = torch.from_numpy(halves.view(np.int32).copy()).to(device)
    return moved.permute(0, 2, 1).reshape(2 * words.shape[0], words.shape[1]).contiguous()


def _both(left: np.ndarray, right: torch.Tensor | np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Query words (Q, 2 W) and database words (2 W, n), int32 on one device."""
    database = right if isinstance(right, torch.Tensor) else on_device(right)
    halves = np.ascontiguousarray(left).view(np.int32).reshape(len(left), -1)
    return torch.from_numpy(halves.copy()).to(database.device), database


def _partial(
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


def _counts(left, right, bits, kind, most, mine=None, theirs=None):  # type: ignore[no-untyped-def]
    queries, words = _both(left, right)
    grades = 1 if kind == 0 else most + 1
    out = np.empty((len(left), bits + 1, grades), np.int64)
    for s in range(0, len(left), AT_ONCE):
        part = slice(s, s + AT_ONCE)
        own = None if mine is None else mine[part].contiguous()
        grade_rows = theirs[part].contiguous() if kind == 3 else theirs
        found, _ = _partial(
            queries[part].contiguous(), words, (bits + 1) * grades, kind, most, own, grade_rows
        )
        out[part] = found.sum(0, dtype=torch.int64).view(-1, bits + 1, grades).cpu().numpy()
    return out


def count_classes(left, right, query_labels, database_labels, bits):  # type: ignore[no-untyped-def]
    device = right.device if isinstance(right, torch.Tensor) else "cuda"
    mine, theirs = (
        torch.from_numpy(np.array(x)).to(device) for x in (query_labels, database_labels)
    )
    return _counts(left, right, bits, 1, 1, mine, theirs)


def count_shared(left, right, query_sets, database_sets, bits, most):  # type: ignore[no-untyped-def]
    theirs = on_device(database_sets, right.device if isinstance(right, torch.Tensor) else "cuda")
    mine, _ = _both(query_sets, theirs)
    return _counts(left, right, bits, 2, most, mine, theirs)


def count_grades(left, right, grades, bits, most):  # type: ignore[no-untyped-def]
    device = right.device if isinstance(right, torch.Tensor) else "cuda"
    return _counts(left, right, bits, 3, most, None, torch.from_numpy(np.array(grades)).to(device))


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
    partial, stretch = _partial(queries, words, bits + 1)
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
    partial, _ = _partial(queries, words[:, :sample].contiguous(), bits + 1)
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
    queries, words = _both(left, right)
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
    queries, words = _both(left, right)
    offsets, every, far = [np.zeros(1, np.int64)], [], []
    for s in range(0, len(left), AT_ONCE):
        part = queries[s : s + AT_ONCE].contiguous()
        partial, stretch = _partial(part, words, bits + 1)
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
    queries, words = _both(left, right)
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
