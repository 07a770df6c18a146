"""Model runs of an algorithm: standard-normal points in, values and failed samples out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

from ensemble._check import integer, kind_of, message, require
from ensemble.scalar import Ensemble
from ensemble.uq.algorithms.result import AlgorithmError
from ensemble.uq.samplers.monte_carlo import MonteCarlo
from ensemble.uq.study.evaluation import evaluate
from ensemble.uq.study.outputs import Outcome

__all__ = ["Evaluations", "normal_points", "random_generator", "seed_or_entropy"]

SMALLEST = 2.0**-54
"""Half of the distance between numbers that the generator of uniform numbers gives: it may give 0."""


def seed_or_entropy(seed: Any, function: str) -> int:
    """`seed`, or a number from the operating system, which a result keeps so that it can be repeated."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    return integer(seed, function, "seed", minimum=0)


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


class Evaluations:
    """A model called on ensembles of standard-normal points; what it costs is counted.

    Parameters
    ----------
    model : callable
        A function of one argument: `InputSamples`, or an Ensemble of shape (n_germs,) where `inputs` is an integer.
    inputs : Inputs or int
        An integer stands for that many independent standard-normal inputs.
    function : str
        Whose arguments these are, for messages.
    argument : str
        What that function calls the model.
    output : str, optional
        Which entry of a dictionary that the model returns.
    ensemble_size : int, optional
        Samples per call; by default all at once.
    infinite : bool
        Whether an infinite value is a value; NaN never is.
    """

    def __init__(
        self,
        model: Callable[[Any], Any],
        inputs: Any,
        function: str,
        argument: str = "model",
        *,
        output: str | None = None,
        ensemble_size: int | None = None,
        infinite: bool = False,
    ) -> None:
        if not callable(model):
            raise TypeError(message(function, argument, "be callable with one argument", kind_of(model)))
        self.plain = not hasattr(inputs, "from_normal")
        advice = "Give en.Inputs, or an integer n for n independent standard normals."
        count = inputs if self.plain else inputs.n_germs
        self.n_germs = integer(count, function, "inputs", minimum=1, advice=advice)
        size = ensemble_size if ensemble_size is None else integer(ensemble_size, function, "ensemble_size", minimum=1)
        self.model, self.inputs, self.function, self.name = model, inputs, function, argument
        self._called = (lambda x: model(Ensemble(x.z))) if self.plain else model
        self.output, self.ensemble_size, self.infinite = output, size, infinite
        self.n_evaluations = self.n_failed = 0
        self.n_values: int | None = None
        self.shape: tuple[int, ...] = ()
        self.reason = ""

    def argument(self, z: np.ndarray, ids: np.ndarray | None = None) -> Any:
        """What the model takes, of points of shape (n_germs, n_samples)."""
        return Ensemble(z) if self.plain else self.inputs.from_normal(z.T, ids)

    def __call__(self, z: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Values of shape (m, n_samples), entries in C order, and which samples failed, shape (n_samples,).

        `first` is the permanent number of the first sample.
        """
        n_samples = z.shape[1]
        size = self.ensemble_size or n_samples
        if size >= n_samples:
            values, failed = self._group(z, np.arange(first, first + n_samples))
        else:
            starts = range(0, n_samples, size)
            groups = [
                self._group(z[:, i : i + size], np.arange(first + i, first + min(i + size, n_samples))) for i in starts
            ]
            values, failed = (np.concatenate(v, axis=-1) for v in zip(*groups))
        self.n_evaluations += n_samples
        self.n_failed += int(np.count_nonzero(failed))
        return values, failed

    def _group(self, z: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One call of the model; where it raises, one call per sample."""
        samples = NormalSamples(z, ids) if self.plain else self.inputs.from_normal(z.T, ids)
        outcome = evaluate(self._called, samples, "mask")
        if not outcome.outputs and z.shape[1] > 1:
            outcome = evaluate(self._called, samples, "retry")
        if outcome.reasons and not self.reason:
            self.reason = outcome.reasons[min(outcome.reasons)]
        if not outcome.outputs:
            if self.n_values is None:
                raise AlgorithmError(f"{self.function}: every sample of the first call failed: {self.reason}")
            return np.full((self.n_values, z.shape[1]), np.nan), np.ones(z.shape[1], bool)
        values = self._values(outcome)
        failed = outcome.failed
        if self.infinite and outcome.non_finite:
            failed = failed.copy()
            failed[[place for place in outcome.non_finite if not np.isnan(values[:, place]).any()]] = False
        return values, failed

    def _values(self, outcome: Outcome) -> np.ndarray:
        """The output of a call as float64, shape (m, n_samples)."""
        outputs = outcome.outputs
        name = next(iter(outputs)) if self.output is None and len(outputs) == 1 else self.output
        if name not in outputs:
            seen, advice = f"{name!r} of {', '.join(outputs)}", "Name it by output=..."
            raise ValueError(message(self.function, "output", "be one of the model's outputs", seen, advice))
        values = outputs[str(name)]
        if values.dtype.kind == "c":
            raise TypeError(message(self.function, self.name, "return real numbers", f"dtype {values.dtype}"))
        shape = values.shape[:-1]
        values = values.reshape(-1, values.shape[-1]).astype(np.float64, copy=False)
        same = self.n_values in (None, len(values))
        require(same, self.function, self.name, f"return {self.n_values} numbers per sample as before", len(values))
        self.n_values, self.shape = len(values), shape
        return values
