"""The V-cycle: Algorithm 1 of Phipps et al. (2017), for all samples at once."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.recording import assign
from ensemble._kernels.sparse.complex_numbers import is_complex
from ensemble._typing import Array


class Workspace:
    """The vectors one V-cycle needs on each level; one per thread of control, so that hierarchies can be shared."""

    def __init__(self, matrices: list[Any], n_samples: int) -> None:
        """Vectors of `n_samples` for the matrices of the levels, of their type and on their device."""
        self.n_samples = n_samples
        likes = [empty_like(A.reference_array, (A.local_shape[0], n_samples)) for A in matrices]

        def vectors() -> list[Any]:
            return [A.space.vector(like) for A, like in zip(matrices, likes, strict=True)]

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
        assign(out, x)
    return out


def restricted(P: Any, r: Array, out: Array) -> None:
    """P^T r, or P^H r of complex numbers, to `out`; a complex `r` is overwritten."""
    if not is_complex(r):
        P.apply_transpose(r, out)
        return
    xp = array_namespace(r)
    P.apply_transpose(xp.conj(r, out=r), out)
    xp.conj(out, out=out)


def coarse_correction(levels: Any, coarse: Any, b: Array, x: Array, w: Array, workspace: Workspace, k: int) -> None:
    """Add to `x` the correction by the levels below `k`; `w` is scratch memory for the residual."""
    A, P = levels[k].A, levels[k].P
    if P is None:
        return
    if A.stores_upper:
        A.restricted_residual(x, b, P, w, workspace.b[k + 1])
    else:
        restricted(P, A.residual(x, b, w), workspace.b[k + 1])
    v_cycle(levels, coarse, workspace.b[k + 1], workspace.x[k + 1], workspace, k + 1)
    P.add_product(workspace.x[k + 1], x)
