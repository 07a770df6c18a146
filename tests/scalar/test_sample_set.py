"""Sample sets: frozen, compared by what they hold."""

import operator
import pickle

import numpy as np
import pytest

from ensemble.scalar import (
    Ensemble,
    Moments,
    SampleSet,
    cond,
    divide,
    dot,
    from_samples,
    fuse,
    namespace,
    per_sample,
    run,
    sample_corr,
    sample_cov,
    sample_mean,
    sample_var,
    where,
    while_loop,
)
from tests.scalar.law_cases import ALL_CASES, draw_samples, flat_results
from tests.walked import every


def test_equal_sets_are_equal_wherever_they_come_from():
    a = SampleSet(points=np.eye(3), weights=[1, 2, 3], method="sobol", seed=3)
    b = pickle.loads(pickle.dumps(a))
    assert a == b
    assert hash(a) == hash(b)
    assert a != SampleSet(points=np.eye(3), weights=[1, 2, 4], method="sobol", seed=3)
    assert a != SampleSet(points=np.eye(3), weights=[1, 2, 3], method="sobol", seed=4)
    assert len(a) == 3


def test_a_set_is_frozen():
    weights = np.array([1.0, 2.0])
    a = SampleSet(weights=weights)
    weights[0] = 5.0
    assert a.weights[0] == 1.0
    with pytest.raises(AttributeError, match="SampleSet: weights must stay as it is"):
        a.weights = weights
    with pytest.raises(ValueError, match="read-only"):
        a.weights[0] = 5.0


def test_a_part_keeps_ids_points_and_weights():
    part = SampleSet(points=np.arange(8.0).reshape(2, 4), weights=[1, 2, 3, 0], ids=[7, 8, 9, 10]).take([2, 0])
    np.testing.assert_array_equal(part.ids, [9, 7])
    np.testing.assert_array_equal(part.weights, [3.0, 1.0])
    np.testing.assert_array_equal(part.points, [[2.0, 0.0], [6.0, 4.0]])


def test_a_part_of_padding_alone_can_still_be_averaged():
    np.testing.assert_array_equal(SampleSet(weights=[1, 0, 0]).take([1, 2]).weights, [1.0, 1.0])


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_must_be_weights(weights):
    with pytest.raises(ValueError, match="SampleSet: weights must be finite, zero or above, and not all zero"):
        SampleSet(weights=weights)


@pytest.mark.parametrize("options", [{}, {"weights": [1, 2], "ids": [1, 2, 3]}, {"ids": [1], "n_samples": 2}])
def test_lengths_must_agree(options):
    with pytest.raises(ValueError, match="SampleSet: points, weights, ids must have one length"):
        SampleSet(**options)


def test_repr_is_short():
    assert repr(SampleSet(n_samples=4, method="sobol", seed=7)) == "SampleSet(n_samples=4, method='sobol', seed=7)"


@pytest.mark.parametrize("draw", [SampleSet.sobol, SampleSet.monte_carlo])
@pytest.mark.parametrize("n_samples", [1, 5, 8])
def test_draws_are_repeatable_and_longer_ones_begin_alike(draw, n_samples):
    a = draw(n_samples, 3, seed=48611)
    assert a.points.shape == (3, n_samples)
    assert np.all((a.points >= 0.0) & (a.points < 1.0))
    assert a == draw(n_samples, 3, seed=48611)
    assert a != draw(n_samples, 3, seed=48612)
    np.testing.assert_array_equal(a.points, draw(16, 3, seed=48611).points[:, :n_samples])
    with pytest.raises(ValueError, match="n_inputs must be an integer of at least 1; got 0"):
        draw(4, 0)


def test_sobol_points_are_balanced():
    points = SampleSet.sobol(64, 2, seed=48611).points
    counts, *_ = np.histogram2d(*points, bins=8, range=[[0, 1], [0, 1]])
    np.testing.assert_array_equal(counts, 1)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.0, 4.0, 5.0, 1.0, 3.0]])
@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_groups_padded_to_one_size_leave_every_statistic_as_it_is(size, weights):
    values = np.random.default_rng(52321).normal(size=7)
    whole = SampleSet(values[None, :], weights, np.arange(7) + 100)
    total = Moments()
    for group in whole.groups(size):
        assert group.n_samples == size
        np.testing.assert_array_equal(group.points[0], values[group.ids - 100])
        x = Ensemble(np.where(group.weights == 0.0, np.nan, group.points[0]), group)  # padding may be anything
        total.update(x, weights=group.weights if size == 1 else None)
    x = Ensemble(values, whole)
    np.testing.assert_allclose([total.mean(), total.var()], [sample_mean(x), sample_var(x)], rtol=1e-14)


def test_a_group_of_padding_alone_is_left_out():
    assert [list(g.ids) for g in SampleSet(weights=[1, 0, 0, 0, 2]).groups(2)] == [[0, 1], [4, 4]]
    with pytest.raises(ValueError, match=r"SampleSet.groups: ensemble_size must be an integer of at least 1; got 0"):
        next(SampleSet(n_samples=3).groups(0))


# -- two sets never mix ------------------------------------------------------------------------------------------------

ONE, OTHER = SampleSet(n_samples=3, method="sobol", seed=1), SampleSet(n_samples=3, method="sobol", seed=2)
MIXED = r"share one sample set; got SampleSet\(n_samples=3, method='sobol', seed=\d\) and "


def results_of(case, extension, a, b):
    """What a case of the law gives for operands that hold `a` and `b`; the sets that come with it."""
    rng = np.random.default_rng(90823)
    operands = [Ensemble(draw_samples(rng, case.kind, shape, 3), held) for shape, held in zip(case.shapes, (a, b))]
    xp = namespace(np, 3)
    found = case.call(getattr(getattr(xp, extension) if extension else xp, case.name), xp, *operands)
    return {x.sample_set for x in flat_results(found)} - {None}


@every("case, extension", ALL_CASES)
def test_every_function_carries_the_set_and_refuses_two(case, extension):
    assert results_of(case, extension, ONE, ONE) == {ONE}
    if case.name in ("broadcast_arrays", "meshgrid"):  # each result is one argument, with its own set
        assert results_of(case, extension, ONE, OTHER) == {ONE, OTHER}
    elif results_of(case, extension, ONE, None) and results_of(case, extension, None, OTHER):  # it looks at both
        with pytest.raises(ValueError, match=MIXED):
            results_of(case, extension, ONE, OTHER)


def put(x, key, value):
    x[key] = value


OPERATORS = "add sub mul truediv floordiv mod pow lt le gt ge eq ne matmul"
WAYS = {
    **{name: getattr(operator, name) for name in OPERATORS.split()},
    **{
        f"i{name}": getattr(operator, f"i{name}") for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
    },
    "and": lambda x, y: (x > 0) & (y > 0),
    "divmod": divmod,
    "assignment": lambda x, y: put(x, 0, y[0]),
    "assignment by mask": lambda x, y: put(x, y > 0, 0.0),
    "assignment of a list": lambda x, y: put(x, slice(0, 2), [y[0], 1.0]),
    "index": lambda x, y: x[np.argmax(y)],
    "mask": lambda x, y: x[(y > 0) | (y <= 0)] * y,
    "np.add": np.add,
    "np.add where": lambda x, y: np.add(x, 1.0, where=y > 0, out=0.0 * x),
    "np.add.outer": np.add.outer,
    "np.add.at": lambda x, y: np.add.at(x, 0, y[0]),
    "np.add.reduce where": lambda x, y: np.add.reduce(x, where=y > 0),
    "np.where": lambda x, y: np.where(x > 0, x, y),
    "np.concatenate": lambda x, y: np.concatenate([x, y]),
    "np.stack": lambda x, y: np.stack([x, y]),
    "np.interp": lambda x, y: np.interp(x, [0.0, 1.0], y[:2]),
    "np.polyval": np.polyval,
    "np.dot": np.dot,
    "np.copyto": np.copyto,
    "np.clip": lambda x, y: np.clip(x, y, 9.0),
    "dot method": lambda x, y: x.dot(y),
    "where": lambda x, y: where(x > 0, x, y),
    "divide": divide,
    "divide where": lambda x, y: divide(x, 2.0, where=y > 0),
    "cond": lambda x, y: cond(x[0] > 0, lambda v: v, lambda v: -v, y),
    "while_loop": lambda x, y: while_loop(lambda s: s[0][0] > 1e9, lambda s: s, (x, y)),
    "per_sample": per_sample(lambda x, y: x),
    "run": lambda x, y: run(lambda a, b: a, x, y),
    "fuse": fuse(lambda a, b: a + b),
    "dot": dot,
    "covariance": sample_cov,
    "correlation": sample_corr,
    "full": lambda x, y: namespace(np).full_like(x, y[0]),
    "linspace": lambda x, y: namespace(np).linspace(x[0], y[0], 3),
    "asarray": lambda x, y: namespace(np).asarray([x[0], y[0]]),
    "clip": lambda x, y: namespace(np).clip(x, y, None),
}


@every("way", WAYS)
@every("turned", [False, True])
def test_two_sets_never_mix(way, turned):
    sets = (OTHER, ONE) if turned else (ONE, OTHER)
    x, y = (Ensemble(np.random.default_rng(62207).uniform(0.5, 2.0, size=(3, 3)), held) for held in sets)
    with pytest.raises(ValueError, match=MIXED):
        WAYS[way](x, y)


def test_samples_given_one_by_one_have_the_set_that_is_named():
    assert from_samples([1.0, 2.0, 3.0], ONE).sample_set is ONE
