"""Conjugate gradients whose scalars never leave the device.

Per-sample step lengths, norms, counts and statuses live in device memory; one block of threads adds the partial sums of
an inner product and takes the decision that hangs on it. The host looks at the statuses when it likes: what it sees
changes when it stops queueing work, never a bit of any sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, backend_of, moved, to_numpy
from ensemble._kernels import _cuda, krylov
from ensemble._kernels.krylov import CUDA

__all__ = ["BREAKDOWN", "CLAIMED", "CONVERGED", "RUNNING", "CgScalars", "on_device"]

RUNNING, CONVERGED, BREAKDOWN, CLAIMED = range(4)  # as in krylov.cu


def on_device(array: Any) -> bool:
    """Whether the kernels of this module serve `array`."""
    return backend_of(array) == "cuda" and array.dtype.kind == "f"


class CgScalars:
    """What conjugate gradients know of each sample, on the device of `vector`.

    Parameters
    ----------
    vector : array, shape (n, n_samples)
    status : array of int, shape (n_samples,)
    target : array of float, shape (n_samples,)
    iterations : array of int, shape (n_samples,)
        Done so far.
    rz : array, shape (n_samples,)
        The inner products r . z of the last direction.
    capacity : int
        Iterations that the history can hold.
    """

    def __init__(self, vector: Any, status: Any, target: Any, iterations: Any, rz: Any, capacity: int) -> None:
        xp, self.n_samples = array_namespace(vector), vector.shape[1]
        self.status = moved(np.asarray(status, np.int32), vector)
        self.iterations = moved(np.asarray(iterations, np.int32), vector)
        self.target = moved(np.asarray(target, np.float64), vector)
        self.latest = xp.zeros(self.n_samples, dtype=xp.float64)
        self.history = xp.zeros((capacity + 1, self.n_samples), dtype=xp.float64)
        self.rz = moved(np.asarray(rz, vector.dtype), vector)
        self.alpha, self.beta, self.adopt = (xp.zeros_like(self.rz) for _ in range(3))

    def _decide(self, kernel: str, partials: Any, *arguments: Any) -> None:
        """Queue a kernel that adds partial sums and acts on the total, one thread a sample."""
        chunks = np.int64(partials.shape[1])
        layout = _cuda.Layout("double" if partials.dtype.itemsize == 8 else "float", 1, 1, 1)
        grid = (-(-self.n_samples // 32),)
        CUDA.launch(kernel, layout, grid, (32, 32), (partials, chunks, *arguments, np.int32(self.n_samples)))

    def step(self, p: Any, q: Any, x: Any, r: Any, pq: Any) -> None:
        """alpha from the partial sums of p . q; x and r follow; the new norms are counted, recorded and judged."""
        self._decide("cg_alpha", pq, self.rz, self.status, self.alpha)
        rr = krylov.cg_update_partials(self.alpha, p, q, x, r)
        self._decide("cg_norm", rr, self.target, self.status, self.iterations, self.latest, self.history)

    def direct(self, r: Any, z: Any, p: Any, fresh: bool = False) -> None:
        """beta from r . z, and the next direction; `fresh`: p = z, a new Krylov space."""
        rz = krylov.dot_partials(r, z)
        self._decide(f"cg_beta<{str(fresh).lower()}>", rz, self.rz, self.status, self.beta)
        krylov.cg_direction_on_device(self.beta, z, p, not fresh)

    def prove(self, true: Any, r: Any) -> None:
        """Judge claims by the true residual, which replaces r where a sample has to go on."""
        partials = krylov.dot_partials(true, true)
        known = (self.target, self.status, self.iterations, self.latest, self.history, self.adopt)
        self._decide("cg_prove", partials, *known)
        layout = _cuda.layout_of(self.n_samples, true, r, self.adopt)
        CUDA.rows("copy_chosen", r.shape[0], self.n_samples, (self.adopt, true, r), layout)

    def look(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(status, iterations, latest norms) as the host sees them once the queue has come this far."""
        return to_numpy(self.status), to_numpy(self.iterations), to_numpy(self.latest)
