"""The run of one grid: its engine, its time, its steps and its measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import warn_caller
from ensemble._typing import Array
from ensemble.apps.gbees.analysis import distribution
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.engines.engine import Engine, Steps
from ensemble.apps.gbees.errors import GridError, GridWarning
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.run.cell_likelihood import integrate_likelihood
from ensemble.apps.gbees.run.measurement import Noise, centres, log_likelihoods
from ensemble.apps.gbees.run.sharpness import Sharpness, sharpness

__all__ = ["Advance", "GridRun", "Weights"]

MASS_LIMIT = 0.01
"""Probability lost, or added by clipping, from which on there is a warning."""

SMALLEST_LOG = float(np.log(np.finfo(np.float64).smallest_subnormal))


@dataclass(frozen=True)
class Advance:
    """An advance from `start` to `end`, of which `elapsed` is done."""

    start: float
    end: float
    elapsed: float = 0.0

    @property
    def span(self) -> float:
        """The whole length."""
        return self.end - self.start


@dataclass(frozen=True)
class Weights:
    """What a measurement does: weights of the cells, moments inside of them, and the cells and probabilities before."""

    log_weights: Array
    log_peak: float
    moments: tuple[np.ndarray, np.ndarray] | None
    indices: Array
    probabilities: Array


class GridRun:
    """The run of one grid from `time` on.

    Parameters
    ----------
    problem : Problem
    make : callable
        The engine's class.
    indices, probabilities : array
        The first cells.
    time : float
    """

    def __init__(
        self, problem: Problem, make: Callable[..., Engine], indices: Array, probabilities: Array, time: float
    ) -> None:
        self.problem, self.make, self.time = problem, make, time
        self.engine = make(problem, indices, probabilities, time)
        self.steps = Steps.of([])
        self.log_evidence = 0.0
        self.moments: tuple[np.ndarray, np.ndarray] | None = None  # of a posterior that is narrower than its cells
        self.warning_limits = {"mass_loss": MASS_LIMIT, "mass_gain": MASS_LIMIT}  # of the next warnings
        self.interrupted: Advance | None = None

    def copy(self) -> GridRun:
        """An independent run in the same state."""
        other = object.__new__(GridRun)
        other.problem, other.make, other.time = self.problem, self.make, self.time
        other.engine = self.make(self.problem, *self.engine.cells(), self.engine.velocity_time)
        other.engine.count = self.engine.count
        other.steps, other.log_evidence, other.interrupted = self.steps, self.log_evidence, self.interrupted
        other.moments, other.warning_limits = self.moments, dict(self.warning_limits)
        return other

    def begin_advance(self, until: float) -> Advance:
        """The advance to `until`: the interrupted one, or a new one."""
        if self.interrupted is not None and self.interrupted.end == until:
            return self.interrupted
        return Advance(self.time, until)

    def record_advance(self, advance: Advance, completed: bool) -> None:
        """Set time and steps to those that the engine has reached in `advance`."""
        taken = self.engine.taken
        if completed:
            self.time, self.interrupted = advance.end, None
        else:
            elapsed = advance.elapsed
            for length in taken.lengths:
                elapsed += float(length)
            self.time, self.interrupted = advance.start + elapsed, Advance(advance.start, advance.end, elapsed)
        if len(taken):
            self.moments = None
        self.steps = self.steps.then(taken)

    def advance(self, until: float, callback: Callable[[float, int, int], None] | None = None) -> Steps:
        """Steps to `until`; after an interruption `time` is that of the grid, and the next call continues."""
        advance, before = self.begin_advance(until), int(np.sum(self.steps.cells))

        def report(elapsed: float, n_cells: int, cell_steps: int) -> None:
            assert callback is not None
            callback(advance.start + elapsed, n_cells, before + cell_steps)

        try:
            self.engine.advance(advance.start, advance.span, report if callback is not None else None, advance.elapsed)
        except BaseException:
            self.record_advance(advance, completed=False)
            raise
        self.record_advance(advance, completed=True)
        return self.engine.taken

    def weighed(self, h: Callable[..., Array], y: np.ndarray, noise: Noise, likelihood: str = "auto") -> Weights:
        """What a measurement with Gaussian noise does to the cells; the run is not changed."""
        indices, p = self.engine.cells()
        sharp = sharpness(self.problem, indices, p, h, y, noise)
        axes = sharp.axes() if likelihood == "cell" or (likelihood == "auto" and sharp.is_sharp) else []
        found = None
        if axes:
            found = integrate_likelihood(self.problem, indices, p, h, y, noise, axes)
            weights = found.log_weights
        else:
            if likelihood == "point" and sharp.is_sharp:
                warn_caller(too_sharp(sharp), GridWarning)
            with np.errstate(over="ignore"):
                weights = log_likelihoods(self.problem, indices, h, y, noise)
        nearest = float(array_namespace(weights).max(weights))
        if nearest < SMALLEST_LOG:
            raise GridError(
                "Gbees.update: y must be possible somewhere on the grid; got a likelihood of zero in all "
                f"{len(indices)} cells, the nearest {np.sqrt(-2.0 * nearest):.3g} standard deviations away. "
                "Check y, or give it a larger R."
            )
        self._require_numbers(weights)
        if found is not None and (finer := too_narrow(self.problem, found.covariance)) is not None:
            warn_caller(finer, GridWarning)
        moments = None if found is None else in_space(self.problem, found.mean, found.covariance)
        return Weights(weights, noise.log_peak, moments, indices, p)

    @property
    def mass_loss(self) -> float:
        """Probability that left the grid since the start."""
        return float(np.sum(self.steps.losses))

    @property
    def mass_gain(self) -> float:
        """Probability added by clipping since the start."""
        return float(np.sum(self.steps.clipped))

    def exceeded(self, name: str) -> float | None:
        """``mass_loss`` or ``mass_gain`` where it exceeds its warning limit, which then becomes twice the value."""
        value = float(getattr(self, name))
        if not value > self.warning_limits[name]:
            return None
        self.warning_limits[name] = 2.0 * value
        return value

    def weighed_by(self, log_likelihood: Callable[..., Array]) -> Weights:
        """What any likelihood does to the cells; the run is not changed."""
        indices, p = self.engine.cells()
        x = centres(self.problem, indices)
        xp = array_namespace(indices)
        weights = xp.broadcast_to(xp.asarray(log_likelihood(x, xp)), (indices.shape[0],))
        self._require_numbers(weights)
        return Weights(weights, 0.0, None, indices, p)

    def _require_numbers(self, weights: Array) -> None:
        xp = array_namespace(weights)
        undefined = xp.logical_or(xp.isnan(weights), weights == xp.inf)
        if bool(xp.any(undefined)):
            cell = int(xp.argmax(xp.astype(undefined, xp.int8)))
            indices, _ = self.engine.cells()
            where = ", ".join(f"{float(part[0]):.6g}" for part in centres(self.problem, indices[cell : cell + 1, :]))
            raise GridError(
                "Gbees.update: the likelihood must be a number in every cell; got "
                f"{float(weights[cell])} at x = ({where}) and in {int(xp.count_nonzero(undefined)) - 1} other cells. "
                "Make h, or the likelihood, a number there."
            )

    def update(self, h: Callable[..., Array], y: np.ndarray, noise: Noise, likelihood: str = "auto") -> float:
        """Bayes' rule for a measurement with Gaussian noise; the logarithm of its evidence."""
        return self.reweight(self.weighed(h, y, noise, likelihood))[0]

    def reweight(self, weights: Weights) -> tuple[float, Callable[[], None]]:
        """Bayes' rule; the logarithm of the evidence, and a function that takes it back, to the bit."""
        engine, before = self.engine, (self.moments, self.log_evidence)
        about = engine.velocity_time, engine.count, engine.taken, engine.report_each_step
        log_evidence = engine.reweight(weights.log_weights) + weights.log_peak
        self.moments = weights.moments
        self.log_evidence += log_evidence

        def take_back() -> None:
            made = self.make(self.problem, weights.indices, weights.probabilities, about[0])
            _, made.count, made.taken, made.report_each_step = about
            self.engine, (self.moments, self.log_evidence) = made, before

        return log_evidence, take_back

    def cells(self) -> Cells:
        """Every stored cell, active or not."""
        problem = self.problem
        indices, p = self.engine.cells()
        return Cells(indices, p, problem.origin, problem.widths, problem.rotation, self.time, tuple(problem.periods))

    def mean(self) -> np.ndarray:
        """Mean; after a sharp measurement, until the next step, with the posterior inside the cells."""
        return distribution.mean(self.cells()) if self.moments is None else self.moments[0]

    def covariance(self) -> np.ndarray:
        """Covariance; after a sharp measurement, until the next step, with the posterior inside the cells."""
        return distribution.covariance(self.cells()) if self.moments is None else self.moments[1]

    def state(self) -> dict[str, np.ndarray]:
        """Everything that a run continues from, to the bit."""
        advance, (indices, p) = self.interrupted, self.engine.cells()
        return {
            "indices": to_numpy(indices),
            "probabilities": to_numpy(p),
            "times": np.array([self.time, self.engine.velocity_time, self.log_evidence]),
            "count": np.array(self.engine.count),
            "under_way": np.array([] if advance is None else [advance.start, advance.end, advance.elapsed]),
            "step_lengths": self.steps.lengths,
            "step_cells": self.steps.cells,
            "step_masses": self.steps.masses,
            "step_clipped": self.steps.clipped,
            "moments": np.array([]) if self.moments is None else np.vstack(self.moments),
        }

    def restored(self, state: dict[str, np.ndarray], like: Array) -> GridRun:
        """The run of the same problem in another state."""
        time, velocity_time, log_evidence = (float(value) for value in state["times"])
        indices, p = asarray_like(state["indices"], like), asarray_like(state["probabilities"], like)
        made = object.__new__(GridRun)
        made.problem, made.make, made.warning_limits = self.problem, self.make, dict(self.warning_limits)
        made.engine = self.make(self.problem, indices, p, velocity_time)
        made.engine.count = int(state["count"])
        made.time, made.log_evidence = time, log_evidence
        interrupted = [float(value) for value in state["under_way"]]
        made.interrupted = Advance(*interrupted) if interrupted else None
        made.steps = Steps(*(state[f"step_{name}"] for name in ("lengths", "cells", "masses", "clipped")))
        moments = np.asarray(state.get("moments", ()))
        made.moments = (moments[0], moments[1:]) if moments.size else None
        return made


def in_space(problem: Problem, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments in the grid's frame as moments in space."""
    R = np.eye(problem.n) if problem.rotation is None else np.asarray(problem.rotation)
    return R @ mean + problem.origin, R @ covariance @ R.T


def too_sharp(sharp: Sharpness) -> str:
    """The warning for a measurement sharper than a cell whose likelihood is taken at centres."""
    i = int(np.argmax(sharp.changes))
    return (
        f"Gbees.update: R must be wider than a cell where the likelihood is taken at centres; got deviations of which "
        f"{sharp.changes[i]:.3g} fit a cell along axis {i}: evidence and posterior may be wrong by factors. "
        "Use likelihood='cell', or cells that are smaller."
    )


NARROW = 0.5
"""Deviation of a posterior, in cells, from which on the grid resolves it."""


def too_narrow(problem: Problem, covariance: np.ndarray) -> str | None:
    """The warning for a posterior narrower than the cells resolve; None for others."""
    deviations = np.sqrt(np.diag(covariance)) / problem.widths
    i = int(np.argmin(deviations))
    if deviations[i] >= NARROW:
        return None
    return (
        "Gbees.update: cells must be no wider than twice the posterior's deviation; got a deviation of "
        f"{deviations[i] * problem.widths[i]:.3g} along axis {i}, {deviations[i]:.3g} of a cell. mean() and "
        "covariance() are right until the next step, which advects whole cells. Use a factor "
        f"{1.0 / deviations[i]:.2g} times as large."
    )
