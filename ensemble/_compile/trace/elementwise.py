"""The loop over chunks of an elementwise function, and scalar functions that generated code calls.

A result is computed in chunks of `CHUNK` elements. An operand that is laid out like the result is read where
it stands; one that broadcasts is spread over a chunk-sized buffer, which stays in the first-level cache. So the
arithmetic is always one flat loop, and one compiled body serves every broadcasting. Bodies are C functions: the loop
over chunks is compiled once for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ensemble._compile.c_functions import call_elements, pointer_at
from ensemble._compile.lanes.types import fence, library_function
from ensemble._compile.numba import array_at, compiled, compiled_procedure, compiled_serial, inner, prange
from ensemble._compile.trace.broadcast import CHUNK, FLAT
from ensemble._compile.trace.operations import OPERATIONS
from ensemble._typing import Array

CHUNKS = 16
"""Chunks that a thread takes at a time."""

WORDS, HALVES, BYTES = (np.empty(0, dtype) for dtype in (np.int64, np.int32, np.int8))
"""Elements are copied as integers of their size."""

F = TypeVar("F", bound=Callable[..., Any])

serial: Callable[[F], F] = compiled_serial

# --- operands
# `plan` is an int64 table: row 0 holds the number of axes and the shape of the result, row k + 1 the mode of operand k
# and its strides in elements, the last row the elements of a chunk: whole rows where the last axis fits into `CHUNK`.


@serial
def offset_of(row: int, plan: Array, k: int) -> Any:
    """Where row `row` of operand `k` starts, in elements; all axes but the last make up the rows."""
    offset = 0
    for axis in range(plan[0, 0] - 1, 1, -1):
        offset += (row % plan[0, axis]) * plan[k + 1, axis]
        row //= plan[0, axis]
    return offset + row * plan[k + 1, 1]


@serial
def fill(rows: Array, source: Array, first: int, stride: int) -> None:
    """Spread one value over each row."""
    for r in range(rows.shape[0]):
        value = source[first + r * stride]
        for c in range(rows.shape[1]):
            rows[r, c] = value


@serial
def fill_8(rows: Array, source: Array, first: int, stride: int) -> None:
    """The same for rows of a multiple of eight: no remainder loop, and one store for eight."""
    for r in range(rows.shape[0]):
        value = source[first + r * stride]
        for block in range(rows.shape[1]):
            for lane in range(8):
                rows[r, block, lane] = value


@serial
def spread_rows(source: Array, plan: Array, k: int, start: int, count: int, buffer: Array) -> None:
    """Copy the rows of an operand of two axes with the elements from `start` on, which begin and end with a row."""
    inner, stride, step = plan[0, 2], plan[k + 1, 1], plan[k + 1, 2]
    first, n_rows = start // inner, count // inner
    if step == 0 and inner % 8 == 0:
        fill_8(buffer[:count].reshape(n_rows, inner // 8, 8), source, first * stride, stride)
    elif step == 0:
        fill(buffer[:count].reshape(n_rows, inner), source, first * stride, stride)
    else:
        rows = buffer[:count].reshape(n_rows, inner)
        for r in range(n_rows):
            offset = (first + r) * stride
            for c in range(inner):
                rows[r, c] = source[offset + c * step]


@serial
def spread(source: Array, plan: Array, k: int, start: int, count: int, buffer: Array) -> None:
    """``buffer[:count]`` = elements ``start : start + count`` of the broadcast operand `k`, whatever its axes."""
    n_axes = plan[0, 0]
    inner, step = plan[0, n_axes], plan[k + 1, n_axes]
    row, column, at = start // inner, start % inner, 0
    while at < count:
        offset = (offset_of(row, plan, k) if n_axes > 1 else 0) + column * step
        target = buffer[at : min(at + inner - column, count)]
        for i in range(target.size):
            target[i] = source[offset + i * step]
        at, row, column = at + target.size, row + 1, 0


@serial
def fill_buffer(address, place, like, plan, k, first, start, count):
    """Elements ``start : start + count`` of operand `k` at `place`; the chunks of a thread began at `first`."""
    source, buffer = array_at(pointer_at(address, like), 1), array_at(pointer_at(place, like), CHUNK)
    if plan[0, 0] != 2 or plan[0, 2] > CHUNK:
        spread(source, plan, k, start, count, buffer)
    elif start == first or plan[k + 1, 1] != 0:  # the same for every row: it is there from the first chunk on
        spread_rows(source, plan, k, start, count, buffer)


# --- chunks
RESULT = -1
"""The row of an array that is written: it has none in `plan`."""


@inner
def span(body, first, last, streamed, plan, table, n_operands, numbers):
    """Elements `first` to `last` of the results, by the C function at `body` (`lanes/elementwise_loop.py`).

    `table` has the address of each operand and result, the bytes of an element, and the row in `plan` or `RESULT`.
    """
    n, size = table.size // 3, plan[-1, 0]
    places, buffers = np.empty(n, np.int64), np.empty((n_operands, CHUNK), np.int64)
    for start in range(first, last, size):
        count = min(size, last - start)
        for k in range(n):
            address, itemsize, row = table[3 * k], table[3 * k + 1], table[3 * k + 2]
            place = address + start * itemsize
            if row != RESULT and plan[row + 1, 0] != FLAT:
                place = buffers.ctypes.data + 8 * CHUNK * k
                if itemsize == 8:
                    fill_buffer(address, place, WORDS, plan, row, first, start, count)
                elif itemsize == 4:
                    fill_buffer(address, place, HALVES, plan, row, first, start, count)
                else:
                    fill_buffer(address, place, BYTES, plan, row, first, start, count)
            places[k] = place
        call_elements(body, (places, count, streamed, numbers))
    if streamed:
        fence()


@compiled_procedure
def one_span(body, first, last, streamed, plan, table, n_operands, numbers):
    """`span` for a caller in Python."""
    span(body, first, last, streamed, plan, table, n_operands, numbers)


@compiled
def spans(body, n, streamed, plan, table, n_operands, numbers):
    """The same for `n` elements, by all threads."""
    size = CHUNKS * plan[-1, 0]
    for block in prange((n + size - 1) // size):
        first = np.int64(block) * size
        span(body, first, min(n, first + size), streamed, plan, table, n_operands, numbers)


# --- scalar functions
_one, _two = (functools.partial(library_function, arity=arity) for arity in (1, 2))
acos, acosh, asin, asinh, atan, atanh = map(_one, ("acos", "acosh", "asin", "asinh", "atan", "atanh"))
cos, cosh, sin, sinh, tan, tanh = map(_one, ("cos", "cosh", "sin", "sinh", "tan", "tanh"))
exp, expm1, log, log10, log1p, log2 = map(_one, ("exp", "expm1", "log", "log10", "log1p", "log2"))
atan2, copysign, fmod, hypot, power = map(_two, ("atan2", "copysign", "fmod", "hypot", "pow"))


@serial
def floor_divide(a: Any, b: Any) -> Any:
    """NumPy's: the floor of the exact quotient."""
    if b == 0:
        return a / b
    rest = fmod(a, b)
    quotient = (a - rest) / b
    if rest != 0 and (b < 0) != (rest < 0):
        quotient -= 1.0
    if quotient == 0:
        return copysign(0.0, a / b)
    whole = np.floor(quotient)
    return whole + 1.0 if quotient - whole > 0.5 else whole


@serial
def remainder(a: Any, b: Any) -> Any:
    """NumPy's: of the sign of the divisor."""
    rest = fmod(a, b)
    if b == 0:
        return rest
    if rest == 0:
        return copysign(0.0, b)
    return rest + b if (b < 0) != (rest < 0) else rest


@serial
def floor_divide_int(a: Any, b: Any) -> Any:
    """NumPy's: rounded down; zero for a divisor of zero."""
    if b == 0:
        return a * 0
    if b == -1:  # the smallest integer over -1 wraps around; the processor's division would trap
        return -a
    return a // b


@serial
def remainder_int(a: Any, b: Any) -> Any:
    """NumPy's: of the sign of the divisor; zero for a divisor of zero or minus one."""
    if b == 0 or b == -1:
        return a * 0
    return a % b


@serial
def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN stays."""
    return 1 if x > 0 else -1 if x < 0 else 0 if x == 0 else x


SCALAR_FUNCTIONS = sorted(
    {"copysign", "floor_divide", "floor_divide_int", "power", "remainder", "remainder_int", "sign"}
    | {name for name, operation in OPERATIONS.items() if operation.libm and name != "pow"}
)
"""The names above that generated source may call."""
