"""Affine-invariant Markov chain Monte Carlo: the chains are samples of one ensemble."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._compile.kept_memory import empty
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.scalar import Ensemble
from ensemble.uq.algorithms.algorithm_result import AlgorithmResult, table
from ensemble.uq.algorithms.chain_starts import starting_points
from ensemble.uq.algorithms.chain_statistics import STEPS_PER_TIME, autocorrelation_time, split_r_hat, status_of
from ensemble.uq.algorithms.evaluations import Evaluations, random_generator
from ensemble.uq.algorithms.model_runs import ModelRuns, TimeUpError
from ensemble.uq.inputs.inputs import Inputs

__all__ = ["McmcResult", "mcmc"]

PRIORS = ("inputs", "flat")
BLOCK = 64
"""Steps whose random numbers are drawn at once, from a generator of their own."""

APART, MANY_STEPS = 2.0, 1000
"""R-hat after so many steps, from which on chains are at different places, and more steps are no advice."""


@dataclass(frozen=True)
class McmcResult(AlgorithmResult):
    """Chains of `mcmc` and how well they mixed.

    Statistics are of the steps after `burn_in`.

    Attributes
    ----------
    status : str
        "converged": at least 50 autocorrelation times of steps, and R-hat at most 1.05, for every coordinate and for
        the combination of coordinates that varies least; "short": fewer steps than that, or chains that differ; more
        steps follow with ``mcmc(..., start=result)``; "subspace": the chains lie in a plane of fewer dimensions than
        there are coordinates, which no move leaves: start anew.
    chain : Ensemble, shape (n_steps, n_germs), n_chains samples
        Standard-normal coordinates, or those of the density where the prior is flat.
    log_density : Ensemble, shape (n_steps,)
        Log density of the posterior up to a constant, in those coordinates.
    burn_in : int
        Steps left out at the beginning.
    acceptance : ndarray, shape (n_chains,)
        Fraction of proposals accepted.
    autocorrelation_time : ndarray, shape (n_germs,)
        Steps per independent draw.
    r_hat : ndarray, shape (n_germs,)
        Split R-hat. Chains of one ensemble are not independent, which makes it optimistic.
    n_evaluations, n_failed : int
        Samples evaluated, starting points included; those of them with density NaN or a failed run, which count as
        rejected.
    seed : int
    """

    status: str
    chain: Ensemble
    log_density: Ensemble
    burn_in: int
    acceptance: np.ndarray
    autocorrelation_time: np.ndarray
    r_hat: np.ndarray
    n_evaluations: int
    n_failed: int
    seed: int
    _evaluations: Evaluations
    _settings: dict[str, Any]

    @property
    def n_steps(self) -> int:
        """Steps of each chain."""
        return int(self.chain.shape[0])

    @property
    def n_chains(self) -> int:
        """Chains, hence samples per step."""
        return int(self.chain.n_samples)

    @property
    def effective_sample_size(self) -> np.ndarray:
        """Independent draws that estimate a mean as well, shape (n_germs,)."""
        size: np.ndarray = (self.n_steps - self.burn_in) * self.n_chains / self.autocorrelation_time
        return size

    def draws(self, thin: int | None = None) -> Any:
        """Draws of the posterior: all chains at every `thin`-th step after `burn_in`.

        Parameters
        ----------
        thin : int, optional
            By default half the longest autocorrelation time.

        Returns
        -------
        InputSamples, or Ensemble of shape (n_germs,) where `inputs` was an integer
            The chains of one step after those of another.
        """
        longest = min(float(self.autocorrelation_time.max()), self.n_steps)
        step = max(int(longest / 2.0), 1) if thin is None else _check.integer(thin, "draws", "thin", minimum=1)
        kept = self.chain.samples[self.burn_in :: step]
        return self._evaluations.argument(np.ascontiguousarray(kept.transpose(1, 0, 2).reshape(kept.shape[1], -1)))

    def __repr__(self) -> str:
        x = self.chain.samples[self.burn_in :]
        columns = [x.mean(axis=(0, 2)), x.std(axis=(0, 2)), self.autocorrelation_time, self.effective_sample_size]
        rows = list(zip(range(x.shape[1]), *(c.tolist() for c in (*columns, self.r_hat)), strict=True))
        shown = rows if len(rows) <= 12 else [*rows[:10], ("...",) * 6]
        failed = f", {self.n_failed} failed runs rejected" if self.n_failed else ""
        return (
            f"McmcResult({self.status}: {self.n_chains} chains, {self.n_steps} steps of which {self.burn_in} burn-in, "
            f"acceptance {self.acceptance.mean():.2f}, {self.n_evaluations} evaluations{failed})\n"
            + table(("coordinate", "mean", "std", "time", "effective", "r_hat"), shown)
            + self._advice()
        )

    def _advice(self) -> str:
        """How many steps there should be, for chains that are too short; the time of short chains is too small.

        Chains that are far apart need another start: they may stay for long where the likelihood is flat.
        """
        longest = float(np.max(self.autocorrelation_time, initial=0.0))
        if self.status != "short" or not np.isfinite(longest):
            return ""
        if self.n_steps >= MANY_STEPS and APART < np.max(self.r_hat, initial=0.0) < np.inf:
            return "\nchains stay apart: start= others about the point of the highest log_density"
        share = self.n_steps / max(self.n_steps - self.burn_in, 1)
        more = 100 * math.ceil(max(1.2 * share * STEPS_PER_TIME * longest, 1.5 * self.n_steps) / 100)
        return f"\ntoo short to be trusted: start=result goes on with the chains, to about {more:,} steps"


@explains_calls("mcmc")
def mcmc(
    log_likelihood: Callable[[Any], Any],
    inputs: Inputs | int,
    n_steps: int,
    *,
    n_chains: int | None = None,
    start: Any = None,
    prior: str = "inputs",
    stretch: float = 2.0,
    burn_in: int | None = None,
    seed: int | None = None,
    output: str | None = None,
    ensemble_size: int | None = None,
    executor: Executor | None = None,
    store: str | PathLike[str] | None = None,
    resume: bool | str = False,
    progress: bool = False,
    sample_seconds: float | None = None,
    max_seconds: float | None = None,
) -> McmcResult:
    """Draw from a posterior with the affine-invariant ensemble sampler [1]_; each chain is a sample.

    A step moves one half of the chains along lines through randomly chosen chains of the other half, then the other
    half [2]_: two calls of `log_likelihood`, each with an ensemble of ``n_chains / 2`` samples. Chains of one ensemble
    depend on each other: that is the method, and the exception to the law that a sample depends on itself only. The
    likelihood of each sample is its own.

    Parameters
    ----------
    log_likelihood : callable
        Takes `InputSamples` (an Ensemble of shape (n,) where `inputs` is the integer n), returns an Ensemble of shape
        (), or a dictionary with one. Minus infinity means impossible. NaN, plus infinity, or a failed sample is a
        rejection and is counted.
    inputs : Inputs or int
        The prior; n stands for n independent standard normals.
    n_steps : int
        Steps of each chain.
    n_chains : int, optional
        Even, at least twice the number of coordinates; by default four times that, and at least 64.
    start : array, shape (n_chains, n_germs), or McmcResult, optional
        Standard-normal coordinates; by default drawn from the prior (standard normals where it is flat). A result is
        continued: `n_steps` more steps, the same numbers as one run of all steps. It also determines `n_chains`,
        `seed`, `prior` and `stretch`. Points must not lie in a plane of fewer than n_germs dimensions (a line, one
        fixed coordinate, few distinct points), as no move leaves it; units and offsets of coordinates do not matter.
    prior : {"inputs", "flat"}
        "flat": the function is the whole log density, on R^n; `inputs` is then n.
    stretch : float, above 1
        The parameter a of [1]_, eq. 10.
    burn_in : int, optional
        Steps left out of statistics; by default a quarter of all.
    seed : int, optional
    output : str, optional
        Which output of the model is the log-likelihood, where there are several.
    ensemble_size : int, optional
        Samples per model call; by default half of the chains, divided among the workers.
    executor : optional
        Runs the groups of a step elsewhere, as in `propagate`: a number of processes, or an executor.
    store : path, optional
        A folder that keeps each evaluation as soon as its group is done.
    resume : bool, or "force"
        Go on with the run in `store`, with the same bits as if it had not been ended: steps are repeated with the
        values that are there. The inputs, the source of the model, the settings and the seed must be those of the run;
        `n_steps` and `burn_in` may be others. "force" lets the source differ.
    progress : bool
        Show evaluations on stderr.
    sample_seconds : float, s, optional
        Time after which an evaluation is ended and has failed, as in `propagate`. Default: no limit.
    max_seconds : float, s, optional
        No group begins after that time: the result has the steps that ended, and its status tells whether they are
        enough.

    Returns
    -------
    McmcResult

    Raises
    ------
    ValueError
        If an argument is out of range, a starting point has no finite density, or the starting points lie in a plane
        of fewer dimensions than there are coordinates; on resuming, if the run in `store` is another one.
    AlgorithmError
        If no step ended within `max_seconds`.

    References
    ----------
    .. [1] Goodman, Weare (2010), Comm. App. Math. Comp. Sci. 5, 65-80, eqs. 7-10.
    .. [2] Foreman-Mackey, Hogg, Lang, Goodman (2013), PASP 125, 306-312, algorithm 3.

    Examples
    --------
    Prior N(0, 1) and an observation 1 with variance 1: the posterior is N(1/2, 1/2).

    >>> result = mcmc(lambda x: -0.5 * (x[0] - 1.0) ** 2, 1, 2000, seed=20731)
    >>> result.status, result.n_evaluations
    ('converged', 128064)
    >>> x = result.draws(thin=1).samples
    >>> bool(abs(x.mean() - 0.5) < 0.02 and abs(x.var() - 0.5) < 0.02)
    True
    """
    n_steps = _check.integer(n_steps, "mcmc", "n_steps", minimum=1)
    previous = start if isinstance(start, McmcResult) else None
    if previous is not None:
        n_chains, seed, prior, stretch = previous.n_chains, previous.seed, *previous._settings.values()
    _check.one_of(prior, PRIORS, "mcmc", "prior")
    _check.require(_check.finite(stretch, "mcmc", "stretch") > 1.0, "mcmc", "stretch", "be above 1", stretch)
    given = previous.chain.samples[-1] if previous is not None else start
    settings = {
        "n_chains": n_chains, "start": None if given is None or store is None else np.asarray(given), "prior": prior,
        "stretch": float(stretch), "output": output, "n_before": 0 if previous is None else previous.n_steps,
    }  # fmt: skip
    work = ModelRuns(
        "mcmc", [log_likelihood], inputs, settings, seed, "log_likelihood", executor=executor, store=store,
        resume=resume, progress=progress, sample_seconds=sample_seconds, max_seconds=max_seconds,
    )  # fmt: skip
    with work:
        evaluations = Evaluations(
            log_likelihood, inputs, work, "log_likelihood", output=output, ensemble_size=ensemble_size,
            infinite=True,
        )  # fmt: skip
        advice = "A flat prior is on R^n: write prior='inputs', or give n."
        _check.require(prior == "inputs" or evaluations.plain, "mcmc", "inputs", "be an integer", "Inputs", advice)
        density = _Density(evaluations, prior == "inputs")
        n_done = 0 if previous is None else previous.n_steps
        try:
            z, log_density = _start(density, start, n_chains, work.seed)
            chain, history, accepted = _run(density, z, log_density, n_done, n_steps, stretch, work.seed)
        except TimeUpError:
            raise work.nothing_done("no step") from None
        if not len(chain):
            raise work.nothing_done("no step")
    return _result(density, previous, chain, history, accepted, burn_in, {"prior": prior, "stretch": stretch})


def _start(density: _Density, start: Any, n_chains: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The points from which the chains go on, shape (n_germs, n_chains), and their log densities."""
    if not isinstance(start, McmcResult):
        return starting_points(density, start, n_chains, seed)
    z, log_density = start.chain.samples[-1].copy(), start.log_density.samples[-1].copy()
    fits = z.shape[0] == density.evaluations.n_germs
    _check.require(fits, "mcmc", "start", f"have {density.evaluations.n_germs} coordinates", z.shape[0])
    return z, log_density


def _result(
    density: _Density, previous: McmcResult | None, chain: np.ndarray, history: np.ndarray, accepted: np.ndarray,
    burn_in: int | None, settings: dict[str, Any],
) -> McmcResult:  # fmt: skip
    """The steps as a result, after those of the one before."""
    evaluations = density.evaluations
    evaluated, failed, total = evaluations.n_evaluations, density.n_failed, len(chain)
    if previous is not None:
        accepted = accepted + np.rint(previous.acceptance * previous.n_steps).astype(np.int64)
        chain = np.concatenate([previous.chain.samples, chain])
        history = np.concatenate([previous.log_density.samples, history])
        evaluated, failed = evaluated + previous.n_evaluations, failed + previous.n_failed
        total += previous.n_steps
    burn_in = total // 4 if burn_in is None else _check.integer(burn_in, "mcmc", "burn_in", minimum=0)
    _check.require(burn_in < total, "mcmc", "burn_in", f"be less than the {total} steps", burn_in)
    used = chain[burn_in:]
    times, r_hat = autocorrelation_time(used), split_r_hat(used)
    return McmcResult(
        status_of(used, times, r_hat), Ensemble(chain), Ensemble(history), burn_in, accepted / total, times, r_hat,
        evaluated, failed, evaluations.work.seed, evaluations, settings,
    )  # fmt: skip


class _Density:
    """The log density of points in standard-normal coordinates; NaN where the model failed."""

    def __init__(self, evaluations: Evaluations, with_prior: bool) -> None:
        self.evaluations, self.with_prior, self.n_failed = evaluations, with_prior, 0

    def __call__(self, z: np.ndarray) -> np.ndarray:
        values, failed = self.evaluations(z)
        _check.require(len(values) == 1, "mcmc", "log_likelihood", "return one number per sample", len(values))
        log_density: np.ndarray = values[0]
        failed = failed | (log_density == np.inf)
        if failed.any():
            self.n_failed += int(np.count_nonzero(failed))
            log_density = np.where(failed, np.nan, log_density)
        return log_density - 0.5 * np.einsum("is,is->s", z, z) if self.with_prior else log_density


def _run(
    density: _Density, z: np.ndarray, log_density: np.ndarray, first: int, n_steps: int, stretch: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make steps from number `first` on; return the chain, its log densities and how many proposals each chain took."""
    n_germs, n_chains = z.shape
    half = n_chains // 2
    sides = (slice(0, half), slice(half, None))
    halves = [np.ascontiguousarray(z[:, side]) for side in sides]
    numbers = _RandomNumbers(seed, n_chains, n_germs, stretch)
    chain, history = empty((n_steps, n_germs, n_chains), np.float64), empty((n_steps, n_chains), np.float64)
    accepted = np.zeros(n_chains, dtype=np.int64)
    done, quiet = 0, density.evaluations.work.quiet
    for k in range(n_steps):
        place = (first + k) % BLOCK
        if k == 0 or place == 0:
            factors, partners, thresholds = numbers.draw((first + k) // BLOCK)
        if not quiet:
            density.evaluations.work.step = f"step {k + 1} of {n_steps}"
        moved = []
        try:
            for mine, own, other in zip(sides, halves, halves[::-1], strict=True):
                proposal = other.take(partners[place, mine], axis=1)
                move = own - proposal
                move *= factors[place, mine]
                proposal += move
                proposed = density(proposal)
                accept = proposed - log_density[mine] > thresholds[place, mine]
                np.copyto(own, proposal, where=accept)
                np.copyto(log_density[mine], proposed, where=accept)
                moved.append((mine, accept))
                chain[k, :, mine] = own
        except TimeUpError:  # the half that has moved is left out: the chains end with the step before
            break
        for mine, accept in moved:
            accepted[mine] += accept
        history[k] = log_density
        done = k + 1
    chain, history = chain[:done], history[:done]
    return chain, history, accepted


class _RandomNumbers:
    """Random numbers of 64 steps at a time, in memory that is used again: new memory costs as much as the numbers."""

    def __init__(self, seed: int, n_chains: int, n_germs: int, stretch: float) -> None:
        self.seed, self.n_chains, self.n_germs, self.stretch = seed, n_chains, n_germs, stretch
        self.factors, self.thresholds, self.scratch = (empty((BLOCK, n_chains), np.float64) for _ in range(3))

    def draw(self, block: int) -> tuple[np.ndarray, ...]:
        """Stretch factors, partners, and log thresholds of acceptance, each of shape (64, n_chains)."""
        generator, factors, thresholds = random_generator(self.seed, 1, block), self.factors, self.thresholds
        generator.random(out=factors)
        factors *= self.stretch - 1.0
        factors += 1.0
        factors *= factors
        factors /= self.stretch
        partners = generator.integers(0, self.n_chains // 2, factors.shape)
        np.negative(generator.standard_exponential(out=thresholds), out=thresholds)
        np.log(factors, out=self.scratch)
        self.scratch *= self.n_germs - 1
        thresholds -= self.scratch
        return factors, partners, thresholds
