"""Means of many series that share gains, for models of any size: series in lanes, in `plain_code`.

Every mean is made of the same operations in the same order as in `loops.py` and `smoother_loops.py`, where the gains
are computed: each series has the bits of its own run.

Operations: a multiply-add takes one broadcast of a number of the model, which is shared, and a quarter of a load.
"""

from __future__ import annotations

from ensemble._compile.plain_code import (
    LANES,
    Integers,
    Numbers,
    behind,
    fma,
    inlined,
    load,
    rolled,
    spread,
    store,
)
from ensemble._kernels.kalman.tiles import DESCRIPTOR, array_of

__all__ = ["mean_range", "mean_workspace_size", "smoothed_mean_range"]


def mean_workspace_size(nx: int, ny: int, lanes: int) -> int:
    """Numbers that `mean_range` and `smoothed_mean_range` work on, with so many in a register."""
    return (4 * nx + 4 * ny + 1) * lanes


@rolled
def _add_product(
    A: Numbers, by_row: int, by_inner: int, x: Numbers, base: Numbers, out: Numbers, rows: int, inner: int
) -> None:
    """``base + A x`` of each lane, term by term; four rows at a time, so that no sum waits for itself."""
    j = 0
    while j + 4 <= rows:
        at, to = j * by_row, j * LANES
        a, b = load(base, to), load(base, to + LANES)
        c, d = load(base, to + 2 * LANES), load(base, to + 3 * LANES)
        for i in range(inner):
            v = load(x, i * LANES)
            a, b = fma(A[at], v, a), fma(A[at + by_row], v, b)
            c, d = fma(A[at + 2 * by_row], v, c), fma(A[at + 3 * by_row], v, d)
            at += by_inner
        store(out, to, a)
        store(out, to + LANES, b)
        store(out, to + 2 * LANES, c)
        store(out, to + 3 * LANES, d)
        j += 4
    while j < rows:
        at, a = j * by_row, load(base, j * LANES)
        for i in range(inner):
            a = fma(A[at], load(x, i * LANES), a)
            at += by_inner
        store(out, j * LANES, a)
        j += 1


@inlined
def _at_step(places: Integers, number: int, first: int, k: int) -> Numbers:
    """Array `number` from step k of the series `first` on."""
    return behind(array_of(places, number, first), k * places[number * DESCRIPTOR + 2])


@rolled
def _fetch(places: Integers, number: int, n: int, k: int, first: int, valid: int, out: Numbers) -> None:
    """The `n` entries of array `number` at step k of the series from `first` on; the last one again in spare lanes."""
    source = _at_step(places, number, first, k)
    by_series, by_entry = places[number * DESCRIPTOR + 1], places[number * DESCRIPTOR + 3]
    if by_series == 1 and valid == LANES:
        for c in range(n):
            store(out, c * LANES, load(source, c * by_entry))
    elif by_series == 0:
        for c in range(n):
            store(out, c * LANES, spread(source[c * by_entry]))
    else:
        for w in range(LANES):
            own = by_series * min(w, valid - 1)
            for c in range(n):
                out[c * LANES + w] = source[own + c * by_entry]


@rolled
def _flush(places: Integers, number: int, n: int, k: int, first: int, valid: int, given: Numbers) -> None:
    """The opposite of `_fetch`."""
    target = _at_step(places, number, first, k)
    by_series, by_entry = places[number * DESCRIPTOR + 1], places[number * DESCRIPTOR + 3]
    if by_series == 1 and valid == LANES:
        for c in range(n):
            store(target, c * by_entry, load(given, c * LANES))
    else:
        for w in range(valid):
            for c in range(n):
                target[by_series * w + c * by_entry] = given[c * LANES + w]


@inlined
def _difference(a: Numbers, b: Numbers, out: Numbers, n: int) -> None:
    for c in range(n):
        store(out, c * LANES, load(a, c * LANES) - load(b, c * LANES))


@inlined
def _negative(a: Numbers, out: Numbers, n: int) -> None:
    for c in range(n):
        store(out, c * LANES, -load(a, c * LANES))


@inlined
def _term(
    lower: Numbers, inverses: Numbers, logs: Numbers, r: Numbers, white: Numbers, ny: int, out: Numbers
) -> None:  # fmt: skip
    """The logarithm of the density of an observation, from its innovation."""
    for i in range(ny):
        z = load(r, i * LANES)
        for j in range(i):
            z = fma(load(white, j * LANES), -lower[i * ny + j], z)
        store(white, i * LANES, z)
    first = load(white, 0)
    total = first * (first * inverses[0])
    for i in range(1, ny):
        z = load(white, i * LANES)
        total = fma(z, z * inverses[i], total)
    for i in range(ny):
        total = total + logs[i]
    store(out, 0, total * -0.5)


@rolled
def mean_range(
    places: Integers, n_steps: int, nx: int, ny: int, predict_first: bool, n_series: int, w: Numbers, first: int,
    last: int,
) -> None:  # fmt: skip
    """The filter's means, and the logarithms of densities, of the tiles of series from `first` to before `last`.

    `places` holds the positions of F, H, the gain, the lower triangle, the inverse pivots and the logarithms of pivots,
    all shared; of u, d, y, m0, the mean and the densities. A missing entry makes all that follows NaN.
    """
    m, ahead = w, behind(w, nx * LANES)
    shift, less = behind(w, 2 * nx * LANES), behind(w, 3 * nx * LANES)
    y, d = behind(w, 4 * nx * LANES), behind(w, (4 * nx + ny) * LANES)
    r, white = behind(w, (4 * nx + 2 * ny) * LANES), behind(w, (4 * nx + 3 * ny) * LANES)
    term = behind(w, (4 * nx + 4 * ny) * LANES)
    for tile in range(first, last):
        begin, valid = tile * LANES, min(LANES, n_series - tile * LANES)
        _fetch(places, 9, nx, 0, begin, valid, m)
        for k in range(n_steps):
            if k > 0 or predict_first:
                _fetch(places, 6, nx, k, begin, valid, shift)
                _add_product(_at_step(places, 0, 0, k), nx, 1, m, shift, ahead, nx, nx)
            else:
                for c in range(nx):
                    store(ahead, c * LANES, load(m, c * LANES))
            _fetch(places, 7, ny, k, begin, valid, d)
            _fetch(places, 8, ny, k, begin, valid, y)
            _difference(y, d, d, ny)
            _negative(ahead, less, nx)
            _add_product(_at_step(places, 1, 0, k), nx, 1, less, d, r, ny, nx)
            _add_product(_at_step(places, 2, 0, k), 1, nx, r, ahead, m, nx, ny)
            _term(_at_step(places, 3, 0, k), _at_step(places, 4, 0, k), _at_step(places, 5, 0, k), r, white, ny, term)
            _flush(places, 10, nx, k, begin, valid, m)
            _flush(places, 11, 1, k, begin, valid, term)


@rolled
def smoothed_mean_range(
    places: Integers, n_steps: int, nx: int, n_series: int, w: Numbers, first: int, last: int
) -> None:  # fmt: skip
    """The smoother's means of the tiles of series from `first` to before `last`, whose last steps are there.

    `places` holds the positions of F and the gain, both shared; of u, the filtered and the smoothed mean.
    """
    later, shift = w, behind(w, nx * LANES)
    m, less = behind(w, 2 * nx * LANES), behind(w, 3 * nx * LANES)
    for tile in range(first, last):
        begin, valid = tile * LANES, min(LANES, n_series - tile * LANES)
        _fetch(places, 4, nx, n_steps - 1, begin, valid, later)
        for k in range(n_steps - 2, -1, -1):
            _fetch(places, 2, nx, k + 1, begin, valid, shift)
            _fetch(places, 3, nx, k, begin, valid, m)
            _difference(later, shift, shift, nx)
            _negative(m, less, nx)
            _add_product(_at_step(places, 0, 0, k + 1), nx, 1, less, shift, shift, nx, nx)
            _add_product(_at_step(places, 1, 0, k), 1, nx, shift, m, later, nx, nx)
            _flush(places, 4, nx, k, begin, valid, later)
