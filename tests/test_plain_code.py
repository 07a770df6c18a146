"""Functions that are written to LLVM as they stand do what Python does with them."""

import ast
import ctypes
import inspect
import math
from pathlib import Path

import numba
import numpy as np
import pytest

import ensemble
from ensemble._compile.lanes import types as lanes
from ensemble._compile.lanes.graph_function import GraphFunction
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import Module, assembled, code_of
from ensemble._compile.plain_code import (
    EPS,
    LANES,
    PART,
    REGISTERS,
    Function,
    Indices,
    Integers,
    Numbers,
    PlainText,
    Register,
    Stored,
    behind,
    entry,
    fma,
    inlined,
    load,
    module_text,
    narrow,
    plain,
    rolled,
    store,
)
from ensemble._compile.processor import register_bytes
from ensemble._compile.trace.numba_source import BUILT_ON
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.kalman.loops import filter_range
from ensemble._kernels.kalman.smoother_loops import smooth_range
from ensemble._kernels.sparse.fma import fma as fused

SHIFT, HALF = 3, 0.5


def divided(a: int, b: int) -> tuple[int, int]:
    return a // b, a % b


def roots(w: Numbers, first: int, count: int, least: float) -> float:
    total = 0.0
    for i in range(first, first + count):
        if w[i] < 0.0 or math.sqrt(w[i]) < least:
            continue
        total += math.sqrt(w[i])
    return total


def program(w: Numbers, places: Integers, n: int, up: bool, least: float) -> float:
    """Every statement and operation of the language."""
    whole, rest = divided(n + SHIFT, 3)
    w[0], w[1] = whole, rest
    w[2] = w[3] = -HALF * n
    for i in range(n - 1, -1, -2):
        w[places[0] + i] += i / 4 - abs(w[i])
    j = 0
    while True:
        j += 1
        if j == 2:
            continue
        if (j > 6 and not up) or 10 < j <= 11:
            break
        w[places[1]] = w[places[1]] * 0.75 + j**2
    last = max(min(j, n), 2) if up else 2
    w[places[1] + 1] = float(last) * (least if np.isnan(w[n]) else w[n])
    places[2] = int(w[places[1]]) + last
    w[places[1] + 2] = np.inf if up and n != 4 else np.nan
    found, count = -1, 0
    for i in range(n):
        if i == 2:
            w[5] = n
        elif w[i] >= HALF:
            found, count = i, count + 1
    w[4] = found
    if count == 0:
        return -1.0
    return roots(w, 0, n, least) + count


def test_a_program_does_what_python_does(rng):
    written = {f.__name__: plain(f) for f in (divided, roots, program)}
    for function in written.values():
        function.names = {**function.names, **written}
    call = entry(written["program"])
    run = numba.njit(lambda w, places, n, up, least: call(w, places, n, up, least), error_model="numpy")
    seen = set()
    for n in (4, 5, 9):
        for up in (False, True):
            w, places = rng.normal(size=20), np.array([1, 12, 0, 0])
            w[n] = np.nan if n == 5 else w[n]
            twin, twin_places = w.copy(), places.copy()
            expected = program(twin, twin_places, n, up, 0.25)
            assert run(w, places, n, up, 0.25) == expected
            np.testing.assert_array_equal(w, twin)
            np.testing.assert_array_equal(places, twin_places)
            seen.add(expected)
    assert len(seen) > 3


def of_a_list(w: Numbers, n: int) -> float:
    return sum([w[i] for i in range(n)])


def of_a_wide_number(w: Numbers, n: int) -> int:
    return w[n]


@pytest.mark.parametrize(
    "function, words",
    [(of_a_list, r"of_a_list: not in this language: \[w\[i\] for i in range\(n\)\]"),
     (of_a_wide_number, "of_a_wide_number: a value of type double where i64 is declared")],
)  # fmt: skip
def test_what_is_not_in_the_language_is_refused_by_name(function, words):
    call = entry(plain(function))
    run = numba.njit(lambda w, n: call(w, n))
    with pytest.raises(Exception, match=words):
        run(np.zeros(3), 2)


def on_registers(w: Numbers, n: int, x: float) -> None:
    # n numbers a, and behind them n b, n of a x + b, n of (x - a) b, n of -a / 3 + x, then three more
    b, first, second, third = behind(w, n), behind(w, 2 * n), behind(w, 3 * n), behind(w, 4 * n)
    for i in range(0, n, LANES):
        a = load(w, i)
        store(first, i, fma(a, x, load(b, i)))
        store(second, i, (x - a) * load(b, i))
        store(third, i, -a / 3 + x)
    w[5 * n], w[5 * n + 1], w[5 * n + 2] = LANES, EPS, fma(w[0], w[1], x)


@pytest.mark.parametrize("made", [plain, rolled, inlined], ids=lambda made: made.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_registers_hold_numbers_side_by_side(made, dtype, rng):
    call = entry(made(on_registers))
    run = numba.njit(lambda w, n, x: call(w, n, x), error_model="numpy")
    lanes = 32 // np.dtype(dtype).itemsize
    n, x = 3 * lanes, np.dtype(dtype).type(0.7)
    w = rng.normal(size=5 * n + 3).astype(dtype)
    a, b = w[:n].copy(), w[n : 2 * n].copy()
    run(w, n, x)
    third = np.dtype(dtype).type(3)
    expected = [a, b, fused(a, np.full_like(a, x), b), (x - a) * b, -a / third + x]
    last = [lanes, np.finfo(dtype).eps, fused(a[:1], a[1:2], np.full_like(a[:1], x))[0]]
    np.testing.assert_array_equal(w, np.concatenate([*expected, np.array(last, dtype)]))


def sum_of_indexed(w: Numbers, places: Indices) -> float:
    return w[places[0]] + w[places[1]]


def sums_of_stored(w: Numbers, other: Stored, n: int) -> None:
    for i in range(0, n, LANES):
        store(w, i, load(w, i) + load(other, i))
    w[n] = other[n] + w[n]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stored", ["float32", "float64"])
def test_numbers_of_another_type_are_converted_as_they_are_read(dtype, stored, rng):
    call = entry(plain(sums_of_stored))
    n = 96 // np.dtype(dtype).itemsize
    w, other = rng.normal(size=n + 1).astype(dtype), rng.normal(size=n + 1).astype(stored)
    expected = w + other.astype(dtype)
    numba.njit(lambda w, other, n: call(w, other, n))(w, other, n)
    np.testing.assert_array_equal(w, expected)


def test_arrays_of_another_type_are_refused_by_name():
    indexed = entry(plain(sum_of_indexed))
    with pytest.raises(TypeError, match=r"sum_of_indexed: places must hold int32; got array\(int64"):
        numba.njit(lambda w, places: indexed(w, places))(np.ones(3), np.arange(3))


def test_a_function_of_this_language_is_not_called_from_python():
    with pytest.raises(NotImplementedError, match="roots: only in functions of this language, or by `entry`"):
        plain(roots)(np.ones(3), 0, 3, 0.5)


def files_of(function, seen):
    """The files that a function is translated from, and those of all that it calls."""
    if function.name not in seen:
        seen[function.name] = Path(inspect.getfile(getattr(function, "function", type(function))))
        for statement in getattr(function, "body", []):
            for node in ast.walk(statement):
                called = function.names.get(node.id) if isinstance(node, ast.Name) else None
                if isinstance(called, Function):
                    files_of(called, seen)
    return set(seen.values())


@pytest.mark.parametrize("function", [filter_range, smooth_range], ids=lambda function: function.name)
def test_a_change_of_any_file_of_a_kalman_loop_compiles_it_anew(function):
    package = Path(ensemble.__file__).parent
    files = {str(file.relative_to(package)) for file in files_of(function, {})}
    assert {"_kernels/kalman/tiles.py", "_compile/lanes/tiles.py", "_compile/lanes/transpose.py"} < files
    assert all(file.startswith(tuple(f"{folder}/" for folder in BUILT_ON)) for file in files)


@plain
def scaled(w: Numbers, count: int, factor: Register) -> None:
    for i in range(count):
        store(w, i * LANES, factor * load(w, i * LANES))


call_scaled = entry(scaled)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_registers_have_the_width_of_the_one_that_is_given(width):
    @numba.njit
    def run(w, factors, count):
        call_scaled(w, count, lanes.load(factors, 0, width))

    w, factors = np.arange(5.0 * width), np.linspace(1.0, 2.0, width)
    run(w, factors, 3)
    expected = np.arange(5.0 * width).reshape(5, width) * factors
    np.testing.assert_array_equal(w[: 3 * width], expected.reshape(-1)[: 3 * width])
    np.testing.assert_array_equal(w[3 * width :], np.arange(5.0 * width)[3 * width :])


@narrow
def scale_parts(w: Numbers, count: int, x: float, sizes: Integers) -> None:
    for i in range(count):
        for part in range(0, LANES, PART):
            store(w, i * LANES + part, load(w, i * LANES + part) * x)
    sizes[0], sizes[1], sizes[2] = LANES, PART, REGISTERS


@plain
def scaled_by_parts(w: Numbers, count: int, factors: Register, sizes: Integers) -> None:
    scale_parts(w, count, 3.0, sizes)
    for i in range(count):
        store(w, i * LANES, load(w, i * LANES) * factors)


call_scaled_by_parts = entry(scaled_by_parts)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 4, 32])
def test_registers_of_narrow_functions_are_those_of_the_processor(width, dtype):
    @numba.njit
    def run(w, factors, count, sizes):
        call_scaled_by_parts(w, count, lanes.load(factors, 0, width), sizes)

    w, factors, sizes = np.arange(5 * width, dtype=dtype), np.linspace(1, 2, width, dtype=dtype), np.zeros(3, np.int64)
    expected = w.reshape(5, width).copy()
    expected[:3] = expected[:3] * 3 * factors
    run(w, factors, 3, sizes)
    np.testing.assert_array_equal(w.reshape(5, width), expected)
    part = min(width, register_bytes() // np.dtype(dtype).itemsize)
    assert sizes.tolist() == [width, part, 32 if register_bytes() == 64 else 16]


SOURCE = """
def total(places: Integers, n: int, first: int) -> int:
    numbers, out = numbers_at(places[0]), numbers_at(places[1])
    narrow, middle, wide = integers_at(places[2], 16), integers_at(places[3], 32), integers_at(places[4], 64)
    sums = spread(0.5)
    for i in range(n):
        at = narrow[i] + middle[i] + wide[i]
        prefetch(numbers, first + at * WIDTH, 8)
        low, high = both(load(numbers, first + at * WIDTH), FACTOR)
        sums = sums + low / high
    store(out, 0, sums)
    return narrow[0] + middle[0]
"""


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("width", [1, 4])
def test_a_function_of_text_is_called_by_its_address_and_calls_a_traced_body(width, rolled, rng, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    real = Scalar("float64")
    graph = trace(lambda x, y: (x * y, np.sqrt(x) - y), real, real)
    both = GraphFunction(graph, "both", width)
    function = PlainText("total", SOURCE, {"WIDTH": width, "FACTOR": 1.5, "both": both})
    function.rolled = rolled
    body = assembled([both.assembly()])
    module = Module(module_text(function, width), body.called, (body.text,), has_loops=True)
    numbers, out = rng.uniform(1.0, 2.0, 6 * width + 1), np.zeros(width)
    integers = [
        np.array(values, f"int{bits}") for values, bits in (([-1, 2, 1], 16), ([2, -2, 0], 32), ([1, 0, 4], 64))
    ]
    places = np.array([array.ctypes.data for array in (numbers, out, *integers)])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    assert call(code_of(module, ["total"], assembly_of)["total"])(places.ctypes.data, 3, 1) == 1
    expected = np.full(width, 0.5)
    for at in (2, 0, 5):
        x = numbers[1 + at * width :][:width]
        expected = expected + x * 1.5 / (np.sqrt(x) - 1.5)
    np.testing.assert_array_equal(out, expected)
