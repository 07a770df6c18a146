"""Multilevel Monte Carlo: most samples on models of low cost, few on the accurate one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.uq.algorithms.algorithm_result import AlgorithmResult, table
from ensemble.uq.algorithms.evaluations import Evaluations
from ensemble.uq.algorithms.levels import Level, decay_rate, optimal_numbers, smoothed, without_models
from ensemble.uq.algorithms.model_runs import ModelRuns, TimeUpError
from ensemble.uq.inputs.inputs import Inputs

__all__ = ["MultilevelResult", "multilevel"]

FIRST_LEVELS, LEAST_PILOT, MAX_ROUNDS = 3, 8, 50
WORTHWHILE = 0.01
"""An extension of all levels by less than this fraction is left out."""


@dataclass(frozen=True)
class MultilevelResult(AlgorithmResult):
    """A mean estimated by `multilevel`, and its levels.

    Attributes
    ----------
    status : str
        "converged": root mean square error at most `target`; "bias": the finest model is too coarse for it;
        "max_cost": more samples would cost more than allowed; "max_seconds": the time was up;
        "failed": half of a level's samples failed.
    mean : float or ndarray, of the output's shape
    standard_error : as `mean`
        Standard error of the sampling.
    bias : as `mean`
        Estimated difference between the finest level used and the limit of the levels; 0 where the finest model is
        taken as exact.
    error, target : as `mean`
        Root mean square error, ``sqrt(standard_error^2 + bias^2)``, and what it had to be.
    n_samples, n_failed : ndarray of int, shape (n_levels,)
        Samples run at each level, and those of them that failed in one of the two models and were left out.
    means, variances, costs : ndarray, shape (n_levels, m), (n_levels, m), (n_levels,)
        Mean and variance of the difference between a level and the one before, m the size of the output; cost of a
        sample of both.
    alpha, beta, gamma : float
        Rates at which means and variances fall and costs grow, in powers of two per level.
    total_cost : float
        Sum of `n_samples` and `costs`; seconds where no costs were given.
    monte_carlo_cost : float
        What Monte Carlo on the finest level used would cost for the same standard error.
    n_evaluations : int
        Model runs, two per sample but at level 0.
    seed : int
    """

    status: str
    mean: Any
    standard_error: Any
    bias: Any
    error: Any
    target: Any
    n_samples: np.ndarray
    n_failed: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    costs: np.ndarray
    alpha: float
    beta: float
    gamma: float
    total_cost: float
    monte_carlo_cost: float
    n_evaluations: int
    seed: int
    _levels: tuple[Level, ...]

    def confidence_interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Bounds of the mean: normal quantiles of the standard error, widened by the estimated bias on both sides.

        Parameters
        ----------
        level : float in (0, 1)
        """
        from scipy.special import ndtri

        good = 0.0 < _check.positive(level, "confidence_interval", "level") < 1.0
        _check.require(good, "confidence_interval", "level", "be between 0 and 1", level)
        half = ndtri(0.5 + 0.5 * level) * self.standard_error + self.bias
        return self.mean - half, self.mean + half

    def __repr__(self) -> str:
        k = int(np.argmax(np.ravel(self.error) / np.maximum(np.ravel(self.target), 1e-300)))
        mean, error, target, bias = (float(np.ravel(v)[k]) for v in (self.mean, self.error, self.target, self.bias))
        numbers = (self.n_samples.tolist(), self.n_failed.tolist())
        sizes = (self.means[:, k].tolist(), self.variances[:, k].tolist(), self.costs.tolist())
        rows = list(zip(range(len(self.costs)), *sizes, *numbers, strict=True))
        where = f" of entry {k}" if np.size(self.mean) > 1 else ""
        return (
            f"MultilevelResult({self.status}: mean{where} {mean:.6g}, error {error:.3g} of which bias {bias:.3g}, "
            f"target "
            f"{target:.3g}; cost {self.total_cost:.4g}, by Monte Carlo {self.monte_carlo_cost:.4g}; rates "
            f"{self.alpha:.2f}, {self.beta:.2f}, {self.gamma:.2f})\n"
            + table(("level", "mean", "variance", "cost", "samples", "failed"), rows)
        )


@explains_calls("multilevel")
def multilevel(
    models: Sequence[Callable[[Any], Any]],
    inputs: Inputs | int,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    n_pilot: int = 32,
    costs: Sequence[float] | None = None,
    finest_is_exact: bool = False,
    max_cost: float | None = None,
    start: MultilevelResult | None = None,
    seed: int | None = None,
    output: str | None = None,
    ensemble_size: int | None = 32,
    executor: Executor | None = None,
    store: str | PathLike[str] | None = None,
    resume: bool | str = False,
    progress: bool = False,
    sample_seconds: float | None = None,
    max_seconds: float | None = None,
) -> MultilevelResult:
    """Estimate the mean of an output with models of rising accuracy and cost.

    The mean on the finest level is the mean on the coarsest plus the means of the differences between neighbours, which
    vary little and need few samples where samples are expensive [1]_, [2]_. Both models of a difference run on the same
    samples. Levels are added while the estimated bias needs it; samples are added to levels by the optimal allocation
    for the variances and costs found so far.

    Parameters
    ----------
    models : sequence of callables, coarsest first
        Each takes `InputSamples` (an Ensemble of shape (n,) where `inputs` is the integer n), and returns an Ensemble
        or a dictionary with one. The error should fall by the same factor from one to the next: estimates of the bias
        build on that.
    inputs : Inputs or int
        n stands for n independent standard normals.
    rtol, atol : float
        The target of the root mean square error is ``max(rtol * |mean|, atol)``, for each entry of the output; one
        of them must be given.
    n_pilot : int
        Samples that each of the first levels starts with; further ones have as many as the rates predict, from 8 on.
    costs : sequence of float, optional
        Costs of one run of each model, in any unit. By default seconds per sample are measured; then numbers of
        samples, and with them the last digits of results, differ from run to run.
    finest_is_exact : bool
        Estimate the mean of the last model, all levels used, instead of the limit of the levels.
    max_cost : float, optional
        In the unit of costs; more samples than this buys are not run.
    start : MultilevelResult, optional
        Samples of an earlier call with the same models and inputs are kept, and its `seed`.
    seed : int, optional
    output : str, optional
        Which output of the models, where there are several.
    ensemble_size : int, optional
        Samples per model call; None: all that are to run at a level, divided among the workers.
    executor : optional
        Runs the groups of a level elsewhere, as in `propagate`: a number of processes, or an executor.
    store : path, optional
        A folder that keeps each evaluation, and its seconds, as soon as its group is done.
    resume : bool, or "force"
        Go on with the run in `store`, with the same bits as if it had not been ended. The inputs, the sources of the
        models, their number and the seed must be those of the run; all else may be other: what the store has is not
        run again. "force" lets the sources differ.
    progress : bool
        Show evaluations on stderr.
    sample_seconds, max_seconds : float, s, optional
        Time after which an evaluation is ended and has failed, and time after which no group begins, as in `propagate`:
        the status is then "max_seconds", the levels are those whose extension ended.

    Returns
    -------
    MultilevelResult

    Raises
    ------
    ValueError
        If an argument is out of range, there are fewer than two models, or `store` has another run.
    AlgorithmError
        If no level ended within `max_seconds`.

    References
    ----------
    .. [1] Giles (2008), Operations Research 56, 607-617, section 5.
    .. [2] Cliffe, Giles, Scheichl, Teckentrup (2011), Comput. Visual Sci. 14, 3-15.

    Examples
    --------
    The mean of exp(z), z standard normal, from models with errors in proportion to 2^-level.

    >>> import numpy as np
    >>> from ensemble.scalar import Ensemble
    >>> def model(k):
    ...     return lambda z: Ensemble(np.exp(z.samples[0]) + 2.0**-k * np.sin(z.samples[0] + 1.0))
    >>> result = multilevel([model(k) for k in range(8)], 1, atol=0.02, costs=[4**k for k in range(8)], seed=20731)
    >>> result.status, bool(abs(result.mean - np.exp(0.5)) < 0.06), len(result.costs)
    ('converged', True, 7)
    """
    _check.require_type(models, Iterable, name := "multilevel", "models", "be a list of models, the cheapest first")
    models = list(models)
    _check.require(len(models) >= 2, name, "models", "hold two models or more", len(models))
    advice = "Give the error that the mean may have."
    _check.require(rtol is not None or atol is not None, name, "rtol or atol", "be given", "none", advice)
    tolerances = tuple(0.0 if v is None else _check.positive(v, name, k) for k, v in (("rtol", rtol), ("atol", atol)))
    n_pilot = _check.integer(n_pilot, name, "n_pilot", minimum=LEAST_PILOT)
    most = np.inf if max_cost is None else _check.positive(max_cost, name, "max_cost")
    if costs is not None:
        _check.require(len(costs) == len(models), name, "costs", f"have {len(models)} entries", len(costs))
        costs = [_check.positive(cost, name, "costs") for cost in costs]
    work = ModelRuns(
        name, models, inputs, {"output": output, "n_models": len(models)}, seed if start is None else start.seed,
        "models", executor=executor, store=store, resume=resume, progress=progress, n_streams=2 * len(models),
        sample_seconds=sample_seconds, max_seconds=max_seconds,
    )  # fmt: skip
    with work:
        runs = [
            Evaluations(m, inputs, work, "models", output=output, ensemble_size=ensemble_size, number=k)
            for k, m in enumerate(models)
        ]
        estimate = _Estimate(runs, costs, work.seed, tolerances, n_pilot, finest_is_exact, most)
        if start is not None:
            estimate.take_over(start)
        try:
            status = estimate.run()
        except TimeUpError:
            status = "max_seconds"
        if not estimate.levels:
            raise work.nothing_done("no level")
    return estimate.result(status)


class _Estimate:
    """The levels so far, and the decisions about more."""

    def __init__(
        self, runs: list[Evaluations], costs: Sequence[float] | None, seed: int, tolerances: tuple[float, ...],
        n_pilot: int, exact: bool, max_cost: float,
    ) -> None:  # fmt: skip
        self.runs, self.given_costs, self.seed, self.tolerances = runs, costs, seed, tolerances
        self.n_pilot, self.exact, self.max_cost = n_pilot, exact, max_cost
        self.levels: list[Level] = []
        self.n_evaluations_before = 0

    def take_over(self, start: MultilevelResult) -> None:
        """The levels of an earlier result, continued with the present models."""
        fits = len(start._levels) <= len(self.runs) and start._levels[0].fine.n_germs == self.runs[0].n_germs
        _check.require(fits, "multilevel", "start", "be a result for the same models and inputs", "another one")
        self.levels = copy.deepcopy([without_models(level) for level in start._levels])
        for k, level in enumerate(self.levels):
            level.connect(self.runs[k], self.runs[k - 1] if k else None)
            level.given_cost = self.given_cost(k)
        self.n_evaluations_before = start.n_evaluations

    def given_cost(self, k: int) -> float | None:
        """The cost of one sample of level `k`, of both models; None where seconds are measured."""
        return None if self.given_costs is None else sum(self.given_costs[max(k - 1, 0) : k + 1])

    def add_level(self, n: int) -> None:
        """One more level, with `n` samples."""
        k = len(self.levels)
        level = Level(k, self.runs[k], self.runs[k - 1] if k else None, self.seed, self.given_cost(k))
        level.extend(n)
        self.levels.append(level)

    def run(self) -> str:
        """Levels and samples until the error is at most the target; the status."""
        n_first = len(self.runs) if self.exact else min(FIRST_LEVELS, len(self.runs))
        while len(self.levels) < n_first and not self.has_failed():
            self.add_level(self.n_pilot if len(self.levels) < FIRST_LEVELS else self.predicted_number())
        for _ in range(MAX_ROUNDS):
            if self.has_failed():
                return "failed"
            wanted = self.wanted_numbers()
            more = np.maximum(wanted - [level.n for level in self.levels], 0)
            if np.any(more > WORTHWHILE * wanted) and not np.all(self.errors()[2] <= self.target()):
                cost = float(more @ [level.cost for level in self.levels])
                left = self.max_cost - self.total_cost()
                affordable = more if cost <= left else np.floor(more * (max(left, 0.0) / cost)).astype(np.int64)
                for level, n in zip(self.levels, affordable):
                    if n:
                        self.runs[0].work.step = f"level {level.number}"
                        level.extend(int(n))
                if cost > left:
                    return "converged" if np.all(self.errors()[2] <= self.target()) else "max_cost"
                continue
            _, bias, error = self.errors()
            if np.all(error <= self.target()):
                return "converged"
            if np.all(bias <= self.target() / np.sqrt(2.0)):
                continue  # a target that rounding of numbers or a new mean moved
            if len(self.levels) == len(self.runs):
                return "bias"
            n = self.predicted_number()
            if self.total_cost() + n * self.levels[-1].cost * 2.0 ** self.rates()[2] > self.max_cost:
                return "max_cost"
            self.add_level(n)
        return "max_cost"

    def has_failed(self) -> bool:
        """Whether half of the samples of a level failed."""
        return any(2 * level.n_failed >= level.n_run for level in self.levels)

    def wanted_numbers(self) -> np.ndarray:
        """Samples per level for the present estimates; at least two of each."""
        target, bias = self.target(), self.errors()[1]
        small = bias <= target / np.sqrt(2.0)
        budget = np.where(small, target**2 - bias**2, 0.5 * target**2)
        variances = smoothed(self.statistics()[1], self.rates()[1])
        numbers: np.ndarray = np.maximum(optimal_numbers(variances, [level.cost for level in self.levels], budget), 2)
        return numbers

    def predicted_number(self) -> int:
        """Samples that the next level starts with, from the rates."""
        _, beta, gamma = self.rates()
        variances = self.statistics()[1]
        variances = np.vstack([variances, variances[-1] * 2.0**-beta])
        costs = [level.cost for level in self.levels]
        numbers = optimal_numbers(variances, [*costs, costs[-1] * 2.0**gamma], 0.5 * self.target() ** 2)
        return int(np.clip(numbers[-1], LEAST_PILOT, self.n_pilot))

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of all levels, shape (n_levels, m)."""
        return np.array([level.mean() for level in self.levels]), np.array([level.variance() for level in self.levels])

    def rates(self) -> tuple[float, float, float]:
        """Rates of means, variances and costs."""
        means, variances = self.statistics()
        costs = np.array([[1.0 / level.cost] for level in self.levels])
        return decay_rate(np.abs(means)), decay_rate(variances), decay_rate(costs)

    def target(self) -> np.ndarray:
        """Root mean square error to reach, shape (m,); never zero, so that it can be divided by."""
        rtol, atol = self.tolerances
        mean = np.abs(self.statistics()[0].sum(axis=0))
        target: np.ndarray = np.maximum(np.maximum(rtol * mean, atol), np.finfo(np.float64).tiny ** 0.25)
        return target

    def errors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Standard error, bias, and root of the sum of squares, shape (m,) each."""
        means, variances = self.statistics()
        numbers = np.array([[level.n] for level in self.levels])
        sampling = np.sqrt((smoothed(variances, self.rates()[1]) / numbers).sum(axis=0))
        bias = np.zeros_like(sampling)
        if not self.exact and len(means) == 1:
            bias[:] = np.nan
        elif not self.exact:
            alpha = self.rates()[0]
            back = np.abs(means[-1:0:-1]) * 2.0 ** (-alpha * np.arange(len(means) - 1))[:, None]
            bias = back[:FIRST_LEVELS].max(axis=0) / (2.0**alpha - 1.0)  # Giles (2008), eq. 10
        return sampling, bias, np.hypot(sampling, bias)

    def total_cost(self) -> float:
        """Cost of all samples run."""
        return float(sum(level.n_run * level.cost for level in self.levels))

    def monte_carlo_cost(self) -> float:
        """Cost of Monte Carlo on the finest level used, for the same standard error of each entry."""
        last = self.levels[-1]
        if last.n < 2:
            return float("nan")
        variance, error = np.asarray(last.value.var(ddof=1)), self.errors()[0]
        numbers = np.max(np.divide(variance, error**2, out=np.zeros_like(error), where=error > 0.0))
        cost = float(last.seconds()[0]) if self.given_costs is None else self.given_costs[last.number]
        return float(numbers * cost)

    def result(self, status: str) -> MultilevelResult:
        """The estimate as it stands."""
        means, variances = self.statistics()
        shape = self.runs[0].shape
        sampling, bias, error = self.errors()
        mean, sampling, bias, error, target = (
            v.reshape(shape)[()] for v in (means.sum(axis=0), sampling, bias, error, self.target())
        )
        alpha, beta, gamma = self.rates()
        return MultilevelResult(
            status, mean, sampling, bias, error, target,
            n_samples=np.array([level.n_run for level in self.levels]),
            n_failed=np.array([level.n_failed for level in self.levels]),
            means=means,
            variances=variances,
            costs=np.array([level.cost for level in self.levels]),
            alpha=alpha, beta=beta, gamma=gamma,
            total_cost=self.total_cost(),
            monte_carlo_cost=self.monte_carlo_cost(),
            n_evaluations=sum(run.n_evaluations for run in self.runs) + self.n_evaluations_before,
            seed=self.seed,
            _levels=tuple(self.levels),
        )  # fmt: skip
