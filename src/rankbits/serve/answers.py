"""Answer a batch of searches: a JSON reply for each. This runs in the search thread."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any
from urllib.parse import quote

import numpy as np

from rankbits._check import Refusal
from rankbits.metrics import average_precision
from rankbits.serve.asks import Ask
from rankbits.serve.ids import convert_ids, parse_id
from rankbits.serve.items import SNIPPET, Items
from rankbits.serve.limits import Rejected, shorten
from rankbits.serve.views import IndexView
from rankbits.serve.wire import dumps
from rankbits.types import Codes, Questions, Ranking

SIDES = ("weights", "offsets")
TIES = ("mean", "worst", "best")


def answer(asks: Sequence[Ask], view: IndexView, items: Items | None, bits: int) -> list[Any]:
    """Make the replies (bytes) or rejections, one for each search. One call of the kernels answers
    all searches by codes, another those by floats; a search ``among`` ids has a call of its own."""
    replies: list[Any] = [ask.refusal for ask in asks]
    rows = find_codes(asks, view, items, replies)
    groups: list[list[int]] = [[], []]  # by codes and by float questions
    for i, ask in enumerate(asks):
        if replies[i] is None and ask.among is None:
            groups[ask.question is not None].append(i)
        elif replies[i] is None:
            groups.append([i])
    for group in filter(None, groups):
        part, part_rows = [asks[i] for i in group], [rows[i] for i in group]
        try:
            answers: list[Any] = _answer_group(part, part_rows, view, items, bits)
        except Rejected as sentence:
            answers = [sentence] * len(part)
        for i, reply in zip(group, answers, strict=True):
            replies[i] = reply
    return replies


def find_codes(
    asks: Sequence[Ask], view: IndexView, items: Items | None, replies: list[Any]
) -> list[int]:
    """Fill in the codes of stored ids and reject unknown ids -> the item row of each, or -1."""
    rows = [-1] * len(asks)
    for i, ask in enumerate(asks):
        if ask.id is None or ask.code is not None:
            continue
        name = parse_id(ask.id, view.strings)
        try:
            stored = None if name is None else view.find_codes(convert_ids([name], view.strings))
        except Rejected:
            stored = None
        if stored is None or not stored[1].all():
            replies[i] = Rejected(404, f"This index does not hold id {shorten(str(ask.id))}.")
            continue
        ask.id, ask.code = name, stored[0].tobytes()
        rows[i] = -1 if items is None else items.row(name)  # type: ignore[arg-type]
    return rows


def _answer_group(
    asks: Sequence[Ask], rows: list[int], view: IndexView, items: Items | None, bits: int
) -> list[bytes]:
    packed = np.frombuffer(b"".join(a.code for a in asks if a.code), np.uint8)
    codes = Codes(packed.reshape(len(asks), -1), bits)
    queries = _join_questions(asks) or codes
    among = convert_ids(asks[0].among, view.strings) if asks[0].among is not None else None
    try:
        results = view.search(queries, max(a.k for a in asks), among)
    except Refusal as error:
        raise Unavailable(str(error)) from error
    by_codes = queries is codes  # only Hamming distances can be counted
    counted = _count_distances(asks, rows, codes, view, items, among) if by_codes else {}
    ids, distances = results.ids.tolist(), results.distances.tolist()
    width = results.ids.shape[1]
    stored = view.find_codes(results.ids.reshape(-1)) if results.ids.size else None
    text = stored[0].tobytes().hex() if stored is not None else ""
    step = 2 * packed.size // len(asks)
    replies = []
    for i, ask in enumerate(asks):
        base = i * width * step
        hexes = [text[s : s + step] for s in range(base, base + width * step, step)] if text else []
        replies.append(
            _write_reply(ask, rows[i], ids[i], distances[i], hexes, counted.get(i), items, bits)
        )
    return replies


def _join_questions(asks: Sequence[Ask]) -> Questions | None:
    """Join the float questions of a group; None where it searches by codes."""
    parts = [ask.question for ask in asks if ask.question is not None]
    if not parts:
        return None
    weights, offsets = (np.concatenate([getattr(p, n) for p in parts]) for n in SIDES)
    vectors = [part.vectors for part in parts if part.vectors is not None]
    return Questions(
        weights,
        offsets,
        parts[0].decoder,
        np.concatenate(vectors) if vectors else None,
        parts[0].fingerprint,
    )


class Unavailable(Exception):
    """An engine failed. Its sentence goes to the log only, because it may name hosts and paths."""


def _count_distances(
    asks: Sequence[Ask],
    rows: list[int],
    queries: Codes,
    view: IndexView,
    items: Items | None,
    among: np.ndarray | None,
) -> dict[int, tuple[np.ndarray, dict[str, float] | None, bool]]:
    """Count distances where a search asks for it: by its number, the counts (bits + 1, 2), its
    tie-aware AP, and whether the query has a label."""
    counted = [i for i, ask in enumerate(asks) if ask.histogram]
    if not counted:
        return {}
    labels = None
    labelled = np.zeros(len(counted), bool)
    if items is not None and items.labels is not None:
        item_rows = np.array([rows[i] for i in counted])
        labels = items.labels[item_rows].copy()
        labels[item_rows < 0] = -1 if labels.ndim == 1 else False
        labelled = labels >= 0 if labels.ndim == 1 else labels.any(axis=1)
        if labels.ndim == 1:  # two items without a label do not share one: stored ones have -1
            labels[~labelled] = -2
    counts = view.count_distances(queries[counted], labels if labelled.any() else None, among)
    if counts is None:
        return {}
    others = counts.copy()
    for at, i in enumerate(counted):
        if labelled[at] and others[at, 0, 1] > 0 and asks[i].id is not None:
            others[at, 0, 1] -= 1  # the query itself
    precisions = {
        ties: average_precision(Ranking(others), ties=ties) for ties in TIES if labelled.any()
    }
    by_search = {}
    for at, i in enumerate(counted):
        defined = labelled[at] and np.isfinite(precisions["mean"][at])
        ap = {t: float(precisions[t][at]) for t in TIES} if defined else None
        by_search[i] = (counts[at], ap, bool(labelled[at]))
    return by_search


def describe_item(
    name: int | str, items: Items | None, code: str | None = None, most: int = SNIPPET
) -> dict[str, Any]:
    """Describe one item as JSON, with its ``code`` where one is given and, where items are texts,
    at most ``most`` characters of its text."""
    text = str(name)
    row = -1 if items is None else items.row(name)
    item: dict[str, Any] = {"id": text} if code is None else {"id": text, "code": code}
    if items is None or row < 0:
        return {**item, "label": None, "title": text, "image": None}
    image = f"/items/{quote(text, safe='')}/image" if items.has_picture(row) else None
    item |= {"label": items.label(row), "title": items.title(name, row), "image": image}
    return item if items.texts is None else {**item, "text": items.text(row, most)}


def _write_reply(
    ask: Ask,
    row: int,
    ids: list[Any],
    distances: list[Any],
    hexes: list[str],
    counted: tuple[np.ndarray, dict[str, float] | None, bool] | None,
    items: Items | None,
    bits: int,
) -> bytes:
    counts, ap, labelled = counted if counted is not None else (None, None, False)
    by_distance = None if counts is None else counts.sum(axis=1).tolist()
    bands: list[dict[str, Any]] = []
    last = None
    for at, near in enumerate(distances[: ask.k]):
        if ask.radius is not None and near > ask.radius:
            break
        if near != last:
            total = None if by_distance is None else by_distance[near]
            band: list[dict[str, Any]] = []
            bands.append({"distance": near, "items": band, "count": total})
            last = near
        band.append(describe_item(ids[at], items, hexes[at] if hexes else ""))
    cut = None
    if by_distance is not None:
        cut = bands[-1]["count"] - len(bands[-1]["items"]) if bands else 0
    histogram = None
    if counts is not None:
        histogram = {"all": by_distance, "relevant": counts[:, 1].tolist() if labelled else None}
    query = {
        "id": None if ask.id is None else str(ask.id),
        "code": ask.code.hex() if ask.code else None,
        "label": None if items is None else items.label(row),
    }
    return dumps(
        {
            "query": query,
            "bits": bits,
            "k": ask.k,
            "bands": bands,
            "cut": cut,
            "histogram": histogram,
            "ap": ap,
            "took_ms": round(1000 * (perf_counter() - ask.began), 3),
        }
    )
