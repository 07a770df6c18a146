"""Backward differences of many samples, each with its own order: corrections of a step, and values within it.

Differences have shape (8, n, S); row 0 is y. `bdf_steps.py` has the control, and what changes them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import SMALL, compiled, empty, prange, thread_count
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.forms.flat import LU, solve_one
from ensemble._kernels.ode.lock_step import threads_of
from ensemble._kernels.ode.program import store_tile
from ensemble._typing import Array

__all__ = ["corrections", "interpolate", "residual"]


def corrections(f: Array, psi: Array, d: Array, per_c: Array, factors: Array, flat: Array) -> Array:
    """The corrections of an iteration: ``f - (psi + d) per_c`` solved with factors of all samples, (n, S).

    `factors` has shape (n_tiles, n_values, width); `flat` is the list of the elimination. One pass over the factors.
    """
    n = f.shape[0]
    n_tiles, n_values, width = factors.shape
    n_runs = 1 if factors.size <= SMALL else min(n_tiles, thread_count())
    out, memory = empty(f.shape, f.dtype), empty((n_runs, 3 * n * width), f.dtype)
    _corrections(width)(
        f, psi, d, per_c, factors.reshape(-1), flat, n_values, memory, out, n_tiles,
        threads=ONE_THREAD if n_runs == 1 else ALL_THREADS,
    )  # fmt: skip
    return out


@functools.cache
def _corrections(width: int) -> Any:
    @compiled
    def loop(f, psi, d, per_c, factors, flat, n_values, memory, out, n_tiles):
        for r in prange(memory.shape[0]):
            work, w, n = memory[r], np.int64(width), f.shape[0]
            n_runs, n_samples, zero = memory.shape[0], f.shape[1], zeros(f, width)
            for tile in range(np.int64(r) * n_tiles // n_runs, (np.int64(r) + 1) * n_tiles // n_runs):
                first = tile * w
                count = min(n_samples - first, w)
                for i in range(n):
                    for s in range(count):
                        c = first + s
                        work[i * w + s] = f[i, c] - (psi[i, c] + d[i, c]) * per_c[c]
                    for s in range(count, w):
                        work[i * w + s] = work[i * w]
                solve_one(
                    factors, tile * n_values * w, w, flat, work, 0, w, False, work, n * w, w,
                    work[2 * n * w : 3 * n * w], LU, zero,
                )  # fmt: skip
                store_tile(work, n, width, out, first, count)

    return loop


def residual(f: Array, psi: Array, d: Array, per_c: Array) -> None:
    """``f - (psi + d) per_c`` in place of f."""
    _residual(f, psi, d, per_c, threads=threads_of(f.size))


@compiled
def _residual(f, psi, d, per_c):
    for i in prange(f.shape[0]):
        for s in range(f.shape[1]):
            f[i, s] = f[i, s] - (psi[i, s] + d[i, s]) * per_c[s]


def interpolate(differences: Array, order: Array, columns: Array, theta: Array) -> Array:
    """y at ``t - (1 - theta) h`` where t is the end of the step, by the polynomial of the step, (n, n_columns)."""
    out = np.empty((differences.shape[1], columns.size), differences.dtype)
    _interpolate(differences, order, columns, theta, out, threads=threads_of(out.size))
    return out


@compiled
def _interpolate(differences, order, columns, theta, out):
    for i in prange(out.shape[0]):
        for c in range(columns.size):
            s, weight = columns[c], theta[c] * 0.0 + 1.0
            value = differences[0, i, s]
            for j in range(order[c]):
                weight = weight * ((theta[c] - 1.0 + j) / (j + 1.0))
                value += differences[j + 1, i, s] * weight
            out[i, c] = value
