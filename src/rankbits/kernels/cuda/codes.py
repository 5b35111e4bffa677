"""Hamming search in Triton: the nearest k, or all within a radius.

The k nearest are those of a question whose weights are all 1 or -1. For a radius, a program holds a
few queries and walks a stretch of the database. The first walk counts what lies within; the second
writes it in order of rows, to places that follow from the counts of each stretch.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.counting import (
    AT_ONCE,
    COLUMNS,
    count_classes,
    count_differing,
    count_grades,
    count_parts,
    count_shared,
    move_both,
    move_words,
)
from rankbits.kernels.cuda.nearest import DeviceQuestions, find_nearest, spread_bits

__all__ = [
    "count_classes",
    "count_grades",
    "count_shared",
    "hamming",
    "hamming_topk",
    "hamming_within",
    "move_words",
]


@triton.jit
def _write_kernel(
    queries, words, places, ids, distances, radius, rows, columns, stretch, W,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the rows within the radius, from the place of this query and stretch on."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    first = part * stretch
    last = tl.minimum(first + stretch, columns)
    place = tl.load(places + part * rows + row)
    one = row + tl.arange(0, 1)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        d = count_differing(queries, words, one, column, rows, columns, W, 1, COLUMNS)
        d = tl.reshape(d, (COLUMNS,))
        within = (column < last) & (d <= radius)
        to = place + tl.cumsum(within.to(tl.int32), 0) - 1
        tl.store(ids + to, column, mask=within)
        tl.store(distances + to, d, mask=within)
        place += tl.sum(within.to(tl.int32), 0)


def hamming_topk(left, right, k, bits):  # type: ignore[no-untyped-def]
    queries, words = move_both(left, right)
    weights = 2 * spread_bits(queries.T.contiguous())[: len(queries)] - 1
    positive = weights.clamp(min=0).sum(1, dtype=torch.int32)
    ids, distances = find_nearest(DeviceQuestions(weights, positive), words, k)
    return ids, distances.astype(np.int32)


def hamming_within(left, right, radius, bits):  # type: ignore[no-untyped-def]
    queries, words = move_both(left, right)
    offsets, every, far = [np.zeros(1, np.int64)], [], []
    for s in range(0, len(left), AT_ONCE):
        part = queries[s : s + AT_ONCE].contiguous()
        partial, stretch = count_parts(part, words, bits + 1)
        counts = partial[..., : radius + 1].sum(2, dtype=torch.int64)
        ends = counts.sum(0).cumsum(0)
        places = ends - counts.sum(0) + counts.cumsum(0) - counts
        ids = torch.empty(int(ends[-1]), dtype=torch.int64, device=words.device)
        distances = torch.empty(len(ids), dtype=torch.int32, device=words.device)
        _write_kernel[(len(part), len(partial))](
            part, words, places, ids, distances, radius, len(part), words.shape[1], stretch,
            words.shape[0], COLUMNS=COLUMNS,
        )  # fmt: skip
        owner = torch.repeat_interleave(counts.sum(0))
        order = (owner * (bits + 1) + distances).sort(stable=True).indices
        offsets.append(ends.cpu().numpy() + offsets[-1][-1])
        every.append(ids[order].cpu().numpy())
        far.append(distances[order].cpu().numpy())
    return np.concatenate(offsets), np.concatenate(every), np.concatenate(far)


def hamming(left, right, out):  # type: ignore[no-untyped-def]
    """All distances, byte by byte from a table of popcounts."""
    queries, words = move_both(left, right)
    step = max(1, (1 << 26) // words.shape[1])
    table = torch.tensor([bin(i).count("1") for i in range(256)], device=words.device)
    table = table.to(torch.int32)
    for s in range(0, len(left), step):
        part = queries[s : s + step]
        total = torch.zeros((len(part), words.shape[1]), dtype=torch.int32, device=words.device)
        for w in range(words.shape[0]):
            differing = part[:, w, None] ^ words[w]
            for shift in (0, 8, 16, 24):
                total += table[(differing >> shift) & 255]
        out[s : s + step] = total.cpu().numpy()
