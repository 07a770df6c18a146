"""Log-likelihoods without moments are those of the filter, to the bit; blocks of any size are the reference's steps."""

import numpy as np
import pytest

from ensemble._kernels.kalman.recursions import filter_series, smooth_series
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, log_likelihood
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import random_parts, with_gaps

SIZES = [(9, 2), (10, 4), (13, 1), pytest.param(17, 5, marks=pytest.mark.slow), (20, 2), (3, 9)]


@pytest.mark.parametrize("nx, ny", SIZES)
def test_blocks_of_any_size_have_the_bits_of_the_reference(nx, ny):
    """Rows and columns in whole tiles, in parts of one, and observations in few rows and in many."""
    parts, y = random_parts(4, nx, ny, seed=41077)
    y[2, 0] = np.nan
    arrays = [parts[name][None] for name in "FQHRud"]
    arguments = (*arrays, y[None], parts["m0"][None], parts["P0"][None], True, False)
    got, want = filter_series(*arguments), filter_series.reference(*arguments)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    back = arrays[0], arrays[1], arrays[4], got[0], got[1], False
    for a, b in zip(smooth_series(*back), smooth_series.reference(*back), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_blocks_of_float32_have_the_bits_of_the_reference():
    """Enough steps that a pivot multiplied in float64 would show."""
    parts, y = random_parts(40, 9, 2, seed=27743)
    arrays = [a.astype(np.float32)[None] for a in (*(parts[name] for name in "FQHRud"), y, parts["m0"], parts["P0"])]
    got, want = filter_series(*arrays, True, False), filter_series.reference(*arrays, True, False)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_blocks_take_arrays_of_any_layout_and_type():
    """Columns before rows, steps backwards in memory, series innermost, a part without a copy for each series."""
    parts, y = random_parts(12, 9, 2, batch=(3,), seed=90533)
    parts |= {"m0": np.arange(27.0).reshape(3, 9), "P0": np.stack([np.eye(9)] * 3)}
    alike = [*(parts[name] for name in "FQHRud"), y, parts["m0"], parts["P0"]]
    alike[2] = np.stack([alike[2][0, :1]] * 3)
    other = list(alike)
    other[0] = np.asfortranarray(alike[0])
    other[2] = np.broadcast_to(alike[2][:1], alike[2].shape)
    other[4] = alike[4][:, ::-1].copy()[:, ::-1]
    other[6] = np.moveaxis(np.ascontiguousarray(np.moveaxis(y, 0, -1)), -1, 0)
    other[7], other[8] = alike[7].astype(np.int64), alike[8].astype(np.float32)
    for a, b in zip(filter_series(*alike, True, False), filter_series(*other, True, False), strict=True):
        np.testing.assert_array_equal(a, b)


def constant(parts):
    return {name: a[0] if name in "FQHRud" else a for name, a in parts.items()}


@pytest.mark.parametrize("size", [(4, 2), (9, 2)], ids=str)
@pytest.mark.parametrize("kind", ["constant", "varying"])
def test_one_series_has_the_likelihood_of_its_filter(size, kind):
    parts, y = random_parts(60, *size, seed=52163)
    model = LinearGaussianModel(**(constant(parts) if kind == "constant" else parts))
    for z in (y, with_gaps(y)):
        whole = kalman_filter(model, z)
        np.testing.assert_array_equal(log_likelihood(model, z), whole.log_likelihood)
        tail = log_likelihood(model, z, burn=3)
        np.testing.assert_allclose(tail, whole.log_likelihoods[3:].sum(), rtol=1e-13)  # another order of the sum


@pytest.mark.parametrize("size", [(4, 2), (9, 2)], ids=str)
@pytest.mark.parametrize("gaps", [False, True])
def test_samples_and_batches_have_the_likelihoods_of_their_own_runs(size, gaps):
    parts, y = random_parts(40, *size, seed=63317)
    model = LinearGaussianModel(**constant(parts))
    y = np.stack([y, 0.5 * y[::-1], y + 1.0, -y, y - 2.0])
    y[0] = with_gaps(y[0]) if gaps else y[0]
    batch, samples = log_likelihood(model, y), log_likelihood(model, Ensemble(np.moveaxis(y, 0, -1)))
    assert batch.shape == (5,)
    for i in range(5):
        alone = log_likelihood(model, y[i])
        assert alone == batch[i] == samples.samples[i]


def test_models_without_a_compiled_recursion_take_their_filter():
    rng = np.random.default_rng(74411)
    one, y = np.eye(1), rng.standard_normal((20, 1)).cumsum(axis=0)
    diffuse = LinearGaussianModel(one, one, one, one, np.zeros(1), 0.0 * one, diffuse=[True])
    np.testing.assert_array_equal(log_likelihood(diffuse, y), kalman_filter(diffuse, y).log_likelihood)
    plain = LinearGaussianModel(one, one, one, one, np.zeros(1), one)
    roots = kalman_filter(plain, y, form="square_root")
    np.testing.assert_array_equal(log_likelihood(plain, y, form="square_root"), roots.log_likelihood)
    tail = log_likelihood(plain, y, form="square_root", burn=2)
    np.testing.assert_allclose(tail, roots.log_likelihoods[2:].sum(), rtol=1e-13)


def test_a_likelihood_without_steps_is_refused():
    one = np.eye(1)
    model = LinearGaussianModel(one, one, one, one, np.zeros(1), one)
    with pytest.raises(ValueError, match="log_likelihood: burn must leave one step or more; got 2"):
        log_likelihood(model, np.zeros((2, 1)), burn=2)
