"""Entries of matrices as SciPy's sparse arrays have them: parts, sums, products entry by entry, diagonals."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble._backend import to_numpy
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix
from ensemble.scalar import Ensemble, SampleSet

RNG = np.random.default_rng(40127)


def matrices(n_samples, dtype=np.float64, shape=(5, 4), seed=3):
    """SciPy matrices of one pattern, and the same as one `CrsMatrix`."""
    rng = np.random.default_rng(seed)
    pattern = rng.random(shape) < 0.5
    made = []
    for _ in range(n_samples):
        dense = rng.normal(size=shape) + (1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else 0.0)
        made.append(sp.csr_array(np.where(pattern, dense, 0.0).astype(dtype)))
    return made, CrsMatrix.from_scipy(made)


def assert_samples(got, wanted, exact=True):
    """Every sample of the matrix or ensemble `got` equals what SciPy has for it."""
    for s, one in enumerate(wanted):
        one = one.toarray() if sp.issparse(one) else np.asarray(one)
        mine = got.sample(s) if isinstance(got, Ensemble) else got.to_scipy(s).toarray()
        assert mine.dtype.kind == one.dtype.kind
        one = one.astype(mine.dtype)  # SciPy makes float64 of some results in float32
        if exact:
            np.testing.assert_array_equal(mine, one)
        else:
            np.testing.assert_allclose(mine, one, rtol=1e-14 if one.dtype.itemsize >= 8 else 1e-5, atol=1e-14)


CASES = [(1, np.float64), (3, np.float64), (3, np.complex128), (2, np.float32), (1, np.complex128)]

CALLS = {
    "real": lambda A: A.real,
    "imag": lambda A: A.imag,
    "abs": abs,
    "toarray": lambda A: A.toarray(),
    "times a number": lambda A: A.multiply(2.5),
    "times a row": lambda A: A.multiply(np.arange(4.0).astype(A.dtype)),
    "times one row": lambda A: A.multiply(np.arange(4.0).astype(A.dtype)[None, :]),
    "times one column": lambda A: A.multiply(np.arange(5.0).astype(A.dtype)[:, None]),
    "times a dense matrix": lambda A: A.multiply(np.arange(20.0).reshape(5, 4).astype(A.dtype)),
    "times a sparse matrix": lambda A: A.multiply(sp.csr_array(np.tri(5, 4).astype(A.dtype))),
    "times itself": lambda A: A.multiply(A),
    "transposed parts": lambda A: A.T.imag,
    "transposed abs": lambda A: abs(A.T),
    "transposed array": lambda A: A.T.toarray(),
    "transposed times a row": lambda A: A.T.multiply(np.arange(5.0).astype(A.dtype)),
}

SUMS = {
    "sum": lambda A: A.sum(),
    "of columns": lambda A: A.sum(axis=0),
    "of rows": lambda A: A.sum(axis=1),
    "of the last axis": lambda A: A.sum(axis=-1),
    "of the first axis": lambda A: A.sum(axis=-2),
    "of transposed columns": lambda A: A.T.sum(axis=0),
}


@pytest.mark.parametrize(("n_samples", "dtype"), CASES)
@pytest.mark.parametrize("name", CALLS)
def test_each_sample_is_what_scipy_has(name, n_samples, dtype):
    given, A = matrices(n_samples, dtype)
    assert_samples(CALLS[name](A), [CALLS[name](one) for one in given])


@pytest.mark.parametrize(("n_samples", "dtype"), CASES)
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_scipys_up_to_rounding_and_each_samples_own(name, n_samples, dtype):
    given, A = matrices(n_samples, dtype)
    got = SUMS[name](A)
    assert_samples(got, [SUMS[name](one) for one in given], exact=False)
    for s in range(n_samples):
        np.testing.assert_array_equal(got.sample(s), SUMS[name](A.sample(s)).sample(0))


@pytest.mark.parametrize(("n_samples", "dtype"), CASES)
@pytest.mark.parametrize("k", [-4, -2, -1, 0, 1, 3])
@pytest.mark.parametrize("values", [7.5, [1.0, 2.0], np.arange(9.0)])
def test_a_diagonal_is_written_as_scipy_writes_it(values, k, n_samples, dtype):
    given, A = matrices(n_samples, dtype)
    for one in given:
        one.setdiag(values, k)
    assert A.setdiag(values, k) is None
    assert_samples(A, given)
    assert (np.diff(A.graph.keys) > 0).all()
    np.testing.assert_array_equal(A.diagonal().sample(0)[:4], given[0].diagonal())


def test_samples_have_their_own_factors_and_diagonals():
    given, A = matrices(3)
    row, number = RNG.normal(size=(4, 3)), RNG.normal(size=3)
    assert_samples(A.multiply(Ensemble(row)), [one.multiply(row[:, s]) for s, one in enumerate(given)])
    assert_samples(A.multiply(Ensemble(number)), [one * number[s] for s, one in enumerate(given)])
    shared_one, shared = matrices(1)
    assert_samples(shared.multiply(Ensemble(row)), [shared_one[0].multiply(row[:, s]) for s in range(3)])
    assert_samples(A.multiply(shared), [one.multiply(shared_one[0]) for one in given])
    shared.setdiag(Ensemble(row))
    assert shared.n_samples == 3
    for s in range(3):
        shared_one[0].setdiag(row[:, s])
        np.testing.assert_array_equal(shared.to_scipy(s).toarray(), shared_one[0].toarray())


def test_a_nan_stays_in_its_sample_and_meets_absent_entries_as_scipy_has_it():
    given, A = matrices(2)
    factors = sp.csr_array(np.full((5, 4), np.inf))
    assert_samples(A.multiply(factors), [one.multiply(factors) for one in given])
    A.setdiag(Ensemble(np.array([1.0, np.nan])))
    assert np.isfinite(A.to_scipy(0).data).all()


def test_sample_sets_go_along_and_graphs_stay_shared():
    drawn = SampleSet(weights=[1.0, 2.0, 1.0])
    _, A = matrices(3)
    A = CrsMatrix(A.graph, Ensemble(A.values, drawn))
    for got in (
        A.real,
        A.imag,
        abs(A),
        A.sum(0),
        A.sum(),
        A.multiply(2.0),
        A.toarray(),
        A.multiply(np.ones(4)),
        A.T.sum(),
    ):
        assert got.sample_set is drawn
    assert A.real is A
    assert abs(A).graph is A.graph
    before, other = A.values.copy(), CrsMatrix(A.graph, A.values)
    transposed = A.T
    A.setdiag(1.0, -4)
    np.testing.assert_array_equal(other.values, before)  # other matrices on the graph stay as they are
    assert transposed.nnz == A.nnz
    transposed.setdiag(5.0, 4)
    assert A.to_scipy(0)[4, 0] == 5.0


ERRORS = {
    "an axis": (lambda A: A.sum(axis=2), ValueError, r"CrsMatrix.sum: axis must be None, 0, 1, -1 or -2; got 2"),
    "a shape": (lambda A: A.multiply(np.ones(3)), ValueError, r"CrsMatrix.multiply: other must broadcast to the shape"),
    "two shapes": (
        lambda A: A.multiply(sp.eye_array(4)),
        ValueError,
        "multiply: matrices must have one shape",
    ),
    "samples": (
        lambda A: A.multiply(Ensemble(np.ones((4, 2)))),
        ValueError,
        "multiply: operands must have",
    ),
    "a text": (lambda A: A.multiply("a"), TypeError, r"CrsMatrix \*: the other operand must be a number"),
    "a diagonal": (lambda A: A.setdiag(1.0, 4), ValueError, r"CrsMatrix.setdiag: k must be from -4 to 3; got 4"),
    "samples of a diagonal": (
        lambda A: A.setdiag(Ensemble(np.ones(2))),
        ValueError,
        "setdiag: values must have",
    ),
    "two axes": (
        lambda A: A.setdiag(np.ones((2, 2))),
        ValueError,
        "setdiag: values must be a number",
    ),
    "complex numbers": (lambda A: A.setdiag(1j), TypeError, r"CrsMatrix.setdiag: values must fit the type float64"),
    "no numbers": (lambda A: A.setdiag("a"), TypeError, r"Ensemble: samples must hold numbers"),
    "an array": (np.asarray, TypeError, r"CrsMatrix: .* A.toarray\(\)"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_argument(name):
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call(matrices(3)[1])


def test_other_matrices_multiply_by_their_entries():
    given = sp.csr_array(np.array([[2.0, 1.0], [1.0, 3.0]]))
    symmetric = SymmetricCrsMatrix.from_crs(CrsMatrix.from_scipy(given))
    np.testing.assert_array_equal(
        CrsMatrix.from_scipy(given).multiply(symmetric).to_scipy().toarray(), (given * given).toarray()
    )


@pytest.mark.parametrize("name", ["tocsr", "data", "indptr", "indices", "dot", "copy", "todense", "getrow", "power"])
def test_other_names_of_scipy_say_what_to_use(name):
    with pytest.raises(AttributeError, match=f"CrsMatrix: the attribute {name} must be .* Use"):
        getattr(matrices(2)[1], name)
    assert not hasattr(matrices(2)[1], name)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_other_array_libraries_give_the_same(library):
    xp = pytest.importorskip(library)
    _, A = matrices(3)
    row = RNG.normal(size=(4, 3))
    for name in ("real", "imag", "abs", "toarray", "times itself"):
        got, wanted = CALLS[name](CrsMatrix(A.graph, xp.asarray(A.values))), CALLS[name](A)
        got, wanted = (x.samples if isinstance(x, Ensemble) else x.values for x in (got, wanted))
        assert type(got) is type(xp.asarray(A.values))
        np.testing.assert_array_equal(to_numpy(got), wanted)
    B = CrsMatrix(A.graph, xp.asarray(A.values))
    for matrix, values in ((A, row), (B, xp.asarray(row))):
        matrix.setdiag(Ensemble(values), -1)
    product = B.multiply(Ensemble(xp.asarray(row)))
    np.testing.assert_array_equal(to_numpy(product.values), A.multiply(Ensemble(row)).values)
    np.testing.assert_allclose(to_numpy(B.sum(axis=0).samples), A.sum(axis=0).samples, rtol=1e-14)
