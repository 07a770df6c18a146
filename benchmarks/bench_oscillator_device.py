"""The kernels of the nonlinear oscillator on a CUDA device, beside their bounds: 100,000 samples, 1000 steps.

The bound is the larger of two times: of the bytes of given noise and stored values at the bandwidth of a triad in the
same run, and of the instructions at the clock in the same run. Instructions are counted by the formula (`SLOTS`), not
from the compiled code: those of arithmetic alone, without addresses, loads and loops. A multiprocessor starts four of
float32 a cycle, and two of float64. Record: `oscillator-cuda`.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import numpy as np

from benchmarks.bench_diffusion_device import triad
from benchmarks.common import cuda_device, save, show
from benchmarks.device_clock import milliseconds
from ensemble._kernels.oscillator import oscillator_launch, steps

KINDS = {
    "given, final state": steps.Run(False, False), "given, stored": steps.Run(False, True),
    "drawn, final state": steps.Run(True, False), "drawn, stored": steps.Run(True, True),
}  # fmt: skip

SLOTS = {"float32": (35, 50), "float64": (47, 26)}
"""Instructions of a step, and further ones where noise is drawn.

A step has 27 operations, and four inverse roots: a maximum and an approximation each in float32, five operations in
float64. A pair of normal numbers, for two steps, takes in float32 40 of ten rounds of Philox, 8 of uniform numbers, 27
of the radius, 22 of cosine and sine, 2 products; in float64 52 of float64.
"""

CLOCK = r"""
extern "C" __global__ void cycles(long long* out)
{
    long long t0, t1;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0));
    const long long start = clock64();
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1)); } while (t1 - t0 < 2000000);
    out[0] = clock64() - start, out[1] = t1 - t0;
}
"""


def clock() -> float:
    """Cycles of a multiprocessor per second."""
    import cupy

    out = cupy.zeros(2, np.int64)
    cupy.RawKernel(CLOCK, "cycles")((1,), (1,), (out,))
    cycles, nanoseconds = out.get().tolist()
    return 1e9 * float(cycles) / float(nanoseconds)


def bounds(kind: steps.Run, dtype: str, n: int, n_steps: int, bandwidth: float, rate: float) -> tuple[float, float]:
    """Milliseconds of the bytes and of the instructions."""
    size = np.dtype(dtype).itemsize
    n_bytes = size * n * ((0 if kind.drawn else n_steps) + (2 * (n_steps + 1) if kind.stored else 0))
    step, noise = SLOTS[dtype]
    count = n * n_steps * (step + (noise if kind.drawn else 0))
    lanes = 128 if dtype == "float32" else 64
    return 1e3 * n_bytes / bandwidth, 1e3 * count / (lanes * rate)


def rows_of(n: int, n_steps: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each precision and kind."""
    import cupy

    device = cupy.cuda.Device()
    bandwidth, rows = 1e9 * triad(), []
    for dtype in ("float32", "float64"):
        drawn = cupy.random.default_rng(20731).standard_normal(n * n_steps, dtype=dtype)
        history = cupy.empty(2 * (n_steps + 1) * n, dtype)
        parameters = cupy.asarray(np.repeat([[2.0], [1.6], [1.0], [62.84], [1.0]], n, axis=1), dtype=dtype)
        forcing = cupy.asarray(np.sin(0.005 * np.arange(2 * n_steps + 2)), dtype=dtype)
        numbers, x, v = cupy.arange(n, dtype=np.int64), cupy.zeros(n, dtype), cupy.zeros(n, dtype)
        for name, kind in KINDS.items():
            noise, kept = drawn[:1] if kind.drawn else drawn, history if kind.stored else history[:2]

            arguments = (kind, n_steps, numbers, 7, parameters, forcing, noise, (n, 1), 0.01, 10.0, x, v, kept,
                         ((n_steps + 1) * n, n, 1))  # fmt: skip
            x[...] = v[...] = 0.0
            time = milliseconds(functools.partial(oscillator_launch.integrate, *arguments), repeats)
            rate = clock() * device.attributes["MultiProcessorCount"]
            of_bytes, of_instructions = bounds(kind, dtype, n, n_steps, bandwidth, rate)
            bound = max(of_bytes, of_instructions)
            rows.append({"precision": dtype, "noise and result": name, "ms": time, "bytes ms": of_bytes,
                         "instructions ms": of_instructions, "fraction": bound / time})  # fmt: skip
    return rows


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks oscillator-device", description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    rows = rows_of(options.samples, options.steps, options.repeats)
    show("Nonlinear oscillator on a device", rows)
    save("oscillator-cuda", rows, **cuda_device(), clock=clock(), bandwidth=triad())


if __name__ == "__main__":
    main()
