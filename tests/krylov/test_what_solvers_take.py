"""What a solver may be handed: any matrix, any precision, anything with `@`; and how its answer shows itself."""

import numpy as np
import pytest

from ensemble import from_samples, gallery
from ensemble.apps.fem import Multigrid, RandomDiffusion
from ensemble.krylov import bicgstab, cg, direct, gmres, minres, newton
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble

each_solver = pytest.mark.parametrize("solve", [cg, bicgstab, gmres])


class Shifted:
    """``A + shift``, one shift a sample, which nobody has stored."""

    def __init__(self, A, shift):
        self.A, self.shift, self.shape = A, shift, A.shape

    def __matmul__(self, x):
        return self.A @ x + self.shift * x


@each_solver
def test_a_sparse_matrix_is_a_preconditioner(solve, rng):
    A = gallery.poisson((9, 9), n_samples=3)
    inverse = CrsMatrix.from_scipy([np.linalg.inv(A.to_scipy(i).toarray()) for i in range(3)])
    result = solve(A, rng.standard_normal(81), M=inverse)
    assert result.converged.all() and result.iterations.max() <= 2


@each_solver
def test_precisions_meet_in_the_wider_one(solve, rng):
    A = gallery.poisson((9, 9), n_samples=3)
    narrow = A.astype(np.float32)
    b = rng.standard_normal(81)
    result, wide = solve(narrow, b, rtol=1e-10), solve(narrow.astype(np.float64), b, rtol=1e-10)
    assert result.x.dtype == np.float64 and result.converged.all()
    np.testing.assert_array_equal(result.x.samples, wide.x.samples)
    assert solve(narrow, b.astype(np.float32), rtol=1e-4).x.dtype == np.float32
    assert solve(A, b, M=CrsMatrix(A.graph, narrow.values)).x.dtype == np.float64


def test_products_of_two_precisions_are_those_of_the_wider():
    A = gallery.anisotropic((5, 4), n_samples=3)
    narrow, x = A.astype(np.float32), np.linspace(0.1, 1.0, 20)
    for one, other in ((narrow, narrow.astype(np.float64)), (narrow.T, narrow.astype(np.float64).T)):
        np.testing.assert_array_equal((one @ x).samples, (other @ x).samples)
    assert (narrow @ x.astype(np.float32)).dtype == np.float32 and A.astype(np.float64) is A


def test_a_matrix_free_operator_takes_wider_vectors(rng):
    problem = RandomDiffusion(4)
    kappa, x = rng.uniform(0.5, 2.0, (8 * 64, 2)).astype(np.float32), rng.standard_normal(125)
    narrow, wide = (problem.operator(Ensemble(k)) for k in (kappa, kappa.astype(np.float64)))
    np.testing.assert_array_equal((narrow @ x).samples, (wide @ x).samples)


@each_solver
def test_dense_ensembles_are_operators(solve, rng):
    A, b = gallery.poisson((5, 5), n_samples=4), rng.standard_normal(25)
    dense = from_samples([A.to_scipy(i).toarray() for i in range(4)])
    np.testing.assert_allclose(solve(dense, b, rtol=1e-12).x.samples, solve(A, b, rtol=1e-12).x.samples, rtol=1e-9)


@each_solver
def test_an_operator_says_how_many_samples_it_has(solve):
    shift, b = np.linspace(0.1, 3.0, 4), np.ones(25)
    operator = Shifted(gallery.poisson((5, 5)), Ensemble(shift))
    with pytest.raises(ValueError, match=r"must have the samples of the vector; got 4 samples for 1. An operator that"):
        solve(operator, b)
    operator.n_samples = 4
    result = solve(operator, b, rtol=1e-12)
    for i in range(4):
        alone = solve(Shifted(gallery.poisson((5, 5)), shift[i]), b, rtol=1e-12)
        np.testing.assert_array_equal(result.x.sample(i), alone.x)


def test_lists_are_vectors_and_columns_are_not_samples():
    A = gallery.poisson((4,), n_samples=2)
    np.testing.assert_array_equal(cg(A, [1.0] * 4).x.samples, cg(A, np.ones(4)).x.samples)
    with pytest.raises(ValueError, match=r"got shape \(4, 2\). For many samples, pass an Ensemble, its samples in the"):
        cg(A, np.ones((4, 2)))


@pytest.mark.parametrize("solve", [cg, bicgstab, gmres, minres, direct])
@pytest.mark.parametrize("unit", [1.0, 1j])
def test_what_stands_below_a_mask_is_no_right_hand_side(solve, unit):
    A, one = gallery.poisson((4,), n_samples=2), unit * np.ones(4)
    masked = np.ma.masked_array(one, [False, True, False, False])
    with pytest.raises(ValueError, match=f"{solve.__name__}: b must have no masked entries; got 1 of 4 masked"):
        solve(A, masked)
    assert solve(A, np.ma.masked_array(one, False)).converged.all()
    if solve is not direct:
        with pytest.raises(ValueError, match=f"{solve.__name__}: x0 must have no masked entries; got 1 of 4 masked"):
            solve(A, one, x0=masked)


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16", np.int32, "nonsense", complex])
def test_hierarchies_compute_in_float32_or_float64(dtype):
    with pytest.raises(ValueError, match="dtype must be float32 or float64; got"):
        smoothed_aggregation(gallery.poisson((4, 4)), dtype=dtype)
    with pytest.raises(ValueError, match="dtype must be float32 or float64; got"):
        Multigrid(dtype=dtype)


# --- how results show themselves
def test_a_result_says_in_one_line_who_converged():
    A = gallery.poisson((6, 6), n_samples=5)
    values = A.values.copy()
    values[:, 2] = np.nan
    result = cg(CrsMatrix(A.graph, values), np.ones(36))
    most = result.iterations.max()
    assert repr(result) == f"SolveResult(cg: 4 of 5 samples converged, 0 to {most} iterations; breakdown: sample 2)"
    short = cg(A, np.ones(36), max_iterations=1)
    assert repr(short).endswith("0 of 5 samples converged, 1 iteration; max_iterations: samples 0, 1, 2, 3, 4)")


def test_results_of_newton_and_diffusion_are_one_line():
    result = newton(lambda u: u * u - 2.0, lambda u: np.diag(2.0 * u), np.ones(1), rtol=1e-12)
    assert repr(result) == "NewtonResult(newton: 1 of 1 samples converged, 5 iterations)"
    text = repr(RandomDiffusion(2).solve(Ensemble(np.zeros((5, 3)))))
    assert text.startswith("DiffusionResult(newton: 3 of 3 samples converged, 1 iteration; response ")
