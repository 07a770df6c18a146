"""Gradients of fixed steps by the chain rule backwards."""

import math

import numpy as np
import pytest

from ensemble import Ensemble, ode
from tests.ode.problems import lorenz

Y0 = np.array([[1.0, 0.9, -1.0], [0.5, 0.4, 0.2]])
P = np.array([[1.7, 1.0, 0.8], [0.3, 0.1, 0.0]])
W = [1.0, -2.0]


def forced(t, y, p, xp):
    return [y[1], -p[0] * xp.sin(y[0]) + p[1] * xp.cos(t)]


def volatility(t, y, p, xp):
    return [0.1 * y[0] * p[1], 0.2]


def options_of(method):
    return {"noise": volatility, "seed": 3} if method in ("milstein", "euler-maruyama") else {}


def end(y0, p, method, step):
    return ode.gradient(forced, Ensemble(y0), (0.0, 1.0), W, p=Ensemble(p), method=method, step=step,
                        **options_of(method)).y.samples  # fmt: skip


@pytest.mark.parametrize("method", ["euler", "rk4", "tsit5", "dop853", "leapfrog", "yoshida4", "rodas4", "milstein"])
def test_a_gradient_is_that_of_differences(method):
    step = 0.15  # does not divide the interval
    made = ode.gradient(forced, Ensemble(Y0), (0.0, 1.0), W, p=Ensemble(P), method=method, step=step,
                        **options_of(method))  # fmt: skip
    for which in (0, 1):
        for i in range(2):
            h = 1e-5 * np.eye(2)[i][:, None]
            shifted = [(Y0 + s * h, P) if which == 0 else (Y0, P + s * h) for s in (1, -1)]
            up, down = (end(*arrays, method, step) for arrays in shifted)
            difference = (np.array(W) @ (up - down)) / 2e-5
            found = (made.y0 if which == 0 else made.p).samples[i]
            assert np.allclose(found, difference, rtol=1e-7, atol=1e-9), (which, i)


@pytest.mark.parametrize("method", ["rk4", "tsit5", "rodas4", "milstein"])
def test_the_end_is_that_of_solve(method):
    made = ode.gradient(forced, Ensemble(Y0), (0.0, 1.0), W, p=Ensemble(P), method=method, step=0.15,
                        **options_of(method))  # fmt: skip
    other = ode.solve(forced, Ensemble(Y0), (0.0, 1.0), p=Ensemble(P), method=method, step=0.15, **options_of(method))
    assert np.allclose(made.y.samples, other.y.samples, rtol=1e-12)


def test_a_sample_has_the_gradient_of_its_own_run_and_a_nan_stays_in_it():
    p = P.copy()
    p[0, 1] = np.nan
    made, whole = (ode.gradient(forced, Ensemble(Y0), (0.0, 1.0), W, p=Ensemble(q), step=0.1) for q in (p, P))
    alone = ode.gradient(forced, Y0[:, 2], (0.0, 1.0), W, p=P[:, 2], step=0.1)
    for name in ("y", "y0", "p"):
        mine, others = getattr(made, name).samples, getattr(whole, name).samples
        assert np.array_equal(mine[:, [0, 2]], others[:, [0, 2]])
        assert np.array_equal(getattr(alone, name).samples[:, 0], others[:, 2])
    assert np.isnan(made.p.samples[:, 1]).all()


def test_weights_may_follow_from_the_end():
    made = ode.gradient(lorenz, [1.0, 2.0, 3.0], (0.0, 0.3), lambda y: 2.0 * y, p=[28.0], method="rk4", step=0.01)
    solved = (
        ode.solve(lorenz, [1.0, 2.0, 3.0], (0.0, 0.3), p=[28.0 + s], method="rk4", step=0.01) for s in (1e-5, -1e-5)
    )
    ends = [each.y.samples for each in solved]
    difference = ((ends[0] ** 2).sum() - (ends[1] ** 2).sum()) / 2e-5
    assert made.p.samples[0, 0] == pytest.approx(difference, rel=1e-7)


def test_backwards_and_no_time_at_all():
    made = ode.gradient(lambda t, y, p, xp: [p[0] * y[0]], [2.0], (1.0, 0.0), [1.0], p=[0.5], step=0.05)
    assert made.y0.samples[0, 0] == pytest.approx(math.exp(-0.5), rel=1e-8)
    still = ode.gradient(lambda t, y, p, xp: [p[0] * y[0]], [2.0], (1.0, 1.0), [3.0], p=[0.5], step=0.05)
    assert [still.y.samples[0, 0], still.y0.samples[0, 0], still.p.samples[0, 0]] == [2.0, 3.0, 0.0]


def test_wrong_arguments_are_clear_errors():
    with pytest.raises(ValueError, match=r"ode\.gradient: method must be one of"):
        ode.gradient(forced, Y0[:, 0], (0.0, 1.0), W, p=P[:, 0], method="taylor", step=0.1)
    with pytest.raises(ValueError, match=r"cotangent must have shape \(2,\)"):
        ode.gradient(forced, Y0[:, 0], (0.0, 1.0), [1.0], p=P[:, 0], step=0.1)
    with pytest.raises(ValueError, match="step must be a finite number above zero"):
        ode.gradient(forced, Y0[:, 0], (0.0, 1.0), W, p=P[:, 0], step=0.0)
