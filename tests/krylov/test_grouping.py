"""Which samples run together: every sample once, like with like, and what it costs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble import gallery
from ensemble.krylov import SampleGroups, anisotropy, cg, group_samples, predict_iterations
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble, SampleSet, sample_mean


@given(
    n=st.integers(1, 60),
    size=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
    last=st.sampled_from(["short", "repeat"]),
)
def test_every_sample_is_in_one_group_and_comes_back_in_its_place(n, size, seed, last):
    key = np.random.default_rng(seed).integers(0, 10, n).astype(float)
    groups = group_samples(key, size, last=last)
    assert groups.n_samples == n and len(groups) == -(-n // size)
    assert [g.size for g in groups[:-1]] == [size] * (len(groups) - 1)
    assert groups[-1].size == (size if last == "repeat" else n - size * (len(groups) - 1))
    values = np.arange(2 * n).reshape(2, n)
    np.testing.assert_array_equal(groups.restore([values[:, g] for g in groups]), values)
    ends = [(key[g].min(), key[g].max()) for g in groups]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))


def test_natural_order_and_equal_keys_stay_in_order():
    assert [g.tolist() for g in group_samples(5, 2)] == [[0, 1], [2, 3], [4]]
    assert [g.tolist() for g in group_samples(np.zeros(4), 3)] == [[0, 1, 2], [3]]
    assert group_samples(Ensemble(np.array([3.0, 1.0, np.nan, 2.0])), 2)[1].tolist() == [0, 2]


def test_repetitions_weigh_nothing():
    groups = group_samples(5, 4, last="repeat")
    assert groups[1].tolist() == [4, 4, 4, 4] and groups.weights[1].tolist() == [1.0, 0.0, 0.0, 0.0]
    y = Ensemble(np.array([7.0, 0.0, 0.0, 0.0]), SampleSet(weights=groups.weights[1]))
    assert sample_mean(y) == 7.0


def test_efficiency_by_hand():
    groups = SampleGroups((np.array([0, 2]), np.array([1])), (np.ones(2), np.ones(1)))
    assert groups.efficiency([3, 10, 5]) == pytest.approx((5 * 2 + 10) / 18)
    assert groups.efficiency([3, 10, 5], [8, 10]) == pytest.approx((8 * 2 + 10) / 18)
    padded = group_samples(3, 2, last="repeat")
    assert padded.efficiency([4, 4, 4]) == pytest.approx(16 / 12)
    assert group_samples(np.array([3, 10, 5]), 1).efficiency([3, 10, 5]) == 1.0


def test_anisotropy_counts_both_ways():
    k = np.array([[[1.0, 4.0, 0.1]], [[1.0, 0.5, 2.0]]])
    np.testing.assert_array_equal(anisotropy(k), [1.0, 4.0, 10.0])
    np.testing.assert_array_equal(anisotropy(Ensemble(k)), [1.0, 4.0, 10.0])


@pytest.fixture(scope="module")
def study():
    """Anisotropic problems whose iterations differ by more than two, for aggregates that all samples share."""
    rng = np.random.default_rng(20743)
    logs = rng.uniform(-1.0, 1.0, (2, 48))
    weights = np.concatenate([10.0**logs, np.ones((1, 48))])
    b = rng.standard_normal((8 * 8 * 8, 48))

    def iterations(samples, coupling="independent"):
        A = gallery.anisotropic((8, 8, 8), weights=weights[:, samples])
        M = smoothed_aggregation(A, coarse_size=100)
        return cg(A, Ensemble(b[:, samples]), M=M, coupling=coupling).iterations

    return logs, weights, iterations


@pytest.mark.slow
def test_grouping_lowers_the_work(study):
    logs, weights, iterations = study
    alone = iterations(np.arange(48))
    known = np.arange(0, 48, 2)
    keys = {
        "natural": 48,
        "anisotropy": anisotropy(weights),
        "quadratic": predict_iterations(logs, logs[:, known], alone[known]),
        "nearest": predict_iterations(logs, logs[:, known], alone[known], method="nearest"),
        "known": alone,
    }
    groups = {name: group_samples(key, 8) for name, key in keys.items()}
    R = {name: g.efficiency(alone) for name, g in groups.items()}
    coupled = {name: g.efficiency(alone, [iterations(s, "ensemble")[0] for s in g]) for name, g in groups.items()}
    assert R["known"] == min(R.values()) >= 1.0
    for values in (R, coupled):
        for name in ("anisotropy", "quadratic", "nearest"):
            assert values[name] - 1.0 < 0.9 * (values["natural"] - 1.0), (name, values)


@pytest.mark.parametrize("method", ["quadratic", "nearest"])
def test_known_counts_are_found_again(method):
    rng = np.random.default_rng(10009)
    points = rng.standard_normal((2, 30))
    counts = np.exp(2.0 + points[0] - 0.3 * points[1] ** 2 + 0.2 * points[0] * points[1])
    np.testing.assert_allclose(predict_iterations(points[:, :7], points, counts, method=method), counts[:7], rtol=1e-9)


def test_few_known_samples_give_a_simpler_fit():
    assert predict_iterations(np.zeros((3, 2)), np.ones((3, 1)), [7]) == pytest.approx([7.0, 7.0])
    line = np.linspace(0.0, 1.0, 5)[None, :]
    assert predict_iterations(np.array([[2.0]]), line, np.exp(line[0])) == pytest.approx(np.exp(2.0))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="group_samples: ensemble_size must be an integer of at least 1; got 0"):
        group_samples(4, 0)
    with pytest.raises(ValueError, match=r"group_samples: key must be one number per sample; got shape \(2, 2\)"):
        group_samples(np.ones((2, 2)), 2)
    with pytest.raises(ValueError, match="group_samples: key must name one sample or more; got none"):
        group_samples(np.ones(0), 2)
    with pytest.raises(ValueError, match="group_samples: last must be one of 'short', 'repeat'; got 'drop'"):
        group_samples(4, 2, last="drop")
    groups = group_samples(4, 2)
    with pytest.raises(ValueError, match=r"SampleGroups\.restore: values must be 2, one per group; got 1"):
        groups.restore([np.ones(2)])
    with pytest.raises(ValueError, match=r"SampleGroups\.restore: values must have 2 samples in a group; got 3"):
        groups.restore([np.ones(3), np.ones(3)])
    with pytest.raises(ValueError, match=r"sample_iterations must have shape \(4,\); got \(3,\)"):
        groups.efficiency([1, 2, 3])
    with pytest.raises(ValueError, match=r"ensemble_iterations must have shape \(2,\); got \(1,\)"):
        groups.efficiency([1, 2, 3, 4], [4])
    with pytest.raises(ValueError, match=r"anisotropy: coefficients must be above zero; got -1"):
        anisotropy(-np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"anisotropy: coefficients must have a sample axis after their own"):
        anisotropy(np.ones(2))
    with pytest.raises(ValueError, match="predict_iterations: points must have 2 inputs; got 1"):
        predict_iterations(np.ones((1, 2)), np.ones((2, 2)), [1, 2])
    with pytest.raises(ValueError, match=r"known_iterations must have shape \(2,\) and one count or more; got \(3,\)"):
        predict_iterations(np.ones((2, 2)), np.ones((2, 2)), [1, 2, 3])
    with pytest.raises(ValueError, match="predict_iterations: method must be one of 'quadratic', 'nearest'"):
        predict_iterations(np.ones((2, 2)), np.ones((2, 2)), [1, 2], method="forest")
    with pytest.raises(ValueError, match=r"anisotropic: weights must have shape \(2, n_samples\); got shape \(3, 1\)"):
        gallery.anisotropic((2, 2), weights=np.ones((3, 1)))
