"""Control and arithmetic of BDF steps of many samples, each with its own order, step length and iteration.

Three loops make a pass beside f and the solution: `iterated` judges a correction, `finished` ends the steps that have
converged, `begun` chooses the next ones and predicts. Each works on tiles of samples, in which rows of unknowns are
read and written once; sums over unknowns run in order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.numba import compiled, inner, prange
from ensemble._kernels.ode.lock_step import threads_of
from ensemble._kernels.ode.lock_step_control import (
    FINISHED,
    STEP_TOO_SMALL,
    TOO_MANY_STEPS,
    inverse_root,
    root_numbers,
)
from ensemble._typing import Array

__all__ = [
    "ACCEPTED",
    "BEGINS",
    "BEGUN",
    "CONVERGED",
    "FAILED",
    "RENEWS",
    "bdf_numbers",
    "begun",
    "ended",
    "finished",
    "iterated",
    "judged",
    "next_step",
]

TILE = 64
"""Samples that a thread treats at a time."""

CONVERGED, FAILED = 1, 2
"""What an iteration ends with."""

BEGINS, ACCEPTED, RENEWS = 1, 2, 3
"""What follows: the next step, after one that was accepted, or the same one with new factors."""

BEGUN = TILE * 36 + 72 + 2 * TILE + 6
"""Numbers that `next_step` needs for a tile."""

LONGEST_ORDER = 5

ITERATIONS, SAFETY, LEAST_FACTOR, LARGEST_FACTOR, OLDEST = 4, 0.9, 0.2, 10.0, 20
"""Newton iterations of a step, bounds of a new step over the old one, and steps that factors serve."""

NEWTON, SLOWEST, ONE, TWO, TINY, HUGE, KEPT, STRETCH, HALF, DRIFT, SPACING, QUARTER, PER_N, INFINITE, ROOTS = range(15)
"""Places of numbers in the working precision."""


def bdf_numbers(dtype: Any, n: int, newton: float, kept: float, drift: float, stretch: float, spacings: float) -> Array:
    """The numbers of the control in the working precision."""
    real = np.finfo(dtype)
    least = float(real.dtype.type(spacings) * real.eps)
    numbers = [newton, 0.3, 1.0, 2.0, 1e-30, 1e30, kept, stretch, 0.5, drift, least, 0.25, 1.0 / n, math.inf]
    for k in range(LONGEST_ORDER + 3):
        numbers += root_numbers(dtype, 2 * k) if k else [0.0, 0.0, 0.0]
    return np.array(numbers, real.dtype)


def iterated(at: Any, dy: Array, numbers: Array, error: Array) -> None:
    """Judge a correction `dy` of all samples and make it where it helps.

    `at` are the columns of the run: `outcome` becomes `CONVERGED`, `FAILED` or 0 for each, `square` the squared norm of
    the error of its step. `error` has the constants of errors by order.
    """
    _iterated(dy, at.c_factors, at.per_c, at.d, at.y, at.table, at.fixed.rtol, at.fixed.atol, at.fixed.ids, at.waiting,
              at.order, at.iteration, at.rate, at.norm, numbers, error, at.square, at.outcome,
              threads=threads_of(dy.size))  # fmt: skip


@inner
def sum_squares(dy, scale, d, y, table, rtol, atol, one, begin, end, first, second):
    """Sums of squares of ``scale dy`` and of ``d + scale dy`` over ``atol + rtol max(|y|, |old|)``; scales dy."""
    varying = atol.shape[0] > 1
    for c in range(end - begin):
        first[c], second[c] = one - one, one - one
    for i in range(dy.shape[0]):
        for s in range(begin, end):
            a, b = abs(y[i, s]), abs(table[0, i, s])
            largest = a if (a > b) | (a != a) else b
            weight = 1.0 / (atol[i if varying else 0, s] + rtol[s] * largest)
            step = dy[i, s] * scale[s - begin]
            dy[i, s] = step
            own, both = step * weight, (d[i, s] + step) * weight
            first[s - begin] += own * own
            second[s - begin] += both * both


@compiled
def _iterated(
    dy, c_factors, per_c, d, y, table, rtol, atol, ids, waiting, order, iteration, rate, norm, numbers, error, square,
    outcome,
):  # fmt: skip
    n_samples = dy.shape[1]
    for tile in prange((n_samples + TILE - 1) // TILE):
        begin = np.int64(tile) * TILE
        end = min(begin + TILE, n_samples)
        judged(dy, c_factors, per_c, d, y, table, rtol, atol, ids, waiting, order, iteration, rate, norm, numbers,
               error, square, outcome, begin, end, new(3 * TILE, dy.dtype))  # fmt: skip


@inner
def judged(
    dy, c_factors, per_c, d, y, table, rtol, atol, ids, waiting, order, iteration, rate, norm, numbers, error, square,
    outcome, begin, end, work,
):  # fmt: skip
    """The body of `iterated` for the samples from `begin` to before `end`."""
    first, second, scale = work[:TILE], work[TILE : 2 * TILE], work[2 * TILE : 3 * TILE]
    newton, slowest, one, two = numbers[NEWTON], numbers[SLOWEST], numbers[ONE], numbers[TWO]
    for s in range(begin, end):
        scale[s - begin] = two / (one + c_factors[s] * per_c[s])
    sum_squares(dy, scale, d, y, table, rtol, atol, one, begin, end, first, second)
    for s in range(begin, end):
        outcome[s] = 0
        if ids[s] < 0 or waiting[s]:
            continue
        size, constant = math.sqrt(first[s - begin] * numbers[PER_N]), error[order[s]]
        ratio, slow = size / norm[s], slowest * rate[s]
        speed = rate[s] * one
        if iteration[s] > 0:
            speed = slow if (slow > ratio) | (slow != slow) else ratio
        bounded = one if speed > one else speed
        diverged = not np.isfinite(size) or (iteration[s] > 0 and ratio > two)
        converged = not diverged and size * bounded * constant <= newton
        iteration[s] += 1
        rate[s], norm[s] = speed, size
        if converged:
            outcome[s] = CONVERGED
        elif diverged or iteration[s] >= ITERATIONS:
            outcome[s] = FAILED
        square[s] = constant * constant * (second[s - begin] * numbers[PER_N])
    for i in range(dy.shape[0]):
        for s in range(begin, end):
            if ids[s] >= 0 and not waiting[s] and outcome[s] != FAILED:
                y[i, s] += dy[i, s]
                d[i, s] += dy[i, s]


def finished(at: Any, numbers: Array) -> None:
    """End the steps that have converged or failed.

    For each sample, `act` becomes what follows, `status` what the run ends with or 0, `factor` that of the next step
    after a failure, `t_old` the start of the step.
    """
    fixed = at.fixed
    _finished(at.outcome, at.square, at.age, at.iteration, at.order, at.table, at.d, fixed.t, at.t_new, fixed.h,
              at.lost, at.lost_new, at.last, at.n_equal, fixed.n_steps, fixed.n_rejected, fixed.most, numbers,
              at.act, at.status, at.factor, at.t_old, threads=threads_of(at.d.size))  # fmt: skip


@inner
def root_of(square, k, numbers, work, place):
    """``square**(-1 / (2 k))``; that of an infinite one is 1e-30's."""
    tiny, huge = numbers[TINY], numbers[HUGE]
    work[place] = (square if square > tiny else tiny) if square < huge else huge
    inverse_root(work, place, 2 * k, numbers, ROOTS + 3 * k, numbers[ONE])
    return work[place]


@compiled
def _finished(
    outcome, square, age, iteration, order, table, d, t, t_new, h, lost, lost_new, last, n_equal, n_steps, n_rejected,
    most, numbers, act, status, factor, t_old,
):  # fmt: skip
    n_samples = d.shape[1]
    for tile in prange((n_samples + TILE - 1) // TILE):
        begin = np.int64(tile) * TILE
        end = min(begin + TILE, n_samples)
        ended(outcome, square, age, iteration, order, table, d, t, t_new, h, lost, lost_new, last, n_equal, n_steps,
              n_rejected, most, numbers, act, status, factor, t_old, begin, end, new(1, d.dtype))  # fmt: skip


@inner
def ended(
    outcome, square, age, iteration, order, table, d, t, t_new, h, lost, lost_new, last, n_equal, n_steps, n_rejected,
    most, numbers, act, status, factor, t_old, begin, end, work,
):  # fmt: skip
    """The body of `finished` for the samples from `begin` to before `end`."""
    one = numbers[ONE]
    for s in range(begin, end):
        act[s], status[s], factor[s], t_old[s] = 0, 0, one, t[s]
        if outcome[s] == 0:
            continue
        if outcome[s] == FAILED and age[s] > 0:  # factors of an earlier step: the same step again with new ones
            act[s] = RENEWS
            continue
        accepted = outcome[s] == CONVERGED and square[s] <= one
        act[s] = ACCEPTED if accepted else BEGINS
        n_steps[s] += one
        state = TOO_MANY_STEPS if n_steps[s] >= most[s] else 0
        if accepted:
            t[s], lost[s] = t_new[s], lost_new[s]
            n_equal[s] += 1
            if last[s]:
                state = FINISHED
        else:
            n_rejected[s] += one
            if outcome[s] == FAILED:
                factor[s] = numbers[QUARTER]
            else:
                safety = SAFETY * (2 * ITERATIONS + 1) / (2 * ITERATIONS + iteration[s])
                factor[s] = max(LEAST_FACTOR, safety * np.float64(root_of(square[s], order[s] + 1, numbers, work, 0)))
            if abs(h[s]) <= numbers[SPACING] * abs(t[s]):
                state = STEP_TOO_SMALL
        status[s] = state
    for i in range(d.shape[0]):
        for s in range(begin, end):
            if act[s] == ACCEPTED:
                q = order[s]
                table[q + 2, i, s] = d[i, s] - table[q + 1, i, s]
                table[q + 1, i, s] = d[i, s]
                for j in range(q, -1, -1):
                    table[j, i, s] += table[j + 1, i, s]


def begun(at: Any, numbers: Array, gamma: Array, alpha: Array, error: Array) -> None:
    """Choose order and length of the next step and predict its end, where `act` is not 0."""
    fixed = at.fixed
    _begun(at.act, at.square, at.factor, at.iteration, at.order, at.n_equal, at.age, at.table, fixed.rtol, fixed.atol,
           fixed.t, fixed.t1, fixed.h, fixed.longest, fixed.direction, at.lost, at.lost_new, at.t_new, at.last,
           at.per_c, at.c_factors, at.waiting, at.y, at.psi, at.d, numbers, gamma, alpha, error,
           threads=threads_of(at.d.size))  # fmt: skip


@inner
def choose(s, c, order, n_equal, square, factor, iteration, sums, numbers, error, work):
    """The order of the next steps of a sample, and the factor of their length."""
    q, per_n = order[s], numbers[PER_N]
    below, above = numbers[INFINITE], numbers[INFINITE]
    if q > 1:
        below = error[q - 1] * error[q - 1] * (sums[c] * per_n)
    if q < LONGEST_ORDER:
        above = error[q + 1] * error[q + 1] * (sums[TILE + c] * per_n)
    lower = root_of(below, q, numbers, work, 0)
    middle = root_of(square[s], q + 1, numbers, work, 0)
    upper = root_of(above, q + 2, numbers, work, 0)
    choice, largest = 0, lower * numbers[ONE]
    if middle > largest:
        choice, largest = 1, middle
    if upper > largest:
        choice, largest = 2, upper
    safety = SAFETY * (2 * ITERATIONS + 1) / (2 * ITERATIONS + iteration[s])
    factor[s] = min(LARGEST_FACTOR, safety * np.float64(largest))
    if factor[s] < numbers[KEPT] and factor[s] >= numbers[ONE]:
        factor[s] = numbers[ONE]
    else:
        order[s] = q + choice - 1
        n_equal[s] = 0


@inner
def change(work, place, spare, q, factor, one):
    """The matrix that takes differences to another step length, (6, 6) (Shampine, Reichelt 1997).

    It is written from ``work[place]`` on; 72 numbers from ``work[spare]`` on are free.
    """
    made, unit = work[spare : spare + 36], work[spare + 36 : spare + 72]
    for j in range(q + 1):
        made[j], unit[j] = one, one
        for i in range(1, q + 1):
            above = (i - 1 - factor * j) / (one * i)
            made[6 * i + j] = made[6 * i - 6 + j] * above if j > 0 else 0.0 * one
            unit[6 * i + j] = unit[6 * i - 6 + j] * ((i - 1 - j) / (one * i)) if j > 0 else 0.0 * one
    for i in range(q + 1):
        for j in range(q + 1):
            total = 0.0 * one
            for k in range(q + 1):
                total += made[6 * i + k] * unit[6 * k + j]
            work[place + 6 * i + j] = total


@inner
def prepared(
    s, act, factor, order, n_equal, age, iteration, t, t1, h, longest, direction, lost, lost_new, t_new, last, per_c,
    c_factors, waiting, numbers, alpha,
):  # fmt: skip
    """The next step of a sample but for its vectors."""
    rest, made = (t1[s] - t[s]) - lost[s], h[s] * factor[s]
    if abs(made) > longest[s]:
        made = direction[s] * longest[s]
    near = abs(made) * numbers[STRETCH] >= abs(rest)
    ends = near and abs(rest) <= longest[s]
    if ends:
        made = rest
    elif near:
        made = numbers[HALF] * rest  # two last steps where one would be too long
    same = made == h[s]
    factor[s] = numbers[ONE] if same else made / h[s]
    h[s], last[s] = made, ends
    t_new[s] = t1[s] if ends else t[s] + (made + lost[s])
    lost_new[s] = (made + lost[s]) - (t_new[s] - t[s])
    if not same:
        n_equal[s] = 0
    iteration[s] = 0
    age[s] += 1
    per_c[s] = alpha[order[s]] / made
    drift = abs(per_c[s] * c_factors[s] - numbers[ONE])  # c of the factors over c, less 1
    waiting[s] = not drift <= numbers[DRIFT] or age[s] > OLDEST or act[s] == RENEWS


@compiled
def _begun(
    act, square, factor, iteration, order, n_equal, age, table, rtol, atol, t, t1, h, longest, direction, lost,
    lost_new, t_new, last, per_c, c_factors, waiting, y, psi, d, numbers, gamma, alpha, error,
):  # fmt: skip
    n_samples = d.shape[1]
    for tile in prange((n_samples + TILE - 1) // TILE):
        begin = np.int64(tile) * TILE
        end = min(begin + TILE, n_samples)
        next_step(act, square, factor, iteration, order, n_equal, age, table, rtol, atol, t, t1, h, longest, direction,
                  lost, lost_new, t_new, last, per_c, c_factors, waiting, y, psi, d, numbers, gamma, alpha, error,
                  begin, end, new(BEGUN, d.dtype))  # fmt: skip


@inner
def next_step(
    act, square, factor, iteration, order, n_equal, age, table, rtol, atol, t, t1, h, longest, direction, lost,
    lost_new, t_new, last, per_c, c_factors, waiting, y, psi, d, numbers, gamma, alpha, error, begin, end, memory,
):  # fmt: skip
    """The body of `begun` for the samples from `begin` to before `end`."""
    work, sums, old = memory[: TILE * 36 + 72], memory[TILE * 36 + 72 : BEGUN - 6], memory[BEGUN - 6 : BEGUN]
    one, choosing = numbers[ONE], 0
    for s in range(begin, end):
        sums[s - begin], sums[TILE + s - begin] = one - one, one - one
        if act[s] == ACCEPTED and n_equal[s] > order[s]:
            choosing += 1
    if choosing > 0:
        for i in range(d.shape[0]):
            for s in range(begin, end):
                if act[s] == ACCEPTED and n_equal[s] > order[s]:
                    q = order[s]
                    weight = 1.0 / (atol[i if atol.shape[0] > 1 else 0, s] + rtol[s] * abs(table[0, i, s]))
                    lower, upper = table[q, i, s] * weight, table[q + 2, i, s] * weight
                    sums[s - begin] += lower * lower
                    sums[TILE + s - begin] += upper * upper
    for s in range(begin, end):
        if act[s] == ACCEPTED and n_equal[s] > order[s]:
            choose(s, s - begin, order, n_equal, square, factor, iteration, sums, numbers, error, old)
        if act[s] != 0:
            prepared(s, act, factor, order, n_equal, age, iteration, t, t1, h, longest, direction, lost, lost_new,
                     t_new, last, per_c, c_factors, waiting, numbers, alpha)  # fmt: skip
            if factor[s] != one:
                change(work, 36 * (s - begin), np.int64(TILE * 36), order[s], factor[s], one)
    for i in range(d.shape[0]):
        for s in range(begin, end):
            if act[s] != 0:
                predict(table, i, s, order[s], factor[s] != one, work, 36 * (s - begin), old, gamma, alpha, y, psi)
                d[i, s] = one - one


@inner
def predict(table, i, s, q, changes, work, place, old, gamma, alpha, y, psi):
    """Unknown `i` of a sample: its differences for another step length, its prediction, and what is past."""
    if changes:
        for j in range(q + 1):
            old[j] = table[j, i, s]
        for j in range(1, q + 1):
            total = work[place + 6 + j] * old[1]
            for k in range(2, q + 1):
                total += work[place + 6 * k + j] * old[k]
            table[j, i, s] = total
    value, past = table[0, i, s], table[1, i, s] * gamma[1]
    value += table[1, i, s]
    for j in range(2, q + 1):
        value += table[j, i, s]
        past += table[j, i, s] * gamma[j]
    y[i, s], psi[i, s] = value, past / alpha[q]
