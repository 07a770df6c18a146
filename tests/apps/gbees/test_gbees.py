"""The face of `Gbees`: frames, bounds, pruning, stopping and going on, and what it refuses."""

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
from scipy.stats import norm

import ensemble as en
from ensemble._backend import to_numpy
from ensemble.apps.gbees import Gbees, GridWarning, lorenz63
from tests.apps.gbees.grids import boxed, normal, table
from tests.apps.gbees.problems import backend_of, build, oscillator


def same(a, b):
    for mine, own in zip(a.cells(), b.cells(), strict=True):
        np.testing.assert_array_equal(to_numpy(mine), to_numpy(own))


# -- the grid ----------------------------------------------------------------------------------------------------------


def test_the_first_grid_is_the_box_of_three_deviations(engine):
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    run = Gbees(oscillator, [0.8, 0.1], covariance, threshold=1e-5, factor=[1.0, 2.0], backend=backend_of(engine))
    indices, p = (to_numpy(part) for part in run.cells())
    assert indices.shape == (13 * 25, 2)
    assert np.abs(indices).max(axis=0).tolist() == [6, 12]
    x = indices * np.array([0.1, 0.075]) + [0.8, 0.1]
    density = normal([0.8, 0.1], covariance)(x)
    np.testing.assert_allclose(p, density / density.sum(), rtol=1e-12)


def test_a_rotated_grid_is_the_run_in_rotated_coordinates(patient_engine):
    angle, mean, variances = 0.6, np.array([0.4, -0.3]), np.array([0.02, 0.06])
    R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    covariance = R @ np.diag(variances) @ R.T
    R = R * np.sign(np.sum(R * np.linalg.eigh(covariance, UPLO="U")[1], axis=0))  # axes point where the grid's do

    def drift(x, t, xp):
        return x[1], xp.sin(x[0]) - 0.2 * x[1]

    def turned(z, t, xp):
        x = [R[i, 0] * z[0] + R[i, 1] * z[1] + mean[i] for i in range(2)]
        v = drift(x, t, xp)
        return [R[0, j] * v[0] + R[1, j] * v[1] for j in range(2)]

    options = {"threshold": 1e-4, "backend": backend_of(patient_engine)}
    rotated = Gbees(drift, mean, covariance, rotate=True, **options)
    plain = Gbees(turned, [0.0, 0.0], variances, **options)
    for run in (rotated, plain):
        run.advance(0.8)
    np.testing.assert_allclose(rotated.problems[0].rotation, R, atol=1e-12)
    np.testing.assert_allclose(rotated.mean(), R @ plain.mean() + mean, atol=1e-9)
    np.testing.assert_allclose(rotated.covariance(), R @ plain.covariance() @ R.T, atol=1e-9)
    mine = dict(zip(map(tuple, to_numpy(rotated.cells().indices).tolist()), to_numpy(rotated.cells().probabilities)))
    theirs = table(plain._runs.runs[0].engine)
    assert mine.keys() == theirs.keys()
    heavy = {s for s, q in theirs.items() if q > 1e-3}
    assert all(mine[s] == pytest.approx(theirs[s], rel=0.05) for s in heavy)


def test_rotating_by_a_diagonal_covariance_only_sorts_axes(patient_engine):
    options = {"threshold": 1e-5, "backend": backend_of(patient_engine)}
    runs = [Gbees(oscillator, [0.8, 0.1], [0.04, 0.05], rotate=rotate, **options) for rotate in (False, True)]
    for run in runs:
        run.advance(0.5)
    assert runs[1].problems[0].rotation.tolist() == np.eye(2).tolist()
    same(*runs)


def test_no_cell_is_made_out_of_bounds(patient_engine):
    def energy(x, xp):
        return 0.5 * (x[0] ** 2 + x[1] ** 2)

    def outwards(x, t, xp):
        return x[1] + 0.5 * x[0], -x[0] + 0.5 * x[1]

    for rotate in (False, True):
        free, kept = (
            Gbees(outwards, [0.8, 0.1], [[0.04, 0.01], [0.01, 0.05]], threshold=1e-5, bounds=bounds, rotate=rotate,
                  backend=backend_of(patient_engine))
            for bounds in (None, energy)
        )  # fmt: skip
        low, high = kept.problems[0].bounds_range
        for run in (free, kept):
            run.advance(1.0)
        values = []
        for run in (free, kept):
            problem, (indices, _) = run.problems[0], run.cells()
            z = np.asarray(indices).T * problem.widths[:, None]
            values.append(energy(problem.position(list(z)), np))
        assert values[0].max() > high  # the drift does push outwards
        assert low <= values[1].min() and values[1].max() <= high


def test_an_angle_comes_round(patient_engine):
    v = 2.0

    def build(periods):
        return Gbees(
            lambda x, t, xp: (v, 0.5 * xp.sin(x[0])), [2.5, 0.0], [0.04, 0.04], threshold=1e-6, periods=periods,
            backend=backend_of(patient_engine),
        )  # fmt: skip

    closed, wide = build([2.0 * np.pi, None]), build([2.0 * np.pi * 40.0, None])
    count = closed.problems[0].periods[0]
    assert count * closed.problems[0].widths[0] == pytest.approx(2.0 * np.pi, rel=1e-15)
    assert closed.problems[0].widths[0] == pytest.approx(0.1, rel=0.01)
    assert closed.problems[0].periods[1] is None
    assert wide.problems[0].widths[0] == pytest.approx(0.1, rel=0.001)
    turns = 1.5
    for run in (closed, wide):
        run.advance(turns * 2.0 * np.pi / v)
    assert closed.n_cells <= count * 60
    indices, p = (to_numpy(part) for part in closed.cells())
    assert indices[:, 0].min() >= -(count // 2) and indices[:, 0].max() < count - count // 2
    phase = p @ np.exp(1j * indices[:, 0] * closed.problems[0].widths[0])
    assert abs(np.angle(phase * np.exp(-1j * turns * 2.0 * np.pi))) < 0.02
    assert closed.mean()[1] == pytest.approx(wide.mean()[1], abs=0.01)  # as the drift is periodic, too


def test_noise_is_turned_into_a_rotated_grid():
    covariance = [[0.04, 0.01], [0.01, 0.05]]
    options = {"threshold": 1e-4, "rotate": True, "backend": "array"}  # nothing is compiled
    run = Gbees(oscillator, [0.8, 0.1], covariance, diffusion=0.1, **options)  # the same in all directions
    np.testing.assert_allclose(run.problems[0].diffusion, [0.1, 0.1])
    np.testing.assert_allclose(
        Gbees(oscillator, [0.8, 0.1], covariance, diffusion=covariance, **options).problems[0].diffusion,
        np.linalg.eigvalsh(covariance),
    )
    turned = Gbees(oscillator, [0.8, 0.1], covariance, diffusion=[0.1, 0.2], **options).problems[0]
    R = turned.rotation
    np.testing.assert_allclose(turned.diffusion, np.diag(R.T @ np.diag([0.1, 0.2]) @ R))
    assert turned.mixing is not None
    with pytest.raises(ValueError, match="diffusion must be positive semidefinite; got a smallest eigenvalue of -1"):
        Gbees(oscillator, [0.8, 0.1], covariance, diffusion=[[1.0, 2.0], [2.0, 1.0]], threshold=1e-4)
    with pytest.raises(ValueError, match="time_order must be 1 or 2; got 3"):
        Gbees(oscillator, [0.8, 0.1], covariance, time_order=3, threshold=1e-4)


def test_what_leaves_over_the_rim_is_told(patient_engine):
    k = 5  # columns of cells that are pushed against the bounds: at a CFL number of 1 each step loses one
    run = Gbees(
        lambda x, t, xp: (1.0, 0.0), [0.0, 0.0], [0.04, 0.04], threshold=1e-9, bounds=lambda x, xp: x[0],
        backend=backend_of(patient_engine),
    )  # fmt: skip
    indices, p = (to_numpy(part) for part in run.cells())
    with pytest.warns(GridWarning, match=r"keep all but 0.01 of a probability of 1; got 0.2\d lost over its rim since"):
        run.advance(0.1 * k)
    left = p[indices[:, 0] <= 6 - k].sum()
    assert np.prod(run.steps.masses) == pytest.approx(left, rel=1e-12)
    assert run.mass_loss == pytest.approx(np.sum(1.0 - run.steps.masses))
    assert run.mass_loss > 0.2
    assert run.mass_gain == pytest.approx(0.0, abs=1e-14)
    with pytest.warns(GridWarning, match="lost over its rim"):  # once more when it has doubled
        run.advance(0.1 * (k + 3))


def test_loss_over_the_rim_and_gain_by_clipping_do_not_cancel(patient_engine):
    # a front thinner than a cell, turned around: limited slopes undershoot in two dimensions
    problem, indices, p = boxed(
        oscillator, [0.8, 0.1], [0.05, 0.05], 12, normal([0.8, 0.1], 2e-3 * np.eye(2)), threshold=1e-4
    )
    kept = p > 1e-3
    run = patient_engine(problem, indices[kept], p[kept] / p[kept].sum())
    steps = run.advance(0.0, 2.0)
    assert np.all(steps.clipped >= 0.0) and steps.clipped.sum() > 1e-4
    assert np.all(steps.losses > -1e-12) and steps.losses.sum() > 1e-4
    np.testing.assert_allclose(steps.masses, 1.0 - steps.losses + steps.clipped, atol=1e-15)


def test_gain_by_clipping_is_warned_of():
    run = Gbees(lorenz63, [-11.5, -10.0, 9.5], np.eye(3), threshold=1e-4, factor=0.5, backend="array")
    with pytest.warns(GridWarning) as caught:
        run.advance(0.6)
    texts = [str(warning.message) for warning in caught]
    assert any("negative values must be below 0.01" in text and "use a larger factor" in text for text in texts)
    assert any("keep all but 0.01" in text for text in texts)
    assert run.mass_gain > 0.01 and run.mass_loss > 0.01


# -- the start ---------------------------------------------------------------------------------------------------------


def still(x, t, xp):
    return 0.0 * x[0], 0.0 * x[1]


def test_a_wider_first_grid_leaves_no_variance_out():
    # a Gaussian cut at k deviations has 1 - 2 k phi(k) / (2 Phi(k) - 1) of its variance, and cells do not change that
    ratios = {}
    for extent, factor in ((3.0, 8.0), (4.0, 8.0), (5.0, 8.0), (5.0, 1.0)):
        run = Gbees(still, [0.0, 0.0], [0.04, 0.09], threshold=1e-12, extent=extent, factor=factor, backend="array")
        ratios[extent, factor] = run.covariance()[0, 0] / 0.04
    exact = {k: 1.0 - 2.0 * k * norm.pdf(k) / (2.0 * norm.cdf(k) - 1.0) for k in (3.0, 4.0, 5.0)}
    assert exact[3.0] == pytest.approx(0.973, abs=5e-4)
    for (extent, factor), ratio in ratios.items():  # the box ends half a cell further out
        assert exact[extent] <= ratio < 1.0 and ratio - exact[extent] < 2.0 * extent**3 * norm.pdf(extent) / factor


def test_the_extent_may_differ_by_axis_and_fits_a_period():
    run = Gbees(
        still, [0.0, 0.0], [0.04, 0.04], threshold=1e-9, extent=[5.0, 2.0], periods=[1.6, None], backend="array"
    )
    indices = run.cells().indices
    assert np.abs(indices).max(axis=0).tolist() == [7, 4]  # sixteen cells around


def test_a_start_from_a_density(patient_engine):
    density = lambda x, xp: xp.where(x[0] > 1.0, xp.exp(-10.0 * (x[0] - 1.0) - 0.5 * x[1] ** 2 / 0.04), 0.0 * x[0])
    run = Gbees(
        still, [1.0, 0.0], [0.04, 0.04], threshold=1e-9, start=density, extent=[6.0, 5.0], factor=8.0,
        backend=backend_of(patient_engine),
    )  # fmt: skip
    assert run.mean()[0] == pytest.approx(1.1, abs=0.01)
    assert run.covariance()[0, 0] == pytest.approx(0.01, rel=0.03)
    assert run.covariance()[1, 1] == pytest.approx(0.04, rel=1e-4)
    assert to_numpy(run.cells().indices)[:, 0].min() == 1  # cells without any are not there
    gaussian = lambda x, xp: xp.exp(-0.5 * ((x[0] - 1.0) ** 2 + x[1] ** 2) / 0.04)
    runs = [Gbees(still, [1.0, 0.0], [0.04, 0.04], threshold=1e-9, start=start) for start in (gaussian, None)]
    np.testing.assert_allclose(runs[0].cells().probabilities, runs[1].cells().probabilities, rtol=1e-12)


@pytest.mark.parametrize("rotate", [False, True])
def test_a_start_from_samples(rotate):
    rng = np.random.default_rng(48213)
    P = np.array([[0.04, 0.02], [0.02, 0.05]])
    points = rng.multivariate_normal([1.0, -0.5], P, 50_000).T
    options = {"threshold": 1e-9, "rotate": rotate, "backend": "array", "factor": 2.0}
    run = Gbees(still, None, None, start=points, **options)
    np.testing.assert_allclose(run.problems[0].origin, points.mean(axis=1))
    np.testing.assert_allclose(run.mean(), points.mean(axis=1), atol=1e-3)
    spread = run.covariance() - np.cov(points)
    # counts in cells have the variance of a cell besides
    np.testing.assert_allclose(np.trace(spread), np.sum(run.problems[0].widths ** 2) / 12.0, rtol=0.1)
    again = Gbees(still, [1.0, -0.5], P, start=en.Ensemble(points), **options)
    assert again.n_samples is None
    assert np.sum(again.cells().probabilities) == pytest.approx(1.0, abs=1e-12)
    turned = Gbees(
        still, [3.0, 0.0], P, start=points + np.array([[4.0], [0.0]]), periods=[6.0, None], threshold=1e-9, factor=2.0
    )
    count = turned.problems[0].periods[0]
    indices = turned.cells().indices[:, 0]
    assert indices.min() >= -(count // 2) and indices.max() < count - count // 2


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"extent": 0.0}, "extent must be above zero"),
        ({"extent": [1.0, 2.0, 3.0]}, r"extent must be a number or have shape \(2,\)"),
        ({"start": np.ones((3, 5))}, r"start must have shape \(2, n_points\); got shape \(3, 5\)"),
        ({"start": np.ones(5)}, "start must be a density .* or points of shape"),
        ({"start": np.full((2, 3), np.nan)}, "start must be finite"),
        (
            {"start": lambda x, xp: x[0] - 10.0},
            "start must be a density, finite, not negative, not all zero; got values",
        ),
        ({"start": lambda x, xp: x[7]}, "start must take 2 scalars x and a namespace"),
        ({"mean": None}, "mean must be given unless the start is points"),
    ],
)
def test_bad_starts_are_refused(arguments, text):
    given = {"mean": [0.0, 0.0], "covariance": [0.04, 0.04], "threshold": 1e-4, **arguments}
    with pytest.raises(ValueError, match=text):
        Gbees(still, **given)


@pytest.mark.parametrize("prune", ["sequential", "parallel"])
def test_pruning_keeps_active_cells_and_little_is_lost(engine, prune):
    problem, indices, p = boxed(
        oscillator, [0.8, 0.1], [0.05, 0.05], 12, normal([0.8, 0.1], 0.03 * np.eye(2)), threshold=1e-4, prune=prune
    )
    run = engine(problem, indices, p)
    before = table(run)
    assert run.reweight(np.zeros(run.n_cells)) == pytest.approx(0.0, abs=1e-14)  # weighs nothing, but prunes
    after = table(run)
    lost = 1.0 - sum(before[s] for s in after)
    assert 0 < len(after) < len(before)
    assert {s for s, q in before.items() if q >= 1e-4} <= after.keys()
    assert 0.0 < lost < 1e-4 * (len(before) - len(after))
    for s, q in after.items():
        assert q == pytest.approx(before[s] / (1.0 - lost), rel=1e-12)
    cells = {s for s, q in before.items() if q >= 1e-4}
    for s in before.keys() - after.keys():  # given up: no active face neighbour flows in
        for i in range(2):
            for step in (1, -1):
                neighbour = tuple(c - step * (k == i) for k, c in enumerate(s))
                if neighbour in cells:
                    z = [c * 0.05 + 0.025 * (k == i) for k, c in enumerate(neighbour)]
                    assert step * problem.velocity(z, 0.0, np)[i] <= 0.0


def test_the_sequential_rule_cell_by_cell(engine):
    # nothing flows, so every cell below the threshold is a candidate; together they hold half of the probability
    p = np.random.default_rng(61403).uniform(0.5, 1.0, 300) / 400.0
    threshold = 0.0016
    indices = np.stack([np.arange(300) % 20, np.arange(300) // 20], axis=1)
    p[:30] = 0.5 / 30
    p /= p.sum()
    problem, _, _ = boxed(lambda x, t, xp: (0.0, 0.0), [0.0, 0.0], [1.0, 1.0], 1, lambda x: np.ones(len(x)))
    run = engine(replace(problem, threshold=threshold), indices, p)
    order, gone, lost = np.argsort(p), set(), 0.0
    for k in order[p[order] < threshold]:
        lost += p[k]
        if p[k] / (1.0 - lost) >= threshold:
            break
        gone.add(tuple(indices[k].tolist()))
    assert 20 < len(gone) < np.sum(p < threshold) - 10  # the rule does stop on the way
    run.reweight(np.zeros(300))
    assert table(run).keys() == {tuple(s) for s in indices.tolist()} - gone


def test_steps_are_counted_from_each_measurement(engine):
    run = build(engine)
    run.advance(0.1)
    assert run._runs.runs[0].engine.count == run.n_steps > 1
    run.update(lambda x, xp: x[0], 0.8, 0.1)
    assert run._runs.runs[0].engine.count == 0


def test_prune_only_every_so_often(engine):
    often, seldom = build(engine, prune_every=1), build(engine, prune_every=1000)
    for run in (often, seldom):
        run.advance(0.6)
    assert often.n_cells < seldom.n_cells
    assert seldom.n_cells == seldom.steps.cells.max()  # never pruned: it only grew


def test_the_array_standard_is_enough():
    runs = [
        Gbees(lorenz63, [-11.5, -10.0, 9.5], np.eye(3), threshold=1e-4, backend=backend, diffusion=0.5, periods=None)
        for backend in ("array", array_api_strict)
    ]
    for run in runs:
        run.advance(0.05)
        run.update(lambda x, xp: xp.abs(x[2]), 5.0, 1.0)
        run.advance(0.1)
    same(*runs)
    assert type(runs[1].cells().probabilities) is type(array_api_strict.zeros(1))


def test_single_precision_is_close_to_double(patient_engine):
    double, single = build(patient_engine), build(patient_engine, dtype=np.float32)
    for run in (double, single):
        run.advance(0.7)
    assert single.cells().probabilities.dtype == np.float32
    np.testing.assert_allclose(single.mean(), double.mean(), atol=1e-5)


# -- time --------------------------------------------------------------------------------------------------------------


def test_advance_ends_exactly_there(engine):
    run = build(engine)
    for until in (0.1, 0.1, 0.30000000000000004, 1.0):
        steps = run.advance(until)
        assert run.time == until
    assert len(run.advance(1.0)) == 0
    assert run.n_steps == len(run.steps) and run.cell_steps == run.steps.cells.sum()
    assert steps.lengths.sum() == pytest.approx(0.7)
    assert np.all(run.steps.lengths > 0)


def test_shorter_steps_take_as_many_more(engine):
    counts = []
    for cfl in (1.0, 0.5):
        run = build(engine, cfl=cfl)
        run.advance(0.5)
        counts.append(run.n_steps)
    assert counts[1] == pytest.approx(2 * counts[0], rel=0.1)


class StopError(Exception):
    pass


@pytest.mark.parametrize("varying", [False, True])
def test_a_state_goes_on_to_the_bit(engine, varying):
    def drift(x, t, xp):
        return x[1], -x[0] + 0.5 * np.cos(3.0 * t) if varying else -x[0]

    def make():
        return Gbees(drift, [0.8, 0.1], [0.04, 0.05], threshold=1e-5, time_varying=varying, backend=backend_of(engine))

    through = make()
    through.advance(0.4)
    state = {name: np.array(value) for name, value in through.state().items()}
    resumed = make().restore(state)
    assert (resumed.time, resumed.n_steps, resumed.mass_loss) == (0.4, through.n_steps, through.mass_loss)
    for run in (through, resumed):
        run.update(lambda x, xp: x[0], 0.7, 0.5)
        run.advance(1.0)
    same(through, resumed)
    assert (resumed.n_steps, resumed.log_evidence) == (through.n_steps, through.log_evidence)


def test_an_interrupted_run_goes_on_from_a_whole_step(engine):
    whole, cut = build(engine), build(engine)
    whole.advance(1.0)
    calls = []

    def callback(time, cells, cell_steps):
        calls.append((time, cells, cell_steps))
        if time > 0.5:
            raise StopError

    cut.report_each_step()
    with pytest.raises(StopError):
        cut.advance(1.0, callback)
    assert 0.0 < cut.time < 1.0
    assert cut.time == pytest.approx(cut.steps.lengths.sum(), rel=1e-14)
    assert calls[-1][0] >= cut.time
    times, cells, done = np.array(calls).T
    assert np.all(np.diff(times) > 0) and np.all(cells > 0) and np.all(np.diff(done) > 0)
    resumed = build(engine).restore(cut.state())
    for run in (cut, resumed):
        run.advance(1.0)
        assert run.n_steps == whole.n_steps
        same(run, whole)


def test_an_interruption_stops_all_samples(engine):
    import ensemble as en

    means = en.Ensemble(np.array([[0.8, 0.9, 1.0], [0.1, 0.0, 0.2]]))
    run = Gbees(oscillator, means, [0.04, 0.05], threshold=1e-5, backend=backend_of(engine))
    seen = []

    def callback(time, cells, cell_steps):
        seen.append(cell_steps)
        if len(seen) > 4:
            raise StopError

    with pytest.raises(StopError):
        run.advance(1e6, callback)
    assert run.time < 1e6 and not run.failed.any()
    assert np.all(np.diff(seen) > 0)


def test_repr_says_where_it_stands():
    run = build()
    run.advance(0.25)
    assert repr(run).startswith("Gbees(n=2, time=0.25, ") and repr(run).endswith(f"{run.n_steps} steps)")
