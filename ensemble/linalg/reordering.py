"""Matrices and vectors in another order of their rows, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble.linalg.graph import CrsGraph, Reordering
from ensemble.linalg.linear_operator import inherited
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble

__all__ = ["reordered_matrix", "reordered_vectors", "restored_vectors"]


def reordered_matrix(A: Any, old: CrsGraph, new: Reordering) -> Any:
    """`A`, a stored matrix on the graph `old`, in the order of `new`; of blocks, `new` counts scalar rows."""
    if isinstance(A, SymmetricCrsMatrix):
        above = np.flatnonzero(new.graph.indices >= new.graph.row_of_entry)
        values = taken_rows(A.values, old.upper.entries[new.entries[above]])
        return inherited(SymmetricCrsMatrix(new.graph, Ensemble(values, A.sample_set)), A)
    values = taken_rows(A.values, new.graph.array_on(A.values, "entries", new.entries))
    return inherited(type(A)(new.graph, Ensemble(values, A.sample_set)), A)


def reordered_vectors(x: Any, new: Reordering, out: Any = None) -> Any:
    """The rows of `x`, shape (n, n_samples), in the order of `new`."""
    return taken_rows(x, new.graph.array_on(x, f"{new.rows.size} old rows", new.rows), out)


def restored_vectors(y: Any, new: Reordering, out: Any = None) -> Any:
    """The rows of `y`, which are in the order of `new`, in the order of the graph that it was made from."""
    return taken_rows(y, new.graph.array_on(y, f"{new.places.size} places", new.places), out)


def taken_rows(values: Any, places: Any, out: Any = None) -> Any:
    """The rows of `values` at `places`, in `out` or a new array."""
    if isinstance(values, np.ndarray):
        return np.take(values, places, axis=0, out=out, mode="clip")  # "raise" would fill a buffer beside `out`
    rows = array_namespace(values).take(values, asarray_like(places, values), axis=0)
    if out is None:
        return rows
    out[...] = rows
    return out
