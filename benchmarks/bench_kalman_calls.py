"""Calls of the Kalman filter as users make them, beside their peers: a likelihood, a step, many observations.

``python -m benchmarks kalman-calls [--rounds N]``; peers that are absent are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_kalman import CLOCKS, peer
from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, one_thread, ratio, save, show
from ensemble import Ensemble
from ensemble.apps.kalman import LinearGaussianModel, OnlineFilter, kalman_filter, log_likelihood

Calls = dict[str, Callable[[], Any]]

Rows = list[dict[str, Any]]

clock = CLOCKS["wall"]

STEPS = 100


def rows_of(case: str, ways: Calls, rounds: int, per: int = 1, samples: int = 1) -> Rows:
    """Microseconds of each way of ours, which does all samples in a call, and each peer's time over it, per sample.

    A peer does one sample a call. `per` calls are timed together.
    """
    seconds = interleaved(ways, rounds, clock)
    rows = []
    for name in (name for name in ways if name.startswith("ours")):
        rows.append({"case": case, "S": samples, "way": name, "us": 1e6 * median(seconds[name]) / per})
        for place in (1, 2):
            others = [other for other in ways if not other.startswith("ours")][place - 1 : place]
            other = others[0] if others else ""
            rows[-1] |= {f"peer {place}": other, f"its us {place}": "", f"x {place}": ""}
            if other:
                rows[-1] |= {f"its us {place}": 1e6 * median(seconds[other]) / per,
                             f"x {place}": ratio(seconds[other], seconds[name], samples)}  # fmt: skip
    return rows


def level_series() -> np.ndarray:
    """A random walk of 100 steps seen in noise, as the Nile."""
    rng = np.random.default_rng(SEED)
    return np.asarray((1000.0 + rng.normal(0.0, 38.0, STEPS).cumsum() + rng.normal(0.0, 123.0, STEPS))[:, None])


def likelihood_rows(rounds: int) -> Rows:
    """One log-likelihood of a local level, and a fit by L-BFGS, with the model made anew or replaced."""
    y, one = level_series(), np.eye(1)
    zero, wide, theta = np.zeros(1), 1e7 * one, np.array([15099.0, 1469.1])
    base = LinearGaussianModel(one, theta[1] * one, one, theta[0] * one, zero, wide, prior_at="first_observation")
    repeat = 20

    def built(theta: Any) -> Any:
        model = LinearGaussianModel(one, theta[1] * one, one, theta[0] * one, zero, wide, prior_at="first_observation")
        return log_likelihood(model, y, burn=1)

    def replaced(theta: Any) -> Any:
        return log_likelihood(base.replace(Q=theta[1] * one, R=theta[0] * one), y, burn=1)

    ways: Calls = {"ours, built": lambda: [built(theta) for _ in range(repeat)]}
    fits: Calls = {}
    candidates = Ensemble(np.ascontiguousarray(np.linspace(0.5, 2.0, 32) * theta[:, None]))
    many: Calls = {"ours, built": lambda: [built(candidates) for _ in range(repeat)]}
    ways["ours, replaced"] = lambda: [replaced(theta) for _ in range(repeat)]
    many["ours, replaced"] = lambda: [replaced(candidates) for _ in range(repeat)]
    fits["ours, replaced"] = lambda: _fit(replaced)
    structural = peer("statsmodels.tsa.statespace.structural")
    if structural is not None:
        other = structural.UnobservedComponents(y[:, 0], "local level")
        ways["statsmodels"] = many["statsmodels"] = lambda: [other.loglike(theta) for _ in range(repeat)]
        fits["statsmodels fit"] = lambda: structural.UnobservedComponents(y[:, 0], "local level").fit(disp=False)
    rows = rows_of("log-likelihood, local level, T = 100", ways, rounds, repeat)
    rows += rows_of("log-likelihood, local level, T = 100", many, rounds, repeat, 32)
    return rows + rows_of("fit by L-BFGS, local level, T = 100", fits, max(rounds // 2, 3))


def _fit(likelihood: Callable[[Any], Any]) -> Any:
    """Variances of the greatest likelihood, on a logarithmic scale, from the same rough start as the peer's."""
    from scipy.optimize import minimize

    return minimize(lambda z: -float(likelihood(np.exp(z))) / STEPS, np.log([10000.0, 1000.0]), method="L-BFGS-B")


def tracking(nx: int = 4, ny: int = 2) -> dict[str, Any]:
    """A constant model of a few states and observations."""
    rng = np.random.default_rng(SEED)
    X, W = rng.standard_normal((nx, nx)), rng.standard_normal((ny, ny))
    F = 0.99 * np.linalg.qr(rng.standard_normal((nx, nx)))[0]
    return {"F": F, "Q": X @ X.T, "H": rng.standard_normal((ny, nx)), "R": W @ W.T + np.eye(ny), "m0": np.zeros(nx),
            "P0": np.eye(nx)}  # fmt: skip


def _stepped(online: Any, y: Any) -> Callable[[], Any]:
    """Steps of an online filter over the first axis of `y`; an Ensemble's values are sliced as they are."""

    def run() -> None:
        for k in range(len(y)):
            online.step(y[k])

    return run


def online_rows(n_series: int, rounds: int, nx: int, ny: int, steps: int = 20) -> Rows:
    """Online steps of many series: as a batch with a model for all, with one each, and as samples."""
    parts = tracking(nx, ny)
    y = np.random.default_rng(SEED).standard_normal((steps, n_series, ny))
    each = {**parts, "P0": np.repeat(parts["P0"][None], n_series, axis=0)}
    scales = Ensemble(np.linspace(1.0, 2.0, n_series))
    lifted = {**parts, "Q": scales * parts["Q"]}
    samples = [Ensemble(np.ascontiguousarray(z.T)) for z in y]
    ways: Calls = {
        "ours, as samples": _stepped(OnlineFilter(LinearGaussianModel(**lifted)), samples),
        "ours, as a batch": _stepped(OnlineFilter(LinearGaussianModel(**each)), y),
    }
    simd = peer("simdkalman")
    if simd is not None:
        other = simd.KalmanFilter(parts["F"], parts["Q"], parts["H"], parts["R"])
        m, P = np.zeros((n_series, nx, 1)), np.broadcast_to(parts["P0"], (n_series, nx, nx))

        def run() -> None:
            mean, covariance = m, P
            for z in y:
                mean, covariance = other.predict_next(mean, covariance)
                mean, covariance = other.update(mean, covariance, z[..., None])[:2]

        ways["simdkalman"] = run
    return rows_of(f"online step, {n_series} series, nx {nx}, ny {ny}", ways, rounds, steps)


def correlated_rows(rounds: int, n_samples: int, steps: int = 100) -> Rows:
    """Online steps of a model with correlated noises, of one sample and of many."""
    parts, ny = tracking(), 2
    S = 0.1 * np.random.default_rng(SEED).standard_normal((4, ny))
    y = np.random.default_rng(SEED).standard_normal((steps, ny))
    samples = Ensemble(np.linspace(0.5, 1.0, n_samples)) if n_samples > 1 else 1.0
    ways: Calls = {"ours": _stepped(OnlineFilter(LinearGaussianModel(**parts, S=samples * S)), y)}
    module = peer("filterpy.kalman")
    if module is not None:
        other = module.KalmanFilter(dim_x=4, dim_z=ny)
        other.F, other.Q, other.H, other.R, other.M = *(parts[name] for name in "FQHR"), S
        ways["filterpy"] = lambda: [(other.predict(), other.update_correlated(z[:, None])) for z in y]
    return rows_of("online step with S, nx 4, ny 2", ways, rounds, steps, n_samples)


def factor_model(ny: int, nx: int, T: int, gaps: bool = False) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Many observed series of a few factors, and observations; with `gaps` a tenth of the entries is missing."""
    rng = np.random.default_rng(SEED)
    parts = {**tracking(nx, 1), "H": rng.standard_normal((ny, nx)), "R": np.diag(rng.uniform(0.5, 2.0, ny))}
    y = rng.standard_normal((T, ny)) + rng.standard_normal((T, nx)) @ parts["H"].T
    y[rng.random(y.shape) < 0.1 * gaps] = np.nan
    return parts, y


def emission_rows(rounds: int, n_samples: int, gaps: bool, ny: int = 73, nx: int = 3, T: int = 200) -> Rows:
    """More observations than states, collapsed, and the likelihood of them."""
    parts, y = factor_model(ny, nx, T, gaps)
    lifted = parts if n_samples == 1 else {**parts, "Q": Ensemble(np.linspace(1.0, 2.0, n_samples)) * parts["Q"]}
    model = LinearGaussianModel(**lifted)
    filters: Calls = {"ours": lambda: kalman_filter(model, y)}
    likelihoods: Calls = {"ours": lambda: log_likelihood(model, y)}
    module = peer("statsmodels.tsa.statespace.kalman_smoother")
    if module is not None:
        for collapsed in (False, True):
            name = "statsmodels, collapsed" if collapsed else "statsmodels"
            other = module.KalmanSmoother(k_endog=ny, k_states=nx)
            other.bind(np.asfortranarray(y.T))
            other["design"], other["obs_cov"], other["selection"] = parts["H"], parts["R"], np.eye(nx)
            other["transition"], other["state_cov"] = parts["F"], parts["Q"]
            F, Q = parts["F"], parts["Q"]
            other.initialize_known(F @ parts["m0"], F @ parts["P0"] @ F.T + Q)
            other.set_filter_method(filter_collapsed=collapsed)
            filters[name], likelihoods[name] = other.filter, other.loglike
    case = f"{ny} observations of {nx} states, T = {T}{', gaps' if gaps else ''}"
    rows = rows_of(f"filter, {case}", filters, rounds, 1, n_samples)
    return rows + rows_of(f"likelihood, {case}", likelihoods, rounds, 1, n_samples)


class KalmanCalls(EnsembleBenchmark):
    """A likelihood with the model replaced, and an online step, of samples."""

    params = (["numba"], [1, 32])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.y, self.parts = np.random.default_rng(SEED).standard_normal((STEPS, 2)), tracking()
        self.Q = Ensemble(np.linspace(1.0, 2.0, n_samples)) * self.parts["Q"]
        self.model = LinearGaussianModel(**{**self.parts, "Q": self.Q})
        self.online = OnlineFilter(self.model)
        self.time_likelihood(backend, n_samples)
        self.time_step(backend, n_samples)

    def time_likelihood(self, backend: str, n_samples: int) -> None:
        log_likelihood(self.model.replace(Q=self.Q), self.y)

    def time_step(self, backend: str, n_samples: int) -> None:
        self.online.step(self.y[0])


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--part", choices=["all", "likelihood", "online", "emissions"], default="all")
    parser.add_argument("--clock", choices=[*CLOCKS], default="wall", help="processor time leaves out other processes")
    options = parser.parse_args()
    globals()["clock"] = CLOCKS[options.clock]
    one_thread()
    rows: Rows = []
    if options.part in ("all", "likelihood"):
        rows += likelihood_rows(options.rounds)
    if options.part in ("all", "online"):
        for n_series in (10, 100, 1000):
            rows += online_rows(n_series, options.rounds, 2, 1)
        rows += online_rows(32, options.rounds, 4, 2)
        for n_samples in (1, 32):
            rows += correlated_rows(options.rounds, n_samples)
    if options.part in ("all", "emissions"):
        for n_samples, gaps in ((1, False), (32, False), (1, True), (32, True)):
            rows += emission_rows(options.rounds, n_samples, gaps)
    show("Calls as users make them, one thread, float64", rows)
    packages = {name: peer("importlib.metadata").version(name) for name in ("statsmodels", "filterpy", "simdkalman")
                if peer(name) is not None}  # fmt: skip
    part = "" if options.part == "all" else f"-{options.part}"
    save(f"kalman-calls{part}", rows, peers=packages, clock=options.clock)


if __name__ == "__main__":
    main()
