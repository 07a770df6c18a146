"""Plans: samples given out in groups, outputs told back."""

import itertools

import numpy as np
import pytest

import ensemble as en
from ensemble.uq import Group, Halton, Plan
from ensemble.uq.study import plan as module
from tests.uq.study.models import INPUTS, beam, same_bits


def told(order=None, n=256, **options):
    study = en.plan(INPUTS, n, seed=7, **options)
    groups = list(study.groups())
    for k in range(len(groups)) if order is None else np.random.default_rng(order).permutation(len(groups)):
        study.tell(groups[k], beam(groups[k].samples))
    return study


@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize("size, order", [(1, None), (7, 40277), (32, 61001), (300, None)])
def test_results_depend_on_neither_order_nor_size_of_the_groups(size, order, keep):
    assert same_bits(told(order, ensemble_size=size, keep=keep).result(), told(ensemble_size=32).result())


def test_samples_are_those_of_the_inputs():
    study = en.plan(INPUTS, 64, seed=7, ensemble_size=10)
    groups = list(study.groups())
    assert isinstance(study, Plan) and [group.n_samples for group in groups] == [10] * 6 + [4]
    assert isinstance(groups[1], Group) and repr(groups[1]) == "Group(n_samples=10, ids 10 to 19)"
    drawn = INPUTS.samples(64, seed=7).load.samples
    np.testing.assert_array_equal(np.concatenate([group.samples.load.samples for group in groups]), drawn)
    np.testing.assert_array_equal(study.samples.load.samples, drawn)


def test_pending_shrinks_and_a_partial_result_has_what_was_told():
    study = en.plan(INPUTS, 64, seed=7, ensemble_size=16)
    groups = list(study.groups())
    study.tell(groups[2], beam(groups[2].samples))
    assert study.n_done == 16 and study.pending.tolist() == [*range(32), *range(48, 64)]
    assert [group.ids[0] for group in study.groups()] == [0, 16, 48]
    result = study.result()
    assert result.n_done == 16 and result.ids.tolist() == list(range(32, 48)) and "48 not run" in repr(result)
    study.tell(groups[0], beam(groups[0].samples))
    assert result.n_done == 16 and study.result().n_done == 32
    assert repr(study) == "Plan(32 of 64 samples done, 0 failed)"


def test_outputs_come_as_arrays_and_groups_as_ids():
    study = en.plan(INPUTS, 64, seed=7)
    study.tell(np.arange(40), {"a": np.arange(40.0), "b": np.ones((2, 40))})
    study.tell([63, *range(40, 63)], {"a": np.array([63.0, *range(40, 63)]), "b": 1.0 * np.ones((2, 24))})
    np.testing.assert_array_equal(study.result().values("a"), np.arange(64.0))


@pytest.mark.parametrize(
    "ids, text",
    [
        (
            np.arange(3, 20),
            r"plan.tell: group must be pending; got samples 3, 4, 5, 6, 7, 8, ... \(13 in all\), told bef",
        ),
        (np.array([63, 64]), r"plan.tell: group must hold ids from 0 to 63; got 63 to 64"),
        (np.array([20, 20]), r"plan.tell: group must name each sample once; got samples 20, 20"),
        (
            np.array([0.5]),
            r"plan.tell: group must be a Group of this plan, or a vector of sample ids; got dtype float64",
        ),
        (np.array([], int), r"or a vector of sample ids; got dtype int64, shape \(0,\)"),
    ],
    ids=["told", "outside", "twice", "floats", "empty"],
)
def test_samples_that_are_not_pending_are_refused(ids, text):
    study = en.plan(INPUTS, 64, seed=7)
    study.tell(np.arange(16), {"a": np.zeros(16)})
    with pytest.raises(ValueError, match=text):
        study.tell(ids, {"a": np.zeros(ids.size)})
    assert study.n_done == 16


@pytest.mark.parametrize(
    "outputs, text",
    [
        ({"a": np.zeros(15)}, r"plan.tell: output 'a' must have 16 samples in its last axis; got shape \(15,\)"),
        ({"a": np.zeros((2, 16))}, r"plan.tell: output 'a' must have shape \(\) in every sample"),
        ({"a": np.zeros(16, int)}, r"output 'a' must have dtype float64 .* got dtype int64"),
        ({"b": np.zeros(16)}, r"outputs must be 'a' as in the first group; got 'b'"),
        ({}, r"plan.tell: outputs must name an output unless all samples failed; got none"),
    ],
    ids=["samples", "shape", "dtype", "name", "none"],
)
def test_outputs_that_do_not_fit_change_nothing(outputs, text):
    study = en.plan(INPUTS, 64, seed=7)
    study.tell(np.arange(16), {"a": np.zeros(16)})
    with pytest.raises(ValueError, match=text):
        study.tell(np.arange(16, 32), outputs)
    assert study.n_done == 16 and study.pending.size == 48


@pytest.mark.parametrize("keep", ["all", "statistics"])
def test_failed_samples_of_all_kinds_are_left_out(keep):
    study = en.plan(INPUTS, 64, seed=7, ensemble_size=16, keep=keep)
    a, b, c, d = study.groups()
    study.tell(a, {}, failed=np.ones(16, bool), reasons={3: "lost"})  # before any output is known
    b.samples.fail(np.arange(16) == 2, "marked")
    values = np.arange(16.0)
    values[5] = np.inf
    study.tell(b, {"a": values})
    study.tell(c, {"a": np.arange(16.0)}, failed=np.arange(16) == 0)
    study.tell(d, {"a": np.arange(16.0)})
    result = study.result()
    assert np.flatnonzero(result.failed).tolist() == [*range(16), 18, 21, 32]
    assert result.reasons[3] == "lost" and result.reasons[18] == "marked" and result.reasons[32] == ""
    assert result.reasons[21] == "output 'a' is not finite"
    assert float(result.mean("a")) == pytest.approx((113 + 120 + 120) / 45, rel=1e-14) and result.maximum("a") == 15.0


def test_failed_has_one_bool_per_sample():
    with pytest.raises(ValueError, match=r"plan.tell: failed must be 16 bools, one per sample; got int64 of shape"):
        en.plan(INPUTS, 64, seed=7).tell(np.arange(16), {"a": np.zeros(16)}, failed=np.zeros(16, int))


@pytest.mark.parametrize("keep", [None, "all", "statistics"])
@pytest.mark.parametrize("key", ["load", lambda x: -x.stiffness, lambda x: np.round(x.load.samples)])
def test_grouped_samples_give_the_same_bits(key, keep):
    assert same_bits(told(n=512, group_by=key, keep=keep).result(), told(n=512).result())


def test_the_key_orders_the_samples():
    study = en.plan(INPUTS, 64, seed=7, group_by="load", ensemble_size=8)
    loads = [group.samples.load.samples for group in study.groups()]
    assert all(a.max() <= b.min() for a, b in itertools.pairwise(loads))


def test_without_kept_samples_only_neighbours_change_places():
    study = en.plan(INPUTS, 1024, seed=7, group_by="load", keep="statistics")
    assert np.all(np.diff(study.pending // module.WINDOW) >= 0)
    assert np.any(np.diff(en.plan(INPUTS, 1024, seed=7, group_by="load", keep="all").pending // module.WINDOW) < 0)


@pytest.mark.parametrize(
    "key, error, text",
    [
        ("nothing", ValueError, "plan: group_by must be the name of an input, or a function of the input samples; got"),
        (3, TypeError, "plan: group_by must be None, the name of an input, or a function"),
        (
            lambda x: np.zeros(3),
            ValueError,
            r"group_by must give one real number for each of 64 samples; got shape \(3,\)",
        ),
        (lambda x: 1j * x.load, ValueError, "dtype complex128"),
    ],
    ids=["name", "kind", "shape", "complex"],
)
def test_keys_that_order_nothing_are_refused(key, error, text):
    with pytest.raises(error, match=text):
        en.plan(INPUTS, 64, group_by=key)


def test_large_outputs_are_kept_as_statistics_alone(monkeypatch):
    monkeypatch.setattr(module, "KEEP_MEMORY", 256 * 4 * 8 - 1)
    result = told().result()
    assert result.keep == "statistics" and same_bits(result, told(keep="all").result())
    with pytest.raises(
        ValueError, match=r"UqResult.samples: the study must have kept its samples; got statistics alone"
    ):
        result.samples("tip")


def test_extended_studies_keep_their_samples():
    study = told(n=128, sampler=Halton())
    study.extend(256)
    assert study.pending.tolist() == list(range(128, 256))
    for group in study.groups():
        study.tell(group, beam(group.samples))
    assert same_bits(study.result(), told(n=256, sampler=Halton()).result())


def test_an_extension_is_above_what_is_there():
    with pytest.raises(ValueError, match=r"plan.extend: n must be an integer of at least 65; got 64"):
        en.plan(INPUTS, 64).extend(64)


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"inputs": 3}, TypeError, "plan: inputs must be Inputs; got an int"),
        ({"n": 0}, ValueError, "plan: n must be an integer of at least 1"),
        ({"sampler": "fibonacci"}, ValueError, "plan: sampler must be one of"),
        ({"seed": -1}, ValueError, "plan: seed must be an integer of at least 0"),
        ({"ensemble_size": 0}, ValueError, "plan: ensemble_size must be an integer of at least 1"),
        ({"keep": "some"}, ValueError, "plan: keep must be one of 'all', 'statistics'"),
        ({"resume": True}, ValueError, "plan: resume must go with a store"),
        ({"store": 3}, TypeError, "plan: store must be the path of a folder; got an int"),
        ({"store": "x", "resume": "yes"}, ValueError, "plan: resume must be True, False or 'force'; got 'yes'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_wrong_arguments_are_named(options, error, text):
    with pytest.raises(error, match=text):
        en.plan(**{"inputs": INPUTS, "n": 64} | options)


def test_a_seed_is_drawn_and_told():
    study = en.plan(INPUTS, 64)
    assert study.seed != en.plan(INPUTS, 64).seed and told(n=64).result().seed == 7
    np.testing.assert_array_equal(study.samples.load.samples, INPUTS.samples(64, seed=study.seed).load.samples)


@pytest.mark.parametrize("size", [0, 1.5])
def test_group_sizes_are_positive(size):
    with pytest.raises((TypeError, ValueError), match=r"plan.groups: ensemble_size must be an integer of at least 1"):
        list(en.plan(INPUTS, 64).groups(size))
