"""Products on matrices in any order of rows: bits, and the order that keeps neighbours together."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble._compile.numba import one_thread
from ensemble._kernels.sparse import crs
from ensemble.gallery import poisson
from ensemble.linalg import CrsGraph, CrsMatrix


def shuffled(A, seed):
    p = np.random.default_rng(seed).permutation(A.shape[0])
    return CrsMatrix.from_scipy(A.to_scipy()[p][:, p])


A = poisson((210, 210))  # 4 samples of a vector are 1.4 MB: more than `CACHE_BYTES`
S = shuffled(A, 61979)


def random(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("matrix, apart", [(A, False), (S, True)], ids=["natural", "shuffled"])
def test_rows_of_x_are_asked_for_ahead_where_columns_are_scattered(matrix, apart):
    graph = matrix.graph
    assert crs.scattered(graph.indptr, graph.indices, np.zeros((A.shape[0], 4))) == apart
    assert not crs.scattered(graph.indptr, graph.indices, np.zeros((A.shape[0], 1)))
    assert not crs.scattered(graph.indptr, graph.indices, np.zeros((A.shape[0], 2)))  # the cache holds it


def test_small_and_empty_graphs_are_not_scattered():
    for n in (0, 1, 2, 5):
        graph = CrsGraph(np.zeros(n + 1, int), np.zeros(0, int), (n, n))
        assert not crs.far_columns(graph.indptr, graph.indices)


def test_a_product_on_scattered_columns_has_the_bits_of_its_samples():
    many = CrsMatrix(S.graph, random((S.nnz, 4), 10271))
    x = random((S.shape[0], 4), 81799)
    y = many.apply(x)
    dot = many.apply_dot(x)
    assert np.array_equal(dot[0], y)
    for s in range(4):
        alone = many.sample(s).apply(x[:, s : s + 1].copy())
        assert np.array_equal(alone[:, 0], y[:, s])
        assert np.array_equal(alone[:, 0], many.to_scipy(s) @ x[:, s])


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("n_samples", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_few_samples_are_the_references_to_the_bit(dtype, n_samples, far, monkeypatch):
    monkeypatch.setattr(crs, "CACHE_BYTES", 0)  # columns far apart are prefetched
    rows = sp.random_array((3000, 3000), density=0.003, rng=np.random.default_rng(77017), format="csr")
    if not far:
        rows = sp.diags_array(np.ones(10), offsets=range(-4, 6), shape=(3000, 3000))
    graph = CrsMatrix.from_scipy(rows).graph
    values, x, b = (
        random((n, n_samples), k).astype(dtype) for k, n in ((77021, graph.nnz), (77023, 3000), (77029, 3000))
    )
    values[5, 0] = np.nan
    B = CrsMatrix(graph, values)
    assert crs.scattered_few_samples(graph.indptr, graph.indices, values, x) == far
    for kernel, given in ((crs.spmv, ()), (crs.residual, (b,))):
        expected = kernel.reference(*B.arrays, x, *given, None)
        for limited in (False, True):
            if limited:
                with one_thread():
                    got = kernel(*B.arrays, x, *given, None)
            else:
                got = kernel(*B.arrays, x, *given, None)
            assert got.dtype == dtype and np.array_equal(got, expected, equal_nan=True)
    total = b.copy()
    assert np.array_equal(
        crs.spmv_add(*B.arrays, x, total), crs.spmv_add.reference(*B.arrays, x, b, ), equal_nan=True
    )  # fmt: skip
    for got, expected in zip(crs.spmv_dot(*B.arrays, x, None), crs.spmv_dot.reference(*B.arrays, x, None), strict=True):
        assert np.array_equal(got, expected, equal_nan=True)


def test_a_reordered_graph_keeps_neighbours_together():
    r = S.graph.reordered()
    assert sorted(r.rows) == list(range(S.shape[0]))
    width = np.abs(r.graph.row_of_entry - r.graph.indices).max()
    assert width <= 2 * 210  # a level of the five-point mesh
    assert not crs.far_columns(r.graph.indptr, r.graph.indices)
    moved = CrsMatrix(r.graph, S.values[r.entries, 0])
    x = random(S.shape[0], 19301)
    assert (moved.to_scipy() - S.to_scipy()[r.rows][:, r.rows]).nnz == 0
    # the five terms of a row are added in another order
    np.testing.assert_allclose(moved @ x[r.rows], (S @ x)[r.rows], rtol=0, atol=1e-13)


def test_a_graph_that_is_not_square_has_no_such_order():
    with pytest.raises(ValueError, match=r"CrsGraph.reordered: the graph must be square; got shape \(2, 3\)"):
        CrsGraph([0, 1, 2], [0, 2], (2, 3)).reordered()
