"""Newton's method for many samples: each stops by itself, a finished one is not changed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._check import integer, kind_of, message, positive, require, require_callable
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.sparse.row_sums import in_space, space_in_force
from ensemble._keywords import explains_calls
from ensemble.krylov._norms import norms
from ensemble.krylov.cg import cg
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg.bridge.host import array_in, is_elsewhere, refuse
from ensemble.linalg.operators import as_real, numbers_of, samples_of, wrap_like
from ensemble.scalar import Ensemble


@dataclass(frozen=True, repr=False)
class NewtonResult(SolveResult):
    """Outcome of `newton`: a `SolveResult` whose iterations are Newton steps.

    Attributes
    ----------
    linear_iterations : array of int, shape (n_samples,)
        Iterations of the linear solver, over all steps.
    """

    linear_iterations: np.ndarray | None = None

    @property
    def u(self) -> Any:
        """The solution, an Ensemble or array of shape (n,)."""
        return self.x


@explains_calls("newton")
def newton(
    residual: Callable[[Any], Any],
    jacobian: Callable[[Any], Any],
    u0: Any,
    *,
    solver: Callable[[Any, Any], SolveResult] | None = None,
    rtol: float = 1e-7,
    atol: float = 0.0,
    reference: Any = None,
    max_iterations: int = 10,
    callback: Callable[[int, np.ndarray], Any] | None = None,
) -> NewtonResult:
    """Solve ``residual(u) = 0`` for every sample by ``u <- u - jacobian(u)^-1 residual(u)``.

    A sample has converged when the 2-norm of its residual is at most ``max(rtol * reference, atol)``. From then on its
    right-hand side is zero and u is not changed. A sample whose residual is not finite, or whose linear solve broke
    down, is flagged and frozen at its last finite iterate.

    Parameters
    ----------
    residual : callable
        u -> residual, Ensembles or arrays of shape (n,).
    jacobian : callable
        u -> its derivative, whatever `solver` takes.
    u0 : Ensemble or array, shape (n,)
    solver : callable, optional
        ``solver(J, r)`` -> SolveResult of ``J x = r``; plain `cg` by default. `direct` serves small and unsymmetric
        systems: its order of elimination is worked out once where all Jacobians share one graph.
    rtol, atol : float, dimensionless and in units of the residual
    reference : array, shape (n_samples,), optional
        The norms that `rtol` is a fraction of; by default each sample's at `u0`. A warm start, whose first residual is
        small already, needs those of the start it replaces.
    max_iterations : int
        Newton steps.
    callback : callable, optional
        Called as ``callback(step, residual_norms)``.

    Returns
    -------
    NewtonResult

    Raises
    ------
    ValueError
        If `u0` is no vector, `residual` returns another shape or number of samples, or `reference` is not finite, is
        negative or has another shape.
    TypeError
        If `residual`, `jacobian` or `solver` is no function, `u0` or a residual holds no numbers, or `solver` returns
        no `SolveResult`.

    Examples
    --------
    >>> import numpy as np
    >>> result = newton(lambda u: u * u - 2.0, lambda u: np.diag(2.0 * u), np.ones(1), rtol=1e-12)
    >>> result.u, result.iterations
    (array([1.41421356]), array([5]))
    """
    positive(rtol, "newton", "rtol", zero=True)
    positive(atol, "newton", "atol", zero=True)
    integer(max_iterations, "newton", "max_iterations", minimum=0)
    solver = cg if solver is None else solver
    for name, function in (("residual", residual), ("jacobian", jacobian), ("solver", solver)):
        if not callable(function):
            raise TypeError(message("newton", name, "be a function", kind_of(function)))
    if callback is not None:
        require_callable(callback, "newton", "callback")
    numbers_of(u0, "newton", "u0")
    if is_elsewhere(u0):
        advice = "Solve without gradients, and then take one step u - cg(J(u), F(u)).x, which has the gradient of u."
        raise refuse("newton", "u0", array_in(u0), advice=advice)
    start = as_real(samples_of(u0))
    require(start.ndim == 2, "newton", "u0", "be a vector", f"shape {tuple(start.shape[:-1])}")
    r = residual(u0)
    first = _checked_residual(r, start.shape[0], start.shape[1])
    n_samples = max(first.shape[-1], start.shape[-1])
    xp = array_namespace(start)
    dtype = np.result_type(start.dtype, first.dtype)
    u = empty_like(start, (start.shape[0], n_samples), dtype)
    u[...] = start
    status = np.full(n_samples, Status.max_iterations, dtype=object)
    iterations, linear = np.zeros(n_samples, np.int64), np.zeros(n_samples, np.int64)
    active = np.ones(n_samples, bool)
    target: Any = None
    matrix: Any = None
    space = space_in_force()
    history: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for step in range(max_iterations + 1):
            samples = first if step == 0 else _checked_residual(r, u.shape[0], n_samples)
            if samples.shape != u.shape:
                samples = xp.broadcast_to(samples, u.shape)
            samples = contiguous(samples)  # of the same shape NumPy would give a read-only array: other kernels
            if step == 0 and max_iterations:  # its space is that of the residuals
                matrix = jacobian(_like(u0, r, u))
                space = getattr(matrix, "space", space)
            with in_space(space):
                norm = norms(samples)
            if target is None:
                target = np.maximum(rtol * _checked_reference(reference, norm), atol)
            history.append(np.where(active, norm, history[-1]) if history else norm)
            status[active & (norm <= target)] = Status.converged
            status[active & ~np.isfinite(norm)] = Status.breakdown
            active = active & np.isfinite(norm) & (norm > target)
            if callback is not None:
                callback(step, history[-1])
            if step == max_iterations or not active.any():
                break
            right = samples if active.all() else xp.where(asarray_like(active, u), samples, xp.zeros_like(samples))
            matrix = matrix if step == 0 else jacobian(_like(u0, r, u))
            result = solver(matrix, _like(u0, r, right))
            if not isinstance(result, SolveResult):
                raise TypeError(message("newton", "solver", "return a SolveResult", kind_of(result)))
            count, advice = result.status.size, "Give u0 as an Ensemble of that many samples."
            wanted = f"have {n_samples} samples, as u0 and the residual, or 1"
            require(count in (1, n_samples), "newton", "what jacobian returns", wanted, count, advice)
            broken = active & (result.status == Status.breakdown)
            status[broken] = Status.breakdown
            active = active & ~broken
            change = xp.broadcast_to(samples_of(result.x), u.shape)
            last, u = u, empty_like(u)
            xp.subtract(last, change, out=u)
            if not active.all():
                u[...] = xp.where(asarray_like(active, u), u, last)
            iterations[active] += 1
            linear += result.iterations
            r = residual(_like(u0, r, u))
    return NewtonResult(_like(u0, r, u), status, iterations, np.stack(history), target, "newton", history[-1], linear)


def _checked_residual(r: Any, n: int, n_samples: int) -> Any:
    """The bare residual, shape (n, samples); any number of samples where `n_samples` is 1."""
    numbers_of(r, "newton", "what residual returns")
    samples = as_real(samples_of(r))
    wanted = f"have shape ({n},), as u0"
    require(samples.shape[:-1] == (n,), "newton", "what residual returns", wanted, tuple(samples.shape[:-1]))
    fits = samples.shape[-1] == n_samples or 1 in (samples.shape[-1], n_samples)
    require(fits, "newton", "what residual returns", f"have {n_samples} samples, as u0, or 1", samples.shape[-1])
    return samples


def _checked_reference(reference: Any, norm: np.ndarray) -> np.ndarray:
    """The norms that the tolerance is a fraction of, one per sample or one for all; `norm` without any."""
    if reference is None:
        return norm
    numbers_of(reference, "newton", "reference")
    given = to_numpy(reference.samples if isinstance(reference, Ensemble) else reference)
    fits = given.shape in ((), (1,), norm.shape)
    wanted = f"be one number, or one per sample ({norm.size})"
    require(fits, "newton", "reference", wanted, f"shape {given.shape}")
    good = bool(np.all((given >= 0.0) & np.isfinite(given)))
    require(good, "newton", "reference", "be finite and not negative", given)
    return given


def _like(u0: Any, r: Any, samples: Any) -> Any:
    """`samples` in the type of the caller's functions: Ensemble if start or residual is one."""
    return wrap_like(r if samples_of(r).shape[-1] > samples_of(u0).shape[-1] else u0, samples, True)
