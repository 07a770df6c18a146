"""One Runge-Kutta step of the oscillator, traced, and the loop over steps on the CPU: samples in lanes.

The noise of a step is drawn where it is used, from a counter: block `b` of sample `i` is Philox 4x32-10 (Salmon et al.
2011) of the counter (i, b) and the seed, two numbers of 52 bits, and by Box and Muller two normal numbers, for steps
``2 b`` and ``2 b + 1``. So the noise of a sample depends on its number and the seed alone.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kernel_cache import digest_of
from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes.arithmetic import as_float64, spread
from ensemble._compile.lanes.circular import cos, sin
from ensemble._compile.lanes.functions import log
from ensemble._compile.lanes.types import sqrt
from ensemble._compile.numba import inner, threads_for
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import imports_of, lanes_function, load_module
from ensemble._compile.trace.tracer import Scalar, trace

__all__ = ["PARAMETERS", "Run", "integrate", "normal_pair", "step_graph"]

PARAMETERS = ("mass", "damping", "root_damping", "stiffness", "amplitude")

WIDTHS = {"float64": (32, 8, 1), "float32": (64, 8, 1)}
"""Samples that are advanced together: four registers, because square roots wait for each other."""

AHEAD = 8
"""Steps from a prefetch of given noise to its use: the numbers of two steps lie on different pages."""

WORD = 0xFFFFFFFF

MODULE = '''"""Steps of an oscillator, written by ensemble; it may be deleted at any time. Built on {digest}."""

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, inner, prange
from ensemble._kernels.oscillator.steps import normal_pair
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
def tile(at, n_steps, numbers, seed, parameters, forcing, noise, strides, h, scale, x_end, v_end, history, places):
    n_samples = numbers.size
{parameters}
    x, v = load(x_end, at, WIDTH), load(v_end, at, WIDTH)
    number = load(numbers, at, WIDTH)
    e, later = zeros(x_end, WIDTH), zeros(x_end, WIDTH)
    columns = (number - spread(numbers[at], WIDTH)) * strides[1]
    for i in range(n_steps):
        if {drawn}:
            if i % 2 == 0:
                first, second = normal_pair(number, i // 2, seed)
                e, later = as_{dtype}(first) * scale, as_{dtype}(second) * scale
            else:
                e = later
        else:
            {read}
        if {stored}:
            {keep}(history, i * places[1], at, places[2], x)
            {keep}(history, places[0] + i * places[1], at, places[2], v)
        f0, f1, f2 = forcing[2 * i], forcing[2 * i + 1], forcing[2 * i + 2]
        x, v = step({arguments})
    if {stored}:
        {keep}(history, n_steps * places[1], at, places[2], x)
        {keep}(history, places[0] + n_steps * places[1], at, places[2], v)
    store(x_end, at, x)
    store(v_end, at, v)


@compiled
def run(n, at, n_steps, numbers, seed, parameters, forcing, noise, strides, h, scale, x_end, v_end, history, places):
    for k in prange(n):
        tile(at + k * WIDTH, n_steps, numbers, seed, parameters, forcing, noise, strides, h, scale, x_end, v_end,
             history, places)
'''


class Run(NamedTuple):
    """What a run computes besides the last values."""

    drawn: bool
    """Noise from the counter; otherwise it is given."""
    stored: bool
    """All values are kept."""
    turned: bool = False
    """Times run fastest in memory."""


@inner
def philox(c0, c1, c2, k0, k1):
    """Ten rounds of Philox 4x32 of the counter (c0, c1, c2, 0): four words, each in the low half of an int64."""
    c3 = c0 ^ c0
    for _ in range(10):
        high, low = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c2 = ((low >> 32) & WORD) ^ c1 ^ k0, ((high >> 32) & WORD) ^ c3 ^ k1
        c1, c3 = low & WORD, high & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


@inner
def normal_pair(number, block, seed):
    """Two standard normal numbers of each sample for `block`, in float64."""
    pair = spread(block & WORD, number)
    w0, w1, w2, w3 = philox(number & WORD, (number >> 32) & WORD, pair, seed & WORD, (seed >> 32) & WORD)
    first = (as_float64((w0 << 20) | (w1 >> 12)) + 0.5) * 2.0**-52
    angle = (as_float64((w2 << 20) | (w3 >> 12)) + 0.5) * (6.283185307179586 * 2.0**-52)
    radius = sqrt(-2.0 * log(first))
    return radius * cos(angle), radius * sin(angle)


def step_graph(dtype: str) -> Graph:
    """A step of the classical Runge-Kutta method of ``m x'' + c x' + r sgn(x') |x'|^0.5 + k x = A (f(t) + e)``.

    Inputs: x, v, the forces at the start, middle and end of the step, the noise, held over the step, the step size and
    `PARAMETERS`.
    """
    number = Scalar(dtype)
    return trace(rk4_step, *[number] * 7, [number] * len(PARAMETERS), function="oscillator")


def rk4_step(x: Any, v: Any, f0: Any, f1: Any, f2: Any, e: Any, h: Any, parameters: Any) -> Any:
    """The values after one step."""
    xp = x.__array_namespace__()
    mass, damping, root_damping, stiffness, amplitude = parameters
    inverse, half = 1.0 / mass, 0.5 * h

    def acceleration(x: Any, v: Any, f: Any) -> Any:
        root = root_damping * xp.copysign(xp.sqrt(xp.abs(v)), v)
        return (amplitude * (f + e) - damping * v - root - stiffness * x) * inverse

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
    step = lanes_function(graph, "step")
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


@functools.cache
def compiled_run(kind: Run, dtype: str, width: int, graph: Graph | None = None) -> Any:
    return load_module(source(graph or step_graph(dtype), kind, dtype, width)).run


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
    at = 0
    shared = (n_steps, numbers, seed, parameters.reshape(-1), forcing, noise, np.array(strides), dtype.type(h),
              dtype.type(scale), x, v, history, np.array(places))  # fmt: skip
    with threads_for(x.size * n_steps):
        for width in WIDTHS[dtype.name]:
            count = (x.size - at) // width
            if count:
                compiled_run(kind, dtype.name, width)(count, at, *shared)
            at += count * width
