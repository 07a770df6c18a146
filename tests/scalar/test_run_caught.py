"""Exceptions that code catches in a run: none that no sample alone raises reaches a handler of that code."""

import array
import bisect
import collections
import concurrent.futures
import contextlib
import copy
import ctypes
import datetime
import decimal
import fractions
import functools
import itertools
import json
import math
import operator
import pickle
import sqlite3
import statistics
import struct
import sys
import threading
import warnings

import numba
import numpy as np
import pytest

from ensemble.scalar import Ensemble, run
from ensemble.scalar.divergence.handler_code import HAS_EVENTS, with_calls_before_handlers
from tests.conftest import examples
from tests.scalar.catching_programs import TABLE, Model, catching_program, compiled_catching
from tests.scalar.programs import assert_like_scalar_runs, columns_of, outcome
from tests.walked import every

X = np.array([1.0, 2.0, 3.0, -1.0, 2.0])

MODEL = Model(2.0)


@numba.njit
def compiled(v):
    return 2.0 * v


@functools.lru_cache
def cached(v, w=1.0):
    return v * 2.0 + w


@functools.cache
def cached_for_good(v):
    return v * 3.0


OPERATIONS = {
    "dict.get": lambda v: TABLE.get(v, 0.0),
    "dict[v]": lambda v: TABLE[v],
    "v in a dict": lambda v: v in TABLE,
    "v in a set": lambda v: v in {1.0, 2.0},
    "a set of it": lambda v: len({v, 1.0, 2.0}),
    "a frozenset": lambda v: sorted(frozenset([v])),
    "hash": lambda v: hash(v) == hash(1.0),
    "a key": lambda v: sorted({v: 1, 2.0: 2}.items()),
    "Counter": lambda v: collections.Counter([v, v, 1.0])[1.0],
    "groupby": lambda v: [(k, len(list(g))) for k, g in itertools.groupby([v, 1.0, v])],
    "lru_cache": cached,
    "cache": cached_for_good,
    "list.index": lambda v: [1.0, 2.0, 3.0].index(v),
    "list.remove": lambda v: [1.0, 2.0].remove(v),
    "a tuple": lambda v: (v, 1.0) < (2.0, 0.0),
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "v * Fraction": lambda v: v * fractions.Fraction(1, 2),
    "v == Fraction": lambda v: v == fractions.Fraction(2),
    "Decimal != v": lambda v: decimal.Decimal(3) != v,
    "v < Fraction": lambda v: v < fractions.Fraction(3, 2),
    "v < Decimal": lambda v: v < decimal.Decimal(2),
    "v < text": lambda v: v < "a",
    "v + text": lambda v: v + "a",
    "v + None": lambda v: v + None,
    "[1] * v": lambda v: [1] * v,
    "v == None": lambda v: v == None,  # noqa: E711
    "timedelta": lambda v: datetime.timedelta(seconds=v).total_seconds(),
    "date": lambda v: datetime.date(2000, 1, v),
    "mean": lambda v: statistics.mean([v, 1.0]),
    "stdev": lambda v: statistics.stdev([v, 1.0]),
    "fmean": lambda v: statistics.fmean([v, 1.0]),
    "median": lambda v: statistics.median([v, 2.0, 3.0]),
    "mode": lambda v: statistics.mode([v, 2.0, 2.0]),
    "bisect": lambda v: bisect.bisect([0.0, 1.5, 9.0], v),
    "json": json.dumps,
    "json in a dict": lambda v: json.dumps({"v": [v]}),
    "pickle": lambda v: len(pickle.dumps(v)),
    "pickle and back": lambda v: pickle.loads(pickle.dumps(v)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "struct": lambda v: struct.pack("d", v),
    "ctypes": lambda v: ctypes.c_double(v).value,
    "array.array": lambda v: list(array.array("d", [v])),
    "bytes": bytes,
    "tobytes": lambda v: v.tobytes(),
    "memoryview": lambda v: memoryview(v).nbytes,
    "frombuffer": lambda v: np.frombuffer(v),
    "sqlite": lambda v: sqlite3.connect(":memory:").execute("select ?", (v,)).fetchone()[0],
    "%d": lambda v: "%d of %.2f" % (v, v),  # noqa: UP031
    "format": lambda v: f"{v:>10.2e}",
    "str": str,
    "repr": repr,
    "join": lambda v: "".join([v]),
    "hex": lambda v: v.hex(),
    "hex of an int": lambda v: hex(v),
    "as_integer_ratio": lambda v: v.as_integer_ratio(),
    "view": lambda v: int(v.view(np.int64)),
    "nbytes": lambda v: v.nbytes,
    "flat": lambda v: v.flat[0],
    "conjugate": lambda v: v.conjugate(),
    "an absent attribute": lambda v: v.magnitude,
    "an absent attribute with a default": lambda v: getattr(v, "magnitude", 7.0),
    "a present attribute with a default": lambda v: getattr(v, "hex", None) is None,
    "setattr": lambda v: setattr(v, "unit", 1),
    "float": float,
    "int": int,
    "complex": complex,
    "range": range,
    "range of an int": lambda v: list(range(int(v))),
    "a slice": lambda v: [1, 2, 3, 4][:v],
    "an index": lambda v: [1, 2, 3][v],
    "operator.index": operator.index,
    "chr": chr,
    "round": lambda v: round(v, 1),
    "divmod": lambda v: divmod(v, 2.0),
    "pow with a modulus": lambda v: pow(v, 2, 3),
    "len": len,
    "iter": list,
    "v[0]": lambda v: v[0],
    "in v": lambda v: 1.0 in v,
    "call": lambda v: v(),
    "numba": compiled,
    "math.gamma": math.gamma,
    "math.log": lambda v: math.log(v - 2.0),
    "isinstance": lambda v: isinstance(v, (int, float)),
    "a method": lambda v: MODEL.looked_up(v),
    "a method that tests types": lambda v: MODEL.checked(v),
    "map": lambda v: list(map(decimal.Decimal, [v])),
}


def caught(operation, v):
    v = v + 0.0
    try:
        return operation(v)
    except Exception as error:
        return type(error).__name__, str(error)


def caught_bare(operation, v):
    try:
        return operation(v)
    except:  # noqa: E722
        return -1.0


def caught_on_return(operation, v):
    y = -1.0
    try:
        y = operation(v)
    finally:
        return y  # noqa: B012


def suppressed(operation, v):
    with contextlib.suppress(BaseException):
        return operation(v)
    return -1.0


def suppressed_on_a_stack(operation, v):
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(Exception))
        return operation(v)
    return -1.0


def caught_in_a_generator(operation, v):
    def values():
        try:
            yield operation(v)
        except Exception:
            yield -1.0

    return list(values())


def caught_in_a_group(operation, v):
    y = -1.0
    try:
        y = operation(v)
    except* (TypeError, AttributeError):
        y = -2.0
    except* Exception:
        y = -3.0
    return y


def caught_in_a_thread(operation, v):
    found = []

    def work():
        try:
            found.append(operation(v))
        except Exception:
            found.append(-1.0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


def caught_from_a_pool(operation, v):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(operation, v).result()
        except Exception:
            return -1.0


def caught_and_raised_anew(operation, v):
    try:
        return operation(v)
    except Exception as error:
        raise RuntimeError("no value") from error


def caught_with_else(operation, v):
    try:
        y = operation(v)
    except (TypeError, AttributeError, KeyError):
        return 0.0
    else:
        return [y]
    finally:
        v = None


HANDLERS = [
    caught_bare, caught_on_return, suppressed, suppressed_on_a_stack, caught_in_a_generator, caught_in_a_group,
    caught_and_raised_anew, caught_with_else,
]  # fmt: skip


@every("loop", [None, False])
@every("name", OPERATIONS)
def test_what_code_catches_is_what_the_sample_raises_alone(name, loop):
    f = functools.partial(caught, OPERATIONS[name])
    assert_like_scalar_runs(run(f, Ensemble(X), loop=loop), f, Ensemble(X))


@pytest.mark.parametrize("handler", HANDLERS)
def test_every_kind_of_handler_is_seen(handler):
    for name, operation in OPERATIONS.items():
        f = functools.partial(handler, operation)
        result = run(f, Ensemble(X), loop=False)
        for s, v in enumerate(X):
            got, wanted = outcome(lambda s=s, result=result: result.sample(s)), outcome(lambda f=f, v=v: f(v))
            assert got == wanted, (name, v)


@pytest.mark.parametrize("handler", [caught_in_a_thread, caught_from_a_pool])
@pytest.mark.parametrize("name", ["float", "dict[v]", "v < text", "numba", "json", "str"])
def test_a_thread_that_catches_what_an_ensemble_raises_changes_no_result(handler, name):
    f = functools.partial(handler, OPERATIONS[name])
    assert_like_scalar_runs(run(f, Ensemble(X), loop=False), f, Ensemble(X))


def test_a_cache_holds_plain_values_only():
    cached.cache_clear()
    cached_for_good.cache_clear()
    run(lambda v: cached(v) + cached_for_good(v), Ensemble(X), loop=False)
    assert (cached.cache_info().currsize, cached_for_good.cache_info().currsize) == (4, 4)
    assert (cached(2.0), cached_for_good(2.0)) == (5.0, 6.0)


def test_an_exception_of_each_sample_keeps_the_samples_together():
    def absent(v):
        try:
            return v.magnitude
        except AttributeError:
            return v

    def without_length(v):
        try:
            return len(v)
        except TypeError:
            return v

    def by_name(v):
        try:
            if v > 0.0:
                raise TypeError("positive")
        except TypeError:
            return 2.0 * v
        return v

    def of_plain_values(v):
        total, values = v, iter([1.0, 2.0])
        try:
            return {"a": 1.0}["b"] + v
        except KeyError:
            pass
        while True:
            try:
                total = total + next(values)
            except StopIteration:
                return total

    x = Ensemble(np.linspace(1.0, 2.0, 300))
    for f in (absent, without_length, by_name, of_plain_values):
        result = run(f, x, loop=False)
        assert result.n_runs == 1, f
        assert_like_scalar_runs(result, f, x)


def test_warnings_that_code_records_are_those_of_the_sample():
    def counted(v):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            y = np.log(v)
        return (y, len(found)) if found else (y, 0)

    def raised(v):
        with warnings.catch_warnings(action="error"):
            try:
                return np.log(v)
            except RuntimeWarning:
                return 0.0

    for f in (counted, raised):
        result = run(f, Ensemble(X), loop=False)
        np.testing.assert_equal([result.sample(s) for s in range(X.size)], [f(v) for v in X])


class Callable:
    """An object that is called, with a handler."""

    def __call__(self, v):
        try:
            return json.dumps(v)
        except TypeError:
            return "none"


@contextlib.contextmanager
def guarded():
    with contextlib.suppress(Exception):
        yield


def in_a_guard(v):
    with guarded():
        return json.dumps(v)
    return "none"


def with_an_import(v):
    try:
        import no_such_module
    except ImportError:
        no_such_module = None
    return v if no_such_module is None else -v


def retried(v):
    for _ in range(3):
        try:
            return float(decimal.Decimal(v))
        except TypeError:
            continue
    return -1.0


@pytest.mark.parametrize("f", [Callable(), in_a_guard, with_an_import, retried, TABLE.get, decimal.Decimal])
def test_other_forms_of_functions_are_like_scalar_runs(f):
    assert_like_scalar_runs(run(f, Ensemble(X), loop=False), f, Ensemble(X))


def test_a_debugger_or_coverage_keeps_its_trace_function():
    seen = []

    def trace(frame, event, argument):
        seen.append(event)

    f = functools.partial(caught, MODEL.looked_up)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = run(f, Ensemble(X), loop=False)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert_like_scalar_runs(result, f, Ensemble(X))


@pytest.mark.skipif(HAS_EVENTS, reason="these versions of Python have events")
def test_copies_of_code_with_calls_behave_as_the_code():
    seen = []

    def many(values):
        found = []
        for value in values:
            try:
                try:
                    found.append({1: 2}[value])
                except TypeError as error:
                    found.append(str(error))
                finally:
                    found.append("end")
            except (KeyError, ValueError):
                found.append("key")
        with contextlib.suppress(ZeroDivisionError):
            found.append(1 / 0)
        return found

    copied = type(many)(with_calls_before_handlers(many.__code__, seen.append), globals())
    assert copied([1, 2, [3]]) == many([1, 2, [3]])
    assert [type(error).__name__ for error in seen] == ["KeyError"] * 3 + ["TypeError", "ZeroDivisionError"]
    functions = [f for f in vars(statistics).values() if isinstance(f, type(many))]
    copies = [with_calls_before_handlers(f.__code__, seen.append) for f in functions]
    assert any(other is not f.__code__ for other, f in zip(copies, functions, strict=True))
    assert all(len(list(code.co_positions())) == len(code.co_code) // 2 for code in copies)


def differences_of(seed):
    """The samples in which a run of a random program with handlers differs from runs alone, and how many there were."""
    source, columns = catching_program(seed), columns_of(seed, 3)
    differing, n_results, alone = [], 0, compiled_catching(source)
    for loop in (None, False):
        with np.errstate(all="ignore"):
            result = run(compiled_catching(source), *(Ensemble(column) for column in columns), loop=loop)
        for s in range(result.n_samples):
            wanted = outcome(lambda s=s: alone(*[column[s] for column in columns]))
            if outcome(lambda result=result, s=s: result.sample(s)) != wanted:
                differing.append((seed, s, loop))
            n_results += 1
    return differing, n_results


@pytest.mark.filterwarnings("ignore")
def test_programs_with_tables_and_handlers_give_what_scalar_runs_give():
    count = examples(200)
    assert [differences_of(seed)[0] for seed in range(60_000, 60_000 + count)] == [[]] * count


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_twenty_thousand_programs_with_tables_and_handlers():
    found = [differences_of(seed) for seed in range(100_000, 120_000)]
    assert [differing for differing, _ in found if differing] == []
    assert sum(n_results for _, n_results in found) > 300_000
