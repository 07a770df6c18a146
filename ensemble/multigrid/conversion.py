"""A V-cycle between vectors that differ from its own in precision, in scale, or in both."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace
from ensemble._kernels.krylov.device_scalars.scalars import on_device
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.multigrid import scaling as untyped
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._typing import Array
from ensemble.multigrid.cycle import Workspace, coarse_correction, v_cycle
from ensemble.multigrid.relaxation import ChebyshevSmoother

scaling: Any = untyped


def converted_v_cycle(
    levels: Any, coarse: Any, scale: Array, r: Array, out: Array, workspace: Workspace, unit: Array = None,
    norm: Array = None, inner: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """``scale * V(scale * r)`` in the type of r, V computed in the type of the workspace; `scale` may be None.

    Returns `out` and the inner products of `r` with it, for which without `inner` nothing is spent: they may be None
    then. Conversion and scaling happen in registers, in the passes that the smoother makes anyway: no copy of r or of
    the result in the other precision is made beyond the V-cycle's b. `unit`, one power of two per sample in the type of
    r, is the factor of the result of V; where it is given, r enters in units of its own, so that numbers of any
    magnitude fit the type of V: by its largest entries, or by `norm`, its norms, where they are known, which spares a
    maximum over all rows.
    """
    level, as_device = levels[0], on_device(r)
    if workspace.b[0] is None:
        workspace.b[0], workspace.x[0] = (level.A.space.vector(workspace.swap[0]) for _ in range(2))
    b, x, swap, w = workspace.b[0], workspace.x[0], workspace.swap[0], workspace.scratch[0]
    if unit is None:
        enter = leave = array_namespace(r).ones_like(r[0])
    elif as_device and norm is not None and type(norm) is type(r):
        enter, leave = scaling.units_of_norms(norm, unit)
    elif not as_device and norm is not None and (norm > 0.0).all():
        enter, leave = scaling.units_from(norm.astype(r.dtype), unit)
    else:
        with in_space(level.A.space):
            enter, leave = scaling.entry_units(r, unit, None)
    smoother = level.smoother

    def with_inner() -> tuple[Any, Any]:
        with in_space(level.A.space):
            return out, dot(r, out, None) if inner else None

    if not isinstance(smoother, ChebyshevSmoother):  # no first and last step that convert
        b[...] = enter * r if scale is None else scale * (enter * r)
        v_cycle(levels, coarse, b, x, workspace)
        out[...] = x if scale is None else scale * x
        if unit is not None:
            out[...] = leave * out
        return with_inner()
    scaling.scaled_start(scale, enter, r, smoother.dinv, smoother.steps(r.shape[1])[0][1], b, swap)
    here = smoother.smooth(b, None, swap, x, w, begun=True)
    coarse_correction(levels, coarse, b, here, w, workspace, 0)

    def finish(x: Array, a: Array, c: Array, w: Array) -> tuple[Any, Any]:
        A = level.A
        if hasattr(A, "arrays") and not A.has_fused_steps:
            with in_space(A.space), A.arriving(x) as whole:
                given = scale, leave, *A.arrays, smoother.dinv, b, whole, a, c, w
                if not as_device:
                    return out, scaling.scaled_finish(*given, r, out)[1]
                scaling.finished_on_device(*given, out)
            return with_inner()
        if hasattr(A, "chebyshev_finish") and scale is None:
            return out, A.chebyshev_finish(leave, smoother.dinv, b, x, a, c, w, r, out)[1]
        if A.has_fused_steps:
            out[...] = smoother.last(b, x, a, c, w, workspace.scratch[0])
        else:
            smoother.last(b, x, a, c, w, out)
        for factor in (scale, None if unit is None else leave):
            if factor is not None:  # in place: a recorded solve must not allocate
                array_namespace(out).multiply(factor, out, out=out)
        return with_inner()

    finished: tuple[Any, Any] = smoother.smooth(b, here, here, x if here is swap else swap, w, finish=finish)
    return finished
