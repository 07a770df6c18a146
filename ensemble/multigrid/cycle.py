"""The V-cycle: Algorithm 1 of Phipps et al. (2017), for all samples at once."""

from __future__ import annotations

from typing import Any

from ensemble._compile.memory import empty_like
from ensemble._kernels.sparse.crs import spmv_add, spmv_transpose
from ensemble._typing import Array
from ensemble.linalg import SymmetricCrsMatrix


class Workspace:
    """The vectors one V-cycle needs on each level; one per thread of control, so that hierarchies can be shared."""

    def __init__(self, sizes: list[int], n_samples: int, values: Array) -> None:
        """Vectors of `n_samples`, of the type and on the device of the matrix `values`."""
        self.n_samples = n_samples

        def vectors() -> list[Any]:
            return [empty_like(values, (n, n_samples)) for n in sizes]

        self.swap, self.scratch = vectors(), vectors()
        self.b, self.x = [[None, *vectors()[1:]] for _ in range(2)]
        self.double: Workspace | None = None  # of the samples held in double precision


def v_cycle(levels: Any, coarse: Any, b: Array, out: Array, workspace: Workspace, k: int = 0) -> Array:
    """One V-cycle from a zero guess on level `k`, result in `out`.

    Bytes: per level four passes over A (degree 2), two over P, 22 vectors.
    """
    level = levels[k]
    if k == len(levels) - 1 and coarse is not None:
        return coarse.apply(b, out)
    swap, w = workspace.swap[k], workspace.scratch[k]
    x = level.smoother.smooth(b, None, swap, out, w)
    there = out if x is swap else swap
    coarse_correction(levels, coarse, b, x, w, workspace, k)
    x = level.smoother.smooth(b, x, x, there, w)
    if x is not out:
        out[...] = x
    return out


def coarse_correction(levels: Any, coarse: Any, b: Array, x: Array, w: Array, workspace: Workspace, k: int) -> None:
    """Add to `x` the correction by the levels below `k`; `w` is scratch memory for the residual."""
    A, P = levels[k].A, levels[k].P
    if P is None:
        return
    if isinstance(A, SymmetricCrsMatrix):
        A.restricted_residual(x, b, P, w, workspace.b[k + 1])
    else:
        spmv_transpose(*P.transposed_arrays, A.residual(x, b, w), workspace.b[k + 1])
    v_cycle(levels, coarse, workspace.b[k + 1], workspace.x[k + 1], workspace, k + 1)
    spmv_add(*P.arrays, workspace.x[k + 1], x)
