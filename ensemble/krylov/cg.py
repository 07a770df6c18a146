"""The preconditioned conjugate gradient method for many samples: each by itself, or all in one Krylov space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, moved, to_numpy
from ensemble._check import integer, one_of, require
from ensemble._kernels import krylov as kernels
from ensemble._kernels._memory import empty_like
from ensemble.krylov._resident import ResidentSolve, can_stay
from ensemble.krylov._run import WORTH_COMPACTING, common_samples, require_one_home, tolerance, widen
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg import Identity
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.operators import samples_of, wrap_like


def cg(
    A: Any,
    b: Any,
    *,
    x0: Any = None,
    M: Any = None,
    flexible: bool = False,
    rtol: Any = 1e-8,
    atol: Any = 0.0,
    max_iterations: int = 1000,
    coupling: str = "independent",
    compact: bool = True,
    callback: Callable[[int, np.ndarray], Any] | None = None,
) -> SolveResult:
    """Solve ``A x = b`` for every sample at once, A symmetric positive definite in each.

    A sample has converged when the 2-norm of its residual is at most ``max(rtol * norm(b), atol)``; the residual is
    computed anew from x before that is believed. A sample that is not finite or not positive definite is flagged and
    left where it stands; the others finish [1]_, [2]_.

    Parameters
    ----------
    A : CrsMatrix, SciPy sparse matrix or LinearOperator, shape (n, n)
    b : Ensemble or array, shape (n,)
    x0 : Ensemble or array, shape (n,), optional
        Starting guess; zero by default.
    M : LinearOperator, shape (n, n), optional
        Preconditioner, an approximation of the inverse of A: a `Hierarchy`, a `Diagonal`.
    flexible : bool
        Allow an M that changes from one application to the next (an inner solve, say): the new direction is made
        orthogonal to the last one as it is (Polak and Ribiere's formula) [3]_, for one more vector and inner product.
    rtol, atol : float or array, shape (n_samples,), dimensionless and in units of b
    max_iterations : int
    coupling : {"independent", "ensemble"}
        "independent": each sample has step lengths of its own and the bits of its own scalar run; finished samples are
        frozen. "ensemble": all samples share one inner product, their sum (eq. 4 of [2]_), hence one iteration count;
        the iteration goes on until every sample meets its own target, so a singular sample holds up all of them.
    compact : bool
        Take finished samples out of vectors and matrices when at least half are done and more than a few iterations
        lie ahead. Changes no result.
    callback : callable, optional
        Called as ``callback(iteration, residual_norms)`` after each iteration, norms of shape (n_samples,).

    Returns
    -------
    SolveResult

    Raises
    ------
    ValueError
        If shapes or numbers of samples do not fit, or a tolerance is negative.

    References
    ----------
    .. [1] Saad (2003), Iterative Methods for Sparse Linear Systems, algorithm 9.1.
    .. [2] Phipps et al. (2017), SIAM J. Sci. Comput. 39, C162-C193, section 3.4.
    .. [3] Golub, Ye (1999), SIAM J. Sci. Comput. 21, 1305-1320.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> result = cg(poisson((10,)), np.ones(10))
    >>> result.iterations
    array([5])
    """
    A = as_operator(A, "cg", "A")
    M = Identity() if M is None else as_operator(M, "cg", "M")
    n = A.shape[0]
    require(
        A.shape[0] == A.shape[1], "cg", "A", "be square", f"shape {tuple(A.shape)}",
        "Solve the normal equations or use lsmr.",
    )  # fmt: skip
    require(isinstance(M, Identity) or tuple(M.shape) == (n, n), "cg", "M", f"have shape {(n, n)}", f"shape {M.shape}")
    integer(max_iterations, "cg", "max_iterations", minimum=0)
    one_of(coupling, ("independent", "ensemble"), "cg", "coupling")
    vectors = {"b": samples_of(b)}
    if x0 is not None:
        vectors["x0"] = samples_of(x0)
    n_samples = common_samples("cg", n, vectors, A=A, M=M)
    rtol, atol = tolerance(rtol, "cg", "rtol", n_samples), tolerance(atol, "cg", "atol", n_samples)
    dtype = np.result_type(*(v.dtype for v in vectors.values()), getattr(A, "dtype", np.float64), np.float32)
    wide = {name: widen(v, n_samples, dtype) for name, v in vectors.items()}
    require_one_home("cg", wide["b"], A=A, M=M)
    run = _Run(A, M, wide["b"], wide.get("x0"), rtol, atol, coupling == "ensemble", flexible)
    narrow = compact and coupling == "independent"
    if can_stay(run, max_iterations, callback):
        ResidentSolve(run, max_iterations, narrow).solve()
    else:
        run.solve(max_iterations, narrow, callback)
    operator_samples = max(getattr(A, "n_samples", 1), getattr(M, "n_samples", 1))
    like = x0 if x0 is not None and samples_of(x0).shape[-1] > samples_of(b).shape[-1] else b
    return SolveResult(
        wrap_like(like, run.solution(), operator_samples), run.status, run.iterations,
        np.stack(run.history), run.target, "cg",
    )  # fmt: skip


class _Run:
    """The state of one solve. Arrays named by sample have one value for each; vectors hold the samples in `members`."""

    def __init__(self, A: Any, M: Any, b: Any, x0: Any, rtol: Any, atol: Any, coupled: bool, flexible: bool) -> None:
        n_samples = b.shape[1]
        self.A, self.M, self.b, self.coupled = A, M, b, coupled
        self.members = np.arange(n_samples)
        self.x, self.r = empty_like(b), empty_like(b)
        self.x[...] = 0.0 if x0 is None else x0
        if x0 is None:
            self.r[...] = b
        else:
            self._residual(self.r)
        self.p, self.z = empty_like(b), empty_like(b)
        self.flexible = flexible
        self.q = empty_like(b) if flexible else self.z  # A p, which only the flexible method needs later
        self.workspace = M.workspace(n_samples) if hasattr(M, "workspace") else None
        norm = norms(self.r)
        norm_b = norm if x0 is None else norms(b)
        self.target = np.maximum(rtol * norm_b, atol)
        self.initial = norm
        self.history = [norm.copy()]
        self.status = np.full(n_samples, Status.max_iterations, dtype=object)
        self.iterations = np.zeros(n_samples, np.int64)
        self.wide_x: Any = None
        self.active = np.isfinite(norm) & np.isfinite(self.target) & (norm > self.target)
        self.status[norm <= self.target] = Status.converged
        self.status[~np.isfinite(norm) | ~np.isfinite(self.target)] = Status.breakdown

    # --- pieces of one iteration
    def _residual(self, out: Any) -> Any:
        if hasattr(self.A, "residual"):
            return self.A.residual(self.x, self.b, out)
        self.A.apply(self.x, out)
        out[...] = self.b - out
        return out

    def _product(self) -> np.ndarray:
        """q = A p and the inner products p . A p."""
        if hasattr(self.A, "apply_dot"):
            return to_numpy(self.A.apply_dot(self.p, self.q)[1])
        self.A.apply(self.p, self.q)
        return to_numpy(kernels.dot(self.p, self.q, None))

    def _precondition(self) -> np.ndarray:
        """z = M r and the inner products r . z."""
        if hasattr(self.M, "apply_dot"):
            return to_numpy(self.M.apply_dot(self.r, self.z, self.workspace))
        self._apply_preconditioner()
        return to_numpy(kernels.dot(self.r, self.z, None))

    def _apply_preconditioner(self) -> None:
        if self.workspace is not None:
            self.M.apply(self.r, self.z, self.workspace)
        else:
            self.M.apply(self.r, self.z)

    def _together(self, values: np.ndarray) -> np.ndarray:
        """Inner products as the coupling wants them: each sample's own, or the sum over the running samples."""
        if not self.coupled:
            return values
        return np.full_like(values, np.sum(values[self.active]))

    def _finish(self, which: np.ndarray, status: Status, iteration: int) -> None:
        self.status[self.members[which]] = status
        self.iterations[self.members[which]] = iteration
        self.active = self.active & ~which

    def _break(self, values: np.ndarray, iteration: int) -> bool:
        """Take out the running samples whose inner product is not a positive number; True if there were any."""
        bad = self.active & ~(np.isfinite(values) & (values > 0.0))
        if bad.any():
            self._finish(bad, Status.breakdown, iteration)
        return bool(bad.any())

    def _check(self, norm: np.ndarray, iteration: int) -> np.ndarray:
        """Believe convergence only from the true residual, which replaces the recursive one where they disagree."""
        target = self.target[self.members]
        claims = self.active & (norm <= target)
        if not claims.any() or (self.coupled and not np.array_equal(claims, self.active)):
            return norm
        true = self._residual(self.z)
        true_norm = norms(true)
        norm = np.where(claims, true_norm, norm)
        proven = claims & (true_norm <= target)
        unproven = np.flatnonzero(claims & ~proven)
        if self.coupled and unproven.size:
            proven = np.zeros_like(proven)
            unproven = np.flatnonzero(claims)
        if unproven.size:
            which = moved(unproven, self.r)
            kernels.put_samples(kernels.take_samples(true, which, None), which, self.r)
        self._finish(proven, Status.converged, iteration)
        return norm

    def _record(self, norm: np.ndarray, running: np.ndarray) -> None:
        row = self.history[-1].copy()
        row[self.members[running]] = norm[running]
        self.history.append(row)

    # --- the method
    def solve(self, max_iterations: int, compact: bool, callback: Any) -> None:
        """Iterate until no sample runs."""
        with np.errstate(all="ignore"):  # a broken sample's arithmetic is its own affair
            iteration = 0
            rz = self._start(iteration) if self.active.any() else self.initial
            while self.active.any() and iteration < max_iterations:
                pq = self._product()
                if self._break(pq, iteration) and self.coupled:
                    rz = self._start(iteration)  # the others begin a Krylov space of their own
                    continue
                alpha = np.where(self.active, self._together(rz) / self._together(pq), 0.0).astype(self.x.dtype)
                rr = kernels.cg_update(moved(alpha, self.x), self.p, self.q, self.x, self.r)
                iteration += 1
                norm = np.sqrt(to_numpy(rr).astype(np.float64))
                running = self.active
                self._finish(self.active & ~np.isfinite(norm), Status.breakdown, iteration)
                norm = self._check(norm, iteration)
                self._record(norm, running)
                if callback is not None:
                    callback(iteration, self.history[-1])
                if not self.active.any():
                    break
                if compact and self._should_compact(norm, iteration):
                    rz, alpha = rz[self.active], alpha[self.active]
                    self._compact()
                rz_new = self._precondition()
                if self._break(rz_new, iteration) and self.coupled:
                    rz = self._start(iteration)
                    continue
                # z . (r - old r) for the flexible method
                change = -alpha * to_numpy(kernels.dot(self.z, self.q, None)) if self.flexible else rz_new
                beta = np.where(self.active, self._together(change) / self._together(rz), 0.0).astype(self.x.dtype)
                kernels.cg_direction(moved(beta, self.p), self.z, self.p)
                rz = rz_new
            self.iterations[self.members[self.active]] = iteration

    def _start(self, iteration: int) -> np.ndarray:
        """p = z = M r: a fresh Krylov space from the present residual."""
        rz = self._precondition()
        while self._break(rz, iteration) and self.coupled and self.active.any():
            rz = self._precondition()
        self.p[...] = self.z
        return rz

    # --- compaction
    def _should_compact(self, norm: np.ndarray, iteration: int) -> bool:
        """Whether at most half of the samples run and, by their mean rate so far, enough iterations lie ahead."""
        if 2 * self.active.sum() > self.active.size:
            return False
        if not (hasattr(self.A, "take_samples") and hasattr(self.M, "take_samples")):
            return False
        now, first = norm[self.active], self.initial[self.members][self.active]
        rate = np.log(now / first) / iteration
        ahead = np.log(self.target[self.members][self.active] / now) / rate
        return bool(np.any((rate >= 0.0) | (ahead >= WORTH_COMPACTING)))

    def _compact(self) -> None:
        """Narrow vectors, matrix and preconditioner to the running samples."""
        kept = np.flatnonzero(self.active)
        if self.wide_x is None:
            self.wide_x = array_namespace(self.x).asarray(self.x, copy=True)
        else:
            kernels.put_samples(self.x, moved(self.members, self.x), self.wide_x)
        self.A, self.M = self.A.take_samples(kept), self.M.take_samples(kept)
        vectors, which = (self.b, self.x, self.r, self.p), moved(kept, self.x)
        self.b, self.x, self.r, self.p = (kernels.take_samples(v, which, None) for v in vectors)
        self.z = empty_like(self.p)
        self.q = kernels.take_samples(self.q, which, None) if self.flexible else self.z
        self.members, self.active = self.members[kept], self.active[kept]
        if self.workspace is not None:
            self.workspace = self.M.workspace(kept.size)

    def solution(self) -> Any:
        """x of all samples."""
        if self.wide_x is None:
            return self.x
        return kernels.put_samples(self.x, moved(self.members, self.x), self.wide_x)


def norms(vectors: Any) -> np.ndarray:
    """The 2-norm of each sample, on the host."""
    return np.sqrt(to_numpy(kernels.dot(vectors, vectors, None)).astype(np.float64))
