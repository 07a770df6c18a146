"""The tracer, and what it writes: CUDA is compiled where NVRTC is installed, no GPU needed."""

import ctypes
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

from ensemble._kernels import _emit_cuda, _emit_numba
from ensemble._kernels._operations import DTYPES, OPERATIONS, common
from ensemble._kernels._trace import Scalar, trace

F64, F32, I64, I32, BOOL = (Scalar(name) for name in ("float64", "float32", "int64", "int32", "bool"))


def count(graph, operation):
    return sum(node.operation == operation for node in graph.nodes)


def lorenz(x, t, xp, sigma=10.0, rho=28.0, beta=8.0 / 3.0):
    """A body of n scalars in and out."""
    return sigma * (x[1] - x[0]), x[0] * (rho - x[2]) - x[1], x[0] * x[1] - beta * x[2] + 0.0 * xp.sin(t)


# --- graphs
def test_common_subexpressions_are_one_node():
    graph = trace(lambda x, y: (x * y + 1.0, x * y - 1.0, x * y), F64, F64)
    assert count(graph, "multiply") == 1
    assert len(graph.outputs) == 3


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
    source = _emit_numba.scalar_function(graph, "drift")
    names = {"np": np, "sin": math.sin}
    exec(source, names)
    arguments = (1.0, 2.5, -3.0, 0.25)
    expected = lorenz(arguments[:3], arguments[3], Namespace)
    assert names["drift"](*arguments) == expected


def test_every_operation_runs_compiled_as_numpy_evaluates_it():
    graph = trace(everything, F64, F64, I64, BOOL)
    module = _emit_numba.load_module(_emit_numba.elementwise_source(graph, []))
    arguments = (0.5, 0.75, 11, True)
    got = module.body(*arguments)
    expected = everything(*(np.asarray(a) for a in arguments), xp=np)
    for name, one, other in zip(sorted(OPERATIONS), got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15, err_msg=name)


def everything(x, y, i, mask, xp=None):
    """Every operation once, in the order of their names."""
    xp = x.__array_namespace__() if xp is None else xp
    results = []
    for name in sorted(OPERATIONS):
        operation = OPERATIONS[name]
        numbers = [x, y] if name != "acosh" else [x + 1.0]
        if operation.rule == "bitwise":
            numbers = [i, i + 3]
        elif operation.rule == "logical":
            numbers = [mask, x > 0.0]
        elif operation.rule == "select":
            numbers = [mask, x, y]
        results.append(getattr(xp, name)(*numbers[: operation.arity]))
    return tuple(results)


# --- CUDA source
def nvrtc():
    """The NVRTC library of the wheel nvidia-cuda-nvrtc, or of the system; None without."""
    names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        names = [*(str(path) for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*[0-9]"))), *names]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compile_cuda(library, source, *options):
    """The CUBIN of `source` for one architecture; the compiler's log where it fails."""
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"fused.cu", 0, None, None) == 0
    texts = [option.encode() for option in ("-arch=sm_90", *options)]
    status = library.nvrtcCompileProgram(program, len(texts), (ctypes.c_char_p * len(texts))(*texts))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()
    assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    cubin = ctypes.create_string_buffer(size.value)
    assert library.nvrtcGetCUBIN(program, cubin) == 0
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw


@pytest.fixture(scope="module")
def compiler():
    library = nvrtc()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    return library


BODIES = {
    "everything": (everything, (F64, F64, I64, BOOL)),
    "everything in float32": (everything, (F32, F32, I32, BOOL)),
    "numbers": (lambda x, k, s: x * k + s * 0.1, (F32, Scalar("pyfloat"), F64)),
    "integers": (lambda i, j: (i // j, i % j, abs(i), i * j - 2**31, -i, ~i, i / j, i * -(2**63) // 3), (I64, I32)),
    "constants": (lambda x: (x + math.inf, x - math.nan, x * -0.0, x > -math.inf, True, 1e-320, 3), (F64,)),
}


@pytest.mark.parametrize("n_axes", [1, 3])
@pytest.mark.parametrize("body, arguments", BODIES.values(), ids=BODIES)
def test_cuda_source_compiles(compiler, body, arguments, n_axes):
    graph = trace(body, *arguments)
    arrays = [k for k, argument in enumerate(arguments) if argument.dtype in DTYPES]
    source = _emit_cuda.elementwise_source(graph, arrays, n_axes)
    assert b"fused" in compile_cuda(compiler, source, *_emit_cuda.OPTIONS)


def test_a_body_of_several_scalars_compiles_as_a_device_function(compiler):
    graph = trace(lambda x, t: lorenz(x, t, x[0].__array_namespace__()), (F64, F64, F64), F64)
    source = _emit_cuda.PRELUDE + _emit_cuda.device_function(graph, "drift")
    caller = """
    extern "C" __global__ void step(double* x, double t) {
        double dx, dy, dz;
        drift(x[0], x[1], x[2], t, dx, dy, dz);
        x[0] += dx; x[1] += dy; x[2] += dz;
    }"""
    assert b"step" in compile_cuda(compiler, source + caller, *_emit_cuda.OPTIONS)


def test_cuda_source_that_is_wrong_fails(compiler):
    with pytest.raises(AssertionError, match="undefined"):
        compile_cuda(compiler, "__global__ void fused(double* x) { *x = unknown; }")
