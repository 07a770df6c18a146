"""Model runs of an algorithm: standard-normal points in, values and failed samples out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import integer, message, require
from ensemble.scalar import Ensemble

__all__ = ["Evaluations", "normal_points", "random_generator", "seed_or_entropy"]

BLOCK = 256
"""Samples that one generator draws: sample i has the same numbers whatever is drawn before it."""


def seed_or_entropy(seed: Any, function: str) -> int:
    """`seed`, or a number from the operating system, which a result keeps so that it can be repeated."""
    return int(np.random.SeedSequence().entropy) if seed is None else integer(seed, function, "seed", minimum=0)  # type: ignore[arg-type]


def random_generator(seed: int, *stream: int) -> np.random.Generator:
    """The generator of one numbered stream of `seed`."""
    return np.random.default_rng([seed, *stream])


def normal_points(seed: int, stream: int, first: int, n_samples: int, n_germs: int) -> np.ndarray:
    """Independent standard normals of samples `first`, ... of a stream, shape (n_germs, n_samples)."""
    blocks = range(first // BLOCK, -(-(first + n_samples) // BLOCK))
    rows = [random_generator(seed, stream, block).standard_normal((BLOCK, n_germs)) for block in blocks]
    start = first - blocks.start * BLOCK
    return np.ascontiguousarray(np.concatenate(rows)[start : start + n_samples].T)


class Evaluations:
    """A model called on ensembles of standard-normal points; what it costs is counted.

    Parameters
    ----------
    model : callable
        Of one argument: `InputSamples`, or an Ensemble of shape (n_germs,) where `inputs` is an integer.
    inputs : Inputs or int
        An integer stands for that many independent standard-normal inputs.
    function : str
        Whose arguments these are, for messages.
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
        *,
        output: str | None = None,
        ensemble_size: int | None = None,
        infinite: bool = False,
    ) -> None:
        if not callable(model):
            raise TypeError(message(function, "model", "be callable with one argument", f"a {type(model).__name__}"))
        self.plain = not hasattr(inputs, "from_normal")
        advice = "An integer n stands for n independent standard normals."
        count = inputs if self.plain else inputs.n_germs
        self.n_germs = integer(count, function, "inputs", minimum=1, advice=advice)
        self.model, self.inputs, self.function, self.output = model, inputs, function, output
        self.ensemble_size = None if ensemble_size is None else integer(ensemble_size, function, "ensemble_size", minimum=1)
        self.infinite = infinite
        self.n_evaluations = self.n_failed = 0
        self.seconds = 0.0
        self.reason = ""

    def argument(self, z: np.ndarray) -> Any:
        """What the model takes, of points of shape (n_germs, n_samples)."""
        return Ensemble(z) if self.plain else self.inputs.from_normal(np.ascontiguousarray(z.T))

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values of shape (m, n_samples), entries in C order, and which samples failed, shape (n_samples,)."""
        start = time.perf_counter()
        size = self.ensemble_size or z.shape[1]
        groups = [self._group(z[:, i : i + size]) for i in range(0, z.shape[1], size)]
        values, failed = groups[0] if len(groups) == 1 else (np.concatenate(v, axis=-1) for v in zip(*groups))
        self.n_evaluations += z.shape[1]
        self.n_failed += int(np.count_nonzero(failed))
        self.seconds += time.perf_counter() - start
        return values, failed

    def _group(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One call; where it raises, one call per sample."""
        x = self.argument(z)
        try:
            returned = self.model(x)
        except Exception as error:
            if z.shape[1] == 1:
                raise
            return self._one_by_one(z, error)
        values = self._values(returned, z.shape[1])
        bad = np.isnan(values) if self.infinite else ~np.isfinite(values)
        failed = bad.any(axis=0)
        reported = getattr(x, "failures", None)
        if reported:
            failed[list(reported)] = True
            self.reason = self.reason or str(next(iter(reported.values())))
        return values, failed

    def _one_by_one(self, z: np.ndarray, error: Exception) -> tuple[np.ndarray, np.ndarray]:
        """Samples on their own, after an ensemble of them raised `error`."""
        columns: list[Any] = []
        for i in range(z.shape[1]):
            try:
                columns.append(self._group(z[:, i : i + 1]))
            except Exception as own:
                columns.append(own)
        good = [column for column in columns if not isinstance(column, Exception)]
        if not good:
            raise error
        self.reason = self.reason or f"{type(error).__name__}: {error}"
        nothing = np.full_like(good[0][0], np.nan), np.ones(1, bool)
        pairs = [nothing if isinstance(column, Exception) else column for column in columns]
        return np.concatenate([p[0] for p in pairs], axis=1), np.concatenate([p[1] for p in pairs])

    def _values(self, returned: Any, n_samples: int) -> np.ndarray:
        """The output of a call as float64, shape (m, n_samples)."""
        if isinstance(returned, dict):
            name = next(iter(returned)) if self.output is None and len(returned) == 1 else self.output
            seen = ", ".join(map(repr, returned)) or "none"
            require(name in returned, self.function, "output", "name one of the model's outputs", f"{name!r} of {seen}")
            returned = returned[name]
        if not isinstance(returned, Ensemble):
            seen = f"a {type(returned).__name__}"
            raise TypeError(message(self.function, "model", "return an Ensemble or a dict of them", seen))
        samples = to_numpy(returned.samples)
        if samples.dtype.kind not in "fiub":
            raise TypeError(message(self.function, "model", "return real numbers", f"dtype {samples.dtype}"))
        fits = samples.shape[-1] in (1, n_samples)
        require(fits, self.function, "model", f"return {n_samples} samples, or 1", samples.shape[-1])
        values = samples.reshape(-1, samples.shape[-1]).astype(np.float64, copy=False)
        return values if values.shape[1] == n_samples else np.repeat(values, n_samples, axis=1)
