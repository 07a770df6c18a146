"""Integration on a CUDA device, by one kernel for each right-hand side and method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._compile import device
from ensemble._kernels.ode import ode_launch
from ensemble._typing import Array
from ensemble.ode.compiled import Bodies, bodies_of
from ensemble.ode.problem import Problem, Solution

__all__ = ["arrays_of", "run", "shape_of", "text_of"]

BLOCKS_PER_MULTIPROCESSOR = 64
"""Of threads that take one sample after another."""


def shape_of(problem: Problem, bodies: Bodies) -> ode_launch.Shape:
    """The compile-time numbers of the kernel."""
    system = problem.system
    n_carried = problem.method.n_carried(system)
    return ode_launch.Shape(system.n, n_carried, system.n_parameters, problem.atol.shape[0], len(problem.events),
                        bodies.degree, problem.is_dense, bodies.alike, problem.dtype)  # fmt: skip


def text_of(problem: Problem, bodies: Bodies) -> str:
    """The source of the kernel."""
    return ode_launch.source(bodies.start, bodies.loop, bodies.event, bodies.rows, shape_of(problem, bodies))


def arrays_of(problem: Problem) -> dict[str, Array]:
    """The arrays that a kernel reads, by the names of `launch.ARRAYS`."""
    arrays = {
        "y0": problem.y0, "p": problem.p, "t0": problem.t0, "t1": problem.t1, "h": problem.step,
        "max_steps": problem.n_steps, "rtol": problem.rtol, "atol": problem.atol,
        "longest": problem.longest_step, "times": problem.t_eval,
    }  # fmt: skip
    xp = array_namespace(problem.y0)
    return {name: array if array.flags.c_contiguous else xp.ascontiguousarray(array) for name, array in arrays.items()}


def run(problem: Problem, callback: Callable[[int], None] | None = None, bodies: Bodies | None = None) -> Solution:
    """Integrate all samples; `callback` is given the samples that are finished and may raise.

    `bodies` are those of the problem where they are not given.
    """
    bodies = bodies_of(problem) if bodies is None else bodies
    xp = array_namespace(problem.y0)
    kernel = ode_launch.kernel(text_of(problem, bodies))
    S, n, like = problem.n_samples, problem.system.n, problem.y0
    real, n_events = like.dtype, len(problem.events)

    def unreached(shape: tuple[int, ...]) -> Array:
        return xp.full(shape, xp.nan, dtype=real) if shape[0] else xp.empty(shape, dtype=real)

    counts = xp.zeros((2 + n_events, S), dtype=xp.int64)
    if problem.n_roots is not None:
        counts[2:] = problem.n_roots
    solution = Solution(
        xp.empty((n, S), dtype=real), xp.empty(S, dtype=real), xp.zeros(S, dtype=xp.int8), counts[0], counts[1],
        unreached((problem.t_eval.shape[0], n, S)), unreached((n_events, problem.max_roots, S)), counts[2:],
    )  # fmt: skip
    if n_events:
        tables = [asarray_like(np.array(numbers, np.int32), like) for numbers in (problem.sides, problem.terminal)]
    else:
        tables = [counts, counts]  # which no code reads
    blocks = -(-S // ode_launch.THREADS)
    if not bodies.alike:
        blocks = min(blocks, device.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR)
    sizes = S, problem.t_eval.shape[0], problem.max_roots
    given = ode_launch.arguments(arrays_of(problem), *sizes, [*solution, *tables])
    kernel((blocks,), (ode_launch.THREADS,), given)
    if callback is not None:
        callback(S)
    return solution
