"""Exact diffuse priors do not depend on units of states, offsets of regressors and the basis of what is unknown."""

import mpmath
import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    OnlineFilter,
    forecast,
    kalman_filter,
    log_likelihood,
    maximum_likelihood,
    rts_smoother,
    two_filter_smoother,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.digits import in_many_digits
from tests.apps.kalman.models import close
from tests.conftest import examples

DIGITS, KAPPA = 220, mpmath.mpf(10) ** 90


def exact(parts, y, columns):
    """The last filtered state, the smoothed ones, and the limit of the likelihood; all directions are determined.

    A proper prior of 1e90 in 220 digits: what remains of it is below 1e-40 for columns between 1e-12 and 1e12.
    """
    with mpmath.workdps(DIGITS):
        m, P, s, V, terms = in_many_digits(parts, y, "first_observation", columns, KAPPA, DIGITS)
        total = float(sum(terms) + mpmath.mpf(columns.shape[1]) * mpmath.log(KAPPA) / 2)
    return m[-1].astype(float), P[-1].astype(float), s.astype(float), V.astype(float), total


def regression(X, sigma=0.1):
    """The parts of a static regression on the columns of X, shape (T, q)."""
    q = X.shape[1]
    nothing = np.zeros((q, q))
    return {"F": np.eye(q), "Q": nothing, "H": X[:, None, :], "R": [[sigma**2]], "m0": np.zeros(q), "P0": nothing}


def model_of(parts, diffuse=None):
    q = parts["F"].shape[-1]
    return LinearGaussianModel(
        **parts, prior_at="first_observation", diffuse=np.ones(q, bool) if diffuse is None else diffuse
    )


def series(n=40, seed=70321):
    k = np.arange(n, dtype=float)
    return k, (1.0 + 0.01 * k + 0.1 * np.random.default_rng(seed).standard_normal(n))[:, None]


def ends(model, y):
    """The last state, and the likelihood, by every route."""
    found = {}
    for name, run in (
        ("recursion", kalman_filter(model, y)),
        ("square root", kalman_filter(model, y, form="square_root")),
        ("scan", kalman_filter(model, y, method="scan")),
        ("smoother", rts_smoother(model, y)),
        ("smoother on square roots", rts_smoother(model, y, form="square_root")),
        ("smoother by a scan", rts_smoother(model, y, method="scan")),
        ("two filters", two_filter_smoother(model, y)),
    ):
        assert not bool(run.failed), name
        found[name] = run.mean[-1], run.covariance[-1], run.log_likelihood
    online = OnlineFilter(model)
    for row in y:
        online.step(row)
    found["online"] = online.mean, online.covariance, online.log_likelihood
    last = found["recursion"]
    found["likelihood alone"] = last[0], last[1], log_likelihood(model, y)
    return found


def assert_right(found, mean, P, total, tolerance, where=""):
    deviation = np.sqrt(np.diag(P))
    for name, (m, V, value) in found.items():
        assert np.max(np.abs(m - mean) / deviation) < tolerance, (where, name)
        assert np.max(np.abs(V - P) / np.outer(deviation, deviation)) < tolerance, (where, name)
        assert abs(float(value) - total) < tolerance * max(1.0, abs(total)), (where, name)


@pytest.mark.parametrize("unit", [1e-12, 1e-10, 3e-9, 1e-4, 1.0, 1e6, 1e12])
def test_the_unit_of_a_regressor_changes_nothing_but_its_coefficient(unit):
    k, y = series()
    parts = regression(np.stack([np.ones_like(k), unit * k], axis=-1))
    mean, P, _, _, total = exact(parts, y, np.eye(2))
    assert_right(ends(model_of(parts), y), mean, P, total, 1e-8)


@pytest.mark.parametrize("offset", [1900.0, 1e5, 1e7])
def test_an_offset_of_time_changes_nothing_but_the_level(offset):
    k, y = series()
    parts = regression(np.stack([np.ones_like(k), k + offset], axis=-1))
    mean, P, _, _, total = exact(parts, y, np.eye(2))
    found = ends(model_of(parts), y)
    assert_right(found, mean, P, total, 1e-6)
    smooth = rts_smoother(model_of(parts), y)
    np.testing.assert_allclose(smooth.mean, np.broadcast_to(mean, smooth.mean.shape), rtol=1e-6)


def test_powers_of_the_year_are_determined():
    k, y = series()
    parts = regression((1871.0 + k)[:, None] ** np.arange(3))
    mean, P, _, _, total = exact(parts, y, np.eye(3))
    assert_right(ends(model_of(parts), y), mean, P, total, 1e-6)


@pytest.mark.parametrize("degree", [3, 4, 5])
def test_higher_powers_of_the_year_are_determined_or_say_that_they_are_not(degree):
    k, y = series()
    model = model_of(regression((1871.0 + k)[:, None] ** np.arange(degree + 1)))
    for got in (kalman_filter(model, y), rts_smoother(model, y), kalman_filter(model, y, method="scan")):
        assert bool(got.failed) and not np.isfinite(got.log_likelihood)


def test_states_scale_and_the_likelihood_by_the_determinant():
    """x -> D x with the model's matrices, the diffuse directions staying unit vectors: log |det D| less."""
    rng = np.random.default_rng(5511)
    F, H = rng.standard_normal((3, 3)) * 0.6, rng.standard_normal((2, 3))
    Q, R, y = np.diag([0.1, 0.2, 0.3]), np.eye(2), rng.standard_normal((12, 2))
    D = np.diag([1e-9, 1.0, 1e11])
    inverse = np.diag(1.0 / np.diag(D))
    plain = LinearGaussianModel(F, Q, H, R, np.zeros(3), np.zeros((3, 3)), diffuse=np.ones(3, bool))
    scaled = LinearGaussianModel(D @ F @ inverse, D @ Q @ D, H @ inverse, R, np.zeros(3), np.zeros((3, 3)),
                                 diffuse=np.ones(3, bool))  # fmt: skip
    first, second = ends(plain, y), ends(scaled, y)
    mean, P, total = first["recursion"]
    assert_right(second, D @ mean, D @ P @ D, total + np.log(np.abs(np.diag(D))).sum(), 1e-9)


def test_the_likelihood_is_that_of_durbin_and_koopman_in_statsmodels():
    api = pytest.importorskip("statsmodels.api")
    k, y = series()
    other = api.tsa.UnobservedComponents(y, "llevel", exog=np.sin(k), use_exact_diffuse=True, mle_regression=False)
    other.loglikelihood_burn = 0
    ours = kalman_filter(LinearGaussianModel.from_statsmodels(other, [0.01, 0.02]), y)
    close(ours.log_likelihood, other.loglike([0.01, 0.02]), 1e-10)


def test_samples_with_units_of_their_own_have_the_bits_of_their_own_runs():
    k, y = series()
    units, offsets = np.array([1e-12, 1.0, 1e9, 1.0, 1.0]), np.array([0.0, 0.0, 0.0, 1e7, 1e300])
    X = np.stack([np.ones((40, 5)), units * (k[:, None] + offsets)], axis=1)  # the last one cannot be told
    parts = {**regression(X[..., 0]), "H": Ensemble(X[:, None])}
    together = rts_smoother(model_of(parts), y)
    assert (
        together.failed.samples.tolist() == [False, False, False, False, True]
        or not np.isfinite(together.covariance.samples[..., 4]).all()
    )
    for i in range(4):
        alone = rts_smoother(model_of(regression(X[..., i])), y)
        for name in ("mean", "covariance", "log_likelihood"):
            np.testing.assert_array_equal(getattr(together, name).sample(i), getattr(alone, name), str((i, name)))


def test_float32_takes_units_too():
    k, y = series()
    parts = regression(np.stack([np.ones_like(k), 1e-8 * k], axis=-1))
    narrow = {name: np.asarray(a, np.float32) for name, a in parts.items()}
    mean, P, _, _, total = exact({name: np.asarray(a, float) for name, a in narrow.items()}, y, np.eye(2))
    got = kalman_filter(model_of(narrow), y.astype(np.float32))
    assert got.mean.dtype == np.float32 and not bool(got.failed)
    np.testing.assert_allclose(got.mean[-1], mean, atol=1e-2 * np.sqrt(P.max()), rtol=1e-2)
    np.testing.assert_allclose(float(got.log_likelihood), total, rtol=1e-3)


def test_forecasts_do_not_depend_on_units():
    k, y = series()
    values = []
    for unit in (1.0, 1e-11):
        parts = regression(np.stack([np.ones_like(k), unit * k], axis=-1))
        ahead = forecast(
            model_of(parts), y, 2, future={"H": unit ** np.array([0.0, 1.0]) * np.array([[[1.0, 40.0]], [[1.0, 41.0]]])}
        )
        values.append((ahead.mean, ahead.covariance))
    for a, b in zip(*values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_forecasts_do_not_depend_on_offsets():
    k, y = series()
    values = []
    for offset in (0.0, 1e7):
        parts = regression(np.stack([np.ones_like(k), k + offset], axis=-1))
        H = np.array([[[1.0, 40.0 + offset]], [[1.0, 60.0 + offset]]])
        ahead = forecast(model_of(parts), y, 2, future={"H": H})
        values.append((ahead.mean, ahead.covariance, ahead.upper))
    for a, b in zip(*values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_direction_that_rounding_hides_fails_and_is_not_fitted():
    k, y = series()

    def line(theta):
        X = np.stack([np.ones_like(k), 1e12 + k], axis=-1)
        return model_of({**regression(X), "R": theta[0] * np.eye(1)})

    assert bool(kalman_filter(line(np.array([0.01])), y).failed)
    with pytest.raises(ValueError, match="start must have a finite likelihood"):
        maximum_likelihood(line, y, start=[0.01], bounds=[(0.0, None)])


def test_equal_regressors_stay_undetermined():
    k, y = series()
    X = np.stack([np.ones_like(k), k, 3.0 * k], axis=-1)
    smooth = rts_smoother(model_of(regression(X)), y)
    assert np.isfinite(smooth.covariance[-1, 0, 0]) and np.isinf(smooth.covariance[-1, 1:, 1:].diagonal()).all()


def seasonal(seed):
    """A trend and a season in units of 1e-8 to 1e8, with noises of 1e-12 to 1e6 that a dense Q mixes."""
    rng = np.random.default_rng(seed)
    s = int(rng.integers(3, 7))
    nx = s + 1
    F, H = np.zeros((nx, nx)), np.zeros((1, nx))
    F[:2, :2], F[2, 2:], F[3:, 2:-1], H[0, [0, 2]] = [[1.0, 1.0], [0.0, 1.0]], -1.0, np.eye(s - 2), 1.0
    units = 10.0 ** rng.uniform(-8, 8, nx)
    variances = 10.0 ** rng.uniform(-12, 6, nx) * (rng.random(nx) < 0.7)
    L = np.tril(rng.standard_normal((nx, nx)))
    Q = L @ np.diag(variances) @ L.T
    parts = {"F": units[:, None] * F / units, "Q": (Q + Q.T) / 2, "H": H / units, "R": [[0.25]], "m0": np.zeros(nx),
             "P0": np.zeros((nx, nx))}  # fmt: skip
    return parts, rng.standard_normal((2 * nx, 1)).cumsum(axis=0)


@pytest.mark.parametrize("form", ["covariance", "square_root"])
def test_smoothers_of_dense_noises_in_other_units_do_not_fail(form):
    """Rows of F that are made independent by large multiples of others cannot be told from rounding in that order."""
    for seed in range(examples(14)):
        parts, y = seasonal(seed)
        got = rts_smoother(model_of(parts), y, form=form)
        assert not bool(got.failed), seed
        _, _, mean, V, _ = exact(parts, y, np.eye(parts["F"].shape[0]))
        deviation = np.sqrt(np.einsum("kii->ki", V))
        assert np.max(np.abs(got.mean - mean) / deviation) < 1e-6, seed
        assert np.max(np.abs(np.einsum("kii->ki", got.covariance) / deviation**2 - 1.0)) < 0.02, seed


def test_samples_that_need_another_order_of_entries_leave_the_others_alone():
    models = [seasonal(seed) for seed in (0, 3, 2)]
    parts = {name: Ensemble(np.stack([m[name] for m, _ in models], axis=-1)) for name in ("F", "Q", "H")}
    y = Ensemble(np.stack([y for _, y in models], axis=-1))
    together = rts_smoother(model_of(models[0][0] | parts), y)
    for i, (own, seen) in enumerate(models):
        alone = rts_smoother(model_of(own), seen)
        for name in ("mean", "covariance", "log_likelihood"):
            np.testing.assert_array_equal(getattr(together, name).sample(i), getattr(alone, name), str((i, name)))


def random_case(rng):
    """Parts of a model with diffuse regressors in units of 1e-12 to 1e12, offsets to 1e7, and any basis of them."""
    q, T = int(rng.integers(1, 4)), int(rng.integers(8, 14))
    t = np.arange(T) + 10.0 ** rng.uniform(0, 7) * rng.integers(0, 2)
    kinds = [t**0, t, rng.standard_normal(T), np.cos(t), (np.arange(T) > rng.integers(1, T - 3)) * 1.0, t**2]
    X = np.stack([kinds[i] for i in rng.choice(len(kinds), q, replace=False)], axis=-1)
    X = X * 10.0 ** rng.uniform(-12, 12, q)
    nx = q + int(rng.integers(0, 3))
    F, Q, P0 = np.eye(nx), np.zeros((nx, nx)), np.zeros((nx, nx))
    H = np.zeros((T, 1, nx))
    H[:, 0, :q] = X
    for i in range(q, nx):  # autoregressions beside them
        F[i, i], Q[i, i], P0[i, i] = rng.uniform(-0.9, 0.9), 10.0 ** rng.uniform(-4, 1), 1.0
        H[:, 0, i] = 1.0
    A = np.eye(nx)[:, :q]
    if rng.integers(0, 2):
        A = A @ np.diag(1.0 / np.abs(X).max(axis=0)) @ rng.standard_normal((q, q))
    parts = {"F": F, "Q": Q, "H": H, "R": np.array([[10.0 ** rng.uniform(-6, 2)]]), "m0": np.zeros(nx), "P0": P0}
    y = np.random.default_rng(rng.integers(2**31)).standard_normal((T, 1)) * 10.0 ** rng.uniform(-2, 2)
    y[rng.uniform(size=T) < 0.1] = np.nan
    return parts, y, A


def errors_of(case, parts, y, A):
    """The errors in deviations and of the likelihood, and whether the run says that it failed."""
    model = LinearGaussianModel(**parts, prior_at="first_observation", diffuse=A)
    got = rts_smoother(model, y)
    if bool(got.failed) or not np.isfinite(got.covariance[-1]).all():
        return None
    mean, P, s, V, total = exact(parts, y, A)
    deviation = np.sqrt(np.abs(np.diag(P)))
    deviation = np.where(deviation > 0, deviation, 1.0)
    state = np.max(np.abs(got.mean[-1] - mean) / deviation)
    spread = np.max(np.abs(got.covariance[-1] - P) / np.outer(deviation, deviation))
    back = np.sqrt(np.abs(np.einsum("kii->ki", V)))
    smooth = np.max(np.abs(got.mean - s) / np.where(back > 0, back, 1.0))
    likelihood = abs(float(got.log_likelihood) - total) / max(1.0, abs(total))
    return state, spread, smooth, likelihood


@pytest.mark.slow
def test_500_diffuse_models_in_random_units_offsets_and_bases_agree_with_200_digits():
    rng = np.random.default_rng(41953)
    failed = 0
    for case in range(500):
        parts, y, A = random_case(rng)
        found = errors_of(case, parts, y, A)
        if found is None:
            failed += 1
            continue
        assert max(found) < 1e-4, (case, found)
    assert failed < 50
