"""Explicit methods: their numbers, their orders, their dense output."""

import math
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ensemble import Ensemble, ode
from ensemble.ode.methods import METHODS
from ensemble.ode.methods import dop853 as dop853_file
from ensemble.ode.methods import tsit5 as tsit5_file
from ensemble.ode.methods.dop853 import DOP853
from ensemble.ode.methods.runge_kutta import polynomial_output
from tests.ode.problems import adaptive, fixed_steps, lorenz, pendulum, system_of

EXPLICIT = ["euler", "rk4", "tsit5", "dop853", "leapfrog", "yoshida4"]
Y0, P = [1.0, 0.5], [1.7]


@cache
def exact(t1):
    reference = solve_ivp(lambda t, y: pendulum(t, y, P, np), (0.0, t1), Y0, "DOP853", rtol=1e-13, atol=1e-14)
    return reference.y[:, -1]


# --- the conditions of order
@cache
def trees(order):
    """Rooted trees of a number of vertices, each a sorted tuple of its branches."""
    if order == 1:
        return ((),)
    return tuple(sorted({tuple(sorted(parts)) for parts in _forests(order - 1, order - 1)}))


@cache
def _forests(size, largest):
    if size == 0:
        return ((),)
    found = []
    for first in range(min(size, largest), 0, -1):
        for many in range(1, size // first + 1):
            for rest in _forests(size - first * many, first - 1):
                found += [(*chosen, *rest) for chosen in combinations_with_replacement(trees(first), many)]
    return tuple(found)


def vertices(tree):
    return 1 + sum(map(vertices, tree))


def density(tree):
    return vertices(tree) * math.prod(map(density, tree))


def stage_weights(tree, a):
    """The elementary weight of a tree at each stage."""
    result = np.ones(len(a))
    for branch in tree:
        result = result * (a @ stage_weights(branch, a))
    return result


def square(rows):
    a = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        a[i, : len(row)] = row
    return a


def defect(weights, a, orders):
    """The largest defect in the order conditions of the given orders."""
    return max(abs(weights @ stage_weights(tree, a) - 1.0 / density(tree)) for order in orders for tree in trees(order))


@pytest.mark.parametrize(("file", "order"), [(tsit5_file, 5), (dop853_file, 8)])
def test_the_numbers_of_a_pair_satisfy_the_conditions_of_its_order(file, order):
    assert [len(trees(k)) for k in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]
    n = 7 if order == 5 else dop853_file.N_STAGES
    a = square(file.A)
    assert np.allclose(a.sum(axis=1), file.C, rtol=0.0, atol=1e-13)
    b = a[n - 1]
    assert defect(b, a, range(1, order + 1)) < 2e-14
    assert defect(b, a, [order + 1]) > 1e-7


def test_the_estimates_are_of_the_orders_that_they_claim():
    a = square(tsit5_file.A)
    assert defect(a[6] - np.array(tsit5_file.ERROR), a, range(1, 5)) < 3e-14
    assert defect(a[6] - np.array(tsit5_file.ERROR), a, [5]) > 1e-4
    a = square(dop853_file.A)
    for error, order in ((dop853_file.ERROR_5, 5), (dop853_file.ERROR_3, 3)):
        weights = a[12] - np.array([*error, 0.0, 0.0, 0.0])
        assert defect(weights, a, range(1, order + 1)) < 1e-14
        assert defect(weights, a, [order + 1]) > 1e-6


@pytest.mark.parametrize(("method", "order"), [("tsit5", 4), ("dop853", 7)])
@pytest.mark.parametrize("theta", [Fraction(1, 3), Fraction(4, 5), Fraction(1)])
def test_the_dense_output_satisfies_the_conditions_of_its_order(method, order, theta):
    """A tree of order r has the weight theta**r / density at theta."""
    file, output = (
        (tsit5_file, polynomial_output(tsit5_file.DENSE)) if method == "tsit5" else (dop853_file, dop853_file._dense)
    )
    a = square(file.A)
    stages = np.eye(len(a))  # stage i is the unit vector i, so values of y are weights of the stages
    new = a[6] if method == "tsit5" else a[12]
    dense = output(0.0 * new, new, 1.0, stages)
    weights = np.array([sum(c * float(theta) ** (k + 1) for k, c in enumerate(row)) for row in dense])
    for r in range(1, order + 1):
        for tree in trees(r):
            assert abs(weights @ stage_weights(tree, a) - float(theta) ** r / density(tree)) < 1e-13


# --- integration
@pytest.mark.parametrize("name", EXPLICIT)
def test_a_method_converges_with_its_order(name):
    """Also where the right-hand side depends on the time."""
    errors = []
    counts = {"dop853": (10, 20), "euler": (400, 800)}.get(name, (40, 80))
    for n_steps in counts:
        points, _ = fixed_steps(name, system_of(pendulum, 2), Y0, P, 0.0, 4.0, n_steps)
        errors.append(np.abs(points[-1] - exact(4.0)).max())
    order = math.log2(errors[0] / errors[1])
    assert METHODS[name].order - 0.3 < order < METHODS[name].order + 1.2


@pytest.mark.parametrize(("name", "order"), [("rk4", 4), ("tsit5", 5), ("dop853", 8), ("leapfrog", 2), ("yoshida4", 4)])
def test_the_dense_output_converges(name, order):
    """Where the points are of the order of the dense output or above, the middle of a step is of its local order."""
    errors = []
    for n_steps in (4, 8) if name == "dop853" else (40, 80):
        _, middles = fixed_steps(name, system_of(pendulum, 2), Y0, P, 0.0, 4.0, n_steps)
        errors.append(np.abs(middles[n_steps // 2] - exact(4.0 * (n_steps // 2 + 0.5) / n_steps)).max())
    h = 4.0 / (4 if name == "dop853" else 40)
    expected = 0.5**order * (1.0 + 0.6)
    assert errors[1] / errors[0] < expected * 2.2, (errors, h)


@pytest.mark.parametrize("name", EXPLICIT)
def test_the_dense_output_ends_at_the_new_point(name):
    method, system = METHODS[name], system_of(pendulum, 2)
    y = [np.float64(v) for v in Y0]
    step = method.step(system, 0.2, 0.1, y, method.start(system, 0.2, y, P), P)
    for old, new, row in zip(y, step.y, step.dense):
        assert old + sum(row) == pytest.approx(new, rel=0.0, abs=1e-14)


def test_adaptive_dop853_takes_the_steps_of_scipy():
    system = system_of(lorenz, 3)
    y, n_steps = adaptive(DOP853, system, [1.0, 1.0, 1.0], [28.0], 0.0, 2.0, 1e-9, 1e-9)
    other = solve_ivp(lambda t, y: lorenz(t, y, [28.0], np), (0.0, 2.0), [1.0] * 3, "DOP853", rtol=1e-9, atol=1e-9)
    exact = solve_ivp(lambda t, y: lorenz(t, y, [28.0], np), (0.0, 2.0), [1.0] * 3, "DOP853", rtol=1e-13, atol=1e-13)
    assert np.abs(y - exact.y[:, -1]).max() < 1e-7
    assert abs(n_steps - (other.nfev - 2) / 12) < 0.15 * n_steps


def test_a_step_of_dop853_is_the_first_step_of_scipy():
    system, y = system_of(lorenz, 3), [np.float64(v) for v in (1.0, 2.0, 3.0)]
    step = DOP853.step(system, 0.0, 0.03, y, DOP853.start(system, 0.0, y, [28.0]), [28.0])
    other = solve_ivp(lambda t, y: lorenz(t, y, [28.0], np), (0.0, 0.03), y, "DOP853", rtol=1e9, atol=1e9,
                      first_step=0.03, dense_output=True)  # fmt: skip
    assert other.y.shape[1] == 2
    assert np.allclose(step.y, other.y[:, 1], rtol=1e-15, atol=1e-15)
    for theta in (0.25, 0.5, 0.9):
        mine = [a + sum(c * theta ** (k + 1) for k, c in enumerate(row)) for a, row in zip(y, step.dense)]
        assert np.allclose(mine, other.sol(0.03 * theta), rtol=1e-13, atol=0.0)


def test_the_energy_of_a_symplectic_method_does_not_drift():
    def oscillator(t, y, p, xp):
        return [y[1], -xp.sin(y[0])]

    for name, bound in (("leapfrog", 3e-3), ("yoshida4", 2e-5)):
        points, _ = fixed_steps(name, system_of(oscillator, 2), [1.0, 0.0], P, 0.0, 400.0, 4000)
        energy = 0.5 * points[:, 1] ** 2 - np.cos(points[:, 0])
        assert np.abs(energy - energy[0]).max() < bound
        assert np.abs(energy[-400:].mean() - energy[:400].mean()) < 0.05 * bound


@pytest.mark.parametrize("name", ["leapfrog", "yoshida4"])
def test_a_system_that_is_not_separable_is_refused(name):
    check = METHODS[name].check
    check(system_of(pendulum, 2))
    check(system_of(lambda t, y, p, xp: [y[1], math.cos(y[0])], 2))  # cannot be traced: not known
    with pytest.raises(ValueError, match="f must be separable for a symplectic method; got df_1/dy_1 that is not zero"):
        check(system_of(lambda t, y, p, xp: [y[1], -y[0] - 0.1 * y[1]], 2))
    with pytest.raises(ValueError, match="y0 must have an even number of entries; got 3"):
        check(system_of(lorenz, 3))


@pytest.mark.parametrize(
    ("f", "seen"),
    [
        (lambda t, y, p, xp: [(1.0 + t) * y[1], -y[0]], "df_0/dt"),
        (lambda t, y, p, xp: [xp.where(y[0] > 0.0, y[1], 0.5 * y[1]), -y[0]], "df_0/dy_0"),
        (lambda t, y, p, xp: [y[1], -xp.floor(y[1])], "df_1/dy_1"),
    ],
)
def test_a_half_that_depends_on_the_time_or_through_a_condition_is_refused(f, seen):
    """Leapfrog would be of order 1."""
    with pytest.raises(ValueError, match=f"separable for a symplectic method; got {seen} that is not zero"):
        ode.solve(f, [0.5, 2.5], (0.0, 1.0), method="leapfrog", step=0.1)


def untraceable(f):
    return lambda t, y, p, xp: np.array(f(t, y, p, xp)) if t == t else None


@pytest.mark.parametrize(
    ("f", "seen"),
    [
        (lambda t, y, p, xp: [(1.0 + t) * y[1], -y[0]], r"df_0/d\(t, q\)"),
        (lambda t, y, p, xp: [y[1] + y[0], -y[0]], r"df_0/d\(t, q\)"),
        (lambda t, y, p, xp: [y[1], -y[0] - 0.1 * y[1]], r"df_1/d\(v\)"),
    ],
)
def test_a_function_that_cannot_be_traced_is_tried_at_the_start(f, seen):
    start = [Ensemble(np.array([0.0, 1.0])), 0.0]
    with pytest.raises(ValueError, match=f"separable for a symplectic method; got {seen} that is not zero"):
        ode.solve(untraceable(f), start, (0.0, 1.0), method="leapfrog", step=0.1)


@pytest.mark.parametrize("name", ["leapfrog", "yoshida4"])
def test_a_separable_function_that_cannot_be_traced_has_the_steps_of_a_traced_one(name):
    start, options = [Ensemble(np.array([0.3, 1.0])), 0.0], {"p": [2.0], "method": name, "step": 0.1}
    expected = ode.solve(pendulum, start, (0.0, 1.0), **options).y.samples
    found = ode.solve(untraceable(pendulum), start, (0.0, 1.0), **options).y.samples
    real = ode.solve(lambda t, y, p, xp: pendulum(t, [v.real for v in y], p, xp), start, (0.0, 1.0), **options)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_array_equal(real.y.samples, found)
