"""Derivatives where one factor is zero and the other infinite: guards, clipped arguments and values not chosen."""

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble._compile.trace.derivatives import SINGULAR, UNBOUNDED, jacobian, pullback, tangents
from ensemble._compile.trace.taylor import taylor_series
from ensemble._compile.trace.tracer import trace
from tests.bodies import F32, F64

CLIPPED = {
    "sqrt": lambda x, xp: xp.sqrt(xp.maximum(x, 0.0)),
    "pow": lambda x, xp: xp.maximum(x, 0.0) ** 0.3,
    "asin": lambda x, xp: xp.asin(xp.minimum(x + 1.0, 1.0)),
    "acos": lambda x, xp: xp.acos(xp.minimum(x + 1.0, 1.0)),
    "acosh": lambda x, xp: xp.acosh(xp.maximum(x + 1.0, 1.0)),
    "abs": lambda x, xp: xp.sqrt(xp.abs(x)),
    "square": lambda x, xp: xp.sqrt(x * x),
    "hypot": lambda x, xp: xp.hypot(x, 0.0 * x),
    "atan2": lambda x, xp: xp.atan2(x, 0.0 * x),
}
"""Functions that are evaluated at zero, where an outer derivative is infinite and the inner one zero."""

GUARDED = {
    "sqrt": lambda x, xp: xp.sqrt(x),
    "pow": lambda x, xp: x**0.3,
    "pow by a value": lambda x, xp: x ** (0.3 + 0.0 * x),
    "log": lambda x, xp: xp.log(x),
    "log1p": lambda x, xp: xp.log1p(x - 1.0),
    "log2": lambda x, xp: xp.log2(x),
    "log10": lambda x, xp: xp.log10(x),
    "x log x": lambda x, xp: x * xp.log(x),
    "divide": lambda x, xp: xp.sin(x) / x,
    "reciprocal": lambda x, xp: xp.exp(1.0 / x),
    "asin": lambda x, xp: xp.asin(1.0 + x),
    "acos": lambda x, xp: xp.acos(1.0 + x),
    "acosh": lambda x, xp: xp.acosh(1.0 - x),
    "atanh": lambda x, xp: xp.atanh(1.0 + x),
    "hypot": lambda x, xp: 1.0 / xp.hypot(x, x),
    "atan2": lambda x, xp: 1.0 / xp.atan2(x, x),
    "overflow": lambda x, xp: xp.exp(1e300 * (1.0 + x)) * x,
}
"""Functions that are not chosen at zero, where they or their derivatives are not finite."""


def everything_finite(body, kind=F64):
    """Values of all derivatives of a body at zero: forward, adjoint and of second order."""

    def first(x):
        xp = x.__array_namespace__()
        return body(x, xp)

    graph, zero = trace(first, kind), kind.dtype

    def second(x):
        entries = jacobian(graph, [x], [0], x.__array_namespace__())
        return entries.get((0, 0), 0.0 * x) + 0.0 * x

    point = [np.dtype(zero).type(0.0)]
    one = np.dtype(zero).type(1.0)
    found = [tangents(graph, point, {0: one}, np)[1][0], pullback(graph, point, [one], np).get(0)]
    curved = trace(second, kind)
    found += [tangents(curved, point, {0: one}, np)[1][0], pullback(curved, point, [one], np).get(0)]
    return [0.0 if value is None else float(value) for value in found]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", CLIPPED)
def test_a_clipped_argument_has_the_derivative_zero_where_the_slope_is_infinite(name, kind):
    forward, backward, *_ = everything_finite(CLIPPED[name], kind)
    assert (forward, backward) == (0.0, 0.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", GUARDED)
def test_what_is_not_chosen_adds_nothing_to_any_derivative(name):
    inner = GUARDED[name]
    made = everything_finite(lambda x, xp: xp.where(x == 0.0, 3.0 * x + x * x, inner(x, xp)))
    assert made == [3.0, 3.0, 2.0, 2.0]


def test_a_finite_slope_counts_in_second_derivatives_where_the_inner_derivative_is_zero():
    made = everything_finite(lambda x, xp: xp.sqrt(1.0 + x * x))
    assert made == [0.0, 0.0, 1.0, 1.0]


def test_every_singular_operation_is_tried():
    assert set(SINGULAR) <= set(CLIPPED)
    tried = {*GUARDED, *CLIPPED} | {"reciprocal"}
    assert set(UNBOUNDED) <= tried


def test_the_taylor_coefficients_of_a_clipped_root_at_zero_are_zero():
    def f(t, y):
        return (-y.__array_namespace__().sqrt(y.__array_namespace__().maximum(y, 0.0)),)

    with np.errstate(all="ignore"):
        (row,), _ = taylor_series(trace(f, F64, F64), np.float64(0.0), [np.float64(0.0)], [], 5, np)
    assert [0.0 if c is None else float(c) for c in row] == [0.0] * 6


PI = np.pi
AT_ZERO = {
    "a root": (lambda t, y, xp: xp.sqrt(t), 2.0 / 3.0),
    "a root of a square": (lambda t, y, xp: xp.sqrt(t * t), 0.5),
    "a root of a fourth power": (lambda t, y, xp: xp.sqrt(t * t * t * t), 1.0 / 3.0),
    "a power": (lambda t, y, xp: t**0.3, 1.0 / 1.3),
    "a power by a value": (lambda t, y, xp: t ** (0.3 + 0.0 * t), 1.0 / 1.3),
    "a high power": (lambda t, y, xp: t**2.5, 1.0 / 3.5),
    "a power of itself": (lambda t, y, xp: t**t, 0.78343051071213440705),  # sum of (-1)^(n+1) n^-n
    "a norm": (lambda t, y, xp: xp.sqrt(t * t + (2.0 * t) ** 2), 5.0**0.5 / 2.0),
    "hypot": (lambda t, y, xp: xp.hypot(t, 2.0 * t), 5.0**0.5 / 2.0),
    "abs": (lambda t, y, xp: xp.abs(t), 0.5),
    "atan2": (lambda t, y, xp: xp.atan2(2.0 * t, t), np.arctan(2.0)),
    "asin": (lambda t, y, xp: xp.asin(1.0 - t), PI / 2 - 1.0),
    "acos": (lambda t, y, xp: xp.acos(1.0 - t * t), PI / 2 + 2.0 - 8.0**0.5),
    "acosh": (lambda t, y, xp: xp.acosh(1.0 + t), 2.0 * np.arccosh(2.0) - 3.0**0.5),
    "t log t": (lambda t, y, xp: xp.where(t > 0.0, t * xp.log(t), 0.0), -0.25),
    "sin t / t": (lambda t, y, xp: xp.where(t == 0.0, 1.0, xp.sin(t) / t), 0.94608307036718301494),
    "a root of a wave": (lambda t, y, xp: xp.sqrt(xp.sin(2.0 * PI * t) ** 2), 2.0 / PI),
    "a power of a wave": (lambda t, y, xp: (xp.sin(2.0 * PI * t) ** 2) ** 0.75, 0.55641789444938187),
}
"""Right-hand sides that have a value and no series at t = 0, and their integrals from 0 to 1."""

FEW = ("a root", "a norm", "a power", "a power of itself", "acosh", "a root of a wave")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in AT_ZERO]
)
def test_taylor_steps_away_from_where_there_is_no_series(name):
    f, exact = AT_ZERO[name]
    made = ode.solve(lambda t, y, p, xp: [f(t, y, xp)], [0.0], (0.0, 1.0), method="taylor", rtol=1e-8, atol=1e-10)
    assert made.status.tolist() == [1]
    np.testing.assert_allclose(made.y.samples[0, 0], exact, rtol=2e-7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_taylor_starts_from_rest_under_a_drag_of_the_speed():
    def f(t, y, p, xp):
        speed = xp.sqrt(y[0] ** 2 + y[1] ** 2)
        return [p[0] - y[0] * speed, -y[1] * speed]

    g = np.array([1.0, 0.0, 4.0])
    for end in (1.0, -0.5):
        made = ode.solve(f, [0.0, 0.0], (0.0, end), p=[Ensemble(g)], method="taylor", rtol=1e-8, atol=1e-12)
        assert made.status.tolist() == [1, 1, 1]
        exact = np.sqrt(g) * (np.tanh if end > 0.0 else np.tan)(np.sqrt(g) * end)
        np.testing.assert_allclose(made.y.samples[0], exact, rtol=1e-7, atol=1e-10)
        np.testing.assert_array_equal(made.y.samples[1], 0.0)


def test_every_function_with_a_value_and_no_series_is_tried():
    tried = {"sqrt": "a root", "pow": "a power", "asin": "asin", "acos": "acos", "acosh": "acosh"}
    assert set(SINGULAR) == set(tried) and set(tried.values()) <= set(AT_ZERO)


def drain(t, y, p, xp):
    return [0.1 * p[0] - xp.sqrt(xp.maximum(y[0], 0.0))]


@pytest.mark.parametrize("method", ["tsit5", "dop853", "rodas4", "bdf"])  # a series of sqrt(y) needs short steps
def test_a_tank_that_runs_empty_does_not_end_a_solve(method):
    made = ode.solve(drain, [Ensemble(np.array([1.0, 4.0, 0.0]))], (0.0, 5.0), p=[0.0], method=method)
    np.testing.assert_allclose(made.y.samples[0], 0.0, atol=2e-7)


@pytest.mark.parametrize("method", ["tsit5", "dop853", "taylor", "rodas4", "bdf"])
def test_an_empty_tank_fills(method):
    made = ode.solve(drain, [0.0], (0.0, 1.0), p=[1.0], method=method)
    assert made.y.samples[0, 0] == pytest.approx(0.0099503305, rel=1e-5)  # of implicit form: checked with Radau 1e-12


@pytest.mark.parametrize("n", [31])
def test_rodas4_with_many_unknowns_empties_tanks(n):
    def tanks(t, y, p, xp):
        return [-xp.sqrt(xp.maximum(v, 0.0)) for v in y]

    made = ode.solve(tanks, np.linspace(0.0, 1.0, n), (0.0, 3.0), method="rodas4")
    np.testing.assert_allclose(made.y.samples[:, 0], 0.0, atol=1e-7)


@pytest.mark.parametrize("method", ["euler-maruyama", "milstein"])
def test_noise_of_a_root_at_zero_does_not_end_a_solve(method):
    options = {"method": method, "step": 0.01, "noise": lambda t, y, p, xp: [xp.sqrt(xp.maximum(y[0], 0.0))]}
    made = ode.solve(
        lambda t, y, p, xp: [p[0] - y[0]], [0.0], (0.0, 1.0), p=[Ensemble(np.array([0.0, 1.0]))], **options
    )
    assert made.y.samples[0, 0] == 0.0
    assert np.isfinite(made.y.samples[0, 1])


def rate(v, xp):
    return xp.where(xp.abs(v + 40.0) < 1e-9, 1.0, 0.1 * (v + 40.0) / (1.0 - xp.exp(-(v + 40.0) / 10.0)))


@pytest.mark.parametrize("method", ["taylor", "rodas4"])
def test_the_gradient_through_a_guarded_singularity_is_that_of_sensitivities(method):
    def f(t, y, p, xp):
        return [p[0] - rate(y[0], xp), -p[1] * xp.where(y[1] > 0.0, y[1] * xp.log(y[1]), 0.0)]

    options = {"p": [1.0, 2.0], "method": method} | ({"step": 0.1} if method == "rk4" else {})
    forward = ode.sensitivities(f, [-40.0, 0.0], (0.0, 1.0), **options)
    backward = ode.gradient(f, [-40.0, 0.0], (0.0, 1.0), [1.0, 1.0], **options)
    np.testing.assert_allclose(backward.p.samples[:, 0], [forward.p.samples[0, 0, 0], 0.0], rtol=1e-10)
    assert forward.p.samples[0, 0, 0] == pytest.approx(1.0, rel=1e-6)


def test_a_weight_of_zero_is_no_gradient_through_an_infinite_slope():
    def f(t, y, p, xp):
        return [-p[0] * y[0], 0.0 * xp.sqrt(y[1])]

    made = ode.gradient(f, [1.0, 0.0], (0.0, 1.0), [1.0, 0.0], p=[1.0], rtol=1e-9)
    assert made.p.samples[0, 0] == pytest.approx(-np.exp(-1.0), rel=1e-7)
