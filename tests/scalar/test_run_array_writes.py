"""`run` of code that makes a plain array and writes into it: a loop over samples from the start."""

import numpy as np
import pytest

from ensemble.scalar import Ensemble, run
from ensemble.scalar.divergence.array_writes import writes_samples


def one_entry(k):
    u = np.zeros(3)
    u[0] = k
    return u


def recurrence(k):
    u = np.empty(20)
    u[0] = k
    for i in range(1, 20):
        u[i] = 0.9 * u[i - 1] + 0.1 * k
    return u


def of_a_local(k):
    rate = 2.0 * k
    u = np.ones((2, 2))
    u[:, 1] += rate
    return np.linalg.solve(u + 3.0 * np.eye(2), np.ones(2))


def of_an_array(x):
    u = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        u[i] = x[i] ** 2
    x[0] = 9.0
    return u.sum() + x[0]


def choice(k):
    u = np.zeros(2)
    u[0] = 1.0 / (k - 1.0) if k != 1.0 else np.nan
    if k > 2.0:
        raise ValueError("too large")
    return u, u.sum()


def slices(k):
    u = np.zeros(10)
    u[2:5] = k
    for _ in range(3):
        u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return u


def constants(k):
    u = np.zeros(3)
    u[0] = 1.0
    for i in range(1, 3):
        u[i] = 0.5 * i
    return u * k


def under_a_condition(k):
    u = np.zeros(3)
    if k > 1.5:
        u[0] = 1.0
    return u * k


WRITERS = [one_entry, recurrence, of_a_local, of_an_array, choice, slices]


def inputs_of(f, n):
    k = Ensemble(np.arange(1.0, n + 1.0))
    return (Ensemble(np.arange(3.0 * n).reshape(3, n)),) if f is of_an_array else (k,)


@pytest.mark.parametrize("f", WRITERS)
@pytest.mark.parametrize("n", [3, 200])
def test_code_that_writes_samples_into_its_array_is_a_loop(f, n):
    inputs = inputs_of(f, n)
    before = inputs[0].samples.copy()
    result = run(f, *inputs)
    assert result.execution == "loop" and result.n_runs == n
    assert np.array_equal(inputs[0].samples, before)  # each call has its own copy
    for s in range(n):
        value = inputs[0].sample(s)
        try:
            alone = f(value[()] if not value.ndim else value)
        except ValueError as error:
            assert str(result.errors[s]) == str(error)
            continue
        own = result.sample(s)
        for a, b in zip(own, alone, strict=True) if isinstance(alone, tuple) else [(own, alone)]:
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("f", [constants, under_a_condition])
def test_code_that_writes_what_is_the_same_for_all_samples_runs_with_ensembles(f):
    result = run(f, Ensemble(np.array([1.0, 2.0, 3.0])))
    assert result.execution == "ensembles" and result.n_runs < 3
    for s in range(3):
        assert np.array_equal(result.sample(s), f(1.0 + s))


@pytest.mark.parametrize("f", WRITERS)
def test_a_loop_and_a_run_with_ensembles_agree_on_values_and_paths(f):
    inputs = inputs_of(f, 4)
    looped, together = run(f, *inputs), run(f, *inputs, loop=False)
    assert len(looped.groups) == len(together.groups) and looped.errors.keys() == together.errors.keys()
    for s in range(4):
        if s not in looped.errors:
            assert repr(looped.sample(s)) == repr(together.sample(s))


def test_a_plain_array_and_a_shared_ensemble_beside_samples_are_given_to_every_call():
    def weighted(k, w, v):
        u = np.zeros(2)
        u[0] = k * w[0] * v[1]
        w[0] = 100.0
        return u

    k, w, v = Ensemble(np.array([1.0, 2.0])), np.array([2.0, 3.0]), Ensemble(np.array([[1.0], [5.0]]))
    result = run(weighted, k, w, v)
    assert result.execution == "loop" and w[0] == 2.0
    assert np.array_equal(result.value.samples[0], [10.0, 20.0])


def test_a_call_that_raises_leaves_the_arguments_of_the_calls_before_it():
    def halved(x):
        u = np.zeros(1)
        x *= 0.5
        u[0] = x[0]
        if u[0] > 1.0:
            raise ValueError("too large")
        return u

    result = run(halved, Ensemble(np.array([[1.0, 1.5, 4.0, 2.0]])))
    assert list(result.errors) == [2]
    assert [float(result.sample(s)[0]) for s in (0, 1, 3)] == [0.5, 0.75, 1.0]


def test_an_array_given_twice_is_one_array_in_every_call():
    def written(x, y):
        u = np.zeros(1)
        x[0] = 7.0
        u[0] = y[0] + x[1]
        return u

    x = Ensemble(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert np.array_equal(run(written, x, x).value.samples, [[10.0, 11.0]])
    assert np.array_equal(run(written, x, x, loop=False).value.samples, [[10.0, 11.0]])


def test_effects_outside_keep_a_function_from_the_loop():
    seen = []

    def noting(k):
        u = np.zeros(2)
        u[0] = k
        seen.append(k)
        return u

    with pytest.warns(RuntimeWarning):
        result = run(noting, Ensemble(np.array([1.0, 2.0])))
    assert np.array_equal(result.value.samples[0], [1.0, 2.0])


def test_code_is_told_by_its_first_write():
    assert all(writes_samples(f.__code__) for f in WRITERS)
    assert not writes_samples(constants.__code__) and not writes_samples(under_a_condition.__code__)
