"""Approximate minimum degree ordering on a quotient graph (Amestoy, Davis, Duff 1996, SIAM J. Matrix Anal. 17, 886).

A node is a variable, or an element: the clique of variables that an elimination leaves. The list of a variable holds
its elements and then its variables; that of an element its variables. Variables with equal lists are merged into one
supervariable, whose number of variables is `size`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.numba import compiled_serial, inner

__all__ = ["minimum_degree"]


class Quotient(NamedTuple):
    """The quotient graph, one number per node in every array."""

    start: Any
    length: Any
    n_elements: Any
    size: Any
    """Variables of a supervariable; 0 for an absorbed one, negative while it belongs to the new element."""
    degree: Any
    mark: Any
    """Time stamps; 0 for an absorbed element."""
    head: Any
    """First variable of each degree, -1 for none."""
    following: Any
    previous: Any
    absorbed_by: Any
    bucket: Any
    """First variable of each hash value."""
    next_in_bucket: Any
    pivot: Any
    """The position of an element among the pivots, -1 for other nodes."""


@inner
def _list_variable(q, v):
    d = q.degree[v]
    q.previous[v] = -1
    q.following[v] = q.head[d]
    if q.head[d] >= 0:
        q.previous[q.head[d]] = v
    q.head[d] = v


@inner
def _unlist_variable(q, v):
    before, after = q.previous[v], q.following[v]
    if after >= 0:
        q.previous[after] = before
    if before >= 0:
        q.following[before] = after
    else:
        q.head[q.degree[v]] = after


@inner
def _compact(q, lists):
    """Live lists in a fresh workspace, and where its free part starts."""
    fresh, free = np.empty_like(lists), 0
    for v in range(q.size.size):
        live = q.mark[v] != 0 if q.pivot[v] >= 0 else q.size[v] != 0
        if live:
            first = q.start[v]
            for k in range(q.length[v]):
                fresh[free + k] = lists[first + k]
            q.start[v] = free
            free += q.length[v]
    return fresh, free


@inner
def _form_element(q, lists, me, free):
    """Write the variables of the new element `me` from `free` on; returns the end, and the number of variables."""
    end, degree = free, 0
    n_elements, first = q.n_elements[me], q.start[me]
    for k in range(n_elements + 1):
        if k < n_elements:
            e = lists[first + k]
            if q.mark[e] == 0:
                continue
            low, high = q.start[e], q.start[e] + q.length[e]
        else:
            e = me
            low, high = first + n_elements, first + q.length[me]
        for p in range(low, high):
            v = lists[p]
            if q.size[v] > 0:
                degree += q.size[v]
                _unlist_variable(q, v)
                q.size[v] = -q.size[v]
                lists[end] = v
                end += 1
        if e != me:
            q.mark[e] = 0
            q.absorbed_by[e] = me
    return end, degree


@inner
def _measure_overlaps(q, lists, low, high, stamp):
    """``mark[e] - stamp`` = variables of the element e outside the new one, for every e that touches it."""
    for p in range(low, high):
        v = lists[p]
        for k in range(q.start[v], q.start[v] + q.n_elements[v]):
            e = lists[k]
            if q.mark[e] >= stamp:
                q.mark[e] += q.size[v]  # negative here
            elif q.mark[e] != 0:
                q.mark[e] = q.degree[e] + stamp + q.size[v]


@inner
def _shorten_list(q, lists, v, me, stamp):
    """Remove from the list of `v` what the element `me` covers; returns the degree outside of it and a hash."""
    first, total, code = q.start[v], 0, np.int64(0)
    end = first
    n_elements = q.n_elements[v]
    for k in range(first, first + n_elements):
        e = lists[k]
        if q.mark[e] == 0:
            continue
        outside = q.mark[e] - stamp
        if outside > 0:
            total += outside
            code += e
            lists[end] = e
            end += 1
        else:  # all of its variables belong to `me`
            q.mark[e] = 0
            q.absorbed_by[e] = me
    variables = first + n_elements
    last = first + q.length[v]
    count = 0
    for k in range(variables, last):
        j = lists[k]
        if q.size[j] > 0:
            total += q.size[j]
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
    q.n_elements[v] = target - first
    q.length[v] = target - first + count
    return total, code


@inner
def _same_lists(q, lists, a, b, stamp):
    """Whether the list of `b` holds what the marks of `a` say."""
    if q.length[a] != q.length[b] or q.n_elements[a] != q.n_elements[b]:
        return False
    k, end = q.start[b], q.start[b] + q.length[b]
    while k < end and q.mark[lists[k]] == stamp:
        k += 1
    return k == end


@inner
def _merge_alike(q, lists, low, high, codes, stamp):
    """Merge variables of the new element whose lists are equal; returns the next time stamp."""
    n = q.size.size
    for p in range(low, high):
        a = lists[p]
        if q.size[a] == 0:
            continue
        chain = q.bucket[codes[a] % n]
        q.bucket[codes[a] % n] = -1
        while chain >= 0:
            if q.size[chain] != 0 and q.next_in_bucket[chain] >= 0:
                for k in range(q.start[chain], q.start[chain] + q.length[chain]):
                    q.mark[lists[k]] = stamp
                before, other = chain, q.next_in_bucket[chain]
                while other >= 0:
                    after = q.next_in_bucket[other]
                    if codes[other] == codes[chain] and _same_lists(q, lists, chain, other, stamp):
                        q.size[chain] += q.size[other]
                        q.size[other] = 0
                        q.absorbed_by[other] = chain
                        q.next_in_bucket[before] = after
                    else:
                        before = other
                    other = after
                stamp += 1
            chain = q.next_in_bucket[chain]
    return stamp


@inner
def _relist(q, lists, low, high, degree, left):
    """Degrees of the variables of the new element; returns its end, and the least degree."""
    end, least = low, left
    for p in range(low, high):
        v = lists[p]
        if q.size[v] == 0:
            continue
        q.size[v] = -q.size[v]
        d = min(q.degree[v] + degree - q.size[v], left - q.size[v])
        q.degree[v] = max(d, 0)
        least = min(least, q.degree[v])
        _list_variable(q, v)
        lists[end] = v
        end += 1
    return end, least


@inner
def _eliminate(q, lists, codes, me, free, stamp, left):
    """Make the variable `me` an element; returns the end of its list, a time stamp, variables left, a least degree."""
    _unlist_variable(q, me)
    pivots = q.size[me]
    q.size[me] = 0
    end, degree = _form_element(q, lists, me, free)
    q.start[me], q.n_elements[me] = free, 0
    q.mark[me] = stamp - 1
    _measure_overlaps(q, lists, free, end, stamp)
    n = q.size.size
    for p in range(free, end):
        v = lists[p]
        outside, code = _shorten_list(q, lists, v, me, stamp)
        if q.length[v] == 1:  # nothing but `me`: eliminated together with it
            pivots -= q.size[v]
            degree += q.size[v]
            q.size[v] = 0
            q.absorbed_by[v] = me
        else:
            q.degree[v] = min(q.degree[v], outside)
            codes[v] = code
            q.next_in_bucket[v] = q.bucket[code % n]
            q.bucket[code % n] = v
    stamp = _merge_alike(q, lists, free, end, codes, stamp + n + 1)
    left -= pivots
    end, least = _relist(q, lists, free, end, degree, left)
    q.length[me], q.degree[me], q.mark[me] = end - free, degree, stamp
    if end == free:
        q.mark[me] = 0
    return end, stamp + 1, left, least


@compiled_serial
def _order(q, lists, codes, free, left):
    """Eliminate all variables; pivots are numbered in `q.pivot`."""
    stamp, least, count = np.int64(2), 0, 0
    while left > 0:
        while q.head[least] < 0:
            least += 1
        me = q.head[least]
        need = q.length[me]
        for k in range(q.start[me], q.start[me] + q.n_elements[me]):
            need += q.length[lists[k]]
        if free + need > lists.size:
            lists, free = _compact(q, lists)
            if free + need > lists.size:
                larger = np.empty(free + need + lists.size // 2, lists.dtype)
                larger[:free] = lists[:free]
                lists = larger
        q.pivot[me] = count
        count += 1
        free, stamp, left, least_of_element = _eliminate(q, lists, codes, me, free, stamp, left)
        least = min(least, least_of_element)


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
    start = np.cumsum(length) - length
    lists = np.empty(indices.size + indices.size // 2 + n + 1, np.int64)
    lists[: indices.size] = indices
    blank = lambda value: np.full(n, value, np.int64)
    q = Quotient(
        start, length.copy(), blank(0), np.where(dense, 0, 1), length.copy(), blank(1), blank(-1), blank(-1),
        blank(-1), blank(-1), blank(-1), blank(-1), blank(-1),
    )  # fmt: skip
    for v in np.flatnonzero(~dense)[::-1].tolist():
        d = q.degree[v]
        q.following[v] = q.head[d]
        if q.head[d] >= 0:
            q.previous[q.head[d]] = v
        q.head[d] = v
    _order(q, lists, blank(0), indices.size, int(n - dense.sum()))
    root, absorbed = np.arange(n), q.absorbed_by
    while True:  # the pivot that each variable was eliminated with
        further = (q.pivot[root] < 0) & (absorbed[root] >= 0)
        if not further.any():
            break
        root = np.where(further, absorbed[root], root)
    place = np.where(dense, n, q.pivot[root])
    return np.lexsort((np.arange(n), place))
