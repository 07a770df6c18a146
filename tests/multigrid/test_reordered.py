"""Hierarchies of matrices in a scattered order: levels in their own order, all else in the caller's."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import ensemble as en
from ensemble.gallery import poisson
from ensemble.krylov import bicgstab, cg, gmres
from ensemble.linalg import AffineMatrix, CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid import (
    AggregationHierarchy,
    GaussSeidel,
    ReorderedHierarchy,
    approximate_ideal_restriction,
    scaled_aggregation,
    smoothed_aggregation,
)

FACTORS = np.array([1.0, 0.3, 7.0])


def random(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def permutation(n, block_size=1):
    p = np.random.default_rng(61979).permutation(n // block_size)
    return (p[:, None] * block_size + np.arange(block_size)).reshape(-1)


def pair(matrix, block_size=1, factors=FACTORS):
    """A matrix of three samples in its natural order and in a random one, and that order."""
    matrix = sp.csr_array(matrix)
    p = permutation(matrix.shape[0], block_size)
    found = []
    for m in (matrix, sp.csr_array(matrix[p][:, p])):
        one = CrsMatrix.from_scipy(m)
        diagonal = one.graph.row_of_entry == one.graph.indices
        shift = 1.0 + 0.01 * diagonal[:, None] * np.arange(factors.size)
        found.append(CrsMatrix(one.graph, one.values * shift * factors))
    return *found, p


def tetrahedra(n=11):
    """A graph Laplacian on the mesh of n^3 nodes and six tetrahedra a cube, whose inner rows have 15 entries."""
    one, right = sp.eye_array(n), sp.eye_array(n, k=1)
    W = sp.csr_array((n**3, n**3))
    for edge in range(1, 8):
        steps = [right if edge >> axis & 1 else one for axis in range(3)]
        W = W + sp.kron(steps[0], sp.kron(steps[1], steps[2]))
    W = W + W.T
    return sp.csr_array(sp.diags_array(W.sum(axis=1) + 0.1) - W)


def nodes_of_two(n):
    return sp.kron(poisson((n, n)).to_scipy(), np.array([[2.0, 0.5], [0.5, 1.0]]), format="csr")


def upwind(n):
    line = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n))
    one = sp.eye_array(n)
    laplacian = poisson((n, n)).to_scipy()
    return sp.csr_array(sp.kron(line, one) + 0.5 * sp.kron(one, line) + 0.01 * laplacian)


MATRICES = {
    "2-D": (lambda: poisson((60, 60)).to_scipy(), {}),
    "3-D": (lambda: poisson((15, 15, 15)).to_scipy(), {}),
    "tetrahedra": (tetrahedra, {}),
    "nodes of two": (lambda: nodes_of_two(45), {"block_size": 2}),
    "Gauss-Seidel": (lambda: poisson((60, 60)).to_scipy(), {"smoother": GaussSeidel()}),
    "strength": (lambda: poisson((60, 60)).to_scipy(), {"strength": 0.1}),
}


@pytest.mark.parametrize("name", MATRICES)
def test_a_shuffled_matrix_takes_the_iterations_of_the_natural_order(name):
    make, options = MATRICES[name]
    natural, shuffled, p = pair(make(), options.get("block_size", 1))
    M, N = (smoothed_aggregation(A, **options) for A in (shuffled, natural))
    assert isinstance(M, ReorderedHierarchy) and type(N) is AggregationHierarchy
    x = random((p.size, 3), 104729)
    b = natural @ en.Ensemble(x)
    here = cg(shuffled, en.Ensemble(b.samples[p]), M=M, rtol=1e-10)
    there = cg(natural, b, M=N, rtol=1e-10)
    assert np.all(here.converged) and np.all(here.iterations <= there.iterations + 2)
    np.testing.assert_allclose(here.x.samples, x[p], rtol=0, atol=1e-6)
    for s in range(0 if name == "strength" else 3):  # strength is judged on all samples together
        alone = shuffled.sample(s)
        answer = cg(alone, en.Ensemble(b.samples[p, s : s + 1]), M=smoothed_aggregation(alone, **options), rtol=1e-10)
        assert np.array_equal(answer.x.samples[:, 0], here.x.samples[:, s])
        assert answer.iterations[0] == here.iterations[s]


def test_all_levels_are_local():
    _, shuffled, _ = pair(poisson((60, 60)).to_scipy())
    M = smoothed_aggregation(shuffled)
    for level in M.levels[:-1]:
        distance = np.abs(level.A.graph.row_of_entry.astype(int) - level.A.graph.indices)
        assert distance.mean() < 0.05 * level.A.shape[0]


def test_v_cycles_are_those_of_the_reordered_matrix():
    _, shuffled, p = pair(poisson((40, 40)).to_scipy())
    r = shuffled.graph.reordered()
    M = smoothed_aggregation(shuffled)
    inner = smoothed_aggregation(CrsMatrix(r.graph, shuffled.values[r.entries]), reorder=False)
    for dtype in (np.float64, np.float32):
        v = random((p.size, 3), 15485863).astype(dtype)
        expected = inner.apply(v[r.rows])
        assert np.array_equal(M.apply(v)[r.rows], expected)
        out = np.empty_like(v)
        assert np.array_equal(M.precondition_dot(v, out), inner.precondition_dot(v[r.rows], np.empty_like(v)))
        assert np.array_equal(out, expected[r.places])
    assert np.array_equal((M @ en.Ensemble(v)).samples, out)


def test_other_operators_get_each_vector_in_their_own_order():
    _, shuffled, p = pair(poisson((40, 40)).to_scipy())
    M = smoothed_aggregation(shuffled)

    class Same:
        shape, n_samples = shuffled.shape, 3

        def __matmul__(self, x):
            return shuffled @ x

    b, start = en.Ensemble(random((p.size, 3), 32452843)), en.Ensemble(random((p.size, 3), 32452867))
    results = [solver(A, b, M=M, x0=start, rtol=1e-10) for solver in (cg, bicgstab, gmres) for A in (Same(), shuffled)]
    for result in results:
        assert np.all(result.converged)
        np.testing.assert_allclose(result.x.samples, results[0].x.samples, rtol=0, atol=1e-6)


def test_update_and_samples_are_those_of_new_hierarchies():
    _, shuffled, p = pair(poisson((40, 40)).to_scipy())
    _, other, _ = pair(poisson((40, 40)).to_scipy(), factors=np.array([3.0, 1.0]))
    v = random((p.size, 2), 49979687)
    M = smoothed_aggregation(shuffled)
    two = M.take_samples(np.array([2, 0]))
    assert np.array_equal(two.apply(v), smoothed_aggregation(shuffled.take_samples([2, 0])).apply(v))
    assert np.array_equal(M.sample(1).apply(v[:, :1]), smoothed_aggregation(shuffled.sample(1)).apply(v[:, :1]))
    assert M.update(other) is M and M.n_samples == 2 and M.shape == other.shape
    assert np.array_equal(M.apply(v), smoothed_aggregation(other).apply(v))
    assert np.array_equal(pickle.loads(pickle.dumps(M)).apply(v), M.apply(v))
    moved = CrsMatrix(M.reordering.graph, other.values)  # the graph of the levels, not the caller's
    with pytest.raises(ValueError, match=r"Hierarchy.update: A must have the graph the hierarchy was built for"):
        M.update(moved)
    assert M.in_own_order(moved) is None
    with pytest.raises(TypeError, match=r"Hierarchy.update: A must be a CrsMatrix"):
        M.update(aslinearoperator(other.to_scipy()))


def test_a_stored_triangle_has_the_bits_of_the_whole_matrix():
    _, shuffled, p = pair(poisson((40, 40)).to_scipy())
    half = SymmetricCrsMatrix.from_crs(shuffled)
    b = en.Ensemble(random((p.size, 3), 67867967))
    M = smoothed_aggregation(half)
    assert isinstance(M, ReorderedHierarchy)
    assert np.array_equal(cg(half, b, M=M).x.samples, cg(shuffled, b, M=smoothed_aggregation(shuffled)).x.samples)


def test_a_near_nullspace_follows_the_rows():
    scale = np.exp(random(3600, 86028121))
    scaled = sp.csr_array(sp.diags_array(scale) @ poisson((60, 60)).to_scipy() @ sp.diags_array(scale))
    natural, shuffled, p = pair(scaled)
    known = 1.0 / scale
    b = random(3600, 86028157)
    here = cg(shuffled, b[p], M=smoothed_aggregation(shuffled, near_nullspace=known[p]))
    there = cg(natural, b, M=smoothed_aggregation(natural, near_nullspace=known))
    assert np.all(here.iterations <= there.iterations + 2)


def test_the_rows_of_a_node_stay_together():
    _, shuffled, _ = pair(nodes_of_two(45), 2)
    M = smoothed_aggregation(shuffled, block_size=2)
    rows = M.reordering.rows.reshape(-1, 2)
    assert np.array_equal(rows[:, 0] % 2, np.zeros(len(rows))) and np.array_equal(rows[:, 1], rows[:, 0] + 1)
    with pytest.raises(ValueError, match=r"CrsGraph.reordered: block_size must divide the 4050 rows; got 4"):
        shuffled.graph.reordered(4)


def test_reduction_hierarchies_of_shuffled_convection():
    natural, shuffled, p = pair(upwind(50))
    M = approximate_ideal_restriction(shuffled, strength="graph")
    assert isinstance(M, ReorderedHierarchy) and repr(M).startswith("ReductionHierarchy")
    b = random((p.size, 3), 49979693)
    here = gmres(shuffled, en.Ensemble(b[p]), M=M)
    there = gmres(natural, en.Ensemble(b), M=approximate_ideal_restriction(natural, strength="graph"))
    assert np.all(here.converged) and np.all(here.iterations <= there.iterations + 2)
    np.testing.assert_allclose(here.x.samples, there.x.samples[p], rtol=0, atol=1e-5)
    for s in range(3):
        alone = shuffled.sample(s)
        M = approximate_ideal_restriction(alone, strength="graph")
        assert np.array_equal(gmres(alone, b[p, s], M=M).x, here.x.samples[:, s])


def test_the_graph_alone_decides():
    natural, shuffled, _ = pair(poisson((40, 40)).to_scipy())
    assert type(smoothed_aggregation(natural)) is AggregationHierarchy
    assert isinstance(smoothed_aggregation(natural, reorder=True), ReorderedHierarchy)
    assert type(smoothed_aggregation(shuffled, reorder=False)) is AggregationHierarchy
    for samples in ([0], [0, 1, 2] * 5):
        assert isinstance(smoothed_aggregation(shuffled.take_samples(samples)), ReorderedHierarchy)
    assert type(smoothed_aggregation(pair(poisson((30, 30)).to_scipy())[1])) is AggregationHierarchy  # small
    rng = np.random.default_rng(122949823)  # no order of a random graph is local
    ends = rng.integers(0, 3000, (2, 6000))
    W = sp.coo_array((np.ones(6000), ends), shape=(3000, 3000))
    W = sp.csr_array(W + W.T)
    L = CrsMatrix.from_scipy(sp.diags_array(W.sum(axis=1) + 1.0) - W)
    assert type(smoothed_aggregation(L)) is AggregationHierarchy
    M = smoothed_aggregation(L, reorder=True)
    assert np.all(cg(L, np.ones(3000), M=M).converged)


def test_refusals_name_the_argument():
    A = poisson((12,))
    with pytest.raises(ValueError, match="smoothed_aggregation: reorder must be True, False or 'auto'; got 'yes'"):
        smoothed_aggregation(A, reorder="yes")
    with pytest.raises(ValueError, match="approximate_ideal_restriction: reorder must be True, False or 'auto'; got 1"):
        approximate_ideal_restriction(A, reorder=1)
    affine = AffineMatrix(A.graph, np.concatenate([A.values, A.values], axis=1), en.Ensemble(np.zeros((1, 2))))
    with pytest.raises(ValueError, match="reorder must be False or 'auto' for an AffineMatrix"):
        smoothed_aggregation(affine, reorder=True)
    with pytest.raises(ValueError, match="scaled_aggregation: options must not name reorder"):
        scaled_aggregation(A, A, reorder=True)
    assert smoothed_aggregation(CrsMatrix(CrsGraph([0], [], (0, 0)), np.zeros((0, 1))), reorder=True).shape == (0, 0)
