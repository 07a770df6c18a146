"""Unchanged code on ensembles: every sample goes the way it would go alone, in few calls."""

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._backend import to_numpy
from ensemble.scalar import Ensemble, run, shared
from tests.conftest import examples
from tests.scalar.programs import (
    assert_like_scalar_runs,
    columns_of,
    compiled,
    compiled_with,
    ensemble_of,
    learned_program,
    outcome,
    program,
)

numbers = st.sampled_from([0.0, -0.0, 0.5, 1.0, -2.0, 3.0, 7.25, 1e30, math.nan, -math.inf]) | st.floats(-9.0, 9.0)


@settings(max_examples=examples(120))
@given(seed=st.integers(0, 2**32 - 1), rows=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=9))
def test_random_programs_give_what_scalar_runs_give(seed, rows):
    f = compiled(program(seed))
    inputs = [Ensemble(np.array(column)) for column in zip(*rows, strict=True)]
    with np.errstate(all="ignore"):
        result = run(f, *inputs, loop=False)
        assert_like_scalar_runs(run(f, *inputs), f, *inputs)
    assert_like_scalar_runs(result, f, *inputs)
    failing = sum(group.error is not None for group in result.groups)
    assert result.n_runs <= 2 * len(result.groups) - 1 + failing
    together = np.concatenate([group.samples for group in result.groups])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(rows)))


def differences_of(seed):
    """The samples in which a run of a random program differs from runs alone, and how many samples there were."""
    source, (*columns, outside) = learned_program(seed), columns_of(seed)
    inputs = [Ensemble(column) for column in columns]
    differing, n_results = [], 0
    for loop in (None, False):
        with np.errstate(all="ignore"):
            result = run(compiled_with(source, Ensemble(outside)), *inputs, loop=loop)
        for s in range(result.n_samples):
            alone, numbers = compiled_with(source, outside[s]), [column[s] for column in columns]
            wanted = outcome(lambda alone=alone, numbers=numbers: alone(*numbers))
            if outcome(lambda result=result, s=s: result.sample(s)) != wanted:
                differing.append((seed, s, loop))
            n_results += 1
    return differing, n_results


def test_programs_that_use_more_than_their_arguments_give_what_scalar_runs_give():
    count = examples(120)
    assert [differences_of(seed)[0] for seed in range(48_300, 48_300 + count)] == [[]] * count


@pytest.mark.slow
def test_a_hundred_thousand_results_of_random_programs():
    found = [differences_of(seed) for seed in range(73_000, 78_300)]
    assert [differing for differing, _ in found if differing] == []
    assert sum(n_results for _, n_results in found) > 100_000


@settings(max_examples=examples(40))
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
    result = run(lambda x: x * 2.0 if x > 0.0 else x, ensemble_of(1.0, 2.0, 3.0), loop=False)
    assert (result.n_runs, result.work, len(result.groups)) == (1, 3, 1)


def test_the_larger_party_goes_on_and_the_smaller_runs_again():
    widths = []

    def f(x):
        try:
            widths.append(x.n_samples)
        except AttributeError:
            widths.append(1)
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
    np.testing.assert_array_equal(to_numpy(result.value.samples), [1.0, 2.0, 3.0])
    assert type(result.value.samples) is type(x.samples)


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


def _sine_of(a, b):
    return a * math.sin(b)


def _sums_of(a, b):
    total = a
    for _ in range(3):
        total += math.sin(b)
        total *= math.cos(b)
    return np.maximum(total, math.exp(-b)) if total > math.sin(b) else math.exp(b) / total


@pytest.mark.parametrize("n", [1, 5, 129, 200])
@pytest.mark.parametrize("function", [_sine_of, _sums_of])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_python_take_the_type_of_what_they_are_combined_with(function, dtype, n):
    """Whether a loop runs over the samples or not, which their number decides."""
    a, b = np.random.default_rng(5).normal(size=(2, 200))
    a = a.astype(dtype)
    result = run(function, Ensemble(a[:n]), Ensemble(b[:n]))
    for s in range(n):
        alone, found = function(a[s], float(b[s])), result.sample(s)
        assert np.asarray(found).dtype == np.asarray(alone).dtype == dtype and np.array_equal(found, alone)
