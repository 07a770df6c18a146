"""Calls with equal arguments share compiled code, whatever objects they are; numbers of functions are its arguments."""

import collections
import functools
import gc
import itertools
import weakref

import numpy as np
import pytest
from llvmlite.binding import ExecutionEngine
from numba.core.dispatcher import Dispatcher

import ensemble as en
from ensemble import Ensemble, ode, quadrature
from ensemble._compile import machine_code
from ensemble._compile.numba import compiled, compiled_serial, prange
from ensemble._compile.trace.numbers import hoisted, literals
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._compile.work_sharing import MOST_FORMS, WorkSharing
from ensemble._kernels.krylov import vectors
from ensemble.apps import fem
from ensemble.krylov import bicgstab, cg, direct, gmres, minres
from ensemble.linalg import CrsMatrix, Factorization
from ensemble.multigrid import smoothed_aggregation
from tests.conftest import every_object

S = 4


class _NONE:
    overloads = ()


def kept():
    """Engines of machine code, and forms and kinds of arguments that compiled functions know, in all of this process.

    This takes as long as the process has objects: half a second after other tests.
    """
    gc.collect()
    everything = every_object()
    shared = [each for each in everything if type(each) is WorkSharing]
    return (
        sum(type(each) is ExecutionEngine for each in everything),
        sum(len(each._translated) for each in shared),
        sum(len(each._codes) + len(each.__dict__.get("dispatcher", _NONE).overloads) for each in shared),
    )


@pytest.fixture
def made(monkeypatch):
    """How often machine code was loaded, a form of arguments translated, or a function compiled by Numba: a counter."""
    events = collections.Counter()

    class Counted(machine_code.Code):
        def __init__(self, *arguments):
            events["loaded"] += 1
            super().__init__(*arguments)

    def translated(self, arguments, translate=WorkSharing._translate):
        events["translated"] += 1
        return translate(self, arguments)

    def compiled_by_numba(self, signature, compile_one=Dispatcher.compile):
        events["by Numba"] += 1
        return compile_one(self, signature)

    monkeypatch.setattr(machine_code, "Code", Counted)
    monkeypatch.setattr(WorkSharing, "_translate", translated)
    monkeypatch.setattr(Dispatcher, "compile", compiled_by_numba)
    return events


# --- what arrays are, not which objects describe them
FRESH = {
    "the same dtype": lambda a: a.copy(),
    "native order": lambda a: a.astype(a.dtype.newbyteorder("=")),
    "read from a file": lambda a: a.astype(">f8").astype(np.dtype(">f8").newbyteorder("=")) if a.dtype == "f8" else a,
    "little endian": lambda a: a.astype(a.dtype.newbyteorder("<")),
    "with metadata": lambda a: a.astype(np.dtype(a.dtype.str, metadata={"unit": "m"})),
}
GRAPH = en.gallery.poisson((6, 6))
KAPPA = np.linspace(1.0, 2.0, S)


def matrix(fresh):
    """A matrix whose values, and whose graph, are new objects."""
    return CrsMatrix(GRAPH.graph, fresh(GRAPH.values * KAPPA))


LINEAR = {
    "product": lambda A, b: (A @ b).samples,
    "cg": lambda A, b: cg(A, b).x.samples,
    "minres": lambda A, b: minres(A, b).x.samples,
    "gmres": lambda A, b: gmres(A, b).x.samples,
    "bicgstab": lambda A, b: bicgstab(A, b).x.samples,
    "direct": lambda A, b: direct(A, b).x.samples,
    "factorization": lambda A, b: (Factorization(A) @ b).samples,
    "multigrid": lambda A, b: cg(A, b, M=smoothed_aggregation(A)).x.samples,
}


def made_by_further_calls(call, times, made):
    """What `times` calls make after two others."""
    call(), call()
    made.clear()
    for _ in range(times):
        call()
    return dict(made)


def test_what_is_made_is_counted(made):
    """A loop, a form of its arguments, and an expression; the second call makes nothing."""

    @compiled
    def filled(x, value):
        for i in prange(x.size):
            x[i] = value

    filled(np.zeros(3), 1.0)
    assert made == {"loaded": 1, "translated": 1}
    filled(np.zeros(3), np.float32(1.0))
    en.fuse(lambda u, xp: u * 0.123 + xp.cos(u))(X)
    assert made["loaded"] >= 3 and made["translated"] >= 2
    made.clear()
    filled(np.zeros(3), 2.0)
    assert made == {}
    compiled_serial(lambda x: x + 1)(1)
    assert made == {"by Numba": 1}


@pytest.mark.parametrize("name", LINEAR)
def test_arrays_with_new_dtype_objects_share_what_is_compiled(name, made):
    b = np.linspace(-1.0, 1.0, 36)
    expected = LINEAR[name](matrix(FRESH["the same dtype"]), b)
    for fresh in FRESH.values():

        def call(fresh=fresh):
            assert np.array_equal(LINEAR[name](matrix(fresh), fresh(b)), expected)

        assert made_by_further_calls(call, 10, made) == {}


def test_an_array_of_the_other_byte_order_is_not_taken_for_a_native_one():
    x = np.linspace(0.5, 1.5, 3 * S).reshape(3, S)
    expected = vectors.dot(x, x, None)
    np.testing.assert_allclose(vectors.dot(x.astype(">f8"), x.astype(">f8"), None), expected, rtol=1e-14)


def test_arrays_of_other_types_of_equal_size_are_told_apart():
    @compiled
    def halved(x, out):
        for i in prange(x.size):
            out[i] = x[i] / 2

    for dtype in ("int64", "uint64", "float64", "int32", "uint32", "float32", "q", "Q", "int8", "uint8", "bool"):
        x, out = np.array([1, 0, 1]).astype(dtype), np.empty(3)
        halved(x, out)
        assert np.array_equal(out, [0.5, 0.0, 0.5])
    top = np.array([2**63], np.uint64)
    out = np.empty(1)
    halved(top, out)
    assert out[0] == 2.0**62


def test_forms_of_arguments_are_bounded():
    """Each class of numbers is a form of its own; the code is one."""

    @compiled
    def filled(x, value):
        for i in prange(x.size):
            x[i] = value

    x = np.zeros(3)
    for k in range(3 * MOST_FORMS):
        filled(x, type("Length", (float,), {})(k))
        assert x[0] == k
    assert len(filled._translated) == MOST_FORMS
    assert len(filled._codes) == 1


# --- numbers of functions
X = Ensemble(np.linspace(0.1, 2.0, 40 * S).reshape(40, S))
Y0 = np.array([1.0, 0.5])
MESH = fem.TetMesh.box(2)
FIELD = Ensemble(1.0 + np.random.default_rng(2).random((27, S)))
GLOBAL = 0.7


class Holder:
    """An object whose attribute a function reads."""

    def __init__(self, k):
        self.k = k

    def elementwise(self, u, xp):
        return xp.where(u > self.k, u * self.k + 0.5, xp.exp(-u) / self.k)

    def slope(self, t, y, p, xp):
        return [y[1] * self.k, -y[0] - self.k * y[1] * t]

    def integrand(self, q, xp):
        return xp.exp(-self.k * q[0]) * (q[1] + self.k)

    def form(self, u, v, w):
        return (w.a * self.k + np.exp(w.a / self.k)) * fem.dot(fem.grad(u), fem.grad(v)) + self.k * u * v


def closure(method, k):
    own = Holder(k)
    return {
        "elementwise": lambda u, xp: xp.where(u > k, u * k + 0.5, xp.exp(-u) / k),
        "slope": lambda t, y, p, xp: [y[1] * k, -y[0] - k * y[1] * t],
        "integrand": lambda q, xp: xp.exp(-k * q[0]) * (q[1] + k),
        "form": lambda u, v, w: (w.a * k + np.exp(w.a / k)) * fem.dot(fem.grad(u), fem.grad(v)) + k * u * v,
    }[method] or own


def in_a_list(method, k):
    numbers, table = [k], {"k": np.array([k])}
    return {
        "elementwise": lambda u, xp: xp.where(u > numbers[0], u * float(table["k"][0]) + 0.5, xp.exp(-u) / numbers[0]),
        "slope": lambda t, y, p, xp: [y[1] * numbers[0], -y[0] - float(table["k"][0]) * y[1] * t],
        "integrand": lambda q, xp: xp.exp(-numbers[0] * q[0]) * (q[1] + numbers[0]),
        "form": lambda u, v, w: (
            (w.a * numbers[0] + np.exp(w.a / numbers[0])) * fem.dot(fem.grad(u), fem.grad(v)) + numbers[0] * u * v
        ),
    }[method]


def partial_application(method, k):
    def slope(k, t, y, p, xp):
        return Holder(k).slope(t, y, p, xp)

    return functools.partial(slope, k) if method == "slope" else closure(method, k)


def default(method, k):
    def slope(t, y, p, xp, k=k):
        return [y[1] * k, -y[0] - k * y[1] * t]

    def form(u, v, w, k=k):
        return (w.a * k + np.exp(w.a / k)) * fem.dot(fem.grad(u), fem.grad(v)) + k * u * v

    return {"slope": slope, "form": form}.get(method) or closure(method, k)


def global_number(method, k):
    globals()["GLOBAL"] = k
    return {
        "elementwise": lambda u, xp: xp.where(u > GLOBAL, u * GLOBAL + 0.5, xp.exp(-u) / GLOBAL),
        "slope": lambda t, y, p, xp: [y[1] * GLOBAL, -y[0] - GLOBAL * y[1] * t],
        "integrand": lambda q, xp: xp.exp(-GLOBAL * q[0]) * (q[1] + GLOBAL),
        "form": lambda u, v, w: (
            (w.a * GLOBAL + np.exp(w.a / GLOBAL)) * fem.dot(fem.grad(u), fem.grad(v)) + GLOBAL * u * v
        ),
    }[method]


SOURCES = {
    "closure": closure, "list": in_a_list, "partial": partial_application, "default": default,
    "global": global_number, "attribute": lambda method, k: getattr(Holder(k), method),
}  # fmt: skip


def solved(f, method="tsit5", **options):
    return ode.solve(f, Y0, (0.0, 1.0), method=method, **options).y.samples


USERS = {
    "fuse": ("elementwise", lambda f: en.fuse(f)(X).samples),
    "fuse of numbers": ("elementwise", lambda f: en.fuse(f)(X.samples.astype(np.float32))),
    "tsit5": ("slope", solved),
    "rodas4": ("slope", lambda f: solved(f, "rodas4")),
    "taylor": ("slope", lambda f: solved(f, "taylor")),
    "float32": ("slope", lambda f: ode.solve(f, Y0.astype(np.float32), (0.0, 1.0), method="rk4", step=0.1).y.samples),
    "gradient": ("slope", lambda f: ode.gradient(f, Y0, (0.0, 1.0), [1.0, 1.0]).y0.samples),
    "sensitivities": ("slope", lambda f: ode.sensitivities(f, Y0, (0.0, 1.0), wrt={"y0": [0]}).y0.samples),
    "gauss": ("integrand", lambda f: quadrature.gauss(f, 2, n_nodes=6, rule="legendre", bounds=(0.0, 1.5))),
    "form": ("form", lambda f: fem.bilinear_form(f).assemble(MESH, a=FIELD).values),
}


def written(method, k):
    """The function with the number in its text."""
    scope = {"np": np, "fem": fem}
    text = {
        "elementwise": "lambda u, xp: xp.where(u > K, u * K + 0.5, xp.exp(-u) / K)",
        "slope": "lambda t, y, p, xp: [y[1] * K, -y[0] - K * y[1] * t]",
        "integrand": "lambda q, xp: xp.exp(-K * q[0]) * (q[1] + K)",
        "form": "lambda u, v, w: (w.a * K + np.exp(w.a / K)) * fem.dot(fem.grad(u), fem.grad(v)) + K * u * v",
    }[method]
    return eval(text.replace("K", repr(k)), scope)


@pytest.mark.parametrize("user", USERS)
def test_another_number_gives_the_new_answer_and_compiles_nothing(user, made):
    """Wherever it is read from; the bits are those of the number written in the code."""
    method, call = USERS[user]
    for place, source in SOURCES.items():
        old = call(source(method, 0.37))
        made.clear()
        for k in (0.61, 0.93, 1.37):
            got = call(source(method, k))
            assert made == {}, place
            assert not np.array_equal(got, old), place
        constant = call(written(method, 1.37))
        assert np.array_equal(call(source(method, 1.37)), constant), place


def test_numbers_of_events_are_arguments(made):
    def crossing(level):
        return lambda t, y, p, xp: y[0] - level

    def oscillator(t, y, p, xp):
        return [y[1], -p[0] * y[0]]

    def first(level):
        run = ode.solve(oscillator, [1.0, 0.0], (0.0, 3.0), p=[1.0], events=[crossing(level)], rtol=1e-10, atol=1e-12)
        return run.t_events[0].samples[0, 0]

    first(0.3)
    made.clear()
    for level in (0.35, 0.42, 0.71):
        assert abs(first(level) - np.arccos(level)) < 1e-8
    assert made == {}


def test_numbers_of_noise_are_arguments(made):
    def run(sigma, drift):
        return ode.solve(
            lambda t, y, p, xp: [drift * y[0] + p[0]], [1.0], (0.0, 1.0), method="milstein", step=0.1, p=[0.2],
            noise=lambda t, y, p, xp: [sigma * y[0]], noise_samples=np.arange(5), seed=3,
        ).y.samples  # fmt: skip

    def constant():
        return ode.solve(
            lambda t, y, p, xp: [0.37 * y[0] + p[0]], [1.0], (0.0, 1.0), method="milstein", step=0.1, p=[0.2],
            noise=lambda t, y, p, xp: [0.83 * y[0]], noise_samples=np.arange(5), seed=3,
        ).y.samples  # fmt: skip

    run(0.31, 0.13)
    made.clear()
    got = run(0.83, 0.37)
    assert made == {}
    assert np.array_equal(got, constant())


# --- numbers that decide which operations there are
STRUCTURAL = {
    "exponent": (lambda k: lambda u, xp: u**k, (1, 2, 3, 0.5, -1, 2.5, -1.5, 0)),
    "rounds": (lambda k: lambda u, xp: sum((u * j for j in range(k)), 0.0 * u), (0, 1, 2, 5)),
    "condition": (lambda k: lambda u, xp: u * k if k > 1 else u / (k + 2.0), (0, 1, 2, 3)),
    "index": (lambda k: lambda u, xp: (u, 2.0 * u, 3.0 * u)[k], (0, 1, 2)),
    "truth": (lambda k: lambda u, xp: xp.where(k, u, -u), (True, False)),
    "factor": (lambda k: lambda u, xp: k * u + u * u, (0.0, -0.0, 1.0, -1.0, 2.0, np.nan, np.inf)),
    "whole": (lambda k: lambda u, xp: xp.astype(u * 10.0, xp.int64) % k, (1, 2, 3, -4, 7)),
    "table": (lambda k: lambda u, xp: xp.interp(u, [0.0, 1.0, k], [0.0, k, 1.0]), (2.0, 3.0)),
}


@pytest.mark.parametrize("name", STRUCTURAL)
def test_numbers_that_decide_on_operations_are_seen(name):
    make, numbers = STRUCTURAL[name]
    for k in (*numbers, *reversed(numbers)):
        got = en.fuse(make(k))(X).samples
        text = np.asarray(make(k)(X.samples, np))
        np.testing.assert_allclose(got, np.broadcast_to(text, got.shape), rtol=4e-16)


@pytest.mark.parametrize("method", ["tsit5", "rodas4", "taylor"])
def test_exponents_and_units_of_right_hand_sides_are_seen(method):
    def power(k):
        return lambda t, y, p, xp: [-(y[0] ** k)]

    def decay(k):
        return lambda t, y, p, xp: [-k * y[0]]

    for k in (2, 3, 1.5, 2):
        exact = (1.0 + (k - 1.0)) ** (-1.0 / (k - 1.0))
        assert (
            abs(ode.solve(power(k), [1.0], (0.0, 1.0), method=method, rtol=1e-9, atol=1e-12).y.samples[0, 0] - exact)
            < 1e-7
        )
    for k in (0.0, 1.0, -1.0, 2.0, 0.0):
        got = ode.solve(decay(k), [1.0], (0.0, 1.0), method=method, rtol=1e-9, atol=1e-12).y.samples[0, 0]
        assert abs(got - np.exp(-k)) < 1e-7


def test_constants_in_the_code_of_a_function_stay_constants():
    def inner(x):
        return 0.125 * x

    def f(x, y, scale=3.5):
        return inner(x) + 2.5 * y - 1

    assert {0.125, 2.5, 1.0} <= literals(f)
    assert 3.5 not in literals(f)
    graph = trace(lambda x: 2.5 * x + 0.7, Scalar("float64"))
    moved, values = hoisted(graph, 1, kept=literals(f))
    assert values == [0.7] and moved.n_inputs == 2


# --- lifetimes
def test_functions_of_equal_code_share_engines(made):
    def call():
        assert np.array_equal(en.fuse(lambda u, xp: xp.where(u > 0.5, u * u, u + 1.0))(X).samples[0], first)

    first = en.fuse(lambda u, xp: xp.where(u > 0.5, u * u, u + 1.0))(X).samples[0]
    assert made_by_further_calls(call, 50, made) == {}


def test_code_that_was_not_used_lately_is_freed_and_what_is_held_goes_on(monkeypatch):
    monkeypatch.setattr(machine_code, "KEPT", 3)
    monkeypatch.setattr(machine_code, "_recent", {})

    def fused(k):
        return en.fuse(eval(f"lambda u, xp: u * {k}.25 + xp.sqrt(u)"))

    from ensemble._compile.trace import fused as module

    module._body.cache_clear()
    held = fused(100)
    expected = held(X).samples
    dead = []
    for k in range(10):
        function = fused(k)
        np.testing.assert_array_equal(function(X).samples, X.samples * (k + 0.25) + np.sqrt(X.samples))
        dead.append(weakref.ref(next(iter(function._compiled.values())).body))
        del function
        module._body.cache_clear()
    gc.collect()
    assert [each() is None for each in dead] == [True] * 7 + [False] * 3
    assert len(machine_code._recent) == 3
    np.testing.assert_array_equal(held(X).samples, expected)
    np.testing.assert_array_equal(fused(0)(X).samples, X.samples * 0.25 + np.sqrt(X.samples))  # loaded again


TEN_THOUSAND = 10_000


@pytest.mark.slow
def test_ten_thousand_calls_keep_what_is_compiled_flat():
    """Of each public function, with new functions, numbers, arrays and dtype objects: 10,000 calls, 550 each.

    No number is one that stands in the code of a function: such a one is a constant, and has code of its own.
    """
    b, calls = np.linspace(-1.0, 1.0, 36), []
    for name in LINEAR:
        calls.append(lambda k, name=name: LINEAR[name](matrix(list(FRESH.values())[k % len(FRESH)]), b))
    for method, call in USERS.values():
        sources = list(SOURCES.values())
        calls.append(
            lambda k, m=method, call=call, sources=sources: call(sources[k % len(sources)](m, 0.30003 + 1e-4 * k))
        )
    for call, k in itertools.product(calls, range(12)):
        call(k)
    before = kept()
    for k in range(TEN_THOUSAND):
        calls[k % len(calls)](12 + k)
    assert kept() == before
