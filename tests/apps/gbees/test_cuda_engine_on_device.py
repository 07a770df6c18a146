"""The CUDA engine on a CUDA device (make test-gpu): the public program's run, the array engine's cells, equal bits."""

import numpy as np
import pytest

from ensemble import Ensemble
from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble.apps.gbees import Gbees, lorenz63
from ensemble.apps.gbees.engines.cuda import CudaEngine
from tests.apps.gbees.references import assert_same, run_lorenz63, start

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


class Fetched(CudaEngine):
    """Takes and gives NumPy's arrays."""

    def __init__(self, problem, indices, p, time=0.0):
        home = prototype("cupy")
        super().__init__(problem, asarray_like(indices, home), asarray_like(p, home), time)

    def cells(self):
        indices, p = super().cells()
        return to_numpy(indices), to_numpy(p)


def test_lorenz63_step_for_step():
    done = None
    for run, data, record, done in run_lorenz63(Fetched):  # noqa: B007
        assert_same(run, data, record, rtol=1e-11)
    assert done == (963, 6_512_143)


NOISE = np.array([[0.5, 0.2, 0.0], [0.2, 0.5, 0.1], [0.0, 0.1, 0.5]])
OPTIONS = [
    {"prune": "parallel"}, {"rotate": True}, {"diffusion": 0.5}, {"diffusion": NOISE}, {"time_order": 2},
    {"extent": 4.0},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
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


@pytest.mark.parametrize(
    "h, y", [(lambda x, xp: x[2] + 0.5 * x[0], 4.0), (lambda x, xp: xp.sqrt(x[0] ** 2 + x[2] ** 2), 13.0)]
)
def test_sharp_measurements_are_those_of_the_array_engine(h, y):
    runs = [Gbees(lorenz63, [-11.5, -10.0, 9.5], np.eye(3), threshold=1e-4, backend=name) for name in ("array", "cupy")]
    evidences = [run.update(h, y, 0.01) for run in runs]
    assert evidences[1] == pytest.approx(evidences[0], rel=1e-9)
    np.testing.assert_allclose(runs[1].covariance(), runs[0].covariance(), rtol=1e-9)
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
        run = CudaEngine(problem, asarray_like(indices, home), asarray_like(p, home))
        run.advance(0.0, 0.2)
        bits.append([to_numpy(part) for part in run.cells()])
    for one, other in zip(*bits, strict=True):
        np.testing.assert_array_equal(one, other)
