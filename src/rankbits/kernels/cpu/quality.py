"""A query's loss and its slopes from its counts, in numba: the closed forms of the definition.

``judge_row`` takes three rows of numbers by bin: ``others``, the items of grade 0; ``gained``, the
sum of gains; ``every``, all items. It writes the derivatives of the quality by ``gained`` and
``every`` and returns the quality, not yet divided by the number of neighbours or the ideal DCG.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from rankbits.kernels.histogram import FORMULAS
from rankbits.kernels.reference import continuation

FASTAP, AP_SIMPLE, AP_RELAXED, AP_EXACT, NDCG_SIMPLE, NDCG_RELAXED, NDCG_EXACT, MIHASH = range(8)
assert FORMULAS[MIHASH] == "mihash"
LN2, EULER, LI2 = continuation.LN2, continuation.EULER, continuation.LI2
LI_TERMS = np.array(continuation.LI_TERMS)
WIDTH = 0.5  # Eq. 11: within this distance of the pole at c = 1 a line replaces it
TINY = 1e-4  # in a bin with fewer items the mean is the value in the middle


@njit(nogil=True, cache=True, error_model="numpy")
def _expand_tail(z):
    """psi(z + 1/2) - ln z and its first two derivatives."""
    u = 1 / (z * z)
    t1, t2, t3, t4, t5 = 1 / 24, -7 / 960, 31 / 8064, -127 / 30720, 511 / 67584
    value = u * (t1 + u * (t2 + u * (t3 + u * (t4 + u * t5))))
    first = u * (2 * t1 + u * (4 * t2 + u * (6 * t3 + u * (8 * t4 + u * (10 * t5)))))
    second = u * (6 * t1 + u * (20 * t2 + u * (42 * t3 + u * (72 * t4 + u * (110 * t5)))))
    return value, -first / z, second * u


@njit(nogil=True, cache=True, error_model="numpy")
def _mean_reciprocal(a, c):
    """The mean of 1/t over the places a + 1 .. a + c, and its slopes by a and by c."""
    if abs(c) < 1e-12:
        c = 1e-12
    value, at_a, at_c = 0.0, 0.0, 0.0
    for i in range(8):
        p = 1 / (a + (1 + i))
        q = 1 / (a + c + (1 + i))
        value += p * q
        at_c -= p * q * q
        at_a -= p * q * (p + q)
    z = a + 8.5
    end = z + c
    low, low1, low2 = _expand_tail(z)
    high, high1, _ = _expand_tail(end)
    if abs(c) < 1e-4:
        far = math.log1p(c / z) / c + low1 + c / 2 * low2
        at_c += low2 / 2 - 1 / (2 * z * z) + 2 * c / (3 * z * z * z)
        at_a += low2 - 1 / (z * end)
    else:
        far = math.log1p(c / z) / c + (high - low) / c
        at_c += (1 / end + high1 - far) / c
        at_a += (high1 - low1) / c - 1 / (z * end)
    return value + far, at_a, at_c


@njit(nogil=True, cache=True, error_model="numpy")
def _exact_ap(g, c, p, a):
    """g ((g - 1) T + (p + 1) R), R the mean of 1/t and T = (1 - (a + 1) R) / (c - 1).

    For c past a half both follow from R' = R(a + 1, c - 1): c R = 1/(a + 1) + (c - 1) R' and
    T = (1 - (a + 1) R') / c, which have no pole at c = 1.
    """
    if c < 0.5:
        mean, mean_a, mean_c = _mean_reciprocal(a, c)
        below = c - 1
        tilt = (1 - (a + 1) * mean) / below
        tilt_a = -(mean + (a + 1) * mean_a) / below
        tilt_c = (-(a + 1) * mean_c - tilt) / below
    else:
        less, less_a, less_c = _mean_reciprocal(a + 1, c - 1)
        first = 1 / (a + 1)
        mean = (first + (c - 1) * less) / c
        mean_a = ((c - 1) * less_a - first * first) / c
        mean_c = (less + (c - 1) * less_c - mean) / c
        tilt = (1 - (a + 1) * less) / c
        tilt_a = -(less + (a + 1) * less_a) / c
        tilt_c = (-(a + 1) * less_c - tilt) / c
    value = g * ((g - 1) * tilt + (p + 1) * mean)
    by_g = (2 * g - 1) * tilt + (p + 1) * mean
    by_c = g * ((g - 1) * tilt_c + (p + 1) * mean_c)
    by_a = g * ((g - 1) * tilt_a + (p + 1) * mean_a)
    return value, by_g, by_c, g * mean, by_a


@njit(nogil=True, cache=True, error_model="numpy")
def _integral_reciprocal(a, c):
    """The mean of min(1, 1/t) over (a, a + c), and its derivatives by a and c."""
    end = a + c
    if end <= 1:
        return 1.0, 0.0, 0.0
    if a < 1:
        if c < TINY:  # the value in the middle, as the reference has it
            middle = max(1.0, a + c / 2)
            bend = -1 / (middle * middle) if middle > 1 else 0.0
            return 1 / middle, bend, bend / 2
        mean = (1 - a + math.log(end)) / c
        return mean, (1 / end - 1) / c, (1 / end - mean) / c
    r = c / a
    if r < 1e-3:  # ln(1 + r) / c and its slope by their series
        mean = (1 - r * (0.5 - r * (1 / 3 - r * (0.25 - r * (0.2 - r / 6))))) / a
        mean_c = (-0.5 + r * (2 / 3 - r * (0.75 - r * (0.8 - r * (5 / 6))))) / (a * a)
    else:
        mean = math.log1p(r) / c
        mean_c = (1 / end - mean) / c
    return mean, -1 / (a * end), mean_c


@njit(nogil=True, cache=True, error_model="numpy")
def _relaxed_ap(g, c, p, a):
    """Eq. 11: g (s + (p + 1 - s (a + 1)) R), s = (g - 1) / (c - 1), R the mean of 1/t."""
    d = c - 1
    if abs(d) < WIDTH:
        pole, pole_c = d / (WIDTH * WIDTH), 1 / (WIDTH * WIDTH)
    else:
        pole, pole_c = 1 / d, -1 / (d * d)
    share = 1 - (c - g) * pole
    share_c = -pole - (c - g) * pole_c
    mean, mean_a, mean_c = _integral_reciprocal(a, c)
    inner = p + 1 - share * (a + 1)
    each = share + inner * mean
    left = 1 - (a + 1) * mean
    by_c = g * (share_c * left + inner * mean_c)
    return g * each, each + g * pole * left, by_c, g * mean, g * (inner * mean_a - share * mean)


@njit(nogil=True, cache=True, error_model="numpy")
def _find_ap_term(formula, g, c, p, a):
    """F(g, c, p, a) and its derivatives by g, c, p and a."""
    if formula == FASTAP:
        end = a + c
        if end == 0:
            return 0.0, 0.0, 0.0, 0.0, 0.0
        precision = (p + g) / end
        down = -g * precision / end
        return g * precision, precision + g / end, down, g / end, down
    if formula == AP_SIMPLE:
        end = 2 * a + c + 1
        middle = 2 * p + g + 1
        down = -g * middle / (end * end)
        return g * middle / end, (middle + g) / end, down, 2 * g / end, 2 * down
    if formula == AP_RELAXED:
        return _relaxed_ap(g, c, p, a)
    return _exact_ap(g, c, p, a)


@njit(nogil=True, cache=True, error_model="numpy")
def _cumulate(formula, x, table):
    """The continued sum of discounts up to x, and its first two derivatives."""
    if formula == NDCG_RELAXED:
        if x <= 1:
            return x, 1.0, 0.0
        u = math.log1p(x)
        total = 0.0
        for k in range(min(len(LI_TERMS), int(3 * u) + 25) - 1, -1, -1):
            total = (total + LI_TERMS[k]) * u
        slope = LN2 / u
        return 1 + LN2 * (EULER + math.log(u) + total - LI2), slope, -slope / (u * (1 + x))
    knot = min(max(int(x), 0), len(table) - 3)
    u = x - knot
    start, step = table[knot], table[knot + 1] - table[knot]
    left = (step + table[knot] - table[knot - 1]) / 2 if knot > 0 else step
    right = (step + table[knot + 2] - table[knot + 1]) / 2
    left, right = left - step, right - step
    value = start + step * u + u * (1 - u) * (left * (1 - u) - right * u)
    slope = step + left * (1 + u * (3 * u - 4)) - right * u * (2 - 3 * u)
    return value, slope, left * (6 * u - 4) - right * (2 - 6 * u)


@njit(nogil=True, cache=True, error_model="numpy")
def _judge_ndcg(formula, gained, every, table, by_gained, by_every):
    quality, a = 0.0, 0.0
    low, low_slope = 0.0, 0.0
    if formula != NDCG_SIMPLE:
        low, low_slope, _ = _cumulate(formula, a, table)
    later = np.empty_like(every)
    for d in range(len(every)):
        g, c = gained[d], every[d]
        if formula == NDCG_SIMPLE:
            middle = a + c / 2 + 1.5
            log = math.log(middle)
            discount = LN2 / log
            at_a = -discount / (log * middle)
            at_c = at_a / 2
        else:
            high, high_slope, _ = (
                _cumulate(formula, a + c, table) if c != 0 else (low, low_slope, 0.0)
            )
            if c < TINY:
                _, discount, at_a = _cumulate(formula, a + c / 2, table)
                at_c = at_a / 2
            else:
                discount = (high - low) / c
                at_a = (high_slope - low_slope) / c
                at_c = (high_slope - discount) / c
            low, low_slope = high, high_slope
        quality += g * discount
        by_gained[d], by_every[d], later[d] = discount, g * at_c, g * at_a
        a += c
    summed = 0.0
    for d in range(len(every) - 1, -1, -1):
        by_every[d] += summed
        summed += later[d]
    return quality


@njit(nogil=True, cache=True, error_model="numpy")
def _judge_ap(formula, gained, every, by_gained, by_every):
    quality, a, p = 0.0, 0.0, 0.0
    later = np.empty((len(every), 2))
    for d in range(len(every)):
        g, c = gained[d], every[d]
        value, by_gained[d], by_every[d], later[d, 0], later[d, 1] = _find_ap_term(
            formula, g, c, p, a
        )
        quality += value
        a += c
        p += g
    summed_p, summed_a = 0.0, 0.0
    for d in range(len(every) - 1, -1, -1):
        by_gained[d] += summed_p
        by_every[d] += summed_a
        summed_p += later[d, 0]
        summed_a += later[d, 1]
    return quality


@njit(nogil=True, cache=True, error_model="numpy")
def _judge_information(others, gained, every, n0, n1, by_gained, by_every):
    """n times mutual information: the sum of c ln(c n / (n_y e)) over both kinds y and bins."""
    quality, n = 0.0, n0 + n1
    for d in range(len(every)):
        of_other, of_gained, shared = 0.0, 0.0, 0.0
        if others[d] > 0:
            of_other = math.log(others[d] * n / (n0 * every[d]))
            shared += others[d] / every[d]
        if gained[d] > 0:
            of_gained = math.log(gained[d] * n / (n1 * every[d]))
            shared += gained[d] / every[d]
        quality += others[d] * of_other + gained[d] * of_gained
        of_other += (1.0 if others[d] > 0 else 0.0) - shared
        of_gained += (1.0 if gained[d] > 0 else 0.0) - shared
        by_every[d], by_gained[d] = of_other, of_gained - of_other
    return quality


@njit(nogil=True, cache=True, error_model="numpy")
def judge_row(formula, others, gained, every, n0, n1, table, by_gained, by_every):
    if formula == MIHASH:
        return _judge_information(others, gained, every, n0, n1, by_gained, by_every)
    if formula >= NDCG_SIMPLE:
        return _judge_ndcg(formula, gained, every, table, by_gained, by_every)
    return _judge_ap(formula, gained, every, by_gained, by_every)
