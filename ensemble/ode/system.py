"""The right-hand side of a system of ordinary differential equations, bound to one namespace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from ensemble._check import kind_of, message, require
from ensemble._compile.trace.array_calls import called
from ensemble._compile.trace.derivatives import BROKEN, UNBOUNDED, jacobian, jacobian_pattern, tangents
from ensemble._compile.trace.fingerprint import kept_under_code
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.taylor import taylor_series
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._typing import Namespace

__all__ = ["System", "kept_trace", "listed"]

NAME = "ode.solve"


class System:
    """``dy/dt = f(t, y, p)`` for scalars of one kind: traced values, arrays of a value per sample, or Ensembles.

    Parameters
    ----------
    function : callable
        ``f(t, y, p, xp)``: time, `n` values, `n_parameters` values and a namespace; returns `n` values.
    n, n_parameters : int
        Numbers of unknowns and of parameters.
    xp : namespace
        Of the values that the methods are called with.
    dtype : str
        "float32" or "float64": of the graph, where it is needed.
    graph : Graph, optional
        The trace of `function`, where it is known (`traced`): `f` replays it then.
    n_outputs : int, optional
        How many values `function` returns, where they are more than `n`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        n: int,
        n_parameters: int,
        xp: Namespace,
        *,
        dtype: str = "float64",
        graph: Graph | None = None,
        n_outputs: int | None = None,
    ) -> None:
        self.function, self.n, self.n_parameters, self.xp, self.dtype = function, n, n_parameters, xp, dtype
        self._graph, self._n_outputs = graph, n if n_outputs is None else n_outputs
        self.n_given = n_parameters

    n_given: int
    """Parameters without the numbers that `with_numbers` put behind them."""

    tolerances: tuple[Any, list[Any]] | None = None
    """rtol and an atol per unknown, for methods that choose their step."""

    def with_tolerances(self, rtol: Any, atol: list[Any]) -> System:
        """The same system with tolerances of the samples."""
        other = self.bound(self.xp)
        other.tolerances = (rtol, atol)
        return other

    def bound(self, xp: Namespace) -> System:
        """The same system for values of another namespace; the graph is kept."""
        return self._with(xp, self._graph)

    def _with(self, xp: Namespace, graph: Graph | None) -> System:
        """The same system with another namespace or graph."""
        made: System = self._same(System(self.function, self.n, self.n_parameters, xp, dtype=self.dtype, graph=graph))
        return made

    def _same(self, other: Any) -> Any:
        """`other`, made of the arguments of this system, with what is not among them."""
        other.n_given = self.n_given
        return other

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions of the user."""
        return (self.function,)

    def with_numbers(self, graph: Graph) -> System:
        """The same system with a graph that has further parameters: numbers that were constants of it."""
        other: System = self._with(self.xp, graph)
        other.n_parameters = graph.n_inputs - 1 - self.n
        return other

    @functools.cached_property
    def graph(self) -> Graph:
        """The trace of the function: inputs t, y and p in this order, `n` outputs of `dtype`.

        Raises
        ------
        TypeError
            If the function cannot be traced.
        """
        if self._graph is not None:
            return self._graph
        return traced_graph(self.function, self.n, self.n_parameters, self.dtype, self._n_outputs)

    @property
    def is_traced(self) -> bool:
        """Whether `f` replays a graph."""
        return self._graph is not None

    def traced(self) -> System:
        """The same system, whose `f` replays its graph: the function is not called again."""
        return self._with(self.xp, self.graph)

    def f(self, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
        """The derivatives of the unknowns, `n` values."""
        if self._graph is not None:
            return replay(self._graph, [t, *y, *p], self.xp)
        results = values_of(self.function, t, list(y), list(p), self.xp, self._n_outputs)
        return [self.xp.full_like(y[0], r) if isinstance(r, int | float) else r for r in results]

    def jacobian(self, t: Any, y: Sequence[Any], p: Sequence[Any]) -> dict[tuple[int, int], Any]:
        """The entries ``{(i, j): df_i/dy_j}`` that are not known to be zero; a known number is a Python float."""
        entries = jacobian(self.graph, [t, *y, *p], range(1, self.n + 1), self.xp)
        return {(i, position - 1): value for (i, position), value in entries.items()}

    def jacobian_pattern(self) -> set[tuple[int, int]]:
        """The pairs (i, j) where df_i/dy_j may be other than zero."""
        return {(i, position - 1) for i, position in jacobian_pattern(self.graph, range(1, self.n + 1))}

    def has_unbounded_slopes(self) -> bool:
        """Whether entries of the Jacobian matrix may be infinite where f is finite, as that of a square root at 0."""
        return any(node.operation in UNBOUNDED for node in self.graph.nodes)

    def may_jump(self) -> bool:
        """Whether f may jump or bend."""
        return any(node.operation in BROKEN for node in self.graph.nodes)

    def time_derivative(self, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
        """``df_i/dt`` for fixed y, `n` values; None where f_i does not depend on the time."""
        return tangents(self.graph, [t, *y, *p], {0: 1.0}, self.xp)[1]

    def taylor(
        self, t: Any, y: Sequence[Any], p: Sequence[Any], order: int
    ) -> tuple[list[list[Any]], list[list[Any]], list[Any]]:
        """`n` lists of coefficients c_0 to c_order with ``y_i(t + s) = sum_k c_k s**k``, None where zero; those of the
        derivatives, from 0 to ``order - 1``; and factors that are infinite where there is no series."""
        steep: list[Any] = []
        return *taylor_series(self.graph, t, y, p, order, self.xp, steep), steep


KEPT = 256
"""Traces that are kept."""

_traces: dict[Any, Graph] = {}


def kept_trace(make: Callable[[], Graph], functions: Sequence[Callable[..., Any]], *about: Any) -> Graph:
    """The graph that `make` traces, kept where all that the functions read can be compared (`fingerprint`)."""
    return kept_under_code(_traces, KEPT, make, functions, *about)


def traced_graph(function: Callable[..., Any], n: int, n_parameters: int, dtype: str, n_outputs: int) -> Graph:
    """The graph of ``function(t, y, p, xp)`` with inputs t, y, p of `dtype` and `n_outputs` outputs of it.

    The trace is kept: a function of the same code that reads the same values is not called again.
    """

    def make() -> Graph:
        return _traced(function, n, n_parameters, dtype, n_outputs)

    return kept_trace(make, (function,), "f", n, n_parameters, dtype, n_outputs)


def _traced(function: Callable[..., Any], n: int, n_parameters: int, dtype: str, n_outputs: int) -> Graph:
    def body(t: Any, y: list[Any], p: list[Any]) -> list[Any]:
        xp = t.__array_namespace__()
        return [xp.astype(r, getattr(xp, dtype)) for r in values_of(function, t, y, p, xp, n_outputs)]

    real = Scalar(dtype)
    return trace(body, real, [real] * n, [real] * n_parameters, function=NAME)


def values_of(
    function: Callable[..., Any], t: Any, y: list[Any], p: Any, xp: Namespace, n: int, name: str = "f"
) -> list[Any]:  # fmt: skip
    """The `n` values of the function called `name`."""
    try:
        results = called(function, t, y, p, xp)
    except IndexError as error:
        if not hasattr(error, "__notes__"):
            error.add_note(f"{NAME}: {name}(t, y, p, xp) gets {len(y)} values y and {len(p)} parameters p.")
        raise
    return listed(results, n, name)


def listed(results: Any, n: int, name: str = "f") -> list[Any]:
    """What the function called `name` returned, as `n` values."""
    called = f"{name}(t, y, p, xp)"
    advice = "Return a list of n values, one per unknown."
    if results is None or isinstance(results, Mapping | Set | str):
        raise TypeError(message(NAME, called, f"return {n} values", kind_of(results), advice))
    try:
        values = list(results)
    except TypeError:
        values = [results]
    require(len(values) == n, NAME, called, f"return {n} values", len(values), advice)
    return values
