"""Filter and smoothers by scans over packed elements: every level of a scan is one CUDA launch for all series.

`prefix_scan` runs over arrays of shape (T, n_series, size), in which an element is one row, packed as in `levels.cu`.
Arrays as in `kalman_launch.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.streams import copy_between_devices, on_device_of
from ensemble._kernels.kalman.kalman_launch import (
    THREADS,
    ModelArguments,
    PairwiseOperation,
    element_sizes,
    empty_float64_on,
    empty_on,
    finish_filter,
    function,
    zero_flags_on,
)
from ensemble._kernels.kalman.scan import Sengupta, prefix_scan

__all__ = ["LevelOperation", "scan_filter", "scan_smoother", "scan_two_filters"]


class LevelOperation(PairwiseOperation):
    """The operation on packed elements, a thread per pair."""

    def __init__(self, name: str, dtype: str, nx: int, ny: int) -> None:
        self.kernel = function(dtype, nx, ny, name)
        self.size = element_sizes(nx)[name == "combine_smoother_elements"]

    def launch_pairs(self, n: int, n_series: int, arguments: list[Any]) -> None:
        given = (np.int64(n), np.int64(n_series), *arguments)
        self.kernel((-(-n * n_series // THREADS),), (THREADS,), given)


class _LevelScan:
    """A scan over the steps of some series, and its launches."""

    def __init__(self, arguments: tuple[Any, ...], scan: str | Sengupta, options: dict[str, Any]) -> None:
        *parts, y, m0, P0, predict_first = arguments
        self.y, self.nx, self.ny = y, m0.shape[-1], y.shape[-1]
        self.n_series, self.n_steps, self.dtype = y.shape[0], y.shape[1], y.dtype.name
        self.model = ModelArguments(tuple(parts), y, (m0, P0), predict_first, None, self.n_steps)
        self.options = {"algorithm": scan, **options}

    def launch(self, name: str, *arguments: Any) -> None:
        kernel = function(self.dtype, self.nx, self.ny, name)
        blocks = -(-(self.n_steps + 1) * self.n_series // THREADS)
        kernel((blocks,), (THREADS,), (*self.model.arguments, np.int64(self.n_series), *arguments))

    def rows(self, name: str, size: int, *arguments: Any) -> Any:
        """Packed elements of every step, and the identity after the last."""
        rows = empty_on(self.y, self.n_steps + 1, self.n_series, size)
        self.launch(name, *arguments, rows)
        return rows

    def filter_elements(self) -> Any:
        """Elements of the filter."""
        return self.rows("filter_elements", element_sizes(self.nx)[0])

    def smoother_elements(self, states: tuple[Any, Any]) -> Any:
        """Elements of the smoother, from filtered states."""
        return self.rows("smoother_elements", element_sizes(self.nx)[1], *states)

    def scanned(self, name: str, rows: Any, identity: Any, reverse: bool = False) -> Any:
        """The prefix sums of rows, those from the end with `reverse`."""
        operation = LevelOperation(name, self.dtype, self.nx, self.ny)
        (sums,) = prefix_scan(operation, (rows,), reverse=reverse, identity=(identity,), **self.options)
        return _contiguous(sums)

    def states(self, name: str, *given: Any, terms: bool = False) -> tuple[Any, ...]:
        tails = ((self.nx,), (self.nx, self.nx), ())[: 2 + terms]
        out = tuple(empty_on(self.y, self.n_series, self.n_steps, *tail) for tail in tails)
        self.launch(name, *given, *out)
        return out

    def filtered(self, rows: Any) -> tuple[Any, ...]:
        """Means, covariances, log-densities and their sums from elements."""
        out = self.states("filter_states", self.scanned("combine_filter_elements", rows[:-1], rows[-1]), terms=True)
        return *out, finish_filter(self.model, zero_flags_on(self.y, self.n_series), True, *out)


def _contiguous(rows: Any) -> Any:
    """`rows`, or a contiguous copy: the kernels take no strides."""
    return rows if rows.flags.c_contiguous else rows.copy()


def scan_filter(arguments: tuple[Any, ...], scan: str | Sengupta, **options: Any) -> tuple[Any, ...]:
    """Filtered means, covariances and ``log p(y[k] | y[:k])``, and the sum of these for every series.

    `arguments` are F, Q, H, R, u, d, y, m0, P0, predict_first; `options` go to `prefix_scan`.
    """
    run = _LevelScan(arguments, scan, options)
    return run.filtered(run.filter_elements())


def scan_smoother(arguments: tuple[Any, ...], m: Any, P: Any, scan: str | Sengupta, **options: Any) -> tuple[Any, Any]:
    """Smoothed means and covariances by the recursion of Rauch, Tung and Striebel as a scan, from the filtered ones."""
    run = _LevelScan(arguments, scan, options)
    states = _contiguous(m), _contiguous(P)
    elements = run.smoother_elements(states)
    scanned = run.scanned("combine_smoother_elements", elements[:-1], elements[-1], reverse=True)
    return run.states("smoother_states", scanned)


def scan_two_filters(
    arguments: tuple[Any, ...], scan: str | Sengupta, *, elsewhere: tuple[Any, ...] | None = None, **options: Any
) -> tuple[Any, ...]:
    """What `scan_filter` returns, and smoothed means and covariances by a scan from the end over the same elements.

    With `elsewhere`, the same arguments on another device, the filter runs there while the scan from the end runs here;
    its results are copied here.
    """
    there = arguments if elsewhere is None else elsewhere
    with on_device_of(there[-4]):
        run = _LevelScan(there, scan, options)
        rows = run.filter_elements()
        filtered = run.filtered(rows)
    with on_device_of(arguments[-4]):
        if elsewhere is not None:
            run = _LevelScan(arguments, scan, options)
            rows = run.filter_elements()
        later = run.scanned("combine_filter_elements", rows[1:], rows[-1], reverse=True)
        if elsewhere is not None:
            here = (*(empty_on(run.y, *a.shape) for a in filtered[:3]), empty_float64_on(run.y, run.n_series))
            for a, out in zip(filtered, here, strict=True):
                copy_between_devices(a, out)
            filtered = here
        states = filtered[:2]
        smooth = run.states("combined_states", *states, later)
        return *filtered, *smooth
