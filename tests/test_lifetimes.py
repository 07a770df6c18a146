"""Memory goes back when the last name of it goes: nothing waits for a collection of garbage."""

import gc
import subprocess
import sys
import tracemalloc
import types
import weakref
from collections import Counter

import numpy as np
import pytest

import ensemble as en
from ensemble._compile.kept_memory import release_memory
from tests.lifetime_cases import PARTS, in_store, quiet

CASES = {f"{part}: {name}": call for part, calls in PARTS.items() for name, call in calls.items()}

LARGE = 16000
"""Bytes of an array that counts as large; tables of reference elements are smaller."""

OF_OTHERS = {"fem: scikit-fem"}
"""Cases that hold objects of libraries which refer to each other: a mesh of scikit-fem and its mapping."""

COMPILERS = ("numba", "llvmlite", "ensemble._compile")
"""Where the classes of compiled code begin."""


def of_library(x):
    """Whether an object, a function or a frame is of the library."""
    if isinstance(x, types.MethodType):
        return of_library(x.__func__)
    if isinstance(x, types.FrameType):
        return "/ensemble/" in x.f_code.co_filename
    kind = x if isinstance(x, types.FunctionType | type) else type(x)
    return (kind.__module__ or "").partition(".")[0] in ("ensemble", "tests")


def name_of(x):
    if isinstance(x, types.FrameType):
        return f"frame of {x.f_code.co_qualname}"
    return x.__qualname__ if isinstance(x, types.FunctionType | types.MethodType | type) else type(x).__name__


def arrays_in(result):
    """Weak references to the large arrays that a result holds, at any depth."""
    seen, pending, found = set(), [result], []
    while pending:
        x = pending.pop()
        if id(x) in seen or issubclass(type(x), types.ModuleType | type | types.FrameType | weakref.ProxyType):
            continue  # `isinstance` asks what a proxy stands for, which may be gone
        if type(x).__module__.startswith(COMPILERS):  # code: what it refers to belongs to the process
            continue
        seen.add(id(x))
        if isinstance(x, np.ndarray):
            found += [weakref.ref(x)] if x.nbytes > LARGE else []
        elif isinstance(x, types.FunctionType):
            pending += x.__closure__ or ()
        else:
            pending += gc.get_referents(x)
    return found


def left_by(call, count_arrays=True):
    """What `call` leaves when its result is dropped: large arrays that live on, and what is left to the collector.

    The latter are objects of the library by their names, and all arrays in bytes.
    """
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        result = quiet(call)
        arrays = arrays_in(result)
        del result
        alive = [a().shape for a in arrays if a() is not None] if count_arrays else []
        gc.collect()
        found = Counter(name_of(x) for x in gc.garbage if of_library(x))
        parts = [y for x in gc.garbage for y in gc.get_referents(x) if count_arrays]
        found["bytes of arrays"] = sum({id(y): y.nbytes for y in parts if isinstance(y, np.ndarray)}.values())
        del parts
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return alive, dict(+found)


@pytest.mark.parametrize("name", CASES)
def test_a_call_leaves_nothing_behind_when_its_result_is_dropped(name):
    quiet(CASES[name])  # compiling does
    found = left_by(CASES[name], name not in OF_OTHERS)
    if found != ([], {}):  # kept by a cache, once: what a call leaves, every call leaves
        found = left_by(CASES[name], name not in OF_OTHERS)
    assert found == ([], {})


def test_a_study_in_a_store_leaves_nothing_behind(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    quiet(lambda: in_store(tmp_path / "first"))
    assert left_by(lambda: in_store(tmp_path / "second")) == ([], {})


LOOPS = [
    "krylov: cg, aggregation of scattered rows", "krylov: newton", "linalg: updates", "linalg: blocks",
    "fem: nonlinear forms", "kalman: filter", "gbees: grid", "uq: study of fields", "arrays: run, errors of arrays",
]  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_holds_no_more_arrays_from_round_to_round(name):
    """Bytes of NumPy's arrays with the collector off; kept pieces of freed arrays are given back first."""
    for _ in range(2):
        quiet(CASES[name])
    of_numpy, held = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)], []
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(4):
            quiet(CASES[name])
            release_memory()
            traces = tracemalloc.take_snapshot().filter_traces(of_numpy).traces
            held.append(sum(trace.size for trace in traces))
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held[-1] - held[0] < LARGE, held


def test_errors_of_samples_say_where_they_were_raised_and_can_be_raised_again():
    def divide(v):
        return 1 // int(v)

    made = en.run(divide, en.Ensemble(np.array([0.5, 1.5])))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="modulo by zero") as raised:
            made.sample(0)
        assert raised.value is not made.errors[0] and raised.value.__notes__ == made.errors[0].__notes__
    assert made.errors[0].__traceback__ is None
    line = divide.__code__.co_firstlineno + 1
    assert made.errors[0].__notes__ == [f"Raised at {__file__}:{line} in divide."]


def test_an_error_that_no_copy_can_be_made_of_is_raised_itself():
    class BadError(Exception):
        def __init__(self, number, text):
            super().__init__(f"{number}: {text}")

    def fails(v):
        if v[0] > 0.0:
            raise BadError(3, "none")
        return v

    made = en.run(fails, en.Ensemble(np.array([[1.0, -1.0]])))
    with pytest.raises(BadError, match="3: none") as raised:
        made.sample(0)
    assert raised.value is made.errors[0]


AT_THE_END = """
import sys, threading, concurrent.futures
import numpy as np
import ensemble as en
from scipy import stats
from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation
from ensemble._compile import kept_memory

A = poisson((40, 40), n_samples=4)
M = smoothed_aggregation(A)
result = cg(A, np.ones(1600), M=M)
inputs = en.Inputs(a=stats.norm())
pool = concurrent.futures.ThreadPoolExecutor(2)
study = en.propagate(lambda x: {"y": x.a * np.ones(900)}, inputs, 64, progress=False, executor=pool, store=sys.argv[1])
store = en.uq.open_study(sys.argv[1])
failed = en.run(lambda v: 1 // int(v), en.Ensemble(np.zeros(3)))
np.kept = [kept_memory, en, kept_memory.empty((1 << 17,), float)]
threading.kept = kept_memory.empty((1 << 17,), float)
class Holder: pass
holder = Holder()
holder.itself, holder.array = holder, kept_memory.empty((1 << 17,), float)
"""


def test_nothing_is_printed_at_the_end_of_a_program_whatever_is_alive(tmp_path):
    run = subprocess.run([sys.executable, "-c", AT_THE_END, str(tmp_path / "s")], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
