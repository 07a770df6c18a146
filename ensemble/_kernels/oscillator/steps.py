"""One Runge-Kutta step of the oscillator, traced, and the loop over steps on the CPU: samples in lanes.

The noise of a step is drawn where it is used, from a counter (`noise.py`): block `b` of sample `i` has the numbers of
steps ``2 b`` and ``2 b + 1``. So the noise of a sample depends on its number and the seed alone.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.cache_folder import digest_of
from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes.arithmetic import fma
from ensemble._compile.lanes.inverse_root import inverse_root_estimate
from ensemble._compile.numba import inner, thread_count, threads_for
from ensemble._compile.processor import is_zen, register_bytes
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import imports_of, lanes_function, load_module
from ensemble._compile.trace.tracer import Scalar, trace

__all__ = ["PARAMETERS", "Run", "integrate", "step_graph"]

PARAMETERS = ("mass", "damping", "root_damping", "stiffness", "amplitude")

NARROW = (8, 1)
"""Samples that are advanced together where fewer are left than `widest` ones."""

AHEAD = 8
"""Steps from a prefetch of given noise to its use: the numbers of two steps lie on different pages."""

STEPS, GROUP = 8, 8192
"""Steps that a tile takes before the next one, and the bytes of a step's noise that neighbouring tiles read in
turn: two pages."""

MODULE = '''"""Steps of an oscillator, written by ensemble; it may be deleted at any time. Built on {digest}."""

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, inner, prange
from ensemble._kernels.oscillator.noise import normal_pair_{dtype}
from ensemble._kernels.oscillator.steps import quick_root_{dtype}
{imports}

WIDTH = {width}


@inner
{step}


@inner
def row(history, first, at, step, values):
    store(history, first + at, values)


@inner
def column(history, first, at, step, values):
    for k in range(WIDTH):
        history[first + (at + k) * step] = lane(values, k)


@compiled_serial
def tile(at, start, end, n_steps, numbers, seed, parameters, forcing, noise, strides, h, scale, x_end, v_end, history,
         places):
    n_samples = numbers.size
{parameters}
    x, v = load(x_end, at, WIDTH), load(v_end, at, WIDTH)
    number = load(numbers, at, WIDTH)
    e, later = zeros(x_end, WIDTH), zeros(x_end, WIDTH)
    columns = (number - spread(numbers[at], WIDTH)) * strides[1]
    for i in range(start, end):
        if {drawn}:
            if i % 2 == 0:
                first, second = normal_pair_{dtype}(number, i // 2, seed)
                e, later = first * scale, second * scale
            else:
                e = later
        else:
            {read}
        if {stored}:
            {keep}(history, i * places[1], at, places[2], x)
            {keep}(history, places[0] + i * places[1], at, places[2], v)
        f0, f1, f2 = forcing[2 * i], forcing[2 * i + 1], forcing[2 * i + 2]
        x, v = step({arguments})
    if {stored} and end == n_steps:
        {keep}(history, n_steps * places[1], at, places[2], x)
        {keep}(history, places[0] + n_steps * places[1], at, places[2], v)
    store(x_end, at, x)
    store(v_end, at, v)


@compiled
def run(n, size, steps, at, end, n_steps, numbers, seed, parameters, forcing, noise, strides, h, scale, x_end, v_end,
        history, places):
    for k in prange(n):
        for start in range(0, n_steps, steps):
            for first in range(at + k * size, min(at + (k + 1) * size, end), WIDTH):
                tile(first, start, min(start + steps, n_steps), n_steps, numbers, seed, parameters, forcing, noise,
                     strides, h, scale, x_end, v_end, history, places)
'''


class Run(NamedTuple):
    """What a run computes besides the last values."""

    drawn: bool
    """Noise from the counter; otherwise it is given."""
    stored: bool
    """All values are kept."""
    turned: bool = False
    """Times run fastest in memory."""


LEAST_FLOAT32, LEAST_FLOAT64 = 2.0**-126, 2.0**-1022
"""Added where an inverse root is estimated, which is then finite for zero."""


@inner
def quick_root_float32(a):
    """The root to one unit in the last place of numbers that are zero or 2**25 times the least one and more.

    Infinity gives NaN. A step of Newton's method from an estimate of the inverse root.
    """
    y = inverse_root_estimate(a + LEAST_FLOAT32)
    root = a * y
    return fma(0.5 * y, fma(-root, root, a), root)


@inner
def quick_root_float64(a):
    """The same with two steps: a correctly rounded root takes twice the time."""
    y = inverse_root_estimate(a + LEAST_FLOAT64)
    y = fma(0.5 * y, fma(-(a * y), y, 1.0), y)
    root = a * y
    return fma(0.5 * root, fma(-root, y, 1.0), root)


def step_graph(dtype: str) -> Graph:
    """A step of the classical Runge-Kutta method of ``m x'' + c x' + r sgn(x') |x'|^0.5 + k x = A (f(t) + e)``.

    Inputs: x, v, the forces at the start, middle and end of the step, the noise, held over the step, the step size and
    `PARAMETERS`.
    """
    number = Scalar(dtype)
    return contracted(trace(rk4_step, *[number] * 7, [number] * len(PARAMETERS), function="oscillator"))


def rk4_step(x: Any, v: Any, f0: Any, f1: Any, f2: Any, e: Any, h: Any, parameters: Any) -> Any:
    """The values after one step."""
    xp = x.__array_namespace__()
    inverse, half = 1.0 / parameters[0], 0.5 * h
    damping, root_damping, stiffness, amplitude = (value * inverse for value in parameters[1:])

    def acceleration(x: Any, v: Any, f: Any) -> Any:  # the root is the last to be known
        known = amplitude * (f + e) - stiffness * x - damping * v
        return known - root_damping * xp.copysign(xp.sqrt(xp.abs(v)), v)

    a1 = acceleration(x, v, f0)
    v2 = v + half * a1
    a2 = acceleration(x + half * v, v2, f1)
    v3 = v + half * a2
    a3 = acceleration(x + half * v2, v3, f1)
    v4 = v + h * a3
    a4 = acceleration(x + h * v3, v4, f2)
    sixth = h / 6.0
    return x + sixth * (v + 2.0 * (v2 + v3) + v4), v + sixth * (a1 + 2.0 * (a2 + a3) + a4)


ROWS = (
    "prefetch(noise, (i + AHEAD) * strides[0] + at, WIDTH)\n            "
    "e = load(noise, i * strides[0] + at, WIDTH) * scale"
)
COLUMNS = "e = gather(noise, i * strides[0] + at * strides[1], columns) * scale"


def source(graph: Graph, kind: Run, dtype: str, width: int) -> str:
    """The module of one width."""
    step = with_quick_roots(lanes_function(graph, "step"), kind, dtype)
    words = ["x", "v", "f0", "f1", "f2", "e", "h", *(f"p{k}" for k in range(len(PARAMETERS)))]
    arguments = [words[position] for position in graph.strong_inputs]
    lanes = [f"spread({word}, WIDTH)" if word in ("f0", "f1", "f2", "h") else word for word in arguments]
    text = MODULE.format(
        digest=digest_of("_kernels/oscillator"), imports="IMPORTS", width=width, step=step, dtype=dtype,
        drawn=kind.drawn, stored=kind.stored, keep="column" if kind.turned else "row",
        read=COLUMNS if kind.turned else ROWS.replace("AHEAD", str(AHEAD)),
        parameters="\n".join(
            f"    p{k} = load(parameters, {k} * n_samples + at, WIDTH)" for k in range(len(PARAMETERS))
        ),
        arguments=", ".join(lanes),
    )  # fmt: skip
    modules = (arithmetic, circular, functions, quotients, types)
    return text.replace("IMPORTS", "\n".join(filter(None, (imports_of(text, module) for module in modules))))


def with_quick_roots(step: str, kind: Run, dtype: str) -> str:
    """The text of a step whose four roots, which follow each other, are estimated where that is faster.

    In float32 every second one is: the unit for roots works on one register of lanes while products estimate another.
    """
    quick = f" quick_root_{dtype}("
    if register_bytes() < 64 or (is_zen() and (dtype == "float32" or not kind.drawn)):
        return step
    if dtype == "float64":
        return step.replace(" sqrt(", quick)
    first, *others = step.split(" sqrt(")
    return first + "".join((" sqrt(" if k % 2 else quick) + part for k, part in enumerate(others))


@functools.cache
def compiled_run(kind: Run, dtype: str, width: int, graph: Graph | None = None) -> Any:
    return load_module(source(graph or step_graph(dtype), kind, dtype, width)).run


def widest(kind: Run, dtype: str) -> int:
    """Samples that are advanced together: four registers, because square roots wait for each other.

    Two where registers hold float32 numbers and the words that they are drawn from, which are twice as wide, and there
    are 16 of them, or the processor is Zen: its time for more is 40 or 70 ms, by where the stack lies.
    """
    registers = 2 if kind.drawn and dtype == "float32" and (register_bytes() == 32 or is_zen()) else 4
    return registers * register_bytes() // np.dtype(dtype).itemsize


def integrate(
    kind: Run, n_steps: int, numbers: np.ndarray, seed: int, parameters: np.ndarray, forcing: np.ndarray,
    noise: np.ndarray, strides: tuple[int, int], h: float, scale: float, x: np.ndarray, v: np.ndarray,
    history: np.ndarray, places: tuple[int, int, int],
) -> None:  # fmt: skip
    """Advance `x` and `v`, shape (n_samples,), in place.

    Noise of step i and sample s stands at ``i * strides[0] + s * strides[1]`` of the flat `noise`, quantity q of step i
    at ``q * places[0] + i * places[1] + s * places[2]`` of the flat `history`.
    """
    dtype = x.dtype
    kind = kind._replace(turned=(not kind.drawn and strides[1] != 1) or (kind.stored and places[2] != 1))
    moved = (not kind.drawn or kind.stored) and not kind.turned
    steps, at = STEPS if moved else n_steps, 0
    shared = (n_steps, numbers, seed, parameters.reshape(-1), forcing, noise, np.array(strides), dtype.type(h),
              dtype.type(scale), x, v, history, np.array(places))  # fmt: skip
    with threads_for(x.size * n_steps):
        for width in (widest(kind, dtype.name), *NARROW):
            count = (x.size - at) // width
            if count:
                tiles = min(GROUP // dtype.itemsize // width, -(-count // thread_count())) if moved else 1
                size, end = max(tiles, 1) * width, at + count * width
                compiled_run(kind, dtype.name, width)(-(-count * width // size), size, steps, at, end, *shared)
            at += count * width
