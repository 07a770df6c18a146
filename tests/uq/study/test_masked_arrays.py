"""Masked arrays: what stands below a mask is no data. Samples with masked outputs fail; arguments are refused."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en

INPUTS = en.Inputs(load=stats.norm(1.0, 0.2))
MASKED = np.ma.masked_array([1.0, 2.0, 500.0, 3.0], [False, False, True, False])


def odd(values, x):
    return np.ma.masked_array(values, np.asarray(x) > 1.0)


@pytest.mark.parametrize(
    "model",
    [
        en.vectorize(lambda s: {"y": odd([s.load, 2.0], [s.load, s.load])}),
        en.vectorize(lambda s: np.ma.masked if s.load > 1.0 else s.load),
        en.vectorize(lambda s: {"y": odd([7], [s.load])}),
        en.vectorize(lambda s: {"y": odd([1j], [s.load])}),
    ],
)
def test_samples_with_masked_outputs_have_failed(model):
    result = en.propagate(model, INPUTS, 16, seed=3, progress=False)
    load = INPUTS.samples(16, seed=3).load.samples
    assert result.failed.tolist() == (load > 1.0).tolist()


def test_a_masked_output_of_a_group_of_one_sample_has_failed():
    model = lambda x: {"y": odd(np.array([2.0]), x.load.samples)}
    result = en.propagate(model, INPUTS, 16, seed=3, ensemble_size=1, progress=False, on_failure="mask")
    assert result.failed.tolist() == (INPUTS.samples(16, seed=3).load.samples > 1.0).tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda: en.uq.empirical(MASKED),
        lambda: en.uq.Kde(MASKED),
        lambda: en.uq.EmpiricalCopula(np.ma.stack([MASKED, MASKED], axis=1)),
        lambda: en.uq.Points(np.ma.masked_array(np.full((4, 1), 0.5), MASKED.mask[:, None])),
        lambda: en.Inputs(a=MASKED),
        lambda: en.uq.Mixture([0.0, 1.0, 2.0, 3.0], MASKED),
        lambda: en.propagate(lambda x: x.load, INPUTS, 8, seed=1, progress=False).quantile("y", MASKED),
        lambda: en.uq.kalman_inversion(lambda x: x.load, MASKED, np.eye(4), INPUTS, seed=1),
    ],
)
def test_arguments_with_masked_entries_are_refused(call):
    with pytest.raises(ValueError, match=r"must have no masked entries; got \d of \d masked"):
        call()


def test_a_mask_that_masks_nothing_is_none():
    data = np.ma.masked_array([1.0, 2.0, 5.0], False)
    assert en.uq.empirical(data).ppf(0.0) == en.uq.empirical(data.data).ppf(0.0)


def test_given_data_leaves_masked_rows_out():
    x = np.linspace(0.0, 1.0, 64)
    mask = np.arange(64) == 63
    wild = np.where(mask, 1e30, x)
    alone = en.uq.given_data({"a": x[:-1]}, x[:-1] ** 2, methods=["first"])
    for columns, outputs in (
        ({"a": np.ma.array(wild, mask=mask)}, x**2),
        ({"a": x}, np.ma.array(wild, mask=mask) ** 2),
    ):
        found = en.uq.given_data(columns, outputs, methods=["first"])
        assert found.n_used == 63 and found.first["y"] == alone.first["y"]
