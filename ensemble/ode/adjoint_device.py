"""Gradients on a CUDA device, by one kernel for each right-hand side and method."""

from __future__ import annotations

from ensemble._backend import array_namespace
from ensemble._kernels.ode import backward_launch, ode_launch
from ensemble._typing import Array
from ensemble.ode.compiled import bodies_of
from ensemble.ode.device import arrays_of, shape_of
from ensemble.ode.ode_result import OdeStatus
from ensemble.ode.problem import Problem, Solution, part_of
from ensemble.ode.steps import Steps

__all__ = ["backward"]

RECORD = 1 << 28
"""Numbers of the record of the samples that are on the device at a time."""


def backward(problem: Problem, steps: Steps, weights: Array, solution: Solution) -> tuple[Array, Array]:
    """The derivatives with respect to y0 and p.

    Parameters
    ----------
    problem : Problem
    steps : Steps
    weights : array, shape (n_times or 1, n, S)
        The cotangents.
    solution : Solution
        What `solve` found: how many steps there are.
    """
    xp, bodies = array_namespace(problem.y0), bodies_of(problem)
    n, k, S = problem.system.n, problem.system.n_parameters, problem.n_samples
    text = backward_launch.source(bodies.start, bodies.loop, steps.sweep, steps.start, bodies.rows,
                                  shape_of(problem, bodies), steps.degree)  # fmt: skip
    kernel = backward_launch.kernel(text)
    capacity = max(int((solution.n_steps - solution.n_rejected).max()), 1)
    entry = 2 + steps.size
    most = max(RECORD // (capacity * entry) // ode_launch.THREADS, 1) * ode_launch.THREADS
    gradients = []
    for first in range(0, S, most):
        last = min(first + most, S)
        part = part_of(problem, first, last)
        count = last - first
        record = xp.empty((capacity, entry, count), dtype=problem.y0.dtype)
        made = [xp.empty((rows, count), dtype=problem.y0.dtype) for rows in (n, k)]
        chosen = xp.asarray(weights[..., first:last], order="C")
        given = backward_launch.arguments(arrays_of(part), count, problem.t_eval.shape[0], capacity,
                                          [chosen, record, *made])  # fmt: skip
        kernel((-(-count // ode_launch.THREADS),), (ode_launch.THREADS,), given)
        gradients.append(made)
    failed = solution.status != int(OdeStatus.finished)
    unknown = xp.asarray(xp.nan, dtype=problem.y0.dtype)
    by_y0, by_p = (xp.where(failed, unknown, xp.concat(list(parts), axis=-1)) for parts in zip(*gradients, strict=True))
    return by_y0, by_p
