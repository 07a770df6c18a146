"""Sums over the steps of series, in one order whatever their number and layout in memory."""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.numba import ROW_BLOCK, compiled, compiled_procedure, compiled_serial, prange
from ensemble._compile.plain_code import Numbers, entry, load, local_array, plain, store
from ensemble._compile.registry import kernel

__all__ = ["THREADED", "sum_steps"]

THREADED = 1 << 15
"""Steps of all series from which on the sums run on several threads (`benchmarks kalman`)."""

APART = 8
"""Steps from one to the next that a sum over time adds to the same partial sum: a register of them."""


@kernel
def sum_steps(terms):
    """The sum over the first axis of float64 terms (n_steps, n_series), in one order whatever their number.

    Blocks of `ROW_BLOCK` steps: partial sums of every `APART`-th step, those sums in order, then the blocks in order.
    """
    xp = array_namespace(terms)
    n_steps, n_series = terms.shape
    n_blocks = -(-n_steps // ROW_BLOCK)
    padding = xp.zeros((n_blocks * ROW_BLOCK - n_steps, n_series), dtype=terms.dtype)
    blocks = xp.reshape(xp.concat([terms, padding]), (n_blocks, ROW_BLOCK // APART, APART, n_series))
    partial = xp.zeros((n_blocks, APART, n_series), dtype=terms.dtype)
    for i in range(min(ROW_BLOCK, n_steps + APART - 1) // APART):
        partial = partial + blocks[:, i, :, :]
    whole = xp.zeros((n_blocks, n_series), dtype=terms.dtype)
    for i in range(APART):
        whole = whole + partial[:, i, :]
    total = xp.zeros((n_series,), dtype=terms.dtype)
    for block in range(n_blocks):
        total = total + whole[block, :]
    return total


@plain
def _sum_strided(terms: Numbers, count: int, step: int) -> float:
    """The sum of every `step`-th term, by `APART` independent partial sums."""
    partial = local_array(APART)
    total = 0.0
    for start in range(0, count, ROW_BLOCK):
        last = min(start + ROW_BLOCK, count)
        for i in range(APART):
            partial[i] = 0.0
        row = start
        if step == 1:
            low, high = load(partial, 0), load(partial, APART // 2)
            while row + APART <= last:
                low, high = low + load(terms, row), high + load(terms, row + APART // 2)
                row += APART
            store(partial, 0, low)
            store(partial, APART // 2, high)
        while row < last:
            partial[(row - start) % APART] += terms[row * step]
            row += 1
        whole = 0.0
        for i in range(APART):
            whole += partial[i]
        total += whole
    return total


_call_sum = entry(_sum_strided)


@compiled_serial
def _sum_alone(terms):
    """The sum of one series of float64, by `APART` independent partial sums."""
    return _call_sum(terms, terms.shape[0], terms.strides[0] // terms.itemsize)


@compiled_procedure
def _sum_together(terms, sums):
    """The sums of series with adjacent memory."""
    n_steps, n_series = terms.shape
    partial, whole = np.empty((APART, n_series), np.float64), np.empty(n_series, np.float64)
    for start in range(0, n_steps, ROW_BLOCK):
        for i in range(APART):
            for s in range(n_series):
                partial[i, s] = 0.0
        for k in range(start, min(start + ROW_BLOCK, n_steps)):
            for s in range(n_series):
                partial[k % APART, s] += terms[k, s]
        for s in range(n_series):
            whole[s] = 0.0
        for i in range(APART):
            for s in range(n_series):
                whole[s] += partial[i, s]
        for s in range(n_series):
            sums[s] += whole[s]


@compiled
def _sum_each(terms, sums):
    for s in prange(terms.shape[1]):
        sums[s] = _sum_alone(terms[:, s])


@sum_steps.register("numba")
def _(terms):
    n_steps, n_series = terms.shape
    if terms.dtype != np.float64:
        return sum_steps.reference(terms)
    if n_series == 1:
        return np.array([_sum_alone(terms[:, 0])])
    sums = np.zeros(n_series)
    if terms.strides[0] > terms.strides[1]:
        _sum_together(terms, sums)
    elif n_series * n_steps >= THREADED:
        _sum_each(terms, sums)
    else:
        for s in range(n_series):
            sums[s] = _sum_alone(terms[:, s])
    return sums
