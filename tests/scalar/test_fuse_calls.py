"""Calls of fused functions: arguments, traces, errors, machine code on disk."""

import dataclasses
import functools
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from ensemble.scalar import Ensemble, fuse
from ensemble.scalar.fuse import KEPT
from tests.scalar.fused import assert_same_bits, combined, transcendental


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


def test_results_are_nested_as_the_function_nests_them(rng):
    @dataclasses.dataclass
    class Pair:
        sum: object
        more: tuple

    x, y = rng.normal(size=(2, 9))
    result = fuse(lambda x, y: Pair(x + y, ({"product": x * y}, [x - y])))(x, y)
    assert type(result) is Pair
    for got, expected in zip((result.sum, result.more[0]["product"], result.more[1][0]), (x + y, x * y, x - y)):
        assert_same_bits(got, expected)


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


def test_products_and_sums_of_masks_are_numpys():
    x = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan])
    for f in (
        lambda x: (x > 0.0) * (x < 1.0) * x,
        lambda x: ((x <= 0.0) + (x >= 1.0)) * 2.0,
        lambda x: True * (x > 0.0) + (x < -0.5),
        lambda x: (x > 0.0) * (x < 2.0) * (x > 0.7),
    ):
        made, expected = fuse(f)(x), f(x)
        assert made.dtype == expected.dtype
        np.testing.assert_array_equal(made, expected)


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

    message = r"f: a traced value must not be a truth value .*; got one at test_fuse_calls.py:\d+. Use xp.where\("
    with pytest.raises(TypeError, match=message):
        f(np.ones(3))


@pytest.mark.parametrize(
    "body, message",
    [
        (lambda x: max(x, 1.0), "Use xp.where"),
        (lambda x: math.sin(x), "turned into a Python number; got one at test_fuse_calls.py"),
        (lambda x: x[0], "indexed or looped over"),
        (lambda x: x.shape, "got .shape at test_fuse_calls.py"),
        (lambda x: np.sum(x), r"got np.sum at test_fuse_calls.py:\d+. Supported: abs, acos, .*where"),
        (lambda x: np.add.reduce(x), "np.add.reduce"),
        (lambda x: x.__array_namespace__().cumulative_sum(x), "xp.cumulative_sum"),
        (lambda x: x + np.ones(3), "operands must be traced values or numbers; got an ndarray"),
        (lambda x: x & 1, "operands of bitwise_and must be integers or bools; got float64"),
        (lambda x: (x > 0) / (x < 1), "operands of divide must be numbers; got bool"),
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
    with pytest.raises(TypeError, match="fuse: function must be callable; got an int"):
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
from ensemble._compile import machine_code
from ensemble.scalar import fuse

made = []
kept_file = machine_code.kept_file
machine_code.kept_file = lambda name, make: kept_file(name, lambda: made.append(name) or make())

@fuse
def f(x, y):
    return x * y + 0.125

x = np.ones(200_000)
f(x, x), f(x[:5], x[:5])
print(len(made))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def misses():
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        return int(ran.stdout)

    assert misses() == 4  # of the loops and of the reader of their arguments
    assert misses() == 0


# --- values read from outside
FACTOR = 1.0


class Settings:
    factor = 1.0


def _readers():
    holder, entries, numbers, array = Settings(), {"factor": 1.0}, [1.0], np.array([1.0])

    def change(value):
        globals()["FACTOR"] = value
        Settings.factor = holder.factor = entries["factor"] = numbers[0] = array[0] = value

    def helper():
        return FACTOR

    inner = fuse(lambda x: FACTOR * x)

    readers = {
        "global": lambda x: FACTOR * x,
        "class": lambda x: Settings.factor * x,
        "attribute": lambda x: holder.factor * x,
        "dictionary": lambda x: entries["factor"] * x,
        "list": lambda x: numbers[0] * x,
        "array": lambda x: array[0] * x,
        "function": lambda x: helper() * x,
        "fused function": lambda x: inner(x),
        "nested": lambda x: (lambda: FACTOR)() * x,
        "partial": functools.partial(lambda numbers, x: numbers[0] * x, numbers),
    }
    return readers, change


@pytest.mark.parametrize("name", _readers()[0])
def test_a_value_read_from_outside_is_read_again_when_it_changes(name):
    readers, change = _readers()
    f = fuse(readers[name])
    for value in (1.0, 2.0, 1.0):
        change(value)
        assert f(Ensemble(np.ones(3))).samples.tolist() == [value] * 3
    assert f.n_traces == 2


def test_a_fused_function_that_calls_another_is_traced_once():
    inner = fuse(lambda x: 2.0 * x)
    calls = []

    def counted(x):
        return x + 1.0

    f = fuse(lambda x: counted(inner(x)))
    f(np.ones(3))
    f._traced = lambda *_: calls.append(1)
    assert f(np.ones(3)).tolist() == [3.0] * 3
    assert not calls


def test_a_function_given_as_an_argument_is_read_again(rng):
    slope = [1.0]

    @fuse
    def f(x, g):
        return g(x)

    def g(x):
        return slope[0] * x

    x = rng.normal(size=5)
    for value in (1.0, 3.0):
        slope[0] = value
        assert_same_bits(f(x, g), value * x)


def test_a_value_that_changes_at_every_call_keeps_few_kernels():
    numbers = [0.0]
    f = fuse(lambda x: x * numbers[0])
    for k in range(KEPT + 8):
        numbers[0] = float(k)
        f._kept((None,), (np.ones(1),), {0: np.ones(1)})
    assert f.n_traces == KEPT
