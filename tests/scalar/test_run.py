"""Unchanged code on ensembles: every sample goes the way it would go alone, in few calls."""

import dataclasses
import functools
import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble.scalar import DivergenceError, Ensemble, RunResult, SampleSet, divergence, run, shared
from tests.scalar.programs import compiled, exact, outcome, program

numbers = st.sampled_from([0.0, -0.0, 0.5, 1.0, -2.0, 3.0, 7.25, 1e30, math.nan, -math.inf]) | st.floats(-9.0, 9.0)


def ensemble_of(*values):
    return Ensemble(np.array(values))


def assert_like_scalar_runs(result, f, *inputs):
    for s in range(result.n_samples):
        alone = [x.sample(s)[()] if isinstance(x, Ensemble) else x for x in inputs]
        assert outcome(lambda s=s: result.sample(s)) == outcome(lambda alone=alone: f(*alone)), f"sample {s}"


# -- the law -----------------------------------------------------------------------------------------------------------


@settings(max_examples=250)
@given(seed=st.integers(0, 2**32 - 1), rows=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=9))
def test_random_programs_give_what_scalar_runs_give(seed, rows):
    f = compiled(program(seed))
    inputs = [Ensemble(np.array(column)) for column in zip(*rows, strict=True)]
    with np.errstate(all="ignore"):
        result = run(f, *inputs)
    assert_like_scalar_runs(result, f, *inputs)
    failing = sum(group.error is not None for group in result.groups)
    assert result.n_runs <= 2 * len(result.groups) - 1 + failing
    together = np.concatenate([group.samples for group in result.groups])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(rows)))


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.integers(1, 70), n_choices=st.integers(1, 5))
def test_calls_are_less_than_twice_the_paths(seed, n_samples, n_choices):
    x = Ensemble(np.random.default_rng(seed).normal(size=(n_choices, n_samples)))
    calls = []

    def way(x):
        calls.append(1)
        return [bool(x[k] > 0.0) for k in range(n_choices)]

    with warnings.catch_warnings(action="ignore"):  # the calls are counted outside
        result = run(way, x)
    ways = {tuple(column) for column in (x.samples > 0.0).T}
    assert len(result.groups) == len(ways)
    assert len(calls) == result.n_runs < 2 * len(ways)
    assert all(group.carried <= 2 * group.n_samples for group in result.groups)
    assert result.work <= 2 * n_samples * (1 + math.log2(n_samples))
    for k, answer in enumerate(result.value):
        np.testing.assert_array_equal(np.broadcast_to(answer.samples, n_samples), x.samples[k] > 0.0)


def test_one_path_is_one_call():
    result = run(lambda x: x * 2.0 if x > 0.0 else x, ensemble_of(1.0, 2.0, 3.0))
    assert (result.n_runs, result.work, len(result.groups)) == (1, 3, 1)


def test_the_larger_party_goes_on_and_the_smaller_runs_again():
    widths = []

    def f(x):
        widths.append(getattr(x, "n_samples", 1))
        return -x if x < 0.0 else x

    with warnings.catch_warnings(action="ignore"):  # the widths are noted outside
        result = run(f, ensemble_of(1.0, -2.0, 3.0, -4.0, 5.0, 6.0, 7.0))
    assert widths == [7, 2]
    assert [group.carried for group in result.groups] == [7, 2]
    np.testing.assert_array_equal(result.value.samples, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])


def test_samples_that_left_do_not_vote():
    x = Ensemble(np.eye(8)[:, :3].T)  # samples 0, 1 and 2 leave one after the other
    result = run(lambda x: [k for k in range(3) if x[k] > 0.5], x)
    assert (result.n_runs, result.work) == (4, 11)
    assert [group.samples.tolist() for group in result.groups] == [[0], [1], [2], [3, 4, 5, 6, 7]]


def test_a_sample_left_alone_is_a_plain_number():
    def f(x):
        return type(x).__name__ if x > 2.0 else "together"

    result = run(f, ensemble_of(1.0, 2.0, 3.0))
    assert list(result.value) == ["together", "together", "float64"]


def test_samples_carried_along_cannot_disturb():
    def f(x):
        if x > 0.0:
            assert not isinstance(x, Ensemble) or x.n_samples < 4 or "raise" not in np.geterr().values()
            return np.log(x)
        return 0.0

    x = ensemble_of(1.0, 2.0, 3.0, -1.0)
    result = run(f, x)
    np.testing.assert_array_equal(result.value.samples[:3], np.log([1.0, 2.0, 3.0]))
    assert result.group_of(0).carried == 4
    with np.errstate(all="raise"):
        result = run(f, x)
    assert not result.errors
    assert result.group_of(0).carried == 3


def test_silence_for_samples_carried_along_ends_with_the_run():
    before = np.geterr()
    run(lambda x: np.log(x) if x > 0.0 else 0.0, ensemble_of(1.0, 2.0, 3.0, -1.0))
    assert np.geterr() == before


# -- what asks for one value -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda x: max(x, 1.0),
        lambda x: sorted([x, 0.0, -x]),
        lambda x: x > 0 and x < 2,
        lambda x: x > 2 or -1.0,
        lambda x: not x,
        lambda x: -1 < x < 2,
        lambda x: math.sqrt(x),
        lambda x: math.floor(x) + round(x, 1),
        lambda x: [10, 20, 30, 40][int(x)],
        lambda x: list(range(int(x))),
        lambda x: {1: "one", 2: "two"}[int(x)],
        lambda x: {1.0: "one"}[x],
        lambda x: complex(x),
        lambda x: "ab" * int(x),
        lambda x: np.asarray(x) + 1.0,
        lambda x: np.array([x, x]),
        lambda x: x.is_integer(),
        lambda x: {"kind": x} if isinstance(x, float) else 1 / 0,
        lambda x: [k for k in range(4) if k < x],
        lambda x: next((k for k in itertools.count() if k >= x), None),
        lambda x: np.arange(3)[np.arange(3) < x],
        lambda x: np.linspace(0.0, 1.0, int(abs(x)) + 1),
    ],
)
def test_every_way_to_ask(f):
    x = ensemble_of(1.0, 2.0, 1.5, -1.0, 2.0)
    assert_like_scalar_runs(run(f, x), f, x)


def test_equal_numbers_stay_together():
    result = run(lambda x: int(x), ensemble_of(1.2, 2.7, 1.9, 2.1, 2.0, 2.5))
    assert [group.samples.tolist() for group in result.groups] == [[0, 2], [1, 3, 4, 5]]
    assert result.value.dtype == np.int64
    np.testing.assert_array_equal(result.value.samples, [1, 2, 1, 2, 2, 2])


def test_zeros_of_either_sign_are_two_numbers_and_nan_is_one():
    x = ensemble_of(0.0, -0.0, math.nan, math.nan, 0.0)
    result = run(lambda x: math.copysign(1.0, float(x)) if not math.isnan(x) else 0.0, x)
    np.testing.assert_array_equal(result.value.samples, [1.0, -1.0, 0.0, 0.0, 1.0])
    assert len(result.groups) == 3


def test_functions_within_functions_and_recursion():
    def depth(x):
        return 0 if x < 1.0 else 1 + depth(x / 2.0)

    x = ensemble_of(0.5, 1.0, 5.0, 100.0, 6.0)
    result = run(depth, x)
    assert_like_scalar_runs(result, depth, x)
    assert result.group_of(2) is result.group_of(4)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_, np.complex128])
def test_dtypes_stay(dtype):
    x = Ensemble(np.array([0, 1, 2, 3, 1]).astype(dtype))
    result = run(lambda x: x if x else -x if dtype is not np.bool_ else x, x)
    assert result.value.dtype == dtype
    assert_like_scalar_runs(result, lambda x: x, x) if dtype is np.bool_ else None


def test_other_libraries(base):
    x = Ensemble(base.asarray([1.0, -2.0, 3.0]))
    result = run(lambda x: -x if x < 0.0 else x, x)
    np.testing.assert_array_equal(np.asarray(result.value.samples), [1.0, 2.0, 3.0])
    assert type(result.value.samples) is type(x.samples)


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_nested_inputs_and_keywords():
    @dataclasses.dataclass
    class Fluid:
        density: object
        name: str

    def f(pair, *, fluid, scale=1.0):
        return pair["x"][0] * fluid.density if pair["x"][1] > 0.0 else (scale, fluid.name)

    x = Ensemble(np.array([[1.0, 2.0, 3.0], [1.0, -1.0, 1.0]]))
    result = run(f, {"x": x}, fluid=Fluid(ensemble_of(10.0, 20.0, 30.0), "oil"), scale=shared(2.0))
    assert list(result.value) == [10.0, (2.0, "oil"), 90.0]


def test_inputs_are_never_changed():
    def f(x, plain, rows):
        x[0] = 5.0
        plain += 1.0
        rows.append(plain)
        return x[0] + plain[0] if x[1] > 0.0 else x[1]

    x, plain, rows = Ensemble(np.array([[1.0, 2.0, 3.0], [1.0, -1.0, 1.0]])), np.zeros(2), []
    before = x.samples.copy()
    result = run(f, x, plain, rows)
    np.testing.assert_array_equal(result.value.samples, [6.0, -1.0, 6.0])
    np.testing.assert_array_equal(x.samples, before)
    assert not plain.any()
    assert rows == []


def test_one_array_given_twice_is_one_array():
    def f(a, b, x):
        a[0] = 1.0
        return b[0] + x if x > 0.0 else b[0]

    plain = np.zeros(1)
    np.testing.assert_array_equal(run(f, plain, plain, ensemble_of(1.0, -1.0)).value.samples, [2.0, 1.0])


def test_results_do_not_change_with_what_f_keeps():
    kept = np.zeros(2)

    def f(x):
        kept[...] = kept + 1.0
        return kept if x > 0.0 else -kept

    with pytest.warns(RuntimeWarning, match="another kept after 2 calls for 4 samples"):
        result = run(f, ensemble_of(1.0, -1.0, -2.0, -3.0))
    np.testing.assert_array_equal(np.abs(result.value.samples[0]), [2.0, 1.0, 1.0, 1.0])


def test_without_an_ensemble_it_is_the_function_itself():
    result = run(lambda a, b: (a, b), 1, "x")
    assert result.value == (1, "x")
    assert (result.n_samples, result.n_runs) == (1, 1)


def test_shared_data_counts_as_one_sample():
    result = run(lambda x: "yes" if x > 0.0 else "no", shared(1.0))
    assert result.value == "yes"
    assert run(lambda x: x + 1.0, shared(1.0)).value.is_shared


def test_sample_sets_go_along():
    samples = SampleSet(ids=[10, 11, 12])
    x = Ensemble(np.array([1.0, -1.0, 2.0]), samples)
    assert run(lambda x: x if x > 0.0 else -x, x).value.sample_set is samples


def test_ensembles_must_match():
    with pytest.raises(ValueError, match="run: operands must have one number of samples, or be shared; got 2 and 3"):
        run(lambda x, y: x, ensemble_of(1.0, 2.0), ensemble_of(1.0, 2.0, 3.0))


# -- results -----------------------------------------------------------------------------------------------------------


def test_results_keep_their_build():
    def f(x):
        return {"x": [x, (x > 0.0, None)], "name": "f", "n": 1 if x > 0.0 else 2}

    value = run(f, ensemble_of(1.0, -1.0, 2.0)).value
    assert value["name"] == "f"
    assert value["x"][1][1] is None
    assert value["x"][1][0].dtype == np.bool_
    np.testing.assert_array_equal(value["n"].samples, [1, 2, 1])


def test_dataclasses_and_namedtuples_hold_ensembles():
    @dataclasses.dataclass(frozen=True)
    class State:
        x: object
        steps: int

    value = run(lambda x: State(-x, 1) if x < 0.0 else State(x, 0), ensemble_of(1.0, -1.0, 2.0)).value
    assert type(value) is State
    np.testing.assert_array_equal(value.x.samples, [1.0, 1.0, 2.0])
    np.testing.assert_array_equal(value.steps.samples, [0, 1, 0])


@pytest.mark.parametrize(
    "answers, listed",
    [
        ((1.0, None, 2.0), True),
        (("a", "b", "a"), True),
        (("a", "a", "a"), False),
        ((np.zeros(2), np.zeros(3), np.ones(2)), True),
        (((1, 2), [1, 2], (3, 4)), True),
        ((True, 3, 4), True),
        ((1, 2.5, 3), False),
        ((2**60 + 1, 0.5, 1.0), True),
        ((10**30, 1, 2), True),
        ((np.float32(1.0), 2.0, 3.0), False),
        (({"a": 1}, {"b": 1}, {"a": 2}), True),
    ],
)
def test_what_no_array_holds_exactly_is_listed(answers, listed):
    result = run(lambda k: answers[int(k)], Ensemble(np.arange(3)))
    assert (type(result.value).__name__ == "SampleList") is listed
    for s, answer in enumerate(answers):
        assert exact(result.sample(s)) == exact(answer) or result.sample(s) == answer
        if listed:
            assert exact(result.value.sample(s)) == exact(answer)


def test_objects_that_may_hide_ensembles_are_made_alone():
    class Box:
        def __init__(self, x):
            self.x = x

    result = run(Box, ensemble_of(1.0, 2.0))
    assert [box.x for box in result.value] == [1.0, 2.0]
    assert "Box" in result.groups[0].reason


def test_a_result_tells_its_story():
    def f(x):
        if x < 0.0:
            raise ValueError("below zero")
        return x

    text = repr(run(f, ensemble_of(1.0, -1.0, 2.0, -2.0, 3.0)))
    assert text.startswith("RunResult: 5 samples, 2 paths, 3 calls of 8 samples in all, 2 failed")
    assert "samples 0, 2, 4: x < 0.0 -> False (test_run.py:" in text
    assert "samples 1, 3: x < 0.0 -> True (test_run.py:" in text
    assert "raised ValueError: below zero" in text


def test_groups_name_the_decisions():
    def f(x, y):
        if x > 0.0:
            return 1 if y > 0.0 else 2
        return 3

    result = run(f, ensemble_of(1.0, 1.0, -1.0, 1.0), ensemble_of(1.0, -1.0, 1.0, 2.0))
    told = [[(d.expression, d.answer) for d in group.decisions] for group in result.groups]
    both = [("x > 0.0", True), ("y > 0.0", True)]
    assert told == [both, [("x > 0.0", True), ("y > 0.0", False)], [("x > 0.0", False)]]
    assert result.groups[0].decisions[0].filename == __file__


# -- exceptions --------------------------------------------------------------------------------------------------------


def test_exceptions_are_collected_by_sample():
    def f(x):
        if x < 0.0:
            raise ValueError(f"{float(x)} is below zero")
        return x

    result = run(f, ensemble_of(1.0, -1.0, 4.0, -1.0, -3.0))
    assert isinstance(result, RunResult)
    assert {s: str(error) for s, error in result.errors.items()} == {
        1: "-1.0 is below zero",
        3: "-1.0 is below zero",
        4: "-3.0 is below zero",
    }
    np.testing.assert_array_equal(result.failed, [False, True, False, True, True])
    np.testing.assert_array_equal(result.value.samples, [1.0, np.nan, 4.0, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"-3\.0 is below zero"):
        result.sample(4)
    with pytest.raises(ExceptionGroup, match=r"run: f must return in every sample; got 3 of 5 that raised .*1, 3, 4"):
        result.raise_if_failed()


def test_a_message_with_an_ensemble_in_it_is_asked_of_each_sample():
    def f(x):
        raise ValueError(f"bad {x:.2f}")

    errors = run(f, ensemble_of(1.0, 2.0, 3.0)).errors
    assert [str(error) for error in errors.values()] == ["bad 1.00", "bad 2.00", "bad 3.00"]


def test_exceptions_handled_inside_are_part_of_the_path():
    def f(x):
        try:
            return {1: "one", 2: "two"}[int(x)]
        except KeyError:
            return "none"

    result = run(f, ensemble_of(1.0, 2.0, 7.0, 8.0))
    assert list(result.value) == ["one", "two", "none", "none"]


def test_nobody_inside_can_swallow_a_parting():
    def f(x):
        try:
            return 1 if x > 0.0 else 2
        except:  # noqa: E722
            return object()

    result = run(f, ensemble_of(1.0, -1.0))
    np.testing.assert_array_equal(result.value.samples, [1, 2])
    assert result.n_runs == 3


def test_an_operation_that_fails_in_one_sample_fails_in_that_one():
    with np.errstate(all="raise"):
        result = run(lambda x: np.log(x), ensemble_of(-1.0, 1.0, 2.0))
    assert list(result.errors) == [0]
    assert result.errors[0].args == ("invalid value encountered in log",)


def test_all_samples_may_fail():
    result = run(lambda x: 1 // int(x), ensemble_of(0.0, 0.5))
    assert result.value is None
    assert all(isinstance(error, ZeroDivisionError) for error in result.errors.values())


def test_no_failure_is_the_result_itself():
    result = run(lambda x: x, ensemble_of(0.0, 0.5))
    assert result.raise_if_failed() is result


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_an_interrupt(stop):
    def f(x):
        if x > 0.0:
            raise stop
        return x

    with pytest.raises(stop):
        run(f, ensemble_of(1.0, -1.0))
    with pytest.raises(DivergenceError):
        bool(ensemble_of(True, False))


# -- what cannot be run ------------------------------------------------------------------------------------------------


def test_generators_are_refused():
    def f(x):
        yield x

    with pytest.raises(TypeError, match="run: f must finish its work before it returns; got a generator or coroutine"):
        run(f, ensemble_of(1.0, 2.0))
    with pytest.raises(TypeError, match="got a generator"):
        run(functools.partial(f), ensemble_of(1.0, 2.0))
    with pytest.raises(TypeError, match="got a map"):
        run(lambda x: map(abs, [x]), ensemble_of(1.0, 2.0))
    with pytest.raises(TypeError, match="got a generator"):
        run(lambda x: f(x), ensemble_of(1.0, 2.0))
    with pytest.raises(TypeError, match="run: f must be callable; got a int"):
        run(3, ensemble_of(1.0, 2.0))


counter = 0


def test_changes_outside_are_told():
    class Model:
        def __init__(self):
            self.calls = 0

        def f(self, x):
            self.calls += 1
            return x

    def count(x):
        global counter
        counter += 1
        return x if x > 0.0 else -x

    def nonlocal_count(x):
        nonlocal inner
        inner += 1
        return x

    inner = 0
    x = ensemble_of(1.0, -1.0)
    with pytest.warns(RuntimeWarning, match="another counter after 3 calls for 2 samples"):
        run(count, x)
    with pytest.warns(RuntimeWarning, match="another inner"):
        run(nonlocal_count, x)
    with pytest.warns(RuntimeWarning, match=r"another self\.calls"):
        run(Model().f, x)


def test_too_many_paths_are_named():
    text = r"run: f must take its samples along 3 paths or fewer \(max_groups\); got 9 so far, as by float\(x\) -> "
    with pytest.raises(DivergenceError, match=text):
        run(lambda x: float(x), Ensemble(np.arange(9.0)), max_groups=3)
    assert len(run(lambda x: float(x), Ensemble(np.arange(9.0)), max_groups=9).groups) == 9
    with pytest.raises(ValueError, match="run: max_groups must be an integer of at least 1; got 0"):
        run(lambda x: x, ensemble_of(1.0), max_groups=0)


def test_a_run_inside_a_run():
    def f(x):
        return run(lambda y: y if y > 0.0 else -y, x).value

    np.testing.assert_array_equal(run(f, ensemble_of(1.0, -1.0, 2.0)).value.samples, [1.0, 1.0, 2.0])


def test_policies_inside_change_nothing():
    def f(x):
        with divergence("any"):
            return 1 if x > 0.0 else 2

    np.testing.assert_array_equal(run(f, ensemble_of(1.0, -1.0, 2.0)).value.samples, [1, 2, 1])


# -- the other policies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy, answer", [("first", 1), ("any", 1), ("all", 2), ("majority", 2)])
def test_other_policies_run_once(policy, answer):
    result = run(lambda x: (x, 1 if x > 0.0 else 2), ensemble_of(1.0, -1.0, -2.0), on_divergence=policy)
    assert result.n_runs == len(result.groups) == 1
    assert int(result.value[1]) == answer
    np.testing.assert_array_equal(result.value[0].samples, [1.0, -1.0, -2.0])


def test_raise_raises_and_other_errors_are_everyones():
    with pytest.raises(DivergenceError, match=r"1 True among 2 samples \(0\), False for 1 in `x > 0.0`"):
        run(lambda x: 1 if x > 0.0 else 2, ensemble_of(1.0, -1.0), on_divergence="raise")
    assert set(run(lambda x: [][0], ensemble_of(1.0, -1.0), on_divergence="any").errors) == {0, 1}
    with pytest.raises(ValueError, match="run: on_divergence must be one of 'split', 'raise'"):
        run(lambda x: x, ensemble_of(1.0), on_divergence="mean")


# -- the experiment ----------------------------------------------------------------------------------------------------


def textbook_cg(A, b, rtol=1e-8, max_iterations=3000):
    """Hestenes and Stiefel's method, as a textbook prints it."""
    x, r = 0.0 * b, b
    p, rr = r, r @ r
    target = rtol * rtol * (b @ b)
    for iteration in range(max_iterations):
        if rr <= target:
            return x, iteration
        q = A @ p
        alpha = rr / (p @ q)
        x = x + alpha * p
        r = r - alpha * q
        rr, old = r @ r, rr
        p = r + (rr / old) * p
    return x, max_iterations


@pytest.fixture(scope="module")
def eight_systems():
    """Eight symmetric matrices with 200 eigenvalues between 1 and the condition number, and one right-hand side."""
    rng = np.random.default_rng(52711)
    basis, _ = np.linalg.qr(rng.normal(size=(200, 200)))
    conditions = np.geomspace(3.0, 1e5, 8)
    matrices = [basis @ np.diag(np.geomspace(1.0, condition, 200)) @ basis.T for condition in conditions]
    return Ensemble(np.stack(matrices, axis=-1)), rng.normal(size=200)


def relative_residuals(A, x, b):
    return [np.linalg.norm(A.sample(s) @ x.sample(s) - b) / np.linalg.norm(b) for s in range(A.n_samples)]


def test_conjugate_gradients_split_give_every_sample_its_own_answer(eight_systems):
    A, b = eight_systems
    result = run(textbook_cg, A, b)
    x, iterations = result.value
    for s in range(8):
        alone, count = textbook_cg(A.sample(s), b)
        np.testing.assert_array_equal(x.sample(s), alone)
        assert int(iterations.sample(s)) == count
    assert len(np.unique(iterations.samples)) == len(result.groups) == 8
    assert result.n_runs < 16
    assert max(relative_residuals(A, x, b)) < 1e-7


def test_conjugate_gradients_raise_by_default_and_name_the_samples(eight_systems):
    A, b = eight_systems
    with pytest.raises(DivergenceError, match=r"1 True among 8 samples \(0\), False for 1, 2, 3, .* in `rr <= target`"):
        textbook_cg(A, b)


def test_conjugate_gradients_by_the_first_sample_leave_the_others_unsolved(eight_systems):
    A, b = eight_systems
    x, iterations = run(textbook_cg, A, b, on_divergence="first").value
    residuals = relative_residuals(A, x, b)
    assert residuals[0] <= 1e-8
    assert max(residuals) > 0.1
    assert int(iterations) == textbook_cg(A.sample(0), b)[1]


def test_conjugate_gradients_until_all_are_done_lose_the_finished(eight_systems):
    A, b = eight_systems
    with np.errstate(all="ignore"):
        x, _ = run(textbook_cg, A, b, on_divergence="all").value
    assert 0 < np.isnan(x.samples).any(axis=0).sum() < 8
