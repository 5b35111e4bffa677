"""Search of codes by questions on a GPU: whole weights by tensor cores, floats by products."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits.kernels.cuda.counting import move_words
from rankbits.kernels.cuda.nearest import DeviceQuestions, find_nearest

CELLS = 1 << 23  # distances in memory at a time where weights are floats


def whole_topk(
    whole: np.ndarray, words: Any, k: int, scale: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """As ``planes_topk`` of the reference, by the whole weights int8 (Q, bits) themselves."""
    words = move_words(words)
    weights = torch.zeros((len(whole), 32 * len(words)), dtype=torch.int8, device=words.device)
    weights[:, : whole.shape[1]] = torch.from_numpy(whole).to(words.device)
    positive = weights.clamp(min=0).sum(1, dtype=torch.int32)
    if scale is None:
        return find_nearest(DeviceQuestions(weights, positive), words, k)
    slopes, bases, inverses = (torch.as_tensor(side).to(words.device) for side in scale)
    questions = DeviceQuestions(weights, positive, slopes, bases)
    ids, orders = find_nearest(questions, words, k, inverses)
    bits = orders.astype(np.int32)
    return ids, (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(np.float32)


def _spread(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes (W, n) as -1 and +1, float32 (n, bits), in the order of their bits."""
    place = torch.arange(bits, device=words.device)
    shift = 8 * (place % 32 // 8) + 7 - place % 8
    return (2 * ((words[place // 32] >> shift[:, None]) & 1) - 1).T.float()


def weights_topk(
    weights: np.ndarray, words: Any, k: int, bases: np.ndarray, inverses: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Floats by a product in float64; equal distances in the order of rows."""
    words = move_words(words)
    inverses = None if inverses is None else torch.as_tensor(inverses).to(words.device)
    wide = torch.from_numpy(weights.astype(np.float64)).to(words.device)
    whole = wide.abs().sum(1)
    base = torch.from_numpy(np.asarray(bases, np.float64)).to(words.device)
    columns = words.shape[1]
    ids, out = np.empty((len(weights), k), np.int64), np.empty((len(weights), k), np.float32)
    step = max(1, CELLS // columns)
    for start in range(0, len(weights), step):
        span = slice(start, start + step)
        far = torch.empty((len(wide[span]), columns), dtype=torch.float32, device=words.device)
        for at in range(0, columns, 1 << 18):
            part = slice(at, at + (1 << 18))
            signs = _spread(words[:, part], weights.shape[1]).double()
            sums = (whole[span, None] - wide[span] @ signs.T) / 2
            if inverses is not None:
                sums = (2 * sums - base[span, None]) * inverses[part].double()
            far[:, part] = sums.clamp(max=torch.finfo(torch.float32).max).float()
        order = far.sort(dim=1, stable=True)
        ids[span] = order.indices[:, :k].cpu().numpy()
        out[span] = order.values[:, :k].cpu().numpy()
    return ids, out


def measure_lengths(atoms: np.ndarray, centre: np.ndarray, words: Any) -> torch.Tensor:
    """float32 (N,) on the device; sums are taken in the same order as on the CPU."""
    words = move_words(words)
    tables, middle = (torch.from_numpy(x.copy()).to(words.device) for x in (atoms, centre))
    values = atoms.shape[1]
    size = values.bit_length() - 1
    parts = []
    for start in range(0, words.shape[1], 1 << 16):
        part = words[:, start : start + (1 << 16)]
        total = middle.repeat(part.shape[1], 1)
        for group in range(len(atoms)):
            byte, place = divmod(group * size, 8)
            shift = 8 * (byte % 4) + 8 - size - place
            total += tables[group, (part[byte // 4] >> shift).long() & (values - 1)]
        norms = total.double().norm(dim=1)
        parts.append(torch.where(norms > 1e-30, norms, 1).float())
    return torch.cat(parts)
