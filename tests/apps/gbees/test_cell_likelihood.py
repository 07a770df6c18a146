"""Measurements sharper than a cell: against Kalman's formulas and against quadrature, and what the user is told."""

import warnings

import array_api_strict
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

import ensemble as en
from ensemble.apps.gbees import Gbees, GridError, GridWarning
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.run import cell_likelihood
from ensemble.apps.gbees.run.measurement import noise_of
from ensemble.apps.gbees.run.single_run import GridRun
from tests.apps.gbees.grids import boxed, moments, normal

MEAN = np.array([0.3, -0.2, 0.1])
DEVIATIONS = np.array([0.2, 0.3, 0.25])
CORRELATION = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, -0.3], [0.1, -0.3, 1.0]])

CASES = {  # rows of h, measured values; cells are half a deviation wide, as the first grid's are
    "one of one": ([[1.0]], [0.35]),
    "one of two": ([[1.0, 0.0]], [0.37]),
    "sum of two": ([[1.0, 1.0]], [0.27]),
    "both of two": ([[1.0, 0.0], [0.0, 1.0]], [0.37, -0.11]),
    "two sums of two": ([[1.0, 0.5], [-0.3, 2.0]], [0.27, -0.4]),
    "sum of three": ([[1.0, 0.4, 0.7]], [0.33]),
    "two of three": ([[1.0, 0.4, 0.7], [0.2, 1.0, 0.0]], [0.33, -0.1]),
    "one twice": ([[1.0, 0.0], [1.0, 0.0]], [0.37, 0.36]),
}


def still(x, t, xp):
    return [0.0 * part for part in x]


def prior(n):
    """A Gaussian on cells of half a deviation, to six deviations: nothing of it is cut off."""
    P = CORRELATION[:n, :n] * np.outer(DEVIATIONS[:n], DEVIATIONS[:n])
    problem, indices, p = boxed(still, MEAN[:n], DEVIATIONS[:n] / 2.0, 12, normal(MEAN[:n], P), threshold=1e-13)
    return P, GridRun(problem, ArrayEngine, indices, p, 0.0)


def noise_in_cells(H, widths, ratio):
    """Noise whose deviations are `ratio` times what h changes by across a cell, correlated where there are two."""
    deviations = ratio * np.linalg.norm(H * widths, axis=1)
    m = len(H)
    return (0.5 * np.eye(m) + 0.5) * np.outer(deviations, deviations)


@pytest.mark.parametrize("ratio", [10.0, 1.0, 0.3, 0.01])
@pytest.mark.parametrize("case", CASES)
def test_evidence_and_posterior_are_kalmans_however_sharp_the_noise(case, ratio):
    H, y = (np.array(part) for part in CASES[case])
    n = H.shape[1]
    P, run = prior(n)
    R = noise_in_cells(H, run.problem.widths, ratio)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridWarning)  # of the posterior that cells cannot hold
        evidence = run.update(
            lambda x, xp: [sum(a * part for a, part in zip(row, x)) for row in H.tolist()], y, noise_of(R, len(y), "t")
        )
    S = H @ P @ H.T + R
    K = P @ H.T @ np.linalg.inv(S)
    deviations = np.sqrt(np.diag(P - K @ H @ P))
    assert evidence == pytest.approx(multivariate_normal(H @ MEAN[:n], S).logpdf(y), abs=0.01)
    assert np.max(np.abs(run.mean() - MEAN[:n] - K @ (y - H @ MEAN[:n])) / deviations) < 0.01
    np.testing.assert_allclose(np.sqrt(np.diag(run.covariance())), deviations, rtol=0.01)


@pytest.mark.parametrize("offset", [0.0, 0.25, 0.5])
def test_the_trial_that_was_silently_wrong(offset):
    # cells 0.1 wide, R = 1e-4, wherever in a cell y lies; the cut at three deviations costs 0.0015
    run = Gbees(lambda x, t, xp: (0.0 * x[0],), [0.0], [0.04], threshold=1e-9, backend="array")
    y = 0.1 * offset
    with pytest.warns(GridWarning, match=r"got a deviation of 0.00999 along axis 0, 0.0999 of a cell.*factor 10 times"):
        evidence = run.update(lambda x, xp: x[0], y, 1e-4)
    assert evidence == pytest.approx(-0.5 * y**2 / 0.0401 - 0.5 * np.log(2.0 * np.pi * 0.0401), abs=0.002)
    assert run.covariance()[0, 0] ** 0.5 == pytest.approx((0.04 * 1e-4 / 0.0401) ** 0.5, rel=1e-6)
    assert run.mean()[0] == pytest.approx(y * 0.04 / 0.0401, abs=1e-8)


def test_the_published_rule_is_kept_where_the_noise_is_wide_and_when_asked_for():
    runs = [Gbees(lambda x, t, xp: (0.0 * x[0],), [0.0], [0.04], threshold=1e-9, backend="array") for _ in range(3)]
    auto, point = (
        run.update(lambda x, xp: x[0], 0.13, 0.02, likelihood=rule) for run, rule in zip(runs, ("auto", "point"))
    )
    assert auto == point
    np.testing.assert_array_equal(runs[0].cells().probabilities, runs[1].cells().probabilities)
    with pytest.warns(
        GridWarning, match=r"R must be wider than a cell.*got deviations of which 10 fit a cell along axis 0"
    ):
        wrong = runs[2].update(lambda x, xp: x[0], 0.05, 1e-4, likelihood="point")
    assert wrong < -5.0  # for 0.66: nothing is near a centre


@pytest.mark.parametrize("deviation", [0.05, 0.005])
def test_a_square_is_integrated_over_cells(deviation):
    mean, P, y = np.array([0.5, 0.2]), np.array([[0.04, 0.03], [0.03, 0.09]]), 0.16
    problem, indices, p = boxed(still, mean, [0.1, 0.15], 12, normal(mean, P), threshold=1e-13)
    run = GridRun(problem, ArrayEngine, indices, p, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridWarning)
        evidence = run.update(lambda x, xp: x[0] ** 2, np.array([y]), noise_of(np.array(deviation**2), 1, "t"))

    def weighted(x, power):
        exponent = (x**2 - y) ** 2 / deviation**2 + (x - mean[0]) ** 2 / P[0, 0]
        return x**power * np.exp(-0.5 * exponent) / (2.0 * np.pi * deviation * P[0, 0] ** 0.5)

    parts = [
        sum(quad(weighted, s - 0.4, s + 0.4, (k,), points=[s], limit=200)[0] for s in (-0.4, 0.4)) for k in range(3)
    ]
    exact = parts[1] / parts[0]
    assert evidence == pytest.approx(np.log(parts[0]), abs=1e-4)
    assert run.mean()[0] == pytest.approx(exact, abs=1e-4)
    assert run.covariance()[0, 0] == pytest.approx(parts[2] / parts[0] - exact**2, rel=1e-3)


@pytest.mark.parametrize("ratio", [0.5, 0.05])
def test_a_range_is_integrated_over_cells(ratio):
    mean, P, y = np.array([0.5, 0.2]), np.array([[0.04, 0.03], [0.03, 0.09]]), 0.55
    problem, indices, p = boxed(still, mean, [0.1, 0.15], 12, normal(mean, P), threshold=1e-13)
    run, deviation = GridRun(problem, ArrayEngine, indices, p, 0.0), 0.1 * ratio
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridWarning)
        evidence = run.update(
            lambda x, xp: xp.sqrt(x[0] ** 2 + x[1] ** 2), np.array([y]), noise_of(np.array(deviation**2), 1, "t")
        )
    # in polar coordinates: Gauss-Hermite in the range, the trapezoidal rule in the angle, both exact to rounding
    nodes, weights = np.polynomial.hermite.hermgauss(40)
    r, angle = y + np.sqrt(2.0) * deviation * nodes, np.linspace(0.0, 2.0 * np.pi, 400, endpoint=False)
    x = np.stack([r[:, None] * np.cos(angle), r[:, None] * np.sin(angle)], axis=-1)
    held = multivariate_normal(mean, P).pdf(x) * (r * weights)[:, None] * (2.0 * np.pi / 400 / np.sqrt(np.pi))
    exact = np.einsum("ra,rai->i", held, x) / held.sum()
    spread = np.einsum("ra,rai,raj->ij", held, x - exact, x - exact) / held.sum()
    deviations = np.sqrt(np.diag(spread))
    assert evidence == pytest.approx(np.log(held.sum()), abs=0.002)
    assert np.max(np.abs(run.mean() - exact) / deviations) < 0.005
    np.testing.assert_allclose(np.sqrt(np.diag(run.covariance())), deviations, rtol=0.005)


def test_cells_hold_a_posterior_of_their_width_without_the_variance_of_a_cell():
    # masses of cells have width^2 / 12 more variance than the density: 2 % of the deviation here
    P, run = prior(2)
    H, R = np.array([[1.0, 1.0]]), 0.9**2 * (0.1**2 + 0.15**2)
    run.update(lambda x, xp: x[0] + x[1], np.array([0.2]), noise_of(np.array(R), 1, "t"))
    S = H @ P @ H.T + R
    exact = P - P @ H.T @ H @ P / S
    np.testing.assert_allclose(run.covariance(), exact, rtol=1e-3)
    np.testing.assert_allclose(moments(run.engine, run.problem)[1], exact, rtol=2e-3)


def test_moments_inside_cells_last_until_the_next_step():
    run = Gbees(lambda x, t, xp: (x[1], -x[0]), [0.0, 0.5], [0.04, 0.04], threshold=1e-7, backend="array")
    with pytest.warns(GridWarning, match="along axis 0"):
        run.update(lambda x, xp: x[0], 0.03, 1e-4)
    deviation = run.covariance()[0, 0] ** 0.5
    assert deviation == pytest.approx(0.00999, rel=1e-3)
    again = Gbees(lambda x, t, xp: (x[1], -x[0]), [0.0, 0.5], [0.04, 0.04], threshold=1e-7, backend="array")
    again.restore(run.state())
    np.testing.assert_array_equal(again.covariance(), run.covariance())
    run.advance(0.0)
    assert run.covariance()[0, 0] ** 0.5 == deviation
    for each in (run, again):
        each.advance(0.01)
    np.testing.assert_array_equal(again.covariance(), run.covariance())
    cells = run.cells()
    centres = cells.indices * cells.widths + cells.origin
    np.testing.assert_allclose(run.mean(), cells.probabilities @ centres, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::ensemble.apps.gbees.GridWarning")
def test_sharp_measurements_of_an_ensemble_are_those_of_each_sample():
    y, R = en.Ensemble(np.array([0.1, 0.32])), en.Ensemble(np.array([1e-4, 0.5]))
    make = lambda: Gbees(lambda x, t, xp: (x[1], -x[0]), [0.0, 0.5], [0.04, 0.04], threshold=1e-7, backend="array")
    together = make()
    evidence = together.update(lambda x, xp: x[0] + 0.3 * x[1], y, R)
    for i in (0, 1):
        alone = make()
        assert evidence.sample(i) == alone.update(
            lambda x, xp: x[0] + 0.3 * x[1], float(y.samples[i]), float(R.samples[i])
        )
        np.testing.assert_array_equal(together.mean().sample(i), alone.mean())
        np.testing.assert_array_equal(together.covariance().sample(i), alone.covariance())


@pytest.mark.filterwarnings("ignore::ensemble.apps.gbees.GridWarning")
def test_rotated_grids_periods_and_other_array_libraries_agree():
    P = np.array([[0.04, 0.015], [0.015, 0.09]])
    h = lambda x, xp: x[0] + 0.5 * x[1]
    evidences, means = [], []
    for options in ({"rotate": True}, {"periods": [40.0, None]}, {"backend": array_api_strict}, {}):
        run = Gbees(
            lambda x, t, xp: (0.0 * x[0], 0.0),
            [0.1, 0.2],
            P,
            threshold=1e-9,
            factor=2.0,
            **{"backend": "array", **options},
        )
        evidences.append(run.update(h, 0.31, 1e-5))
        means.append(run.mean())
    S = 0.04 + 0.015 + 0.25 * 0.09 + 1e-5
    np.testing.assert_allclose(
        evidences, -0.5 * 0.11**2 / S - 0.5 * np.log(2.0 * np.pi * S), atol=0.01
    )  # three deviations
    np.testing.assert_allclose(means, np.broadcast_to(means[-1], (4, 2)), atol=0.002)
    assert evidences[2] == evidences[3]


@pytest.mark.filterwarnings("ignore::ensemble.apps.gbees.GridWarning")
def test_two_sharp_measurements_in_a_row_stay_finite():
    run = Gbees(lambda x, t, xp: (0.0 * x[0],), [0.0], [0.04], threshold=1e-9, backend="array")
    run.update(lambda x, xp: x[0], 0.03, 1e-6)
    assert np.isfinite(run.update(lambda x, xp: x[0], 0.031, 1e-6))
    assert abs(run.mean()[0] - 0.031) < 0.001


@pytest.mark.parametrize(
    "h, y, R, text",
    [
        (
            lambda x, xp: x[0],
            100.0,
            1e-4,
            r"y must be possible somewhere on the grid; .* the nearest 9.94e\+03 standard",
        ),
        (lambda x, xp: xp.log(x[0] + 0.3), -1.0, 1e-6, "h must be a finite number all over the cells"),
    ],
)
def test_what_cannot_be_integrated_leaves_the_grid_alone(h, y, R, text):
    run = Gbees(lambda x, t, xp: (0.0 * x[0],), [0.0], [0.04], threshold=1e-9, backend="array")
    before = run.cells().probabilities
    with pytest.raises(GridError, match=text):
        run.update(h, y, R)
    np.testing.assert_array_equal(run.cells().probabilities, before)
    assert run.log_evidence == 0.0


def test_noise_that_takes_too_many_parts_of_cells_is_refused(monkeypatch):
    monkeypatch.setattr(cell_likelihood, "BOXES", 100)
    run = Gbees(lambda x, t, xp: (0.0 * x[0], 0.0), [0.5, 0.5], [0.04, 0.04], threshold=1e-9, backend="array")
    with pytest.raises(GridError, match=r"R must be wide enough .* got one that takes more than 100 parts of cells"):
        run.update(lambda x, xp: x[0] * x[1], 0.3, 1e-10)
