"""The filter over chunks of time: each chunk summed up as one element, the elements scanned, the recursion replayed.

All chunks take their steps in parallel. An element grows by a step as the filter does, with an inverse of the size of
an observation, and what is returned comes from plain filter steps: so the accuracy is the recursion's. The CUDA kernels
do the same.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ensemble._backend import array_namespace
from ensemble._kernels.kalman.scan import prefix_scan
from ensemble._typing import Array
from ensemble.apps.kalman.array.agreement import differ
from ensemble.apps.kalman.array.elements import Element, combine_filter, extend_filter
from ensemble.apps.kalman.array.steps import predict, update
from ensemble.apps.kalman.series import Series

__all__ = ["chunk_filter"]

STEPS = ("F", "Q", "u", "H", "R", "d", "y")


def chunk_filter(series: Series) -> tuple[Array, Array, Array, Series | None]:
    """Filter all whole chunks at once: means, covariances, log-densities, and the series of the steps that are left."""
    length = math.isqrt(series.n_steps)
    n_chunks = series.n_steps // length
    starts = _first_elements(series, n_chunks)
    total = _chunk_elements(series, starts, n_chunks, length)
    _, b, C, _, _ = prefix_scan(combine_filter, total, algorithm="hillis_steele")
    xp = array_namespace(b, C)
    first = tuple(xp.concat([a[:1, ...], z[:-1, ...]], axis=0) for a, z in ((starts[1], b), (starts[2], C)))
    m, P = first
    parts: tuple[list[Array], ...] = ([], [], [])
    for j in range(length):
        F, Q, u, H, R, d, y = _step_of_chunks(series, j, n_chunks, length)
        m, ahead = predict(F, Q, u, m, P)
        m, P, term = update(H, R, d, y, m, ahead)
        for kept, value in zip(parts, (m, P, xp.broadcast_to(term, (n_chunks, *series.batch))), strict=True):
            kept.append(value)
    if n_chunks > 1:  # what a chunk ends with is what the next one starts from
        ends = m[:-1, ...], P[:-1, ...]
        noise = R[:-1, ...] if R.shape[0] > 1 else R
        starts = first[0][1:, ...], first[1][1:, ...]
        lost, terms = differ(starts, ends, noise, ahead[:-1, ...]), parts[2][0]
        parts[2][0] = xp.concat([terms[:1, ...], xp.where(lost, terms[1:, ...] + float("nan"), terms[1:, ...])], axis=0)
    whole = tuple(
        xp.reshape(xp.stack(kept, axis=1), (n_chunks * length, *kept[0].shape[1:])) for kept in parts
    )  # fmt: skip
    return *whole, _remaining_series(series, n_chunks * length, whole[0][-1, ...], whole[1][-1, ...])


def _step_of_chunks(series: Series, j: int, n_chunks: int, length: int) -> list[Array]:
    """Take step j of every chunk; the step of the prior has a transition that changes nothing."""
    out = []
    for name in STEPS:
        a = getattr(series, name)
        out.append(a[j : n_chunks * length : length, ...] if a.shape[0] > 1 else a)
    if j == 0 and not series.predict_first:
        xp = array_namespace(*out)
        eye = xp.eye(series.F.shape[-1], dtype=series.F.dtype)
        for i, still in enumerate((eye, xp.zeros_like(eye), xp.zeros_like(eye[0, ...]))):
            wide = xp.broadcast_to(out[i], (n_chunks, *out[i].shape[1:]))
            first = xp.broadcast_to(still, wide.shape[1:])
            out[i] = xp.concat([first[None, ...], wide[1:, ...]], axis=0)
    return out


def _first_elements(series: Series, n_chunks: int) -> Element:
    """Make the elements that chunks start from: the prior for the first one, the identity for the others."""
    xp = array_namespace(series.y, series.F, series.m0, series.P0)
    nx, dtype = series.F.shape[-1], series.F.dtype
    matrix, vector = (*series.batch, nx, nx), (*series.batch, nx)
    zeros, none = xp.zeros((n_chunks, *matrix), dtype=dtype), xp.zeros((n_chunks, *vector), dtype=dtype)
    eye = xp.broadcast_to(xp.eye(nx, dtype=dtype), (n_chunks - 1, *matrix))
    A = xp.concat([zeros[:1, ...], eye], axis=0)
    b = xp.concat([xp.broadcast_to(series.m0, vector)[None, ...], none[1:, ...]], axis=0)
    C = xp.concat([xp.broadcast_to(series.P0, matrix)[None, ...], zeros[1:, ...]], axis=0)
    return A, b, C, none, zeros


def _chunk_elements(series: Series, starts: Element, n_chunks: int, length: int) -> Element:
    """The element of every chunk."""
    total = starts
    for j in range(length):
        total = extend_filter(total, *_step_of_chunks(series, j, n_chunks, length), semidefinite=True)
    return total


def _remaining_series(series: Series, start: int, m: Array, P: Array) -> Series | None:
    """Cut off the steps from `start` on, as a series of their own; None if there are none."""
    if start == series.n_steps:
        return None
    parts = {name: series.each(name, slice(start, None)) for name in STEPS}
    return replace(series, m0=m, P0=P, predict_first=True, **parts)
