"""The engines on a CUDA device (make test-gpu): CuPy as one more library, and the kernels."""

import numpy as np
import pytest

from ensemble import Ensemble
from ensemble._backend import array_namespace, moved, prototype, to_numpy
from ensemble.apps.gbees import Gbees, lorenz63
from ensemble.apps.gbees.array_engine import ArrayEngine
from ensemble.apps.gbees.cuda_engine import CudaEngine
from tests.apps.gbees.references import assert_same, reference, start

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


def test_lorenz96_in_six_dimensions():
    home = prototype("cupy")
    problem, indices, p = start("l96_short")
    run = ArrayEngine(problem, moved(indices, home), moved(p, home))
    run.advance(0.0, 0.1)
    run.advance(0.1, 0.1)
    assert_same(run, reference("l96_short"), "P0_pdf_2", rtol=1e-11)


def test_a_whole_run_is_that_of_the_cpu():
    runs = []
    for backend in ("array", array_namespace(prototype("cupy"))):
        run = Gbees(
            lorenz63, [-11.5, -10.0, 9.5], np.eye(3), threshold=1e-4, backend=backend, diffusion=0.5,
            bounds=lambda x, xp: xp.abs(x[0]),
        )  # fmt: skip
        run.advance(0.1)
        run.update(lambda x, xp: x[2], 5.0, 1.0)
        run.advance(0.15)
        runs.append(run)
    for mine, own in zip(runs[0].cells(), runs[1].cells(), strict=True):
        np.testing.assert_allclose(to_numpy(own), mine, rtol=1e-9)
    np.testing.assert_allclose(runs[1].mean(), runs[0].mean(), rtol=1e-11)
    np.testing.assert_allclose(runs[1].covariance(), runs[0].covariance(), rtol=1e-10)
    assert runs[1].marginal(0).probabilities.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{"prune": "parallel"}, {"rotate": True}, {"diffusion": 0.5}], ids=str)
def test_the_kernels_give_the_cells_of_the_array_engine(options):
    runs = []
    for backend in ("array", "cupy"):
        covariance = [[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]]
        run = Gbees(lorenz63, [-11.5, -10.0, 9.5], covariance, threshold=1e-4, backend=backend, **options)
        run.advance(0.1)
        run.update(lambda x, xp: x[2], 5.0, 1.0)
        run.advance(0.15)
        runs.append(run)
    for mine, own in zip(runs[0].cells(), runs[1].cells(), strict=True):
        np.testing.assert_allclose(to_numpy(own), mine, rtol=1e-9, atol=1e-18)


def test_samples_are_their_own_runs_to_the_bit():
    drift = lorenz63.with_parameters(r=Ensemble(np.array([44.0, 48.0, 50.0])))
    together = Gbees(drift, [-11.5, -10.0, 9.5], np.eye(3), threshold=5e-6, backend="cupy")
    together.advance(0.2)
    for i, r in enumerate((44.0, 48.0, 50.0)):
        drift = lorenz63.with_parameters(r=r)
        alone = Gbees(drift, [-11.5, -10.0, 9.5], np.eye(3), threshold=5e-6, backend="cupy")
        alone.advance(0.2)
        np.testing.assert_array_equal(together.mean().sample(i), alone.mean())


def test_a_large_grid_repeats_to_the_bit():
    home = prototype("cupy")
    problem, indices, p = start("l96_short")
    bits = []
    for _ in range(2):
        run = CudaEngine(problem, moved(indices, home), moved(p, home))
        run.advance(0.0, 0.2)
        bits.append([to_numpy(part) for part in run.cells()])
    for one, other in zip(*bits, strict=True):
        np.testing.assert_array_equal(one, other)
