"""Factorisations whose values lie by tiles, shape (n_tiles, n_values, width): by the plan's list or by supernodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.direct.forms import flat_tiles, panel_tiles
from ensemble._kernels.direct.forms.tiles import Tiles
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["empty_tiles", "factorized_tiles", "has_tiles", "solved_at_once", "solved_tiles"]


def has_tiles(plan: Elimination) -> bool:
    """Whether the values of several samples lie by tiles."""
    return plan.flat is not None or plan.supernodes is not None


def empty_tiles(plan: Elimination, n_samples: int, dtype: Any) -> Tiles:
    """Tiles without numbers."""
    form = panel_tiles.empty_panels if plan.flat is None else flat_tiles.empty_tiles
    return form(n_samples, plan.n_values, dtype)


def factorized_tiles(values: np.ndarray, plan: Elimination) -> tuple[Tiles, np.ndarray]:
    """`factors.factorized`: the values, and what is NaN for a sample that broke."""
    if plan.flat is not None:
        return flat_tiles.factorized_tiles(values, plan)
    _, tiles, broken = panel_tiles.factorized_panels(values, plan)
    assert tiles is not None
    return tiles, broken


def solved_at_once(
    values: np.ndarray, plan: Elimination, b: np.ndarray, shared: bool, keep: bool
) -> tuple[np.ndarray, Tiles | None, np.ndarray]:
    """x in ``A x = b``, the values of the factorisation if `keep`, and what is NaN for a sample that broke.

    b has shape (n, n_samples), or (n,) if `shared`. x has shape (n, n_samples), and is NaN for a sample that broke.
    """
    if plan.flat is not None:
        return flat_tiles.solved_at_once(values, plan, b, shared, keep)
    right = np.repeat(b[:, None], values.shape[1], axis=1) if shared else np.ascontiguousarray(b)
    return panel_tiles.factorized_panels(values, plan, right, keep)


def solved_tiles(tiles: Tiles, plan: Elimination, b: np.ndarray, transposed: bool, out: Any) -> np.ndarray:
    """`triangular.factor_solve` of the tiles; `b` may have one sample for all."""
    if plan.flat is not None:
        solved: np.ndarray = flat_tiles.solved_tiles(tiles, plan, b, transposed, out)
        return solved
    if b.shape[2] != tiles.n_samples:
        b = np.repeat(b, tiles.n_samples, axis=2)
    return panel_tiles.solved_panels(tiles, plan, np.ascontiguousarray(b), transposed, out)
