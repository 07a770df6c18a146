"""Indices of pairs of inputs: closed forms, intervals, failures, stores."""

import numpy as np
import pytest

import ensemble as en
from tests.uq.sensitivity.problems import (
    G_FIRST,
    ISHIGAMI_FIRST,
    ISHIGAMI_TOTAL,
    ISHIGAMI_VARIANCE,
    PARTS,
    V13,
    g_function,
    g_inputs,
    ishigami,
    ishigami_inputs,
)


def indices_of(model, inputs, n=4096, **options):
    return en.sobol_indices(model, inputs, n, **({"seed": 31, "progress": False, "pairs": True} | options))


def test_ishigami_has_one_pair():
    found = indices_of(ishigami, ishigami_inputs())
    exact = np.zeros((3, 3))
    exact[0, 2] = exact[2, 0] = V13 / ISHIGAMI_VARIANCE
    low, high = found.interval("y", "second")
    apart = ~np.eye(3, dtype=bool)
    assert np.all((low <= exact + 1e-3)[apart] & (exact - 1e-3 <= high)[apart]) and np.all((high - low)[apart] < 0.12)
    assert np.isnan(np.diag(found.second["y"])).all() and found.n_samples == 4096 * 8
    np.testing.assert_array_equal(found.second["y"], found.second["y"].T)
    np.testing.assert_allclose(found.first["y"], ISHIGAMI_FIRST, atol=0.03)
    np.testing.assert_allclose(found.total["y"], ISHIGAMI_TOTAL, atol=0.05)


def test_pairs_of_the_g_function_are_the_exact_ones():
    found = indices_of(g_function, g_inputs(), 8192).second["y"]
    variance = np.prod(1.0 + PARTS) - 1.0
    for i in range(4):
        for j in range(i):
            assert found[i, j] == pytest.approx(PARTS[i] * PARTS[j] / variance, abs=0.01)
    assert found[3, 2] < 0.01 < G_FIRST[0]


@pytest.mark.slow
def test_intervals_hold_the_pair_about_as_often_as_they_say():
    inside = []
    for seed in range(60):
        low, high = indices_of(ishigami, ishigami_inputs(), 256, seed=seed).interval("y", "second")
        inside.append(low[0, 2] <= V13 / ISHIGAMI_VARIANCE <= high[0, 2])
    assert np.mean(inside) > 0.88


def test_first_and_total_indices_are_those_without_pairs():
    with_pairs, without = (
        indices_of(ishigami, ishigami_inputs(), 64),
        indices_of(ishigami, ishigami_inputs(), 64, pairs=False),
    )
    for kind in ("first", "total"):
        np.testing.assert_array_equal(getattr(with_pairs, kind)["y"], getattr(without, kind)["y"])
    with pytest.raises(AttributeError, match="pairs=True"):
        _ = without.second


def test_fields_offsets_and_units_change_nothing():
    field = lambda x: {"f": np.stack([ishigami(x)["y"], 1e-9 * ishigami(x)["y"], ishigami(x)["y"] + 1e6])}
    found = indices_of(field, ishigami_inputs(), 512).second["f"]
    assert found.shape == (3, 3, 3)
    np.testing.assert_allclose(found[0, 2], found[0, 2, 0], rtol=1e-6)


def test_a_store_knows_its_pairs_and_goes_on(tmp_path):
    store = tmp_path / "pairs.zarr"
    indices_of(ishigami, ishigami_inputs(), 64, store=store)
    longer = indices_of(ishigami, ishigami_inputs(), 128, store=store, resume=True)
    alone = indices_of(ishigami, ishigami_inputs(), 128)
    np.testing.assert_array_equal(longer.second["y"], alone.second["y"])
    np.testing.assert_array_equal(en.uq.open_indices(store).second["y"], alone.second["y"])
    with pytest.raises(ValueError, match="sampler"):
        indices_of(ishigami, ishigami_inputs(), 128, store=store, resume=True, pairs=False)


def test_bounds_hold_what_the_failed_rows_could_be():
    def fragile(x):
        x.fail(x.x2 > 3.0, "too large")
        return ishigami(x)

    partial, whole = indices_of(fragile, ishigami_inputs(), 256), indices_of(ishigami, ishigami_inputs(), 256)
    low, high = partial.bounds("y", "second")
    apart = ~np.eye(3, dtype=bool)
    assert partial.n_used < 256
    assert np.all((low <= whole.second["y"])[apart]) and np.all((whole.second["y"] <= high)[apart])
