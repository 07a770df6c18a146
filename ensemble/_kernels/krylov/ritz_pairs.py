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
from ensemble._compile.numba import compiled_procedure, inner, per_width

__all__ = ["ritz_pairs"]

LANES = 8
"""Samples of a tile, or components of a vector of one sample alone, in a register."""

MOST_TURNS = 80
"""QL steps for one eigenvalue; two suffice as a rule."""

EPS = float(np.finfo(np.float64).eps)

DEPENDENT = 1e-10
"""Norm of a new vector, by the largest of the process, below which what follows it may depend on the others."""


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
            less = load(w, (count + k) * width, nothing) - inner_product * load(b, own + k * width, nothing)
            store(w, (count + k) * width, less)
        for k in range(i):
            upper, u = load(w, (count + k) * width, nothing), load(b, own + k * width, nothing)
            for j in range(i):
                at = (k * count + j) * width
                less = upper * load(b, own + j * width, nothing) + u * load(w, (count + j) * width, nothing)
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


@inner(forceinline=True)
def scale_and_check(given, off, at, d, e, m, first, width, nothing):
    """Copy a matrix whose numbers may be squared; by what it was divided, and 1 where new vectors are independent."""
    largest, least, total = nothing, load(off, at + (m - 1) * width, nothing), nothing
    for i in range(m):
        here, beside = absolute(load(given, at + i * width, nothing)), load(off, at + i * width, nothing)
        total = total + 0.0 * (here + beside)
        largest = select(here > largest, here, largest)
        if i < m - 1:
            largest = select(absolute(beside) > largest, absolute(beside), largest)
        if i >= first:
            least = select(beside < least, beside, least)
    one = nothing + 1.0
    unit = select((largest > 1e-100) & (largest < 1e100), one, select(largest > 0.0, largest, one))
    for i in range(m):
        store(d, i * width, load(given, at + i * width, nothing) / unit)
        store(e, i * width, load(off, at + i * width, nothing) / unit)
    return unit, select((least > DEPENDENT * largest) & (total == 0.0), one, nothing)


@inner
def put_in_order(
    d, v, unit, off, place, offset, mode, m, width, row, position, rates, order, values, vectors, couplings
):
    """Write the pairs of one lane, the best first: by magnitude, upper or lower end, or nearness to a shift."""
    for i in range(m):
        value = d[i * width + position] * unit
        rate = value if mode == 1 else -value if mode == 2 else abs(value)
        if mode == 0 and offset != 0.0:
            rate = 1.0 / abs(1.0 / value + offset)
        k = i
        while k > 0 and rate > rates[k - 1]:
            rates[k], order[k] = rates[k - 1], order[k - 1]
            k -= 1
        rates[k], order[k] = rate, i
    for q in range(m):
        i, here = order[q], place * m + q
        values[here] = d[i * width + position] * unit
        for k in range(m):
            vectors[here * m + k] = v[i * row + k * width + position]
        couplings[here] = off * v[i * row + (m - 1) * width + position]


@per_width
def _pairs(width: int, alone: bool) -> Any:
    @compiled_procedure
    def loop(given, off, offsets, values, vectors, couplings, independent, m, first, capacity, mode):
        nothing, count = zeros(given, width), first + 1
        row = (m + LANES - 1) // LANES * LANES if alone else m * width
        d, e, v = np.empty(m * width), np.empty(m * width), np.empty(m * row)
        b, w = np.zeros(count * count * width), np.zeros(2 * count * width)
        rates, order = np.empty(m), np.empty(m, np.int64)
        for t in range(given.size // (capacity * width)):
            at = t * capacity * width
            unit, certain = scale_and_check(given, off, at, d, e, m, first, width, nothing)
            v[:] = 0.0
            for i in range(m):
                store(v, i * row + i * width, nothing + 1.0)
            if first > 0:
                b[:] = 0.0
                for i in range(count):
                    store(b, (i * count + i) * width, load(d, i * width, nothing))
                for i in range(first):
                    coupling = load(e, i * width, nothing)
                    store(b, (first * count + i) * width, coupling)
                    store(b, (i * count + first) * width, coupling)
                reflected(b, d, e, v, w, count, width, row, nothing)
            diagonalised(d, e, v, m, width, row, nothing, alone)
            store(w, 0, unit)
            for position in range(width):
                put_in_order(
                    d, v, w[position], off[at + (m - 1) * width + position], t * width + position,
                    offsets[t * width + position], mode, m, width, row, position, rates, order, values, vectors,
                    couplings,
                )  # fmt: skip
            store(independent, t * width, certain)

    return loop


def ritz_pairs(
    diagonal: np.ndarray, off: np.ndarray, m: int, first: int, which: str, offsets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ritz values, the best first, their vectors, how these are coupled to what follows, and whether all is certain.

    Parameters
    ----------
    diagonal, off : arrays, shape (n_tiles, capacity, width)
        The first m are used. `off` couples each row from `first` on to the next one, the last one to what follows, and
        those before `first` to that row.
    m, first : int
    which : {"LM", "LA", "SA"}
        The best are the largest in magnitude, the largest, the smallest.
    offsets : array, shape (n_tiles * width,), or None
        For "LM", values of inverses are rated by the distance of ``1 / value`` from ``-offset``.

    Returns
    -------
    arrays, shape (n_lanes, m), (n_lanes, m, m), a vector in each row, (n_lanes, m), (n_lanes,)
        Not certain are lanes in which `off` is zero but for rounding, from `first` on, or a number is not finite.

    Values are accurate to rounding of the largest. Takes about ``13 m**3`` operations for each sample.
    """
    n_tiles, capacity, given = diagonal.shape
    if (width := 1 if given == 1 else LANES) > given:  # lanes that are not there repeat the last one: one code for all
        lanes = np.minimum(np.arange(width), given - 1)
        diagonal, off = diagonal[:, :, lanes], off[:, :, lanes]
    count = n_tiles * width
    wide = np.zeros(count)
    if offsets is not None:
        wide[: offsets.size] = offsets
    values, couplings, independent = np.empty((count, m)), np.empty((count, m)), np.empty(count)
    vectors = np.empty((count, m, m))
    _pairs(width, width == 1)(
        np.ascontiguousarray(diagonal, np.float64).reshape(-1), np.ascontiguousarray(off, np.float64).reshape(-1), wide,
        values.reshape(-1), vectors.reshape(-1), couplings.reshape(-1), independent, m, first, capacity,
        {"LM": 0, "LA": 1, "SA": 2}[which],
    )  # fmt: skip
    return values, vectors, couplings, independent > 0.0
