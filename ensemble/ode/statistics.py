"""Statistics of solutions that are not stored: over the time of each sample, or over the samples at each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, backend_of, to_numpy
from ensemble._check import kind_of, message, require, require_arguments
from ensemble._compile.trace.array_calls import called
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.traced_array import TracedArray
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.ode.accumulators import KINDS, accumulated
from ensemble.ode.arguments import ARGUMENTS, require_no_events
from ensemble.ode.methods.stochastic import StochasticSystem
from ensemble.ode.noise import without_numbers
from ensemble.ode.ode_result import OdeResult, OdeStatus, without_failed
from ensemble.ode.over_samples import Moments, Quantiles, merged, moments_of
from ensemble.ode.problem import Problem, Solution, part_of
from ensemble.ode.segments import framed_function
from ensemble.ode.solve import Given, problem_of, result_of, run
from ensemble.scalar import Ensemble
from ensemble.scalar.ensemble import wrap
from ensemble.scalar.statistics.quantiles import levels_of

__all__ = ["OdeSampleStatistics", "OdeTimeStatistics", "sample_statistics", "time_statistics"]

GROUP = {"numpy": 1 << 23, "cuda": 1 << 27}
"""Numbers of states at output times that exist at a time."""


class OdeTimeStatistics(NamedTuple):
    """Statistics over the time of each sample. NaN for samples that failed, and where t0 = t1 or all times are one."""

    result: OdeResult
    """What `solve` returns, without a history."""
    mean: Ensemble
    """``integral / (t1 - t0)`` of each functional, shape (m,)."""
    variance: Ensemble
    """The mean of ``(g - mean)**2``, shape (m,)."""
    minimum: Ensemble
    maximum: Ensemble
    integral: Ensemble
    """The integral over the time, with the sign of ``t1 - t0``, shape (m,)."""

    def __repr__(self) -> str:
        m, n = self.mean.shape[0], self.mean.n_samples
        return f"OdeTimeStatistics({_counted(m, 'value')} of {_counted(n, 'sample')}; {self.result!r})"


class OdeSampleStatistics(NamedTuple):
    """Statistics over the samples that reached a time, of NumPy or of the device; NaN where none did."""

    result: OdeResult
    """What `solve` returns, without a history."""
    t: Any
    """The output times, shape (n_times,) or (n_times, n_samples); without `t_eval` the times reached."""
    mean: Array
    """Shape (n_times, m), without `t_eval` (m,)."""
    variance: Array
    """Divided by ``n_samples - 1``; NaN where one sample is left. With weights as ``sample_var(ddof=1)``."""
    minimum: Array
    maximum: Array
    n_samples: Array
    """How many were counted, shape (n_times,) or (); a weight of zero is not."""
    quantiles: Array | None = None
    """At the levels of `quantiles`: shape ``(*levels, n_times, m)``, without `t_eval` ``(*levels, m)``."""

    def __repr__(self) -> str:
        counts, times = np.ravel(to_numpy(self.n_samples)), self.mean.shape[:-1]
        low, high = int(counts.min(initial=counts.max(initial=0))), int(counts.max(initial=0))
        samples = _counted(high, "sample") if low == high else f"{low} to {high} samples"
        at = f" at {_counted(times[0], 'time')}" if times else " at the ends"
        return f"OdeSampleStatistics({_counted(self.mean.shape[-1], 'value')} of {samples}{at}; {self.result!r})"


def _counted(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


@explains_calls("ode.time_statistics")
def time_statistics(
    f: Callable[..., Any],
    y0: Any,
    t: Any,
    *,
    p: Any = None,
    of: Callable[..., Any] | None = None,
    t_eval: Any = None,
    progress: bool = False,
    **options: Any,
) -> OdeTimeStatistics:
    """Integrate and keep statistics of functionals over the time of each sample: no history is stored.

    Without `t_eval` they are accumulated in the loop over steps: each step adds a Gauss-Lobatto quadrature of its dense
    output, exact for squares of the unknowns; extremes are those of the dense output, found from the points of the
    quadrature by parabolas. Both are as good as the tolerance. With `t_eval` they are those of the values at these
    times, weighted by the trapezoidal rule; histories exist for a few samples at a time. The steps are those of `solve`
    with dense output.

    Parameters
    ----------
    f, y0, t, p
        As those of `solve`; without `t_eval`, `f` must be traceable.
    of : callable, optional
        ``g(t, y, p, xp)``, returns m values. None: the unknowns.
    t_eval : array or Ensemble, shape (n_times,), optional
        Two times or more.
    progress : bool
        Show how many samples are finished.
    **options
        Further arguments of `solve`: `method`, `step`, `rtol`, `noise` and others. No `events`.

    Returns
    -------
    OdeTimeStatistics
        A sample of which a functional is not finite counts as failed.

    Raises
    ------
    ValueError
        If shapes do not fit, an argument is out of range, or events are given.
    TypeError
        If `of`, or `f` without `t_eval`, cannot be traced.

    References
    ----------
    .. [1] Chan, Golub, LeVeque (1983), The American Statistician 37, 242-247, on updates of means and variances.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import Ensemble, ode
    >>> w = Ensemble(np.array([1.0, 2.0]))
    >>> def oscillator(t, y, p, xp):
    ...     return [y[1], -p[0] * p[0] * y[0]]
    >>> made = ode.time_statistics(oscillator, [1.0, 0.0], (0.0, 2.0 * np.pi), p=[w], rtol=1e-9, atol=1e-12,
    ...                            of=lambda t, y, p, xp: [y[0] ** 2])
    >>> made.mean.samples[0].round(6)
    array([0.5, 0.5])
    """
    name = "ode.time_statistics"
    given = _given(f, y0, t, p, of, t_eval, options, name)
    problem = given.problem
    graph = _functional(of, problem, name)
    m = len(graph.outputs)
    if given.has_times:
        times = problem.t_eval.shape[0]
        require(times > 1, name, "t_eval", "have two times or more", times)
        solution, rows = _sampled(problem, graph, progress)
    else:
        solution, rows = accumulated(problem, graph, progress, name)
    rows = without_failed(rows, solution.status)
    span = (problem.t_eval[-1] - problem.t_eval[0]) if given.has_times else problem.t1 - problem.t0
    mean, variance, least, most = (wrap(rows[k * m : (k + 1) * m], given.sample_set) for k in range(KINDS))
    integral = wrap(rows[:m] * span, given.sample_set)
    return OdeTimeStatistics(
        result_of(solution, given._replace(has_times=False)), mean, variance, least, most, integral
    )


@explains_calls("ode.sample_statistics")
def sample_statistics(
    f: Callable[..., Any],
    y0: Any,
    t: Any,
    *,
    p: Any = None,
    of: Callable[..., Any] | None = None,
    t_eval: Any = None,
    quantiles: Values | None = None,
    progress: bool = False,
    **options: Any,
) -> OdeSampleStatistics:
    """Integrate and keep statistics over the samples at each output time: the history of all samples is not stored.

    Samples are integrated in groups of a fixed size; the moments of the groups are merged in order, so the result does
    not depend on the number of threads. Samples that did not reach a time are not counted there. Weights of the sample
    set of y0, p or another argument are those of `sample_mean`.

    Parameters
    ----------
    f, y0, t, p
        As those of `solve`.
    of : callable, optional
        ``g(t, y, p, xp)``, returns m values. None: the unknowns.
    t_eval : array or Ensemble, shape (n_times,), optional
        None: statistics of the ends.
    quantiles : float or array of floats in [0, 1], optional
        Levels of quantiles over the samples at each time. Up to 8,388,608 values of all samples they are those of
        `sample_quantile`. More values are counted in 1024 bins for each time and functional (fewer, 64 at least, from
        32,768 times and functionals on): a quantile is off by at most ``2 * (maximum - minimum) / (n_bins - 1)``, and
        does not depend on the groups. NaN where a value is not finite.
    progress : bool
        Show how many samples are finished.
    **options
        Further arguments of `solve`. No `events`.

    Returns
    -------
    OdeSampleStatistics

    Raises
    ------
    ValueError
        If shapes do not fit, an argument is out of range, or events are given.
    TypeError
        If `of` cannot be traced.

    References
    ----------
    .. [1] Chan, Golub, LeVeque (1983), The American Statistician 37, 242-247, on merging means and variances.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import Ensemble, ode
    >>> rates = Ensemble(np.linspace(0.5, 1.5, 1001))
    >>> def decay(t, y, p, xp):
    ...     return [-p[0] * y[0]]
    >>> made = ode.sample_statistics(decay, [1.0], (0.0, 1.0), p=[rates], t_eval=[0.5, 1.0])
    >>> made.mean[:, 0].round(4)
    array([0.6129, 0.3834])
    """
    name = "ode.sample_statistics"
    given = _given(f, y0, t, p, of, t_eval, options, name)
    problem = given.problem
    graph = _functional(of, problem, name)
    moments: Moments | None = None
    parts: list[Solution] = []
    weights, first = _weights(given), 0
    shape = (problem.t_eval.shape[0] if given.has_times else 1, len(graph.outputs))
    levels = None if quantiles is None else levels_of(quantiles, name, "quantiles")
    counted = None if levels is None else Quantiles(levels, shape, weights, name)
    for part, solution in _groups(problem, progress):
        values, valid = _values(graph, part, solution, given.has_times)
        here = moments_of(values, valid, weights[first : first + part.n_samples])
        first += part.n_samples
        if counted is not None:
            counted.add(values, valid)
        moments = here if moments is None else merged(moments, here)
        parts.append(solution._replace(y_out=solution.y_out[:0]))
    assert moments is not None
    whole = _joined(parts)
    xp = array_namespace(moments.mean)
    unknown = xp.asarray(xp.nan, dtype=moments.mean.dtype)
    counts = moments.count[:, None]
    least, most = (xp.where(counts > 0, each, unknown) for each in (moments.minimum, moments.maximum))
    mean = xp.where(counts > 0, moments.mean, unknown)
    known = xp.where(counts > 1, moments.weight[:, None], 1.0)
    divisor = known - xp.where(counts > 1, moments.weight_square[:, None], 0.0) / known  # n - 1 of equal weights
    variance = xp.where(counts > 1, moments.square / divisor, unknown)
    every: list[Any] = [mean, variance, least, most, moments.count]
    found = None if counted is None else counted.result(mean)
    result = result_of(whole, given._replace(has_times=False))
    times = result.t
    if given.has_times:
        times = (problem.t_eval[:, 0] if problem.t_eval.shape[1] == 1 else problem.t_eval).copy()
    else:
        every = [each[0] for each in every]
        found = None if found is None else found[..., 0, :]
    return OdeSampleStatistics(result, times, *every)._replace(quantiles=found)


def _given(f: Any, y0: Any, t: Any, p: Any, of: Any, t_eval: Any, options: dict[str, Any], name: str) -> Given:
    """The problem, which has no events."""
    require_no_events(options, name, "Statistics are those of whole runs; ode.solve finds roots.")
    return problem_of(f, y0, t, p=p, t_eval=t_eval, of=of, **options)


def _functional(of: Callable[..., Any] | None, problem: Problem, name: str) -> Graph:
    """The graph of the functionals: inputs t, y and p."""
    system, real = problem.system, Scalar(problem.dtype)
    require(of is None or callable(of), name, "of", "be callable", repr(of))
    if of is not None:
        require_arguments(of, ARGUMENTS, name, "of")
    function = of
    if of is not None and problem.frame is not None:
        window = problem.stops is not None and problem.stops.window
        function = framed_function(of, problem.frame, window)
    if function is not None and isinstance(system, StochasticSystem):
        function = without_numbers(function)

    def body(t: Any, y: list[Any], p: list[Any]) -> tuple[Any, ...]:
        if function is None:
            return tuple(y)
        xp = t.__array_namespace__()
        values = called(function, t, y, p, xp)
        if values is None or isinstance(values, Mapping | Set | str):
            raise TypeError(message(name, f"of({ARGUMENTS})", "return one number or a list of them", kind_of(values)))
        values = list(values) if isinstance(values, list | tuple | TracedArray) else [values]
        numbers = (xp.full_like(t, v) if isinstance(v, int | float) else v for v in values)
        return tuple(xp.astype(v, getattr(xp, problem.dtype)) for v in numbers)

    try:
        graph = trace(body, real, [real] * system.n, [real] * system.n_parameters, function=name)
    except (TypeError, AttributeError) as error:
        if str(error).startswith(f"{name}: of("):
            raise
        raise TypeError(message(name, "of", "be traceable", str(error))) from error
    require(len(graph.outputs) > 0, name, "of", "return at least one value", 0)
    return graph


# --- of groups of samples with their values at output times
def _groups(problem: Problem, progress: bool) -> Iterator[tuple[Problem, Solution]]:
    """Parts of the samples, each with its solution."""
    numbers = max(problem.t_eval.shape[0], 1) * problem.system.n
    kind = "cuda" if backend_of(problem.y0) == "cuda" else "numpy"
    size = max(GROUP[kind] // numbers, 1)
    size = size - size % 2048 if size > 2048 else size
    for first in range(0, problem.n_samples, size):
        part = part_of(problem, first, min(first + size, problem.n_samples))
        yield part, run(part, progress)


def _joined(parts: Sequence[Solution]) -> Solution:
    """The solutions of all samples, without values at output times."""
    if len(parts) == 1:
        return parts[0]
    xp = array_namespace(parts[0].y)
    return Solution(*(xp.concat(list(field), axis=-1) for field in zip(*parts, strict=True)))


def _values(graph: Graph, problem: Problem, solution: Solution, has_times: bool) -> tuple[Array, Array]:
    """The functionals (n_times, m, S), and which samples reached each time (n_times, S)."""
    xp = array_namespace(solution.y)
    states = solution.y_out if has_times else without_failed(solution.y, solution.status)[None]
    times = problem.t_eval if has_times else solution.t[None]
    shape = (states.shape[0], states.shape[-1])
    inputs = [xp.broadcast_to(times, shape), *(states[:, i] for i in range(problem.system.n))]
    inputs += [xp.broadcast_to(row, shape) for row in problem.p]
    with np.errstate(all="ignore"):
        rows = replay(graph, inputs, xp)
    values = xp.stack([xp.broadcast_to(row, shape) for row in rows], axis=1)
    return values, xp.all(xp.isfinite(states), axis=1)


def _weights(given: Given) -> np.ndarray:
    """Return the weight of each sample in statistics, at most 1, shape (n_samples,)."""
    weights = None if given.sample_set is None else given.sample_set.weights
    return np.ones(given.problem.n_samples) if weights is None else weights / weights.max()


def _sampled(problem: Problem, graph: Graph, progress: bool) -> tuple[Solution, Array]:
    """The end of all runs, and rows (KINDS m, S) of the statistics of values at output times."""
    solutions, rows, xp = [], [], array_namespace(problem.y0)
    for part, solution in _groups(problem, progress):
        values, _ = _values(graph, part, solution, True)
        found = _over_times(values, part.t_eval)
        bad = (solution.status == int(OdeStatus.finished)) & ~xp.all(xp.isfinite(found), axis=0)
        status = xp.where(bad, xp.asarray(OdeStatus.non_finite, dtype=xp.int8), solution.status)
        rows.append(xp.where(part.t_eval[-1] == part.t_eval[0], xp.asarray(xp.nan, dtype=found.dtype), found))
        solutions.append(solution._replace(y_out=solution.y_out[:0], status=status))
    return _joined(solutions), xp.concat(rows, axis=-1)


def _over_times(values: Array, times: Array) -> Array:
    """The statistics of values (n_times, m, S) by the trapezoidal rule, interval by interval."""
    xp = array_namespace(values)
    least, most = xp.min(values, axis=0), xp.max(values, axis=0)
    mean, variance = xp.zeros_like(least), xp.zeros_like(least)
    with np.errstate(all="ignore"):
        for j in range(1, values.shape[0]):
            total = times[j] - times[0]
            part = xp.where(total == 0.0, xp.zeros_like(total), (times[j] - times[j - 1]) / total)
            before, now = values[j - 1], values[j]
            average = 0.5 * (before + now)
            rise, half = average - mean, 0.5 * (now - before)
            variance = (1.0 - part) * (variance + part * (rise * rise)) + part * (half * half)
            mean = mean + part * rise
    return xp.concat([mean, variance, least, most], axis=0)
