"""The five analyses of Gaurav and Wojtkiewicz (2011): the tables of the paper, measured here.

Milliseconds on one thread and on all threads, on a device too with ``--backend cupy``; the gains S_MC (one thread over
all), S_GS and S_GM (one thread, all threads over the device) of the paper's eq. 11. Public calls, from Python to the
result, median of several after a first one that compiles. ``--part`` selects tables; ``--full`` has the paper's largest
sizes, too.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np

from benchmarks.common import EnsembleBenchmark, cuda_device, save, show
from ensemble._backend import array_namespace, prototype, synchronize
from ensemble.apps.analyses import (
    ar1_load,
    convolution_response,
    frequency_response,
    gauss_hermite,
    oscillator,
    static_beam,
)
from ensemble.quadrature import Integrand

N_STEPS = 1000
"""Of the oscillator: 1001 times."""

FLOPS = 64
"""Of a step of the oscillator: additions, products, roots and quotients of `rk4_step`."""

ALL = numba.get_num_threads()


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Kernels, transforms and BLAS on `count` threads."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            from threadpoolctl import threadpool_limits

            stack.enter_context(threadpool_limits(count))
        numba.set_num_threads(count)
        try:
            yield
        finally:
            numba.set_num_threads(ALL)


LONG = 5.0
"""Seconds of a first call that is measured itself: smaller sizes have compiled its kernels."""


class Analyses(EnsembleBenchmark):
    """The five analyses, at small sizes, the quadrature over eight variables."""

    params = (["numba", "cuda"], [32])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.load = ar1_load(128, n_samples)
        for name in ("static", "frequency", "convolution", "oscillator", "quadrature"):
            getattr(self, f"time_{name}")(backend, n_samples)

    def time_static(self, backend: str, n_samples: int) -> None:
        static_beam(128, np.ones(n_samples), backend=self.library)
        self.wait()

    def time_frequency(self, backend: str, n_samples: int) -> None:
        frequency_response(100, 3.5, backend=self.library)
        self.wait()

    def time_convolution(self, backend: str, n_samples: int) -> None:
        convolution_response(10, 128, self.load, backend=self.library)
        self.wait()

    def time_oscillator(self, backend: str, n_samples: int) -> None:
        oscillator(n_samples, n_steps=N_STEPS, backend=self.library)
        self.wait()

    def time_quadrature(self, backend: str, n_samples: int) -> None:
        gauss_hermite(8, backend=self.library)
        self.wait()


def milliseconds(run: Callable[[], Any], like: Any, at_most: float = 0.6) -> float:
    """Median time of a call, after one that compiles; of a first call that takes long, its own time."""

    def once() -> float:
        start = time.perf_counter()
        run()
        synchronize(like)
        return time.perf_counter() - start

    first = once()
    seconds = [first if first > LONG else once()]
    while len(seconds) < 9 and sum(seconds) < at_most:
        seconds.append(once())
    return 1e3 * statistics.median(seconds)


HOST = True
"""Whether the host is measured beside a device."""


def measured(run: Callable[[str], Any], device: bool, **about: Any) -> dict[str, Any]:
    """A row: `run` takes the backend."""
    if device and not HOST:
        return {**about, "device ms": milliseconds(lambda: run("cupy"), prototype("cupy"))}
    host = prototype("numpy")
    with threads(1):
        single = milliseconds(lambda: run("numpy"), host)
    with threads(ALL):
        several = milliseconds(lambda: run("numpy"), host)
    row = {**about, "one thread ms": single, "all threads ms": several}
    if device:
        row["device ms"] = milliseconds(lambda: run("cupy"), prototype("cupy"))
    row["S_MC"] = single / several
    if device:
        row |= {"S_GS": single / row["device ms"], "S_GM": several / row["device ms"]}
    return row


PRECISIONS = {"SP": np.float32, "DP": np.float64}


def static_table(device: bool, full: bool) -> list[dict[str, Any]]:
    """Table 2: 1000 samples of the tip load."""
    rows = []
    for n in (128, 512, 1024, 2048, *((4096, 8192, 16384) if full else ())):
        for word, dtype in PRECISIONS.items():
            for method in ("dense", "banded"):
                rows.append(
                    measured(
                        lambda b, n=n, dtype=dtype, method=method: static_beam(
                            n, method=method, dtype=dtype, backend=b, output=np.eye(1, n, n - 2)
                        ),
                        device, DOF=n, precision=word, method=method,
                    )
                )  # fmt: skip
                if n <= 4096:  # a factorisation of its own
                    tip = static_beam(n, [3.0], method=method, dtype=dtype).y.samples[n - 2, 0]
                    rows[-1]["tip error"] = float(abs(tip - 1.0))
    return rows


def frequency_table(device: bool, full: bool) -> list[dict[str, Any]]:
    """Table 3: the spectral densities of all unknowns at one frequency."""
    return [
        measured(
            lambda b, n=n, dtype=dtype: frequency_response(n, 3.5, dtype=dtype, backend=b),
            device, DOF=n, precision=word,
        )
        for n in (100, 500, 1000, *((5000, 7500, 10000) if full else (4000,)))
        for word, dtype in PRECISIONS.items()
    ]  # fmt: skip


def convolution_table(device: bool, full: bool) -> list[dict[str, Any]]:
    """Table 4: 100 samples of all states."""
    cases = [(1024, 60), (1024, 124), *(((1024, 252), (8192, 64), (8192, 128), (8192, 256)) if full else ())]
    rows = []
    for n_times, states in cases:
        load = ar1_load(n_times, 100)
        for word, dtype in PRECISIONS.items():
            row = measured(
                lambda b, n_times=n_times, states=states, dtype=dtype, load=load: convolution_response(
                    states // 2, n_times, load, dtype=dtype, backend=b
                ),
                device, times=n_times, states=states, precision=word,
            )  # fmt: skip
            rows.append(row)
    return rows


def oscillator_table(device: bool, full: bool) -> list[dict[str, Any]]:
    """Tables 5 and 6: drawn in the kernel; given, last values; given, all values stored, in both layouts."""
    rows = []
    for n in (1, 10, 100, 1000, 10_000, *((50_000, 100_000) if full else ())):
        drawn = np.random.default_rng(1).standard_normal((N_STEPS, n), dtype=np.float32)
        for word, dtype in PRECISIONS.items():
            for variant in ("drawn", "given", "stored", "stored, times fastest"):
                layout = "times_fastest" if "times" in variant else "samples_fastest"
                given = np.ascontiguousarray(drawn.T if "times" in variant else drawn, dtype)
                noise = None if variant == "drawn" else given
                there = {"numpy": noise}
                if device:
                    there["cupy"] = None if noise is None else array_namespace(prototype("cupy")).asarray(noise)
                stored = variant.startswith("stored")
                row = measured(
                    lambda b, n=n, dtype=dtype, there=there, stored=stored, layout=layout: oscillator(
                        n, noise=there[b], history=stored, layout=layout, dtype=dtype, backend=b
                    ),
                    device, samples=n, precision=word, variant=variant,
                )  # fmt: skip
                accesses = (noise is not None) + 2 * stored
                row["GB/s"] = (
                    1e-6
                    * accesses
                    * n
                    * N_STEPS
                    * np.dtype(dtype).itemsize
                    / (row["device ms"] if "device ms" in row else row["all threads ms"])
                )
                row["CGMA"] = FLOPS / accesses if accesses else 0.0
                rows.append(row)
    return rows


def quadratic_form(dim: int) -> Callable[..., Any]:
    """An integrand whose every term depends on two variables; its mean is known."""
    weights = np.random.default_rng(1).uniform(-0.1, 0.1, (dim, dim))
    weights = (weights + weights.T) / 8.0 + 0.05 * np.eye(dim)
    return lambda q, xp: xp.exp(-sum(weights[i, j] * q[i] * q[j] for i in range(dim) for j in range(dim)))


def of_the_sum(q: Any, xp: Any) -> Any:
    """A function of the sum of all variables."""
    total = sum(q)
    return xp.cos(0.3 * total) + total * xp.exp(-total * total)


def quadrature_table(device: bool, full: bool) -> list[dict[str, Any]]:
    """Table 7: four nodes along each variable."""
    rows = []
    for dim in (*range(6, 13), *((13, 14, 15) if full else ())):
        for word, dtype in PRECISIONS.items():
            row = measured(
                lambda b, dim=dim, dtype=dtype: gauss_hermite(dim, dtype=dtype, backend=b),
                device, variables=dim, precision=word, integrand="sum of squares",
            )  # fmt: skip
            backend = "cupy" if device else "numpy"
            row["relative error"] = abs(float(gauss_hermite(dim, dtype=dtype, backend=backend)) / dim - 1.0)
            rows.append(row)
    dim = 15 if full else 12
    for name, f in (
        ("exp of a quadratic form", Integrand(quadratic_form(dim))),
        ("function of the sum", Integrand(of_the_sum)),
    ):
        for word, dtype in PRECISIONS.items():
            row = measured(
                lambda b, dim=dim, dtype=dtype, f=f: gauss_hermite(dim, f=f, dtype=dtype, backend=b),
                device, variables=dim, precision=word, integrand=name,
            )  # fmt: skip
            row["relative error"] = 0.0
            if device and HOST:
                values = [float(gauss_hermite(dim, f=f, dtype=dtype, backend=b)) for b in ("numpy", "cupy")]
                row["relative error"] = abs(values[1] / values[0] - 1.0)  # of the device to the CPU
            rows.append(row)
    return rows


# --- peers of the oscillator
def numpy_oscillator(noise: np.ndarray | None, n: int, dtype: Any) -> np.ndarray:
    """The same steps over arrays of all samples; the noise drawn step by step where it is None."""
    h, m, c, k = (dtype(value) for value in (0.01, 2.0, 1.6, 62.84))
    x = v = np.zeros(n, dtype)
    rng, scale, half, sixth = np.random.default_rng(1), dtype(10.0), dtype(0.005), dtype(0.01 / 6)
    for i in range(N_STEPS):
        e = scale * (rng.standard_normal(n, dtype=dtype) if noise is None else noise[i])
        f = [dtype(np.sin((i + part) * 0.01)) + e for part in (0.0, 0.5, 1.0)]
        a1 = (f[0] - c * v - np.copysign(np.sqrt(np.abs(v)), v) - k * x) / m
        v2 = v + half * a1
        a2 = (f[1] - c * v2 - np.copysign(np.sqrt(np.abs(v2)), v2) - k * (x + half * v)) / m
        v3 = v + half * a2
        a3 = (f[1] - c * v3 - np.copysign(np.sqrt(np.abs(v3)), v3) - k * (x + half * v2)) / m
        v4 = v + h * a3
        a4 = (f[2] - c * v4 - np.copysign(np.sqrt(np.abs(v4)), v4) - k * (x + h * v3)) / m
        x = x + sixth * (v + 2 * (v2 + v3) + v4)
        v = v + sixth * (a1 + 2 * (a2 + a3) + a4)
    return x


def jax_oscillator(dtype: Any) -> Callable[[Any], Any] | None:
    """The same by ``scan`` over steps of all samples; None without JAX."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    h, m, c, k = (dtype(value) for value in (0.01, 2.0, 1.6, 62.84))
    half, sixth, scale = dtype(0.005), dtype(0.01 / 6), dtype(10.0)
    times = np.arange(N_STEPS) * 0.01
    forces = jnp.asarray(np.sin(times[:, None] + np.array([0.0, 0.005, 0.01])).astype(dtype))

    def step(state: Any, given: Any) -> Any:
        (x, v), (force, e) = state, given

        def rate(x: Any, v: Any, f: Any) -> Any:
            return (f + scale * e - c * v - jnp.sign(v) * jnp.sqrt(jnp.abs(v)) - k * x) / m

        a1 = rate(x, v, force[0])
        v2 = v + half * a1
        a2 = rate(x + half * v, v2, force[1])
        v3 = v + half * a2
        a3 = rate(x + half * v2, v3, force[1])
        v4 = v + h * a3
        a4 = rate(x + h * v3, v4, force[2])
        return (x + sixth * (v + 2 * (v2 + v3) + v4), v + sixth * (a1 + 2 * (a2 + a3) + a4)), None

    @jax.jit
    def run(noise: Any) -> Any:
        zero = jnp.zeros(noise.shape[1], noise.dtype)
        return jax.lax.scan(step, (zero, zero), (forces, noise))[0][0]

    return lambda noise: run(noise).block_until_ready()


def peers_table(device: bool, full: bool) -> list[dict[str, Any]]:
    """The oscillator on one thread, ours beside NumPy and JAX (which takes all cores), interleaved."""
    n = 100_000 if full else 20_000
    rows = []
    for word, dtype in PRECISIONS.items():
        noise = np.random.default_rng(1).standard_normal((N_STEPS, n)).astype(dtype)
        runs: dict[str, Callable[[], Any]] = {
            "ours, given": lambda noise=noise, dtype=dtype: oscillator(n, noise=noise, dtype=dtype),
            "NumPy, given": lambda noise=noise, dtype=dtype: numpy_oscillator(noise, n, dtype),
            "ours, drawn": lambda dtype=dtype: oscillator(n, dtype=dtype),
            "NumPy, drawn": lambda dtype=dtype: numpy_oscillator(None, n, dtype),
        }
        jax = jax_oscillator(dtype)
        if jax is not None:
            runs["JAX, given"] = lambda jax=jax, noise=noise: jax(noise)
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        with threads(1):
            runs["ours, given"](), runs["ours, drawn"]()
            if jax is not None:
                jax(noise)
            for _ in range(3):
                for name, run in runs.items():
                    start = time.process_time()
                    run()
                    seconds[name].append(time.process_time() - start)
        for name in runs:
            ours = seconds["ours, drawn" if "drawn" in name else "ours, given"]
            pairs = [a / b for a, b in zip(seconds[name], ours, strict=True)]
            rows.append({"samples": n, "precision": word, "run": name,
                         "CPU ms": 1e3 * statistics.median(seconds[name]),
                         "times ours": statistics.median(pairs)})  # fmt: skip
    return rows


TABLES: dict[str, tuple[str, Callable[[bool, bool], list[dict[str, Any]]]]] = {
    "static": ("Static beam, 1000 tip loads (table 2)", static_table),
    "frequency": ("Spectral densities of a beam (table 3)", frequency_table),
    "convolution": ("Response in time by convolution, 100 samples (table 4)", convolution_table),
    "oscillator": ("Nonlinear oscillator, 1001 times (tables 5 and 6)", oscillator_table),
    "quadrature": ("Gauss-Hermite quadrature, 4 nodes (table 7)", quadrature_table),
    "peers": ("Nonlinear oscillator beside NumPy and JAX, processor time", peers_table),
}


def main() -> None:
    """Print and keep the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks analyses", description=__doc__)
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy", help="cupy: measure a device, too")
    parser.add_argument("--part", nargs="*", choices=tuple(TABLES), default=list(TABLES), help="tables (default: all)")
    parser.add_argument("--full", action="store_true", help="the largest sizes of the paper, too")
    parser.add_argument("--device-only", action="store_true", help="with cupy: leave the host's columns out")
    options = parser.parse_args()
    global HOST
    HOST = not options.device_only
    device = options.backend == "cupy"
    for part in options.part:
        title, table = TABLES[part]
        rows = table(device, options.full)
        save(
            f"analyses-{part}{'-h200' if device else ''}{'' if HOST else '-alone'}",
            rows,
            **(cuda_device() if device else {}),
        )
        show(title, rows)


if __name__ == "__main__":
    main()
