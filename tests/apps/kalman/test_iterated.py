"""The iterated smoother is the minimiser that a general least-squares solver finds, all states at once."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from ensemble._kernels.kalman.scan import SCANS
from ensemble.apps.kalman import LinearGaussianModel, NonlinearGaussianModel, iterated_smoother, rts_smoother
from ensemble.krylov import SolveError
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import close, radar, random_parts, simulated, with_gaps
from tests.conftest import examples

PRIORS = ["before", "first_observation"]


def pendulum(g=9.81, dt=0.05, **options):
    return NonlinearGaussianModel(
        f=lambda x, k, xp: (x[0] + dt * x[1], x[1] - g * dt * xp.sin(x[0])),
        h=lambda x, k, xp: (xp.sin(x[0]),),
        Q=np.array([[1e-4, 1e-4], [1e-4, 1e-2]]), R=np.array([[0.05]]), m0=np.array([1.0, 0.0]), P0=0.3 * np.eye(2),
        **options,
    )  # fmt: skip


MODELS = {"pendulum": pendulum, "radar": radar}


def by_least_squares(model, y, start):
    """Trajectory, covariances and cost by a general solver on the residuals of all states, written step by step."""
    parts, before = model.linear, model.prior_at == "before"
    root_P, root_Q = (np.linalg.inv(np.linalg.cholesky(a)) for a in (parts.P0, parts.Q))
    sigma = np.sqrt(np.diag(parts.R))

    def residuals(flat):
        x = flat.reshape(-1, model.nx)
        out = [root_P @ (x[0] - parts.m0)]
        for j in range(1, len(x)):
            k = j - 1 if before else j
            out.append(root_Q @ (x[j] - np.array(model.f(tuple(x[j - 1]), k, np))))
        for k, seen in enumerate(y):
            gap = (seen - np.array(model.h(tuple(x[k + before]), k, np))) / sigma
            out.append(gap[~np.isnan(gap)])
        return np.concatenate(out)

    first = np.concatenate([parts.m0[None], start]) if before else start
    found = least_squares(residuals, first.ravel(), method="trf", jac="3-point", x_scale="jac", xtol=1e-15, ftol=1e-15,
                          gtol=1e-14)  # fmt: skip
    n, T = model.nx, len(first)
    covariance = np.linalg.inv(found.jac.T @ found.jac).reshape(T, n, T, n)
    blocks = np.stack([covariance[k, :, k, :] for k in range(T)])
    skip = int(before)
    return found.x.reshape(T, n)[skip:], blocks[skip:], found.cost


@pytest.mark.parametrize("prior_at", PRIORS)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_finds_the_most_probable_trajectory(name, gaps, prior_at):
    model = MODELS[name](prior_at=prior_at)
    y = simulated(model, 14)
    y = with_gaps(y) if gaps else y
    result = iterated_smoother(model, y, tol=1e-9).raise_if_failed()
    mean, covariance, cost = by_least_squares(model, y, result.mean + 0.01)
    np.testing.assert_allclose(result.cost, cost, rtol=1e-10)
    close(result.mean, mean, 2e-6)
    close(result.covariance, covariance, 1e-5)


@pytest.mark.parametrize("options", [{"method": "sequential"}, {"form": "square_root"},
                                     *({"method": "scan", "scan": s} for s in sorted(SCANS))], ids=str)  # fmt: skip
def test_every_method_ends_in_the_same_place(options):
    model = radar()
    y = with_gaps(simulated(model, 25))
    expected = iterated_smoother(model, y, tol=1e-10)
    got = iterated_smoother(model, y, tol=1e-10, **options)
    assert bool(got.converged)
    close(got.mean, expected.mean)
    close(got.covariance, expected.covariance)
    close(got.log_likelihood, expected.log_likelihood)


@pytest.mark.parametrize("prior_at", PRIORS)
def test_a_linear_model_takes_one_pass(prior_at):
    parts, y = random_parts(9, 2, 2, batch=(3,))
    parts = {**parts, "F": parts["F"][0, 0], "H": parts["H"][0, 0], "u": parts["u"][0, 0]}
    y = with_gaps(y)
    exact = rts_smoother(LinearGaussianModel(**{**parts, "d": np.zeros(2)}, prior_at=prior_at), y)
    F, H, u = parts["F"], parts["H"], parts["u"]
    model = NonlinearGaussianModel(
        lambda x, k, xp: [F[i, 0] * x[0] + F[i, 1] * x[1] + u[i] for i in range(2)],
        lambda x, k, xp: [H[i, 0] * x[0] + H[i, 1] * x[1] for i in range(2)],
        parts["Q"], parts["R"], parts["m0"], parts["P0"], prior_at=prior_at,
    )  # fmt: skip
    far = np.full((3, 9, 2), 50.0)
    for options in ({}, {"line_search": False}, {"x0": far}):
        one = iterated_smoother(model, y, max_iterations=1, **options)
        close(one.mean, exact.mean)
        close(one.covariance, exact.covariance)
        close(one.log_likelihood, exact.log_likelihood)
    whole = iterated_smoother(model, y, x0=far)
    assert whole.iterations.tolist() == [2, 2, 2] and whole.converged.all()


def test_given_jacobians_are_used():
    calls = []

    def slopes(x, k, xp):
        calls.append(k.shape)
        return ((xp.cos(x[0]), 0.0),)

    y = simulated(pendulum(), 8)
    moves = lambda x, k, xp: ((1.0, 0.05), (-9.81 * 0.05 * xp.cos(x[0]), 1.0))
    parts = (getattr(pendulum().linear, name) for name in ("Q", "R", "m0", "P0"))
    given = NonlinearGaussianModel(pendulum().f, pendulum().h, *parts, h_jacobian=slopes, f_jacobian=moves)
    close(iterated_smoother(given, y).mean, iterated_smoother(pendulum(), y).mean, 1e-12)
    assert (8,) in calls


def test_a_bad_start_needs_damping():
    """Where an arctangent is flat, full steps overshoot further and further; halved ones go down."""
    model = NonlinearGaussianModel(lambda x, k, xp: (x[0],), lambda x, k, xp: (xp.atan(x[0]),), [[1e-4]], [[1e-4]],
                                   [0.0], [[100.0]], prior_at="first_observation")  # fmt: skip
    y = np.full((5, 1), 0.1)
    start = np.full((5, 1), 4.0)
    wild = iterated_smoother(model, y, x0=start, line_search=False, max_iterations=6)
    calm = iterated_smoother(model, y, x0=start)
    assert bool(calm.converged)
    np.testing.assert_allclose(calm.mean, np.tan(0.1), atol=1e-5)
    assert float(wild.cost) > 10 * float(calm.cost) + 1.0
    with pytest.raises(SolveError, match="iterated_smoother: 1 of 1 series did not converge in 6 iterations"):
        wild.raise_if_failed()


def test_full_steps_keep_exact_relations():
    """Noise in the velocity only: position is the sum of velocities, exactly."""
    model = NonlinearGaussianModel(
        lambda x, k, xp: (x[0] + 0.1 * x[1], x[1] - 0.1 * xp.sin(x[0])), lambda x, k, xp: (x[0] ** 2,),
        [[0.0, 0.0], [0.0, 0.01]], [[0.1]], [1.5, 0.0], 0.1 * np.eye(2), prior_at="first_observation",
    )  # fmt: skip
    y = simulated(model, 12)
    with pytest.raises(ValueError, match="iterated_smoother: Q must be positive definite with line_search=True"):
        iterated_smoother(model, y)
    x = iterated_smoother(model, y, line_search=False, tol=1e-10).raise_if_failed().mean
    close(x[1:, 0], x[:-1, 0] + 0.1 * x[:-1, 1], 1e-12)


@settings(max_examples=examples(9))
@given(S=st.integers(1, 6), T=st.integers(1, 9), seed=st.integers(0, 999), prior_at=st.sampled_from(PRIORS))
def test_a_sample_sees_only_itself(S, T, seed, prior_at):
    """Samples of gravity, series of a batch and each alone; one of them ends in NaN."""
    rng = np.random.default_rng(seed)
    g = rng.uniform(5.0, 15.0, S)
    y = with_gaps(np.stack([simulated(pendulum(v), T, seed + i) for i, v in enumerate(g)]), seed)
    y[-1, 0] = 1e300
    with np.errstate(all="ignore"):
        lifted = iterated_smoother(pendulum(Ensemble(g), prior_at=prior_at), Ensemble(np.moveaxis(y, 0, -1).copy()))
        batch = iterated_smoother(pendulum(g[None, :], prior_at=prior_at), y)
        for i in range(S - 1):
            alone = iterated_smoother(pendulum(g[i], prior_at=prior_at), y[i])
            assert int(alone.iterations) == int(lifted.iterations.sample(i)) == int(batch.iterations[i])
            for attribute in ("mean", "covariance", "cost", "log_likelihood", "converged"):
                value = np.asarray(getattr(alone, attribute), dtype=float)
                close(np.asarray(getattr(lifted, attribute).sample(i), dtype=float), value, 1e-11)
                close(np.asarray(getattr(batch, attribute)[i], dtype=float), value, 1e-11)


def test_runs_on_array_api_strict_and_in_float32():
    model, xp = pendulum(), array_api_strict
    y = with_gaps(simulated(model, 7))
    parts = [xp.asarray(getattr(model.linear, name)) for name in ("Q", "R", "m0", "P0")]
    got = iterated_smoother(NonlinearGaussianModel(model.f, model.h, *parts), xp.asarray(y), x0=xp.zeros((7, 2)))
    expected = iterated_smoother(model, y, x0=np.zeros((7, 2)))
    close(np.asarray(got.mean), expected.mean, 1e-9)
    narrow = [np.asarray(p, dtype=np.float32) for p in parts]
    single = iterated_smoother(NonlinearGaussianModel(model.f, model.h, *narrow), y.astype(np.float32), tol=1e-3)
    assert single.mean.dtype == np.float32 and bool(single.converged)
    close(single.mean, expected.mean, 1e-3)


def made(f=lambda x, k, xp: (x[0],), h=lambda x, k, xp: (x[0],), Q=((1.0,),), m0=(0.0,)):
    return NonlinearGaussianModel(f, h, Q, [[1.0]], m0, [[1.0]])


@pytest.mark.parametrize(
    "make, error, match",
    [
        (lambda: made(f=1), TypeError, "NonlinearGaussianModel: f must be callable; got an int"),
        (lambda: made(h=lambda x: x), TypeError, r"h must take \(x, k, xp\); got a function of \(x\)"),
        (lambda: made(Q=[1.0]), ValueError, "NonlinearGaussianModel: Q must be square matrices"),
        (lambda: made(m0=[0.0, 1.0]), ValueError, "m0 must end in shape"),
        (lambda: iterated_smoother(pendulum().linear, np.zeros((3, 1))), TypeError, "be a NonlinearGaussianModel"),
        (lambda: iterated_smoother(made(), np.zeros((3, 1)), x0=np.zeros((2, 2))), ValueError, "x0 must have shape"),
        (lambda: iterated_smoother(made(), np.zeros((3, 1)), tol=0.0), ValueError, "tol must be"),
        (
            lambda: iterated_smoother(made(f=lambda x, k, xp: (x[0], x[0])), np.zeros((3, 1))),
            ValueError,
            "f must give 1",
        ),
    ],
)
def test_bad_input_is_named(make, error, match):
    with pytest.raises(error, match=match):
        make()
