"""One grid in the memory of a device, and what is done to it as a whole: built up, pruned, put in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import device as _device
from ensemble._compile.device import address
from ensemble._kernels.gbees.launch import Reason, launch, layout
from ensemble.apps.gbees.engines.keys import Packing
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.problem import Problem

__all__ = ["OWN_PRUNE", "DeviceGrid", "bytes_per_cell", "fixed"]

UNIT = 2.0**60
"""Mass is added up in whole multiples of one over this, so that no sum depends on an order."""

EMPTY = np.uint64(2**64 - 1)

DOOMED = 2

OWN_PRUNE = 1 << 18
"""Cells up to which the steps' own kernel prunes; larger grids come back, to be put in order of their keys as well."""

LIST = 4096
"""Cells, close to where a sequential prune stops, that the kernel compares with each other."""

THREADS = 256


def bytes_per_cell(n: int, itemsize: int) -> int:
    """Device memory that a cell of capacity takes: key, p twice, T, neighbours, mark, five quarters of a slot."""
    return 8 + 3 * itemsize + 8 * n + 1 + 15


def slots(capacity: int) -> int:
    """Slots of the table: it is never more than four fifths full."""
    return capacity + capacity // 4 + 8


def fixed(p: Any) -> Any:
    """Probabilities in units of 2^-60, int64."""
    xp = array_namespace(p)
    return xp.astype(xp.round(xp.astype(p, xp.float64) * UNIT), xp.int64)


class DeviceGrid:
    """Keys and probabilities of n cells, with room for more, and all that the kernels keep beside them.

    Parameters
    ----------
    problem : Problem
    keys : array of int64, shape (N,), in ascending order
    p : array, shape (N,)
    packing : Packing
    """

    def __init__(self, problem: Problem, keys: Any, p: Any, packing: Packing, parameters: tuple[float, ...]) -> None:
        self.problem, self.packing = problem, packing
        self.n, self.n_sorted, self.scale = int(keys.shape[0]), int(keys.shape[0]), 1.0
        self.keys, self.p = keys, p
        self.marks: Any = None
        self.capacity = 0
        self.arrays: dict[str, Any] = {}
        self.built = False
        self.record = np.zeros(1, layout(problem.n, len(parameters)))
        self._describe_problem(parameters)

    def _describe_problem(self, parameters: tuple[float, ...]) -> None:
        r, problem = self.record, self.problem
        r["prune_every"], r["sequential"] = problem.prune_every, problem.prune == "sequential"
        r["list_limit"], r["threshold"], r["cfl"] = LIST, problem.threshold, problem.cfl
        r["lower"], r["upper"] = problem.bounds_range
        r["widths"], r["origin"] = problem.widths, problem.origin
        if problem.diffusion is not None:
            r["diffusion"], r["faces"] = problem.diffusion, problem.face_diffusion
        if problem.mixing is not None:
            r["corners"], r["corner_rate"] = np.ravel(problem.mixing.corners), problem.mixing.rate
        if problem.rotation is not None:
            r["rotation"] = np.ravel(problem.rotation)
        r["parameters"][:, : len(parameters)] = parameters

    # --- memory
    def reserve(self, capacity: int) -> None:
        """Room for `capacity` cells; nothing is known of them but keys and probabilities."""
        self.built, self.arrays, self.marks = False, {}, None
        empty = _device.device_empty
        if capacity > OWN_PRUNE:
            _device.release_device_memory()  # pieces of other sizes would stay beside the new ones
        for name in ("keys", "p"):
            old = getattr(self, name)
            if old.shape[0] != capacity:
                new = empty((capacity,), old.dtype)
                new[: self.n] = old[: self.n]
                setattr(self, name, new)
                del old, new
        self.marks = empty((capacity,), np.uint8)
        self.marks[...] = 0
        self.capacity = capacity

    def _workspace(self) -> None:
        n, real, capacity, empty = self.problem.n, self.p.dtype, self.capacity, _device.device_empty
        self.arrays = {
            "q": empty((capacity,), real), "T": empty((capacity,), real),
            "neighbours": empty((2 * n * capacity,), np.int32),
            "table": empty((slots(capacity),), np.uint64), "places": empty((slots(capacity),), np.int32),
        }  # fmt: skip
        if capacity <= OWN_PRUNE:
            self.arrays["other_keys"] = empty((capacity,), np.int64)

    def describe(self) -> np.ndarray:
        """The record of the grid as it is."""
        r = self.record
        for name, array in {"keys": self.keys, "p": self.p, "marks": self.marks, **self.arrays}.items():
            r[name] = address(array)
        r["capacity"], r["slots"] = self.capacity, slots(self.capacity)
        r["own_prune"] = OWN_PRUNE if "other_keys" in self.arrays else 0
        r["n"] = r["whole"] = self.n
        r["in_order"] = self.n_sorted
        r["scale"] = self.scale
        r["shifts"], r["lows"] = self.packing.shifts, self.packing.lows
        r["masks"] = [2**bits - 1 for bits in self.packing.bits]
        r["periods"] = [period or 0 for period in self.packing.periods]
        r["arrivals"] = r["taken"] = r["reason"] = r["full"] = 0
        r["bad_key"] = EMPTY
        r["masses"] = r["clips"] = 0
        if self.problem.time_varying:
            r["rates"] = 0
        return r

    def take_back(self, record: np.ndarray) -> None:
        """The grid as a kernel left it: buffers may have changed places."""
        self.record = record
        for one, other, store in (("p", "q", self.arrays), ("keys", "other_keys", self.arrays)):
            if other in store and int(record[one][0]) == address(store[other]):
                mine = getattr(self, one)
                setattr(self, one, store[other])
                store[other] = mine
        self.n, self.scale = int(record["whole"][0]), float(record["scale"][0])
        self.n_sorted = int(record["in_order"][0])
        if record["reason"][0] not in (Reason.FINISHED, Reason.PAUSED, Reason.PRUNE):
            self.forget()

    def forget(self) -> None:
        """Links and marks, when cells have changed."""
        self.built = False
        self.marks[...] = 0

    # --- building
    def build(self, kernels: dict[str, Any]) -> None:
        """Table, links and largest rate of all cells.

        Raises
        ------
        GridError
            If the drift is not finite somewhere.
        """
        if not self.arrays:
            self._workspace()
        self.arrays["table"][...] = EMPTY
        self.record["rates"] = 0
        links = ("link_some", "link_between") if self.n_sorted == self.n else ("link_all",)
        self.record = self._run([kernels[name] for name in ("enter_all", *links)])
        self.built = True
        if self.record["bad_key"][0] != EMPTY:
            self.built = False
            raise self.not_finite(float(self.record["velocity_time"][0]))

    def _blocks(self) -> int:
        return max(1, min(_device.multiprocessors() * 8, -(-self.n // THREADS)))

    def columns(self, keys: Any) -> list[Any]:
        """Multi-indices of `keys`, one array a dimension."""
        return [self.packing.column(keys, i) for i in range(self.problem.n)]

    def repack(self) -> None:
        """Keys with more room around the cells; the order of cells stays."""
        columns = self.columns(self.keys[: self.n])
        xp = array_namespace(self.keys)
        lowest, highest = [int(xp.min(s)) - 1 for s in columns], [int(xp.max(s)) + 1 for s in columns]
        self.packing = Packing.around(lowest, highest, self.packing.periods)
        self.keys[: self.n] = self.packing.pack(columns)
        self.forget()

    def not_finite(self, time: float) -> GridError:
        """The error of a drift that is NaN or infinite, from the key that the kernel left."""
        problem, key = self.problem, np.int64(self.record["bad_key"][0])
        s = [int(self.packing.column(key, i)) for i in range(problem.n)]
        for i, width in enumerate(problem.widths):
            face = [np.float64(w * k) for w, k in zip(problem.widths, s, strict=True)]
            face[i] += width / 2
            with np.errstate(all="ignore"):
                v = float(problem.velocity(face, np.float64(time), np)[i])
            if not np.isfinite(v):
                break
        where = ", ".join(f"{value:.6g}" for value in problem.position(face))
        return GridError(
            f"Gbees: drift must be finite; got {v} in component {i} at x = ({where}), t = {time:.6g}. "
            "Keep the grid away from there with bounds, or make the function finite there."
        )

    # --- pruning and order
    def prune(self, kernels: dict[str, Any]) -> None:
        """Delete what the problem's rule says, normalise, and put the rest in order of its keys.

        Raises
        ------
        GridError
            If no cell would stay; the grid is as before.
        """
        xp = array_namespace(self.p)
        self.record["candidates"] = self.record["carried"] = 0
        self.arrays["T"][...] = 0
        deleted = int(self._run([kernels["feed_all"], kernels["mark_all"]])["candidates"][0])
        if self.problem.prune == "sequential":
            deleted = self._spare(deleted)
        late = self.n_sorted + xp.nonzero(self.marks[self.n_sorted : self.n] != DOOMED)[0]
        late_keys = self.keys[late]
        order = xp.argsort(late_keys)
        late, late_keys = late[order], late_keys[order]
        del order
        # what will be built anew lends its memory
        kept = self.arrays["places"][: self.n_sorted]
        (self.marks[: self.n_sorted] != DOOMED).cumsum(dtype=np.int32, out=kept)
        n = (int(kept[-1]) if self.n_sorted else 0) + int(late.shape[0])
        if n == 0:
            self.forget()
            raise GridError(
                f"Gbees: threshold must leave some cells; got {self.problem.threshold:g}, and all {self.n} cells hold "
                "less. Lower the threshold: it has to be well below one over the number of cells that matter."
            )
        self.built = False
        keys, p = self.arrays["neighbours"].view(np.int64), self.arrays["q"]
        marks = self.arrays["T"].view(np.uint8)
        left = np.float64(1 - deleted / UNIT)
        given = (kept, np.int64(self.n_sorted), late, late_keys, np.int64(late.shape[0]), left, keys, p, marks)
        record = self._run([kernels["carry"]], *given)
        self.arrays["q"], self.p = self.p, p
        self.keys[:n], self.marks[:n] = keys[:n], marks[:n]
        self.n = self.n_sorted = n
        self.scale = UNIT / int(record["carried"][0])

    def _run(self, kernels: list[Any], *arguments: Any) -> np.ndarray:
        """Launch kernels on the grid's record; the record that they leave."""
        device = _device.device_array(self.describe().view(np.uint8))
        for kernel in kernels:
            launch(kernel, self._blocks(), THREADS, (device, *arguments))
        return to_numpy(device).view(self.record.dtype)

    def _spare(self, deleted: int) -> int:
        """Take the marks off candidates that the sequential rule keeps; the mass deleted then, `deleted` before."""
        xp, threshold = array_namespace(self.p), self.problem.threshold
        candidates = xp.nonzero(self.marks[: self.n] == DOOMED)[0]
        p = xp.astype(self.p[candidates] * self.p.dtype.type(self.scale), xp.float64)
        close = p >= threshold * (1 - deleted / UNIT)
        candidates, p = candidates[close], p[close]
        order = xp.argsort(self.keys[candidates])
        order = order[xp.argsort(p[order], stable=True)]
        candidates, p = candidates[order], p[order]
        mass = fixed(p)
        surely = deleted - int(xp.sum(mass))
        gone = xp.astype(surely + xp.cumulative_sum(mass), xp.float64) / UNIT
        stays = p >= threshold * (1 - gone)
        self.marks[candidates[stays]] = 0
        return deleted - int(xp.sum(mass[stays]))

    def ordered(self) -> tuple[Any, Any]:
        """Keys in ascending order, and normalised probabilities."""
        keys, p = self.keys[: self.n], self.p[: self.n] * self.p.dtype.type(self.scale)
        return (keys, p) if self.n_sorted == self.n else merged(keys, p, self.n_sorted)

    def replace(self, keys: Any, p: Any) -> None:
        """Other probabilities, of the same cells, in ascending order of their keys."""
        if self.n_sorted < self.n:
            self.keys[: self.n] = keys
            self.n_sorted, self.built = self.n, False
        self.p[: self.n] = p
        self.marks[...] = 0
        self.scale = 1.0


def merged(keys: Any, p: Any, n_sorted: int) -> tuple[Any, Any]:
    """Keys and what belongs to them in ascending order, where the first `n_sorted` are so already."""
    xp = array_namespace(keys)
    if n_sorted == keys.shape[0]:
        return keys, p
    new = xp.argsort(keys[n_sorted:])
    keys_new, p_new = keys[n_sorted:][new], p[n_sorted:][new]
    if n_sorted == 0:
        return keys_new, p_new
    out_keys, out_p = xp.empty_like(keys), xp.empty_like(p)
    for part, values, others in ((keys_new, p_new, keys[:n_sorted]), (keys[:n_sorted], p[:n_sorted], keys_new)):
        at = xp.searchsorted(others, part) + xp.arange(part.shape[0])
        out_keys[at], out_p[at] = part, values
        del at
    return out_keys, out_p
