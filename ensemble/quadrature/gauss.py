"""Integrals by products of Gauss rules: a traced integrand in generated loops, any other one over arrays of points."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, prototype, to_numpy
from ensemble._check import (
    floating,
    host_array,
    integer,
    kind_of,
    message,
    one_of,
    require,
    require_real_numbers,
    require_unmasked,
)  # fmt: skip
from ensemble._compile.trace.fingerprint import fingerprint
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numbers import hoisted, literals
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._errors import again
from ensemble._kernels.quadrature import quadrature_launch
from ensemble._kernels.quadrature.quadrature_generated import tensor_sums
from ensemble._kernels.quadrature.rules import HIGHEST_ORDER, Rule, hermite_rule, laguerre_rule, legendre_rule, smolyak
from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.scalar import DivergenceError, Ensemble, namespace, run

__all__ = ["Integrand", "gauss"]

RULES: dict[str, Callable[[int], Rule]] = {
    "hermite": functools.cache(hermite_rule), "laguerre": functools.cache(laguerre_rule),
    "legendre": functools.cache(legendre_rule),
}  # fmt: skip

MOST_POINTS = 1 << 40

KEPT = 256
"""Traces of an integrand that are kept."""

MOST_NUMBERS = 256
"""Numbers that a function reads from outside and that become parameters of its compiled code, at most."""

CHUNK = 1 << 16
"""Points that an integrand which cannot be traced is evaluated at together."""


class Integrand:
    """A function that `gauss` traces at its first call only: later calls start at once.

    Where it reads numbers, text, small arrays, and lists or dictionaries of them, a change of these gives a new trace.
    Other values that it reads besides its arguments (attributes of objects, large arrays) must not change. Parameters
    `p` may.

    Parameters
    ----------
    f : callable
        As of `gauss`.

    Examples
    --------
    >>> f = Integrand(lambda q, p, xp: xp.exp(p[0] * q[0]))
    >>> [round(float(gauss(f, 1, 9, p=[a])), 6) for a in (0.1, 0.2)]
    [1.005013, 1.020201]
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        if not callable(f):
            raise TypeError(message("Integrand", "f", "be a function", kind_of(f)))
        self.f = f
        self.graphs: dict[Any, Graph | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        return self.f(*arguments)


@explains_calls("gauss")
def gauss(
    f: Callable[..., Any],
    dim: int,
    n_nodes: int | None = None,
    rule: str = "hermite",
    *,
    p: Any = None,
    kind: str = "tensor",
    level: int | None = None,
    bounds: Any = None,
    dtype: DType = np.float64,
    backend: str = "numpy",
) -> Any:
    """Compute the integral of `f` over `dim` variables by Gauss rules [1]_, without storing points.

    Parameters
    ----------
    f : callable or Integrand
        ``f(q, xp)`` takes a tuple of `dim` numbers and the namespace of their functions and returns a number or a tuple
        of numbers; with `p` it is ``f(q, p, xp)``. It is called once, with symbolic numbers, and compiled; see `fuse`
        for what it may use. The compiled code is kept, and serves all numbers that `f` reads from outside and all
        `bounds`; the trace is kept in an `Integrand` only. A function that cannot be
        traced is called with Ensembles instead, whose samples are the points; see `run` for what it may do.
    dim : int, at least 1
    n_nodes : int, from 1 to 150
        Nodes along each variable; exact for polynomials of degree ``2 n_nodes - 1`` in each variable.
    rule : {"hermite", "legendre", "laguerre"}
        "hermite": the mean for independent standard normal variables. "legendre": the integral over `bounds`.
        "laguerre": the mean for independent standard exponential variables.
    p : array or Ensemble, shape (k,), or a list of numbers and Ensembles, optional
        Parameters of `f`. Of an Ensemble, each sample has an integral of its own.
    kind : {"tensor", "sparse"}
        "tensor": all ``n_nodes ** dim`` tuples of nodes. "sparse": Smolyak's grid [2]_ of `level`, exact for
        polynomials of total degree ``2 level + 1``.
    level : int, at least 0
        Of the sparse grid.
    bounds : array, shape (2,) or (dim, 2), optional
        The lower and upper limits for "legendre", a pair for all variables or one for each, lower below upper; (-1, 1)
        where there are none. `scipy.integrate.cubature` takes the transpose, all lower limits and then all upper ones.
    dtype : float64 or float32
    backend : {"numpy", "cupy"}

    Returns
    -------
    NumPy scalar or Ensemble of shape (), or a tuple of them
        As `f` returns one or several numbers; an Ensemble where `p` is one.

    Raises
    ------
    ValueError
        If an argument is out of range, or the product has more than 2**40 points.
    TypeError
        If `f` returns something else than numbers.

    Notes
    -----
    The product is a nest of loops, one for each variable. A value is computed in the loop over the innermost of the
    variables that it depends on; for that, terms of sums and factors of products are reordered, so that the integrand
    at a point is that of `f` to rounding. Every loop adds one term for each node, and the parts that threads compute
    do not depend on their number: results have the same bits for every number of threads. A sample of an Ensemble has
    the bits of its own parameters.

    References
    ----------
    .. [1] Golub, Welsch (1969), Mathematics of Computation 23(106), 221-230.
    .. [2] Gerstner, Griebel (1998), Numerical Algorithms 18, 209-232.

    Examples
    --------
    >>> float(gauss(lambda q, xp: q[0] ** 2 + q[1] ** 4 + q[2], 3, 4).round(12))
    4.0
    >>> float(gauss(lambda q, xp: xp.exp(-q[0] * q[1]), 2, 12, "legendre", bounds=(0.0, 1.0)).round(12))
    0.796599599297
    """
    name = "gauss"
    if not callable(f):
        raise TypeError(message(name, "f", "be a function", kind_of(f)))
    dim = integer(dim, name, "dim", minimum=1)
    one_of(rule, RULES, name, "rule")
    one_of(kind, ("tensor", "sparse"), name, "kind")
    one_of(backend, ("numpy", "cupy"), name, "backend")
    dtype = floating(dtype, name, "dtype")
    first = next((part for part in p if isinstance(part, Ensemble)), None) if isinstance(p, list | tuple) else None
    p = p if first is None else first.__array_namespace__().asarray(list(p))
    parameters, n_samples = checked_parameters(p, dtype)
    limits = checked_bounds(bounds, dim, rule)
    like = prototype(backend)
    if kind == "tensor":
        n_nodes = checked_order(n_nodes, "n_nodes")
        require(level is None, name, "level", "be given with kind='sparse'", level)
        require(n_nodes**dim <= MOST_POINTS, name, "n_nodes", f"give at most {MOST_POINTS} points",
                f"{n_nodes}**{dim}", "Use kind='sparse'.")  # fmt: skip
        nodes, weights = (part.astype(dtype) for part in RULES[rule](n_nodes))
        graph = traced(f, dim, parameters, limits, dtype)
        if graph is not None:
            graph, parameters = with_numbers(graph, parameters, f, dim)
        if graph is not None and backend == "cupy":
            sums = quadrature_launch.tensor_sums(graph, dim, nodes, weights, parameters)
        elif graph is not None:
            sums = tensor_sums(graph, dim, nodes, weights, parameters)
        else:
            points = tensor_points(nodes, weights, dim)
            return over_arrays(f, points, limits, parameters, p, n_samples, like)
        single = graph.structure == 0
        return results(sums, single, p)
    require(n_nodes is None, name, "n_nodes", "be given with kind='tensor'", n_nodes)
    require(level is not None, name, "level", "be an integer of at least 0", None)
    level = integer(level, name, "level", minimum=0)
    require(level < HIGHEST_ORDER, name, "level", f"be below {HIGHEST_ORDER}", level)
    rules = [RULES[rule](k + 1) for k in range(level + 1)]
    places, weights = smolyak([rules] * dim, level, name)
    points = stored_points(places.astype(dtype), weights.astype(dtype))
    return over_arrays(f, points, limits, parameters, p, n_samples, like)


# --- arguments
def checked_order(n_nodes: Any, argument: str) -> int:
    """A number of nodes."""
    require(n_nodes is not None, "gauss", argument, "be an integer of at least 1", None)
    number = integer(n_nodes, "gauss", argument, minimum=1)
    require(number <= HIGHEST_ORDER, "gauss", argument, f"be at most {HIGHEST_ORDER}", number)
    return number


def checked_parameters(p: Any, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """The parameters, shape (k, n_samples), on the host."""
    if p is None:
        return np.zeros((0, 1), dtype), 1
    require_unmasked(p, "gauss", "p")
    values = to_numpy(p.samples) if isinstance(p, Ensemble) else host_array(p, "gauss", "p", "have one axis")[..., None]
    require_real_numbers(values.dtype, "gauss", "p")
    require(values.ndim == 2, "gauss", "p", "have one axis", f"shape {values.shape[:-1]}")
    return np.ascontiguousarray(values, dtype), values.shape[1]


def checked_bounds(bounds: Any, dim: int, rule: str) -> np.ndarray | None:
    """The limits of each variable, shape (dim, 2); None for those of the rule itself."""
    if bounds is None:
        return np.broadcast_to([-1.0, 1.0], (dim, 2)) if rule == "legendre" else None
    require(rule == "legendre", "gauss", "bounds", "be given with rule='legendre'", repr(rule))
    if isinstance(bounds, Ensemble):
        advice = "Map the variable in f, with parameters p."
        raise TypeError(message("gauss", "bounds", "be the same for all samples", "an Ensemble", advice))
    require_unmasked(bounds, "gauss", "bounds")
    wanted = f"have shape (2,) or ({dim}, 2)"
    limits = host_array(bounds, "gauss", "bounds", wanted)
    require_real_numbers(limits.dtype, "gauss", "bounds")
    limits = limits.astype(np.float64)
    order = "A row is the (lower, upper) pair of a variable; arrays of all lower and all upper limits are transposed."
    require(limits.shape in ((2,), (dim, 2)), "gauss", "bounds", wanted, f"shape {limits.shape}", order)
    require(bool(np.isfinite(limits).all()), "gauss", "bounds", "be finite", "others")
    pairs = np.broadcast_to(limits, (dim, 2))
    bad = np.flatnonzero(~(pairs[:, 0] < pairs[:, 1]))
    seen = "" if not bad.size else f"({pairs[bad[0], 0]:.6g}, {pairs[bad[0], 1]:.6g}) for variable {bad[0]}"
    require(not bad.size, "gauss", "bounds", "have lower limits below the upper ones", seen, order)
    return pairs


def results(sums: Any, single: bool, p: Any) -> Any:
    """What `gauss` returns for sums of shape (n_outputs, n_samples) and parameters `p`."""
    values = (
        [Ensemble(row, p.sample_set) for row in sums] if isinstance(p, Ensemble) else [to_numpy(row)[0] for row in sums]
    )
    return values[0] if single else tuple(values)


# --- the integrand
def mapped_point(q: Any, limits: np.ndarray | None) -> tuple[tuple[Any, ...], float]:
    """The point in the limits, and the volume that the weights are multiplied with."""
    if limits is None:
        return tuple(q), 1.0
    middle, half = 0.5 * (limits[:, 0] + limits[:, 1]), 0.5 * (limits[:, 1] - limits[:, 0])
    volume = float(np.prod(limits[:, 1] - limits[:, 0]))
    if np.all(middle == 0.0) and np.all(half == 1.0):
        return tuple(q), volume
    return tuple(float(m) + float(h) * x for m, h, x in zip(middle, half, q, strict=True)), volume


def traced(f: Any, dim: int, parameters: np.ndarray, limits: Any, dtype: np.dtype) -> Graph | None:
    """The graph of the integrand; None where it cannot be traced."""
    if isinstance(f, Integrand):
        own = None if limits is None else limits.tobytes()
        key = (dim, parameters.shape[0], own, dtype.name, fingerprint(f.f))
        if key not in f.graphs:
            if len(f.graphs) >= KEPT:
                f.graphs.pop(next(iter(f.graphs)))
            f.graphs[key] = traced(f.f, dim, parameters, limits, dtype)
        return f.graphs[key]

    def body(q: Any, p: Any) -> Any:
        xp = q[0].__array_namespace__()
        point, volume = mapped_point(q, limits)
        found = f(point, xp) if p is None else f(point, p, xp)
        several = isinstance(found, tuple | list)
        values = [xp.astype(value, dtype) for value in (found if several else (found,))]
        if not values:
            raise TypeError("no number")  # said where it is called with arrays
        values = values if volume == 1.0 else [volume * value for value in values]
        return tuple(values) if several else values[0]

    number = Scalar(dtype.name)
    given = (number,) * parameters.shape[0] if parameters.size else None
    try:
        return trace(body, (number,) * dim, given, function="gauss")
    except (TypeError, AttributeError):
        return None


def with_numbers(graph: Graph, parameters: np.ndarray, f: Any, dim: int) -> tuple[Graph, np.ndarray]:
    """The graph with the limits, and the numbers that the integrand reads from outside, as further parameters."""
    kept = literals(f.f if isinstance(f, Integrand) else f)
    graph, values = hoisted(graph, dim + parameters.shape[0], (parameters.dtype.name,), kept, most=MOST_NUMBERS)
    rows = np.repeat(np.array(values, parameters.dtype)[:, None], parameters.shape[1], axis=1)
    return graph, np.concatenate([parameters, rows])


# --- over arrays of points
class Points(NamedTuple):
    """The points of a rule, of which only some are in memory."""

    size: int
    between: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    """The coordinates, shape (dim, n), and weights of the points from one number up to another."""


def tensor_points(nodes: np.ndarray, weights: np.ndarray, dim: int) -> Points:
    """All tuples of nodes."""

    def points(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        rest, product = np.arange(first, last), np.ones(last - first, weights.dtype)
        found = np.empty((dim, last - first), nodes.dtype)
        for j in range(dim - 1, -1, -1):
            rest, digits = np.divmod(rest, nodes.size)
            found[j] = nodes[digits]
            product *= weights[digits]
        return found, product

    return Points(nodes.size**dim, points)


def stored_points(places: np.ndarray, weights: np.ndarray) -> Points:
    """Points that are stored, shape (n, dim)."""

    def points(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        return np.ascontiguousarray(places[first:last].T), weights[first:last]

    return Points(weights.size, points)


def over_arrays(
    f: Callable[..., Any], points: Points, limits: np.ndarray | None, parameters: np.ndarray, p: Any, n_samples: int,
    like: Any,
) -> Any:  # fmt: skip
    """The weighted sum of an integrand that is not traced: chunk by chunk, sample by sample."""
    xp = array_namespace(like)
    totals: list[list[Any]] = []
    single = True
    for s in range(n_samples):
        given = () if p is None else (tuple(Ensemble(xp.asarray(row[s : s + 1])) for row in parameters),)
        parts: list[list[Any]] = []
        for first in range(0, points.size, CHUNK):
            places, weights = points.between(first, min(first + CHUNK, points.size))
            q, volume = mapped_point(tuple(Ensemble(xp.asarray(row)) for row in places), limits)
            found = at_points(f, (q, *given), xp, weights.size)
            single = not isinstance(found, tuple | list)
            if not single and not found:
                raise TypeError(message("gauss", "f", "return a number or some", f"an empty {type(found).__name__}"))
            values = [one_value(value, xp, places) for value in ((found,) if single else found)]
            factor = xp.asarray(weights)
            parts.append([volume * xp.sum(value * factor) for value in values])
        totals.append([pairwise(list(column)) for column in zip(*parts, strict=True)])
    rows = [xp.stack(list(column)).astype(parameters.dtype) for column in zip(*totals, strict=True)]
    return results(rows, single, p)


def at_points(f: Callable[..., Any], arguments: tuple[Any, ...], xp: Any, n_points: int) -> Any:
    """The integrand of Ensembles whose samples are the points: none of its functions can mix them.

    What needs a truth value, a Python number or a plain array goes through `ensemble.run`.
    """
    try:
        return f(*arguments, namespace(xp, n_points))
    except (DivergenceError, TypeError, AttributeError, ValueError):
        made = run(f, *arguments, namespace(xp))
    if made.errors:
        raise again(next(iter(made.errors.values())))
    return made.value


def one_value(value: Any, xp: Any, places: np.ndarray) -> Any:
    """The integrand at all points; one number stands for each of them."""
    advice = "Return its real and its imaginary part."
    if not isinstance(value, int | float | bool) and not hasattr(value, "dtype"):
        kind = kind_of(value)
        raise TypeError(message("gauss", "f", "return numbers", kind, advice if isinstance(value, complex) else ""))
    if "complex" in str(value.dtype if hasattr(value, "dtype") else ""):
        raise TypeError(message("gauss", "f", "return real numbers", f"dtype {value.dtype}", advice))
    shape = getattr(value, "shape", ())
    require(shape == (), "gauss", "f", "return one number for each point", f"shape {shape}")
    values = value.samples if isinstance(value, Ensemble) else xp.asarray(value)
    fits = values.size in (1, places.shape[1])
    advice = "Pass samples as parameters p."
    require(fits, "gauss", "f", "return one number for each point", f"{values.size} samples", advice)
    return xp.broadcast_to(values, places.shape[1:]).astype(places.dtype)


def pairwise(values: list[Any]) -> Any:
    """The sum of values in a tree of one shape."""
    while len(values) > 1:
        values = [sum(values[k : k + 2][1:], values[k]) for k in range(0, len(values), 2)]
    return values[0]
