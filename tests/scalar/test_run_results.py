"""What `run` takes and gives back: inputs and results of every kind, groups, exceptions, and what it refuses."""

import dataclasses
import functools
import math
import time
import warnings
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest

from ensemble import ode
from ensemble._containers import mapped
from ensemble.scalar import DivergenceError, Ensemble, RunResult, SampleSet, run, shared
from ensemble.scalar.divergence.regroup import SampleList, sample_of
from tests.scalar.programs import Row, Scaled, State, ensemble_of, exact


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


def tagged(x):
    row = Row(x, 2.0 * x)
    row.name = "tagged"
    return row


class Slotted(dict):
    __slots__ = ("total",)

    def __init__(self, first, second):
        super().__init__(first=first, second=second)
        self.total = first + second


class Doubled(list):
    """One whose own methods give other values than it holds."""

    def __iter__(self):
        return (2.0 * value for value in super().__iter__())


CONTAINERS = {
    "Counter": lambda x: Counter({"a": x, "b": 2 * x}),
    "Counter of integers": lambda x: Counter({"a": math.floor(x), "b": 2}),
    "Counter of other keys": lambda x: Counter("ab") if x > 1.5 else Counter("bc"),
    "OrderedDict": lambda x: OrderedDict([("b", x), ("a", 1.0)]),
    "OrderedDict of other order": lambda x: OrderedDict.fromkeys("ab" if x > 1.5 else "ba", x),
    "defaultdict": lambda x: defaultdict(list, {"a": [x]}),
    "dict with slots": lambda x: Slotted(x, 3.0),
    "namedtuple with __new__": lambda x: Scaled(x),
    "list with __init__": lambda x: Row(x, -x),
    "list with an attribute": tagged,
    "list with methods of its own": lambda x: Doubled([x, 1.0]),
    "frozen dataclass with what it computed": lambda x: State(x, 3),
    "nested": lambda x: {"c": Counter(a=x), "p": [Scaled(x), (Row(x, x),)]},
}


@pytest.mark.parametrize("loop", [None, False, True])
@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_of_every_type_are_put_together_right(name, loop):
    f, x = CONTAINERS[name], ensemble_of(1.0, 2.0, -3.0, 2.0)
    result = run(lambda x: f(x) if x > 0.0 else f(-x), x, loop=loop)
    for s, alone in enumerate([1.0, 2.0, 3.0, 2.0]):
        wanted = f(np.float64(alone))
        assert exact(result.sample(s)) == exact(wanted)
        assert exact(mapped(as_floats, sample_of_nest(result.value, s))) == exact(mapped(as_floats, wanted))


def as_floats(value):
    return float(value) if isinstance(value, int | np.integer) else value


def sample_of_nest(value, s):
    return value.sample(s) if isinstance(value, SampleList) else sample_of(value, s)


def test_a_default_dict_keeps_its_factory():
    value = run(lambda x: defaultdict(list, {"a": x if x > 0.0 else -x}), ensemble_of(1.0, -1.0)).value
    assert value["new"] == []


def test_structures_of_c_are_put_together():
    value = run(lambda x: time.gmtime(0 if x > 0.0 else 86400), ensemble_of(1.0, -1.0, 1.0), loop=False).value
    np.testing.assert_array_equal(value.tm_mday.samples, [1, 2, 1])


def test_what_cannot_be_made_without_its_constructor_is_listed():
    result = run(lambda x: OwnError(x if x > 0.0 else -x), ensemble_of(1.0, 3.0, -2.0))
    assert [own.rate for own in result.value] == [1.0, 3.0, 2.0]
    assert "of which no other can be made" in result.groups[0].reason


def test_an_argument_that_cannot_be_copied_is_refused():
    text = r"a container of ensembles must be one that can be copied; got a .*OwnError, of which no other .* Use a dict"
    with pytest.raises(TypeError, match=text):
        run(lambda own: own.rate, OwnError(ensemble_of(1.0, -1.0)))
    assert run(lambda x, own: x * own.rate, ensemble_of(1.0, -1.0), OwnError(2)).value.n_samples == 2


@dataclasses.dataclass
class OwnError(Exception):
    """A container that only its own constructor can make."""

    rate: object


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

    text = repr(run(f, ensemble_of(1.0, -1.0, 2.0, -2.0, 3.0), loop=False))
    assert text.startswith("RunResult: 5 samples, 2 paths, 3 calls of 8 samples in all, 2 failed")
    assert "samples 0, 2, 4: x < 0.0 -> False (test_run_results.py:" in text
    assert "samples 1, 3: x < 0.0 -> True (test_run_results.py:" in text
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
    with pytest.raises(TypeError, match="run: f must be callable; got an int"):
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


def floors_into(kept):
    """A function that returns `kept`, or parts of it, in every call."""

    def f(v):
        kept[0], kept[1] = math.floor(v), v
        return kept[:2] if isinstance(kept, np.ndarray) else {"parts": kept}

    return f


@pytest.mark.parametrize("options", [{}, {"loop": True}, {"loop": False}], ids=str)
@pytest.mark.parametrize("kept", [np.zeros(3), [0, 0]], ids=["array", "list"])
def test_what_one_object_held_after_each_call_is_the_result(kept, options):
    x = Ensemble(np.array([0.1, 1.3, 1.2, 2.4]))
    with warnings.catch_warnings(action="ignore"):  # f changes what is outside
        value = run(floors_into(kept), x, **options).value
    first, second = value if isinstance(value, Ensemble) else value["parts"]
    np.testing.assert_array_equal(first.samples, np.floor(x.samples))
    np.testing.assert_array_equal(second.samples, x.samples)


def test_an_untraceable_right_hand_side_may_return_one_list():
    slopes = [0.0, 0.0, 0.0]

    def f(t, y, p, xp):
        slopes[:] = [-one for one in np.sort(y)]
        return slopes

    start = np.array([[1.0, 3.0], [0.5, 2.0], [2.0, 0.1]])
    with warnings.catch_warnings(action="ignore"):
        found = ode.solve(f, Ensemble(start), (0.0, 1.0), method="euler", step=0.5).y.samples
    for _ in range(2):
        start = start - 0.5 * np.sort(start, axis=0)
    np.testing.assert_allclose(found, start, rtol=1e-15)
