"""Bases of many samples that are orthonormal in M, and Ritz pairs from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._kernels.krylov.basis import TOGETHER, basis_add, basis_dots, block_add, block_dots, scale
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.row_sums import SERIAL, space_in_force

__all__ = ["RitzBasis", "combined", "products", "signs_of", "worst_first"]

DEPENDENT = 100.0
"""Units of rounding of its length that must be left of a vector once the basis is subtracted from it."""


class RitzBasis:
    """Vectors V, orthonormal in the inner product of M, and M V; vectors have shape (n, n_samples).

    A vector that depends on those before it, in some sample, is replaced there by one of `spare`, shape
    (capacity, n), where n is larger.
    """

    def __init__(self, like: np.ndarray, M: Any, spare: np.ndarray) -> None:
        self.M, self.size, self.like, self.spare = M, 0, like, spare
        self._v = np.empty((spare.shape[0], *like.shape), like.dtype)
        self._mv = self._v if M is None else np.empty_like(self._v)

    @property
    def vectors(self) -> np.ndarray:
        """Return V, shape (size, n, n_samples)."""
        return self._v[: self.size]

    @property
    def images(self) -> np.ndarray:
        """Return M V."""
        return self._mv[: self.size]

    def _image(self, place: int) -> np.ndarray:
        if self.M is not None:
            self.M.apply(self._v[place], self._mv[place])
        image: np.ndarray = self._mv[place]
        return image

    def extend(self, block: np.ndarray) -> None:
        """Append the vectors `block`, orthonormalised: a few of them together pass through the basis twice [1]_.

        .. [1] Barlow, Smoktunowicz (2013), Numer. Math. 123, 395-423: block Gram-Schmidt with reorthogonalisation.
        """
        for first in range(0, len(block), TOGETHER):
            given = block[first : first + TOGETHER]
            dependent = self._orthonormalise(given)
            if dependent.any():
                self._append_one_by_one(given, dependent)
            self.size += len(given)

    def _orthonormalise(self, given: np.ndarray) -> np.ndarray:
        """Write the orthonormal vectors of a block; returns the samples in which one depends on those before it."""
        j, tiny = self.size, DEPENDENT * np.finfo(self.like.dtype).eps
        w = self._v[j : j + len(given)]
        w[...] = given
        dependent = np.zeros(w.shape[2], bool)
        limits = [tiny * np.sqrt(dot(x, self._image(j + q), None)) for q, x in enumerate(w)]
        for _ in range(2):
            if j:
                block_add(-block_dots(self.vectors, self._mv[j : j + len(w)], None), self.vectors, w)
            for q, x in enumerate(w):
                image = self._image(j + q)
                if q:
                    basis_add(-basis_dots(w[:q], image, None), w[:q], x)
                    image = self._image(j + q)
                length = np.sqrt(dot(x, image, None))
                short = length <= limits[q]
                dependent |= short
                scale(np.where(short, 1.0, 1.0 / length).astype(x.dtype), x)
                self._image(j + q)
            limits = [np.full(w.shape[2], tiny)] * len(w)
        return dependent

    def _append_one_by_one(self, given: np.ndarray, which: np.ndarray) -> None:
        """Append vectors one by one for the samples of `which`; a spare one replaces one that depends on others."""
        j = self.size
        for x in given:
            w = self._v[self.size]
            w[:, which] = x[:, which]
            missing = self._normalise(self.size, which)
            if missing.any():
                w[:, missing] = self.spare[self.size][:, None]
                self._normalise(self.size, missing)
            self.size += 1
        self.size = j

    def _normalise(self, j: int, which: np.ndarray) -> np.ndarray:
        """Two sweeps of Gram and Schmidt's process over the samples of `which`; those in which nothing is left."""
        w = self._v[j]
        before = np.sqrt(dot(w, self._image(j), None))
        for _ in range(2 if j else 0):
            h = basis_dots(self.vectors, self._mv[j], None)
            basis_add(np.where(which, -h, 0.0).astype(w.dtype), self.vectors, w)
            self._image(j)
        length = np.sqrt(dot(w, self._mv[j], None))
        missing: np.ndarray = which & (length <= DEPENDENT * np.finfo(w.dtype).eps * before)
        scale(np.where(which & ~missing, 1.0 / length, 1.0).astype(w.dtype), w)
        self._image(j)
        return missing

    def ritz_pairs(
        self, operated: np.ndarray, goodness: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute values and coefficients of Ritz vectors, the best pairs first, and mark samples not finite.

        `operated` is the operator times the first of the vectors; `goodness` rates values (n_samples, n_pairs). The
        values have shape (n_pairs, n_samples), the coefficients (n_vectors, n_pairs, n_samples).
        """
        m = operated.shape[0]
        H = np.ascontiguousarray(block_dots(self.images[:m], operated, None).transpose(2, 0, 1), np.float64)
        H = 0.5 * (H + H.transpose(0, 2, 1))
        bad = ~np.isfinite(H).all(axis=(1, 2))
        H[bad] = np.eye(m)
        values, vectors = space_in_force().agreed(tuple(np.linalg.eigh(H)))
        order = np.argsort(-goodness(values), axis=1, kind="stable")
        vectors = np.take_along_axis(vectors, order[:, None, :], axis=2)
        return np.take_along_axis(values, order, axis=1).T, vectors.transpose(1, 2, 0), np.asarray(bad)


def combined(basis: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Sum the vectors `basis` with coefficients of shape (n_vectors, n_sums, n_samples)."""
    out = np.zeros((coefficients.shape[1], *basis.shape[1:]), basis.dtype)
    block_add(coefficients.astype(basis.dtype, copy=False), basis, out)
    return out


def products(A: Any, vectors: np.ndarray) -> np.ndarray:
    """Multiply each vector of shape (n, n_samples) by A; return the vectors themselves where A is None."""
    return vectors if A is None else np.stack([A.apply(np.ascontiguousarray(v)) for v in vectors])


def signs_of(x: np.ndarray) -> np.ndarray:
    """The sign, per sample, of the first component of at least half the largest magnitude; 1 where there is none."""
    space, size = space_in_force(), np.abs(x)
    large = size >= 0.5 * space.largest(size.max(axis=0, initial=0.0))
    if space is SERIAL:
        negative = np.take_along_axis(x, np.argmax(large, axis=0)[None, :], axis=0)[0] < 0.0
    else:
        rows = np.where(large, (space.first + np.arange(x.shape[0], dtype=np.float64))[:, None], np.inf)
        first = space.smallest(rows.min(axis=0, initial=np.inf))
        negative = space.any(np.any(large & (rows == first) & (x < 0.0), axis=0))
    signs: np.ndarray = np.where(negative, -1.0, 1.0)
    return signs


def worst_first(operated: np.ndarray, order: np.ndarray, quality: np.ndarray, count: int) -> np.ndarray:
    """Multiply `count` kept vectors by the operator, those of the worst pairs first; `order` are the pairs' numbers."""
    k, n_samples = quality.shape
    places = np.repeat(np.arange(max(k, count))[:, None], n_samples, axis=1)
    places[:k] = np.take_along_axis(order, np.argsort(-quality, axis=0, kind="stable"), axis=0)
    chosen: np.ndarray = np.take_along_axis(operated, places[:count, None, :], axis=0)
    return chosen
