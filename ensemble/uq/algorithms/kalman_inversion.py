"""Ensemble Kalman inversion, tempered from the prior to the posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import scipy.linalg

from ensemble import _check
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.uq.algorithms.algorithm_result import AlgorithmError, AlgorithmResult, table
from ensemble.uq.algorithms.evaluations import Evaluations, normal_points, random_generator
from ensemble.uq.algorithms.model_runs import ModelRuns, TimeUpError
from ensemble.uq.inputs.inputs import Inputs

__all__ = ["InversionResult", "kalman_inversion"]

UPDATES = ("stochastic", "transform")
STEP_RULES = ("misfit", "effective_size")
FAILURE_RULES = ("redraw", "drop")
MAX_REDRAWS = 5


@dataclass(frozen=True)
class InversionResult(AlgorithmResult):
    """Samples of the posterior approximation by `kalman_inversion`.

    Attributes
    ----------
    status : str
        "converged": the tempering reached 1, the posterior; "subspace": it did, with no more samples than coordinates,
        so that `covariance` is zero in the directions that the samples do not span; "max_iterations": it ended before,
        and the samples are those of a likelihood to the power `temperature`; "max_seconds": it did so because the time
        was up; "failed": fewer than two forward runs of
        an iteration succeeded.
    samples : InputSamples, or Ensemble of shape (n_germs,) where `inputs` was an integer
    germs : ndarray, shape (n_germs, n_samples)
        The same in standard-normal coordinates.
    temperature : float in [0, 1]
        Power of the likelihood that was reached.
    temperatures : ndarray, shape (n_iterations,)
        That power after each iteration.
    misfits : ndarray, shape (n_iterations,)
        Mean over samples of ``|y - G|^2 / 2`` in units of the noise, before each update; about half the number of
        observations where samples fit the observations as well as the noise allows.
    n_evaluations, n_failed, n_redrawn : int
        Forward runs; those that failed; those of them replaced by a run from a new draw. The others were left out.
    seed : int
    """

    status: str
    samples: Any
    germs: np.ndarray
    temperature: float
    temperatures: np.ndarray
    misfits: np.ndarray
    n_evaluations: int
    n_failed: int
    n_redrawn: int
    seed: int

    @property
    def n_iterations(self) -> int:
        """Updates."""
        return len(self.temperatures)

    @property
    def n_samples(self) -> int:
        """Samples left at the end."""
        return int(self.germs.shape[1])

    @property
    def mean(self) -> np.ndarray:
        """Mean of the standard-normal coordinates, shape (n_germs,)."""
        mean: np.ndarray = self.germs.mean(axis=1)
        return mean

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the standard-normal coordinates, shape (n_germs, n_germs)."""
        return np.atleast_2d(np.cov(self.germs))

    def __repr__(self) -> str:
        failed = ""
        if self.n_failed:
            failed = f", {self.n_failed} forward runs failed, {self.n_redrawn} of them drawn again"
        rows = [(k + 1, float(t), float(m)) for k, (t, m) in enumerate(zip(self.temperatures, self.misfits))]
        return (
            f"InversionResult({self.status}: temperature {self.temperature:.4g} of 1, {self.n_samples} samples, "
            f"{self.n_evaluations} evaluations{failed})\n"
            + table(("iteration", "temperature", "mean misfit before"), rows)
        )


@explains_calls("kalman_inversion")
def kalman_inversion(
    forward: Callable[[Any], Any],
    y: Any,
    noise_covariance: Any,
    inputs: Inputs | int,
    *,
    n_samples: int = 256,
    update: str = "stochastic",
    step: str = "misfit",
    effective_size: float = 0.5,
    max_iterations: int = 50,
    on_failure: str = "redraw",
    seed: int | None = None,
    output: str | None = None,
    ensemble_size: int | None = None,
    executor: Executor | None = None,
    store: str | PathLike[str] | None = None,
    resume: bool | str = False,
    progress: bool = False,
    sample_seconds: float | None = None,
    max_seconds: float | None = None,
) -> InversionResult:
    """Invert ``y = G(x) + noise`` with an ensemble of forward runs per iteration, without derivatives.

    Samples of the prior are moved by Kalman updates [1]_ whose inverse step sizes alpha fulfil ``sum 1 / alpha = 1``,
    so that the last samples approximate the posterior: exactly for many samples, a linear G and Gaussian inputs, else
    as far as the Gaussian closure holds. Step sizes adapt to the misfits. The update uses covariances over samples:
    samples depend on each other by design.

    Parameters
    ----------
    forward : callable
        The model G: takes `InputSamples` (an Ensemble of shape (n,) where `inputs` is the integer n), returns an
        Ensemble of as many entries as `y`, or a dictionary with one.
    y : array
        Observations; entries are taken in C order.
    noise_covariance : float, array of shape (m,) or (m, m)
        Variance of the noise, one variance per observation, or the covariance; in units of y squared.
    inputs : Inputs or int
        The prior; n stands for n independent standard normals.
    n_samples : int
        Samples, more than there are coordinates: updates stay in the plane through them, and of fewer samples the
        covariance has directions of zero variance, which the status "subspace" and a warning say.
    update : {"stochastic", "transform"}
        "stochastic": observations perturbed per sample [1]_. "transform": the symmetric square root [2]_, which has no
        such noise: mean and covariance are the Kalman formula's for the sample moments.
    step : {"misfit", "effective_size"}
        Rule for alpha: from mean and variance of the misfits [3]_ (eq. 22, with the number of observations as bound on
        the divergence), or so that importance weights ``exp(-misfit / alpha)`` keep the fraction `effective_size`.
    effective_size : float in (0, 1)
    max_iterations : int
    on_failure : {"redraw", "drop"}
        What becomes of samples whose forward run failed: drawn again from the Gaussian of the others, up to five
        times, or left out at once.
    seed : int, optional
    output : str, optional
        Which output of the model is G, where there are several.
    ensemble_size : int, optional
        Samples per model call; by default all, divided among the workers.
    executor : optional
        Runs the groups of a iteration elsewhere, as in `propagate`: a number of processes, or an executor.
    store : path, optional
        A folder that keeps each evaluation as soon as its group is done.
    resume : bool, or "force"
        Go on with the run in `store`, with the same bits as if it had not been ended: iterations are repeated with the
        values that are there. The inputs, the source of the model, the settings and the seed must be those of the run;
        `max_iterations` may be another. "force" lets the source differ.
    progress : bool
        Show evaluations on stderr.
    sample_seconds : float, s, optional
        Time after which an evaluation is ended and has failed, as in `propagate`. Default: no limit.
    max_seconds : float, s, optional
        No group begins after that time: the status is "max_seconds", and the result has the iterations that ended.

    Returns
    -------
    InversionResult

    Raises
    ------
    ValueError
        If an argument is out of range, shapes differ, or the covariance is not positive definite; on resuming, if the
        run in `store` is another one.
    AlgorithmError
        If all forward runs of an iteration fail.

    References
    ----------
    .. [1] Iglesias, Law, Stuart (2013), Inverse Problems 29, 045001, eqs. 4-7.
    .. [2] Bishop, Etherton, Majumdar (2001), Mon. Wea. Rev. 129, 420-436.
    .. [3] Iglesias, Yang (2021), Inverse Problems 37, 025008.

    Examples
    --------
    Prior N(0, 1) and an observation 1 with variance 1: the posterior is N(1/2, 1/2).

    >>> result = kalman_inversion(lambda x: x, [1.0], 1.0, 1, n_samples=2000, seed=20731)
    >>> result.status, bool(abs(result.mean[0] - 0.5) < 0.05), bool(abs(result.covariance[0, 0] - 0.5) < 0.05)
    ('converged', True, True)
    """
    name = "kalman_inversion"
    n_samples = _check.integer(n_samples, name, "n_samples", minimum=2)
    max_iterations = _check.integer(max_iterations, name, "max_iterations", minimum=1)
    for value, choices, argument in ((update, UPDATES, "update"), (step, STEP_RULES, "step"),
                                     (on_failure, FAILURE_RULES, "on_failure")):  # fmt: skip
        _check.one_of(value, choices, name, argument)
    inside = 0.0 < _check.positive(effective_size, name, "effective_size") < 1.0
    _check.require(inside, name, "effective_size", "be between 0 and 1", effective_size)
    observed, whiten = _observations(y, noise_covariance)
    settings = {
        "y": observed, "noise_covariance": np.asarray(noise_covariance, np.float64), "n_samples": n_samples,
        "update": update, "step": step, "effective_size": effective_size, "on_failure": on_failure, "output": output,
    }  # fmt: skip
    work = ModelRuns(
        name, [forward], inputs, settings, seed, "forward", executor=executor, store=store, resume=resume,
        progress=progress, sample_seconds=sample_seconds, max_seconds=max_seconds,
    )  # fmt: skip
    with work:
        evaluations = Evaluations(forward, inputs, work, "forward", output=output, ensemble_size=ensemble_size)
        rule = (
            _step_by_misfit if step == "misfit" else lambda misfit, m, left: _step_by_size(misfit, effective_size, left)
        )
        tempering = _Tempering(evaluations, observed, whiten, rule, update == "stochastic", on_failure, n_samples)
        tempering.run(max_iterations)
    return tempering.result()


class _Tempering:
    """The samples and the power of the likelihood, iteration after iteration."""

    def __init__(
        self, evaluations: Evaluations, observed: np.ndarray, whiten: Callable[[np.ndarray], np.ndarray],
        rule: Callable[[np.ndarray, int, float], float], is_stochastic: bool, on_failure: str, n_samples: int,
    ) -> None:  # fmt: skip
        self.evaluations, self.observed, self.whiten, self.rule = evaluations, observed, whiten, rule
        self.is_stochastic, self.on_failure, self.seed = is_stochastic, on_failure, evaluations.work.seed
        self.z = normal_points(self.seed, 0, 0, n_samples, evaluations.n_germs)
        self.temperature, self.n_redrawn, self.status = 0.0, 0, "max_iterations"
        self.temperatures: list[float] = []
        self.misfits: list[float] = []

    def run(self, max_iterations: int) -> None:
        """Iterations until the likelihood has the power 1."""
        for k in range(max_iterations):
            self.evaluations.work.step = f"iteration {k + 1}, temperature {self.temperature:.3g}"
            try:
                ended = self._iterate(k)
            except TimeUpError:
                self.status = "max_seconds"
                return
            if ended:
                return

    def _iterate(self, k: int) -> bool:
        """One iteration; whether it was the last."""
        evaluations = self.evaluations
        z, values, redrawn = _forward(evaluations, self.z.copy(), self.observed.size, self.on_failure, self.seed, k)
        self.z, self.n_redrawn = z, self.n_redrawn + redrawn
        if z.shape[1] == 0:
            why = f"every forward run of iteration {k + 1} failed: {evaluations.reason}"
            raise AlgorithmError(f"kalman_inversion: {why}")
        if z.shape[1] < 2:
            self.status = "failed"
            return True
        residuals = self.whiten(self.observed[:, None] - values)
        misfit = 0.5 * np.einsum("is,is->s", residuals, residuals)
        left = 1.0 - self.temperature
        h = min(self.rule(misfit, self.observed.size, left), left)
        self.z = _updated(z, residuals, 1.0 / h, random_generator(self.seed, 2, k) if self.is_stochastic else None)
        self.temperature = 1.0 if h == left else self.temperature + h
        self.temperatures.append(self.temperature)
        self.misfits.append(float(misfit.mean()))
        if self.temperature == 1.0:
            self.status = "converged" if z.shape[1] > evaluations.n_germs else "subspace"
        return self.temperature == 1.0

    def result(self) -> InversionResult:
        """Build the result at the state that was reached."""
        z, evaluations = self.z, self.evaluations
        if self.status != "failed" and z.shape[1] <= evaluations.n_germs:
            seen = f"{z.shape[1]} samples span {max(z.shape[1] - 1, 0)} of {evaluations.n_germs} coordinates"
            _check.warn_caller(f"kalman_inversion: {seen}, and the covariance is zero in the others. Raise n_samples.")
        return InversionResult(
            self.status, evaluations.argument(z), z, self.temperature, np.array(self.temperatures),
            np.array(self.misfits), evaluations.n_evaluations, evaluations.n_failed, self.n_redrawn, self.seed,
        )  # fmt: skip


def _observations(y: Any, noise_covariance: Any) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Observations as a vector, and the division of residuals by the square root of the covariance."""
    name = "kalman_inversion"
    observed = _check.real_array(y, name, "y", "hold one finite number or more").ravel()
    good = observed.size > 0 and bool(np.isfinite(observed).all())
    _check.require(good, name, "y", "hold one finite number or more", y, "Leave missing observations out of forward.")
    m = observed.size
    wanted = f"be a number or have shape ({m},) or ({m}, {m})"
    covariance = _check.real_array(noise_covariance, name, "noise_covariance", wanted)
    fits = covariance.shape in ((), (m,), (m, m))
    _check.require(fits, name, "noise_covariance", wanted, f"shape {covariance.shape}")
    if covariance.ndim < 2:
        good = bool((covariance > 0.0).all() and np.isfinite(covariance).all())
        _check.require(good, name, "noise_covariance", "be finite and above zero", noise_covariance)
        scale = np.broadcast_to(np.sqrt(covariance), (m,))[:, None]
        return observed, lambda residuals: residuals / scale
    try:
        factor = np.linalg.cholesky(covariance)
        _check.require(bool(np.allclose(covariance, covariance.T)), name, "noise_covariance", "be symmetric", "not")
    except np.linalg.LinAlgError:
        seen = "a matrix without a Cholesky factor"
        raise ValueError(_check.message(name, "noise_covariance", "be positive definite", seen)) from None
    return observed, lambda residuals: scipy.linalg.solve_triangular(factor, residuals, lower=True)


def _forward(
    evaluations: Evaluations, z: np.ndarray, m: int, on_failure: str, seed: int, k: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Samples whose forward runs succeeded, their values, and how many runs are from new draws."""
    values, failed = evaluations(z)
    values, failed = values.copy(), failed.copy()
    wanted = f"return {m} numbers per sample, as many as y"
    _check.require(len(values) == m, "kalman_inversion", "forward", wanted, len(values))
    generator, n_redrawn = random_generator(seed, 1, k), 0
    for _ in range(MAX_REDRAWS if on_failure == "redraw" else 0):
        places, good = np.flatnonzero(failed), z[:, ~failed]
        if not places.size or good.shape[1] < 2:
            break
        mean = good.mean(axis=1, keepdims=True)
        weights = generator.standard_normal((good.shape[1], places.size)) / np.sqrt(good.shape[1] - 1)
        z[:, places] = mean + (good - mean) @ weights
        values[:, places], failed[places] = evaluations(z[:, places])
        n_redrawn += places.size - int(np.count_nonzero(failed))
    return z[:, ~failed], values[:, ~failed], n_redrawn


def _step_by_misfit(misfit: np.ndarray, m: int, left: float) -> float:
    """1 / alpha of Iglesias and Yang (2021): the larger of two bounds from mean and variance of the misfits."""
    with np.errstate(divide="ignore"):
        return float(max(m / (2.0 * misfit.mean()), np.sqrt(m / (2.0 * misfit.var(ddof=1)))))


def _step_by_size(misfit: np.ndarray, fraction: float, largest: float) -> float:
    """The step whose importance weights have an effective size of `fraction`, by bisection."""

    def size(h: float) -> float:
        weights = np.exp(-h * (misfit - misfit.min()))
        return float(weights.sum() ** 2 / (weights**2).sum() / misfit.size)

    low, high = 0.0, largest
    if size(high) >= fraction:
        return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if size(middle) >= fraction else (low, middle)
    return high


def _updated(z: np.ndarray, residuals: np.ndarray, alpha: float, generator: np.random.Generator | None) -> np.ndarray:
    """Samples after one Kalman update with noise covariance alpha (residuals in units of the noise).

    With anomalies of values ``S = U diag(s) V'`` the gain is ``A V diag(s / (s^2 + alpha)) U'``: no matrix of the size
    of the observations or the samples is formed.
    """
    scale = 1.0 / np.sqrt(z.shape[1] - 1)
    mean, mean_residual = z.mean(axis=1, keepdims=True), residuals.mean(axis=1, keepdims=True)
    anomalies = (z - mean) * scale
    U, s, Vt = np.linalg.svd((mean_residual - residuals) * scale, full_matrices=False)
    gain = (anomalies @ Vt.T) * (s / (s * s + alpha))
    if generator is None:
        shrink = 1.0 / np.sqrt(1.0 + s * s / alpha) - 1.0
        moved: np.ndarray = mean + gain @ (U.T @ mean_residual) + (z - mean) + ((z - mean) @ Vt.T * shrink) @ Vt
        return moved
    noise = generator.standard_normal(residuals.shape)
    updated: np.ndarray = z + gain @ (U.T @ (residuals + np.sqrt(alpha) * noise))
    return updated
