"""Inner products and norms, one per sample or coupled over all samples: chosen by the caller."""

from __future__ import annotations

import functools
from typing import Any

from ensemble._backend import array_namespace, is_array
from ensemble._check import kind_of, message, one_of, require
from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, shared, wrap
from ensemble.scalar.namespace import samples_of, set_of

__all__ = ["dot", "norm"]


def _columns(x: Any, function: str, argument: str) -> Ensemble:
    if isinstance(x, Ensemble):
        return x
    if not is_array(x):
        raise TypeError(message(function, argument, "be an Ensemble or an array", kind_of(x)))
    return shared(x)


def dot(x: Ensemble | Array, y: Ensemble | Array, over: str = "space") -> Any:
    """Compute the inner product ``sum(conj(x) * y)`` over all visible entries.

    Parameters
    ----------
    x, y : Ensemble or array, both of one shape
    over : {"space", "all"}
        "space": one value a sample. "all": the sum over samples too, the coupled product of Phipps et al. [1]_, eq. 4;
        a shared `x` and `y` count as one sample.

    Returns
    -------
    0-d Ensemble for "space", 0-d plain array for "all" or where neither argument is an ensemble

    Raises
    ------
    ValueError
        If the shapes or the samples differ, or `over` is something else.
    TypeError
        If `x` or `y` is no array.

    Notes
    -----
    The order of summation depends on the number of entries alone, not on the other samples.

    References
    ----------
    .. [1] Phipps, D'Elia, Edwards, Hoemmen, Hu, Rajamanickam (2017), SIAM J. Sci. Comput. 39(2), C162-C193, eq. 4.

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> dot(x, x).samples
    array([10., 20.])
    >>> float(dot(x, x, over="all"))
    30.0
    """
    return _dot("dot", x, y, over)


@functools.cache
def _kernels() -> tuple[Any, Any]:
    """The inner product of ``conj(x)`` and y, and that of arrays that broadcast: Numba is imported with the first."""
    from ensemble._kernels.krylov import vectors
    from ensemble._kernels.sparse.complex_numbers import conjugated, times
    from ensemble._kernels.sparse.row_sums import block_sums

    return vectors.dot, lambda x, y: block_sums(times(conjugated(x), y))


def _dot(function: str, x: Any, y: Any, over: str) -> Any:
    one_of(over, ("space", "all"), function, "over")
    plain = not isinstance(x, Ensemble) and not isinstance(y, Ensemble)
    a, b = _columns(x, function, "x"), _columns(y, function, "y")
    require(a.shape == b.shape, function, "x and y", "have one shape", f"{a.shape} and {b.shape}")
    samples_of(function, a, b)
    xp = array_namespace(a.samples)
    left, right = (xp.reshape(v.samples, (v.size, v.n_samples)) for v in (a, b))
    product, sums = _kernels()
    if left.shape[1] == right.shape[1]:
        values = product(left, right, None)
    else:  # the kernel does not broadcast, and shared data is not copied for every sample
        values = sums(left, right)  # the order of the kernel, so with its bits
    if over == "all":
        return xp.sum(values, dtype=values.dtype)
    return values[0] if plain else wrap(values, set_of(a, b))


def norm(x: Ensemble | Array, over: str = "space") -> Any:
    """Compute the 2-norm ``sqrt(dot(x, x))``.

    Parameters
    ----------
    x : real or complex Ensemble or array
    over : {"space", "all"}
        "space": one value per sample. "all": one value, summed over the samples too.

    Returns
    -------
    0-d Ensemble for "space", 0-d plain array for "all" or where `x` is no ensemble

    Raises
    ------
    ValueError
        If `over` is something else.
    TypeError
        If `x` is no array of real or complex floating-point numbers.

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([[3.0, 0.0], [4.0, 1.0]]))
    >>> norm(x).samples
    array([5., 1.])
    """
    square = _dot("norm", x, x, over)
    xp = array_namespace(square)
    if not xp.isdtype(square.dtype, ("real floating", "complex floating")):
        advice = "Convert with xp.astype."
        raise TypeError(message("norm", "x", "hold floating-point numbers", f"dtype {square.dtype}", advice))
    return xp.sqrt(xp.real(square) if xp.isdtype(square.dtype, "complex floating") else square)
