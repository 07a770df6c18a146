"""`eigsh`: a few eigenpairs of symmetric matrices, of every sample at once.

Longer than 400 lines: one search, whose pairs, bases and judgements share their state.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._check import integer, one_of, positive, require
from ensemble._kernels.krylov.basis import scale
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.row_sums import SERIAL, in_space
from ensemble._keywords import explains_calls
from ensemble.linalg.bridge.host import refuse
from ensemble.linalg.eigenvalues.eigen_dense import dense_pairs
from ensemble.linalg.eigenvalues.eigen_operators import Pencil, above, checked_shift, without_positive
from ensemble.linalg.eigenvalues.eigen_plain import PlainPencil, require_plain
from ensemble.linalg.eigenvalues.eigen_quick import QuickSearch
from ensemble.linalg.eigenvalues.eigen_result import EigenResult
from ensemble.linalg.eigenvalues.ritz import RitzBasis, combined, products, signs_of, worst_first
from ensemble.linalg.operators import set_of
from ensemble.linalg.outcomes import Status
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


@explains_calls("eigsh")
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
    """Compute the k eigenpairs ``A x = value M x`` of every sample that `which` names.

    A is symmetric, M symmetric positive definite; with `sigma` M may be singular (unknowns without mass), and the pairs
    are those of finite value.

    Lanczos' process with thick restarts [2]_ spans the spaces that the pairs are taken from. With `sigma` it takes the
    inverse of ``A - sigma M``, factorised for all samples together [1]_: few steps, whatever the gaps between the
    values. Without, it takes products with A as long as residuals fall fast, then an inverse at a shift beyond the end.
    The signs of pivots of shifted matrices count the values up to the farthest pair: where that is more than were
    found, another vector continues the process, so that the copies of a multiple value are found.

    Problems with M, and samples in which that does not suffice, take bases of several vectors together.
    The ends of the spectrum ("LA", "SA", and "LM" by both) are found by shifts beyond them: Gershgorin's bound, or with
    M the largest or smallest Ritz value, from which shifts come nearer as Ritz values settle; the signs of the pivots
    of ``A - sigma M`` tell that no eigenvalue lies beyond. Once the pairs have converged, another start is tried beside
    them, so that the copies of a multiple value are found. Matrices of few rows are treated as dense.

    Every sample has the start vectors, the steps and so the bits of its own run. A pair is accepted by its residual.
    Where the shift is an eigenvalue, or all but one, another shift near it is factorised; the pairs are still those
    nearest to `sigma`.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix, DistributedCrsMatrix or SciPy sparse matrices, shape (n, n)
        Over ranks products with A alone span the spaces; M, `sigma` and "SM" are refused, `vectors` are a rank's rows.
    k : int
        At most n.
    M : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrix, shape (n, n), optional
        The identity by default.
    sigma : number, or Ensemble of shape (), optional
        The pairs nearest to it are wanted.
    which : {"LM", "SM", "LA", "SA"}
        Largest or smallest in magnitude, largest or smallest algebraically; of ``1 / (value - sigma)`` with `sigma`,
        where "LM" is the only choice. "SM" is ``sigma=0``. For "SA" without M the first shift is 0 where all pivots of
        A are above 1e-8 of its norm.
    rtol : float, optional
        A pair has converged where the 2-norm of its residual is at most ``rtol * (|A| + |value| |M|) |x|``, with the
        largest sums of rows for the norms of A and M; 1e-12 by default, and 1e-5 for float32.
    max_iterations : int
        Bases that are built at most, each from the Ritz vectors of the one before.

    Returns
    -------
    EigenResult
        The status is "breakdown" where a number is not finite, ``A - sigma M`` has a zero pivot, A or M differs from
        its transpose by more than `rtol` of its norm, M is not positive definite (with `sigma`: has a negative
        eigenvalue), or there are fewer than k finite values.

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
    A = matrix_of(A, NAME, spread=True)
    if A.space is not SERIAL:
        require_plain(NAME, M, sigma, which)
    n, M = A.shape[0], None if M is None else matrix_of(M, NAME)
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
    with np.errstate(all="ignore"), in_space(A.space):  # a broken sample's arithmetic concerns no other
        quick = _quickly(A, M, sigma, which, k, rtol, max_iterations)
        search = quick or _thoroughly(A, M, sigma, which, k, rtol, max_iterations)
    sets: list[SampleSet | None] = [set_of(thing) for thing in (A, M, sigma) if thing is not None]
    together = None
    for found in sets:
        together = common_set(together, found)
    return search.result(together)


def _quickly(A: Any, M: Any, sigma: Any, which: str, k: int, rtol: float, max_iterations: int) -> QuickSearch | None:
    """The pairs of the usual way, and those of the thorough one for the samples that are left; None for other problems.

    Problems with M, or of few rows, and matrices over processes go the thorough way.
    """
    n = A.shape[0]
    if M is not None or A.space is not SERIAL or n <= 2 * _Search.rows(k, False) or n <= 2 * QuickSearch.vectors_of(k):
        return None
    shift = checked_shift(0.0 if which == "SM" else sigma, NAME)
    shifts = None if shift is None else np.atleast_1d(shift.samples if isinstance(shift, Ensemble) else shift)
    if shifts is not None and (
        (A.n_samples not in (1, shifts.size) and shifts.size > 1) or not np.isfinite(shifts).all()
    ):
        return None
    quick = QuickSearch(A, shifts, which, k, rtol)
    quick.run(max_iterations)
    left = np.flatnonzero(~quick.done)
    if left.size:
        own = sigma.take_samples(left) if isinstance(sigma, Ensemble) and sigma.n_samples > 1 else sigma
        quick.complete(_thoroughly(A.take_samples(left), None, own, which, k, rtol, max_iterations), left)
    return quick


def _thoroughly(A: Any, M: Any, sigma: Any, which: str, k: int, rtol: float, max_iterations: int) -> _Search:
    """The search of the thorough way, done."""
    if which == "LM" and sigma is None and A.space is SERIAL and A.shape[0] > 2 * _Search.rows(k, False):
        return _both_ends(A, M, k, rtol, max_iterations)
    return _searched(A, M, sigma, which, k, rtol, max_iterations)


def _searched(A: Any, M: Any, sigma: Any, which: str, k: int, rtol: float, max_iterations: int) -> _Search:
    """The search for pairs of all samples, done."""
    pencil = Pencil(A, M, sigma, which, NAME, rtol) if A.space is SERIAL else PlainPencil(A, which, rtol)
    search = _Search(pencil, k, rtol)
    if A.shape[0] <= 2 * search.capacity:
        search.treat_as_dense()
    else:
        search.iterate(max_iterations)
    return search


def _both_ends(A: Any, M: Any, k: int, rtol: float, max_iterations: int) -> _Search:
    """The pairs of largest magnitude: those of the upper end, of the lower end, or of both, per sample.

    The lower end is searched where the pivots of a shifted matrix do not tell that all values are above it.
    """
    whole = _Search(Pencil(A, M, None, "LM", NAME, rtol), k, rtol)
    negative = np.broadcast_to(without_positive(A), whole.status.shape)
    samples = np.flatnonzero(~negative)
    for which in ("LA", "SA"):
        if samples.size:
            own, weight = A.take_samples(samples), None if M is None else M.take_samples(samples)
            whole.merge(_searched(own, weight, None, which, k, rtol, max_iterations), samples)
        if which == "LA" and samples.size:
            powers = whole.pencil.exponents[samples if whole.pencil.exponents.size > 1 else 0]
            bounds = -np.ldexp(np.min(np.abs(whole.values[:, samples]), axis=0), powers)
            samples = samples[~above(own, weight, bounds)]
        samples = np.union1d(samples, np.flatnonzero(negative))
    return whole


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
        self.capacity = self.rows(k, pencil.inverts)
        dtype = pencil.A.dtype
        self.lowest = n * float(np.finfo(dtype).eps)  # values of an inverse, by the largest, that count as zero
        self.spare = pencil.start_vectors(self.capacity + 2 * BLOCK, START)
        self.values, self.vectors = np.full((k, count), np.nan), np.full((n, k, count), np.nan, dtype)
        self.residuals, self.target = np.full((k, count), np.nan), np.full((k, count), np.nan)
        self.status = np.full(count, Status.max_iterations, dtype=object)
        self.iterations = np.zeros(count, np.int64)
        self.active = np.arange(count)

    @staticmethod
    def rows(k: int, inverts: bool) -> int:
        """Vectors of a basis for k pairs."""
        return k + GUARDS + max(BLOCKS[inverts], -(-k // BLOCK)) * BLOCK

    def merge(self, other: _Search, samples: np.ndarray) -> None:
        """Take the pairs of largest magnitude of this search, which may have none, and of another of some samples."""
        for i, s in enumerate(samples.tolist()):
            self.iterations[s] += other.iterations[i]
            if np.isnan(self.values[:, s]).all() and not self.iterations[s] > other.iterations[i]:
                chosen = np.arange(self.k)
                values, vectors = other.values[:, i], other.vectors[:, :, i]
                residuals, target = other.residuals[:, i], other.target[:, i]
                self.status[s] = other.status[i]
            else:
                values = np.concatenate([self.values[:, s], other.values[:, i]])
                vectors = np.concatenate([self.vectors[:, :, s], other.vectors[:, :, i]], axis=1)
                residuals = np.concatenate([self.residuals[:, s], other.residuals[:, i]])
                target = np.concatenate([self.target[:, s], other.target[:, i]])
                best = np.argsort(-np.abs(values), kind="stable")[: self.k]
                chosen = best[np.argsort(values[best], kind="stable")]
                if other.status[i] != Status.converged:
                    self.status[s] = other.status[i]
            self.values[:, s], self.vectors[:, :, s] = values[chosen], vectors[:, chosen]
            self.residuals[:, s], self.target[:, s] = residuals[chosen], target[chosen]

    # --- the two ways
    def treat_as_dense(self) -> None:
        """All pairs of every sample, of which the k wanted ones are kept."""
        values, vectors, bad = self.pencil.dense_pairs(lambda pencil: dense_pairs(pencil, self.k))
        for x in vectors:
            x *= signs_of(x)
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
        if pencil.semidefinite.any():
            spanned = pencil.operate(following, products(pencil.M, following))
            following = np.where(pencil.semidefinite, spanned, following)
        left = np.zeros(count, bool)  # samples in which the block continues no Krylov space of the kept vectors
        held = np.zeros(count, bool)  # samples whose noted pairs have converged, with the values `seen`
        before = np.full(count, np.inf)  # the largest residual in units of what it may be
        made = pencil.settle(functools.partial(self.improved, pencil, kept, operated, following))
        for iteration in range(1, max_iterations + 1):
            found, kept, operated, following, bad = (
                made if iteration == 1 else self.improved(pencil, kept, operated, following)
            )
            self.iterations[self.active] = iteration
            block = kept[: self.k]
            if pencil.semidefinite.any():  # what M maps to zero is not in the range of the inverse
                block = np.where(pencil.semidefinite, operated[: self.k], block)
                bad = bad | pencil.semidefinite & (np.abs(found[self.k - 1]) <= self.lowest * np.abs(found[0]))
            values, vectors, order = self.rayleigh_quotients(pencil, block)
            values, vectors, residuals, target = self.polished(pencil, values, vectors, block, before)
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
            following[:, :, left] = worst_first(operated, order, residuals / target, BLOCK)[:, :, left]
            following[:, :, good] = others[:, :, good]
            worst = worst_first(kept, order, residuals / target, BLOCK)
            left |= good
            seen = np.where(good, values, seen)
            if going_on.size < self.active.size:
                self.active, pencil, seen = self.active[going_on], pencil.take_samples(going_on), seen[:, going_on]
                left, held, before = left[going_on], held[going_on], before[going_on]
                kept, operated, following, others, worst = (
                    np.ascontiguousarray(array[:, :, going_on]) for array in (kept, operated, following, others, worst)
                )
            moved = pencil.approach(found[:, going_on], ~held)
            if moved.any():
                operated = np.where(moved, pencil.operate(kept, products(pencil.M, kept)), operated)
                following = np.where(moved, pencil.operate(worst, products(pencil.M, worst)), following)

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
            scale((signs_of(x) / length).astype(x.dtype), x)
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
