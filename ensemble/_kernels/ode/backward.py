"""The CPU driver of gradients: the steps of a few samples are taken, recorded, and run backwards by the chain rule.

The lanes take their steps together; an entry of the record has the start, the length, and the state of a step, and the
length zero for lanes that do not move. A record holds a limited number of entries, so that it stays in a cache. Longer
runs leave checkpoints: the steps behind one are taken once more before they are run backwards (Griewank, Walther 2008,
"Evaluating Derivatives", 2nd edition, chapter 12). This file is compiled once for each precision.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ensemble._compile.c_functions import call_rows
from ensemble._compile.lanes.graph_loop import graph_loop
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.lanes.record_loop import reading_loop, recording_loop
from ensemble._compile.machine_code import Code, assembled, code_of
from ensemble._compile.numba import compiled_procedure, inner
from ensemble._compile.trace.graph import Graph
from ensemble._kernels.ode.driver import NON_FINITE, fill

__all__ = ["Backward", "backward_addresses", "gradient_range"]


class Backward(NamedTuple):
    """Where the C functions lie in this process, 0: not there; and their code, which is held while they run."""

    start: int
    record: int
    sweep: int
    back_start: int
    """Inputs t, y, p, cotangents of what is carried and of p; outputs those of y and p."""
    code: Code


@functools.lru_cache(maxsize=256)
def backward_addresses(
    start: Graph,
    record: Graph,
    n_carried: int,
    n_entry: int,
    sweep: Graph,
    n_cotangents: int,
    n_parameters: int,
    back_start: Graph | None,
    width: int,
    dtype: str,
) -> Backward:
    """The compiled functions; their machine code is kept on disk under a digest of their text."""
    functions = {
        "start": graph_loop(start, "start", 0, width, dtype),
        "record": recording_loop(record, "record", n_carried, n_entry, width, dtype),
        "sweep": reading_loop(sweep, "sweep", n_cotangents, n_parameters, width, dtype),
    }
    if back_start is not None:
        functions["back_start"] = graph_loop(back_start, "back_start", 0, width, dtype)
    code = code_of(assembled(functions.values()), list(functions), assembly_of)
    return Backward(code["start"], code["record"], code["sweep"], code.get("back_start"), code)


@inner
def copy_rows(target, to, source, first, count):
    """`count` rows from row `first` of `source` on, to row `to` of `target` on."""
    for i in range(count):
        for c in range(target.shape[1]):
            target[to + i, c] = source[first + i, c]


@inner
def clear_rows(target, low, high):
    """Zeros to the rows `low` to `high`."""
    for i in range(low, high):
        for c in range(target.shape[1]):
            target[i, c] = 0.0


@inner
def begin(first, last, start_at, places, sources, shared, varying, rows):
    """Load the samples and their first steps; returns states of lanes, 0: runs, or the status of a run that is over."""
    row_t, row_y, row_h, row_carried = places[0], places[1], places[2], places[3]
    row_steps, row_rejections, row_status = places[4], places[5], places[6]
    row_t0, row_t1, row_direction, row_t_out = places[8], places[9], places[10], places[11]
    place, n, n_carried = places[13], places[14], places[15]
    states = np.zeros(rows.shape[1], np.int64)
    for c in range(rows.shape[1]):
        fill(rows, c, min(first + c, last - 1), sources, shared, varying)
    call_rows(start_at, (rows, 1, 1))
    for c in range(rows.shape[1]):
        rows[row_h, c] = rows[place, c]
        bad = not np.isfinite(rows[row_h, c])
        for i in range(n):
            bad |= not np.isfinite(rows[row_y + i, c])
        for k in range(n_carried):
            rows[row_carried + k, c] = rows[place + 1 + k, c]
            bad |= not np.isfinite(rows[row_carried + k, c])
        rows[row_t, c] = rows[row_t0, c]
        rows[row_steps, c] = rows[row_rejections, c] = rows[row_rejections + 1, c] = 0.0
        rows[row_t_out, c] = np.inf * rows[row_direction, c]
        still = rows[row_t0, c] == rows[row_t1, c]
        states[c] = NON_FINITE if bad else (1 if still else 0)
        rows[row_status, c] = states[c]
    return states


@inner
def taken(rows, record, record_at, capacity, made, places):
    """Fill the record, from step `made` on; returns the entries, and whether all lanes are at their end."""
    row_t, row_h, row_status, row_t1, n_fixed = places[0], places[2], places[6], places[9], places[19]
    if n_fixed == 0:
        count = call_rows(record_at, (rows, record, capacity))
        done = True
        for c in range(rows.shape[1]):
            done &= rows[row_status, c] != 0.0
        return count, done
    whole = min(capacity, n_fixed - 1 - made)
    count = 0
    if whole > 0:
        count = call_rows(record_at, (rows, record, whole))
    if made + count < n_fixed - 1 or count == capacity:
        return count, False
    for c in range(rows.shape[1]):  # the last of equal steps may be shorter
        rows[row_h, c] = rows[row_t1, c] - rows[row_t, c]
    call_rows(record_at, (rows, record[count:], 1))
    for c in range(rows.shape[1]):
        rows[row_t, c] = rows[row_t1, c]
        rows[row_status, c] = 1.0
    return count + 1, True


@inner
def output_cotangents(record, count, c, s, next_start, t_eval, weights, at, size, n, degree):
    """Write the cotangents of the values at output times into the entries of lane `c`; returns the start of the first.

    Behind the state, an entry has rows for the cotangents of the dense output, of the state at the end of the step, and
    of the state at its start.
    """
    dense, shared = 2 + size, t_eval.shape[1] == 1
    for k in range(count - 1, -1, -1):
        h = record[k, 1, c]
        if h == 0.0:
            continue
        start = record[k, 0, c]
        while at >= 0:
            wanted = t_eval[at, 0 if shared else s]
            ends = (wanted - next_start) * h >= 0.0
            if not ends and (wanted - start) * h <= 0.0:
                break
            theta = (wanted - start) / h
            for i in range(n):
                weight = weights[at, i, s]
                if ends:
                    record[k, dense + n * degree + i, c] += weight
                else:
                    record[k, dense + n * degree + n + i, c] += weight
                    for d in range(degree):
                        weight = weight * theta
                        record[k, dense + i * degree + d, c] += weight
            at -= 1
        next_start = start
    return at, next_start


@inner
def ends(first, n_lanes, places, rows, begun, states, y, t, status, n_steps, n_rejected):
    """Write how the runs have ended."""
    for c in range(n_lanes):
        s, finite = first + c, True
        for i in range(places[14]):
            y[i, s] = rows[places[1] + i, c]
            finite &= np.isfinite(y[i, s])
        t[s] = rows[places[0], c]
        status[s] = np.int64(rows[places[6], c]) if finite else NON_FINITE
        n_steps[s], n_rejected[s] = np.int64(rows[places[4], c]), np.int64(rows[places[5], c])
        if states[c] != 0:  # equal steps carry such a lane along
            for i in range(places[14]):
                y[i, s] = begun[i, c]
            t[s], status[s], n_steps[s], n_rejected[s] = rows[places[8], c], states[c], 0, 0


@compiled_procedure
def gradient_range(
    first,
    last,
    addresses,
    places,
    sources,
    shared,
    varying,
    t_eval,
    weights,
    y,
    t,
    status,
    n_steps,
    n_rejected,
    by_y0,
    by_p,
    rows,
    back_rows,
    record,
):
    """Gradients of samples `first` to `last`, at most a set of lanes.

    Longer than 60 lines: one compiled loop over pieces of a run, each taken forwards and then backwards.

    `weights` are the cotangents of the end, shape (1, n, S), or of the values at the output times, (n_times, n, S).
    `record` has shape (capacity, rows of an entry, width). `back_rows` are the cotangents of the state and of p, and p.
    """
    start_at, record_at, sweep_at, back_start_at = addresses
    n, n_carried, n_p, carried = places[14], places[15], places[18], places[8]
    width, size, n_times, capacity = rows.shape[1], n + n_carried, t_eval.shape[0], record.shape[0]
    degree = places[16] if n_times > 0 else 0
    n_lanes = last - first
    states = begin(first, last, start_at, places, sources, shared, varying, rows)
    begun = np.empty((n, width), rows.dtype)
    copy_rows(begun, 0, rows, places[1], n)
    checkpoints = np.empty((16, carried, width), rows.dtype)
    n_checkpoints, count, made, done = 0, 0, 0, True
    for c in range(width):
        done &= states[c] != 0
    while not done:
        if n_checkpoints == checkpoints.shape[0]:
            larger = np.empty((2 * n_checkpoints, carried, width), rows.dtype)
            for k in range(n_checkpoints):
                copy_rows(larger[k], 0, checkpoints[k], 0, carried)
            checkpoints = larger
        copy_rows(checkpoints[n_checkpoints], 0, rows, 0, carried)
        n_checkpoints += 1
        count, done = taken(rows, record, record_at, capacity, made, places)
        made += count
    ends(first, n_lanes, places, rows, begun, states, y, t, status, n_steps, n_rejected)

    at, next_start = np.empty(width, np.int64), np.empty(width, rows.dtype)
    for c in range(width):
        at[c], next_start[c] = n_times - 1, rows[places[0], c]
    clear_rows(back_rows, 0, size + n_p)
    copy_rows(back_rows, size + n_p, rows, places[12], n_p)
    if n_times == 0:
        for i in range(n):
            for c in range(n_lanes):
                back_rows[i, c] = weights[0, i, first + c]
    for number in range(n_checkpoints - 1, -1, -1):
        if number < n_checkpoints - 1:
            copy_rows(rows, 0, checkpoints[number], 0, carried)
            count, done = taken(rows, record, record_at, capacity, number * capacity, places)
        if n_times > 0:
            for k in range(count):
                clear_rows(record[k], 2 + size, record.shape[1])
            for c in range(n_lanes):
                at[c], next_start[c] = output_cotangents(
                    record, count, c, first + c, next_start[c], t_eval, weights, at[c], size, n, degree
                )
        call_rows(sweep_at, (back_rows, record, count))
    for c in range(n_lanes):  # values at the start
        for j in range(at[c] + 1):
            for i in range(n):
                back_rows[i, c] += weights[j, i, first + c]
    if n_carried > 0:
        copy_rows(rows, 0, rows, places[8], 1)
        copy_rows(rows, 1, begun, 0, n)
        copy_rows(rows, 1 + n, back_rows, size + n_p, n_p)
        copy_rows(rows, 1 + n + n_p, back_rows, n, n_carried)
        copy_rows(rows, 1 + size + n_p, back_rows, size, n_p)
        call_rows(back_start_at, (rows, 1, 1))
        base = 1 + size + 2 * n_p
        for i in range(n):
            for c in range(width):
                back_rows[i, c] += rows[base + i, c]
        copy_rows(back_rows, size, rows, base + n, n_p)
    for c in range(n_lanes):
        s = first + c
        failed = status[s] != 1
        for i in range(n):
            by_y0[i, s] = np.nan if failed else back_rows[i, c]
        for j in range(n_p):
            by_p[j, s] = np.nan if failed else back_rows[size + j, c]
