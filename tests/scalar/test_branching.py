"""Branches and loops that run each part on its own samples."""

from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._backend import to_numpy
from ensemble.scalar import DivergenceError, Ensemble, SampleSet, cond, from_samples, per_sample, shared, while_loop

Pair = namedtuple("Pair", "first second")


def test_neither_branch_sees_the_samples_of_the_other(base):
    x = Ensemble(base.asarray([4.0, -1.0, 9.0, -2.0]))
    xp = x.__array_namespace__()
    seen = {}

    def root(x):
        seen["root"] = to_numpy(x.samples).tolist()
        return xp.sqrt(x)

    def negated(x):
        seen["negated"] = to_numpy(x.samples).tolist()
        return -x

    got = cond(x > 0.0, root, negated, x)
    assert seen == {"root": [4.0, 9.0], "negated": [-1.0, -2.0]}
    np.testing.assert_array_equal(to_numpy(got.samples), [2.0, 1.0, 3.0, 2.0])


@pytest.mark.parametrize("m, taken", [(True, "f"), (False, "g"), (Ensemble(np.array([True, True])), "f")])
def test_a_branch_that_nobody_takes_is_not_called(m, taken):
    calls = []
    cond(m, lambda: calls.append("f"), lambda: calls.append("g"))
    assert calls == [taken]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 2, 7]))
def test_cond_is_the_branch_of_each_sample(seed, n_samples):
    rng = np.random.default_rng(seed)
    x = Ensemble(rng.normal(size=(3, n_samples)))

    def f(x, y):
        return {"sum": x + y, "pair": Pair(x[0], 1.0)}

    def g(x, y):
        return {"sum": x - y, "pair": Pair(2.0 * x[1], 2.0)}

    y = shared([1.0, 2.0, 3.0])
    got = cond(x[0] > 0.0, f, g, x, y)
    for s in range(n_samples):
        wanted = (f if x.sample(s)[0] > 0.0 else g)(x.sample(s), y.sample(0))
        np.testing.assert_array_equal(got["sum"].sample(s), wanted["sum"])
        np.testing.assert_array_equal(got["pair"].first.sample(s), wanted["pair"].first)
        second = got["pair"].second
        assert (second if isinstance(second, float) else second.sample(s)) == wanted["pair"].second


def test_cond_keeps_dtype_and_sample_set():
    samples = SampleSet(weights=[1.0, 2.0, 0.0])
    x = Ensemble(np.array([1.0, -1.0, 2.0], dtype=np.float32), samples)
    got = cond(x > 0.0, lambda x: x, lambda x: 0.0, x)
    assert got.dtype == np.float32
    assert got.sample_set is samples


def test_branches_see_their_part_of_the_sample_set():
    samples = SampleSet(ids=[10, 11, 12])
    x = Ensemble(np.array([1.0, -1.0, 2.0]), samples)
    seen = []
    cond(x > 0.0, lambda x: seen.append(x.sample_set.ids.tolist()) or x, lambda x: x, x)
    assert seen == [[10, 12]]


@pytest.mark.parametrize("split", [[True, False, True], [False, True, False]])
def test_a_branch_must_use_its_arguments(split):
    x, mask = Ensemble(np.arange(3.0)), Ensemble(np.array(split))
    with pytest.raises(ValueError, match="cond: a result must have the samples that its branch was given; got 3 for"):
        cond(mask, lambda y: x, lambda y: y, x)


def test_a_mask_of_other_samples_is_refused():
    with pytest.raises(ValueError, match="cond: m must have 3 samples, as the arguments; got 2"):
        cond(np.array([True, False]), lambda x: x, lambda x: -x, Ensemble(np.arange(3.0)))
    with pytest.raises(ValueError, match="cond: operands must have one number of samples, or be shared; got 2 and 3"):
        cond(Ensemble(np.array([True, False])), lambda x: x, lambda x: -x, Ensemble(np.arange(3.0)))


def test_branches_must_build_alike():
    x = Ensemble(np.arange(3.0))
    with pytest.raises(ValueError, match="cond: results must be built alike"):
        cond(x > 1.0, lambda x: (x, x), lambda x: x, x)
    with pytest.raises(ValueError, match="cond: results without numbers must be equal"):
        cond(x > 1.0, lambda x: "yes", lambda x: "no", x)


# -- loops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compact_below", [0.0, 0.5, 1.0])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 2, 9]))
def test_a_loop_runs_each_sample_as_if_alone(compact_below, seed, n_samples):
    rng = np.random.default_rng(seed)
    x = Ensemble(rng.uniform(0.0, 50.0, size=(2, n_samples)))

    def active(state):
        return state["x"][0] > 1.0

    def body(state):
        return {"x": state["x"] * 0.7, "steps": state["steps"] + 1, "label": state["label"]}

    state, iterations = while_loop(active, body, {"x": x, "steps": 0, "label": "a"}, compact_below)
    assert state["label"] == "a"
    for s in range(n_samples):
        alone = {"x": x.sample(s), "steps": 0, "label": "a"}
        while active(alone):
            alone = body(alone)
        np.testing.assert_array_equal(state["x"].sample(s), alone["x"])
        assert iterations[s] == alone["steps"]
        steps = state["steps"]
        assert (steps if isinstance(steps, int) else int(steps.sample(s))) == alone["steps"]


def test_finished_samples_are_taken_out():
    widths = []

    def body(x):
        widths.append(x.n_samples)
        return x - 1.0

    while_loop(lambda x: x > 0.0, body, Ensemble(np.array([1.0, 2.0, 3.0, 3.0])), compact_below=0.9)
    assert widths == [4, 3, 2]


def test_a_finished_sample_that_breaks_later_stays_as_it_was():
    x = Ensemble(np.array([1.0, 8.0]))
    with np.errstate(all="ignore"):
        state, _ = while_loop(lambda x: x > 1.0, lambda x: x / (x - 1.0) - 1.0, x, compact_below=0.0)
    assert state.sample(0) == 1.0
    assert np.isfinite(state.sample(1))


def test_a_loop_may_end_early():
    state, iterations = while_loop(
        lambda x: x > 0.0, lambda x: x - 1.0, Ensemble(np.array([2.0, 9.0])), max_iterations=4
    )
    np.testing.assert_array_equal(state.samples, [0.0, 5.0])
    np.testing.assert_array_equal(iterations, [2, 4])


def test_a_loop_of_plain_numbers():
    assert while_loop(lambda k: k < 5, lambda k: k + 1, 0).state == 5


def test_compact_below_is_a_share():
    with pytest.raises(ValueError, match=r"while_loop: compact_below must be in \[0, 1\]; got 2"):
        while_loop(lambda k: k < 5, lambda k: k + 1, 0, compact_below=2)


# -- one sample after the other ----------------------------------------------------------------------------------------


def test_per_sample_takes_and_returns_nested_values(base):
    x = Ensemble(base.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))

    @per_sample
    def f(inputs, *, offset):
        total = float(inputs["x"][0]) + offset
        return {"big": total > 2.5, "pair": (inputs["x"] * 2.0, total), "name": "f"}

    got = f({"x": x, "label": None}, offset=Ensemble(base.asarray([0.0, 0.0, 1.0])))
    assert got["name"] == "f"
    np.testing.assert_array_equal(to_numpy(got["pair"][0].samples), 2.0 * to_numpy(x.samples))
    np.testing.assert_array_equal(to_numpy(got["pair"][1].samples), [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(to_numpy(got["big"].samples), [False, False, True])


def test_per_sample_keeps_types():
    x = Ensemble(np.array([[1.0, 2.0]], dtype=np.float32))
    assert per_sample(lambda x: x * 2)(x).dtype == np.float32
    assert per_sample(lambda x: 3)(x).dtype == np.int64
    assert per_sample(lambda x: True)(x).dtype == np.bool_
    assert type(per_sample(lambda x: type(x) is float)(Ensemble(np.array([1.0, 2.0])))) is Ensemble
    assert all(per_sample(lambda x: type(x) is float)(Ensemble(np.array([1.0, 2.0]))).samples)


def test_per_sample_of_plain_values_is_the_function_itself():
    assert per_sample(lambda a, b: a + b)(1, 2) == 3


def test_per_sample_names_the_sample_of_an_error():
    with pytest.raises(ZeroDivisionError) as caught:
        per_sample(lambda x: 1.0 / x)(Ensemble(np.array([1.0, 0.0])))
    assert caught.value.__notes__ == ["<lambda>: in sample 1 of 2"]


def test_per_sample_needs_one_shape():
    with pytest.raises(ValueError, match=r"results must have one shape in all samples; got \(1,\), \(2,\)"):
        per_sample(lambda n: np.zeros(n))(Ensemble(np.array([1, 2])))


def test_per_sample_heals_a_divergence():
    def absolute(x):
        return x if x > 0.0 else -x

    x = Ensemble(np.array([1.0, -2.0]))
    with pytest.raises(DivergenceError):
        absolute(x)
    np.testing.assert_array_equal(per_sample(absolute)(x).samples, from_samples([1.0, 2.0]).samples)
