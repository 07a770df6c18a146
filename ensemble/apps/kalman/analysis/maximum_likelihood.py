"""Parameters of a model by maximum likelihood, where every batch of candidates is one Ensemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import integer, kind_of, message, positive, require
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.apps.kalman.interop.arguments import real_array
from ensemble.apps.kalman.likelihood import log_likelihood_of
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.krylov import SolveError
from ensemble.scalar import Ensemble

__all__ = ["MaximumLikelihoodResult", "maximum_likelihood"]

SPACING = float(np.finfo(np.float64).eps) ** 0.25
"""Distance of the points of second differences."""

DAMPINGS = np.concatenate([[0.0], 10.0 ** np.arange(-4.0, 5.0)])
"""Numbers added to the curvature, relative to its mean: one Newton step for each, all evaluated at once."""

LONGEST = 4.0
"""The longest step of a parameter, on the logarithmic scale of those with one bound."""


FLAT = 1e-4
"""Curvature below which a bounded parameter is at its bound: a deviation of 100 on the logarithmic scale."""


@dataclass(frozen=True)
class MaximumLikelihoodResult:
    """The most likely parameters.

    Attributes
    ----------
    estimate : array, shape (n_parameters,)
    standard_errors : array, shape (n_parameters,)
        Square roots of the diagonal of `covariance`.
    covariance : array, shape (n_parameters, n_parameters)
        The inverse of the second derivatives of ``-log L`` at the estimate. NaN for a parameter that lies at its bound,
        which for the others counts as fixed; NaN for all if the derivatives are not positive definite, as where the
        data do not determine a combination of parameters.
    log_likelihood : float
    converged : bool
    iterations : int
    evaluations : int
        Filters run, over all candidates.
    model : LinearGaussianModel
        The model with the estimate.
    """

    estimate: np.ndarray
    standard_errors: np.ndarray
    covariance: np.ndarray
    log_likelihood: float
    converged: bool
    iterations: int
    evaluations: int
    model: LinearGaussianModel = field(repr=False)

    def raise_if_failed(self) -> MaximumLikelihoodResult:
        """This result, or `SolveError` if it has not converged."""
        if self.converged:
            return self
        raise SolveError(
            f"maximum_likelihood: no convergence in {self.iterations} iterations (log-likelihood "
            f"{self.log_likelihood:.6g} at {np.array2string(self.estimate, precision=4)}). Give several starts, "
            "narrower bounds, or more iterations."
        )


@explains_calls("maximum_likelihood")
def maximum_likelihood(
    model_of: Callable[[Any], LinearGaussianModel],
    y: Any,
    start: Any,
    *,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
    burn: int = 0,
    mask: Values | None = None,
    tol: float = 1e-8,
    max_iterations: int = 100,
    **options: Any,
) -> MaximumLikelihoodResult:
    """Find the parameters under which the observations are most probable, with their standard errors.

    Newton's method, damped after Levenberg and Marquardt. First and second derivatives are central differences: all
    their ``n^2 + n + 1`` points are one Ensemble and one filter; so are the steps for ten dampings, of which the best
    is taken. Bounds are kept by a change of variables: the logarithm for one, the logit for two.

    Parameters
    ----------
    model_of : callable, ``model_of(theta)`` -> LinearGaussianModel
        Called with `theta` an Ensemble of shape (n_parameters,), each sample one candidate, and once at the end with
        an array. Write it with arithmetic: ``Q = theta[0] * E0 + theta[1] * E1`` serves both.
    y : array, shape (*batch, T, ny)
        Observations, NaN where missing. Batches are independent series of one set of parameters.
    start : array, shape (n_parameters,) or (n_starts, n_parameters)
        Where to begin, strictly within the bounds; of several the most likely.
    bounds : sequence of (low, high), optional
        One pair a parameter, None for no bound; a variance has ``(0.0, None)``.
    burn : int
        How many of the first steps' terms to leave out, where a vague prior represents ignorance.
    mask : bool array, optional
        As `kalman_filter`.
    tol : float, dimensionless
        Converged when the log-likelihood cannot rise by more than `tol`, judged by its second-order model.
    max_iterations : int
    **options
        `method`, `scan` and `form` of `kalman_filter`.

    Returns
    -------
    MaximumLikelihoodResult

    Raises
    ------
    TypeError
        If `model_of` returns no LinearGaussianModel, or one that does not depend on `theta`.
    ValueError
        If shapes do not fit, a start is not within its bounds, or no start has a finite likelihood.

    Notes
    -----
    An optimum is local: give several starts where the likelihood may have more than one. A variance whose most likely
    value is zero ends near zero, with NaN for its standard error.

    Examples
    --------
    The variances of a random walk and of the noise it is seen in:

    >>> rng = np.random.default_rng(21)
    >>> y = (rng.normal(size=400).cumsum() + 2.0 * rng.normal(size=400))[:, None]
    >>> one = np.eye(1)
    >>> def walk(theta):
    ...     return LinearGaussianModel(one, theta[0] * one, one, theta[1] * one, np.zeros(1), one)
    >>> result = maximum_likelihood(walk, y, [2.0, 2.0], bounds=[(0.0, None), (0.0, None)])
    >>> bool(np.all(np.abs(result.estimate - [1.0, 4.0]) < 3.0 * result.standard_errors)), result.converged
    (True, True)
    """
    if not callable(model_of):
        raise TypeError(message("maximum_likelihood", "model_of", "be callable", kind_of(model_of)))
    if isinstance(y, Ensemble):
        advice = "Its samples are the candidates: fit one series, or give a batch of them."
        raise TypeError(message("maximum_likelihood", "y", "be a plain array", "an Ensemble", advice))
    starts = np.atleast_2d(to_numpy(real_array(start, "start", "maximum_likelihood")).astype(np.float64))
    require(starts.ndim == 2 and starts.size > 0, "maximum_likelihood", "start",
            "have shape (n_parameters,) or (n_starts, n_parameters)", f"shape {starts.shape}")  # fmt: skip
    variables = Variables(bounds, starts)
    burn = integer(burn, "maximum_likelihood", "burn", minimum=0)
    tol = positive(tol, "maximum_likelihood", "tol")
    max_iterations = integer(max_iterations, "maximum_likelihood", "max_iterations", minimum=1)

    def at(z: np.ndarray) -> np.ndarray:
        return _log_likelihoods(model_of, variables.values(z), y, burn, mask, options)

    z = variables.variables(starts)
    found = at(z)
    require(bool(np.isfinite(found).any()), "maximum_likelihood", "start", "have a finite likelihood", "none that has")
    z, best = z[int(np.argmax(found))], float(np.max(found))
    evaluations, converged, iterations = len(starts), False, 0
    while True:
        points = _stencil(z)
        slope, curvature = _derivatives(at(points), z)
        evaluations += len(points)
        converged = _promise(slope, curvature) <= tol
        if converged or iterations == max_iterations:
            break
        iterations += 1
        steps = z + _steps(slope, curvature)
        found = at(steps)
        evaluations += len(steps)
        if not np.max(found) > best:
            break
        z, best = steps[int(np.argmax(found))], float(np.max(found))
    covariance = _covariance(curvature, variables.slopes(z), variables.below | variables.above)
    estimate = variables.values(z[None])[0]
    return MaximumLikelihoodResult(
        estimate, np.sqrt(np.diag(covariance)), covariance, best, bool(converged), iterations, evaluations,
        model_of(estimate),
    )  # fmt: skip


class Variables:
    """Parameters within bounds as variables without any."""

    def __init__(self, bounds: Sequence[tuple[float | None, float | None]] | None, starts: np.ndarray) -> None:
        n = starts.shape[1]
        pairs = [(None, None)] * n if bounds is None else list(bounds) if isinstance(bounds, Sequence) else []
        fits = len(pairs) == n and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs)
        require(fits, "maximum_likelihood", "bounds", f"be {n} pairs (low, high)", bounds)
        numbers = all(isinstance(v, (int, float, np.number, type(None))) for pair in pairs for v in pair)
        require(numbers, "maximum_likelihood", "bounds", "hold numbers or None", bounds)
        self.low = np.array([-np.inf if low is None else float(low) for low, _ in pairs])
        self.high = np.array([np.inf if high is None else float(high) for _, high in pairs])
        ordered = bool(np.all(self.low < self.high))
        require(ordered, "maximum_likelihood", "bounds", "hold pairs with low < high", bounds)
        inside = bool(np.all((starts > self.low) & (starts < self.high)))
        advice = "A variance has bounds (0.0, None)."
        require(inside, "maximum_likelihood", "start", "lie strictly within the bounds", starts.tolist(), advice)
        self.below, self.above = np.isfinite(self.low), np.isfinite(self.high)

    def variables(self, values: np.ndarray) -> np.ndarray:
        """Map parameters to variables without bounds: by logit, by logarithm, or as they are."""
        with np.errstate(invalid="ignore", divide="ignore"):
            up, down = np.log(values - self.low), np.log(self.high - values)
            between = up - down
        both = self.below & self.above
        return np.where(both, between, np.where(self.below, up, np.where(self.above, -down, values)))

    def values(self, z: np.ndarray) -> np.ndarray:
        """Map variables back to parameters within their bounds."""
        low, high = np.where(self.below, self.low, 0.0), np.where(self.above, self.high, 0.0)
        with np.errstate(over="ignore"):
            grown = np.exp(np.clip(z, -600.0, 600.0))
        between = low + (high - low) * (grown / (1.0 + grown))
        one = np.where(self.below, low + grown, np.where(self.above, high - 1.0 / grown, z))
        return np.where(self.below & self.above, between, one)

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Differentiate the parameters by the variables."""
        grown = np.exp(np.clip(z, -600.0, 600.0))
        share = grown / (1.0 + grown)
        width = np.where(self.below & self.above, self.high - self.low, 0.0)
        one = np.where(self.below, grown, np.where(self.above, 1.0 / grown, 1.0))
        return np.where(self.below & self.above, width * share * (1.0 - share), one)


def _log_likelihoods(
    model_of: Callable[[Any], LinearGaussianModel], values: np.ndarray, y: Any, burn: int, mask: Any, options: Any
) -> np.ndarray:
    """Compute the log-likelihoods of all candidates in one filter; minus infinity where one has none."""
    count = len(values)
    # A shared Ensemble would be of one sample: two alike keep the form of many.
    theta = Ensemble(np.ascontiguousarray((values if count > 1 else np.repeat(values, 2, axis=0)).T))
    model = model_of(theta)
    if not isinstance(model, LinearGaussianModel):
        seen = kind_of(model)
        raise TypeError(message("maximum_likelihood", "model_of", "return a LinearGaussianModel", seen))
    sums = log_likelihood_of("maximum_likelihood", model, y, burn, mask, **options)
    if not isinstance(sums, Ensemble) or sums.n_samples != theta.n_samples:
        raise TypeError(
            message("maximum_likelihood", "model_of", "use theta", "a model that is the same for any theta")
        )
    sums = to_numpy(sums.samples).reshape(-1, theta.n_samples).sum(axis=0)[:count]
    return np.where(np.isfinite(sums), sums, -np.inf)


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i)]


def _spacings(z: np.ndarray) -> Array:
    return SPACING * np.maximum(1.0, np.abs(z))


def _stencil(z: np.ndarray) -> Array:
    """List the points of central differences: z, each variable up and down, each pair up and down."""
    moves = np.diag(_spacings(z))
    both = [moves[i] + moves[j] for i, j in _pairs(len(z))]
    return z + np.concatenate([np.zeros((1, len(z))), moves, -moves, *([both, np.negative(both)] if both else [])])


def _derivatives(values: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Difference the log-likelihoods at the points of `_stencil`: gradient and second derivatives of its negative."""
    n, h = len(z), _spacings(z)
    values = -values
    here, up, down = values[0], values[1 : n + 1], values[n + 1 : 2 * n + 1]
    pairs = _pairs(n)
    up_both, down_both = values[2 * n + 1 :][: len(pairs)], values[2 * n + 1 :][len(pairs) :]
    with np.errstate(invalid="ignore"):
        curvature = np.diag((up - 2.0 * here + down) / h**2)
        for k, (i, j) in enumerate(pairs):
            mixed = up_both[k] - up[i] - up[j] + 2.0 * here - down[i] - down[j] + down_both[k]
            curvature[i, j] = curvature[j, i] = mixed / (2.0 * h[i] * h[j])
        slope = (up - down) / (2.0 * h)
    return np.where(np.isfinite(slope), slope, 0.0), np.where(np.isfinite(curvature), curvature, 0.0)


def _promise(slope: np.ndarray, curvature: np.ndarray) -> float:
    """Estimate how far the log-likelihood can rise by its second-order model; flat directions count as curved."""
    w, V = np.linalg.eigh(curvature)
    return float(0.5 * np.sum((V.T @ slope) ** 2 / np.maximum(np.abs(w), 1e-6)))


def _steps(slope: np.ndarray, curvature: np.ndarray) -> Array:
    """Compute Newton's step for each damping; negative curvature counts by its size, long steps are cut."""
    w, V = np.linalg.eigh(curvature)
    scale = max(float(np.mean(np.abs(w))), 1e-12)
    along = (V.T @ slope) / (np.abs(w) + DAMPINGS[:, None] * scale + 1e-12)
    steps = -along @ V.T
    longest = np.max(np.abs(steps), axis=1, keepdims=True)
    return steps * np.minimum(1.0, LONGEST / np.maximum(longest, 1e-300))


def _covariance(curvature: np.ndarray, slopes: np.ndarray, bounded: np.ndarray) -> np.ndarray:
    """Invert the curvature, in the parameters' own scale, for those not at a bound; NaN where that is not positive."""
    out = np.full_like(curvature, np.nan)
    inner = ~bounded | (np.diag(curvature) > FLAT)
    if not inner.any():
        return out
    w, V = np.linalg.eigh(curvature[np.ix_(inner, inner)])
    if w[0] > 1e-8 * w[-1]:
        out[np.ix_(inner, inner)] = slopes[inner, None] * ((V / w) @ V.T) * slopes[inner]
    return out
