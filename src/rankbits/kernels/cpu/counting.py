"""Histograms of Hamming distances: what a ranking is once ties are not broken.

Counting takes longer than the distances themselves: these are computed eight to an instruction, but
each is counted by a load, an increment and a store. Two things make counting faster. Distances of
codes of up to 64 bits fit a byte, so one increment of a joint (first, second) table counts *two*
neighbours; the histogram is the sum of its two marginals. Longer codes are counted into four tables
in turn, so that an increment need not wait for the one before.

Relevance by class costs nothing in the loop. Counts do not depend on order, so the database is
sorted by class once, and a query's relevant items are one contiguous run of it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import count_threads, run_tasks
from rankbits.kernels.cpu.popcount import count_common, measure_distances

RUN = 4096  # distances computed at a time, few enough for the first-level cache
JOINT = 65 * 256
MOST_PAIRS = 60_000  # increments before a 16-bit entry could overflow


@njit(nogil=True, cache=True)
def _count_pairs(pairs, joint):
    for j in range(pairs.shape[0]):
        joint[pairs[j]] += np.uint16(1)


@njit(nogil=True, cache=True)
def _settle(joint, levels, out):
    """Add both marginals of the joint table to ``out`` and clear it."""
    for a in range(levels):
        row = joint[a * 256 : a * 256 + levels]
        total = np.uint32(0)
        for b in range(levels):
            total += row[b]
        out[a] += total
        for b in range(levels):
            out[b] += row[b]
        for b in range(levels):
            row[b] = 0


@njit(nogil=True, cache=True)
def _count_short(q, x, start, stop, run, joint, levels, out):
    pairs = run.view(np.uint16)
    counted = 0
    for s in range(start, stop, RUN):
        e = min(s + RUN, stop)
        measure_distances(q, x, s, e, run)
        half = (e - s) // 2
        if counted + half > MOST_PAIRS:
            _settle(joint, levels, out)
            counted = 0
        _count_pairs(pairs[:half], joint)
        counted += half
        if (e - s) % 2:
            out[run[e - s - 1]] += 1
    if counted:
        _settle(joint, levels, out)


@njit(nogil=True, cache=True)
def _count_four(run, tables):
    whole = run.shape[0] // 4 * 4
    for j in range(0, whole, 4):
        tables[0, run[j]] += np.uint32(1)
        tables[1, run[j + 1]] += np.uint32(1)
        tables[2, run[j + 2]] += np.uint32(1)
        tables[3, run[j + 3]] += np.uint32(1)
    for j in range(whole, run.shape[0]):
        tables[0, run[j]] += np.uint32(1)


@njit(nogil=True, cache=True)
def _count_long(q, x, start, stop, run, tables, out):
    tables[:] = 0
    for s in range(start, stop, run.shape[0]):
        e = min(s + run.shape[0], stop)
        measure_distances(q, x, s, e, run)
        _count_four(run[: e - s], tables)
    for d in range(out.shape[0]):
        out[d] += tables[0, d] + tables[1, d] + tables[2, d] + tables[3, d]


@njit(nogil=True, cache=True)
def count_distances(q, x, start, stop, short_run, long_run, joint, tables, out):
    """Add to out[d] how many of x[:, start:stop] lie at distance d of q; the rest is scratch."""
    if q.shape[0] == 1 and stop - start >= RUN:
        _count_short(q, x, start, stop, short_run, joint, out.shape[0], out)
    elif stop > start:
        _count_long(q, x, start, stop, long_run, tables, out)


@njit(nogil=True, cache=True)
def _count_by_class(queries, x, starts, stops, block, short_run, long_run, counts):
    """Fill counts (Q, 2, levels): [:, 1] counts each query's relevant run of x, [:, 0] the rest."""
    joint = np.zeros(JOINT, np.uint16)
    tables = np.zeros((4, counts.shape[2]), np.uint32)
    for b in range(0, x.shape[1], block):
        end = min(b + block, x.shape[1])
        for i in range(queries.shape[0]):
            low = min(max(starts[i], b), end)
            high = min(max(stops[i], b), end)
            for grade, s, e in ((0, b, low), (1, low, high), (0, high, end)):
                count_distances(
                    queries[i], x, s, e, short_run, long_run, joint, tables, counts[i, grade]
                )


@njit(nogil=True, cache=True)
def _add_grades(run, grade, levels):
    """Turn distances into cells of a (grade, distance) table."""
    for j in range(run.shape[0]):
        run[j] += grade[j] * levels


@njit(nogil=True, cache=True)
def _settle_four(tables, out):
    """Add the four tables to ``out`` (grades, levels) and clear them."""
    levels = out.shape[1]
    for grade in range(out.shape[0]):
        cells = tables[:, grade * levels : (grade + 1) * levels]
        for d in range(levels):
            out[grade, d] += cells[0, d] + cells[1, d] + cells[2, d] + cells[3, d]
    tables[:] = 0


@njit(nogil=True, cache=True)
def _count_by_shared(queries, x, query_sets, sets, most, block, run, grade, counts):
    size = run.shape[0]
    levels = run.dtype.type(counts.shape[2])
    tables = np.zeros((4, counts.shape[1] * counts.shape[2]), np.uint32)
    for b in range(0, x.shape[1], block):
        end = min(b + block, x.shape[1])
        for i in range(queries.shape[0]):
            for s in range(b, end, size):
                e = min(s + size, end)
                measure_distances(queries[i], x, s, e, run)
                count_common(query_sets[i], sets, s, e, most, grade)
                _add_grades(run[: e - s], grade[: e - s], levels)
                _count_four(run[: e - s], tables)
            _settle_four(tables, counts[i])


@njit(nogil=True, cache=True)
def _count_by_grade(queries, x, grades, block, run, counts):
    size = run.shape[0]
    levels = run.dtype.type(counts.shape[2])
    tables = np.zeros((4, counts.shape[1] * counts.shape[2]), np.uint32)
    for b in range(0, x.shape[1], block):
        end = min(b + block, x.shape[1])
        for i in range(queries.shape[0]):
            for s in range(b, end, size):
                e = min(s + size, end)
                measure_distances(queries[i], x, s, e, run)
                _add_grades(run[: e - s], grades[i, s:e], levels)
                _count_four(run[: e - s], tables)
            _settle_four(tables, counts[i])


def make_read_only(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Read-only views of arrays: numba compiles anew for arrays that can be written."""
    views = tuple(array.view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views


def cut_tiles(count: int, most: int = 64, least: int = 1) -> list[slice]:
    """Cut queries into slices: enough to keep all threads busy, large enough to reuse the cache."""
    size = max(least, min(most, -(-count // (4 * count_threads()))))
    return [slice(s, min(s + size, count)) for s in range(0, count, size)]


def _make_buffer(words: np.ndarray, cells: int) -> np.ndarray:
    """Room for a run of numbers below ``cells``, whose codes fit the first-level cache."""
    return np.empty(max(256, RUN // len(words)), np.uint16 if cells < 1 << 16 else np.uint32)


def _choose_block(words: np.ndarray) -> int:
    """How many codes fit the second-level cache, to be compared with every query of a tile."""
    return max(RUN, (1 << 16) // len(words))


def _move_grades_last(counts: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(counts.transpose(0, 2, 1))


def _sort_by_class(query_classes: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, ...]:
    """An order of the database by class, where each class begins, and the class of each query.

    The last class is empty: queries whose class the database lacks have it.
    """
    lowest, highest = int(classes.min()), int(classes.max())
    if highest - lowest < 4 * len(classes):  # few enough values to number them by subtraction
        classes, names = classes - lowest, highest - lowest + 1
        place = np.where(
            (query_classes < lowest) | (query_classes > highest), names, query_classes - lowest
        )
    else:
        values, classes = np.unique(classes, return_inverse=True)
        names = len(values)
        place = np.minimum(np.searchsorted(values, query_classes), names - 1)
        place = np.where(values[place] == query_classes, place, names)
    bounds = np.zeros(names + 2, np.int64)
    np.cumsum(np.bincount(classes, minlength=names), out=bounds[1:-1])
    bounds[-1] = bounds[-2]
    keys = classes.astype(np.uint16) if names < 1 << 16 else classes  # numpy radix-sorts 16 bits
    return np.argsort(keys, kind="stable"), bounds, place


def count_classes(
    queries: np.ndarray,
    words: np.ndarray,
    query_classes: np.ndarray,
    classes: np.ndarray,
    bits: int,
) -> np.ndarray:
    order, bounds, place = _sort_by_class(query_classes, classes)
    queries, words = make_read_only(queries, np.ascontiguousarray(words[:, order]))
    starts, stops = bounds[place], bounds[place + 1]

    counts = np.zeros((len(queries), 2, bits + 1), np.int64)

    def work(tile: slice) -> None:
        _count_by_class(
            queries[tile], words, starts[tile], stops[tile], _choose_block(words),
            np.empty(RUN, np.uint8), _make_buffer(words, bits + 1), counts[tile],
        )  # fmt: skip

    run_tasks(work, cut_tiles(len(queries)))
    return _move_grades_last(counts)


def count_shared(
    queries: np.ndarray,
    words: np.ndarray,
    query_sets: np.ndarray,
    sets: np.ndarray,
    bits: int,
    most: int,
) -> np.ndarray:
    queries, words, query_sets, sets = make_read_only(queries, words, query_sets, sets)
    counts = np.zeros((len(queries), most + 1, bits + 1), np.int64)

    def work(tile: slice) -> None:
        run = _make_buffer(words, counts[0].size)
        _count_by_shared(
            queries[tile], words, query_sets[tile], sets, most, _choose_block(words),
            run, np.empty_like(run), counts[tile],
        )  # fmt: skip

    run_tasks(work, cut_tiles(len(queries)))
    return _move_grades_last(counts)


def count_grades(
    queries: np.ndarray, words: np.ndarray, grades: np.ndarray, bits: int, most: int
) -> np.ndarray:
    queries, words, grades = make_read_only(queries, words, grades)
    counts = np.zeros((len(queries), most + 1, bits + 1), np.int64)

    def work(tile: slice) -> None:
        run = _make_buffer(words, counts[0].size)
        _count_by_grade(queries[tile], words, grades[tile], _choose_block(words), run, counts[tile])

    run_tasks(work, cut_tiles(len(queries)))
    return _move_grades_last(counts)
