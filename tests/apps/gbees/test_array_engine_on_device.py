"""The Array API engine on a CUDA device (make test-gpu): CuPy as one more library."""

import numpy as np
import pytest

from ensemble._backend import array_namespace, asarray_like, prototype, to_numpy
from ensemble.apps.gbees import Gbees, lorenz63
from ensemble.apps.gbees.engines.array import ArrayEngine
from tests.apps.gbees.references import assert_same, reference, start

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


def test_lorenz96_in_six_dimensions():
    home = prototype("cupy")
    problem, indices, p = start("l96_short")
    run = ArrayEngine(problem, asarray_like(indices, home), asarray_like(p, home))
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
