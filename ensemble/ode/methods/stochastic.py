"""Methods of fixed steps for stochastic systems ``dy_i = f_i dt + g_i dW_i`` in the sense of Ito, W_i independent.

The noise of a step is made in the step, from the number of the sample and of the step: nothing is stored. Halving the
step gives other paths of W.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ensemble._compile.trace.graph import Graph
from ensemble._typing import Namespace
from ensemble.ode.methods.method import Method, Step
from ensemble.ode.noise import N_NUMBERS, normals, without_numbers
from ensemble.ode.system import System, values_of

__all__ = ["EULER_MARUYAMA", "MILSTEIN", "STOCHASTIC", "StochasticSystem", "system_of"]


class StochasticSystem(System):
    """A system with noise; its last N_NUMBERS parameters are `noise_numbers`, which the functions do not get.

    Parameters
    ----------
    function, diffusion : callable
        f and g: each ``(t, y, p, xp)``, `n` values.
    n, n_parameters : int
        Numbers of unknowns, and of parameters with the N_NUMBERS of the noise.
    xp, dtype, graph
        As those of a `System`.
    first_step : int, optional
        The parameter that is the number of the first step; None: it is 0.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        diffusion: Callable[..., Any],
        n: int,
        n_parameters: int,
        xp: Namespace,
        *,
        dtype: str = "float64",
        graph: Graph | None = None,
        first_step: int | None = None,
    ) -> None:
        self.drift, self.diffusion, self.first_step = function, diffusion, first_step

        @without_numbers
        def both(t: Any, y: Any, p: Any, xp: Namespace) -> Any:
            return [*values_of(function, t, y, p, xp, n), *values_of(diffusion, t, y, p, xp, n, "noise")]

        super().__init__(both, n, n_parameters, xp, dtype=dtype, graph=graph, n_outputs=2 * n)

    def _with(self, xp: Namespace, graph: Graph | None) -> StochasticSystem:
        options: dict[str, Any] = {"dtype": self.dtype, "graph": graph, "first_step": self.first_step}
        made: StochasticSystem = self._same(
            StochasticSystem(self.drift, self.diffusion, self.n, self.n_parameters, xp, **options)
        )
        return made

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions of the user."""
        return (self.drift, self.diffusion)

    def f(self, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
        """The drift, `n` values."""
        return super().f(t, y, p)[: self.n]

    def g(self, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
        """The diffusion, `n` values."""
        return super().f(t, y, p)[self.n :]

    def own_slopes(self, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
        """``dg_i/dy_i``, `n` values; None where it is zero."""
        entries = self.jacobian(t, y, p)
        return [entries.get((self.n + i, i)) for i in range(self.n)]


def system_of(f: Callable[..., Any], noise: Any, n: int, n_parameters: int, xp: Namespace, dtype: str) -> System:
    """Make the system of `f`, or of `f` and `noise`, whose parameters have the numbers of the noise behind them."""
    if noise is None:
        return System(f, n, n_parameters, xp, dtype=dtype)
    return StochasticSystem(f, noise, n, n_parameters + N_NUMBERS, xp, dtype=dtype)


def _stochastic(system: System) -> StochasticSystem:
    if not isinstance(system, StochasticSystem):
        raise TypeError("ode.solve: the system must have a diffusion for a stochastic method; got none.")
    return system


def _step(
    milstein: bool, system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]
) -> Step:
    both, xp, count = _stochastic(system), system.xp, carried[0]
    root = xp.sqrt(xp.abs(h))
    drift, diffusion = both.f(t, y, p), both.g(t, y, p)
    slopes = both.own_slopes(t, y, p) if milstein else [None] * both.n
    new = []
    for i, z in enumerate(normals(count, p[both.n_given - N_NUMBERS : both.n_given], both.n, xp)):
        value = y[i] + h * drift[i] + diffusion[i] * (root * z)
        slope = slopes[i]
        if slope is not None:
            if type(slope) is not float:  # no noise has no slope, as that of a square root at zero
                slope = xp.where(diffusion[i] == 0.0, xp.zeros_like(slope), slope)
            value = value + (0.5 * h) * (diffusion[i] * slope) * (z * z - 1.0)
        new.append(value)
    return Step(new, [count + 1.0], None, [[b - a] for a, b in zip(y, new, strict=True)])


def _euler_maruyama(system: System, t: Any, h: Any, y: Any, carried: Any, p: Any) -> Step:
    return _step(False, system, t, h, y, carried, p)


def _milstein(system: System, t: Any, h: Any, y: Any, carried: Any, p: Any) -> Step:
    return _step(True, system, t, h, y, carried, p)


def _first(system: System, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
    """The number of the first step."""
    place = _stochastic(system).first_step
    if place is not None:
        return [p[place] + system.xp.zeros_like(y[0])]
    return [system.xp.zeros_like(y[0])]


def _one(system: System) -> int:
    return 1


def _check(system: System) -> None:
    _stochastic(system)


EULER_MARUYAMA = Method("euler-maruyama", 1, None, _euler_maruyama, _one, _first, check=_check)
"""Strong order 1/2, weak order 1 (Maruyama 1955); of strong order 1 where g does not depend on y."""

MILSTEIN = Method("milstein", 1, None, _milstein, _one, _first, needs_graph=True, check=_check)
"""Strong order 1 where g_i depends on y_i alone, the time and the parameters (Milstein 1974)."""

STOCHASTIC = (EULER_MARUYAMA.name, MILSTEIN.name)
