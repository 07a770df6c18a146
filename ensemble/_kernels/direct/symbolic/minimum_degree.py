"""Approximate minimum degree ordering on a quotient graph (Amestoy, Davis, Duff 1996, SIAM J. Matrix Anal. 17, 886).

A node is a variable, or an element: the clique of variables that an elimination leaves. The list of a variable holds
its elements and then its variables; that of an element its variables. Variables with equal lists are merged into one
supervariable, whose number of variables is `size`.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_procedure
from ensemble._compile.plain_code import Integers, behind, entry, plain

__all__ = ["minimum_degree"]


START, LENGTH, N_ELEMENTS = 0, 1, 2
"""Arrays of the quotient graph, one number per node: where the list is, its length, and the elements in it."""

SIZE, DEGREE = 3, 4
"""Variables of a supervariable, 0 for an absorbed one, negative while it belongs to the new element; its degree."""

MARK = 5
"""Time stamps; 0 for an absorbed element."""

HEAD, FOLLOWING, PREVIOUS = 6, 7, 8
"""The first variable of each degree, -1 for none, and the lists that it starts."""

ABSORBED_BY = 9

BUCKET, NEXT_IN_BUCKET = 10, 11
"""The first variable of each hash value, and the lists that it starts."""

PIVOT = 12
"""The position of an element among the pivots, -1 for other nodes."""

N_ARRAYS = 13


@plain
def _list_variable(q: Integers, n: int, v: int) -> None:
    degree_of, head, following = behind(q, DEGREE * n), behind(q, HEAD * n), behind(q, FOLLOWING * n)
    previous = behind(q, PREVIOUS * n)
    d = degree_of[v]
    previous[v] = -1
    following[v] = head[d]
    if head[d] >= 0:
        previous[head[d]] = v
    head[d] = v


@plain
def _unlist_variable(q: Integers, n: int, v: int) -> None:
    degree_of, head, following = behind(q, DEGREE * n), behind(q, HEAD * n), behind(q, FOLLOWING * n)
    previous = behind(q, PREVIOUS * n)
    before, after = previous[v], following[v]
    if after >= 0:
        previous[after] = before
    if before >= 0:
        following[before] = after
    else:
        head[degree_of[v]] = after


@plain
def _form_element(q: Integers, n: int, lists: Integers, me: int, free: int) -> tuple[int, int]:
    """Write the variables of the new element `me` from `free` on; returns the end, and the number of variables."""
    start, length, elements_of = behind(q, START * n), behind(q, LENGTH * n), behind(q, N_ELEMENTS * n)
    size, mark, absorbed_by = behind(q, SIZE * n), behind(q, MARK * n), behind(q, ABSORBED_BY * n)
    end, degree = free, 0
    n_elements, first = elements_of[me], start[me]
    for k in range(n_elements + 1):
        if k < n_elements:
            e = lists[first + k]
            if mark[e] == 0:
                continue
            low, high = start[e], start[e] + length[e]
        else:
            e = me
            low, high = first + n_elements, first + length[me]
        for p in range(low, high):
            v = lists[p]
            if size[v] > 0:
                degree += size[v]
                _unlist_variable(q, n, v)
                size[v] = -size[v]
                lists[end] = v
                end += 1
        if e != me:
            mark[e] = 0
            absorbed_by[e] = me
    return end, degree


@plain
def _measure_overlaps(q: Integers, n: int, lists: Integers, low: int, high: int, stamp: int) -> None:
    """``mark[e] - stamp`` = variables of the element e outside the new one, for every e that touches it."""
    start, elements_of, size = behind(q, START * n), behind(q, N_ELEMENTS * n), behind(q, SIZE * n)
    degree_of, mark = behind(q, DEGREE * n), behind(q, MARK * n)
    for p in range(low, high):
        v = lists[p]
        for k in range(start[v], start[v] + elements_of[v]):
            e = lists[k]
            if mark[e] >= stamp:
                mark[e] += size[v]  # negative here
            elif mark[e] != 0:
                mark[e] = degree_of[e] + stamp + size[v]


@plain
def _shorten_list(q: Integers, n: int, lists: Integers, v: int, me: int, stamp: int) -> tuple[int, int]:
    """Remove from the list of `v` what the element `me` covers; returns the degree outside of it and a hash."""
    start, length, elements_of = behind(q, START * n), behind(q, LENGTH * n), behind(q, N_ELEMENTS * n)
    size, mark, absorbed_by = behind(q, SIZE * n), behind(q, MARK * n), behind(q, ABSORBED_BY * n)
    first, total, code = start[v], 0, 0
    end = first
    n_elements = elements_of[v]
    for k in range(first, first + n_elements):
        e = lists[k]
        if mark[e] == 0:
            continue
        outside = mark[e] - stamp
        if outside > 0:
            total += outside
            code += e
            lists[end] = e
            end += 1
        else:  # all of its variables belong to `me`
            mark[e] = 0
            absorbed_by[e] = me
    variables = first + n_elements
    last = first + length[v]
    count = 0
    for k in range(variables, last):
        j = lists[k]
        if size[j] > 0:
            total += size[j]
            code += j
            lists[variables + count] = j
            count += 1
    target = end + 1
    if target <= variables:
        for k in range(count):
            lists[target + k] = lists[variables + k]
    else:  # all elements stay; `me` was a variable of the list, so one more entry fits
        for k in range(count - 1, -1, -1):
            lists[target + k] = lists[variables + k]
    lists[end] = me
    elements_of[v] = target - first
    length[v] = target - first + count
    return total, code


@plain
def _same_lists(q: Integers, n: int, lists: Integers, a: int, b: int, stamp: int) -> bool:
    """Whether the list of `b` holds what the marks of `a` say."""
    start, length, elements_of = behind(q, START * n), behind(q, LENGTH * n), behind(q, N_ELEMENTS * n)
    mark = behind(q, MARK * n)
    if length[a] != length[b] or elements_of[a] != elements_of[b]:
        return False
    k, end = start[b], start[b] + length[b]
    while k < end and mark[lists[k]] == stamp:
        k += 1
    return k == end


@plain
def _merge_alike(q: Integers, n: int, lists: Integers, low: int, high: int, codes: Integers, stamp: int) -> int:
    """Merge variables of the new element whose lists are equal; returns the next time stamp."""
    start, length, size = behind(q, START * n), behind(q, LENGTH * n), behind(q, SIZE * n)
    mark, absorbed_by, bucket = behind(q, MARK * n), behind(q, ABSORBED_BY * n), behind(q, BUCKET * n)
    next_in_bucket = behind(q, NEXT_IN_BUCKET * n)
    for p in range(low, high):
        a = lists[p]
        if size[a] == 0:
            continue
        chain = bucket[codes[a] % n]
        bucket[codes[a] % n] = -1
        while chain >= 0:
            if size[chain] != 0 and next_in_bucket[chain] >= 0:
                for k in range(start[chain], start[chain] + length[chain]):
                    mark[lists[k]] = stamp
                before, other = chain, next_in_bucket[chain]
                while other >= 0:
                    after = next_in_bucket[other]
                    if codes[other] == codes[chain] and _same_lists(q, n, lists, chain, other, stamp):
                        size[chain] += size[other]
                        size[other] = 0
                        absorbed_by[other] = chain
                        next_in_bucket[before] = after
                    else:
                        before = other
                    other = after
                stamp += 1
            chain = next_in_bucket[chain]
    return stamp


@plain
def _relist(q: Integers, n: int, lists: Integers, low: int, high: int, degree: int, left: int) -> tuple[int, int]:
    """Degrees of the variables of the new element; returns its end, and the least degree."""
    size, degree_of = behind(q, SIZE * n), behind(q, DEGREE * n)
    end, least = low, left
    for p in range(low, high):
        v = lists[p]
        if size[v] == 0:
            continue
        size[v] = -size[v]
        d = min(degree_of[v] + degree - size[v], left - size[v])
        degree_of[v] = max(d, 0)
        least = min(least, degree_of[v])
        _list_variable(q, n, v)
        lists[end] = v
        end += 1
    return end, least


@plain
def _eliminate(
    q: Integers, n: int, lists: Integers, codes: Integers, me: int, free: int, stamp: int, left: int
) -> tuple[int, int, int, int]:
    """Make the variable `me` an element; returns the end of its list, a time stamp, variables left, a least degree."""
    start, length, elements_of = behind(q, START * n), behind(q, LENGTH * n), behind(q, N_ELEMENTS * n)
    size, degree_of, mark = behind(q, SIZE * n), behind(q, DEGREE * n), behind(q, MARK * n)
    absorbed_by, bucket, next_in_bucket = (
        behind(q, ABSORBED_BY * n),
        behind(q, BUCKET * n),
        behind(q, NEXT_IN_BUCKET * n),
    )
    _unlist_variable(q, n, me)
    pivots = size[me]
    size[me] = 0
    end, degree = _form_element(q, n, lists, me, free)
    start[me], elements_of[me] = free, 0
    mark[me] = stamp - 1
    _measure_overlaps(q, n, lists, free, end, stamp)
    for p in range(free, end):
        v = lists[p]
        outside, code = _shorten_list(q, n, lists, v, me, stamp)
        if length[v] == 1:  # nothing but `me`: eliminated together with it
            pivots -= size[v]
            degree += size[v]
            size[v] = 0
            absorbed_by[v] = me
        else:
            degree_of[v] = min(degree_of[v], outside)
            codes[v] = code
            next_in_bucket[v] = bucket[code % n]
            bucket[code % n] = v
    stamp = _merge_alike(q, n, lists, free, end, codes, stamp + n + 1)
    left -= pivots
    end, least = _relist(q, n, lists, free, end, degree, left)
    length[me], degree_of[me], mark[me] = end - free, degree, stamp
    if end == free:
        mark[me] = 0
    return end, stamp + 1, left, least


@plain
def _compact(q: Integers, n: int, lists: Integers, fresh: Integers) -> int:
    """Move live lists to the front of the workspace; returns where its free part starts."""
    start, length, size = behind(q, START * n), behind(q, LENGTH * n), behind(q, SIZE * n)
    mark, pivot = behind(q, MARK * n), behind(q, PIVOT * n)
    free = 0
    for v in range(n):
        live = mark[v] != 0 if pivot[v] >= 0 else size[v] != 0
        if live:
            first = start[v]
            for k in range(length[v]):
                fresh[free + k] = lists[first + k]
            start[v] = free
            free += length[v]
    for k in range(free):
        lists[k] = fresh[k]
    return free


@plain
def _order(
    q: Integers, n: int, lists: Integers, capacity: int, fresh: Integers, codes: Integers, state: Integers
) -> None:
    """Eliminate variables, numbered in `pivot`, until none is left or the workspace is too small.

    `state`: the end of the lists, the variables left, a time stamp, a least degree and the number of pivots.
    """
    start, length, elements_of = behind(q, START * n), behind(q, LENGTH * n), behind(q, N_ELEMENTS * n)
    head, pivot = behind(q, HEAD * n), behind(q, PIVOT * n)
    free, left, stamp, least, count = state[0], state[1], state[2], state[3], state[4]
    while left > 0:
        while head[least] < 0:
            least += 1
        me = head[least]
        need = length[me]
        for k in range(start[me], start[me] + elements_of[me]):
            need += length[lists[k]]
        if free + need > capacity:
            free = _compact(q, n, lists, fresh)
            if free + need > capacity:
                break
        pivot[me] = count
        count += 1
        free, stamp, left, least_of_element = _eliminate(q, n, lists, codes, me, free, stamp, left)
        least = min(least, least_of_element)
    state[0], state[1], state[2], state[3], state[4] = free, left, stamp, least, count


_ordered = entry(_order, "float64")


@compiled_procedure
def _run(q, n, lists, fresh, codes, state):
    _ordered(q, n, lists, lists.size, fresh, codes, state)


def minimum_degree(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The elimination order, shape (n,), of a symmetric graph without diagonal entries.

    Rows with more than ``10 sqrt(n)`` entries come last and are left out of the graph.
    """
    n = indptr.size - 1
    length = np.diff(indptr).astype(np.int64)
    dense = length > max(16, 10 * np.sqrt(n))
    if dense.any():
        rows = np.repeat(np.arange(n), length)
        kept = ~(dense[rows] | dense[indices])
        indices = indices[kept]
        length = np.bincount(rows[kept], minlength=n).astype(np.int64)
    q = np.full((N_ARRAYS, n), -1, np.int64)
    q[START], q[LENGTH], q[N_ELEMENTS] = np.cumsum(length) - length, length, 0
    q[SIZE], q[DEGREE], q[MARK] = np.where(dense, 0, 1), length, 1
    degree_of, head, following, previous = q[DEGREE], q[HEAD], q[FOLLOWING], q[PREVIOUS]
    for v in np.flatnonzero(~dense)[::-1].tolist():
        d = degree_of[v]
        following[v] = head[d]
        if head[d] >= 0:
            previous[head[d]] = v
        head[d] = v
    lists = np.empty(indices.size + indices.size // 2 + n + 1, np.int64)
    lists[: indices.size] = indices
    codes, state = np.full(n, -1, np.int64), np.array([indices.size, n - dense.sum(), 2, 0, 0])
    while state[1] > 0:
        _run(q.reshape(-1), n, lists, np.empty_like(lists), codes, state)
        if state[1] > 0:  # the workspace is too small
            lists = np.concatenate([lists, np.empty(lists.size // 2 + n, np.int64)])
    root, absorbed, pivot = np.arange(n), q[ABSORBED_BY], q[PIVOT]
    while True:  # the pivot that each variable was eliminated with
        further = (pivot[root] < 0) & (absorbed[root] >= 0)
        if not further.any():
            break
        root = np.where(further, absorbed[root], root)
    place = np.where(dense, n, pivot[root])
    return np.lexsort((np.arange(n), place))
