"""Steps of Rosenbrock methods for one sample, one behind the other, with their control: Python has none of them.

What `rodas_steps.py` does for a tile, with the same bits: registers hold entries of one sample's vectors instead of one
entry of several samples. A row of factors is changed by all rows above it, the nearest last, so that every entry
has its products in the order of `direct/forms/flat.py`. Entries of a register of the row are changed together, but for
those that the row above does not have.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled_procedure, inner
from ensemble._compile.plain_code import (
    LANES,
    Indices,
    Integers,
    Numbers,
    Register,
    behind,
    chosen,
    entry,
    inlined,
    load,
    plain,
    spread,
    store,
)
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.ode.batches import batches_of, run_batches
from ensemble._kernels.ode.lock_step_control import Plan, committed, judged, planned
from ensemble._kernels.ode.program import Program
from ensemble._typing import Array

__all__ = [
    "BEFORE",
    "FACTORS",
    "LISTS",
    "MASKS",
    "SOLUTIONS",
    "VECTOR",
    "AlonePlan",
    "N",
    "Run",
    "alone_plan",
    "evaluated",
    "factorized",
    "solved",
    "state_of",
    "steps_alone",
]

STAGES = 6

LONG = 1 << 24
"""Operations of the steps that are taken without Python, about: some hundredths of a second."""


class AlonePlan(NamedTuple):
    """What the steps of one system need."""

    code: Array
    """int32: the batches of the programs, the list of factors, that of solutions."""
    places: Array
    """The programs for the matrix, df/dt and f: the first entry of their batches and the one behind the last, the
    place of their memory, the number of constants, and the place of their outputs. From `N` on: numbers and places that
    they share."""
    numbers: Array
    """Those of `RodasPlan`."""
    work: Array
    """The memory at the start, with constants."""
    most: int
    """Steps that are taken without Python."""


N, N_PARAMETERS, N_BOUNDS, FREE, FACTORS, STAGE, VECTOR, BEFORE, MASKS, LISTS, SOLUTIONS = range(15, 26)
"""Places in `AlonePlan.places`."""


def alone_plan(
    matrix: Program, slope: Program | None, f: Program, plan: Elimination, n_bounds: int, numbers: Array
) -> AlonePlan:  # fmt: skip
    """The plan for programs of one system; `numbers` are those of `RodasPlan`."""
    lanes, dtype, n = 64 // numbers.itemsize, numbers.dtype, f.n
    places, codes, at, row, cost = list[int](), list[Array](), 0, 0, 0
    constants = list[tuple[int, Array]]()
    for program in (matrix, slope, f):
        if program is None:
            places += [0] * 5
            continue
        made = batches_of(program)
        constants.append((row, program.constants))
        places += [at, at + made.code.size, row, program.constants.size, row + program.first_output]
        codes.append(made.code)
        at, cost = at + made.code.size, cost + (STAGES if program is f else 1) * len(program.code)
        row = _up(row + made.n_slots, lanes)
    factors, solutions, n_values = _lists(plan, lanes)
    wide = _up(n, lanes) + lanes
    masks = _masks(lanes)
    shared = np.cumsum([row, 2 * lanes, n_values + lanes, STAGES * wide, wide, wide, masks.size])
    places += [n, f.n_rows - 1, n_bounds, *shared[:6].tolist(), at, at + factors.size]
    work = np.zeros(int(shared[6]), dtype)
    work[shared[5] :] = masks
    for first, values in constants:
        work[first : first + values.size] = values
    cost += plan.multiply_adds + 2 * STAGES * (plan.n_values + STAGES * n)
    return AlonePlan(
        np.concatenate([*codes, factors, solutions]), np.array(places), numbers, work, max(1, LONG // cost)
    )  # fmt: skip


def _up(count: int, lanes: int) -> int:
    """The next multiple."""
    return -(-count // lanes) * lanes


def _lists(plan: Elimination, lanes: int) -> tuple[Array, Array, int]:
    """The lists of a factorisation and of its solutions, int32, and the numbers of its rows, each from a register on.

    Factors: the number of values with, for each, its place and source; then of each row the number of entries left of
    the diagonal, the place of its first one, and for each of these the place of the pivot above and the number of
    registers that it changes, with their source, their place and their mask (`_masks`), three numbers each.

    Solutions: of each row its place in the right-hand side, the place of its first entry, the number of
    entries left of the diagonal, their columns; then, from the last row on, the place in the solution, of the entry
    behind the pivot, the number of entries, their columns.
    """
    sizes = np.diff(plan.first)
    starts = lanes + np.concatenate([[0], np.cumsum(-(-sizes // lanes) * lanes)])  # one register before may be read
    place = np.repeat(starts[:-1] - plan.first[:-1], sizes) + np.arange(plan.n_values)
    factors = [np.array([plan.n_values]), np.stack([place, plan.sources], axis=1).reshape(-1)]
    before, after, n = list[Array](), list[Array](), plan.diagonal.size
    uppers = [plan.upper[plan.upper_starts[i] : plan.upper_starts[i + 1]] for i in range(n)]
    lowers = [plan.lower[plan.lower_starts[i] : plan.lower_starts[i + 1]] for i in range(n)]
    pivots = place[plan.diagonal]
    for i in range(n):
        columns = np.concatenate([lowers[i], [i], uppers[i]])
        lines = [lowers[i].size, int(starts[i])]
        for k in lowers[i].tolist():
            registers = _registers(uppers[k], columns, int(pivots[k]) + 1, int(starts[i]), lanes)
            lines += [int(pivots[k]), len(registers) // 3, *registers]
        factors.append(np.array(lines))
        before += [np.array([plan.rows[i], starts[i], lowers[i].size]), lowers[i]]
        after += [np.array([plan.columns[i], pivots[i] + 1, uppers[i].size]), uppers[i]]
    backward = [part for i in range(n - 1, -1, -1) for part in after[2 * i : 2 * i + 2]]
    solutions = np.concatenate([*before, *backward])
    return np.concatenate(factors).astype(np.int32), solutions.astype(np.int32), int(starts[-1])


def _registers(upper: Array, columns: Array, source: int, first: int, lanes: int) -> list[int]:
    """The registers of the row with entries in `columns` that a row above, with entries in `upper`, changes."""
    targets = np.asarray(first + np.searchsorted(columns, upper))
    cuts = [0, *(np.flatnonzero(np.diff(targets) != 1) + 1).tolist(), upper.size]
    lines = list[int]()
    for begin, end in itertools.pairwise(cuts if upper.size else []):
        low = int(targets[begin])
        shift, high = source + begin - low, low + end - begin
        for place in range(low - low % lanes, high, lanes):
            head, tail = max(low - place, 0), min(high - place, lanes)
            lines += [place + shift, place, (head * (lanes + 1) + tail) * lanes]
    return lines


def _masks(lanes: int) -> Array:
    """Ones from entry `head` to before entry `tail`, at entry ``(head (lanes + 1) + tail) lanes``."""
    entry = np.arange(lanes)
    head, tail = np.arange(lanes)[:, None, None], np.arange(lanes + 1)[:, None]
    return ((entry >= head) & (entry < tail)).reshape(-1)


# --- one step
@plain
def factorized(lists: Indices, n: int, values: Numbers, out: Numbers, masks: Numbers, zero: Register) -> float:
    """Write the factors of the matrix with entries `values`; NaN where one is not finite, else zero.

    A register has entries of one row, and is loaded as it was stored: other loads would wait for the memory.
    """
    last = 2 * lists[0] + 1
    for at in range(1, last, 2):
        source = lists[at + 1]
        out[lists[at]] = values[source] if source >= 0 else 0.0
    at, check = last, 0.0
    for _ in range(n):
        n_left, e = lists[at], lists[at + 1]
        at += 2
        for _ in range(n_left):
            factor = out[e] * out[lists[at]]
            out[e] = factor
            wide, count = spread(factor), lists[at + 1]
            at, e = at + 2, e + 1
            for line in range(at, at + 3 * count, 3):
                place = lists[line + 1]
                old = load(out, place)
                new = old - wide * load(out, lists[line])
                store(out, place, chosen(load(masks, lists[line + 2]) != 0.0, new, old))
            at += 3 * count
        pivot = out[e]
        inverse = 1.0 / pivot
        out[e] = inverse + (pivot - pivot) + (inverse - inverse)
    for at in range(1, last, 2):
        value = out[lists[at]]
        check = check + (value - value)
    return check


@plain
def solved(lists: Indices, n: int, factors: Numbers, b: Numbers, y: Numbers, x: Numbers, zero: Register) -> None:
    """Substitution forward from `b` to `y` and backward to `x`."""
    at = 0
    for i in range(n):
        total, e, count = b[lists[at]], lists[at + 1], lists[at + 2]
        at += 3
        for k in range(count):
            total = total - factors[e + k] * y[lists[at + k]]
        y[i] = total
        at += count
    for i in range(n - 1, -1, -1):
        e, count = lists[at + 1], lists[at + 2]
        total, to = y[i], lists[at]
        at += 3
        for k in range(count):
            total = total - factors[e + k] * y[lists[at + k]]
        total = total * factors[e - 1]
        y[i] = total
        x[to] = total
        at += count


@inlined
def _sum_of_stages(
    work: Numbers, stages: int, far: int, n: int, weights: Numbers, count: int, base: Numbers, scale: float,
    out: Numbers, zero: Register,
) -> None:  # fmt: skip
    """``out = base + scale (weights[0] stages[0] + ...)``, in whole registers."""
    for i in range(0, n, LANES):
        total = load(work, stages + i) * weights[0]
        for j in range(1, count):
            total = total + load(work, stages + j * far + i) * weights[j]
        store(out, i, load(base, i) + scale * total)


@inlined
def evaluated(code: Indices, places: Integers, which: int, t: float, work: Numbers, zero: Register) -> None:
    """Run a program at time `t`."""
    at = 5 * which
    work[places[at + 2] + places[at + 3]] = t
    run_batches(code, places[at], places[at + 1], behind(work, places[at + 2]), places[FREE] - places[at + 2], zero)


@inlined
def state_of(places: Integers, which: int) -> int:
    """The place of the state of a program; that for the matrix has a shift before it."""
    return places[5 * which + 2] + places[5 * which + 3] + 1 + places[N_PARAMETERS]


@plain
def _square(
    y: Numbers, state: Numbers, last: Numbers, y_new: Numbers, atol: Numbers, n_bounds: int, rtol: float, broken: float,
    n: int, zero: Register,
) -> float:  # fmt: skip
    """Write the new state, NaN if `broken` is; the sum of squared quotients of errors and their bounds."""
    total = 0.0
    for i in range(n):
        value = state[i] + last[i]
        y_new[i] = value if broken == broken else broken
        a, b = abs(y[i]), abs(value)
        largest = a if a > b or a != a else b
        quotient = last[i] / (atol[i if n_bounds > 1 else 0] + rtol * largest)
        total = total + quotient * quotient
    return total


@plain
def step_alone(
    code: Indices, places: Integers, numbers: Numbers, work: Numbers, y_new: Numbers, atol: Numbers, t: float, h: float,
    rtol: float, zero: Register,
) -> float:  # fmt: skip
    """One step from the state at ``work[places[BEFORE]]``; the squared norm of its error."""
    n, stages, far = places[N], places[STAGE], places[VECTOR] - places[STAGE]
    far = far // 6
    lists, solutions = behind(code, places[LISTS]), behind(code, places[SOLUTIONS])
    y, factors, vector = behind(work, places[BEFORE]), behind(work, places[FACTORS]), behind(work, places[VECTOR])
    per_step, has_slope = 1.0 / h, places[6] > places[5]
    at = state_of(places, 0)
    work[at] = numbers[84] * per_step
    for i in range(n):
        work[at + 1 + i] = y[i]
    evaluated(code, places, 0, t, work, zero)
    broken = factorized(lists, n, behind(work, places[4]), factors, behind(work, places[MASKS]), zero)
    if has_slope:
        at = state_of(places, 1)
        for i in range(n):
            work[at + i] = y[i]
        evaluated(code, places, 1, t, work, zero)
    state, right = behind(work, state_of(places, 2)), behind(work, places[14])
    for k in range(STAGES):
        time = t
        if k == 0:
            for i in range(n):
                state[i] = y[i]
        elif k == 5:
            for i in range(n):
                state[i] = state[i] + work[stages + 4 * far + i]
        else:
            _sum_of_stages(work, stages, far, n, behind(numbers, 6 * k), k, y, 1.0, state, zero)
        if k > 0:
            time = t + h if numbers[72 + k] == 1.0 else t + numbers[72 + k] * h
        evaluated(code, places, 2, time, work, zero)
        if k > 0:
            _sum_of_stages(work, stages, far, n, behind(numbers, 36 + 6 * k), k, right, per_step, right, zero)
        if has_slope and numbers[78 + k] != 0.0:
            weight = numbers[78 + k] * h
            for i in range(n):
                right[i] = right[i] + weight * work[places[9] + i]
        solved(solutions, n, factors, right, vector, behind(work, stages + k * far), zero)
    total = _square(y, state, behind(work, stages + 5 * far), y_new, atol, places[N_BOUNDS], rtol, broken, n, zero)
    return total * numbers[85] if broken == broken else broken


_step = entry(step_alone)


# --- many of them
class Run(NamedTuple):
    """What steps of one sample leave: see `rodas_steps.rodas_step`."""

    found: int
    y: Array
    square: Array
    stages: Array


def steps_alone(
    plan: AlonePlan, steps: Plan, ended: Array, now: Any, control: Array, m: int, fixed: bool, once: bool, work: Array
) -> Run:  # fmt: skip
    """Take steps until one passes an output time, ends the run or has company: it is judged, but not committed.

    `ended`, `control`, `m` and `fixed` are arguments of `lock_step_control.next_steps` and `judge`. `once`: one step.
    `work` is a copy of the memory of the plan, which all calls for one sample share.
    """
    n, dtype = now.y.shape[0], now.y.dtype
    y, square = np.empty((n, 1), dtype), np.empty(1, dtype)
    places = plan.places
    found: int = _steps(64 // dtype.itemsize)(
        plan.code, places, plan.numbers, work, control, ended, now.t, now.h, now.t0, now.t1, now.direction,
        now.longest, now.n_steps, now.most, now.n_rejected, now.rejected, now.y, now.slope, now.events,
        now.p.reshape(-1), now.rtol, now.atol.reshape(-1), now.t_eval, steps.running, steps.last, steps.h, steps.t_new,
        steps.least, steps.accepted, steps.proposed, steps.status, y, y.reshape(-1), square, m, fixed,
        1 if once else plan.most,
    )  # fmt: skip
    far = (places[VECTOR] - places[STAGE]) // STAGES
    stages = work[places[STAGE] : places[VECTOR]].reshape(STAGES, far, 1)[:, :n]
    return Run(found, y, square, stages)


@inner
def write_parameters(places, work, p):
    """Write the parameters of a sample to the memory of each of the three programs that there are."""
    for which in range(3):
        if places[5 * which + 1] == places[5 * which]:
            continue
        first = places[5 * which + 2] + places[5 * which + 3] + 1
        for k in range(p.size):
            work[first + k] = p[k]


@functools.cache
def _steps(width: int) -> Any:
    @compiled_procedure
    def loop(
        code, places, numbers, work, control, ended, t, h, t0, t1, direction, longest, n_steps, most, n_rejected,
        rejected, y, slope, events, p, rtol, atol, t_eval, running, last, length, t_new, least, accepted, proposed,
        status, y_new, flat_new, square, m, fixed, limit,
    ):  # fmt: skip
        zero, before = zeros(numbers, width), places[BEFORE]
        write_parameters(places, work, p)
        found, count, none = 0, 0, slope
        while True:
            planned(ended, t, h, t0, t1, direction, longest, n_steps, most, control, fixed, running, last, length,
                    t_new, least)  # fmt: skip
            for i in range(y.shape[0]):
                work[before + i] = y[i, 0]
            square[0] = _step(code, places, numbers, work, flat_new, atol, t[0], length[0], rtol[0], zero)
            found = judged(square, t, h, direction, longest, rejected, n_steps, most, t_eval, control, m, fixed,
                           running, last, length, t_new, least, accepted, proposed, status)  # fmt: skip
            count += 1
            if found > 0 or count >= limit:
                return found
            committed(running, accepted, t_new, proposed, y_new, none, events, t, h, n_steps, n_rejected, rejected, y,
                      none, events, control[7])  # fmt: skip
        return found

    return loop
