"""Bayes' rule: against Kalman's formulas, against particles, and where it must refuse."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ensemble._backend import to_numpy
from ensemble.apps.gbees import Gbees, GridError, GridWarning
from ensemble.apps.gbees.run.measurement import noise_of
from ensemble.apps.gbees.run.single_run import GridRun
from tests.apps.gbees.grids import boxed, moments, normal
from tests.apps.gbees.problems import backend_of

m0 = np.array([0.3, -0.2])
P0 = np.array([[0.5, 0.2], [0.2, 0.4]])
H = np.array([[1.0, 0.5], [-0.3, 2.0]])


def kalman(H, R, y):
    """Posterior mean and covariance, and the log evidence."""
    S = H @ P0 @ H.T + R
    K = P0 @ H.T @ np.linalg.inv(S)
    return m0 + K @ (y - H @ m0), P0 - K @ H @ P0, multivariate_normal(H @ m0, S).logpdf(y)


def updated(engine, cells_per_deviation, H, R, y):
    """The same by cells of a box of six standard deviations."""
    widths = np.sqrt(np.diag(P0)) / cells_per_deviation
    problem, indices, p = boxed(
        lambda x, t, xp: (0.0, 0.0), m0, widths, 6 * cells_per_deviation, normal(m0, P0), threshold=1e-15
    )
    run = GridRun(problem, engine, indices, p, 0.0)
    R = np.asarray(R, float)
    h = lambda x, xp: [row[0] * x[0] + row[1] * x[1] for row in H]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridWarning)  # the coarsest cells are too wide
        log_evidence = run.update(h, y, noise_of(R, len(y), "test"), "point")
    return *moments(run.engine, problem), log_evidence


@pytest.mark.parametrize(
    "rows, R", [([0], [[0.2]]), ([0, 1], [[0.2, 0.05], [0.05, 0.3]]), ([1], [[0.1]])], ids=["one", "two", "sharp"]
)
def test_a_gaussian_update_is_kalmans(engine, rows, R):
    y = np.array([1.0, -1.5])[rows]
    mean, covariance, log_evidence = kalman(H[rows], np.array(R), y)
    errors = []
    for cells in (1, 2, 4):
        m, P, value = updated(engine, cells, H[rows], R, y)
        errors.append(max(np.abs(m - mean).max(), np.abs(P - covariance).max(), abs(value - log_evidence)))
    # sums over cells of a Gaussian converge faster than any power of the width
    assert errors[2] < 1e-6
    assert errors[1] < 0.02 * errors[0] or errors[1] < 1e-6


@pytest.mark.slow
def test_evidence_against_particles(patient_engine):
    def drift(x, t, xp):
        return x[1], x[0] - x[0] ** 3 - 0.2 * x[1]

    mean, covariance, T, y, R = [0.8, 0.1], np.diag([0.03, 0.05]), 1.2, 0.7, 0.02
    rng = np.random.default_rng(80317)
    x = rng.multivariate_normal(mean, covariance, 200_000).T
    inside = np.all(np.abs(x.T - mean) < 3.0 * np.sqrt(np.diag(covariance)), axis=1)  # as the first grid is
    x, dt = x[:, inside], T / 60
    for _ in range(60):
        stages = [np.array(drift(x, 0.0, np))]
        for share in (0.5, 0.5, 1.0):
            stages.append(np.array(drift(x + share * dt * stages[-1], 0.0, np)))
        x = x + dt / 6.0 * (stages[0] + 2.0 * stages[1] + 2.0 * stages[2] + stages[3])
    weights = np.exp(-0.5 * (x[0] ** 2 - y) ** 2 / R) / np.sqrt(2.0 * np.pi * R)
    truth = np.log(weights.mean())
    spread = weights.std() / weights.mean() / np.sqrt(weights.size)
    errors = []
    for factor in (1.0, 2.0, 4.0):
        run = Gbees(
            drift, mean, covariance, threshold=1e-7 / factor**2, factor=factor, backend=backend_of(patient_engine)
        )
        run.advance(T)
        errors.append(abs(run.update(lambda x, xp: x[0] ** 2, y, R) - truth))
        assert run.log_evidence == pytest.approx(truth, abs=errors[-1] + 1e-12)
    assert spread < 0.004
    assert errors[2] < 0.02 + 4.0 * spread
    assert errors[2] < 0.4 * errors[0]
    posterior = (weights * x).sum(axis=1) / weights.sum()
    np.testing.assert_allclose(run.mean(), posterior, atol=0.02)


@pytest.fixture
def run(engine):
    return Gbees(lambda x, t, xp: (x[1], -x[0]), m0, P0, threshold=1e-6, backend=backend_of(engine))


def test_a_callback_gives_the_same_as_gaussian_noise(engine):
    runs = [Gbees(lambda x, t, xp: (x[1], -x[0]), m0, P0, threshold=1e-6, backend=backend_of(engine)) for _ in range(2)]
    by_noise = runs[0].update(lambda x, xp: x[0], 1.0, 0.3)
    by_hand = runs[1].update_likelihood(lambda x, xp: -0.5 * (x[0] - 1.0) ** 2 / 0.3 - 0.5 * np.log(2.0 * np.pi * 0.3))
    assert by_hand == pytest.approx(by_noise, abs=1e-13)
    np.testing.assert_allclose(runs[0].mean(), runs[1].mean(), atol=1e-14)


def test_a_likelihood_may_rule_cells_out(run):
    evidence = run.update_likelihood(lambda x, xp: xp.where(x[0] > 0.3, 0.0 * x[0], -np.inf + 0.0 * x[0]))
    indices, p = (to_numpy(part) for part in run.cells())
    assert np.all(p[indices[:, 0] <= 0] == 0.0)
    assert np.all(p[indices[:, 0] > 0][:10] > 0.0)
    assert evidence == pytest.approx(np.log(0.4), abs=0.02)  # less half of the middle column


def test_logarithms_of_any_size_do_not_underflow(run):
    assert run.update_likelihood(lambda x, xp: -1e5 + 0.0 * x[0]) == pytest.approx(-1e5, abs=1e-9)


@pytest.mark.parametrize(
    "update, text",
    [
        (lambda run: run.update(lambda x, xp: x[0], 1e30, 1.0), "y must be possible somewhere.*1e\\+30 standard dev"),
        (lambda run: run.update(lambda x, xp: x[0], 1e300, 1e-300), "y must be possible somewhere"),
        (
            lambda run: run.update_likelihood(lambda x, xp: -np.inf + 0.0 * x[0]),
            "above zero somewhere; got zero in all",
        ),
        (lambda run: run.update_likelihood(lambda x, xp: np.nan * x[0]), "be a number in every cell"),
        (lambda run: run.update_likelihood(lambda x, xp: np.inf + 0.0 * x[0]), "be a number in every cell"),
    ],
)
def test_an_impossible_measurement_leaves_the_grid_alone(run, update, text):
    before = run.state()
    with pytest.raises(GridError, match=text):
        update(run)
    after = run.state()
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((lambda x, xp: x[0], np.nan, 1.0), "y must be finite"),
        ((lambda x, xp: x[0], "1", 1.0), "y must hold real numbers"),
        ((lambda x, xp: x[0], [[1.0]], 1.0), "y must be a number or have shape"),
        ((lambda x, xp: x[0], [1.0, 2.0], 1.0), "h must give one number for each of y; got 1 for 2"),
        ((lambda x, xp: x, 1.0, 1.0), "h must give one number for each of y; got 2 for 1"),
        ((lambda x, xp: x[0], 1.0, 0.0), "R must be a covariance matrix, positive definite"),
        ((lambda x, xp: x, [1.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "R must be a covariance matrix.*eigenvalue of -1"),
        ((lambda x, xp: x, [1.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), "R must be a covariance matrix.*symmetric"),
        ((lambda x, xp: x, [1.0, 0.0], np.eye(3)), "R must be a number or have shape"),
    ],
)
def test_bad_measurements_are_refused(run, arguments, text):
    with pytest.raises((ValueError, TypeError), match=text):
        run.update(*arguments)


def test_an_unknown_rule_is_refused(run):
    with pytest.raises(ValueError, match="likelihood must be one of 'auto', 'point', 'cell'; got 'average'"):
        run.update(lambda x, xp: x[0], 0.5, 0.1, likelihood="average")
