"""The same steps on a CUDA device: one thread a sample."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile import device
from ensemble._compile.trace.cuda_source import OPTIONS, PRELUDE, TYPES, device_function
from ensemble._kernels.oscillator.steps import PARAMETERS, Run, step_graph

__all__ = ["OPTIONS", "integrate", "source"]

THREADS = 64
"""Threads of a block: few, so that small ensembles still reach many multiprocessors."""

KERNEL = """
__device__ __forceinline__ void philox(unsigned (&c)[4], unsigned k0, unsigned k1) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64 high = (uint64)c[0] * 0xD2511F53u, low = (uint64)c[2] * 0xCD9E8D57u;
        c[0] = (unsigned)(low >> 32) ^ c[1] ^ k0, c[1] = (unsigned)low;
        c[2] = (unsigned)(high >> 32) ^ c[3] ^ k1, c[3] = (unsigned)high;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

__device__ __forceinline__ void normal_pair(int64 number, int64 block, uint64 seed, double& first, double& second) {
    unsigned c[4] = {(unsigned)number, (unsigned)(number >> 32), (unsigned)block, 0u};
    philox(c, (unsigned)seed, (unsigned)(seed >> 32));
    const double u = ((double)(((int64)c[0] << 20) | (c[1] >> 12)) + 0.5) * 2.220446049250313e-16;
    const double angle =
        ((double)(((int64)c[2] << 20) | (c[3] >> 12)) + 0.5) * (6.283185307179586 * 2.220446049250313e-16);
    const double radius = sqrt(-2.0 * log(u));
    first = radius * cos(angle), second = radius * sin(angle);
}

// In float the leading 24 bits of each word pair.
__device__ __forceinline__ void normal_pair(int64 number, int64 block, uint64 seed, float& first, float& second) {
    unsigned c[4] = {(unsigned)number, (unsigned)(number >> 32), (unsigned)block, 0u};
    philox(c, (unsigned)seed, (unsigned)(seed >> 32));
    const float u = ((float)(c[0] >> 8) + 0.5f) * 5.9604644775390625e-8f;
    const float angle = ((float)(c[2] >> 8) + 0.5f) * (6.2831853071795865f * 5.9604644775390625e-8f);
    const float radius = sqrt(-2.0f * log(u));
    first = radius * cos(angle), second = radius * sin(angle);
}

extern "C" __global__ void __launch_bounds__(64) integrate(
    int64 n_samples, int64 n_steps, const int64* __restrict__ numbers, uint64 seed,
    const REAL* __restrict__ parameters, const REAL* __restrict__ forcing, const REAL* __restrict__ noise,
    int64 noise_step, int64 noise_sample, REAL h, REAL scale, REAL* __restrict__ x_end, REAL* __restrict__ v_end,
    REAL* __restrict__ history, int64 place, int64 place_step, int64 place_sample) {
    const int64 at = (int64)blockIdx.x * 64 + threadIdx.x;
    if (at >= n_samples) return;
    PARAMETERS
    REAL x = x_end[at], v = v_end[at], e = 0, later = 0;
    const int64 number = numbers[at];
#if !DRAWN
    REAL ahead[8];  // loads that wait for memory while steps run
#pragma unroll
    for (int k = 0; k < 8; ++k) ahead[k] = k < n_steps ? noise[k * noise_step + at * noise_sample] : REAL(0);
#endif
    for (int64 block = 0; block < n_steps; block += 8) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const int64 i = block + k;
            if (i < n_steps) {
#if DRAWN
                if (k % 2 == 0) normal_pair(number, i / 2, seed, e, later), e *= scale, later *= scale;
                else e = later;
#else
                e = ahead[k] * scale;
                if (i + 8 < n_steps) ahead[k] = noise[(i + 8) * noise_step + at * noise_sample];
#endif
#if STORED
                history[i * place_step + at * place_sample] = x;
                history[place + i * place_step + at * place_sample] = v;
#endif
                const REAL f0 = forcing[2 * i], f1 = forcing[2 * i + 1], f2 = forcing[2 * i + 2];
                REAL x_next, v_next;
                step(ARGUMENTS, x_next, v_next);
                x = x_next, v = v_next;
            }
        }
    }
#if STORED
    history[n_steps * place_step + at * place_sample] = x;
    history[place + n_steps * place_step + at * place_sample] = v;
#endif
    x_end[at] = x, v_end[at] = v;
}
"""


def source(kind: Run, dtype: str) -> str:
    """The CUDA C++ of the loop over steps."""
    graph = step_graph(dtype)
    words = ["x", "v", "f0", "f1", "f2", "e", "h", *(f"p{k}" for k in range(len(PARAMETERS)))]
    loads = " ".join(f"const REAL p{k} = parameters[{k} * n_samples + at];" for k in range(len(PARAMETERS)))
    flags = {"REAL": TYPES[dtype], "DRAWN": int(kind.drawn), "STORED": int(kind.stored)}
    arguments = ", ".join(words[position] for position in graph.strong_inputs)
    kernel = KERNEL.replace("    PARAMETERS", f"    {loads}").replace("ARGUMENTS", arguments)
    lines = [f"#define {name} {value}" for name, value in flags.items()]
    return "\n".join([PRELUDE, *lines, device_function(graph, "step"), kernel])


@functools.cache
def compiled_run(kind: Run, dtype: str) -> Any:
    return device.raw_module(source(kind, dtype), OPTIONS, ("integrate",)).get_function("integrate")


def integrate(
    kind: Run, n_steps: int, numbers: Any, seed: int, parameters: Any, forcing: Any, noise: Any,
    strides: tuple[int, int], h: float, scale: float, x: Any, v: Any, history: Any, places: tuple[int, int, int],
) -> None:  # fmt: skip
    """As `steps.integrate`, on arrays of a device."""
    real, whole = x.dtype.type, np.int64
    arguments = (
        whole(x.size), whole(n_steps), numbers, np.uint64(seed), parameters, forcing, noise, *map(whole, strides),
        real(h), real(scale), x, v, history, *map(whole, places),
    )  # fmt: skip
    if x.size:
        compiled_run(kind, x.dtype.name)((-(-x.size // THREADS),), (THREADS,), arguments)
