"""The text of a GBEES run's loops, with gaps for dimensions and limiter; `generated.py` fills them.

Drift and bounds are no part of it: they are C functions of their own, called by their addresses, so that another drift
compiles nothing but itself.

A step is two passes. The first works out all that leaves a cell: every quantity that a flux takes from its upwind side
belongs to that one cell and its two neighbours along the dimension, so both fluxes that may leave the cell through its
two faces of a dimension are made where it is. The second adds up what arrives. There are no sums into shared places.
"""

LIMITERS = {
    "mc": "positive(smaller(smaller(a + a, d + d), 0.5 * (a + d)))"
    " + negative(larger(larger(a + a, d + d), 0.5 * (a + d)))",
    "minmod": "positive(smaller(a, d)) + negative(larger(a, d))",
    "superbee": "positive(smaller(larger(a, d), smaller(a + a, d + d)))"
    " + negative(larger(smaller(a, d), larger(a + a, d + d)))",
    "van_leer": "harmonic(a, d)",
    "none": "0.0 * a",
}
"""The limited slope from the differences to both sides: zero where their signs differ, the same whichever is upwind."""

STATUS = ("DONE", "FULL", "KEY_OVERFLOW", "PAUSED", "NOT_FINITE", "EMPTY", "NONE_LEFT", "STUCK")
"""How ``advance`` ends."""

STATE = ("END", "KNOWN", "SORTED", "COUNT", "RECORDED", "BUDGET", "PRUNE_EVERY", "SEQUENTIAL", "TIME_VARYING",
         "START", "RESUMED", "SWAPPED")  # fmt: skip
"""The entries of ``state``, int64: where cells end, cells with velocities, cells in order; steps since the last
weighing; steps told; cell-steps still allowed; three rules; where the cells of the last whole step end; whether growing
has begun since; whether the two buffers of probabilities have changed places."""

REALS = ("ELAPSED", "SPAN", "TIME", "MOMENT", "RATE", "THRESHOLD", "CFL")
"""The entries of ``reals``, float64; MOMENT is when the velocities were taken, RATE the largest share of a cell that
may leave it in unit time."""

HEAD = '''"""The loops of a GBEES run, written by ensemble; it may be deleted at any time. {digest}"""

import numpy as np

from ensemble._compile.c_functions import call_bounds, call_prune, call_velocities
from ensemble._compile.numba import compiled_regions, compiled_serial, inner, prange
from ensemble._kernels.gbees.grid import BASE, GOOD, UNIT, attach, neighbour_key, find, flows, room_for
IMPORTS

N = {n}
WIDTH = 8
LANES = {lanes}
BLOCK = 4096
{names}


@inner
def smaller(a, b):
    return select(a < b, a, b)


@inner
def larger(a, b):
    return select(a > b, a, b)


@inner
def positive(a):
    return select(a > 0.0, a, 0.0)


@inner
def negative(a):
    return select(a < 0.0, a, 0.0)


@inner
def harmonic(a, d):
    small, large = smaller(absolute(a), absolute(d)), larger(absolute(a), absolute(d))
    size = 2.0 * small / (1.0 + small / select(large > 0.0, large, 1.0 + 0.0 * large))
    return select((a > 0.0) & (d > 0.0), size, select((a < 0.0) & (d < 0.0), -size, 0.0 * size))


@inner
def limited(a, d):
    return {limiter}


@inner
def admitted(key, frame, numbers, bounds):
    return {admitted}


@inner
def fastest(first, last, v, size, numbers):
    """The largest share of a cell that may leave it in unit time, and whether all velocities are finite."""
    most = zeros(numbers, WIDTH)
    good = most == most
    for c in range(first, last, WIDTH):
        rate = zeros(numbers, WIDTH)
        for i in range(N):
            here = load(v, i * size + c, WIDTH) if last - c >= WIDTH else load_some(v, i * size + c, last - c, WIDTH)
            rate = rate + (absolute(as_float64(here)) / numbers[{widths} + i] + numbers[{leaks} + i])
        good = good & (rate < np.inf)
        most = select(rate > most, rate, most)
    most_of_all, all_good = 0.0, True
    for k in range(WIDTH):
        most_of_all = max(most_of_all, lane(most, k))
        all_good = all_good and lane(good, k)
    return most_of_all, all_good


@inner
def refreshed(first, last, time, grid, frame, numbers, drift):
    size = grid[0].size
    call_velocities(drift, first, last, time, grid[0], grid[3], size, frame, numbers)
    return fastest(first, last, grid[3], size, numbers)


@inner
def settle(cell, end, keys, v, links, growing, table, frame, numbers, bounds):
    """Make all cells that `cell` may flow into: over its faces, and over the edges between two of them.

    Gives the new end and how it went. Cells that `admitted` refuses stay missing.
    """
    size, n = keys.size, frame.shape[1]  # no constant: unrolled, this would be most of the code
    for i in range(n):
        for step in (1, -1):
            if not flows(v[i * size + cell], i, step, frame):
                continue
            face = links[(i + (n if step > 0 else 0)) * size + cell]
            key = neighbour_key(keys[cell], i, step, frame)
            if face == 0 and admitted(key, frame, numbers, bounds):
                status = room_for(key, end, n, keys, frame)
                if status != GOOD:
                    return end, status
                attach(key, end, cell, i, step, n, keys, links, growing, table, frame)
                face = end
                end += 1
            for j in range(i + 1, n):
                for side in (1, -1):
                    if not flows(v[j * size + cell], j, side, frame):
                        continue
                    if face and links[(j + (n if side > 0 else 0)) * size + face]:
                        continue
                    edge = neighbour_key(key, j, side, frame)
                    if (face or find(edge, keys, table) == 0) and admitted(edge, frame, numbers, bounds):
                        status = room_for(edge, end, n, keys, frame)
                        if status != GOOD:
                            return end, status
                        attach(edge, end, face, j, side, n, keys, links, growing, table, frame)
                        end += 1
    growing[cell] = False
    return end, GOOD


@inner
def growing_cells(end, limit, grid, frame, numbers, bounds):
    """All cells that probability may flow into; gives the new end and how it went."""
    keys, p, v, links, growing, table = grid[0], grid[1], grid[3], grid[4], grid[7], grid[9]
    last = end
    for c in range(BASE, last, LANES):
        if any_lane((load(p, c, LANES) >= limit) & load(growing, c, LANES)):
            for cell in range(c, min(last, c + LANES)):
                if growing[cell] and p[cell] >= limit:
                    end, status = settle(cell, end, keys, v, links, growing, table, frame, numbers, bounds)
                    if status != GOOD:
                        return end, status
    return end, GOOD


@inner
def outflow(first, last, dt, grid, numbers):
    p, q, v, links, up, down = grid[1], grid[2], grid[3], grid[4], grid[5], grid[6]
    size = p.size
{ratios}
    for c in range(first, last, LANES):
        x = load(p, c, LANES)
{differences}
        left = x - ({total})
        stays = x
{fluxes}
{corners}
        store(q, c, stays)


@inner
def inflow(first, last, grid, sums):
    """Add up what arrives; gives the mass, and what clipping added to it, in whole multiples of `UNIT`.

    No order of cells is in the bits of such sums.
    """
    q, links, up, down = grid[2], grid[4], grid[5], grid[6]
    size = q.size
    total, clipped = zeros(sums, LANES), zeros(sums, LANES)
    for c in range(first, last, LANES):
        x = load(q, c, LANES)
{arrivals}
        clipped = clipped + as_int64(rint(as_float64(positive(-x)) / UNIT))
        x = select(x > 0.0, x, 0.0)
        store(q, c, x)
        total = total + as_int64(rint(as_float64(x) / UNIT))
    mass, gain = 0, 0
    for k in range(LANES):
        mass += lane(total, k)
        gain += lane(clipped, k)
    return mass, gain


@inner
def scale(first, last, factor, q):
    for c in range(first, last, LANES):
        store(q, c, as_{dtype}(as_float64(load(q, c, LANES)) * factor))
'''

ALONE = '''

@inner
def refresh(first, last, time, grid, frame, numbers, drift, blocks):
    """Velocities of these cells, and the largest rate among them; NaN where one is not finite."""
    most, good = refreshed(first, last, time, grid, frame, numbers, drift)
    return most if good else np.nan


@inner
def flow(end, dt, grid, numbers, sums):
    """One step of length `dt` into the second buffer; gives the mass there, and what of it clipping added."""
    outflow(BASE, end, dt, grid, numbers)
    mass, gain = inflow(BASE, end, grid, sums)
    return mass * UNIT, gain * UNIT


@inner
def normalise(end, mass, q):
    """Bring what `flow` gave to a sum of 1."""
    scale(BASE, end, 1.0 / mass, q)
'''

SHARED = '''

@compiled_regions
def refreshed_by_all(first, last, time, grid, frame, numbers, drift, blocks):
    for b in prange((last - first + BLOCK - 1) // BLOCK):
        begin = first + b * BLOCK
        most, good = refreshed(begin, min(last, begin + BLOCK), time, grid, frame, numbers, drift)
        blocks[b] = most if good else np.nan


@compiled_regions
def outflow_by_all(last, dt, grid, numbers):
    for b in prange((last - BASE + BLOCK - 1) // BLOCK):
        first = BASE + b * BLOCK
        outflow(first, min(last, first + BLOCK), dt, grid, numbers)


@compiled_regions
def inflow_by_all(last, grid, sums):
    for b in prange((last - BASE + BLOCK - 1) // BLOCK):
        first = BASE + b * BLOCK
        sums[2 * b], sums[2 * b + 1] = inflow(first, min(last, first + BLOCK), grid, sums)


@compiled_regions
def scale_by_all(last, factor, q):
    for b in prange((last - BASE + BLOCK - 1) // BLOCK):
        first = BASE + b * BLOCK
        scale(first, min(last, first + BLOCK), factor, q)


@inner
def refresh(first, last, time, grid, frame, numbers, drift, blocks):
    """Velocities of these cells, and the largest rate among them; NaN where one is not finite."""
    refreshed_by_all(first, last, time, grid, frame, numbers, drift, blocks)
    most = 0.0
    for b in range((last - first + BLOCK - 1) // BLOCK):
        if not blocks[b] <= most:
            most = blocks[b]
        if most != most:
            break
    return most


@inner
def flow(end, dt, grid, numbers, sums):
    """One step of length `dt` into the second buffer; gives the mass there, and what of it clipping added."""
    outflow_by_all(end, dt, grid, numbers)
    inflow_by_all(end, grid, sums)
    mass, gain = 0, 0
    for b in range((end - BASE + BLOCK - 1) // BLOCK):
        mass += sums[2 * b]
        gain += sums[2 * b + 1]
    return mass * UNIT, gain * UNIT


@inner
def normalise(end, mass, q):
    """Bring what `flow` gave to a sum of 1."""
    scale_by_all(end, 1.0 / mass, q)
'''

ADVANCE = '''

@compiled_serial
def advance(grid, frame, numbers, drift, bounds, prune, state, reals, lengths, cells, masses, clips):
    """Steps until the span is over, the budget of cell-steps is used up, or something is in the way."""
    grid, frame, numbers = ({borrowed}), borrowed(frame), borrowed(numbers)
    real = grid[1].dtype.type
    size = grid[0].size
    blocks, sums = np.empty(size // BLOCK + 1), np.empty(2 * (size // BLOCK + 1), np.int64)
    while True:
        end = state[END]
        if state[KNOWN] < end:
            rate = refresh(state[KNOWN], end, reals[MOMENT], grid, frame, numbers, drift, blocks)
            if rate != rate:
                return NOT_FINITE
            reals[RATE] = max(reals[RATE], rate)
            state[KNOWN] = end
        if reals[ELAPSED] >= reals[SPAN]:
            return DONE
        if state[RECORDED] == lengths.size or state[BUDGET] <= 0:
            return PAUSED
        if state[RESUMED] == 0:
            state[START] = end
            if state[TIME_VARYING]:
                grid[7][BASE:end] = True
        state[RESUMED] = 1
        state[END], status = growing_cells(end, real(reals[THRESHOLD]), grid, frame, numbers, bounds)
        known, end = end, state[END]
        if status != GOOD:
            return status
        if state[TIME_VARYING]:
            known, reals[RATE] = BASE, 0.0
        now = reals[TIME] + reals[ELAPSED]
        rate = refresh(known, end, now, grid, frame, numbers, drift, blocks)
        if rate != rate:
            return NOT_FINITE
        reals[RATE] = max(reals[RATE], rate)
        state[KNOWN] = end
        left = reals[SPAN] - reals[ELAPSED]
        dt = left
        if reals[RATE] > 0.0:
            dt = min(reals[CFL] / reals[RATE], left)
        if dt < left and now + dt == now:
            return STUCK
{midway}
        mass, clipped = flow(end, dt, grid, numbers, sums)
        if not (mass > 0.0 and mass < np.inf):
            return EMPTY
        after = (grid[0], grid[2], grid[1], *grid[3:])
        pruned = (state[COUNT] + 1) % state[PRUNE_EVERY] == 0
        if pruned:
            new_end = call_prune(prune, N, size, grid[9].size, end, state[SORTED], reals[THRESHOLD], mass,
                                 state[SEQUENTIAL], frame, after)
            if new_end < 0:
                return NONE_LEFT
        else:
            normalise(end, mass, grid[2])
        grid = after
        k = state[RECORDED]
        lengths[k], cells[k], masses[k], clips[k] = dt, end - BASE, mass, clipped
        reals[MOMENT] = now
        state[RECORDED] += 1
        state[SWAPPED] = 1 - state[SWAPPED]
        state[COUNT] += 1
        state[BUDGET] -= end - BASE
        state[RESUMED] = 0
        reals[ELAPSED] = reals[ELAPSED] + dt if dt < left else reals[SPAN]
        if pruned:
            state[END], state[KNOWN], state[SORTED] = new_end, new_end, new_end
            state[START] = new_end
            reals[RATE], good = fastest(BASE, new_end, grid[3], size, numbers)
'''

DRIFT = '''"""The velocities of a drift, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import array_at, c_function, inner
IMPORTS

WIDTH = 8
{tables}


@inner
{drift}


@c_function("void(int64, int64, float64, {keys_at}, {reals_at}, int64, {keys_at}, {numbers_at})")
def velocities(first, last, time, keys, v, size, frame, numbers):
    """Velocities of the cells from `first` up to `last`, each through its upper faces, into `v`."""
    keys, v, frame, numbers = array_at(keys, 1), array_at(v, 1), array_at(frame, (6, {n})), array_at(numbers, 1)
    for c in range(first, last, WIDTH):
        key = load(keys, c, WIDTH) if last - c >= WIDTH else load_some(keys, c, last - c, WIDTH)
{columns}
        {results} = drift({arguments})
        if last - c >= WIDTH:
{stores}
        else:
{last_stores}
'''

BOUNDS = '''"""The bounds of a grid, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import array_at, c_function, inner
from ensemble._compile.lanes.tables import interpolated
from ensemble._compile.trace.elementwise import {functions}

{tables}


@inner
{bounds}


@c_function("int64(int64, {keys_at}, {numbers_at})")
def admitted(key, frame, numbers):
    """Whether the cell with this key lies within bounds, as 0 or 1."""
    frame, numbers = array_at(frame, (6, {n})), array_at(numbers, 1)
    J = bounds({arguments})
    return np.int64(J >= numbers[{low}] and J <= numbers[{low} + 1])
'''

OUTFLOW = """l_J, u_J = load(links, J * size + c, LANES), load(links, (N + J) * size + c, LANES)
below_J, above_J = x - gather(p, 0, l_J), gather(p, 0, u_J) - x
v_J, w_J, there_J = load(v, J * size + c, LANES), gather(v, J * size, l_J), u_J > 0
t_J = half_J * (positive(w_J) * below_J + select(there_J, negative(v_J) * above_J, 0.0))
s_J = 0.5 * limited(below_J, above_J)
v_J, w_J = positive(v_J), negative(w_J)
o_J = select(there_J, v_J * (1.0 - v_J * ratio_J) * s_J, 0.0)
i_J = w_J * (1.0 + w_J * ratio_J) * s_J"""

FLUXES = """o_J = ratio_J * (v_J * (left + t_J) + o_J)
i_J = ratio_J * (w_J * (left + t_J) - i_J)
store(up, J * size + c, o_J)
store(down, J * size + c, i_J)
stays = stays - (o_J - i_J)"""

SPREADING = """
stays = stays + leak_J * (select(there_J, above_J, 0.0) - select(l_J > 0, below_J, 0.0))"""

RATIOS = """ratio_J = {real}(dt / numbers[{widths} + J])
half_J = {real}(dt / (2.0 * numbers[{widths} + J]))
leak_J = {real}(dt * numbers[{spread} + J])"""

DIVERGENCE = """
d_J = half_J * select(l_J > 0, v_J - w_J, 0.0)"""
"""Behind the line of ``t_J`` in `OUTFLOW`: half a step times the drift's divergence, for the second order in time."""

MIDWAY = """        if state[TIME_VARYING]:
            now += 0.5 * dt
            rate = refresh(BASE, end, now, grid, frame, numbers, drift, blocks)
            if rate != rate:
                return NOT_FINITE"""
"""The second order in time for drifts that vary in it."""

SHARES = """mix_{i}_{j} = {real}(0.5 * dt * numbers[{corners} + {i} * N + {j}])"""

CORNER = """corner = gather(links, {to_j} * size, {first})
corner = select(corner > 0, corner, gather(links, {to_i} * size, {other}))
stays = stays + mix_{share} * select(corner > 0, gather(p, 0, corner) - x, 0.0)"""
"""What comes over an edge: behind either face that is there."""

ARRIVALS = """l_J, u_J = load(links, J * size + c, LANES), load(links, (N + J) * size + c, LANES)
x = x + (gather(up, J * size, l_J) - gather(down, J * size, u_J))"""
