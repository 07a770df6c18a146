"""The plain program of the legacy method: its last version has the cells of the engine, its structures agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bench_gbees import start
from benchmarks.legacy_gbees import Legacy
from ensemble.apps.gbees.engines.cpu import CompiledEngine


@pytest.mark.slow
def test_with_all_changes_the_plain_program_has_the_cells_of_the_engine() -> None:
    """Lorenz '63 to t = 0.5: the same steps, cells and probabilities."""
    problem, indices, p = start("lorenz63", np.float64)
    engine = CompiledEngine(replace(problem, prune="parallel"), indices, p)
    run = Legacy(indices, p)
    for k in range(2):
        expected, taken = engine.advance(0.25 * k, 0.25), run.advance(0.25)
        assert [cells for _, cells in taken] == expected.cells.tolist()
        np.testing.assert_allclose([dt for dt, _ in taken], expected.lengths, rtol=1e-13)
    for got, want in zip(run.distribution(), engine.cells(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("directional", [True, False])
def test_a_nested_list_and_a_hash_table_hold_the_same_cells(directional: bool) -> None:
    """Before and after a measurement, with prunings: the same cells, probabilities up to the order of their sum."""
    _, indices, p = start("lorenz63", np.float64)
    runs = [Legacy(indices, p, hashed=hashed, directional=directional) for hashed in (True, False)]
    for run in runs:
        run.advance(0.15)
        run.measure(-8.0)
        run.advance(0.05)
    a, b = runs[0].distribution(), runs[1].distribution()
    assert runs[0].n_cells == runs[1].n_cells == len(a[0])
    assert np.array_equal(a[0], b[0])
    np.testing.assert_allclose(a[1], b[1], rtol=1e-12)
