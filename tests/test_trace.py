"""The tracer, and the Python source that it writes."""

import math

import numba
import numpy as np
import pytest

from ensemble._compile.trace import numba_source
from ensemble._compile.trace.operations import DTYPES, OPERATIONS, common
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble.scalar import fuse
from tests.bodies import F32, F64, I32, everything, lorenz


def count(graph, operation):
    return sum(node.operation == operation for node in graph.nodes)


# --- graphs
def test_common_subexpressions_are_one_node():
    graph = trace(lambda x, y: (x * y + 1.0, x * y - 1.0, x * y), F64, F64)
    assert count(graph, "multiply") == 1
    assert len(graph.outputs) == 3


def test_the_values_of_a_trace_have_one_namespace():
    """array-api-compat 1.11 collects the namespaces of all operands in a set, and wants one."""
    seen = set()

    def body(x, y):
        seen.update((x.__array_namespace__(), y.__array_namespace__()))
        return x + y

    trace(body, F64, F64)
    assert len(seen) == 1
    trace(body, F64, F64)
    assert len(seen) == 2


def test_the_order_of_operations_is_kept():
    graph = trace(lambda x, y: (x + y) + 1.0 - (y + x), F64, F64)
    assert count(graph, "add") == 3  # x + y and y + x stay two


def test_constants_are_folded():
    graph = trace(lambda x: np.zeros_like(x) * 2.0 + np.sqrt(np.full_like(x, 4.0)) + x, F64)
    assert [node.value for node in graph.nodes if node.operation == "constant"] == [2.0]
    assert count(graph, "add") == 1


def test_zeros_of_either_sign_are_two_constants():
    graph = trace(lambda x: (x + 0.0, x + -0.0), F64)
    assert count(graph, "constant") == 2
    one, other = (trace(lambda x, zero=zero: x + zero, F64) for zero in (0.0, -0.0))
    assert one != other and one == trace(lambda x: x + 0.0, F64)  # graphs are keys of compiled code


def test_what_no_result_needs_is_left_out():
    def body(x, y):
        y * x + 3.0
        return x - 1.0

    assert [node.operation for node in trace(body, F64, F64).nodes] == ["input", "constant", "subtract"]


def test_loops_over_fixed_ranges_unroll():
    def body(x):
        for _ in range(3):
            x = x * 0.5 + 1.0
        return x

    assert count(trace(body, F64), "multiply") == 3


def test_whole_powers_are_repeated_multiplication():
    assert count(trace(lambda x: x**10, F64), "multiply") == 4
    assert count(trace(lambda x: x**0.5, F64), "sqrt") == 1
    assert count(trace(lambda x: x**2.5, F64), "pow") == 1


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_is_numpys(a, b):
    graph = trace(lambda x, y: np.where(x > y, x, y), Scalar(a), Scalar(b))
    assert graph.dtypes == (np.result_type(np.dtype(a), np.dtype(b)).name,)


@pytest.mark.parametrize(
    "dtype, number, expected",
    [("float32", 2.0, "float32"), ("int32", 2, "int32"), ("int32", 2.0, "float64"), ("bool", 2, "int64")],
)
def test_python_numbers_are_weak(dtype, number, expected):
    assert trace(lambda x: x + number, Scalar(dtype)).dtypes == (expected,)
    weak = "pyfloat" if isinstance(number, float) else "pyint"
    assert trace(lambda x, k: x + k, Scalar(dtype), Scalar(weak)).dtypes == (expected,)
    assert common("pyint", "pyfloat") == "pyfloat"


def test_arguments_may_be_nested():
    graph = trace(lambda x, t: {"sum": x["a"] + x["b"][0] * t}, {"a": F64, "b": [F32]}, t=I32)
    assert graph.n_inputs == 3
    assert graph.nest(["here"]) == {"sum": "here"}


def test_values_of_two_traces_do_not_mix():
    kept = []
    trace(lambda x: kept.append(x) or x, F64)
    with pytest.raises(TypeError, match=r"got a value of another trace at test_trace\.py"):
        trace(lambda x: x + kept[0], F64)


def test_the_namespace_lists_what_it_has():
    seen = []
    trace(lambda x: seen.append(dir(x.__array_namespace__())) or x, F64)
    assert {"where", "sin", "clip", "float32", "pi"} <= set(seen[0])
    assert "sum" not in seen[0]


# --- Python source
def test_a_body_of_several_scalars_runs_compiled():
    class Namespace:
        sin = staticmethod(math.sin)

    graph = trace(lambda x, t: lorenz(x, t, x[0].__array_namespace__()), (F64, F64, F64), F64)
    source = numba_source.scalar_function(graph, "drift")
    names = {"np": np, "sin": math.sin}
    exec(source, names)
    arguments = (1.0, 2.5, -3.0, 0.25)
    expected = lorenz(arguments[:3], arguments[3], Namespace)
    assert names["drift"](*arguments) == expected


POINTS, VALUES = np.array([-1.0, -0.2, 0.1, 0.1000001, 2.0]), np.array([0.3, -0.4, 0.2, 5.0, -0.5])
PLACES = np.concatenate([np.linspace(-2.0, 3.0, 301), POINTS, [np.nan, np.inf, -np.inf, -0.0]])


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow), np.int64])
def test_tables_are_interpolated_with_numpys_bits(dtype):
    with np.errstate(invalid="ignore"):
        x = PLACES.astype(dtype)
    inside = fuse(lambda x: x.__array_namespace__().interp(x, POINTS, VALUES))
    outside = fuse(lambda x: 2.0 * np.interp(x, POINTS.tolist(), VALUES, left=-7.0, right=8.0))
    np.testing.assert_array_equal(inside(x), np.interp(x, POINTS, VALUES))
    np.testing.assert_array_equal(outside(x), 2.0 * np.interp(x, POINTS, VALUES, -7.0, 8.0))
    assert inside(x).dtype == np.float64


def test_one_number_is_interpolated_as_many_are():
    graph = trace(lambda x: x.__array_namespace__().interp(x, POINTS, VALUES), F64)
    source = "\n".join(
        ["import numpy as np", "from ensemble._compile.lanes.tables import interpolated", numba_source.tables(graph),
         numba_source.scalar_function(graph, "value")]
    )  # fmt: skip
    names = {}
    exec(compile(source, "value", "exec"), names)
    value = numba.njit(names["value"])
    got = [value(x) for x in PLACES]
    np.testing.assert_array_equal(got, np.interp(PLACES, POINTS, VALUES))


def test_equal_tables_are_one_node_and_constants_are_folded():
    def body(x):
        return np.interp(x, POINTS, VALUES) + np.interp(x, POINTS.copy(), list(VALUES)) + np.interp(x, [0.0], [1.0])

    graph = trace(body, F64)
    assert sum(node.operation == "interp" for node in graph.nodes) == len(graph.tables) == 2
    folded = trace(lambda x: x + x.__array_namespace__().interp(0.5, POINTS, VALUES), F64)
    assert not folded.tables
    assert any(node.value == np.interp(0.5, POINTS, VALUES) for node in folded.nodes)


@pytest.mark.parametrize(
    "tables, error, text",
    [
        (lambda x: ([0.0, 1.0], [0.0]), ValueError, "be two arrays of one length"),
        (lambda x: ([], []), ValueError, "be two arrays of one length"),
        (lambda x: ([0.0, 0.0], [1.0, 2.0]), ValueError, "be finite, with points that ascend"),
        (lambda x: ([0.0, 1.0], [1.0, np.nan]), ValueError, "be finite, with points that ascend"),
        (
            lambda x: ([0.0, 1.0], [1.0, x]),
            TypeError,
            "be plain arrays, known before; got traced values at test_",
        ),
    ],
)
def test_bad_tables_are_refused(tables, error, text):
    with pytest.raises(error, match=f"trace: the tables of interp must {text}"):
        trace(lambda x: x.__array_namespace__().interp(x, *tables(x)), F64)


def test_every_operation_runs_compiled_as_numpy_evaluates_it():
    arguments = [np.full(11, value) for value in (0.5, 0.75, 11, True)]
    got = fuse(lambda x, y, i, mask: everything(x, y, i, mask))(*arguments)
    expected = everything(*arguments, xp=np)
    for name, one, other in zip(sorted(OPERATIONS), got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15, err_msg=name)
