"""Mean, sum of squares and range of every row of a block of samples, in one pass over them.

A row is read once, where NumPy passes over the samples of each replicate eight times. Sums have the order of NumPy's:
below eight numbers one after the other, up to 128 in eight partial sums, beyond by halves.

Bytes (rows of n samples of 8 bytes, R replicates): 8 n + 32 R + 16 for each row.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ensemble._compile.allocation import new
from ensemble._compile.numba import compiled, inner, prange

__all__ = ["Choice", "add_block", "choice_of"]

LEAF = 128
"""Numbers that NumPy adds in eight partial sums; of more it adds two halves."""

LARGEST = float(np.finfo(np.float64).max)


class Choice(NamedTuple):
    """The samples of each replicate, and the order in which their sums are taken.

    Attributes
    ----------
    columns, starts : arrays
        Places of the samples in a row, replicate by replicate, and where each replicate begins, shape (R + 1,).
    shares, rounding : arrays, shape (R,)
        One over the number of samples; how far their mean may be from equal samples, relative.
    leaves, joins, leaf_starts : arrays
        Ends of the partial sums of each replicate; after each, how many sums are added up; where replicates begin.
    """

    columns: np.ndarray
    starts: np.ndarray
    shares: np.ndarray
    rounding: np.ndarray
    leaves: np.ndarray
    joins: np.ndarray
    leaf_starts: np.ndarray


@functools.lru_cache(maxsize=256)
def _halves(n: int) -> tuple[tuple[int, int], ...]:
    """The parts of a sum of `n` numbers: the size of each, and how many sums are added up after it."""
    if n <= LEAF:
        return ((n, 0),)
    half = n // 2 - n // 2 % 8
    first, second = _halves(half), _halves(n - half)
    size, joins = second[-1]
    return (*first, *second[:-1], (size, joins + 1))


def choice_of(columns: list[np.ndarray]) -> Choice:
    """The `Choice` of these places, an array for each replicate."""
    sizes = [len(own) for own in columns]
    parts = [_halves(n) for n in sizes]
    ends = [np.cumsum([size for size, _ in own]) for own in parts]
    numbers = np.maximum(sizes, 1).astype(np.float64)
    return Choice(
        np.concatenate(columns).astype(np.int64),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        1.0 / numbers,
        4.0 * numbers * np.finfo(np.float64).eps,
        np.concatenate(ends).astype(np.int64),
        np.array([joins for own in parts for _, joins in own], np.int64),
        np.concatenate([[0], np.cumsum([len(own) for own in parts])]).astype(np.int64),
    )


@inner
def _partial_sum(terms, begin, end):
    """The sum of at least eight numbers in eight partial sums."""
    s0, s1, s2, s3 = terms[begin], terms[begin + 1], terms[begin + 2], terms[begin + 3]
    s4, s5, s6, s7 = terms[begin + 4], terms[begin + 5], terms[begin + 6], terms[begin + 7]
    k = begin + 8
    while k + 8 <= end:
        s0 += terms[k]
        s1 += terms[k + 1]
        s2 += terms[k + 2]
        s3 += terms[k + 3]
        s4 += terms[k + 4]
        s5 += terms[k + 5]
        s6 += terms[k + 6]
        s7 += terms[k + 7]
        k += 8
    total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    while k < end:
        total += terms[k]
        k += 1
    return total


@inner
def _sum(terms, n, leaves, joins, leaf, last, sums):
    """The sum of `n` numbers in NumPy's order."""
    if n < 8:
        total = terms[0]
        for k in range(1, n):
            total += terms[k]
        return total + 0.0 if n == 1 else total
    depth, begin = 0, 0
    while leaf < last:
        end = leaves[leaf]
        total = _partial_sum(terms, begin, end)
        for _ in range(joins[leaf]):
            depth -= 1
            total = sums[depth] + total
        sums[depth] = total
        depth += 1
        begin = end
        leaf += 1
    return sums[0] + 0.0


@compiled
def _add_block(
    values, pitch, columns, starts, shares, rounding, leaves, joins, leaf_starts, is_first, at_mean, at_squares,
    means, squares, low, high,
):  # fmt: skip
    n_rows, n_replicates = low.size, shares.size
    terms, sums = new(columns.size, np.float64), new(16, np.float64)
    for row in prange(n_rows):
        base = row * pitch
        lowest = values[base + columns[0]]
        highest = lowest
        for r in range(n_replicates):
            begin, n = starts[r], starts[r + 1] - starts[r]
            if n > 0:
                share = shares[r]
                for k in range(n):
                    value = values[base + columns[begin + k]]
                    if value < lowest or value != value:
                        lowest = value
                    if value > highest or value != value:
                        highest = value
                    terms[k] = np.float64(value) * share
                mean = _sum(terms, n, leaves, joins, leaf_starts[r], leaf_starts[r + 1], sums)
                first = np.float64(values[base + columns[begin]])
                if first != mean and (abs(first - mean) <= rounding[r] * abs(first) or not (abs(mean) <= LARGEST)):
                    k = 0
                    while k < n and np.float64(values[base + columns[begin + k]]) == first:
                        k += 1
                    if k == n:
                        mean = first
                for k in range(n):
                    deviation = np.float64(values[base + columns[begin + k]]) - mean
                    terms[k] = deviation * deviation
                square = _sum(terms, n, leaves, joins, leaf_starts[r], leaf_starts[r + 1], sums)
                at = r * n_rows + row
                if is_first[r] != 0:
                    means[at] = mean
                    squares[at] = square
                else:
                    delta = mean - means[at]
                    means[at] = means[at] + delta * at_mean[r]
                    squares[at] = squares[at] + square + delta * delta * at_squares[r]
        low[row] = lowest
        high[row] = highest


def add_block(
    values: np.ndarray,
    choice: Choice,
    before: np.ndarray,
    means: np.ndarray,
    squares: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    """Add a block of samples to the means and sums of squared deviations of the samples before it.

    Parameters
    ----------
    values : array, shape (n_rows, n_samples), float64 or float32, neighbouring samples of a row beside each other
    choice : Choice
        The samples that count, at least one.
    before : array, shape (R,)
        How many samples each replicate has had.
    means, squares : arrays, shape (R, n_rows), float64
        Moments of the samples before; overwritten.
    low, high : arrays, shape (n_rows,)
        Overwritten by the range of the samples of this block.
    """
    numbers = np.diff(choice.starts).astype(np.float64)
    total = np.maximum(before + numbers, 1.0)
    pitch = values.strides[0] // values.itemsize if values.shape[0] > 1 else values.shape[1]
    span = (values.shape[0] - 1) * pitch + values.shape[1]
    flat = values.reshape(-1) if values.flags.c_contiguous else as_strided(values, (span,), (values.itemsize,))
    arguments: tuple[Any, ...] = (
        flat, pitch, *choice, (before == 0).astype(np.int64), numbers / total,
        before * numbers / total, means.reshape(-1), squares.reshape(-1), low, high,
    )  # fmt: skip
    _add_block(*arguments)
