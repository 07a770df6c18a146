"""State-space models with nonlinear dynamics and observations, and their linearisation at a trajectory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ensemble._backend import array_namespace, is_array
from ensemble._check import kind_of, message, require, require_arguments
from ensemble._keywords import explains_construction
from ensemble._typing import Array
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.duals import jacobian_of
from ensemble.apps.kalman.array.square_root import semidefinite_factor, triangle, update_factor
from ensemble.apps.kalman.array.steps import apply, predict, product, update
from ensemble.apps.kalman.interop.arguments import real_array
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["NonlinearGaussianModel", "deviations", "extended_filter", "residuals", "with_prior_step"]


@explains_construction("NonlinearGaussianModel")
class NonlinearGaussianModel:
    """The model ``x[k] = f(x[k-1], k) + q[k]``, ``y[k] = h(x[k], k) + r[k]``.

    ``q[k] ~ N(0, Q[k])`` and ``r[k] ~ N(0, R[k])`` are independent; ``f(x, k)`` leads from step k - 1 to step k,
    ``f(x, 0)`` from the prior ``N(m0, P0)`` to the first observation.

    Parameters
    ----------
    f : callable, ``f(x, k, xp)`` -> nx components
        `x` is a tuple of the nx components of the state, each an array over steps (and batches, and samples); `k` the
        steps, an array of integers that broadcasts against them; `xp` the namespace of their functions. Written with
        arithmetic and functions of `xp`, and ``xp.where`` for branches. Parameters may be Ensembles.
    h : callable, ``h(x, k, xp)`` -> ny components
    Q : array or Ensemble, shape (..., nx, nx)
        As those of `LinearGaussianModel`, like the following.
    R : array or Ensemble, shape (..., ny, ny)
    m0 : array or Ensemble, shape (*batch, nx)
    P0 : array or Ensemble, shape (*batch, nx, nx)
    f_jacobian : callable, ``f_jacobian(x, k, xp)`` -> nx rows of nx components, optional
        Derivatives of `f` by `x`. Where it is not given, `f` is called with numbers that carry their derivatives.
    h_jacobian : callable, ``h_jacobian(x, k, xp)`` -> ny rows of nx components, optional
    prior_at : {"before", "first_observation"}

    Raises
    ------
    TypeError
        If a function is not callable, or as `LinearGaussianModel`.
    ValueError
        As `LinearGaussianModel`.

    Examples
    --------
    A pendulum of which the horizontal position is seen:

    >>> model = NonlinearGaussianModel(
    ...     f=lambda x, k, xp: (x[0] + 0.1 * x[1], x[1] - 0.981 * xp.sin(x[0])),
    ...     h=lambda x, k, xp: (xp.sin(x[0]),),
    ...     Q=[[1e-4, 0.0], [0.0, 1e-2]], R=[[0.1]], m0=[1.5, 0.0], P0=[[0.1, 0.0], [0.0, 0.1]])
    >>> model
    NonlinearGaussianModel(nx=2, ny=1, prior_at='before', float64)
    """

    def __init__(
        self, f: Callable[..., Any], h: Callable[..., Any], Q: Any, R: Any, m0: Any, P0: Any, *,
        f_jacobian: Callable[..., Any] | None = None, h_jacobian: Callable[..., Any] | None = None,
        prior_at: str = "before",
    ) -> None:  # fmt: skip
        functions = (("f", f), ("h", h), ("f_jacobian", f_jacobian), ("h_jacobian", h_jacobian))
        for name, function in functions:
            if not (callable(function) or (function is None and name.endswith("jacobian"))):
                seen = kind_of(function)
                raise TypeError(message("NonlinearGaussianModel", name, "be callable", seen))
            if function is not None:
                require_arguments(function, "x, k, xp", "NonlinearGaussianModel", name)
        self.f, self.h, self.f_jacobian, self.h_jacobian = f, h, f_jacobian, h_jacobian
        sizes = []
        for a, name in ((Q, "Q"), (R, "R")):
            shape = tuple(real_array(a, name, "NonlinearGaussianModel").shape)
            square = len(shape) >= 2 and shape[-1] == shape[-2] > 0
            require(square, "NonlinearGaussianModel", name, "be square matrices", f"shape {shape}")
            sizes.append(shape[-1])
        nx, ny = sizes
        like = next((a for a in (Q, R, m0, P0) if is_array(a) or isinstance(a, Ensemble)), None)
        xp = array_namespace(like) if like is not None else None
        dtype = {} if like is None else {"dtype": like.dtype}
        F, H = ([[float(i == j) for j in range(nx)] for i in range(n)] for n in (nx, ny))
        F, H = (xp.asarray(a, **dtype) if xp else a for a in (F, H))
        # A linear model of the same sizes checks all numbers and has them in one form.
        self.linear = LinearGaussianModel(F, Q, H, R, m0, P0, prior_at=prior_at)
        self.nx, self.ny, self.prior_at = nx, ny, prior_at

    def __repr__(self) -> str:
        return repr(self.linear).replace("LinearGaussianModel", "NonlinearGaussianModel")


def with_prior_step(model: NonlinearGaussianModel, y: Any, mask: Any, function: str) -> tuple[Series, int]:
    """Everything but f and h as a series whose prior is at its first step, and the number of that step.

    A prior before the first observation is a step of its own, -1, where nothing is seen.
    """
    series = aligned(model.linear, y, mask, function)
    if not series.predict_first:
        return series, 0
    xp = array_namespace(series.y, series.F, series.m0)
    longer = {name: xp.concat([a[:1, ...], a], axis=0) for name in ("Q", "R")
              if (a := getattr(series, name)).shape[0] > 1}  # fmt: skip
    missing = xp.full((1, *series.y.shape[1:]), float("nan"), dtype=series.y.dtype)
    y = xp.concat([xp.asarray(missing), series.y], axis=0)
    return replace(series, y=y, predict_first=False, **longer), -1


def _components(x: Array) -> tuple[Array, ...]:
    return tuple(x[..., i] for i in range(x.shape[-1]))


def _steps(x: Array, first: int) -> Any:
    """The numbers of the steps of `x`, in the shape of a component with ones for batches."""
    values = x.samples if isinstance(x, Ensemble) else x
    xp, n = array_namespace(values), x.shape[0]
    return xp.reshape(xp.arange(first, first + n), (n, *(1,) * (len(x.shape) - 2)))


def _joined(parts: Sequence[Any], x: Array) -> Array:
    """Components as one array with a last axis; what is constant is spread over steps and batches."""
    arrays = [p for p in parts if hasattr(p, "shape")]
    xp = array_namespace(x, *[p for p in arrays if isinstance(p, Ensemble)])
    zero = xp.zeros(x.shape[:-1], dtype=x.dtype)
    return xp.stack([xp.astype(zero + (0.0 if p is None else p), x.dtype, copy=False) for p in parts], axis=-1)


def _called(function: Callable[..., Any], x: Array, first: int, n_out: int, name: str) -> list[Any]:
    return _counted(function(_components(x), _steps(x, first), array_namespace(x)), n_out, name)


def _counted(parts: Any, n_out: int, name: str) -> list[Any]:
    """Check that a function of the model returned `n_out` components; return them as a list."""
    if not hasattr(parts, "__iter__"):
        seen = kind_of(parts)
        raise TypeError(message("NonlinearGaussianModel", name, f"give {n_out} components", seen, "Return a tuple."))
    components: list[Any] = list(parts)
    require(len(components) == n_out, "NonlinearGaussianModel", name, f"give {n_out} components", len(components))
    return components


def value(model: NonlinearGaussianModel, name: str, x: Array, first: int) -> Array:
    """``f`` or ``h`` at states `x` of shape (n, *batch, nx), the first of them at step `first`."""
    return _joined(_called(getattr(model, name), x, first, model.nx if name == "f" else model.ny, name), x)


def linearised(model: NonlinearGaussianModel, name: str, x: Array, first: int) -> tuple[Array, Array]:
    """``f`` or ``h`` and its Jacobian matrices at states `x`."""
    n_out = model.nx if name == "f" else model.ny
    function, given = getattr(model, name), getattr(model, f"{name}_jacobian")
    if given is not None:
        rows = _called(given, x, first, n_out, f"{name}_jacobian")
        values = value(model, name, x, first)
        rows = [_counted(row, model.nx, f"each row of {name}_jacobian") for row in rows]
        return values, _stacked([_joined(row, x) for row in rows])
    counted = lambda *arguments: _counted(function(*arguments), n_out, name)
    parts, rows = jacobian_of(counted, _components(x), _steps(x, first), xp=array_namespace(x))
    return _joined(parts, x), _stacked([_joined(row, x) for row in rows])


def _stacked(rows: list[Array]) -> Array:
    return array_namespace(*rows).stack(rows, axis=-2)


def residuals(model: NonlinearGaussianModel, series: Series, x: Array, first: int) -> tuple[Array, Array, Array]:
    """``m0 - x[0]``, ``f(x[k-1]) - x[k]`` from the second step on, and ``y[k] - h(x[k])``."""
    start = -first
    seen = series.y[start:, ...] - value(model, "h", x[start:, ...], 0)
    moved = value(model, "f", x[:-1, ...], first + 1) - x[1:, ...]
    return series.m0 - x[0, ...], moved, _filled(series.y, seen, start)


def deviations(model: NonlinearGaussianModel, series: Series, x: Array, first: int) -> Series:
    """The linear model of deviations from the trajectory `x`, linearised at it."""
    start = -first
    at_f, F = linearised(model, "f", x[:-1, ...], first + 1)
    at_h, H = linearised(model, "h", x[start:, ...], 0)
    xp = array_namespace(F, H, at_f, at_h, x, series.y)
    nx = model.nx
    eye = xp.broadcast_to(xp.eye(nx, dtype=x.dtype), (1, *x.shape[1:-1], nx, nx))
    return replace(
        series,
        F=xp.concat([eye, F], axis=0),
        u=xp.concat([xp.zeros((1, *x.shape[1:]), dtype=x.dtype), at_f - x[1:, ...]], axis=0),
        H=xp.concat([xp.zeros((start, *H.shape[1:]), dtype=x.dtype), H], axis=0),
        d=xp.zeros(series.y.shape[-1:], dtype=x.dtype)[(*(None,) * (len(series.y.shape) - 1), ...)],
        m0=series.m0 - x[0, ...],
        y=_filled(series.y, series.y[start:, ...] - at_h, start),
    )


def _filled(y: Array, seen: Array, start: int) -> Array:
    if not start:
        return seen
    xp = array_namespace(seen, y)
    return xp.concat([y[:start, ...] + xp.zeros_like(seen[:start, ...]), seen], axis=0)


def extended_filter(model: NonlinearGaussianModel, series: Series, first: int) -> Array:
    """Means of the extended Kalman filter, shape (T, *batch, nx): each step is linearised at the mean before it.

    Series whose covariances lose too many digits are filtered on square roots of them.
    """
    means = _extended(model, series, first, False)
    xp = array_namespace(means)
    lost = xp.any(xp.any(xp.isnan(means), axis=0), axis=-1)
    values = lost.samples if isinstance(lost, Ensemble) else lost
    if not bool(array_namespace(values).any(values)):
        return means
    return xp.where(lost[None, ..., None], _extended(model, series, first, True), means)


def _extended(model: NonlinearGaussianModel, series: Series, first: int, roots: bool) -> Array:
    """The means by covariances or, with `roots`, by factors of them."""
    xp = array_namespace(series.y, series.m0, series.P0, series.Q, series.R)
    m = xp.broadcast_to(series.m0, (*series.batch, model.nx))
    spread = semidefinite_factor(series.P0) if roots else series.P0
    zero = xp.zeros((), dtype=series.y.dtype)
    means = []
    for k in range(series.n_steps):
        if k:
            at, F = linearised(model, "f", m[None, ...], first + k)
            F, Q, u = F[0, ...], series.at("Q", k), at[0, ...] - apply(F[0, ...], m, product)
            if roots:
                m, spread = apply(F, m, product) + u, triangle(product(F, spread), semidefinite_factor(Q))
            else:
                m, spread = predict(F, Q, u, m, spread, product)
        if k + first >= 0:
            at, H = linearised(model, "h", m[None, ...], first + k)
            offset = at[0, ...] - apply(H[0, ...], m, product)
            given = (H[0, ...], series.at("R", k), offset, series.y[k, ...], m, spread, product)
            m, spread, _ = update_factor(*given) if roots else update(*given)
        means.append(m + zero)
    return array_namespace(*means).stack(means, axis=0)
