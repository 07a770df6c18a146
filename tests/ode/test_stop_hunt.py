"""Random forces with jumps, bends, guards and infusions, and doses at stops, against exact solutions."""

import numpy as np
import pytest

from ensemble import Ensemble, ode
from tests.ode.forcing import FORCES, exact

N = 50
"""Samples of a force: 500 right-hand sides, each with every method."""

OPTIONS = {
    "tsit5": {"rtol": 1e-9, "atol": 1e-11},
    "dop853": {"rtol": 1e-9, "atol": 1e-11},
    "taylor": {"rtol": 1e-9, "atol": 1e-11},
    "rodas4": {"rtol": 1e-8, "atol": 1e-10},
    "bdf": {"rtol": 1e-8, "atol": 1e-10},
    "rk4": {"step": 0.01},
    "leapfrog": {"step": 0.003},
    "yoshida4": {"step": 0.003},
    "milstein": {"step": 0.0005},
}

BOUND = {"bdf": 3e-5, "rodas4": 1e-6, "leapfrog": 1e-3, "yoshida4": 1e-3, "milstein": 2e-2}


def drawn(rng, backwards):
    """Parameters, starts, decay rates, intervals, doses."""
    p = np.stack([rng.uniform(0.4, 3.0, N), rng.uniform(0.005, 0.3, N), rng.uniform(0.5, 5.0, N)])
    t0 = rng.uniform(0.0, 2.0, N) * (rng.random(N) > 0.3)
    t1 = t0 + rng.uniform(2.0, 8.0, N)
    t0, t1 = (t1, t0) if backwards else (t0, t1)
    times = np.sort(rng.uniform(np.minimum(t0, t1), np.maximum(t0, t1), (3, N)), axis=0)
    times[0, ::5] = t0[::5]
    times[2, ::7] = np.inf
    amounts = rng.uniform(0.5, 2.0, (3, N))
    return p, rng.uniform(0.1, 1.0, N), rng.normal(size=N), t0, t1, times, amounts


@pytest.mark.slow
@pytest.mark.parametrize("name", FORCES)
@pytest.mark.parametrize("method", OPTIONS)
def test_500_forces_that_jump_are_integrated_exactly_by_every_method(name, method):
    """10 forces of 50 samples each by 9 methods; doses in half of them; 3 samples of each again alone, to the bit."""
    force, rng = FORCES[name], np.random.default_rng(55021 + sorted(FORCES).index(name))
    p, k, y0, t0, t1, times, amounts = drawn(rng, rng.random() < 0.3)
    symplectic = method in ("leapfrog", "yoshida4")
    k = 0.0 * k if symplectic or (method == "milstein" and t1[0] < t0[0]) else k

    def f(t, y, p, xp):
        if symplectic:
            return [1.0 + 0.0 * y[1], force.u(t, p[1:], xp)]
        return [force.u(t, p[1:], xp) - p[0] * y[0]]

    options = dict(OPTIONS[method])
    if method == "milstein":
        options["noise"] = lambda t, y, p, xp: [0.0 * y[0]]

    def solved(chosen):
        starts = np.stack([0.0 * y0, y0])[:, chosen] if symplectic else y0[None, chosen]
        added = amounts[:, None, chosen]
        added = np.concatenate([0.0 * added, added], axis=1) if symplectic else added
        ends = [Ensemble(end[chosen]) for end in (t0, t1)]
        return ode.solve(
            f, Ensemble(starts), ends, p=Ensemble(np.concatenate([k[None], p])[:, chosen]), method=method,
            stops=Ensemble(times[:, chosen]), at_stops=Ensemble(added), max_steps=10**6, **options,
        )  # fmt: skip

    made = solved(np.arange(N))
    found, wanted = made.y.samples[-1], []
    for s in range(N):
        inside = [(a, b) for a, b in zip(times[:, s], amounts[:, s], strict=True)
                  if min(t0[s], t1[s]) <= a <= max(t0[s], t1[s]) and a != t1[s]]  # fmt: skip
        wanted.append(exact(force, k[s], p[:, s], y0[s], t0[s], t1[s], inside))
    size = np.maximum(np.abs(wanted), 1.0) * np.exp(k * np.maximum(t0 - t1, 0.0))
    error = np.abs(found - wanted) / size
    assert error.max() < BOUND.get(method, 1e-7), (error.max(), int(error.argmax()))
    for s in (0, 17, 35):
        alone = solved(np.array([s]))
        np.testing.assert_array_equal(alone.y.samples[:, 0], made.y.samples[:, s])
        assert alone.n_steps[0] == made.n_steps[s]


def fourth(t, y, p, xp):
    return y[0] - 0.7 * xp.sin(t)


fourth.terminal = 4

METHODS = ["tsit5", "dop853", "taylor", "rodas4", "bdf", "untraced", "rk4", "euler-maruyama"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backwards", [False, True])
def test_224_samples_with_stops_outputs_and_events_have_the_bits_of_their_own_runs(method, dtype, backwards):
    """7 samples each: stops, doses, output times at stops, a terminal event, tables and conditions of parameters."""
    rng, S = np.random.default_rng(7310 + backwards), 7
    p, y0 = rng.uniform(0.5, 2.0, (2, S)).astype(dtype), rng.normal(size=(2, S)).astype(dtype)
    t0 = rng.uniform(0.0, 1.0, S)
    t1 = t0 + rng.uniform(1.0, 4.0, S)
    t0, t1 = (t1, t0) if backwards else (t0, t1)
    stops, added, times = rng.uniform(0.0, 4.0, (3, S)), rng.normal(size=(3, 2, S)), np.linspace(t0, t1, 6)
    times[2] = np.where((stops[0] - t0) * (t1 - stops[0]) > 0.0, stops[0], times[2])
    times = np.sort(times * np.sign(t1 - t0), axis=0) * np.sign(t1 - t0)
    options = {"step": 0.07} if method in ("rk4", "euler-maruyama") else {}
    options |= {"method": "tsit5" if method == "untraced" else method}
    if method == "euler-maruyama":
        options["noise"] = lambda t, y, p, xp: [0.1, 0.1 * y[0]]
    else:
        options["events"] = fourth
    if dtype == "float32" and "step" not in options:
        options |= {"rtol": 1e-4, "atol": 1e-5}

    def f(t, y, p, xp):
        if method == "untraced":
            float(t)
        force = xp.interp(t * p[1], [0.0, 1.0, 1.1, 2.5], [0.0, 1.0, 3.0, 0.0])
        return [y[1] + force, -p[0] * y[0] + xp.where(t % p[1] < 0.3, 1.0, -0.5 * t)]

    def solved(chosen):
        own = {"noise_samples": chosen} if method == "euler-maruyama" else {}
        given = {"p": p, "stops": stops, "at_stops": added, "t_eval": times}
        ensembles = {name: Ensemble(values[..., chosen]) for name, values in given.items()}
        return ode.solve(
            f, Ensemble(y0[:, chosen]), [Ensemble(end[chosen]) for end in (t0, t1)], **ensembles, **own, **options
        )

    whole = solved(np.arange(S))
    assert np.isin(whole.status, [1, 4]).all()
    for s in range(S):
        alone = solved(np.array([s]))
        for name in ("y", "t_reached", "y_reached"):
            a, b = (getattr(made, name).samples for made in (alone, whole))
            np.testing.assert_array_equal(a[..., 0], b[..., s])
        assert (alone.n_steps[0], alone.status[0]) == (whole.n_steps[s], whole.status[s])
