"""GMRES: a cycle and a step of Arnoldi's process in one compiled call are those of separate kernels, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from ensemble._kernels.krylov.arnoldi import arnoldi_step
from ensemble.gallery import poisson
from ensemble.krylov import gmres
from ensemble.krylov.host_scalars import gmres as gmres_scalars
from ensemble.krylov.host_scalars.gmres import GmresHostScalars
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.scalar import Ensemble

GRID = poisson((34, 34))  # 1156 rows: two whole blocks of a sum and a part of one
RNG = np.random.default_rng(5)
B = RNG.standard_normal((GRID.shape[0], 3))
VALUES = (
    GRID.values.reshape(-1, 1) * np.array([1.0, 2.0, 7.0]) * (1.0 + 0.2 * RNG.standard_normal((GRID.values.size, 1)))
)


TURNED = VALUES * np.exp(0.4j * RNG.standard_normal(VALUES.shape))
COMPLEX_B = B + 1j * RNG.standard_normal(B.shape)


def with_second(factor, values=VALUES):
    values = values.copy()
    values[:, 1] *= factor
    return CrsMatrix(GRID.graph, Ensemble(values))


def one_by_one(iteration, norms):
    """A callback: with one, the loop returns to Python after each iteration."""


CASES = {
    "one sample": (CrsMatrix(GRID.graph, VALUES[:, :1]), B[:, 0], {"max_iterations": 70}),
    "samples": (with_second(1.0), Ensemble(B), {"max_iterations": 70}),
    "preconditioned": (with_second(1.0), Ensemble(B), {"M": Diagonal(0.2 * np.ones(GRID.shape[0])), "rtol": 1e-2}),
    "flexible": (with_second(1.0), Ensemble(B), {"M": Diagonal(np.ones(GRID.shape[0])), "flexible": True, "rtol": 0.1}),
    "not finite": (with_second(np.nan), Ensemble(B), {"max_iterations": 40}),
    "zero": (with_second(0.0), Ensemble(B), {"max_iterations": 40}),
    "tolerances": (with_second(1.0), Ensemble(B), {"rtol": np.array([0.5, 1e-2, 1e-1]), "max_iterations": 400}),
    "exhausted": (poisson((3,)), np.ones(3), {}),
    "limit": (with_second(1.0), Ensemble(B), {"max_iterations": 7}),
    "one matrix for all": (GRID, Ensemble(B), {"max_iterations": 40}),
    "many samples": (CrsMatrix(GRID.graph, np.tile(VALUES, 4)[:, :11]), B[:, 0], {"max_iterations": 9}),
    "a start": (with_second(1.0), Ensemble(B), {"max_iterations": 40, "x0": Ensemble(0.1 * B), "restart": 7}),
    "float32": (with_second(1.0).astype(np.float32), Ensemble(B.astype(np.float32)), {"max_iterations": 40}),
    "complex, one sample": (CrsMatrix(GRID.graph, TURNED[:, :1]), COMPLEX_B[:, 0], {"max_iterations": 70}),
    "complex": (with_second(1.0, TURNED), Ensemble(COMPLEX_B), {"rtol": np.array([0.5, 1e-2, 0.1]), "restart": 20}),
    "complex64": (
        with_second(1.0, TURNED).astype(np.complex64), Ensemble(COMPLEX_B.astype(np.complex64)), {"max_iterations": 40}
    ),
    "complex, preconditioned": (
        with_second(1.0, TURNED), Ensemble(COMPLEX_B), {"M": Diagonal(0.2 * np.ones(GRID.shape[0])), "rtol": 1e-2}
    ),
    "complex, not finite": (with_second(np.nan, TURNED), Ensemble(COMPLEX_B), {"max_iterations": 40}),
    "complex, zero": (with_second(0.0, TURNED), Ensemble(COMPLEX_B), {"max_iterations": 40}),
    "complex, exhausted": (poisson((3,)), np.ones(3) * 1j, {}),
    "stagnation": (CrsMatrix(GRID.graph, GRID.values.reshape(-1, 1)), B[:, 0], {"rtol": 1e-30, "restart": 120}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cycles_and_steps_in_one_call_are_those_of_separate_kernels(name, monkeypatch):
    A, b, options = CASES[name]
    cycles = gmres(A, b, **options)
    steps = gmres(A, b, callback=one_by_one, **options)
    with monkeypatch.context() as patch:
        patch.setattr(GmresHostScalars, "in_one_call", lambda scalars: False)
        apart = gmres(A, b, callback=one_by_one, **options)
    for together in (cycles, steps):
        assert together.iterations.tolist() == apart.iterations.tolist()
        assert together.status.tolist() == apart.status.tolist()
        np.testing.assert_array_equal(together.residual_norms, apart.residual_norms)
        np.testing.assert_array_equal(together.true_residual_norms, apart.true_residual_norms)
        np.testing.assert_array_equal(*(x.samples if isinstance(x, Ensemble) else x for x in (together.x, apart.x)))


def test_whole_cycles_serve_matrices_without_preconditioner():
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        found = gmres_scalars.run_cycles
        patch.setattr(gmres_scalars, "run_cycles", lambda *arguments: (seen.append(1), found(*arguments))[1])
        for name in ("one sample", "samples", "one matrix for all", "complex"):
            gmres(*CASES[name][:2], max_iterations=2)
        for options in ({"coupling": "ensemble"}, {"callback": one_by_one}, {"M": Diagonal(np.ones(GRID.shape[0]))}):
            gmres(*CASES["samples"][:2], max_iterations=2, **options)
    assert len(seen) == 4


def test_one_call_serves_numbers_of_one_process():
    seen = []
    found = GmresHostScalars.in_one_call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GmresHostScalars, "in_one_call", lambda scalars: seen.append(found(scalars)) or seen[-1])
        for name in ("one sample", "samples", "complex"):
            gmres(*CASES[name][:2], max_iterations=1, callback=one_by_one)
        gmres(*CASES["samples"][:2], max_iterations=1, coupling="ensemble")
    assert seen == [True, True, True, False]


@pytest.mark.parametrize("n_samples", [1, 3])
def test_a_basis_is_orthogonal_to_rounding_though_its_vectors_nearly_coincide(n_samples):
    """Columns of a Hilbert matrix: one pass of the classical process would leave 1e-9 of each other in them."""
    n, m = 600, 9
    hilbert = 1.0 / (1.0 + np.arange(n)[:, None] + np.arange(m)[None, :])
    V = np.empty((m + 1, n, n_samples))
    V[0] = (hilbert[:, 0] / np.linalg.norm(hilbert[:, 0]))[:, None]
    R, g, length = np.zeros((m, m, n_samples)), np.ones((m + 1, n_samples)), np.zeros(n_samples, np.int64)
    cosines, sines, norm, state = *np.zeros((3, m, n_samples)), np.zeros(n_samples, np.int64)
    whole = np.ones(n_samples, np.int64), np.zeros(n_samples), np.zeros(n_samples, np.int64)
    for j in range(m - 1):
        V[j + 1] = hilbert[:, j + 1, None]
        arnoldi_step(V, j, (R, cosines, sines, g, length), (*whole, state, norm[0]), np.finfo(float).eps)
    basis = V[:m, :, 0].T
    assert np.linalg.cond(hilbert) > 1e8
    assert np.abs(basis.T @ basis - np.eye(m)).max() < 1e-14
