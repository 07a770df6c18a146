"""The CUDA kernels of a solve of `RandomDiffusion` with default options, compiled before they are launched."""

from __future__ import annotations

import functools

import numpy as np

from ensemble._compile import cuda, device
from ensemble.multigrid.aggregation import compile_graph_functions

__all__ = ["compile_device_kernels", "device_kernels"]


def device_kernels(
    n_samples: int, dtype: np.dtype, reacts: bool
) -> list[tuple[str, cuda.Layout, tuple[str, ...], tuple[str, ...]]]:
    """Module, layout, names of kernels and options of each compilation, as `cuda.compile_ahead` takes them.

    The longest compilations come first. Other options of a solve (another preconditioner, solver or operator) need
    other kernels, too; those are compiled at their first launch.
    """
    outer, inner = (cuda.layout_of_aligned(n_samples, size) for size in (np.dtype(dtype).itemsize, 4))
    outer_scalars, inner_scalars = (cuda.Layout(layout.real, 1, 1, 1) for layout in (outer, inner))
    gather = tuple(f"gather_rows<{str(reacts).lower()}, {matrix}>" for matrix in ("true", "false"))
    wide = (f"-DWIDE={outer.real}",)
    return [
        ("fem/assembly", outer, (*gather, "affine_coefficient"), ()),
        ("multigrid/inverses", cuda.Layout("double", 1, 1, 1), (), ()),
        ("sparse/crs", outer, (), ()),
        ("sparse/crs", inner, (), ()),
        ("sparse/crs", outer_scalars, (), ()),
        ("sparse/crs", inner_scalars, (), ()),
        ("multigrid/relaxation", inner, (), ()),
        ("krylov/vectors", outer, (), ()),
        ("krylov/vectors", outer_scalars, (), ()),
        ("multigrid/scaling", inner, (), wide),
        ("multigrid/measures", outer, (), ()),
        ("multigrid/measures", inner, (), ()),
        ("multigrid/galerkin", inner, (), ()),
        ("multigrid/galerkin", cuda.Layout("double", 1, 1, 1), (), ()),
        ("multigrid/dense", inner, (), ()),
    ]


def compile_device_kernels(n_samples: int, dtype: np.dtype, reacts: bool) -> None:
    """Start to compile those kernels in threads, and what the set-up of a hierarchy runs on the host."""
    _compile_host_functions()
    cuda.compile_ahead(device_kernels(n_samples, dtype, reacts))


@functools.cache
def _compile_host_functions() -> None:
    device.in_thread(compile_graph_functions)
