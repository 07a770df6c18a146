"""Groups of samples that need about the same number of iterations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import array_of, integer, message, one_of, real_array, require
from ensemble._kernels.sparse.row_sums import SERIAL, Space
from ensemble._keywords import explains_calls
from ensemble.linalg.operators import as_real, samples_of
from ensemble.scalar import Ensemble


@dataclass(frozen=True)
class SampleGroups(Sequence[np.ndarray]):
    """Groups of sample numbers, made by `group_samples`; a sequence of them.

    Attributes
    ----------
    samples : tuple of arrays of int, shape (group size,)
        The samples of each group.
    weights : tuple of arrays, shape (group size,)
        1 for a sample, 0 for a repetition that only fills a group up. Goes into `SampleSet(weights=)` as it is.
    """

    samples: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]

    def __getitem__(self, k: Any) -> Any:
        return self.samples[k]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.samples)

    @property
    def n_samples(self) -> int:
        """Samples in all groups, repetitions not counted."""
        return int(sum(np.count_nonzero(w) for w in self.weights))

    def restore(self, values: Sequence[Any]) -> np.ndarray:
        """Results of the groups in the samples' own order.

        Parameters
        ----------
        values : sequence of Ensemble of shape (...,), or of array of shape (..., group size)
            One for each group.

        Returns
        -------
        array, shape (..., n_samples)
        """
        wanted = f"be {len(self)}, one per group"
        require(len(values) == len(self), "SampleGroups.restore", "values", wanted, len(values))
        arrays = [to_numpy(v.samples if isinstance(v, Ensemble) else np.asarray(v)) for v in values]
        for array, group in zip(arrays, self.samples, strict=True):
            seen = array.shape[-1] if array.ndim else "a number"
            require(seen == group.size, "SampleGroups.restore", "values", f"have {group.size} samples in a group", seen)
        result = np.empty((*arrays[0].shape[:-1], self.n_samples), np.result_type(*arrays))
        for array, group, weight in zip(arrays, self.samples, self.weights, strict=True):
            result[..., group[weight > 0]] = array[..., weight > 0]
        return result

    def efficiency(self, sample_iterations: Any, ensemble_iterations: Any = None) -> float:
        """R: iterations that the groups carry all their samples through, over those the samples need [1]_.

        1 is perfect. What lies above is work on samples that were finished, saved again only where compaction takes
        them out.

        Parameters
        ----------
        sample_iterations : array, shape (n_samples,)
            Of each sample on its own.
        ensemble_iterations : array, shape (n_groups,), optional
            Of each group; by default its slowest sample's, which is what uncoupled samples in lock-step need.

        References
        ----------
        .. [1] D'Elia, Edwards, Hu, Phipps, Rajamanickam (2018), SIAM/ASA J. Uncertain. Quantif. 6, 87-117.
        """
        name = "SampleGroups.efficiency"
        alone = real_array(sample_iterations, name, "sample_iterations", "be real numbers")
        require(
            alone.shape == (self.n_samples,), name, "sample_iterations", f"have shape ({self.n_samples},)", alone.shape
        )
        if ensemble_iterations is None:
            ensemble_iterations = [alone[group].max() for group in self.samples]
        iterations = real_array(ensemble_iterations, name, "ensemble_iterations", "be real numbers")
        require(
            iterations.shape == (len(self),),
            name,
            "ensemble_iterations",
            f"have shape ({len(self)},)",
            iterations.shape,
        )
        return float(sum(t * group.size for t, group in zip(iterations, self.samples, strict=True)) / alone.sum())


@explains_calls("group_samples")
def group_samples(key: Any, ensemble_size: int, *, last: str = "short") -> SampleGroups:
    """Divide samples into ensembles, similar values of `key` in one group.

    Uncoupled samples in lock-step run as long as their slowest one, coupled ones as long as the union of their spectra
    requires: both are cheapest among their like [1]_, [2]_.

    Parameters
    ----------
    key : int, or array or Ensemble of one number per sample
        The same on every rank, to the bit, where samples lie over ranks.
        What the work of a sample grows with: `anisotropy`, or iterations predicted by `predict_iterations`. A plain int
        is the number of samples, in their natural order. Samples whose key is NaN come last, equal ones stay in order.
    ensemble_size : int, at least 1
        Samples in a group.
    last : {"short", "repeat"}
        The last group is shorter, or filled up by repeating its last sample with weight 0, for programs that want all
        ensembles of one size.

    Returns
    -------
    SampleGroups
        A sequence of arrays of sample numbers, with their weights.

    Raises
    ------
    ValueError
        If there is no sample, or `key` has more than one number per sample.

    References
    ----------
    .. [1] D'Elia, Edwards, Hu, Phipps, Rajamanickam (2018), SIAM/ASA J. Uncertain. Quantif. 6, 87-117.
    .. [2] D'Elia, Phipps, Rushdi, Ebeida (2020), in: Quantification of Uncertainty, Springer LNCSE 137.

    Examples
    --------
    >>> import numpy as np
    >>> [group.tolist() for group in group_samples(np.array([5.0, 40.0, 6.0, 35.0, 7.0]), 2)]
    [[0, 2], [4, 3], [1]]
    """
    integer(ensemble_size, "group_samples", "ensemble_size", minimum=1)
    one_of(last, ("short", "repeat"), "group_samples", "last")
    if not isinstance(key, Ensemble | list | tuple) and np.ndim(key) == 0:
        order = np.arange(integer(key, "group_samples", "key", minimum=1))
    else:
        values = to_numpy(key.samples) if isinstance(key, Ensemble) else key
        values = array_of(values, "group_samples", "key", "be one number per sample")
        if values.dtype.kind not in "biufc":
            raise TypeError(message("group_samples", "key", "be one number per sample", f"dtype {values.dtype}"))
        require(values.ndim == 1, "group_samples", "key", "be one number per sample", f"shape {values.shape}")
        require(values.size > 0, "group_samples", "key", "name one sample or more", "none")
        order = np.argsort(values, kind="stable")
    groups = [order[k : k + ensemble_size] for k in range(0, order.size, ensemble_size)]
    weights = [np.ones(group.size) for group in groups]
    missing = ensemble_size - groups[-1].size
    if last == "repeat" and missing:
        groups[-1] = np.concatenate([groups[-1], np.full(missing, groups[-1][-1])])
        weights[-1] = np.concatenate([weights[-1], np.zeros(missing)])
    return SampleGroups(tuple(groups), tuple(weights))


def anisotropy(coefficients: Any, *, space: Space = SERIAL) -> np.ndarray:
    """Compute ``max(k_max, 1 / k_min)`` of each sample's coefficients: how far they are from 1, either way [1]_.

    Parameters
    ----------
    coefficients : Ensemble of shape (...,), or array of shape (..., n_samples)
        Diffusivities over points and directions, above zero, in units of the one in which they are isotropic.
    space : Space, optional
        ``A.space`` of a matrix over ranks, where each rank has the coefficients of its own points.

    Returns
    -------
    array, shape (n_samples,)

    References
    ----------
    .. [1] D'Elia, Edwards, Hu, Phipps, Rajamanickam (2018), SIAM/ASA J. Uncertain. Quantif. 6, 87-117.

    Examples
    --------
    >>> import numpy as np
    >>> anisotropy(Ensemble(np.array([[1.0, 2.0, 0.1], [1.0, 3.0, 1.0]])))
    array([ 1.,  3., 10.])
    """
    values = to_numpy(samples_of(coefficients)) if isinstance(coefficients, Ensemble) else coefficients
    values = real_array(values, "anisotropy", "coefficients", "be real numbers")
    require(
        values.ndim >= 2, "anisotropy", "coefficients", "have a sample axis after their own", f"shape {values.shape}"
    )
    values = as_real(values.reshape(-1, values.shape[-1]))
    least = space.smallest(np.fmin.reduce(values, axis=0, initial=np.inf))
    require(not np.any(least <= 0.0), "anisotropy", "coefficients", "be above zero", f"{least.min():.4g}")
    largest, least = (find(axis=0, initial=first) for find, first in ((values.max, 0.0), (values.min, np.inf)))
    ratio: np.ndarray = np.maximum(space.largest(largest), 1.0 / space.smallest(least))
    return ratio


@explains_calls("predict_iterations")
def predict_iterations(
    points: Any, known_points: Any, known_iterations: Any, *, method: str = "quadratic"
) -> np.ndarray:
    """Predict iteration counts of samples from those of samples already run.

    Parameters
    ----------
    points : Ensemble of shape (n_inputs,), or array of shape (n_inputs, n_samples)
    known_points : the same, of the samples already run
    known_iterations : array, shape (n_known,)
    method : {"quadratic", "nearest"}
        "quadratic": a polynomial of degree 2 in the inputs, fitted to the logarithms of the counts by least squares
        (degree 1, then the mean, where too few are known). "nearest": the count of the nearest known sample.

    Returns
    -------
    array, shape (n_samples,)

    Examples
    --------
    >>> import numpy as np
    >>> known = np.linspace(-1.0, 1.0, 9)[None, :]
    >>> predict_iterations(np.array([[0.5]]), known, 10.0 * np.exp(known[0] ** 2)).round(6)
    array([12.840254])
    """
    one_of(method, ("quadratic", "nearest"), "predict_iterations", "method")
    name, wanted = "predict_iterations", "be real numbers, shape (n_inputs, n_samples)"
    new, known = (
        real_array(to_numpy(p.samples) if isinstance(p, Ensemble) else p, name, argument, wanted)
        for argument, p in (("points", points), ("known_points", known_points))
    )
    counts = real_array(known_iterations, name, "known_iterations", "be real numbers")
    for name, array in (("points", new), ("known_points", known)):
        require(array.ndim == 2, "predict_iterations", name, "have shape (n_inputs, n_samples)", f"shape {array.shape}")
    require(
        new.shape[0] == known.shape[0], "predict_iterations", "points", f"have {known.shape[0]} inputs", new.shape[0]
    )
    require(
        counts.shape == (known.shape[1],) and counts.size > 0,
        "predict_iterations", "known_iterations", f"have shape ({known.shape[1]},) and one count or more", counts.shape,
    )  # fmt: skip
    centre, spread = known.mean(axis=1, keepdims=True), known.std(axis=1, keepdims=True)
    spread[spread == 0.0] = 1.0
    new, known = (new - centre) / spread, (known - centre) / spread
    if method == "nearest":
        return counts[[int(np.argmin(np.sum((known - new[:, s : s + 1]) ** 2, axis=0))) for s in range(new.shape[1])]]
    degree = next(d for d in (2, 1, 0) if _monomials(known[:, :1], d).shape[0] <= max(counts.size // 2, 1))
    fit = np.linalg.lstsq(_monomials(known, degree).T, np.log(np.maximum(counts, 1.0)), rcond=1e-8)[0]
    predicted: np.ndarray = np.exp(fit @ _monomials(new, degree))
    return predicted


def _monomials(points: np.ndarray, degree: int) -> np.ndarray:
    """All products of up to `degree` (2 at most) inputs, shape (n_monomials, n_samples)."""
    rows = [np.ones(points.shape[1])]
    if degree >= 1:
        rows.extend(points)
    if degree == 2:
        n = points.shape[0]
        rows.extend(points[i] * points[j] for i in range(n) for j in range(i, n))
    return np.stack(rows)
