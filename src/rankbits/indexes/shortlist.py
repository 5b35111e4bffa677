"""A shortlist, by Hamming distance or by weights, put in order by the floats of the questions.

It needs nothing but the codes of the ids that were found, so that every engine gives the same order
for the same shortlist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rankbits.kernels import LaidOut, lay_out, order_rows
from rankbits.types import Codes, Decoder, Questions, Results

AT_ONCE = 1 << 20  # codes of shortlists in memory at a time


def choose_width(k: int) -> int:
    """How many to list where k are wanted and nobody said: enough that the k nearest are among
    them but for a few in a thousand (docs/bits.md)."""
    return max(20 * k, 200)


def search_questions(
    questions: Questions,
    k: int,
    find: Callable[[Codes | LaidOut, int], Results],
    codes_of: Callable[[Any], Codes],
    precision: str = "int4",
    shortlist: int | None = None,
    coarse: int | None = None,
    inverses_of: Callable[[Decoder, Any], np.ndarray] | None = None,
) -> Results:
    """The k nearest by questions where ``find`` can scan by their weights: with a decoder, what the
    weights find near is decoded; with a ``shortlist``, what Hamming distance finds is ordered;
    with ``coarse``, what the weights of the first bits find is. ``inverses_of`` gives the inverse
    lengths of ids (n,) that a scan by weights has made."""
    if shortlist is not None and coarse is None:
        near = find(questions.codes(), shortlist)
        return order_shortlist(questions, near.ids, codes_of, k)
    asked = lay_out(questions if coarse is None else questions.prefix(coarse), precision)
    if questions.decoder is None and coarse is None:
        return find(asked, k)
    near = find(asked, shortlist or choose_width(k))
    decoder = questions.decoder
    lengths_of = None if inverses_of is None or decoder is None else partial(inverses_of, decoder)
    return order_shortlist(questions, near.ids, codes_of, k, lengths_of)


def order_shortlist(
    questions: Questions,
    ids: np.ndarray,
    codes_of: Callable[[Any], Codes],
    k: int,
    inverses_of: Callable[[Any], np.ndarray] | None = None,
) -> Results:
    """The k nearest of ``ids`` (Q, S) by the definition of the distance, (Q, min(k, S)); equal
    distances keep the order of the shortlist. ``codes_of`` gives the codes of ids (n,), and
    ``inverses_of``, where lengths are at hand, 1 / those that a decoder gives them."""
    k = min(k, ids.shape[1])
    best = np.empty((len(ids), k), ids.dtype)
    distances = np.empty((len(ids), k), np.float32)
    step = max(1, AT_ONCE // max(1, ids.shape[1]))
    for start in range(0, len(ids) if k else 0, step):
        part = slice(start, start + step)
        rows = np.arange(ids[part].size).reshape(ids[part].shape)
        wanted = ids[part].reshape(-1)
        inverses = None if inverses_of is None else inverses_of(wanted)
        far = order_rows(questions[part], codes_of(wanted), rows, inverses=inverses)
        order = np.argsort(far, axis=1, kind="stable")[:, :k]
        best[part] = np.take_along_axis(ids[part], order, 1)
        distances[part] = np.take_along_axis(far, order, 1)
    return Results(best, distances)
