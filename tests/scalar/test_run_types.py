"""Runs of code that sees the type of a value: numbers of Python, types that depend on values, tests for classes."""

import functools
import math
import numbers

import numpy as np
import pytest

from ensemble.scalar import Ensemble, run

NUMBERS = {
    "float64": Ensemble(np.array([1.0, 2.0, 0.0, -3.0])),
    "float32": Ensemble(np.array([1.1, 2.0, 0.0, -3.3], np.float32)),
    "int64": Ensemble(np.array([1, 2, 0, -3])),
    "uint8": Ensemble(np.array([1, 2, 200], np.uint8)),
    "bool": Ensemble(np.array([True, False, True])),
    "complex": Ensemble(np.array([1.0 + 1.0j, 0.0, -2.0j])),
    "floats": Ensemble(np.array([[1.1, 2.0], [0.0, -3.3]], np.float32)),
    "integers": Ensemble(np.array([[2**40, 3], [5, 6]])),
}


def assert_as_alone(f, x):
    for options in {}, {"loop": False}:
        result = run(f, x, **options)
        for s in range(x.n_samples):
            try:
                wanted = f(x.sample(s)[()])
            except Exception as error:
                assert type(result.errors[s]) is type(error), (s, options)
                continue
            got = result.sample(s)
            np.testing.assert_array_equal(got, wanted)
            assert np.asarray(got).dtype == np.asarray(wanted).dtype, (s, options)


def first(v):
    return v.item(0) if v.ndim else v.item()


def inverse_or_default(v):
    try:
        return 1 / first(v)
    except ZeroDivisionError:
        return -1.0


@pytest.mark.parametrize(
    "f",
    [
        first,
        inverse_or_default,
        lambda v: 1 / first(v),
        lambda v: first(v) ** 0.5,
        lambda v: first(v) * np.float32(1.1),
        lambda v: first(v) + 100,
        lambda v: -first(v),
        lambda v: isinstance(first(v), np.generic),
        lambda v: hasattr(first(v), "dtype"),
        lambda v: np.sqrt(first(v)),
        lambda v: np.ones(2, np.float32) * first(v),
        lambda v: v.tolist(),
        lambda v: sum(v.tolist()) / 3 if v.ndim else v.tolist() / 3,
        lambda v: [each.item() / 3 for each in np.atleast_1d(v)],
    ],
)
@pytest.mark.parametrize("name", NUMBERS)
def test_item_and_tolist_give_numbers_of_python(f, name):
    assert_as_alone(f, NUMBERS[name])


def test_an_integer_of_python_has_no_largest_one():
    powers = run(lambda v: v.item() ** 40 % 1000007, Ensemble(np.array([3, 11, 2**40])), loop=False)
    assert [powers.sample(s) for s in range(3)] == [pow(v, 40, 1000007) for v in (3, 11, 2**40)]


SQUARES = Ensemble(np.stack([np.array([[0.0, v], [1.0, 0.0]]) for v in (1.0, -1.0, 2.0, -3.0)], axis=-1))
ROOTS = Ensemble(np.array([[1.0j, 1.0j, 1.0], [-1.0j, 1.0j, 2.0]]))


@pytest.mark.parametrize(
    "f, x",
    [
        (np.linalg.eigvals, SQUARES),
        (lambda a: np.linalg.eig(a)[1], SQUARES),
        (lambda a: a.__array_namespace__().linalg.eigvals(a), SQUARES),
        (lambda a: 1.0 if np.iscomplexobj(np.linalg.eigvals(a)) else 2.0, SQUARES),
        (lambda v: np.roots([1.0, 0.0, v]), NUMBERS["float64"]),
        (lambda v: np.roots([1.0, 0.0, v]).dtype.kind == "c", NUMBERS["float64"]),
        (np.poly, ROOTS),
        (np.real_if_close, ROOTS),
        (lambda v: np.apply_along_axis(lambda q: 1 if q[0] > 0 else 0.5, 0, np.atleast_1d(v)), NUMBERS["float64"]),
    ],
)
def test_results_whose_type_depends_on_the_values_have_each_samples_own(f, x):
    assert_as_alone(f, x)


def of_a_real_number(v):
    match v:
        case numbers.Real():
            return 1.0
        case np.ndarray():
            return 2.0
        case _:
            return 3.0


def of_a_list(v):
    match [v, 1]:
        case [float() as q, int()]:
            return q * 2.0
        case _:
            return 0.0


@functools.singledispatch
def dispatched(v):
    return 0.0


@dispatched.register
def _(v: np.floating):
    return 1.0


@dispatched.register
def _(v: np.ndarray):
    return 2.0


@pytest.mark.parametrize(
    "f",
    [
        of_a_real_number,
        of_a_list,
        lambda v: of_a_list(v) + of_a_real_number(v),
        lambda v: {"float64": 1.0, "int64": 2.0}.get(v.__class__.__name__, 3.0),
        lambda v: dispatched(v),
    ],
)
@pytest.mark.parametrize("name", ["float64", "int64", "floats"])
def test_code_that_asks_for_the_class_of_a_value_runs_for_each_sample(f, name):
    assert_as_alone(f, NUMBERS[name])


class Circle:
    def __init__(self, radius):
        self.radius = radius


def of_own_classes(v):
    match Circle(v):
        case Circle(radius=r):
            return math.pi * r * r


def test_patterns_of_other_classes_run_for_all_samples_at_once():
    result = run(of_own_classes, NUMBERS["float64"], loop=False)
    assert result.n_runs == 1
    assert_as_alone(of_own_classes, NUMBERS["float64"])


@pytest.mark.parametrize("other", [None, "text", b"bytes"])
def test_an_array_compared_with_what_no_number_equals_is_false_everywhere(other):
    x = NUMBERS["floats"]
    assert not (x == other).samples.any()
    assert (x != other).samples.all()
    assert (x == other).shape == x.shape
    assert (NUMBERS["float64"] == other) is False
    assert_as_alone(lambda v: v == other, x)


@pytest.mark.parametrize("name", ["bool", "complex", "floats", "integers"])
def test_what_a_sample_has_no_method_for_is_missing(name):
    def f(v):
        try:
            return float(np.sum(v.is_integer()))
        except AttributeError:
            return -1.0

    def g(v):
        try:
            return float(np.sum(np.abs(round(v, 1))))
        except TypeError:
            return -1.0

    assert_as_alone(f, NUMBERS[name])
    assert_as_alone(g, NUMBERS[name])


@pytest.mark.parametrize("place", [None, [0], 0.0, slice(1)])
def test_item_takes_integers_alone(place):
    with pytest.raises(TypeError):
        NUMBERS["floats"].item(place)


@pytest.mark.parametrize("place", [None, True, np.True_])
def test_flat_takes_neither_new_axes_nor_bools(place):
    with pytest.raises(IndexError, match=r"Ensemble\.flat: an index must be"):
        NUMBERS["floats"].flat[place]


def test_the_gradient_of_a_value_is_an_empty_tuple():
    assert np.gradient(NUMBERS["float64"]) == np.gradient(np.float64(1.0)) == ()


def as_new_array(call):
    def f(v):
        call(v)
        return v

    return f


@pytest.mark.parametrize(
    "f",
    [
        as_new_array(lambda v: np.copyto(v, 5.0)),
        as_new_array(lambda v: np.putmask(v, v > 1.0, [7.0])),
        as_new_array(lambda v: np.place(v, v > 1.0, [7.0])),
        as_new_array(lambda v: np.add(v, 1.0, out=v)),
        as_new_array(lambda v: np.clip(v, 0.0, 1.0, out=v)),
        as_new_array(lambda v: np.add.at(v, (), 7.0)),
        as_new_array(lambda v: np.fill_diagonal(v, 7.0)),
        as_new_array(lambda v: v.__setitem__(..., 7.0)),
    ],
)
def test_a_value_is_no_array_to_write_into(f):
    assert_as_alone(f, NUMBERS["float64"])


def sum_of_samples(v):
    try:
        return getattr(v, "samples").sum() + 0 * v  # noqa: B009  a name in a variable is found in the same way
    except AttributeError:
        return v + 7


def is_ensemble(v):
    return float(getattr(v, "sample_set", None) is not None or hasattr(v, "samples"))


@pytest.mark.parametrize("x", [Ensemble(np.array([1.0, 2.0, -3.0])), Ensemble(np.arange(12.0).reshape(3, 4))])
@pytest.mark.parametrize(
    "f",
    [
        lambda v: getattr(v, "n_samples", 0) + 0 * v,
        lambda v: is_ensemble(v) + 0 * v,
        sum_of_samples,
        lambda v: [getattr(q, "n_samples", 1) * q for q in (v, 2 * v)][1],
        lambda v: len(getattr(v, "shape", (1, 2, 3))) + 0 * v,
        lambda v: getattr(v, "sum", lambda: 5)() + getattr(np, "sin")(v),  # noqa: B009
        lambda v: getattr(v, "n_samples"),  # noqa: B009
    ],
)
def test_getattr_finds_what_a_sample_has(f, x):
    assert_as_alone(f, x)
