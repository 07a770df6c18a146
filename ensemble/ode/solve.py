"""`solve`: the public function of all methods of integration.

The arguments are named, described and brought together here for all functions that integrate; `arguments.py` has the
checks of single ones.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, backend_of, to_numpy
from ensemble._check import integer, message, one_of, require, require_arguments, warn_caller
from ensemble._keywords import explains_calls
from ensemble._progress import Display
from ensemble._typing import Array, ArrayLike, Values
from ensemble.ode import bdf, explicit, implicit
from ensemble.ode.arguments import (
    ARGUMENTS,
    NAME,
    bound_arguments,
    check_numbers,
    check_times,
    count_by_name,
    events_of,
    fixed_steps,
    like_of,
    numbers_of,
    on_device,
    sign,
    stacked,
    together,
)
from ensemble.ode.choice import stiff_method
from ensemble.ode.compiled import events_graph
from ensemble.ode.methods import METHODS, method_of
from ensemble.ode.methods.method import Method
from ensemble.ode.methods.stochastic import STOCHASTIC, system_of
from ensemble.ode.noise import noise_numbers, samples_of_noise, with_noise
from ensemble.ode.numbers import with_numbers
from ensemble.ode.ode_result import OdeResult, OdeStatus, OdeWarning, all_reached, without_failed
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.segments import Change, over_segments, with_stops
from ensemble.ode.stop_changes import change_of
from ensemble.ode.stops import checked_stops
from ensemble.ode.system import System
from ensemble.ode.unused import warn_of_unused
from ensemble.scalar import Ensemble, SampleSet
from ensemble.scalar.ensemble import wrap
from ensemble.scalar.namespace import set_of

__all__ = ["Given", "problem_of", "result_of", "run", "solve"]

STIFF = ("rodas4", "bdf")
"""Methods for stiff systems."""

AUTO = "auto"
"""The method of those that the pattern of the Jacobian asks for."""

MOST_UNROLLED = 64  # unknowns whose factorisation by `rodas4` is written out as one long body


@explains_calls("ode.solve")
def solve(
    f: Callable[..., Any],
    y0: Values,
    t: Values,
    *,
    p: Values | None = None,
    method: str = "tsit5",
    step: Values | None = None,
    rtol: Values = 1e-6,
    atol: Values = 1e-9,
    t_eval: Values | None = None,
    stops: Values | None = None,
    at_stops: Values | Callable[..., Any] | None = None,
    events: Callable[..., Any] | Sequence[Callable[..., Any]] = (),
    backend: str = "numpy",
    first_step: Values | None = None,
    max_step: Values = np.inf,
    max_steps: int = 100_000,
    max_roots: int = 16,
    noise: Callable[..., Any] | None = None,
    seed: int = 0,
    noise_samples: ArrayLike | Sequence[int] | None = None,
    progress: bool = False,
) -> OdeResult:
    """Integrate ``dy/dt = f(t, y, p)`` for all samples of an ensemble, each with steps of its own.

    `f` is called once with symbolic values; one compiled loop then carries many samples in SIMD registers (CPU), or
    one sample per thread (CUDA). Where `f` or an event cannot be traced, because it needs a truth value or a function
    that is not elementwise, the same steps run operation by operation over Ensembles, many times slower, and through
    `ensemble.run` where the samples part.

    Parameters
    ----------
    f : callable
        ``f(t, y, p, xp)``: time, n values, k parameters and a namespace; returns n values. Lists of numbers, or arrays
        of shape (n,) and (k,) where `f` does not work with lists.
        Numbers that it reads from outside are arguments of the compiled code: other ones compile nothing.
    y0 : array or Ensemble, shape (n,), or a list of n numbers and Ensembles
        The state at the start. float32 arrays are integrated in float32, all others in float64.
    t : (t0, t1)
        Numbers or Ensembles of shape (). ``t1 < t0`` integrates backwards.
    p : array or Ensemble, shape (k,), or a list, optional
    method : str
        Adaptive: "tsit5" (order 5), "dop853" (8), "taylor" (order from the tolerance), "rodas4" (stiff, order 4; above
        30 unknowns with one factorisation of all samples), "bdf" (stiff, orders 1 to 5, factors that serve many steps;
        on the CPU), "auto" ("rodas4" or "bdf", as the pattern of the Jacobian asks for). Fixed steps: "rk4", "euler";
        "leapfrog", "yoshida4" for separable systems, whose unknowns are n/2 positions followed by n/2 velocities;
        "euler-maruyama", "milstein" with `noise`. "tsit5", "dop853" and "rodas4" take fixed steps where `step` is
        given.
    step : float or Ensemble, optional
        Fixed step length; the last step ends at t1 exactly. None: adaptive steps.
    rtol, atol : float or Ensemble
        Bound of the local error: root mean square over unknowns of ``error / (atol + rtol |y|)`` at most 1. `atol` may
        have shape (n,); where it is zero, an unknown that stays at zero fails. rtol is above zero. Not used by fixed
        steps. The order of "taylor" is one for all samples, that of the smallest rtol, ``ceil(1 - ln(rtol) / 2)``
        within bounds: where samples have several rtol, the bits of one depend on the smallest, and on nothing else of
        another sample.
    t_eval : array or Ensemble, shape (n_times,), optional
        Times of output, ordered from t0 to t1, by the interpolant of the method. They do not change the steps. With
        `noise`, values within a step lie on the line through its ends.
    stops : array or Ensemble, shape (k,), or False, optional
        Times, in any order, at which every method ends a step exactly and starts anew: where `f` jumps or bends, or
        something short begins or ends. Those from t0 on and before t1 count; infinite ones pad. Stops within 48
        spacings of t are one. The times at which `f` itself switches, as its trace shows them, are stops, too, per
        sample: knots of ``xp.interp`` and comparisons, ``%``, ``floor``, ``abs`` and extremes of the time and
        parameters alone. False: none, not even these.
    at_stops : array or Ensemble, shape (k, n), or callable, optional
        What is added to the state at each stop, or ``h(t, y, p, xp)``, the n values of the state after it. Each of
        several equal stops acts. Values at output times are those before the change, and a stop at t1 does nothing: it
        belongs to the run that starts there. A sign that an event changes by it is no root.
    events : callable or sequence of callables
        ``g(t, y, p, xp)``, a value whose roots are found; attributes ``terminal`` (True, or the number of the root that
        ends the run) and ``direction`` (1: from negative to positive, -1, or 0: both), as SciPy has them. A root is a
        change of sign between two steps; "taylor" looks at three more places in each, and takes it again in parts where
        they show more roots.
    backend : {"numpy", "cupy"}
        Where arrays that are NumPy's are integrated; CuPy arrays stay on their device.
    first_step, max_step : float or Ensemble
        Of adaptive methods; None: estimated, and not bounded. "taylor" may take a shorter first step. No step is longer
        than `max_step` but for the rounding of t; a sample for which it is less than half the spacing of t ends as
        ``step_too_small``.
    max_steps : int
        The most steps of a sample by adaptive methods, rejected ones counted; at most 2**24 in float32.
    max_roots : int
        Roots of an event that are stored per sample.
    noise : callable, optional
        ``g(t, y, p, xp)``, n values: ``dy_i = f_i dt + g_i dW_i`` in the sense of Ito, for the methods of fixed steps
        "euler-maruyama" (strong order 1/2) and "milstein" (strong order 1 where g_i depends on y_i alone).
    seed : int
        Of the noise, below 2**48.
    noise_samples : array of int, shape (n_samples,), optional
        The number that the noise of each sample is made from, and where all other arguments are shared, the number of
        samples; by default the ids of the sample set of y0, p or another
        argument, without one those of the samples that `uq.propagate` and its like call their model with, and 0, 1,
        ... elsewhere. Equal numbers have equal noise, in any ensemble.
    progress : bool
        Show how many samples are finished.

    Returns
    -------
    OdeResult
        `y`, and per sample `status`, `n_steps`, `t_events`. A sample that fails is NaN and has a status; the others
        are those of their own runs, to the bit on the CPU.

    Raises
    ------
    ValueError
        If shapes do not fit, an argument is out of range or not finite, or the method cannot take the system.
    TypeError
        If `f` cannot be traced and the method needs its derivatives, an event cannot and the method is "bdf", or an
        argument, `f` or an event gives something else than real numbers.

    Warns
    -----
    OdeWarning
        If samples did not reach t1 or a terminal event, with their number, the reason and the first of them.

    References
    ----------
    .. [1] Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, 2nd edition, section II.4.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import Ensemble, ode
    >>> def oscillator(t, y, p, xp):
    ...     return [y[1], -p[0] * y[0]]
    >>> stiffness = Ensemble(np.array([[1.0, 4.0, 9.0]]))
    >>> result = ode.solve(oscillator, [1.0, 0.0], (0.0, np.pi), p=stiffness, rtol=1e-9, atol=1e-12)
    >>> result.y.samples[0].round(6)
    array([-1.,  1., -1.])
    """
    given = problem_of(
        f, y0, t, p=p, method=method, step=step, rtol=rtol, atol=atol, t_eval=t_eval, stops=stops,
        at_stops=at_stops, events=events, backend=backend, first_step=first_step, max_step=max_step,
        max_steps=max_steps, max_roots=max_roots, noise=noise, seed=seed, noise_samples=noise_samples,
    )  # fmt: skip
    return result_of(run(given.problem, progress), given)


class Given(NamedTuple):
    """A problem, and what its result is made with."""

    problem: Problem
    has_times: bool
    sample_set: SampleSet | None
    method: str


def problem_of(f: Callable[..., Any], y0: Any, t: Any, *, of: Any = None, **options: Any) -> Given:
    """The checked arguments of `solve`, with its names and defaults, as a problem; `of` may read p, too."""
    o = bound_arguments(solve, NAME, f, y0, t, **options)
    if not callable(f):
        require(False, NAME, "f", "be callable", repr(f))
    require_arguments(f, ARGUMENTS, NAME, "f")
    chosen = _method(o)
    numbers = numbers_of(o, t)
    y0, p = stacked(y0, "y0"), stacked(() if o.p is None else o.p, "p")
    t_eval_given = o.t_eval is not None
    t_eval = stacked(() if o.t_eval is None else o.t_eval, "t_eval")
    alone = not isinstance(o.atol, list | tuple) and np.ndim(o.atol) == 0
    atol = stacked([o.atol] if alone else o.atol, "atol")
    stops, jumps, change = checked_stops(o.stops, o.at_stops, y0.shape[0])
    named = {"y0": y0, "p": p, "t_eval": t_eval, "atol": atol, "stops": stops, **numbers}
    every = [*named.values(), *([] if jumps is None else [jumps])]
    n_samples, sample_set = count_by_name(named if jumps is None else named | {"at_stops": jumps}), set_of(*every)
    like = like_of(every, o.backend)
    dtype = "float32" if str(y0.dtype) == "float32" else "float64"

    def real(x: Ensemble) -> Array:
        """The samples in the working precision, in the library that they came in."""
        xp = array_namespace(x.samples)
        return xp.astype(x.samples, getattr(xp, dtype), copy=False)

    given = {name: real(value) for name, value in numbers.items()}
    absolute, times = real(atol), real(t_eval)
    n = y0.shape[0]
    require(n > 0, NAME, "y0", "have at least one entry", 0)
    check_numbers(given, numbers, absolute, atol, n)
    max_steps = integer(o.max_steps, NAME, "max_steps", minimum=1)
    most = 2 ** (np.finfo(dtype).nmant + 1)  # the loops count in the working precision
    require(max_steps <= most, NAME, "max_steps", f"be at most {most} in {dtype}", max_steps)
    integer(o.max_roots, NAME, "max_roots", minimum=1)
    counts, lengths = np.asarray([max_steps], dtype=dtype), np.zeros(1, dtype)
    if o.method == AUTO:
        chosen = METHODS[stiff_method(System(f, n, p.shape[0], np, dtype=dtype), backend_of(like) == "cuda")]
    if chosen.own_step:
        chosen = method_of(chosen.name, float(given["rtol"].min()), float(absolute.min()))
    direction = sign(together(given["t[1]"], given["t[0]"], np.subtract))
    if o.step is not None:
        counts, lengths = fixed_steps(given, direction, dtype)
        chosen = chosen._replace(error_order=None)
    elif o.first_step is not None:
        first = together(given["first_step"], given["max_step"], np.minimum)
        lengths = together(first, direction, np.multiply)
    check_times(times, given, direction, t_eval)
    functions, terminal, sides = events_of(o.events)
    rows = [real(y0), real(p), given["t[0]"], given["t[1]"], lengths, counts, given["rtol"], absolute,
            given["max_step"], times]  # fmt: skip
    if o.noise is not None:
        ids = samples_of_noise(o.noise_samples, n_samples, sample_set)
        n_samples, rows[1] = ids.size, with_noise(rows[1], noise_numbers(ids, o.seed, dtype))
    placed, space = on_device(rows, like), array_namespace(like)
    system = system_of(f, o.noise, n, p.shape[0], space, dtype)
    problem = Problem(system, chosen, functions, terminal, sides, o.max_roots, *placed, n_samples, dtype)  # type: ignore[call-arg]
    if of is None and change is None:
        warn_of_unused(problem, p.shape[0], NAME)
    additions = None if jumps is None else real(jumps)
    problem = with_stops(problem, p.shape[0], to_numpy(real(stops)), additions, change, o.stops is not False)
    return Given(problem, t_eval_given, sample_set, chosen.name)


def _method(o: types.SimpleNamespace) -> Method:
    """The method, and whether the other arguments are ones that it takes."""
    one_of(o.method, (*METHODS, AUTO), NAME, "method")
    chosen = METHODS["bdf" if o.method == AUTO else o.method]  # bdf takes no fixed steps either
    if chosen.has_fixed_steps:
        require(o.step is not None, NAME, "step", f"be given for the fixed steps of {o.method}", None)
    require(not (chosen.own_step and o.step is not None), NAME, "step", f"be None for {o.method}", o.step)
    if o.step is not None:
        require(o.first_step is None, NAME, "first_step", "be None for fixed steps", repr(o.first_step))
        bounded = o.max_step is not None and (isinstance(o.max_step, Ensemble) or o.max_step != np.inf)
        require(not bounded, NAME, "max_step", "be left out for fixed steps", repr(o.max_step))
    advice = f"The methods {' and '.join(STOCHASTIC)} take one, others none."
    fits = (o.noise is not None) == (o.method in STOCHASTIC) and (o.noise is None or callable(o.noise))
    rule = f"be a function for a stochastic method, with method={o.method!r}"
    require(fits, NAME, "noise", rule, repr(o.noise), advice)
    if o.noise is not None:
        require_arguments(o.noise, ARGUMENTS, NAME, "noise")
    alone = o.noise is None and o.noise_samples is not None
    require(not alone, NAME, "noise_samples", "be None without noise", type(o.noise_samples).__name__)
    return chosen


def run(
    problem: Problem, progress: bool = False, change: Change | None = None, *, numbers: bool = True
) -> Solution:  # fmt: skip
    """By compiled loops where the right-hand side and the events can be traced, over arrays elsewhere.

    `change` is what the stops do to the state, where y0 has further rows. With `numbers`, those that the functions read
    from outside are parameters of the loops.
    """
    with Display(quiet=not progress, total=problem.n_samples, unit="sample") as display:

        def report(done: int) -> None:
            if display.bar is not None and problem.stops is None:
                display.bar.update(done - display.bar.n)

        if problem.stops is None:
            return _integrated(problem, report, numbers)
        change = change_of(problem) if change is None else change
        return over_segments(problem, lambda part: _integrated(part, report, numbers), change)


def _integrated(problem: Problem, report: Callable[[int], None], numbers: bool) -> Solution:
    """The solution of a problem of one segment."""
    system, cuda = problem.system, backend_of(problem.y0) == "cuda"
    traceable = True
    try:
        system.graph  # noqa: B018
    except (TypeError, AttributeError) as error:
        if problem.method.needs_graph:
            raise TypeError(
                message(NAME, "f", f"be traceable for the method {problem.method.name}", str(error))
            ) from error
        traceable = False
    try:
        events_graph(problem)
    except (TypeError, AttributeError) as error:
        if problem.method.name == "bdf":
            raise TypeError(message(NAME, "events", "be traceable for the method bdf", str(error))) from error
        traceable = False
    problem.method.check(system)
    if not traceable:
        from ensemble.ode import arrays

        return arrays.run(problem, report)
    if problem.method.name == "bdf":
        if cuda:
            advice = f'Use NumPy arrays, or method="rodas4" for at most {MOST_UNROLLED} unknowns.'
            raise ValueError(message(NAME, "backend", "be NumPy's for bdf", "CuPy's", advice))
        return bdf.run(problem, report)
    if problem.method.name == "rodas4" and system.n >= implicit.FROM:
        if not cuda:
            return implicit.run(problem, report)
        most = f"have at most {MOST_UNROLLED} entries for rodas4 on a device"
        require(system.n <= MOST_UNROLLED, NAME, "y0", most, system.n, "Use NumPy arrays.")
    if not cuda and explicit.is_long(problem):
        return explicit.run(problem, report)
    problem = with_numbers(problem) if numbers else problem
    if cuda:
        from ensemble.ode import device

        return device.run(problem, report)
    from ensemble.ode import compiled

    return compiled.run(problem, report)


def result_of(solution: Solution, given: Given) -> OdeResult:
    """The result for the caller of a public function, which is warned where samples failed."""
    problem, has_times, sample_set, name = given
    status = solution.status
    good = all_reached(status)
    y = solution.y_out if has_times else solution.y if good else without_failed(solution.y, status)
    reached = wrap(solution.t, sample_set)
    t = reached
    if has_times:
        t = (problem.t_eval[:, 0] if problem.t_eval.shape[1] == 1 else problem.t_eval).copy()
    roots = tuple(wrap(times, sample_set) for times in solution.t_events)
    result = OdeResult(wrap(y, sample_set), t, status, solution.n_steps, solution.n_rejected, roots, solution.n_events,
                       reached, wrap(solution.y, sample_set), name)  # fmt: skip
    if not good:
        advice = "Their states are NaN; y_reached has the last ones."
        if bool((status == int(OdeStatus.too_many_steps)).any()) and name not in STIFF:
            advice += f" If the system is stiff, use method={' or '.join(repr(each) for each in STIFF)}."
        warn_caller(f"{NAME}: {result.summary}. {advice}", OdeWarning)
    return result
