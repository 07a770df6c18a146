"""Loops that are translated without Numba's pipeline do what Python does with them."""

import ctypes
import tracemalloc

import numba
import numpy as np
import pytest
from numba import prange

from ensemble._compile.allocation import new
from ensemble._compile.lanes.arithmetic import add_terms, lane, zero_sums
from ensemble._compile.lanes.types import load, splat, store, zeros
from ensemble._compile.loops import native_call
from ensemble._compile.loops.translation import loop_module
from ensemble._compile.numba import compiled, compiled_procedure, compiled_unrolled, inner, spliced
from ensemble._compile.work_sharing import ONE_THREAD

U = np.uint64
SHIFT, TABLE, LIMITS = 3, np.array([0.5, 0.25, 2.0]), (4, 9)


@spliced
def smallest(a, b, scale=1):
    """A call of two ways out."""
    if a < b:
        return a * scale
    return b * scale


@inner
def fill(row, value):
    for k in range(row.size):
        row[k] = value


def every_statement(x, whole, flags, table, n, up, least, out, counts, seen):
    """Statements and operations of the language; each round has its own row of `out` and `counts`."""
    size, (low, high) = x.size, LIMITS
    for i in prange(n):
        total, count, found = 3.0 * np.rint(7.0 * least), 0, False
        for k in range(i, -1, -2):
            total += x[k] * TABLE[k % 3]
        for k in range(i % 3, size, SHIFT):
            if x[k] < 0.0 or (whole[k] > 2 and not flags[k]):
                continue
            count += 1
            if count == high:
                break
        j = 0
        while True:
            j += 1
            if (j >= low and i > 0) or j > high:
                break
        for scale, value in ((2.0, least), (0.5, 1.0)):
            total = total + scale * value
        found = 0 < i <= size and x[size - 1 if i > size else i - 1] > least
        work = np.zeros(3)
        work[:] = 0
        fill(work[1:3], least)
        other = new(2, np.int64)
        other[0], other[1] = -i // 3, (-i) % 4
        first, last = (whole[0], n) if up else (n, whole[0])
        out[i, 0] = total + work[0] + work[1] + work[2]
        out[i, 1] = smallest(x[i], least) + smallest(i, n, 2) + max(total, least) + abs(x[i]) + np.sqrt(x[i] ** 2)
        out[i, 2] = table[i % 2][1] + float(first) - last if found else table[-1, 0]
        out[i, 0] += np.float64(x[i] > least) * (np.ceil(4.0 * x[i]) - np.floor(3.0 * x[i])) + np.trunc(-2.5 * x[i])
        out[i, 1] += 0.0 if x[i] - x[i] or not least else 0.5
        counts[i, 0] = count + 100 * j
        counts[i, 1] = other[0] * 10 + other[1]
        counts[i, 2] = (i ^ 5) + (i << 2) + (i >> 1) + (i & 3) + (i | 8) + ~SHIFT
        counts[i, 3] = int(total) + len(LIMITS) + x.shape[0] + x.itemsize + min(i, 2) + np.int32(i - 2)
        seen[i] = found


@inner
def halves(row, low, high):
    """Two values, from one of two places."""
    for k in range(low, high):
        if row[k] > 1.0:
            return row[k:high], k
    return row[low:high], -1


def every_array(x, places, table, out, counts):
    """A procedure: shapes, parts, rows and memory of arrays."""
    first, last, step = places[:3]
    owner, left = np.full(4, -1), np.full((2, 3), 0.5)
    grid = np.empty((2, x.shape[1]))
    for k in range(x.shape[1]):
        grid[0, k], grid[1, k] = x[first, k], x[last, k]
    row = grid[1]
    tail, at = halves(row, 1, row.size)
    whole = x.reshape(x.size)
    square = whole[:4].reshape(2, 2)
    out[0], out[1] = tail[0] + left[1, 2], square[1, 0] + owner[3]
    out[2] = x[first, 1:][0] + grid[step - 1 :][0, 0]
    out[3] = np.isfinite(x[first, 0]) + 2 * np.isnan(out[2]) + (0.25 if at < 0 else at)
    for k in range(owner.size - 1, -1, -step):
        owner[k] = k
    for (a, b), scale in ((table[0], 2.0), (table[1], 0.5)):
        out[4] += scale * a - b
    counts[0] = counts[1] = tail.size + owner[3] + len(table) + at
    counts[2] = -7 // step if step > 1 else 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("large", [True, False])
def test_procedures_do_what_python_does(large, dtype, rng):
    x = rng.random((3, 5)).astype(dtype) + (1 if large else 0)
    table = ((0.5, 1.0), (2.0, 0.25))
    made = []
    for run in (lambda f, *a: in_python(f, *a), lambda f, *a: compiled_procedure(f)(*a)):
        out, counts = np.zeros(5, dtype), np.zeros(3, np.int64)
        run(every_array, x, np.array([0, 2, 2]), table, out, counts)
        made.append((out, counts))
    np.testing.assert_array_equal(made[1][1], made[0][1])
    np.testing.assert_allclose(made[1][0], made[0][0], rtol=1e-6 if dtype == np.float32 else 1e-15)
    procedure = compiled_procedure(every_array)
    procedure(x, np.array([0, 2, 2]), table, np.zeros(5, dtype), np.zeros(3, np.int64))
    assert procedure.by_numba == ""


def in_python(function, *arguments):
    """The function by Python itself; numbers of NumPy wrap as those of the processor."""
    names = dict(function.__globals__)
    names.update(prange=range, new=np.empty, smallest=smallest.py_func, fill=fill.py_func, halves=halves.py_func)
    with np.errstate(all="ignore"):
        type(function)(function.__code__, names)(*arguments)


@pytest.mark.parametrize("threads", [-1, ONE_THREAD])
@pytest.mark.parametrize("up", [True, False])
def test_statements_do_what_python_does(up, threads, rng):
    n = 11
    x, whole = rng.normal(size=17), rng.integers(0, 9, 17).astype(np.int32)
    flags, table = rng.random(17) < 0.5, rng.random((2, 2))
    made = []
    for run in (lambda f, *a: in_python(f, *a), lambda f, *a: compiled(f)(*a, threads=threads)):
        out, counts, seen = np.zeros((n, 3)), np.zeros((n, 4), np.int64), np.zeros(n, bool)
        run(every_statement, x, whole, flags, table, n, up, 0.3, out, counts, seen)
        made.append((out, counts, seen))
    for ours, theirs in zip(made[1], made[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(set(made[0][1][:, 0].tolist())) > 3


def test_the_language_holds_these_statements():
    loop = compiled(every_statement)
    x, whole, flags, table = np.ones(17), np.ones(17, np.int32), np.zeros(17, bool), np.ones((2, 2))
    loop(x, whole, flags, table, 3, True, 0.3, np.zeros((3, 3)), np.zeros((3, 4), np.int64), np.zeros(3, bool))
    assert loop.by_numba == ""
    assert "dispatcher" not in vars(loop)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 4, 8])
def test_lanes_have_the_bits_of_numbas_code(width, dtype, rng):
    def loop(a, x, y, n):
        for i in prange(n):
            sums = zero_sums(a, width, 3)
            for k in range(U(5)):
                at = np.int64((U(i) * U(5) + k) * U(width))
                sums = add_terms(sums, a, np.int64(k), load(x, at, width))
            total = splat(a[i], a, width)
            for p in range(3):
                total = total * sums[p] - 0.5
            store(y, i * width, total if i > 1 else zeros(a, width) - total)

    n = 6
    a, x = rng.normal(size=15).astype(dtype), rng.normal(size=n * 5 * width).astype(dtype)
    ours, theirs = np.zeros(n * width, dtype), np.zeros(n * width, dtype)
    translated = compiled(loop)
    translated(a, x, ours, n)
    assert translated.by_numba == ""
    numba.njit(loop, error_model="numpy")(a, x, theirs, n)
    assert ours.tobytes() == theirs.tobytes()
    assert ours.any()


def test_a_quotient_by_zero_is_zero_and_numbers_wrap():
    def loop(a, b, out):
        for i in prange(a.size):
            out[i, 0], out[i, 1] = a[i] // b[i], a[i] % b[i]
            out[i, 2] = a[i] * 3

    a, b = np.array([7, -7, 7, -7, 2**62]), np.array([0, 0, -2, 2, 5])
    ours, theirs = np.zeros((5, 3), np.int64), np.zeros((5, 3), np.int64)
    compiled(loop)(a, b, ours)
    numba.njit(loop, error_model="numpy")(a, b, theirs)
    np.testing.assert_array_equal(ours, theirs)


def test_conditions_are_asked_until_one_decides():
    """An entry behind the end of an array is not read."""

    def loop(x, n, out):
        for i in prange(out.size):
            inside = i < n and x[i] > 0.0
            between = 0 <= i < n and 0.0 < x[i] < 2.0
            out[i] = inside + 2 * between

    def distant(x, n, out):
        for i in prange(out.size):
            out[i] = (i < n and x[i * (1 << 40)] > 0.0) + 2 * (0 <= i < n <= x[i * (1 << 40)] + 5)

    out = np.zeros(4, np.int64)
    compiled(loop)(np.array([1.0, -1.0]), 2, out)
    assert out.tolist() == [3, 0, 0, 0]
    compiled(distant)(np.array([1.0]), 1, out)
    assert out.tolist() == [3, 0, 0, 0]


def test_other_statements_are_compiled_by_numba():
    def loop(x):
        for i in prange(x.size):
            x[i] = np.sin(x[i])

    x = np.linspace(0, 1, 5)
    expected = np.sin(x)
    other = compiled(loop)
    other(x)
    assert "np.sin" in other.by_numba
    np.testing.assert_array_equal(x, expected)


def scale(x, factor):
    for i in prange(x.shape[0]):
        x[i] = x[i] * factor


@pytest.mark.parametrize(
    "x",
    [np.arange(12.0)[::2], np.arange(6.0).astype(">f8"), np.arange(6) * (1 + 2j)],
    ids=["strided", "other byte order", "complex"],
)
def test_arrays_of_other_kinds_are_taken_too(x):
    if x.dtype.byteorder == ">":
        with pytest.raises(numba.TypingError):
            compiled(scale)(x, 2)
        return
    expected = x * 2
    loop = compiled(scale)
    loop(np.ones(3), 2)  # the first kind is translated
    loop(x, 2)
    np.testing.assert_array_equal(x, expected)
    y = np.ones(2)
    loop(y, 2)
    assert y.tolist() == [2.0, 2.0]


def test_no_entry_of_a_read_only_array_is_assigned():
    loop, x = compiled(scale), np.ones(3)
    loop(x, 2.0)
    x.flags.writeable = False
    with pytest.raises(numba.TypingError):
        loop(x, 2.0)
    x.flags.writeable = True
    loop(x, 2.0)
    assert x.tolist() == [4.0] * 3


def test_each_kind_of_arguments_has_its_own_code():
    loop = compiled(scale)
    for dtype in (np.float64, np.float32, np.int64, np.int32):
        for factor in (3, 3.0, np.float64(3), np.int32(3), True):
            x = np.arange(5).astype(dtype)
            loop(x, factor)
            np.testing.assert_array_equal(x, (np.arange(5) * factor).astype(dtype))


def test_tuples_of_other_lengths_and_missing_arguments():
    def loop(parts, out):
        for i in prange(out.size):
            out[i] = len(parts) * 100 + parts[0][i]

    add = compiled(loop)
    for parts in ((np.arange(3.0),), (np.arange(3.0), np.ones(1)), (np.arange(3.0), np.ones(1), np.ones(2))):
        out = np.zeros(3)
        add(parts, out)
        np.testing.assert_array_equal(out, 100 * len(parts) + np.arange(3))
    with pytest.raises(TypeError):
        add((np.arange(3.0),))
    with pytest.raises(OverflowError):
        compiled(scale)(np.arange(3), 2**70)


def test_without_the_layout_of_numpys_arrays_numba_compiles(monkeypatch):
    from ensemble._compile import work_sharing

    monkeypatch.setattr(work_sharing, "can_call", lambda: False)
    loop, x = compiled(scale), np.arange(4.0)
    loop(x, 2.0)
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert "dispatcher" in vars(loop)


@pytest.mark.parametrize("first, then", [(0, 0.5), (np.float32(0.1), 0.1), (np.float32(2), 3), (1, True), (U(1), -1)])
def test_a_variable_of_two_types_is_compiled_by_numba(first, then):
    def loop(x, out):
        for i in prange(out.size):
            value = first
            if x[i] > 0.0:
                value = then
            out[i] = value * 1.5

    x, ours, theirs = np.array([-1.0, 1.0]), np.zeros(2), np.zeros(2)
    mixed = compiled(loop)
    mixed(x, ours)
    numba.njit(loop, error_model="numpy")(x, theirs)
    assert ours.tobytes() == theirs.tobytes()
    assert "value is" in mixed.by_numba


def test_a_procedure_is_called_by_its_address():
    """As `c_functions` call it: tuples entry by entry, arrays as their data and extents, and two integers."""

    @compiled_procedure
    def scaled(pair, factor, shift):
        source, target = pair
        for i in range(source.shape[0]):
            for j in range(source.shape[1]):
                target[i] += factor * source[i, j] + shift
        return -source.size

    source, target = np.arange(6.0).reshape(2, 3), np.zeros(2)
    address = scaled.address((source[:1], target[:1]), 0.0, 0)
    whole, place = ctypes.c_int64, ctypes.c_void_p
    arguments = place, whole, whole, place, whole, ctypes.c_double, whole, whole, whole
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(address)
    assert call(source.ctypes.data, 2, 3, target.ctypes.data, 2, 0.5, 4, 0, 0) == -6
    np.testing.assert_array_equal(target, 0.5 * source.sum(axis=1) + 12.0)


def test_arrays_lie_in_memory_as_the_code_reads_them():
    assert native_call.can_call()


def marks_of(function, *arguments):
    """How many loops are not unrolled, and whether they have no packed instructions."""
    text = loop_module(function._function, native_call.kinds_of(arguments), function._form)
    return text.count("!llvm.loop !"), "vectorize.enable" in text


def test_loops_are_unrolled_where_numbers_are_computed_one_by_one():
    def loop(x, counts):
        for i in prange(x.size):
            for k in range(i):
                x[i] += x[k]
            for k in range(i):
                counts[i] += counts[k]

    def lanes(x):
        for i in prange(x.size // 4):
            store(x, i * 4, 2.0 * load(x, i * 4, 4))

    x, counts = np.ones(8), np.ones(8, np.int64)
    assert marks_of(compiled(loop), x, counts) == (1, False)
    assert marks_of(compiled(lanes), x) == (1, False)
    assert marks_of(compiled_unrolled(lanes), x) == (0, False)
    assert marks_of(compiled_procedure(loop), x, counts) == (3, True)


def test_memory_of_rounds_ends():
    def loop(out, n):
        for i in prange(out.size):
            for k in range(8):
                row = np.empty(n)
                row[0], row[n - 1] = i, k
                out[i] += row[0] + row[n - 1]

    n, out = 1 << 18, np.zeros(64)
    rounds = compiled(loop)
    rounds(np.zeros(1), n)
    tracemalloc.start()
    rounds(out, n)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(out, 8 * np.arange(64) + 28)
    assert rounds.by_numba == ""
    assert peak > 8 * n
    assert left < 8 * n
    assert peak < 8 * n * (numba.get_num_threads() + 1)


@compiled
def gathered(x, places, whole, out):
    for i in prange(out.size):
        found = np.int64(lane(load(places, i, 1), 0))
        out[i] = x[found] + whole[np.int64(lane(load(whole, i, 1), 0))]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_a_lane_of_narrow_integers_is_an_index(kind):
    """Places from the end of an array are negative in types that have a sign."""
    low = -3 if np.issubdtype(kind, np.signedinteger) else 1
    places, whole, out = np.array([2, low, 0], kind), np.array([1, 2, 0], np.uint16), np.zeros(3)
    gathered(np.array([0.5, 0.25, 2.0]), places, whole, out)
    np.testing.assert_array_equal(out, np.array([0.5, 0.25, 2.0])[places.astype(int)] + whole[whole])
    assert gathered.by_numba == ""
