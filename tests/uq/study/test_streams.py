"""Statistics in blocks of sample ids."""

import numpy as np
import pytest

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
