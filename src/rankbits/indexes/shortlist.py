"""Search by questions: list near codes by Hamming distance or by weights, then order the list.

Ordering needs only the codes of the listed ids, so every engine gives the same order for the same
shortlist.
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
    """How many to list for k results by default: enough that all but a few in a thousand of the k
    nearest are listed."""
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
    """The k nearest by questions, where ``find`` can scan by their weights.

    The scan alone answers questions without a decoder. Otherwise a list is ordered: with a
    ``shortlist`` the nearest by Hamming distance, with ``coarse`` those by the weights of the first
    bits, else those by all weights. ``codes_of`` returns the codes of ids (n,), ``inverses_of`` the
    inverse lengths that a scan by weights has computed for them.
    """
    if shortlist is not None and coarse is None:
        near = find(questions.codes(), shortlist)
        return order_shortlist(questions, near.ids, codes_of, k)
    laid_out = lay_out(questions if coarse is None else questions.prefix(coarse), precision)
    if questions.decoder is None and coarse is None:
        return find(laid_out, k)
    near = find(laid_out, shortlist or choose_width(k))
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
    """The k nearest of the shortlists ``ids`` (Q, S) by the distance of ``Questions``, (Q, min(k,
    S)); equal distances keep the order of the shortlist. ``codes_of`` returns the codes of ids
    (n,), and ``inverses_of``, if given, 1 / the lengths of what they decode to."""

    def measure(at: slice) -> np.ndarray:
        rows = np.arange(ids[at].size).reshape(ids[at].shape)
        wanted = ids[at].reshape(-1)
        inverses = None if inverses_of is None else inverses_of(wanted)
        return order_rows(questions[at], codes_of(wanted), rows, inverses=inverses)

    return order_by_distance(ids, k, max(1, AT_ONCE // max(1, ids.shape[1])), measure)


def order_by_distance(
    ids: np.ndarray, k: int, step: int, measure: Callable[[slice], np.ndarray]
) -> Results:
    """The k nearest of the shortlists ``ids`` (Q, S); equal distances keep their order. ``measure``
    returns the distances of a slice of the queries, ``step`` at a time."""
    k = min(k, ids.shape[1])
    best = np.empty((len(ids), k), ids.dtype)
    distances = np.empty((len(ids), k), np.float32)
    for start in range(0, len(ids) if k else 0, step):
        at = slice(start, start + step)
        far = measure(at)
        order = np.argsort(far, axis=1, kind="stable")[:, :k]
        best[at] = np.take_along_axis(ids[at], order, 1)
        distances[at] = np.take_along_axis(far, order, 1)
    return Results(best, distances)
