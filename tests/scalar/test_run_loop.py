"""Where `run` takes a loop over samples, what it may do so for, and what it says; samples run alone for comparison."""

import math
import pickle
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble.scalar import Ensemble, run
from ensemble.scalar.divergence.scalar_code import EXACT, NEITHER, PURE, kind_of
from tests.conftest import examples
from tests.scalar.programs import assert_like_scalar_runs, ensemble_of, exact

RNG = np.random.default_rng(31907)
TABLE = [1.0, 2.0]
LIMIT, LARGE = 0.5, 2**60


def polynomial(x):
    y = x
    for _ in range(10):
        y = y * x + 0.5
        y = y - x * 0.25
    return y


def branching(x):
    if 0.0 < x < 1.0:
        return -math.sqrt(x) if x < LIMIT else polynomial(x)
    return (x + 4.0) ** 1.5 / (x - 2.0)


def descending(n):
    return 1.0 if n < 1.0 else n * descending(n - 1.0)


def counting(x):
    def add():
        nonlocal x
        x = x + 1.0

    add()
    return x


def outer_counting(total=0.0):
    def add(x):
        nonlocal total
        total = total + x
        return total

    return add


def yielding(x):
    yield x


def guarded(x):
    try:
        return 1.0 / int(x)
    except ZeroDivisionError:
        return 0.0


KINDS = {
    "arithmetic": (polynomial, EXACT),
    "branches, math, a function that is called": (branching, EXACT),
    "recursion": (descending, EXACT),
    "a list": (lambda x: [k * x for k in range(3)], EXACT),
    "a power and abs": (lambda x: abs(x) ** 0.5, PURE),
    "a comparison as a value": (lambda x: (x > 0.0) + (x > 1.0), PURE),
    "exceptions": (guarded, PURE),
    "a text": (lambda x: f"{x}", PURE),
    "round": (lambda x: round(x, 2), PURE),
    "sum": (lambda x: sum([x, 0.1, x]), PURE),
    "an integer beside floats": (lambda x: x < 2**60, PURE),
    "a large integer outside": (lambda x: 1.0 if x < LARGE else 0.0, PURE),
    "integers of math": (lambda x: 1.0 if x < math.factorial(20) else 0.0, PURE),
    "a ufunc": (lambda x: np.sin(x), PURE),
    "a product of matrices": (lambda x: np.dot(x, x), NEITHER),
    "printing": (lambda x: print(x), NEITHER),
    "a list outside": (lambda x: x * TABLE[0], NEITHER),
    "a variable around the function": (outer_counting(), NEITHER),
    "a variable of its own": (counting, NEITHER),
    "a generator that is called": (lambda x: list(yielding(x)), NEITHER),
    "no function of Python": (math.sin, NEITHER),
    "arrays": (lambda x: np.zeros(3) + x, NEITHER),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_plain_arithmetic_is_told_by_the_code(name):
    f, kind = KINDS[name]
    assert kind_of(f) == kind


@pytest.mark.parametrize("name", [name for name, (_, kind) in KINDS.items() if kind != NEITHER])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_every_way_gives_the_bits_of_each_sample(name, dtype):
    f = KINDS[name][0]
    x = Ensemble(np.array([0, 1, -1, 2, 3, 5, 0, 1, 7]).astype(dtype))
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):  # NumPy's scalars: `-np.bool_(True)`
        for loop in (None, False, True):
            assert_like_scalar_runs(run(f, x, loop=loop), f, x)


@settings(max_examples=examples(200))
@given(st.lists(st.floats() | st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5]), min_size=2, max_size=5))
@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x / y,
        lambda x, y: x // y,
        lambda x, y: x % y,
        lambda x, y: x**y,
        lambda x, y: (x**y) ** y,
        lambda x, y: x * y - y,
        lambda x, y: (x, [y + x, 1], None if x < y else "text"),
        lambda x, y: math.exp(x) - math.log(y),
        lambda x, y: x if x**y == y else y,
        lambda x, y: 1.0 / (x / y),
    ],
)
def test_floats_have_the_bits_of_numpys_scalars_in_every_operation(f, values):
    assert kind_of(f) == EXACT
    x, y = ensemble_of(*values), ensemble_of(*reversed(values))
    with np.errstate(all="ignore"):
        assert_like_scalar_runs(run(f, x, y), f, x, y)


def test_numbers_come_back_as_numpys():
    result = run(polynomial, ensemble_of(0.5, 1.0))
    assert type(result.sample(0)) is np.float64
    assert result.value.dtype == np.float64


def test_the_result_says_which_way_was_taken():
    small, large = Ensemble(RNG.uniform(size=8)), Ensemble(RNG.uniform(-3.0, 3.0, size=1400))
    result = run(branching, small)
    assert (result.execution, result.n_runs, result.work) == ("loop", 8, 8)
    assert "a loop over samples: f is arithmetic on numbers, which costs less than on small ensembles" in repr(result)
    assert run(branching, small, loop=False).execution == "ensembles"
    assert run(polynomial, large).execution == "ensembles"
    assert run(lambda x: x * TABLE[0], small).execution == "ensembles"
    assert run(lambda x: x * TABLE[0], small, loop=True).execution == "loop"
    both = run(branching, large)
    assert both.execution == "both"
    assert "ensembles, then a loop over the samples of small groups" in repr(both)
    assert_like_scalar_runs(both, branching, large)


def test_a_loop_is_advised_where_samples_go_different_ways():
    text = "few samples share a path: run(..., loop=True) or per_sample(f), a loop, may cost less"
    x = Ensemble(RNG.uniform(size=40))
    assert text in repr(run(lambda x: x * TABLE[0] + float(x), x))
    assert text not in repr(run(lambda x: x * TABLE[0], x))


def test_the_paths_of_a_loop_are_found_when_they_are_asked_for():
    def f(x):
        if x < 0.0:
            raise ValueError("below zero")
        return 1 if x > 1.0 else 2

    x = ensemble_of(0.5, -1.0, 2.0, 0.25, 3.0)
    result = run(f, x)
    assert result.n_runs == 5
    x.samples[...] = 7.0  # the paths are those of the values that were run
    assert [group.samples.tolist() for group in result.groups] == [[0, 3], [1], [2, 4]]
    assert result.groups is result.groups
    assert result.group_of(1).error is result.errors[1]
    assert result.groups[0].decisions[-1].expression == "x > 1.0"
    assert str(result.errors[1]) == "below zero"


def test_a_result_survives_a_pickle():
    result = pickle.loads(pickle.dumps(run(polynomial, ensemble_of(0.5, 1.0))))
    assert result.sample(0) == polynomial(0.5)
    assert len(result.groups) == 1


def test_a_sample_that_raises_does_so_alone():
    x = ensemble_of(1.0, 0.0, -1.0, 4.0)
    result = run(lambda x: math.log(x), x)
    assert {s: type(error) for s, error in result.errors.items()} == {1: ValueError, 2: ValueError}
    np.testing.assert_array_equal(result.value.samples, [0.0, math.nan, math.nan, math.log(4.0)])


def test_division_by_zero_warns_and_gives_what_numpys_scalars_give():
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        result = run(lambda x: 1.0 / x, ensemble_of(1.0, 0.0, -0.0))
    np.testing.assert_array_equal(result.value.samples, [1.0, math.inf, -math.inf])
    with pytest.warns(RuntimeWarning, match="overflow"):
        run(lambda x: x * x, ensemble_of(1.0, 1e200))
    with np.errstate(all="raise"):
        assert isinstance(run(lambda x: x * x, ensemble_of(1.0, 1e200)).errors[1], FloatingPointError)


@pytest.mark.parametrize("answer", [True, 3, 2.5, "text", None, (1, 2.0), {"a": 1.0}, [np.float64(2.0)]])
def test_results_of_every_kind(answer):
    result = run(lambda x: answer if x > 0.0 else None, ensemble_of(1.0, -1.0, 2.0))
    assert exact(result.sample(0)) == exact(answer)
    assert result.sample(1) is None


def test_keywords_and_shared_data_and_options():
    f = lambda x, *, scale, name="a": x * scale if x > 0.0 else name
    x = ensemble_of(1.0, -1.0, 2.0)
    result = run(f, x, scale=Ensemble(np.array([3.0])))
    assert result.execution == "loop"
    assert list(result.value) == [3.0, "a", 6.0]
    assert len(result.groups) == 2


def least_times(*calls, number=10):
    """Seconds of one call of each, the least of many short measurements in alternation."""
    least = [math.inf] * len(calls)
    for _ in range(30):
        for k, function in enumerate(calls):
            start = time.process_time()
            for _ in range(number):
                function()
            least[k] = min(least[k], (time.process_time() - start) / number)
    return least


def collatz(n):
    steps = 0
    while n != 1.0:
        n, steps = (n / 2.0 if n % 2.0 == 0.0 else 3.0 * n + 1.0), steps + 1
    return steps


CHEAP = {
    "arithmetic": (lambda x: polynomial(x) + 1.0, RNG.uniform(0.1, 1.0, 32)),
    "branches": (branching, RNG.uniform(-3.0, 3.0, 32)),
    "a loop of its own": (collatz, np.arange(1.0, 33.0)),
    "math": (lambda x: sum_of_sines(x), RNG.uniform(0.1, 1.0, 32)),
    "many paths of many samples": (collatz, np.arange(1.0, 201.0)),
}


def sum_of_sines(x):
    y = 0.0
    for k in range(8):
        y = y + math.sin(k * x) / (1.0 + x)
    return y


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_function_costs_at_most_one_and_a_half_loops(name):
    f, values = CHEAP[name]
    x = Ensemble(values)
    seen = []
    for _ in range(8):  # other programs may slow a whole attempt down
        ours, bare, addition = least_times(
            lambda: run(f, x), lambda: np.array([f(v) for v in x.samples.tolist()]), lambda: x.samples + x.samples
        )
        seen.append(ours / bare)
        if ours <= max(1.5 * bare, bare + 50 * addition):  # measured are 1.1 to 1.4, and 17 to 19 additions of NumPy
            return
    pytest.fail(f"{name}: {min(seen):.2f} times a loop over floats")


# -- samples run alone for comparison ----------------------------------------------------------------------------------


def test_a_check_runs_samples_alone():
    x = Ensemble(RNG.normal(size=(3, 20)))
    result = run(lambda v: {"a": v * 2.0 if v[0] > 0.0 else -v, "b": float(v[1])}, x, check=5)
    assert len(result.checked) == 5
    assert set(result.checked.values()) == {"equal to the bit"}
    assert "5 samples checked alone: 5 equal to the bit" in repr(result)
    assert run(polynomial, ensemble_of(0.5, 1.0, 2.0), check=2).checked.keys() <= {0, 1, 2}
    assert not run(polynomial, ensemble_of(0.5, 1.0)).checked


def test_a_check_takes_samples_of_every_group_and_always_the_same():
    def f(v):
        return v if v[0] > 0.0 else -v

    v = Ensemble(np.where(np.arange(50) == 31, -1.0, 1.0) * np.ones((2, 50)))
    chosen = [set(run(f, v, check=2).checked) for _ in range(3)]
    assert all(31 in samples for samples in chosen)
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(run(f, v, check=99).checked) == 50


def test_a_sum_may_differ_by_rounding():
    x = Ensemble(RNG.normal(size=(1000, 4)))
    assert set(run(lambda v: v.sum(), x, check=4).checked.values()) <= {"equal to the bit", "equal within rounding"}


@pytest.mark.parametrize(
    "f, place, seen",
    [
        (lambda v: {"p": [v[0] * v.n_samples]}, r"result\['p'\]\[0\]", "AttributeError"),
        (lambda v: 1.0 if is_wide(v) else 2.0, "result", "1.0 in the run and 2.0 alone"),
        (lambda v: (v[0], v * (2.0 if is_wide(v) else 1.0)), r"result\[1\]", r"array\(.* in the run and array\("),
        (lambda v: "several" if is_wide(v) else "one", "result", "'several' in"),
    ],
)
def test_a_difference_is_told_with_its_sample_place_and_values(f, place, seen):
    place = "result" if seen == "AttributeError" else place
    with pytest.raises(
        RuntimeError, match=rf"run: {place} of sample \d must be what the sample gives alone; got .*{seen}"
    ):
        run(f, Ensemble(RNG.normal(size=(3, 4))), check=1)


def is_wide(v):
    try:
        return v.n_samples > 1
    except AttributeError:
        return False


def test_a_check_is_a_count():
    with pytest.raises(ValueError, match="run: check must be an integer of at least 0; got -1"):
        run(polynomial, ensemble_of(1.0, 2.0), check=-1)


def test_without_a_check_no_sample_is_called_twice_in_a_loop():
    calls = []
    with pytest.warns(RuntimeWarning, match="another calls"):
        run(lambda x: calls.append(float(x)) or x, ensemble_of(1.0, 2.0, 3.0), loop=True)
    assert sorted(calls) == [1.0, 2.0, 3.0]
