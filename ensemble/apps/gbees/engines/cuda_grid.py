"""One grid in device memory, and its operations as a whole: build, prune, sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import device as _device
from ensemble._compile.device import address
from ensemble._kernels.gbees.gbees_launch import Reason, launch, layout
from ensemble._typing import Array
from ensemble.apps.gbees.engines.failures import drift_not_finite, no_cell_left
from ensemble.apps.gbees.engines.keys import Packing
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.problem import Problem

__all__ = ["PRUNE_LIMIT", "DeviceGrid", "bytes_per_cell", "fixed"]

UNIT = 2.0**60
"""Masses are summed in fixed point, in multiples of 1 / UNIT: sums do not depend on an order."""

EMPTY = np.uint64(2**64 - 1)

TO_DELETE = 2

PRUNE_LIMIT = 1 << 18
"""Cells up to which `advance` prunes by itself; larger grids are pruned from the host, which sorts them by key."""

LIST = 4096
"""Most cells close to where a sequential prune stops that `advance` compares with each other."""

THREADS = 256


def bytes_per_cell(n: int, itemsize: int) -> int:
    """Bytes per cell of capacity: key, two p, T, neighbours, mark, five quarters of a slot."""
    return 8 + 3 * itemsize + 8 * n + 1 + 15


def slots(capacity: int) -> int:
    """Slots of the hash table: at most four fifths are taken."""
    return capacity + capacity // 4 + 8


def fixed(p: Array) -> Array:
    """Probabilities in units of 2^-60, int64."""
    xp = array_namespace(p)
    return xp.astype(xp.round(xp.astype(p, xp.float64) * UNIT), xp.int64)


class DeviceGrid:
    """Keys and probabilities of n cells, capacity for more, and the workspace of the kernels.

    Parameters
    ----------
    problem : Problem
    keys : array of int64, shape (N,), in ascending order
    p : array, shape (N,)
    packing : Packing
    """

    def __init__(
        self, problem: Problem, keys: Array, p: Array, packing: Packing, parameters: tuple[float, ...]
    ) -> None:
        self.problem, self.packing = problem, packing
        self.n, self.n_sorted, self.scale = int(keys.shape[0]), int(keys.shape[0]), 1.0
        self.keys, self.p = keys, p
        self.marks: Array = None
        self.capacity = 0
        self.arrays: dict[str, Array] = {}
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
        """Arrays for `capacity` cells; keys and probabilities are kept, all else has to be built again."""
        self.built, self.arrays, self.marks = False, {}, None
        empty = _device.device_empty
        if capacity > PRUNE_LIMIT:
            _device.release_device_memory()  # the pool would keep blocks of the old sizes
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
        if capacity <= PRUNE_LIMIT:
            self.arrays["other_keys"] = empty((capacity,), np.int64)

    def make_record(self) -> np.ndarray:
        """The record of the grid as it is."""
        r = self.record
        for name, array in {"keys": self.keys, "p": self.p, "marks": self.marks, **self.arrays}.items():
            r[name] = address(array)
        r["capacity"], r["slots"] = self.capacity, slots(self.capacity)
        r["prune_limit"] = PRUNE_LIMIT if "other_keys" in self.arrays else 0
        r["n"] = r["n_complete"] = self.n
        r["n_sorted"] = self.n_sorted
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

    def update_from(self, record: np.ndarray) -> None:
        """Read back the record of a kernel, which may have exchanged buffers."""
        self.record = record
        for one, other, store in (("p", "q", self.arrays), ("keys", "other_keys", self.arrays)):
            if other in store and int(record[one][0]) == address(store[other]):
                own = getattr(self, one)
                setattr(self, one, store[other])
                store[other] = own
        self.n, self.scale = int(record["n_complete"][0]), float(record["scale"][0])
        self.n_sorted = int(record["n_sorted"][0])
        if record["reason"][0] not in (Reason.FINISHED, Reason.PAUSED, Reason.PRUNE):
            self.invalidate()

    def invalidate(self) -> None:
        """Drop links and marks after the set of cells has changed."""
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
        self.record = self._run([kernels[name] for name in ("build_table", *links)])
        self.built = True
        if self.record["bad_key"][0] != EMPTY:
            self.built = False
            raise self.not_finite(float(self.record["velocity_time"][0]))

    def _blocks(self) -> int:
        return max(1, min(_device.multiprocessors() * 8, -(-self.n // THREADS)))

    def columns(self, keys: Array) -> list[Array]:
        """Multi-indices of `keys`, one array a dimension."""
        return [self.packing.column(keys, i) for i in range(self.problem.n)]

    def repack(self) -> None:
        """Keys with a new range of indices; the order of cells stays."""
        columns = self.columns(self.keys[: self.n])
        self.packing = Packing.of(columns, self.packing.periods, margin=1)
        self.keys[: self.n] = self.packing.pack(columns)
        self.invalidate()

    def not_finite(self, time: float) -> GridError:
        """The error for the cell whose key the kernel recorded: its first velocity that is not finite."""
        problem, key = self.problem, np.int64(self.record["bad_key"][0])
        s = [int(self.packing.column(key, i)) for i in range(problem.n)]
        for i, width in enumerate(problem.widths):
            face = [np.float64(w * k) for w, k in zip(problem.widths, s, strict=True)]
            face[i] += width / 2
            with np.errstate(all="ignore"):
                v = float(problem.velocity(face, np.float64(time), np)[i])
            if not np.isfinite(v):
                break
        return drift_not_finite(problem, face, v, i, time)

    # --- pruning and order
    def prune(self, kernels: dict[str, Any]) -> None:
        """Delete cells by the problem's rule, normalise, and sort the others by key.

        Raises
        ------
        GridError
            If no cell would be left; the grid is as before.
        """
        xp = array_namespace(self.p)
        self.record["candidates"] = self.record["kept_mass"] = 0
        self.arrays["T"][...] = 0
        deleted = int(self._run([kernels["mark_downwind_all"], kernels["mark_all"]])["candidates"][0])
        if self.problem.prune == "sequential":
            deleted = self._unmark_sequential(deleted)
        late = self.n_sorted + xp.nonzero(self.marks[self.n_sorted : self.n] != TO_DELETE)[0]
        late_keys = self.keys[late]
        order = xp.argsort(late_keys)
        late, late_keys = late[order], late_keys[order]
        del order
        # workspace that is built again holds the temporaries
        kept = self.arrays["places"][: self.n_sorted]
        (self.marks[: self.n_sorted] != TO_DELETE).cumsum(dtype=np.int32, out=kept)
        n = (int(kept[-1]) if self.n_sorted else 0) + int(late.shape[0])
        if n == 0:
            self.invalidate()
            raise no_cell_left(self.problem, self.n)
        self.built = False
        keys, p = self.arrays["neighbours"].view(np.int64), self.arrays["q"]
        marks = self.arrays["T"].view(np.uint8)
        left = np.float64(1 - deleted / UNIT)
        given = (kept, np.int64(self.n_sorted), late, late_keys, np.int64(late.shape[0]), left, keys, p, marks)
        record = self._run([kernels["compact"]], *given)
        self.arrays["q"], self.p = self.p, p
        self.keys[:n], self.marks[:n] = keys[:n], marks[:n]
        self.n = self.n_sorted = n
        self.scale = UNIT / int(record["kept_mass"][0])

    def _run(self, kernels: list[Any], *arguments: Any) -> np.ndarray:
        """Launch kernels on the grid's record; returns the record after them."""
        device = _device.device_array(self.make_record().view(np.uint8))
        for kernel in kernels:
            launch(kernel, self._blocks(), THREADS, (device, *arguments))
        return to_numpy(device).view(self.record.dtype)

    def _unmark_sequential(self, deleted: int) -> int:
        """Unmark the candidates that the sequential rule keeps; returns the mass deleted, `deleted` before."""
        xp, threshold = array_namespace(self.p), self.problem.threshold
        candidates = xp.nonzero(self.marks[: self.n] == TO_DELETE)[0]
        p = xp.astype(self.p[candidates] * self.p.dtype.type(self.scale), xp.float64)
        close = p >= threshold * (1 - deleted / UNIT)
        candidates, p = candidates[close], p[close]
        order = xp.argsort(self.keys[candidates])
        order = order[xp.argsort(p[order], stable=True)]
        candidates, p = candidates[order], p[order]
        mass = fixed(p)
        below = deleted - int(xp.sum(mass))
        removed = xp.astype(below + xp.cumulative_sum(mass), xp.float64) / UNIT
        stays = p >= threshold * (1 - removed)
        self.marks[candidates[stays]] = 0
        return deleted - int(xp.sum(mass[stays]))

    def ordered(self) -> tuple[Array, Array]:
        """Keys in ascending order, and normalised probabilities."""
        keys, p = self.keys[: self.n], self.p[: self.n] * self.p.dtype.type(self.scale)
        return (keys, p) if self.n_sorted == self.n else merged(keys, p, self.n_sorted)

    def replace(self, keys: Array, p: Array) -> None:
        """Set the probabilities of the same cells, given in ascending order of their keys."""
        if self.n_sorted < self.n:
            self.keys[: self.n] = keys
            self.n_sorted, self.built = self.n, False
        self.p[: self.n] = p
        self.marks[...] = 0
        self.scale = 1.0


def merged(keys: Array, p: Array, n_sorted: int) -> tuple[Array, Array]:
    """Keys and probabilities in ascending order of keys, where the first `n_sorted` are sorted already."""
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
