"""Interrupts at any moment leave LLVM's memory and locks as they should be: it runs where none is raised."""

import ctypes
import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from numba import types

from ensemble._compile.kernel_cache import cached_c_function
from ensemble._compile.machine_code import Module, kept_code
from ensemble._compile.numba import (
    compiled,
    compiled_arrays,
    compiled_procedure,
    compiled_regions,
    compiled_serial,
    prange,
)
from ensemble._interrupts import shielded

TEXT = "define i64 @f(i64 %x) {{\n  %y = add i64 %x, {}\n  ret i64 %y\n}}\n"


def scale(x, factor):
    n = x.size
    for i in prange(n):
        x[i] *= factor


HELD = []
"""Compiled functions: where one is dropped, its code is disposed of."""


def held(function):
    HELD.append(function)
    return function


def code():
    made = kept_code(f"shielded {time.time_ns()}", lambda: Module(TEXT.format(7), ()), ["f"], str)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made["f"])(5) == 12


def loop():
    x = np.arange(4.0)
    held(compiled(scale))(x, 3.0)
    assert x.tolist() == [0.0, 3.0, 6.0, 9.0]


def loop_by_numba():
    x = np.arange(4.0)
    held(compiled_regions(scale))(x, 3.0)
    assert x.tolist() == [0.0, 3.0, 6.0, 9.0]


def one(x, low, high):
    return 1


def address():
    assert held(compiled_procedure(one)).address(np.zeros(2), 0, 1)


WAYS = {
    "code": code,
    "loop": loop,
    "loop, address": address,
    "loop by Numba": loop_by_numba,
    "serial": lambda: held(compiled_serial(lambda x: x + 1.5))(2.0),
    "serial, compiled before": lambda: held(compiled_serial(lambda x: x + 2.5)).compile((types.float64,)),
    "arrays": lambda: held(compiled_arrays(lambda x: x.copy()))(np.zeros(3)),
    "C function": lambda: held(cached_c_function("float64(float64)")(lambda x: x + 3.5)),
}
"""Ways in which this library has code made, or loaded."""


@pytest.mark.parametrize("way", WAYS)
def test_no_line_of_llvmlite_runs_in_the_thread_of_the_caller(way):
    seen = set()

    def note(frame, event, _):
        if "llvmlite" in frame.f_code.co_filename and "binding" in frame.f_code.co_filename:
            seen.add(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)

    before = sys.gettrace()
    gc.disable()  # a collection disposes of Numba's objects in any thread
    sys.settrace(note)
    try:
        WAYS[way]()
    finally:
        sys.settrace(before)
        gc.enable()
    assert not seen


def test_a_call_returns_raises_and_nests():
    threads = []

    def inside():
        threads.append(threading.current_thread())
        return shielded(lambda: threads.append(threading.current_thread()) or 5)

    assert shielded(inside) == 5
    assert threads[0] is threads[1] is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        shielded(lambda: 1 // 0)


@pytest.mark.slow
def test_hundreds_of_interrupts_while_code_is_made_and_loaded_break_nothing():
    """Of the first 10 s without `shielded` one crashed in two."""
    program = "from tests.test_shielded import interrupted; interrupted(20.0)"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True, timeout=120.0
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 200 and not done.stderr


def interrupted(seconds):
    """Make and load code while a handler raises at random moments; print how often it did."""
    import random
    import signal

    class HitError(Exception):
        """Raised by the handler."""

    def raise_here(number, frame):
        raise HitError

    signal.signal(signal.SIGALRM, raise_here)
    rng, until, hits = random.Random(3), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-3))
            code()
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except HitError:
            hits += 1
    code()
    print(hits)
