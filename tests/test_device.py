"""Whole computations on a CUDA device (make test-gpu)."""

import importlib

import numpy as np
import pytest

from ensemble import Ensemble
from ensemble._backend import moved, prototype, to_numpy
from ensemble.apps.fem import RandomDiffusion
from ensemble.krylov import Status, cg
from ensemble.multigrid import smoothed_aggregation
from tests.test_cuda_sources import problem, solved

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]
cg_module = importlib.import_module("ensemble.krylov.cg")
resident_module = importlib.import_module("ensemble.krylov._resident")


def on_device(A, b):
    home = prototype("cupy")
    return A.to(home), Ensemble(moved(b.samples, home))


@pytest.mark.parametrize("n_samples", [1, 6, 32, 33])
def test_a_solve_agrees_with_the_cpu(n_samples):
    A, b = problem(n_samples)
    expected, got = solved(A, b), solved(*on_device(A, b))
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.x.samples), expected.x.samples, rtol=1e-11, atol=1e-11)


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
    monkeypatch.setattr(resident_module, "own_stream", plain_stream)
    plain = solved(A, b)
    monkeypatch.setattr(cg_module, "can_stay", lambda *arguments: False)
    by_host = solved(A, b)
    for other in (plain, by_host):
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
    expected = smoothed_aggregation(A, coarse_size=60).coarse.inverse
    got = smoothed_aggregation(on_device(A, b)[0], coarse_size=60).coarse.inverse
    np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("operator, hierarchy", [("stored", "own"), ("affine", "mean"), ("affine", "own")])
def test_operators_and_precisions_agree_with_the_cpu(operator, hierarchy, dtype):
    y = Ensemble(np.random.default_rng(71903).uniform(-1.0, 1.0, (5, 8)))
    options = {"operator": operator, "hierarchy": hierarchy, "hierarchy_dtype": dtype, "rtol": 1e-10, "cg_rtol": 1e-10}
    expected = RandomDiffusion(12).solve(y, **options)
    got = RandomDiffusion(12, backend="cupy").solve(y, **options)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.u.samples), expected.u.samples, rtol=1e-9)
