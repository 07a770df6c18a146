"""Known unknowns: against elimination in dense matrices, sample by sample."""

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, SymmetricCrsMatrix, apply_dirichlet
from ensemble.scalar import Ensemble
from tests.linalg.block_problems import random_blocks

KINDS = ["crs", "bcrs", "symmetric"]


def matrix_of(kind, rng, n_samples, n=7):
    """A symmetric matrix of 3 n rows with every diagonal entry, of each kind."""
    A = random_blocks(rng, n, n, (3, 3), n_samples)
    A = A + A.T + BcrsMatrix(CrsGraph(np.arange(n + 1), np.arange(n), (n, n)), np.tile(9.0 * np.eye(3), (n, 1, 1)))
    if kind == "bcrs":
        return A
    return A.to_crs() if kind == "crs" else SymmetricCrsMatrix.from_crs(A.to_crs())


def eliminated(A, b, rows, values, symmetric=True):
    """The same on dense arrays of one sample."""
    A, b = A.copy(), b.copy()
    scale = np.where(A[rows, rows] == 0, 1.0, A[rows, rows])
    if symmetric:
        b -= A[:, rows] @ values
        A[:, rows] = 0.0
    A[rows] = 0.0
    A[rows, rows] = scale
    b[rows] = scale * values
    return A, b


@pytest.mark.parametrize("kind", KINDS)
@given(
    counts=st.sampled_from([(1, 1, 1), (4, 1, 1), (1, 4, 1), (1, 1, 4), (4, 4, 4), (4, 1, 4)]),
    k=st.integers(0, 9), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_every_sample_is_eliminated_as_a_dense_matrix(kind, counts, k, seed):
    rng = np.random.default_rng(seed)
    A = matrix_of(kind, rng, counts[0])
    rows = rng.permutation(21)[:k]
    b, values = Ensemble(rng.standard_normal((21, counts[1]))), Ensemble(rng.standard_normal((k, counts[2])))
    new, right = apply_dirichlet(A, b, rows, values)
    assert type(new) is type(A) and new.graph is A.graph and new.n_samples == counts[0]
    for i in range(max(counts)):
        expected, side = eliminated(A.to_scipy(i).toarray(), b.sample(i), rows, values.sample(i))
        np.testing.assert_array_equal(new.to_scipy(i).toarray(), expected)
        np.testing.assert_allclose(right.sample(i), side, rtol=0, atol=1e-13)
        alone = apply_dirichlet(A.sample(i), b.sample(i), rows, values.sample(i))
        np.testing.assert_array_equal(alone[1], right.sample(i))


@pytest.mark.parametrize("kind", ["crs", "bcrs"])
def test_rows_alone_are_replaced_without_symmetry(rng, kind):
    A, b = matrix_of(kind, rng, 2), rng.standard_normal(21)
    rows, values = [20, 3, 4], np.array([1.0, 2.0, 3.0])
    new, right = apply_dirichlet(A, b, rows, values, symmetric=False)
    for i in range(2):
        expected, side = eliminated(A.to_scipy(i).toarray(), b, rows, values, symmetric=False)
        np.testing.assert_array_equal(new.to_scipy(i).toarray(), expected)
        np.testing.assert_allclose(right.sample(i), side, rtol=0, atol=1e-13)


def test_the_solution_has_the_known_values(rng):
    A, rows = poisson((6, 5), n_samples=3), np.array([0, 7, 29])
    exact = Ensemble(rng.standard_normal((30, 3)))
    values = Ensemble(exact.samples[rows])
    new, b = apply_dirichlet(A, A @ exact, rows, values)
    x = cg(new, b, rtol=1e-13).x
    np.testing.assert_allclose(x.samples, exact.samples, rtol=0, atol=1e-11)


def test_vectors_of_nodes_masks_and_numbers_are_taken(rng):
    A, b = matrix_of("bcrs", rng, 1), rng.standard_normal((7, 3))
    mask = np.zeros(21, bool)
    mask[[4, 9]] = True
    right = apply_dirichlet(A, b, mask, 2)[1]
    assert right.shape == (7, 3) and isinstance(right, np.ndarray)
    side = eliminated(A.to_scipy().toarray(), b.reshape(-1), np.array([4, 9]), np.full(2, 2.0))[1]
    np.testing.assert_allclose(right.reshape(-1), side, rtol=0, atol=1e-13)
    per_sample = apply_dirichlet(A, b, mask, Ensemble(np.array([2.0, 5.0])))[1]
    np.testing.assert_array_equal(per_sample.sample(0), right)


def test_known_zeros_leave_a_shared_right_hand_side_shared(rng):
    A, b = matrix_of("bcrs", rng, 3), rng.standard_normal(21)
    new, right = apply_dirichlet(A, b, [3, 0])
    assert isinstance(right, np.ndarray) and new.n_samples == 3
    expected = apply_dirichlet(A, b, [3, 0], np.zeros(2))[1]
    for i in range(3):
        np.testing.assert_array_equal(right, expected.sample(i))
        np.testing.assert_array_equal(new.to_scipy(i).toarray()[[0, 3]] != 0, np.eye(21, dtype=bool)[[0, 3]])


def test_a_zero_diagonal_becomes_one():
    A = CrsMatrix(CrsGraph([0, 1, 3], [0, 0, 1], (2, 2)), np.array([0.0, 1.0, 2.0]))
    new, b = apply_dirichlet(A, np.ones(2), [0], 4.0)
    np.testing.assert_array_equal(new.values[:, 0], [1.0, 0.0, 2.0])
    np.testing.assert_array_equal(b, [4.0, -3.0])


def test_a_nan_stays_in_its_sample(rng):
    A = matrix_of("crs", rng, 3)
    b, rows = rng.standard_normal(21), [2, 5]
    good = apply_dirichlet(A, b, rows, 1.0)[1].samples
    A.values[0, 1] = np.nan
    bad = apply_dirichlet(A, b, rows, 1.0)[1].samples
    np.testing.assert_array_equal(bad[:, [0, 2]], good[:, [0, 2]])


def test_other_libraries_give_the_same_numbers(rng):
    for kind in ("crs", "bcrs"):
        A, b = matrix_of(kind, rng, 2), Ensemble(rng.standard_normal((21, 2)))
        values = Ensemble(rng.standard_normal((2, 2)))
        moved = type(A)(A.graph, strict.asarray(A.values))
        new, right = apply_dirichlet(A, b, [8, 1], values)
        for given_values in (values, Ensemble(strict.asarray(values.samples))):
            other, side = apply_dirichlet(moved, Ensemble(strict.asarray(b.samples)), [8, 1], given_values)
            np.testing.assert_array_equal(np.asarray(other.values), new.values)
            np.testing.assert_array_equal(np.asarray(side.samples), right.samples)


def test_bad_rows_and_values_are_refused(rng):
    A, b = poisson((5,)), np.ones(5)
    with pytest.raises(ValueError, match="rows must lie between 0 and 4; got 5"):
        apply_dirichlet(A, b, [1, 5])
    with pytest.raises(ValueError, match="rows must have no masked entries; got 1 of 2 masked"):
        apply_dirichlet(A, b, np.ma.masked_array([0, 2], [False, True]))
    with pytest.raises(ValueError, match="name each row once; got row 2 twice"):
        apply_dirichlet(A, b, [2, 1, 2])
    with pytest.raises(TypeError, match="rows must be integers"):
        apply_dirichlet(A, b, [1.5])
    with pytest.raises(ValueError, match=r"values must have shape \(\) or \(2,\)"):
        apply_dirichlet(A, b, [1, 2], np.ones(3))
    with pytest.raises(ValueError, match=r"b must have shape \(5,\)"):
        apply_dirichlet(A, np.ones(4), [1])
    with pytest.raises(ValueError, match="same n_samples"):
        apply_dirichlet(A, Ensemble(np.ones((5, 2))), [1], Ensemble(np.ones((1, 3))))
    with pytest.raises(TypeError, match="A must be a CrsMatrix"):
        apply_dirichlet(np.eye(5), b, [1])
    hollow = CrsMatrix(CrsGraph([0, 1, 2], [1, 0], (2, 2)), np.ones(2))
    with pytest.raises(ValueError, match="diagonal entry in the graph for each of the rows; got none in row 1"):
        apply_dirichlet(hollow, np.ones(2), [1])
    with pytest.raises(ValueError, match="symmetric must be True"):
        apply_dirichlet(SymmetricCrsMatrix.from_crs(A), b, [1], symmetric=False)


@pytest.mark.parametrize("symmetric", [False, True])
def test_complex_values_of_a_real_system_make_it_complex_on_the_right(rng, symmetric):
    A, b = poisson((6,)), rng.standard_normal(6)
    B, c = apply_dirichlet(A, b, [0, 3], np.array([2j, 1.0 - 1j]), symmetric=symmetric)
    x = np.linalg.solve(B.to_scipy().toarray(), c)
    np.testing.assert_allclose(x[[0, 3]], [2j, 1.0 - 1j], rtol=1e-14)
    kept = [1, 2, 4, 5]
    np.testing.assert_allclose((A.to_scipy() @ x)[kept], b[kept], rtol=0, atol=1e-13)
