"""Lanczos' process with thick restarts for the samples of an operator, and pairs from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.numba import heard
from ensemble._kernels.krylov.lanczos import Basis
from ensemble._kernels.krylov.vectors import dot
from ensemble.linalg.ritz import signs_of

__all__ = ["Lanczos", "Pairs", "Products", "Seen", "pairs_of"]


class Products(NamedTuple):
    """A matrix of the samples of one tile; values, shape (nnz, width), of samples that are not there are zero."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, A: Any, samples: np.ndarray) -> Products:
        """Those of the samples named, eight at most."""
        width = 1 << (samples.size - 1).bit_length()
        values = np.zeros((A.nnz, width), A.dtype)
        values[:, : samples.size] = A.values if A.n_samples == 1 else A.values[:, samples]
        indptr, indices = A.graph.arrays_on(A.values)
        return cls(indptr, indices, values)


Operator = Products | Callable[[np.ndarray, np.ndarray], Any]

DEPENDENT = 1e-10
"""Norm of a new vector, by the largest of the process, below which what follows it may depend on the others."""


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
    operator : Products, or function of x and out, arrays of shape (n, n_samples)
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
        self.basis = Basis(capacity + 1, n, n_samples, start.dtype)
        self.next, self._image = np.empty_like(start), np.empty_like(start)
        self.basis.step(start, self.next, -1, -1)
        self.size, self.full = 0, capacity
        self.dependent = np.zeros(n_samples, bool)

    def extend(self, goodness: Callable[[np.ndarray], np.ndarray]) -> None:
        """Fill the basis and find the Ritz pairs; `goodness` rates values of shape (n_samples, capacity)."""
        basis, m, p = self.basis, self.full, self.size
        operator = self.operator
        if isinstance(operator, Products):
            indptr, indices, values = operator
            work = (m - p) * (values.size + 2 * m * self.next.size)
            heard(lambda: basis.extend_by_products(indptr, indices, values, p, m), work)
            basis.last(m, self.next)
        else:
            for j in range(p, m):
                operator(self.next, self._image)
                basis.step(self._image, self.next, j, 0 if j == p else j - 1)
        diagonal = basis.by_sample(basis.diagonal, m).astype(np.float64)
        off = basis.by_sample(basis.given, m).astype(np.float64)
        own = np.arange(m)
        H = np.zeros((len(diagonal), m, m))
        H[:, own, own] = diagonal
        H[:, own[p + 1 :], own[p:-1]] = off[:, p:-1]
        H[:, p, :p] = off[:, :p]
        largest = np.abs(H).max(axis=(1, 2))
        self.dependent |= ~(off[:, p:].min(axis=1) > DEPENDENT * largest)
        H[~np.isfinite(largest)] = np.eye(m)
        values, vectors = np.linalg.eigh(H)  # of the lower triangle
        order = np.argsort(-goodness(values), axis=1, kind="stable")
        places = np.arange(len(values))[:, None]
        self.values = values[places, order]
        self.coefficients = vectors[places[:, :, None], own[:, None], order[:, None, :]]
        self.last = off[:, -1:]
        self.couplings = self.last * self.coefficients[:, -1, :]

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
        made.basis = Basis(self.capacity + 1, n, samples.size, self.next.dtype)
        width = made.basis.width
        for i, s in enumerate(samples.tolist()):
            place = s // old.width, slice(self.full + 1), slice(None), s % old.width
            made.basis.vectors[i // width, : self.full + 1, :, i % width] = old.vectors[place]
        for name in ("values", "couplings", "coefficients", "last", "dependent"):
            setattr(made, name, getattr(self, name)[samples])
        made.next = np.ascontiguousarray(self.next[:, samples])
        made._image, made.operator = np.empty_like(made.next), operator
        return made


def pairs_of(A: Any, vectors: np.ndarray) -> Pairs:
    """Rayleigh quotients and residuals of `vectors`, shape (k, n, n_samples), ascending, the vectors of length one.

    The first component of at least half the largest magnitude is positive.
    """
    if vectors.shape[2] == 1:  # k vectors of one matrix
        x = np.ascontiguousarray(vectors[:, :, 0].T)
        found = _judged(A, x)
        values, residuals, vectors = found[0][:, None], found[1][:, None], found[2].T[:, :, None]
    else:
        each = [_judged(A, np.ascontiguousarray(x)) for x in vectors]
        values, residuals, vectors = (np.stack(parts) for parts in zip(*each, strict=True))
    order = np.argsort(values, axis=0, kind="stable")
    samples = np.arange(order.shape[1])
    rows = np.arange(vectors.shape[1])[:, None]
    return Pairs(values[order, samples], residuals[order, samples], vectors[order[:, None, :], rows, samples])


def _judged(A: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The Rayleigh quotient, the residual's norm and the scaled vector, of one vector for each sample or column."""
    x = x * (signs_of(x) / np.sqrt(dot(x, x, None))).astype(x.dtype)
    y = A.apply(x)
    values = dot(x, y, None)
    y -= values.astype(x.dtype) * x
    return values.astype(np.float64), np.sqrt(dot(y, y, None)).astype(np.float64), x
