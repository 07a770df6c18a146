"""Plain conjugate gradients: many iterations in one compiled call have the results of single ones, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix
from ensemble.scalar import Ensemble

GRID = poisson((34, 34))  # 1156 rows: two whole blocks of a sum and a part of one
RNG = np.random.default_rng(5)
B = RNG.standard_normal((GRID.shape[0], 3))


def one_by_one(iteration, norms):
    """A callback: with one, the loop returns to Python after each iteration."""


def matrix(scales, dtype=np.float64):
    return CrsMatrix(GRID.graph, (GRID.values.reshape(-1, 1) * np.asarray(scales)).astype(dtype))


def broken(kind):
    """Three samples, the middle one bad."""
    A = matrix([1.0, 1.0, 3.0])
    values = A.values.copy()
    values[:, 1] = {"not finite": np.nan, "indefinite": -values[:, 1], "zero": 0.0 * values[:, 1]}[kind]
    return CrsMatrix(GRID.graph, Ensemble(values))


def uneven():
    """Rows of very different sizes: norms of residuals rise and fall."""
    d = np.exp(np.linspace(0.0, 18.0, GRID.shape[0]))
    rows = np.repeat(np.arange(GRID.shape[0]), np.diff(GRID.graph.indptr))
    scale = np.sqrt(d[rows] * d[GRID.graph.indices])
    return CrsMatrix(GRID.graph, Ensemble(GRID.values.reshape(-1, 1) * scale[:, None] * np.array([1.0, 2.0, 5.0])))


CASES = {
    "one sample": (matrix([1.0]), B[:, 0], {}),
    "float32": (matrix([1.0], np.float32), B[:, 0].astype(np.float32), {}),
    "samples": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {}),
    "one matrix for all": (GRID, Ensemble(B[:, :2]), {}),
    "few iterations": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"max_iterations": 9}),
    "more than one call": (uneven(), Ensemble(B), {"max_iterations": 150, "rtol": 1e-12}),
    "residuals that rise": (uneven(), Ensemble(B), {"max_iterations": 60}),
    "a start": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"x0": Ensemble(B * 0.01)}),
    "stagnation": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"rtol": 1e-30}),
    "tolerances": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"rtol": np.array([1e-1, 1e-12, 1e-5])}),
    "not finite": (broken("not finite"), Ensemble(B), {}),
    "indefinite": (broken("indefinite"), Ensemble(B), {}),
    "zero": (broken("zero"), Ensemble(B), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_many_iterations_in_one_call_are_those_of_single_ones(name, monkeypatch):
    A, b, options = CASES[name]
    single = cg(A, b, callback=one_by_one, **options)
    products = []
    monkeypatch.setattr(CrsMatrix, "apply_dot", lambda *arguments: products.append(arguments))
    many = cg(A, b, **options)
    assert not products  # else an iteration returned to Python
    assert many.iterations.tolist() == single.iterations.tolist()
    assert many.status.tolist() == single.status.tolist()
    np.testing.assert_array_equal(many.residual_norms, single.residual_norms)
    values = [x.samples if isinstance(x, Ensemble) else x for x in (many.x, single.x)]
    np.testing.assert_array_equal(*values)


def test_the_cases_come_to_every_decision():
    seen = {str(s) for A, b, options in CASES.values() for s in cg(A, b, **options).status}
    assert len(seen) == 4, seen
    A, b, options = CASES["residuals that rise"]
    norms = cg(A, b, **options).residual_norms
    assert (norms[1:] > 2.0 * np.minimum.accumulate(norms)[:-1]).any()


def test_samples_are_those_of_scalar_runs():
    A, b, _ = CASES["samples"]
    together = cg(A, b, rtol=1e-9)
    for s in range(3):
        alone = cg(A.sample(s), B[:, s], rtol=1e-9)
        np.testing.assert_array_equal(alone.x, together.x.samples[:, s])
