"""The stages of a kernel in table 5 of Li et al. (Fluidity-Atmosphere on a GPU), as far as the text tells them.

One thread takes an element. "Baseline": loops of sizes that are arguments, the product and the scalar product are
functions of their own. "Unroll": sizes are fixed and all inner loops unrolled, the functions still of their own.
"Templated": they are compiled into the kernel. Arrays and results are those of `tet_gradient_tensor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["SOURCE", "STAGES", "run_of"]

STAGES = ("Baseline", "Unroll", "Templated matrix product and dot product")
"""As the paper names them."""

THREADS = 128

SOURCE = r"""
#if STAGE == 0
#define SIZE(argument, fixed) argument
#define LOOP _Pragma("unroll 1")
#define PLACE static __device__ __noinline__
#elif STAGE == 1
#define SIZE(argument, fixed) fixed
#define LOOP _Pragma("unroll")
#define PLACE static __device__ __noinline__
#else
#define SIZE(argument, fixed) fixed
#define LOOP _Pragma("unroll")
#define PLACE static __device__ __forceinline__
#endif

PLACE double scalar_product(const double* a, const double* b, int dim)
{
    double sum = 0;
    LOOP
    for (int k = 0; k < SIZE(dim, 3); ++k) sum += a[k] * b[k];
    return sum;
}

PLACE void product(const double* a, const double* T, double* out, int dim)
{
    LOOP
    for (int l = 0; l < SIZE(dim, 3); ++l) {
        double sum = 0;
        LOOP
        for (int k = 0; k < SIZE(dim, 3); ++k) sum += a[k] * T[SIZE(dim, 3) * k + l];
        out[l] = sum;
    }
}

extern "C" __global__ void stage(const double* a, const double* tensor, const double* b, const double* detwei,
                                 double* out, int n_elements, int dim, int n_nodes, int n_points)
{
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= n_elements) return;
    const long long n = n_elements;
    double sums[16];
    LOOP
    for (int i = 0; i < SIZE(n_nodes * n_nodes, 16); ++i) sums[i] = 0;
    for (int q = 0; q < n_points; ++q) {
        double T[9], g[3], h[3], m[3];
        const double weight = detwei[q * n + e];
        LOOP
        for (int k = 0; k < SIZE(dim * dim, 9); ++k) T[k] = tensor[(q * SIZE(dim * dim, 9) + k) * n + e];
        LOOP
        for (int i = 0; i < SIZE(n_nodes, 4); ++i) {
            LOOP
            for (int k = 0; k < SIZE(dim, 3); ++k)
                g[k] = a[((q * SIZE(n_nodes, 4) + i) * SIZE(dim, 3) + k) * n + e];
            product(g, T, m, dim);
            LOOP
            for (int j = 0; j < SIZE(n_nodes, 4); ++j) {
                LOOP
                for (int k = 0; k < SIZE(dim, 3); ++k)
                    h[k] = b[((q * SIZE(n_nodes, 4) + j) * SIZE(dim, 3) + k) * n + e];
                sums[SIZE(n_nodes, 4) * i + j] += scalar_product(m, h, dim) * weight;
            }
        }
    }
    LOOP
    for (int i = 0; i < SIZE(n_nodes * n_nodes, 16); ++i) out[i * n + e] = sums[i];
}
"""


@functools.cache
def _kernel(stage: int) -> Any:
    import cupy

    return cupy.RawKernel(SOURCE, "stage", options=(f"-DSTAGE={stage}", "--std=c++17"))


def run_of(stage: int, two: bool) -> Callable[[Any, Any], Any]:
    """What computes the sums from inputs of `bench_element_kernels_device` into `out`, which is made where None."""

    def run(x: Any, out: Any) -> Any:
        import cupy

        n_points, _, _, n_elements, _ = x.dshape.shape
        made = cupy.empty((16, n_elements, 1)) if out is None else out
        b = x.other if two else x.dshape
        sizes = tuple(np.int32(size) for size in (n_elements, 3, 4, n_points))
        _kernel(stage)((-(-n_elements // THREADS),), (THREADS,), (x.dshape, x.tensors, b, x.detwei, made, *sizes))
        return made

    return run
