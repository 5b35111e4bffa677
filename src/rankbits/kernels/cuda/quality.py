"""A query's loss and its slopes from its counts, in Triton: blocks of (rows, bins), in float64.

The closed forms are those of ``kernels/cpu/quality.py``; sums over bins are scans in registers.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.terms import exact_ap, relaxed_ap
from rankbits.kernels.reference import continuation

LI_TERMS = len(continuation.LI_TERMS)
LN2 = tl.constexpr(continuation.LN2)
EULER = tl.constexpr(continuation.EULER)
LI2 = tl.constexpr(continuation.LI2)
TERMS = tl.constexpr(LI_TERMS)


def find_table(places: int, device: torch.device) -> torch.Tensor:
    """float64: the terms of li, then the sums of discounts up to each of at least ``places``."""
    return _make_table(1 << places.bit_length(), device)


@functools.cache
def _make_table(size: int, device: torch.device) -> torch.Tensor:
    """Make a table that is never freed, for a CUDA graph may hold its address."""
    terms = torch.tensor(continuation.LI_TERMS, dtype=torch.float64)
    sums = continuation.cumulative_discount(size, torch.device("cpu"))
    return torch.cat([terms, sums]).to(device)


@triton.jit
def _cumulate(x, table, places, SPLINE: tl.constexpr):
    """The continued sum of discounts up to x, and its first two derivatives."""
    if SPLINE:
        at = tl.where(x == x, x, 0.0)
        at = tl.minimum(tl.maximum(at, 0.0), (places - 3).to(tl.float64)).to(tl.int32)
        u = x - at.to(tl.float64)
        start = tl.load(table + TERMS + at)
        step = tl.load(table + TERMS + at + 1) - start
        before = start - tl.load(table + TERMS + tl.maximum(at - 1, 0))
        left = tl.where(at > 0, (before - step) / 2, 0.0)
        right = (tl.load(table + TERMS + at + 2) - start - 2 * step) / 2
        value = start + step * u + u * (1 - u) * (left * (1 - u) - right * u)
        slope = step + left * (1 + u * (3 * u - 4)) - right * u * (2 - 3 * u)
        bend = left * (6 * u - 4) - right * (2 - 6 * u)
    else:
        first = x <= 1
        past = tl.where(first, 1.0, x)
        u = tl.log(1 + past)
        total = tl.zeros_like(x)
        for k in range(TERMS):
            total = (total + tl.load(table + (TERMS - 1 - k))) * u
        value = tl.where(first, x, 1 + LN2 * (EULER + tl.log(u) + total - LI2))
        slope = tl.where(first, 1.0, LN2 / u)
        bend = tl.where(first, 0.0, -LN2 / (u * u * (1 + past)))
    return value, slope, bend


@triton.jit
def _find_discount(c, a, table, places, SPLINE: tl.constexpr):
    tiny = c < 1e-4
    low, low1, _ = _cumulate(a, table, places, SPLINE)
    # a bin that is nearly empty has the discount in its middle
    high, high1, bend = _cumulate(tl.where(tiny, a + c / 2, a + c), table, places, SPLINE)
    items = tl.where(tiny, 1.0, c)
    mean = tl.where(tiny, high1, (high - low) / items)
    by_a = tl.where(tiny, bend, (high1 - low1) / items)
    by_c = tl.where(tiny, bend / 2, (high1 - mean) / items)
    return mean, by_c, by_a


@triton.jit
def _judge_information(others, gained, n0, n1):
    every = others + gained
    n = n0 + n1
    safe = tl.where(every > 0, every, 1.0)
    has0 = others > 0
    has1 = gained > 0
    log0 = tl.log(tl.where(has0, others * n[:, None], 1.0))
    log0 = tl.where(has0, log0 - tl.log(tl.where(has0, n0[:, None] * safe, 1.0)), 0.0)
    log1 = tl.log(tl.where(has1, gained * n[:, None], 1.0))
    log1 = tl.where(has1, log1 - tl.log(tl.where(has1, n1[:, None] * safe, 1.0)), 0.0)
    shared = tl.where(has0, others / safe, 0.0) + tl.where(has1, gained / safe, 0.0)
    quality = tl.sum(others * log0 + gained * log1, axis=1)
    of_other = log0 + tl.where(has0, 1.0, 0.0) - shared
    of_gained = log1 + tl.where(has1, 1.0, 0.0) - shared
    return quality, of_gained - of_other, of_other


@triton.jit
def _judge_rows(others, gained, every, n0, n1, table, places, FORMULA: tl.constexpr):
    """(quality (rows,), its derivatives by ``gained`` and ``every`` (rows, bins)), undivided."""
    if FORMULA == "mihash":
        quality, by_g, by_c = _judge_information(others, gained, n0, n1)
    else:
        a = tl.cumsum(every, axis=1) - every
        p = tl.cumsum(gained, axis=1) - gained
        if FORMULA == "fastap":
            end = a + every
            end = tl.where(end == 0, 1.0, end)
            value = gained * (p + gained) / end
            by_g = (p + 2 * gained) / end
            by_c = -value / end
            by_p = gained / end
            by_a = by_c
        elif FORMULA == "ap-simple":
            end = 2 * a + every + 1
            middle = 2 * p + gained + 1
            value = gained * middle / end
            by_g = (middle + gained) / end
            by_c = -value / end
            by_p = 2 * gained / end
            by_a = 2 * by_c
        elif FORMULA == "ap-relaxed":
            value, by_g, by_c, by_p, by_a = relaxed_ap(gained, every, p, a)
        elif FORMULA == "ap-exact":
            value, by_g, by_c, by_p, by_a = exact_ap(gained, every, p, a)
        else:
            if FORMULA == "ndcg-simple":
                middle = a + every / 2 + 1.5
                log = tl.log(middle)
                by_g = LN2 / log
                by_a = -gained * by_g / (log * middle)
                by_c = by_a / 2
            else:
                by_g, by_c, by_a = _find_discount(every, a, table, places, FORMULA == "ndcg-exact")
                by_c = gained * by_c
                by_a = gained * by_a
            value = gained * by_g
            by_p = tl.zeros_like(value)
        quality = tl.sum(value, axis=1)
        by_c += tl.cumsum(by_a, axis=1, reverse=True) - by_a
        by_g += tl.cumsum(by_p, axis=1, reverse=True) - by_p
    return quality, by_g, by_c


@triton.jit
def _round(total):
    whole = tl.floor(total + 0.5)
    return tl.where(whole == whole, whole, 0.0)


@triton.jit
def finish_rows(
    c0, c1, row, level, gains, census, table, places, values, stride, slopes, rows, levels, bins,
    scale, FORMULA: tl.constexpr, NDCG: tl.constexpr, GRADED: tl.constexpr,
    ROWS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """Turn counts (ROWS, BINS) of both planes into losses and slopes."""
    c0 = c0.to(tl.float64)
    c1 = c1.to(tl.float64)
    inside = row < rows
    sums = table + TERMS
    n0 = _round(tl.sum(c0, axis=1))
    n1 = _round(tl.sum(c1, axis=1))
    every = c0 + c1
    if GRADED:
        every = c0
        ideal = tl.zeros((ROWS,), tl.float64)
        end = tl.zeros((ROWS,), tl.int32)
        for k in range(1, levels):
            grade = levels - k
            size = tl.load(census + row.to(tl.int64) * levels + grade, mask=inside, other=0)
            summed = tl.load(sums + end + size) - tl.load(sums + end)
            ideal += tl.where(size > 0, tl.load(gains + grade) * summed, 0.0)
            end += size
        n1 = end.to(tl.float64)
        share = 1 / tl.where(ideal > 0, ideal, 1.0)
    elif NDCG:
        ideal = tl.load(sums + tl.minimum(n1, places.to(tl.float64)).to(tl.int32))
        share = 1 / tl.where(ideal > 0, ideal, 1.0)
    elif FORMULA == "mihash":
        share = 1 / tl.maximum(n0 + n1, 1.0)
    else:
        share = 1 / tl.maximum(n1, 1.0)
    quality, by_g, by_c = _judge_rows(c0, c1, every, n0, n1, table, places, FORMULA)
    if FORMULA == "mihash":
        valid = (n1 > 0) & (n0 > 0)
        value = -quality * share
    else:
        valid = n1 > 0
        value = 1 - quality * share
    value = tl.where(valid, value, quality * 0.0)
    tl.store(values + row, value, mask=inside)
    tl.store(values + stride + row, valid.to(tl.float64), mask=inside)
    unit = -bins.to(tl.float64) / (2 * scale.to(tl.float64))
    weight = tl.where(valid, -share * unit, 0.0)[:, None]
    after = tl.minimum(level + 1, BINS - 1)[None, :] + tl.zeros((ROWS, BINS), tl.int32)
    first = (tl.gather(by_c, after, 1) - by_c) * weight
    second = (tl.gather(by_g, after, 1) - by_g) * weight
    if not GRADED:
        second += first
    place = slopes + row.to(tl.int64)[:, None] * (2 * bins) + level[None, :]
    kept = inside[:, None] & (level < bins)[None, :]
    tl.store(place, first, mask=kept)
    tl.store(place + bins, second, mask=kept)
