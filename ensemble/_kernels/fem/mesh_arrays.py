"""Passes over the elements of a mesh: what is wrong with them, and an order in space."""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.types import prefetch
from ensemble._compile.numba import compiled, compiled_serial, inner, prange

__all__ = ["CHUNK", "count_faulty_tets", "has_doubles", "spatial_keys"]

AHEAD = 16
"""Elements by which the table of `has_doubles` is prefetched."""

CHUNK = 4096
"""Elements that a thread takes at a time."""

U = np.uint64  # an unsigned index needs no test for a negative one


@inner
def _key(a, b, c, d):
    """A number for four nodes that does not depend on their order."""
    key = U(0)
    for node in (a, b, c, d):
        x = U(node) * U(0x9E3779B97F4A7C15)
        x ^= x >> U(29)
        key += x * U(0xBF58476D1CE4E5B9)
    return key ^ (key >> U(32))


@compiled
def count_faulty_tets(points, tets, flat, volumes, keys, used, faulty):
    """Volumes and keys of tetrahedra (flat arrays), the nodes that are used, and faulty elements of each chunk.

    An element is faulty if a node does not exist or stands twice, if six times its volume is not above `flat` times the
    cube of its longest edge, or not positive.
    """
    n_nodes, n_elements = points.size // 3, tets.size // 4
    for chunk in prange(faulty.size):
        count = 0
        for e in range(chunk * CHUNK, min((chunk + 1) * CHUNK, n_elements)):
            at = U(e) * U(4)
            a, b, c, d = (np.int64(tets[at]), np.int64(tets[at + U(1)]), np.int64(tets[at + U(2)]),
                          np.int64(tets[at + U(3)]))  # fmt: skip
            if min(min(a, b), min(c, d)) < 0 or max(max(a, b), max(c, d)) >= n_nodes:
                count += 1
                continue
            used[a], used[b], used[c], used[d] = True, True, True, True
            i, j, k, m = U(a * 3), U(b * 3), U(c * 3), U(d * 3)
            x, y, z = points[i], points[i + U(1)], points[i + U(2)]
            ax, ay, az = points[j] - x, points[j + U(1)] - y, points[j + U(2)] - z
            bx, by, bz = points[k] - x, points[k + U(1)] - y, points[k + U(2)] - z
            cx, cy, cz = points[m] - x, points[m + U(1)] - y, points[m + U(2)] - z
            triple = ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx)
            longest = max(
                max(ax * ax + ay * ay + az * az, bx * bx + by * by + bz * bz),
                max(cx * cx + cy * cy + cz * cz, (bx - ax) ** 2 + (by - ay) ** 2 + (bz - az) ** 2),
            )
            longest = max(longest, (cx - ax) ** 2 + (cy - ay) ** 2 + (cz - az) ** 2)
            longest = max(longest, (cx - bx) ** 2 + (cy - by) ** 2 + (cz - bz) ** 2)
            volumes[U(e)], keys[U(e)] = triple / 6.0, _key(a, b, c, d)
            repeated = (a == b) | (a == c) | (a == d) | (b == c) | (b == d) | (c == d)
            count += repeated or not triple > flat * longest * np.sqrt(longest)
        faulty[chunk] = count


@compiled_serial
def has_doubles(tets, keys, table):
    """Whether two elements have the same nodes; `table` has a power of two of places, -1 each."""
    mask = U(table.size - 1)
    last = tets.size // 4 - 1
    for e in range(last + 1):
        at, place = U(e) * U(4), U(keys[U(e)]) & mask
        prefetch(table, np.int64(U(keys[U(min(e + AHEAD, last))]) & mask), 1)
        while table[place] >= 0:
            other = U(table[place]) * U(4)
            common = 0
            for b in range(4):
                for c in range(4):
                    common += tets[at + U(b)] == tets[other + U(c)]
            if common >= 4:
                return True
            place = (place + U(1)) & mask
        table[place] = e
    return False


@compiled
def spatial_keys(points, low, scale, spread, keys):
    """The place of each point on a Z-curve through a grid of ``spread.size`` cells per axis."""
    dim = points.shape[1]
    for chunk in prange((keys.size + CHUNK - 1) // CHUNK):
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, keys.size)):
            key = 0
            for d in range(dim):
                key += np.int64(spread[U((points[U(i), U(d)] - low[U(d)]) * scale[U(d)])]) << d
            keys[U(i)] = key
