"""Inside `run`, a value without axes behaves as NumPy's scalars do: it cannot change, and it is its own memory."""

import math

import numpy as np
import pytest

from ensemble.scalar import Ensemble, run
from tests.scalar.programs import outcome


def alias(x, y):
    before = x
    x += y
    return before, x


def swap(v):
    v[0], v[2] = v[2], v[0]
    return v


def bubble_sort(v):
    for last in range(len(v) - 1, 0, -1):
        for k in range(last):
            if v[k] > v[k + 1]:
                v[k], v[k + 1] = v[k + 1], v[k]
    return v


def insertion_sort(v):
    for k in range(1, len(v)):
        value, j = v[k], k
        while j > 0 and v[j - 1] > value:
            v[j], j = v[j - 1], j - 1
        v[j] = value
    return v


def exponential(x):
    term = total = x / x
    k = 0
    while abs(term) > 1e-16 * abs(total):
        k += 1
        term *= x / k
        total += term
    return total, k


def accumulated(v):
    first = v[0]
    for value in v[1:]:
        first += value
    return first, v


def picked(m):
    corner = m[0, 0]
    m[0, 0] = 9.0
    return corner, m[..., 0]


@pytest.mark.parametrize("f", [swap, bubble_sort, insertion_sort, accumulated])
def test_entries_of_an_array(f):
    v = Ensemble(np.random.default_rng(73091).normal(size=(5, 7)))
    assert_like_scalar_runs(f, v)


def test_entries_of_a_matrix():
    assert_like_scalar_runs(picked, Ensemble(np.random.default_rng(73091).normal(size=(2, 3, 4))))


@pytest.mark.parametrize("f", [exponential, lambda x: x**2.5, lambda x: x**2, lambda x: 2.5**x, lambda x: x**x])
def test_numbers(f):
    assert_like_scalar_runs(f, Ensemble(np.random.default_rng(51803).uniform(0.1, 5.0, size=500)))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.power(2.5, x),
        lambda x: np.power(x, 2.5),
        lambda x: np.power(x, x),
        lambda x: x ** np.array(2.5),
        lambda x: np.array(2.5) ** x,
        lambda x: np.float64(2.5) ** x,
        lambda x: np.arange(1.0, 4.0) ** x,
    ],
)
def test_powers_by_the_routine_of_arrays_and_by_that_of_scalars(f):
    assert_like_scalar_runs(f, Ensemble(np.random.default_rng(29803).uniform(0.1, 5.0, size=700)))


def test_a_second_name_keeps_the_old_value():
    assert_like_scalar_runs(alias, Ensemble(np.array([1.0, 2.0, 3.0])), Ensemble(np.array([4.0, 5.0, 6.0])))
    assert_like_scalar_runs(alias, Ensemble(np.array([1, 2, 3])), 0.5)


@pytest.mark.parametrize(
    "f",
    [lambda x: f"{x:.2f}", lambda x: str(x), lambda x: f"{x}", lambda x: repr(x), lambda x: "%s" % x],  # noqa: UP031
)
def test_texts(f):
    assert_like_scalar_runs(f, Ensemble(np.array([1.0, 2.5, -3.0])))


def test_a_failure_that_f_handles_is_its_sample_s_own():
    def guarded(x):
        try:
            with np.errstate(all="raise"):
                return np.log(x) + 1.0 / x
        except FloatingPointError:
            return math.inf

    def solved(A, b):
        try:
            return np.linalg.solve(A, b)
        except np.linalg.LinAlgError:
            return b

    def unlisted(x):
        try:
            return len(np.asarray(x).shape)
        except TypeError:
            return "no array"

    x = Ensemble(np.array([1.0, -2.0, 3.0, 0.0]))
    assert_like_scalar_runs(guarded, x)
    assert_like_scalar_runs(unlisted, x)
    A = Ensemble(np.stack([np.eye(2), np.zeros((2, 2)), 2.0 * np.eye(2)], axis=-1))
    assert_like_scalar_runs(solved, A, np.ones(2))


def test_outside_too_an_entry_is_a_value():
    v = Ensemble(np.array([[1.0, 2.0], [3.0, 4.0]]))
    entry, row = v[0], v[0:1]
    v[0] = 7.0
    np.testing.assert_array_equal(entry.samples, [1.0, 2.0])
    np.testing.assert_array_equal(row.samples, [[7.0, 7.0]])
    v[1] += 1.0
    np.testing.assert_array_equal(v.samples[1], [4.0, 5.0])


def assert_like_scalar_runs(f, *inputs):
    result = run(f, *inputs)
    for s in range(result.n_samples):
        alone = [x.sample(s)[()] if isinstance(x, Ensemble) else x for x in inputs]
        assert outcome(lambda s=s: result.sample(s)) == outcome(lambda alone=alone: f(*alone)), f"sample {s}"
