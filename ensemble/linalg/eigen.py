"""`eigsh`: a few eigenpairs of symmetric matrices, of every sample at once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._check import integer, one_of, positive, require, samples_text
from ensemble._kernels.krylov.basis import scale
from ensemble._kernels.krylov.vectors import dot
from ensemble.linalg.bridge.host import refuse
from ensemble.linalg.eigen_operators import Pencil, dense_pairs
from ensemble.linalg.operators import set_of
from ensemble.linalg.outcomes import SolveError, Status
from ensemble.linalg.ritz import RitzBasis, combined, products
from ensemble.linalg.square_matrices import matrix_of, real_dtype
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = ["EigenResult", "eigsh"]

NAME = "eigsh"

GUARDS = 2
"""Ritz vectors that are kept beside the k wanted ones."""

BLOCK = 3
"""Vectors that the operator is applied to together."""

BLOCKS = {True: 5, False: 9}
"""Blocks of a basis at least, by whether a factorisation is applied."""

SAME = 4.0
"""Largest change of a value, in units of its accuracy, that another start may cause where it finds no other value."""

NEAR = 1e6
"""Pairs whose residuals do not fall, and are at most this many times what they may be, are improved without further
directions."""

START = 20_231
"""Seed of the starting vectors, which are the same for all samples."""


@dataclass(frozen=True, repr=False)
class EigenResult:
    """Eigenpairs of every sample, and how good they are.

    Attributes
    ----------
    values : Ensemble, shape (k,)
        Ascending in every sample.
    vectors : Ensemble, shape (n, k)
        ``x^T M x = 1``. The first component of at least half the largest magnitude is positive.
    residual_norms : array, shape (k, n_samples)
        2-norms of ``A x - value M x``.
    status : array of Status, shape (n_samples,)
        Of the sample's pairs together.
    iterations : array of int, shape (n_samples,)
        Bases that were built; 0 where small matrices were treated as dense.
    target : array, shape (k, n_samples)
        What the residual norms had to reach.
    """

    values: Ensemble
    vectors: Ensemble
    residual_norms: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    target: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        """True for each sample all of whose pairs reached their targets, shape (n_samples,)."""
        converged: np.ndarray = self.status == Status.converged
        return converged

    def __repr__(self) -> str:
        failed = np.flatnonzero(~self.converged)
        text = f"EigenResult({self.values.shape[0]} pairs: {self.status.size - failed.size} of {self.status.size} "
        return f"{text}samples converged{f'; not: {samples_text(failed)}' if failed.size else ''})"

    def raise_if_failed(self) -> EigenResult:
        """This result, or `SolveError` naming the samples with a pair that did not converge."""
        failed = np.flatnonzero(~self.converged)
        if not failed.size:
            return self
        counts = {outcome: int(np.sum(self.status[failed] == outcome)) for outcome in Status}
        ended = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
        advice = "Give sigma near the values wanted, or allow more iterations."
        raise SolveError(
            f"{NAME}: {failed.size} of {self.status.size} samples have pairs that did not converge "
            f"({samples_text(failed, of=self.status.size)}; {ended}). {advice}"
        )


def eigsh(
    A: Any,
    k: int = 6,
    M: Any = None,
    *,
    sigma: Any = None,
    which: str = "LM",
    rtol: float | None = None,
    max_iterations: int = 100,
) -> EigenResult:
    """The k eigenpairs ``A x = value M x`` of every sample that `which` names.

    A is symmetric, M symmetric positive definite.

    With `sigma`, or for "SM" and "SA" where there is no M, ``A - sigma M`` is factorised for all samples together and
    its inverse spans the spaces that the pairs are taken from [1]_: few steps, whatever the gaps between the values.
    Otherwise products with A do (and solutions with M, where there is one). Once the pairs have converged, another
    start is tried beside them, so that the copies of a multiple value are found. Matrices of few rows are treated as
    dense.

    Every sample has the start vectors, the steps and so the bits of its own run. A pair is accepted by its residual.
    Where the shift is an eigenvalue, or all but one, another shift near it is factorised; the pairs are still those
    nearest to `sigma`.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrices, shape (n, n)
    k : int
        At most n.
    M : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrix, shape (n, n), optional
        The identity by default.
    sigma : number, or Ensemble of shape (), optional
        The pairs nearest to it are wanted.
    which : {"LM", "SM", "LA", "SA"}
        Largest or smallest in magnitude, largest or smallest algebraically; of ``1 / (value - sigma)`` with `sigma`,
        where "LM" is the only choice. "SM" is ``sigma=0``. For "SA" without M the shift is 0 where all pivots of A
        are above 1e-8 of its norm, elsewhere a lower bound of the values by Gershgorin's circles.
    rtol : float, optional
        A pair has converged where the 2-norm of its residual is at most ``rtol * (|A| + |value| |M|) |x|``, with the
        largest sums of rows for the norms of A and M; 1e-12 by default, and 1e-5 for float32.
    max_iterations : int
        Bases that are built at most, each from the Ritz vectors of the one before.

    Returns
    -------
    EigenResult
        The status is "breakdown" where a number is not finite, ``A - sigma M`` has a zero pivot, A or M differs from
        its transpose by more than `rtol` of its norm, or M is not positive definite.

    Raises
    ------
    ValueError
        If A is not square, M has another shape, `k` is larger than n, or samples do not fit.
    TypeError
        If A or M is no sparse matrix, or complex.

    References
    ----------
    .. [1] Ericsson, Ruhe (1980), Math. Comp. 35, 1251-1268; Saad (2011), Numerical Methods for Large Eigenvalue
       Problems, 2nd ed., chapters 5 and 8.
    .. [2] Wu, Simon (2000), SIAM J. Matrix Anal. 22, 602-616 (restarts that keep Ritz vectors).

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> factors = Ensemble(np.array([1.0, 4.0]))
    >>> result = eigsh(factors * poisson((100,)), 2, which="SA")
    >>> result
    EigenResult(2 pairs: 2 of 2 samples converged)
    >>> exact = 2 - 2 * np.cos(np.arange(1, 3) * np.pi / 101)
    >>> np.allclose(result.values.samples, np.stack([exact, 4 * exact], axis=1), rtol=1e-12)
    True
    """
    A, M = matrix_of(A, NAME), None if M is None else matrix_of(M, NAME)
    n = A.shape[0]
    dtype = np.result_type(*(np.dtype(real_dtype(matrix, NAME)) for matrix in (A, M) if matrix is not None))
    for argument, matrix in (("A", A), ("M", M)):
        if matrix is not None and not isinstance(matrix.values, np.ndarray):
            raise refuse(NAME, argument, matrix.values, "hold NumPy arrays", "A.to(np.empty(0)) moves a matrix.")
    require(M is None or M.shape == A.shape, NAME, "M", f"have shape {A.shape}", f"shape {getattr(M, 'shape', None)}")
    integer(k, NAME, "k", minimum=1)
    require(k <= n, NAME, "k", f"be at most the number of rows, {n}", k)
    one_of(which, ("LM", "SM", "LA", "SA"), NAME, "which")
    advice = "The pairs nearest to sigma are those."
    require(sigma is None or which == "LM", NAME, "which", 'be "LM" where sigma is given', repr(which), advice)
    integer(max_iterations, NAME, "max_iterations", minimum=1)
    rtol = (1e-12 if dtype == np.float64 else 1e-5) if rtol is None else positive(rtol, NAME, "rtol", zero=True)
    A, M = A.astype(dtype), None if M is None else M.astype(dtype)
    pencil = Pencil(A, M, sigma, which, NAME, rtol)
    search = _Search(pencil, k, rtol)
    with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
        if n <= 2 * search.capacity:
            search.treat_as_dense()
        else:
            search.iterate(max_iterations)
    sets: list[SampleSet | None] = [set_of(thing) for thing in (A, M, sigma) if thing is not None]
    together = None
    for found in sets:
        together = common_set(together, found)
    return search.result(together)


class _Search:
    """Pairs of all samples; those that still run are the samples `active`.

    A basis has the Ritz vectors that are kept, then blocks of a Krylov space; the block after the last one continues
    it, so that the next basis does [2]_. Once the pairs of a sample have converged, a block of other vectors takes its
    place: what the space has missed so far, as one of many equal values, comes up there.
    """

    def __init__(self, pencil: Pencil, k: int, rtol: float) -> None:
        self.pencil, self.k, self.rtol = pencil, k, rtol
        n, count = pencil.n, pencil.n_samples
        self.kept = k + GUARDS
        self.capacity = self.kept + max(BLOCKS[pencil.inverts], -(-k // BLOCK)) * BLOCK
        dtype = pencil.A.dtype
        self.spare = np.random.default_rng(START).standard_normal((self.capacity + 2 * BLOCK, n)).astype(dtype)
        self.values, self.vectors = np.full((k, count), np.nan), np.full((n, k, count), np.nan, dtype)
        self.residuals, self.target = np.full((k, count), np.nan), np.full((k, count), np.nan)
        self.status = np.full(count, Status.max_iterations, dtype=object)
        self.iterations = np.zeros(count, np.int64)
        self.active = np.arange(count)

    # --- the two ways
    def treat_as_dense(self) -> None:
        """All pairs of every sample, of which the k wanted ones are kept."""
        values, vectors, bad = dense_pairs(self.pencil, self.k)
        for x in vectors:
            x *= _signs(x)
        self.accept(values, vectors, *self.residuals_of(self.pencil, values, vectors), bad, np.zeros_like(bad))
        good = np.all(self.residuals <= self.target, axis=0)
        self.status[:] = Status.stagnated
        self.status[good] = Status.converged
        self.status[bad] = Status.breakdown

    def iterate(self, max_iterations: int) -> None:
        """Build bases until no sample runs; finished samples leave."""
        pencil, count = self.pencil, self.pencil.n_samples
        others = np.repeat(self.spare[-BLOCK:, :, None], count, axis=2)
        kept = operated = others[:0]
        following, seen = np.repeat(self.spare[:BLOCK, :, None], count, axis=2), np.full((self.k, count), np.nan)
        left = np.zeros(count, bool)  # samples in which the block continues no Krylov space of the kept vectors
        held = np.zeros(count, bool)  # samples whose noted pairs have converged, with the values `seen`
        before = np.full(count, np.inf)  # the largest residual in units of what it may be
        made = pencil.settle(functools.partial(self.improved, pencil, kept, operated, following))
        for iteration in range(1, max_iterations + 1):
            _, kept, operated, following, bad = (
                made if iteration == 1 else self.improved(pencil, kept, operated, following)
            )
            self.iterations[self.active] = iteration
            values, vectors, order = self.rayleigh_quotients(pencil, kept[: self.k])
            values, vectors, residuals, target = self.polished(pencil, values, vectors, kept[: self.k], before)
            before = np.max(residuals / target, axis=0)
            bad = bad | pencil.unfit
            same = self.unchanged(pencil, values, seen)
            self.accept(values, vectors, residuals, target, bad, same & held)
            bad = bad | ~np.isfinite(residuals).all(axis=0)
            good = np.all(residuals <= target, axis=0)
            held = good | (same & held)
            ended = same & held & ~bad
            self.status[self.active[ended]] = Status.converged
            self.status[self.active[bad]] = Status.breakdown
            going_on = np.flatnonzero(~ended & ~bad)
            if not going_on.size:
                return
            following[:, :, left] = _worst(operated, order, residuals / target)[:, :, left]
            following[:, :, good] = others[:, :, good]
            left |= good
            seen = np.where(good, values, seen)
            if going_on.size < self.active.size:
                self.active, pencil, seen = self.active[going_on], pencil.take_samples(going_on), seen[:, going_on]
                left, held, before = left[going_on], held[going_on], before[going_on]
                kept, operated, following, others = (
                    np.ascontiguousarray(array[:, :, going_on]) for array in (kept, operated, following, others)
                )

    def unchanged(self, pencil: Pencil, values: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The samples whose values are those that another start was tried beside, to their accuracy."""
        accuracy = self.rtol * (pencil.norm_A / pencil.norm_M + np.abs(values))
        same: np.ndarray = np.all(np.abs(values - before) <= SAME * accuracy, axis=0)
        return same

    def improved(
        self, pencil: Pencil, kept: np.ndarray, operated: np.ndarray, following: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The best values and Ritz vectors, the operator times these, the block that continues the space, bad samples.

        Values of the operator have shape (n_kept, n_samples).
        """
        basis = RitzBasis(following[0], pencil.M, self.spare)
        basis.extend(kept)
        done = np.empty((self.capacity, *following.shape[1:]), following.dtype)
        done[: basis.size] = operated
        while basis.size + BLOCK <= self.capacity:
            first = basis.size
            basis.extend(following)
            done[first : basis.size] = following = pencil.operate(basis.vectors[first:], basis.images[first:])
        m = basis.size
        basis.extend(following)
        found, coefficients, bad = basis.ritz_pairs(done[:m], pencil.goodness)
        chosen = coefficients[:, : self.kept]
        kept, operated = combined(basis.vectors[:m], chosen), combined(done[:m], chosen)
        return found[: self.kept], kept, operated, basis.vectors[m:].copy(), bad

    # --- pairs
    def rayleigh_quotients(self, pencil: Pencil, block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values and vectors, ascending, with x^T M x = 1 and the sign of the rule; and their places in `block`."""
        images, weighted = products(pencil.A, block), products(pencil.M, block)
        squares = np.stack([dot(x, y, None) for x, y in zip(block, weighted, strict=True)])
        values = np.stack([dot(x, y, None) for x, y in zip(block, images, strict=True)]) / squares
        order = np.argsort(values, axis=0, kind="stable")
        vectors = np.take_along_axis(block, order[:, None, :], axis=0)
        lengths = np.sqrt(np.take_along_axis(squares, order, axis=0))
        for x, length in zip(vectors, lengths, strict=True):
            scale((_signs(x) / length).astype(x.dtype), x)
        return np.take_along_axis(values, order, axis=0), vectors, order

    def polished(
        self, pencil: Pencil, values: np.ndarray, vectors: np.ndarray, block: np.ndarray, before: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Pairs, their residuals and what these may be; better pairs where residuals are small and do not fall.

        `before` are the largest residuals of the basis before, in units of what they may be. Of more copies of a value
        than vectors are kept, each basis finds one anew, and mixes its error into the others. The space of the operator
        times `block` alone has none of it.
        """
        residuals, target = self.residuals_of(pencil, values, vectors)
        now = np.max(residuals / target, axis=0)
        slow = (now > 1.0) & (now <= NEAR) & (now >= before)
        if not (pencil.inverts and slow.any()):
            return values, vectors, residuals, target
        basis = RitzBasis(block[0], pencil.M, self.spare)
        basis.extend(pencil.operate(block, products(pencil.M, block)))
        operated = pencil.operate(basis.vectors, basis.images)
        _, coefficients, bad = basis.ritz_pairs(operated, pencil.goodness)
        found, others, _ = self.rayleigh_quotients(pencil, combined(operated, coefficients))
        slow &= ~bad
        values, vectors = np.where(slow, found, values), np.where(slow, others, vectors)
        return values, vectors, *self.residuals_of(pencil, values, vectors)

    def residuals_of(self, pencil: Pencil, values: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The norms of the residuals of pairs, and what they may be."""
        weighted = products(pencil.M, vectors)
        defects = products(pencil.A, vectors) - values.astype(vectors.dtype)[:, None, :] * weighted
        residuals = np.sqrt(np.stack([dot(r, r, None) for r in defects]).astype(np.float64))
        lengths = np.sqrt(np.stack([dot(x, x, None) for x in vectors]).astype(np.float64))
        return residuals, self.rtol * (pencil.norm_A + np.abs(values) * pencil.norm_M) * lengths

    def accept(
        self, values: np.ndarray, vectors: np.ndarray, residuals: np.ndarray, target: np.ndarray, bad: np.ndarray,
        held: np.ndarray,
    ) -> None:  # fmt: skip
        """Note pairs of the active samples, their residuals and what these may be.

        Pairs of the same values are noted for the samples `held`, and have converged: beside another start they mix
        with copies of a value that are not accurate yet, and the old ones stay where a residual is too large.
        """
        residuals = np.where(bad, np.nan, residuals)
        new = np.flatnonzero(~held | np.all(residuals <= target, axis=0))
        noted = self.active[new]
        self.values[:, noted] = np.where(bad, np.nan, values)[:, new]
        self.vectors[:, :, noted] = np.where(bad, np.nan, vectors).transpose(1, 0, 2)[:, :, new]
        self.residuals[:, noted], self.target[:, noted] = residuals[:, new], target[:, new]

    def result(self, sample_set: SampleSet | None) -> EigenResult:
        """The pairs of all samples."""
        powers = self.pencil.exponents
        values, residuals, target = (np.ldexp(found, powers) for found in (self.values, self.residuals, self.target))
        values, vectors = Ensemble(values.astype(self.vectors.dtype), sample_set), Ensemble(self.vectors, sample_set)
        return EigenResult(values, vectors, residuals, self.status, self.iterations, target)


def _worst(operated: np.ndarray, order: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """The operator times `BLOCK` kept vectors, those of the worst pairs first; `order` are the numbers of the pairs."""
    k, count = quality.shape
    places = np.repeat(np.arange(max(k, BLOCK))[:, None], count, axis=1)
    places[:k] = np.take_along_axis(order, np.argsort(-quality, axis=0, kind="stable"), axis=0)
    chosen: np.ndarray = np.take_along_axis(operated, places[:BLOCK, None, :], axis=0)
    return chosen


def _signs(x: np.ndarray) -> np.ndarray:
    """The sign, per sample, of the first component of at least half the largest magnitude; 1 where there is none."""
    size = np.abs(x)
    first = np.argmax(size >= 0.5 * size.max(axis=0), axis=0)
    signs: np.ndarray = np.where(np.take_along_axis(x, first[None, :], axis=0)[0] < 0.0, -1.0, 1.0)
    return signs
