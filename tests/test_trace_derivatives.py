"""Derivatives of traced functions: tangents, cotangents, entries of the Jacobian matrix, Taylor coefficients."""

import mpmath
import numpy as np
import pytest

from ensemble._compile.trace.derivatives import FLAT, RULES, SELECTING, jacobian, jacobian_pattern, pullback, tangents
from ensemble._compile.trace.operations import OPERATIONS
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.taylor import RULES as SERIES
from ensemble._compile.trace.taylor import taylor_series
from ensemble._compile.trace.tracer import trace
from tests.bodies import F32, F64

REAL = [name for name, op in OPERATIONS.items() if op.rule in ("arithmetic", "same", "float", "order", "select")]


def body_of(name):
    """A smooth function of two numbers near (0.4, 0.7) that uses an operation on both."""

    def body(x, y):
        xp = x.__array_namespace__()
        shift = 1.0 if name == "acosh" else 0.0
        if name == "where":
            return xp.where(x < y, x * y, x / y)
        operation = getattr(xp, name)
        return operation(x * y + shift) if OPERATIONS[name].arity == 1 else operation(x * y, y + 0.1 * x)

    return body


def at(name, x, y):
    """The same on NumPy numbers of extended precision."""

    class Number(np.ndarray):
        def __array_namespace__(self):
            return np

    return body_of(name)(*(np.asarray(v, dtype=np.longdouble).view(Number) for v in (x, y)))


POINT = (0.4, 0.7)


def finite_difference(name, x, y, k):
    h = np.longdouble(1e-5)
    shifts = [(h, 0), (0, h)][k]
    values = [at(name, x + c * shifts[0], y + c * shifts[1]) for c in (-2, -1, 1, 2)]
    return float((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h))


def value(v):
    return 0.0 if v is None else float(v)


def taylor_coefficients(graph, time, state, parameters, order, xp):
    return taylor_series(graph, time, state, parameters, order, xp)[0]


@pytest.mark.parametrize("name", REAL)
def test_the_derivatives_of_each_operation_are_those_of_differences(name):
    graph = trace(body_of(name), F64, F64)
    point = [np.float64(v) for v in POINT]
    expected = [finite_difference(name, *POINT, k) for k in (0, 1)]
    _, (forward,) = tangents(graph, point, {0: 2.0, 1: np.float64(3.0)}, np)
    assert value(forward) == pytest.approx(2.0 * expected[0] + 3.0 * expected[1], rel=1e-11, abs=1e-12)
    backward = pullback(graph, point, [np.float64(2.0)], np)
    entries = jacobian(graph, point, [0, 1], np)
    for k in (0, 1):
        assert value(backward.get(k)) == pytest.approx(2.0 * expected[k], rel=1e-11, abs=1e-12)
        assert value(entries.get((0, k))) == pytest.approx(expected[k], rel=1e-11, abs=1e-12)
    assert set(entries) <= jacobian_pattern(graph, [0, 1])


def test_every_real_operation_has_rules_or_is_constant_between_jumps():
    assert set(REAL) <= set(RULES) | set(FLAT) | set(SELECTING)
    assert set(REAL) <= set(SERIES) | set(FLAT)


def test_an_operation_without_a_rule_is_one_clear_error(monkeypatch):
    monkeypatch.delitem(RULES, "sin")
    graph = trace(lambda x: x.__array_namespace__().sin(x), F64)
    for call in (lambda: tangents(graph, [0.5], {0: 1.0}, np), lambda: pullback(graph, [0.5], [1.0], np)):
        with pytest.raises(TypeError, match="derivatives: each operation of the function must have a derivative; got"):
            call()
    tangents(graph, [np.float64(0.5)], {}, np)


def test_what_is_known_to_be_zero_or_a_number_is_not_computed():
    def body(x, y, z):
        return 2.0 * x + y, x * 0.5 - 3.0, y * z, x.__array_namespace__().floor(x) + z

    graph = trace(body, F64, F64, F64)
    entries = jacobian(graph, [np.array([2.0])] * 3, [0, 1], np)
    assert {k: v for k, v in entries.items() if k != (2, 1)} == {(0, 0): 2.0, (0, 1): 1.0, (1, 0): 0.5}
    assert jacobian_pattern(graph, [0, 1]) == {(0, 0), (0, 1), (1, 0), (2, 1)}
    _, slopes = tangents(graph, [np.array([2.0])] * 3, {1: 1.0, 0: None}, np)
    assert slopes[0] == 1.0 and type(slopes[0]) is float
    assert slopes[1] is None and slopes[3] is None


def test_a_derivative_can_be_traced_and_differentiated_again():
    graph = trace(lambda x, y: x.__array_namespace__().exp(x * y), F64, F64)

    def first(x, y):
        return pullback(graph, [x, y], [1.0], x.__array_namespace__())[0]

    again = trace(first, F64, F64)
    x, y = np.float64(0.3), np.float64(1.2)
    assert jacobian(again, [x, y], [0, 1], np)[0, 0] == pytest.approx(y * y * np.exp(x * y), rel=1e-14)


def test_derivatives_in_single_precision_stay_in_it():
    def body(x, y):
        xp = x.__array_namespace__()
        return xp.where(x > 1.0, x**3.5, 2.0) + xp.maximum(xp.atan2(x, y), 0.5) + xp.log2(x) + xp.copysign(x, y)

    graph = trace(body, F32, F32)

    def all_of_them(x, y):
        xp = x.__array_namespace__()
        series = taylor_coefficients(trace(lambda t, x, y: body(x, y), F32, F32, F32), y, [x], [y], 4, xp)
        return [
            *jacobian(graph, [x, y], [0, 1], xp).values(),
            *pullback(graph, [x, y], [1.0], xp).values(),
            *(c for c in series[0] if c is not None),
        ]

    derivatives = trace(all_of_them, F32, F32)
    assert {node.dtype for node in derivatives.nodes} <= {"float32", "bool"}


def test_a_table_has_the_slopes_of_its_lines():
    """From a point on that of the line behind it, zero outside; points may be numbers that follow each other."""
    last = np.nextafter(2.0, 3.0)
    points, values = [-1.0, 0.0, 0.5, 2.0, last], [1.0, 3.0, 2.0, 2.0, 5.0]
    graph = trace(lambda x, c: c * c * x.__array_namespace__().interp(x, points, values), F64, F64)
    x = np.array([-1.5, -1.0, -0.5, np.nextafter(0.0, -1.0), 0.0, 0.4, 0.5, 1.0, last, 9.0])
    expected = np.array([0.0, 2.0, 2.0, 2.0, -2.0, -2.0, 0.0, 0.0, 0.0, 0.0])
    found = tangents(graph, [x, np.full(10, 3.0)], {0: 1.0}, np)[1][0]
    np.testing.assert_array_equal(found, 9.0 * expected)
    pulled = pullback(graph, [x, np.full(10, 3.0)], [np.ones(10)], np)
    np.testing.assert_array_equal(pulled[0], 9.0 * expected)
    np.testing.assert_array_equal(pulled[1], 6.0 * np.interp(x, points, values))


def test_a_nan_of_a_branch_that_is_not_chosen_does_not_enter_a_tangent():
    graph = trace(lambda x: x.__array_namespace__().where(x > 0.0, x.__array_namespace__().sqrt(x), -x), F64)
    with np.errstate(invalid="ignore"):
        _, (slope,) = tangents(graph, [np.array([-1.0, 4.0])], {0: 1.0}, np)
    assert slope.tolist() == [-1.0, 0.25]


def test_a_pullback_is_the_gradient_of_jax():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def body(x, y, z, xp):
        u = xp.tanh(x * y) / (1.0 + z * z) + xp.hypot(x, z)
        return u * xp.exp(-y) + xp.where(x > y, xp.sin(u), xp.cos(z)), xp.maximum(u, z) ** 2.5

    graph = trace(lambda x, y, z: body(x, y, z, x.__array_namespace__()), F64, F64, F64)
    point = (0.8, 0.3, -0.6)
    mine = pullback(graph, [np.float64(v) for v in point], [1.0, 2.0], np)
    with jax.enable_x64(True):
        gradient = jax.grad(lambda v: sum(w * o for w, o in zip((1.0, 2.0), body(*v, jnp))))(jnp.array(point))
        assert np.allclose([mine[k] for k in range(3)], np.asarray(gradient), rtol=1e-14)


# --- Taylor coefficients
def mp_function(name):
    names = {"acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh",
             "atan2": "atan2", "hypot": "hypot", "log10": "log10", "negative": None}  # fmt: skip
    others = {
        "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
        "divide": lambda a, b: a / b, "pow": lambda a, b: a**b, "negative": lambda a: -a, "positive": lambda a: a,
        "abs": abs, "square": lambda a: a * a, "reciprocal": lambda a: 1 / a, "log2": lambda a: mpmath.log(a, 2),
        "log1p": lambda a: mpmath.log(1 + a), "expm1": lambda a: mpmath.exp(a) - 1, "maximum": lambda a, b: max(a, b),
        "minimum": lambda a, b: min(a, b), "remainder": lambda a, b: a - mpmath.floor(a / b) * b,
        "copysign": lambda a, b: abs(a), "sign": mpmath.sign, "floor": mpmath.floor, "ceil": mpmath.ceil,
        "trunc": lambda a: mpmath.floor(a), "round": mpmath.nint, "floor_divide": lambda a, b: mpmath.floor(a / b),
    }  # fmt: skip
    return others.get(name) or getattr(mpmath, names.get(name) or name)


@pytest.mark.parametrize("name", [name for name in REAL if name != "where"])
def test_the_taylor_coefficients_of_each_operation_are_those_of_mpmath(name):
    """dy/dt = operation(u(t)) with a known u: y is its integral, with a constant y of 0.4 in it."""
    arity, shift = OPERATIONS[name].arity, 1.0 if name == "acosh" else 0.0

    def body(t, y, p):
        xp = t.__array_namespace__()
        a, b = p * t + 0.3 + t * t + shift, 0.5 + t * 0.2 + t * t * t
        return getattr(xp, name)(a) if arity == 1 else getattr(xp, name)(a, b)

    graph = trace(body, F64, F64, F64)
    (mine,) = taylor_coefficients(graph, np.float64(0.2), [np.float64(0.4)], [np.float64(0.7)], 9, np)
    with mpmath.workdps(40):
        p, shift = mpmath.mpf(0.7), mpmath.mpf(shift)
        tenths = [mpmath.mpf(v) for v in (0.3, 0.2)]

        def exact(t):
            a, b = p * t + tenths[0] + t * t + shift, mpmath.mpf(0.5) + t * tenths[1] + t**3
            return mp_function(name)(a) if arity == 1 else mp_function(name)(a, b)

        series = mpmath.taylor(exact, mpmath.mpf(0.2), 8)
        expected = [0.4, *(float(c / (k + 1)) for k, c in enumerate(series))]
    assert [value(c) for c in mine] == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_the_series_of_a_nonlinear_system_is_that_of_mpmath():
    def f(t, y, xp):
        return [xp.sin(y[1]) * y[0] + t, xp.exp(-y[0]) / (1.0 + y[1] * y[1]), xp.sqrt(y[0] * y[0] + y[2] ** 2)]

    graph = trace(lambda t, a, b, c: f(t, [a, b, c], t.__array_namespace__()), F64, F64, F64, F64)
    start = [0.5, 0.25, 1.5]
    mine = taylor_coefficients(graph, np.float64(0.5), [np.float64(v) for v in start], [], 8, np)
    with mpmath.workdps(40):
        solution = mpmath.odefun(
            lambda t, y: f(t, y, mpmath), mpmath.mpf(0.5), [mpmath.mpf(v) for v in start], tol=1e-30
        )
        for i, row in enumerate(mine):
            for s in (0.01, 0.02):
                value_ = sum(mpmath.mpf(float(c)) * mpmath.mpf(s) ** k for k, c in enumerate(row))
                assert abs(value_ - solution(mpmath.mpf(0.5) + mpmath.mpf(s))[i]) < 2e-16


def test_a_variable_exponent_and_a_choice_have_series():
    def body(t, y):
        xp = t.__array_namespace__()
        return xp.where(y > 0.0, (1.0 + t) ** (y * 1.0), 3.0)

    graph = trace(body, F64, F64)
    (row,) = taylor_coefficients(graph, np.array([0.0, 0.0]), [np.array([2.0, -2.0])], [], 3, np)
    assert row[1].tolist() == [1.0, 3.0]
    # y' = (1 + t)**y: y'' = y' (y' log(1 + t) + y / (1 + t)) = 2 at t = 0, y = 2
    assert row[2] == pytest.approx([1.0, 0.0], abs=1e-15)


def test_a_series_is_traced_without_terms_that_are_zero():
    """The Lorenz system: each of the two products takes k + 1 multiplications at order k, all else is linear."""

    def lorenz(t, x, y, z, rho):
        return 10.0 * (y - x), x * (rho - z) - y, x * y - 2.5 * z

    graph = trace(lorenz, *[F64] * 5)

    def body(t, x, y, z, rho):
        return [c for row in taylor_coefficients(graph, t, [x, y, z], [rho], 4, t.__array_namespace__()) for c in row]

    series = trace(body, *[F64] * 5)
    assert not series.uses(0)
    products = sum(node.operation == "multiply" for node in series.nodes)
    # of order 0 to 3: two products of k + 1 terms, two by a number; from order 2 on three divisions by k
    assert products <= 2 * (1 + 2 + 3 + 4) + 2 * 4 + 3 * 3
    assert np.allclose(replay(series, [np.float64(v) for v in (0.0, 1.0, 2.0, 3.0, 28.0)], np)[1], 10.0)


def test_the_series_of_a_square_takes_half_the_products():
    graph = trace(lambda t, y: y * y, F64, F64)
    series = trace(lambda t, y: taylor_coefficients(graph, t, [y], [], 7, t.__array_namespace__())[0], F64, F64)
    # order k of 0 to 6: k // 2 + 1 products; doubled from order 1 on; divided by k + 1 from k = 1 on
    assert sum(node.operation == "multiply" for node in series.nodes) <= (1 + 1 + 2 + 2 + 3 + 3 + 4) + 6 + 6
    assert np.allclose(replay(series, [0.0, np.float64(0.5)], np), 0.5 ** np.arange(1, 9), rtol=1e-14)
