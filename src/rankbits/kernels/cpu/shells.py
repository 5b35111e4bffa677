"""Shells of a table: all values that differ from a query's in a given number of bits, and the rows
that have them. Memory is prefetched a little before it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from rankbits.kernels.cpu.popcount import popcount

VALUES = 256  # values of a shell that are looked up together
AHEAD = 8  # how many runs ahead memory is prefetched; with 32 the requests wait in line
FARTHER = 16  # how many rows ahead


@intrinsic
def _trailing_zeros(context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return value(value), generate


@intrinsic
def prefetch(context: Any, array: Any, place: Any) -> Any:
    """Prefetch the memory of ``array[place]``; the array has one dimension."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, *(number(x) for x in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@njit(nogil=True, cache=True)
def _next_flips(flips):
    """The next larger number with as many ones."""
    least = flips & (~flips + np.uint64(1))
    carried = flips + least
    return (((flips ^ carried) >> np.uint64(2)) >> _trailing_zeros(least)) | carried


@njit(nogil=True, cache=True)
def price_shell(begin, value, length, weight, prices):
    """The cost of reading all rows that differ from ``value`` in exactly ``weight`` bits of the
    part: a price for each value, for each value that some row has, and for each row."""
    values = runs = rows = np.int64(0)
    flips, end = (np.uint64(1) << np.uint64(weight)) - np.uint64(1), np.uint64(1) << length
    while flips < end:
        at = value ^ flips
        size = np.int64(begin[at + np.uint64(1)] - begin[at])
        values += 1
        runs += size > 0
        rows += size
        flips = _next_flips(flips) if weight else end
    return prices[0] * values + prices[1] * runs + prices[2] * rows


@njit(nogil=True, cache=True)
def find_runs(begin, value, length, weight, flips, firsts, lasts):
    """Write where the rows of the next values of a shell lie; return how many values have rows, and
    the flips to go on with."""
    end = np.uint64(1) << length
    many = 0
    while many < VALUES and flips < end:
        at = value ^ flips
        if begin[at] < begin[at + np.uint64(1)]:
            firsts[many], lasts[many] = begin[at], begin[at + np.uint64(1)]
            many += 1
        flips = _next_flips(flips) if weight else end
    return many, flips


@njit(nogil=True, cache=True)
def find_near_codes(query, codes, first, last, limit, hits):
    """Write the places first to last whose codes, of one word, lie within the limit; return how
    many there are."""
    many = 0
    for i in range(first, last):
        if np.int64(popcount(query ^ codes[i])) <= limit:
            hits[many] = i
            many += 1
    return many


@njit(nogil=True, cache=True)
def measure_distance(query, codes, at):
    far = np.int64(0)
    for w in range(query.shape[0]):
        far += np.int64(popcount(query[w] ^ codes[at + w]))
    return far


@njit(nogil=True, cache=True)
def find_near_rows(query, codes, rows, count, limit, hits):
    """Write which of the first ``count`` rows, whose codes have several words, lie within the
    limit; return how many there are."""
    many, width = 0, query.shape[0]
    for i in range(count + FARTHER):
        if i < count:
            prefetch(codes, width * np.int64(rows[i]))
        at = np.int64(i - FARTHER)
        if at >= 0 and measure_distance(query, codes, width * np.int64(rows[at])) <= limit:
            hits[many] = rows[at]
            many += 1
    return many


@njit(nogil=True, cache=True)
def was_seen(query, codes, at, parts, table, radius):
    """Whether another table has already shown the row with this code."""
    for i in range(radius.shape[0]):
        if i != table and radius[i] >= 0:
            word = np.int64(parts[i, 0])
            mask = ((np.uint64(1) << parts[i, 2]) - np.uint64(1)) << parts[i, 1]
            if np.int64(popcount((query[word] ^ codes[at + word]) & mask)) <= radius[i]:
                return True
    return False
