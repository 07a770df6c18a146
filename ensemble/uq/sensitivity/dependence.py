"""Measures of how an output depends on an input, from samples of both."""

from __future__ import annotations

import numpy as np

__all__ = ["Classes", "delta", "first", "gamma_tail", "hsic", "kernel_moments", "pawn"]

GRID = 100
"""Points between the smallest and the largest output at which densities are compared."""

ROWS = 256
"""Rows of a matrix of kernels that are made at a time."""


class Classes:
    """Samples of an input divided into classes of neighbouring values, as equally frequent as ties allow.

    Parameters
    ----------
    x : ndarray, shape (n,)
    count : int
        Classes where the input has more values than that; otherwise each value is one.
    """

    def __init__(self, x: np.ndarray, count: int) -> None:
        values, place = np.unique(x, return_inverse=True)
        if values.size > count:
            # equal values share the class of their mean rank
            ranks = np.cumsum(np.bincount(place)) - 0.5 * np.bincount(place) - 0.5
            place = np.minimum((ranks * count / x.size).astype(np.int64), count - 1)[place]
        _, self.labels = np.unique(place, return_inverse=True)
        self.order = np.argsort(self.labels, kind="stable")
        """The samples, class after class."""
        self.counts = np.bincount(self.labels)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def __len__(self) -> int:
        return self.counts.size


def first(y: np.ndarray, classes: Classes) -> float:
    """The part of the variance of `y` (n,) between classes, without what independent samples would have there.

    That is epsilon squared, the adjusted coefficient of determination of the class means.
    """
    n, k = y.size, len(classes)
    centred = y - y.mean()
    total = float(centred @ centred)
    sums = np.add.reduceat(centred[classes.order], classes.starts)
    between = float(np.sum(sums**2 / classes.counts))
    if n <= k:
        return np.nan
    return (between - (k - 1) * (total - between) / (n - k)) / total


def _density(grid: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """A Gaussian kernel density with Silverman's width; None where all values are equal."""
    spread = y.std(ddof=1) if y.size > 1 else 0.0
    if not spread > 1e-12 * (grid[-1] - grid[0]):
        return None
    width = spread * (0.75 * y.size) ** -0.2
    values = np.exp(-0.5 * ((grid[:, None] - y) / width) ** 2).sum(axis=1)
    result: np.ndarray = values / (y.size * width * np.sqrt(2.0 * np.pi))
    return result


def delta(y: np.ndarray, classes: Classes) -> float:
    """Half the mean distance between the density of `y` and its densities within classes (Borgonovo 2007, eq. 8)."""
    grid = np.linspace(y.min(), y.max(), GRID)
    whole = _density(grid, y)
    if whole is None:
        return np.nan
    ordered, total = y[classes.order], 0.0
    for start, count in zip(classes.starts, classes.counts, strict=True):
        part = _density(grid, ordered[start : start + count])
        distance = 2.0 if part is None else float(np.trapezoid(np.abs(whole - part), grid))
        total += count * min(distance, 2.0)
    return total / (2.0 * y.size)


def pawn(y: np.ndarray, classes: Classes) -> float:
    """The median over classes of the largest distance between distribution functions (Pianosi, Wagener 2018)."""
    order = np.argsort(y, kind="stable")
    last = np.append(np.diff(y[order]) > 0.0, True)
    whole = np.arange(1, y.size + 1) / y.size
    inside = np.cumsum(classes.labels[order] == np.arange(len(classes))[:, None], axis=1) / classes.counts[:, None]
    return float(np.median(np.abs(inside - whole)[:, last].max(axis=1)))


def _kernel_rows(x: np.ndarray, rows: slice) -> np.ndarray:
    """Rows of ``exp(-(x_i - x_j)^2 / (2 s^2))``, s the standard deviation of x."""
    result: np.ndarray = np.exp(-0.5 * ((x[rows, None] - x) / x.std(ddof=1)) ** 2)
    return result


def kernel_moments(x: np.ndarray) -> tuple[np.ndarray, float, float]:
    """The means of the rows of the kernel matrix, the mean of all, and the sum of squares of the centred matrix."""
    n = x.size
    means = np.concatenate([_kernel_rows(x, slice(k, k + ROWS)).mean(axis=1) for k in range(0, n, ROWS)])
    mean, squares = float(means.mean()), 0.0
    for k in range(0, n, ROWS):
        rows = slice(k, k + ROWS)
        squares += float(np.sum((_kernel_rows(x, rows) - means[rows, None] - means + mean) ** 2))
    return means, mean, squares


def hsic(x: np.ndarray, y: np.ndarray, of_x: tuple, of_y: tuple) -> tuple[float, float]:
    """The normalised Hilbert-Schmidt criterion of x and y, and the probability of a larger one without dependence.

    The criterion is that of Da Veiga (2015, eq. 11) as a V-statistic with Gaussian kernels. Its distribution under
    independence is a gamma one with the mean and the variance of Gretton et al. (2007, eq. 9, 10).
    """
    n = x.size
    (x_means, x_mean, x_squares), (y_means, y_mean, y_squares) = of_x, of_y
    product = square = 0.0
    for k in range(0, n, ROWS):
        rows = slice(k, k + ROWS)
        both = _kernel_rows(x, rows) - x_means[rows, None] - x_means + x_mean
        both *= _kernel_rows(y, rows) - y_means[rows, None] - y_means + y_mean
        product += float(both.sum())
        np.square(both, out=both)
        square += float(both.sum()) - float(np.trace(both[:, rows]))
    off_x, off_y = ((n * m - 1.0) / (n - 1.0) for m in (x_mean, y_mean))
    mean = (1.0 + off_x * off_y - off_x - off_y) / n
    variance = 2.0 * (n - 4.0) * (n - 5.0) / (n * (n - 1.0) * (n - 2.0) * (n - 3.0)) * square / (n * (n - 1.0))
    value = product / np.sqrt(x_squares * y_squares)
    return float(value), gamma_tail(product / n**2, mean, variance)


def gamma_tail(value: float, mean: float, variance: float) -> float:
    """The probability that a gamma number with such a mean and variance is at least `value`."""
    from scipy.special import gammaincc

    return float(gammaincc(mean**2 / variance, value * mean / variance))
