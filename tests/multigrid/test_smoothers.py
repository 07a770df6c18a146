"""Jacobi and Gauss-Seidel smoothers beside Chebyshev's: textbook steps, a symmetric V-cycle, each sample by itself."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble._compile.numba import numba
from ensemble.krylov import cg
from ensemble.linalg import AffineMatrix, CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid import EvolutionStrength, GaussSeidel, Jacobi, scaled_aggregation, smoothed_aggregation
from ensemble.multigrid.gauss_seidel import GaussSeidelSmoother, colours_of
from ensemble.multigrid.relaxation import inverse_diagonal
from ensemble.scalar import Ensemble

SMOOTHERS = [GaussSeidel(sweeps=1), GaussSeidel(), GaussSeidel(sweeps=3), Jacobi(), Jacobi(damping=1.0, sweeps=3)]


@pytest.mark.parametrize("shape, expected", [((7,), 2), ((9, 8), 2), ((5, 4, 6), 2)], ids=str)
def test_stencils_of_direct_neighbours_have_two_colours(shape, expected):
    rows, starts = colours_of(gallery.poisson(shape).graph)
    assert len(starts) - 1 == expected and np.array_equal(np.sort(rows), np.arange(np.prod(shape)))


def test_rows_of_one_colour_are_not_coupled_even_on_a_graph_that_is_not_symmetric():
    A = CrsMatrix.from_scipy(
        sp.random_array((60, 60), density=0.08, rng=np.random.default_rng(13337)) + sp.eye_array(60)
    )
    rows, starts = colours_of(A.graph)
    dense = A.to_scipy().toarray() != 0
    for first, last in itertools.pairwise(starts):
        here = rows[first:last]
        assert np.count_nonzero(dense[np.ix_(here, here)]) == here.size


def test_sweeps_are_the_textbooks_in_the_order_of_colours(rng):
    """(D + L) x_new = b - U x of the matrix with its rows sorted by colour, forwards, then (D + U) backwards."""
    A = gallery.anisotropic((6, 5), 3)
    smoother = GaussSeidelSmoother(A, inverse_diagonal(A), 2)
    b, buffer = rng.standard_normal((30, 3)), np.full((30, 3), np.nan)
    x = smoother.smooth(b, None, None, buffer, None)
    rows, _ = colours_of(A.graph)
    for i in range(3):
        a = A.to_scipy(i).toarray()[np.ix_(rows, rows)]
        once = np.linalg.solve(np.tril(a), b[rows, i])
        twice = once + np.linalg.solve(np.triu(a), b[rows, i] - a @ once)
        np.testing.assert_allclose(x[rows, i], twice, rtol=0, atol=1e-13 * np.abs(twice).max())


def test_jacobi_is_the_textbooks(rng):
    A = gallery.anisotropic((6, 5), 2)
    M = smoothed_aggregation(A, smoother=Jacobi(damping=1.2, sweeps=2), coarse_size=5, max_levels=2, dtype=np.float64)
    level, b = M.levels[0], rng.standard_normal((30, 2))
    x = level.smoother.smooth(b, None, np.empty_like(b), np.empty_like(b), np.empty_like(b))
    for i in range(2):
        a, step = A.to_scipy(i), 1.2 / level.lambda_max[i] / A.diagonal().samples[:, i]
        once = step * b[:, i]
        np.testing.assert_allclose(x[:, i], once + step * (b[:, i] - a @ once), rtol=0, atol=1e-14)


@pytest.mark.parametrize("smoother", SMOOTHERS, ids=str)
def test_v_cycle_is_symmetric_positive(smoother, rng):
    A = gallery.anisotropic((12, 12), 3)
    M = smoothed_aggregation(A, coarse_size=10, smoother=smoother, dtype=np.float64)
    x, y = (Ensemble(rng.standard_normal((144, 3))) for _ in range(2))
    left, right = (np.sum(u.samples * (M @ v).samples, axis=0) for u, v in ((x, y), (y, x)))
    np.testing.assert_allclose(left, right, rtol=1e-10)
    assert np.all(np.sum(x.samples * (M @ x).samples, axis=0) > 0)


@pytest.mark.parametrize("smoother", [GaussSeidel(), Jacobi()], ids=str)
def test_each_sample_is_its_scalar_hierarchy(smoother, rng):
    A = gallery.anisotropic((9, 8), 7)
    r = Ensemble(rng.standard_normal((72, 7)))
    M = smoothed_aggregation(A, coarse_size=12, smoother=smoother)
    z, part = M @ r, M.take_samples([6, 2]) @ Ensemble(r.samples[:, [6, 2]])
    assert np.array_equal(part.samples, z.samples[:, [6, 2]])
    for i in (2, 6):
        assert np.array_equal(
            smoothed_aggregation(A.sample(i), coarse_size=12, smoother=smoother) @ r.sample(i), z.sample(i)
        )
    new = gallery.anisotropic((9, 8), 7, seed=98765)
    expected = smoothed_aggregation(new, coarse_size=12, smoother=smoother) @ r
    assert np.array_equal((M.update(new) @ r).samples, expected.samples)


def test_the_number_of_threads_changes_no_bit(rng):
    A = gallery.anisotropic((230, 220), 3)  # large enough for several threads
    r = Ensemble(rng.standard_normal((A.shape[0], 3)))
    M = smoothed_aggregation(A, smoother=GaussSeidel())
    z, threads = (M @ r).samples, numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        assert np.array_equal((M @ r).samples, z)
    finally:
        numba.set_num_threads(threads)


@pytest.mark.parametrize("smoother", [GaussSeidel(), Jacobi()], ids=str)
def test_solves_take_about_as_many_iterations_as_with_chebyshev(smoother):
    A = gallery.anisotropic((30, 30), 3, strength=2.0)
    b = np.random.default_rng(60221).standard_normal(900)
    expected = cg(A, b, M=smoothed_aggregation(A)).iterations
    for options in ({}, {"dtype": np.float32}):
        result = cg(A, b, M=smoothed_aggregation(A, smoother=smoother, **options))
        assert result.converged.all() and np.all(result.iterations <= expected + 3)


def test_half_the_values_of_a_symmetric_matrix_serve(rng):
    A = gallery.anisotropic((12, 12), 3)
    r = Ensemble(rng.standard_normal((144, 3)))
    half = SymmetricCrsMatrix.from_crs(A)
    for options in ({"smoother": GaussSeidel()}, {"strength": 0.2}):
        z = (smoothed_aggregation(A, **options) @ r).samples
        M = smoothed_aggregation(half, **options)
        assert np.array_equal(z, (M @ r).samples)
        assert np.array_equal(z, (M.update(half) @ r).samples)


def test_a_scaled_hierarchy_takes_them():
    A = gallery.anisotropic((12, 12), 3, strength=2.0)
    M = scaled_aggregation(A, A.sample(0), smoother=GaussSeidel())
    assert cg(A, np.ones(144), M=M).converged.all()


def test_an_affine_matrix_takes_jacobi_and_refuses_gauss_seidel():
    mean = gallery.poisson((12, 12))
    A = AffineMatrix(mean.graph, np.concatenate([mean.values, 0.2 * mean.values], axis=1), Ensemble(np.ones((1, 2))))
    assert cg(A, np.ones(144), M=smoothed_aggregation(A, smoother=Jacobi())).converged.all()
    with pytest.raises(ValueError, match="smoother must be a Chebyshev or a Jacobi for an AffineMatrix"):
        smoothed_aggregation(A, smoother=GaussSeidel())


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: GaussSeidel(sweeps=0), ValueError, "GaussSeidel: sweeps must be an integer of at least 1; got 0"),
        (lambda: Jacobi(damping=0.0), ValueError, "Jacobi: damping must be a finite number above zero"),
        (
            lambda: smoothed_aggregation(gallery.poisson((4, 4)), smoother="jacobi"),
            TypeError,
            "be a Chebyshev, a Jacobi",
        ),
    ],
)
def test_bad_options_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("n", [0, 1, 3])
def test_tiny_matrices_without_couplings_are_inverted(n):
    A = CrsMatrix.from_scipy(4.0 * sp.csr_array(sp.eye_array(n)))
    for options in ({}, {"strength": EvolutionStrength()}, {"improve_candidates": 2, "smoother": GaussSeidel()}):
        assert np.array_equal(smoothed_aggregation(A, **options) @ np.ones(n), np.full(n, 0.25))


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, *({"smoother": each} for each in SMOOTHERS)], ids=str)
def test_a_device_has_the_iterations_of_the_cpu(options, rng):
    """Arguments that stay on the host are found only here: arrays of the emulator are NumPy's."""
    A, b = gallery.anisotropic((24, 24), 3), Ensemble(rng.standard_normal((576, 3)))
    right = cg(A, b, M=smoothed_aggregation(A, coarse_size=20, **options))
    there, home = A.to(prototype("cupy")), prototype("cupy")
    M = smoothed_aggregation(there, coarse_size=20, **options)
    found = cg(there, Ensemble(asarray_like(b.samples, home)), M=M)
    assert found.converged.all() and np.abs(found.iterations - right.iterations).max() <= 1
    np.testing.assert_allclose(to_numpy(found.x.samples), right.x.samples, atol=1e-5 * np.abs(right.x.samples).max())
