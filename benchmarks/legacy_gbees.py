"""GBEES in three dimensions in plain loops, with the structures of the legacy method and those that replaced them.

Hanson et al. (2025), section 3, name what they changed: cells in a nested list or in a hash table; a fixed step or the
largest stable one; growth to all 3^n - 1 neighbours, and pruning that looks at all of them, or at downwind and upwind
ones. Here each is a switch of one program, so that a gain is of one change. What the paper leaves open is chosen here:
the nested list is a linked list of first indices, each with a list of second ones, each with a list of cells, searched
from the front; cells hold links to their six face neighbours in both structures. Fluxes are computed as in
`ensemble.apps.gbees`, in all versions alike; pruning deletes every candidate (``prune="parallel"`` there).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from ensemble._compile.numba import compiled_serial

__all__ = ["Legacy"]

TOP, N_FREE, HEAD, N_NODES, N_CELLS = range(5)
"""Places in ``counts``: slots ever used, free slots, first node of the list, nodes of both levels, cells."""

PRUNE_EVERY = 20


inlined = numba.njit(inline="always")
"""For functions that are called for every neighbour: calls with tuples of arrays cost more than their work."""


@inlined
def _hash(i, j, k):
    h = i * 73856093 ^ j * 19349663 ^ k * 83492791
    return h ^ (h >> 13)


@inlined
def _find(index, store, counts, i, j, k, hashed):
    """The cell (i, j, k), or -1."""
    table, values, nexts, children, chain = store
    if hashed:
        mask = table.size - 1
        h = _hash(i, j, k) & mask
        while table[h] >= 0:
            c = table[h]
            if index[c, 0] == i and index[c, 1] == j and index[c, 2] == k:
                return c
            h = (h + 1) & mask
        return -1
    a = counts[HEAD]
    while a >= 0 and values[a] != i:
        a = nexts[a]
    if a < 0:
        return -1
    b = children[a]
    while b >= 0 and values[b] != j:
        b = nexts[b]
    if b < 0:
        return -1
    c = children[b]
    while c >= 0 and index[c, 2] != k:
        c = chain[c]
    return c


@compiled_serial
def _node(store, counts, first, value):
    """The node of `value` in the list that begins at `first`, made at its front where there is none; and the front."""
    _, values, nexts, children, _ = store
    a = first
    while a >= 0 and values[a] != value:
        a = nexts[a]
    if a >= 0:
        return a, first
    a = counts[N_NODES]
    counts[N_NODES] += 1
    values[a], nexts[a], children[a] = value, first, -1
    return a, a


@compiled_serial
def _store(index, store, counts, c, hashed):
    """Add a cell that is not there."""
    table, _, _, children, chain = store
    if hashed:
        mask = table.size - 1
        h = _hash(index[c, 0], index[c, 1], index[c, 2]) & mask
        while table[h] >= 0:
            h = (h + 1) & mask
        table[h] = c
        return
    a, counts[HEAD] = _node(store, counts, counts[HEAD], index[c, 0])
    b, children[a] = _node(store, counts, children[a], index[c, 1])
    chain[c] = children[b]
    children[b] = c


@compiled_serial
def _without(nexts, first, before, at):
    """Take `at` out of the list that begins at `first`; the new first. `before` is the one before `at`, or -1."""
    if before < 0:
        return nexts[at]
    nexts[before] = nexts[at]
    return first


@compiled_serial
def _unlist(index, store, counts, c):
    """Take a cell out of the nested list; nodes stay until `_sweep`."""
    _, values, nexts, children, chain = store
    a = counts[HEAD]
    while values[a] != index[c, 0]:
        a = nexts[a]
    b = children[a]
    while values[b] != index[c, 1]:
        b = nexts[b]
    before, at = -1, children[b]
    while at != c:
        before, at = at, chain[at]
    children[b] = _without(chain, children[b], before, c)


@compiled_serial
def _sweep(store, counts):
    """Take empty nodes out of the nested list."""
    _, _, nexts, children, _ = store
    before, a = -1, counts[HEAD]
    while a >= 0:
        back, b = -1, children[a]
        while b >= 0:
            if children[b] >= 0:
                back = b
            else:
                children[a] = _without(nexts, children[a], back, b)
            b = nexts[b]
        if children[a] >= 0:
            before = a
        else:
            counts[HEAD] = _without(nexts, counts[HEAD], before, a)
        a = nexts[a]


@compiled_serial
def _add(cells, store, counts, free, frame, i, j, k, hashed):
    """Add the cell (i, j, k), which is not there, with no probability, its velocities and links."""
    index, p, v, links, alive, _, _ = cells
    if counts[N_FREE] > 0:
        counts[N_FREE] -= 1
        c = free[counts[N_FREE]]
    else:
        c = counts[TOP]
        counts[TOP] += 1
    index[c, 0], index[c, 1], index[c, 2] = i, j, k
    p[c], alive[c] = 0.0, 1
    counts[N_CELLS] += 1
    h, half = frame[0], 0.5 * frame[0]
    x, y, z = h * i + frame[1], h * j + frame[2], h * k + frame[3]
    v[c, 0] = 4.0 * (y - ((h * i + half) + frame[1]))
    v[c, 1] = -((h * j + half) + frame[2]) - x * z
    v[c, 2] = -1.0 * ((h * k + half) + frame[3]) + x * y - 48.0
    _store(index, store, counts, c, hashed)
    for axis in range(3):
        for side in range(2):
            step = 2 * side - 1
            other = _find(index, store, counts, i + step * (axis == 0), j + step * (axis == 1), k + step * (axis == 2),
                          hashed)  # fmt: skip
            links[c, 2 * axis + side] = other
            if other >= 0:
                links[other, 2 * axis + 1 - side] = c


@compiled_serial
def grow(cells, store, counts, free, frame, hashed, directional):
    """Add neighbours of active cells: all 26, or those downwind."""
    index, p, v, _, alive, _, _ = cells
    for c in range(counts[TOP]):
        if alive[c] == 0 or p[c] < frame[4]:
            continue
        i, j, k = index[c, 0], index[c, 1], index[c, 2]
        if not directional:
            for a in range(-1, 2):
                for b in range(-1, 2):
                    for d in range(-1, 2):
                        missing = _find(index, store, counts, i + a, j + b, k + d, hashed) < 0
                        if missing and (a != 0 or b != 0 or d != 0):
                            _add(cells, store, counts, free, frame, i + a, j + b, k + d, hashed)
            continue
        s0, s1, s2 = int(np.sign(v[c, 0])), int(np.sign(v[c, 1])), int(np.sign(v[c, 2]))
        for a, b, d in ((s0, 0, 0), (0, s1, 0), (0, 0, s2), (s0, s1, 0), (s0, 0, s2), (0, s1, s2)):
            if _find(index, store, counts, i + a, j + b, k + d, hashed) < 0:  # the cell itself where velocities are 0
                _add(cells, store, counts, free, frame, i + a, j + b, k + d, hashed)


@inlined
def _limited(a, d):
    """The monotonised central limiter times d."""
    if d == 0.0:
        return 0.0
    theta = a / d
    return max(0.0, min(0.5 * (1.0 + theta), min(2.0, 2.0 * theta))) * d


@compiled_serial
def largest_step(cells, counts, frame):
    """The largest stable step: eq. 8 with absolute values."""
    _, _, v, _, alive, _, _ = cells
    most = 0.0
    for c in range(counts[TOP]):
        if alive[c]:
            most = max(most, (abs(v[c, 0]) / frame[0] + abs(v[c, 1]) / frame[0]) + abs(v[c, 2]) / frame[0])
    return 1.0 / most


@compiled_serial
def advect(cells, counts, frame, dt):
    """One step; probabilities are clipped and normalised after."""
    _, p, v, links, alive, transverse, flux = cells
    h, top = frame[0], counts[TOP]
    for c in range(top):
        if alive[c]:
            for m in range(3):
                low, high = links[c, 2 * m], links[c, 2 * m + 1]
                below = max(v[low, m], 0.0) * (p[c] - p[low]) if low >= 0 else 0.0
                above = min(v[c, m], 0.0) * (p[high] - p[c]) if high >= 0 else 0.0
                transverse[c, m] = (dt / (2.0 * h)) * (below + above)
    for c in range(top):
        if alive[c]:
            for m in range(3):
                low, high = links[c, 2 * m], links[c, 2 * m + 1]
                u = v[c, m]
                total = (transverse[c, 0] + transverse[c, 1]) + transverse[c, 2]
                f = max(u, 0.0) * (p[c] - (total - transverse[c, m]))
                if high >= 0:
                    total = (transverse[high, 0] + transverse[high, 1]) + transverse[high, 2]
                    f += min(u, 0.0) * (p[high] - (total - transverse[high, m]))
                    d = p[high] - p[c]
                    if u > 0.0:
                        a = p[c] - (p[low] if low >= 0 else 0.0)
                    else:
                        second = links[high, 2 * m + 1]
                        a = (p[second] if second >= 0 else 0.0) - p[high]
                    f += 0.5 * abs(u) * (1.0 - abs(u) * (dt / h)) * _limited(a, d)
                flux[c, m] = f
    for c in range(top):
        if alive[c]:
            change = 0.0
            for m in range(3):
                low = links[c, 2 * m]
                change += (dt / h) * (flux[c, m] - (flux[low, m] if low >= 0 else 0.0))
            p[c] = max(p[c] - change, 0.0)
    normalise(cells, counts)


@compiled_serial
def normalise(cells, counts):
    """Divide by the sum."""
    _, p, _, _, alive, _, _ = cells
    total = 0.0
    for c in range(counts[TOP]):
        if alive[c]:
            total += p[c]
    for c in range(counts[TOP]):
        if alive[c]:
            p[c] /= total


@compiled_serial
def _needed(cells, store, counts, frame, c, hashed, directional):
    """Whether a small cell stays: an active one is beside it, or upwind of it."""
    index, p, v, links, _, _, _ = cells
    i, j, k = index[c, 0], index[c, 1], index[c, 2]
    if not directional:
        for a in range(-1, 2):
            for b in range(-1, 2):
                for d in range(-1, 2):
                    if a != 0 or b != 0 or d != 0:
                        other = _find(index, store, counts, i + a, j + b, k + d, hashed)
                        if other >= 0 and p[other] >= frame[4]:
                            return True
        return False
    for m in range(3):
        for side in range(2):
            face = links[c, 2 * m + side]
            if face < 0:
                continue
            flows = v[face, m] > 0.0 if side == 0 else v[face, m] < 0.0
            if p[face] >= frame[4] and flows:
                return True
            for n in range(3):
                for beside in range(2):
                    edge = links[face, 2 * n + beside] if n != m else -1
                    if edge >= 0 and p[edge] >= frame[4]:
                        one = v[edge, m] > 0.0 if side == 0 else v[edge, m] < 0.0
                        two = v[edge, n] > 0.0 if beside == 0 else v[edge, n] < 0.0
                        if one and two:
                            return True
    return False


@compiled_serial
def prune(cells, store, counts, free, frame, doomed, hashed, directional):
    """Delete small cells that no active one needs; normalise."""
    index, p, _, links, alive, _, _ = cells
    for c in range(counts[TOP]):
        small = alive[c] and p[c] < frame[4]
        doomed[c] = small and not _needed(cells, store, counts, frame, c, hashed, directional)
    for c in range(counts[TOP]):
        if doomed[c]:
            for side in range(6):
                other = links[c, side]
                if other >= 0:
                    links[other, side ^ 1] = -1
            if not hashed:
                _unlist(index, store, counts, c)
            alive[c] = 0
            free[counts[N_FREE]] = c
            counts[N_FREE] += 1
            counts[N_CELLS] -= 1
    if hashed:
        store[0][:] = -1
        for c in range(counts[TOP]):
            if alive[c]:
                _store(index, store, counts, c, True)
    else:
        _sweep(store, counts)
    normalise(cells, counts)


class Legacy:
    """A run of Lorenz '63; `hashed`, `adaptive` and `directional` are what section 3 of the paper changes.

    `step` is the fixed step where `adaptive` is False.
    """

    def __init__(
        self, indices: np.ndarray, probabilities: np.ndarray, *, width: float = 0.5, threshold: float = 5e-6,
        hashed: bool = True, adaptive: bool = True, directional: bool = True, step: float = 0.0,
        capacity: int = 1 << 15,
    ) -> None:  # fmt: skip
        self.hashed, self.adaptive, self.directional, self.step = hashed, adaptive, directional, step
        self.frame = np.array([width, -11.5, -10.0, 9.5, threshold])
        real, link = (lambda *shape: np.zeros((capacity, *shape))), (lambda *s: np.full((capacity, *s), -1, np.int32))
        self.cells: Any = (np.zeros((capacity, 3), np.int64), real(), real(3), link(6), np.zeros(capacity, np.uint8),
                           real(3), real(3))  # fmt: skip
        nodes = 1 << 20
        self.store: Any = (np.full(2 * capacity, -1, np.int32), np.zeros(nodes, np.int64), np.full(nodes, -1, np.int32),
                           np.full(nodes, -1, np.int32), link())  # fmt: skip
        self.counts = np.array([0, 0, -1, 0, 0])
        self.free, self.doomed, self.n_steps = np.zeros(capacity, np.int64), np.zeros(capacity, np.bool_), 0
        for (i, j, k), p in zip(indices.tolist(), probabilities.tolist(), strict=True):
            _add(self.cells, self.store, self.counts, self.free, self.frame, i, j, k, hashed)
            self.cells[1][self.counts[TOP] - 1] = p

    @property
    def n_cells(self) -> int:
        """Cells stored."""
        return int(self.counts[N_CELLS])

    def advance(self, span: float) -> list[tuple[float, int]]:
        """Steps that cover `span`: length and cells of each."""
        taken, elapsed = [], 0.0
        while elapsed < span:
            grow(self.cells, self.store, self.counts, self.free, self.frame, self.hashed, self.directional)
            dt = largest_step(self.cells, self.counts, self.frame) if self.adaptive else self.step
            dt = min(dt, span - elapsed)
            cells = self.n_cells
            advect(self.cells, self.counts, self.frame, dt)
            elapsed = span if dt == span - elapsed else elapsed + dt
            self.n_steps += 1
            if self.n_steps % PRUNE_EVERY == 0:
                self.prune()
            taken.append((dt, cells))
        return taken

    def prune(self) -> None:
        """Delete what is not needed."""
        prune(self.cells, self.store, self.counts, self.free, self.frame, self.doomed, self.hashed, self.directional)

    def measure(self, x3: float) -> None:
        """Weigh by a measurement of the third state with deviation 1, and prune; steps are counted anew."""
        index, p, _, _, alive, _, _ = self.cells
        p *= np.exp(-0.5 * (self.frame[0] * index[:, 2] + self.frame[3] - x3) ** 2) * alive
        normalise(self.cells, self.counts)
        self.prune()
        self.n_steps = 0

    def distribution(self) -> tuple[np.ndarray, np.ndarray]:
        """Multi-indices and probabilities in lexicographic order."""
        index, p, _, _, alive, _, _ = self.cells
        chosen = np.nonzero(alive)[0]
        order = np.lexsort(index[chosen].T[::-1])
        return index[chosen][order], p[chosen][order]
