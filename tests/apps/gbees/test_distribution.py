"""Moments, regions of highest density, random points and marginals of distributions that are known."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ensemble.apps.gbees.analysis.distribution import (
    active,
    covariance,
    density,
    highest_density_regions,
    mean,
    positions,
    sample,
)
from ensemble.apps.gbees.analysis.marginals import marginal
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.frames import project, transferred
from tests.apps.gbees.distributions import gaussian_cells, random_cells, turn

MEAN, C, WIDTHS = np.array([1.0, -2.0]), np.array([[1.0, 0.6], [0.6, 2.0]]), np.array([0.35, 0.6])
ROTATIONS = {"straight": None, "turned": turn(0.4)}
LIBRARIES = {"numpy": np, "strict": array_api_strict}


@pytest.mark.parametrize("xp", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("rotation", ROTATIONS.values(), ids=ROTATIONS)
def test_the_moments_of_a_gaussian_are_its_own(rotation, xp):
    cells = gaussian_cells(MEAN, C, WIDTHS, rotation=rotation, xp=xp, origin=[0.9, -2.1])
    # Sums at equal distances integrate a Gaussian with errors of exp(-2 pi^2 sigma^2 / dx^2), here below 1e-60; what is
    # left is the tail beyond 8 standard deviations, and rounding.
    np.testing.assert_allclose(mean(cells), MEAN, rtol=0, atol=1e-12)
    np.testing.assert_allclose(covariance(cells), C, rtol=0, atol=1e-11)


@pytest.mark.parametrize("rotation", ROTATIONS.values(), ids=ROTATIONS)
def test_points_spread_over_their_cells_add_a_twelfth_of_the_squared_width(rotation):
    cells = gaussian_cells(MEAN, C, WIDTHS, rotation=rotation)
    x = sample(cells, 200_000, seed=50821).samples
    axes = np.eye(2) if rotation is None else rotation
    expected = C + axes @ np.diag(WIDTHS**2 / 12.0) @ axes.T
    # Standard errors: sqrt(C_ii / n) and about sqrt(2 / n) C_ii; five of them.
    np.testing.assert_allclose(x.mean(axis=1), MEAN, atol=5 * np.sqrt(2.0 / 200_000))
    np.testing.assert_allclose(np.cov(x), expected, atol=5 * 2.0 * np.sqrt(2.0 / 200_000))


def test_a_random_point_depends_on_its_number_alone():
    cells = gaussian_cells(MEAN, C, WIDTHS)
    few, many = (sample(cells, n, seed=7).samples for n in (13, 500))
    np.testing.assert_array_equal(few, many[:, :13])
    assert not np.array_equal(many, sample(cells, 500, seed=8).samples)


def test_cells_without_probability_get_no_points():
    cells = Cells(np.arange(5)[:, None], np.array([0.0, 0.5, 0.0, 0.5, 0.0]), np.zeros(1), np.ones(1))
    x = sample(cells, 2000, seed=3).samples[0]
    assert set(np.rint(x)) == {1.0, 3.0}
    assert abs(np.count_nonzero(x < 2.0) - 1000) < 5 * np.sqrt(500)
    # Evenly over the cell: the largest gap between the fractions and a uniform law.
    assert stats.kstest(x - np.rint(x) + 0.5, "uniform").pvalue > 1e-4


def test_a_point_on_the_rim_of_the_sum_falls_into_the_last_cell_with_probability(monkeypatch):
    class Rim:
        def random(self, shape):
            return np.full(shape, np.nextafter(1.0, 0.0))

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Rim())
    p = np.array([0.1, 0.7, 0.1, 0.1, 0.0])
    cells = Cells(np.arange(5)[:, None], p, np.zeros(1), np.ones(1))
    assert np.all(np.rint(sample(cells, 3, seed=0).samples - 0.4) == 3.0)


def test_positions_are_made_as_the_engines_make_them():
    cells = gaussian_cells(MEAN, C, WIDTHS, origin=[1.0 / 3.0, -0.1])
    expected = np.stack([cells.indices[:, i] * cells.widths[i] + cells.origin[i] for i in range(2)], axis=1)
    np.testing.assert_array_equal(positions(cells), expected)


def test_density_is_probability_over_volume():
    cells = gaussian_cells(MEAN, C, WIDTHS)
    at = stats.multivariate_normal(MEAN, C).pdf(positions(cells))
    np.testing.assert_allclose(density(cells), at, rtol=1e-10, atol=1e-17)


def test_active_cells_are_those_at_or_above_the_threshold():
    cells = Cells(np.arange(4)[:, None], np.array([0.1, 0.25, 0.2, 0.45]), np.zeros(1), np.ones(1))
    kept = active(cells, 0.2)
    np.testing.assert_array_equal(kept.indices[:, 0], [1, 2, 3])
    np.testing.assert_array_equal(kept.probabilities, [0.25, 0.2, 0.45])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_regions_of_a_gaussian_end_at_the_ellipsoid_of_their_mass(n):
    masses = (0.3, 0.68, 0.95)
    cells = gaussian_cells(np.zeros(n), np.eye(n), np.full(n, 0.05 if n == 1 else 0.15), reach=6.0)
    found = highest_density_regions(cells, masses)
    top = float(cells.probabilities.max())
    radius = np.sqrt(-2.0 * np.log(found.levels / top))
    # The mass inside radius r is the chi distribution's; the last cell lies within a cell of the rim.
    np.testing.assert_allclose(radius, stats.chi(n).ppf(masses), atol=0.06)
    held = [cells.probabilities[inside].sum() for inside in found.inside]
    np.testing.assert_allclose(held, masses, atol=0.05)
    assert np.all(np.diff(found.counts) > 0)


@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4, unique=True))
def test_regions_are_the_smallest_that_hold_their_mass(seed, masses):
    cells = random_cells(np.random.default_rng(seed), 2, 30)
    found = highest_density_regions(cells, sorted(masses))
    for mass, level, inside in zip(found.masses, found.levels, found.inside):
        p = cells.probabilities
        assert p[inside].min() == level and np.all(p[~inside] < level)
        assert p[inside].sum() >= mass - 1e-12
        assert p[p > level].sum() < mass + 1e-12


@pytest.mark.parametrize("xp", LIBRARIES.values(), ids=LIBRARIES)
def test_every_function_gives_the_same_on_another_array_library(xp):
    ours = gaussian_cells(MEAN, C, WIDTHS)
    theirs = gaussian_cells(MEAN, C, WIDTHS, xp=xp)
    np.testing.assert_array_equal(np.asarray(positions(theirs)), positions(ours))
    np.testing.assert_array_equal(np.asarray(sample(theirs, 50, seed=4).samples), sample(ours, 50, seed=4).samples)
    a, b = highest_density_regions(ours), highest_density_regions(theirs)
    np.testing.assert_array_equal(np.asarray(b.inside), a.inside)
    np.testing.assert_array_equal(marginal(theirs, 1).probabilities, marginal(ours, 1).probabilities)
    kept, moved = transferred(theirs, 0.5), transferred(ours, 0.5)
    np.testing.assert_array_equal(np.asarray(kept.indices), moved.indices)
    np.testing.assert_allclose(np.asarray(kept.probabilities), moved.probabilities, rtol=1e-13)


# --- marginals


@pytest.mark.parametrize("axis", [0, 1])
def test_the_marginal_of_a_gaussian_is_gaussian(axis):
    found = marginal(gaussian_cells(MEAN, C, WIDTHS), axis)
    expected = stats.norm(MEAN[axis], np.sqrt(C[axis, axis])).pdf(found.coordinates[0])
    np.testing.assert_allclose(found.density, expected, atol=1e-12)
    assert found.axes == (axis,) and found.widths == WIDTHS[axis]


def test_marginals_of_three_coordinates_agree_and_keep_the_order_asked_for():
    cells = random_cells(np.random.default_rng(61), 3, 80)
    pair, turned = marginal(cells, (2, 0)), marginal(cells, (0, 2))
    np.testing.assert_array_equal(pair.probabilities, turned.probabilities.T)
    for k, axis in enumerate((2, 0)):
        alone = marginal(cells, axis)
        np.testing.assert_allclose(pair.probabilities.sum(axis=1 - k), alone.probabilities, rtol=1e-13)
        np.testing.assert_array_equal(pair.coordinates[k], alone.coordinates[0])
    whole = marginal(cells, (0, 1, 2))
    lowest = cells.indices.min(axis=0)
    assert whole.probabilities[tuple(cells.indices[7] - lowest)] == cells.probabilities[7]
    assert np.count_nonzero(whole.probabilities) == np.count_nonzero(cells.probabilities)


def test_the_levels_of_a_marginal_hold_what_they_say():
    found = marginal(gaussian_cells(MEAN, C, WIDTHS / 4), (0, 1))
    peak = 1.0 / (2.0 * np.pi * np.sqrt(np.linalg.det(C)))
    # In two dimensions the density on the rim of mass m is (1 - m) times the peak.
    np.testing.assert_allclose(found.levels((0.5, 0.9)), [0.5 * peak, 0.1 * peak], rtol=0.02)


def test_the_marginal_of_a_turned_grid_is_along_its_own_axes():
    rotation = turn(0.4)
    cells = gaussian_cells(MEAN, C, WIDTHS, rotation=rotation)
    kept = project(cells, [1])
    along = rotation[:, 1]
    np.testing.assert_allclose(mean(kept), [along @ MEAN], atol=1e-12)
    np.testing.assert_allclose(covariance(kept), [[along @ C @ along]], atol=1e-11)


# --- other grids


def test_transfer_shares_a_cell_out_by_the_overlaps():
    one = Cells(np.array([[2]]), np.array([0.8]), np.array([0.1]), np.array([1.0]))  # from 1.6 to 2.6
    got = transferred(one, 0.5, origin=[0.25])  # edges at whole halves
    np.testing.assert_array_equal(got.indices[:, 0], [3, 4, 5])
    np.testing.assert_allclose(got.probabilities, 0.8 * np.array([0.4, 0.5, 0.1]), rtol=1e-13)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.floats(0.3, 3.0), st.floats(-1.0, 1.0))
def test_transfer_keeps_the_probability_and_moves_the_mean_by_less_than_half_a_cell(seed, n, width, offset):
    cells = random_cells(np.random.default_rng(seed), n, 20)
    got = transferred(cells, width, origin=np.full(n, offset))
    np.testing.assert_allclose(got.probabilities.sum(), 1.0, rtol=1e-13)
    assert np.all(np.abs(mean(got) - mean(cells)) <= 0.5 * width + 1e-12)
    assert np.all(np.diff(got.indices.astype(np.int64) @ 10 ** np.arange(3 * n - 1, -1, -3)) > 0)


@pytest.mark.parametrize("factor", [2, 3])
def test_finer_cells_and_back_is_where_it_was(factor):
    cells = random_cells(np.random.default_rng(5), 3, 60)
    # An odd factor keeps cell centres, an even one makes them corners: the origin moves by half a fine cell.
    shift = 0.0 if factor % 2 else 0.5 * cells.widths / factor
    fine = transferred(cells, cells.widths / factor, origin=cells.origin + shift)
    back = transferred(fine, cells.widths, origin=cells.origin)
    assert len(fine.probabilities) == factor**3 * len(cells.probabilities)
    kept = active(back, 1e-15)
    np.testing.assert_array_equal(kept.indices, cells.indices)
    np.testing.assert_allclose(kept.probabilities, cells.probabilities, rtol=1e-12)


def test_transfer_to_turned_axes_and_back_spreads_by_the_cells_only():
    cells = gaussian_cells(MEAN, C, WIDTHS)
    turned = transferred(cells, WIDTHS, rotation=turn(0.7))
    np.testing.assert_allclose(turned.probabilities.sum(), 1.0, rtol=1e-13)
    np.testing.assert_allclose(mean(turned), MEAN, atol=1e-3)
    added = np.diag(WIDTHS**2 / 12.0)
    spread = covariance(turned) - C
    assert np.all(np.abs(spread) < 2.5 * added.max())
    quarter = transferred(cells, WIDTHS[::-1], rotation=turn(np.pi / 2))
    back = active(transferred(quarter, WIDTHS, rotation=np.eye(2)), 1e-14)
    kept = active(cells, 1e-14)
    np.testing.assert_array_equal(back.indices, kept.indices)
    np.testing.assert_allclose(back.probabilities, kept.probabilities, rtol=1e-9)


# --- complaints

NONE = Cells(np.empty((0, 2), dtype=np.int64), np.empty(0), np.zeros(2), np.ones(2))
GOOD = Cells(np.array([[0, 0], [0, 3]]), np.array([0.5, 0.5]), np.zeros(2), np.ones(2))
WIDE = Cells(np.array([[0, 0], [2**40, 2**40]]), np.array([0.5, 0.5]), np.zeros(2), np.ones(2))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: mean(NONE), "mean: cells must hold at least one cell; got none"),
        (lambda: covariance(Cells(GOOD.indices, np.array([np.nan, 1.0]), GOOD.origin, GOOD.widths)), "a sum of nan"),
        (lambda: sample(Cells(GOOD.indices, np.array([-0.5, 1.0]), GOOD.origin, GOOD.widths), 3, seed=1), "negative"),
        (lambda: sample(GOOD, 0, seed=1), "n must be an integer of at least 1"),
        (lambda: highest_density_regions(GOOD, (0.9, 0.5)), r"numbers in \(0, 1\], ascending; got \[0.9, 0.5\]"),
        (lambda: highest_density_regions(GOOD, ()), "ascending"),
        (lambda: marginal(GOOD, (0, 0)), "axes must be different numbers from 0 to 1"),
        (lambda: marginal(GOOD, 2), "marginal: axes must be different numbers from 0 to 1"),
        (lambda: marginal(NONE, 0), "at least one cell"),
        (lambda: marginal(WIDE, 0), "dense grid of at most 268435456 cells; got 1099511627777"),
        (lambda: project(WIDE, (0, 1)), r"fewer than 2\*\*63 cells"),
        (lambda: transferred(GOOD, 0.0), "widths must be finite numbers above zero"),
        (lambda: marginal(GOOD, 0).levels((0.0,)), r"masses must be numbers in \(0, 1\]"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()
