"""A V-cycle between vectors that differ from its own in precision, in scale, or in both."""

from __future__ import annotations

from typing import Any

from ensemble._kernels._memory import empty_like
from ensemble._kernels.krylov import dot
from ensemble._kernels.scaling import scaled_finish, scaled_start
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid.cycle import Workspace, coarse_correction, v_cycle
from ensemble.multigrid.relaxation import ChebyshevSmoother


def converted_v_cycle(levels: Any, coarse: Any, scale: Any, r: Any, out: Any, workspace: Workspace) -> tuple[Any, Any]:
    """``scale * V(scale * r)`` in the type of r, V computed in the type of the workspace; `scale` may be None.

    Returns `out` and the inner products of `r` with it. Conversion and scaling happen in registers, in the passes that
    the smoother makes anyway: no copy of r or of the answer in the other precision is made beyond the V-cycle's b.
    """
    level = levels[0]
    if workspace.b[0] is None:
        workspace.b[0], workspace.x[0] = (empty_like(workspace.swap[0]) for _ in range(2))
    b, x, swap, w = workspace.b[0], workspace.x[0], workspace.swap[0], workspace.scratch[0]
    smoother = level.smoother
    if not isinstance(smoother, ChebyshevSmoother):  # no first and last step that convert on the way
        b[...] = r if scale is None else scale * r
        v_cycle(levels, coarse, b, x, workspace)
        out[...] = x if scale is None else scale * x
        return out, dot(r, out, None)
    scaled_start(scale, r, smoother.dinv, smoother.steps(r.shape[1])[0][1], b, swap)
    here = smoother.smooth(b, None, swap, x, w, begun=True)
    coarse_correction(levels, coarse, b, here, w, workspace, 0)

    def finish(x: Any, a: Any, c: Any, w: Any) -> tuple[Any, Any]:
        A = level.A
        if isinstance(A, CrsMatrix):
            return scaled_finish(scale, *A.arrays, smoother.dinv, b, x, a, c, w, r, out)
        if isinstance(A, SymmetricCrsMatrix):  # its kernels keep to one type; the change of x is not needed any more
            out[...] = smoother.last(b, x, a, c, w, w if w is not x else empty_like(x))
        else:
            smoother.last(b, x, a, c, w, out)
        if scale is not None:
            out[...] = scale * out
        return out, dot(r, out, None)

    return smoother.smooth(b, here, here, x if here is swap else swap, w, finish=finish)
