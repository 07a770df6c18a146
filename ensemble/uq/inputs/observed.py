"""`Kde` and `EmpiricalCopula`: inputs of which there are observations, and no formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr

from ensemble._check import message, positive, real_array, require
from ensemble._keywords import explains_construction
from ensemble.uq.inputs.convert import as_variable
from ensemble.uq.inputs.variable import Variable, array_digest, inside, normal_of

__all__ = ["EmpiricalCopula", "Kde"]

POINTS = 16
"""Points of the table of quantiles in a width of the kernel."""

REACH = 9.0
"""Widths of the kernel beyond the observations at which the table ends."""

CHUNK = 2**22
"""Kernels that are evaluated at a time."""


def observed(data: Any, function: str, n_axes: int) -> np.ndarray:
    """Finite numbers with `n_axes` axes, two or more in the first."""
    wanted = "be a vector of numbers" if n_axes == 1 else "be a table of numbers, a row for each observation"
    values = real_array(data, function, "data", wanted).astype(np.float64)
    require(values.ndim == n_axes and len(values) > 1, function, "data", wanted, f"shape {values.shape}")
    bad = int(np.count_nonzero(~np.isfinite(values)))
    require(bad == 0, function, "data", "be finite", f"{bad} that are not", "Leave them out.")
    return values


@explains_construction("Kde")
class Kde(Variable):
    """A number with the kernel density of observations: smooth, where they are few.

    Parameters
    ----------
    data : array_like, shape (n,)
        Observations, in the unit of the input.
    width : float, optional
        Standard deviation of the Gaussian kernel, in the unit of the input. Default: Silverman's [1]_.

    Raises
    ------
    TypeError, ValueError
        If the observations are no finite numbers, fewer than two, or all equal.

    Notes
    -----
    Quantiles are interpolated in a table of `POINTS` per width, to 1e-6 of the width. The distribution is that of an
    observation and a normal number added: its standard deviation is above that of the observations.

    References
    ----------
    .. [1] Silverman (1986), Density Estimation for Statistics and Data Analysis, eq. 3.31.

    Examples
    --------
    >>> import ensemble as en
    >>> x = en.Inputs(load=en.uq.Kde([3.0, 1.0, 1.5, 2.5])).samples(64, seed=3)
    >>> bool(abs(x.load.samples.mean() - 2.0) < 0.1)
    True
    """

    discrete = False

    def __init__(self, data: Any, width: float | None = None) -> None:
        self.data = np.sort(observed(data, "Kde", 1))
        n, spread = self.data.size, float(self.data.std(ddof=1))
        advice = "Give the number itself, or a width."
        require(width is not None or spread > 0.0, "Kde", "data", "hold different numbers", "equal ones", advice)
        if width is None:
            quartiles = np.subtract(*np.quantile(self.data, [0.75, 0.25])) / 1.349
            width = 0.9 * (min(spread, quartiles) if quartiles > 0.0 else spread) * n**-0.2
        self.width = positive(width, "Kde", "width")
        ends = self.data[0] - REACH * self.width, self.data[-1] + REACH * self.width
        # around each observation, so that gaps between them cost nothing
        offsets = np.arange(-REACH, REACH + 1e-9, 1.0 / POINTS) * self.width
        places = np.unique(np.rint((self.data[:, None] + offsets - ends[0]) / self.width * POINTS)) / POINTS
        table = ends[0] + places * self.width
        z = normal_of(self.cdf(table), self.sf(table))
        rising = np.isfinite(z) & (np.diff(np.maximum.accumulate(np.nan_to_num(z, nan=-np.inf)), prepend=-np.inf) > 0)
        self._z, self._x = z[rising], table[rising]
        self._quantile = PchipInterpolator(self._z, self._x)

    def __repr__(self) -> str:
        return f"Kde({self.data.size} observations, width {self.width:g})"

    def _sum(self, function: Any, x: np.ndarray) -> np.ndarray:
        """The mean over observations of a function of the distance in widths."""
        flat = np.asarray(x, dtype=np.float64).ravel()
        result = np.empty(flat.size)
        step = max(1, CHUNK // self.data.size)
        for start in range(0, flat.size, step):
            part = flat[start : start + step, None]
            result[start : start + step] = function((part - self.data) / self.width).mean(axis=1)
        return result.reshape(np.shape(x))

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """The distribution function at `x`."""
        return self._sum(ndtr, x)

    def sf(self, x: np.ndarray) -> np.ndarray:
        """The probability of more than `x`."""
        return self._sum(lambda t: ndtr(-t), x)

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """The density at `x`."""
        return self._sum(lambda t: np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi), x) / self.width

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        return self.from_normal(normal_of(inside(u), 1.0 - inside(u)))

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        result: np.ndarray = self._quantile(np.clip(z[0], self._z[0], self._z[-1]))
        return result

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        return normal_of(self.cdf(values), self.sf(values))[None]

    def description(self) -> dict[str, Any]:
        """The width, and a digest of the observations."""
        return {"kind": "kde", "width": self.width, "n": self.data.size, "digest": array_digest(self.data)}


@explains_construction("EmpiricalCopula")
class EmpiricalCopula(Variable):
    """A vector whose components depend on each other as observations do, with any distributions of their own.

    Parameters
    ----------
    data : array_like, shape (n, d)
        Observations of all components together, a row for each.
    marginals : sequence of d distributions, optional
        Distributions of one number each, of `scipy.stats` or of this package. Default: the `Kde` of each column.

    Raises
    ------
    TypeError, ValueError
        If the observations are no table of finite numbers, or the distributions do not fit its columns.

    Notes
    -----
    The checkerboard copula [1]_: one germ chooses a row, and one for each component its place within the rank of that
    row, ``(rank + u) / n``. Ranks of equal numbers are in the order of the rows.

    References
    ----------
    .. [1] Genest, Neslehova, Remillard (2017), Journal of Multivariate Analysis 159, 82-106, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import ensemble as en
    >>> wind = np.random.default_rng(1).multivariate_normal([5.0, 2.0], [[1.0, 0.8], [0.8, 1.0]], size=500)
    >>> x = en.Inputs(wind=en.uq.EmpiricalCopula(wind)).samples(1024, seed=3)
    >>> x.wind.shape, bool(abs(np.corrcoef(x.wind.samples)[0, 1] - 0.8) < 0.1)
    ((2,), True)
    """

    def __init__(self, data: Any, marginals: Sequence[Any] | None = None) -> None:
        values = observed(data, "EmpiricalCopula", 2)
        d = values.shape[1]
        if marginals is None:
            self.parts: list[Any] = [Kde(column) for column in values.T]
        else:
            self.parts = [as_variable(part, f"marginals[{k}]") for k, part in enumerate(marginals)]
            seen = f"{len(self.parts)} distributions for {d} columns"
            require(len(self.parts) == d, "EmpiricalCopula", "marginals", "be one for each column", seen)
            for k, part in enumerate(self.parts):
                if part.n_germs != 1 or part.shape != ():
                    wanted = "be a distribution of one number"
                    raise TypeError(message("EmpiricalCopula", f"marginals[{k}]", wanted, repr(part)))
        ranks = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable").astype(np.float64)
        # neighbouring rows are alike: points of low discrepancy in the first germ stay so in the values
        centred = ranks - ranks.mean(axis=0)
        direction = np.linalg.svd(centred, full_matrices=False)[2][0]
        self.ranks = ranks[np.argsort(centred @ (direction * np.sign(direction[0] or 1.0)), kind="stable")]
        self._row_of = np.argsort(self.ranks[:, 0], kind="stable")
        self.n_germs, self.shape = 1 + d, (d,)

    def __repr__(self) -> str:
        return f"EmpiricalCopula({self.ranks.shape[0]} observations of {self.ranks.shape[1]} components)"

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        n = len(self.ranks)
        rows = np.minimum((u[0] * n).astype(np.int64), n - 1)
        places = inside((self.ranks[rows].T + u[1:]) / n)
        return np.stack([part.from_uniform(place[None]) for part, place in zip(self.parts, places, strict=True)])

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        n = len(self.ranks)
        z = np.stack([part.to_normal(row)[0] for part, row in zip(self.parts, values, strict=True)])
        places = ndtr(z) * n
        cells = np.clip(np.nan_to_num(np.floor(places)), 0, n - 1)
        rows = self._row_of[cells[0].astype(np.int64)]
        there = np.all(cells == self.ranks[rows].T, axis=0)
        u = np.concatenate([((rows + 0.5) / n)[None], places - cells])
        result: np.ndarray = np.where(there, normal_of(inside(u), 1.0 - inside(u)), np.nan)
        return result

    def components(self) -> tuple[Variable, ...]:
        return ()

    def description(self) -> dict[str, Any]:
        """The distributions of the components, and a digest of the ranks."""
        parts = [part.description() for part in self.parts]
        return {"kind": "empirical_copula", "components": parts, "digest": array_digest(self.ranks)}
