"""Subset simulation: small probabilities as products of larger ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.uq.algorithms.algorithm_result import AlgorithmResult, table
from ensemble.uq.algorithms.evaluations import Evaluations
from ensemble.uq.algorithms.model_runs import ModelRuns, TimeUpError
from ensemble.uq.algorithms.subset_run import N_FAMILIES, SubsetRun, run_levels
from ensemble.uq.inputs.inputs import Inputs

__all__ = ["SubsetResult", "subset_simulation"]

EVENTS = ("below", "above")


@dataclass(frozen=True)
class SubsetResult(AlgorithmResult):
    """A probability estimated by `subset_simulation`.

    Attributes
    ----------
    status : str
        "converged": the event was found, and `rtol` was reached where one was given; "max_levels": no sample of some
        run lies in the event, within `max_levels` levels or up to one whose samples all have the same value, after
        which no level can be chosen; "max_runs": the coefficient of variation is above `rtol`; "max_seconds": the time
        was up before further runs ended.
    probability : float
    coefficient_of_variation : float
        Standard error over `probability`, estimated from the descent of the samples: the first level is divided in
        20 parts, and what descends from one of them is one independent contribution. Correlation within and between
        levels is in it. The estimate itself is uncertain by a sixth.
    thresholds : ndarray, shape (n_levels,)
        Thresholds of the levels of the first run; the last is `threshold`.
    acceptance : ndarray, shape (n_levels - 1,)
        Fraction of moves accepted at each level but the first, of the first run.
    fractions : ndarray, shape (n_levels,)
        Conditional probability of each level, of the first run.
    samples : InputSamples, or Ensemble of shape (n_germs,) where `inputs` was an integer
        Samples of the event, of all runs; None where none was found.
    values : ndarray
        The model's values of `samples`.
    probabilities : ndarray, shape (n_runs,)
        Estimate of each independent run.
    n_evaluations, n_failed : int
        Model runs; those that failed, which are counted as outside the event.
    seed : int
    """

    status: str
    probability: float
    coefficient_of_variation: float
    thresholds: np.ndarray
    acceptance: np.ndarray
    fractions: np.ndarray
    samples: Any
    values: np.ndarray
    probabilities: np.ndarray
    n_evaluations: int
    n_failed: int
    seed: int

    def confidence_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Bounds of the probability: the logarithm has Student's t distribution, 19 degrees of freedom per run.

        Where the event was not found, from zero to the estimated probability of the last level before it; where all
        samples were in it, Clopper and Pearson's bound of independent samples.

        Parameters
        ----------
        level : float in (0, 1)
        """
        from scipy.special import stdtrit

        good = 0.0 < _check.positive(level, "confidence_interval", "level") < 1.0
        _check.require(good, "confidence_interval", "level", "be between 0 and 1", level)
        if self.probability == 0.0:
            return 0.0, float(np.prod(self.fractions[:-1]))
        if self.probability == 1.0:  # independent samples, all in the event: Clopper and Pearson's interval
            return float((0.5 - 0.5 * level) ** (1.0 / self.n_evaluations)), 1.0
        quantile = stdtrit((N_FAMILIES - 1) * len(self.probabilities), 0.5 + 0.5 * level)
        spread = np.exp(quantile * np.sqrt(np.log1p(self.coefficient_of_variation**2)))
        return float(self.probability / spread), float(min(self.probability * spread, 1.0))

    def __repr__(self) -> str:
        failed = f", {self.n_failed} failed runs outside the event" if self.n_failed else ""
        rows = [
            (k + 1, float(t), float(f), float(self.acceptance[k - 1]) if k else "-")
            for k, (t, f) in enumerate(zip(self.thresholds, self.fractions))
        ]
        n_runs = len(self.probabilities)
        runs = f" of {n_runs} runs" if n_runs > 1 else ""
        return (
            f"SubsetResult({self.status}: probability {self.probability:.4g}{runs}, coefficient of variation "
            f"{self.coefficient_of_variation:.3g}, {self.n_evaluations} evaluations{failed})\n"
            + table(("level", "threshold", "fraction", "acceptance"), rows)
        )


@explains_calls("subset_simulation")
def subset_simulation(
    model: Callable[[Any], Any],
    inputs: Inputs | int,
    threshold: float = 0.0,
    *,
    event: str = "below",
    n_per_level: int = 2000,
    fraction: float = 0.1,
    rtol: float | None = None,
    max_runs: int = 20,
    max_levels: int = 20,
    seed: int | None = None,
    output: str | None = None,
    ensemble_size: int | None = None,
    executor: Executor | None = None,
    store: str | PathLike[str] | None = None,
    resume: bool | str = False,
    progress: bool = False,
    sample_seconds: float | None = None,
    max_seconds: float | None = None,
) -> SubsetResult:
    """Estimate the small probability that a model's value is at most, or at least, a threshold.

    Subset simulation [1]_: levels of which each holds `fraction` of the samples of the one before; its samples are the
    seeds of Markov chains that stay in the level, moved by adaptive conditional sampling [2]_ in standard-normal
    coordinates, for which the number of inputs hardly matters. All chains make a step at once: one ensemble of
    ``fraction * n_per_level`` samples. The noise of a step is stratified over the chains along the direction of the
    mean of the level's seeds [3]_, which lowers the variance where one direction of the inputs leads to the event.
    Samples of a level depend on the others through its threshold and that direction, by design.

    Parameters
    ----------
    model : callable
        Takes `InputSamples` (an Ensemble of shape (n,) where `inputs` is the integer n), returns an Ensemble of shape
        (), or a dictionary with one. A failed sample is counted, and taken as outside the event.
    inputs : Inputs or int
        n stands for n independent standard normals.
    threshold : float
    event : {"below", "above"}
        Value at most, or at least, `threshold`.
    n_per_level : int
        Samples of each level; ``fraction * n_per_level`` must be whole.
    fraction : float
        1 / k for an integer k of at least 2.
    rtol : float, optional
        Coefficient of variation to reach: independent runs are added and averaged until it is.
    max_runs : int
        Independent runs, at most.
    max_levels : int
        Levels of a run: probabilities down to about ``fraction ** max_levels``.
    seed : int, optional
    output : str, optional
        Which output of the model, where there are several.
    ensemble_size : int, optional
        Samples per model call; by default all of a step, divided among the workers.
    executor : optional
        Runs the groups of a step elsewhere, as in `propagate`: a number of processes, or an executor.
    store : path, optional
        A folder that keeps each evaluation as soon as its group is done.
    resume : bool, or "force"
        Go on with the run in `store`, with the same bits as if it had not been ended: levels are repeated with the
        values that are there. The inputs, the source of the model, the settings and the seed must be those of the run;
        `rtol`, `max_runs` and `max_levels` may be others. "force" lets the source differ.
    progress : bool
        Show evaluations on stderr.
    sample_seconds : float, s, optional
        Time after which an evaluation is ended and has failed, as in `propagate`. Default: no limit.
    max_seconds : float, s, optional
        No group begins after that time: the status is "max_seconds", and the result has the runs that ended.

    Returns
    -------
    SubsetResult

    Raises
    ------
    ValueError
        If an argument is out of range; on resuming, if the run in `store` is another one.
    AlgorithmError
        If no run ended within `max_seconds`, or all samples of the first call fail.

    References
    ----------
    .. [1] Au, Beck (2001), Probabilistic Engineering Mechanics 16, 263-277.
    .. [2] Papaioannou, Betz, Zwirglmaier, Straub (2015), Probabilistic Engineering Mechanics 41, 89-103.
    .. [3] L'Ecuyer, Lecot, Tuffin (2008), Operations Research 56, 958-975.

    Examples
    --------
    The sum of 100 standard normals is above 47.534 with probability 1e-6.

    >>> from ensemble.scalar import Ensemble
    >>> result = subset_simulation(lambda z: Ensemble(z.samples.sum(axis=0)), 100, 47.534, event="above", seed=20731)
    >>> result.status, len(result.thresholds), bool(3e-7 < result.probability < 3e-6)
    ('converged', 6, True)
    """
    name = "subset_simulation"
    threshold = _check.finite(threshold, name, "threshold")
    _check.one_of(event, EVENTS, name, "event")
    n = _check.integer(n_per_level, name, "n_per_level", minimum=10)
    steps = round(1.0 / _check.positive(fraction, name, "fraction"))
    whole = steps >= 2 and abs(steps * fraction - 1.0) < 1e-9 and n % max(steps, 1) == 0 and n >= 2 * steps
    _check.require(whole, name, "fraction", "be 1 / k, with k from 2 on and n_per_level 2 k, 3 k, ...", fraction)
    target = np.inf if rtol is None else _check.positive(rtol, name, "rtol")
    max_runs = _check.integer(max_runs, name, "max_runs", minimum=1)
    max_levels = _check.integer(max_levels, name, "max_levels", minimum=1)
    sign = 1.0 if event == "below" else -1.0
    settings = {"threshold": threshold, "event": event, "n_per_level": n, "steps": steps, "output": output}
    work = ModelRuns(
        name, [model], inputs, settings, seed, "model", executor=executor, store=store, resume=resume,
        progress=progress, sample_seconds=sample_seconds, max_seconds=max_seconds,
    )  # fmt: skip
    with work:
        evaluations = Evaluations(model, inputs, work, output=output, ensemble_size=ensemble_size, infinite=True)

        def distance(z: np.ndarray) -> np.ndarray:
            values, failed = evaluations(z)
            _check.require(len(values) == 1, name, "model", "return one number per sample", len(values))
            return np.where(failed, np.inf, sign * (values[0] - threshold))

        runs: list[SubsetRun] = []
        variation, in_time = np.inf, True
        while len(runs) < max_runs:
            work.step = f"run {len(runs) + 1}"
            try:
                runs.append(run_levels(distance, evaluations.n_germs, n, steps, max_levels, work.seed, len(runs)))
            except TimeUpError:
                in_time = False
                break
            variation = _variation(runs)
            if variation <= target:
                break
        if not runs:
            raise work.nothing_done("no run")
    found = _result(runs, variation, target, sign, threshold, evaluations, work.seed)
    return found if in_time else replace(found, status="max_seconds")


def _variation(runs: list[SubsetRun]) -> float:
    """Coefficient of variation of the mean over runs; from their spread where one did not find the event."""
    probabilities = np.array([run.probability for run in runs])
    if not probabilities.any():
        return float("inf")
    if probabilities.all():
        variance = sum(run.variance for run in runs) / len(runs) ** 2
    else:
        variance = float(probabilities.var(ddof=1)) / len(runs)
    return float(np.sqrt(variance) / probabilities.mean())


def _result(
    runs: list[SubsetRun], variation: float, target: float, sign: float, threshold: float, evaluations: Evaluations,
    seed: int,
) -> SubsetResult:  # fmt: skip
    """The runs as one result."""
    probabilities = np.array([run.probability for run in runs])
    first = runs[0]
    inside = [run.distances <= 0.0 for run in runs]
    z = np.concatenate([run.z[:, i] for run, i in zip(runs, inside)], axis=1)
    values = np.concatenate([run.distances[i] for run, i in zip(runs, inside)])
    reached = variation <= target
    status = "max_levels" if not probabilities.all() else "converged" if reached else "max_runs"
    return SubsetResult(
        status, float(probabilities.mean()), variation, sign * np.array(first.thresholds) + threshold,
        np.array(first.acceptance), np.array(first.fractions), evaluations.argument(z) if z.shape[1] else None,
        sign * values + threshold, probabilities, evaluations.n_evaluations, evaluations.n_failed, seed,
    )  # fmt: skip
