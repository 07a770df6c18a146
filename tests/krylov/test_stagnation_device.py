"""Stagnation, restarts and best iterates on a CUDA device (make test-gpu): the bits of the loop with host scalars."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble.krylov import Status, _solve, cg
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.krylov.problems import EVERY_METHOD

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]
every_method = pytest.mark.parametrize("name", EVERY_METHOD)


def on_device(A, b):
    home = prototype("cupy")
    return A.to(home), Ensemble(asarray_like(b, home))


def both_loops(monkeypatch, name, A, b, **options):
    """The solve with its scalars on the device, and with its scalars on the host."""
    method, own = EVERY_METHOD[name]
    device = method(A, b, **own, **options)
    with monkeypatch.context() as patch:
        patch.setattr(_solve, "runs_on_device", lambda *run: False)
        return device, method(A, b, **own, **options)


def assert_same(one, other):
    for attribute in ("status", "iterations", "residual_norms", "true_residual_norms"):
        np.testing.assert_array_equal(getattr(one, attribute), getattr(other, attribute))
    np.testing.assert_array_equal(to_numpy(one.x.samples), to_numpy(other.x.samples))


@every_method
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_stagnation_and_best_iterates_have_the_bits_of_the_host_loop(name, dtype, monkeypatch):
    """Tolerances that are met, beyond rounding and zero, a zero right-hand side, indefinite samples; some taken out."""
    rng, n = np.random.default_rng(41203), 40
    bases = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(8)]
    spectra = [np.logspace(0, d % 6, n) * np.where(np.arange(n) < d - 5, -1.0, 1.0) for d in range(8)]
    A = CrsMatrix.from_scipy([sp.csr_array(q @ np.diag(e) @ q.T) for e, q in zip(spectra, bases, strict=True)])
    b = rng.standard_normal((n, 8)).astype(dtype)
    b[:, 4] = 0.0
    A, b = on_device(CrsMatrix(A.graph, A.values.astype(dtype)), b)
    rtol = np.array([1e-15, 1e-3, 0.0, 1e-14, 1e-4, 1e-17, 1e-3, 1e-15])
    for compact in (True, False):
        device, host = both_loops(monkeypatch, name, A, b, rtol=rtol, max_iterations=150, compact=compact)
        assert device.status[4] == Status.converged and not device.iterations[4]
        assert name.startswith("gmres") or (device.status == Status.stagnated).any()
        assert_same(device, host)


@pytest.mark.parametrize("flexible", [False, True])
def test_cg_with_a_hierarchy_stops_at_the_attainable_accuracy(flexible):
    """The relative residual of 300 x 300 unknowns cannot fall much below 1e-12; the old direction made it grow."""
    A = gallery.poisson((300, 300), n_samples=4)
    device_A, b = on_device(A, np.ones((90000, 4)))
    M = smoothed_aggregation(device_A)
    for rtol in (1e-12, 1e-13, 0.0):
        result = cg(device_A, b, M=M, rtol=rtol, flexible=flexible)
        assert all(status in (Status.converged, Status.stagnated) for status in result.status)
        assert result.iterations.max() <= 45
        norms = np.linalg.norm(1.0 - (A @ Ensemble(to_numpy(result.x.samples))).samples, axis=0)
        assert np.all(norms <= 3e-12 * 300.0)


@every_method
def test_solves_that_converge_have_the_bits_of_the_host_loop(name, monkeypatch):
    A, b = on_device(gallery.poisson((40, 40), n_samples=6), np.random.default_rng(11491).standard_normal((1600, 6)))
    M = smoothed_aggregation(A, coarse_size=100)
    device, host = both_loops(monkeypatch, name, A, b, M=M, rtol=1e-8)
    assert device.converged.all()
    assert_same(device, host)
