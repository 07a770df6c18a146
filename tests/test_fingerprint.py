"""What a kept trace depends on: code and the values it reads."""

import functools
import math
import time
import types

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble._compile.trace import fingerprint as module
from ensemble._compile.trace.fingerprint import fingerprint
from ensemble.ode.system import System

RATE = 1.0
TABLE = {"a": [1.0, 2.0]}


def uses_a_global(t, y, p, xp):
    return [-RATE * y[0]]


def calls_another(t, y, p, xp):
    return uses_a_global(t, y, p, xp)


def calls_itself(t, y, p, xp, depth=1):
    return calls_itself(t, y, p, xp, depth - 1) if depth else [np.pi * y[0], math.sqrt(2.0)]


def reads_a_table(t, y, p, xp):
    return [TABLE["a"][0] * y[0]]


def reads_a_clock(t, y, p, xp):
    return [time.time() * y[0]]


def draws(t, y, p, xp):
    return [np.random.normal() * y[0]]  # noqa: NPY002


def imports(t, y, p, xp):
    import os

    return [float(os.environ.get("RATE", 1.0)) * y[0]]


class Model:
    rate = 1.0

    def f(self, t, y, p, xp):
        return [self.rate * y[0]]


MODEL = Model()


class Counting(Model):
    def f(self, t, y, p, xp):
        self.calls = 1
        return [y[0]]


class Open(Model):
    def __getattr__(self, name):
        return 1.0

    def f(self, t, y, p, xp):
        return [self.other * y[0]]


class Slotted:
    __slots__ = ("rate",)
    f = Model.f


class Filled(Model):
    def __setitem__(self, key, value):
        self.rate = value


class Cached(Model):
    @functools.cached_property
    def rate(self):
        return 2.0


def counts(t, y, p, xp):
    counts.calls = getattr(counts, "calls", 0) + 1
    return [y[0]]


def of(number):
    return lambda t, y, p, xp: [number * y[0]]


def with_default(number):
    def f(t, y, p, xp, rate=number):
        return [rate * y[0]]

    return f


@pytest.mark.parametrize("f", [uses_a_global, calls_another, calls_itself, reads_a_table, of(2.0), of(np.ones(3))])
def test_a_function_of_numbers_has_one(f):
    assert fingerprint(f) is not None
    assert fingerprint(f) == fingerprint(f)
    assert hash(fingerprint(f)) == hash(fingerprint(f))


@pytest.mark.parametrize(
    "f",
    [
        reads_a_clock,
        draws,
        imports,
        counts,
        Counting().f,
        Open().f,
        Slotted().f,
        Cached().f,
        of(Ensemble(np.ones(2))),
        of(type("Scaled", (System,), {})(of(1.0), 1, 0, np)),
        of(Filled()),
        of(np.broadcast_to(1.0, 1 << 21)),
        np.sin,
    ],
)
def test_a_function_that_reads_what_cannot_be_compared_has_none(f):
    assert fingerprint(f) is None


class Rates:
    factor = 2.0
    ends = types.SimpleNamespace  # not read

    def __init__(self, k):
        self.k, self.inner = k, Model()
        self.file = math  # a name that no code has, with a value of any kind

    @property
    def twice(self):
        return 2.0 * self.k[0]

    @staticmethod
    def shape(y):
        return y[0] * RATE

    def rate(self, y):
        return self.twice * self.factor * self.shape(y) * self.inner.rate

    def __call__(self, t, y, p, xp):
        return [-self.rate(y)]

    def f(self, t, y, p, xp):
        return [self.hidden * self.rate(y)]

    hidden = 1.0


def reads_an_object(t, y, p, xp):
    return [-MODEL.rate * helper(RATES, y)]


def helper(rates, y):
    return rates.rate(y)


RATES = Rates([1.0])


@pytest.mark.parametrize(
    "change",
    [
        lambda rates, patch: rates.k.__setitem__(0, 3.0),
        lambda rates, patch: setattr(rates, "k", np.ones(2)),
        lambda rates, patch: setattr(rates, "factor", 3.0),
        lambda rates, patch: patch.setattr(Rates, "factor", 3.0),
        lambda rates, patch: patch.setattr(Rates, "rate", lambda self, y: y[0]),
        lambda rates, patch: patch.setattr(Rates, "twice", property(lambda self: 3.0)),
        lambda rates, patch: patch.setattr(Rates, "shape", staticmethod(lambda y: y[0])),
        lambda rates, patch: setattr(rates.inner, "rate", 3.0),
        lambda rates, patch: patch.setattr(Model, "rate", 3.0),
        lambda rates, patch: patch.setitem(globals(), "RATE", 2.0),
    ],
)
@pytest.mark.parametrize("of_object", [lambda rates: rates, lambda rates: rates.f, lambda rates: of_call(rates)])
def test_a_changed_attribute_or_method_of_an_object_is_seen(change, of_object, monkeypatch):
    rates, other = Rates([1.0]), Rates([1.0])
    before = fingerprint(of_object(rates))
    assert before is not None
    assert fingerprint(of_object(other)) == before
    change(rates, monkeypatch)
    assert fingerprint(of_object(rates)) not in (before, None)


def of_call(rates):
    return lambda t, y, p, xp: [helper(rates, y)]


def test_attributes_that_no_code_names_do_not_count():
    rates = Rates([1.0])
    before = fingerprint(rates)
    rates.file, rates.hidden = open, 2.0
    assert fingerprint(rates) == before
    assert fingerprint(rates.f) != fingerprint(Rates([1.0]).f)


def test_a_global_object_is_followed(monkeypatch):
    before = fingerprint(reads_an_object)
    monkeypatch.setattr(RATES, "k", [2.0])
    assert fingerprint(reads_an_object) not in (before, None)


def test_a_changed_object_has_another_solution():
    rates = Rates([1.0])
    before = ode.solve(rates, [1.0], (0.0, 1.0)).y
    assert np.array_equal(ode.solve(rates, [1.0], (0.0, 1.0)).y, before)
    rates.k[0] = 2.0
    assert np.allclose(ode.solve(rates, [1.0], (0.0, 1.0)).y, np.exp(-8.0), rtol=1e-4)


@pytest.mark.parametrize("make", [of, with_default])
def test_equal_code_with_equal_values_is_equal(make):
    assert fingerprint(make(2.0)) == fingerprint(make(2.0))
    assert fingerprint(make(math.nan)) == fingerprint(make(math.nan))
    different = [2.0, 2, 3.0, 0.0, -0.0, True, 1, math.nan, None, np.float64(2.0), np.float32(2.0), [2.0], (2.0,),
                 np.array([2.0]), np.array([[2.0]]), np.array([2]), {"a": 2.0}, "2.0"]  # fmt: skip
    assert len({fingerprint(make(value)) for value in different}) == len(different)


@pytest.mark.parametrize("f", [uses_a_global, calls_another])
def test_a_changed_global_is_seen(f, monkeypatch):
    before = fingerprint(f)
    monkeypatch.setitem(globals(), "RATE", 2.0)
    assert fingerprint(f) != before


def test_a_value_changed_in_place_is_seen():
    values, matrix = [1.0, {"a": 2.0}], np.ones((2, 2))
    f, g = of(values), of(matrix)
    before = fingerprint(f), fingerprint(g)
    values[1]["a"], matrix[1, 0] = 3.0, 2.0
    assert fingerprint(f) != before[0]
    assert fingerprint(g) != before[1]


def test_a_changed_function_is_seen(monkeypatch):
    before = fingerprint(calls_another)
    monkeypatch.setitem(globals(), "uses_a_global", of(1.0))
    assert fingerprint(calls_another) != before


def test_functions_and_modules_of_the_library_are_constant():
    from ensemble.apps import fem
    from ensemble.apps.fem import dot

    assert fingerprint(lambda u, v: dot(u, v)) is not None
    assert fingerprint(lambda u, v: fem.dot(u, v)) is not None
    assert fingerprint(of(types.ModuleType("ensemble.other"))) is None


def test_arguments_of_a_partial_are_read():
    rates = [1.0]
    f = functools.partial(of, rates), functools.partial(lambda number, t: number[0], rates)
    before = [fingerprint(each) for each in f]
    assert None not in before
    rates[0] = 2.0
    assert [fingerprint(each) for each in f] != before
    assert fingerprint(functools.partial(of, Open())) is None


def test_many_values_have_none(monkeypatch):
    monkeypatch.setattr(module, "MOST_VALUES", 10)
    assert fingerprint(of([1.0] * 20)) is None


def test_a_function_is_traced_once(monkeypatch):
    """And again where a number that it reads has changed, also one that it reads in another function."""
    ode.solve(lambda t, y, p, xp: [-y[0]], [1.0], (0.0, 0.1), method="rk4", step=0.05)  # traces the method, too
    calls = [0]
    counting = System.graph.func.__globals__
    traced = counting["_traced"]
    monkeypatch.setitem(counting, "_traced", lambda *given: calls.append(0) or traced(*given))
    monkeypatch.setitem(globals(), "RATE", 1.2345)
    ends = [ode.solve(calls_another, [1.0], (0.0, 1.0), method="rk4", step=0.01).y.samples[0, 0] for _ in range(3)]
    assert len(calls) == 2 and ends[0] == ends[1] == ends[2]
    monkeypatch.setitem(globals(), "RATE", 2.3456)
    end = ode.solve(calls_another, [1.0], (0.0, 1.0), method="rk4", step=0.01).y.samples[0, 0]
    assert len(calls) == 3
    np.testing.assert_allclose([ends[0], end], np.exp([-1.2345, -2.3456]), rtol=1e-8)
