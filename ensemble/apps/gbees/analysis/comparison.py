"""Distances between two distributions, and between a distribution and random samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ensemble import _check
from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._typing import Array, DType
from ensemble.apps.gbees.analysis.distribution import positions, weights
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.frames import cell_of, collected, keys_of, shift_between, spans, transferred
from ensemble.scalar import Ensemble

__all__ = ["Comparison", "bhattacharyya", "binned", "compare", "kernel_density", "l1_distance"]

PAIRS_AT_ONCE = {"host": 2**17, "device": 2**27}
"""Kernel values in one block: cache size on the CPU, occupancy on a device."""


@dataclass(frozen=True)
class Comparison:
    """Overlap and distance of two distributions.

    Attributes
    ----------
    bhattacharyya : float
        Sum over cells of sqrt(p q): 1 for equal distributions, 0 where they share no cell.
    l1 : float
        Sum over cells of ``|p - q|``, between 0 and 2.
    shared, only_first, only_second : int
        Cells with probability in both, and in one alone.
    """

    bhattacharyya: float
    l1: float
    shared: int
    only_first: int
    only_second: int


def compare(a: Cells, b: Cells, *, widths: Array = None) -> Comparison:
    """Compare two distributions cell by cell; each is divided by its sum first.

    Cells are compared as they are where both grids have the same cells. Otherwise, or where `widths` are given, both
    are transferred to one unrotated grid first, with the origin of `a`.

    Parameters
    ----------
    a, b : Cells
        In the same array library.
    widths : float or array, shape (n,), optional
        Cells to compare on; by default, where the grids differ, the larger of both widths on each axis.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If the distributions have different numbers of dimensions, or one has no probability.

    Examples
    --------
    >>> widths, origin = np.array([0.5]), np.zeros(1)
    >>> a = Cells(np.array([[0], [1]]), np.array([0.5, 0.5]), origin, widths)
    >>> b = Cells(np.array([[1], [2]]), np.array([0.5, 0.5]), origin, widths)
    >>> compare(a, b)
    Comparison(bhattacharyya=0.5, l1=1.0, shared=1, only_first=1, only_second=1)
    """
    n, other = len(a.widths), len(b.widths)
    _check.require(n == other, "compare", "b", f"have the {n} dimensions of a", other)
    shift = shift_between(a, b)
    if widths is not None or shift is None:
        common = np.maximum(a.widths, b.widths) if widths is None else widths
        a, b = (transferred(cells, common, origin=a.origin) for cells in (a, b))
        shift = np.zeros(n, dtype=np.int64)
    return overlap(a, b, shift)


def overlap(a: Cells, b: Cells, shift: np.ndarray) -> Comparison:
    """The sums over cells of two grids whose indices agree once those of `b` are shifted by `shift`."""
    xp = array_namespace(a.indices)
    (p, p_sum), (q, q_sum) = weights(a, "compare"), weights(b, "compare")
    p, q = p / p_sum, q / q_sum
    moved_indices = b.indices + asarray_like(shift, b.indices)
    lowest, counts = spans(a.indices, moved_indices)
    first, second = keys_of(a.indices, lowest, counts), keys_of(moved_indices, lowest, counts)
    there = looked_up(first, p, second)
    both = (there > 0.0) & (q > 0.0)
    # Cells that b lacks count in full.
    alone = xp.where(looked_up(second, xp.ones_like(q), first) > 0.0, xp.zeros_like(p), p)
    n_shared = int(xp.count_nonzero(both))
    return Comparison(
        float(xp.sum(xp.sqrt(there * q))),
        float(xp.sum(xp.abs(there - q))) + float(xp.sum(alone)),
        n_shared,
        int(xp.count_nonzero(p > 0.0)) - n_shared,
        int(xp.count_nonzero(q > 0.0)) - n_shared,
    )


def looked_up(keys: Array, values: Array, wanted: Array) -> Array:
    """The value of each of the `wanted` keys; zero for a missing key."""
    xp = array_namespace(keys)
    order = xp.argsort(keys)
    keys = xp.take(keys, order)
    place = xp.searchsorted(keys, wanted)
    place = xp.minimum(place, xp.asarray(keys.shape[0] - 1, dtype=place.dtype))
    found = xp.take(keys, place) == wanted
    there = xp.take(xp.take(values, order), place)
    return xp.where(found, there, xp.zeros_like(there))


def bhattacharyya(a: Cells, b: Cells, *, widths: Array = None) -> float:
    """Compute the Bhattacharyya coefficient, the sum over cells of sqrt(p q); see `compare`.

    Parameters
    ----------
    a, b : Cells
    widths : float or array, shape (n,), optional

    Returns
    -------
    float
        1 for equal distributions, 0 where they share no cell.

    Raises
    ------
    ValueError
        As for `compare`.

    References
    ----------
    .. [1] Bhattacharyya (1946), On a measure of divergence between two multinomial populations, Sankhya 7, 401-406.
    """
    return compare(a, b, widths=widths).bhattacharyya


def l1_distance(a: Cells, b: Cells, *, widths: Array = None) -> float:
    """Compute the sum over cells of ``|p - q|``; see `compare`.

    Parameters
    ----------
    a, b : Cells
    widths : float or array, shape (n,), optional

    Returns
    -------
    float
        0 for equal distributions, 2 where they share no cell.

    Raises
    ------
    ValueError
        As for `compare`.
    """
    return compare(a, b, widths=widths).l1


def samples_of(samples: Array, n: int, function: str) -> Array:
    """Samples of n coordinates as an array (n, n_samples) in float64."""
    x = samples.samples if isinstance(samples, Ensemble) else samples
    seen = tuple(getattr(x, "shape", ()))
    _check.require(len(seen) == 2 and seen[0] == n, function, "samples", f"have shape ({n}, n_samples)", seen)
    xp = array_namespace(x)
    x = xp.astype(x, xp.float64, copy=False)
    bad = int(xp.count_nonzero(~xp.all(xp.isfinite(x), axis=0)))
    _check.require(bad == 0, function, "samples", "be finite", f"{bad} samples that are not", "Leave them out.")
    return x


def binned(samples: Array, cells: Cells, *, widths: Array = None) -> Cells:
    """Compute the fraction of random samples in each cell of a grid.

    Parameters
    ----------
    samples : Ensemble, shape (n,), or array, shape (n, n_samples)
    cells : Cells
        Defines the grid; its probabilities are not used.
    widths : float or array, shape (n,), optional
        Cell widths other than the grid's; the grid is then unrotated.

    Returns
    -------
    Cells
        The cells that contain samples, in lexicographic order.

    Raises
    ------
    ValueError
        If the samples' shape does not fit, or one is not finite.
    """
    n = len(cells.widths)
    x = samples_of(samples, n, "binned")
    xp = array_namespace(x)
    rotation = cells.rotation if widths is None else None
    edges = np.broadcast_to(np.asarray(cells.widths if widths is None else widths, dtype=np.float64), (n,)).copy()
    indices = cell_of(x.T, edges, cells.origin, rotation)
    indices, counts = collected(indices, xp.ones(x.shape[1], dtype=xp.float64))
    return Cells(indices, counts / float(x.shape[1]), np.asarray(cells.origin), edges, rotation, cells.time)


def kernel_density(
    samples: Array,
    cells: Cells,
    *,
    factor: float | None = None,
    dtype: DType | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Cells:
    """Compute the kernel density estimate of random samples at the centres of `cells`, divided by its sum there.

    Gaussian kernels with the samples' covariance times `factor` squared. Every kernel is evaluated at every cell.

    Parameters
    ----------
    samples : Ensemble, shape (n,), or array, shape (n, n_samples)
    cells : Cells
        In the array library of the samples.
    factor : float, optional
        Bandwidth; by default Scott's, ``n_samples ** (-1 / (n + 4))``.
    dtype : dtype, optional
        Dtype of the kernel values; float64 by default. In float32 the result has about 5 digits.
    callback : callable, optional
        ``callback(done, all)``: cells evaluated, called after each block; may raise to interrupt.

    Returns
    -------
    Cells
        The same cells with the estimate as their probabilities.

    Raises
    ------
    ValueError
        If the samples' shape does not fit, one is not finite, or their covariance is singular.

    References
    ----------
    .. [1] Scott (2015), Multivariate Density Estimation, 2nd edition, section 6.3.
    """
    n = len(cells.widths)
    x = samples_of(samples, n, "kernel_density")
    xp = array_namespace(x, cells.indices)
    n_samples = x.shape[1]
    _check.require(n_samples > n, "kernel_density", "samples", f"be more than {n}", n_samples)
    h = n_samples ** (-1.0 / (n + 4)) if factor is None else _check.positive(factor, "kernel_density", "factor")
    centre = xp.mean(x, axis=1)
    centred = x - centre[:, None]
    C = to_numpy(centred @ centred.T) / (n_samples - 1)
    try:
        L = np.linalg.cholesky(C)
    except np.linalg.LinAlgError:
        raise ValueError(
            _check.message(
                "kernel_density", "samples", "have a regular covariance", f"eigenvalues {np.linalg.eigvalsh(C)}"
            )
        ) from None
    whiten = asarray_like(np.linalg.inv(L) / h, x)
    kind = xp.float64 if dtype is None else dtype
    y = whiten @ centred
    at = (positions(cells) - centre) @ whiten.T
    return replace(cells, probabilities=normalised(kernel_sums(at, y, kind, callback)))


def normalised(sums: Array) -> Array:
    """`sums` divided by their total; an error where all kernels underflow at every cell."""
    total = float(array_namespace(sums).sum(sums))
    _check.require(
        total > 0.0, "kernel_density", "cells", "lie near the samples", "no kernel value above zero at any cell"
    )
    return sums / total


def kernel_sums(at: Array, y: Array, dtype: DType, callback: Callable[[int, int], None] | None) -> Array:
    """Sums over the columns of `y` (n, S) of ``exp(-|a - y|^2 / 2)`` for each row a of `at` (N, n), in float64.

    The exponent is one matrix product, ``[a, -|a|^2/2, 1] @ [y; 1; -|y|^2/2]``.
    """
    xp = array_namespace(at)
    N, S = at.shape[0], y.shape[1]

    def half(v: Array, axis: int) -> Array:
        return -0.5 * xp.sum(v * v, axis=axis, keepdims=True)

    left = xp.astype(xp.concat([at, half(at, 1), xp.ones((N, 1), dtype=at.dtype)], axis=1), dtype)
    right = xp.astype(xp.concat([y, xp.ones((1, S), dtype=y.dtype), half(y, 0)], axis=0), dtype)
    block = PAIRS_AT_ONCE["host" if isinstance(at, np.ndarray) else "device"]
    columns = min(S, 2**12 if isinstance(at, np.ndarray) else 2**17)
    rows = max(1, block // columns)
    sums = xp.zeros(N, dtype=xp.float64)
    pieces = []
    for first in range(0, N, rows):
        last = min(first + rows, N)
        here, total = left[first:last, :], sums[first:last]
        for start in range(0, S, columns):
            # Rounding may make an exponent slightly positive, which is harmless.
            values = xp.exp(here @ right[:, start : min(start + columns, S)])
            total = total + xp.astype(xp.sum(values, axis=1), xp.float64)
        pieces.append(total)
        if callback is not None:
            callback(last, N)
    return xp.concat(pieces) if pieces else sums
