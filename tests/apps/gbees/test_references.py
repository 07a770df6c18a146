"""The runs of the public program, record by record."""

import numpy as np
import pytest

from ensemble.apps.gbees import Gbees, lorenz63
from tests.apps.gbees.references import assert_same, distance, reference, run_lorenz63, start


@pytest.mark.slow
def test_lorenz63_step_for_step(engine):
    done = None
    for run, data, record, done in run_lorenz63(engine):  # noqa: B007
        assert_same(run, data, record, rtol=1e-11)
    assert done == (963, 6_512_143)


@pytest.mark.slow
def test_lorenz63_with_a_lower_threshold(engine):
    done, compared = None, 0
    for run, data, record, done in run_lorenz63(engine, "l63_p1e-7", 3):  # noqa: B007
        if f"{record}_p" in data:  # the file keeps two records of each interval
            assert_same(run, data, record, rtol=1e-11)
            compared += 1
    assert compared == 4
    assert done == (1113, 14_875_903)


@pytest.mark.slow
def test_lorenz63_in_single_precision(engine):
    done = None
    for run, data, record, done in run_lorenz63(engine, dtype=np.float32):  # noqa: B007
        assert distance(run, data, record) < 1e-6
    assert done[0] == 963


@pytest.mark.slow
def test_lorenz63_with_the_parallel_rule_of_pruning(engine):
    for run, data, record, _ in run_lorenz63(engine, prune="parallel"):
        assert distance(run, data, record) < 2e-5


def test_lorenz63_up_to_the_first_record(engine):
    records = run_lorenz63(engine)
    for _ in range(2):
        run, data, record, _ = next(records)
        assert_same(run, data, record, rtol=1e-11)


@pytest.mark.slow  # the compiled and the array engine are compared with the definition, step by step, among the others
def test_lorenz96_in_six_dimensions(engine):
    problem, indices, p = start("l96_short")
    data, run = reference("l96_short"), engine(problem, indices, p)
    assert_same(run, data, "P0_pdf_0", rtol=1e-11)
    taken = [run.advance(0.0, 0.1), run.advance(0.1, 0.1)]
    assert_same(run, data, "P0_pdf_2", rtol=1e-11)
    assert sum(len(part.lengths) for part in taken) == 35
    assert sum(int(part.cells.sum()) for part in taken) == 3_096_283


@pytest.mark.parametrize("backend", ["numpy", pytest.param("array", marks=pytest.mark.slow)])
def test_a_rotated_grid_is_the_public_programs(backend):
    data = reference("l63_rotated")
    threshold = float(data["thresh"])
    run = Gbees(lorenz63, data["mu"], data["covariance"], threshold=threshold, rotate=True, backend=backend)
    np.testing.assert_allclose(run.problems[0].rotation, data["R"], rtol=1e-14)  # signs too
    np.testing.assert_allclose(run.problems[0].widths, data["dx"], rtol=1e-15)
    for record in ("P0_pdf_1", "P0_pdf_2"):
        run.advance(float(data[f"{record}_t"]))
        indices, p = run.cells()
        np.testing.assert_array_equal(indices[p >= threshold], data[f"{record}_s"])
        np.testing.assert_allclose(p[p >= threshold], data[f"{record}_p"], rtol=1e-11)
