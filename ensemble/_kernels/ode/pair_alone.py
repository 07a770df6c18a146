"""Steps of explicit pairs for one sample, one behind the other, with their control: Python has none of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.numba import compiled_procedure, empty
from ensemble._kernels.ode.group_plan import Groups
from ensemble._kernels.ode.groups import memory_of, stages_of_tile
from ensemble._kernels.ode.lock_step import squares_of_tile
from ensemble._kernels.ode.lock_step_control import Plan, committed, judged, planned
from ensemble._typing import Array

__all__ = ["pair_alone"]

LONG = 1 << 24
"""Operations of the steps that are taken without Python, about: some hundredths of a second."""


def pair_alone(
    groups: Groups, tableau: tuple[Array, Array, Array], steps: Plan, ended: Array, now: Any, control: Array, m: int,
    once: bool,
) -> tuple[int, Array, Array, Array]:  # fmt: skip
    """Take steps until one passes an output time, ends the run or has company: it is judged, but not committed.

    `tableau` has the weights of the stages, the nodes and the weights of the errors; `now.slope` the first stage.
    `ended`, `control` and `m` are arguments of `lock_step_control.next_steps` and `judge`. `once`: one step. Returns
    what was found, the new state, the squared norm of the error and the stages.
    """
    weights, nodes, errors = tableau
    n, dtype = now.y.shape[0], now.y.dtype
    n_stages = weights.shape[0]
    stages, point = empty((n_stages, n, 1), dtype), np.empty((n, 1), dtype)
    rows, squares, square = np.concatenate([now.t[None], now.p]), np.empty((len(errors), 1), dtype), np.empty(1, dtype)
    numbers = np.array([1.0 / n, 0.01, 0.0, 1.0], dtype)
    most = 1 if once else max(1, LONG // (n_stages * (groups.index.size + 4 * n)))
    memory, _ = memory_of(groups, 1)
    found: int = _steps(
        groups.table, groups.index, groups.coefficients, groups.constants, groups.inputs, groups.outputs, rows, stages,
        weights, nodes, errors, point, memory[0], groups.n_slots, groups.largest, control, numbers, ended, now.t, now.h,
        now.t0, now.t1, now.direction, now.longest, now.n_steps, now.most, now.n_rejected, now.rejected, now.y,
        now.slope, now.events, now.rtol, now.atol, now.t_eval, steps.running, steps.last, steps.h, steps.t_new,
        steps.least, steps.accepted, steps.proposed, steps.status, squares, square, m, most,
    )  # fmt: skip
    return found, point, square, stages


@compiled_procedure
def _steps(
    table, index, coefficients, constants, inputs, outputs, rows, stages, weights, nodes, errors, point, slots,
    n_slots, largest, control, numbers, ended, t, h, t0, t1, direction, longest, n_steps, most, n_rejected, rejected,
    y, slope, events, rtol, atol, t_eval, running, last, length, t_new, least, accepted, proposed, status, squares,
    square, m, limit
):  # fmt: skip
    share, part, none, one = numbers[0], numbers[1], numbers[2], numbers[3]
    found, count = 0, 0
    while True:
        planned(ended, t, h, t0, t1, direction, longest, n_steps, most, control, False, running, last, length, t_new,
                least)  # fmt: skip
        for i in range(y.shape[0]):
            stages[0, i, 0] = slope[i, 0]
        stages_of_tile(table, index, coefficients, constants, inputs, outputs, rows, y, t, length, stages, weights,
                       nodes, 1, point, slots, 0, 1, n_slots, largest)  # fmt: skip
        for e in range(squares.shape[0]):
            squares[e, 0] = none
        squares_of_tile(stages, errors, length, y, point, rtol, atol, squares, 0, 1)
        made = squares[0, 0] * share
        if squares.shape[0] > 1:
            whole = made + part * (squares[1, 0] * share)
            made = made * made / (one if whole == none else whole)
        square[0] = made
        found = judged(square, t, h, direction, longest, rejected, n_steps, most, t_eval, control, m, False, running,
                       last, length, t_new, least, accepted, proposed, status)  # fmt: skip
        count += 1
        if found > 0 or count >= limit:
            return found
        committed(running, accepted, t_new, proposed, point, stages[stages.shape[0] - 1], events, t, h, n_steps,
                  n_rejected, rejected, y, slope, events, control[7])  # fmt: skip
    return found
