"""Memory goes back when the last name of it goes: nothing waits for a collection of garbage."""

import gc
import types
import weakref
from collections import Counter

import numpy as np
import pytest

from tests.lifetime_cases import PARTS, quiet

CASES = {f"{part}: {name}": call for part, calls in PARTS.items() for name, call in calls.items()}

LARGE = 16000
"""Bytes of an array that counts as large; tables of reference elements are smaller."""

OF_OTHERS = {"fem: scikit-fem"}
"""Cases that hold objects of libraries which refer to each other: a mesh of scikit-fem and its mapping."""


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
        if id(x) in seen or isinstance(x, types.ModuleType | type | types.FrameType):
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
    assert left_by(CASES[name], name not in OF_OTHERS) == ([], {})
