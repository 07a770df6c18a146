"""Samples advanced by drifts whose solution is known; each as if it were alone."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from ensemble.apps.gbees.analysis.monte_carlo import draw, propagate
from ensemble.apps.gbees.systems.lorenz import lorenz63, lorenz96
from ensemble.apps.gbees.systems.oscillators import duffing
from ensemble.scalar import Ensemble

COVARIANCE = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.4]])
METHODS = {"dop853": {}, "rk4": {"method": "rk4", "steps": 400}}


def oscillator(x, t, xp):
    return x[1], -4.0 * x[0]


def alone(x, i):
    return Ensemble(np.ascontiguousarray(x.samples[:, i : i + 1]))


def test_draws_have_the_mean_and_covariance_asked_for():
    x = draw([1.0, -2.0, 0.5], COVARIANCE, 200_000, seed=40961).samples
    np.testing.assert_allclose(x.mean(axis=1), [1.0, -2.0, 0.5], atol=5 * np.sqrt(2.0 / 200_000))
    np.testing.assert_allclose(np.cov(x), COVARIANCE, atol=5 * np.sqrt(2.0 / 200_000) * 2.0)


def test_a_draw_depends_on_its_number_alone():
    few, many = (draw(np.zeros(3), COVARIANCE, n, seed=5).samples for n in (3, 400))
    np.testing.assert_array_equal(few, many[:, :3])


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_an_oscillator_turns(options):
    x = draw([1.0, 0.0], np.eye(2), 50, seed=9)
    got = propagate(oscillator, x, 1.7, start=0.2, **options).samples
    c, s = np.cos(3.0), np.sin(3.0)
    expected = np.array([[c, s / 2.0], [-2.0 * s, c]]) @ x.samples
    np.testing.assert_allclose(got, expected, atol=2e-8)


def test_the_classical_method_is_of_fourth_order():
    x = draw([1.0, 0.0], np.eye(2), 8, seed=9)
    exact = propagate(oscillator, x, 2.0, rtol=1e-13, atol=1e-14).samples
    errors = [np.abs(propagate(oscillator, x, 2.0, method="rk4", steps=n).samples - exact).max() for n in (20, 40, 80)]
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 4.0, atol=0.1)


@pytest.mark.parametrize("drift, n", [(lorenz63, 3), (lorenz96(8.0), 6), (duffing, 2)], ids=["l63", "l96", "duffing"])
def test_the_adaptive_method_is_as_good_as_scipys(drift, n):
    x = draw(np.arange(n, dtype=float), 0.5 * np.eye(n), 4, seed=77)
    got = propagate(drift, x, 1.5, start=0.25, rtol=1e-11, atol=1e-12).samples
    expected = [
        solve_ivp(
            lambda t, y: drift(tuple(y), t, np), (0.25, 1.5), x.samples[:, i], method="DOP853", rtol=1e-12, atol=1e-13
        ).y[:, -1]
        for i in range(4)
    ]
    # Lorenz's systems part neighbours by up to exp(20 * 1.25) at the very worst; measured, by about 1e2.
    np.testing.assert_allclose(got.T, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.integers(1, 9))
def test_a_sample_goes_as_if_it_were_alone(options, seed, n_samples):
    x = draw([-11.5, -10.0, 9.5], np.eye(3), n_samples, seed=seed)
    r = Ensemble(np.linspace(40.0, 48.0, n_samples))
    together = propagate(lorenz63.with_parameters(r=r), x, 0.1, **(options | ({"steps": 7} if options else {})))
    for i in range(n_samples):
        one = lorenz63.with_parameters(r=float(r.samples[i]))
        got = propagate(one, alone(x, i), 0.1, **(options | ({"steps": 7} if options else {})))
        np.testing.assert_array_equal(got.samples[:, 0], together.samples[:, i])


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_a_sample_that_breaks_down_is_nan_and_the_others_do_not_see_it(options):
    def blows_up(x, t, xp):
        return (x[0] * x[0], xp.cos(t))

    x = Ensemble(np.array([[0.5, 2.0, -1.0, np.nan], [0.0, 0.0, 0.0, 0.0]]))
    got = propagate(blows_up, x, 1.0, **options).samples
    good = [0, 2]
    np.testing.assert_allclose(got[0, good], [0.5 / (1.0 - 0.5), -1.0 / (1.0 + 1.0)], rtol=1e-7)
    np.testing.assert_allclose(got[1, good], np.sin(1.0), rtol=1e-7)
    assert not np.isfinite(got[0, 1]) and np.isnan(got[0, 3])
    for i in good:
        np.testing.assert_array_equal(propagate(blows_up, alone(x, i), 1.0, **options).samples[:, 0], got[:, i])


def test_nothing_moves_in_no_time_and_the_start_is_not_changed():
    x = draw(np.zeros(3), COVARIANCE, 4, seed=5)
    before = x.samples.copy()
    np.testing.assert_array_equal(propagate(lorenz63, x, 0.0).samples, before)
    propagate(lorenz63, x, 0.5)
    np.testing.assert_array_equal(x.samples, before)


def test_a_constant_drift_moves_all_samples_alike():
    x = draw(np.zeros(3), COVARIANCE, 4, seed=5)
    got = propagate(lambda x, t, xp: (1.0, 0.0, -2.0), x, 3.0).samples
    np.testing.assert_allclose(got - x.samples, np.array([[3.0], [0.0], [-6.0]]) + np.zeros(4), atol=1e-13)


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_another_array_library_gives_the_same(options):
    x = draw([-11.5, -10.0, 9.5], np.eye(3), 3, seed=8)
    theirs = propagate(lorenz63, Ensemble(array_api_strict.asarray(x.samples)), 0.3, **options)
    assert type(theirs.samples) is type(array_api_strict.asarray(0.0))
    np.testing.assert_array_equal(np.asarray(theirs.samples), propagate(lorenz63, x, 0.3, **options).samples)


def test_watching_tells_the_time_and_may_interrupt():
    seen = []

    def callback(t):
        seen.append(t)
        if t > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        propagate(lorenz63, draw(np.zeros(3), COVARIANCE, 4, seed=5), 1.0, callback=callback)
    assert np.all(np.diff(seen) >= 0.0) and seen[-1] > 0.5


X = draw(np.zeros(2), np.eye(2), 3, seed=1)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: draw(np.zeros(2), np.diag([1.0, -1.0]), 3, seed=1), "covariance must be positive definite; got eig"),
        (lambda: draw(np.zeros(2), np.eye(3), 3, seed=1), r"covariance must have shape \(2, 2\)"),
        (lambda: propagate(oscillator, X, -1.0), "until must be at least start = 0.0; got -1.0"),
        (lambda: propagate(oscillator, X, np.nan), "until must be at least"),
        (lambda: propagate(lorenz63, Ensemble(np.zeros((3, 3))), 1.0, method="euler"), "one of 'dop853', 'rk4'"),
        (lambda: propagate(lambda x, t, xp: (x[0],), X, 1.0), "drift must give 2 components; got 1"),
        (lambda: propagate(oscillator, X, 1.0, rtol=0.0), "rtol must be a finite number above zero"),
        (lambda: propagate(oscillator, X, 1.0, method="rk4"), "steps must be an integer"),
        (lambda: propagate(oscillator, X.samples, 1.0), "x must be an Ensemble"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call()
