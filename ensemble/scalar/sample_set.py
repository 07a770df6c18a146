"""`SampleSet`: which samples an ensemble holds, and the weight of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ensemble._check import array_of, integer, message, places_of, random_generator, real_array, require
from ensemble._typing import Ids

__all__ = ["SampleSet", "common_set"]


def _frozen(values: Any) -> np.ndarray:
    array = np.array(values)
    array.flags.writeable = False
    return array


class SampleSet:
    """The points at which a model is sampled, and their weights; shared by every ensemble evaluated on them.

    Parameters
    ----------
    points : array, shape (n_inputs, n_samples), optional
        Input values, one column per sample.
    weights : array, shape (n_samples,), optional
        Zero or above; only ratios count. A weight of 0 marks padding, which changes no statistic.
        Default: all equal.
    ids : array of integers, shape (n_samples,), optional
        Permanent numbers of the samples. Default: 0, 1, 2, ...
    method : str
        How the points were drawn, say "sobol".
    seed : int, optional
        The seed of that draw.
    n_samples : int, optional
        Needed only where no array determines it.

    Raises
    ------
    ValueError
        If the lengths differ, or the weights are negative, not finite or all zero.

    Examples
    --------
    >>> samples = SampleSet(weights=[1.0, 1.0, 2.0, 0.0], method="padded")
    >>> samples
    SampleSet(n_samples=4, method='padded', weighted)
    """

    __slots__ = ("__dict__", "__weakref__", "ids", "method", "n_samples", "points", "seed", "weights")

    points: np.ndarray | None
    weights: np.ndarray | None
    ids: np.ndarray
    method: str
    seed: int | None
    n_samples: int

    def __init__(
        self,
        points: Any = None,
        weights: Any = None,
        ids: Ids | None = None,
        method: str = "",
        seed: int | None = None,
        *,
        n_samples: int | None = None,
    ) -> None:
        points = None if points is None else array_of(points, "SampleSet", "points", "have shape (n_inputs, n_samples)")
        weights = None if weights is None else real_array(weights, "SampleSet", "weights", "be real numbers")
        ids = None if ids is None else array_of(ids, "SampleSet", "ids", "be a vector of integers")
        if ids is not None and ids.size and ids.dtype.kind not in "iu":
            raise TypeError(message("SampleSet", "ids", "be a vector of integers", f"dtype {ids.dtype}"))
        lengths = {
            name: value.shape[-1]
            for name, value in (("points", points), ("weights", weights), ("ids", ids))
            if value is not None and value.ndim
        }
        if n_samples is not None:
            lengths["n_samples"] = integer(n_samples, "SampleSet", "n_samples", minimum=1)
        require(
            len(set(lengths.values())) == 1, "SampleSet", "points, weights, ids", "have one length", lengths or "none"
        )
        count = next(iter(lengths.values()))
        require(count > 0, "SampleSet", "n_samples", "be 1 or more", count)
        vectors: dict[str, Any] = {"weights": weights, "ids": ids}
        for name, value in vectors.items():
            seen = f"shape {np.shape(value)}"
            require(value is None or np.ndim(value) == 1, "SampleSet", name, "be a vector", seen)
        fill = object.__setattr__
        fill(self, "n_samples", count)
        fill(self, "points", None if points is None else _frozen(points))
        fill(self, "ids", _frozen(np.arange(count) if ids is None else ids))
        fill(self, "method", method)
        fill(self, "seed", seed)
        if weights is not None:
            weights = _frozen(weights)
            valid = bool(np.all(np.isfinite(weights)) and np.all(weights >= 0.0) and np.any(weights > 0.0))
            require(valid, "SampleSet", "weights", "be finite, zero or above, and not all zero", weights)
        fill(self, "weights", weights)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"SampleSet: {name} must stay as it is; got an assignment. Build a new SampleSet.")

    @property
    def _digest(self) -> bytes:
        """What equal sets have in common, worked out once; without a lock, at which comparing threads would wait."""
        found: bytes | None = vars(self).get("_known_digest")
        if found is None:
            found = vars(self)["_known_digest"] = self._hashed()
        return found

    def _hashed(self) -> bytes:
        digest = hashlib.blake2b(repr((self.n_samples, self.method, self.seed)).encode(), digest_size=16)
        for array in (self.points, self.weights, self.ids):
            if array is not None:
                digest.update(str((array.dtype, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
            digest.update(b"|")
        return digest.digest()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SampleSet) and self._digest == other._digest)

    def __hash__(self) -> int:
        return hash(self._digest)

    def __len__(self) -> int:
        return self.n_samples

    def __reduce__(self) -> tuple[object, ...]:
        return SampleSet, (self.points, self.weights, self.ids, self.method, self.seed)

    def __repr__(self) -> str:
        parts = [f"n_samples={self.n_samples}"]
        parts += [f"method={self.method!r}"] if self.method else []
        parts += [f"seed={self.seed}"] if self.seed is not None else []
        parts += ["weighted"] if self.weights is not None else []
        return f"SampleSet({', '.join(parts)})"

    @classmethod
    def monte_carlo(cls, n_samples: int, n_inputs: int, *, seed: int | None = None) -> SampleSet:
        """Independent points, uniform in the unit cube.

        Parameters
        ----------
        n_samples, n_inputs : int, at least 1
        seed : int, optional
            Equal seeds give equal points.

        Returns
        -------
        SampleSet
            Its `points` have shape ``(n_inputs, n_samples)``, each in [0, 1), dimensionless; a distribution's inverse
            (SciPy's ``ppf``) maps them to inputs.

        Raises
        ------
        ValueError, TypeError
            If a number is below 1 or no integer.

        Examples
        --------
        >>> SampleSet.monte_carlo(100, 2, seed=5)
        SampleSet(n_samples=100, method='monte_carlo', seed=5)
        """
        n_samples = integer(n_samples, "SampleSet.monte_carlo", "n_samples", minimum=1)
        n_inputs = integer(n_inputs, "SampleSet.monte_carlo", "n_inputs", minimum=1)
        # One row a sample, so that more samples of one seed begin with the same points.
        points = random_generator(seed, "SampleSet.monte_carlo").random((n_samples, n_inputs)).T
        return cls(points, method="monte_carlo", seed=seed)

    @classmethod
    def sobol(cls, n_samples: int, n_inputs: int, *, seed: int | None = None) -> SampleSet:
        """The first points of a scrambled Sobol sequence [1]_ in the unit cube.

        Parameters
        ----------
        n_samples, n_inputs : int, at least 1
            The points are balanced where `n_samples` is a power of two.
        seed : int, optional
            Seed of the scrambling; equal seeds give equal points.

        Returns
        -------
        SampleSet
            As of `monte_carlo`.

        Raises
        ------
        ValueError, TypeError
            If a number is below 1 or no integer.

        References
        ----------
        .. [1] Owen (1998), Journal of Complexity 14(4), 466-489: scrambling; the sequence is `scipy.stats.qmc.Sobol`.

        Examples
        --------
        >>> SampleSet.sobol(4, 1, seed=3).points.round(2).shape
        (1, 4)
        """
        from scipy.stats import qmc

        n_samples = integer(n_samples, "SampleSet.sobol", "n_samples", minimum=1)
        n_inputs = integer(n_inputs, "SampleSet.sobol", "n_inputs", minimum=1)
        # A whole power of two is drawn and cut, as SciPy warns of any other count.
        engine = qmc.Sobol(n_inputs, rng=random_generator(seed, "SampleSet.sobol"))
        points = engine.random_base2((n_samples - 1).bit_length())
        return cls(points[:n_samples].T, method="sobol", seed=seed)

    def groups(self, ensemble_size: int) -> Iterator[SampleSet]:
        """The samples cut into sets of equal size; the last is filled up with copies of its last sample.

        Parameters
        ----------
        ensemble_size : int, at least 1

        Yields
        ------
        SampleSet
            With `ensemble_size` samples. Copies have the id of their sample and weight 0, which changes no
            statistic. A group whose weights are all 0 is left out.

        Raises
        ------
        ValueError, TypeError
            If `ensemble_size` is below 1 or no integer.

        Notes
        -----
        An ensemble of one sample is shared data and carries no set: with ``ensemble_size=1``, hand the weights to
        `Moments.update` yourself.

        Examples
        --------
        >>> [(group.ids, group.weights) for group in SampleSet(n_samples=5).groups(3)]
        [(array([0, 1, 2]), None), (array([3, 4, 4]), array([1., 1., 0.]))]
        """
        size = integer(ensemble_size, "SampleSet.groups", "ensemble_size", minimum=1)
        for first in range(0, self.n_samples, size):
            places = np.arange(first, first + size)
            padding = places >= self.n_samples
            places = np.minimum(places, self.n_samples - 1)
            weights = None if self.weights is None else self.weights[places]
            if np.any(padding):
                weights = np.where(padding, 0.0, 1.0 if weights is None else weights)
            if weights is not None and not np.any(weights > 0.0):
                continue  # nothing but padding, which no statistic counts
            points = None if self.points is None else self.points[..., places]
            yield SampleSet(points, weights, self.ids[places], self.method, self.seed)

    def take(self, indices: Sequence[int] | np.ndarray) -> SampleSet:
        """The set of the samples at `indices`, in that order; ids and weights go along.

        Examples
        --------
        >>> SampleSet(ids=[10, 11, 12]).take([2, 0]).ids
        array([12, 10])
        """
        chosen = places_of(indices, self.n_samples, "SampleSet.take", "indices", bools=True)
        weights = None if self.weights is None else self.weights[chosen]
        if weights is not None and not np.any(weights > 0.0):
            weights = np.ones_like(weights)  # only padding was taken: its members are identical
        points = None if self.points is None else self.points[..., chosen]
        return SampleSet(points, weights, self.ids[chosen], self.method, self.seed)


def common_set(a: SampleSet | None, b: SampleSet | None) -> SampleSet | None:
    """The one sample set of two operands; ensembles without a set mix freely."""
    if a is b or b is None:
        return a
    if a is None or a == b:
        return b
    raise ValueError(
        message(
            "Ensemble",
            "operands",
            "share one sample set",
            f"{a!r} and {b!r}",
            "Evaluate both on one SampleSet, or drop a set with Ensemble(x.samples).",
        )
    )
