"""Matrices and vectors from coordinates and from elements: against sums in dense matrices, sample by sample."""

import importlib
import itertools

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ensemble._kernels.sparse.staged_sums import matrix_tables, staged_sums, vector_tables
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, ElementAssembly, add_elements
from ensemble.scalar import Ensemble, SampleSet

elements_module = importlib.import_module("ensemble.linalg.elements")


def elements(rng, n_elements, k, n):
    return np.array([rng.choice(n, k, replace=False) for _ in range(n_elements)], dtype=np.int64).reshape(-1, k)


@given(
    n=st.integers(1, 9), m=st.integers(1, 9), count=st.integers(0, 60), n_samples=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_coordinates_are_summed_in_input_order(n, m, count, n_samples, seed):
    rng = np.random.default_rng(seed)
    rows, cols = rng.integers(0, n, count), rng.integers(0, m, count)
    values = rng.standard_normal((count, n_samples)) * 10.0 ** rng.integers(-8, 8, (count, 1))
    A = CrsMatrix.from_coo(rows, cols, Ensemble(values), (n, m))
    expected = np.zeros((n, m, n_samples))
    for i, j, value in zip(rows, cols, values, strict=True):
        expected[i, j] += value
    for s in range(n_samples):
        np.testing.assert_array_equal(A.to_scipy(s).toarray(), expected[..., s])
        alone = CrsMatrix.from_coo(rows, cols, values[:, s], (n, m))
        np.testing.assert_array_equal(alone.values[:, 0], A.values[:, s])
    assert A.nnz == np.unique(rows * m + cols).size


@pytest.mark.parametrize(
    ("n_elements", "k", "n", "n_samples"), [(0, 4, 3, 1), (1, 4, 9, 2), (60, 3, 20, 1), (50, 4, 30, 5)]
)
def test_element_matrices_are_summed_in_ascending_order(n_elements, k, n, n_samples, rng):
    dofs = elements(rng, n_elements, k, n)
    matrices = rng.standard_normal((n_elements, k, k, n_samples)) * 10.0 ** rng.integers(-8, 8, (n_elements, 1, 1, 1))
    A = CrsMatrix.from_elements(dofs, Ensemble(matrices), (n, n))
    dense = np.zeros((n, n, n_samples))
    for nodes, matrix in zip(dofs, matrices, strict=True):
        dense[np.ix_(nodes, nodes)] += matrix
    for i in range(n_samples):
        np.testing.assert_array_equal(A.to_scipy(i).toarray(), dense[..., i])
        alone = CrsMatrix.from_elements(dofs, matrices[..., i], (n, n))
        np.testing.assert_array_equal(alone.values[:, 0], A.values[:, i])


def test_element_blocks_are_those_of_the_scalar_matrix(rng):
    dofs = elements(rng, 40, 4, 15)
    blocks = rng.standard_normal((40, 4, 4, 3, 2, 2))
    A = BcrsMatrix.from_elements(dofs, blocks, (45, 30))
    assert A.block_shape == (3, 2) and A.n_samples == 2
    dense = np.zeros((15, 15, 3, 2, 2))
    for nodes, block in zip(dofs, blocks, strict=True):
        dense[np.ix_(nodes, nodes)] += block
    for i in range(2):
        expected = dense[..., i].transpose(0, 2, 1, 3).reshape(45, 30)
        np.testing.assert_array_equal(A.to_scipy(i).toarray(), expected)
    one = BcrsMatrix.from_elements(dofs, blocks[..., 1], (45, 30))
    np.testing.assert_array_equal(one.values[..., 0], A.values[..., 1])


def test_an_unknown_may_stand_twice_in_an_element():
    A = CrsMatrix.from_elements([[0, 0], [0, 1]], np.array([[[1.0, 2.0], [3.0, 4.0]]] * 2), (2, 2))
    np.testing.assert_array_equal(A.to_scipy().toarray(), [[11.0, 2.0], [3.0, 4.0]])


def test_element_vectors_are_summed(rng):
    dofs, vectors = elements(rng, 50, 4, 30), rng.standard_normal((50, 4, 3, 5))
    expected = np.zeros((30, 3, 5))
    for nodes, vector in zip(dofs, vectors, strict=True):
        expected[nodes] += vector
    assembly = ElementAssembly(dofs, 30)
    np.testing.assert_array_equal(assembly.vector(vectors), expected)
    np.testing.assert_array_equal(assembly.vector(Ensemble(vectors)).samples, expected)
    np.testing.assert_array_equal(add_elements(dofs, vectors[:, :, 0, 0], 30), expected[:, 0, 0])


def test_an_assembly_serves_many_matrices(rng):
    dofs = elements(rng, 20, 3, 12)
    assembly = ElementAssembly(dofs, 12)
    for _ in range(2):
        matrices = rng.standard_normal((20, 3, 3))
        A = CrsMatrix.from_elements(assembly, matrices)
        assert A.graph is assembly.graph
        np.testing.assert_array_equal(A.values, CrsMatrix.from_elements(dofs, matrices, (12, 12)).values)
    chosen = SampleSet(points=rng.standard_normal((1, 2)))
    matrices = Ensemble(rng.standard_normal((20, 3, 3, 2)), chosen)
    assert CrsMatrix.from_elements(assembly, matrices).sample_set is chosen


def test_a_nan_stays_in_its_sample(rng):
    dofs, matrices = elements(rng, 20, 3, 12), rng.standard_normal((20, 3, 3, 3))
    good = CrsMatrix.from_elements(dofs, matrices, (12, 12)).values
    matrices[4, 1, 1, 2] = np.nan
    bad = CrsMatrix.from_elements(dofs, matrices, (12, 12)).values
    assert np.isnan(bad[:, 2]).sum() == 1
    np.testing.assert_array_equal(bad[:, :2], good[:, :2])


def test_other_libraries_give_the_same_numbers(rng):
    dofs, matrices = elements(rng, 20, 3, 12), rng.standard_normal((20, 3, 3, 2))
    moved = CrsMatrix.from_elements(dofs, strict.asarray(matrices), (12, 12))
    np.testing.assert_array_equal(np.asarray(moved.values), CrsMatrix.from_elements(dofs, matrices, (12, 12)).values)


@pytest.mark.parametrize(
    ("k", "inner"), [(4, (1,)), (4, (2, 2)), (4, (8,)), (4, (3,)), (3, (1,)), (8, (2,)), (5, (4,))]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_of_a_device_have_the_bits_of_the_cpu(k, inner, dtype, rng, as_device, monkeypatch):
    """Staged where numbers of an element and row are whole copies, else number by number; one row has no element."""
    dofs = elements(rng, 150, k, 60)
    matrices = rng.standard_normal((150, k, k, *inner)).astype(dtype)
    assembly, used = ElementAssembly(dofs, 61), []
    expected, sums = np.zeros((61, 61, *inner), dtype), np.zeros((61, *inner), dtype)
    for nodes, matrix in zip(dofs, matrices, strict=True):
        expected[np.ix_(nodes, nodes)] += matrix
        sums[nodes] += matrix[1]
    monkeypatch.setattr(elements_module, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(elements_module, "staged_sums", lambda *a: used.append(1) or staged_sums(*a))
    values = assembly.matrix_values(matrices)
    rows = assembly.graph.row_of_entry
    np.testing.assert_array_equal(values, expected[rows, assembly.graph.indices])
    np.testing.assert_array_equal(assembly.vector(np.ascontiguousarray(matrices[:, 1])), sums)
    whole = k * np.prod(inner) * np.dtype(dtype).itemsize % 16 == 0
    assert len(used) == (2 if whole and inner != (3,) else 0)


@pytest.mark.parametrize("dtypes", list(itertools.permutations([np.float64, np.float32])), ids=str)
@pytest.mark.parametrize("inner", [(1,), (4,)])
def test_an_assembly_serves_values_of_both_sizes(dtypes, inner, rng, as_device, monkeypatch):
    """In either order: blocks of smaller numbers have more rows. A device keeps what was copied under its name."""
    dofs = elements(rng, 800, 4, 300)
    assembly, on_cpu = ElementAssembly(dofs, 300), ElementAssembly(dofs, 300)
    given = [rng.standard_normal((800, 4, 4, *inner)).astype(dtype) for dtype in (*dtypes, dtypes[0])]
    vectors = [matrices[:, 0] for matrices in given]
    expected = [(on_cpu.matrix_values(m), on_cpu.vector(v)) for m, v in zip(given, vectors, strict=True)]
    monkeypatch.setattr(elements_module, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(CrsGraph, "_copies_on", lambda self, x, what, arrays: self._copies.setdefault(what, arrays))
    for matrices, vector, (values, sums) in zip(given, vectors, expected, strict=True):
        got = assembly.matrix_values(matrices)
        assert got.dtype == matrices.dtype
        np.testing.assert_array_equal(got, values)
        np.testing.assert_array_equal(assembly.vector(vector), sums)


@pytest.mark.parametrize("tables_of", [matrix_tables, vector_tables])
def test_long_rows_are_summed_number_by_number(tables_of):
    around = np.stack([np.zeros(4000, int), 1 + np.arange(4000), 2 + np.arange(4000), 3 + np.arange(4000)], axis=1)
    assert tables_of(ElementAssembly(around, 4003).map, np.arange(4003, dtype=np.int32), 1, 8) is None
    assert tables_of(ElementAssembly(around[:2000], 2003).map, np.arange(2003, dtype=np.int32), 1, 8) is not None


def test_bad_elements_and_coordinates_are_refused(rng):
    with pytest.raises(ValueError, match=r"dofs must lie between 0 and 4; got 7 in element 1 \(2 such elements\)"):
        CrsMatrix.from_elements([[0, 1], [2, 7], [-1, 0]], np.ones((3, 2, 2)), (5, 5))
    with pytest.raises(TypeError, match="dofs must be integers of shape"):
        ElementAssembly([[0.5, 1.0]], 3)
    with pytest.raises(ValueError, match=r"matrices must have shape \(2, 2, 2"):
        CrsMatrix.from_elements([[0, 1], [1, 2]], np.ones((3, 2, 2)), (3, 3))
    with pytest.raises(ValueError, match="matrices must have shape"):
        CrsMatrix.from_elements([[0, 1], [1, 2]], np.ones((2, 2)), (3, 3))
    with pytest.raises(ValueError, match="shape must be square"):
        CrsMatrix.from_elements([[0, 1]], np.ones((1, 2, 2)), (3, 4))
    with pytest.raises(TypeError, match="shape must be"):
        CrsMatrix.from_elements([[0, 1]], np.ones((1, 2, 2)))
    with pytest.raises(ValueError, match="shape must be multiples"):
        BcrsMatrix.from_elements([[0, 1]], np.ones((1, 2, 2, 3, 3)), (7, 7))
    with pytest.raises(ValueError, match="vectors must have shape"):
        add_elements([[0, 1]], np.ones((1, 3)), 3)
    with pytest.raises(ValueError, match="cols must lie between 0 and 1; got 2 at place 1"):
        CrsMatrix.from_coo([0, 1], [1, 2], [1.0, 1.0], (2, 2))
    with pytest.raises(ValueError, match="one entry each"):
        CrsMatrix.from_coo([0, 1], [1, 1], [1.0], (2, 2))
    for make in (lambda shape: CrsMatrix.from_coo([0, 2**14], [5, 5], [1.0, 2.0], shape),
                 lambda shape: CrsGraph(np.zeros(shape[0] + 1, int), [], shape)):  # fmt: skip
        with pytest.raises(ValueError, match=r"shape must have fewer than 2\*\*63 places"):
            make((2**14 + 1, 2**50))


def test_scipy_sums_the_same_coordinates(rng):
    rows, cols, values = rng.integers(0, 50, 400), rng.integers(0, 40, 400), rng.standard_normal(400)
    expected = sp.coo_array((values, (rows, cols)), shape=(50, 40)).tocsr()
    np.testing.assert_allclose(
        CrsMatrix.from_coo(rows, cols, values, (50, 40)).to_scipy().toarray(), expected.toarray()
    )
