"""Batches of one sample, and index arrays of SciPy's that point outside of a matrix."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble.gallery import poisson
from ensemble.krylov import bicgstab, cg, direct, gmres, minres
from ensemble.linalg import (
    AffineMatrix,
    BcrsMatrix,
    CrsMatrix,
    Factorization,
    IncompleteFactorization,
    SymmetricCrsMatrix,
    block,
    kron,
)
from ensemble.scalar import Ensemble

PLAIN = poisson((4, 4))
BATCH = CrsMatrix(PLAIN.graph, PLAIN.values[:, :1])
MADE = {
    "scaled": lambda A: 2.0 * A,
    "sum": lambda A: A + PLAIN,
    "difference": lambda A: PLAIN - A,
    "transposed": lambda A: A.T,
    "a matrix of its own": lambda A: A.T.to_matrix(),
    "float32": lambda A: A.astype(np.float32),
    "symmetric": SymmetricCrsMatrix.from_crs,
    "symmetric and back": lambda A: (2.0 * SymmetricCrsMatrix.from_crs(A)).to_crs(),
    "blocks": lambda A: BcrsMatrix.from_crs(A, 2),
    "blocks and back": lambda A: BcrsMatrix.from_crs(A, 2).to_crs(),
    "product": lambda A: A @ PLAIN,
    "selection": lambda A: A.submatrix(np.arange(16), np.arange(16)),
    "without zeros": lambda A: A.eliminate_zeros(),
    "list": lambda A: CrsMatrix.from_scipy([A.to_scipy()]) if A.batched else CrsMatrix.from_scipy(A.to_scipy()),
    "block": lambda A: block([[A]]),
    "kron": lambda A: kron(A, 1),
}


@pytest.mark.parametrize("made", MADE, ids=str)
@pytest.mark.parametrize("given", [PLAIN, BATCH], ids=["plain", "batch"])
def test_a_batch_of_one_gives_ensembles_whatever_it_became(given, made):
    A, b = MADE[made](given), np.ones(16)
    kind = Ensemble if given is BATCH else np.ndarray
    assert type(A @ b) is kind and type(b @ A) is kind and type(A @ np.ones((16, 2))) is kind


@pytest.mark.parametrize("solver", [cg, gmres, bicgstab, minres, direct])
def test_every_solver_has_the_rule_of_products(solver):
    b = np.ones(16)
    for A, kind in ((PLAIN, np.ndarray), (BATCH, Ensemble), (CrsMatrix(PLAIN.graph, PLAIN.values[:, 0]), np.ndarray)):
        x = solver(A, b).x
        assert type(x) is kind
    np.testing.assert_array_equal(solver(BATCH, b).x.samples[:, 0], solver(PLAIN, b).x)
    shared = CrsMatrix(PLAIN.graph, Ensemble(PLAIN.values[:, :1]))  # an Ensemble of one sample is shared by all
    assert type(solver(shared, b).x) is np.ndarray and type(solver(shared, Ensemble(b[:, None])).x) is Ensemble


def test_factorisations_and_other_matrices_have_the_rule_of_products():
    b = np.ones(16)
    for kind in (Factorization, IncompleteFactorization):
        assert type(kind(BATCH) @ b) is Ensemble and type(kind(BATCH).T @ b) is Ensemble
        assert type(kind(PLAIN) @ b) is np.ndarray and type(kind(PLAIN).update(BATCH) @ b) is Ensemble
    assert type(Factorization(PLAIN).solve(BATCH, b)) is Ensemble
    assert type(BATCH.sample(0) @ b) is np.ndarray
    three = CrsMatrix(PLAIN.graph, PLAIN.values * np.ones((1, 3)))
    assert type(three.take_samples([1]) @ b) is Ensemble
    affine = AffineMatrix(PLAIN.graph, np.repeat(PLAIN.values, 2, axis=1), Ensemble(np.ones((1, 3))))
    assert type(affine.mean @ b) is np.ndarray


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc_array", "bsr_array"])
@pytest.mark.parametrize("change", ["falls", "beyond", "negative", "too many", "not from zero"])
def test_index_arrays_that_point_outside_are_refused(kind, change):
    """SciPy's conversions ended the process."""
    A = getattr(sp, kind)(np.eye(4)) if kind != "bsr_array" else sp.bsr_array(np.eye(4), blocksize=(1, 1))
    if change == "falls":
        A.indptr[1], A.indptr[2] = 3, 1
    elif change == "too many":
        A.indptr[-1] = 9
    elif change == "not from zero":
        A.indptr[0] = -2
    else:
        A.indices[2] = 4 if change == "beyond" else -1
    text = "indices from 0 to 3" if change in ("beyond", "negative") else "ascending indptr from 0 to at most 4"
    for use in (CrsMatrix.from_scipy, lambda A: cg(A, np.ones(4)), lambda A: direct([A, A], np.ones(4))):
        with pytest.raises(ValueError, match=f"matrices must have .*{text}"):
            use(A)


def test_coordinates_that_point_outside_are_refused():
    A = sp.coo_array(np.eye(3))
    A.coords[1][2] = 3
    with pytest.raises(ValueError, match="coordinates from 0 to 2 in axis 1"):
        CrsMatrix.from_scipy(A)
    for good in (sp.csr_array((0, 0)), sp.dia_array(np.eye(3)), sp.lil_array(np.eye(3)), sp.dok_array(np.eye(3))):
        assert CrsMatrix.from_scipy(good).shape == good.shape
