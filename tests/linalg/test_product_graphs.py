"""Graphs of products, for rows in lines and rows at random: columns as SciPy finds them, ascending."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble._kernels.sparse import product_graphs


def pattern(matrix):
    """(indptr, indices) of a matrix of SciPy, columns ascending."""
    matrix = sp.csr_array(matrix)
    matrix.sort_indices()
    return matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)


def ones(shape, density, rng):
    return sp.random_array(shape, density=density, rng=rng, format="csr", data_sampler=lambda size: np.ones(size))


def in_lines(n, widths):
    """A matrix that couples each row to rows around it, at distances `widths` as well."""
    offsets = sorted({o + step for o in (-1, 0, 1) for w in widths for step in (-w, 0, w)})
    return sp.csr_array(sp.diags_array([np.ones(n - abs(o)) for o in offsets], offsets=offsets, shape=(n, n)))


def cases():
    rng = np.random.default_rng(3)
    for _ in range(40):
        n, m, k = (int(a) for a in rng.integers(0, 300, 3))
        yield ones((n, m), rng.uniform(0, 0.2), rng), ones((m, k), rng.uniform(0, 0.2), rng)
    line = in_lines(400, [20])
    yield line, line
    yield line, ones((400, 4000), 0.01, rng)
    yield line, sp.csr_array(np.ones((400, 1)))
    yield line, sp.csr_array((400, 70))
    gaps = sp.csr_array(np.ones((1, 9))[:, [0, 1, 3, 4, 5, 7, 8]] @ np.eye(9)[[0, 1, 3, 4, 5, 7, 8]])
    yield gaps, sp.csr_array(np.eye(9))
    yield sp.csr_array((0, 5)), sp.csr_array((5, 0))


@pytest.mark.parametrize(
    ("by_threes", "scratch"), [(None, None), (False, 0), (True, 0), (False, 40_000), (True, 40_000)]
)
def test_graphs_of_products_are_those_of_scipy(monkeypatch, by_threes, scratch):
    if by_threes is not None:  # how rows are united and where columns are written changes no graph
        monkeypatch.setattr(product_graphs, "_has_threes", lambda *_: by_threes)
        monkeypatch.setattr(product_graphs, "SCRATCH", scratch)  # none: columns are counted first
    for A, B in cases():
        found = product_graphs.product_graph(*pattern(A), *pattern(B), B.shape[1])
        for got, want in zip(found, pattern(A @ B), strict=True):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == np.int32


def test_rows_in_lines_are_united_by_threes():
    line = in_lines(400, [20])
    assert product_graphs._has_threes(pattern(line)[1], 400)
    assert not product_graphs._has_threes(pattern(ones((400, 400), 0.03, np.random.default_rng(5)))[1], 400)
