"""Steps of Rosenbrock methods for many samples, all parts of a step of a tile of samples in one pass.

A tile's Jacobian, factors, stages and right-hand sides stay in the cache. Bytes that must move, float64: those of
``2 n`` numbers of each sample, and of the stages where they are wanted.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble._compile.lanes.arithmetic import absolute
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import compiled, inner, prange, thread_count
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.forms.flat import LU, factor_one, solve_one
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.ode.program import Program, interpret_one, load_tile, store_tile, width_of
from ensemble._typing import Array

__all__ = ["RodasPlan", "rodas_plan", "rodas_step"]

STAGES = 6

SMALL = 1 << 16
"""Numbers of the factors of all samples below which one thread works (`benchmarks stiff`)."""


class RodasPlan(NamedTuple):
    """What the steps of one system need."""

    code: Array
    constants: Array
    programs: Array
    """(3, 6), a row for the matrix, df/dt and f: the first instruction and their number, the first constant and their
    number, the first row of the program and that of its output."""
    places: Array
    """First rows of: t, h, rtol, broken, vector, stages, factors, atol."""
    numbers: Array
    """Weights of stages (6, 6), of slopes (6, 6), nodes and factors of df/dt (6 each), 1 / gamma, 1 / n, 1."""
    flat: Array
    n_rows: int
    """Rows of a tile."""
    n: int
    n_values: int


def rodas_plan(
    matrix: Program, slope: Program | None, f: Program, plan: Elimination, n_bounds: int, tables: Sequence[Any],
    gamma: float,
) -> RodasPlan:  # fmt: skip
    """The plan for programs of one system; `tables` are A, C, nodes and factors of df/dt."""
    dtype, n = f.constants.dtype, f.n
    codes, constants, programs = [], [], []
    lines, numbers, row = 0, 0, 0
    for program in (matrix, slope, f):
        if program is None:
            programs.append([0] * 6)
            continue
        size = program.constants.size
        programs.append([lines, len(program.code), numbers, size, row, row + program.first_output])
        codes.append(program.code)
        constants.append(program.constants)
        lines, numbers, row = lines + len(program.code), numbers + size, row + program.n_slots
    sizes = [1, 1, 1, 1, n, STAGES * n, plan.n_values, n_bounds]
    places = row + np.cumsum([0, *sizes])
    weights = np.zeros((2, STAGES, STAGES))
    for table, filled in zip(tables[:2], weights, strict=True):
        for i, given in enumerate(table):
            filled[i, : len(given)] = given
    all_numbers = [*weights.reshape(-1), *tables[2], *tables[3], 1.0 / gamma, 1.0 / n, 1.0]
    assert plan.flat is not None
    return RodasPlan(
        np.concatenate(codes).reshape(-1), np.concatenate(constants), np.array(programs, np.int64), places[:-1],
        np.array(all_numbers, dtype), plan.flat, int(places[-1]), n, plan.n_values,
    )  # fmt: skip


def rodas_step(plan: RodasPlan, now: Any, h: Array, keep: bool) -> tuple[Array, Array, Array]:
    """The states after one step of lengths `h`, the squared norms of the errors, and the stages if `keep`.

    They have shapes (n, S), (S,) and (6, n, S); `now` has t, p, y, rtol and atol of the samples.
    """
    n, n_samples = now.y.shape
    dtype = now.y.dtype
    width = width_of(n_samples, dtype.itemsize)
    n_tiles, small = -(-n_samples // width), plan.n_values * n_samples <= SMALL
    n_runs = 1 if small else min(n_tiles, thread_count())
    y, square = empty((n, n_samples), dtype), empty((1, n_samples), dtype)
    stages = empty((STAGES, n, n_samples if keep else 0), dtype)
    memory = empty((n_runs, plan.n_rows * width), dtype)
    _step(width)(
        plan.code, plan.constants, plan.programs, plan.places, plan.numbers, plan.flat, now.t[None], h[None], now.p,
        now.y, now.rtol[None], now.atol, memory, y, square, stages.reshape(STAGES * n, -1), keep, n_tiles, n,
        threads=ONE_THREAD if small else ALL_THREADS,
    )  # fmt: skip
    return y, square[0], stages


@inner
def weighted_sum(work, first, n, i, weights, row, count, width):
    """Entry `i` of the sum of `count` stages with weights from ``weights[row]`` on."""
    w = np.int64(width)
    total = load(work, first + i * w, width) * weights[row]
    for j in range(1, count):
        total = total + load(work, first + (j * n + i) * w, width) * weights[row + j]
    return total


@functools.cache
def _step(width: int) -> Any:
    """Longer than 60 lines: one loop whose parts share a tile."""

    @compiled
    def loop(
        code, constants, programs, places, numbers, flat, t_given, h_given, p, y, rtol, atol, memory, y_new, square,
        stages, keep, n_tiles, n,
    ):  # fmt: skip
        for r in prange(memory.shape[0]):
            work, w, zero = memory[r], np.int64(width), zeros(numbers, width)
            n_runs, n_samples = memory.shape[0], y.shape[1]
            at_t, at_h, at_rtol, at_broken = places[0] * w, places[1] * w, places[2] * w, places[3] * w
            vector = work[places[4] * w : places[5] * w]
            at_stages, at_factors, at_atol = places[5] * w, places[6] * w, places[7] * w
            one = numbers[86]
            at_state = (programs[2, 4] + programs[2, 3] + 1 + p.shape[0]) * w
            at_right = programs[2, 5] * w
            at_slope = programs[1, 5] * w
            for tile in range(np.int64(r) * n_tiles // n_runs, (np.int64(r) + 1) * n_tiles // n_runs):
                first = tile * w
                count = min(n_samples - first, w)
                load_tile(t_given, first, count, work, places[0], width)
                load_tile(h_given, first, count, work, places[1], width)
                load_tile(rtol, first, count, work, places[2], width)
                load_tile(atol, first, count, work, places[7], width)
                t, h = load(work, at_t, width), load(work, at_h, width)
                per_step = one / h
                for turn in range(2 + 6):
                    which, k = min(turn, 2), turn - 2
                    begin = programs[which, 4]
                    rows = begin + programs[which, 3]
                    if programs[which, 1] == 0 and which == 1:
                        continue
                    if k <= 0:
                        for c in range(programs[which, 3]):
                            value = splat(constants[programs[which, 2] + c], numbers, width)
                            store(work, (begin + c) * w, value)
                        load_tile(p, first, count, work, rows + 1, width)
                        state = rows + 1 + p.shape[0]
                        if turn == 0:
                            store(work, state * w, numbers[84] * per_step)
                            state += 1
                        load_tile(y, first, count, work, state, width)
                    time = t
                    if k > 0:
                        time = t + h if numbers[72 + k] == one else t + numbers[72 + k] * h
                    store(work, rows * w, time)
                    if k == 5:
                        for i in range(n):
                            place = at_state + i * w
                            store(
                                work, place, load(work, place, width) + load(work, at_stages + (4 * n + i) * w, width)
                            )
                    elif k > 0:
                        state_of(y, first, count, work, at_state, n, width)
                        for i in range(n):
                            place = at_state + i * w
                            total = weighted_sum(work, at_stages, n, i, numbers, 6 * k, k, width)
                            store(work, place, load(work, place, width) + total)
                    interpret_one(code, programs[which, 0], programs[which, 1], work, begin * w, zero)
                    if turn == 0:
                        factor_one(
                            work, programs[0, 5] * w, w, work, at_factors, work, work, at_broken, flat, False, zero
                        )  # fmt: skip
                    if k > 0:
                        for i in range(n):
                            place = at_right + i * w
                            total = weighted_sum(work, at_stages, n, i, numbers, 36 + 6 * k, k, width)
                            store(work, place, load(work, place, width) + per_step * total)
                    if k >= 0:
                        if programs[1, 1] > 0 and numbers[78 + k] != 0:
                            weight = numbers[78 + k] * h
                            for i in range(n):
                                place = at_right + i * w
                                value = load(work, place, width) + weight * load(work, at_slope + i * w, width)
                                store(work, place, value)
                        solve_one(
                            work, at_factors, w, flat, work, at_right, w, False, work, at_stages + k * n * w, w,
                            vector, LU, zero,
                        )  # fmt: skip
                broken, total = load(work, at_broken, width), zero
                good, bound = broken == broken, load(work, at_rtol, width)
                for i in range(n):
                    place, step = at_state + i * w, load(work, at_stages + (5 * n + i) * w, width)
                    value = load(work, place, width) + step
                    store(work, place, select(good, value, broken))
                    load_one(y, i, first, count, work, at_t, width)
                    a, b = absolute(load(work, at_t, width)), absolute(value)
                    largest = select((a > b) | (a != a), a, b)
                    least = load(work, at_atol + (i * w if atol.shape[0] > 1 else 0), width)
                    quotient = step / (least + bound * largest)
                    total = total + quotient * quotient
                store(work, at_t, select(good, total * numbers[85], broken))
                store_tile(work, places[0], width, square, first, count)
                store_tile(work, programs[2, 4] + programs[2, 3] + 1 + p.shape[0], width, y_new, first, count)
                if keep:
                    store_tile(work, places[5], width, stages, first, count)

    return loop


@inner
def load_one(source, k, first, count, slots, at, width):
    """Row `k` of `source` to slots from entry `at` on."""
    for s in range(count):
        slots[at + s] = source[k, first + s]
    for s in range(count, width):
        slots[at + s] = source[k, first + count - 1]


@inner
def state_of(source, first, count, slots, at, n, width):
    """The rows of `source` to slots from entry `at` on."""
    for k in range(n):
        load_one(source, k, first, count, slots, at + k * width, width)
