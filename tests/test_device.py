"""Whole computations on a CUDA device (make test-gpu)."""

import importlib

import numpy as np
import pytest

from ensemble import Ensemble, gallery
from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble._compile import device
from ensemble._kernels.all_kernels import KERNELS
from ensemble.apps.fem import Multigrid, RandomDiffusion
from ensemble.krylov import Status, bicgstab, cg, gmres
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from tests.device_problems import affine_arrays, convection, problem, solved, solved_by_reduction
from tests.krylov.problems import EVERY_METHOD, nonsymmetric

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]
solve_module = importlib.import_module("ensemble.krylov._solve")
device_module = importlib.import_module("ensemble.krylov._device")


def on_device(A, b):
    home = prototype("cupy")
    return A.to(home), Ensemble(asarray_like(b.samples, home))


@pytest.mark.parametrize("n_samples", [1, 6, 32, 33])
def test_a_solve_agrees_with_the_cpu(n_samples):
    A, b = problem(n_samples)
    expected, got = solved(A, b), solved(*on_device(A, b))
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.x.samples), expected.x.samples, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n_samples", [1, 6, 33])
def test_a_solve_by_reduction_agrees_with_the_cpu(n_samples):
    A, b = convection(n_samples)
    expected, got = solved_by_reduction(A, b), solved_by_reduction(*on_device(A, b))
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.x.samples), expected.x.samples, rtol=1e-9, atol=1e-9)


def test_a_sample_is_its_own_scalar_run():
    A, b = problem(7)
    b.samples[:, 1] *= 1e-9
    b.samples[:, 2] = 0.0
    b.samples[3, 4] = np.nan
    together = solved(*on_device(A, b))
    assert together.status[4] == Status.breakdown
    for i in range(7):
        alone = solved(*on_device(A.sample(i), Ensemble(b.samples[:, i : i + 1].copy())))
        assert together.iterations[i] == alone.iterations[0]
        np.testing.assert_array_equal(to_numpy(together.x.samples)[:, i], to_numpy(alone.x.samples)[:, 0])


def test_recorded_and_plain_launches_give_the_same_bits(monkeypatch):
    A, b = on_device(*problem(5))
    recorded = solved(A, b)
    monkeypatch.setattr(device_module, "own_stream", plain_stream)
    plain = solved(A, b)
    monkeypatch.setattr(solve_module, "runs_on_device", lambda *arguments: False)
    by_host = solved(A, b)
    for other in (plain, by_host):
        np.testing.assert_array_equal(to_numpy(recorded.x.samples), to_numpy(other.x.samples))
        np.testing.assert_array_equal(recorded.residual_norms, other.residual_norms)


@pytest.mark.parametrize("name", EVERY_METHOD)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_methods_that_stay_have_the_bits_of_the_host_loop(name, dtype, monkeypatch):
    """Recorded or not; a zero, a tiny, a NaN sample and one that breaks down among them."""
    A = gallery.random_spd(90, 7) if name.startswith("cg") else nonsymmetric(90, 7, seed=50231)
    b = np.random.default_rng(80917).standard_normal((90, 7))
    b[:, 1] *= 1e-9
    b[:, 2], b[3, 4], A.values[:, 5] = 0.0, np.nan, 0.0
    A, b = on_device(CrsMatrix(A.graph, A.values.astype(dtype)), Ensemble(b.astype(dtype)))
    method, options = EVERY_METHOD[name]
    options = {**options, "rtol": 1e-9 if dtype == np.float64 else 1e-4, "max_iterations": 80}
    recorded = method(A, b, **options)
    assert recorded.converged[[0, 1, 2, 3, 6]].all() and not recorded.converged[[4, 5]].any()
    monkeypatch.setattr(device_module, "own_stream", plain_stream)
    plain = method(A, b, **options)
    monkeypatch.setattr(solve_module, "runs_on_device", lambda *arguments: False)
    by_host = method(A, b, **options)
    for other in (plain, by_host):
        np.testing.assert_array_equal(recorded.status, other.status)
        np.testing.assert_array_equal(recorded.iterations, other.iterations)
        np.testing.assert_array_equal(to_numpy(recorded.x.samples), to_numpy(other.x.samples))
        np.testing.assert_array_equal(recorded.residual_norms, other.residual_norms)


class plain_stream:
    """No stream of its own: nothing is recorded."""

    def __init__(self, array):
        pass

    def __enter__(self):
        return False

    def __exit__(self, *error):
        pass


def test_a_run_repeats_to_the_bit():
    A, b = on_device(*problem(5))
    first, second = (to_numpy(solved(A, b).x.samples) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_finished_samples_are_taken_out():
    A, b = on_device(*problem(6))
    x0 = cg(A, b, rtol=1e-12).x.samples * (1 + 1e-7)
    x0[:, 4:] = 0.0
    narrowed = cg(A, b, x0=Ensemble(x0), rtol=1e-10)
    whole = cg(A, b, x0=Ensemble(x0), rtol=1e-10, compact=False)
    np.testing.assert_array_equal(to_numpy(narrowed.x.samples), to_numpy(whole.x.samples))
    np.testing.assert_array_equal(narrowed.residual_norms, whole.residual_norms)


@pytest.mark.parametrize("source", [0.0, 0.7])
def test_random_diffusion_agrees_with_the_cpu(source):
    y = Ensemble(np.random.default_rng(71903).uniform(-1.0, 1.0, (5, 6)))
    options = {"source": source, "grading": 1.0}
    expected = RandomDiffusion(12, **options).solve(y)
    got = RandomDiffusion(12, backend="cupy", **options).solve(y)
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.u.samples), expected.u.samples, rtol=1e-12)
    np.testing.assert_allclose(to_numpy(got.response.samples), expected.response.samples, rtol=1e-12)


def test_an_indefinite_coarsest_matrix_goes_through_lapack():
    A, b = problem(3)
    A.values[:, 1] *= -1.0
    expected = smoothed_aggregation(A, coarse_size=60, dtype=np.float64).coarse.inverse
    got = smoothed_aggregation(on_device(A, b)[0], coarse_size=60, dtype=np.float64).coarse.inverse
    np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "operator, matrix", [("stored", "sample"), ("affine", "mean"), ("affine", "sample"), ("matrix-free", "mean")]
)
def test_operators_and_precisions_agree_with_the_cpu(operator, matrix, dtype):
    y = Ensemble(np.random.default_rng(71903).uniform(-1.0, 1.0, (5, 8)))
    preconditioner = Multigrid(matrix=matrix, dtype=dtype)
    options = {"operator": operator, "preconditioner": preconditioner, "rtol": 1e-10, "cg_rtol": 1e-10}
    expected = RandomDiffusion(12).solve(y, **options)
    got = RandomDiffusion(12, backend="cupy").solve(y, **options)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.u.samples), expected.u.samples, rtol=1e-9)


def test_the_matrix_free_operator_solves_lognormal_problems():
    y = Ensemble(np.random.default_rng(71903).uniform(-1.0, 1.0, (5, 6)))
    options = {"operator": "matrix-free", "rtol": 1e-10, "cg_rtol": 1e-10}
    expected = RandomDiffusion(12, coefficient="lognormal").solve(y, **options)
    got = RandomDiffusion(12, coefficient="lognormal", backend="cupy").solve(y, **options)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.u.samples), expected.u.samples, rtol=1e-9)
    alone = RandomDiffusion(12, coefficient="lognormal", backend="cupy").solve(Ensemble(y.samples[:, 4:5]), **options)
    np.testing.assert_array_equal(to_numpy(alone.u.samples)[:, 0], to_numpy(got.u.samples)[:, 4])


@pytest.mark.parametrize("solve", [bicgstab, gmres, lambda *args, **options: gmres(*args, restart=6, **options)])
def test_nonsymmetric_solvers_agree_with_the_cpu(solve):
    """And a sample is its own scalar run on the device, a zero, a NaN and a badly scaled one among them."""
    A = nonsymmetric(90, 7, seed=50231)
    b = np.random.default_rng(80917).standard_normal((90, 7))
    b[:, 1] *= 1e-9
    b[:, 2] = 0.0
    b[3, 4] = np.nan
    b = Ensemble(b)
    expected, got = solve(A, b, rtol=1e-9), solve(*on_device(A, b), rtol=1e-9)
    np.testing.assert_array_equal(got.status, expected.status)
    sound = got.converged
    np.testing.assert_allclose(got.iterations[sound], expected.iterations[sound], atol=1)
    np.testing.assert_allclose(to_numpy(got.x.samples)[:, sound], expected.x.samples[:, sound], rtol=1e-6, atol=1e-9)
    for i in range(7):
        alone = solve(*on_device(A.sample(i), Ensemble(b.samples[:, i : i + 1].copy())), rtol=1e-9)
        assert got.iterations[i] == alone.iterations[0]
        np.testing.assert_array_equal(to_numpy(got.x.samples)[:, i], to_numpy(alone.x.samples)[:, 0])


@pytest.mark.parametrize("n_samples", [2, 4, 8, 12, 16, 33])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_do_not_depend_on_the_number_of_samples(n_samples, dtype):
    """However samples lie on threads: the last of them has the bits of its own run."""
    A, b = problem(n_samples)
    A = type(A)(A.graph, A.values.astype(dtype))
    A, b = on_device(A, Ensemble(b.samples.astype(dtype)))
    last = n_samples - 1
    y, inner = A.apply_dot(b.samples)
    alone = A.sample(last)
    one, its_inner = alone.apply_dot(b.samples[:, last:].copy())
    np.testing.assert_array_equal(to_numpy(y)[:, last], to_numpy(one)[:, 0])
    np.testing.assert_array_equal(to_numpy(inner)[last], to_numpy(its_inner)[0])
    np.testing.assert_array_equal(to_numpy(A.apply(b.samples)), to_numpy(y))


@pytest.mark.parametrize("n_terms, n_samples", [(6, 32), (5, 16), (8, 64), (21, 48)])
def test_matrix_units_add_in_order(n_terms, n_samples):
    """Numbers of all magnitudes, long rows and empty ones: the bits of the CPU."""
    if not device.ordered_matrix_units():
        pytest.skip("not checked on this device")
    indptr, indices, *factors = affine_arrays(1500, n_terms, n_samples)
    rng = np.random.default_rng(77261)
    factors = [values * np.exp2(rng.integers(-300, 300, values.shape)) for values in factors]
    k, home = KERNELS["affine_spmv"], prototype("cupy")
    got = k.implementations["cuda"](*(asarray_like(array, home) for array in (indptr, indices, *factors)), None)
    np.testing.assert_array_equal(to_numpy(got), k.implementations["numba"](indptr, indices, *factors, None))


@pytest.mark.parametrize("name", ["residual", "chebyshev_first", "chebyshev_step", "chebyshev_last"])
def test_matrix_units_end_as_the_cpu_does(name):
    indptr, indices, terms, coefficients, _ = affine_arrays(1500, 6, 32)
    rng = np.random.default_rng(40093)
    square = (indptr, indices, terms, coefficients)
    dinv, b, x, w = rng.standard_normal((4, 1500, 32))
    a, c = rng.standard_normal((2, 32))
    vectors = {"residual": (x, b), "chebyshev_first": (dinv, b, x, c, w)}.get(name, (dinv, b, x, a, c, w))
    k, home = KERNELS[f"affine_{name}"], prototype("cupy")
    got = k.implementations["cuda"](*(asarray_like(array, home) for array in (*square, *vectors)), None)
    expected = k.implementations["numba"](*square, *vectors, None)
    for here, there in zip(got, expected, strict=True):
        np.testing.assert_array_equal(to_numpy(here), there)
