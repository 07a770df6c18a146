"""Derivatives carried forward are those of differences, for every operation and every array library."""

import array_api_strict
import numpy as np
import pytest

from ensemble.apps.kalman import (
    NonlinearGaussianModel,
    extended_kalman_filter,
    extended_kalman_smoother,
    iterated_smoother,
)
from ensemble.apps.kalman.array.duals import SLOPES, Dual, jacobian_of
from ensemble.scalar import Ensemble

FUNCTIONS = {
    **{name: lambda x, xp, name=name: [getattr(xp, name)(0.3 + 0.4 * x[0] * x[1])] for name in set(SLOPES) - {"acosh"}},
    "acosh": lambda x, xp: [xp.acosh(1.5 + x[0])],
    "operators": lambda x, xp: [2.0 - x[0] / (1.0 + x[1]), 3.0 / x[0] + x[1] * 2.0 - 1.0, -x[0] + +x[1]],
    "powers": lambda x, xp: [x[0] ** 3, x[0] ** x[1], 2.0 ** x[1], xp.pow(x[1], 0.5), abs(x[0] - 5.0)],
    "where": lambda x, xp: [xp.where(x[0] > x[1], x[0] * x[1], 7.0), xp.maximum(x[0], 0.5), xp.minimum(x[0], x[1])],
    "two": lambda x, xp: [xp.atan2(x[0], x[1]), xp.hypot(x[0], x[1]), xp.atan2(1.0, x[0]), xp.atan2(x[1], 2.0)],
    "constant": lambda x, xp: [4.0, x[1], xp.pi * x[0]],
}


def points():
    rng = np.random.default_rng(5501)
    return [rng.uniform(0.2, 0.9, 6), rng.uniform(0.2, 0.9, 6)]


def full(rows, n):
    return np.array([[np.zeros(n) if p is None else np.broadcast_to(np.asarray(p), (n,)) for p in row] for row in rows])


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_equals_differences(name):
    f, x = FUNCTIONS[name], points()
    values, rows = jacobian_of(lambda x, xp: f(x, xp), x, xp=np)
    step = 1e-6
    for value, expected in zip(values, f(x, np), strict=True):
        np.testing.assert_array_equal(value, expected)
    for i in range(2):
        up, down = ([v + s * step if j == i else v for j, v in enumerate(x)] for s in (1, -1))
        slopes = [(a - b) / (2 * step) for a, b in zip(f(up, np), f(down, np), strict=True)]
        for c, slope in enumerate(slopes):
            np.testing.assert_allclose(full(rows, 6)[c, i], slope, atol=2e-8 * (1 + np.max(np.abs(slope))))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_runs_on_other_libraries_and_samples(name):
    f, x = FUNCTIONS[name], points()
    expected = full(jacobian_of(lambda x, xp: f(x, xp), x, xp=np)[1], 6)
    xp = array_api_strict
    strict = jacobian_of(lambda x, xp: f(x, xp), [xp.asarray(v) for v in x], xp=xp)[1]
    np.testing.assert_allclose(full(strict, 6), expected, rtol=1e-12)
    lifted = [Ensemble(v) for v in x]
    rows = jacobian_of(lambda x, xp: f(x, xp), lifted, xp=lifted[0].__array_namespace__())[1]
    rows = [[p.samples if isinstance(p, Ensemble) else p for p in row] for row in rows]
    np.testing.assert_allclose(full(rows, 6), expected, rtol=1e-12)


def test_numpys_own_functions_and_arrays_on_the_left():
    x = points()
    rows = jacobian_of(lambda x, xp: [np.sin(x[0]) * np.array([2.0]), np.arctan2(x[0], x[1]), x[0] - np.float64(2.0),
                                      np.ones(6) / x[1], np.absolute(x[0])], x, xp=np)[1]  # fmt: skip
    square = x[0] ** 2 + x[1] ** 2
    zero, one = np.zeros(6), np.ones(6)
    expected = [[2 * np.cos(x[0]), zero], [x[1] / square, -x[0] / square], [one, zero], [zero, -1 / x[1] ** 2],
                [one, zero]]  # fmt: skip
    np.testing.assert_allclose(full(rows, 6), expected, rtol=1e-13)


def test_a_parameter_may_be_an_ensemble():
    speed = Ensemble(np.array([1.0, 2.0]))
    values, rows = jacobian_of(lambda x, xp: [xp.sin(speed * x[0])], [np.array([0.3])], xp=np)
    np.testing.assert_allclose(rows[0][0].samples, [[np.cos(0.3), 2 * np.cos(0.6)]])
    np.testing.assert_allclose(values[0].samples, [[np.sin(0.3), np.sin(0.6)]])


def test_float32_stays():
    x = [v.astype(np.float32) for v in points()]
    for name, f in FUNCTIONS.items():
        for row in jacobian_of(lambda x, xp, f=f: f(x, xp), x, xp=np)[1]:
            assert all(not hasattr(p, "dtype") or p.dtype == np.float32 for p in row), name


def test_branches_and_unknown_functions_are_named():
    with pytest.raises(TypeError, match=r"truth value must not be asked.*xp\.where"):
        jacobian_of(lambda x, xp: [x[0] if x[0] else 0.0], points(), xp=np)
    for operation in (lambda x: x % 2.0, lambda x: 2.0 % x, lambda x: x // 2.0, lambda x: 2.0 // x):
        with pytest.raises(TypeError, match=r"differentiation: operators must have a known derivative; got % or //"):
            operation(Dual(np.ones(1), (np.ones(1),)))
    with pytest.raises(TypeError, match=r"differentiation: functions must have a known derivative; got floor\."):
        jacobian_of(lambda x, xp: [xp.floor(x[0])], points(), xp=np)
    assert repr(Dual(1.0, (None,)).count) == "1"


GUARDED = {  # at the origin: the function, and its derivatives there
    "sinc": (lambda x, xp: xp.where(xp.abs(x[0]) < 1e-9, 1.0, xp.sin(x[0]) / x[0]), (0.0, 0.0)),
    "quotient": (lambda x, xp: x[1] + xp.where(x[0] == 0, 0.0, 1.0 / x[0]), (0.0, 1.0)),
    "other way round": (lambda x, xp: xp.where(x[0] != 0, 1.0 / x[0], 2.0 * x[0]), (2.0, 0.0)),
    "logarithm": (lambda x, xp: xp.where(x[0] > 0, x[0] * xp.log(x[0]), 3.0 * x[0]), (3.0, 0.0)),
    "root of a maximum": (lambda x, xp: x[1] + xp.sqrt(xp.maximum(x[0], 0.0)), (0.0, 1.0)),
    "root of a minimum": (lambda x, xp: x[1] + xp.sqrt(-xp.minimum(x[0], 0.0)), (0.0, 1.0)),
    "root of a square": (lambda x, xp: xp.sqrt(x[0] * x[0]) + x[1], (0.0, 1.0)),
    "power": (lambda x, xp: (x[0] * x[0]) ** 0.4 + x[1], (0.0, 1.0)),
    "product with a root": (lambda x, xp: x[0] * xp.sqrt(x[0]), (0.0, 0.0)),
    "length": (lambda x, xp: xp.hypot(x[0], x[1]), (0.0, 0.0)),
    "angle": (lambda x, xp: xp.atan2(x[0], x[1]), (0.0, 0.0)),
}


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("samples", [False, True])
def test_a_factor_of_zero_beats_an_infinite_or_undefined_one(name, samples):
    f, expected = GUARDED[name]
    x = [np.zeros(3), np.zeros(3)]
    x = [Ensemble(v) for v in x] if samples else x
    with np.errstate(all="ignore"):  # of the function's own values
        _, rows = jacobian_of(lambda x, xp: [f(x, xp)], x, xp=x[0].__array_namespace__())
    rows = [[p.samples if isinstance(p, Ensemble) else p for p in row] for row in rows]
    np.testing.assert_array_equal(full(rows, 3)[0], np.repeat(np.array(expected)[:, None], 3, axis=1))


@pytest.mark.parametrize("run", [extended_kalman_filter, extended_kalman_smoother, iterated_smoother])
def test_filters_start_where_a_guard_chooses(run):
    model = NonlinearGaussianModel(
        lambda x, k, xp: (x[0],),
        lambda x, k, xp: (2.0 * x[0] + xp.where(x[0] == 0, 0.0, xp.sin(x[0]) ** 2 / x[0]),),
        [[0.01]], [[0.1]], [0.0], [[0.1]], prior_at="first_observation",
    )  # fmt: skip
    smooth = NonlinearGaussianModel(
        model.f, lambda x, k, xp: (2.0 * x[0] + xp.sin(x[0]) ** 2 / (x[0] + 1e-300),), [[0.01]], [[0.1]], [1e-9],
        [[0.1]], prior_at="first_observation",
    )  # fmt: skip
    y = [[0.4], [0.5], [0.2]]
    with np.errstate(all="ignore"):
        found = run(model, y)
    if run is iterated_smoother:  # the others linearise at 0, where the guard has no slope
        np.testing.assert_allclose(found.mean, run(smooth, y).mean, rtol=1e-6)
    assert np.isfinite(found.mean).all()
