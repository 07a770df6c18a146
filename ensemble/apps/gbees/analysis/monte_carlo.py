"""Monte Carlo reference: random samples integrated along a drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._backend import array_namespace, asarray_like, prototype
from ensemble._typing import Array
from ensemble.apps.gbees.problem import Drift
from ensemble.apps.gbees.tables import with_tables
from ensemble.scalar import Ensemble, namespace

__all__ = ["draw", "propagate"]

Slope = Callable[[Array, Array], Array]
"""The drift at times (S,) and states (n, S)."""

SAFETY, LEAST_FACTOR, LARGEST_FACTOR = 0.9, 0.2, 10.0
"""Safety factor and bounds of a new step length over the old one [Hairer, Norsett, Wanner (1993), section II.4]."""


def draw(mean: Array, covariance: Array, n_samples: int, *, seed: int, backend: str = "numpy") -> Ensemble:
    """Draw independent samples of a Gaussian distribution.

    Parameters
    ----------
    mean : array, shape (n,)
    covariance : array, shape (n, n)
        Symmetric positive definite.
    n_samples : int
    seed : int
        Sample i depends on `seed` and i alone, not on `n_samples`.
    backend : {"numpy", "cupy"}
        The samples' array library. Their values are the same.

    Returns
    -------
    Ensemble of float64, shape (n,)

    Raises
    ------
    ValueError
        If shapes do not fit, or `covariance` is not positive definite.

    Examples
    --------
    >>> x = draw([1.0, 0.0], [[0.04, 0.0], [0.0, 0.01]], 1000, seed=3)
    >>> x.shape, x.n_samples
    ((2,), 1000)
    """
    centre = _check.real_array(mean, "draw", "mean", "have one axis")
    _check.require(centre.ndim == 1, "draw", "mean", "have one axis", f"shape {centre.shape}")
    n = centre.size
    C = _check.real_array(covariance, "draw", "covariance", f"have shape {(n, n)}")
    _check.require(C.shape == (n, n), "draw", "covariance", f"have shape {(n, n)}", f"shape {C.shape}")
    n_samples = _check.integer(n_samples, "draw", "n_samples", minimum=1)
    try:
        L = np.linalg.cholesky(C)
    except np.linalg.LinAlgError:
        raise ValueError(
            _check.message("draw", "covariance", "be positive definite", f"eigenvalues {np.linalg.eigvalsh(C)}")
        ) from None
    normal = _check.random_generator(seed, "draw").standard_normal((n_samples, n))
    # Row by row: the summation order of a matrix product may depend on the number of samples.
    x = centre[:, None] + sum(L[:, j, None] * normal[None, :, j] for j in range(n))
    return Ensemble(asarray_like(np.ascontiguousarray(x), prototype(backend)))


def propagate(
    drift: Drift | Callable[..., Sequence[Array]],
    x: Ensemble,
    until: float,
    *,
    start: float = 0.0,
    method: str = "dop853",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    steps: int | None = None,
    callback: Callable[[float], None] | None = None,
) -> Ensemble:
    """Draw samples of the state at a later time.

    Parameters
    ----------
    drift : Drift or callable
        ``drift(x, t, xp)``, as `Gbees` takes it. Parameters may be Ensembles.
    x : Ensemble, shape (n,)
        At the time `start`.
    until : float
        At or after `start`, in the drift's unit of time.
    start : float
    method : {"dop853", "rk4"}
        The Runge-Kutta method of order 8 of Dormand and Prince, each sample with step lengths of its own; or the
        classical method of order 4 with `steps` equal steps.
    rtol, atol : float
        Bound of the estimated error of a step of "dop853": ``atol + rtol * |x|``, root mean square over components.
    steps : int, optional
        For "rk4".
    callback : callable, optional
        ``callback(t)``: called after every step with the earliest time of any sample; may raise to interrupt.

    Returns
    -------
    Ensemble, shape (n,)
        A sample whose drift becomes non-finite is NaN; the others are unaffected.

    Raises
    ------
    ValueError
        If `until` is before `start`, the drift has another number of components, or an argument is out of range.

    References
    ----------
    .. [1] Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, 2nd edition, section II.10.

    Examples
    --------
    >>> x = Ensemble(np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> propagate(lambda x, t, xp: (x[1], -x[0]), x, np.pi / 2).samples.round(6) + 0.0
    array([[ 0.,  2.],
           [-1.,  0.]])
    """
    _check.require_type(x, Ensemble, "propagate", "x", "be an Ensemble", "draw() makes one.")
    _check.require(x.ndim == 1, "propagate", "x", "have shape (n,)", x.shape)
    _check.require(np.isfinite(until) and until >= start, "propagate", "until", f"be at least start = {start}", until)
    _check.one_of(method, ("dop853", "rk4"), "propagate", "method")
    n, n_samples = x.shape[0], x.n_samples
    base = array_namespace(x.samples)
    xp = with_tables(namespace(base, n_samples))

    def f(t: Array, state: Array) -> Array:
        """The drift at times (S,) and states (n, S)."""
        values = list(drift(tuple(Ensemble(state[i, :]) for i in range(n)), Ensemble(t), xp))
        _check.require(len(values) == n, "propagate", "drift", f"give {n} components", len(values))
        return base.stack([wide(value, state) for value in values])

    state = base.astype(x.samples, base.float64, copy=False)
    state = base.asarray(base.broadcast_to(state, (n, n_samples)), copy=True)
    # Non-finite samples are a valid result.
    with np.errstate(all="ignore"):
        if method == "rk4":
            count = _check.integer(steps, "propagate", "steps", minimum=1, advice='Needed with method="rk4".')
            return Ensemble(classical(f, state, start, until, count, callback))
        return Ensemble(Adaptive(f, state, start, until, rtol, atol).run(callback))


def wide(value: Any, like: Array) -> Array:
    """The samples of a scalar, one for each column of `like`: a component may be the same for all."""
    xp = array_namespace(like)
    samples = value.samples if isinstance(value, Ensemble) else xp.asarray(value, dtype=like.dtype)
    return xp.broadcast_to(xp.astype(samples, like.dtype, copy=False), (like.shape[1],))


def classical(f: Array, x: Array, start: float, until: float, steps: int, callback: Any) -> Array:
    """The classical Runge-Kutta method, equal steps."""
    h = (until - start) / steps
    zero = 0.0 * array_namespace(x).ones_like(x[0, :])
    for k in range(steps):
        t = start + k * h
        k1 = f(zero + t, x)
        k2 = f(zero + (t + 0.5 * h), x + 0.5 * h * k1)
        k3 = f(zero + (t + 0.5 * h), x + 0.5 * h * k2)
        k4 = f(zero + (t + h), x + h * k3)
        x = x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        if callback is not None:
            callback(t + h)
    return x


class Adaptive:
    """The method of Dormand and Prince of order 8, every sample at its own time with its own step length."""

    def __init__(self, f: Slope, x: Array, start: float, until: float, rtol: float, atol: float) -> None:
        from scipy.integrate import DOP853  # a third of this package's import time

        self.tableau = DOP853
        self.f, self.x, self.until = f, x, until
        self.rtol = _check.positive(rtol, "propagate", "rtol")
        self.atol = _check.positive(atol, "propagate", "atol", zero=True)
        self.xp = array_namespace(x)
        self.t = self.xp.zeros_like(x[0, :]) + start
        self.smallest = 1e-15 * max(abs(start), abs(until))

    def run(self, callback: Callable[[float], None] | None) -> Array:
        """All samples at the end of the span; NaN for failed ones."""
        xp, t, x = self.xp, self.t, self.x
        h = None
        while True:
            left = self.until - t
            going = left > 0.0
            if not bool(xp.any(going)):
                return x
            if h is None:
                k = self.f(t, x)
                h = self.first_step(t, x, k)
            last = h >= left
            step = xp.where(going, xp.where(last, left, h), xp.zeros_like(h))
            new_x, new_k, error = self.attempt(t, x, k, step)
            # NaN compares false. A sample whose rejected step is too short to advance t fails.
            good = going & (error <= 1.0)
            broken = going & ~good & ~(step > self.smallest)
            x = xp.where(broken, xp.full_like(x, np.nan), xp.where(good, new_x, x))
            k = xp.where(good, new_k, k)
            t = xp.where(broken | (good & last), xp.full_like(t, self.until), xp.where(good, t + step, t))
            h = xp.where(going, step * self.factor(error), h)
            if callback is not None:
                callback(float(xp.min(t)))

    def factor(self, error: Array) -> Array:
        """The next step length over this one."""
        xp = self.xp
        factor = SAFETY * xp.where(error > 0.0, error, xp.full_like(error, 1e-30)) ** (-1.0 / 8.0)
        factor = xp.where(error >= 0.0, factor, xp.full_like(factor, LEAST_FACTOR))  # NaN
        return xp.clip(factor, LEAST_FACTOR, LARGEST_FACTOR)

    def attempt(self, t: Array, x: Array, k: Array, h: Array) -> tuple[Array, Array, Array]:
        """The state and drift one step later, and the estimated error over its bound."""
        stages = [k]
        for row, c in zip(self.tableau.A[1:], self.tableau.C[1:]):
            stages.append(self.f(t + float(c) * h, x + h * combined(row, stages)))
        new = x + h * combined(self.tableau.B, stages)
        stages.append(self.f(t + h, new))
        scale = self.atol + self.rtol * self.xp.maximum(self.xp.abs(x), self.xp.abs(new))
        fifth, third = (self.squares(combined(row, stages) / scale) for row in (self.tableau.E5, self.tableau.E3))
        bottom = self.xp.sqrt((fifth + 0.01 * third) * x.shape[0])
        error = self.xp.where(fifth == 0.0, fifth, h * fifth / bottom)
        return new, stages[-1], error

    def squares(self, v: Array) -> Array:
        """Sums of squares over the components, in the components' order."""
        return sum((v[i, :] * v[i, :] for i in range(1, v.shape[0])), v[0, :] * v[0, :])

    def first_step(self, t: Array, x: Array, k: Array) -> Array:
        """The initial step length, from norms of the state, of its drift and of the drift's change."""
        xp = self.xp
        scale = self.atol + self.rtol * xp.abs(x)

        def size(v: Array) -> Array:
            return xp.sqrt(self.squares(v / scale) / x.shape[0])

        d0, d1 = size(x), size(k)
        small = (d0 < 1e-5) | (d1 < 1e-5)
        h0 = xp.where(small, xp.full_like(d0, 1e-6), 0.01 * d0 / xp.where(small, xp.ones_like(d1), d1))
        h0 = xp.minimum(h0, self.until - t)
        d2 = size(self.f(t + h0, x + h0 * k) - k) / h0
        most = xp.maximum(d1, d2)
        flat = most <= 1e-15
        h1 = xp.where(
            flat,
            xp.maximum(1e-3 * h0, xp.full_like(h0, 1e-6)),
            (0.01 / xp.where(flat, xp.ones_like(most), most)) ** 0.125,
        )
        h = xp.minimum(100.0 * h0, h1)
        return xp.where(h > 0.0, h, h0)  # NaN


def combined(row: np.ndarray, stages: list[Array]) -> Array:
    """The sum of `stages` weighted by `row`, in order."""
    terms = [float(weight) * stage for weight, stage in zip(row, stages) if weight != 0.0]
    return sum(terms[1:], terms[0])
