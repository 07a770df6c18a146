"""Ensembles of initial value problems on a CUDA device, beside a hand-written kernel, JAX and diffrax.

`python -m benchmarks ode-device` integrates Lorenz 63 and HIRES. "kernel" is the time between events around the one
launch of a call, "call" that of the public call with arrays on the device. Peers that are not installed are left out.
Errors are the largest against DOP853 at 1e-12. Record: `ode-cuda`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_ode import STEPS, lorenz, rk4_step
from benchmarks.common import SEED, cuda_device, median, save, show
from ensemble import Ensemble, gallery, ode
from ensemble._kernels.ode import ode_launch

HAND_WRITTEN = r"""
extern "C" __global__ void rk4(const REAL* rho, REAL* out, int S, int steps, REAL h)
{
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= S) return;
    const REAL r = rho[s], b = REAL(8.0 / 3.0), half = h * REAL(0.5), sixth = h / REAL(6);
    REAL x = 1, y = 1, z = 1;
    for (int k = 0; k < steps; ++k) {
        const REAL a1 = REAL(10) * (y - x), b1 = x * (r - z) - y, c1 = x * y - b * z;
        REAL X = x + half * a1, Y = y + half * b1, Z = z + half * c1;
        const REAL a2 = REAL(10) * (Y - X), b2 = X * (r - Z) - Y, c2 = X * Y - b * Z;
        X = x + half * a2, Y = y + half * b2, Z = z + half * c2;
        const REAL a3 = REAL(10) * (Y - X), b3 = X * (r - Z) - Y, c3 = X * Y - b * Z;
        X = x + h * a3, Y = y + h * b3, Z = z + h * c3;
        const REAL a4 = REAL(10) * (Y - X), b4 = X * (r - Z) - Y, c4 = X * Y - b * Z;
        x += sixth * (a1 + REAL(2) * (a2 + a3) + a4);
        y += sixth * (b1 + REAL(2) * (b2 + b3) + b4);
        z += sixth * (c1 + REAL(2) * (c2 + c3) + c4);
    }
    out[s] = x, out[S + s] = y, out[2 * S + s] = z;
}
"""


class Clock:
    """Milliseconds of the launches of `ode.solve`, and of whole calls."""

    def __init__(self, rounds: int) -> None:
        import cupy

        self.cupy, self.rounds, self.kernel = cupy, rounds, 0.0
        self.compiled = ode_launch.kernel
        ode_launch.kernel = self.timed_kernel

    def timed_kernel(self, text: str) -> Callable[..., None]:
        """The kernel of a source, its launches between events."""
        kernel = self.compiled(text)

        def run(grid: Any, block: Any, arguments: Any) -> None:
            start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            start.record()
            kernel(grid, block, arguments)
            end.record()
            end.synchronize()
            self.kernel = self.cupy.cuda.get_elapsed_time(start, end)

        return run

    def of(self, call: Callable[[], Any]) -> tuple[float, float, Any]:
        """Medians of the kernel and of the call, and the last result."""
        result, kernels, calls = call(), [], []
        for _ in range(self.rounds):
            self.cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            result = call()
            self.cupy.cuda.Device().synchronize()
            calls.append(1e3 * (time.perf_counter() - start))
            kernels.append(self.kernel)
        return median(kernels), median(calls), result


def jax_fixed(dtype: str) -> Callable[[np.ndarray], Any] | None:
    """1000 steps of order 4 of all trajectories by JAX, arrays on its device."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    jnp, h = jax.numpy, 1.0 / STEPS

    def all_steps(y: Any, rho: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, lambda _, y: rk4_step(jnp, y, rho, h), y)

    run = jax.jit(all_steps)

    def call(rho: np.ndarray) -> Any:
        values = jnp.asarray(rho, dtype=dtype)
        y = jnp.ones((3, rho.size), dtype=dtype)
        return lambda: run(y, values).block_until_ready()

    return call


def diffrax_adaptive(tolerance: float) -> Callable[[np.ndarray], Any] | None:
    """Adaptive Tsit5 by diffrax, vectorised over trajectories."""
    try:
        import diffrax
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    term = diffrax.ODETerm(lambda t, y, rho: jnp.stack(lorenz(t, y, [rho], jnp)))
    control = diffrax.PIDController(rtol=tolerance, atol=tolerance)

    def one(rho: Any) -> Any:
        return diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 1.0, None, jnp.ones(3, rho.dtype), args=rho, stepsize_controller=control,
            saveat=diffrax.SaveAt(t1=True), max_steps=4096,
        ).ys[0]  # fmt: skip

    run = jax.jit(jax.vmap(one))

    def call(rho: np.ndarray) -> Any:
        values = jnp.asarray(rho)
        return lambda: run(values).block_until_ready()

    return call


def milliseconds(call: Callable[[], Any], rounds: int) -> float:
    """Median of calls that wait for their end."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return median(times)


def lorenz_rows(clock: Clock) -> list[dict[str, Any]]:
    """Fixed and adaptive steps of Lorenz 63, rho from 0 to 21."""
    cupy, rows = clock.cupy, []

    def row(case: str, dtype: str, n_samples: int, kernel: float, call: float | None, error: float | None) -> None:
        rows.append({"case": case, "dtype": dtype, "samples": n_samples, "kernel ms": kernel, "call ms": call,
                     "largest error": error})  # fmt: skip

    def ours(n_samples: int, dtype: str, method: str, **options: Any) -> tuple[float, float, float]:
        rho = cupy.linspace(0.0, 21.0, n_samples).astype(dtype)
        y0 = cupy.ones(3, dtype)
        kernel, call, result = clock.of(
            lambda: ode.solve(lorenz, y0, (0.0, 1.0), p=Ensemble(rho[None]), method=method, **options)
        )
        chosen = np.linspace(0, n_samples - 1, 500).astype(int)
        exact = ode.solve(lorenz, np.ones(3), (0.0, 1.0), p=Ensemble(rho.get().astype(float)[chosen][None]),
                          method="dop853", rtol=1e-12, atol=1e-12)  # fmt: skip
        return kernel, call, float(np.abs(result.y.samples.get()[:, chosen] - exact.y.samples).max())

    for dtype, real in (("float32", "float"), ("float64", "double")):
        n_samples = 1_000_000
        row("rk4, 1000 steps: ensemble", dtype, n_samples, *ours(n_samples, dtype, "rk4", step=1.0 / STEPS))
        kernel = cupy.RawModule(code=f"typedef {real} REAL;{HAND_WRITTEN}").get_function("rk4")
        rho, out = cupy.linspace(0.0, 21.0, n_samples).astype(dtype), cupy.empty((3, n_samples), dtype)
        given = (rho, out, np.int32(n_samples), np.int32(STEPS), np.dtype(dtype).type(1.0 / STEPS))

        def by_hand(kernel: Any = kernel, given: Any = given, n_samples: int = n_samples) -> None:
            kernel((-(-n_samples // 128),), (128,), given)
            cupy.cuda.Device().synchronize()

        row("rk4, 1000 steps: hand-written kernel", dtype, n_samples, milliseconds(by_hand, clock.rounds), None, None)
        jax_run = jax_fixed(dtype)
        if jax_run is not None:
            ms = milliseconds(jax_run(np.linspace(0.0, 21.0, n_samples)), clock.rounds)
            row("rk4, 1000 steps: JAX", dtype, n_samples, ms, None, None)
    n_samples, tolerance = 100_000, 1e-8
    for method in ("tsit5", "dop853", "taylor"):
        times = ours(n_samples, "float64", method, rtol=tolerance, atol=tolerance)
        row(f"adaptive 1e-8: ensemble {method}", "float64", n_samples, *times)
    diffrax_run = diffrax_adaptive(tolerance)
    if diffrax_run is not None:
        ms = milliseconds(diffrax_run(np.linspace(0.0, 21.0, n_samples)), clock.rounds)
        row("adaptive 1e-8: diffrax Tsit5", "float64", n_samples, ms, None, None)
    n_samples = 8_388_608
    fixed = ours(n_samples, "float32", "tsit5", step=1.0 / STEPS)
    row("tsit5, 1000 steps: ensemble", "float32", n_samples, *fixed)
    row(
        "adaptive tsit5 1e-6: ensemble",
        "float32",
        n_samples,
        *ours(n_samples, "float32", "tsit5", rtol=1e-6, atol=1e-6),
    )
    return rows


def stiff_rows(clock: Clock) -> list[dict[str, Any]]:
    """HIRES, 100,000 samples, rates varied by ten per cent."""
    problem, n_samples = gallery.hires(), 100_000
    rng = np.random.default_rng(SEED)
    parameters = problem.p[:, None] * rng.uniform(0.9, 1.1, (problem.p.size, n_samples))
    there = Ensemble(clock.cupy.asarray(parameters))
    kernel, call, result = clock.of(
        lambda: ode.solve(problem.f, problem.y0, problem.t, p=there, method="rodas4", rtol=1e-5, atol=1e-7)
    )
    exact = ode.solve(problem.f, problem.y0, problem.t, p=Ensemble(parameters[:, :500]), method="rodas4", rtol=1e-10,
                      atol=1e-13)  # fmt: skip
    error = float(np.abs(result.y.samples.get()[:, :500] - exact.y.samples).max())
    return [{"case": "HIRES, rodas4 1e-5: ensemble", "dtype": "float64", "samples": n_samples, "kernel ms": kernel,
             "call ms": call, "largest error": error}]  # fmt: skip


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ode-device", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    clock = Clock(options.rounds)
    rows = lorenz_rows(clock) + stiff_rows(clock)
    show("Initial value problems on a device", rows)
    save("ode-cuda", rows, device=cuda_device())
