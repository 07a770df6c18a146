"""Chebyshev smoothing with bounds of each sample's own, and their eigenvalue estimate."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._check import integer, positive, require
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.recording import assign
from ensemble._kernels.krylov.start_vectors import scattered
from ensemble._kernels.multigrid import relaxation as kernels
from ensemble._kernels.multigrid.measures import reciprocal
from ensemble._kernels.sparse.complex_numbers import is_complex, magnitudes
from ensemble._keywords import explains_construction
from ensemble._typing import Array
from ensemble.linalg import CrsMatrix


@explains_construction("Chebyshev")
@dataclass(frozen=True)
class Chebyshev:
    """Options of the Chebyshev smoother.

    Parameters
    ----------
    degree : int, at least 1
        Passes over the matrix, before and after the coarse correction each.
    ratio : float > 1, dimensionless
        The smoother damps eigenvalues of D^-1 A from ``lambda_max / ratio`` to ``boost * lambda_max``.
    boost : float >= 1, dimensionless
        Safety on the estimate of lambda_max, which the power method finds from below.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> from ensemble.multigrid import smoothed_aggregation
    >>> smoothed_aggregation(poisson((40, 40)), smoother=Chebyshev(degree=3, ratio=10.0)).smoother.degree
    3
    """

    degree: int = 2
    ratio: float = 7.0
    boost: float = 1.1

    def __post_init__(self) -> None:
        integer(self.degree, "Chebyshev", "degree", minimum=1)
        require(positive(self.ratio, "Chebyshev", "ratio") > 1.0, "Chebyshev", "ratio", "be above 1", self.ratio)
        require(positive(self.boost, "Chebyshev", "boost") >= 1.0, "Chebyshev", "boost", "be 1 or above", self.boost)

    def coefficients(self, lambda_max: Array) -> list[tuple[np.ndarray, np.ndarray]]:
        """(a, c) of each step ``w = a w + c D^-1 (b - A x), x = x + w``, one per sample (Saad 2003, alg. 12.1)."""
        with np.errstate(all="ignore"):  # a NaN stays in its sample
            alpha, beta = lambda_max / self.ratio, self.boost * lambda_max
            delta, theta = 2.0 / (beta - alpha), (beta + alpha) / 2.0
            sigma = theta * delta
            rho = 1.0 / sigma
            steps = [(np.zeros_like(theta), 1.0 / theta)]
            for _ in range(self.degree - 1):
                rho_next = 1.0 / (2.0 * sigma - rho)
                steps.append((rho_next * rho, 2.0 * rho_next * delta))
                rho = rho_next
        return steps


def inverse_diagonal(A: Any) -> Any:
    """1 / diagonal, shape (n, n_samples); 0 where the diagonal is zero or subnormal: that unknown is not updated.

    What is small depends on the units of A, so only zero and subnormal entries count as none.
    """
    return reciprocal(A.diagonal().samples)


@functools.lru_cache(maxsize=16)
def start_vector(n: int) -> np.ndarray:
    """Numbers in [-1, 1) that depend on the row number alone, the same for all samples and machines."""
    return scattered(0, n)


def largest_eigenvalue(A: Any, dinv: Array, iterations: int = 10) -> np.ndarray:
    """The power method's estimate of the largest eigenvalue of D^-1 A: one value per sample, float64.

    A fixed number of steps from a fixed start, so that no sample's estimate depends on another's. Of complex matrices
    the magnitude of the eigenvalue.
    """
    n_samples, n_local = A.n_samples, A.local_shape[0]
    start, xp = start_vector(A.shape[0]), array_namespace(A.values)
    q, z = (A.space.vector(empty_like(A.values, (n_local, n_samples))) for _ in range(2))
    q[...] = asarray_like(start[A.space.first : A.space.first + n_local, None], A.values)
    scale = asarray_like(np.full(n_samples, 1.0 / np.sqrt(np.sum(start**2)), A.dtype), A.values)
    quotient = scale
    step = getattr(A, "power_step", None) or functools.partial(kernels.power_step, *A.arrays)
    for _ in range(iterations):
        _, quotient, square = step(dinv, q, scale, z)
        with np.errstate(all="ignore"):
            scale = xp.astype(1.0 / xp.sqrt(square), A.dtype, copy=False)
        q, z = z, q
    found = to_numpy(quotient)
    return magnitudes(found).astype(np.float64) if is_complex(found) else found.astype(np.float64)


class ChebyshevSmoother:
    """Chebyshev iteration on one level, for all samples; each step is one pass over A."""

    def __init__(self, A: Any, dinv: Array, steps: list[tuple[Any, Any]]) -> None:
        self.A, self.dinv = A, dinv
        self.host_steps = [(np.asarray(a, A.dtype), np.asarray(c, A.dtype)) for a, c in steps]
        self._steps: dict[int, list[tuple[Any, Any]]] = {}

    def steps(self, n_samples: int) -> list[tuple[Any, Any]]:
        """The coefficients on the device of the matrix, one value for each of the vectors' samples."""
        if n_samples not in self._steps:
            times = n_samples if self.A.n_samples == 1 else 1
            self._steps[n_samples] = [
                (asarray_like(np.repeat(a, times), self.dinv), asarray_like(np.repeat(c, times), self.dinv))
                for a, c in self.host_steps
            ]
        return self._steps[n_samples]

    def take_samples(self, A: CrsMatrix, samples: np.ndarray) -> ChebyshevSmoother:
        """The smoother of the samples named, for their matrix `A`."""
        xp = array_namespace(self.dinv)
        dinv = contiguous(xp.take(self.dinv, asarray_like(samples, self.dinv), axis=1))
        return type(self)(A, dinv, [(a[samples], c[samples]) for a, c in self.host_steps])

    def first(self, b: Array, x: Array, c: Array, w: Array, out: Array) -> Any:
        """w = c D^-1 (b - A x), and x + w to `out`."""
        with self.A.arriving(x) as whole:
            return kernels.chebyshev_first(*self._level, b, whole, c, w, out)

    def step(self, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Any:
        """w = a w + c D^-1 (b - A x), and x + w to `out`."""
        with self.A.arriving(x) as whole:
            return kernels.chebyshev_step(*self._level, b, whole, a, c, w, out)

    def last(self, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Any:
        """x + a w + c D^-1 (b - A x) to `out`."""
        with self.A.arriving(x) as whole:
            return kernels.chebyshev_last(*self._level, b, whole, a, c, w, out)

    @property
    def _level(self) -> tuple[Any, ...]:
        return (*self.A.arrays, self.dinv)

    def smooth(
        self, b: Array, x: Array, here: Array, there: Array, w: Array, begun: bool = False, finish: Any = None
    ) -> Array:
        """Smooth `x` (None: zero) towards A x = b between the buffers `here` and `there`; returns the one it ends in.

        `x`, where given, lies in `here`; `w` is scratch for the change of x from step to step. With `begun`, `here`
        already holds the first step from zero. ``finish(x, a, c, w)``, where given, takes the place of the last step.
        """
        steps = self.steps(b.shape[1])
        change = w
        if begun:
            change = here
        elif x is None:
            change = kernels.chebyshev_start(self.dinv, b, steps[0][1], here)  # the first x is its own change
        elif finish is not None and len(steps) == 1:
            return finish(x, *steps[0], x)  # nothing precedes the one step: its `a` is zero
        else:
            self.first(b, x, steps[0][1], w, there)
            here, there = there, here
        for k, (a, c) in enumerate(steps[1:], start=2):
            if k == len(steps) and finish is not None:
                return finish(here, a, c, change)
            if k == len(steps):
                self.last(b, here, a, c, change, there)
            else:
                if change is not w:
                    assign(w, change)
                    change = w
                self.step(b, here, a, c, w, there)
            here, there = there, here
        return here


class OperatorSmoother(ChebyshevSmoother):
    """A Chebyshev smoother on any operator with the methods ``chebyshev_first``, ``_step`` and ``_last``."""

    def first(self, b: Array, x: Array, c: Array, w: Array, out: Array) -> Any:
        return self.A.chebyshev_first(self._dinv_of(b), b, x, c, w, out)

    def step(self, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Any:
        return self.A.chebyshev_step(self._dinv_of(b), b, x, a, c, w, out)

    def last(self, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Any:
        return self.A.chebyshev_last(self._dinv_of(b), b, x, a, c, w, out)

    def _dinv_of(self, b: Array) -> Any:
        """The inverse diagonal with a column for each of the vectors' samples: operators take no shared one."""
        if self.dinv.shape[1] == b.shape[1]:
            return self.dinv
        return array_namespace(self.dinv).repeat(self.dinv, b.shape[1], axis=1)


class SymmetricSmoother(OperatorSmoother):
    """A Chebyshev smoother on operators whose steps take an inverse diagonal that samples share: `has_fused_steps`."""

    def _dinv_of(self, b: Array) -> Any:
        return self.dinv
