"""Masks, selection and masked division."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._backend import to_numpy
from ensemble.scalar import Ensemble, all_samples, any_sample, count_samples, divide, where


@pytest.mark.parametrize(
    "mask, everyone, anyone, count",
    [
        (True, True, True, 1),
        (np.False_, False, False, 0),
        (np.array(True), True, True, 1),
        (np.array([True, False, True]), False, True, 2),
        (Ensemble(np.array([True, False])), False, True, 1),
        (Ensemble(np.array([True, True])), True, True, 2),
        (Ensemble(np.array([False])), False, False, 0),
    ],
)
def test_questions_to_masks(mask, everyone, anyone, count):
    assert (all_samples(mask), any_sample(mask), count_samples(mask)) == (everyone, anyone, count)


@pytest.mark.parametrize("ask", [all_samples, any_sample, count_samples], ids=lambda f: f.__name__)
def test_masks_with_axes_are_refused(ask, x):
    with pytest.raises(ValueError, match=rf"{ask.__name__}: m must have no axis; got shape \(3,\)"):
        ask(x > 0)
    with pytest.raises(ValueError, match=r"m must have one entry per sample; got shape \(2, 1\)"):
        ask(np.ones((2, 1), dtype=bool))


@pytest.mark.parametrize("m", [True, np.array([True, False, True])], ids=["bool", "array"])
def test_where_takes_plain_and_ensembles(m):
    x = Ensemble(np.arange(6.0).reshape(3, 2))
    got = where(m, x, -1.0)
    for s in range(2):
        np.testing.assert_array_equal(got.sample(s), np.where(m, x.sample(s), -1.0))
    np.testing.assert_array_equal(where(m, np.arange(3.0), 0.0), np.where(m, np.arange(3.0), 0.0))
    np.testing.assert_array_equal(where(m, 1.0, 0.0), np.where(m, 1.0, 0.0))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 3]))
def test_division_is_ordinary_where_the_mask_holds(seed, n_samples):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(4, n_samples)), rng.normal(size=n_samples)
    mask = rng.random((4, n_samples)) < 0.5
    with np.errstate(all="raise"):
        got = divide(Ensemble(a), Ensemble(b), where=Ensemble(mask), fill=7.0)
    np.testing.assert_array_equal(got.samples, np.where(mask, a / b, 7.0))


@pytest.mark.parametrize("bad", [0.0, np.inf, np.nan])
def test_a_masked_division_is_never_carried_out(bad, base):
    a, b = Ensemble(base.asarray([1.0, bad])), Ensemble(base.asarray([2.0, 0.0]))
    with np.errstate(all="raise"):
        got = divide(a, b, where=b != 0.0)
    np.testing.assert_array_equal(to_numpy(got.samples), [0.5, 0.0])


@pytest.mark.parametrize("a, b", [(1.0, 2.0), (3, 2), (1.0, np.array([2.0, 4.0])), (np.array([1.0, 2.0]), 4.0)])
def test_plain_division(a, b):
    got = divide(a, b)
    assert not isinstance(got, Ensemble)
    np.testing.assert_array_equal(got, np.asarray(a) / np.asarray(b))


def test_division_keeps_float32():
    x = Ensemble(np.ones((2, 3), dtype=np.float32))
    assert divide(x, 2.0, where=x > 0, fill=0.0).dtype == np.float32
    assert divide(1.0, x, where=x > 0, fill=0.0).dtype == np.float32


def test_division_of_other_samples_is_refused():
    with pytest.raises(ValueError, match="divide: operands must have one number of samples"):
        divide(Ensemble(np.ones(2)), Ensemble(np.ones(3)))
