"""The rotations of a least-squares problem in a Krylov space, of all samples."""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_procedure
from ensemble._kernels.sparse.complex_numbers import conjugated, is_complex, times

__all__ = ["rotate_column"]


@compiled_procedure
def _rotate_column(cosines, sines, column, count):
    for i in range(count):
        for s in range(column.shape[1]):
            upper, lower = column[i, s], column[i + 1, s]
            column[i, s] = cosines[i, s] * upper + sines[i, s] * lower
            column[i + 1, s] = cosines[i, s] * lower - sines[i, s] * upper


def rotate_column(cosines: np.ndarray, sines: np.ndarray, column: np.ndarray, count: int) -> None:
    """Apply the first rotations, in order, to rows of a column of each sample: row i and the next one by rotation i.

    Real ones go through compiled code: NumPy takes eight calls a rotation.
    """
    if not is_complex(column):
        _rotate_column(cosines, sines, column, count)
        return
    for i in range(count):
        c, s = cosines[i], sines[i]
        upper = times(conjugated(c), column[i]) + times(s, column[i + 1])
        column[i + 1] = times(c, column[i + 1]) - times(s, column[i])
        column[i] = upper
