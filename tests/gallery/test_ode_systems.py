"""Systems of differential equations of the gallery: published ends, SciPy's, tracing and one sample at a time."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ensemble as en
from ensemble import gallery
from ensemble._compile.trace.tracer import Scalar, trace

NAMES = sorted(set(gallery.ode_systems.__all__) - {"InitialValueProblem"})
SMALL = {"lorenz96": (7,), "brusselator": (5,), "van_der_pol": (0.1,)}

ENDS = {  # the solver, and the largest error relative to the largest value
    "robertson": ("Radau", 1e-9),
    "hires": ("Radau", 1e-11),
    "van_der_pol": ("Radau", 1e-9),
    "pleiades": ("DOP853", 1e-9),
    "figure_eight": ("DOP853", 1e-6),
    "pharmacokinetics": ("DOP853", 1e-11),
}


def solved(problem, method):
    atol = 1e-20 if problem.t[1] > 1e10 else 1e-14

    def f(t, y):
        return problem.f(t, y, problem.p, np)

    result = solve_ivp(f, problem.t, problem.y0, method=method, rtol=1e-12, atol=atol)
    assert result.success
    return result.y[:, -1]


LONG = ("robertson", "van_der_pol")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in sorted(ENDS)]
)
def test_the_published_end_is_that_of_a_scipy_solver_at_1e_12(name):
    method, bound = ENDS[name]
    problem = getattr(gallery, name)()
    atol = 0.0 if name == "robertson" else bound * np.abs(problem.y_end).max()  # its values are of sizes far apart
    rtol = 1e-9 if name == "robertson" else 0.0
    np.testing.assert_allclose(solved(problem, method), problem.y_end, rtol=rtol, atol=atol)


def test_the_right_hand_sides_without_a_published_end_are_their_equations():
    """Written a second time, over arrays."""
    rng = np.random.default_rng(61723)
    y, p = rng.standard_normal(3), np.array([9.0, 27.0, 2.5])
    expected = [p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]]
    np.testing.assert_array_equal(gallery.lorenz63().f(0.0, y, p, np), expected)

    y = rng.standard_normal(9)
    expected = (np.roll(y, -1) - np.roll(y, 2)) * np.roll(y, 1) - y + 6.0
    np.testing.assert_allclose(gallery.lorenz96(9).f(0.0, y, [6.0], np), expected, rtol=1e-15)

    v, w = 1.3, -0.4
    expected = [v - v**3 / 3 - w + 0.5, 0.08 * (v + 0.7 - 0.8 * w)]
    problem = gallery.fitzhugh_nagumo()
    np.testing.assert_allclose(problem.f(0.0, [v, w], problem.p, np), expected, rtol=1e-15)

    n, (a, b, d) = 6, (1.1, 2.9, 0.03)
    u, v = rng.uniform(0.5, 2.0, (2, n))
    second = (np.eye(n, k=1) + np.eye(n, k=-1) - 2.0 * np.eye(n)) * (n + 1) ** 2
    edge = np.zeros(n)
    edge[[0, -1]] = (n + 1) ** 2
    du = a + u**2 * v - (b + 1) * u + d * (second @ u + a * edge)
    dv = b * u - u**2 * v + d * (second @ v + b / a * edge)
    got = gallery.brusselator(n).f(0.0, np.stack([u, v], axis=1).reshape(-1), [a, b, d], np)
    np.testing.assert_allclose(np.reshape(got, (n, 2)).T, [du, dv], rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_system_is_traced(name):
    problem = getattr(gallery, name)(*SMALL.get(name, ()))
    n, k = problem.y0.size, problem.p.size

    def body(t, y, p):
        return problem.f(t, y, p, y[0].__array_namespace__())

    graph = trace(body, Scalar("float64"), [Scalar("float64")] * n, [Scalar("float64")] * k)
    assert len(graph.outputs) == n
    assert len(problem.f(0.3, problem.y0, problem.p, np)) == n


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_an_ensemble_has_the_rates_of_its_own_numbers(name):
    problem = getattr(gallery, name)(*SMALL.get(name, ()))
    factors = np.random.default_rng(50909).uniform(0.9, 1.1, 3)
    p = en.Ensemble(problem.p[:, None] * factors)
    together = problem.f(0.0, problem.y0, p, en.namespace(np, n_samples=3))
    for s in range(3):
        one = problem.f(0.0, problem.y0, p.sample(s), np)
        for rate, expected in zip(together, one, strict=True):
            got = rate.sample(s) if isinstance(rate, en.Ensemble) else rate
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "function, argument, text",
    [
        ("lorenz96", 3, "n must be an integer of at least 4"),
        ("brusselator", 1, "n_cells must be an integer of at least 2"),
        ("van_der_pol", 0.0, "epsilon must be"),
    ],
)
def test_sizes_that_make_no_system_are_refused(function, argument, text):
    with pytest.raises(ValueError, match=f"{function}: {text}"):
        getattr(gallery, function)(argument)
