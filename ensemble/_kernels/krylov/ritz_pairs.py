"""All eigenpairs of the small symmetric matrices of Lanczos' process, a sample in each lane.

The matrices are tridiagonal but for some first rows, which are coupled to one row alone, as a restart leaves them.
Reflections make them tridiagonal [1]_, QL steps with implicit shifts diagonal [2]_. What is applied to the vectors acts
on neighbouring numbers: a component of the samples of a tile, or for one sample alone eight of its components. Each
lane has the operations, and so the bits, of its own matrix; one that has converged, or holds NaN, waits for the others.

.. [1] Martin, Reinsch, Wilkinson (1968), Numer. Math. 11, 181-195.
.. [2] Dubrulle, Martin, Wilkinson (1968), Numer. Math. 12, 377-383.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.arithmetic import absolute, any_lane, copysign, lane
from ensemble._compile.lanes.types import load, select, splat, sqrt, store, zeros
from ensemble._compile.numba import compiled_serial, inner, per_width

__all__ = ["ritz_pairs"]

LANES = 8
"""Samples of a tile, or components of a vector of one sample alone, in a register."""

MOST_TURNS = 80
"""QL steps for one eigenvalue; two suffice as a rule."""

EPS = float(np.finfo(np.float64).eps)


@inner(forceinline=True)
def reflected(b, d, e, v, w, count, width, row, nothing):
    """Make the leading `count` rows `b` tridiagonal, with vectors `v` whose rows are `row` numbers apart."""
    one = nothing + 1.0
    for i in range(count - 1, 1, -1):
        own, square = i * count * width, nothing
        for k in range(i):
            square = square + load(b, own + k * width, nothing) * load(b, own + k * width, nothing)
        near = load(b, own + (i - 1) * width, nothing)
        off = -copysign(sqrt(square), near)
        store(e, (i - 1) * width, off)
        store(b, own + (i - 1) * width, near - off)
        half = square - near * off
        factor = select(half > 0.0, one / half, nothing)
        store(w, i * width, factor)
        inner_product = nothing
        for k in range(i):
            total = nothing
            for j in range(i):
                total = total + load(b, (k * count + j) * width, nothing) * load(b, own + j * width, nothing)
            store(w, (count + k) * width, total * factor)
            inner_product = inner_product + total * factor * load(b, own + k * width, nothing)
        inner_product = 0.5 * inner_product * factor
        for k in range(i):
            q = load(w, (count + k) * width, nothing) - inner_product * load(b, own + k * width, nothing)
            store(w, (count + k) * width, q)
        for k in range(i):
            q, u = load(w, (count + k) * width, nothing), load(b, own + k * width, nothing)
            for j in range(i):
                at = (k * count + j) * width
                less = q * load(b, own + j * width, nothing) + u * load(w, (count + j) * width, nothing)
                store(b, at, load(b, at, nothing) - less)
    store(e, 0, load(b, count * width, nothing))
    for i in range(count):
        store(d, i * width, load(b, (i * count + i) * width, nothing))
    for i in range(2, count):
        factor = load(w, i * width, nothing)
        for q in range(i):
            total = nothing
            for k in range(i):
                total = total + load(b, (i * count + k) * width, nothing) * load(v, q * row + k * width, nothing)
            total = total * factor
            for k in range(i):
                at = q * row + k * width
                store(v, at, load(v, at, nothing) - total * load(b, (i * count + k) * width, nothing))


@inner(forceinline=True)
def turned(v, upper, row, width, c, s):
    """Turn the vectors at `upper` and `row` numbers behind it; `c` and `s` are the cosines and sines of all lanes."""
    for k in range(upper, upper + row, width):
        u, w = load(v, k, c), load(v, k + row, c)
        store(v, k + row, s * u + c * w)
        store(v, k, c * u - s * w)


@inner(forceinline=True)
def end_of_block(d, e, begin, m, width, nothing):
    """The row, as a number, in which the block of coupled rows from `begin` on ends, and its diagonal entry."""
    end, corner = nothing + begin, load(d, begin * width, nothing)
    for i in range(begin, m - 1):
        here, following = load(d, i * width, nothing), load(d, (i + 1) * width, nothing)
        coupled = absolute(load(e, i * width, nothing)) > EPS * (absolute(here) + absolute(following))
        coupled = coupled & (end == nothing + i)
        end, corner = select(coupled, end + 1.0, end), select(coupled, following, corner)
    return end, corner


@inner(forceinline=True)
def diagonalised(d, e, v, m, width, row, nothing, alone):
    """QL steps until all of `e` are negligible: `d` are the eigenvalues, rows of `v` the vectors."""
    one = nothing + 1.0
    for begin in range(m - 1):
        for _ in range(MOST_TURNS):
            end, corner = end_of_block(d, e, begin, m, width, nothing)
            unfinished = end > nothing + begin
            if not any_lane(unfinished):
                break
            first, off = load(d, begin * width, nothing), load(e, begin * width, nothing)
            ratio = (load(d, (begin + 1) * width, nothing) - first) / (2.0 * off)
            g = corner - first + off / (ratio + copysign(sqrt(ratio * ratio + 1.0), ratio))
            s, c, p = one, one, nothing
            for i in range(m - 2, begin - 1, -1):
                inside = end > nothing + i
                if any_lane(inside):
                    f, b = s * load(e, i * width, nothing), c * load(e, i * width, nothing)
                    r = sqrt(f * f + g * g)
                    ends = end == nothing + (i + 1)  # the entry behind the block is negligible
                    store(
                        e, (i + 1) * width, select(inside, select(ends, nothing, r), load(e, (i + 1) * width, nothing))
                    )
                    s = select(inside, select(r > 0.0, f / r, nothing), s)
                    c = select(inside, select(r > 0.0, g / r, one), c)
                    below = load(d, (i + 1) * width, nothing)
                    least = below - p
                    t = (load(d, i * width, nothing) - least) * s + 2.0 * c * b
                    p = select(inside, s * t, p)
                    store(d, (i + 1) * width, select(inside, least + p, below))
                    g = select(inside, c * t - b, g)
                    cosine, sine = select(inside, c, one), select(inside, s, nothing)
                    if alone:
                        turned(
                            v, i * row, row, LANES, splat(lane(cosine, 0), v, LANES),
                            splat(lane(sine, 0), v, LANES),
                        )  # fmt: skip
                    else:
                        turned(v, i * row, row, width, cosine, sine)
            store(d, begin * width, select(unfinished, first - p, first))
            store(e, begin * width, select(unfinished, g, off))


@per_width
def _pairs(width: int, alone: bool) -> Any:
    @compiled_serial
    def loop(d, e, v, couplings, m, first, row, n_tiles):
        for t in range(n_tiles):
            nothing, own, count = zeros(d, width), np.int64(t) * m * width, np.int64(first) + 1
            diagonal, off = d[own : own + m * width], e[own : own + m * width]
            vectors = v[np.int64(t) * m * row : (np.int64(t) + 1) * m * row]
            if first > 0:
                b, w = np.zeros(count * count * width, d.dtype), np.zeros(2 * count * width, d.dtype)
                at = np.int64(t) * first * width
                for i in range(count):
                    store(b, (i * count + i) * width, load(diagonal, i * width, nothing))
                for i in range(first):
                    coupling = load(couplings, at + i * width, nothing)
                    store(b, (first * count + i) * width, coupling)
                    store(b, (i * count + first) * width, coupling)
                reflected(b, diagonal, off, vectors, w, count, width, row, nothing)
            diagonalised(diagonal, off, vectors, m, width, row, nothing, alone)

    return loop


def ritz_pairs(diagonal: np.ndarray, off: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (n_tiles, m, width), in no order, and vectors (n_tiles, m, n_components, width), one in each row.

    Parameters
    ----------
    diagonal, off : arrays, shape (n_tiles, m, width)
        `off` couples each row from `first` on to the next one, and those before it to row `first`; its last is not
        used.
    first : int

    Eigenvalues are accurate to rounding of the largest. Vectors have components beyond m, which are zero, where the
    width is 1. Takes about ``13 m**3`` operations for each sample.
    """
    n_tiles, m, given = diagonal.shape
    if (width := 1 if given == 1 else LANES) > given:  # lanes that are not there repeat the last one: one code for all
        lanes = np.minimum(np.arange(width), given - 1)
        diagonal, off = diagonal[:, :, lanes], off[:, :, lanes]
    largest = np.maximum(np.abs(diagonal).max(axis=1), np.abs(off[:, :-1]).max(axis=1, initial=0.0))[:, None, :]
    unit = np.where((largest > 1e-100) & (largest < 1e100), 1.0, np.where(largest > 0.0, largest, 1.0))
    d, e = np.ascontiguousarray(diagonal / unit), np.ascontiguousarray(off / unit)  # in any order until here
    couplings = np.ascontiguousarray(e[:, :first])
    padded = -(-m // LANES) * LANES if width == 1 else m
    v = np.zeros((n_tiles, m, padded, width))
    own = np.arange(m)
    v[:, own, own] = 1.0
    _pairs(width, width == 1)(
        d.reshape(-1), e.reshape(-1), v.reshape(-1), couplings.reshape(-1), m, first, padded * width, n_tiles
    )
    return (d * unit)[:, :, :given], v[..., :given]
