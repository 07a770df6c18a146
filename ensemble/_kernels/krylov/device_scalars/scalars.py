"""What Krylov methods know of each sample, kept on the device: scalars that never leave it.

Step lengths, norms, counts and statuses live in device memory; one block of threads adds the partial sums of an inner
product and takes the decision that hangs on it. The host looks at the statuses when it likes: what it sees changes when
it stops queueing work, never a bit of any sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, to_numpy
from ensemble._compile import cuda
from ensemble._kernels.krylov import vectors

__all__ = [
    "BREAKDOWN",
    "CLAIMED",
    "CONVERGED",
    "LIMITED",
    "RUNNING",
    "SETTLED",
    "STAGNATED",
    "CgScalars",
    "Scalars",
    "on_device",
]

RUNNING, CONVERGED, BREAKDOWN, LIMITED, STAGNATED = range(5)
"""Where a sample stands, as in statuses.cuh; one that says something else waits for a judgement."""

CLAIMED = 5
"""The least code of a sample that waits: it says that it has converged, or why it does not go on."""

N_NORMS = 8
"""Rows of floats in what a kernel is given of each sample, as in statuses.cuh."""

SETTLED = 10
"""Judged in mid-cycle by its true residual, and waiting for the next cycle."""


def on_device(array: Any) -> bool:
    """Whether the kernels of this module serve `array`."""
    return backend_of(array) == "cuda" and array.dtype.kind == "f"


class Scalars:
    """Statuses, counts and norms of each sample, on the device of `x`.

    Parameters
    ----------
    status, iterations : array of int, shape (n_samples,)
    norms : array of float, shape (8, n_samples)
        The latest of the residuals, what they have to reach, and what judges claims and keeps the best iterate, in the
        order of statuses.cuh.
    limit : int
        Iterations that a sample may take.
    x, kept : array, shape (n, n_samples)
        The iterates, and the best ones so far.
    """

    family: Any = None

    def __init__(self, status: Any, iterations: Any, norms: Any, limit: int, x: Any, kept: Any) -> None:
        xp, n, vector = array_namespace(x), x.shape[1], x
        self.n_samples, self.limit, self.like = n, limit, vector
        self.x, self.kept = x, kept
        numbers = np.zeros((N_NORMS + 1) * n)  # norms, and two lists of 32-bit integers: one copy tells the host
        numbers[: N_NORMS * n] = np.ravel(norms)
        counts = numbers[N_NORMS * n :].view(np.int32)
        counts[:n], counts[n:] = status, iterations
        self.numbers = asarray_like(numbers, vector)
        self.history = xp.zeros((limit + 1, n), dtype=xp.float64)
        self.layout = cuda.Layout("double" if vector.dtype.itemsize == 8 else "float", 1, 1, 1)

    def rows(self, values: Any) -> Any:
        """A copy of `values`, whose last axis is the sample, on the device."""
        return asarray_like(np.array(values, order="C"), self.like)

    def zeros(self, *shape: int) -> Any:
        """Coefficients, one per sample, in the type of the vectors."""
        return array_namespace(self.like).zeros((*shape, self.n_samples), dtype=self.like.dtype)

    def decide(self, kernel: str, partials: Any, *arguments: Any, n_sums: int = 1) -> None:
        """Queue a kernel that adds partial sums and acts on the totals, one thread per sample."""
        grid = (-(-self.n_samples // cuda.SUM_THREADS[0]), n_sums)
        sums = () if partials is None else (*(partials if isinstance(partials, tuple) else (partials,)),)
        chunks = (np.int64(sums[0].shape[-2]),) if sums else ()
        book = (self.numbers, self.history, np.int32(self.limit), np.int32(self.n_samples))
        threads = cuda.SUM_THREADS if sums else (cuda.SUM_THREADS[0], 1)
        self.family.launch(kernel, self.layout, grid, threads, (*sums, *chunks, *arguments, *book))

    def fetch_status(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(status, iterations, latest norms) as the host sees them once the queue has come this far."""
        numbers = np.array(to_numpy(self.numbers))
        counts = numbers[N_NORMS * self.n_samples :].view(np.int32)
        return counts[: self.n_samples], counts[self.n_samples :], numbers[: self.n_samples]

    def norms(self) -> np.ndarray:
        """What the constructor was given as `norms`, as it stands now."""
        return np.array(to_numpy(self.numbers))[: N_NORMS * self.n_samples].reshape(N_NORMS, self.n_samples)

    def copy(self, chosen: Any, source: Any, out: Any) -> None:
        """Queue ``out = source`` for the samples whose `chosen` is not zero."""
        vectors.copy_chosen(chosen, source, out)


class CgScalars(Scalars):
    """What conjugate gradients know of each sample.

    Parameters
    ----------
    last : array, shape (2, n_samples)
        The inner product r . z of the last direction, and the last step length.
    """

    family = vectors.CUDA

    def __init__(self, *book: Any, last: Any) -> None:
        super().__init__(*book)
        self.last = self.rows(np.asarray(last, self.like.dtype))
        self.alpha, self.beta, self.change, self.adopt, self.keep = self.zeros(5)

    def step(self, p: Any, q: Any, x: Any, r: Any, pq: Any) -> None:
        """alpha from the partial sums of p . q; x and r follow; the new norms are counted, recorded and judged."""
        self.decide("cg_alpha", pq, self.last[0], self.alpha, self.last[1], self.keep)
        self.decide("cg_norm", vectors.cg_update_partials(self.alpha, p, q, x, r), self.keep)

    def direct(self, r: Any, z: Any, q: Any, p: Any, fresh: bool) -> None:
        """beta from r . z, and the next direction; `fresh`: p = z; `q`, where given, is the last A p (flexible)."""
        flexible = q is not None and not fresh
        if flexible:
            self.decide("cg_change", vectors.dot_partials(z, q), self.last[1], self.change)
        change = self.change if flexible else None
        name = f"cg_beta<{str(fresh).lower()}>"
        self.decide(name, vectors.dot_partials(r, z), self.last[0], change, self.beta)
        vectors.cg_turn(self.beta, z, p, self.keep, self.last[1], self.x, self.kept)

    def verify_convergence(self, true: Any, r: Any) -> None:
        """Judge claims by the true residual, which replaces r where a sample has to go on."""
        keep = self.change  # in no use between iterations
        self.decide("cg_prove", vectors.dot_partials(true, true), self.last[0], self.adopt, keep)
        self.copy(self.adopt, true, r)
        self.copy(keep, self.x, self.kept)

    def keep_last(self, p: Any) -> None:
        """Keep the iterates that a next direction would keep: queued behind the last iteration."""
        chosen = np.array(to_numpy(self.keep)) != 0
        if chosen.any():
            self.copy(self.keep, self.x - self.last[1] * p, self.kept)
