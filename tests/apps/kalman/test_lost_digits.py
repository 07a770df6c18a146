"""Series whose covariances lose too many digits go by square roots or fail; all others keep their bits."""

import numpy as np
import pytest

from ensemble._kernels.kalman.scan import SCANS
from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    OnlineFilter,
    extended_kalman_filter,
    iterated_smoother,
    kalman_filter,
    log_likelihood,
    rts_smoother,
    two_filter_smoother,
    unscented_kalman_filter,
)
from ensemble.apps.kalman.array.agreement import solve
from ensemble.scalar import Ensemble
from tests.apps.kalman.digits import truth
from tests.apps.kalman.models import alike, partly_seen, random_parts
from tests.conftest import examples

PAIRED, EPS = np.eye(2), np.finfo(float).eps


def drifting(T=60, seed=5):
    """Two states that drift apart with accelerations of their own; only their sum is seen."""
    parts = {
        "F": np.kron(np.array([[1.0, 1.0, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]), PAIRED),
        "Q": np.kron(np.diag([0.0, 0.0, 1e-6]), PAIRED),
        "H": np.kron(np.array([[1.0, 0.0, 0.0]]), np.ones((4, 2))),
        "R": 1e-3 * np.eye(4),
        "m0": np.zeros(6),
        "P0": 1e4 * np.eye(6),
    }
    return parts, 0.03 * np.random.default_rng(seed).standard_normal((T, 4))


def sums(mean):
    return mean[:, 0] + mean[:, 1]


RUNS = {
    "recursion": lambda m, y: kalman_filter(m, y),
    "square root": lambda m, y: kalman_filter(m, y, form="square_root"),
    "scan": lambda m, y: kalman_filter(m, y, method="scan"),
    "smoother": lambda m, y: rts_smoother(m, y).filtered,
    "two filters": lambda m, y: two_filter_smoother(m, y).filtered,
}


@pytest.mark.parametrize("name", RUNS)
def test_directions_that_are_not_seen_may_drift_apart(name):
    parts, y = drifting()
    mean, P, _, total = truth(parts, y)
    got = RUNS[name](LinearGaussianModel(**parts), y)
    spread = np.sqrt(P[-1, 0, 0] + P[-1, 1, 1] + 2 * P[-1, 0, 1])
    assert not bool(got.failed)
    assert abs(float(got.log_likelihood) - total) < 1e-7 * abs(total)
    assert np.max(np.abs(sums(got.mean) - sums(mean))) < 1e-6 * max(spread, 0.01)


def test_the_likelihood_alone_and_the_smoother_are_right():
    parts, y = drifting()
    _, _, smooth, _ = truth(parts, y)
    model = LinearGaussianModel(**parts)
    assert log_likelihood(model, y) == kalman_filter(model, y).log_likelihood
    got = rts_smoother(model, y)
    assert not bool(got.failed)
    np.testing.assert_allclose(sums(got.mean), sums(smooth), atol=1e-6)


@pytest.mark.slow
def test_only_the_samples_that_lose_digits_change_their_form():
    parts, y = drifting(30)
    widths = np.array([1e-4, 1e4, 1e-2])
    model = LinearGaussianModel(**{**parts, "P0": Ensemble(widths) * np.eye(6)})
    got = rts_smoother(model, y)
    for i, width in enumerate(widths):
        alone = rts_smoother(LinearGaussianModel(**{**parts, "P0": width * np.eye(6)}), y)
        for name in ("mean", "covariance", "log_likelihood"):
            np.testing.assert_array_equal(getattr(got, name).sample(i), getattr(alone, name), name)
    assert bool(got.filtered.by_roots.sample(1))


def test_a_model_that_loses_nothing_keeps_its_form():
    parts, y = random_parts(40, 4, 2)
    assert kalman_filter(LinearGaussianModel(**parts), y).by_roots is None


@pytest.mark.parametrize("prior", [1e8, 1e12, 1e16])
def test_a_wide_prior_leaves_the_digits_of_what_is_learnt(prior):
    dt = 0.1
    F, H = np.array([[1.0, dt], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    Q = np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    parts = {"F": F, "Q": Q, "H": H, "R": np.array([[0.01]]), "m0": np.zeros(2), "P0": prior * np.eye(2)}
    y = np.random.default_rng(0).standard_normal((20, 1)).cumsum(axis=0)
    mean, P, _, total = truth(parts, y)
    linear = NonlinearGaussianModel(lambda x, k, xp: (x[0] + dt * x[1], x[1]), lambda x, k, xp: (x[0],), Q,
                                    parts["R"], parts["m0"], parts["P0"])  # fmt: skip
    model = LinearGaussianModel(**parts)
    online = OnlineFilter(model)
    for row in y:
        online.step(row)
    deviation = np.sqrt(np.diag(P[-1]))
    assert np.max(np.abs(online.mean - mean[-1]) / deviation) < 1e-6
    for got in (kalman_filter(model, y), extended_kalman_filter(linear, y), unscented_kalman_filter(linear, y)):
        assert np.max(np.abs(got.mean - mean) / np.sqrt(np.einsum("kii->ki", P))) < 1e-6
        assert abs(float(got.log_likelihood) - total) < 1e-6


@pytest.mark.parametrize("size", [3, 12])
def test_many_series_find_those_that_lose_digits(size):
    """Up to eight states in straight-line code, beyond in loops; series that share their covariances, too."""
    rng = np.random.default_rng(77)
    lots = rng.standard_normal((4, 8, 1))
    F, H = np.eye(size), np.ones((1, size))
    parts = {"F": F, "Q": 0.0 * F, "H": H, "R": np.array([[1e-4]]), "m0": np.zeros(size), "P0": 1e9 * F}
    got = kalman_filter(LinearGaussianModel(**parts), lots)
    for i in range(4):
        _, _, _, total = truth(parts, lots[i])
        assert abs(float(got.log_likelihood[i]) - total) < 1e-6 * abs(total)
        assert log_likelihood(LinearGaussianModel(**parts), lots[i]) == got.log_likelihood[i]


@pytest.mark.slow
def test_the_start_of_an_iterated_smoother_loses_no_digits_either():
    parts, y = drifting()
    F, H = parts["F"], parts["H"]
    times = lambda A: lambda x, k, xp: tuple(sum(a * b for a, b in zip(row, x, strict=True)) for row in A.tolist())
    model = NonlinearGaussianModel(times(F), times(H), parts["Q"], parts["R"], parts["m0"], parts["P0"])
    got = iterated_smoother(model, y, line_search=False)
    assert bool(got.converged)
    np.testing.assert_allclose(sums(got.mean), sums(truth(parts, y)[2]), atol=1e-6)
    for run in (extended_kalman_filter, unscented_kalman_filter):
        np.testing.assert_allclose(run(model, y).log_likelihood, truth(parts, y)[3], rtol=1e-7)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    "columns, offset, prior, noise", [(2, 1e4, 1e6, 1e-9), (3, 10.0, 1e8, 1e-10), (5, 100.0, 1e10, 1e-3)]
)
def test_regressions_on_columns_alike_keep_their_digits(columns, offset, prior, noise, name):
    """Each observation loses some digits of what the next one needs; a variance with none left is not zero."""
    parts, y = alike(columns, offset, prior=prior, noise=noise)
    mean, P, _, total = truth(parts, y)
    got, variances = RUNS[name](LinearGaussianModel(**parts), y), np.einsum("kii->ki", P)
    assert not bool(got.failed)
    assert np.max(np.abs(got.mean - mean) / np.sqrt(variances)) < 1e-3
    np.testing.assert_allclose(np.einsum("kii->ki", got.covariance), variances, rtol=1e-3)
    assert abs(float(got.log_likelihood) - total) < 1e-3


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("samples", [False, True])
def test_one_observation_at_a_time_keeps_the_digits_of_the_filter(samples, apart):
    """What is lost shows some steps later; the caller's buffer may have changed by then."""
    for seed in range(6):
        parts, y = alike(3 + seed % 3, 100.0, prior=10.0 ** (6 + seed), noise=10.0 ** -(8 - seed), seed=seed)
        priors = Ensemble(np.array([1e-2, 1.0])) if samples else 1.0
        model = LinearGaussianModel(**{**parts, "P0": priors * parts["P0"]})
        online, buffer, right = OnlineFilter(model), np.empty(1), kalman_filter(model, y, form="square_root")
        for row in y:
            buffer[:] = row
            if apart:
                online.predict()
                online.update(buffer)
            else:
                online.step(buffer)
        last = lambda a, samples=samples: a.samples[-1] if samples else np.asarray(a)[-1]
        spread = np.sqrt(np.einsum("ii...->i...", last(right.covariance)))
        own = online.mean.samples if samples else online.mean
        assert np.max(np.abs(own - last(right.mean)) / spread) < 1e-3, seed
        gap = online.log_likelihood - right.log_likelihood
        assert np.max(np.abs(gap.samples if samples else gap)) < 1e-3, seed


@pytest.mark.parametrize("columns", [5, 12])
def test_samples_with_priors_of_all_widths_are_their_own_runs(columns):
    parts, y = alike(columns, 100.0, prior=1.0, noise=1e-3, T=columns + 4)
    priors = np.array([1e-2, 1e10, 1e4])
    together = kalman_filter(LinearGaussianModel(**{**parts, "P0": Ensemble(priors) * np.eye(columns)}), y)
    for i, prior in enumerate(priors):
        own = {**parts, "P0": prior * np.eye(columns)}
        alone = kalman_filter(LinearGaussianModel(**own), y)
        np.testing.assert_array_equal(together.mean.sample(i), alone.mean)
        _, P, _, total = truth(own, y)
        assert abs(float(alone.log_likelihood) - total) < 1e-3
        np.testing.assert_allclose(np.diag(alone.covariance[-1]), np.diag(P[-1]), rtol=1e-3)
    assert bool(together.by_roots.sample(1)) and not bool(together.by_roots.sample(0))


@pytest.mark.slow
def test_600_regressions_with_wide_priors_agree_with_60_digits():
    """Beyond one over the rounding of square roots, `reach`, both forms lose digits."""
    rng, tried = np.random.default_rng(41_600), 0
    for case in range(600):
        columns, noise, prior = int(rng.integers(2, 6)), 10.0 ** -rng.integers(0, 13), 10.0 ** rng.integers(2, 11)
        offset = 10.0 ** rng.integers(0, 5) * rng.integers(0, 2)
        reach = EPS * max(offset, 1.0) * np.sqrt(prior / noise)
        parts, y = alike(columns, offset, prior=prior, noise=noise, seed=case)
        got = kalman_filter(LinearGaussianModel(**parts), y)
        if reach > 1e-5 or bool(got.failed):
            continue
        mean, P, _, total = truth(parts, y)
        variances = np.einsum("kii->ki", P)
        ratio = np.abs(np.einsum("kii->ki", got.covariance) / variances - 1)
        error = max(np.max(np.abs(got.mean - mean) / np.sqrt(variances)), np.max(ratio))
        assert max(error, abs(float(got.log_likelihood) - total)) < 5e-3, case
        tried += 1
    assert tried > 300


@pytest.mark.parametrize("scan", SCANS)
def test_scans_and_two_filters_have_the_digits_of_the_recursion(scan):
    for seed in range(examples(40)):
        parts, y = partly_seen(seed)
        model = LinearGaussianModel(**parts)
        exact = rts_smoother(model, y, form="square_root")
        found = kalman_filter(model, y, method="scan", scan=scan)
        two = two_filter_smoother(model, y, scan=scan)
        for got, right in ((found, exact.filtered), (two, exact), (two.filtered, exact.filtered)):
            assert not bool(got.failed), seed
            variances = np.einsum("kii->ki", right.covariance)
            scale = np.sqrt(variances) + 1e-9 * np.max(np.abs(right.mean))
            assert np.max(np.abs(got.mean - right.mean) / scale) < 1e-3, seed
            gaps = np.abs(np.einsum("kii->ki", got.covariance) - variances)
            assert np.max(gaps) < 1e-4 * np.max(variances), seed
            assert abs(float(got.log_likelihood - right.log_likelihood)) < 1e-3, seed


@pytest.mark.parametrize("samples", [False, True])
def test_a_singular_matrix_leaves_the_solutions_of_the_others(samples):
    """``1 + C J`` of a step may be singular in floating point."""
    A, b = np.stack([np.eye(2), np.ones((2, 2)), 4.0 * np.eye(2)]), np.full((3, 2, 1), 2.0)
    if samples:  # singular in the second step of the first sample alone
        A, b = (Ensemble(np.stack([a, other], axis=-1)) for a, other in ((A, 4.0 + 0.0 * A + np.eye(2)), (b, b)))
    found = solve(A, b)
    first = found.sample(0) if samples else found
    np.testing.assert_array_equal(first[..., 0], [[2.0, 2.0], [np.nan, np.nan], [0.5, 0.5]])
    if samples:
        np.testing.assert_allclose(found.sample(1), 2.0 / 9.0)


@pytest.mark.parametrize("scan", SCANS)
def test_a_sample_that_goes_by_the_recursion_leaves_the_others_their_scan(scan):
    for seed in (5, 3, 7)[: examples(3)]:
        parts, y = partly_seen(seed)
        priors, eye = np.array([1.0, 1e14, 1e12, 10.0]), np.eye(len(parts["m0"]))
        for run in (two_filter_smoother, lambda m, y, scan: kalman_filter(m, y, method="scan", scan=scan)):
            together = run(LinearGaussianModel(**{**parts, "P0": Ensemble(priors) * eye}), y, scan=scan)
            for i, prior in enumerate(priors):
                alone = run(LinearGaussianModel(**{**parts, "P0": prior * eye}), y, scan=scan)
                np.testing.assert_allclose(together.mean.sample(i), alone.mean, rtol=1e-6, atol=1e-6)
