"""From the arguments of `Gbees` to the problem and the first grid of each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import integer, kind_of, message, one_of, positive, require
from ensemble._kernels.gbees.limiters import LIMITERS
from ensemble._typing import Array
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.mixing import mixing_of
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.run.arguments import (
    SampleValues,
    checked_call,
    common_samples,
    components,
    drift_of,
    drift_parameters,
    matrix,
    periods_of,
)
from ensemble.apps.gbees.run.initial import Frame, filled, frame_of, gaussian, histogram
from ensemble.apps.gbees.run.measurement import centres
from ensemble.scalar import Ensemble

__all__ = ["Rules", "Setup"]

PRUNES = ("sequential", "parallel")

LATER = 0.7390851332151607
"""Delay of the second evaluation of the drift: a number that is unlikely to be a period."""


@dataclass(frozen=True)
class Rules:
    """Options of the method, the same for all samples; the attributes are those of `Problem`."""

    threshold: float
    limiter: str
    cfl: float
    prune_every: int
    prune: str
    bounds: Callable[..., Array] | None
    time_varying: bool
    time_order: int
    memory_limit: float | None
    dtype: Any

    def checked(self) -> dict[str, Any]:
        """The rules as keyword arguments of `Problem`."""
        threshold, cfl = positive(self.threshold, "Gbees", "threshold"), positive(self.cfl, "Gbees", "cfl")
        require(threshold < 1.0, "Gbees", "threshold", "be a probability below 1", threshold)
        require(cfl <= 1.0, "Gbees", "cfl", "be at most 1", cfl, "Longer steps are not stable.")
        require(self.time_order in (1, 2), "Gbees", "time_order", "be 1 or 2", repr(self.time_order))
        dtype = np.dtype(np.float64 if self.dtype is None else self.dtype)
        require(dtype in (np.float32, np.float64), "Gbees", "dtype", "be float64 or float32", str(dtype))
        if self.bounds is not None and not callable(self.bounds):
            requirement = "be a function (x, xp) of n scalars"
            raise TypeError(message("Gbees", "bounds", requirement, kind_of(self.bounds)))
        limit = self.memory_limit
        return {
            "threshold": threshold,
            "limiter": one_of(self.limiter, LIMITERS, "Gbees", "limiter"),
            "cfl": cfl,
            "prune_every": integer(self.prune_every, "Gbees", "prune_every", minimum=1),
            "prune": one_of(self.prune, PRUNES, "Gbees", "prune"),
            "bounds": self.bounds,
            "time_varying": bool(self.time_varying),
            "time_order": self.time_order,
            "dtype": dtype.type,
            "memory_limit": None if limit is None else positive(limit, "Gbees", "memory_limit"),
        }


class Setup:
    """The checked arguments of `Gbees`; `sample` makes the problem of one sample."""

    def __init__(
        self, drift: Any, mean: Array, covariance: Array, rules: Rules, factor: Array, extent: Array, start: Array,
        diffusion: Array, rotate: bool, periods: Sequence[float | None] | None,
    ) -> None:  # fmt: skip
        self.drift = drift_of(drift)
        self.parameters = drift_parameters(self.drift)
        self.start = start if start is None or callable(start) else points_of(start)
        mean, covariance = (
            value if value is not None else moment("mean" if number == 0 else "covariance", self.start)
            for number, value in enumerate((mean, covariance))
        )
        self.means = SampleValues(mean, "Gbees", "mean")
        shape = self.means.shape
        require(len(shape) == 1 and shape[0] > 0, "Gbees", "mean", "have shape (n,)", f"shape {shape}")
        n = shape[0]
        self.covariances, self.factors = matrix(covariance, n, "covariance"), components(factor, n, "factor")
        require(bool(np.all(self.factors.samples > 0.0)), "Gbees", "factor", "be above zero", repr(factor))
        self.extents = components(extent, n, "extent")
        require(bool(np.all(self.extents.samples > 0.0)), "Gbees", "extent", "be above zero", repr(extent))
        if isinstance(self.start, np.ndarray):
            seen = f"shape {self.start.shape}"
            require(len(self.start) == n, "Gbees", "start", f"have shape ({n}, n_points)", seen)
        self.diffusion = None if diffusion is None else matrix(diffusion, n, "diffusion")
        self.rotate, self.rules = rotate, rules.checked()
        self.periods = periods_of(periods, n, rotate)
        given = {**self.parameters, "mean": self.means, "covariance": self.covariances, "factor": self.factors,
                 "extent": self.extents}  # fmt: skip
        if self.diffusion is not None:
            given["diffusion"] = self.diffusion
        self.n_samples = common_samples("Gbees", **given)

    def sample(self, i: int, time: float) -> tuple[Problem, np.ndarray, np.ndarray]:
        """Problem, multi-indices and probabilities of sample `i`."""
        covariance = self.covariances.sample(i)
        scales = self.factors.sample(i), self.extents.sample(i)
        frame = frame_of(self.means.sample(i), covariance, *scales, self.rotate, self.periods)
        noise = {} if self.diffusion is None else along_axes(self.diffusion.sample(i), frame)
        problem = Problem(
            replace(self.drift, parameters=tuple(float(value.sample(i)) for value in self.parameters.values())),
            frame.origin,
            frame.widths,
            **noise,
            rotation=frame.rotation,
            periods=frame.periods,
            **self.rules,
        )
        check_drift(problem, time)
        if self.start is None:
            indices, p = gaussian(frame, covariance, problem.memory_limit)
        elif callable(self.start):
            place = lambda indices: centres(problem, indices)
            indices, p = filled(frame, self.start, place, problem.memory_limit)
        else:
            indices, p = histogram(frame, self.start)
        check_active(problem, p)
        if problem.bounds is not None:
            problem = replace(problem, bounds_range=range_of(problem.bounds, centres(problem, indices)))
        return problem, indices, p


def points_of(start: Array) -> np.ndarray:
    """The points of a start from samples, shape (n, n_points)."""
    points = np.asarray(to_numpy(start.samples if isinstance(start, Ensemble) else start))
    valid = points.ndim == 2 and points.size > 0 and points.dtype.kind in "biuf"
    requirement = "be a density (x, xp), or points of shape (n, n_points)"
    require(valid, "Gbees", "start", requirement, f"shape {points.shape} of {points.dtype}")
    require(bool(np.all(np.isfinite(points))), "Gbees", "start", "be finite", "NaN or infinity in it")
    return points.astype(np.float64)


def moment(name: str, start: Array) -> np.ndarray:
    """The `name`, mean or covariance, of a start from points, the only start for which it may be left out."""
    require(isinstance(start, np.ndarray), "Gbees", name, "be given unless the start is points", "None")
    return start.mean(axis=1) if name == "mean" else np.atleast_2d(np.cov(start))


def range_of(bounds: Callable[..., Array], x: Iterable[Any]) -> tuple[float, float]:
    """The range of `bounds` over the points `x`."""
    give = lambda: np.asarray(bounds(tuple(x), np), dtype=np.float64)
    with np.errstate(all="ignore"):
        J = checked_call(give, "Gbees", "bounds", "take n scalars x and a namespace, and give one")
    low, high = float(np.min(J)), float(np.max(J))
    seen = f"values from {low} to {high} on the first grid"
    require(bool(np.isfinite(low) and np.isfinite(high)), "Gbees", "bounds", "be finite", seen)
    return low, high


def along_axes(Q: np.ndarray, frame: Frame) -> dict[str, Any]:
    """`Q` in the grid's frame: ``diffusion`` and ``mixing`` of a `Problem`.

    Raises
    ------
    ValueError
        If it is not positive semidefinite.
    """
    rotated = Q if frame.rotation is None else frame.rotation.T @ Q @ frame.rotation
    largest = float(np.max(np.abs(rotated), initial=0.0))
    rotated = np.where(np.abs(rotated) <= 1e-12 * largest, 0.0, 0.5 * (rotated + rotated.T))
    smallest = float(np.linalg.eigvalsh(rotated)[0])
    seen = f"a smallest eigenvalue of {smallest:.3g}"
    require(smallest >= -1e-12 * largest, "Gbees", "diffusion", "be positive semidefinite", seen)
    return {"diffusion": np.diag(rotated).copy(), "mixing": mixing_of(rotated, frame.widths)}


def check_active(problem: Problem, p: np.ndarray) -> None:
    """Raise unless some cell of the first grid is active: only active cells grow the grid and are reported."""
    largest = float(np.max(p))
    if not largest >= problem.threshold:
        seen = f"{problem.threshold:g}, and the largest of {len(p):,} cells holds {largest:.3g}"
        advice = "Lower the threshold: it has to be well below one over the number of cells that matter."
        raise GridError(message("Gbees", "threshold", "leave active cells on the first grid", seen, advice))


def check_drift(problem: Problem, time: float) -> None:
    """Raise unless the drift takes and returns n scalars, and does not depend on the time without `time_varying`."""
    requirement = f"take {problem.n} scalars x, a time and a namespace, and give {problem.n} scalars"

    def at(steps: float, when: float) -> list[np.ndarray]:
        x = tuple(np.asarray(value) for value in problem.origin + steps * problem.widths)
        give = lambda: [np.asarray(part, dtype=np.float64) for part in problem.drift(x, when, np)]
        with np.errstate(all="ignore"):
            v = checked_call(give, "Gbees", "drift", requirement)
        require(len(v) == problem.n, "Gbees", "drift", f"give {problem.n} components, as the mean has", len(v))
        return v

    for steps in (0.0, 1.0):
        v = at(steps, time)
        if not problem.time_varying and not np.array_equal(v, at(steps, time + LATER), equal_nan=True):
            seen = f"one that changes between the times {time:g} and {time + LATER:g}"
            require(False, "Gbees", "drift", "not depend on t without time_varying=True", seen)
