"""The rotations of a least-squares problem in a Krylov space, of all samples.

A rotation ``[[conj(c), s], [-s, c]]`` has a real sine. Numbers of a row have `step` parts beside each other, 2 where
they are complex.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_procedure, inner
from ensemble._kernels.krylov.scalar_parts import as_parts, product_parts

__all__ = ["imaginary", "put", "rotate_back", "rotate_column"]


@inner(forceinline=True)
def imaginary(row, at, step):
    """The imaginary part of the number at `at`; zero of a real one."""
    part = 0.0
    if step == 2:
        part = row[at + 1]
    return part


@inner(forceinline=True)
def put(row, at, step, value, turned):
    """Write a number."""
    row[at] = value
    if step == 2:
        row[at + 1] = turned


@inner(forceinline=True)
def rotate_back(column, cosines, sines, count, at, s, step):
    """Apply the first rotations, in order, to the column of sample `at`, number `s` of its rows."""
    here, own = s * step, at * step
    for i in range(count):
        c, ci, d = cosines[i, own], imaginary(cosines[i], own, step), sines[i, at]
        upper, upper_i = column[i, here], imaginary(column[i], here, step)
        lower, lower_i = column[i + 1, here], imaginary(column[i + 1], here, step)
        a, ai = product_parts(c, -ci, upper, upper_i)
        b, bi = product_parts(c, ci, lower, lower_i)
        put(column[i], here, step, a + d * lower, ai + d * lower_i)
        put(column[i + 1], here, step, b - d * upper, bi - d * upper_i)


@compiled_procedure
def _rotate_column(cosines, sines, column, count, step):
    for s in range(sines.shape[1]):
        rotate_back(column, cosines, sines, count, s, s, step)


def rotate_column(cosines: np.ndarray, sines: np.ndarray, column: np.ndarray, count: int) -> None:
    """Apply the first rotations, in order, to rows of a column of each sample: row i and the next one by rotation i."""
    _rotate_column(as_parts(cosines), sines, as_parts(column), count, 2 if column.dtype.kind == "c" else 1)
