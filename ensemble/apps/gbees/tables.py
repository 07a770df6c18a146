"""`interp` for namespaces that have none: the Array API has no table lookup, and drifts may need it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._typing import Array, Namespace
from ensemble.scalar import Ensemble

__all__ = ["with_tables"]


class WithTables:
    """A namespace, and `interp` besides."""

    def __init__(self, xp: Namespace) -> None:
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_xp"], name)

    def interp(self, x: Array, xp: Array, fp: Array, left: float | None = None, right: float | None = None) -> Array:
        """As `numpy.interp`, for arrays of any library and for Ensembles, each sample by itself."""
        if isinstance(x, Ensemble):
            return Ensemble(self.interp(x.samples, xp, fp, left, right))
        if isinstance(x, int | float | np.ndarray | np.generic):
            return np.interp(np.asarray(x), xp, fp, left, right)
        base = array_namespace(x)
        x = base.astype(x, base.float64, copy=False)
        points, values = (asarray_like(np.asarray(part, dtype=np.float64), x) for part in (xp, fp))
        flat, last = base.reshape(x, (-1,)), points.shape[0] - 1
        at = base.clip(base.searchsorted(points, flat, side="right") - 1, 0, max(last - 1, 0))
        low, high = base.take(points, at), base.take(points, at + min(last, 1))
        start, end = base.take(values, at), base.take(values, at + min(last, 1))
        width = base.where(high > low, high - low, base.ones_like(low))
        near = base.clip(flat, float(points[0]), float(points[last]))
        result = (end - start) / width * (near - low) + start
        first, final, none = float(points[0]), float(points[last]), base.zeros_like(result)
        for mask, value in (
            (flat <= first, values[0]), (flat >= final, values[last]), (flat < first, left), (flat > final, right),
        ):  # fmt: skip
            result = result if value is None else base.where(mask, float(value) + none, result)
        return base.reshape(result, x.shape)


def with_tables(xp: Namespace) -> Namespace:
    """`xp` itself where it has `interp`."""
    return xp if hasattr(xp, "interp") else WithTables(xp)
