"""SciPy's sparse matrices beside ensembles: products of one matrix and all samples."""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from ensemble._check import kind_of, message, require
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.protocol_table import PROTOCOLS

__all__ = ["beside_sparse", "product"]

ROWS_AT_ONCE = ("csr", "csc")
"""Formats whose product with many vectors has the bits of those with each."""


def product(A: Any, x: Ensemble, transposed: bool = False) -> Ensemble:
    """``A @ x``, or ``x @ A``, in every sample, of a SciPy matrix and an ensemble of vectors or matrices."""
    samples = x.samples
    if type(samples) is not np.ndarray:
        advice = "Use ensemble.linalg.CrsMatrix.from_scipy(A).to(x.samples) @ x."
        raise TypeError(message("@", "x beside a SciPy matrix", "be of NumPy", kind_of(samples), advice))
    wanted, axis = (A.shape[0], -1) if transposed else (A.shape[-1], 0)
    fits = x.ndim in (1, 2) and x.shape[axis] == wanted
    seen = f"shapes {tuple(A.shape)} and {x.shape}"
    require(fits, "@", "a SciPy matrix and an ensemble", "have shapes of a matrix product", seen)
    if A.format in ROWS_AT_ONCE and x.ndim == 1:
        return wrap(np.ascontiguousarray((A.T if transposed else A) @ samples), x.sample_set)
    columns = [x.sample(s) @ A if transposed else A @ x.sample(s) for s in range(x.n_samples)]
    return wrap(np.stack([np.asarray(column) for column in columns], axis=-1), x.sample_set)


def beside_sparse(operation: Any, x: Ensemble, A: Any, reflected: bool) -> Any:
    """``x * A`` and the other operators but ``@``: a product for a `spmatrix`, whose ``*`` is one; else an error."""
    import scipy.sparse as sp

    if operation is operator.mul and isinstance(A, sp.spmatrix) and x.ndim:
        return product(A, x, transposed=not reflected)
    symbols = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/"}
    advice = (
        "ensemble.linalg.CrsMatrix.from_scipy(A) has a value per sample: k * A with k of shape (), "
        "A.multiply(x), A + Diagonal(x)."
    )
    requirement = "be no SciPy matrix, which has one value for all samples"
    raise TypeError(
        message(f"Ensemble {symbols.get(operation, 'operator')}", "the other operand", requirement, kind_of(A), advice)
    )


def is_asked_by_scipy() -> bool:
    """Whether SciPy's ``A @ x`` asks for an array: it leaves the product to what is none."""
    frame = sys._getframe(2)
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith("scipy.sparse.") and frame.f_code.co_name in ("_matmul_dispatch", "_rmatmul_dispatch")


PROTOCOLS.beside_sparse = beside_sparse
PROTOCOLS.sparse_product = product
PROTOCOLS.is_asked_by_scipy = is_asked_by_scipy
