"""Explicit zeros: what they do to the hierarchies of other samples."""

import numpy as np

from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation

A = poisson((30, 30))
ROWS, COLUMNS = A.graph.row_of_entry, A.graph.indices


def decoupled(n_decoupled):
    """The values of `A` with the first rows replaced by those of the identity, the zeros stored."""
    values = A.values[:, 0].copy()
    eliminated = (n_decoupled > ROWS) | (n_decoupled > COLUMNS)
    values[eliminated] = (ROWS == COLUMNS)[eliminated]
    return values


def test_samples_with_the_same_decoupled_rows_have_their_own_hierarchies():
    values = np.stack([c * decoupled(300) for c in (1.0, 2.0, 5.0)], axis=1)
    values[0, 1] = 3.0  # a diagonal entry decouples nothing
    together = CrsMatrix(A.graph, values)
    b = np.ones(A.shape[0])
    result = cg(together, b, M=smoothed_aggregation(together, coarse_size=50), rtol=1e-10)
    for s in range(3):
        alone = cg(together.sample(s), b, M=smoothed_aggregation(together.sample(s), coarse_size=50), rtol=1e-10)
        assert alone.iterations[0] == result.iterations[s]
        assert np.array_equal(alone.x, result.x.samples[:, s])


def test_a_row_decoupled_in_some_samples_stays_in_and_solutions_agree_to_the_tolerance():
    together = CrsMatrix(A.graph, np.stack([A.values[:, 0], decoupled(300)], axis=1))
    b = np.ones(A.shape[0])
    hierarchy = smoothed_aggregation(together, coarse_size=50)
    result = cg(together, b, M=hierarchy, rtol=1e-10)
    assert result.converged.all()
    for s, same_hierarchy in ((0, True), (1, False)):
        own = smoothed_aggregation(together.sample(s), coarse_size=50)
        alone = cg(together.sample(s), b, M=own, rtol=1e-10)
        assert (own.levels[1].A.shape == hierarchy.levels[1].A.shape) == same_hierarchy
        assert np.array_equal(alone.x, result.x.samples[:, s]) == same_hierarchy
        # two residuals within 1e-10 of b, and a condition number of about 400
        np.testing.assert_allclose(result.x.samples[:, s], alone.x, rtol=0, atol=1e-7 * np.abs(alone.x).max())
