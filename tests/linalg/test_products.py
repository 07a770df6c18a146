"""What may stand beside a sparse matrix: any type, any number of columns, either side; and who owns which memory."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._kernels.sparse import crs
from ensemble.linalg import AffineMatrix, BcrsMatrix, CrsGraph, CrsMatrix, Diagonal, SymmetricCrsMatrix
from ensemble.scalar import Ensemble, SampleSet, sample_mean
from tests.conftest import examples

GRAPH = CrsGraph([0, 2, 2, 4], [0, 3, 1, 2], (3, 4))
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def stored(rng, n_samples=3, dtype=np.float64, sample_set=None):
    values = rng.standard_normal((GRAPH.nnz, n_samples)).astype(dtype)
    return CrsMatrix(GRAPH, Ensemble(values, sample_set))


def affine(rng, n_samples=3, dtype=np.float64, sample_set=None):
    terms = rng.standard_normal((GRAPH.nnz, 3)).astype(dtype)
    return AffineMatrix(GRAPH, terms, Ensemble(rng.standard_normal((2, n_samples)), sample_set))


BUILDS = pytest.mark.parametrize("build", [stored, affine])


@pytest.mark.parametrize("matrix", DTYPES)
@pytest.mark.parametrize("vector", [*DTYPES, np.int64, np.bool_])
def test_types_meet_as_scipys_do(rng, matrix, vector):
    A, x, z = stored(rng, dtype=matrix), rng.standard_normal(4).astype(vector), rng.standard_normal(3).astype(vector)
    for product, expected in ((A @ x, A.to_scipy(1) @ x), (A.T @ z, A.to_scipy(1).T @ z)):
        assert product.dtype == expected.dtype
        np.testing.assert_allclose(product.sample(1), expected, rtol=0, atol=1e-5 if expected.itemsize < 16 else 1e-14)


@pytest.mark.parametrize("n_samples", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_without_conversion_have_the_bits_of_the_kernel(rng, dtype, n_samples):
    values, samples = (rng.standard_normal((4, n_samples)).astype(dtype) for _ in range(2))
    A = CrsMatrix(GRAPH, values)
    expected = crs.spmv.implementations["numba"](*A.arrays, samples, None)
    for x in (samples, np.repeat(samples, 2, axis=0)[::2], np.asfortranarray(samples)):
        np.testing.assert_array_equal((A @ Ensemble(x)).samples, expected, strict=True)
        np.testing.assert_array_equal(A.apply(x), expected, strict=True)
    one, column = CrsMatrix(GRAPH, values[:, 0]), np.repeat(samples[:, 0], 2)[::2]
    for x in (column, column.copy()):
        np.testing.assert_array_equal(one @ x, expected[:, 0], strict=True)
        assert isinstance(A.sample(0) @ x, np.ndarray)
        assert isinstance(CrsMatrix(GRAPH, values[:, :1]) @ x, Ensemble)  # a batch of one


def test_products_without_conversion_refuse_what_others_refuse(rng):
    own, other = SampleSet(weights=[0.5, 0.3, 0.2]), SampleSet(weights=[0.2, 0.3, 0.5])
    A = stored(rng, sample_set=own)
    assert (CrsMatrix(GRAPH, A.values) @ Ensemble(rng.random((4, 3)), own)).sample_set is own
    with pytest.raises(ValueError, match="one sample set"):
        A @ Ensemble(rng.random((4, 3)), other)
    for matrix in (A, A.sample(0)):
        for x in (rng.random(3), Ensemble(rng.random((3, 3)))):
            with pytest.raises(ValueError, match="have 4 rows"):
                matrix @ x


def test_an_affine_matrix_of_single_precision_meets_double(rng):
    A, x = affine(rng, dtype=np.float32), rng.standard_normal(4)
    assert (A @ x).dtype == np.float64
    np.testing.assert_allclose((A @ x).sample(2), A.to_scipy(2).astype(np.float64) @ x, rtol=0, atol=1e-5)


def test_whole_numbers_and_bools_from_scipy_become_double():
    for dtype in (np.bool_, np.uint8, np.int64):
        assert CrsMatrix.from_scipy(sp.eye_array(3, dtype=dtype, format="csr")).dtype == np.float64


@BUILDS
@settings(max_examples=examples(20))
@given(
    columns=st.lists(st.integers(0, 3), max_size=3),
    n_samples=st.sampled_from([1, 2, 5]),
    wide=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_arrays_of_columns_are_their_columns(build, columns, n_samples, wide, seed):
    rng = np.random.default_rng(seed)
    A = build(rng, n_samples)
    x = Ensemble(rng.standard_normal((4, *columns, (n_samples if n_samples > 1 else 3) if wide else 1)))
    y = A @ x
    assert y.shape == (3, *columns)
    for place in np.ndindex(*columns):
        assert np.array_equal(y.samples[(slice(None), *place)], (A @ x[(slice(None), *place)]).samples)
    plain = A @ x.sample(0)
    assert plain.shape == (3, *columns)


@BUILDS
def test_rows_from_the_left_are_the_transpose(build, rng):
    A = build(rng)
    x, rows = Ensemble(rng.standard_normal((3, 3))), rng.standard_normal((2, 3))
    assert np.array_equal((x @ A).samples, (A.T @ x).samples)
    assert np.array_equal((rows @ A).samples, (A.T @ rows.T).T.samples)
    assert np.array_equal(([1.0, 2.0, 3.0] @ A).samples, (A.T @ np.array([1.0, 2.0, 3.0])).samples)
    assert np.array_equal((A @ [1.0, 2.0, 3.0, 4.0]).samples, (A @ np.arange(1.0, 5.0)).samples)


def test_matrices_meet_transposes_and_scipys(rng):
    A, B = stored(rng), sp.random_array((4, 2), density=0.5, rng=rng, format="csc")
    for i in range(3):
        a = A.to_scipy(i).toarray()
        np.testing.assert_allclose((A @ A.T).to_scipy(i).toarray(), a @ a.T, rtol=0, atol=1e-14)
        np.testing.assert_allclose((A.T @ A).to_scipy(i).toarray(), a.T @ a, rtol=0, atol=1e-14)
        np.testing.assert_allclose((A @ B).to_scipy(i).toarray(), a @ B.toarray(), rtol=0, atol=1e-14)
        np.testing.assert_allclose((B.T @ A.T).to_scipy(i).toarray(), (a @ B.toarray()).T, rtol=0, atol=1e-14)


@BUILDS
def test_a_transpose_has_the_face_of_a_matrix(build, rng):
    A = build(rng)
    T = A.T
    assert (T.shape, T.nnz, T.n_samples, T.dtype) == ((4, 3), 4, 3, np.float64)
    assert T.T is A
    for i in (0, 2, -1):
        dense = A.to_scipy(i).toarray().T
        assert np.array_equal(T.to_scipy(i).toarray(), dense)
        assert np.array_equal(T.sample(i).to_scipy().toarray(), dense)
        assert np.array_equal(T.to_matrix().to_scipy(i).toarray(), dense)
        assert np.array_equal(T.diagonal().sample(i), np.append(np.diag(dense), 0.0))
    assert np.array_equal(T.take_samples([2]).to_scipy().toarray(), A.to_scipy(2).toarray().T)


@BUILDS
@pytest.mark.parametrize("i", [3, -4])
def test_a_sample_that_is_not_there_is_refused(build, i, rng):
    A = build(rng)
    for ask in (A.to_scipy, A.sample, A.T.to_scipy, lambda i: A.take_samples([0, i])):
        with pytest.raises(IndexError, match=rf"must be from -3 to 2; got .*{i}"):
            ask(i)
    with pytest.raises(TypeError, match=r"must be from -3 to 2; got 1\.5"):
        A.sample(1.5)
    assert np.array_equal(A.take_samples([-1]).to_scipy().toarray(), A.to_scipy(2).toarray())


def test_the_graph_is_nobody_elses(rng):
    indptr, indices = np.array([0, 1, 2], np.int32), np.array([0, 1], np.int32)
    A = CrsMatrix(CrsGraph(indptr, indices, (2, 2)), np.array([0.0, 3.0]))
    indices[:], indptr[:] = 1, 0
    copy = A.to_scipy()
    copy.eliminate_zeros()
    copy.indices[:], copy.data[:] = 0, 7.0
    assert np.array_equal(A.to_scipy().toarray(), [[0.0, 0.0], [0.0, 3.0]])


def test_what_scipy_gives_is_left_alone():
    given = sp.csr_array((np.array([1.0, 2, 3, 0, 5]), [2, 0, 2, 1, 1], [0, 3, 3, 5]), shape=(3, 4))
    before = given.indices.copy(), given.data.copy()
    A = CrsMatrix.from_scipy(given)
    assert np.array_equal(given.indices, before[0]) and np.array_equal(given.data, before[1])
    assert np.array_equal(A.to_scipy().toarray(), given.toarray())


@BUILDS
def test_weights_travel_through_products(build, rng):
    weights = SampleSet(weights=[1.0, 2.0, 5.0])
    A = build(rng, sample_set=weights)
    x = rng.standard_normal(4)
    for y in (A @ x, A.T @ x[:3], x[:3] @ A, A.diagonal(), A.take_samples([0, 1, 2]) @ x, A.astype(np.float32) @ x,
              pickle.loads(pickle.dumps(A)) @ x, Diagonal(A.diagonal()) @ x[:3]):  # fmt: skip
        assert y.sample_set == weights
    y = A @ x
    np.testing.assert_allclose(sample_mean(y), np.average(y.samples, axis=1, weights=[1, 2, 5]), rtol=1e-14)
    assert A.take_samples([2, 0]).sample_set.weights.tolist() == [5.0, 1.0]
    with pytest.raises(ValueError, match="operands must share one sample set"):
        A @ Ensemble(np.ones((4, 3)), SampleSet(weights=[1.0, 1.0, 2.0]))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: CrsMatrix(GRAPH, ["a"] * 4), TypeError, "CrsMatrix: values must hold numbers; got dtype <U1"),
        (lambda: CrsMatrix.from_scipy(None), TypeError, "from_scipy: matrices must be a SciPy sparse matrix or a list"),
        (lambda: CrsMatrix.from_scipy([sp.coo_array([1.0])]), TypeError, r"matrices with two axes; got shape \(1,\)"),
        (lambda: CrsGraph([0], [], (0, -1)), ValueError, "shape must be an integer of at least 0; got -1"),
        (lambda: CrsGraph([0, 1], [0], (1.5, 1)), TypeError, "shape must be an integer of at least 0; got 1.5"),
        (lambda: CrsGraph([0, 1], [0], 1), TypeError, r"shape must be \(rows, columns\); got 1"),
        (lambda: AffineMatrix(GRAPH, 1j * np.ones((4, 2)), [1.0]), TypeError, "terms must be real; got dtype complex"),
        (lambda: AffineMatrix(GRAPH, np.ones((4, 2)), [1j]), TypeError, "coefficients must be real; got dtype complex"),
    ],
)
def test_bad_arguments_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("kind", ["crs", "transposed", "symmetric", "bcrs", "diagonal"])
def test_the_conjugate_transpose(rng, kind):
    values = rng.standard_normal((4, 3)) + 1j * rng.standard_normal((4, 3))
    full = CrsMatrix(CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2)), values)
    A = {
        "crs": full,
        "transposed": full.T,
        "symmetric": SymmetricCrsMatrix.from_crs(CrsMatrix(full.graph, values[[0, 1, 1, 2]])),
        "bcrs": BcrsMatrix(CrsGraph([0, 1], [0], (1, 1)), values.reshape(1, 2, 2, 3)),
        "diagonal": Diagonal(Ensemble(values[:2])),
    }[kind]
    x = Ensemble(rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3)))
    for s in range(3):
        dense = np.diag(values[:2, s]) if kind == "diagonal" else A.to_scipy(s).toarray()
        np.testing.assert_allclose((A.H @ x).sample(s), dense.conj().T @ x.sample(s), rtol=1e-13)
        np.testing.assert_allclose((A.conj() @ x).sample(s), dense.conj() @ x.sample(s), rtol=1e-13)
    real = CrsMatrix(full.graph, values.real)
    assert real.conj() is real and np.array_equal((real.H @ x).samples, (real.T @ x).samples)


def test_the_graph_of_a_product_of_many_rows_is_scipys(rng):
    """More rows share the marks of columns where there are many columns, and rows do not fill the last share."""
    for n, m in ((9001, 9001), (300, 20_000), (20_000, 70)):
        left = sp.random_array((n, m), density=3.0 / m, format="csr", rng=rng)
        right = sp.random_array((m, n), density=3.0 / n, format="csr", rng=rng)
        A, B = (CrsMatrix(CrsGraph(a.indptr, a.indices, a.shape), a.data[:, None]) for a in (left, right))
        expected = sp.csr_array(left @ right)
        expected.sort_indices()
        got = (A @ B).graph
        np.testing.assert_array_equal(got.indptr, expected.indptr)
        np.testing.assert_array_equal(got.indices, expected.indices)
