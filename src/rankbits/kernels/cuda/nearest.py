"""The nearest codes of whole weights in Triton: a product on tensor cores, then a few tiles.

With bits b of 0 and 1, the sum of |w| where signs differ is (the sum of positive w) - <w, b>. So a
search is a product of bytes: the bits of a stretch of codes are spread into bytes and multiplied,
and only the least distance of each tile of rows is written. The k tiles with the least distances,
the first among equal ones, hold the k nearest rows: each of these tiles has a row that comes before
any row outside. Their distances are then computed again, and sorted by (distance, row).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.launch import divide_up, use_device

TILE = 128  # rows of the database of which only the least distance is written
AT_ONCE = 4096  # questions searched together
STRETCH = 1 << 28  # bytes of bits spread at a time
CELLS = 1 << 26  # distances computed again at a time
SHAPE: dict[str, Any] = {"num_warps": 4, "num_stages": 2}


@triton.jit
def _spread_kernel(words, out, first, columns, W, TILE: tl.constexpr):
    """Write the bits of ``words`` int32 (W, columns) from column ``first`` on as bytes of 0 and 1
    in the order of codes, int8 (tiles x TILE, 32 W), four to an int32; 0 past the end."""
    column = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    w = tl.program_id(1).to(tl.int64)
    four = tl.arange(0, 8)
    packed = tl.load(words + w * columns + first + column, mask=first + column < columns, other=0)
    bits = (packed[:, None] >> ((four // 2 * 8) + 4 - (four % 2 * 4))[None, :]) & 15
    ones = ((bits * 0x08040201) >> 3) & 0x01010101  # the first of four bits goes to the first byte
    tl.store(out + column[:, None] * (8 * W) + w * 8 + four[None, :], ones)


@triton.jit
def _scale(far, slope, base, factor):
    return (slope * far.to(tl.float32) - base) * factor


@triton.jit
def _order(far, SCALED: tl.constexpr):
    """Distances as whole numbers of the same order."""
    if SCALED:
        far = tl.minimum(far, 3.4028234663852886e38) + 0.0  # one zero, not two
        whole = far.to(tl.int32, bitcast=True)
        far = whole ^ ((whole >> 31) & 0x7FFFFFFF)
    return far


@triton.jit
def _least_kernel(
    weights, positive, codes, slopes, bases, inverses, out, first, rows, columns, tiles, K,
    SCALED: tl.constexpr, QUESTIONS: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write (least order << 32 | tile) for each tile of a stretch that starts at row ``first``,
    int64 (rows, tiles). ``weights`` int8 (padded rows, K), ``codes`` int8 (tiles x TILE, K)."""
    row = tl.program_id(0).to(tl.int64) * QUESTIONS + tl.arange(0, QUESTIONS)
    tile = tl.program_id(1).to(tl.int64)
    column = tile * TILE + tl.arange(0, TILE)
    at = tl.arange(0, STEP)
    left = weights + row[:, None] * K + at[None, :]
    right = codes + column[None, :] * K + at[:, None]
    product = tl.zeros((QUESTIONS, TILE), tl.int32)
    for _ in range(0, K, STEP):
        product = tl.dot(tl.load(left), tl.load(right), product, out_dtype=tl.int32)
        left += STEP
        right += STEP
    mine, inside = row < rows, (first + column < columns)[None, :]
    top = tl.load(positive + row, mask=mine, other=0)
    if SCALED:
        slope = tl.load(slopes + row, mask=mine, other=0.0)[:, None]
        base = tl.load(bases + row, mask=mine, other=0.0)[:, None]
        factor = tl.load(inverses + first + column, mask=first + column < columns, other=0.0)
        far = _scale(top[:, None] - product, slope, base, factor[None, :])
        least = tl.min(tl.where(inside, far, float("inf")), 1)
    else:
        least = top - tl.max(tl.where(inside, product, -(1 << 31)), 1)
    key = (_order(least, SCALED).to(tl.int64) << 32) | (first // TILE + tile)
    tl.store(out + row * tiles + tile, key, mask=mine)


@triton.jit
def _open_kernel(
    weights, positive, words, slopes, bases, inverses, chosen, out, columns, number, W,
    SCALED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write (order << 32 | place) for the rows of ``chosen`` tiles (rows, number), int64 (rows,
    number x TILE); the largest int64 past the end."""
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tile = tl.load(chosen + row * number + place)
    column = tile * TILE + tl.arange(0, TILE)
    inside = column < columns
    bit = tl.arange(0, 32)
    shift = (bit & 24) + 7 - (bit & 7)
    theirs, own = words + column, weights + row * (32 * W) + bit
    product = tl.zeros((TILE,), tl.int32)
    for _ in range(W):
        packed = tl.load(theirs, mask=inside, other=0)[:, None]
        product += tl.sum(((packed >> shift[None, :]) & 1) * tl.load(own).to(tl.int32)[None, :], 1)
        theirs += columns
        own += 32
    far = tl.load(positive + row) - product
    if SCALED:
        factor = tl.load(inverses + column, mask=inside, other=0.0)
        far = _scale(far, tl.load(slopes + row), tl.load(bases + row), factor)
    at = place * TILE + tl.arange(0, TILE)
    key = (_order(far, SCALED).to(tl.int64) << 32) | at.to(tl.int64)
    tl.store(out + row * number * TILE + at, tl.where(inside, key, 0x7FFFFFFFFFFFFFFF))


class DeviceQuestions(NamedTuple):
    """Questions on a device: whole weights int8 (Q, 32 W) in the order of bits, the sum of the
    positive ones int32 (Q,), and where distances are scaled, slopes and bases float32 (Q,)."""

    weights: torch.Tensor
    positive: torch.Tensor
    slopes: torch.Tensor | None = None
    bases: torch.Tensor | None = None

    def take(self, rows: slice) -> DeviceQuestions:
        sides: list[Any] = [None if side is None else side[rows].contiguous() for side in self]
        return DeviceQuestions(*sides)


def spread_bits(words: torch.Tensor, first: int = 0, number: int | None = None) -> torch.Tensor:
    """The bits of ``number`` columns of words int32 (W, columns), int8 (at least number, 32 W)."""
    width, columns = words.shape
    tiles = divide_up(columns - first if number is None else number, TILE)
    out = torch.empty((tiles * TILE, 32 * width), dtype=torch.int8, device=words.device)
    _spread_kernel[(tiles, width)](words, out.view(torch.int32), first, columns, width, TILE=TILE)
    return out


def _choose_tiles(
    questions: DeviceQuestions, words: torch.Tensor, k: int, inverses: torch.Tensor | None
) -> torch.Tensor:
    """The tiles that hold the k nearest, int64 (Q, at most k), in order."""
    rows, (width, columns) = len(questions.weights), words.shape
    together = 16 if rows <= 16 else 64 if rows <= 64 else 128
    groups, size = divide_up(rows, together), 32 * width
    padded = questions.weights.new_zeros((groups * together, size))
    padded[:rows] = questions.weights
    stretch = max(1, STRETCH // (TILE * size)) * TILE
    best = None
    for first in range(0, columns, stretch):
        codes = spread_bits(words, first, min(stretch, columns - first))
        tiles = len(codes) // TILE
        keys = torch.empty((rows, tiles), dtype=torch.int64, device=words.device)
        _least_kernel[(groups, tiles)](
            padded, questions.positive, codes, questions.slopes, questions.bases, inverses, keys,
            first, rows, columns, tiles, size, SCALED=inverses is not None,
            QUESTIONS=together, TILE=TILE, STEP=128 if size % 128 == 0 else 64,
            enable_fp_fusion=False, **SHAPE,
        )  # fmt: skip
        if tiles > k:
            keys = keys.topk(k, dim=1, largest=False, sorted=False).values
        best = keys if best is None else torch.cat([best, keys], dim=1)
        if best.shape[1] > k:
            best = best.topk(k, dim=1, largest=False, sorted=False).values
    assert best is not None
    return (best & 0xFFFFFFFF).sort(dim=1).values


def _open_tiles(
    questions: DeviceQuestions, words: torch.Tensor, k: int, inverses: torch.Tensor | None,
    chosen: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Rows int64 and orders int64 (Q, k) of the nearest in the chosen tiles."""
    rows, number = chosen.shape
    out = torch.empty((rows, number * TILE), dtype=torch.int64, device=words.device)
    _open_kernel[(rows, number)](
        questions.weights, questions.positive, words, questions.slopes, questions.bases,
        inverses, chosen, out, words.shape[1], number, words.shape[0],
        SCALED=inverses is not None, TILE=TILE, enable_fp_fusion=False,
    )  # fmt: skip
    keys = out.topk(k, dim=1, largest=False).values
    place = keys & 0xFFFFFFFF
    return chosen.gather(1, place // TILE) * TILE + place % TILE, keys >> 32


def find_nearest(
    questions: DeviceQuestions, words: torch.Tensor, k: int, inverses: torch.Tensor | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and orders of the k nearest, int64 (Q, k), by (order, row). The order is the distance,
    and with ``inverses`` float32 (columns,) the bits of (slope x distance - base) x inverse."""
    count = len(questions.weights)
    ids, orders = np.empty((count, k), np.int64), np.empty((count, k), np.int64)
    with use_device(words):
        for start in range(0, count, AT_ONCE):
            many = questions.take(slice(start, start + AT_ONCE))
            chosen = _choose_tiles(many, words, k, inverses)
            step = max(1, CELLS // (chosen.shape[1] * TILE))
            for at in range(0, len(chosen), step):
                span = slice(at, at + step)
                nearest = _open_tiles(many.take(span), words, k, inverses, chosen[span])
                to = slice(start + at, start + at + len(nearest[0]))
                ids[to], orders[to] = (side.cpu().numpy() for side in nearest)
    return ids, orders
