"""Model runs of an algorithm: standard-normal points in, values and failed samples out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtri

from ensemble._check import integer, kind_of, message, require
from ensemble.scalar import Ensemble
from ensemble.uq.algorithms.algorithm_result import AlgorithmError
from ensemble.uq.samplers.monte_carlo import MonteCarlo
from ensemble.uq.study.evaluation import evaluate
from ensemble.uq.study.groups import Group
from ensemble.uq.study.outputs import Outcome

__all__ = ["Evaluations", "n_germs_of", "normal_points", "random_generator", "require_model", "seed_or_entropy"]

SMALLEST = 2.0**-54
"""Half of the distance between numbers that the generator of uniform numbers gives: it may give 0."""


def seed_or_entropy(seed: Any, function: str) -> int:
    """`seed`, or a number from the operating system, which a result keeps so that it can be repeated."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    return integer(seed, function, "seed", minimum=0)


def require_model(model: Any, function: str, argument: str) -> None:
    """Raise unless a model can be called."""
    if not callable(model):
        raise TypeError(message(function, argument, "be callable with one argument", kind_of(model)))


def n_germs_of(inputs: Any, function: str) -> int:
    """How many standard normals the inputs are made from."""
    advice = "Give en.Inputs, or an integer n for n independent standard normals."
    count = inputs.n_germs if hasattr(inputs, "from_normal") else inputs
    return integer(count, function, "inputs", minimum=1, advice=advice)


def random_generator(seed: int, *stream: int) -> np.random.Generator:
    """The generator of one numbered stream of `seed`."""
    return np.random.default_rng([seed, *stream])


def normal_points(seed: int, stream: int, first: int, n_samples: int, n_germs: int) -> np.ndarray:
    """Independent standard normals of samples `first`, ... of a stream, shape (n_germs, n_samples).

    Sample i has the same numbers whatever is drawn before it.
    """
    own = int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    u = MonteCarlo().points(np.arange(first, first + n_samples), n_germs, own)
    return np.ascontiguousarray(ndtri(np.maximum(u, SMALLEST)).T)


class NormalSamples:
    """Samples of independent standard normals: what `InputSamples` is for inputs that have names."""

    def __init__(self, z: np.ndarray, ids: np.ndarray) -> None:
        self.z, self.ids, self.n_samples = z, ids, z.shape[1]
        self.failures: dict[int, str] = {}

    def take(self, places: np.ndarray) -> NormalSamples:
        """Some of the samples."""
        return NormalSamples(self.z[:, places], self.ids[places])


class OfNormals:
    """A model of an Ensemble of standard normals as one of `NormalSamples`."""

    def __init__(self, model: Callable[[Any], Any]) -> None:
        self.model = model

    def __call__(self, x: NormalSamples) -> Any:
        """Evaluate the model at points."""
        return self.model(Ensemble(x.z))


class Work(Protocol):
    """Where and when the groups of an algorithm run, as `ModelRuns` does it."""

    step: str
    """What the algorithm is doing, for its progress."""

    @property
    def function(self) -> str:
        """The algorithm, for messages."""

    @property
    def seed(self) -> int:
        """The seed of all random numbers of the algorithm."""

    @property
    def quiet(self) -> bool:
        """Whether no progress is shown."""

    @property
    def n_parallel(self) -> int:
        """How many groups run at a time."""

    @property
    def is_plain(self) -> bool:
        """Whether groups run here, one after the other, and nothing keeps what they give."""

    @property
    def kept(self) -> Any:
        """Return what the store has of earlier runs; None without a store."""

    def count(self, run: int, repeated: int) -> None:
        """Count samples that ran, and those that a store had."""

    def run(self, model: Any, groups: Any, number: int) -> Iterator[tuple[Any, Any]]:
        """Run groups, and give each with its outcome."""


class Evaluations:
    """A model called on ensembles of standard-normal points; what it costs is counted.

    Parameters
    ----------
    model : callable
        A function of one argument: `InputSamples`, or an Ensemble of shape (n_germs,) where `inputs` is an integer.
    inputs : Inputs or int
        An integer stands for that many independent standard-normal inputs.
    work : ModelRuns
        Where and when groups run, and the store that keeps what they gave.
    argument : str
        What the algorithm calls the model, for messages.
    output : str, optional
        Which entry of a dictionary that the model returns.
    ensemble_size : int, optional
        Samples per call; by default all at once, divided among the workers.
    infinite : bool
        Whether an infinite value is a value; NaN never is.
    number : int
        Tells the models of one algorithm from each other.
    """

    def __init__(
        self,
        model: Callable[[Any], Any],
        inputs: Any,
        work: Work,
        argument: str = "model",
        *,
        output: str | None = None,
        ensemble_size: int | None = None,
        infinite: bool = False,
        number: int = 0,
    ) -> None:
        self.plain, self.n_germs = not hasattr(inputs, "from_normal"), n_germs_of(inputs, work.function)
        size = ensemble_size
        if size is not None:
            size = integer(size, work.function, "ensemble_size", minimum=1)
        self.model, self.inputs, self.work, self.name = model, inputs, work, argument
        self._called = OfNormals(model) if self.plain else model
        self.output, self.ensemble_size, self.infinite, self.number = output, size, infinite, number
        self.n_evaluations = self.n_failed = self._next = 0
        self.seconds, self._shares = 0.0, np.zeros(0)
        self.n_values: int | None = None
        self.shape: tuple[int, ...] = ()
        self.reason = ""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"work": None}  # a result needs it for its arguments alone

    def argument(self, z: np.ndarray, ids: np.ndarray | None = None) -> Any:
        """Convert points of normal space, shape (n_germs, n_samples), to the argument of the model."""
        return Ensemble(z) if self.plain else self.inputs.from_normal(z.T, ids)

    def samples_at_a_time(self, n: int) -> int:
        """How many of `n` samples are given in one call: as many as all workers take, one group each."""
        return n if self.ensemble_size is None else self.ensemble_size * self.work.n_parallel

    def __call__(self, z: np.ndarray, first: int = 0, stream: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Values of shape (m, n_samples), entries in C order, and which samples failed, shape (n_samples,).

        `first` is the permanent number of the first sample in its `stream`. Without a stream evaluations are numbered
        in the order of the calls, and their samples from `first` on. Seconds of the model are in `seconds`: those of
        the samples that did not fail, which a store has, for all of them.

        Raises
        ------
        TimeUpError
            If the time is up before all groups have begun.
        """
        n, kept = z.shape[1], self.work.kept
        if self.work.is_plain and (self.ensemble_size is None or self.ensemble_size >= n):
            at_once = self._at_once(z, first)
            if at_once is not None:
                return at_once
        self._shares = np.zeros(n)
        values, failed, pending = None, np.zeros(n, bool), np.arange(n)
        ids = pending
        if kept is not None:
            ids = kept.ids(stream or 0, pending + (self._next if stream is None else first))
            values, failed, pending = self._repeated(kept, ids, z)
        self._next += n
        if pending.size:
            values = self._run(z, first, ids, pending, values, failed)
        if values is None:
            if self.n_values is None:
                raise AlgorithmError(f"{self.work.function}: every sample of the first call failed: {self.reason}")
            values = np.full((self.n_values, n), np.nan)
        good = int(n - np.count_nonzero(failed))
        self.seconds = float(self._shares[~failed].sum()) * n / good if good else 0.0
        self.work.count(pending.size, n - pending.size)
        self.n_evaluations += n
        self.n_failed += int(np.count_nonzero(failed))
        return values, failed

    def _at_once(self, z: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray] | None:
        """One call of the model, where nothing is kept and no time is set; None where it raises.

        Likelihoods of microseconds are called so: all that further groups need takes longer.
        """
        n = z.shape[1]
        ids = np.arange(first, first + n)
        samples = NormalSamples(z, ids) if self.plain else self.inputs.from_normal(z.T, ids)
        outcome = evaluate(self._called, samples, "mask")
        if not outcome.outputs:
            return None
        if outcome.reasons and not self.reason:
            self.reason = outcome.reasons[min(outcome.reasons)]
        values = self._values(outcome)
        failed = self._failures(outcome, values)
        self.seconds = outcome.seconds
        self.n_evaluations += n
        self.n_failed += int(np.count_nonzero(failed))
        return values, failed

    def _repeated(self, kept: Any, ids: np.ndarray, z: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """What the store has of some evaluations: values, failures, and the places of those that it has not."""
        known, failed = kept.has(ids), np.zeros(ids.size, bool)
        places = np.flatnonzero(known)
        if not places.size:
            return None, failed, np.arange(ids.size)
        found, failed[places], self._shares[places] = kept.read(ids[places], z[:, places])
        if failed.any() and not self.reason:
            self.reason = kept.reasons.get(int(ids[np.argmax(failed)]), "")
        if kept.shape is None:
            return None, failed, np.flatnonzero(~known)
        self.shape, values = kept.shape, np.full((math.prod(kept.shape), ids.size), np.nan)
        self.n_values = len(values)
        values[:, places] = found.reshape(len(values), -1)
        return values, failed, np.flatnonzero(~known)

    def _run(
        self, z: np.ndarray, first: int, ids: np.ndarray, pending: np.ndarray, values: np.ndarray | None,
        failed: np.ndarray,
    ) -> np.ndarray | None:  # fmt: skip
        """Run the model at some places; `failed` is filled in, `values` too where there are some."""
        size = self.ensemble_size or -(-pending.size // self.work.n_parallel)
        groups = []
        for start in range(0, pending.size, size):
            places = pending[start : start + size]
            own = z if places.size == z.shape[1] else z[:, places]
            samples = (
                NormalSamples(own, places + first) if self.plain else self.inputs.from_normal(own.T, places + first)
            )
            groups.append(Group(places, samples))
        without: list[tuple[Group, Outcome]] = []
        kept = self.work.kept
        for group, outcome in self.work.run(self._called, groups, self.number):
            places = group.ids
            if outcome.reasons and not self.reason:
                self.reason = outcome.reasons[min(outcome.reasons)]
            self._shares[places] = outcome.seconds / places.size
            if not outcome.outputs:
                failed[places] = True
                without.append((group, outcome))
                continue
            found = self._values(outcome)
            failed[places] = bad = self._failures(outcome, found)
            if kept is not None:
                reasons = {place: text for place, text in outcome.reasons.items() if bad[place]}
                told = replace(outcome, failed=bad, reasons=reasons)
                kept.add(ids[places], told, found.reshape(*self.shape, -1), z[:, places])
            if values is None and places.size == z.shape[1]:
                values = found
                continue
            values = np.full((len(found), z.shape[1]), np.nan) if values is None else values
            values[:, places] = found
        for group, outcome in without:
            if kept is None:
                break
            blank = None if self.n_values is None else np.full((*self.shape, group.n_samples), np.nan)
            kept.add(ids[group.ids], outcome, blank, z[:, group.ids])
        return values

    def _failures(self, outcome: Outcome, values: np.ndarray) -> np.ndarray:
        """Which samples failed; infinite values may be values."""
        failed = outcome.failed
        if self.infinite and outcome.non_finite:
            failed = failed.copy()
            failed[[place for place in outcome.non_finite if not np.isnan(values[:, place]).any()]] = False
        return failed

    def _values(self, outcome: Outcome) -> np.ndarray:
        """The output of a call as float64, shape (m, n_samples)."""
        outputs, function = outcome.outputs, self.work.function
        name = next(iter(outputs)) if self.output is None and len(outputs) == 1 else self.output
        if name not in outputs:
            seen, advice = f"{name!r} of {', '.join(outputs)}", "Name it by output=..."
            raise ValueError(message(function, "output", "be one of the model's outputs", seen, advice))
        values = outputs[str(name)]
        if values.dtype.kind == "c":
            raise TypeError(message(function, self.name, "return real numbers", f"dtype {values.dtype}"))
        shape = values.shape[:-1]
        values = values.reshape(-1, values.shape[-1]).astype(np.float64, copy=False)
        same = self.n_values in (None, len(values))
        require(same, function, self.name, f"return {self.n_values} numbers per sample as before", len(values))
        self.n_values, self.shape = len(values), shape
        return values
