"""Matrices, vectors and points in the types and shapes that users have."""

import contextlib
import operator

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble import Ensemble
from ensemble.gallery import poisson
from ensemble.linalg import (
    AffineMatrix,
    BcrsMatrix,
    CrsGraph,
    CrsMatrix,
    Diagonal,
    Factorization,
    IncompleteFactorization,
    SymmetricCrsMatrix,
    add_elements,
    apply_dirichlet,
)
from ensemble.multigrid import rigid_body_modes
from tests.linalg.block_problems import random_blocks
from tests.walked import every


def test_unsigned_and_bool_matrices_are_subtracted_as_numbers():
    A = poisson((3,))
    for dtype in (np.uint8, bool):
        expected = A.to_scipy().toarray() - np.eye(3)
        np.testing.assert_array_equal((A - sp.eye_array(3, dtype=dtype)).to_scipy().toarray(), expected)


def test_rigid_body_modes_of_float32_points_are_computed_in_float64():
    points = (1000.0 + np.random.default_rng(3).uniform(size=(7, 3))).astype(np.float32)
    np.testing.assert_array_equal(rigid_body_modes(points), rigid_body_modes(points.astype(np.float64)))
    assert rigid_body_modes(np.zeros((0, 3))).shape == (0, 6)


# --- the sample axis
GRAPH = CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2))
DOFS = np.array([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("make", "samples", "text"),
    [
        (lambda x: CrsMatrix(GRAPH, x), np.ones(4), r"CrsMatrix: values must .* an Ensemble of shape \(\)"),
        (lambda x: CrsMatrix(GRAPH, x), np.ones((4, 2, 3)), r"CrsMatrix: values must .* an Ensemble of shape \(4, 2\)"),
        (lambda x: BcrsMatrix(GRAPH, x), np.ones((4, 2, 2)), r"BcrsMatrix: values must .* Ensemble of shape \(4, 2\)"),
        (lambda x: SymmetricCrsMatrix(GRAPH, x), np.ones(3), r"SymmetricCrsMatrix: values must .* of shape \(\)"),
        (
            lambda x: CrsMatrix.from_elements(DOFS, x, (3, 3)),
            np.ones((2, 2, 2)),
            r"from_elements: matrices must .* Ensemble of shape \(2, 2\)",
        ),
        (
            lambda x: BcrsMatrix.from_elements(DOFS, x, (6, 6)),
            np.ones((2, 2, 2, 2, 2)),
            r"from_elements: matrices must .* Ensemble of shape \(2, 2, 2, 2\)",
        ),
        (
            lambda x: CrsMatrix.from_coo([0, 1], [0, 1], x, (2, 2)),
            np.ones(2),
            r"from_coo: values must .* Ensemble of shape \(\)",
        ),
    ],
)
def test_the_sample_axis_of_an_ensemble_is_no_axis_of_the_matrix(make, samples, text):
    with pytest.raises(ValueError, match=text):
        make(Ensemble(samples))


def test_integers_of_ensembles_and_of_other_libraries_become_real_numbers():
    import array_api_strict

    for xp in (np, array_api_strict):
        half, values = xp.asarray([0.5, 0.5]), xp.asarray(np.arange(4))
        for given in (values, Ensemble(values[:, None])):
            np.testing.assert_array_equal(np.asarray(CrsMatrix(GRAPH, given) @ half), [0.5, 2.5])


def test_a_vector_of_another_library_is_refused():
    import array_api_strict

    A = CrsMatrix(GRAPH, array_api_strict.asarray(np.ones(4)))
    with pytest.raises(TypeError, match="CrsMatrix @: x and the matrix must come from one array library"):
        A @ np.ones(2)


# --- rows from the left
def test_rows_from_the_left_have_one_number_per_row_of_the_matrix(rng):
    A = random_blocks(rng, 3, 4, (2, 2), 1, density=0.9)
    rows = rng.standard_normal((5, 6))
    np.testing.assert_allclose(rows @ A, rows @ A.to_scipy().toarray(), rtol=1e-14, atol=1e-14)
    with pytest.raises(ValueError, match=r"@ BcrsMatrix: x must have 6 entries in its last axis.*\(2, 3\)"):
        np.ones((2, 3)) @ A
    with pytest.raises(ValueError, match=r"@ CrsMatrix: x must have 2 entries in its last axis.*\(2, 3\)"):
        np.ones((2, 3)) @ CrsMatrix(GRAPH, np.ones(4))
    with pytest.raises(ValueError, match=r"@ BcrsMatrix.T: x must have 8 entries in its last axis"):
        np.ones((2, 4)) @ A.T


# --- Dirichlet values
def test_complex_known_values_keep_their_imaginary_parts():
    A, b = apply_dirichlet(poisson((3,)), np.zeros(3), [0], 5.0 + 2.0j)
    np.testing.assert_array_equal(b, [10.0 + 4.0j, 5.0 + 2.0j, 0.0])
    assert A.dtype == np.float64
    _, c = apply_dirichlet(poisson((3,)), np.zeros(3), [0], Ensemble(np.array([1.0, 1.0j])))
    np.testing.assert_array_equal(c.samples[0], [2.0, 2.0j])
    assert apply_dirichlet(poisson((3,)).astype(np.float32), np.zeros(3, np.float32), [0], 1j)[1].dtype == np.complex64


@pytest.mark.parametrize("values", [None, "1", ["1"], [None], np.array(["a"]), object()])
def test_known_values_are_numbers(values):
    with pytest.raises(TypeError, match="apply_dirichlet: values must be a number, an array of numbers or an Ensemble"):
        apply_dirichlet(poisson((3,)), np.zeros(3), [0], values)


def test_right_hand_sides_are_numbers():
    with pytest.raises(TypeError, match="apply_dirichlet: b must hold numbers"):
        apply_dirichlet(poisson((2,)), ["1", "2"], [0], 1.0)


# --- products and sums of matrices of any two types
def _matrices(rng):
    """Matrices of each type, 4 by 4, one sample."""
    square = random_blocks(rng, 2, 2, (2, 2), 1, density=1.0)
    crs = square.to_crs()
    line = poisson((4,))
    affine = AffineMatrix(crs.graph, rng.standard_normal((crs.graph.nnz, 2)), np.array([0.5]))
    return {
        "crs": crs, "crs.T": crs.T, "bcrs": square, "bcrs.T": square.T, "affine": affine, "affine.T": affine.T,
        "symmetric": SymmetricCrsMatrix.from_crs(line), "diagonal": Diagonal(rng.standard_normal(4)),
        "scipy": sp.csr_array(rng.standard_normal((4, 4))), "spmatrix": sp.coo_matrix(rng.standard_normal((4, 4))),
    }  # fmt: skip


def _dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix @ np.eye(4)


NAMES = ["crs", "crs.T", "bcrs", "bcrs.T", "affine", "affine.T", "symmetric", "diagonal", "scipy", "spmatrix"]


@every("operation", [operator.matmul, operator.add, operator.sub])
@every("right", NAMES)
@every("left", NAMES[:-2])
def test_matrices_of_any_two_types_are_multiplied_and_added(left, right, operation, rng):
    matrices = _matrices(rng)
    a, b = matrices[left], matrices[right]
    expected, other = operation(_dense(a), _dense(b)), operation(_dense(b), _dense(a))
    np.testing.assert_allclose(_dense(operation(a, b)), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(_dense(operation(b, a)), other, rtol=1e-13, atol=1e-13)


def test_a_diagonal_of_samples_scales_the_rows_of_each_sample(rng):
    A, e = poisson((3,)), Ensemble(rng.standard_normal((3, 2)))
    product = Diagonal(e) @ A
    for s in range(2):
        expected = np.diag(e.samples[:, s]) @ A.to_scipy().toarray()
        np.testing.assert_array_equal(product.to_scipy(s).toarray(), expected)
        np.testing.assert_array_equal(Diagonal(e).to_scipy(s).toarray(), np.diag(e.samples[:, s]))


# --- arguments of the constructors
def test_a_block_size_may_be_one_number():
    A = poisson((4,))
    assert BcrsMatrix.from_crs(A, 2).block_shape == (2, 2)
    assert BcrsMatrix.from_scipy(A.to_scipy(), 2).block_shape == (2, 2)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: BcrsMatrix.from_crs(poisson((4,)), (2,)), TypeError, r"from_crs: block_shape must be \(r, c\)"),
        (lambda: BcrsMatrix.from_crs(poisson((4,)), "22"), TypeError, r"from_crs: block_shape must be \(r, c\)"),
        (
            lambda: BcrsMatrix.from_elements(DOFS, np.ones((2, 2, 2, 2, 2)), 6),
            TypeError,
            r"BcrsMatrix.from_elements: shape must be \(rows, columns\)",
        ),
        (
            lambda: BcrsMatrix.from_elements(DOFS, np.ones((2, 2, 2, 2, 2)), (6.0, 6)),
            TypeError,
            r"BcrsMatrix.from_elements: shape must be an integer",
        ),
        (
            lambda: CrsMatrix.from_elements(DOFS, np.ones((2, 2, 2)), 3),
            TypeError,
            r"CrsMatrix.from_elements: shape must be \(n, n\)",
        ),
        (lambda: poisson((3,), n_samples=2).take_samples([]), ValueError, "samples must name one sample or more"),
        (lambda: add_elements(DOFS, [["a", "b"], ["c", "d"]], 3), TypeError, "vectors must hold numbers"),
        (lambda: add_elements(DOFS, None, 3), TypeError, "vectors must hold numbers"),
        (lambda: CrsMatrix(GRAPH, ["a"] * 4), TypeError, "values must hold numbers"),
        (lambda: CrsMatrix.from_coo([0], [0], ["a"], (2, 2)), TypeError, "values must hold numbers"),
        (lambda: SymmetricCrsMatrix(GRAPH, ["a"] * 3), TypeError, "values must hold numbers"),
        (lambda: Diagonal(["a", "b"]), TypeError, "Diagonal: entries must hold numbers"),
        (lambda: Diagonal([1.0, 2.0]) @ "ab", TypeError, "unsupported operand"),
        (lambda: Diagonal([1.0, 2.0]) + 3.0, TypeError, r"Diagonal \+: the other operand must be a sparse matrix"),
        (lambda: Diagonal([1.0, 2.0]) @ poisson((3,)), ValueError, "other must have 2 rows"),
        (lambda: Diagonal([1.0, 2.0]) @ Diagonal([1.0]), ValueError, "other must have 2 rows"),
    ],
)
def test_what_cannot_be_used_is_named(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
@pytest.mark.parametrize(
    ("indptr", "indices", "text"),
    [([0, 2, 4], [1, 0, 0, 1], "indices must ascend within each row"), ([0, 3, 2], [0, 1], "indptr must ascend")],
)
def test_unsigned_indices_are_compared_as_numbers(indptr, indices, text, dtype):
    with pytest.raises(ValueError, match=f"CrsGraph: {text}"):
        CrsGraph(np.array(indptr, dtype), np.array(indices, dtype), (2, 2))
    assert CrsGraph(np.array([0, 2, 4], dtype), np.array([0, 1, 0, 1], dtype), (2, 2)).same_as(GRAPH)


# --- other libraries
@pytest.mark.parametrize("library", ["array_api_strict", "jax"])
@pytest.mark.parametrize("name", ["CrsMatrix", "BcrsMatrix", "SymmetricCrsMatrix", "AffineMatrix", "Diagonal"])
def test_matrices_of_other_libraries_stay_there(library, name, rng):
    """Products, sums, single precision and matrices without zeros: NumPy's numbers, in arrays of the library."""
    numbers = rng.standard_normal((4, 3))
    make = {
        "CrsMatrix": lambda a: CrsMatrix(GRAPH, a(numbers)),
        "BcrsMatrix": lambda a: BcrsMatrix(GRAPH, a(numbers.reshape(4, 1, 1, 3))),
        "SymmetricCrsMatrix": lambda a: SymmetricCrsMatrix(GRAPH, a(numbers[:3])),
        "AffineMatrix": lambda a: AffineMatrix(GRAPH, a(numbers), Ensemble(a(numbers[:2]))),
        "Diagonal": lambda a: Diagonal(Ensemble(a(numbers[:2]))),
    }[name]
    x, other = rng.standard_normal((2, 3)), sp.csr_array(rng.standard_normal((2, 2)))
    xp = pytest.importorskip("jax.numpy" if library == "jax" else library)
    with pytest.importorskip("jax").enable_x64(True) if library == "jax" else contextlib.nullcontext():
        _compare(make, x, other, xp)


def _compare(make, x, other, xp):
    asarray = xp.asarray
    A, B = make(np.asarray), make(asarray)
    pairs = [
        ((A @ Ensemble(x)).samples, (B @ Ensemble(asarray(x))).samples), ((A @ A).values, (B @ B).values),
        ((A @ other).values, (B @ other).values), ((other @ A).values, (other @ B).values),
        (((A + other) @ Ensemble(x)).samples, ((B + other) @ Ensemble(asarray(x))).samples),
        ((A @ A).eliminate_zeros().values, (B @ B).eliminate_zeros().values),
        ((A.astype(np.float32) @ Ensemble(x)).samples, (B.astype(xp.float32) @ Ensemble(asarray(x))).samples),
    ]  # fmt: skip
    for expected, found in pairs:
        assert type(found) is type(asarray(x))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [lambda A: A, SymmetricCrsMatrix.from_crs, Factorization, IncompleteFactorization])
@pytest.mark.parametrize("x", [[None] * 6, ["1"] * 6, np.ones(6, object), np.ones(6, "datetime64[D]")], ids=repr)
def test_vectors_that_hold_no_numbers_are_refused(make, x):
    """Factorisations gave NaN for None, and numbers for dates."""
    with pytest.raises(TypeError, match="@: x must hold numbers; got dtype"):
        make(poisson((6,))) @ x


def test_masked_entries_of_a_dense_matrix_are_refused():
    with pytest.raises(ValueError, match=r"CrsMatrix.from_scipy: matrices must have no masked entries; got 1 of 4"):
        CrsMatrix.from_scipy(np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]]))


def test_the_minus_of_the_least_integer_does_not_wrap_around():
    A = poisson((3,))
    for dtype in (np.int8, np.int16, np.uint8):
        B = sp.csr_array(np.diag([np.iinfo(dtype).min, 1, 2]).astype(dtype))
        expected = A.to_scipy().toarray() - B.toarray().astype(np.float64)
        np.testing.assert_array_equal((A - B).to_scipy().toarray(), expected)
