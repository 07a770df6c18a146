"""Matrices of a V-cycle kept in fewer bits than its vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._check import message
from ensemble._compile.memory import empty_like
from ensemble._kernels.krylov.vectors import take_samples
from ensemble._kernels.sparse import rounded as kernels
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.linalg.graph import OnGraph
from ensemble.scalar import Ensemble


def storage_of(values_dtype: Any, dtype: Any, function: str) -> Any:
    """The NumPy type that values are stored in, None for that of the vectors; bfloat16 is stored as its 16 bits."""
    if values_dtype is None:
        return None
    if str(values_dtype) == "bfloat16":
        return np.dtype(np.uint16)
    try:
        storage = np.dtype(values_dtype)
    except TypeError:
        storage = np.dtype(object)
    if storage == dtype:
        return None
    if storage == np.float32:
        return storage
    choices = f"be 'bfloat16', or a floating type no wider than the hierarchy's {np.dtype(dtype)}"
    raise ValueError(message(function, "values_dtype", choices, repr(values_dtype)))


class RoundedMatrix(OnGraph):
    """A square matrix in rounded values, as a V-cycle needs it: residuals and smoothing steps, fused.

    Entries are rounded to nearest; what that takes from the sum of a row is given back to its diagonal, in the type of
    the vectors (`shift`). So constants, which a diffusion operator all but annihilates, meet the sums of the exact
    matrix, and the change of the operator stays a small fraction of its own energy.
    """

    def __init__(self, graph: CrsGraph, values: Any, shift: Any) -> None:
        self.graph, self.values, self.shift = graph, values, shift

    @classmethod
    def of(cls, A: CrsMatrix, storage: Any) -> RoundedMatrix:
        """`A` in values of type `storage`."""
        values, shift = empty_like(A.values, dtype=storage), empty_like(A.values, (A.shape[0], A.n_samples))
        kernels.round_rows(A.arrays[0], A.values, values, shift)
        return cls(A.graph, values, shift)

    @property
    def dtype(self) -> Any:
        """Type of the vectors."""
        return self.shift.dtype

    @property
    def reference_array(self) -> Any:
        """An array of the vectors' type that lives where this matrix does."""
        return self.shift

    @property
    def arrays(self) -> tuple[Any, ...]:
        """(indptr, indices, values, shift), all where the values live."""
        return (*self.graph.arrays_on(self.values), self.values, self.shift)

    def take_samples(self, samples: Any) -> RoundedMatrix:
        """The matrix of the samples named."""
        if self.n_samples == 1:
            return self
        places = asarray_like(np.asarray(samples), self.shift)
        values, shift = (take_samples(array, places, None) for array in (self.values, self.shift))
        return RoundedMatrix(self.graph, values, shift)

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_rows,)."""
        values = kernels.as_floats(self.values, self.dtype)
        return Ensemble(CrsMatrix(self.graph, values).diagonal().samples + self.shift)

    def apply(self, x: Any, out: Any = None) -> Any:
        """A x on bare arrays."""
        return kernels.rounded_spmv(*self.arrays, x, out)

    def residual(self, x: Any, b: Any, out: Any = None) -> Any:
        """b - A x on bare arrays."""
        return kernels.rounded_residual(*self.arrays, x, b, out)

    # --- one step of a Chebyshev smoother
    def chebyshev_first(self, dinv: Any, b: Any, x: Any, c: Any, w: Any, out: Any) -> Any:
        """w = c * dinv * (b - A x), and x + w to `out`."""
        return kernels.rounded_chebyshev_first(*self.arrays, dinv, b, x, c, w, out)

    def chebyshev_step(self, dinv: Any, b: Any, x: Any, a: Any, c: Any, w: Any, out: Any) -> Any:
        """w = a * w + c * dinv * (b - A x), and x + w to `out`."""
        return kernels.rounded_chebyshev_step(*self.arrays, dinv, b, x, a, c, w, out)

    def chebyshev_last(self, dinv: Any, b: Any, x: Any, a: Any, c: Any, w: Any, out: Any) -> Any:
        """x + a * w + c * dinv * (b - A x) to `out`, which may be of a wider type."""
        return kernels.rounded_chebyshev_last(*self.arrays, dinv, b, x, a, c, w, out)
