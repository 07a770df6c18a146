"""Sums along rows in the order in which NumPy sums the row of one sample, all samples side by side.

Below eight terms NumPy adds one after the other, up to 128 in eight partial sums, beyond by halves. The eight partial
sums of all samples lie beside each other, as the terms do: memory is read from its start to its end. A sum depends on
the number of its terms alone, so each sample has the bits of ``np.sum`` of its own row.

Bytes (rows of n terms of S samples, of 8 bytes each): ``8 n S`` for each factor.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import Workspace
from ensemble._compile.lanes.types import load, store
from ensemble._compile.numba import compiled_procedure, inner, spliced

__all__ = ["sum_rows"]

LEAF = 128
"""Numbers that NumPy adds in eight partial sums; of more it adds two halves."""

LANES = 8
"""Numbers of a register; partial sums of all samples are a multiple of it."""


@functools.lru_cache(maxsize=256)
def _halves(n: int, parts: int) -> tuple[tuple[int, int], ...]:
    """The parts of a sum of `n` terms: the size of each, and how many sums are added up after it.

    A complex number is two of NumPy's numbers: a row then has four partial sums, `parts`, and leaves of 64 terms.
    """
    if n * 8 <= LEAF * parts:
        return ((n, 0),)
    half = n // 2 - n // 2 % parts
    first, second = _halves(half, parts), _halves(n - half, parts)
    size, joins = second[-1]
    return (*first, *second[:-1], (size, joins + 1))


@functools.lru_cache(maxsize=256)
def _order_of(n: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the parts of a sum of `n` terms, and how many sums are added up after each."""
    sizes, joins = zip(*_halves(n, parts), strict=True)
    return np.cumsum(sizes, dtype=np.int64), np.array(joins, np.int64)


@spliced
def _numbers(x, y, at, other):
    return load(x, at, LANES)


@spliced
def _products(x, y, at, other):
    return load(x, at, LANES) * load(y, other, LANES)


@spliced
def _squares(x, y, at, other):
    value = load(x, at, LANES)
    return value * value


@spliced
def _number(x, y, at, other):
    return x[at]


@spliced
def _product(x, y, at, other):
    return x[at] * y[other]


@spliced
def _square(x, y, at, other):
    return x[at] * x[at]


@inner
def _add_neighbours(partial, width, count):
    """Add the runs of `width` numbers in pairs: the first and the second become the first."""
    for pair in range(count // (2 * width)):
        to, at = pair * width, 2 * pair * width
        whole = width - width % LANES
        for i in range(0, whole, LANES):
            store(partial, to + i, load(partial, at + i, LANES) + load(partial, at + width + i, LANES))
        for i in range(whole, width):
            partial[to + i] = partial[at + i] + partial[at + width + i]


@inner
def _add_within(target, to, at, count):
    """Add a run of numbers of an array to another run of it."""
    whole = count - count % LANES
    for i in range(0, whole, LANES):
        store(target, to + i, load(target, to + i, LANES) + load(target, at + i, LANES))
    for i in range(whole, count):
        target[to + i] += target[at + i]


TERMS = {"x": (_numbers, _number), "xy": (_products, _product), "xx": (_squares, _square)}


def _steps(kind: str) -> tuple[Any, Any, Any]:
    """Write a run of terms, add one, add two that follow each other: to all partial sums of a run."""
    terms, term = TERMS[kind]

    @inner
    def put(target, to, x, y, at, place, count):
        whole = count - count % LANES
        for i in range(0, whole, LANES):
            store(target, to + i, terms(x, y, at + i, place + i))
        for i in range(whole, count):
            target[to + i] = term(x, y, at + i, place + i)

    @inner
    def add(target, to, x, y, at, place, count):
        whole = count - count % LANES
        for i in range(0, whole, LANES):
            store(target, to + i, load(target, to + i, LANES) + terms(x, y, at + i, place + i))
        for i in range(whole, count):
            target[to + i] += term(x, y, at + i, place + i)

    @inner
    def add_twice(target, x, y, at, place, count):
        for i in range(0, count, LANES):
            one = load(target, i, LANES) + terms(x, y, at + i, place + i)
            store(target, i, one + terms(x, y, at + count + i, place + count + i))

    return put, add, add_twice


@functools.cache
def _loop(kind: str, parts: int) -> Any:
    """The loop over rows for one kind of terms: rows of `n` terms of `width` numbers, one for each sample."""
    put, add, add_twice = _steps(kind)

    @compiled_procedure
    def loop(x, y, out, leaves, joins, n, width, by_row, partial, waiting):
        run = parts * width
        for row in range(out.size // width):
            base, other = row * n * width, row * by_row
            depth, begin = 0, 0
            for leaf in range(leaves.size):
                end, total, done = leaves[leaf], depth * width, begin
                if end - begin < parts:
                    put(waiting, total, x, y, base + done * width, other + done * width, width)
                    done += 1
                else:
                    put(partial, 0, x, y, base + done * width, other + done * width, run)
                    done += parts
                    while done + 2 * parts <= end:
                        add_twice(partial, x, y, base + done * width, other + done * width, run)
                        done += 2 * parts
                    if done + parts <= end:
                        add(partial, 0, x, y, base + done * width, other + done * width, run)
                        done += parts
                    half = run
                    while half > width:
                        _add_neighbours(partial, width, half)
                        half //= 2
                    for s in range(width):
                        waiting[total + s] = partial[s]
                while done < end:
                    add(waiting, total, x, y, base + done * width, other + done * width, width)
                    done += 1
                for _k in range(joins[leaf]):
                    depth -= 1
                    total = depth * width
                    _add_within(waiting, total, total + width, width)
                depth += 1
                begin = end
            for s in range(width):
                out[row * width + s] = waiting[s] + 0.0

    return loop


def sum_rows(kind: str, x: np.ndarray, y: np.ndarray | None, out: np.ndarray) -> np.ndarray:
    """The sums of ``x``, ``x * y`` or ``x * x``, as `kind` says, over the second axis of `x`.

    Parameters
    ----------
    kind : {"x", "xy", "xx"}
    x : array, shape (n_rows, n, n_samples), in C order, real, or complex where `kind` is "x"
    y : array of the type of `x`, shape (n_rows, n, n_samples) or (1, n, n_samples), or None
        The second factor, which all rows may share.
    out : array, shape (n_rows, n_samples)
        Overwritten; n must be positive.
    """
    parts = 8
    if x.dtype.kind == "c":
        real = x.dtype.char.lower()
        x, written, parts = x.view(real), out.view(real), 4
    else:
        written = out
    _, n, width = x.shape
    leaves, joins = _order_of(n, parts)
    by_row = 0 if y is None or y.shape[0] == 1 else n * width
    flat = x.reshape(-1)
    with Workspace(((parts + leaves.size.bit_length() + 2) * width,), x.dtype) as memory:
        partial, waiting = memory[: parts * width], memory[parts * width :]
        other = flat if y is None else y.reshape(-1)
        _loop(kind, parts)(flat, other, written.reshape(-1), leaves, joins, n, width, by_row, partial, waiting)
    return out
