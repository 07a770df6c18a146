"""One Runge-Kutta step of the oscillator, traced, and the loop over steps on the CPU: samples in lanes.

The noise of a step is drawn where it is used, from a counter: block `b` of sample `i` is Philox 4x32-10 (Salmon et al.
2011) of the counter (i, b) and the seed, two numbers of 52 bits, and by Box and Muller two normal numbers, for steps
``2 b`` and ``2 b + 1``. So the noise of a sample depends on its number and the seed alone.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.cache_folder import digest_of
from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes.arithmetic import bits, fma, from_bits, spread
from ensemble._compile.lanes.circular import HALF_PI, cos_rest, sin_rest
from ensemble._compile.lanes.functions import LN2_SHORT, LN2_SHORT_REST, MAGIC, MAGIC_BITS, SQRT_HALF_BITS, log_rest
from ensemble._compile.lanes.inverse_root import inverse_root_estimate
from ensemble._compile.lanes.types import select, sqrt
from ensemble._compile.numba import inner, target, thread_count, threads_for
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import imports_of, lanes_function, load_module
from ensemble._compile.trace.tracer import Scalar, trace

__all__ = ["PARAMETERS", "Run", "integrate", "normal_pair", "step_graph"]

PARAMETERS = ("mass", "damping", "root_damping", "stiffness", "amplitude")

WIDTHS = {"float64": (32, 8, 1), "float32": (64, 8, 1)}
"""Samples that are advanced together: four registers, because square roots wait for each other."""

AHEAD = 8
"""Steps from a prefetch of given noise to its use: the numbers of two steps lie on different pages."""

STEPS, GROUP = 8, 8192
"""Steps that a tile takes before the next one, and the bytes of a step's noise that neighbouring tiles read in
turn: two pages."""

WORD = 0xFFFFFFFF

MODULE = '''"""Steps of an oscillator, written by ensemble; it may be deleted at any time. Built on {digest}."""

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, inner, prange
from ensemble._kernels.oscillator.steps import normal_pair, quick_root
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


@inner
def philox(c0, c1, c2, k0, k1):
    """Ten rounds of Philox 4x32 of the counter (c0, c1, c2, 0): four words, each in the low half of an int64.

    Between rounds the high halves hold anything: a product of low halves is one instruction.
    """
    c3 = c0 ^ c0
    for _ in range(10):
        high, low = (c0 & WORD) * 0xD2511F53, (c2 & WORD) * 0xCD9E8D57
        c0, c1, c2, c3 = (low >> 32) ^ c1 ^ k0, low, (high >> 32) ^ c3 ^ k1, high
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0 & WORD, c1 & WORD, c2 & WORD, c3 & WORD


LEAST = 2.0**-1022
"""Added where an inverse root is estimated, which is then finite for zero."""


@inner
def quick_root(a):
    """The root of float64 numbers of at least zero, to one unit in the last place; infinity gives NaN.

    Two steps of Newton's method from an estimate of the inverse root: a correctly rounded root takes twice the time.
    """
    y = inverse_root_estimate(a + LEAST)
    y = fma(0.5 * y, fma(-(a * y), y, 1.0), y)
    root = a * y
    return fma(0.5 * root, fma(-root, y, 1.0), root)


ONE_BITS = 0x3FF0000000000000


@inner
def uniform(high, low):
    """``(w + 1/2) * 2**-52`` of the leading 52 bits w of two words: exact."""
    return from_bits(((high << 20) | (low >> 12)) | ONE_BITS) - (1.0 - 2.0**-53)


@inner
def log_of_uniform(u):
    """The logarithm of a number from 2**-53 to 1, to about one unit in the last place: no limits to look for."""
    pattern = bits(u)
    k = (pattern - SQRT_HALF_BITS) >> 52
    f = from_bits(pattern - (k << 52)) - 1.0
    exponent = from_bits(k + MAGIC_BITS) - MAGIC
    s = f / (2.0 + f)
    z = s * s
    square = 0.5 * f * f
    low = fma(s, fma(z, log_rest(z), square), exponent * LN2_SHORT_REST)
    return fma(exponent, LN2_SHORT, f - (square - low))


@inner
def cosine_and_sine(turns):
    """Of the angle ``2 pi turns``, to about one unit in the last place; `turns` from 0 to 1, with 53 bits."""
    quarters = 4.0 * turns
    shifted = quarters + MAGIC
    r = (quarters - (shifted - MAGIC)) * HALF_PI  # at most pi / 4, from an exact difference
    n, z = bits(shifted), r * r
    sine = fma(r * z, sin_rest(z), r)
    cosine = fma(z * z, cos_rest(z), fma(z, -0.5, 1.0))
    odd = (n & 1) != 0
    first, second = select(odd, sine, cosine), select(odd, cosine, sine)
    return from_bits(bits(first) ^ (((n + 1) & 2) << 62)), from_bits(bits(second) ^ ((n & 2) << 62))


@inner
def normal_pair(number, block, seed):
    """Two standard normal numbers of each sample for `block`, in float64."""
    pair = spread(block & WORD, number)
    w0, w1, w2, w3 = philox(number, number >> 32, pair, seed & WORD, (seed >> 32) & WORD)
    radius = sqrt(-2.0 * log_of_uniform(uniform(w0, w1)))
    cosine, sine = cosine_and_sine(uniform(w2, w3))
    return radius * cosine, radius * sine


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
    step = lanes_function(graph, "step")
    if "+avx512f" in target()[2] and dtype == "float64":  # four roots follow each other in a step
        step = step.replace(" sqrt(", " quick_root(")
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
    moved = (not kind.drawn or kind.stored) and not kind.turned
    steps, at = STEPS if moved else n_steps, 0
    shared = (n_steps, numbers, seed, parameters.reshape(-1), forcing, noise, np.array(strides), dtype.type(h),
              dtype.type(scale), x, v, history, np.array(places))  # fmt: skip
    with threads_for(x.size * n_steps):
        for width in WIDTHS[dtype.name]:
            count = (x.size - at) // width
            if count:
                tiles = min(GROUP // dtype.itemsize // width, -(-count // thread_count())) if moved else 1
                size, end = max(tiles, 1) * width, at + count * width
                compiled_run(kind, dtype.name, width)(-(-count * width // size), size, steps, at, end, *shared)
            at += count * width
