"""Distances between distributions whose distance is known, and estimates from samples against other programs' ones."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import erf

from ensemble.apps.gbees.analysis.comparison import bhattacharyya, binned, compare, kernel_density, l1_distance
from ensemble.apps.gbees.analysis.distribution import positions
from ensemble.apps.gbees.cells import Cells
from ensemble.scalar import Ensemble
from tests.apps.gbees.distributions import gaussian_cells, random_cells, turn

WIDTHS = np.array([0.1, 0.2])


@pytest.mark.parametrize("apart", [0.0, 0.7, 2.5])
def test_two_gaussians_of_one_covariance(apart):
    C = np.array([[1.0, 0.4], [0.4, 2.0]])
    step = apart * np.linalg.cholesky(C)[:, 0]  # `apart` standard deviations
    a = gaussian_cells([0.0, 0.0], C, WIDTHS, origin=[0.0, 0.0])
    b = gaussian_cells(step, C, WIDTHS, origin=[0.0, 0.0])
    found = compare(a, b)
    np.testing.assert_allclose(found.bhattacharyya, np.exp(-(apart**2) / 8.0), atol=1e-10)
    # Twice the total variation distance; |p - q| has a kink, which the sum resolves to the square of the width.
    np.testing.assert_allclose(found.l1, 2.0 * erf(apart / np.sqrt(8.0)), atol=2e-3)


def test_two_gaussians_of_different_covariance():
    A, B = np.diag([1.0, 2.0]), np.diag([1.5, 0.7])
    a, b = (gaussian_cells([0.0, 0.0], C, WIDTHS, origin=[0.0, 0.0]) for C in (A, B))
    expected = np.sqrt(np.sqrt(np.linalg.det(A) * np.linalg.det(B)) / np.linalg.det((A + B) / 2.0))
    np.testing.assert_allclose(bhattacharyya(a, b), expected, atol=1e-10)


def as_table(cells, shift=0):
    return {tuple(s): p for s, p in zip((cells.indices + shift).tolist(), cells.probabilities, strict=True)}


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_sums_are_those_over_a_table(seed, n):
    rng = np.random.default_rng(seed)
    a, b = random_cells(rng, n, 30), random_cells(rng, n, 30)
    p, q = as_table(a), as_table(b)
    found = compare(a, b)
    both = [np.sqrt(p.get(s, 0.0) * q.get(s, 0.0)) for s in {*p, *q}]
    np.testing.assert_allclose(found.bhattacharyya, sum(both), atol=1e-14)
    apart = [abs(p.get(s, 0.0) - q.get(s, 0.0)) for s in {*p, *q}]
    np.testing.assert_allclose(found.l1, sum(apart), atol=1e-14)
    assert found.shared == np.count_nonzero(both)
    assert found.only_first == len(p) - found.shared and found.only_second == len(q) - found.shared
    turned = compare(b, a)
    np.testing.assert_allclose([turned.bhattacharyya, turned.l1], [found.bhattacharyya, found.l1], atol=1e-14)


def test_a_distribution_is_no_distance_from_itself():
    a = random_cells(np.random.default_rng(1), 3, 100)
    assert l1_distance(a, a) == 0.0
    np.testing.assert_allclose(bhattacharyya(a, a), 1.0, rtol=1e-15)


def test_a_grid_moved_by_whole_cells_has_the_same_cells():
    a = random_cells(np.random.default_rng(2), 2, 40)
    moved = Cells(a.indices - 3, a.probabilities, a.origin + 3 * a.widths, a.widths)
    assert l1_distance(a, moved) == 0.0
    rotation = turn(0.3)
    one = Cells(a.indices, a.probabilities, a.origin, a.widths, rotation)
    other = Cells(a.indices - 3, a.probabilities, a.origin + rotation @ (3 * a.widths), a.widths, rotation)
    assert l1_distance(one, other) == 0.0


def test_different_grids_are_compared_on_the_larger_cells():
    C = np.eye(2)
    fine = gaussian_cells([0.0, 0.0], C, [0.1, 0.1])
    coarse = gaussian_cells([0.0, 0.0], C, [0.3, 0.3])
    # Probability of a cell is the mean of the density over it; they differ by 3 % of its second derivative at most.
    assert 0.9995 < bhattacharyya(fine, coarse) < 1.0
    turned = gaussian_cells([0.0, 0.0], C, [0.1, 0.1], rotation=turn(0.5))
    assert 0.995 < bhattacharyya(fine, turned, widths=0.3) <= 1.0


def test_distributions_on_another_array_library():
    rng = np.random.default_rng(3)
    pair = [random_cells(rng, 2, 50) for _ in range(2)]
    theirs = [
        Cells(array_api_strict.asarray(c.indices), array_api_strict.asarray(c.probabilities), c.origin, c.widths)
        for c in pair
    ]
    assert compare(*theirs) == compare(*pair)
    x = rng.standard_normal((2, 300))
    a, b = kernel_density(x, pair[0]), kernel_density(array_api_strict.asarray(x), theirs[0])
    np.testing.assert_allclose(np.asarray(b.probabilities), a.probabilities, rtol=1e-12)


# --- samples


def test_bins_count_samples():
    rng = np.random.default_rng(17)
    x = rng.normal(0.3, 1.0, (2, 5000))
    cells = Cells(np.zeros((1, 2), dtype=int), np.ones(1), np.array([0.1, -0.2]), np.array([0.5, 0.8]))
    found = binned(Ensemble(x), cells)
    lowest, highest = found.indices.min(axis=0), found.indices.max(axis=0)
    edges = [
        o + w * (np.arange(low, high + 2) - 0.5)
        for o, w, low, high in zip(cells.origin, cells.widths, lowest, highest, strict=True)
    ]
    counts, _, _ = np.histogram2d(*x, bins=edges)
    np.testing.assert_allclose(found.probabilities, counts[tuple((found.indices - lowest).T)] / 5000, rtol=1e-13)
    assert np.count_nonzero(counts) == len(found.probabilities)
    np.testing.assert_array_equal(binned(x, cells, widths=1.0).widths, [1.0, 1.0])


def test_bins_of_a_turned_grid_are_turned():
    rotation = turn(0.6)
    cells = gaussian_cells([1.0, 2.0], np.eye(2), [0.4, 0.5], rotation=rotation, reach=3.0)
    found = binned(positions(cells).T, cells)
    np.testing.assert_array_equal(found.indices, cells.indices)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("factor", [None, 0.3])
def test_the_kernel_estimate_is_scipys(n, factor):
    rng = np.random.default_rng(23)
    x = np.cumsum(rng.standard_normal((n, 3000)), axis=0)
    cells = random_cells(rng, n, 60, origin=np.full(n, 0.1))
    expected = stats.gaussian_kde(x, factor)(positions(cells).T)
    found = kernel_density(Ensemble(x), cells, factor=factor)
    np.testing.assert_allclose(found.probabilities, expected / expected.sum(), rtol=1e-9)
    single = kernel_density(x, cells, factor=factor, dtype=np.float32)
    np.testing.assert_allclose(single.probabilities, expected / expected.sum(), rtol=3e-4, atol=1e-9)


def test_the_estimate_in_blocks_is_the_same_and_tells_how_far_it_is(monkeypatch):
    rng = np.random.default_rng(29)
    x, cells, seen = rng.standard_normal((2, 200)), random_cells(rng, 2, 40), []
    whole = kernel_density(x, cells)
    monkeypatch.setattr("ensemble.apps.gbees.analysis.comparison.PAIRS_AT_ONCE", {"host": 7 * 200, "device": 1})
    blocks = kernel_density(x, cells, callback=lambda done, all_of_them: seen.append((done, all_of_them)))
    np.testing.assert_allclose(blocks.probabilities, whole.probabilities, rtol=1e-13)
    n = len(cells.probabilities)
    assert seen == [(min(7 * (k + 1), n), n) for k in range(-(-n // 7))]


A = random_cells(np.random.default_rng(4), 2, 10)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: compare(A, random_cells(np.random.default_rng(4), 3, 10)), "b must have the 2 dimensions of a; got 3"),
        (lambda: binned(np.zeros((3, 5)), A), r"samples must have shape \(2, n_samples\); got \(3, 5\)"),
        (lambda: binned(np.full((2, 5), np.nan), A), "samples must be finite; got 5 samples that are not"),
        (lambda: kernel_density(np.zeros((2, 2)), A), "samples must be more than 2; got 2"),
        (lambda: kernel_density(np.zeros((2, 9)), A), "have a regular covariance; got eigenvalues"),
        (lambda: kernel_density(np.eye(2, 9) + 1e3, A, factor=1e-2), "lie near the samples"),
        (lambda: kernel_density(np.eye(2, 9), A, factor=-1.0), "factor must be a finite number above zero"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()
