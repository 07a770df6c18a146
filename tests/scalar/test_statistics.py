"""Statistics over samples: weights, padding, NaN, and the accumulator that merges."""

import itertools

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ensemble.scalar import (
    Ensemble,
    Moments,
    SampleSet,
    plot_histogram,
    plot_ribbon,
    probability,
    sample_confidence_interval,
    sample_corr,
    sample_cov,
    sample_max,
    sample_mean,
    sample_min,
    sample_quantile,
    sample_std,
    sample_var,
    shared,
)

ALL = {
    "mean": sample_mean,
    "var": sample_var,
    "var ddof": lambda x: sample_var(x, ddof=1),
    "std": sample_std,
    "min": sample_min,
    "max": sample_max,
    "median": lambda x: sample_quantile(x, 0.5),
    "quantiles": lambda x: sample_quantile(x, [0.0, 0.1, 0.77, 1.0]),
    "cov": sample_cov,
    "corr": sample_corr,
    "probability": lambda x: probability(x > 0.0),
    "moments mean": lambda x: Moments(x).mean(),
    "moments var": lambda x: Moments(x).var(ddof=1),
}
PADDED = ALL | {
    "reached": lambda x: sample_quantile(x, [0.0, 0.3, 1.0], method="inverted_cdf"),
    "interval": lambda x: np.stack(sample_confidence_interval(x)),
    "cov with another": lambda x: sample_cov(x[0], x[1:]),
    "cov with shared": lambda x: sample_cov(x, shared(np.ones(2))),
    "picture": lambda x: plot_histogram(x[0], ax=Figure().add_subplot(), bins=4).patches[0].get_data().values,
    "ribbon": lambda x: plot_ribbon(x, ax=Figure().add_subplot()).lines[0].get_ydata(),
    "looks": lambda x: np.array([f"{x:.17g}"]),
    "html": lambda x: np.array([x[0]._repr_html_().partition("<svg")[2]]),
}
IN_NUMPY = {
    "mean": lambda v: v.mean(-1),
    "var": lambda v: v.var(-1),
    "var ddof": lambda v: v.var(-1, ddof=1),
    "std": lambda v: v.std(-1),
    "min": lambda v: v.min(-1),
    "max": lambda v: v.max(-1),
    "median": lambda v: np.median(v, -1),
    "quantiles": lambda v: np.quantile(v, [0.0, 0.1, 0.77, 1.0], axis=-1),
    "cov": lambda v: np.cov(v, ddof=0),
    "corr": np.corrcoef,
    "probability": lambda v: (v > 0).mean(-1),
    "moments mean": lambda v: v.mean(-1),
    "moments var": lambda v: v.var(-1, ddof=1),
}


def drawn(seed, n_samples=11, shape=(3,)):
    return np.random.default_rng(seed).normal(size=(*shape, n_samples))


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.integers(2, 12), strict=st.booleans())
def test_without_weights_they_are_those_of_numpy(name, seed, n_samples, strict):
    values = drawn(seed, n_samples)
    got = ALL[name](Ensemble(array_api_strict.asarray(values) if strict else values))
    assert not isinstance(got, Ensemble)
    # sums of at most 12 terms of size 1, divided by at least 1 and by spreads of at least 1e-2
    np.testing.assert_allclose(np.asarray(got), IN_NUMPY[name](values), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", PADDED)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), padding=st.sampled_from([np.nan, np.inf, 1e300, 0.0]), equal=st.booleans())
def test_weight_zero_moves_no_statistic_by_a_bit(name, seed, padding, equal):
    rng = np.random.default_rng(seed)
    values = drawn(seed, 7)
    weights = np.full(7, 2.0) if equal else rng.integers(1, 5, size=7).astype(float)
    places = np.sort(rng.choice(11, size=7, replace=False))  # padding may stand anywhere
    wide, zeros = np.full((3, 11), padding), np.zeros(11)
    wide[:, places], zeros[places] = values, weights
    expected = PADDED[name](Ensemble(values, SampleSet(weights=weights)))
    np.testing.assert_array_equal(PADDED[name](Ensemble(wide, SampleSet(weights=zeros))), expected)


@pytest.mark.parametrize("name", ["mean", "var", "std", "min", "max", "cov", "corr", "probability", "moments mean"])
def test_a_double_weight_counts_like_two_copies(name):
    values = drawn(77551, 5)
    weighted = Ensemble(values, SampleSet(weights=[1.0, 2.0, 1.0, 1.0, 3.0]))
    copies = Ensemble(values[:, [0, 1, 1, 2, 3, 4, 4, 4]])
    np.testing.assert_allclose(ALL[name](weighted), ALL[name](copies), rtol=1e-13)


@pytest.mark.parametrize("name", ALL)
def test_only_ratios_of_weights_count(name):
    values, w = drawn(60013, 5), np.array([1.0, 2.0, 0.5, 0.0, 4.0])
    one, other = (ALL[name](Ensemble(values, SampleSet(weights=k * w))) for k in (1.0, 8.0))
    np.testing.assert_array_equal(one, other)


def test_weighted_quantiles_by_hand():
    x = Ensemble(np.array([3.0, 1.0, 2.0]), SampleSet(weights=[1.0, 1.0, 2.0]))
    levels = [0.0, 0.25, 0.5, 0.75, 1.0]
    # 1, 2, 2, 3: a weight that both neighbours have in common leaves one of 2 for a constant part
    np.testing.assert_allclose(sample_quantile(x, levels), [1.0, 1.75, 2.0, 2.25, 3.0])
    np.testing.assert_allclose(sample_quantile(x, levels), np.quantile([1.0, 2.0, 2.0, 3.0], levels))


def test_quantiles_beside_infinity():
    x = Ensemble(np.array([1.0, 2.0, np.inf]))
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(sample_quantile(x, [0.0, 0.5, 1.0]), [1.0, 2.0, np.inf])


@pytest.mark.parametrize("name", ["mean", "var", "std", "min", "max", "median", "moments mean", "moments var"])
def test_nan_stays_in_its_entry(name):
    values = drawn(12007, 6)
    values[1, 4] = np.nan
    got = ALL[name](Ensemble(values))
    np.testing.assert_array_equal(np.isnan(got), [False, True, False])


@pytest.mark.parametrize("ddof", [0, 1])
def test_shared_data_does_not_vary(ddof):
    x = shared([1.0, 2.0])
    np.testing.assert_array_equal(sample_mean(x), [1.0, 2.0])
    np.testing.assert_array_equal(sample_var(x, ddof=ddof), [0.0, 0.0])
    np.testing.assert_array_equal(sample_cov(x, Ensemble(drawn(5, 4)), ddof=ddof), np.zeros((2, 3)))


def test_complex_statistics():
    values = drawn(83401, 9) + 1j * drawn(83402, 9)
    x = Ensemble(values)
    np.testing.assert_allclose(sample_var(x), values.var(-1))
    np.testing.assert_allclose(sample_cov(x), np.cov(values, ddof=0))
    np.testing.assert_allclose(Moments(x).var(), values.var(-1))


@pytest.mark.parametrize(
    "name, statistic",
    [
        ("sample_min", sample_min),
        ("sample_max", sample_max),
        ("sample_quantile", lambda x: sample_quantile(x, 0.5)),
        ("sample_confidence_interval", sample_confidence_interval),
    ],
)
def test_complex_samples_have_no_order(name, statistic):
    with pytest.raises(TypeError, match=rf"{name}: x must be real; got dtype complex128\. Take xp\.real\(x\) or"):
        statistic(Ensemble(drawn(14741) * 1j))


def test_covariance_of_two_shapes():
    a, b = drawn(1201, 6, (2,)), drawn(1202, 6, (3, 2))
    got = sample_cov(Ensemble(a), Ensemble(b), ddof=1)
    assert got.shape == (2, 3, 2)
    np.testing.assert_allclose(got[1, 2, 0], np.cov(a[1], b[2, 0])[0, 1])
    assert sample_cov(Ensemble(a[0]), Ensemble(a[1])).shape == ()


def test_integers_and_float32():
    assert sample_mean(Ensemble(np.array([1, 2]))) == 1.5
    x = Ensemble(np.ones((2, 3), dtype=np.float32), SampleSet(weights=[1, 2, 3]))
    for statistic in (sample_mean, sample_var, sample_std, sample_cov, lambda x: sample_quantile(x, 0.3)):
        assert statistic(x).dtype == np.float32


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda x: sample_mean(x.samples), TypeError, "sample_mean: x must be an Ensemble; got an ndarray"),
        (lambda x: sample_var(x, ddof=4), ValueError, "sample_var: ddof must be smaller than the number of samples"),
        (lambda x: sample_quantile(x, 50), ValueError, r"sample_quantile: q must be in \[0, 1\]; got 50"),
        (lambda x: probability(x), TypeError, "probability: m must hold bools; got dtype float64"),
        (lambda x: sample_cov(x, Ensemble(np.ones(3))), ValueError, "x and y must have the same samples; got 4 and 3"),
        (lambda x: Moments().mean(), ValueError, "Moments.mean: the accumulator must hold a sample"),
        (lambda x: Moments(x).update(x[:1]), ValueError, r"Moments.update: x must have shape \(3,\); got shape \(1,\)"),
        (lambda x: Moments(x).merge(Moments(x[:1])), ValueError, r"Moments.merge: other must have shape \(3,\)"),
        (lambda x: Moments(x).var(ddof=4), ValueError, "Moments.var: ddof must be smaller"),
        (lambda x: Moments(x).update(x, [1.0]), ValueError, "Moments.update: weights must be zero or above, one per"),
    ],
)
def test_bad_arguments_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(Ensemble(drawn(7, 4)))


# -- the accumulator ---------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 30), max_size=4))
def test_any_batches_merge_to_the_whole(seed, cuts):
    rng = np.random.default_rng(seed)
    values, weights = 100.0 + rng.normal(size=(2, 30)), rng.integers(0, 4, size=30).astype(float)
    weights[0] = 1.0
    edges = sorted({0, 30, *cuts})
    total = Moments()
    for k, (start, stop) in enumerate(itertools.pairwise(edges)):
        batch = Moments().update(Ensemble(values[:, start:stop]), weights[start:stop])
        total = total + batch if k % 2 else batch + total
    whole = Ensemble(values, SampleSet(weights=weights))
    assert total.count == np.count_nonzero(weights)
    np.testing.assert_allclose(total.mean(), sample_mean(whole), rtol=1e-14)
    # values of size 100 and spread 1: squares lose (100 / 1)**2 eps at worst
    np.testing.assert_allclose(total.var(), sample_var(whole), rtol=1e-10)


def test_addition_leaves_its_operands_alone():
    a, b = Moments(Ensemble(drawn(3, 4))), Moments(Ensemble(drawn(4, 5)))
    before = a.mean(), a.var(), a.count
    _ = a + b
    np.testing.assert_array_equal(a.mean(), before[0])
    assert (a + b).count == 9
    assert a.count == 4


def test_shared_results_count_as_often_as_told():
    assert Moments(shared([1.0, 2.0])).count == 1
    total = Moments().update(shared([1.0, 2.0]), np.ones(8))
    assert total.count == 8
    np.testing.assert_array_equal(total.std(), [0.0, 0.0])


def test_an_empty_accumulator_changes_nothing():
    a = Moments(Ensemble(drawn(3, 4)))
    np.testing.assert_array_equal((a + Moments()).var(), a.var())
    np.testing.assert_array_equal((Moments() + a).var(), a.var())
    assert repr(a) == "Moments(count=4, weight=4, shape=(3,))"
