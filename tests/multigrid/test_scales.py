"""A preconditioner knows no units: a matrix in other units is as easy, and what has no answer is said at once."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble._kernels.multigrid.dense import inverse_of
from ensemble.apps.fem import RandomDiffusion
from ensemble.krylov import Status, cg
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import Chebyshev, smoothed_aggregation
from ensemble.scalar import Ensemble, shared


def badly_scaled(rng):
    """A Poisson matrix whose unknowns have units of their own, its diagonal spread over twelve decades."""
    d = sp.diags_array(10.0 ** rng.uniform(-3.0, 3.0, 400))
    return CrsMatrix.from_scipy(d @ gallery.poisson((20, 20)).to_scipy() @ d)


@pytest.mark.parametrize(
    "factor, dtype", [(2.0**-990, None), (2.0**-60, None), (2.0**60, None), (2.0**900, None), (2.0**-30, np.float32)]
)
def test_iterations_do_not_depend_on_the_units_of_the_matrix(factor, dtype, rng):
    A, b = badly_scaled(rng), rng.standard_normal(400)
    expected = cg(A, b, M=smoothed_aggregation(A, coarse_size=50, dtype=dtype))
    small = CrsMatrix(A.graph, A.values * factor)
    got = cg(small, b, M=smoothed_aggregation(small, coarse_size=50, dtype=dtype))
    assert expected.converged[0] and got.converged[0]
    assert np.array_equal(got.iterations, expected.iterations)
    assert np.array_equal(got.x * factor, expected.x)


@pytest.mark.parametrize("cells, mean", [(4, 1e-15), (4, 1e12), (10, 1e-20), (10, 1e20)])
def test_diffusion_in_other_units_is_the_same_diffusion(cells, mean):
    """A permeability in m^2, say: rows of fixed nodes stay those of the identity beside entries of its size."""
    expected = RandomDiffusion(cells).solve(np.ones(5))
    got = RandomDiffusion(cells, mean=mean, variance=(0.1 * mean) ** 2).solve(np.ones(5))
    assert got.converged[0] and np.array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(got.u, expected.u, rtol=1e-6)  # as far as the solver's tolerance goes


def test_an_unknown_without_an_equation_is_left_alone(rng):
    """A zero row in one sample, whose system has a solution: all samples converge."""
    A = gallery.poisson((30, 30), 3)
    rows = A.graph.row_of_entry
    values = A.values.copy()
    values[(rows == 7) | (A.graph.indices == 7), 1] = 0.0
    b = rng.standard_normal((900, 3))
    b[7, 1] = 0.0
    A = CrsMatrix(A.graph, values)
    result = cg(A, Ensemble(b), M=smoothed_aggregation(A, coarse_size=50), rtol=1e-10)
    assert result.converged.all()
    for s in range(3):
        assert np.linalg.norm(A.to_scipy(s) @ result.x.sample(s) - b[:, s]) <= 2e-10 * np.linalg.norm(b[:, s])


@pytest.mark.parametrize("scales", [[1.0, 1e-20, 1.0], [1e-18, 1e18, 1.0], [1.0, 1.0, 1e-30]])
def test_the_inverse_of_a_matrix_in_mixed_units(scales):
    """Rows and columns in other units, as far as squares of them fit: the exact inverse is the scaled one."""
    A = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
    d = np.sqrt(scales)
    got = inverse_of(A * d[:, None] * d)
    np.testing.assert_allclose(got * d[:, None] * d, np.linalg.inv(A), rtol=1e-13, atol=1e-15)


def test_a_matrix_without_rows(capfd):
    hierarchy = smoothed_aggregation(CrsMatrix.from_scipy(sp.csr_array((0, 0))))
    assert (hierarchy @ np.zeros(0)).shape == (0,)
    assert cg(sp.csr_array((0, 0)), np.zeros(0), M=hierarchy).status[0] is Status.converged
    assert capfd.readouterr().err == ""


def test_a_cycle_takes_what_a_matrix_takes(rng):
    A = gallery.poisson((20, 20), 2)
    for hierarchy in (smoothed_aggregation(A, coarse_size=50), smoothed_aggregation(gallery.poisson((20, 20)))):
        x = rng.standard_normal((400, 2, 3))
        y = hierarchy @ x
        assert y.shape == x.shape
        column = hierarchy @ x[:, 1, 2]
        got = y.samples if isinstance(y, Ensemble) else y[..., None]
        want = column.samples if isinstance(column, Ensemble) else column[:, None]
        assert np.array_equal(got[:, 1, 2], want)
        whole = hierarchy @ np.arange(400)
        want = hierarchy @ np.arange(400.0)
        assert whole.dtype == np.float64
        assert np.array_equal(getattr(whole, "samples", whole), getattr(want, "samples", want))


def test_update_takes_what_the_constructor_takes(rng):
    A = gallery.poisson((20, 20))
    hierarchy, r = smoothed_aggregation(A, coarse_size=50), rng.standard_normal(400)
    again = smoothed_aggregation(2.0 * A.to_scipy(), coarse_size=50)
    assert np.array_equal(hierarchy.update(2.0 * A.to_scipy()) @ r, again @ r)
    with pytest.raises(TypeError, match=r"Hierarchy.update: A must be a CrsMatrix, .* or a SciPy sparse matrix; got"):
        hierarchy.update(np.eye(400))
    constants = smoothed_aggregation(A, near_nullspace=shared(np.ones(400)), coarse_size=50)
    assert np.array_equal(constants.update(2.0 * A.to_scipy()) @ r, again @ r)


N = 16


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"near_nullspace": np.ones(N - 1)}, ValueError, r"near_nullspace must have shape \(16,\) or \(16, k\)"),
        ({"near_nullspace": np.ones((N, 1, 1))}, ValueError, r"near_nullspace must .*got shape \(16, 1, 1\)"),
        ({"near_nullspace": np.ones((N, 0))}, ValueError, r"near_nullspace must .*got shape \(16, 0\)"),
        ({"near_nullspace": np.zeros(N)}, ValueError, "near_nullspace must have no column of zeros"),
        ({"near_nullspace": 1j * np.ones(N)}, TypeError, "near_nullspace must be real; got dtype complex128"),
        ({"near_nullspace": Ensemble(np.ones((N, 2)))}, ValueError, "near_nullspace must be the same for all samples"),
        ({"smoother": "jacobi"}, TypeError, "smoother must be a Chebyshev, a Jacobi or a GaussSeidel; got a str"),
        ({"smoother": Chebyshev}, TypeError, "smoother must be a Chebyshev, a Jacobi or a GaussSeidel; got a type"),
    ],
)
def test_bad_options_are_named(arguments, error, text):
    with pytest.raises(error, match=text):
        smoothed_aggregation(gallery.poisson((4, 4)), **arguments)


def test_bad_matrices_are_named():
    with pytest.raises(TypeError, match=r"A must be a CrsMatrix, .* or AffineMatrix; got an ndarray. Give Crs"):
        smoothed_aggregation(np.eye(4))
