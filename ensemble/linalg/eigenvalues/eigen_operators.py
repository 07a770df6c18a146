"""The operators of symmetric eigenproblems: a matrix, or the inverse of a shifted one; small problems as dense ones."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import finite, message, require
from ensemble._kernels.sparse.row_sums import space_in_force
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.diagonal import Diagonal
from ensemble.linalg.eigenvalues.ritz import products
from ensemble.linalg.factorizations.factorization import Factorization, upper_factorized
from ensemble.linalg.operators import as_real, numbers_of
from ensemble.linalg.square_matrices import asymmetry
from ensemble.scalar import Ensemble

__all__ = [
    "BELOW",
    "SINGULAR_WEIGHT",
    "Pencil",
    "above",
    "checked_shift",
    "exponents_of",
    "row_norms",
    "without_positive",
]

_Found = TypeVar("_Found", bound=tuple[np.ndarray, ...])

BELOW = 1e-6
"""Distance of a shift from Gershgorin's bound, or at most from the requested shift, by the norm of A."""

MOVED, MOST_MOVED = 2.0, 1e-1
"""How far a shift is moved, over the ratio of values that is allowed, and at most, by its distance from the last of the
values that are kept."""

MOVES = 4
"""Times that a shift is moved at most."""

GRADED, LEAST_GRADED = -1.0 / 3.0, 32.0
"""Bounds, the upper one as a power of the unit of rounding, of the ratio of the values of an inverse that are kept
above which the shift is moved."""

GRADED_ROUNDOFFS = 4.0
"""Relative residual of the pair of the least of these values, in units of rounding, over their ratio."""

SINGULAR = 2e-3
"""Largest value of an inverse, by the norm of A and in units of one by rounding, of a shift that is an eigenvalue."""

FAR = 3.0
"""Distance of a shift from the values wanted, by the spread of those that are kept, from which on it is moved."""

NEAREST = 1e4
"""Units of rounding of the norm of A that a shift keeps at least from the values wanted."""

TRIALS, MOST_TRIALS, MOST_APPROACHES = 2, 25, 12
"""Shifts tried at most where there is a shift already, and where there is none; times that one is moved at most."""

CLEAR = 1e-8
"""Least pivot, by the norm of A, of a matrix that counts as positive definite."""

SINGULAR_WEIGHT = 1000.0
"""Units of rounding of the norm of M below which an eigenvalue of M counts as zero."""

ROUNDOFFS = 16.0
"""Backward error of a solution with the shifted matrix, in units of rounding, above which it is corrected."""


PER_SAMPLE = (
    "norm_A", "norm_M", "norm_shifted", "shifts", "offsets", "unit", "unfit", "approached", "semidefinite"
)  # fmt: skip
"""Attributes of a `Pencil` that are arrays with one entry per sample, or one for all."""


class Pencil:
    """A and M of a problem ``A x = value M x``, and the operator whose largest values are wanted.

    A, the shifts and the values are those of the problem over two to the power of `exponents`, one per sample.
    """

    def __init__(self, A: CrsMatrix, M: CrsMatrix | None, sigma: Any, which: str, name: str, rtol: float = 0.0) -> None:
        self.exponents = exponents_of(A)
        if self.exponents.any():
            A = CrsMatrix(A.graph, Ensemble(np.ldexp(A.values, -self.exponents), A.sample_set))
        if M is not None and (M.graph.diagonal_entries < 0).any():  # unknowns without mass, whose zeros are not stored
            M = as_crs(M + 0.0 * Diagonal(np.ones(M.shape[0], M.dtype)))
        self.A, self.M, self.which, self.rtol = A, M, which, rtol
        self.n = A.shape[0]
        shift = checked_shift(sigma, name)
        counts = {m.n_samples for m in (A, M, shift) if isinstance(m, CrsMatrix | Ensemble)} - {1}
        require(len(counts) < 2, name, "A, M and sigma", "have the same n_samples, or 1", sorted(counts))
        self.n_samples = max(counts, default=1)
        if shift is not None and self.exponents.any():
            given = shift.samples if isinstance(shift, Ensemble) else shift
            shift = Ensemble(np.ldexp(given, -self.exponents))
        with np.errstate(all="ignore"):
            self.norm_A, self.norm_M = row_norms(A), np.ones(1) if M is None else row_norms(M)
            self.unit = np.where(self.norm_A > 0.0, self.norm_A, 1.0) / self.norm_M  # of shifts
            factors = None if M is None else upper_factorized(M)
            self.semidefinite = np.broadcast_to(
                self._semidefinite(factors, sigma is not None or which == "SM"), self.n_samples
            ).copy()
            known = np.isfinite(shift.samples) if isinstance(shift, Ensemble) else True
            self.unfit = np.broadcast_to(self._unfit(factors, rtol) | ~np.asarray(known), self.n_samples).copy()
            self.side = {"LA": 1.0, "SA": -1.0}.get(which, 0.0) if sigma is None else 0.0
            bound = self.side != 0.0 and M is None
            self.refines = self.side == 0.0  # definite matrices need no exchanges
            self.approached = np.zeros(self.n_samples, np.int64)
            if which == "SM":
                shift = 0.0
            elif bound:
                shift = Ensemble(self._shift_beyond(A))
            self.shift = shift
            self.shifted: CrsMatrix | None = None
            self.norm_shifted, self.shifts, self.offsets = np.ones(1), np.zeros(1), np.zeros(1)
            self.factors: Factorization | None = None
            if shift is not None:
                self.shifts = shift.samples if isinstance(shift, Ensemble) else np.full(1, shift, A.dtype)
                self.move(np.zeros(self.n_samples))
            else:
                self.factors = factors

    def _semidefinite(self, factors: Factorization | None, allowed: bool) -> np.ndarray:
        """Find samples whose M is singular up to rounding without a negative eigenvalue; none unless `allowed`."""
        if factors is None or not allowed or self.M is None:
            return np.zeros(1, bool)
        rounding = float(np.finfo(self.A.dtype).eps) * self.norm_M
        singular: np.ndarray = ~(factors._least_pivot() > self.n * rounding)
        if not singular.any():
            return singular
        above = self.M + Ensemble((SINGULAR_WEIGHT * rounding).astype(self.M.dtype)) * Diagonal(
            np.ones(self.n, self.M.dtype)
        )
        definite: np.ndarray = singular & (upper_factorized(as_crs(above))._least_pivot() > 0.0)
        return definite

    def _unfit(self, factors: Factorization | None, rtol: float) -> np.ndarray:
        """Samples whose A or M is not symmetric to `rtol`, or whose M is not positive (semi)definite by its LDL^T."""
        least = max(rtol, ROUNDOFFS * float(np.finfo(self.A.dtype).eps))
        unfit = asymmetry(self.A)[0] > least * self.norm_A
        if factors is not None:
            assert self.M is not None
            indefinite = ~(factors._least_pivot() > 0.0) & ~self.semidefinite[: factors.n_samples]
            unfit = unfit | (asymmetry(self.M)[0] > least * self.norm_M) | indefinite
        return unfit

    def _shift_beyond(self, A: CrsMatrix) -> np.ndarray:
        """A number beyond all eigenvalues on the side that is wanted, per sample, by Gershgorin's circles.

        Below them it is 0 where all pivots are clearly positive: that is nearer, so that fewer steps are needed.
        """
        if self.side > 0.0:
            return -_lower_bound(-1.0 * A, self.norm_A)
        bound = _lower_bound(A, self.norm_A)
        return np.where((bound < 0.0) & clearly_positive(A, self.norm_A), 0.0, bound).astype(A.dtype)

    def approach(self, found: np.ndarray, running: np.ndarray) -> np.ndarray:
        """Move the shifts of `running` samples next to the values wanted; which were moved.

        `found` are Ritz values of the operator, the best first. A shift is beyond all eigenvalues where the pivots of
        the shifted matrix have one sign, by Sylvester's law; one that is not goes part of the way back, and stays where
        it was after `TRIALS`. Products with A are replaced by an inverse so.
        """
        running = running & (self.approached < MOST_APPROACHES) & np.isfinite(found).all(axis=0)
        if self.side == 0.0 or not running.any():
            return np.zeros_like(running)
        inverts, own = self.inverts, np.broadcast_to(self.shifts + self.offsets, running.shape)
        with np.errstate(all="ignore"):
            values = own + 1.0 / found if inverts else found
            first, spread = values[0], np.abs(values[0] - values[-1])
            margin = np.maximum(spread, NEAREST * float(np.finfo(self.A.dtype).eps) * self.unit)
            far = np.abs(own - first) if inverts else np.full(running.shape, np.inf)
            wanted: np.ndarray = running & (far > FAR * margin)
        if not wanted.any():
            return wanted
        self.approached = self.approached + wanted
        moved: np.ndarray = np.zeros_like(wanted)
        left = wanted
        shifts = np.array(own, np.float64)
        for _ in range(TRIALS if inverts else MOST_TRIALS):
            trial = np.where(left, first + self.side * margin, shifts)
            beyond = self._factorize(trial)
            shifts = np.where(left & beyond, trial, shifts)
            moved, left = moved | (left & beyond), left & ~beyond
            if not left.any():
                break
            margin = np.sqrt(margin * far) if inverts else 4.0 * margin
        if left.any():
            self._factorize(shifts)
        self.shifts, self.offsets = shifts, np.zeros_like(shifts)
        return moved

    def _factorize(self, shifts: np.ndarray) -> np.ndarray:
        """Factorise the matrix shifted by `shifts`; which of these are beyond all eigenvalues on the side wanted."""
        weight = Diagonal(np.ones(self.n, self.A.dtype)) if self.M is None else self.M
        self.shifted = as_crs(self.A - Ensemble(shifts.astype(self.A.dtype)) * weight)
        self.norm_shifted = row_norms(self.shifted)
        self.factors = upper_factorized(self.shifted)
        with np.errstate(all="ignore"):
            signs = self.side * to_numpy(self.factors._pivots) < 0.0
        beyond: np.ndarray = signs.all(axis=0) & ~self.factors.broken
        return beyond

    def move(self, offsets: np.ndarray) -> None:
        """Factorise the matrix of shifts that are `offsets`, one per sample, above the requested ones.

        A sample with a zero pivot has its shift moved further.
        """
        further = np.where(offsets == 0.0, BELOW * self.unit, 0.25 * offsets)
        broken = np.zeros(1, bool)
        for factor in (0.0, 1.0, 3.0):
            self.offsets = np.where(broken, offsets + factor * further, offsets if factor == 0.0 else self.offsets)
            self._factorize(self.shifts + self.offsets)
            assert self.factors is not None
            broken = self.factors.broken
            if not broken.any():
                return

    def goodness(self, values: np.ndarray) -> np.ndarray:
        """The rank of values (n_samples, n_pairs) of the operator: of the wanted ones it is largest."""
        if not self.inverts:
            plain: np.ndarray = {"LM": np.abs(values), "LA": values, "SA": -values}[self.which]
            return plain
        offsets = np.broadcast_to(self.offsets, values.shape[:1])[:, None]
        goodness: np.ndarray = np.where(offsets == 0.0, np.abs(values), 1.0 / np.abs(1.0 / values + offsets))
        return goodness

    def settle(self, found: Callable[[], _Found]) -> _Found:
        """What `found` gives, of which the first are values (n_pairs, n_samples), for shifts that suit these values.

        Where the largest value is far above the others, the shift is all but an eigenvalue, and their digits are lost
        beside it. A shift far from the requested one finds other pairs.
        """
        made, eps = found(), float(np.finfo(self.A.dtype).eps)
        graded = min(max(self.rtol / (GRADED_ROUNDOFFS * eps), LEAST_GRADED), eps**GRADED)
        for n in range(MOVES if self.inverts else 0):
            size, distance = np.abs(made[0]), 1.0 / self.goodness(made[0].T).T[-1]
            near = size.max(axis=0) > graded * size.min(axis=0)
            singular = near & (size.max(axis=0) * self.unit > SINGULAR / eps)  # no other value has a digit
            nearer, far = MOVED / graded * distance, self.offsets > MOST_MOVED * distance
            apart = nearer > eps / SINGULAR * self.unit  # else all values that are kept equal the shift
            moved = np.where(singular, BELOW * self.unit, nearer) * 3.0**n
            offsets = np.where(singular | (near | far) & apart, moved, self.offsets)
            if (offsets == self.offsets).all():
                break
            self.move(offsets)
            made = found()
        return made

    def start_vectors(self, count: int, seed: int) -> np.ndarray:
        """Vectors to begin with, shape (count, n)."""
        return np.random.default_rng(seed).standard_normal((count, self.n)).astype(self.A.dtype)

    def dense_pairs(self, found: Callable[[Pencil], _Found]) -> _Found:
        """What `found` makes of this problem: values, vectors and bad samples."""
        return found(self)

    @property
    def inverts(self) -> bool:
        """Whether the operator is the inverse of the shifted matrix."""
        return self.shifted is not None

    def take_samples(self, samples: np.ndarray) -> Pencil:
        """The problem of the samples named."""
        made = object.__new__(Pencil)
        made.__dict__.update(self.__dict__)
        for name in ("A", "M", "shifted", "factors"):
            own = getattr(self, name)
            setattr(made, name, None if own is None else own.take_samples(samples))
        for name in PER_SAMPLE:
            own = getattr(self, name)
            setattr(made, name, own if own.size == 1 else own[samples])
        made.n_samples = samples.size
        return made

    def operate(self, vectors: np.ndarray, images: np.ndarray) -> np.ndarray:
        """The operator times `vectors`, whose products with M are `images`; vectors have shape (n, n_samples)."""
        if self.factors is None:
            return products(self.A, vectors)
        if self.shifted is None:
            return self._solve(products(self.A, vectors))
        found = self._solve(images)
        return self._refined(found, images) if self.refines else found

    def _refined(self, found: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Solutions with the shifted matrix, with a correction in the samples whose residual is large.

        Where that does not suffice because entries grew in the elimination, factors with exchanges give them.
        """
        large, defects = self._inaccurate(found, images)
        if not large.any():
            return found
        assert self.factors is not None
        found = np.where(large, found + self._solve(defects), found)
        lossy = large & self.factors.lossy
        if lossy.any() and (lossy & self._inaccurate(found, images)[0]).any():
            solved = self.factors @ Ensemble(np.ascontiguousarray(images.transpose(1, 0, 2)))
            found = np.where(lossy, solved.samples.transpose(1, 0, 2), found)
        return found

    def _inaccurate(self, found: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Samples with a large residual, and the residuals."""
        defects = images - products(self.shifted, found)
        size = (self.norm_shifted * np.abs(found).max(axis=1) + np.abs(images).max(axis=1)).astype(found.dtype)
        large = np.any(np.abs(defects).max(axis=1) > ROUNDOFFS * np.finfo(found.dtype).eps * size, axis=0)
        return np.asarray(large), defects

    def _solve(self, vectors: np.ndarray) -> np.ndarray:
        """The inverse of the factorised matrix, by an elimination without exchanges, times all vectors in one pass."""
        assert self.factors is not None
        solved = self.factors.apply_columns(np.ascontiguousarray(vectors.transpose(1, 0, 2)))
        return np.ascontiguousarray(solved.transpose(1, 0, 2))


def clearly_positive(A: CrsMatrix, norm: np.ndarray) -> np.ndarray:
    """Samples all of whose pivots are positive and above `CLEAR` of the norm of A."""
    if (A.graph.diagonal_entries < 0).any():  # a zero on the diagonal is no such pivot
        return np.zeros(A.n_samples, bool)
    with np.errstate(all="ignore"):
        clear: np.ndarray = upper_factorized(A)._least_pivot() > CLEAR * norm
    return clear


def without_positive(A: CrsMatrix) -> np.ndarray:
    """Samples that have no positive eigenvalue, as far as Gershgorin's circles and pivots tell."""
    opposite = -1.0 * A
    with np.errstate(all="ignore"):
        found: np.ndarray = (_lower_bound(opposite, np.zeros(1)) >= 0.0) | clearly_positive(opposite, row_norms(A))
    return found


def above(A: CrsMatrix, M: CrsMatrix | None, bounds: np.ndarray) -> np.ndarray:
    """Samples all of whose eigenvalues are above the bounds given, one per sample, by the signs of pivots."""
    weight = Diagonal(np.ones(A.shape[0], A.dtype)) if M is None else M
    with np.errstate(all="ignore"):
        factors = upper_factorized(as_crs(A - Ensemble(bounds.astype(A.dtype)) * weight))
        found: np.ndarray = factors._least_pivot() > 0.0
    return found


def checked_shift(sigma: Any, name: str) -> Any:
    """The shift: None, a finite float, or an Ensemble of shape () of real numbers."""
    if sigma is None:
        return sigma
    if isinstance(sigma, Ensemble) and sigma.ndim == 0:
        samples = as_real(numbers_of(sigma, name, "sigma"))
        if np.iscomplexobj(samples):
            raise TypeError(message(name, "sigma", "be real", f"dtype {samples.dtype}"))
        return Ensemble(samples, sigma.sample_set)
    if isinstance(sigma, numbers.Number) or np.ndim(sigma) == 0:
        return finite(sigma, name, "sigma")
    seen = f"shape {np.shape(sigma)}"
    raise TypeError(message(name, "sigma", "be a number or an Ensemble of shape ()", seen))


def exponents_of(A: Any) -> np.ndarray:
    """Powers of two by which the values of a sample become about one; 0 where their squares stay in the range."""
    largest = space_in_force().largest(np.abs(A.values).max(axis=0, initial=0.0))
    exponents = np.where(np.isfinite(largest), np.frexp(largest)[1], 0)
    return np.where(np.abs(exponents) > np.finfo(A.dtype).maxexp // 4, exponents, 0)


def row_norms(A: Any) -> np.ndarray:
    """The largest sum of magnitudes of a row, per sample."""
    sums = A.with_values(np.abs(A.values)).apply(np.ones((A.local_shape[1], A.n_samples), A.dtype))
    return np.asarray(space_in_force().largest(sums.max(axis=0, initial=0.0)), np.float64)


def _lower_bound(A: CrsMatrix, norm: np.ndarray) -> np.ndarray:
    """A number below all eigenvalues, per sample: the least of Gershgorin's circles, and a little less."""
    diagonal = np.asarray(A.diagonal().samples)
    sums = CrsMatrix(A.graph, np.abs(A.values)).apply(np.ones((A.shape[1], A.n_samples), A.dtype))
    least = np.min(diagonal - (sums - np.abs(diagonal)), axis=0)
    return np.asarray(least - BELOW * norm, A.dtype)
