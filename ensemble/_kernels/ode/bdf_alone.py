"""Passes of `bdf` for one sample, one behind the other: Python has none of them.

What `ode/bdf.py` does for all samples at once, with the same bits: f, the matrix and its factors are those of
`rodas_alone.py`, the control is that of `bdf_steps.py`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled_procedure
from ensemble._compile.plain_code import Indices, Integers, Numbers, Register, behind, entry, plain
from ensemble._kernels.ode.bdf_steps import ACCEPTED, BEGUN, TILE, ended, judged, next_step
from ensemble._kernels.ode.lock_step_control import passes
from ensemble._kernels.ode.rodas_alone import (
    BEFORE,
    FACTORS,
    LISTS,
    MASKS,
    SOLUTIONS,
    VECTOR,
    AlonePlan,
    N,
    evaluated,
    factorized,
    solved,
    state_of,
    write_parameters,
)
from ensemble._typing import Array

__all__ = ["passes_alone"]


@plain
def renew_factors(
    code: Indices, places: Integers, work: Numbers, y: Numbers, t: float, per_c: float, zero: Register
) -> float:  # fmt: skip
    """Write the factors of ``per_c I - J`` at t and y; NaN where the matrix has no factors, else zero."""
    n, at = places[N], state_of(places, 0)
    work[at] = per_c
    for i in range(n):
        work[at + 1 + i] = y[i]
    evaluated(code, places, 0, t, work, zero)
    factors, masks = behind(work, places[FACTORS]), behind(work, places[MASKS])
    return factorized(behind(code, places[LISTS]), n, behind(work, places[4]), factors, masks, zero)


@plain
def correct(
    code: Indices, places: Integers, work: Numbers, y: Numbers, psi: Numbers, d: Numbers, t: float, per_c: float,
    broken: float, out: Numbers, zero: Register,
) -> None:  # fmt: skip
    """Write the correction of one iteration; NaN where the matrix has no factors."""
    n = places[N]
    state, right = behind(work, state_of(places, 2)), behind(work, places[14])
    for i in range(n):
        state[i] = y[i]
    evaluated(code, places, 2, t, work, zero)
    for i in range(n):
        right[i] = right[i] - (psi[i] + d[i]) * per_c
    factors, vector = behind(work, places[FACTORS]), behind(work, places[VECTOR])
    solved(behind(code, places[SOLUTIONS]), n, factors, right, vector, behind(work, places[BEFORE]), zero)
    for i in range(n):
        out[i] = work[places[BEFORE] + i] if broken == broken else broken


_renew, _correct = entry(renew_factors), entry(correct)


def passes_alone(plan: AlonePlan, at: Any, tables: tuple[Array, ...], work: Array, broken: Array, once: bool) -> bool:
    """Make iterations until a step that is accepted passes an output time or the run ends; whether that is so.

    `at` has the only column of a run, whose last step has been begun; where the answer is no, its next step has, too.
    `tables` are the numbers of the control and the constants by order: gamma, alpha and those of errors. `work` is a
    copy of the memory of the plan and `broken` one number, which all calls for one sample share. `once`: each accepted
    step counts as one that passes an output time.
    """
    fixed, dtype = at.fixed, at.y.dtype
    memory = np.empty(max(BEGUN, 3 * TILE) + at.y.shape[0], dtype)
    correction = memory[-at.y.shape[0] :]
    stopped: int = _passes(64 // dtype.itemsize)(
        plan.code, plan.places, work, *tables, memory, correction.reshape(-1, 1), correction, broken,
        at.y, at.y.reshape(-1), at.psi, at.psi.reshape(-1), at.d, at.d.reshape(-1), at.table, fixed.p.reshape(-1),
        fixed.rtol, fixed.atol, fixed.ids, fixed.t, fixed.t1, fixed.h, fixed.longest, fixed.direction, fixed.n_steps,
        fixed.n_rejected, fixed.most, fixed.t_eval, at.lost, at.lost_new, at.t_new, at.t_old, at.rate, at.norm,
        at.per_c, at.c_factors, at.order, at.n_equal, at.iteration, at.age, at.waiting, at.last, at.square, at.factor,
        at.outcome, at.act, at.status, once, plan.most,
    )  # fmt: skip
    return stopped > 0


@functools.cache
def _passes(width: int) -> Any:
    @compiled_procedure
    def loop(
        code, places, work, numbers, gamma, alpha, error, memory, dy, flat_dy, broken, y, flat_y, psi, flat_psi, d,
        flat_d, table, p, rtol, atol, ids, t, t1, h, longest, direction, n_steps, n_rejected, most, t_eval, lost,
        lost_new, t_new, t_old, rate, norm, per_c, c_factors, order, n_equal, iteration, age, waiting, last, square,
        factor, outcome, act, status, once, limit,
    ):  # fmt: skip
        zero, one, count = zeros(numbers, width), numbers[2], 0
        write_parameters(places, work, p)
        while count < limit:
            if waiting[0]:
                broken[0] = _renew(code, places, work, flat_y, t_new[0], per_c[0], zero)
                c_factors[0], age[0], rate[0] = one / per_c[0], 0, one
                waiting[0] = False
            _correct(code, places, work, flat_y, flat_psi, flat_d, t_new[0], per_c[0], broken[0], flat_dy, zero)
            judged(dy, c_factors, per_c, d, y, table, rtol, atol, ids, waiting, order, iteration, rate, norm, numbers,
                   error, square, outcome, 0, 1, memory)  # fmt: skip
            count += 1
            if outcome[0] == 0:
                continue
            ended(outcome, square, age, iteration, order, table, d, t, t_new, h, lost, lost_new, last, n_equal,
                  n_steps, n_rejected, most, numbers, act, status, factor, t_old, 0, 1, memory)  # fmt: skip
            if status[0] > 0:
                return 1
            if act[0] == ACCEPTED and t_eval.shape[0] > 0 and passes(t_eval, 0, t_old[0], t[0], direction[0]):
                return 1
            if act[0] == ACCEPTED and once:
                return 1
            next_step(act, square, factor, iteration, order, n_equal, age, table, rtol, atol, t, t1, h, longest,
                      direction, lost, lost_new, t_new, last, per_c, c_factors, waiting, y, psi, d, numbers, gamma,
                      alpha, error, 0, 1, memory)  # fmt: skip
        return 0

    return loop
