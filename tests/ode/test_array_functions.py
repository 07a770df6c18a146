"""Right-hand sides over arrays, constant matrices in traces, and systems too long for straight-line code."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import solve_ivp

from ensemble import Ensemble, ode
from ensemble._compile.trace.replay import replay
from ensemble._kernels.ode.group_plan import groups_of
from ensemble._kernels.ode.groups import run_groups
from ensemble.ode import explicit
from ensemble.ode.problem import Problem
from ensemble.ode.solve import problem_of
from ensemble.ode.system import System

N = 5
RNG = np.random.default_rng(51973)
A = RNG.standard_normal((N, N)) - 3.0 * np.eye(N)
W = RNG.standard_normal(N)
START = RNG.uniform(0.5, 1.5, N)


def assigned(t, y, p, xp):
    dy = xp.zeros_like(y)
    dy[0] = y[1]
    dy[1:-1] = y[:-2] - 2.0 * y[1:-1] + y[2:]
    dy[-1] = -p[0] * y[0]
    return dy


def assigned_in_place(t, y, p, xp):
    dy = np.zeros_like(y)
    dy[:2] = y[1]
    dy += W
    return dy


def unpacked(t, y, p, xp):
    a, b, *others = y
    (k,) = p
    return np.array([k * a, b, *others])


FORMS = {
    "differences of all pairs": lambda t, y, p, xp: W + p[0] / N * xp.sum(xp.sin(y[None] - y[:, None]), axis=1),
    "functions and methods of NumPy": lambda t, y, p, xp: W + p[0] / N * np.sin(y[None] - y[:, None]).sum(1),
    "outer": lambda t, y, p, xp: W + p[0] * np.subtract.outer(y, y).T.sum(axis=1),
    "plain matrix @": lambda t, y, p, xp: p[0] * (A @ y),
    "asarray @": lambda t, y, p, xp: p[0] * (xp.asarray(A) @ y),
    "y @ matrix": lambda t, y, p, xp: y @ A + t,
    "dot": lambda t, y, p, xp: np.sin(A.dot(y)) + W,
    "einsum": lambda t, y, p, xp: np.einsum("ij,j->i", A, y),
    "row sums": lambda t, y, p, xp: (A * y).sum(axis=1),
    "assignment": assigned,
    "assignment in place": assigned_in_place,
    "unpacked": unpacked,
    "roll": lambda t, y, p, xp: (np.roll(y, -1) - np.roll(y, 2)) * np.roll(y, 1) - y + 8.0,
    "concat": lambda t, y, p, xp: xp.concat([y[2:], -p[0] * y[:2]]),
    "where": lambda t, y, p, xp: xp.where(y > 1.0, -y, y * y),
    "mean": lambda t, y, p, xp: y.mean() - y,
    "norm": lambda t, y, p, xp: -y / np.linalg.norm(y),
    "extremes": lambda t, y, p, xp: xp.max(y) - xp.min(y) * y,
    "stack": lambda t, y, p, xp: np.stack([y[1], y[0], y[2], y[3], y[4]]),
    "padded differences": lambda t, y, p, xp: np.diff(np.pad(y, 1), 2),
    "lists": lambda t, y, p, xp: [y[1]] + [-a for a in y[1:]],
}


@pytest.mark.parametrize("name", FORMS)
def test_a_function_of_arrays_is_traced_and_gives_what_numpy_gives(name):
    f = FORMS[name]
    graph = System(f, N, 1, np).graph
    for y in RNG.uniform(0.5, 1.5, (3, N)):
        expected = np.asarray(f(0.3, y, np.array([1.3]), np), float)
        got = np.array([float(v) for v in replay(graph, [0.3, *y, 1.3], np)])
        assert np.abs(got - expected).max() <= 16 * np.finfo(float).eps * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", ["differences of all pairs", "plain matrix @", "assignment"])
@pytest.mark.parametrize("method", ["tsit5", "dop853", "taylor", "rodas4", "bdf"])
def test_methods_take_functions_of_arrays(name, method):
    f = FORMS[name]
    made = ode.solve(f, START, (0.0, 0.5), p=Ensemble(np.array([[1.0, 1.2]])), method=method, rtol=1e-7, atol=1e-9)
    for s, p in enumerate((1.0, 1.2)):
        exact = solve_ivp(lambda t, y, p=p: f(t, y, np.array([p]), np), (0.0, 0.5), START, "DOP853", rtol=1e-11,
                          atol=1e-12).y[:, -1]  # fmt: skip
        assert np.abs(made.y.samples[:, s] - exact).max() < 2e-5


def test_a_sparse_matrix_is_a_constant_of_the_trace():
    matrix = sp.csr_array(np.diag(W) + np.diag(W[1:], 1))
    made = ode.solve(lambda t, y, p, xp: xp.asarray(matrix) @ y, START, (0.0, 0.5))
    expected = ode.solve(lambda t, y, p, xp: matrix.toarray() @ y, START, (0.0, 0.5))
    assert np.array_equal(made.y.samples, expected.y.samples)
    untraced = ode.solve(lambda t, y, p, xp: matrix @ y, START, (0.0, 0.5))
    assert np.allclose(untraced.y.samples, expected.y.samples, rtol=1e-12)
    with pytest.raises(TypeError, match=r"Write xp.asarray\(A\) @ y"):
        ode.solve(lambda t, y, p, xp: matrix @ y, START, (0.0, 0.5), method="rodas4")


def test_gradients_sensitivities_and_statistics_take_functions_of_arrays():
    arrays, lists = (
        FORMS["plain matrix @"],
        lambda t, y, p, xp: [p[0] * sum(a * b for a, b in zip(row, y)) for row in A],
    )
    pairs = []
    for f in (arrays, lists):
        gradient = ode.gradient(f, START, (0.0, 0.5), np.ones(N), p=[1.0])
        statistics = ode.time_statistics(f, START, (0.0, 0.5), p=[1.0], of=lambda t, y, p, xp: y[0] + y[1])
        pairs.append((gradient.y0.samples, statistics.mean.samples))
    for one, other in zip(*pairs):
        assert np.allclose(one, other, rtol=1e-12, atol=0.0)


def test_events_and_changes_take_arrays():
    def low(t, y, p, xp):
        return xp.sum(y) - 4.0

    made = ode.solve(lambda t, y, p, xp: -y, START, (0.0, 2.0), events=low, rtol=1e-9, atol=1e-12, stops=[1.0],
                     at_stops=lambda t, y, p, xp: 2.0 * y)  # fmt: skip
    assert abs(made.t_events[0].samples[0, 0] - np.log(START.sum() / 4.0)) < 1e-7
    assert np.abs(made.y.samples[:, 0] - 2.0 * START * np.exp(-2.0)).max() < 1e-7


def test_a_device_takes_functions_of_arrays(emulated):
    from ensemble.ode import device

    options = {"p": Ensemble(np.array([[1.0, 1.2]])), "rtol": 1e-8, "atol": 1e-10}
    f = FORMS["differences of all pairs"]
    solution = device.run(problem_of(f, START, (0.0, 0.5), **options).problem)
    assert np.allclose(solution.y, ode.solve(f, START, (0.0, 0.5), **options).y.samples, rtol=1e-12, atol=0.0)


def test_a_function_that_differs_for_lists_and_arrays_is_refused():
    def f(t, y, p, xp):
        both = y[:2] + y[2:]
        return [both[0], both[1], -both[0], -both[1]]

    with pytest.raises(ValueError, match=r"do the same with a list y and an array y"):
        ode.solve(f, [1.0, 2.0, 3.0, 4.0], (0.0, 1.0))
    made = ode.solve(lambda t, y, p, xp: y[2:] + [-a for a in y[:2]], [1.0, 2.0, 3.0, 4.0], (0.0, 1.0))
    assert np.abs(made.y.samples[0, 0] - (np.cos(1.0) + 3.0 * np.sin(1.0))) < 1e-5


def test_functions_that_cannot_be_traced_get_arrays_too():
    def f(t, y, p, xp):
        return p[0] * np.linalg.solve(A, y)

    made = ode.solve(f, START, (0.0, 0.5), p=Ensemble(np.array([[1.0, 1.5]])), rtol=1e-8, atol=1e-10)
    alone = ode.solve(f, START, (0.0, 0.5), p=[1.5], rtol=1e-8, atol=1e-10)
    exact = solve_ivp(lambda t, y: f(t, y, [1.5], np), (0.0, 0.5), START, "DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    assert np.abs(made.y.samples[:, 1] - exact).max() < 1e-7
    assert np.array_equal(alone.y.samples[:, 0], made.y.samples[:, 1])


# --- kept traces
def test_the_trace_of_a_large_matrix_is_kept_until_the_matrix_changes():
    matrix = RNG.standard_normal((150, 150))

    def f(t, y, p, xp):
        return matrix @ y

    first = System(f, 150, 0, np).graph
    assert System(f, 150, 0, np).graph is first
    matrix[149, 149] += 1.0
    changed = System(f, 150, 0, np).graph
    assert changed is not first
    assert changed.nodes != first.nodes


# --- long systems
M = 40
FREQUENCIES = RNG.standard_normal(M)


def kuramoto(t, y, p, xp):
    return FREQUENCIES + p[0] / M * xp.sum(xp.sin(y[None] - y[:, None]), axis=1)


def kuramoto_listed(t, y, p, xp):
    return [FREQUENCIES[i] + p[0] / M * sum(xp.sin(y[j] - y[i]) for j in range(M)) for i in range(M)]


ANGLES = RNG.standard_normal(M)
COUPLINGS = np.array([1.0, 2.0, np.nan, 0.5])


@functools.cache
def reference(p, times):
    return solve_ivp(lambda t, y: kuramoto(t, y, [p], np), (0.0, 2.0), ANGLES, "DOP853", rtol=1e-11, atol=1e-12,
                     t_eval=list(times)).y.T  # fmt: skip


def together(f=kuramoto, p=COUPLINGS, **options):
    options = {"rtol": 1e-8, "atol": 1e-10, "t_eval": [0.0, 0.7, 2.0]} | options
    return ode.solve(f, ANGLES, (0.0, 2.0), p=Ensemble(np.atleast_2d(p)), **options)


@pytest.mark.parametrize("options", [{"method": "tsit5"}, {"method": "dop853"}, {"method": "rk4", "step": 0.02},
                                     {"method": "tsit5", "step": 0.02}], ids=str)  # fmt: skip
@pytest.mark.filterwarnings("ignore:ode.solve")
def test_long_systems_are_exact_and_samples_see_only_themselves(options):
    given = problem_of(kuramoto, ANGLES, (0.0, 2.0), p=[1.0], **options).problem
    assert isinstance(given, Problem) and explicit.is_long(given)
    made = together(**options)
    for k in (0, 1, 3):
        assert np.abs(made.y.samples[..., k] - reference(COUPLINGS[k], (0.0, 0.7, 2.0))).max() < 2e-6
        alone = together(p=COUPLINGS[k : k + 1], **options)
        assert np.array_equal(alone.y.samples[..., 0], made.y.samples[..., k])
        assert alone.n_steps[0] == made.n_steps[k]
    assert np.isnan(made.y.samples[-1, :, 2]).all() and made.status[2] != 0


def test_lists_and_arrays_of_a_long_system_are_the_same_to_the_bit():
    p = COUPLINGS[[0, 1]]
    assert np.array_equal(together(kuramoto, p).y.samples, together(kuramoto_listed, p).y.samples)


def test_events_of_long_systems_end_samples_where_they_happen():
    def mean(t, y, p, xp):
        return xp.sum(y) / M - ANGLES.mean() - 0.1 * FREQUENCIES.mean()

    mean.terminal = True  # the mean moves with the mean frequency
    made = ode.solve(
        kuramoto, ANGLES, (0.0, 50.0), p=Ensemble(np.array([[1.0, 2.0]])), events=mean, rtol=1e-9, atol=1e-11
    )
    assert np.abs(made.t_reached.samples - 0.1).max() < 1e-7


def test_groups_are_the_graph_node_by_node():
    def some(t, y, p, xp):
        y = xp.asarray(y)
        z = xp.where((y > 1.0) & (y < 1.3), -y, y * y) + xp.maximum(y, 0.9) ** 2.5
        return z - A[0, 0] * y - y * z + xp.interp(y, [0.0, 1.0, 2.0], [1.0, 0.0, 3.0]) - 3.0 + y / (1.0 + t)

    n = 40
    graph = System(some, n, 1, np).graph
    groups = groups_of(graph, n, "float64")
    assert groups is not None
    for count in (1, 3, 8, 41, 100):
        rows, y = RNG.random((2, count)), RNG.uniform(0.5, 1.5, (n, count))
        got = run_groups(groups, rows, y)
        expected = np.stack(replay(graph, [rows[0], *y, rows[1]], np))
        assert np.abs(got - expected).max() <= 8 * np.finfo(float).eps * np.abs(expected).max()
        assert np.array_equal(run_groups(groups, rows[:, -1:], y[:, -1:])[:, 0], got[:, -1])


@pytest.mark.slow
def test_float32_stays_float32():
    made = ode.solve(kuramoto_listed, ANGLES.astype(np.float32), (0.0, 1.0), p=[1.0], rtol=1e-4, atol=1e-5)
    exact = solve_ivp(lambda t, y: kuramoto(t, y, [1.0], np), (0.0, 1.0), ANGLES, rtol=1e-9, atol=1e-9).y[:, -1]
    assert made.y.samples.dtype == np.float32 and np.abs(made.y.samples[:, 0] - exact).max() < 2e-3
