"""Index arrays of SciPy's sparse matrices, checked before compiled code follows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import require

__all__ = ["require_valid"]


def require_valid(matrix: Any, name: str, argument: str = "matrices") -> None:
    """Raise ValueError where the index arrays of a SciPy matrix point outside of it.

    SciPy's conversions follow such arrays into memory that is not theirs, which ends the process. Nothing is changed,
    unlike by its ``check_format``.
    """
    kind = getattr(matrix, "format", None)
    if kind == "coo":
        for axis, (coordinates, size) in enumerate(zip(matrix.coords, matrix.shape, strict=True)):
            inside = not coordinates.size or (coordinates.min() >= 0 and coordinates.max() < size)
            require(inside, name, argument, f"have coordinates from 0 to {size - 1} in axis {axis}", "others")
            require(coordinates.size == matrix.data.size, name, argument, "have coordinates for each value", "fewer")
    if kind not in ("csr", "csc", "bsr"):
        return
    rows, columns = matrix.shape if kind != "csc" else matrix.shape[::-1]
    if kind == "bsr":
        rows, columns = rows // matrix.blocksize[0], columns // matrix.blocksize[1]
    indptr, indices = np.asarray(matrix.indptr), np.asarray(matrix.indices)
    stored = min(indices.size, len(matrix.data))
    falls = np.flatnonzero(np.diff(indptr) < 0)
    seen = f"{indptr.size} numbers from {indptr[0]} to {indptr[-1]}" if indptr.size else "none"
    if falls.size:
        seen = f"indptr[{falls[0]}] = {indptr[falls[0]]} before indptr[{falls[0] + 1}] = {indptr[falls[0] + 1]}"
    ascending = indptr.size == rows + 1 and not falls.size and indptr[0] == 0 and indptr[-1] <= stored
    text = f"have {rows + 1} ascending indptr from 0 to at most {stored}, the entries stored"
    require(bool(ascending), name, argument, text, seen)
    used = indices[: indptr[-1]]
    inside = not used.size or (used.min() >= 0 and used.max() < columns)
    require(inside, name, argument, f"have indices from 0 to {columns - 1}", "others")
