"""Passes over the elements of a mesh: what is wrong with them, and an order in space."""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, inner, prange

__all__ = ["CHUNK", "bounds_of", "count_faulty_tets", "has_doubles", "order_of_keys", "rows_in_order", "spatial_keys"]

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


def has_doubles(tets: np.ndarray, keys: np.ndarray) -> bool:
    """Whether two of the tetrahedra `tets` (a flat array) have the same nodes; `keys` as of `count_faulty_tets`.

    Almost all keys differ already in the bit of a small table that they choose. The others are compared.
    """
    bits = max(10, (32 * keys.size).bit_length())
    seen, again = np.zeros(1 << (bits - 3), np.uint8), np.zeros(1 << (bits - 7), np.uint8)
    if not _mark_repeated(keys, seen, again):
        return False
    chosen = np.empty(keys.size, dtype=np.int32)
    chosen = chosen[: _marked(keys, again, chosen)]
    table = np.full(1 << (2 * chosen.size).bit_length(), -1, dtype=np.int32)
    return bool(_has_doubles(tets, keys, chosen, table))


@compiled_serial
def _mark_repeated(keys, seen, again):
    """How many keys choose a bit of `seen` that one before chose; they are marked in `again`."""
    count = 0
    for e in range(keys.size):
        key = U(keys[U(e)])
        place = key & U(8 * seen.size - 1)
        bit = U(1) << (place & U(7))
        found = U(seen[place >> U(3)])
        if found & bit:
            mark = key & U(8 * again.size - 1)
            again[mark >> U(3)] |= U(1) << (mark & U(7))
            count += 1
        seen[place >> U(3)] = found | bit
    return count


@compiled_serial
def _marked(keys, again, chosen):
    """Fill `chosen` with the elements whose keys are marked; their number."""
    count = U(0)
    for e in range(keys.size):
        mark = U(keys[U(e)]) & U(8 * again.size - 1)
        chosen[count] = e
        count += U(again[mark >> U(3)]) >> (mark & U(7)) & U(1)
    return count


@compiled_serial
def _has_doubles(tets, keys, chosen, table):
    """Tell whether two elements of `chosen` have the same nodes.

    `table` is a hash table for their numbers: a power of two of places, all -1.
    """
    mask = U(table.size - 1)
    for n in range(chosen.size):
        e = U(chosen[n])
        at, place = e * U(4), U(keys[e]) & mask
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
def bounds_of(points, rows, low, high):
    """The least and the largest coordinate of ``points[rows]`` per axis, for each chunk of rows."""
    dim = points.shape[1]
    for chunk in prange(low.shape[0]):
        for d in range(dim):
            least, most = np.inf, -np.inf
            for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, rows.size)):
                x = points[U(rows[U(i)]), U(d)]
                least, most = min(least, x), max(most, x)
            low[chunk, d], high[chunk, d] = least, most


@compiled_serial
def order_of_keys(keys, order):
    """The stable order of ascending keys from 0 to 32767."""
    place = np.zeros(1 << 15, np.int64)
    for i in range(keys.size):
        place[U(keys[U(i)])] += 1
    total = 0
    for key in range(place.size):
        place[key], total = total, total + place[key]
    for i in range(keys.size):
        key = U(keys[U(i)])
        order[U(place[key])] = i
        place[key] += 1


@compiled
def rows_in_order(rows, order, corners, out):
    """Row m of `out` is row ``order[m]`` of `rows`; flat arrays of rows of ``len(corners)`` numbers."""
    k = len(corners)  # a constant of the compiled loop
    for m in prange(order.size):
        at, to = U(order[m]) * U(k), U(m) * U(k)
        for c in range(k):
            out[to + U(c)] = rows[at + U(c)]


@compiled
def spatial_keys(points, rows, low, scale, spread, keys):
    """The place of each of ``points[rows]`` on a Z-curve through a grid of ``spread.size`` cells per axis.

    A coordinate that lies in no cell, as NaN, counts as one of the first.
    """
    dim = points.shape[1]
    for chunk in prange((keys.size + CHUNK - 1) // CHUNK):
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, keys.size)):
            key, j = 0, U(rows[U(i)])
            for d in range(dim):
                place = (points[j, U(d)] - low[U(d)]) * scale[U(d)]
                key += np.int64(spread[U(place if 0.0 <= place < spread.size else 0.0)]) << d
            keys[U(i)] = key
