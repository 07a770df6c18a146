"""Filter and smoothers of one series by scans over packed elements: every level of a scan is one CUDA launch.

An element is one row of numbers, as `kalman_levels.cu` packs it; `prefix_scan` runs over these rows as over any others.
Arrays as in `kalman_cuda.py`, of one series.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.kalman_cuda import THREADS, Problem, function, room, sizes
from ensemble._kernels.scan import prefix_scan

__all__ = ["Join", "scan_filter", "scan_smoother", "scan_two_filters"]


class Join:
    """The associative operation on packed elements or links: one launch for any number of pairs."""

    def __init__(self, name: str, dtype: str, nx: int, ny: int) -> None:
        self.kernel = function(dtype, nx, ny, name)
        self.size = sizes(nx)[name == "join_links"]

    def __call__(self, earlier: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
        """A new array of results."""
        out = (room(earlier[0], *earlier[0].shape),)
        self.into(earlier, later, out)
        return out

    def into(self, earlier: tuple[Any, ...], later: tuple[Any, ...], out: tuple[Any, ...]) -> None:
        """Write the results into `out`."""
        n = out[0].shape[0]
        row = self.size * out[0].dtype.itemsize
        arguments = [np.int64(n)]
        for (a,) in (earlier, later, out):
            arguments += [a, np.int64(a.strides[0] // row)]
        self.kernel((-(-n // THREADS),), (THREADS,), tuple(arguments))


class _Run:
    """The launches of one series."""

    def __init__(self, arguments: tuple[Any, ...], scan: str, options: dict[str, Any]) -> None:
        *parts, y, m0, P0, predict_first = arguments
        self.y, self.nx, self.ny = y, m0.shape[-1], y.shape[-1]
        self.n_steps, self.dtype = y.shape[1], y.dtype.name
        self.problem = Problem(tuple(parts), y, (m0, P0), predict_first, None, self.n_steps)
        self.options = {"algorithm": scan, **options}

    def launch(self, name: str, *arguments: Any) -> None:
        kernel = function(self.dtype, self.nx, self.ny, name)
        kernel((-(-(self.n_steps + 1) // THREADS),), (THREADS,), arguments)

    def elements(self) -> Any:
        """The element of every step, and the neutral one behind them."""
        rows = room(self.y, self.n_steps + 1, sizes(self.nx)[0])
        self.launch("filter_elements", *self.problem.arguments, rows)
        return rows

    def links(self, filtered: Any) -> Any:
        """The link of every step, and the neutral one behind them."""
        rows = room(self.y, self.n_steps + 1, sizes(self.nx)[1])
        self.launch("smoother_links", *self.problem.arguments, filtered, rows)
        return rows

    def scanned(self, name: str, rows: Any, neutral: Any, reverse: bool = False) -> Any:
        """The prefix sums of rows, those from the end with `reverse`."""
        join = Join(name, self.dtype, self.nx, self.ny)
        (sums,) = prefix_scan(join, (rows,), reverse=reverse, neutral=(neutral,), **self.options)
        return sums

    def states(self, name: str, *rows: Any) -> tuple[Any, Any]:
        mean, covariance = (room(self.y, 1, self.n_steps, *shape) for shape in ((self.nx,), (self.nx, self.nx)))
        self.launch(name, np.int64(self.n_steps), *rows, mean, covariance)
        return mean, covariance


def _contiguous(rows: Any) -> Any:
    """`rows` as kernels read them, which know no steps between rows."""
    return rows if rows.flags.c_contiguous else rows.copy()


def scan_filter(arguments: tuple[Any, ...], scan: str, **options: Any) -> tuple[Any, Any]:
    """Filtered means and covariances; `arguments` are F, Q, H, R, u, d, y, m0, P0, predict_first."""
    run = _Run(arguments, scan, options)
    rows = run.elements()
    return run.states("element_states", run.scanned("join_elements", rows[:-1], rows[-1]))


def scan_smoother(arguments: tuple[Any, ...], scan: str, **options: Any) -> tuple[Any, Any]:
    """Smoothed means and covariances by the recursion of Rauch, Tung and Striebel as a scan, after the filter's."""
    run = _Run(arguments, scan, options)
    rows = run.elements()
    links = run.links(run.scanned("join_elements", rows[:-1], rows[-1]))
    sums = run.scanned("join_links", links[:-1], links[-1], reverse=True)
    return run.states("link_states", _contiguous(sums))


def scan_two_filters(arguments: tuple[Any, ...], scan: str, **options: Any) -> tuple[Any, Any]:
    """Smoothed means and covariances by two scans over the same elements that meet."""
    run = _Run(arguments, scan, options)
    rows = run.elements()
    behind = run.scanned("join_elements", rows[1:], rows[-1], reverse=True)
    return run.states("met_states", run.scanned("join_elements", rows[:-1], rows[-1]), _contiguous(behind))
