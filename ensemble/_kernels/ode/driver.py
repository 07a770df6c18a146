"""The CPU driver: samples in lanes, each with its own step; a lane that is done takes the next sample.

The steps themselves are C functions of rows of lanes, made for each right-hand side and method (`ode_generated.py`).
They return where a lane passes an output time or a root of an event, or where enough lanes are done. This file is
compiled once for each precision.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.c_functions import call_rows
from ensemble._compile.numba import compiled_procedure, inner

__all__ = ["EVENT", "NON_FINITE", "solve_range"]

NON_FINITE, EVENT = 5, 4
"""Final states besides those of `ode/control.py`: 1 finished, 2 step too small, 3 too many steps."""

BISECTIONS = 60


@inner
def moving(sources, first_constant):
    """The sources of what differs between samples, or changes in a run: the others are loaded once."""
    chosen, count = np.empty(sources.shape, np.int64), 0
    for k in range(sources.shape[0]):
        if sources[k, 1] != 0 or sources[k, 0] < first_constant:
            for j in range(sources.shape[1]):  # an assignment of rows compiles for two seconds
                chosen[count, j] = sources[k, j]
            count += 1
    return chosen[:count]


@inner
def fill(rows, c, s, sources, shared, varying):
    """Load sample `s` into lane `c`."""
    for k in range(sources.shape[0]):
        row, kind, index = sources[k, 0], sources[k, 1], sources[k, 2]
        rows[row, c] = shared[index] if kind == 0 else varying[index, s]


@inner
def fill_all(rows, base, last, sources, shared, varying):
    """Load sample `base` and the next ones, before `last`, into all lanes; lanes beyond have the last one."""
    width = rows.shape[1]
    count = min(width, last - base)
    for k in range(sources.shape[0]):
        row, index = rows[sources[k, 0]], sources[k, 2]
        if sources[k, 1] == 0:
            for c in range(width):
                row[c] = shared[index]
        else:
            given = varying[index, base:last]
            for c in range(count):
                row[c] = given[c]
            for c in range(count, width):
                row[c] = given[count - 1]


@inner
def finished(rows, c, s, row_y, n, row_steps, y, n_steps, n_rejected):
    """Write the state and the counts of a sample whose run ended in lane `c`; whether its state is finite."""
    good = True
    for i in range(n):
        value = rows[row_y + i, c]
        y[i, s] = value
        good &= np.isfinite(value)
    n_steps[s] = np.int64(rows[row_steps, c])
    n_rejected[s] = np.int64(rows[row_steps + 1, c])
    return good


@inner
def interpolated(rows, c, theta, i, place, n, degree):
    """Unknown `i` of lane `c` at a fraction of the last step."""
    base = place + 2 + n + i * degree
    value = np.float64(rows[base + degree - 1, c])
    for k in range(degree - 2, -1, -1):
        value = value * theta + rows[base + k, c]
    return value * theta + rows[place + 2 + i, c]


@inner
def roots(rows, event_rows, event_at, j, place, n, degree, n_parameters, first_p, low, high, old):
    """Bisect for the root of event `j` in the last step of all lanes: `high` is the end of the last bracket."""
    width = rows.shape[1]
    for c in range(width):
        low[c], high[c] = 0.0, 1.0
    for k in range(n_parameters):
        for c in range(width):
            event_rows[1 + n + k, c] = rows[first_p + k, c]
    for _ in range(BISECTIONS):
        for c in range(width):
            theta = 0.5 * (low[c] + high[c])
            event_rows[0, c] = rows[place, c] + theta * rows[place + 1, c]
            for i in range(n):
                event_rows[1 + i, c] = interpolated(rows, c, theta, i, place, n, degree)
        call_rows(event_at, (event_rows, 1, 1))
        for c in range(width):
            value, before = event_rows[1 + n + n_parameters + j, c], old[j, c]
            theta = 0.5 * (low[c] + high[c])
            if (before < 0.0 and value >= 0.0) or (before > 0.0 and value <= 0.0):
                high[c] = theta
            else:
                low[c] = theta


@compiled_procedure
def solve_range(
    first,
    last,
    start_at,
    loop_at,
    event_at,
    places,
    sources,
    shared,
    varying,
    kinds,
    t_eval,
    y,
    t,
    status,
    n_steps,
    n_rejected,
    y_out,
    event_times,
    event_counts,
    rows,
    event_rows,
    started,
):
    """Solve samples `first` to `last`; `started` has a column for each of them, `rows` and `event_rows` are aligned.

    Longer than 60 lines: one compiled loop, whose arguments alone are 22.
    """
    (
        row_t,
        row_y,
        row_h,
        row_carried,
        row_steps,
        row_rejections,
        row_status,
        row_events,
        row_t0,
        row_t1,
        row_direction,
        row_t_out,
        row_p,
        place,
        n,
        n_carried,
        degree,
        n_events,
        n_parameters,
        n_fixed,
    ) = places[:20]
    width, n_times = rows.shape[1], t_eval.shape[0]
    shared_times = t_eval.shape[1] == 1
    owner, at = np.full(width, -1), np.zeros(width, np.int64)
    low, high = np.empty(width), np.empty(width)
    found, old = np.empty((max(n_events, 1), width)), np.empty((max(n_events, 1), width))

    # the first step of all samples
    fill_all(rows, first, last, sources, shared, varying)
    changing = moving(sources, row_t0)
    for base in range(first, last, width):
        fill_all(rows, base, last, changing, shared, varying)
        call_rows(start_at, (rows, 1, 1))
        for k in range(started.shape[0]):
            row, start = rows[place + k], started[k, base - first :]
            for c in range(min(width, last - base)):
                start[c] = row[c]

    following, busy, plain = first, 0, n_times == 0 and n_events == 0
    for c in range(width):
        rows[row_status, c] = -1.0
    refill = True
    while True:
        if refill:
            for c in range(width):
                while owner[c] < 0 and following < last:
                    s = following
                    following += 1
                    fill(rows, c, s, changing, shared, varying)
                    rows[row_h, c] = started[0, s - first]
                    bad = not np.isfinite(started[0, s - first])
                    for i in range(n):
                        bad |= not np.isfinite(rows[row_y + i, c])
                    for k in range(n_carried):
                        rows[row_carried + k, c] = started[1 + k, s - first]
                        bad |= not np.isfinite(started[1 + k, s - first])
                    for j in range(n_events):
                        rows[row_events + j, c] = started[1 + n_carried + j, s - first]
                    rows[row_t, c] = rows[row_t0, c]
                    rows[row_steps, c] = rows[row_rejections, c] = rows[row_rejections + 1, c] = 0.0
                    begin = rows[row_t0, c]
                    j = 0
                    while j < n_times and (t_eval[j, 0 if shared_times else s] - begin) * rows[row_direction, c] <= 0:
                        for i in range(n):
                            y_out[j, i, s] = rows[row_y + i, c]
                        j += 1
                    at[c] = j
                    if bad or begin == rows[row_t1, c]:
                        status[s] = NON_FINITE if bad else 1
                        t[s] = begin
                        for i in range(n):
                            y[i, s] = rows[row_y + i, c]
                        rows[row_status, c] = -1.0
                        continue
                    rows[row_status, c] = 0.0
                    end = np.inf * rows[row_direction, c]
                    rows[row_t_out, c] = t_eval[j, 0 if shared_times else s] if j < n_times else end
                    owner[c] = s
                    busy += 1
        if busy == 0:
            break
        threshold = busy if following >= last else min(busy, max(1, width // 4))
        limit_of_steps, whole = 1 << 40, True
        if n_fixed > 0:  # all lanes take the same steps together, and the last one may be shorter
            for c in range(width):
                if owner[c] >= 0:
                    limit_of_steps = n_fixed - 1 - np.int64(rows[row_steps, c])
            whole = limit_of_steps > 0
            if not whole:
                limit_of_steps = 1
                for c in range(width):
                    rows[row_h, c] = rows[row_t1, c] - rows[row_t, c]
        call_rows(loop_at, (rows, threshold, limit_of_steps))
        if not whole:
            for c in range(width):
                rows[row_t, c] = rows[row_t1, c]
                rows[row_status, c] = 1.0
        refill = False
        if plain:  # no output within a step
            for c in range(width):
                s = owner[c]
                if s >= 0 and rows[row_status, c] > 0.0:
                    t[s], status[s] = rows[row_t, c], np.int64(rows[row_status, c])
                    if not finished(rows, c, s, row_y, n, row_steps, y, n_steps, n_rejected):
                        status[s] = NON_FINITE
                    rows[row_status, c], owner[c] = -1.0, -1
                    busy -= 1
                    refill = True
            continue
        if n_events > 0:
            events_first = place + 2 + n + n * degree
            for j in range(n_events):
                any_root = False
                for c in range(width):
                    old[j, c] = rows[events_first + j, c]
                    found[j, c] = 2.0
                    before, now = old[j, c], rows[row_events + j, c]
                    up, down = before < 0.0 and now >= 0.0, before > 0.0 and now <= 0.0
                    if owner[c] >= 0 and ((up and kinds[j, 0] >= 0) or (down and kinds[j, 0] <= 0)):
                        any_root = True
                        found[j, c] = 1.0
                if any_root:
                    roots(rows, event_rows, event_at, j, place, n, degree, n_parameters, row_p, low, high, old)
                    for c in range(width):
                        if found[j, c] == 1.0:
                            found[j, c] = high[c]
        for c in range(width):
            s = owner[c]
            if s < 0:
                continue
            limit, ended = 1.5, False
            t_old, h, t_new = rows[place, c], rows[place + 1, c], rows[row_t, c]
            moved = t_new != t_old
            for j in range(n_events):
                last_root = 0 < kinds[j, 1] <= event_counts[j, s] + 1
                if moved and last_root and found[j, c] < limit:
                    limit, ended = found[j, c], True
            for j in range(n_events):
                if moved and found[j, c] <= limit and found[j, c] <= 1.0:
                    if event_counts[j, s] < event_times.shape[1]:
                        event_times[j, event_counts[j, s], s] = t_old + found[j, c] * h
                    event_counts[j, s] += 1
            t_last = t_old + limit * h if ended else t_new
            direction = rows[row_direction, c]
            while at[c] < n_times and moved:
                wanted = t_eval[at[c], 0 if shared_times else s]
                if (wanted - t_last) * direction > 0:
                    break
                theta = (wanted - t_old) / h
                for i in range(n):
                    if wanted == t_new:
                        y_out[at[c], i, s] = rows[row_y + i, c]
                    else:
                        y_out[at[c], i, s] = interpolated(rows, c, theta, i, place, n, degree)
                at[c] += 1
            if at[c] < n_times:
                rows[row_t_out, c] = t_eval[at[c], 0 if shared_times else s]
            else:
                rows[row_t_out, c] = np.inf * direction
            if ended or rows[row_status, c] > 0.0:
                if ended:
                    for i in range(n):
                        rows[row_y + i, c] = interpolated(rows, c, limit, i, place, n, degree)
                t[s] = t_last
                status[s] = EVENT if ended else np.int64(rows[row_status, c])
                if not finished(rows, c, s, row_y, n, row_steps, y, n_steps, n_rejected):
                    status[s] = NON_FINITE
                rows[row_status, c], owner[c] = -1.0, -1
                busy -= 1
                refill = True
