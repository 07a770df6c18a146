"""The recursions for one size (nx, ny) as a module: straight-line code around which series and steps loop.

Longer than 400 lines: the statements of a step and the loops around them share their names.

The same statements are compiled for one series at a time, in scalars, and for several in lanes of SIMD registers, so
both round alike. Lanes work on a tile: a few steps of its series are copied into small buffers whose last axis is the
series, and results are copied out again, so arrays may have any strides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ensemble._kernels.kalman import step
from ensemble._kernels.kalman.statements import CONSTANTS, Symbol, Writer

__all__ = ["RECURSIONS", "lanes_of", "module_source"]

BLOCK = 4
"""Steps that a tile copies at a time."""

DESCRIPTOR = 4
"""Numbers that describe an array: its address, and its strides over series, steps of time and entries."""


def lanes_of(dtype: Any) -> int:
    """Numbers in a SIMD register of the widest kind."""
    return 64 // np.dtype(dtype).itemsize


@dataclass(frozen=True)
class Recursion:
    """What one recursion reads, carries and writes; kinds name axes: "nn" is (nx, nx), "1" one number.

    Inputs in `shared` are the same for all series.
    """

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    stages: Callable[[int, int], list[tuple[Writer, dict[str, Any]]]]
    backward: bool = False
    carried: tuple[tuple[str, str], ...] = (("m", "n"), ("P", "nn"))
    shared: tuple[str, ...] = ()
    single_stage: Callable[[int, int], list[tuple[Writer, dict[str, Any]]]] | None = None
    """The stages as one, whose prediction changes nothing where F is the identity and Q and u are zero."""


def count_of(kind: str, nx: int, ny: int) -> int:
    """The number of entries of a kind."""
    return math.prod({"n": nx, "y": ny, "1": 1}[letter] for letter in kind)


def _matrix(writer: Writer, name: str, rows: int, columns: int) -> list[list[Symbol]]:
    return [[Symbol(writer, f"{name}_{i * columns + j}") for j in range(columns)] for i in range(rows)]


def _vector(writer: Writer, name: str, n: int) -> list[Symbol]:
    return [Symbol(writer, f"{name}_{i}") for i in range(n)]


def _symmetric(writer: Writer, name: str, n: int) -> list[list[Symbol]]:
    """A matrix whose entries below the diagonal are those above."""
    return [[Symbol(writer, f"{name}_{min(i, j) * n + max(i, j)}") for j in range(n)] for i in range(n)]


def _carried(writer: Writer, name: str, n: int) -> list[list[Symbol]]:
    """A symmetric matrix that is stored in full: the entries of a column contiguous."""
    return [[Symbol(writer, f"{name}_{j * n + i}") for j in range(n)] for i in range(n)]


Stage = tuple[Writer, dict[str, Any]]


def _two_stages(predict: Callable[..., Any], update: Callable[..., Any], nx: int, ny: int) -> list[Stage]:
    """Prediction, left out at a prior at the first observation, and update."""
    o, then = Writer(), Writer()
    state = predict(o, nx)
    updated = update(then, nx, ny, _vector(then, "m", nx), _carried(then, "P", nx))
    return [(o, dict(zip(("m", "P"), state, strict=False))), (then, updated)]


def _one_stage(predict: Callable[..., Any], update: Callable[..., Any], nx: int, ny: int) -> list[Stage]:
    """Prediction and update, without a detour by memory."""
    o = Writer()
    state = predict(o, nx)
    return [(o, update(o, nx, ny, *state, *([None] * (2 - len(state)))))]


def _predicted(o: Writer, nx: int) -> tuple[Any, ...]:
    m, P = _vector(o, "m", nx), _carried(o, "P", nx)
    return step.predict(o, _matrix(o, "F", nx, nx), _symmetric(o, "Q", nx), _vector(o, "u", nx), m, P)


def _updated(o: Writer, nx: int, ny: int, m: Any, P: Any) -> dict[str, Any]:
    results = _updated_with_gain(o, nx, ny, m, P)
    return {name: results[name] for name in ("m", "P", "mean", "cov", "quad", "piv")}


def _updated_with_gain(o: Writer, nx: int, ny: int, m: Any, P: Any) -> dict[str, Any]:
    """The update, which also writes its gains and the factors of S."""
    parts = (_matrix(o, "H", ny, nx), _symmetric(o, "R", ny), _vector(o, "d", ny), _vector(o, "y", ny))
    m, P, quadratic, pivots, K, lower, inverses, _ = step.update(o, *parts, m, P)
    lower = [[entry or o.zero for entry in row] for row in lower]
    results = {"m": m, "P": P, "mean": m, "cov": P, "quad": [quadratic], "piv": pivots}
    return {**results, "K": K, "low": lower, "inv": inverses}


def _element_stages(nx: int, ny: int) -> list[Stage]:
    """The element of an interval of time with one step more, see `step.extend`."""
    o = Writer()
    transition = _matrix(o, "F", nx, nx), _symmetric(o, "Q", nx), _vector(o, "u", nx)
    parts = _matrix(o, "H", ny, nx), _symmetric(o, "R", ny), _vector(o, "d", ny), _vector(o, "y", ny)
    element = _matrix(o, "A", nx, nx), _vector(o, "m", nx), _carried(o, "P", nx), _vector(o, "eta", nx)
    every: Any = (*transition, *parts, *element, _carried(o, "J", nx))
    A, m, P, eta, J = step.extend(o, *every)
    carried = {"A": A, "m": m, "P": P, "eta": eta, "J": J}
    return [(o, {**carried, "mean": m, "gain": A, "cov": P, "score": eta, "info": J})]


def _mean_predicted(o: Writer, nx: int) -> tuple[Any, ...]:
    return (step.predict_mean(_matrix(o, "F", nx, nx), _vector(o, "u", nx), _vector(o, "m", nx)),)


def _mean_updated(o: Writer, nx: int, ny: int, m: Any, _: Any) -> dict[str, Any]:
    """The update of the mean alone, by gains that are known."""
    parts = (_matrix(o, "H", ny, nx), _vector(o, "d", ny), _vector(o, "y", ny), m)
    gains = (_matrix(o, "K", nx, ny), _matrix(o, "low", ny, ny), _vector(o, "inv", ny))
    m, term = step.update_mean(o, *parts, *gains, _vector(o, "log", ny))
    return {"m": m, "mean": m, "term": [term]}


def _smoother_stages(nx: int, ny: int) -> list[tuple[Writer, dict[str, Any]]]:
    o = Writer()
    parts = (_matrix(o, "F", nx, nx), _symmetric(o, "Q", nx), _vector(o, "u", nx), _vector(o, "fm", nx))
    m, P, E = step.smooth(o, *parts, _symmetric(o, "fP", nx), _vector(o, "m", nx), _carried(o, "P", nx))
    return [(o, {"m": m, "P": P, "mean": m, "cov": P, "E": E})]


def _smoother_without_gains(nx: int, ny: int) -> list[tuple[Writer, dict[str, Any]]]:
    [(o, results)] = _smoother_stages(nx, ny)
    del results["E"]
    return [(o, results)]


def _smoother_mean_stages(nx: int, ny: int) -> list[tuple[Writer, dict[str, Any]]]:
    """The smoother's mean alone, by gains that are known."""
    o = Writer()
    parts = (_matrix(o, "F", nx, nx), _vector(o, "u", nx), _vector(o, "fm", nx), _vector(o, "m", nx))
    m = step.smooth_mean(*parts, _matrix(o, "E", nx, nx))
    return [(o, {"m": m, "mean": m})]


def _parts(text: str) -> tuple[tuple[str, str], ...]:
    """Names and kinds out of "F:nn u:n"."""
    return tuple((name, kind) for name, _, kind in (part.partition(":") for part in text.split()))


RECURSIONS = {
    "filter": Recursion(
        inputs=_parts("F:nn Q:nn H:yn R:yy u:n d:y y:y"),
        outputs=_parts("mean:n cov:nn quad:1 piv:y"),
        stages=partial(_two_stages, _predicted, _updated),
        single_stage=partial(_one_stage, _predicted, _updated),
    ),
    "gain": Recursion(
        inputs=_parts("F:nn Q:nn H:yn R:yy u:n d:y y:y"),
        outputs=_parts("mean:n cov:nn quad:1 piv:y K:ny low:yy inv:y"),
        stages=partial(_two_stages, _predicted, _updated_with_gain),
        single_stage=partial(_one_stage, _predicted, _updated_with_gain),
    ),
    "mean": Recursion(
        inputs=_parts("F:nn u:n H:yn d:y y:y K:ny low:yy inv:y log:y"),
        outputs=_parts("mean:n term:1"),
        stages=partial(_two_stages, _mean_predicted, _mean_updated),
        single_stage=partial(_one_stage, _mean_predicted, _mean_updated),
        carried=_parts("m:n"),
        shared=("F", "H", "K", "low", "inv", "log"),
    ),
    "element": Recursion(
        inputs=_parts("F:nn Q:nn H:yn R:yy u:n d:y y:y"),
        outputs=_parts("mean:n gain:nn cov:nn score:n info:nn"),
        stages=_element_stages,
        carried=_parts("A:nn m:n P:nn eta:n J:nn"),
    ),
    "smoother": Recursion(
        inputs=_parts("F:nn Q:nn u:n fm:n fP:nn"),
        outputs=_parts("mean:n cov:nn"),
        stages=_smoother_without_gains,
        backward=True,
    ),
    "smoother gain": Recursion(
        inputs=_parts("F:nn Q:nn u:n fm:n fP:nn"),
        outputs=_parts("mean:n cov:nn E:nn"),
        stages=_smoother_stages,
        backward=True,
    ),
    "smoother mean": Recursion(
        inputs=_parts("F:nn u:n fm:n E:nn"),
        outputs=_parts("mean:n"),
        stages=_smoother_mean_stages,
        backward=True,
        carried=_parts("m:n"),
        shared=("F", "E"),
    ),
}

HEAD = '''"""A recursion of the Kalman filter, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import compiled, compiled_procedure, prange
from ensemble._compile.lanes.transpose import Prefetch, Transpose
from ensemble._compile.plain_code import Integers, Numbers, entry, local_array, numbers_at, plain
from ensemble._compile.lanes.straight_line import StraightLine

transpose, prefetch = Transpose({width}), Prefetch()


@plain
def mirror(P: Numbers) -> None:
    # the entries above the diagonal below it, too
    for i in range({nx}):
        for j in range(i):
            for w in range({width}):
                P[(i * {nx} + j) * {width} + w] = P[(j * {nx} + i) * {width} + w]
'''

LANES = """

@plain
def fetch(
    places: Integers, row: int, n: int, start: int, count: int, first: int, valid: int, buffer: Numbers
) -> None:
    # `count` steps from `start` on of the series `first`, ..., `first + {width} - 1`, series innermost
    source = numbers_at(places[row])
    by_series, by_step, by_entry = places[row + 1], places[row + 2], places[row + 3]
    if by_series == 0:
        for t in range(count):
            for c in range(n):
                value = source[(start + t) * by_step + c * by_entry]
                for w in range({width}):
                    buffer[(t * n + c) * {width} + w] = value
    elif by_series == 1 and valid == {width}:
        for t in range(count):
            for c in range(n):
                offset = first + (start + t) * by_step + c * by_entry
                for w in range({width}):
                    buffer[(t * n + c) * {width} + w] = source[offset + w]
    elif by_step == n and by_entry == 1 and valid == {width}:
        begin, whole = by_series * first + start * n, count * n // {width} * {width}
        for e in range(0, whole, {width}):
            for w in range({width}):  # lines of the next block, which the processor does not foresee going back
                prefetch(source, begin + w * by_series + e {ahead} whole)
            transpose(source, begin + e, by_series, buffer, e * {width}, {width})
        for w in range({width}):
            for e in range(whole, count * n):
                buffer[e * {width} + w] = source[begin + w * by_series + e]
    else:
        for w in range({width}):
            offset = by_series * (first + min(w, valid - 1)) + by_step * start
            for t in range(count):
                for c in range(n):
                    buffer[(t * n + c) * {width} + w] = source[offset + t * by_step + c * by_entry]


@plain
def flush(
    buffer: Numbers, places: Integers, row: int, n: int, start: int, count: int, first: int, valid: int
) -> None:
    # the opposite of `fetch`
    target = numbers_at(places[row])
    by_series, by_step, by_entry = places[row + 1], places[row + 2], places[row + 3]
    if by_series == 1 and valid == {width}:
        for t in range(count):
            for c in range(n):
                offset = first + (start + t) * by_step + c * by_entry
                for w in range({width}):
                    target[offset + w] = buffer[(t * n + c) * {width} + w]
    elif by_step == n and by_entry == 1 and valid == {width}:
        begin, whole = by_series * first + start * n, count * n // {width} * {width}
        for e in range(0, whole, {width}):
            for w in range({width}):  # lines of the next block: a store waits for the line that it changes a part of
                prefetch(target, begin + w * by_series + e {ahead} whole)
            transpose(buffer, e * {width}, {width}, target, begin + e, by_series)
        for w in range({width}):
            for e in range(whole, count * n):
                target[begin + w * by_series + e] = buffer[e * {width} + w]
    else:
        for w in range(valid):
            offset = by_series * (first + w) + by_step * start
            for t in range(count):
                for c in range(n):
                    target[offset + t * by_step + c * by_entry] = buffer[(t * n + c) * {width} + w]
"""

SCALARS = """

@plain
def fetch(
    places: Integers, row: int, n: int, start: int, count: int, first: int, valid: int, buffer: Numbers
) -> None:
    # the entries of the series `first`
    source, offset = numbers_at(places[row]), places[row + 1] * first
    for c in range(n):
        buffer[c] = source[offset + c * places[row + 3]]


@plain
def unit(F: Numbers, n: int, diagonal: float) -> None:
    # zeros, and `diagonal`
    for c in range(n * n):
        F[c] = 0.0
    for c in range(n):
        F[c * n + c] = diagonal
"""

LOOPS = """

@plain
def tiles(places: Integers, n_series: int, n_steps: int, predict_first: bool) -> None:
    for k in range({n_tiles}):
        tile(places, k * {width}, min({width}, n_series - k * {width}), n_steps, predict_first)


call_tile, call_tiles = entry(tile, "{dtype}"), entry(tiles, "{dtype}")


@compiled_procedure
def run(places, n_series, n_steps, predict_first):
    call_tiles(places, n_series, n_steps, predict_first)


@compiled
def run_threaded(places, n_series, n_steps, predict_first):
    for k in prange({n_tiles}):
        call_tile(places, k * {width}, min({width}, n_series - k * {width}), n_steps, predict_first)
"""


def _stage_source(
    recursion: Recursion, stages: list[tuple[Writer, dict[str, Any]]], parts: list[str], nx: int, width: int,
) -> str:  # fmt: skip
    """The statements of each stage, as `stage0`, `stage1`."""
    text = []
    for number, (writer, results) in enumerate(stages):
        writes = []
        for name, values in results.items():
            flat = [entry for row in values for entry in (row if isinstance(row, list) else [row])]
            writes += [f"{name}_{c} {symbol.name}" for c, symbol in enumerate(flat)]
        groups = writer.groups if width == 1 < nx else []
        statements, written, grouped = ('"""' + "\n".join(part) + '"""' for part in (writer.lines, writes, groups))
        numbers = "{" + ", ".join(f'"{name}": {number}' for name, number in CONSTANTS.items()) + "}"
        arguments = [f'"{" ".join(parts)}"', statements, written, numbers, str(width), grouped]
        arguments.append(f'"{" ".join(recursion.shared)}"')
        text.append(f"stage{number} = StraightLine(\n    " + ",\n    ".join(arguments) + ",\n)\n")
    return "\n".join(text)


def _loop_source(recursion: Recursion, nx: int, ny: int, width: int, dtype: str, n_stages: int) -> list[str]:
    """The loop over blocks of steps of one tile. Scalar code reads the arrays themselves, lanes read copies.

    Arrays that all series share are read directly in lanes, too: a copy would hold one number in each lane.
    """
    counts = {n: count_of(k, nx, ny) for n, k in (*recursion.inputs, *recursion.outputs, *recursion.carried)}
    names, outs = [n for n, _ in recursion.inputs], [n for n, _ in recursion.outputs]
    kept = [n for n, _ in recursion.carried]
    moving, row = [*names, *outs], {n: DESCRIPTOR * k for k, n in enumerate([*names, *kept, *outs])}
    back, copied = recursion.backward, [n for n in names if n not in recursion.shared]
    direct = moving if width == 1 else recursion.shared
    at_prior = {"F": 1.0, "Q": 0.0, "u": 0.0} if n_stages == 1 and width == 1 and not back else {}
    at_prior = {n: value for n, value in at_prior.items() if n in names}
    text = ["@plain\ndef tile(places: Integers, first: int, valid: int, n_steps: int, predict_first: bool) -> None:"]
    for name in kept:
        text += [f"    {name} = local_array({counts[name] * width})",
                 f"    fetch(places, {row[name]}, {counts[name]}, 0, 1, first, valid, {name})"]  # fmt: skip
    if "P" in kept:
        text.append("    mirror(P)")
    text += [f"    {n} = numbers_at(places[{row[n]}])" for n in direct]
    if width == 1:
        text += [f"    from_{n}, by_{n} = places[{row[n] + 1}] * first, places[{row[n] + 2}]" for n in moving]
        for n, value in at_prior.items():
            text += [f"    identity_{n} = local_array({nx * nx})", f"    unit(identity_{n}, {nx}, {value})"]
        text += ["    for step in range(n_steps):", f"        k = {'n_steps - 1 - step' if back else 'step'}"]
        places = {n: f"from_{n} + k * by_{n}" for n in moving}
        depth, now = 2, "k"
    else:
        steps = lanes_of(dtype) if recursion.shared else BLOCK
        text += [f"    {n} = local_array({steps * counts[n] * width})" for n in (*copied, *outs)]
        text += [f"    by_{n} = {counts[n] * width} if places[{row[n] + 2}] != 0 else 0" for n in copied]
        text += [f"    by_{n} = places[{row[n] + 2}]" for n in recursion.shared]
        text += [f"    for block in range(0, n_steps, {steps}):",
                 f"        count = min({steps}, n_steps - block)",
                 f"        start = {'n_steps - block - count' if back else 'block'}"]  # fmt: skip
        for n in copied:
            text += [f"        if by_{n} != 0:",
                     f"            fetch(places, {row[n]}, {counts[n]}, start, count, first, valid, {n})",
                     "        elif block == 0:",
                     f"            fetch(places, {row[n]}, {counts[n]}, 0, 1, first, valid, {n})"]  # fmt: skip
        text += ["        for step in range(count):", f"            k = {'count - 1 - step' if back else 'step'}"]
        places = {**{n: f"k * by_{n}" for n in copied}, **{n: f"k * {counts[n] * width}" for n in outs}}
        places |= {n: f"(start + k) * by_{n}" for n in recursion.shared}
        depth, now = 3, "start + k"
    places |= dict.fromkeys(kept, "0")
    pad = "    " * depth
    for n in at_prior:
        text += [f"{pad}now_{n}, at_{n} = {n}, {places[n]}"]
    if at_prior:
        text.append(f"{pad}if {now} == 0 and not predict_first:")
        text += [f"{pad}    now_{n}, at_{n} = identity_{n}, 0" for n in at_prior]
        places |= {n: f"at_{n}" for n in at_prior}
    elif n_stages > 1:
        text += [
            f"{pad}if {now} > 0 or predict_first:",
            f"{pad}    stage0({', '.join(row)}, {_tuple(places[n] for n in row)})",
        ]
    arrays = [f"now_{n}" if n in at_prior else n for n in row]
    text.append(f"{pad}stage{n_stages - 1}({', '.join(arrays)}, {_tuple(places[n] for n in row)})")
    if width > 1:
        for n in outs:
            text.append(f"        flush({n}, places, {row[n]}, {counts[n]}, start, count, first, valid)")
    return text


def _tuple(items: Iterable[Any]) -> str:
    return ", ".join(str(item) for item in items)


@functools.cache
def module_source(name: str, nx: int, ny: int, width: int, dtype: str) -> str:
    """The module with ``run(places, n_series, n_steps, predict_first)`` and its threaded form.

    `width` series are worked on together; 1 is scalar code. For each array of inputs, of what is carried at the start,
    and of outputs, `places` has the address and the steps between series, steps and entries.
    """
    recursion = RECURSIONS[name]
    stages = (recursion.single_stage if width == 1 and recursion.single_stage else recursion.stages)(nx, ny)
    names = [n for n, _ in (*recursion.inputs, *recursion.carried, *recursion.outputs)]
    n_tiles = f"(n_series + {width - 1}) // {width}" if width > 1 else "n_series"
    return "\n\n".join([
        (HEAD + (LANES if width > 1 else SCALARS)).format(nx=nx, width=width, ahead="-" if recursion.backward else "+"),
        f"LEAST_PIVOT = {step.least_pivot(nx, dtype)!r}",
        f"LOST_SPREAD, LOST_NOISE = {nx * step.lost_part(dtype)!r}, {step.lost_part(dtype)!r}",
        f"KNOWN = {step.known_part(nx, dtype)!r}",
        _stage_source(recursion, stages, names, nx, width),
        "\n".join(_loop_source(recursion, nx, ny, width, dtype, len(stages))),
        LOOPS.format(n_tiles=n_tiles, width=width, dtype=dtype),
    ])  # fmt: skip
