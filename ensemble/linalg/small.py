"""Many small dense matrices at once: linear systems, eigenvalues and square roots, batched over axes and samples.

The matrix axes are the last two visible ones. Inside, they come first: entry (i, j) of all matrices is one contiguous
vector, which SIMD registers and the threads of a device read side by side. An array that is stored like that, whatever
the order of its axes, is not copied.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, is_array, to_numpy
from ensemble._check import message, require, require_unmasked, samples_text
from ensemble._kernels.dense import small, symmetric3
from ensemble._typing import Array
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = ["Eigen3", "eigh3", "inverse_sqrtm_spd", "solve", "sqrtm_spd"]


class Eigen3(NamedTuple):
    """Eigenvalues (..., 3), ascending, and eigenvectors (..., 3, 3), one in each column."""

    eigenvalues: Any
    eigenvectors: Any


def solve(A: Any, b: Any) -> Any:
    """Solve many small linear systems ``A x = b``.

    Gaussian elimination with partial pivoting [1]_: every system of every sample has pivots of its own. Meant for up to
    about 30 unknowns; up to 8, a device holds a system in the registers of one thread.

    Parameters
    ----------
    A : array or Ensemble, shape (..., n, n)
    b : array or Ensemble, shape (..., n), or (..., n, k) for k right-hand sides
        As many axes as `A` make it right-hand sides, one less vectors. The leading axes broadcast.

    Returns
    -------
    array or Ensemble, shape of `b` with the leading axes broadcast
        NaN for a singular matrix, in its sample and place only. A system whose elimination overflows is solved with
        its rows and columns scaled by powers of two; entries of a solution beyond the range of the type are inf.

    Raises
    ------
    TypeError
        If an argument is no array of real numbers.
    ValueError
        If the shapes do not fit.

    Warns
    -----
    RuntimeWarning
        If a pivot of a matrix of finite entries is zero: once per call, with their numbers. Nearly singular matrices
        get no warning, as in `numpy.linalg.solve`.

    References
    ----------
    .. [1] Golub, Van Loan (2013), Matrix Computations, 4th edition, algorithm 3.4.1.

    Examples
    --------
    >>> import numpy as np
    >>> solve(np.array([[0.0, 2.0], [1.0, 1.0]]), np.array([4.0, 3.0]))
    array([1., 2.])
    """
    own, other = _Operand("solve", "A", A), _Operand("solve", "b", b)
    xp, matrix, sides = array_namespace(own.samples), own.samples, other.samples
    square = matrix.ndim > 2 and matrix.shape[-2] == matrix.shape[-3]
    require(square, "solve", "A", "have shape (..., n, n)", own.shape)
    vectors = sides.ndim == matrix.ndim - 1
    n = matrix.shape[-2]
    fits = sides.shape[-2] == n if vectors else sides.ndim == matrix.ndim and sides.shape[-3] == n
    require(fits, "solve", "b", f"have shape (..., {n}) or (..., {n}, k) with the axes of A before", other.shape)
    if vectors:
        sides = sides[..., None, :]
    lead = _broadcast(own, other, (*matrix.shape[:-3], matrix.shape[-1]), (*sides.shape[:-3], sides.shape[-1]))
    dtype = xp.result_type(matrix.dtype, sides.dtype)
    A_first, b_first = (_matrix_first(a, lead, dtype) for a in (matrix, sides))
    with np.errstate(over="ignore", invalid="ignore"):
        x = small.small_solve(A_first, b_first, None)
    x = _matrix_last(_completed(A_first, b_first, x, lead), lead)
    return own.like(x[..., 0, :] if vectors else x, other)


def eigh3(A: Any) -> Eigen3:
    """Eigenvalues and eigenvectors of symmetric 3 x 3 matrices.

    Cyclic Jacobi rotations [1]_: the error of an eigenvalue is a few units of rounding of the largest one, repeated or
    not, and the vectors are orthonormal to rounding.

    Parameters
    ----------
    A : array or Ensemble, shape (..., 3, 3)
        Only the lower triangle is read, as by `numpy.linalg.eigh`.

    Returns
    -------
    Eigen3
        `eigenvalues` (..., 3), ascending, and `eigenvectors` (..., 3, 3) with ``A v[..., j] = w[j] v[..., j]``; NaN
        where a matrix is not finite. An eigenvalue beyond the range of the type is inf.

    Raises
    ------
    TypeError
        If `A` is no array of real numbers.
    ValueError
        If its last axes are not (3, 3).

    References
    ----------
    .. [1] Golub, Van Loan (2013), Matrix Computations, 4th edition, section 8.5.

    Examples
    --------
    >>> import numpy as np
    >>> eigh3(np.diag([3.0, 1.0, 2.0])).eigenvalues
    array([1., 2., 3.])
    """
    own, first, lead = _three_by_three("eigh3", A)
    with np.errstate(all="ignore"):
        both = symmetric3.small_eigh3(first, None)
    xp = array_namespace(both)
    w = xp.permute_dims(xp.reshape(both[:3, :], (3, *lead)), (*range(1, len(lead)), 0, len(lead)))
    return Eigen3(own.like(w), own.like(_matrix_last(xp.reshape(both[3:, :], (3, 3, -1)), lead)))


def sqrtm_spd(A: Any) -> Any:
    """The square roots of symmetric positive definite 3 x 3 matrices.

    From `eigh3`: ``V diag(w ** 0.5) V.T``, symmetric and positive definite.

    Parameters
    ----------
    A : array or Ensemble, shape (..., 3, 3)
        Only the lower triangle is read.

    Returns
    -------
    array or Ensemble, shape (..., 3, 3)
        NaN where an eigenvalue is negative or an entry not finite, in that sample and place only.

    Raises
    ------
    TypeError
        If `A` is no array of real numbers.
    ValueError
        If its last axes are not (3, 3).

    Examples
    --------
    >>> import numpy as np
    >>> sqrtm_spd(np.diag([4.0, 9.0, 16.0])).diagonal()
    array([2., 3., 4.])
    """
    own, first, lead = _three_by_three("sqrtm_spd", A)
    return own.like(_matrix_last(_root(first, False), lead))


def inverse_sqrtm_spd(A: Any) -> Any:
    """The inverses of the square roots of symmetric positive definite 3 x 3 matrices.

    ``V diag(w ** -0.5) V.T``; otherwise as `sqrtm_spd`.

    Examples
    --------
    >>> import numpy as np
    >>> inverse_sqrtm_spd(np.diag([4.0, 16.0, 1.0])).diagonal()
    array([0.5 , 0.25, 1.  ])
    """
    own, first, lead = _three_by_three("inverse_sqrtm_spd", A)
    return own.like(_matrix_last(_root(first, True), lead))


def _root(A: Array, inverse: bool) -> Array:
    with np.errstate(all="ignore"):  # an array library would warn of single matrices
        root: Array = symmetric3.small_root3(A, inverse, None)
    return root


class _Operand:
    """An argument with its sample axis last, and what a result must be made into."""

    def __init__(self, function: str, name: str, value: Any) -> None:
        self.function, self.name = function, name
        self.is_ensemble = isinstance(value, Ensemble)
        if not self.is_ensemble and not is_array(value):
            try:
                value = np.asarray(value)
            except ValueError:
                value = np.empty(0, dtype=object)
        require_unmasked(value, function, name)
        samples = value.samples if self.is_ensemble else value[..., None]
        self.sample_set: SampleSet | None = value.sample_set if self.is_ensemble else None
        xp = array_namespace(samples)
        if isinstance(samples, np.ndarray):
            real = samples.dtype.kind in "biuf"
        else:
            real = xp.isdtype(samples.dtype, ("bool", "integral", "real floating"))
        if not real:
            seen = f"dtype {samples.dtype}"
            raise TypeError(message(function, name, "be an array of real numbers, or an Ensemble", seen))
        floating = samples.dtype in (xp.float32, xp.float64)
        self.samples = samples if floating else xp.astype(samples, xp.float64)
        self.shape = tuple(samples.shape[:-1])

    def like(self, samples: Array, other: _Operand | None = None) -> Any:
        """A result, as an Ensemble where an argument is one."""
        operands = [self] if other is None else [self, other]
        if not any(operand.is_ensemble for operand in operands):
            return samples[..., 0]
        sample_set = None
        for operand in operands:
            sample_set = common_set(sample_set, operand.sample_set)
        return Ensemble(samples, sample_set)


def _three_by_three(function: str, A: Any) -> tuple[_Operand, Array, tuple[int, ...]]:
    """The argument, its matrices with their axes first, and the axes that follow."""
    own = _Operand(function, "A", A)
    require(own.shape[-2:] == (3, 3), function, "A", "have shape (..., 3, 3)", own.shape)
    lead = (*own.samples.shape[:-3], own.samples.shape[-1])
    return own, _matrix_first(own.samples, lead, own.samples.dtype), lead


def _broadcast(own: _Operand, other: _Operand, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The common leading axes, the samples last."""
    fits = a[-1] == b[-1] or 1 in (a[-1], b[-1])
    require(fits, own.function, other.name, f"have {a[-1]} samples, as {own.name}", b[-1])
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        wanted = f"have leading axes that broadcast with those of {own.name}, {a[:-1]}"
        raise ValueError(message(own.function, other.name, wanted, b[:-1])) from None


def _matrix_first(samples: Array, lead: tuple[int, ...], dtype: Any) -> Array:
    """(rows, columns, N) of (..., rows, columns, S), the leading axes and samples in one; a view where it can be."""
    xp = array_namespace(samples)
    rows, columns = samples.shape[-3:-1]
    if (*samples.shape[:-3], samples.shape[-1]) != lead:
        samples = xp.broadcast_to(samples, (*lead[:-1], rows, columns, lead[-1]))
    axes = len(samples.shape)
    first = xp.permute_dims(samples, (axes - 3, axes - 2, *range(axes - 3), axes - 1))
    first = contiguous(xp.astype(first, dtype, copy=False))
    return xp.reshape(first, (rows, columns, math.prod(lead)))


def _matrix_last(result: Array, lead: tuple[int, ...]) -> Array:
    """View an array of shape (rows, columns, N) as one of shape (..., rows, columns, S); `lead` has the other axes."""
    xp = array_namespace(result)
    axes = len(lead) + 2
    return xp.permute_dims(xp.reshape(result, (*result.shape[:2], *lead)), (*range(2, axes - 1), 0, 1, axes - 1))


def _completed(A: Array, b: Array, x: Array, lead: tuple[int, ...]) -> Array:
    """`x` of finite systems in which the elimination overflowed solved again; a warning names the singular ones."""
    xp = array_namespace(x)
    if bool(xp.all(xp.isfinite(x))):
        return x
    finite = xp.all(xp.isfinite(A), axis=(0, 1)) & xp.all(xp.isfinite(b), axis=(0, 1))
    places = np.flatnonzero(to_numpy(finite & ~xp.all(xp.isfinite(x), axis=(0, 1))))
    if not places.size:
        return x
    chosen = asarray_like(places, x)
    matrix, sides, found = (to_numpy(xp.take(array, chosen, axis=2)) for array in (A, b, x))
    again = ~(np.isnan(found[-1]).all(axis=0) & _safe(matrix) & _safe(sides))
    if again.any():
        largest = np.abs(matrix).max(axis=(0, 1), initial=0.0)
        in_range = largest < 2.0 ** (np.finfo(matrix.dtype).maxexp - len(matrix) - 2)  # so are its pivots
        scaled = _solved_with_scales(matrix[..., again], sides[..., again])
        found = found.copy()
        found[..., again] = np.where((np.isfinite(found) & in_range)[..., again], found[..., again], scaled)
        every = np.array(to_numpy(x))
        every[..., places] = found
        x = asarray_like(every, x)
    _warn_of_singular(places[np.isnan(found).any(axis=(0, 1))], lead)
    return x


def _safe(array: np.ndarray) -> np.ndarray:
    """For each system, whether its numbers are so far from the ends of the type that elimination stays within."""
    limit = 2.0 ** (np.finfo(array.dtype).maxexp // 4)
    size = np.abs(array)
    return np.asarray(((size == 0) | ((size < limit) & (size > 1.0 / limit))).all(axis=(0, 1)))


def _solved_with_scales(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The solutions, by way of systems whose rows, columns and sides are scaled by powers of two to at most one."""
    row = np.frexp(np.abs(A).max(axis=1))[1]
    A = np.ldexp(A, -row[:, None])
    column = np.frexp(np.abs(A).max(axis=0))[1]
    exponents = np.where(b != 0, np.frexp(b)[1] - row[:, None], np.iinfo(np.int32).min)
    side = np.where((b != 0).any(axis=0), exponents.max(axis=0), 0)
    y = small.small_solve(np.ldexp(A, -column), np.ldexp(b, -row[:, None] - side), None)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.ldexp(y, side - column[:, None]))


def _warn_of_singular(places: np.ndarray, lead: tuple[int, ...]) -> None:
    """One warning that names the systems at the `places` of the flattened axes `lead`."""
    singular = np.unravel_index(places, lead)
    count = singular[0].size
    if not count:
        return
    text = f"solve: A should be regular; got {count} singular of {math.prod(lead)} matrices"
    if len(lead) > 1:
        entries = list(dict.fromkeys(zip(*(axis.tolist() for axis in singular[:-1]), strict=True)))
        shown = ", ".join(str(entry[0] if len(entry) == 1 else entry) for entry in entries[:6])
        text += f", at {shown}{', ...' * (len(entries) > 6)}"
    if lead[-1] > 1:
        text += f", in {samples_text(np.unique(singular[-1]), of=lead[-1])}"
    warnings.warn(f"{text}. Their solutions are NaN.", RuntimeWarning, stacklevel=4)
