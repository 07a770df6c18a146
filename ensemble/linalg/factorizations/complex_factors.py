"""Factorisations of complex matrices, as a direct solve of the real system of twice the size takes them.

A complex elimination takes half the operations and half the memory of the real one. Residuals, backward errors,
refinement, exchanges and conditions are those of the real system, whose vectors are pairs of parts.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from ensemble._backend import contiguous
from ensemble._compile.kept_memory import empty
from ensemble._compile.numba import heard
from ensemble._kernels.direct.forms.by_tiles import factorized_tiles, has_tiles, solved_at_once, solved_tiles
from ensemble._kernels.direct.forms.factors import factorized
from ensemble._kernels.direct.forms.tiles import Tiles
from ensemble._kernels.direct.forms.triangular import factor_solve
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.krylov.vectors import take_samples
from ensemble._typing import Ids
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.factorization import planned

__all__ = ["ComplexFactors", "complex_factors"]


class ComplexFactors:
    """What `DirectSolution` needs of a factorisation of the real matrix, from one of the complex matrix.

    `parts` are the places of the real and of the imaginary part of each entry among those of the real matrix.
    """

    _marks = None
    is_transposed = False
    tiles: Tiles | None = None
    """Values of several samples, where they lie by tiles; else they are `values`, shape (n_values, n_samples)."""
    values: np.ndarray
    broken: np.ndarray
    n_samples: int

    def __init__(self, plan: Elimination, parts: tuple[np.ndarray, np.ndarray], dtype: np.dtype) -> None:
        self.plan, self.parts, self.dtype = plan, parts, dtype
        self.n_values = 2 * plan.n_values
        self.reference_array = np.empty(0)

    def _with_plan(self) -> ComplexFactors:
        return ComplexFactors(self.plan, self.parts, self.dtype)

    # --- numbers
    def update(self, A: CrsMatrix) -> ComplexFactors:
        """The factorisation of the complex matrix whose real form is `A`."""
        return self._update_and_apply(A, None)[0]

    def _update_and_apply(self, A: CrsMatrix, b: Any) -> tuple[ComplexFactors, Any]:
        """`update`, and the product with pairs `b` of the same samples, or None where that takes another pass."""
        made = self._with_plan()
        values = complex_numbers(*(A.values[places].astype(self.dtype, copy=False) for places in self.parts))
        made.n_samples = values.shape[1]
        together = b is not None and b.dtype == self.dtype and b.shape[1] == made.n_samples
        x = heard(lambda: made._factorize(values, b if together else None), self.plan.multiply_adds * made.n_samples)
        return made, x

    def _factorize(self, values: np.ndarray, b: Any) -> Any:
        with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
            if has_tiles(self.plan) and self.n_samples > 1:
                x = None
                if b is None:
                    self.tiles, marks = factorized_tiles(values, self.plan)
                else:
                    x, self.tiles, marks = solved_at_once(values, self.plan, from_pairs(b), False, True)
                self.broken = marks != marks
                if self.broken.any() and self.tiles is not None:
                    self.tiles.fill(np.flatnonzero(self.broken), np.nan)
                return None if x is None else to_pairs(x)
            self.values, marks = factorized(values, self.plan, None)
            self.broken = marks != marks
            self.values[:, self.broken] = np.nan
            return None if b is None else self.apply(b)

    def _reciprocal_pivots(self) -> np.ndarray:
        """Magnitudes of the reciprocal pivots in the order of the rows of the real matrix, shape (2 n, n_samples)."""
        places = self.plan.diagonal[np.argsort(self.plan.rows)]
        found = self.values[places] if self.tiles is None else self.tiles.rows(places)
        return np.repeat(np.abs(found), 2, axis=0)

    def take_samples(self, samples: Ids) -> ComplexFactors:
        """The factorisation of the samples named; a shared one is its own answer."""
        if self.n_samples == 1:
            return self
        made, places = self._with_plan(), np.asarray(samples)
        values = self.values if self.tiles is None else self.tiles.rows(slice(None))
        made.values, made.broken = take_samples(values, places, None), self.broken[places]
        made.n_samples = places.size
        return made

    # --- solutions
    @property
    def T(self) -> ComplexFactors:
        """Return the factors of the conjugate transpose: its real form is the transpose of the real form."""
        made = copy(self)
        made.is_transposed = not self.is_transposed
        return made

    def apply(self, r: np.ndarray, out: Any = None) -> np.ndarray:
        """The solutions for pairs `r`, shape (2 n, n_samples)."""
        b, own = from_pairs(r, self.is_transposed), self.n_samples
        if own != 1 and b.shape[1] == 1:
            b = contiguous(np.broadcast_to(b, (b.shape[0], own)))
        wide, plan, transposed = b[:, None, :], self.plan, self.is_transposed
        with np.errstate(all="ignore"):
            if self.tiles is not None:
                tiles = self.tiles
                call = lambda: solved_tiles(tiles, plan, wide, transposed, None)
            else:
                call = lambda: factor_solve(self.values, plan, wide, transposed, None)
            return to_pairs(heard(call, plan.n_values * b.shape[1])[:, 0, :], transposed)


def complex_numbers(real: np.ndarray, imaginary: np.ndarray, conjugate: bool = False) -> np.ndarray:
    """The complex array of these parts, or its conjugate."""
    made = empty(real.shape, np.result_type(real.dtype, np.complex64))
    made.real = real
    np.negative(imaginary, out=made.imag) if conjugate else np.copyto(made.imag, imaginary)
    return made


def from_pairs(pairs: np.ndarray, conjugate: bool = False) -> np.ndarray:
    """The complex vectors, shape (n, n_samples), of pairs of parts, or their conjugates."""
    return complex_numbers(pairs[0::2], pairs[1::2], conjugate)


def to_pairs(vectors: np.ndarray, conjugate: bool = False) -> np.ndarray:
    """Real and imaginary parts of complex vectors, or of their conjugates, in turn: shape (2 n, n_samples)."""
    made = empty((2 * vectors.shape[0], vectors.shape[1]), vectors.real.dtype)
    made[0::2] = vectors.real
    np.negative(vectors.imag, out=made[1::2]) if conjugate else np.copyto(made[1::2], vectors.imag)
    return made


def complex_factors(A: CrsMatrix, symmetric: bool, ordering: Any, dtype: Any) -> ComplexFactors:
    """What the graph of a complex matrix decides, for parts of `dtype`: LDL^T, without conjugates, if `symmetric`."""
    one = CrsMatrix(A.graph, np.ascontiguousarray(A.values[:, :1].real))
    kind = "ldlt" if symmetric else "lu"
    plan = planned(one, kind=kind, ordering=ordering, matching="graph", dtype=dtype).plan
    _, places = A.graph.expanded(2, 2)
    at = np.empty_like(places)
    at[places] = np.arange(places.size)
    return ComplexFactors(plan, (at[0::4], at[2::4]), np.dtype(dtype))
