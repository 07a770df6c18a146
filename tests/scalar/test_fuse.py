"""Fused functions equal the same expression operation by operation, in every sample and every layout."""

import math
import os
import subprocess
import sys

import array_api_strict
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ensemble._kernels import _fused
from ensemble._kernels._compile import empty
from ensemble.scalar import Ensemble, SampleSet, fuse

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.25, 1e300, -1e-300, 5e-324, math.inf, -math.inf, math.nan]
WHOLE = [0, 1, -1, 2, 7, -13, 2**31 - 1, -(2**31)]

ARITHMETIC = ["add", "subtract", "multiply", "divide"]
ORDER = ["maximum", "minimum"]
UNARY = ["negative", "abs", "sqrt", "square", "floor", "ceil", "trunc", "round", "sign"]
COMPARISONS = ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
CONSTANTS = [2.0, -0.5, 3, 1.0]


graphs = settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
"""Each example compiles: few of them, and no search for a smaller one."""


class OneByOne:
    """NumPy, operation by operation; of two equal zeros `maximum` and `minimum` take the second, on every processor."""

    def __getattr__(self, name):
        return getattr(np, name)

    def maximum(self, a, b):
        return np.where((np.asarray(a) > b) | (np.asarray(a) != a), a, b)

    def minimum(self, a, b):
        return np.where((np.asarray(a) < b) | (np.asarray(a) != a), a, b)


@st.composite
def programs(draw):
    """A list of steps; each names an operation and earlier values by their place among the numbers or the masks."""
    steps = []
    for _ in range(draw(st.integers(6, 14))):
        kind = draw(st.sampled_from(["arithmetic"] * 4 + ["order", "unary", "compare", "where", "mask", "constant"]))
        place = st.integers(0, 2**16)
        steps.append((kind, draw(place), draw(place), draw(place), draw(place)))
    return steps


def run(steps, xp, numbers, masks):
    """What a program gives: its last numbers and its last mask."""
    numbers, masks = list(numbers), list(masks)
    for kind, which, i, j, k in steps:
        a, b = numbers[i % len(numbers)], numbers[j % len(numbers)]
        mask = masks[k % len(masks)]
        if kind == "arithmetic":
            numbers.append(getattr(xp, ARITHMETIC[which % 4])(a, b))
        elif kind == "order":
            numbers.append(getattr(xp, ORDER[which % 2])(a, b))
        elif kind == "unary":
            numbers.append(getattr(xp, UNARY[which % len(UNARY)])(a))
        elif kind == "compare":
            masks.append(getattr(xp, COMPARISONS[which % len(COMPARISONS)])(a, b))
        elif kind == "where":
            numbers.append(xp.where(mask, a, b))
        elif kind == "mask":
            masks.append([xp.logical_and, xp.logical_or, xp.logical_xor][which % 3](mask, masks[i % len(masks)]))
        else:
            numbers.append(a * CONSTANTS[which % 4] + CONSTANTS[j % 4])
    return numbers[-1], numbers[-2], masks[-1]


def bits(values):
    """The bytes of `values`, with one NaN for all: which operand's payload survives is left open by IEEE 754."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        values = np.where(values != values, values.dtype.type(np.nan), values)
    return values.tobytes() + str(values.dtype).encode()


def assert_same_bits(got, expected):
    __tracebackhide__ = True
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert bits(got) == bits(expected)


def mixed_inputs(seed, n):
    """A float64, a float32, an int32 and an int64 column, and a mask, with every kind of special value."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n) < 0.4, rng.choice(SPECIAL, n), rng.normal(size=n))
    with np.errstate(over="ignore"):
        y = np.where(rng.random(n) < 0.4, rng.choice(SPECIAL, n), rng.normal(size=n)).astype(np.float32)
    i = rng.choice(WHOLE, n).astype(np.int32)
    j = rng.integers(-(2**62), 2**62, n)
    return [x, y, i, j], rng.random(n) < 0.5


@graphs
@given(programs(), st.integers(0, 2**16))
def test_random_expressions_equal_numpy_operation_by_operation(steps, seed):
    numbers, mask = mixed_inputs(seed, 203)

    @fuse
    def f(x, y, i, j, mask, xp):
        return run(steps, xp, [x, y, i, j], [mask])

    with np.errstate(all="ignore"):
        expected = run(steps, OneByOne(), numbers, [mask])
    got = f(*numbers, mask)
    for one, other in zip(got, expected, strict=True):
        assert_same_bits(one, other)


@graphs
@given(programs(), st.integers(0, 2**16), st.integers(1, 37))
def test_a_sample_sees_only_itself(steps, seed, n_samples):
    numbers, mask = mixed_inputs(seed, 3 * n_samples)
    numbers, mask = [Ensemble(a.reshape(3, -1)) for a in numbers], Ensemble(mask.reshape(3, -1))

    @fuse
    def f(x, y, i, j, mask, xp):
        return run(steps, xp, [x, y, i, j], [mask])

    together = f(*numbers, mask)
    s = seed % n_samples
    alone = f(*(a.sample(s) for a in numbers), mask.sample(s))
    for one, other in zip(together, alone, strict=True):
        assert_same_bits(one.sample(s), other)


@fuse
def transcendental(x, y, xp):
    positive = xp.abs(x) + 0.25
    waves = xp.sin(x) * xp.cos(x) + xp.tan(y) - xp.tanh(x)
    growth = xp.exp(-positive) + xp.expm1(y) + xp.log(positive) + xp.log1p(positive) + positive**y
    angles = xp.atan2(x, y) + xp.hypot(x, y) + xp.asin(xp.sin(x)) + xp.acosh(1.0 + positive)
    return waves, growth, angles + xp.copysign(positive, y)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(st.integers(1, 70), st.integers(1, 40))
def test_functions_of_the_library_give_the_same_bits_wherever_a_value_stands(dtype, n, n_samples):
    rng = np.random.default_rng(n * 1000 + n_samples)
    x = Ensemble(rng.normal(size=(n, n_samples)).astype(dtype))
    y = Ensemble(rng.normal(size=(n, 1)).astype(dtype))
    together = transcendental(x, y)
    s, row = n_samples // 2, n // 2
    alone = transcendental(x.sample(s), y.sample(0))
    entry = transcendental(x.samples[row : row + 1, s], y.samples[row, 0])
    for whole, sample, one in zip(together, alone, entry, strict=True):
        assert_same_bits(whole.sample(s), sample)
        assert bits(whole.samples[row, s]) == bits(one[0])


def test_functions_of_the_library_are_right():
    x, y = np.random.default_rng(41).normal(size=(2, 500))
    for got, expected in zip(transcendental(x, y), transcendental.original(x, y, np), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-14)


# --- layouts
@fuse
def combined(x, y, z):
    return x * y - z


SHAPES = [
    ((6, 5, 8), (6, 5, 8), (6, 5, 8)),
    ((6, 5, 8), (6, 5, 1), (5, 8)),
    ((6, 1, 8), (5, 1), (6, 5, 1)),
    ((8,), (6, 5, 1), (1,)),
    ((1,), (6, 5, 1), (6, 1, 1)),
    ((4, 1, 3, 1, 8), (1, 2, 1, 5, 1), (2, 3, 5, 8)),
    ((0, 8), (0, 1), (8,)),
    ((1500, 3), (1500, 1), (3,)),
    ((3, 4100), (3, 1), (4100,)),
    ((40, 1, 7), (30, 1), (40, 30, 7)),
    ((70000, 2), (70000, 1), (70000, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_visible_shapes_and_shared_ensembles_broadcast(shapes, rng):
    operands = [rng.normal(size=shape) for shape in shapes]
    got = combined(*(Ensemble(a) for a in operands))
    assert_same_bits(got.samples, operands[0] * operands[1] - operands[2])


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::-1],
        lambda a: a[::2].repeat(2, axis=0),
        lambda a: a.swapaxes(0, 1).copy().swapaxes(0, 1),
        lambda a: a[:, ::-1],
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: np.asarray(a, order="F"),
        lambda a: a.astype(">f8").view(">f8"),
    ],
    ids=["reversed", "copy", "transposed", "columns", "readonly", "fortran", "big-endian"],
)
def test_views_are_read_where_they_stand(view, rng):
    x, y, z = rng.normal(size=(3, 6, 10, 4))
    assert_same_bits(combined(view(x), y, z), view(x) * y - z)
    assert_same_bits(combined(x[::2], y[::2], z[::2]), (x * y - z)[::2])


def test_plain_arrays_and_numbers_are_the_same_for_every_sample(rng):
    x = Ensemble(rng.normal(size=(3, 4)))
    plain = rng.normal(size=3)
    got = combined(x, plain, 0.5)
    assert_same_bits(got.samples, x.samples * plain[:, None] - 0.5)
    assert combined(np.ones(3), 2.0, np.float64(1.0)).tolist() == [1.0, 1.0, 1.0]


def test_a_shared_result_stays_shared():
    x = Ensemble(np.ones((3, 1)))
    assert combined(x, x, 0.0).is_shared


def test_only_numbers_call_the_function_itself():
    assert combined(2.0, 3.0, 1.0) == 5.0


def test_the_sample_set_goes_along(rng):
    points = SampleSet(ids=[3, 4, 5])
    x = Ensemble(rng.normal(size=(2, 3)), points)
    assert combined(x, 1.0, 0.0).sample_set is points
    other = Ensemble(rng.normal(size=(2, 3)), SampleSet(ids=[1, 2, 9]))
    with pytest.raises(ValueError, match="share one sample set"):
        combined(x, other, 0.0)


# --- results
def test_several_results_are_nested_as_the_function_nests_them(rng):
    x = Ensemble(rng.normal(size=(2, 3)))

    @fuse
    def f(x):
        return {"both": (x + 1.0, [x * 2.0]), "sign": x > 0.0, "same": x, "one": 1.0}

    got = f(x)
    assert_same_bits(got["both"][0].samples, x.samples + 1.0)
    assert_same_bits(got["both"][1][0].samples, x.samples * 2.0)
    assert_same_bits(got["sign"].samples, x.samples > 0.0)
    assert_same_bits(got["same"].samples, x.samples)
    assert got["one"].shape == (2,)


def test_out_is_written_into(rng):
    x, y = (Ensemble(rng.normal(size=(5, 6))) for _ in range(2))
    out = Ensemble(np.empty((5, 6)))
    expected = x.samples * y.samples - 1.0
    assert combined(x, y, 1.0, out=out) is out
    assert_same_bits(out.samples, expected)
    combined(x, y, 1.0, out=x)
    assert_same_bits(x.samples, expected)


def test_out_may_be_a_view(rng):
    x = rng.normal(size=(5, 6))
    whole = np.zeros((5, 12))
    combined(x, 2.0, 0.0, out=whole[:, ::2])
    assert_same_bits(whole[:, ::2], x * 2.0)
    assert not whole[:, 1::2].any()


def test_out_that_overlaps_an_operand_changes_nothing_too_early(rng):
    memory = rng.normal(size=5001)
    expected = memory[:-1] * 2.0 - memory[:-1]
    combined(memory[:-1], 2.0, memory[:-1], out=memory[1:])
    assert_same_bits(memory[1:], expected)
    column = rng.normal(size=(6, 4))
    expected = column * column[0] - 1.0
    combined(column, column[0], 1.0, out=column)
    assert_same_bits(column, expected)


def test_out_of_the_wrong_kind_is_refused(rng):
    x = Ensemble(rng.normal(size=(2, 3)))
    with pytest.raises(TypeError, match="out must be an Ensemble; got a ndarray"):
        combined(x, x, x, out=np.empty((2, 3)))
    with pytest.raises(
        ValueError, match=r"out must have shape \(2, 3\) and dtype float64, samples last; got shape \(2, 1\)"
    ):
        combined(x, x, x, out=Ensemble(np.empty((2, 1))))
    with pytest.raises(ValueError, match="float32"):
        combined(x, x, x, out=Ensemble(np.empty((2, 3), np.float32)))
    with pytest.raises(ValueError, match="out must be nested like the result; got 2 arrays"):
        combined(x, x, x, out=(x, x))


@pytest.mark.parametrize("n", [8192, 40_003])
def test_results_written_past_the_caches_are_the_same(n, rng, monkeypatch):
    @fuse
    def f(x, y, i):
        return x * y + 1.0, x - y, i + i, i < 3

    x = Ensemble(rng.normal(size=(n, 8)))
    y = Ensemble(rng.normal(size=(n, 1)).astype(np.float32))
    i = Ensemble(rng.integers(-9, 9, 8).astype(np.int32))
    expected = f.original(x.samples, y.samples, i.samples + np.zeros((n, 1), np.int32))
    monkeypatch.setattr(_fused, "STREAMED", -1)
    for got, one in zip(f(x, y, i), expected, strict=True):
        assert_same_bits(got.samples, one)
    three = fuse(lambda x, y, i: f.original(x, y, i)[:3])
    for got, one in zip(three(x, y, i), expected, strict=False):
        assert_same_bits(got.samples, one)
    memory = empty((n, 8), np.float64)
    memory[...] = x.samples
    combined(memory, memory, 1.0, out=memory)
    assert_same_bits(memory, x.samples * x.samples - 1.0)


# --- dtypes
def test_integers_wrap_around_and_divide_like_numpy(rng):
    a = np.array([*WHOLE, *rng.integers(-99, 99, 40)], np.int32)
    b = np.roll(a, 3)

    @fuse
    def f(a, b):
        return a + b, a * b, -a, abs(a), a // b, a % b, a**3, a & b, a | b, a ^ b, ~a, a / b

    with np.errstate(all="ignore"):
        expected = f.original(a, b)
    for got, one in zip(f(a, b), expected, strict=True):
        assert_same_bits(got, one)


def test_floor_division_of_floats_is_numpys(rng):
    a = np.array([*SPECIAL, *rng.normal(scale=9.0, size=300)])
    b = np.array([*rng.permutation(SPECIAL), *rng.normal(size=300)])

    @fuse
    def f(a, b):
        return a // b, a % b

    with np.errstate(all="ignore"):
        expected = a // b, a % b
    for got, one in zip(f(a, b), expected, strict=True):
        assert_same_bits(got, one)


def test_maximum_of_numpy(rng):
    a, b = rng.choice([1.0, 2.0, np.nan, -np.inf, np.inf], (2, 200))

    @fuse
    def f(a, b, xp):
        return xp.maximum(a, b), xp.minimum(a, b), xp.clip(a, -1.0, b), np.clip(b, 0.0, None)

    for got, one in zip(f(a, b), f.original(a, b, np), strict=True):
        assert_same_bits(got, one)


def test_questions_to_floats(rng):
    x = rng.choice(SPECIAL, 50)

    @fuse
    def f(x, xp):
        return xp.isnan(x), xp.isinf(x), xp.isfinite(x), xp.signbit(x), xp.sign(x), xp.reciprocal(x)

    with np.errstate(all="ignore"):
        expected = f.original(x, np)
    for got, one in zip(f(x), expected, strict=True):
        assert_same_bits(got, one)


def test_numbers_keep_the_dtype_of_the_array():
    x = np.arange(5, dtype=np.float32)

    @fuse
    def f(x, k):
        return x * k, k * 2.0 + x, x > k

    for k in (0.1, 3, np.float32(0.1), np.float64(0.1)):
        for got, one in zip(f(x, k), f.original(x, k), strict=True):
            assert_same_bits(got, one)


def test_python_numbers_among_themselves_are_pythons():
    x = np.arange(4, dtype=np.float32)

    @fuse
    def f(x, a, b):
        return x + a / b * 3.0 - a // b + abs(-a) ** 0.5

    assert_same_bits(f(x, 0.1, 0.3), f.original(x, 0.1, 0.3))
    assert_same_bits(f(x, 7, 3), f.original(x, 7, 3))
    with pytest.raises(ZeroDivisionError):
        f(x, 1.0, 0.0)
    with pytest.raises(OverflowError):
        combined(np.ones(3, np.int32), 2**40, 1)


def test_conversions():
    x = np.array([0.0, 1.5, -2.5, 100.25])

    @fuse
    def f(x, xp):
        whole = xp.astype(x, xp.int32)
        return whole, xp.astype(whole, xp.float32) / 3, xp.astype(x, xp.bool), xp.zeros_like(x) + xp.pi

    for got, one in zip(f(x), f.original(x, np), strict=True):
        assert_same_bits(got, one)


@pytest.mark.parametrize("dtype", [np.complex128, np.int8, np.uint16, np.float16, ">f8"])
def test_other_dtypes_take_the_function_itself(dtype):
    x = Ensemble(np.arange(6).reshape(2, 3).astype(dtype))
    got = combined(x, x, x)
    assert_same_bits(got.samples, x.samples * x.samples - x.samples)


def test_other_libraries_take_the_function_itself(rng):
    x = Ensemble(array_api_strict.asarray(rng.normal(size=(2, 3))))

    @fuse
    def f(x, xp):
        return xp.where(x > 0.0, xp.sqrt(xp.abs(x)), x)

    got = f(x)
    plain = np.asarray(x.samples)
    assert_same_bits(np.asarray(got.samples), np.where(plain > 0.0, np.sqrt(np.abs(plain)), plain))
    out = Ensemble(array_api_strict.zeros((2, 3)))
    assert f(x, out=out) is out
    assert_same_bits(np.asarray(out.samples), np.asarray(got.samples))


# --- calls
def test_defaults_keywords_and_static_arguments(rng):
    @fuse(static="terms")
    def series(x, *, scale=1.0, terms=3):
        total = 0.0 * x
        for k in range(terms):
            total = total + scale * x**k if k else total + scale
        return total

    x = rng.normal(size=9)
    assert_same_bits(series(x), 0.0 * x + 1.0 + x + x * x)
    assert_same_bits(series(x=x, scale=2.0, terms=1), 0.0 * x + 2.0)
    assert series.n_traces == 2
    with pytest.raises(TypeError, match="unexpected keyword"):
        series(x, size=2)
    with pytest.raises(TypeError, match="missing a required argument"):
        series(terms=2)


def test_numbers_do_not_compile_anew():
    @fuse
    def f(x, k):
        return x * k

    for k in range(20):
        assert f(np.ones(3), float(k))[0] == k
    assert f.n_traces == 1
    f(np.ones((4, 5, 6)), 2.0)
    assert f.n_traces == 1
    f(np.ones(3, np.float32), 2.0)
    f(np.ones(3), 2)
    assert f.n_traces == 3


def test_objects_that_may_change_are_refused():
    class Model:
        slope = 2.0

    @fuse
    def f(x, model):
        return x * model.slope

    with pytest.raises(TypeError, match="f: model must be ensembles, arrays, numbers or constants; got a Model"):
        f(np.ones(2), Model())
    assert fuse(f.original, static=["model"])(np.ones(2), Model()).tolist() == [2.0, 2.0]
    with pytest.raises(TypeError, match="f: static arguments must be constants; got one that cannot be hashed"):
        fuse(f.original, static="model")(np.ones(2), [1.0])


def test_fused_functions_nest(rng):
    @fuse
    def outer(x, y):
        return combined(x, y, 1.0) * combined(x, 2.0, y)

    x, y = rng.normal(size=(2, 9))
    assert_same_bits(outer(x, y), (x * y - 1.0) * (x * 2.0 - y))


def test_it_keeps_name_and_text():
    assert transcendental.__name__ == "transcendental"
    assert repr(combined) == "<fused combined(x, y, z)>"


# --- errors
def test_an_if_names_where():
    @fuse
    def f(x):
        if x > 0.0:
            return x
        return -x

    message = (
        r"f: a traced value must not be a truth value .*; got one at test_fuse.py:\d+. Use xp.where\(condition, a, b\)"
    )
    with pytest.raises(TypeError, match=message):
        f(np.ones(3))


@pytest.mark.parametrize(
    "body, message",
    [
        (lambda x: max(x, 1.0), "Use xp.where"),
        (lambda x: math.sin(x), "turned into a Python number; got one at test_fuse.py"),
        (lambda x: x[0], "indexed or looped over"),
        (lambda x: x.shape, "got .shape at test_fuse.py"),
        (lambda x: np.sum(x), r"got np.sum at test_fuse.py:\d+. Supported: abs, acos, .*where"),
        (lambda x: np.add.reduce(x), "np.add.reduce"),
        (lambda x: x.__array_namespace__().cumulative_sum(x), "xp.cumulative_sum"),
        (lambda x: x + np.ones(3), "operands must be traced values or numbers; got a ndarray"),
        (lambda x: x & 1, "operands of bitwise_and must be integers or bools; got float64"),
        (lambda x: (x > 0) * (x < 1), "operands of multiply must be numbers; got bool"),
        (lambda x: "text", "operands must be traced values or numbers; got a str"),
        (lambda x: x.__array_namespace__().astype(x, np.complex128), "dtype complex128"),
        (lambda x: x.__array_namespace__().where(x > 0, x), "where with 2 operands"),
    ],
)
def test_what_cannot_be_fused_says_so(body, message):
    with pytest.raises((TypeError, AttributeError), match=message):
        fuse(body)(np.ones(3))


def test_operands_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="one number of samples, or be shared; got 3 and 4 samples"):
        combined(Ensemble(np.ones((2, 3))), Ensemble(np.ones((2, 4))), 1.0)
    with pytest.raises(
        ValueError, match=r"combined: arguments must have shapes that broadcast; got shapes \(2,\) and \(5,\)"
    ):
        combined(Ensemble(np.ones((2, 3))), np.ones(5), 1.0)


def test_functions_that_cannot_be_wrapped_say_so():
    with pytest.raises(TypeError, match="fuse: function must be callable; got a int"):
        fuse(3)
    with pytest.raises(TypeError, match=r"fixed list of arguments; got \*xs"):
        fuse(lambda *xs: xs[0])
    with pytest.raises(TypeError, match="leave the name out to fuse"):
        fuse(lambda x, out: x)
    with pytest.raises(ValueError, match="fuse: static must name arguments"):
        fuse(lambda x: x, static=["n"])


# --- machine code on disk
PROGRAM = """
import numpy as np
from ensemble.scalar import fuse

@fuse
def f(x, y):
    return x * y + 0.125

x = np.ones(200_000)
f(x, x), f(x[:5], x[:5])
(compiled,) = f._compiled.values()
print(sum(sum(k.stats.cache_misses.values()) for k in (compiled.module.span, compiled.module.spans)))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def misses():
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        return int(ran.stdout)

    assert misses() == 2
    assert misses() == 0
