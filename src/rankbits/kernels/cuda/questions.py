"""Search of codes by questions in Triton: products of whole weights and bits on tensor cores.

With bits b of 0 and 1, the sum of |w| where signs differ is (the sum of positive w) - <w, b>. A
program holds a block of questions and walks a stretch of the database: it spreads the bits of a
tile of codes into bytes, multiplies, and turns each distance into a whole number of the same order.
A first walk over a sample writes the least of each tile, of which the k-th bounds the k-th distance
of all; a second walk catches the few rows within the bound, which are then sorted by (distance,
row). A question that catches too many is answered by writing all its distances down.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.counting import PROGRAMS, on_device

TILE = 128  # rows of the database multiplied together
SAMPLE = 1 << 16  # rows that give the bound on the k-th distance
AT_ONCE = 4096  # questions searched together
CELLS = 1 << 26  # distances written down at a time
LAST = (1 << 31) - 1  # the order of nothing
LEAST, CATCH, WRITE = 0, 1, 2


@triton.jit
def _walk_kernel(
    weights, positive, words, slopes, bases, inverses, bound, out, count,
    rows, columns, stretch, W, room,
    MODE: tl.constexpr, SCALED: tl.constexpr, QUESTIONS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """``weights`` int8 (rows, 32 W) in the order of bits in ``words`` int32 (W, columns).

    MODE 0 writes the least order of each tile, out (rows, tiles); 1 catches (order << 32 | row) of
    what is within the bound, out (rows, room); 2 writes all orders, out (rows, columns).
    """
    row = tl.program_id(0).to(tl.int64) * QUESTIONS + tl.arange(0, QUESTIONS)
    first = tl.program_id(1).to(tl.int64) * stretch
    last = tl.minimum(first + stretch, columns)
    mine = row < rows
    top = tl.load(positive + row, mask=mine, other=0)
    if SCALED:
        slope = tl.load(slopes + row, mask=mine, other=0.0)
        base = tl.load(bases + row, mask=mine, other=0.0)
    if MODE == 1:
        limit = tl.load(bound + row, mask=mine, other=-(1 << 31))
    bit = tl.arange(0, 32)
    for start in range(first, last, TILE):
        column = start + tl.arange(0, TILE)
        inside = column < last
        product = tl.zeros((QUESTIONS, TILE), tl.int32)
        for w in range(W):
            packed = tl.load(words + w * columns + column, mask=inside, other=0)
            ones = ((packed[None, :] >> bit[:, None]) & 1).to(tl.int8)
            at = row[:, None] * (32 * W) + w * 32 + bit[None, :]
            own = tl.load(weights + at, mask=mine[:, None], other=0)
            product = tl.dot(own, ones, product, out_dtype=tl.int32)
        order = top[:, None] - product
        if SCALED:
            factor = tl.load(inverses + column, mask=inside, other=0.0)
            far = (slope[:, None] * order.to(tl.float32) - base[:, None]) * factor[None, :]
            far = tl.minimum(far, 3.4028234663852886e38) + 0.0  # one zero, not two
            order = far.to(tl.int32, bitcast=True)
            order = order ^ ((order >> 31) & 0x7FFFFFFF)
        seen = mine[:, None] & inside[None, :]
        if MODE == 0:
            least = tl.min(tl.where(seen, order, 0x7FFFFFFF), 1)
            tiles = (columns + TILE - 1) // TILE
            tl.store(out + row * tiles + start // TILE, least, mask=mine)
        if MODE == 1:
            hit = seen & (order <= limit[:, None])
            if tl.max(tl.max(hit.to(tl.int32), 1), 0) > 0:
                to = tl.atomic_add(count + row[:, None] + tl.zeros_like(order), 1, mask=hit)
                key = (order.to(tl.int64) << 32) | column.to(tl.int64)[None, :]
                tl.store(out + row[:, None] * room + to, key, mask=hit & (to < room))
        if MODE == 2:
            tl.store(out + row[:, None] * columns + column[None, :], order, mask=seen)


class _Asked(NamedTuple):
    """Questions on a device: whole weights in the order of the words' bits, the sum of positive
    ones, and where distances are scaled, slopes and bases."""

    weights: torch.Tensor
    positive: torch.Tensor
    slopes: torch.Tensor
    bases: torch.Tensor

    def part(self, rows: Any) -> _Asked:
        return _Asked(*(side[rows].contiguous() for side in self))


def _move_words(words: torch.Tensor | np.ndarray) -> torch.Tensor:
    return words if isinstance(words, torch.Tensor) else on_device(words)


def _to_device(planes: np.ndarray, signs: np.ndarray, scale: Any, device: Any) -> _Asked:
    """The weights of planes (Q, P, W) and signs (Q, W), bit by bit as they stand in the words."""
    places = np.arange(64, dtype=np.uint64)
    magnitudes = np.zeros((len(planes), planes.shape[2], 64), np.int32)
    for power in range(planes.shape[1]):
        bits = (planes[:, power, :, None] >> places) & np.uint64(1)
        magnitudes += bits.astype(np.int32) << power
    above = ((signs[:, :, None] >> places) & np.uint64(1)).astype(bool)
    whole = np.where(above, magnitudes, -magnitudes).reshape(len(planes), -1)
    positive = np.where(above, magnitudes, 0).sum(axis=(1, 2), dtype=np.int32)
    slopes, bases = scale if scale is not None else (np.zeros(len(planes), np.float32),) * 2
    parts = whole.astype(np.int8), positive, slopes, bases
    return _Asked(*(torch.from_numpy(np.array(side)).to(device) for side in parts))


def _walk(
    asked: _Asked, words: torch.Tensor, columns: int, inverses: torch.Tensor | None,
    out: torch.Tensor, mode: int, bound: torch.Tensor | None = None,
    count: torch.Tensor | None = None,
) -> None:  # fmt: skip
    rows = len(asked.weights)
    together = 16 if rows <= 16 else 64 if rows <= 64 else 128
    groups = triton.cdiv(rows, together)
    parts = max(1, min(triton.cdiv(columns, TILE), triton.cdiv(PROGRAMS, groups)))
    stretch = triton.cdiv(triton.cdiv(columns, parts), TILE) * TILE
    blank = asked.positive
    _walk_kernel[(groups, triton.cdiv(columns, stretch))](
        asked.weights, asked.positive, words, asked.slopes, asked.bases,
        asked.slopes if inverses is None else inverses,
        blank if bound is None else bound, out, blank if count is None else count,
        rows, columns, stretch, words.shape[0], out.shape[1],
        MODE=mode, SCALED=inverses is not None, QUESTIONS=together, TILE=TILE,
        enable_fp_fusion=False,
    )  # fmt: skip


def _room(k: int) -> int:
    return max(1024, 4 * triton.next_power_of_2(k))


def _bounded(
    asked: _Asked, words: torch.Tensor, k: int, inverses: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys (Q, k) by a bound, and who caught too many: (order << 32 | row), sorted."""
    rows, columns, room = len(asked.weights), words.shape[1], _room(k)
    # tiles enough for the k-th least, and rows enough that what is caught has room four times
    sample = min(columns, max(SAMPLE, 4 * k * TILE, 4 * k * columns // room))
    first = words if sample == columns else words[:, :sample].contiguous()
    least = torch.empty((rows, triton.cdiv(sample, TILE)), dtype=torch.int32, device=words.device)
    _walk(asked, first, sample, inverses, least, LEAST)
    bound = torch.full((rows,), LAST, dtype=torch.int32, device=words.device)
    if least.shape[1] >= k:
        bound = least.topk(k, dim=1, largest=False).values[:, -1].contiguous()
    caught = torch.full((rows, room), (1 << 63) - 1, dtype=torch.int64, device=words.device)
    count = torch.zeros(rows, dtype=torch.int32, device=words.device)
    _walk(asked, words, columns, inverses, caught, CATCH, bound, count)
    most = min(max(int(count.max()), k), room)
    return caught[:, :most].topk(k, dim=1, largest=False).values, count > room


def _exact(
    asked: _Asked, words: torch.Tensor, k: int, inverses: torch.Tensor | None
) -> torch.Tensor:
    """The same keys by all distances, a few questions at a time."""
    columns = words.shape[1]
    number = torch.arange(columns, device=words.device)
    keys, step = [], max(1, CELLS // columns)
    for start in range(0, len(asked.weights), step):
        part = asked.part(slice(start, start + step))
        shape = (len(part.weights), columns)
        order = torch.empty(shape, dtype=torch.int32, device=words.device)
        _walk(part, words, columns, inverses, order, WRITE)
        every = (order.to(torch.int64) << 32) | number
        keys.append(every.topk(k, dim=1, largest=False).values)
    return torch.cat(keys)


def _search(
    planes: np.ndarray, signs: np.ndarray, words: Any, k: int, scale: Any, inverses: Any
) -> tuple[np.ndarray, np.ndarray]:
    """ids and orders (Q, k) of integer questions."""
    words = _move_words(words)
    inverses = None if inverses is None else torch.as_tensor(inverses).to(words.device)
    asked = _to_device(planes, signs, scale, words.device)
    ids, orders = np.empty((len(planes), k), np.int64), np.empty((len(planes), k), np.int64)
    for start in range(0, len(planes), AT_ONCE):
        span = slice(start, start + AT_ONCE)
        part = asked.part(span)
        keys, full = _bounded(part, words, k, inverses)
        if bool(full.any()):
            again = full.nonzero()[:, 0]
            keys[again] = _exact(part.part(again), words, k, inverses)
        ids[span] = (keys & 0xFFFFFFFF).cpu().numpy()
        orders[span] = (keys >> 32).cpu().numpy()
    return ids, orders


def planes_topk(
    planes: np.ndarray, signs: np.ndarray, words: Any, k: int, bits: int, scale: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    if scale is None:
        return _search(planes, signs, words, k, None, None)
    ids, orders = _search(planes, signs, words, k, scale[:2], scale[2])
    whole = orders.astype(np.int32)
    return ids, (whole ^ ((whole >> 31) & 0x7FFFFFFF)).view(np.float32)


def _spread(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes (W, n) as -1 and +1, float32 (n, bits), in the order of their bits."""
    place = torch.arange(bits, device=words.device)
    shift = 8 * (place % 32 // 8) + 7 - place % 8
    return (2 * ((words[place // 32] >> shift[:, None]) & 1) - 1).T.float()


def weights_topk(
    weights: np.ndarray, words: Any, k: int, bases: np.ndarray, inverses: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Floats by a product in float64; equal distances in the order of rows."""
    words = _move_words(words)
    inverses = None if inverses is None else torch.as_tensor(inverses).to(words.device)
    asked = torch.from_numpy(weights.astype(np.float64)).to(words.device)
    whole = asked.abs().sum(1)
    base = torch.from_numpy(np.asarray(bases, np.float64)).to(words.device)
    columns = words.shape[1]
    ids, out = np.empty((len(weights), k), np.int64), np.empty((len(weights), k), np.float32)
    step = max(1, CELLS // 8 // columns)
    for start in range(0, len(weights), step):
        span = slice(start, start + step)
        far = torch.empty((len(asked[span]), columns), dtype=torch.float32, device=words.device)
        for at in range(0, columns, 1 << 18):
            part = slice(at, at + (1 << 18))
            signs = _spread(words[:, part], weights.shape[1]).double()
            sums = (whole[span, None] - asked[span] @ signs.T) / 2
            if inverses is not None:
                sums = (2 * sums - base[span, None]) * inverses[part].double()
            far[:, part] = sums.clamp(max=torch.finfo(torch.float32).max).float()
        order = far.sort(dim=1, stable=True)
        ids[span] = order.indices[:, :k].cpu().numpy()
        out[span] = order.values[:, :k].cpu().numpy()
    return ids, out


def lengths(atoms: np.ndarray, centre: np.ndarray, words: Any) -> torch.Tensor:
    """float32 (N,) on the device."""
    words = _move_words(words)
    tables, middle = (torch.from_numpy(x.copy()).to(words.device) for x in (atoms, centre))
    values = atoms.shape[1]
    size = values.bit_length() - 1
    parts = []
    for start in range(0, words.shape[1], 1 << 16):
        part = words[:, start : start + (1 << 16)]
        total = middle.double().repeat(part.shape[1], 1)
        for group in range(len(atoms)):
            byte, place = divmod(group * size, 8)
            shift = 8 * (byte % 4) + 8 - size - place
            total += tables[group, (part[byte // 4] >> shift).long() & (values - 1)]
        norms = total.norm(dim=1)
        parts.append(torch.where(norms > 1e-30, norms, 1).float())
    return torch.cat(parts)
