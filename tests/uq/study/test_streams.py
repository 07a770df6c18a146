"""Statistics in blocks of sample ids."""

import numpy as np
import pytest

from ensemble.uq.study import streams
from ensemble.uq.study.streams import Stream, block_size


def streamed(values, groups, good, replicates, weights=None):
    stream = Stream(values.shape[:-1], values.dtype, replicates, histograms=True)
    for ids in groups:
        part = None if weights is None else weights[ids]
        stream.add(ids, values[..., ids], good[ids], part)
    return stream


def cut(n, size, order):
    groups = [np.arange(n)[k : k + size] for k in range(0, n, size)]
    return groups if order is None else [groups[k] for k in np.random.default_rng(order).permutation(len(groups))]


@pytest.mark.parametrize("replicates", [1, 8])
@pytest.mark.parametrize("size, order", [(1, None), (3, 51603), (32, 90911), (1024, None), (3000, None)])
def test_the_bits_depend_on_neither_size_nor_order_of_the_groups(size, order, replicates):
    rng = np.random.default_rng(33521)
    values, good = rng.normal(size=(2, 3000)), rng.uniform(size=3000) > 0.1
    reference, histograms = streamed(values, cut(3000, 32, None), good, replicates).summary()
    found, other = streamed(values, cut(3000, size, order), good, replicates).summary()
    for a, b in zip(reference.moments, found.moments, strict=True):
        assert a.mean().tobytes() == b.mean().tobytes() and a.var().tobytes() == b.var().tobytes()
    assert found.low.tobytes() == reference.low.tobytes()
    np.testing.assert_array_equal(histograms.counts, other.counts)


def test_shuffled_groups_of_whole_blocks_have_the_same_bits():
    rng = np.random.default_rng(45307)
    values, good, weights = rng.normal(size=2048), rng.uniform(size=2048) > 0.1, rng.uniform(1.0, 2.0, 2048)
    one = streamed(values, cut(2048, 32, None), good, 8, weights).summary()[0].total()
    other = streamed(values, [rng.permutation(2048)], good, 8, weights).summary()[0].total()
    assert one.mean().tobytes() == other.mean().tobytes() and one.var().tobytes() == other.var().tobytes()


def test_incomplete_blocks_are_added_in_the_order_of_their_ids():
    values = np.random.default_rng(88211).normal(size=(20, 9000))
    parts = [np.arange(k, k + 700) for k in range(100, 9000, 1024)]
    good = np.ones(9000, bool)
    forwards, backwards = (streamed(values, order, good, 1).summary()[0].total() for order in (parts, parts[::-1]))
    assert forwards.mean().tobytes() == backwards.mean().tobytes()
    assert forwards.var().tobytes() == backwards.var().tobytes()


@pytest.mark.parametrize("replicates", [3, 5, 8])
def test_sample_i_belongs_to_replicate_i_modulo_their_number(replicates):
    values = np.random.default_rng(52163).normal(size=5000)
    summary, _ = streamed(values, cut(5000, 32, 3), np.ones(5000, bool), replicates).summary()
    means = [float(moments.mean()) for moments in summary.moments]
    assert means == pytest.approx([values[r::replicates].mean() for r in range(replicates)], rel=1e-12)


def test_statistics_are_those_of_the_good_samples():
    rng = np.random.default_rng(71237)
    values, good = rng.normal(size=2500), rng.uniform(size=2500) > 0.3
    values[~good] = np.nan
    summary, histograms = streamed(values, cut(2500, 50, 4), good, 8).summary()
    total = summary.total()
    assert total.count == good.sum() == histograms.counts.sum()
    assert float(total.mean()) == pytest.approx(values[good].mean(), rel=1e-13)
    assert float(total.var()) == pytest.approx(values[good].var(), rel=1e-13)
    assert summary.low == values[good].min() and summary.high == values[good].max()
    assert float(summary.moments[3].mean()) == pytest.approx(np.nanmean(values[3::8]), rel=1e-13)


def test_weights_count():
    values, weights = np.array([1.0, 2.0, 6.0]), np.array([1.0, 1.0, 2.0])
    summary, _ = streamed(values, cut(3, 1, None), np.ones(3, bool), 1, weights).summary()
    assert float(summary.total().mean()) == 3.75


def test_a_group_without_outputs_completes_its_block():
    stream = Stream((), np.dtype(float), 1, histograms=True)
    stream.add(np.arange(0, 1024, 2), None, np.zeros(512, bool))
    stream.add(np.arange(1, 1024, 2), np.ones(512), np.ones(512, bool))
    assert stream.summary()[0].total().count == 512 and not stream._waiting


def test_looking_changes_nothing():
    stream = Stream((), np.dtype(float), 1, histograms=True)
    stream.add(np.arange(100), np.arange(100.0), np.ones(100, bool))
    first = stream.summary()
    stream.add(np.arange(100, 1500), np.arange(100.0, 1500.0), np.ones(1400, bool))
    assert first[0].total().count == 100 == first[1].counts.sum() and stream.summary()[0].total().count == 1500


@pytest.mark.parametrize("shape, block", [((), 1024), ((1000,), 1024), ((100_000,), 32), ((10**6,), 8), ((10**8,), 8)])
def test_blocks_of_large_outputs_are_small(shape, block):
    assert block_size(shape, np.dtype(float)) == block


def test_complex_outputs_have_moments_alone():
    stream = Stream((), np.dtype(complex), 1, histograms=True)
    stream.add(np.arange(4), np.array([1j, 2j, 3.0, 0.0]), np.ones(4, bool))
    summary, histograms = stream.summary()
    assert summary.total().mean() == (3 + 3j) / 4 and summary.low is None and histograms is None


def streams_of_both_ways(values, groups, good, replicates, monkeypatch, looked_at=()):
    """The statistics by NumPy and by compiled code, the latter in small counts; looks in between change nothing."""
    found = []
    for from_values in (2**60, 1):
        monkeypatch.setattr(streams, "COMPILED_FROM", from_values)
        monkeypatch.setattr(streams, "UNCOUNTED_MEMORY", 2**17 if from_values == 1 else 2**27)
        stream = Stream(values.shape[:-1], values.dtype, replicates, histograms=True)
        looks = []
        for k, ids in enumerate(groups):
            stream.add(ids, values[..., ids], good[ids])
            if k in looked_at:
                looks.append((stream.summary(), stream.summary()[1].counts.copy()))
        for (_, histograms), counts in looks:
            np.testing.assert_array_equal(histograms.counts, counts)
        found.append(stream.summary())
    return found


def samples_of_every_kind(shape, n, dtype, rng):
    """Scales apart, constants, zeros of both signs, numbers whose sums overflow, one entry whose range grows."""
    values = rng.normal(size=(*shape, n)) * 10.0 ** rng.integers(-3, 4, (*shape, 1))
    values[0], values[1], values[2] = 0.1, -0.0, np.finfo(dtype).max * 0.9
    values[3] = np.arange(n) ** 2.0
    values[4] = np.where(np.arange(n) % 3 == 0, 0.0, -0.0)
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("replicates, n, share_failed", [(1, 3100, 0.0), (8, 3100, 0.1), (3, 2500, 0.6), (2, 40, 0.0)])
def test_compiled_code_has_the_bits_of_numpy(monkeypatch, dtype, replicates, n, share_failed):
    rng = np.random.default_rng(60611)
    values, good = samples_of_every_kind((6, 2), n, dtype, rng), rng.uniform(size=n) >= share_failed
    whole = [np.arange(k, min(k + 1024, n)) for k in range(0, n, 1024)]
    cases = [cut(n, 100, None), cut(n, 700, 5), [rng.permutation(n)], whole]
    for groups in cases:
        with np.errstate(over="ignore", invalid="ignore"):
            (plain, counted), (compiled, other) = streams_of_both_ways(
                values, groups, good, replicates, monkeypatch, looked_at=(0, len(groups) // 2)
            )
        for a, b in zip(plain.moments, compiled.moments, strict=True):
            assert a.count == b.count and a.mean().tobytes() == b.mean().tobytes()
            assert a.var().tobytes() == b.var().tobytes()
        np.testing.assert_array_equal(plain.low, compiled.low)
        np.testing.assert_array_equal(plain.high, compiled.high)
        for name in ("counts", "low", "high", "at_low", "at_high", "exponents", "first"):
            np.testing.assert_array_equal(getattr(counted, name), getattr(other, name), name)
        assert np.array_equal(counted.quantile(0.3), other.quantile(0.3))


def test_the_order_of_an_output_in_memory_changes_no_bit():
    values, ids = np.random.default_rng(7).normal(size=(300, 1024)), np.arange(1024)
    found = []
    for array in (values, np.asfortranarray(values)):
        stream = Stream((300,), values.dtype, 2, histograms=False)
        stream.add(ids, array, np.ones(1024, bool))
        found.append(stream.summary()[0].total())
    assert found[0].mean().tobytes() == found[1].mean().tobytes()
    assert found[0].var().tobytes() == found[1].var().tobytes()


def test_samples_that_a_model_overwrites_later_stay_as_they_were_told():
    stream, values = Stream((600,), np.dtype(float), 1, histograms=True), np.empty((600, 1024))
    for k in range(3):
        values[...] = k
        stream.add(np.arange(k * 1024, (k + 1) * 1024), values, np.ones(1024, bool))
    summary, histograms = stream.summary()
    assert np.all(summary.total().mean() == 1.0) and np.all(histograms.quantile(1.0 / 6.0) < 0.1)
    assert np.all(histograms.at_high == 1024) and np.all(histograms.at_low == 1024)
