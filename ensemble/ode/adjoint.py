"""Gradients of losses of the solution: the steps that were taken are run backwards by the chain rule, to rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, is_array
from ensemble._check import kind_of, message, require
from ensemble._compile.numba import thread_count
from ensemble._interrupts import apart
from ensemble._kernels.ode.backward import Backward, backward_addresses, gradient_range
from ensemble._kernels.ode.ode_generated import single_width
from ensemble._keywords import explains_calls
from ensemble._progress import Display
from ensemble._typing import Array
from ensemble.ode.adjoint_segments import backward_over_segments
from ensemble.ode.arguments import require_no_events, require_real, stacked
from ensemble.ode.compiled import Bodies, aligned, bodies_of, places_of, sources_of
from ensemble.ode.extension import require_own_steps, require_traceable
from ensemble.ode.numbers import with_numbers
from ensemble.ode.ode_result import OdeResult, without_failed
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.solve import problem_of, result_of, run
from ensemble.ode.steps import Steps, recording, steps_of
from ensemble.scalar import Ensemble
from ensemble.scalar.ensemble import wrap

__all__ = ["OdeGradient", "gradient"]

NAME = "ode.gradient"

RECORD = 1 << 17
"""Numbers of the record of states, of a set of lanes: it stays in the second-level cache."""

CHUNK = 256
"""Samples that a thread takes at a time."""

MOST_DOUBLE = 6
"""Values that go from step to step for which two registers per value are faster than one.

Measured again by `benchmarks ode-derivatives`.
"""

KEPT = 64
"""Systems of which the compiled functions are kept."""


class OdeGradient(NamedTuple):
    """The solution and the gradient of ``sum cotangent y``, sample by sample. NaN for samples that failed.

    A value that `f` does not choose, as by ``xp.where(y > 0, xp.sqrt(y), 0)`` for y below zero, adds nothing, though
    its own derivative is not finite.
    """

    y: Ensemble
    """The states, shape (n,), or with `t_eval` (n_times, n)."""
    y0: Ensemble
    """The derivatives with respect to y0, shape (n,)."""
    p: Ensemble
    """The derivatives with respect to p, shape (k,)."""
    result: OdeResult
    """What `solve` returns."""


@explains_calls("ode.gradient")
def gradient(
    f: Callable[..., Any],
    y0: Any,
    t: Any,
    cotangent: Any,
    *,
    p: Any = None,
    progress: bool = False,
    **options: Any,
) -> OdeGradient:
    """Integrate and differentiate a weighted sum of the solution with respect to y0 and all parameters.

    The discrete adjoint: the gradient is that of the numbers that the steps give, not of the exact solution, with the
    accepted steps of adaptive methods held fixed. It costs a few integrations, whatever the number of parameters. Steps
    behind checkpoints are taken once more on the CPU, so that long runs need little memory; a device records all steps
    of the samples that it holds at a time. For few directions and many outputs, see `sensitivities`.

    Parameters
    ----------
    f, y0, t, p
        As those of `solve`. `f` must be traceable.
    cotangent : array or Ensemble, shape (n,), with `t_eval` (n_times, n), or callable
        The weights, or a function of the states, an Ensemble of this shape, that returns them: the gradient of a loss.
    progress : bool
        Show how many samples are finished.
    **options
        Further arguments of `solve`: `method`, `step`, `rtol`, `t_eval`, `noise` and others. No `events`.

    Returns
    -------
    OdeGradient

    Raises
    ------
    ValueError
        If shapes do not fit, an argument is out of range, events are given, or the system is too large for the method.
    TypeError
        If `f` cannot be traced, or uses an operation without a derivative.

    Warns
    -----
    OdeWarning
        If samples did not reach t1.

    References
    ----------
    .. [1] Hairer, Lubich, Wanner (2006), Geometric Numerical Integration, 2nd edition, section VI.9, on why the adjoint
       of a Runge-Kutta step is one itself.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import ode
    >>> def decay(t, y, p, xp):
    ...     return [-p[0] * y[0]]
    >>> made = ode.gradient(decay, [2.0], (0.0, 1.0), [1.0], p=[0.5], rtol=1e-9, atol=1e-12)
    >>> bool(np.isclose(made.p.samples[0, 0], -2.0 * np.exp(-0.5), rtol=1e-8))
    True
    """
    advice = "Differentiate runs without events; ode.solve finds roots."
    require_no_events(options, NAME, advice)
    given = problem_of(f, y0, t, p=p, **options)
    problem = given.problem
    k = stacked(() if p is None else p, "p").shape[0]
    shape = (problem.t_eval.shape[0], problem.system.n) if given.has_times else (problem.system.n,)
    require_traceable(problem, NAME)
    require_own_steps(problem, NAME, "Use rodas4, or sensitivities with control='all'.")
    problem = with_numbers(problem)
    steps = steps_of(problem)
    cuda, solution = backend_of(problem.y0) == "cuda", None
    weights = None if callable(cotangent) else _weights(cotangent, shape, problem)
    if weights is not None:
        problem = problem._replace(n_samples=weights.shape[-1])
    if weights is None or ((given.has_times or cuda) and problem.stops is None):
        solution = run(problem, progress)
    if weights is None:
        assert solution is not None
        y = solution.y_out if given.has_times else without_failed(solution.y, solution.status)
        weights = _weights(cotangent(wrap(y, given.sample_set)), shape, problem)
        fits = weights.shape[-1] == problem.n_samples
        require(fits, NAME, "cotangent", f"return {problem.n_samples} samples", weights.shape[-1])
    if problem.stops is not None:
        made, by_y0, by_p = backward_over_segments(problem, weights, lambda part, w: _swept(part, steps, w, False))
    else:
        made, by_y0, by_p = _swept(problem, steps, weights, progress, solution)
    solution = made if solution is None else solution
    result = result_of(solution, given._replace(problem=problem))
    return OdeGradient(result.y, wrap(by_y0, given.sample_set), wrap(by_p[:k], given.sample_set), result)


def _swept(
    problem: Problem, steps: Steps, weights: Array, progress: bool, solution: Solution | None = None
) -> tuple[Solution, Array, Array]:
    """The ends of all samples, and the derivatives with respect to y0 and p, of a run without stops.

    `solution` is that of `solve`, where it is known.
    """
    if backend_of(problem.y0) != "cuda":
        return _backward(problem, steps, weights, progress)
    from ensemble.ode import adjoint_device

    solution = run(problem, progress) if solution is None else solution
    return solution, *adjoint_device.backward(problem, steps, weights, solution)


def _weights(cotangent: Any, shape: tuple[int, ...], problem: Problem) -> Array:
    """The cotangents, (n_times or 1, n, S)."""
    if isinstance(cotangent, list | tuple) and len(shape) == 1:
        cotangent = stacked(cotangent, "cotangent")
    if not isinstance(cotangent, Ensemble):
        array = cotangent if is_array(cotangent) else np.asarray(cotangent)
        if str(array.dtype).startswith(("object", "<U", "<S")):
            seen = kind_of(cotangent)
            raise TypeError(message(NAME, "cotangent", f"be numbers of shape {shape}, or a function of y", seen))
        cotangent = Ensemble(array[..., None])
    require(cotangent.shape == shape, NAME, "cotangent", f"have shape {shape}", cotangent.shape)
    require_real(cotangent, "cotangent", NAME)
    S, count, xp = problem.n_samples, cotangent.n_samples, array_namespace(problem.y0)
    require(count in (1, S) or S == 1, NAME, "cotangent", f"have {S} samples, or be shared", count)
    values = asarray_like(cotangent.samples, problem.y0).astype(problem.dtype)
    whole = xp.broadcast_to(values, (*shape, max(S, count)))
    return xp.asarray(whole.reshape((-1, shape[-1], whole.shape[-1])), order="C")


# --- on the CPU
def _backward(problem: Problem, steps: Steps, weights: Array, progress: bool) -> tuple[Solution, Array, Array]:
    """The ends of all samples, and the derivatives with respect to y0 and p."""
    bodies, dtype = bodies_of(problem), problem.dtype
    S, n, k, size = problem.n_samples, problem.system.n, problem.system.n_parameters, steps.size
    width = single_width(dtype) * (2 if size <= MOST_DOUBLE else 1)
    code = _code(bodies, steps, n, k, dtype, width)
    table, shared, varying = sources_of(problem, bodies)
    places, t_eval = places_of(problem, bodies), np.ascontiguousarray(problem.t_eval, dtype=dtype)
    solution = Solution(
        np.empty((n, S), dtype), np.empty(S, dtype), np.zeros(S, np.int8), np.zeros(S, np.int64), np.zeros(S, np.int64),
        np.empty((0, n, S), dtype), np.empty((0, problem.max_roots, S), dtype), np.empty((0, S), np.int64),
    )  # fmt: skip
    by_y0, by_p = np.empty((n, S), dtype), np.empty((k, S), dtype)
    n_rows = max(bodies.rows.size + 1 + n, 1 + 2 * size + 3 * k)
    capacity = max(RECORD // (steps.n_entry * width), 16)

    def part(first: int, stopped: Callable[[], bool]) -> int:
        last = min(first + CHUNK, S)
        rows, back_rows = (aligned(count, width, dtype) for count in (n_rows, size + 2 * k))
        record = aligned(capacity * steps.n_entry, width, dtype).reshape(capacity, steps.n_entry, width)
        for begin in range(first, last, width):
            if stopped():
                break
            gradient_range(begin, min(begin + width, last), code[:4], places, table, shared, varying, t_eval, weights,
                           solution.y, solution.t, solution.status, solution.n_steps, solution.n_rejected, by_y0, by_p,
                           rows, back_rows, record)  # fmt: skip
        return last - first

    def every_part(stopped: Callable[[], bool]) -> None:
        with ThreadPoolExecutor(thread_count()) as pool:
            for count in pool.map(lambda first: part(first, stopped), range(0, S, CHUNK)):
                if display.bar is not None:
                    display.bar.update(count)

    with Display(quiet=not progress, total=S, unit="sample") as display:
        apart(every_part)
    return solution, by_y0, by_p


@functools.lru_cache(maxsize=KEPT)
def _code(bodies: Bodies, steps: Steps, n: int, k: int, dtype: str, width: int) -> Backward:
    """The compiled functions."""
    record = recording(bodies, n, steps.size - n, dtype)
    counts = bodies.rows.n_carried, steps.n_entry
    return backward_addresses(bodies.start, record, *counts, steps.sweep, steps.size + k, k, steps.start, width, dtype)
