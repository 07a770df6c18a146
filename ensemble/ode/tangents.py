"""Derivatives of solutions forward: tangents of the traced step, carried beside the state in the same loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._check import integer, kind_of, message, one_of, require
from ensemble._compile.trace.derivatives import pushforward
from ensemble._compile.trace.graph import Graph
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Namespace
from ensemble.ode import implicit
from ensemble.ode.arguments import require_no_events, stacked
from ensemble.ode.compiled import Bodies, bodies_of
from ensemble.ode.control import Rows
from ensemble.ode.extension import (
    Extension,
    Extra,
    Sizes,
    extended_bodies,
    extended_problem,
    require_own_steps,
    require_traceable,
    run_bodies,
    sizes_of,
    with_times_of,
)
from ensemble.ode.numbers import with_numbers
from ensemble.ode.ode_result import OdeResult, without_failed
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.segments import Change, Segment, over_segments
from ensemble.ode.solve import Given, problem_of, result_of, run
from ensemble.ode.stop_changes import change_graph, change_of
from ensemble.ode.system import System
from ensemble.scalar import Ensemble
from ensemble.scalar.ensemble import wrap

__all__ = ["OdeSensitivities", "sensitivities"]

NAME = "ode.sensitivities"

Seed = tuple[int, int, int | None]
"""A parameter, a direction, and the row of its component among those added; None: the component is one."""


class OdeSensitivities(NamedTuple):
    """The solution and its derivatives, sample by sample. NaN where the state is.

    A sample whose derivatives are not finite, as that of ``y ** p`` by p where y is negative, fails as `non_finite`:
    its state is NaN, too. Leave such a parameter out of `wrt`.
    """

    result: OdeResult
    """What `solve` returns."""
    y0: Ensemble | None
    """``d y_i / d y0_j``, shape (n, n_columns), with `t_eval` (n_times, n, n_columns); None where it is not wanted."""
    p: Ensemble | None
    """``d y_i / d p_j`` in the same way."""
    along: Ensemble | None
    """The derivatives along `directions`, shape (n, n_directions) or (n_times, n, n_directions)."""

    @property
    def y(self) -> Ensemble:
        """The states, ``result.y``."""
        return self.result.y


class _Wanted(NamedTuple):
    """The directions of one call."""

    columns: Mapping[str, Sequence[int]]
    """Of "y0" and "p", the entries whose unit directions are wanted."""
    pairs: Sequence[tuple[Ensemble, Ensemble]]
    """Directions of the user, in y0 and p."""

    @property
    def n_directions(self) -> int:
        return sum(map(len, self.columns.values())) + len(self.pairs)


@explains_calls("ode.sensitivities")
def sensitivities(
    f: Callable[..., Any],
    y0: Any,
    t: Any,
    *,
    p: Any = None,
    wrt: Any = ("y0", "p"),
    directions: Sequence[tuple[Any, Any]] | None = None,
    control: str = "state",
    progress: bool = False,
    **options: Any,
) -> OdeSensitivities:
    """Integrate and differentiate the solution with respect to starts and parameters, forward in the same loop.

    The derivatives are those of the numbers that the steps give, with the step lengths held fixed: the tangent of each
    traced step is carried beside the state. With ``control="state"`` the states have the bits of `solve`. P directions
    cost at most 1.2 (1 + P) integrations. For many directions and one loss, see `gradient`.

    Parameters
    ----------
    f, y0, t, p
        As those of `solve`. `f` must be traceable.
    wrt : "y0", "p", a tuple of both, or a mapping
        With respect to what; ``{"p": [0, 2]}`` names entries. Not used where `directions` are given.
    directions : sequence of pairs (dy0, dp), optional
        Directions in the space of starts and parameters, each part an array or Ensemble of shape (n,) or (k,), or None
        for zero.
    control : {"state", "all"}
        Whether adaptive steps bound the local error of the state alone, or also that of the derivatives, which are then
        unknowns of a larger system with the same tolerances. Fixed steps are the same for both.
    progress : bool
        Show how many samples are finished.
    **options
        Further arguments of `solve`: `method`, `step`, `rtol`, `t_eval`, `noise` and others. No `events`.

    Returns
    -------
    OdeSensitivities

    Raises
    ------
    ValueError
        If shapes do not fit, an argument is out of range, or events are given.
    TypeError
        If `f` cannot be traced, or uses an operation without a derivative.

    References
    ----------
    .. [1] Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, 2nd edition, section I.14.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import Ensemble, ode
    >>> rates = Ensemble(np.array([0.5, 1.0]))
    >>> def decay(t, y, p, xp):
    ...     return [-p[0] * y[0]]
    >>> made = ode.sensitivities(decay, [2.0], (0.0, 1.0), p=[rates], rtol=1e-9, atol=1e-12)
    >>> made.p.samples[0, 0].round(6)  # -2 exp(-p)
    array([-1.213061, -0.735759])
    >>> made.y0.samples[0, 0].round(6)  # exp(-p)
    array([0.606531, 0.367879])
    """
    one_of(control, ("state", "all"), NAME, "control")
    advice = "Differentiate runs without events; ode.solve finds roots."
    require_no_events(options, NAME, advice)
    given = problem_of(f, y0, t, p=p, **options)
    problem = given.problem
    n_parameters = stacked(() if p is None else p, "p").shape[0]
    wanted = _wanted(wrt, directions, problem.system.n, n_parameters)
    require_traceable(problem, NAME)
    problem, unknowns, rows, seeds = _placed(with_numbers(problem), wanted)
    if control == "all" and not problem.method.has_fixed_steps:
        solution = _with_control(problem, unknowns, rows, seeds, wanted.n_directions, progress)
    else:
        solution = _beside(problem, unknowns, rows, seeds, wanted.n_directions, progress)
    return _result(solution, given._replace(problem=problem), wanted)


def _wanted(wrt: Any, directions: Any, n: int, k: int) -> _Wanted:
    """The directions, checked."""
    if directions is not None:
        pairs = []
        if not isinstance(directions, Iterable):
            raise TypeError(message(NAME, "directions", "be pairs (dy0, dp)", kind_of(directions)))
        for pair in directions:
            fits = isinstance(pair, tuple | list) and len(pair) == 2
            require(fits, NAME, "directions", "be pairs (dy0, dp)", repr(pair))
            parts = [stacked(np.zeros(count) if part is None else part, "directions")
                     for part, count in zip(pair, (n, k), strict=True)]  # fmt: skip
            for part, count in zip(parts, (n, k), strict=True):
                require(
                    part.shape == (count,), NAME, "directions", f"have parts of shapes ({n},) and ({k},)", part.shape
                )
            pairs.append((parts[0], parts[1]))
        require(len(pairs) > 0, NAME, "directions", "have at least one pair", 0)
        return _Wanted({}, pairs)
    counts = {"y0": n, "p": k}
    if not isinstance(wrt, Mapping | str | list | tuple):
        raise TypeError(message(NAME, "wrt", "be 'y0', 'p', a tuple of both or a mapping", repr(wrt)))
    named = [wrt] if isinstance(wrt, str) else list(wrt)
    for name in named:
        one_of(name, ("y0", "p"), NAME, "wrt")
    names = wrt if isinstance(wrt, Mapping) else dict.fromkeys(named)
    columns = {}
    for name, entries in names.items():
        if entries is not None and (isinstance(entries, str) or np.ndim(entries) != 1):
            raise TypeError(message(NAME, "wrt", f"name a list of entries of {name}", repr(entries)))
        chosen = range(counts[name]) if entries is None else entries
        chosen = [integer(j, NAME, f"wrt[{name!r}]", minimum=0) for j in chosen]
        inside = all(j < counts[name] for j in chosen)
        require(inside, NAME, "wrt", f"name entries of {name} from 0 to {counts[name] - 1}", chosen)
        columns[name] = chosen
    wanted = _Wanted(columns, ())
    require(wanted.n_directions > 0, NAME, "wrt", "name at least one entry", repr(wrt))
    return wanted


def _placed(problem: Problem, wanted: _Wanted) -> tuple[Problem, Array, Array, tuple[Seed, ...]]:
    """The problem with all of its samples, the rows of states and tangents, those of parameters, and the seeds."""
    n, k, like = problem.system.n, problem.system.n_parameters, problem.y0
    starts, directions = [], list[Array]()
    seeds: list[Seed] = []
    counts = {part.n_samples for pair in wanted.pairs for part in pair} | {problem.n_samples}
    n_samples = max(counts)
    fits = counts <= {1, n_samples}
    require(fits, NAME, "directions", "have the number of samples of the other arguments", sorted(counts))
    zero = np.zeros((n, 1), problem.dtype)
    for j in wanted.columns.get("y0", ()):
        start = zero.copy()
        start[j] = 1.0
        starts.append(asarray_like(start, like))
    for j in wanted.columns.get("p", ()):
        seeds.append((j, len(starts), None))
        starts.append(asarray_like(zero, like))
    for in_y0, in_p in wanted.pairs:
        for j in range(in_p.shape[0]):
            seeds.append((j, len(starts), len(directions)))
            directions.append(_real(in_p.samples[j : j + 1], problem))
        starts.append(_real(in_y0.samples, problem))
    require(all(j < k for j, _, _ in seeds), NAME, "wrt", "name parameters", "none")
    rows = [problem.p, *directions]
    return problem._replace(n_samples=n_samples), _joined([problem.y0, *starts]), _joined(rows), tuple(seeds)


def _real(values: Array, problem: Problem) -> Array:
    values = asarray_like(values, problem.y0)
    return values.astype(problem.dtype)


def _joined(parts: Sequence[Array]) -> Array:
    """Rows of parts, some shared by the samples, as one array."""
    xp, count = array_namespace(parts[0]), max(part.shape[1] for part in parts)
    return xp.concat([xp.broadcast_to(part, (part.shape[0], count)) for part in parts], axis=0)


# --- steps of the state alone
def _beside(
    problem: Problem, unknowns: Array, rows: Array, seeds: tuple[Seed, ...], count: int, progress: bool
) -> Solution:
    """The tangents of the steps of the state, and the state."""
    advice = "control='all' makes the derivatives unknowns of the system."
    require_own_steps(problem, NAME, advice, most=implicit.FROM - 1)
    sizes, extra = sizes_of(problem), rows.shape[0] - problem.system.n_parameters
    dense = problem.is_dense
    extension = _extension(sizes, seeds, count, extra, dense)
    whole = extended_problem(problem, extension, unknowns, rows)

    def integrate(part: Problem) -> Solution:
        bodies = bodies_of(with_times_of(problem, part), dense)
        return run_bodies(part, _bodies(bodies, sizes, seeds, count, extra, problem.dtype, dense), progress)

    if problem.stops is None:
        return integrate(whole)
    return over_segments(whole, integrate, _change(problem, seeds, count))


def _change(problem: Problem, seeds: tuple[Seed, ...], count: int) -> Change:
    """What the stops do to states and tangents: an addition leaves tangents as they are."""
    assert problem.stops is not None
    if problem.stops.change is None:
        return change_of(problem)
    n, k, xp = problem.system.n, problem.system.n_parameters, array_namespace(problem.y0)
    try:
        graph = change_graph(problem)
    except (TypeError, AttributeError) as error:
        raise TypeError(message(NAME, "at_stops", "be traceable", str(error))) from error
    evaluated = change_of(problem)

    def change(segment: Segment, y: Array, p: Array) -> Array:
        seeded: dict[int, dict[int, Any]] = {}
        for d in range(count):
            for i in range(n):
                seeded.setdefault(1 + i, {})[d] = y[(1 + d) * n + i]
        for j, d, row in seeds:
            seeded.setdefault(1 + n + j, {})[d] = 1.0 if row is None else segment.problem.p[k + row]
        with np.errstate(all="ignore"):
            _, found = pushforward(graph, [segment.start, *y[:n], *p], seeded, xp, range(n))
        new = evaluated(segment, y[:n], p)
        like = xp.zeros(max(new.shape[1], y.shape[1]), dtype=y.dtype)
        return xp.stack(
            [*(row + like for row in new), *(row.get(d, 0.0) + like for d in range(count) for row in found)]
        )

    return change


@functools.lru_cache(maxsize=64)
def _bodies(
    inner: Bodies,
    sizes: Sizes,
    seeds: tuple[Seed, ...],
    count: int,
    extra: int,
    dtype: str,
    dense: bool,
) -> Bodies:
    """The bodies of states and tangents."""
    return extended_bodies(inner, _extension(sizes, seeds, count, extra, dense), dtype, dense=dense)


def _extension(sizes: Sizes, seeds: tuple[Seed, ...], count: int, extra: int, dense: bool) -> Extension:
    """The tangents of all unknowns, direction by direction; step lengths and step control count as constants."""
    n, carried = sizes.unknowns, sizes.carried

    def pushed(
        graph: Graph, rows: Rows, values: list[Any], own: Extra, parameters: list[Any], wanted: Sequence[int],
        held: Sequence[int] = (),
    ) -> tuple[list[Any], list[list[Any]]]:  # fmt: skip
        """All outputs of the graph, and by direction the tangents of some."""
        seeded: dict[int, dict[int, Any]] = {}
        for d in range(count):
            places = [rows.y + i for i in range(n)] + [rows.carried_values + i for i in range(carried)]
            components = [*own.unknowns[d * n : (d + 1) * n], *own.carried[d * carried : (d + 1) * carried]]
            for place, component in zip(places, components, strict=True):
                seeded.setdefault(place, {})[d] = component
        for j, d, row in seeds:
            seeded.setdefault(rows.p + j, {})[d] = 1.0 if row is None else parameters[row]
        xp = values[0].__array_namespace__()
        outputs, found = pushforward(graph, values, seeded, xp, wanted, held)
        known = [[row.get(d, 0.0) for row in found] for d in range(count)]
        return outputs, [[xp.full_like(values[0], v) if type(v) is float else v for v in each] for each in known]

    def start(graph: Graph, rows: Rows, values: list[Any], own: Extra, parameters: list[Any]) -> tuple[Any, list[Any]]:
        outputs, found = pushed(graph, rows, values, own, parameters, range(1, 1 + carried))
        return outputs, [value for direction in found for value in direction]

    def advance(graph: Graph, rows: Rows, values: list[Any], own: Extra, parameters: list[Any]) -> tuple[Any, Extra]:
        ends = rows.n_carried + 4
        y = range(rows.y, rows.y + n)
        behind = range(rows.carried_values, rows.carried_values + carried)
        coefficients = range(ends + n, len(graph.outputs)) if dense else ()
        outputs, found = pushed(graph, rows, values, own, parameters, [*y, *behind, *coefficients], [ends - 1])
        cuts = ((0, n), (n, n + carried), (n + carried, None))
        new = [[value for direction in found for value in direction[slice(*cut)]] for cut in cuts]
        return outputs, Extra(new[0], new[1], own.unknowns, new[2])

    return Extension(sizes, Sizes(count * n, count * carried, extra), start, advance)


# --- steps of states and derivatives together
def _with_control(
    problem: Problem, unknowns: Array, rows: Array, seeds: tuple[Seed, ...], count: int, progress: bool
) -> Solution:
    """The states and derivatives as the unknowns of one system: ``d/dt dy = df/dy dy + df/dp dp``."""
    system = problem.system
    graph, n, k = system.graph, system.n, system.n_parameters

    def variational(t: Any, y: Any, p: Any, xp: Namespace) -> list[Any]:
        seeded: dict[int, dict[int, Any]] = {}
        for d in range(count):
            for i in range(n):
                seeded.setdefault(1 + i, {})[d] = y[(1 + d) * n + i]
        for j, d, row in seeds:
            seeded.setdefault(1 + n + j, {})[d] = 1.0 if row is None else p[k + row]
        outputs, found = pushforward(graph, [t, *y[:n], *p[:k]], seeded, xp, range(n))
        return [*outputs, *(xp.full_like(t, row[d]) if type(row.get(d)) is float else row.get(d, xp.zeros_like(t))
                            for d in range(count) for row in found)]  # fmt: skip

    whole = System(variational, n * (1 + count), rows.shape[0], system.xp, dtype=problem.dtype)
    xp, atol = array_namespace(problem.atol), problem.atol
    if atol.shape[0] > 1:
        atol = xp.concat([atol] * (1 + count), axis=0)
    change = None if problem.stops is None else _change(problem, seeds, count)
    whole_problem = problem._replace(system=whole, y0=unknowns, p=rows, atol=atol)
    return run(whole_problem, progress, change, numbers=False)


def _result(solution: Solution, given: Given, wanted: _Wanted) -> OdeSensitivities:
    """States and derivatives apart, the latter as columns."""
    n, count, set_ = given.problem.system.n, wanted.n_directions, given.sample_set
    xp = array_namespace(solution.y)
    y = solution.y_out if given.has_times else without_failed(solution.y, solution.status)
    columns = y[..., n:, :].reshape((*y.shape[:-2], count, n, y.shape[-1]))
    columns = xp.moveaxis(columns, -3, -2)
    first = len(wanted.columns.get("y0", ()))
    parts = {"y0": columns[..., :first, :], "p": columns[..., first:, :]}
    made = {name: wrap(parts[name], set_) if name in wanted.columns else None for name in ("y0", "p")}
    own = solution._replace(y=solution.y[:n], y_out=solution.y_out[:, :n])
    return OdeSensitivities(result_of(own, given), **made, along=wrap(columns, set_) if wanted.pairs else None)
