"""Filters and smoothers on a simulated parallel machine, whose time is counted in floating-point operations.

The machine has a number of threads; moving data costs nothing. A parallel step over n items that take f operations each
lasts ``ceil(n / threads) * f``. The operations of an item are counted by running the library's own functions on arrays
that count (`operation_counts`), and the steps and their numbers of items by running the library's own `prefix_scan`
with an operation that records them: nothing is taken from formulas. This is the experiment of section VI-B of [1]_.

References
----------
.. [1] S. Särkkä, Á. F. García-Fernández, On the performance of prefix-sum parallel Kalman filters and smoothers on
GPUs,
   2025, sections V-D and VI-B, figures 6 and 7.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.operation_counts import count_flops
from ensemble._check import integer, one_of, require
from ensemble._kernels.kalman.scan import SCANS, prefix_scan
from ensemble.apps.kalman.array.elements import (
    advance_filter,
    combine_filter,
    combine_smoother,
    extend_filter,
    filter_elements,
    smoother_elements,
)
from ensemble.apps.kalman.array.steps import predict, rts_gain, smooth, update
from ensemble.apps.kalman.series import Series
from ensemble.apps.kalman.smoothers import combine_information

__all__ = ["Machine", "SimulatedRun", "simulate", "step_flops"]

METHODS = ("KF", "RTS", "PKF", "PRTS", "PTFS")

WAYS = (*(scan for scan in SCANS if scan != "sequential"), "replay")


class Machine:
    """Operations on a machine of `threads` threads: `time` and `work` in operations, `depth` in parallel steps.

    Parameters
    ----------
    threads : int, dimensionless
        Items that are worked on at the same time.

    Raises
    ------
    ValueError
        If there is not one thread at least.

    Examples
    --------
    Ten items of seven operations each on four threads take three rounds:

    >>> machine = Machine(4)
    >>> machine.step(10, 7)
    >>> machine.time, machine.work, machine.depth
    (21, 70, 1)
    """

    def __init__(self, threads: int) -> None:
        self.threads = integer(threads, "Machine", "threads", minimum=1)
        self.time = self.work = self.depth = 0

    def step(self, items: int, flops: int) -> None:
        """One parallel step: `items` items of `flops` operations each."""
        self.time += -(-items // self.threads) * flops
        self.work += items * flops
        self.depth += 1

    def scan(self, items: int, flops: int, algorithm: str, **options: Any) -> None:
        """The steps of `prefix_scan` over `items` items, with an operation of `flops` operations."""

        def op(earlier: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
            self.step(later[0].shape[0], flops)
            return later

        prefix_scan(op, (np.zeros(items, np.uint8),), algorithm=algorithm, identity=(np.uint8(0),), **options)


@dataclass(frozen=True)
class SimulatedRun:
    """What a method costs: `time` on the machine and `work` in all, in operations, and `depth` in parallel steps."""

    method: str
    scan: str
    n_steps: int
    threads: int
    time: int
    work: int
    depth: int


@functools.cache
def step_flops(nx: int = 4, ny: int = 2) -> dict[str, int]:
    """Floating-point operations of one item of every part of the filters and smoothers.

    Parameters
    ----------
    nx, ny : int, dimensionless
        States and observations.

    Returns
    -------
    dict
        "element", "combine", "smoother element", "combine smoother", "combine information": the parts of prefix sums.
        "step", "smooth": a step of the filter, likelihood included, and of the smoother. "extend", "advance": of chunks
        with replay.

    Examples
    --------
    One state: smoother elements combine by a product for E, a product and a sum for g, and for L two products, a sum,
    and the mean with its transpose.

    >>> step_flops(1, 1)["combine smoother"]
    8
    """
    rng = np.random.default_rng(48611)
    T = 3
    matrices = {"F": (nx, nx), "Q": (nx, nx), "H": (ny, nx), "R": (ny, ny)}
    parts = {name: rng.standard_normal((T, *shape)) for name, shape in matrices.items()}
    for name in ("Q", "R"):
        parts[name] = parts[name] @ parts[name].mT + np.eye(parts[name].shape[-1])
    parts.update({name: rng.standard_normal((T, n)) for name, n in (("u", nx), ("d", ny), ("y", ny))})
    m, P = rng.standard_normal((T, nx)), np.broadcast_to(np.eye(nx), (T, nx, nx))

    def series(*arrays: Any) -> Series:
        names = ("F", "Q", "H", "R", "u", "d", "y")
        *steps, m, P = arrays
        return Series(m0=m[0, ...], P0=P[0, ...], batch=(), predict_first=True, **dict(zip(names, steps, strict=True)))

    def upto(n: int) -> list[np.ndarray]:
        return [*(parts[name][:n] for name in ("F", "Q", "H", "R", "u", "d", "y")), m[:n], P[:n]]

    def more(function: Callable[..., Any]) -> int:  # of the third step of three
        return count_flops(function, *upto(3)) - count_flops(function, *upto(2))

    e = tuple(a[1:2] for a in filter_elements(series(*upto(T))))
    smoother_parts = tuple(a[:1] for a in smoother_elements(series(*upto(T)), m, P))
    F, Q, H, R, u, d, y, *state = upto(1)

    def step(m: Any, P: Any, F: Any, Q: Any, H: Any, R: Any, u: Any, d: Any, y: Any) -> Any:
        return update(H, R, d, y, *predict(F, Q, u, m, P))

    def back(m: Any, P: Any, F: Any, Q: Any, u: Any) -> Any:
        return smooth(*rts_gain(F, Q, u, m, P), m, P)

    return {
        "element": more(lambda *a: filter_elements(series(*a))),
        "combine": count_flops(combine_filter, e, e),
        "smoother element": more(lambda *a: smoother_elements(series(*a), *a[7:])),
        "combine smoother": count_flops(combine_smoother, smoother_parts, smoother_parts),
        "combine information": count_flops(combine_information, *state, e[3], e[4]),
        "step": count_flops(step, *state, F, Q, H, R, u, d, y),
        "smooth": count_flops(back, *state, F, Q, u),
        "extend": count_flops(extend_filter, e, F, Q, u, H, R, d, y),
        "advance": count_flops(advance_filter, e, *state),
    }


def simulate(
    method: str,
    n_steps: int,
    *,
    scan: str = "ladner_fischer",
    threads: int = 15_000,
    nx: int = 4,
    ny: int = 2,
    **options: Any,
) -> SimulatedRun:
    """The time of a filter or smoother on a simulated machine, in floating-point operations.

    Parameters
    ----------
    method : {"KF", "RTS", "PKF", "PRTS", "PTFS"}
        The filter and its smoother step after step, on one thread whatever the machine; the filter, the
        Rauch-Tung-Striebel smoother and the two-filter smoother as prefix sums, the smoothers with their filter.
    n_steps : int, dimensionless
        Steps of the series.
    scan : {"chunked", "hillis_steele", "blelloch", "ladner_fischer", "sengupta", "replay"}
        As in `prefix_scan`, of the last three methods. "replay" is what our device kernels do: every thread sums up a
        chunk of steps by filter steps, the chunks' sums are scanned, and every thread runs the plain recursion over its
        chunk.
    threads : int, dimensionless
        15000 in [1]_.
    nx, ny : int, dimensionless
        States and observations.
    **options
        Of `prefix_scan`: `threshold`, `chunk`.

    Returns
    -------
    SimulatedRun

    Raises
    ------
    ValueError
        If a name is unknown or a number is below one.

    References
    ----------
    .. [1] S. Särkkä, Á. F. García-Fernández, On the performance of prefix-sum parallel Kalman filters and smoothers on
    GPUs,
       2025, section VI-B.

    Examples
    --------
    With as many threads as steps, time is what the depth costs:

    >>> run = simulate("PKF", 16, scan="hillis_steele", threads=16)
    >>> run.depth, run.time == step_flops()["element"] + 4 * step_flops()["combine"]
    (5, True)
    """
    one_of(method, METHODS, "simulate", "method")
    one_of(scan, WAYS, "simulate", "scan")
    n_steps = integer(n_steps, "simulate", "n_steps", minimum=1)
    require(not (scan == "replay" and options), "simulate", "options", "be left out with 'replay'", sorted(options))
    flops = step_flops(integer(nx, "simulate", "nx", minimum=1), integer(ny, "simulate", "ny", minimum=1))
    machine = Machine(threads)
    if method in ("KF", "RTS"):
        each = flops["step"] + (flops["smooth"] if method == "RTS" else 0)
        return SimulatedRun(method, "", n_steps, 1, n_steps * each, n_steps * each, n_steps)
    if scan == "replay":
        _replayed(machine, method, n_steps, flops)
    else:
        _scanned(machine, method, n_steps, flops, {"algorithm": scan, **options})
    return SimulatedRun(method, scan, n_steps, machine.threads, machine.time, machine.work, machine.depth)


def _scanned(machine: Machine, method: str, n_steps: int, flops: dict[str, int], options: dict[str, Any]) -> None:
    """Elements, their prefix sums, and what the smoother adds."""
    machine.step(n_steps, flops["element"])
    machine.scan(n_steps, flops["combine"], **options)
    if method == "PRTS":
        machine.step(n_steps, flops["smoother element"])
        machine.scan(n_steps, flops["combine smoother"], reverse=True, **options)
    elif method == "PTFS":
        machine.scan(n_steps, flops["combine"], reverse=True, **options)
        machine.step(n_steps, flops["combine information"])


def _replayed(machine: Machine, method: str, n_steps: int, flops: dict[str, int]) -> None:
    """Chunks just long enough that every thread has one; the short last one counts as a whole one."""
    chunk = -(-n_steps // machine.threads)
    n_chunks = -(-n_steps // chunk)

    def passes(extend: int, combine: int, advance: int, step: int) -> None:
        for _ in range(chunk):
            machine.step(n_chunks, extend)
        machine.scan(n_chunks, combine, "hillis_steele")
        machine.step(n_chunks, advance)
        for _ in range(chunk):
            machine.step(n_chunks, step)

    passes(flops["extend"], flops["combine"], flops["advance"], flops["step"])
    if method == "PRTS":
        element, combine = flops["smoother element"], flops["combine smoother"]
        passes(element + combine, combine, combine, flops["smooth"])
    elif method == "PTFS":  # the chunks' elements are there already
        passes(
            0, flops["combine"], flops["advance"], flops["element"] + flops["combine"] + flops["combine information"]
        )
