"""One Runge-Kutta step of the oscillator, traced, and the loop over steps on the CPU: samples in lanes.

The noise of a step is drawn where it is used, from a counter (`noise.py`): block `b` of sample `i` has the numbers of
steps ``2 b`` and ``2 b + 1``. So the noise of a sample depends on its number and the seed alone.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.cache_folder import digest_of
from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes.arithmetic import fma
from ensemble._compile.lanes.interleaving import interleaved
from ensemble._compile.lanes.inverse_root import inverse_root_estimate
from ensemble._compile.numba import inner, thread_count, threads_for
from ensemble._compile.processor import is_zen, register_bytes
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import imports_of, lanes_function, load_module, repeated_lines
from ensemble._compile.trace.tracer import Scalar, trace

__all__ = ["PARAMETERS", "Run", "integrate", "step_graph"]

PARAMETERS = ("mass", "damping", "root_damping", "stiffness", "amplitude")

NARROW = ((8, 1), (1, 1))
"""Lanes and sets of them where few samples are left."""

DISTANCE = 5
"""Operations between a set of lanes and the next one."""

QUICK = "quick"
"""The value of a root that is estimated."""

AHEAD = 8
"""Steps from a prefetch of given noise to its use: the numbers of two steps lie on different pages.

Measured again by `benchmarks analyses`.
"""

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
{begin}
    for i in range(start, end):
        if {drawn}:
            if i % 2 == 0:
{draw}
            else:
{again}
        else:
{read}
        if {stored}:
{keep}
        f0, f1, f2 = forcing[2 * i], forcing[2 * i + 1], forcing[2 * i + 2]
        {results} = step({arguments})
    if {stored} and end == n_steps:
{keep_last}
{finish}


@compiled
def run(n, size, steps, at, end, n_steps, numbers, seed, parameters, forcing, noise, strides, h, scale, x_end, v_end,
        history, places):
    for k in prange(n):
        for start in range(0, n_steps, steps):
            for first in range(at + k * size, min(at + (k + 1) * size, end), {together}):
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


BEGIN = """x_J, v_J = load(x_end, at + J * WIDTH, WIDTH), load(v_end, at + J * WIDTH, WIDTH)
number_J = load(numbers, at + J * WIDTH, WIDTH)
e_J, later_J = zeros(x_end, WIDTH), zeros(x_end, WIDTH)
columns_J = (number_J - spread(numbers[at], WIDTH)) * strides[1]"""

DRAW = """first, second = normal_pair_{dtype}(number_J, i // 2, seed)
e_J, later_J = first * scale, second * scale"""

ROWS = f"""prefetch(noise, (i + {AHEAD}) * strides[0] + at + J * WIDTH, WIDTH)
e_J = load(noise, i * strides[0] + at + J * WIDTH, WIDTH) * scale"""

COLUMNS = "e_J = gather(noise, i * strides[0] + at * strides[1], columns_J) * scale"

KEEP = """{keep}(history, {row} * places[1], at + J * WIDTH, places[2], x_J)
{keep}(history, places[0] + {row} * places[1], at + J * WIDTH, places[2], v_J)"""

FINISH = """store(x_end, at + J * WIDTH, x_J)
store(v_end, at + J * WIDTH, v_J)"""


def source(graph: Graph, kind: Run, dtype: str, width: int, count: int) -> str:
    """The module of tiles of `count` sets of `width` lanes."""
    graph = interleaved(marked_roots(graph, kind, dtype), count, DISTANCE)
    step = lanes_function(graph, "step")
    for k, node in enumerate(graph.nodes):
        if node.value == QUICK:
            step = step.replace(f"t{k} = sqrt(", f"t{k} = quick_root_{dtype}(")
    own = ("x", "v", "e", *(f"p{k}" for k in range(len(PARAMETERS))))
    inputs = ["x", "v", "f0", "f1", "f2", "e", "h", *own[3:]]
    arguments = [
        f"{inputs[k // count]}_{k % count}" if inputs[k // count] in own else f"spread({inputs[k // count]}, WIDTH)"
        for k in graph.strong_inputs
    ]
    loads = [f"p{k}_J = load(parameters, {k} * n_samples + at + J * WIDTH, WIDTH)" for k in range(len(PARAMETERS))]
    keep = functools.partial(KEEP.format, keep="column" if kind.turned else "row")

    def each(depth: int, text: str) -> str:
        return repeated_lines(depth, text, count)

    text = MODULE.format(
        digest=digest_of("_kernels/oscillator"), imports="IMPORTS", width=width, together=width * count, step=step,
        dtype=dtype, drawn=kind.drawn, stored=kind.stored, begin=each(1, "\n".join([*loads, BEGIN])),
        draw=each(4, DRAW.format(dtype=dtype)), again=each(4, "e_J = later_J"),
        read=each(3, COLUMNS if kind.turned else ROWS), keep=each(3, keep(row="i")),
        keep_last=each(2, keep(row="n_steps")), finish=each(1, FINISH), arguments=", ".join(arguments),
        results=", ".join(f"{word}_{j}" for word in ("x", "v") for j in range(count)),
    )  # fmt: skip
    modules = (arithmetic, circular, functions, quotients, types)
    return text.replace("IMPORTS", "\n".join(filter(None, (imports_of(text, module) for module in modules))))


def marked_roots(graph: Graph, kind: Run, dtype: str) -> Graph:
    """The step whose four roots, which follow each other, have the value `QUICK` where an estimate is faster.

    In float32 every second one has: the unit for roots works on one register of lanes while products estimate another.
    """
    if register_bytes() < 64 or (is_zen() and (dtype == "float32" or not kind.drawn)):
        return graph
    roots = [k for k, node in enumerate(graph.nodes) if node.operation == "sqrt"]
    quick = roots if dtype == "float64" else roots[::2]
    nodes = (dataclasses.replace(node, value=QUICK) if k in quick else node for k, node in enumerate(graph.nodes))
    return dataclasses.replace(graph, nodes=tuple(nodes))


@functools.cache
def compiled_run(kind: Run, dtype: str, width: int, count: int) -> Any:
    return load_module(source(step_graph(dtype), kind, dtype, width, count)).run


def tiles_of(kind: Run, dtype: str) -> list[tuple[int, int]]:
    """Lanes and sets of them that are advanced together, the most first.

    Four registers, because square roots wait for each other. Two where registers hold float32 numbers and the words
    that they are drawn from, which are twice as wide, and there are 16 of them, or the processor is Zen. Six, each in
    a set of its own, where noise is given and a register has 64 bytes.
    """
    single = register_bytes() // np.dtype(dtype).itemsize
    few = kind.drawn and dtype == "float32" and (register_bytes() == 32 or is_zen())
    most = [(single, 6)] if not kind.drawn and register_bytes() == 64 and not is_zen() else []
    return [*most, (single * (2 if few else 4), 1), *NARROW]


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
        for lanes, sets in tiles_of(kind, dtype.name):
            width = lanes * sets
            count = (x.size - at) // width
            if count:
                tiles = min(GROUP // dtype.itemsize // width, -(-count // thread_count())) if moved else 1
                size, end = max(tiles, 1) * width, at + count * width
                run = compiled_run(kind, dtype.name, lanes, sets)
                run(-(-count * width // size), size, steps, at, end, *shared)
            at += count * width
