"""Orders of rows whose runs are compact pieces of space or of a graph."""

import numpy as np
import pytest

from ensemble._kernels.sparse.compact_order import compact_order, graph_points
from ensemble.apps import fem
from ensemble.linalg import CrsMatrix, ElementAssembly


def elements_of_runs(tets, order, run):
    """The mean number of elements around the rows of a run."""
    place = np.empty(order.size, dtype=int)
    place[order] = np.arange(order.size)
    pairs = np.unique(np.stack([np.repeat(np.arange(len(tets)), 4), place[tets].reshape(-1) // run]), axis=1)
    return np.bincount(pairs[1]).mean()


@pytest.mark.parametrize("run", [1, 6, 64])
@pytest.mark.parametrize("n", [0, 1, 5, 1000])
def test_runs_of_points_are_near(n, run, rng):
    points = rng.uniform(size=(n, 2))
    order = compact_order(points, run)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    if n == 1000 and run > 1:
        sizes = [np.ptp(points[order[i : i + run]], axis=0).max() for i in range(0, n - n % run, run)]
        assert np.mean(sizes) < 1.7 * np.sqrt(run / n)


def test_equal_points_end():
    np.testing.assert_array_equal(np.sort(compact_order(np.zeros((3000, 3)))), np.arange(3000))


def test_runs_of_a_graph_have_fewer_elements_than_levels():
    mesh = fem.TetMesh.box(12, jitter=0.1, seed=3).renumbered("shuffled", seed=5)
    graph = ElementAssembly(mesh.tets, mesh.n_nodes).graph
    order = compact_order(graph_points(graph.indptr, graph.indices), 64)
    np.testing.assert_array_equal(np.sort(order), np.arange(mesh.n_nodes))
    of_levels = elements_of_runs(mesh.tets, graph.reordered().rows, 64)
    of_points = elements_of_runs(mesh.tets, compact_order(mesh.points, 64), 64)
    made = elements_of_runs(mesh.tets, order, 64)
    assert made < 0.85 * of_levels and made < 1.1 * of_points


def test_parts_of_a_graph_stay_together():
    """Two boxes without a way between them, and rows without entries."""
    tets = fem.TetMesh.box(4).tets
    n = int(tets.max()) + 1
    both = ElementAssembly(np.concatenate([tets, tets + n]), 2 * n + 3).graph
    points = graph_points(both.indptr, both.indices)
    assert np.isfinite(points).all()
    half = compact_order(points, n + 3)[:n]
    assert max(np.mean(half < n), np.mean(half >= n)) > 0.9


@pytest.mark.parametrize("n", [0, 1, 3])
def test_graphs_of_few_rows(n):
    graph = CrsMatrix.from_coo(np.arange(n), np.arange(n), np.ones(n), (n, n)).graph
    points = graph_points(graph.indptr, graph.indices)
    assert points.shape == (n, 3)
    np.testing.assert_array_equal(np.sort(compact_order(points)), np.arange(n))
