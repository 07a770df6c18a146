"""What the scalars of every Krylov method share on the device: statuses, counts, norms, and kernels that decide.

Step lengths, norms, counts and statuses stay in device memory; one block of threads adds the partial sums of an inner
product and takes the decision that depends on it. The host fetches the statuses now and then, which decides when it
stops queueing work and changes no bit of any sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, to_numpy
from ensemble._compile import cuda
from ensemble._kernels.krylov import vectors
from ensemble._kernels.sparse.row_sums import partials_of_all
from ensemble._typing import Array

__all__ = [
    "BREAKDOWN",
    "CANDIDATE",
    "CONVERGED",
    "LIMITED",
    "RUNNING",
    "STAGNATED",
    "UPDATED",
    "DeviceScalars",
    "on_device",
]

RUNNING, CONVERGED, BREAKDOWN, LIMITED, STAGNATED = range(5)
"""States of a sample, as in statuses.cuh; in any other state it waits until its true residual is computed."""

CANDIDATE = 5
"""The least state of a waiting sample; the states differ in what it waits for."""

N_NORMS = 8
"""Rows of floats in a kernel's state of the samples, as in statuses.cuh."""

UPDATED = 10
"""x holds what the cycle found, the true residual missed the target, and the sample waits for the next cycle."""


def on_device(array: Array) -> bool:
    """Whether the kernels of this module serve `array`."""
    return backend_of(array) == "cuda" and array.dtype.kind == "f"


class DeviceScalars:
    """Statuses, counts and norms of each sample, on the device of `x`.

    Parameters
    ----------
    status, iterations : array of int, shape (n_samples,)
    norms : array of float, shape (8, n_samples)
        The latest of the residuals, their targets, and the norms for stagnation and the best iterate, in the order
        of statuses.cuh.
    limit : int
        Iterations that a sample may take.
    x, kept : array, shape (n, n_samples)
        The iterates, and the best ones so far.
    """

    module: cuda.KernelModule
    rows: Array
    """Numbers that an iteration takes over from the one before; the last axis is the sample."""

    def __init__(self, status: Array, iterations: Array, norms: Array, limit: int, x: Array, kept: Array) -> None:
        xp, n, vector = array_namespace(x), x.shape[1], x
        self.n_samples, self.limit, self.like = n, limit, vector
        self.x, self.kept = x, kept
        numbers = np.zeros((N_NORMS + 1) * n)  # norms, and two lists of 32-bit integers: one copy to the host
        numbers[: N_NORMS * n] = np.ravel(norms)
        counts = numbers[N_NORMS * n :].view(np.int32)
        counts[:n], counts[n:] = status, iterations
        self.numbers = asarray_like(numbers, vector)
        self.history = xp.zeros((limit + 1, n), dtype=xp.float64)
        self.layout = cuda.Layout("double" if vector.dtype.itemsize == 8 else "float", 1, 1, 1)

    def copy_from(self, other: DeviceScalars) -> None:
        """Take the numbers of other scalars of the same solve; the vectors stay."""
        for name, value in vars(other).items():
            if hasattr(value, "__setitem__") and name not in ("x", "kept", "like"):
                getattr(self, name)[...] = value

    def to_device(self, values: np.ndarray) -> Array:
        """A copy of `values`, whose last axis is the sample, on the device."""
        return asarray_like(np.array(values, order="C"), self.like)

    def zeros(self, *shape: int) -> Array:
        """Coefficients, one per sample, in the type of the vectors."""
        return array_namespace(self.like).zeros((*shape, self.n_samples), dtype=self.like.dtype)

    def decide(self, kernel: str, partials: Array | tuple[Array, ...] | None, *arguments: Any, n_sums: int = 1) -> None:
        """Queue a kernel that adds partial sums and acts on the totals, one thread per sample.

        A tuple holds partial sums that `partials_of_all` has returned.
        """
        grid = (-(-self.n_samples // cuda.SUM_THREADS[0]), n_sums)
        sums = () if partials is None else partials if isinstance(partials, tuple) else (partials_of_all(partials),)
        chunks = (np.int64(sums[0].shape[-2]),) if sums else ()
        state = (self.numbers, self.history, np.int32(self.limit), np.int32(self.n_samples))
        threads = cuda.SUM_THREADS if sums else (cuda.SUM_THREADS[0], 1)
        self.module.launch(kernel, self.layout, grid, threads, (*sums, *chunks, *arguments, *state))

    def fetch_status(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(status, iterations, latest norms), copied to the host after the queued work."""
        numbers = np.array(to_numpy(self.numbers))
        counts = numbers[N_NORMS * self.n_samples :].view(np.int32)
        return counts[: self.n_samples], counts[self.n_samples :], numbers[: self.n_samples]

    def norms(self) -> np.ndarray:
        """The current values of the constructor's `norms`."""
        return np.array(to_numpy(self.numbers))[: N_NORMS * self.n_samples].reshape(N_NORMS, self.n_samples)

    def between_iterations(self) -> bool:
        """Whether no sample is in the middle of an iteration."""
        return True

    def copy(self, chosen: Array, source: Array, out: Array) -> None:
        """Queue ``out = source`` for the samples whose `chosen` is not zero."""
        vectors.copy_chosen(chosen, source, out)
