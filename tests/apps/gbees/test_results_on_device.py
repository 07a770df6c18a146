"""Results of distributions that lie on a CUDA device: those of NumPy (make test-gpu)."""

import numpy as np
import pytest

from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble.apps.gbees import (
    Cells,
    active,
    binned,
    compare,
    configuration,
    draw,
    highest_density_regions,
    kernel_density,
    lorenz63,
    marginal,
    positions,
    propagate,
    transferred,
)
from ensemble.apps.gbees.analysis.distribution import covariance, mean, sample
from tests.apps.gbees.distributions import random_cells

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


def there(cells):
    home = prototype("cupy")
    return Cells(
        asarray_like(cells.indices, home),
        asarray_like(cells.probabilities, home),
        cells.origin,
        cells.widths,
        cells.rotation,
    )


CELLS, OTHER = (random_cells(np.random.default_rng(seed), 3, 400) for seed in (70979, 70981))


def close(a, b):
    np.testing.assert_array_equal(to_numpy(a.indices), b.indices)
    np.testing.assert_allclose(to_numpy(a.probabilities), b.probabilities, rtol=1e-12)


def test_moments_and_regions():
    np.testing.assert_allclose(mean(there(CELLS)), mean(CELLS), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(covariance(there(CELLS)), covariance(CELLS), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(to_numpy(positions(there(CELLS))), positions(CELLS))
    np.testing.assert_allclose(marginal(there(CELLS), (0, 2)).density, marginal(CELLS, (0, 2)).density, rtol=1e-12)
    found, expected = highest_density_regions(there(CELLS)), highest_density_regions(CELLS)
    np.testing.assert_array_equal(to_numpy(found.inside), expected.inside)
    close(active(there(CELLS), 1e-3), active(CELLS, 1e-3))


def test_points_and_other_grids():
    x = sample(there(CELLS), 5000, seed=3)
    # The running sums may round differently: a point on the rim of two cells may fall into the other one.
    off = np.any(np.abs(to_numpy(x.samples) - sample(CELLS, 5000, seed=3).samples) > 1e-12, axis=0)
    assert np.count_nonzero(off) <= 2
    close(transferred(there(CELLS), 0.7), transferred(CELLS, 0.7))
    close(binned(x, there(CELLS)), binned(to_numpy(x.samples), CELLS))


def test_comparisons():
    found, expected = compare(there(CELLS), there(OTHER)), compare(CELLS, OTHER)
    np.testing.assert_allclose([found.bhattacharyya, found.l1], [expected.bhattacharyya, expected.l1], rtol=1e-12)
    assert found.shared == expected.shared
    x = draw(np.zeros(3), np.eye(3), 3000, seed=5)
    far = draw(np.zeros(3), np.eye(3), 3000, seed=5, backend="cupy")
    np.testing.assert_array_equal(to_numpy(far.samples), x.samples)
    expected = kernel_density(x, CELLS).probabilities
    np.testing.assert_allclose(to_numpy(kernel_density(far, there(CELLS)).probabilities), expected, rtol=1e-10)
    single = kernel_density(far, there(CELLS), dtype=np.float32)
    np.testing.assert_allclose(to_numpy(single.probabilities), expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"method": "rk4", "steps": 50}], ids=["dop853", "rk4"])
def test_samples_go_the_same_way(options):
    problem = configuration("lorenz63")
    pair = [draw(problem.mean, problem.covariance, 500, seed=9, backend=b) for b in ("numpy", "cupy")]
    expected, got = (propagate(lorenz63, x, 0.5, **options).samples for x in pair)
    np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-9, atol=1e-9)
