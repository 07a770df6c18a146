"""Kalman filters against statsmodels, filterpy, pykalman, simdkalman and JAX, where they are installed, in one run.

``python -m benchmarks kalman [series|batch|states|small] [--threads N]``; peers that are absent are left out.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks import common
from benchmarks.common import SEED, EnsembleBenchmark, median, ratio, save, show
from ensemble import Ensemble
from ensemble._backend import asarray_like
from ensemble._kernels.kalman.recursions import FilterStep
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, log_likelihood, maximum_likelihood, rts_smoother

NX, NY = 4, 2

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}

clock = CLOCKS["wall"]


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds by the clock chosen."""
    return common.interleaved(functions, rounds, clock)


def peer(name: str) -> Any:
    """A module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def random_model(T: int, NX: int = NX, NY: int = NY) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The random model of Särkkä and García-Fernández, all of it time-varying, with observations simulated from it."""
    rng = np.random.default_rng(SEED)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    X, W, X0 = normal(T, NX, NX), normal(T, NY, NY), normal(NX, NX)
    F, u, H, d, m0 = (
        0.99 * np.linalg.qr(normal(T, NX, NX))[0],
        normal(T, NX),
        normal(T, NY, NX),
        normal(T, NY),
        normal(NX),
    )
    noise = np.einsum("kij,kj->ki", X, normal(T, NX)) + u
    x, states = m0 + X0 @ normal(NX), np.empty((T, NX))
    for k in range(T):
        x = F[k] @ x + noise[k]
        states[k] = x
    y = np.einsum("kij,kj->ki", H, states) + d + np.einsum("kij,kj->ki", W, normal(T, NY))
    return {"F": F, "Q": X @ X.mT, "H": H, "R": W @ W.mT, "m0": m0, "P0": X0 @ X0.T, "u": u, "d": d}, y


class Kalman(EnsembleBenchmark):
    """Filter and smoother of 200 steps, one time-varying model for all samples."""

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        parts, y = random_model(200)
        self.model = LinearGaussianModel(**{k: asarray_like(v, self.reference_array) for k, v in parts.items()})
        scales = np.linspace(1.0, 2.0, n_samples)
        self.y = Ensemble(asarray_like(y[..., None] * scales, self.reference_array))
        self.time_filter(backend, n_samples)
        self.time_smoother(backend, n_samples)

    def time_filter(self, backend: str, n_samples: int) -> None:
        kalman_filter(self.model, self.y)
        self.wait()

    def time_smoother(self, backend: str, n_samples: int) -> None:
        rts_smoother(self.model, self.y)
        self.wait()


def jax_filter(parts: dict[str, np.ndarray], y: np.ndarray, batched: bool) -> Callable[[], Any] | None:
    """The plain filter by lax.scan; vmap over series with `batched`, the model then constant."""
    jax = peer("jax")
    if jax is None:
        return None
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def step(carry: Any, z: Any) -> Any:
        (m, P), (F, Q, H, R, u, d, yk) = carry, z
        m, P = F @ m + u, F @ P @ F.T + Q
        S = H @ P @ H.T + R
        K = jnp.linalg.solve(S, H @ P).T
        m, P = m + K @ (yk - H @ m - d), P - K @ S @ K.T
        return (m, P), (m, P)

    names = ("F", "Q", "H", "R", "u", "d")
    M = {k: jnp.asarray(a) for k, a in parts.items()}
    if batched:
        fixed = tuple(M[k] for k in names)
        one = lambda s: jax.lax.scan(lambda c, yk: step(c, (*fixed, yk)), (M["m0"], M["P0"]), s)[1]
        run = jax.jit(jax.vmap(one))
    else:
        run = jax.jit(lambda s: jax.lax.scan(step, (M["m0"], M["P0"]), (*(M[k] for k in names), s))[1])
    values = jnp.asarray(y)
    return lambda: jax.block_until_ready(run(values))


def statsmodels_filter(parts: dict[str, np.ndarray], y: np.ndarray, method: str = "filter") -> Callable[[], Any] | None:
    """Means and covariances by statsmodels' compiled filter, the log-likelihood alone ("loglike"), or "smooth"."""
    module = peer("statsmodels.tsa.statespace.kalman_smoother")
    if module is None:
        return None
    NX, NY = parts["m0"].size, y.shape[1]
    other = module.KalmanSmoother(k_endog=NY, k_states=NX)
    other.bind(np.asfortranarray(y.T))
    last = lambda a: np.asfortranarray(np.moveaxis(a, 0, -1))
    ahead = lambda a: np.concatenate([a[1:], a[-1:]]) if len(a) > 1 else a  # k leads to k + 1
    other["design"], other["obs_cov"], other["obs_intercept"] = last(parts["H"]), last(parts["R"]), last(parts["d"])
    other["transition"], other["state_cov"] = last(ahead(parts["F"])), last(ahead(parts["Q"]))
    other["selection"], other["state_intercept"] = np.eye(NX), last(ahead(parts["u"]))
    F, Q = parts["F"][0], parts["Q"][0]
    other.initialize_known(F @ parts["m0"] + parts["u"][0], F @ parts["P0"] @ F.T + Q)
    run: Callable[[], Any] = getattr(other, method)
    return run


def filterpy_filter(parts: dict[str, np.ndarray], y: np.ndarray) -> Callable[[], Any] | None:
    """filterpy, step by step as its documentation does it."""
    module = peer("filterpy.kalman")
    if module is None:
        return None

    def run() -> Any:
        other = module.KalmanFilter(dim_x=NX, dim_z=NY)
        other.x, other.P = parts["m0"][:, None].copy(), parts["P0"].copy()
        means = []
        for k in range(len(y)):
            other.predict(F=parts["F"][k], Q=parts["Q"][k])
            other.x = other.x + parts["u"][k][:, None]
            other.update((y[k] - parts["d"][k])[:, None], R=parts["R"][k], H=parts["H"][k])
            means.append((other.x.copy(), other.P.copy()))
        return means

    return run


def pykalman_filter(parts: dict[str, np.ndarray], y: np.ndarray) -> Callable[[], Any] | None:
    """pykalman."""
    module = peer("pykalman")
    if module is None:
        return None
    F, Q = parts["F"][0], parts["Q"][0]
    other = module.KalmanFilter(
        parts["F"][1:], parts["H"], parts["Q"][1:], parts["R"], parts["u"][1:], parts["d"],
        F @ parts["m0"] + parts["u"][0], F @ parts["P0"] @ F.T + Q,
    )  # fmt: skip
    return lambda: other.filter(y)


def series_table(T: int, T_peers: int, rounds: int) -> list[dict[str, Any]]:
    """Microseconds a step of one long series; slow peers run on its beginning."""
    parts, y = random_model(T)
    model = LinearGaussianModel(**parts)
    short = {k: a if k in ("m0", "P0") else a[:T_peers] for k, a in parts.items()}
    ways: dict[str, tuple[Callable[[], Any] | None, int]] = {
        "settle": (lambda: kalman_filter(model, y), T),  # a peer's threads may still spin: the first is not counted
        "ensemble filter": (lambda: kalman_filter(model, y), T),
        "JAX lax.scan": (jax_filter(short, y[:T_peers], False), T_peers),
        "statsmodels": (statsmodels_filter(short, y[:T_peers]), T_peers),
        "filterpy": (filterpy_filter(short, y[:T_peers]), T_peers),
        "pykalman": (pykalman_filter(short, y[:T_peers]), T_peers),
    }
    seconds = interleaved({name: way for name, (way, _) in ways.items() if way is not None}, rounds)
    del seconds["settle"]
    ways["ensemble filter and RTS"] = (lambda: rts_smoother(model, y), T)
    seconds |= interleaved({"ensemble filter and RTS": lambda: rts_smoother(model, y)}, rounds)
    ours = [t / T for t in seconds["ensemble filter"]]
    rows = []
    for name, times in seconds.items():
        each = [t / ways[name][1] for t in times]
        rows.append({"way": name, "steps": ways[name][1], "us a step": 1e6 * median(each), "x ours": ratio(each, ours)})
    show(f"One series, nx {NX}, ny {NY}, everything time-varying, float64", rows)
    return rows


def constant_model(nx: int, n_series: int, T: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A random constant model, and observations of many series."""
    rng = np.random.default_rng(SEED)
    X, W = rng.standard_normal((nx, nx)), rng.standard_normal((NY, NY))
    parts = {
        "F": 0.99 * np.linalg.qr(rng.standard_normal((nx, nx)))[0],
        "Q": X @ X.T,
        "H": rng.standard_normal((NY, nx)),
        "R": W @ W.T + np.eye(NY),
        "m0": np.zeros(nx),
        "P0": np.eye(nx),
        "u": np.zeros(nx),
        "d": np.zeros(NY),
    }
    return parts, rng.standard_normal((n_series, T, NY))


def batch_table(n_series: int, T: int, rounds: int, nx: int) -> list[dict[str, Any]]:
    """Many short series of one constant model in one call."""
    parts, y = constant_model(nx, n_series, T)
    model = LinearGaussianModel(**parts)
    each = LinearGaussianModel(**{**parts, "P0": np.repeat(parts["P0"][None], n_series, axis=0)})
    ways: dict[str, Callable[[], Any]] = {
        "settle": lambda: kalman_filter(model, y),
        "ensemble": lambda: kalman_filter(model, y),
        "ensemble, likelihood": lambda: log_likelihood(model, y),
        "ensemble, filter and RTS": lambda: rts_smoother(model, y),
        "ensemble, filter and RTS, a model a series": lambda: rts_smoother(each, y),
    }
    simd = peer("simdkalman")
    if simd is not None:
        other = simd.KalmanFilter(parts["F"], parts["Q"], parts["H"], parts["R"])
        start = parts["F"] @ parts["P0"] @ parts["F"].T + parts["Q"]
        ways["simdkalman"] = lambda: other.compute(y, 0, initial_value=parts["m0"], initial_covariance=start,
                                                   filtered=True, smoothed=False, likelihoods=True)  # fmt: skip
    vmapped = jax_filter(parts, y, True)
    if vmapped is not None:
        ways["JAX vmap"] = vmapped
    seconds = interleaved(ways, rounds)
    del seconds["settle"]
    rows = [{"way": name, "ms": 1e3 * median(times), "ns a step": 1e9 * median(times) / n_series / T,
             "x ours": ratio(times, seconds["ensemble"])} for name, times in seconds.items()]  # fmt: skip
    show(f"{n_series} series of {T} steps in one call, constant model of {nx} states, float64", rows)
    return rows


def states_table(T: int, rounds: int) -> list[dict[str, Any]]:
    """Models too large to write out, constant and time-varying, against statsmodels; filter, likelihood and smoother.

    Each library runs once before its calls of a round are timed: what another leaves in the caches is not counted.
    """
    rows = []
    for nx, ny in ((9, 2), (12, 1), (12, 4), (16, 3), (20, 2)):
        varying, y = random_model(T, nx, ny)
        fixed = {name: a if name in ("m0", "P0") else a[:1] for name, a in varying.items()}
        for kind, parts in (("constant", fixed), ("time-varying", varying)):
            model = LinearGaussianModel(**parts)
            ways = {"settle": lambda m=model, z=y: kalman_filter(m, z),
                    "ours": lambda m=model, z=y: kalman_filter(m, z),
                    "ours, likelihood": lambda m=model, z=y: log_likelihood(m, z),
                    "ours, smoother": lambda m=model, z=y: rts_smoother(m, z),
                    "settle, too": statsmodels_filter(parts, y),
                    "statsmodels": statsmodels_filter(parts, y),
                    "its likelihood": statsmodels_filter(parts, y, "loglike"),
                    "its smoother": statsmodels_filter(parts, y, "smooth")}  # fmt: skip
            seconds = interleaved({name: way for name, way in ways.items() if way is not None}, rounds)
            row = {"nx": nx, "ny": ny, "model": kind}
            row |= {f"us a step, {name}": 1e6 * median(times) / T for name, times in seconds.items()
                    if not name.startswith("settle")}  # fmt: skip
            pairs = (
                ("statsmodels", "ours"),
                ("its likelihood", "ours, likelihood"),
                ("its smoother", "ours, smoother"),
            )
            row |= {f"{name}, x ours": ratio(seconds[name], seconds[own]) for name, own in pairs if name in seconds}
            rows.append(row)
    show(f"One series of {T} steps, float64", rows)
    return rows


def small_table(rounds: int) -> list[dict[str, Any]]:
    """One fit of a local level, and one online step."""
    rng = np.random.default_rng(SEED)
    y = (1000.0 + rng.normal(0.0, 38.0, 100).cumsum() + rng.normal(0.0, 123.0, 100))[:, None]
    one = np.eye(1)

    def level(theta: Any) -> LinearGaussianModel:
        return LinearGaussianModel(one, theta[0] * one, one, theta[1] * one, np.zeros(1), 1e7 * one)

    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: maximum_likelihood(level, y, [1000.0, 10000.0], bounds=[(0.0, None)] * 2, burn=1)
    }
    structural = peer("statsmodels.tsa.statespace.structural")
    if structural is not None:
        ways["statsmodels"] = lambda: structural.UnobservedComponents(y[:, 0], "local level").fit(disp=False)
    seconds = interleaved(ways, rounds)
    rows = [{"what": "fit of a local level, 100 steps", "way": name, "us": 1e6 * median(times),
             "x ours": ratio(times, seconds["ours"])} for name, times in seconds.items()]  # fmt: skip
    step = FilterStep(NX, NY, "float64")
    parts, z = random_model(1)
    for name in "FQHRud":
        getattr(step, name)[:] = parts[name][0]
    steps: dict[str, Callable[[], Any]] = {"ours, kernel": lambda: [_one(step, z[0]) for _ in range(1000)]}
    module = peer("filterpy.kalman")
    if module is not None:
        other = module.KalmanFilter(dim_x=NX, dim_z=NY)
        other.F, other.Q, other.H, other.R = (parts[name][0] for name in "FQHR")
        steps["filterpy"] = lambda: [(other.predict(), other.update(z[0][:, None])) for _ in range(1000)]
    seconds = interleaved(steps, rounds)
    rows += [{"what": f"online step, nx {NX}, ny {NY}", "way": name, "us": 1e3 * median(times),
              "x ours": ratio(times, seconds["ours, kernel"])} for name, times in seconds.items()]  # fmt: skip
    show("Small calls", rows)
    return rows


def _one(step: FilterStep, y: np.ndarray) -> float:
    step.y[:] = y
    return step(0)


def main() -> None:
    """Print and keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["series", "batch", "states", "small"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--T", type=int, default=1_000_000)
    parser.add_argument("--peers-T", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=[*CLOCKS], default="wall", help="processor time leaves out other processes")
    parser.add_argument("--series", type=int, default=1024, help="series of the table `batch`")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each")
    parser.add_argument("--states", type=int, default=NX, help="states of their model")
    options = parser.parse_args()
    globals()["clock"] = CLOCKS[options.clock]
    numba.set_num_threads(options.threads)
    start = time.perf_counter()
    if options.table == "series":
        rows = series_table(options.T, options.peers_T, options.rounds)
    elif options.table == "states":
        rows = states_table(1000, options.rounds)
    elif options.table == "small":
        rows = small_table(options.rounds)
    else:
        rows = batch_table(options.series, options.steps, options.rounds, options.states)
    packages = {name: peer("importlib.metadata").version(name) for name in
                ("jax", "statsmodels", "filterpy", "pykalman", "simdkalman") if peer(name) is not None}  # fmt: skip
    print(f"{time.perf_counter() - start:.0f} s in all")
    size = "" if (options.series, options.steps) == (1024, 1000) else f"-{options.series}x{options.steps}"
    size += "" if options.states == NX else f"-{options.states}states"
    save(f"kalman-{options.table}{size}-{options.threads}threads", rows, peers=packages, clock=options.clock)
