"""Gradients of the state at the end of fixed steps: the steps are run backwards by the chain rule, to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import finite, one_of, positive, require
from ensemble._compile.trace.derivatives import pullback
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._typing import Array
from ensemble.ode.evaluation import Evaluation
from ensemble.ode.methods import METHODS
from ensemble.ode.methods.method import Method
from ensemble.ode.methods.stochastic import STOCHASTIC, StochasticSystem
from ensemble.ode.noise import N_NUMBERS, noise_numbers
from ensemble.ode.solve import stacked
from ensemble.ode.system import System
from ensemble.scalar import Ensemble
from ensemble.scalar.ensemble import wrap
from ensemble.scalar.namespace import samples_of, set_of

__all__ = ["OdeGradient", "gradient"]

NAME = "ode.gradient"


class OdeGradient(NamedTuple):
    """The end of the integration and the gradient of ``sum_i cotangent_i y_i(t1)``, sample by sample."""

    y: Ensemble
    """The state at t1, shape (n,)."""
    y0: Ensemble
    """The derivatives with respect to y0, shape (n,)."""
    p: Ensemble
    """The derivatives with respect to p, shape (k,)."""


def gradient(
    f: Callable[..., Any],
    y0: Any,
    t: tuple[float, float],
    cotangent: Any,
    *,
    step: float,
    p: Any = None,
    method: str = "tsit5",
    noise: Callable[..., Any] | None = None,
    seed: int = 0,
    noise_samples: Any = None,
) -> OdeGradient:
    """Integrate by fixed steps and differentiate a weighted sum of the end with respect to y0 and all parameters.

    The discrete adjoint: the gradient is that of the numbers that the steps give, not of the exact solution, whatever
    the step length. It costs a few integrations, whatever the number of parameters, and keeps the states of all steps.

    Parameters
    ----------
    f, y0, t, p, method, step, noise, seed, noise_samples
        As those of `solve`; `t` and `step` are plain numbers. Arrays are NumPy's. Not "taylor", which has no fixed
        steps.
    cotangent : array or Ensemble, shape (n,), or callable
        The weights, or a function of the state at the end, an Ensemble (n,), that returns them: the gradient of a loss.

    Returns
    -------
    OdeGradient

    Raises
    ------
    ValueError
        If shapes do not fit, or an argument is out of range.
    TypeError
        If `f` cannot be traced, or uses an operation without a derivative.

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
    >>> made = ode.gradient(decay, [2.0], (0.0, 1.0), [1.0], p=[0.5], step=0.05)
    >>> bool(np.isclose(made.p.samples[0, 0], -2.0 * np.exp(-0.5), rtol=1e-8))
    True
    """
    names = tuple(name for name, each in METHODS.items() if not each.own_step)
    chosen = METHODS[one_of(method, names, NAME, "method")]
    require(isinstance(t, list | tuple) and len(t) == 2, NAME, "t", "be a pair (t0, t1)", repr(t))
    t0, t1 = finite(t[0], NAME, "t[0]"), finite(t[1], NAME, "t[1]")
    length = positive(step, NAME, "step")
    state, parameters = stacked(y0, "y0"), stacked(() if p is None else p, "p")
    weights = None if callable(cotangent) else stacked(cotangent, "cotangent")
    every = [state, parameters, *([] if weights is None else [weights])]
    n_samples, sample_set, n, k = samples_of(NAME, *every), set_of(*every), state.shape[0], parameters.shape[0]
    dtype = "float32" if str(state.dtype) == "float32" else "float64"

    def placed(x: Ensemble) -> Array:
        return np.array(np.broadcast_to(to_numpy(x.samples), (x.shape[0], n_samples)), dtype=dtype)

    given = placed(parameters)
    require((noise is not None) == (method in STOCHASTIC), NAME, "noise", "go with a stochastic method", method)
    system = System(f, n, k, np, dtype=dtype)
    if noise is not None:
        ids = np.arange(n_samples) if noise_samples is None else np.asarray(noise_samples)
        require(ids.shape == (n_samples,), NAME, "noise_samples", f"have shape ({n_samples},)", ids.shape)
        given = np.concatenate([given, noise_numbers(ids, seed, dtype)])
        system = StochasticSystem(f, noise, n, k + N_NUMBERS, np, dtype=dtype)
    chosen.check(system)
    with np.errstate(all="ignore"):  # a sample whose numbers overflow concerns no other
        steps = _Steps(chosen, system)
        states = steps.forward(placed(state), given, t0, t1, length)
        end = wrap(states[-1][:n], sample_set)
        weights = stacked(cotangent(end), "cotangent") if weights is None else weights
        require(weights.shape == (n,), NAME, "cotangent", f"have shape ({n},)", weights.shape)
        by_state, by_parameters = steps.backward(states, given, placed(weights))
    return OdeGradient(end, wrap(by_state, sample_set), wrap(by_parameters[:k], sample_set))


class _Steps:
    """The programs of a step and of its chain rule: rows are t, h, y, what is carried, and p."""

    def __init__(self, method: Method, system: System) -> None:
        system = system.traced()
        n, k, carried, real = system.n, system.n_parameters, method.n_carried(system), Scalar(system.dtype)
        self.n, self.size, self.dtype = n, n + carried, system.dtype
        self.t0 = 0.0
        self.times: list[tuple[float, float]] = []

        def begin(t: Any, y: list[Any], p: list[Any]) -> list[Any]:
            return method.start(system.bound(t.__array_namespace__()), t, y, p)

        def body(t: Any, h: Any, y: list[Any], p: list[Any]) -> list[Any]:
            made = method.step(system.bound(t.__array_namespace__()), t, h, y[:n], y[n:], p)
            return [*made.y, *made.carried]

        def evaluated(function: Callable[..., Any], *inputs: Any) -> tuple[Evaluation, Evaluation]:
            graph = trace(function, *inputs, function=NAME)

            def backward(values: list[Any], cotangents: list[Any]) -> list[Any]:
                xp = cotangents[0].__array_namespace__()
                found, zero = pullback(graph, values, cotangents, xp), xp.zeros_like(cotangents[0])
                return [xp.astype(found.get(i, zero), getattr(xp, system.dtype)) for i in range(graph.n_inputs)]

            reverse = [real] * graph.n_inputs, [real] * len(graph.outputs)
            whole = trace(backward, *reverse, function=NAME) if graph.outputs else graph
            return Evaluation(graph, 0, system.dtype), Evaluation(whole, 0, system.dtype)

        self.start = evaluated(begin, real, [real] * n, [real] * k)
        self.step = evaluated(body, real, real, [real] * self.size, [real] * k)

    def forward(self, y: Array, p: Array, t0: float, t1: float, length: float) -> list[Array]:
        """The states with what is carried, at the start and after each step."""
        count = max(int(np.ceil(abs(t1 - t0) / length - 1e-9)), 0)
        h, self.t0 = (length if t1 >= t0 else -length), t0
        starts = [t0 + k * h for k in range(count)]
        self.times = [(t, h if k < count - 1 else t1 - t) for k, t in enumerate(starts)]
        carried = self.start[0](np.concatenate([np.full_like(y[:1], t0), y, p]), y[:0])
        states = [np.concatenate([y, carried])]
        for t, part in self.times:
            states.append(self.step[0](self._rows(t, part, states[-1], p), y[:0]))
        return states

    def backward(self, states: list[Array], p: Array, weights: Array) -> tuple[Array, Array]:
        """The derivatives with respect to the first state and the parameters."""
        by_state = np.concatenate([weights, np.zeros((self.size - self.n, weights.shape[1]), self.dtype)])
        by_parameters = np.zeros_like(p)
        for (t, part), state in zip(reversed(self.times), reversed(states[:-1]), strict=True):
            rows = np.concatenate([self._rows(t, part, state, p), by_state])
            slopes = self.step[1](rows, state[:0])
            by_state, by_parameters = slopes[2 : 2 + self.size], by_parameters + slopes[2 + self.size :]
        if self.size == self.n:
            return by_state, by_parameters
        rows = np.concatenate(
            [np.full_like(weights[:1], self.times[0][0] if self.times else 0.0), states[0][: self.n], p]
        )
        slopes = self.start[1](np.concatenate([rows, by_state[self.n :]]), states[0][:0])
        return by_state[: self.n] + slopes[1 : 1 + self.n], by_parameters + slopes[1 + self.n :]

    @staticmethod
    def _rows(t: float, h: float, state: Array, p: Array) -> Array:
        return np.concatenate([np.full_like(state[:1], t), np.full_like(state[:1], h), state, p])
