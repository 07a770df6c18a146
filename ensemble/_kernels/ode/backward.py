"""The CPU driver of gradients: the steps of a few samples are taken, recorded, and run backwards by the chain rule.

The steps are the C functions of `driver.py`, called one at a time. Their starts and lengths are recorded; states are
recorded every `stride` steps, and those between are made again. The stride is doubled whenever the record is full, so
that a record of any number of steps fits the second-level cache or little more (Griewank, Walther 2008, "Evaluating
Derivatives", 2nd edition, chapter 12). Lanes that took fewer steps than others wait. This file is compiled once for
each precision.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ensemble._compile.c_functions import call_rows
from ensemble._compile.lanes.graph_loop import described
from ensemble._compile.numba import compiled_serial
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import load_module
from ensemble._kernels.ode.driver import NON_FINITE, fill

__all__ = ["Backward", "backward_addresses", "gradient_range"]

MODULE = '''"""Steps of an initial value problem and their chain rule, written by ensemble; it may be deleted at any time."""

from ensemble._compile.lanes.graph_loop import graph_loop, graph_of
from ensemble._compile.numba import c_function

SIGNATURE = "int64(CPointer({dtype}), int64, int64)"
{functions}
'''

FUNCTION = """
run_{name} = graph_loop(graph_of({graph}), 0, {width}, "{dtype}")


@c_function(SIGNATURE)
def {name}(rows, threshold, limit):
    return run_{name}(rows, threshold, limit)
"""


class Backward(NamedTuple):
    """Where the C functions lie in this process; 0: not there."""

    step: int
    """Inputs t, h, the state with what is carried, p; outputs the next state."""
    back: int
    """Inputs of the step, cotangents of the next state, of the dense output where there is one, and of p; outputs
    cotangents of the state and of p."""
    start: int
    """Inputs t, y, p, cotangents of what is carried and of p; outputs those of y and p."""


@functools.lru_cache(maxsize=256)
def backward_addresses(step: Graph, back: Graph, start: Graph | None, width: int, dtype: str) -> Backward:
    """The compiled functions; their machine code is kept on disk under a digest of the graphs."""
    named = {"step": step, "back": back, "start": start}
    functions = [
        FUNCTION.format(name=name, graph=described(graph), width=width, dtype=dtype)
        for name, graph in named.items()
        if graph is not None
    ]
    module = load_module(MODULE.format(dtype=dtype, functions="".join(functions)))
    return Backward(module.step.address, module.back.address, 0 if start is None else module.start.address)


@compiled_serial
def grown(array):
    """Twice the rows."""
    larger = np.zeros((2 * array.shape[0], array.shape[1], array.shape[2]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@compiled_serial
def begin(first, last, start_at, places, sources, shared, varying, rows, running):
    """Load the samples and their first steps; returns nothing. Lanes without a sample have a copy that does not run."""
    row_t, row_y, row_h, row_carried = places[0], places[1], places[2], places[3]
    row_steps, row_rejections, row_status = places[4], places[5], places[6]
    row_t0, row_t1, row_direction, row_t_out = places[8], places[9], places[10], places[11]
    place, n, n_carried = places[13], places[14], places[15]
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
        rows[row_status, c] = NON_FINITE if bad else (1.0 if still else 0.0)
        running[c] = first + c < last and not (bad or still)


@compiled_serial
def record(rows, places, loop_at, running, before, count, times, states):
    """Take all steps; returns what they were, the states of every `stride`-th, and the stride."""
    row_t, row_y, row_h, row_carried, row_status = places[0], places[1], places[2], places[3], places[6]
    row_t1, place, n, n_carried, n_fixed = places[9], places[13], places[14], places[15], places[19]
    width, stride, made = rows.shape[1], 1, 0
    while running.any():
        for i in range(n):
            before[i] = rows[row_y + i]
        for k in range(n_carried):
            before[n + k] = rows[row_carried + k]
        last = n_fixed > 0 and made == n_fixed - 1
        if last:
            for c in range(width):
                rows[row_h, c] = rows[row_t1, c] - rows[row_t, c]
        call_rows(loop_at, (rows, width + 1, 1))
        made += 1
        if last:
            for c in range(width):
                rows[row_t, c] = rows[row_t1, c]
                rows[row_status, c] = 1.0
        for c in range(width):
            if not running[c]:
                continue
            if rows[row_t, c] != rows[place, c]:
                k = count[c]
                if k == times.shape[0]:
                    times = grown(times)
                if k // stride >= states.shape[0]:
                    for j in range(states.shape[0] // 2):
                        states[j] = states[2 * j]
                    stride *= 2
                times[k, 0, c], times[k, 1, c] = rows[place, c], rows[place + 1, c]
                if k % stride == 0:
                    for i in range(before.shape[0]):
                        states[k // stride, i, c] = before[i, c]
                count[c] = k + 1
            if rows[row_status, c] > 0.0:
                running[c] = False
    return times, stride


@compiled_serial
def again(step_at, rows, states, times, segment, stride, last, size, n_inputs, parts):
    """The states of steps `segment * stride` to `last`, from that of the first."""
    first = segment * stride
    parts[0] = states[segment]
    for k in range(first, last - 1):
        rows[0], rows[1] = times[k, 0], times[k, 1]
        for i in range(size):
            rows[2 + i] = parts[k - first, i]
        call_rows(step_at, (rows, 1, 1))
        for i in range(size):
            parts[k - first + 1, i] = rows[n_inputs + i]


@compiled_serial
def output_cotangents(
    rows, c, k, times, t_eval, shared_times, s, weights, at, place, spare, by_state, at_end, n, degree
):
    """Add the cotangents of the values at output times in step `k` of lane `c`; those at its end where `at_end`."""
    start, h = times[k, 0, c], times[k, 1, c]
    while at[c] >= 0:
        wanted = t_eval[at[c], 0 if shared_times else s]
        ends = (wanted - at_end) * h >= 0.0
        if not ends and (wanted - start) * h <= 0.0:
            break
        theta = (wanted - start) / h
        for i in range(n):
            weight = weights[at[c], i, s]
            if ends:
                by_state[i, c] += weight
            else:
                rows[spare + i, c] += weight
                for d in range(degree):
                    weight = weight * theta
                    rows[place + i * degree + d, c] += weight
        at[c] -= 1


@compiled_serial
def gradient_range(
    first,
    last,
    start_at,
    loop_at,
    backward,
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
    states,
):
    """Gradients of samples `first` to `last`, at most a set of lanes.

    `weights` are the cotangents of the end, shape (1, n, S), or of the values at the output times, (n_times, n, S).
    """
    step_at, back_at, first_at = backward
    row_y, row_steps, row_rejections, row_status, row_t, row_p = (
        places[1], places[4], places[5], places[6], places[0], places[12],
    )  # fmt: skip
    n, n_carried, degree, k_p = places[14], places[15], places[16], places[18]
    width, size, n_times = rows.shape[1], places[14] + places[15], t_eval.shape[0]
    shared_times, degree = t_eval.shape[1] == 1, degree if n_times > 0 else 0
    running, count = np.zeros(width, np.bool_), np.zeros(width, np.int64)
    before = np.zeros((size, width), rows.dtype)
    begin(first, last, start_at, places, sources, shared, varying, rows, running)
    times = np.zeros((64, 2, width), rows.dtype)
    times, stride = record(rows, places, loop_at, running, before, count, times, states)
    by_state, by_parameters = np.zeros((size, width), rows.dtype), np.zeros((k_p, width), rows.dtype)
    at, reached = np.full(width, n_times - 1), np.zeros(width, rows.dtype)
    n_lanes = min(width, last - first)
    for c in range(n_lanes):
        s = first + c
        finite = True
        for i in range(n):
            y[i, s] = rows[row_y + i, c]
            finite &= np.isfinite(y[i, s])
        t[s] = reached[c] = rows[row_t, c]
        status[s] = np.int64(rows[row_status, c]) if finite else NON_FINITE
        n_steps[s], n_rejected[s] = np.int64(rows[row_steps, c]), np.int64(rows[row_rejections, c])
        if n_times == 0:
            for i in range(n):
                by_state[i, c] = weights[0, i, s]

    n_inputs, most = 2 + size + k_p, 0
    cotangents = n_inputs + size  # the first row of those of the dense output
    of_p = cotangents + n * degree
    results = of_p + k_p
    spare = results + size + k_p  # of the state before the step
    for j in range(k_p):
        for c in range(width):
            back_rows[2 + size + j, c] = rows[row_p + j, c]
    for c in range(width):
        most = max(most, count[c])
    parts = np.zeros((stride, size, width), rows.dtype)
    segment = (most - 1) // stride
    while segment >= 0 and most > 0:
        end = min((segment + 1) * stride, most)
        again(step_at, back_rows, states, times, segment, stride, end, size, n_inputs, parts)
        for k in range(end - 1, segment * stride - 1, -1):
            back_rows[0], back_rows[1] = times[k, 0], times[k, 1]
            if n_times > 0:
                back_rows[cotangents:of_p] = 0.0
                back_rows[spare : spare + n] = 0.0
                for c in range(n_lanes):
                    if k < count[c]:
                        if k == count[c] - 1:
                            at_end = reached[c]
                        else:
                            at_end = times[k + 1, 0, c]
                        output_cotangents(back_rows, c, k, times, t_eval, shared_times, first + c, weights, at, cotangents,
                                        spare, by_state, at_end, n, degree)  # fmt: skip
            for i in range(size):
                back_rows[2 + i] = parts[k - segment * stride, i]
                back_rows[n_inputs + i] = by_state[i]
            back_rows[of_p : of_p + k_p] = by_parameters
            call_rows(back_at, (back_rows, 1, 1))
            for c in range(width):
                if k < count[c]:
                    for i in range(size):
                        by_state[i, c] = back_rows[results + i, c]
                    for j in range(k_p):
                        by_parameters[j, c] = back_rows[results + size + j, c]
                    if n_times > 0:
                        for i in range(n):
                            by_state[i, c] += back_rows[spare + i, c]
        segment -= 1
    if n_times > 0:  # values at the start
        for c in range(n_lanes):
            for j in range(at[c] + 1):
                for i in range(n):
                    by_state[i, c] += weights[j, i, first + c]
    if n_carried > 0:
        t_start = places[8]
        back_rows[0] = rows[t_start]
        for i in range(n):
            for c in range(width):
                back_rows[1 + i, c] = parts[0, i, c] if count[c] > 0 else rows[row_y + i, c]
        for j in range(k_p):
            back_rows[1 + n + j] = rows[row_p + j]
            back_rows[1 + n + k_p + n_carried + j] = by_parameters[j]
        for k in range(n_carried):
            back_rows[1 + n + k_p + k] = by_state[n + k]
        call_rows(first_at, (back_rows, 1, 1))
        base = 1 + n + 2 * k_p + n_carried
        for i in range(n):
            by_state[i] += back_rows[base + i]
        by_parameters[:, :] = back_rows[base + n : base + n + k_p]
    for c in range(n_lanes):
        s = first + c
        failed = status[s] != 1
        for i in range(n):
            by_y0[i, s] = np.nan if failed else by_state[i, c]
        for j in range(k_p):
            by_p[j, s] = np.nan if failed else by_parameters[j, c]
