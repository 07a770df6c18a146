"""Affine matrices: against their stored values, sample by sample to the bit, and the arithmetic they rest on."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ensemble import gallery
from ensemble._kernels.sparse.fma import fma
from ensemble.krylov import cg
from ensemble.linalg import AffineMatrix, CrsGraph, CrsMatrix
from ensemble.scalar import Ensemble

EPS = np.finfo(float).eps
SIZES = st.sampled_from([1, 3, 7, 33])
"""Numbers of samples that make tiles of 1, 2, 4 and 32: each width is compiled for each number of terms."""


def random_affine(rng, n, columns, m, n_samples, dtype=np.float64):
    pattern = sp.random_array((n, columns), density=0.4, rng=rng, format="csr")
    pattern.sort_indices()
    graph = CrsGraph(pattern.indptr, pattern.indices, (n, columns))
    terms = rng.standard_normal((graph.nnz, m + 1)).astype(dtype)
    return AffineMatrix(graph, terms, Ensemble(rng.standard_normal((m, n_samples)).astype(dtype)))


def spd_affine(n_samples, seed=40961):
    """Poisson on a square plus two positive multiples of its parts: positive definite for coefficients in [0, 1)."""
    mean, other = gallery.poisson((12, 11)), gallery.anisotropic((12, 11), 1)
    terms = np.concatenate([mean.values, other.values, 0.3 * mean.values], axis=1)
    return AffineMatrix(mean.graph, terms, Ensemble(np.random.default_rng(seed).random((2, n_samples))))


@given(
    n=st.integers(1, 12), columns=st.integers(1, 12), m=st.sampled_from([0, 2]), n_samples=SIZES,
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_products_are_those_of_the_stored_values(n, columns, m, n_samples, seed):
    """A row of at most 12 entries, m + 1 terms: each of 12 (m + 1) products and sums errs by eps of its magnitude."""
    rng = np.random.default_rng(seed)
    A = random_affine(rng, n, columns, m, n_samples)
    x, b = rng.standard_normal((columns, n_samples)), rng.standard_normal((n, n_samples))
    magnitude = np.abs(A.terms[:, :1]) + np.abs(A.terms[:, 1:]) @ np.abs(A.coefficients)
    for i in range(n_samples):
        stored = A.to_scipy(i)
        size = sp.csr_array((magnitude[:, i], stored.indices, stored.indptr), shape=stored.shape)
        bound = (12 * (m + 1) + 2) * EPS
        assert np.all(np.abs((A @ Ensemble(x)).sample(i) - stored @ x[:, i]) <= bound * (size @ np.abs(x[:, i])))
        assert np.all(np.abs((A.T @ Ensemble(b)).sample(i) - stored.T @ b[:, i]) <= bound * (size.T @ np.abs(b[:, i])))
        r = A.residual(x, b)[:, i]
        assert np.all(np.abs(r - (b[:, i] - stored @ x[:, i])) <= bound * (size @ np.abs(x[:, i]) + np.abs(b[:, i])))


@given(m=st.sampled_from([0, 2]), n_samples=SIZES, seed=st.integers(0, 2**32 - 1))
def test_a_sample_has_the_bits_of_its_own_run(m, n_samples, seed):
    rng = np.random.default_rng(seed)
    A = random_affine(rng, 9, 9, m, n_samples)
    x = rng.standard_normal((9, n_samples))
    y, (z, inner) = A @ Ensemble(x), A.apply_dot(x)
    chosen = rng.integers(0, n_samples, 3)
    part = A.take_samples(chosen)
    assert np.array_equal((part @ Ensemble(x[:, chosen])).samples, y.samples[:, chosen])
    assert np.array_equal(z, y.samples)
    for i in chosen:
        alone = A.sample(i)
        assert np.array_equal(alone @ x[:, i], y.sample(i))
        assert alone.apply_dot(x[:, i : i + 1].copy())[1][0] == inner[i]
        assert np.array_equal(alone.diagonal().sample(0), A.diagonal().sample(i))
        assert np.array_equal(alone.to_crs().values[:, 0], A.to_crs().values[:, i])


@given(
    a=st.floats(-1e30, 1e30), b=st.floats(-1e30, 1e30), c=st.floats(-1e60, 1e60), cancel=st.booleans(),
    narrow=st.booleans(),
)  # fmt: skip
def test_the_reference_fma_rounds_once(a, b, c, cancel, narrow):
    dtype = np.float32 if narrow else np.float64
    a, b, c = (dtype(v if abs(v) > 1e-9 and abs(v) < 1e18 else 1.5) for v in (a, b, c))
    c = -a * b if cancel else c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    got = fma(*(np.array([v]) for v in (a, b, c)))[0]
    assert got.dtype == dtype
    below, above = (float(np.nextafter(got, dtype(side))) for side in (-np.inf, np.inf))
    error = abs(exact - Fraction(float(got)))
    assert error <= abs(exact - Fraction(below)) and error <= abs(exact - Fraction(above))


def test_nan_stays_in_its_sample(rng):
    A = random_affine(rng, 9, 9, 2, 5)
    clean = (A @ Ensemble(np.ones((9, 5)))).samples
    A.coefficients[1, 2] = np.nan
    y = (A @ Ensemble(np.ones((9, 5)))).samples
    assert np.isnan(y[:, 2]).any()
    assert np.array_equal(np.delete(y, 2, axis=1), np.delete(clean, 2, axis=1))


def test_values_are_never_stored_per_sample(rng):
    A = random_affine(rng, 30, 30, 2, 64)
    arrays = [v for v in vars(A).values() if isinstance(v, np.ndarray)]
    assert sum(v.nbytes for v in arrays) == 8 * (3 * A.nnz + 2 * 64)
    assert A.with_coefficients(np.ones(2)).terms is A.terms


def test_cg_solves_what_it_solves_for_the_stored_matrices(rng):
    A = spd_affine(7)
    b = Ensemble(rng.standard_normal((132, 7)))
    affine, stored = cg(A, b, rtol=1e-10), cg(A.to_crs(), b, rtol=1e-10)
    assert affine.converged.all()
    np.testing.assert_allclose(affine.x.samples, stored.x.samples, rtol=0, atol=1e-8)
    alone = cg(A.sample(4), b.sample(4), rtol=1e-10)
    assert np.array_equal(alone.x, affine.x.sample(4)) and alone.iterations[0] == affine.iterations[4]


def test_a_shared_matrix_meets_many_vectors_and_many_matrices_one_vector(rng):
    A, x = random_affine(rng, 8, 8, 2, 1), rng.standard_normal((8, 5))
    B = random_affine(rng, 8, 8, 2, 5)
    for i in range(5):
        assert np.array_equal((A @ Ensemble(x)).sample(i), A @ x[:, i])
        assert np.array_equal((B @ x[:, 0]).sample(i), B.sample(i) @ x[:, 0])


def test_float32_terms_stay_float32(rng):
    A = random_affine(rng, 8, 8, 2, 5)
    B = A.astype(np.float32)
    x = rng.standard_normal((8, 5)).astype(np.float32)
    assert B.terms.dtype == B.coefficients.dtype == B.apply(x).dtype == np.float32
    np.testing.assert_allclose(B.apply(x), A.apply(x.astype(float)), rtol=0, atol=8 * 3 * 40 * 6e-8)
    assert A.astype(np.float64) is A


def test_diagonal_is_zero_where_no_entry_is_stored():
    A = AffineMatrix(CrsGraph([0, 1, 2], [1, 1], (2, 2)), np.array([[5.0, 1.0], [7.0, 1.0]]), Ensemble(np.eye(1, 2)))
    assert np.array_equal(A.diagonal().samples, [[0.0, 0.0], [8.0, 7.0]])


@pytest.mark.parametrize(
    "terms, coefficients, text",
    [
        (np.ones((4, 3)), np.ones(2), r"terms must have one row per stored entry \(nnz = 3\)"),
        (np.ones(3), np.ones(0), r"terms must have one row per stored entry \(nnz = 3\) and one column or more"),
        (np.ones((3, 3)), np.ones(3), r"coefficients must have shape \(2,\), one number for each .* Ensemble"),
    ],
)
def test_bad_shapes_are_refused(terms, coefficients, text):
    with pytest.raises(ValueError, match=text):
        AffineMatrix(CrsGraph([0, 1, 3], [0, 0, 1], (2, 2)), terms, coefficients)


def test_bad_operands_are_refused(rng):
    A = random_affine(rng, 4, 4, 2, 3)
    with pytest.raises(TypeError, match="graph must be a CrsGraph; got an ndarray"):
        AffineMatrix(np.eye(2), np.ones((4, 2)), np.ones(1))
    with pytest.raises(ValueError, match="x must have 4 rows"):
        A @ np.ones(5)
    with pytest.raises(ValueError, match="same n_samples"):
        A @ Ensemble(np.ones((4, 2)))


def test_a_matrix_without_entries_has_a_diagonal_of_zeros():
    A = AffineMatrix(CrsGraph([0, 0, 0], [], (2, 3)), np.zeros((0, 2)), Ensemble(np.ones((1, 3))))
    np.testing.assert_array_equal(A.diagonal().samples, np.zeros((2, 3)))


def test_complex_numbers_make_it_a_crs_matrix(rng):
    A = random_affine(rng, 4, 4, 2, 3)
    B, factor = A.to_crs(), Ensemble(1j * rng.standard_normal(3))
    for mine, other in (
        (1j * A, 1j * B),
        (A / np.complex64(2j), B / np.complex64(2j)),
        (factor * A, factor * B),
        (A + 1j * B.sample(0), B + 1j * B.sample(0)),
        (A - 1j * A, B - 1j * B),
    ):
        assert isinstance(mine, CrsMatrix) and mine.dtype == np.complex128
        np.testing.assert_array_equal(mine.values, other.values)
