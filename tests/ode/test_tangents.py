"""Derivatives of solutions forward, beside differences, in the same loop as the states."""

import time

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble.ode import compiled, device, tangents
from tests.ode.problems import brusselator, brusselator_start

S = 21
RANDOM = np.random.default_rng(5)
Y0 = RANDOM.normal(size=(3, S)) + 5.0
P = np.stack([np.linspace(0.0, 21.0, S), np.linspace(9.0, 11.0, S), np.full(S, 8.0 / 3.0)])
SPAN = (0.0, 0.7)
TIMES = np.linspace(*SPAN, 5)
METHODS = {"euler": {"step": 0.013}, "rk4": {"step": 0.013}, "tsit5": {}, "dop853": {}, "taylor": {}, "rodas4": {}}


def lorenz(t, y, p, xp):
    return [p[1] * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]]


def pendulum(t, y, p, xp):
    return [y[1], -p[0] * xp.sin(y[0]) + p[1] * xp.cos(t)]


def options_of(method, times):
    more = {} if times is None else {"t_eval": times}
    return {"method": method, "rtol": 1e-10, "atol": 1e-12, **METHODS[method], **more}


def differences(wrt, j, options, h=1e-5):
    ends = []
    for sign in (1.0, -1.0):
        y0, p = Y0.copy(), P.copy()
        (y0 if wrt == "y0" else p)[j] += sign * h
        ends.append(ode.solve(lorenz, Ensemble(y0), SPAN, p=Ensemble(p), **options).y.samples)
    return (ends[0] - ends[1]) / (2.0 * h)


@pytest.mark.parametrize("times", [None, TIMES], ids=["end", "times"])
@pytest.mark.parametrize("method", METHODS)
def test_derivatives_are_those_of_differences_and_states_keep_their_bits(method, times):
    options = options_of(method, times)
    made = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    plain = ode.solve(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    assert np.array_equal(made.y.samples, plain.y.samples)
    assert np.array_equal(made.result.n_steps, plain.n_steps)
    assert made.y0.shape == made.p.shape == (*plain.y.shape, 3)
    for wrt, j in (("y0", 0), ("y0", 2), ("p", 0), ("p", 1)):
        expected = differences(wrt, j, options)
        found = getattr(made, wrt).samples[..., j, :]
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max(), (wrt, j)


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_has_the_derivatives_of_its_own_run_and_a_nan_stays_in_it(method):
    options = options_of(method, TIMES)
    p = P.copy()
    p[0, 4] = np.nan
    whole = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    with pytest.warns(ode.OdeWarning, match="sample 4"):
        made = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(p), **options)
    alone = ode.sensitivities(lorenz, Y0[:, 7], SPAN, p=P[:, 7], **options)
    others = np.arange(S) != 4
    for name in ("y0", "p"):
        mine, own, all_ = (getattr(each, name).samples for each in (made, alone, whole))
        assert np.array_equal(mine[..., others], all_[..., others])
        assert np.array_equal(own[..., 0], all_[..., 7])
        assert np.isnan(mine[1:, ..., 4]).all()


@pytest.mark.parametrize("method", ["rk4", "tsit5"])
def test_directions_are_linear_and_may_differ_between_samples(method):
    options = options_of(method, None)
    dy, dp = RANDOM.normal(size=(3, S)), RANDOM.normal(size=(3, S))
    pairs = [(Ensemble(dy), None), (None, Ensemble(dp)), (Ensemble(dy), Ensemble(dp)), (Ensemble(4.0 * dy), None)]
    made = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), directions=pairs, **options)
    assert made.y0 is None and made.p is None and made.along.shape == (3, 4)
    first, second, both, fourfold = np.moveaxis(made.along.samples, 1, 0)
    assert np.allclose(both, first + second, rtol=1e-12, atol=1e-12 * np.abs(both).max())
    assert np.array_equal(fourfold, 4.0 * first)  # a power of two: to the bit
    columns = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    expected = np.einsum("ijs,js->is", columns.p.samples, dp)
    assert np.allclose(second, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())


def test_some_entries_alone():
    options = options_of("tsit5", None)
    whole = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    made = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), wrt={"p": [2, 0]}, **options)
    assert made.y0 is None
    assert np.array_equal(made.p.samples, whole.p.samples[:, [2, 0]])


@pytest.mark.parametrize("method", ["tsit5", "rodas4", "taylor"])
def test_steps_may_bound_the_error_of_the_derivatives_too(method):
    """d y / d p of y' = -p (y - cos t): its exact value is that of a strict tolerance."""

    def relaxing(t, y, p, xp):
        return [-p[0] * (y[0] - xp.cos(t))]

    def run(rtol, **options):
        return ode.sensitivities(relaxing, [0.0], (0.0, 4.0), p=[3.0], wrt="p", method=method, rtol=rtol,
                                 atol=rtol * 1e-3, **options)  # fmt: skip

    strict, made = run(1e-12), run(1e-6, control="all")
    assert abs(made.p.samples - strict.p.samples).max() < 2e-5 * abs(strict.p.samples).max()
    assert made.result.n_steps[0] > 0
    assert run(1e-6).result.n_steps[0] == ode.solve(relaxing, [0.0], (0.0, 4.0), p=[3.0], method=method, rtol=1e-6,
                                                    atol=1e-9).n_steps[0]  # fmt: skip


def test_noise_is_held_fixed():
    def volatility(t, y, p, xp):
        return [0.2 * p[0] * y[0]]

    options = {"method": "milstein", "step": 0.01, "noise": volatility, "seed": 3}
    start = Ensemble(np.ones((1, 9)))
    made = ode.sensitivities(lambda t, y, p, xp: [p[0] * y[0]], start, (0.0, 1.0), p=[0.5], **options)
    up, down = (
        ode.solve(lambda t, y, p, xp: [p[0] * y[0]], start, (0.0, 1.0), p=[0.5 + h], **options).y.samples
        for h in (1e-5, -1e-5)
    )
    assert np.allclose(made.p.samples[0], (up - down) / 2e-5, rtol=1e-8)
    assert np.allclose(made.y0.samples[0, 0], made.y.samples[0], rtol=1e-12)  # linear in the start


@pytest.mark.parametrize("method", ["leapfrog", "yoshida4"])
def test_symplectic_steps_have_tangents_of_determinant_one(method):
    made = ode.sensitivities(pendulum, [1.0, 0.3], (0.0, 2.0), p=[2.0, 0.4], wrt="y0", method=method, step=0.03)
    assert np.linalg.det(made.y0.samples[..., 0]) == pytest.approx(1.0, abs=1e-13)


def test_float32_backwards_and_no_time():
    made = ode.sensitivities(lorenz, np.ones(3, np.float32), (0.5, 0.0), p=P[:, 3], step=0.05)
    assert str(made.p.dtype) == "float32"
    double = ode.sensitivities(lorenz, np.ones(3), (0.5, 0.0), p=P[:, 3], step=0.05)
    assert np.allclose(made.p.samples, double.p.samples, rtol=1e-3, atol=1e-4 * abs(double.p.samples).max())
    still = ode.sensitivities(lorenz, Ensemble(Y0), (1.0, 1.0), p=Ensemble(P))
    assert np.array_equal(still.y0.samples, np.broadcast_to(np.eye(3)[..., None], (3, 3, S)))
    assert (still.p.samples == 0.0).all()


@pytest.mark.parametrize("method", ["rk4", "tsit5", "taylor"])
def test_the_kernel_gives_the_bits_of_the_cpu(method, emulated, monkeypatch):
    options = options_of(method, TIMES)
    expected = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    monkeypatch.setattr(compiled, "run", device.run)
    made = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    for name in ("y", "y0", "p"):
        assert np.array_equal(getattr(made, name).samples, getattr(expected, name).samples)


@pytest.mark.cuda
@pytest.mark.parametrize("control", ["state", "all"])
@pytest.mark.parametrize("method", METHODS)
def test_a_device_gives_the_bits_of_the_cpu(method, control):
    cupy = pytest.importorskip("cupy")
    options = {**options_of(method, TIMES), "control": control}
    expected = ode.sensitivities(lorenz, Ensemble(Y0), SPAN, p=Ensemble(P), **options)
    made = ode.sensitivities(lorenz, Ensemble(cupy.asarray(Y0)), SPAN, p=Ensemble(cupy.asarray(P)), **options)
    for name in ("y", "y0", "p"):
        assert np.array_equal(getattr(made, name).samples.get(), getattr(expected, name).samples)


def test_wrong_arguments_are_clear_errors():
    with pytest.raises(ValueError, match=r"ode\.sensitivities: events must be left out"):
        ode.sensitivities(lorenz, Y0[:, 0], SPAN, p=P[:, 0], events=lambda t, y, p, xp: y[0])
    with pytest.raises(ValueError, match="wrt must be one of"):
        ode.sensitivities(lorenz, Y0[:, 0], SPAN, p=P[:, 0], wrt="t")
    with pytest.raises(ValueError, match="wrt must name entries of p from 0 to 2"):
        ode.sensitivities(lorenz, Y0[:, 0], SPAN, p=P[:, 0], wrt={"p": [3]})
    with pytest.raises(ValueError, match=r"directions must have parts of shapes \(3,\) and \(3,\)"):
        ode.sensitivities(lorenz, Y0[:, 0], SPAN, p=P[:, 0], directions=[(np.zeros(2), None)])
    with pytest.raises(ValueError, match="wrt must name at least one entry"):
        ode.sensitivities(lambda t, y, p, xp: [-y[0]], [1.0], SPAN, wrt="p")
    start = brusselator_start(16)
    with pytest.raises(ValueError, match=r"y0 must have at most 30 entries for rodas4.*control='all'"):
        ode.sensitivities(brusselator, start, (0.0, 0.1), p=[0.02], method="rodas4", wrt="p")
    with pytest.raises(TypeError, match=r"ode\.sensitivities: f must be traceable"):
        ode.sensitivities(lambda t, y, p, xp: [1.0 if y[0] > 0 else 0.0], [1.0], SPAN, wrt="y0")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_cost_is_that_of_as_many_solves(count):
    """The bound is 1.2 (1 + P) processor times; twice as much here, so that a busy machine does not decide."""
    rho = Ensemble(np.stack([np.linspace(0.0, 21.0, 4096), np.full(4096, 10.0), np.full(4096, 8.0 / 3.0)]))
    wrt = {1: {"p": [0]}, 3: "p", 6: ("y0", "p")}[count]

    def clocked(function, **options):
        start = time.process_time()
        function(lorenz, [1.0, 1.0, 1.0], (0.0, 4.0), p=rho, method="rk4", step=0.002, **options)
        return time.process_time() - start

    clocked(ode.solve), clocked(ode.sensitivities, wrt=wrt)
    plain, made = zip(*[(clocked(ode.solve), clocked(ode.sensitivities, wrt=wrt)) for _ in range(5)])
    assert np.median(made) < 2.4 * (1 + count) * np.median(plain)


def test_bodies_are_made_once():
    ode.sensitivities(lorenz, Y0[:, 0], SPAN, p=P[:, 0], method="rk4", step=0.1)
    before = tangents._bodies.cache_info().misses
    ode.sensitivities(lorenz, Y0[:, 1], SPAN, p=P[:, 1], method="rk4", step=0.1)
    assert tangents._bodies.cache_info().misses == before
