"""Numbers of a factorisation without exchanges, all samples at once.

Every entry is ``a_ij - l_i0 u_0j - l_i1 u_1j - ...``, products subtracted in ascending order and never fused. Two forms
give the same bits: the flat one reads the operands of every entry from a list, with the values of one tile of samples
in the cache; the one by rows adds multiples of rows above to a dense row, and needs no list.

Operations of the flat form: two loads of a tile and 8 bytes of the list for a multiply-add.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, inner, output, per_width, prange, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.direct.elimination import Elimination

__all__ = ["BLOCKS", "factorized", "runs_of_tiles", "tiles_by_width"]

BLOCKS = 64
"""Runs of tiles that threads share; each has one buffer."""

FLAT_WIDTH, ROW_WIDTH = 32, 8
"""Samples of a tile in the two forms."""

U = np.uint64  # an unsigned index needs no test for a negative one


@kernel
def factorized(values, plan, out):
    """The values of the factorisation, shape (n_values, n_samples), and a zero for each sample, NaN where it broke."""
    xp = array_namespace(values)
    zero = xp.zeros(values.shape[1:], dtype=values.dtype)
    start = [values[s, ...] if s >= 0 else zero for s in plan.sources.tolist()]
    rows, made, broken = [], [], zero
    for i, diagonal in enumerate(plan.diagonal.tolist()):
        left = plan.lower[plan.lower_starts[i] : plan.lower_starts[i + 1]].tolist()
        right = plan.upper[plan.upper_starts[i] : plan.upper_starts[i + 1]].tolist()
        stored = [*([] if plan.symmetric else left), i, *right]
        first = diagonal - (0 if plan.symmetric else len(left))
        row = dict(zip(stored, start[first:], strict=False))
        for k in left:
            factor = (rows[k][i] if plan.symmetric else row[k]) * rows[k][k]
            if not plan.symmetric:
                row[k] = factor
            for j, above in rows[k].items():
                if j >= i or (j > k and not plan.symmetric):
                    row[j] = row[j] - factor * above
        inverse = 1.0 / row[i]
        row[i] = xp.where((inverse - inverse == 0.0) & (inverse != 0.0), inverse, xp.full_like(inverse, xp.nan))
        for j in stored:
            broken = broken + (row[j] - row[j])
        rows.append(row)
        made += [row[j] for j in stored]
    return into(out, xp.stack(made) if made else xp.zeros((0, *zero.shape), dtype=values.dtype)), broken


@inner
def reciprocal(pivot):
    """1 / pivot; NaN where that is zero or not finite."""
    inverse = 1.0 / pivot
    return select((inverse - inverse == 0.0) & (inverse != 0.0), inverse, np.nan)


@inner
def runs_of_tiles(n_tiles):
    """Tiles of one run."""
    return max(1, (n_tiles + BLOCKS - 1) // BLOCKS)


@inner
def _reduced(values, sources, work, starts, left, right, e, width, n_samples, first, nothing):
    """Entry e of the matrix less its products."""
    total = nothing
    if sources[U(e)] >= 0:
        total = load(values, np.int64(sources[U(e)]) * n_samples + first, nothing)
    for p in range(U(starts[U(e)]), U(starts[U(e) + U(1)])):
        total = total - load(work, np.int64(left[p]) * width, nothing) * load(work, np.int64(right[p]) * width, nothing)
    return total


@per_width
def _flat(width, symmetric):
    """Values of a tile are worked out in a buffer; those of L, which LDL^T does not keep, lie behind the others."""

    @compiled
    def loop(
        values, sources, lower_starts, lower, across, first_value, diagonal, starts, left, right, out, broken,
        n_samples, begin, n_tiles,
    ):  # fmt: skip
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            n, n_values = diagonal.size, sources.size
            work = np.empty((n_values + (lower.size if symmetric else 0)) * width, values.dtype)
            nothing = zeros(values, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = begin + tile * width
                check = nothing
                for i in range(n):
                    e = first_value[i]
                    for p in range(lower_starts[i], lower_starts[i + 1]):
                        k = np.int64(lower[p])
                        if symmetric:
                            value = load(work, (across[p] + k + 1) * width, nothing)
                            place = n_values + p
                        else:
                            value = _reduced(
                                values, sources, work, starts, left, right, e, width, n_samples, first, nothing
                            )
                            place = e
                            e += 1
                        value = value * load(work, diagonal[k] * width, nothing)
                        store(work, place * width, value)
                        check = check + (value - value)
                    pivot = _reduced(values, sources, work, starts, left, right, e, width, n_samples, first, nothing)
                    pivot = reciprocal(pivot)
                    store(work, e * width, pivot)
                    check = check + (pivot - pivot)
                    last = first_value[i + 1]
                    for u in range(e + 1, last):
                        value = _reduced(
                            values, sources, work, starts, left, right, u, width, n_samples, first, nothing
                        )
                        store(work, u * width, value)
                        check = check + (value - value)
                for e in range(n_values):
                    store(out, e * n_samples + first, load(work, e * width, nothing))
                store(broken, first, check)

    return loop


@per_width
def _by_rows(width, symmetric):
    """A dense row is reduced by the rows above, which are read where they are stored."""

    @compiled
    def loop(
        values, sources, lower_starts, lower, across, first_value, diagonal, upper_starts, upper, out, broken,
        n_samples, begin, n_tiles,
    ):  # fmt: skip
        for tile in prange(n_tiles):
            n = diagonal.size
            row = np.empty(n * width, values.dtype)
            nothing = zeros(values, width)
            first = begin + np.int64(tile) * width
            check = nothing
            for i in range(n):
                e, own = first_value[i], diagonal[i]
                for p in range(lower_starts[i], lower_starts[i + 1] if not symmetric else lower_starts[i]):
                    source = np.int64(sources[e + p - lower_starts[i]])
                    value = load(values, source * n_samples + first, nothing) if source >= 0 else nothing
                    store(row, np.int64(lower[p]) * width, value)
                for e in range(own, first_value[i + 1]):
                    j = np.int64(i if e == own else upper[upper_starts[i] + e - own - 1])
                    source = np.int64(sources[e])
                    value = load(values, source * n_samples + first, nothing) if source >= 0 else nothing
                    store(row, j * width, value)
                for p in range(lower_starts[i], lower_starts[i + 1]):
                    k = np.int64(lower[p])
                    begin_t = across[p] if symmetric else upper_starts[k]
                    shift = diagonal[k] + 1 - upper_starts[k]
                    if symmetric:
                        factor = load(out, (begin_t + shift) * n_samples + first, nothing)
                    else:
                        factor = load(row, k * width, nothing)
                    factor = factor * load(out, diagonal[k] * n_samples + first, nothing)
                    check = check + (factor - factor)
                    if not symmetric:
                        store(out, (first_value[i] + p - lower_starts[i]) * n_samples + first, factor)
                    for t in range(U(begin_t), U(upper_starts[k + 1])):
                        place = np.int64(upper[t]) * width
                        above = load(out, (np.int64(t) + shift) * n_samples + first, nothing)
                        store(row, place, load(row, place, nothing) - factor * above)
                pivot = reciprocal(load(row, i * width, nothing))
                check = check + (pivot - pivot)
                store(out, own * n_samples + first, pivot)
                for e in range(own + 1, first_value[i + 1]):
                    value = load(row, np.int64(upper[upper_starts[i] + e - own - 1]) * width, nothing)
                    check = check + (value - value)
                    store(out, e * n_samples + first, value)
            store(broken, first, check)

    return loop


def tiles_by_width(n_samples: int, widest: int) -> Any:
    """``(first, width, n_tiles)``: neighbouring tiles of one width together."""
    found: list[list[int]] = []
    for first, width in tiles(n_samples, widest):
        if found and found[-1][1] == width:
            found[-1][2] += 1
        else:
            found.append([first, width, 1])
    return found


@factorized.register("numba")
def _(values: np.ndarray, plan: Elimination, out: Any) -> Any:
    n_samples = values.shape[1]
    out = output(out, (plan.n_values, n_samples), values.dtype)
    broken = np.zeros(n_samples, values.dtype)
    graph = (plan.lower_starts, plan.lower, plan.across, plan.first, plan.diagonal)
    flat = plan.pairs is not None
    form = plan.pairs if plan.pairs is not None else (plan.upper_starts, plan.upper)
    for first, width, count in tiles_by_width(n_samples, FLAT_WIDTH if flat else ROW_WIDTH):
        loop = (_flat if flat else _by_rows)(width, plan.symmetric)
        loop(
            values.reshape(-1), plan.sources, *graph, *form, out.reshape(-1), broken, n_samples, first, count
        )  # fmt: skip
    return out, broken
