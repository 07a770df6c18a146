"""Unknowns with known values: their rows and columns leave the system."""

from __future__ import annotations

import contextlib
import numbers
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, contiguous, library_and_device
from ensemble._check import array_of, kind_of, message, require, require_unmasked
from ensemble._compile.kept_memory import empty_like
from ensemble._keywords import explains_calls
from ensemble.linalg.bcrs_matrix import BcrsMatrix, diagonal_places
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.operators import numbers_of, samples_of, set_of
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import common_set

__all__ = ["apply_dirichlet"]

NAME = "apply_dirichlet"


@explains_calls("apply_dirichlet")
def apply_dirichlet(A: Any, b: Any, rows: Any, values: Any = 0.0, *, symmetric: bool = True) -> tuple[Any, Any]:
    """Return the system whose solution has ``x[rows] = values`` and fulfils the other equations of ``A x = b``.

    With I the rows and v the values: the rows and columns I of A become zero outside the diagonal,
    ``b_i - sum_{j in I} a_ij v_j`` stands on the right for i not in I, and ``a_ii v_i`` for i in I. The diagonal
    entries keep their values, those that are zero become one: equations keep their units, so that they
    count like their neighbours in the norms of a Krylov method. A symmetric matrix stays so, a positive definite one
    too.

    Parameters
    ----------
    A : CrsMatrix, BcrsMatrix or SymmetricCrsMatrix, shape (n, n)
        Shared, or one matrix per sample. Of a `DistributedCrsMatrix`, `b`, `rows` and `values` are those of this rank,
        ``rows`` from 0 to ``n_local - 1``.
    b : array or Ensemble, shape (n,)
        Of a `BcrsMatrix` also shape (n_nodes, r).
    rows : array of int, shape (k,), or of bool, shape (n,)
        Scalar unknowns, in any order; component p of node i of a `BcrsMatrix` is ``r * i + p``.
    values : number, array of shape (k,), or Ensemble of shape () or (k,)
        In the order of `rows`.
    symmetric : bool
        False leaves the columns as they are: the rows alone are replaced, and the other entries of b do not change.

    Returns
    -------
    A : as given
        With the same graph, so that a hierarchy or factorization can be updated with it. A shared matrix stays shared,
        whatever the samples of `values`.
    b : array or Ensemble, as given
        An Ensemble where `values` or, for values other than the number 0, `A` differ from sample to sample.

    Raises
    ------
    ValueError
        If `rows` are out of range or named twice, a row has no diagonal entry in the graph, or shapes do not fit.
    TypeError
        If `A` is no stored matrix or `rows` are no integers.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> A, b = apply_dirichlet(poisson((3,)), np.zeros(3), [0], 5.0)
    >>> A.to_scipy().toarray()
    array([[ 2.,  0.,  0.],
           [ 0.,  2., -1.],
           [ 0., -1.,  2.]])
    >>> b
    array([10.,  5.,  0.])
    """
    eliminate = getattr(A, "elimination", None)  # of a matrix over ranks, whose errors all ranks raise
    if eliminate is None and not isinstance(A, CrsMatrix | BcrsMatrix | SymmetricCrsMatrix):
        advice = "Give A.to_crs() of an AffineMatrix, A.to_matrix() of a transpose, CrsMatrix.from_scipy(A) of SciPy's."
        seen = kind_of(A)
        raise TypeError(message(NAME, "A", "be a CrsMatrix, BcrsMatrix or SymmetricCrsMatrix", seen, advice))
    with contextlib.nullcontext() if eliminate is None else A.alike():
        fixed, b, known = _checked(A, b, rows, values, symmetric)
    side, symmetric = samples_of(b), bool(symmetric)
    if eliminate is not None:
        elimination = eliminate(fixed, symmetric)
    else:
        key = (NAME, type(A).__name__, getattr(A, "block_shape", ()), symmetric, fixed.tobytes())
        elimination = A.graph.kept(key, lambda: Elimination(A, fixed, symmetric))
    matrix = elimination.matrix(A)
    other = not (isinstance(values, numbers.Number) and not values)
    if not A.space.any(np.array(other)):  # no product: a shared b stays shared
        result = elimination.without_rows(side)
    else:
        result = elimination.right_hand_side(A, matrix, side, known, symmetric)
    plain = not isinstance(b, Ensemble) and result.shape[-1] == 1
    together = common_set(set_of(b), common_set(A.sample_set if result.shape[-1] > 1 else None, set_of(values)))
    return matrix, result[..., 0] if plain else Ensemble(result, together)


def _checked(A: Any, b: Any, rows: Any, values: Any, symmetric: Any) -> tuple[np.ndarray, Any, Any]:
    """The rows, b and the known values, where they fit."""
    n = getattr(A, "local_shape", A.shape)[0]
    require(A.shape[0] == A.shape[1], NAME, "A", "be square", f"shape {A.shape}")
    wanted = bool(symmetric) or not isinstance(A, SymmetricCrsMatrix)
    require(wanted, NAME, "symmetric", "be True for a SymmetricCrsMatrix", symmetric, "Give A.to_crs().")
    fixed = _checked_rows(rows, n)
    b = b if isinstance(b, Ensemble) else numbers_of(b, NAME, "b")
    side = samples_of(b)
    shapes = [(n,)] + ([(A.graph.shape[0], A.block_shape[0])] if isinstance(A, BcrsMatrix) else [])
    require(side.shape[:-1] in shapes, NAME, "b", f"have shape {shapes[-1]}", f"shape {side.shape[:-1]}")
    known = _checked_values(values, fixed.size)
    counts = {m for m in (A.n_samples, side.shape[-1], known.shape[-1]) if m > 1}
    require(len(counts) < 2, NAME, "A, b and values", "have the same n_samples, or 1", sorted(counts))
    return fixed, b, known


class Elimination:
    """Which entries of the matrices on a graph become zero, for known unknowns `rows`."""

    def __init__(self, A: Any, rows: np.ndarray, symmetric: bool) -> None:
        n, graph = A.shape[0], A.graph
        fixed = np.zeros(n, bool)
        fixed[rows] = True
        row, column = graph.row_of_entry, graph.indices
        if isinstance(A, BcrsMatrix):
            r = A.block_shape[0]
            components = np.arange(r)
            row = (row[:, None, None] * r + components[:, None]).repeat(r, axis=2).reshape(-1)
            column = (column[:, None, None] * r + components).repeat(r, axis=1).reshape(-1)
            diagonal = diagonal_places(graph, r)[rows]
        else:
            diagonal = graph.diagonal_entries[rows]
        missing = rows[diagonal < 0]
        seen = f"none in row {missing[0] if missing.size else 0}"
        require(not missing.size, NAME, "A", "have a diagonal entry in the graph for each of the rows", seen)
        dropped = fixed[row] | (fixed[column] & symmetric)
        self._keep(n, rows, dropped, diagonal, column >= row if isinstance(A, SymmetricCrsMatrix) else None)

    def _keep(
        self, n: int, rows: np.ndarray, dropped: np.ndarray, diagonal: np.ndarray, stored: np.ndarray | None = None
    ) -> None:
        """Keep the places of the entries that are dropped and of those on the diagonal; `stored`: which have one."""
        kept = np.zeros(dropped.size, bool)
        kept[diagonal] = True
        if stored is not None:
            dropped, kept = dropped[stored], kept[stored]
        fixed = np.zeros(n, bool)
        fixed[rows] = True
        self.arrays = {
            "dropped": np.flatnonzero(dropped & ~kept),
            "diagonal": np.flatnonzero(kept),
            "fixed": fixed[:, None],
            "position": np.full(n, rows.size, np.int64),
        }
        self.arrays["position"][rows] = np.arange(rows.size)
        self._copies: dict[Any, dict[str, Any]] = {}

    def arrays_on(self, values: Any) -> dict[str, Any]:
        """The arrays in the library and on the device of `values`."""
        if isinstance(values, np.ndarray):
            return self.arrays
        key = library_and_device(values)
        if key not in self._copies:
            self._copies[key] = {name: asarray_like(array, values) for name, array in self.arrays.items()}
        return self._copies[key]

    def matrix(self, A: Any) -> Any:
        """`A` with zeros in the rows, and in the columns where those leave too."""
        values = A.flat_values if isinstance(A, BcrsMatrix) else A.values
        xp, masks = array_namespace(values), self.arrays_on(values)
        if backend_of(values) == "reference":  # its library may not write at places
            dropped, diagonal = (np.zeros((values.shape[0], 1), bool) for _ in range(2))
            dropped[self.arrays["dropped"]], diagonal[self.arrays["diagonal"]] = True, True
            values = xp.where(asarray_like(dropped, values), xp.zeros_like(values), values)
            values = xp.where(asarray_like(diagonal, values) & (values == 0), xp.ones_like(values), values)
        else:
            changed = empty_like(values)
            changed[...] = values
            changed[masks["dropped"]] = 0.0
            entries = changed[masks["diagonal"]]
            changed[masks["diagonal"]] = xp.where(entries == 0, xp.ones_like(entries), entries)
            values = changed
        if isinstance(A, BcrsMatrix):
            made = A.with_flat_values(values)
        else:
            made = type(A)(A.graph, values) if hasattr(A, "graph") else A.with_values(values)
        made.sample_set = A.sample_set
        return made

    def without_rows(self, b: Any) -> Any:
        """`b`, a bare array, with zeros in the rows."""
        xp, masks = array_namespace(b), self.arrays_on(b)
        flat = xp.reshape(b, (masks["fixed"].shape[0], b.shape[-1]))
        return xp.reshape(xp.where(masks["fixed"], xp.zeros_like(flat), flat), b.shape)

    def right_hand_side(self, A: Any, matrix: Any, b: Any, known: Any, symmetric: bool) -> Any:
        """The right-hand side that belongs to `matrix`, on bare arrays."""
        xp, masks = array_namespace(A.values), self.arrays_on(A.values)
        dtype = xp.result_type(A.values.dtype, asarray_like(np.empty(0, np.float32), A.values).dtype)
        known, side = (asarray_like(array, A.values) for array in (known, b))
        if xp.isdtype(side.dtype, ("real floating", "complex floating")):
            dtype = xp.result_type(dtype, side.dtype)
        if xp.isdtype(known.dtype, "complex floating"):
            dtype = xp.result_type(dtype, xp.complex64)
        known = xp.astype(known, dtype)
        every = xp.concat([known, xp.zeros((1, known.shape[1]), dtype=dtype, device=known.device)], axis=0)
        x = xp.take(every, masks["position"], axis=0)
        flat = xp.astype(xp.reshape(side, (x.shape[0], side.shape[-1])), dtype)
        if symmetric:
            wide = max(A.n_samples, x.shape[1])
            operator = A if A.dtype == dtype else A.astype(dtype)
            flat = flat - operator.apply(contiguous(xp.broadcast_to(x, (x.shape[0], wide))))
        prescribed = xp.astype(matrix.diagonal().samples, dtype) * x
        made = xp.where(masks["fixed"], prescribed, flat)
        return xp.reshape(made, (*side.shape[:-1], made.shape[-1]))


def _checked_rows(rows: Any, n: int) -> np.ndarray:
    require_unmasked(rows, NAME, "rows")
    rows = array_of(rows, NAME, "rows", "be a vector of integers")
    if rows.dtype.kind == "b":
        require(rows.shape == (n,), NAME, "rows", f"have shape ({n},) where they are bools", f"shape {rows.shape}")
        return np.flatnonzero(rows)
    require(rows.ndim == 1, NAME, "rows", "be a vector", f"shape {rows.shape}")
    if rows.size and rows.dtype.kind not in "iu":
        raise TypeError(message(NAME, "rows", "be integers", f"dtype {rows.dtype}"))
    found: np.ndarray = rows.astype(np.int64)
    outside = found[(found < 0) | (found >= n)]
    require(not outside.size, NAME, "rows", f"lie between 0 and {n - 1}", outside[0] if outside.size else None)
    order = np.sort(found)
    twice = order[1:][np.diff(order) == 0]
    seen = f"row {twice[0]} twice" if twice.size else ""
    require(not twice.size, NAME, "rows", "name each row once", seen, "np.unique(rows) has them once.")
    return found


def _checked_values(values: Any, count: int) -> Any:
    """The known values as a bare array of shape (count, n_samples or 1)."""
    try:
        known = samples_of(values)
    except ValueError:  # rows of different lengths
        known = None
    if known is None or (isinstance(known, np.ndarray) and known.dtype.kind not in "biufc"):
        wanted = "be a number, an array of numbers or an Ensemble"
        raise TypeError(message(NAME, "values", wanted, kind_of(values)))
    require_unmasked(values, NAME, "values")
    requirement = f"have shape () or ({count},), one value per row"
    require(known.shape[:-1] in ((), (count,)), NAME, "values", requirement, f"shape {known.shape[:-1]}")
    xp = array_namespace(known)
    return xp.broadcast_to(known, (count, known.shape[-1]))
