"""Rodas4 on small systems: order, stiff problems, its factorisation without loops."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ensemble import Ensemble, ode
from ensemble._compile.trace.replay import replay
from ensemble.ode.methods import METHODS
from ensemble.ode.methods.rodas4 import RODAS4
from ensemble.ode.methods.straight_line_lu import ShiftedFactors, elimination_order
from tests.ode.problems import adaptive, fixed_steps, hires, lorenz, pendulum, robertson, system_of, traced_step

HIRES_START = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0057]


def reference(function, y0, p, t1, method="Radau"):
    return solve_ivp(lambda t, y: function(t, y, p, np), (0.0, t1), y0, method, rtol=1e-12, atol=1e-14).y[:, -1]


def test_the_points_are_of_order_four_and_the_dense_output_of_order_three():
    """On a smooth problem that depends on the time."""
    exact = [reference(pendulum, [1.0, 0.5], [1.7], t, "DOP853") for t in (4.0, 2.05, 2.025)]
    errors, inner = [], []
    for n_steps, middle in ((40, exact[1]), (80, exact[2])):
        points, middles = fixed_steps("rodas4", system_of(pendulum, 2), [1.0, 0.5], [1.7], 0.0, 4.0, n_steps)
        errors.append(np.abs(points[-1] - exact[0]).max())
        inner.append(np.abs(middles[n_steps // 2] - middle).max())
    assert 3.7 < math.log2(errors[0] / errors[1]) < 4.6
    assert 3.5 < math.log2(inner[0] / inner[1]) < 4.8


def test_the_estimate_is_of_order_four_in_the_step():
    system, y = system_of(pendulum, 2), [np.float64(1.0), np.float64(0.5)]
    sizes = [np.abs(RODAS4.step(system, np.float64(0.3), np.float64(h), y, [], [1.7]).error).max() for h in (0.1, 0.05)]
    assert 3.6 < math.log2(sizes[0] / sizes[1]) < 4.4


def test_the_dense_output_ends_at_the_new_point():
    system, y = system_of(lorenz, 3), [np.float64(v) for v in (1.0, 2.0, 3.0)]
    step = RODAS4.step(system, np.float64(0.0), np.float64(0.01), y, [], [28.0])
    for old, new, row in zip(y, step.y, step.dense):
        assert old + sum(row) == pytest.approx(new, rel=1e-14)


@pytest.mark.parametrize(
    ("function", "y0", "t1", "rtol", "atol"),
    [(hires, HIRES_START, 321.8122, 1e-6, 1e-9), (robertson, [1.0, 0.0, 0.0], 1e4, 1e-7, 1e-11)],
)
def test_stiff_problems_agree_with_radau(function, y0, t1, rtol, atol):
    p = [] if function is hires else [0.04]
    y, n_steps = adaptive("rodas4", system_of(function, len(y0), len(p)), y0, p, 0.0, t1, rtol, atol)
    exact = reference(function, y0, p, t1)
    assert np.all(np.abs(y - exact) <= 100 * (rtol * np.abs(exact) + atol))
    assert n_steps < 400


def test_a_decaying_part_is_damped_whatever_the_step():
    system = system_of(lambda t, y, p, xp: [-1e8 * (y[0] - xp.cos(t)) - xp.sin(t)], 1)
    step = RODAS4.step(system, np.float64(0.0), np.float64(0.1), [np.float64(3.0)], [], [])
    assert step.y[0] == pytest.approx(math.cos(0.1), abs=1e-5)


# --- the factorisation
@pytest.mark.parametrize("seed", range(4))
def test_a_solve_is_that_of_a_dense_matrix(seed):
    rng = np.random.default_rng(seed)
    n = 9
    J = np.where(rng.random((n, n)) < 0.3, rng.standard_normal((n, n)), 0.0)
    entries = {(i, j): np.array([J[i, j], 2.0 * J[i, j]]) for i, j in zip(*np.nonzero(J))}
    order = elimination_order(entries, n)
    assert sorted(order) == list(range(n))
    shift, b = np.array([10.0, 20.0]), rng.standard_normal((n, 2))
    x = np.array(ShiftedFactors(shift, entries, order).solve(list(b)))
    for k in (0, 1):
        assert np.allclose((shift[k] * np.eye(n) - (k + 1) * J) @ x[:, k], b[:, k], rtol=0.0, atol=1e-13)


def test_the_order_of_elimination_has_no_fill_where_there_is_one_without():
    """An arrow whose head comes first fills up in the natural order, and not in that of the smallest degree."""
    n = 12
    pattern = {(0, i) for i in range(n)} | {(i, 0) for i in range(n)}
    order = elimination_order(pattern, n)
    assert order.index(0) >= n - 2
    factors = ShiftedFactors(1.0, dict.fromkeys(pattern, 0.01), order)
    assert sum(map(len, factors._upper)) == n - 1
    band = {(i, j) for i in range(n) for j in range(n) if abs(i - j) <= 1}
    assert sum(map(len, ShiftedFactors(4.0, dict.fromkeys(band, 0.5), elimination_order(band, n))._upper)) == n - 1


@pytest.mark.parametrize(("function", "n", "k"), [(hires, 8, 0), (robertson, 3, 1), (pendulum, 2, 1)])
def test_a_traced_step_is_the_step_on_arrays(function, n, k):
    rng = np.random.default_rng(5)
    t, h, y = np.array([0.1, 0.2]), np.array([0.01, 0.1]), list(rng.random((n, 2)))
    p = list(rng.random((k, 2)))
    step = RODAS4.step(system_of(function, n, k), t, h, y, [], p)
    expected = [*step.y, *step.error, *(c for row in step.dense for c in row)]
    results = replay(traced_step("rodas4", function, n, k), [t, h, *y, *p], np)
    assert np.array_equal(results, expected)


def test_a_step_has_a_division_for_each_pivot_and_one_for_the_step():
    graph = traced_step("rodas4", hires, 8, 0)
    assert sum(node.operation == "divide" for node in graph.nodes) <= 9
    assert {node.dtype for node in traced_step("rodas4", robertson, 3, 1, "float32").nodes} == {"float32"}
    assert METHODS["rodas4"].needs_graph


@pytest.mark.parametrize("n", [1, 40])
def test_an_infinite_derivative_of_an_unknown_by_itself_stops_no_step(n):
    """At the start the root has one: the step was zero, with an estimated error of zero."""
    exact = reference(lambda t, y, p, xp: [1.0 - xp.sqrt(y[0])], [1e-30], [], 1.0)[0]
    result = ode.solve(lambda t, y, p, xp: [1.0 - xp.sqrt(x) for x in y], [0.0] * n, (0.0, 1.0), method="rodas4")
    assert result.status.tolist() == [1]
    np.testing.assert_allclose(result.y.samples[:, 0], exact, rtol=1e-5)


def test_a_power_of_zero_has_a_derivative_of_zero_at_zero():
    def f(t, y, p, xp):
        return [y[0] ** 0 - y[0], y[1] ** p[0] - y[1]]

    result = ode.solve(f, [0.0, 0.0], (0.0, 1.0), p=[0.0], method="rodas4")
    np.testing.assert_allclose(result.y.samples[:, 0], 1.0 - math.exp(-1.0), rtol=1e-5)


@pytest.mark.parametrize("method, n", [("rodas4", 1), ("rodas4", 33), ("bdf", 1)])
def test_a_table_of_the_time_drives_stiff_methods(method, n):
    """Against `dop853`, which needs no derivatives; the second system goes through a sparse factorisation."""
    times, loads = [0.0, 0.3, 0.7, 1.0], [0.0, 2.0, -1.0, 0.5]

    def f(t, y, p, xp):
        load = p[1] * xp.interp(p[0] * t, times, loads)
        others = [xp.interp(y[1 % n], times, loads), *(y[i] for i in range(1, n))]
        return [load - (i + 1.0) * y[i] + 0.1 * others[i] for i in range(n)]

    p = Ensemble(np.array([[0.5, 1.0, 1.5], [1.0, 2.0, 1.5]]))
    exact = ode.solve(f, np.full(n, 0.1), (0.0, 1.0), p=p, method="dop853", rtol=1e-11, atol=1e-12)
    found = ode.solve(f, np.full(n, 0.1), (0.0, 1.0), p=p, method=method, rtol=1e-8, atol=1e-10)
    assert found.succeeded.all()
    np.testing.assert_allclose(found.y.samples, exact.y.samples, atol=1e-7)
