"""Lanczos' process with thick restarts for the samples of an operator, and pairs from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.numba import heard
from ensemble._kernels.direct.lanczos_inverse import extend_by_inverse
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.krylov.lanczos import Basis, width_of
from ensemble._kernels.krylov.rayleigh import rayleigh_quotients
from ensemble._kernels.krylov.vectors import dot
from ensemble.linalg.factorizations.factorization import Factorization

__all__ = ["Inverse", "Lanczos", "Pairs", "Products", "Seen", "pairs_of"]


class Products(NamedTuple):
    """A matrix of some samples by tiles: values (n_tiles, nnz, width), the last sample repeated where there is none."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, A: Any, samples: np.ndarray) -> Products:
        """Those of the samples named, in tiles of one where the values of more outgrow the cache."""
        width = width_of(samples.size)
        if A.nnz * width * A.dtype.itemsize > CACHED:
            width = 1
        chosen = np.broadcast_to(A.values, (A.nnz, samples.size)) if A.n_samples == 1 else A.values[:, samples]
        indptr, indices = A.graph.arrays_on(A.values)
        return cls(indptr, indices, _by_tiles(chosen, width))

    @property
    def width(self) -> int:
        """Samples of a tile."""
        width: int = self.values.shape[2]
        return width

    def extend(self, basis: Basis, first: int, last: int) -> None:
        """Vectors of a basis after `first` up to `last`."""
        basis.extend_by_products(self.indptr, self.indices, self.values, first, last)


class Inverse(NamedTuple):
    """The inverses of some samples by tiles: factors (n_tiles, n_values, width), as the values of `Products`."""

    plan: Elimination
    values: np.ndarray

    @classmethod
    def of(cls, factors: Factorization) -> Inverse:
        """Those of the samples of a factorisation."""
        return cls(factors.plan, _by_tiles(factors.values, width_of(factors.n_samples)))

    @property
    def width(self) -> int:
        """Samples of a tile."""
        width: int = self.values.shape[2]
        return width

    def extend(self, basis: Basis, first: int, last: int) -> None:
        """Vectors of a basis after `first` up to `last`."""
        extend_by_inverse(basis, self.values, self.plan, first, last)


def _by_tiles(values: np.ndarray, width: int) -> np.ndarray:
    """Values of shape (n_values, n_samples) as (n_tiles, n_values, width)."""
    n_values, n_samples = values.shape
    n_tiles = -(-n_samples // width)
    if n_tiles * width > n_samples:
        values = values[:, np.minimum(np.arange(n_tiles * width), n_samples - 1)]
    by_tiles: np.ndarray = values.reshape(n_values, n_tiles, width).transpose(1, 0, 2)
    return np.ascontiguousarray(by_tiles)


Operator = Products | Inverse | Callable[[np.ndarray, np.ndarray], Any]

CACHED = 1 << 21
"""Bytes of the values of a tile of samples that are read again from the cache."""


class Pairs(NamedTuple):
    """Ascending values and their residual norms, shape (k, n_samples), and unit vectors, shape (k, n, n_samples)."""

    values: np.ndarray
    residuals: np.ndarray
    vectors: np.ndarray


class Seen(NamedTuple):
    """What bases of products have shown of some samples.

    The pairs last found to be close (k, n_samples), the largest residual by what it may be, the number of bases in
    which those pairs stayed the best, and of how many they have to.
    """

    values: np.ndarray
    worst: np.ndarray
    held: np.ndarray
    wanted: np.ndarray

    @classmethod
    def nothing(cls, k: int, n_samples: int) -> Seen:
        """Before the first basis."""
        held, wanted = np.zeros((2, n_samples), np.int64)
        return cls(np.full((k, n_samples), np.nan), np.full(n_samples, np.inf), held, wanted)

    def of(self, samples: np.ndarray) -> Seen:
        """That of the samples named."""
        return Seen(*(each[..., samples] for each in self))


class Lanczos:
    """Bases of `capacity` vectors for an operator, each from the Ritz vectors of the one before [1]_.

    Parameters
    ----------
    operator : Products, Inverse, or function of x and out, arrays of shape (n, n_samples)
        Writes the operator times `x`.
    start : array, shape (n, n_samples)
    capacity, kept : int
        Vectors of a basis, and Ritz vectors that the next one begins with.

    Attributes
    ----------
    values : array, shape (n_samples, full)
        Ritz values, the best first; `full` is the capacity, or less after `restart_beside`.
    couplings : array, shape (n_samples, full)
        Inner products of each Ritz vector's residual with the vector that follows the basis.
    dependent : array of bool, shape (n_samples,)
        Samples in which a space was invariant, so that later vectors mean nothing.

    References
    ----------
    .. [1] Wu, Simon (2000), SIAM J. Matrix Anal. 22, 602-616.
    """

    def __init__(self, operator: Operator, start: np.ndarray, capacity: int, kept: int) -> None:
        self.operator, self.capacity, self.kept = operator, capacity, kept
        n, n_samples = start.shape
        self.basis = Basis(capacity + 1, n, n_samples, start.dtype, _width(operator, n_samples))
        self.next, self._image = np.empty_like(start), np.empty_like(start)
        self.basis.step(start, self.next, -1, -1)
        self.size, self.full = 0, capacity
        self.dependent = np.zeros(n_samples, bool)

    def extend(self, which: str, offsets: np.ndarray | None = None) -> None:
        """Fill the basis and find the Ritz pairs, the best first, as `which` and `offsets` of `ritz_pairs` say."""
        basis, m, p = self.basis, self.full, self.size
        operator = self.operator
        if isinstance(operator, Products | Inverse):
            work = (m - p) * (2 * operator.values.size + 2 * m * self.next.size)
            heard(lambda: operator.extend(basis, p, m), work)
            basis.last(m, self.next)
        else:
            for j in range(p, m):
                operator(self.next, self._image)
                basis.step(self._image, self.next, j, 0 if j == p else j - 1)
        self.values, vectors, self.couplings, independent = basis.ritz_pairs(m, p, which, offsets)
        self.coefficients = vectors.transpose(0, 2, 1)
        self.dependent |= ~independent

    def restart(self) -> None:
        """Keep the best Ritz vectors, followed by the vector after the basis."""
        p = self.kept
        kept = self.basis.sums(self.coefficients[:, :, :p])
        self.basis.restart(kept, self.values[:, :p], self.couplings[:, :p], self.next, self.next)
        self.size, self.full = p, self.capacity

    def restart_beside(self, other: np.ndarray, count: int, images: bool) -> None:
        """Keep `count` Ritz vectors, which have converged, followed by a vector with a part in `other`, shape (n,).

        The vector after the basis is lost, and with it what couples Ritz vectors that have not converged to the next
        basis: those are not kept, but have a part in what follows. With `images`, the operator times the others, over
        values, stands for them. The next basis has as many new vectors as others.
        """
        following = self.basis.usual(self.basis.sums(self.coefficients[:, :, count : self.kept])).sum(axis=0)
        following += other[:, None] / np.sqrt(dot(other[:, None], other[:, None], None))
        none = np.zeros_like(self.values[:, :count])
        kept = self._sums(count, images)
        self.basis.restart(kept, self.values[:, :count], none, following, self.next)
        self.size, self.full = count, count + self.capacity - self.kept

    def ritz_vectors(self, count: int, images: bool) -> np.ndarray:
        """The best Ritz vectors, shape (count, n, n_samples); with `images`, the operator times them, over values."""
        return self.basis.usual(self._sums(count, images))

    def _sums(self, count: int, images: bool) -> np.ndarray:
        """The same by tiles."""
        chosen = self.coefficients[:, :, :count]
        if images:
            more = self.couplings[:, :count] / self.values[:, :count]
            chosen = np.concatenate([chosen, more[:, None, :]], axis=1)
        return self.basis.sums(chosen)

    def take_samples(self, samples: np.ndarray, operator: Operator) -> Lanczos:
        """The process of the samples named, between `extend` and `restart`."""
        made = object.__new__(Lanczos)
        made.__dict__.update(self.__dict__)
        old, n = self.basis, self.next.shape[0]
        made.basis = Basis(self.capacity + 1, n, samples.size, self.next.dtype, _width(operator, samples.size))
        width = made.basis.width
        for i, s in enumerate(samples.tolist()):
            place = s // old.width, slice(self.full + 1), slice(None), s % old.width
            made.basis.vectors[i // width, : self.full + 1, :, i % width] = old.vectors[place]
        for name in ("values", "couplings", "coefficients", "dependent"):
            setattr(made, name, getattr(self, name)[samples])
        made.next = np.ascontiguousarray(self.next[:, samples])
        made._image, made.operator = np.empty_like(made.next), operator
        return made


def _width(operator: Operator, n_samples: int) -> int:
    """Samples of a tile."""
    return operator.width if isinstance(operator, Products | Inverse) else width_of(n_samples)


def pairs_of(A: Any, vectors: np.ndarray) -> Pairs:
    """Rayleigh quotients and residuals of `vectors`, shape (k, n, n_samples), ascending, the vectors of length one.

    The first component of at least half the largest magnitude is positive.
    """
    indptr, indices, matrix = A.arrays
    if vectors.shape[2] == 1:  # k vectors of one matrix
        x = np.ascontiguousarray(vectors[:, :, 0].T)
        values, residuals = rayleigh_quotients(indptr, indices, matrix, x)
        order = np.argsort(values, kind="stable")
        return Pairs(values[order, None], residuals[order, None], x.T[order][:, :, None])
    vectors = np.array(vectors, order="C")
    found = [rayleigh_quotients(indptr, indices, matrix, x) for x in vectors]
    values, residuals = (np.stack(parts) for parts in zip(*found, strict=True))
    order = np.argsort(values, axis=0, kind="stable")
    return Pairs(
        np.take_along_axis(values, order, axis=0), np.take_along_axis(residuals, order, axis=0),
        np.take_along_axis(vectors, order[:, None, :], axis=0),
    )  # fmt: skip
