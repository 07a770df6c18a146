"""The scalars of conjugate gradients on the host as loops that a program repeats (`ensemble._compile.programs`).

They decide what `device_scalars/cg.py` decides on a device, from the same states of samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.numba import compiled_procedure, inner
from ensemble._kernels.krylov import vectors
from ensemble._kernels.krylov.device_scalars.scalars import BREAKDOWN, CANDIDATE, CONVERGED, LIMITED, RUNNING, STAGNATED
from ensemble._typing import Array

__all__ = ["CgProgramScalars"]

LATEST, TARGET, CHECK, REFERENCE, MISSES, FALL, BEST, LEAST = range(8)
"""Rows of the norms of each sample, as in statuses.cuh."""

STATUS, ITERATIONS = range(2)
"""Rows of the counts of each sample."""


@inner(forceinline=True)
def is_positive(value):
    """Whether a value is a positive number."""
    return np.isfinite(value) and value > 0.0


@compiled_procedure
def _cg_beta(found, rz, beta, counts):
    for s in range(beta.size):
        beta[s] = 0.0
        if counts[STATUS, s] == RUNNING:
            factor = found[s] / rz[s]
            if is_positive(found[s]) and not np.isnan(factor):
                beta[s] = factor
                rz[s] = found[s]
            else:
                counts[STATUS, s] = BREAKDOWN


@compiled_procedure
def _cg_alpha(pq, rz, alpha, last, keep, counts):
    for s in range(alpha.size):
        alpha[s] = 0.0
        keep[s] = 0.0
        if counts[STATUS, s] == RUNNING:
            length = rz[s] / pq[s]
            if is_positive(pq[s]) and np.isfinite(length):
                alpha[s] = length
                last[s] = length
            else:
                counts[STATUS, s] = BREAKDOWN


@compiled_procedure
def _cg_norm(squares, keep, norms, counts, history, limit, n_running):
    running = np.int64(0)
    for s in range(keep.size):
        if counts[STATUS, s] == RUNNING:
            norm, last, least = np.sqrt(np.float64(squares[s])), norms[LATEST, s], norms[LEAST, s]
            if not norm <= 2.0 * least and last <= 2.0 * least and last <= 0.5 * norms[BEST, s]:
                norms[BEST, s] = last
                keep[s] = 1.0
            if norm < least:
                norms[LEAST, s] = norm
            counts[ITERATIONS, s] += 1
            norms[LATEST, s] = norm
            history[counts[ITERATIONS, s], s] = norm
            if not np.isfinite(norm):
                counts[STATUS, s] = BREAKDOWN
            elif norm <= norms[CHECK, s]:
                counts[STATUS, s] = CANDIDATE
            elif counts[ITERATIONS, s] >= limit:
                counts[STATUS, s] = LIMITED
            else:
                running += 1
    n_running[0] = running


@compiled_procedure
def _cg_verify(squares, rz, adopt, keep, norms, counts, history, limit):
    for s in range(keep.size):
        adopt[s] = 0.0
        keep[s] = 0.0
        if counts[STATUS, s] == CANDIDATE:
            norm, reference = np.sqrt(np.float64(squares[s])), norms[REFERENCE, s]
            norms[LATEST, s] = norm
            history[counts[ITERATIONS, s], s] = norm
            if norm <= norms[TARGET, s]:
                counts[STATUS, s] = CONVERGED
            elif not np.isfinite(norm):
                counts[STATUS, s] = BREAKDOWN
            else:
                misses, most = 0.0, 1.0
                if norm > 0.5 * reference:
                    misses = norms[MISSES, s] + 1.0
                if norm <= 2.0 * norms[TARGET, s]:
                    most = 5.0
                norms[MISSES, s] = misses
                norms[REFERENCE, s] = min(reference, norm)
                if misses >= most:
                    counts[STATUS, s] = STAGNATED
                else:
                    if not np.isfinite(reference) or norm < norms[BEST, s]:
                        keep[s] = 1.0
                        norms[BEST, s] = norm
                    norms[LEAST, s] = norm
                    norms[CHECK, s] = min(norms[CHECK, s], 0.1 * norm)
                    if counts[ITERATIONS, s] >= limit:
                        counts[STATUS, s] = LIMITED
                    else:
                        counts[STATUS, s] = RUNNING
                        adopt[s] = 1.0
                        rz[s] = np.inf


@compiled_procedure
def _keep_previous(keep, alpha, p, x, kept):
    """kept = x - alpha p, the iterate before the last step, of the samples whose `keep` is not zero."""
    for s in range(keep.size):
        if keep[s] != 0.0:
            for i in range(x.shape[0]):
                kept[i, s] = x[i, s] - alpha[s] * p[i, s]


class CgProgramScalars:
    """alpha, beta, r . z, statuses, counts and norms of each sample, in arrays that stay where they are.

    Parameters
    ----------
    status, iterations : array of int, shape (n_samples,)
    norms : float64 array, shape (8, n_samples)
        In the order of statuses.cuh.
    limit : int
        Iterations that a sample may take.
    x, kept : array, shape (n, n_samples)
        The iterates, and the best ones so far.
    rows : array, shape (2, n_samples)
        The inner product r . z of the last direction, and the last step length.
    """

    def __init__(
        self, status: Array, iterations: Array, norms: np.ndarray, limit: int, x: Array, kept: Array, *,
        rows: np.ndarray,
    ) -> None:  # fmt: skip
        n_samples = x.shape[1]
        self.x, self.kept, self.limit = x, kept, limit
        self.counts, self.own_norms = np.stack([status, iterations]).astype(np.int64), np.array(norms, np.float64)
        self.rz, self.last_alpha = self._rows = [np.array(row, x.dtype) for row in rows]
        self.alpha, self.beta, self.adopt, self.better, self.keep = (np.zeros(n_samples, x.dtype) for _ in range(5))
        self.n_running = np.array([np.count_nonzero(status == RUNNING)], np.int64)
        self.history = np.zeros((limit + 1, n_samples))

    @property
    def rows(self) -> np.ndarray:
        """What an iteration takes over from the one before."""
        return np.stack(self._rows)

    def copy_from(self, other: CgProgramScalars) -> None:
        """Take the numbers of other scalars of the same solve; the vectors and the history stay."""
        for name in ("counts", "own_norms", "rz", "last_alpha", "alpha", "beta", "keep", "n_running"):
            getattr(self, name)[...] = getattr(other, name)

    def fetch_status(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(status, iterations, latest norms)."""
        return self.counts[STATUS].copy(), self.counts[ITERATIONS].copy(), self.own_norms[LATEST].copy()

    def norms(self) -> np.ndarray:
        """The current values of the constructor's `norms`."""
        return self.own_norms.copy()

    def between_iterations(self) -> bool:
        """True: a program ends with an iteration."""
        return True

    # --- inner products
    def apply_dot(self, A: Any, p: Array, q: Array) -> Any:
        """q = A p; returns p . q."""
        return A.apply_dot(p, q)[1]

    def precondition_dot(self, state: Any, r: Array, z: Array) -> tuple[Array, Any]:
        """(M r, r . M r), the vector in `z`."""
        found: tuple[Array, Any] = state.precondition_dot(r, z)
        return found

    # --- one iteration
    def direction(self, z: Array, rz: Array, q: Array | None, p: Array) -> bool:
        """beta from r . z, and the next direction, once iterates that the last step left behind are kept; True."""
        _cg_beta(rz, self.rz, self.beta, self.counts)
        _keep_previous(self.keep, self.last_alpha, p, self.x, self.kept)
        vectors.cg_direction(self.beta, z, p)
        return True

    def step(self, p: Array, q: Array, x: Array, r: Array, pq: Array) -> bool:
        """alpha from p . q, the new x and r, counts and norms. False: candidates wait until no sample runs."""
        _cg_alpha(pq, self.rz, self.alpha, self.last_alpha, self.keep, self.counts)
        squares = vectors.cg_update(self.alpha, p, q, x, r)
        _cg_norm(squares, self.keep, self.own_norms, self.counts, self.history, self.limit, self.n_running)
        return False

    def verify_convergence(self, true: Array, r: Array) -> None:
        """Decide on the candidates by the true residual, which replaces r where a sample continues."""
        squares = vectors.dot(true, true, None)
        _cg_verify(
            squares, self.rz, self.adopt, self.better, self.own_norms, self.counts, self.history, self.limit
        )  # fmt: skip
        vectors.copy_chosen(self.adopt, true, r)
        vectors.copy_chosen(self.better, self.x, self.kept)
        self.n_running[0] = np.count_nonzero(self.counts[STATUS] == RUNNING)

    def keep_previous(self, p: Array) -> None:
        """Keep the iterates that a next direction would keep, after the last iteration."""
        _keep_previous(self.keep, self.last_alpha, p, self.x, self.kept)
