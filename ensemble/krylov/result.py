"""What every iterative solver returns: one outcome per sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._check import message, samples_text
from ensemble.linalg.outcomes import SolveError, Status

__all__ = ["SolveError", "SolveResult", "Status", "TracedResult"]

KRYLOV = ("cg", "bicgstab", "gmres", "minres")
"""Solvers with a preconditioner."""


@dataclass(frozen=True)
class SolveResult:
    """Outcome of an iterative solve, sample by sample.

    Attributes
    ----------
    x : Ensemble or array, shape (n,)
        The solution; for a sample that did not converge, its best iterate. That of `cg` has a residual norm of at most
        four times the least of the solve; `bicgstab` compares the last iterate with every sixteenth, `gmres` with those
        at the ends of cycles; of the last and the kept one the true residuals decide.
    status : array of Status, shape (n_samples,)
    iterations : array of int, shape (n_samples,)
        Iterations each sample took.
    residual_norms : array, shape (n_iterations + 1, n_samples)
        2-norm of the residual after each iteration, as the method has it, and the true one where the method computed
        that; a finished sample keeps its last value.
    target : array, shape (n_samples,)
        What each sample's norm had to reach.
    true_residual_norms : array, shape (n_samples,)
        2-norm of ``b - A x`` for the x returned. It is below the last of `residual_norms` where an earlier iterate is
        the best, and above it where rounding had parted the method's residual from the true one.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> from ensemble.krylov import cg
    >>> result = cg(poisson((10,), n_samples=3), np.ones(10))
    >>> result
    SolveResult(cg: 3 of 3 samples converged, 5 iterations)
    >>> result.converged, result.residual_norms.shape
    (array([ True,  True,  True]), (6, 3))
    """

    x: Any
    status: np.ndarray
    iterations: np.ndarray
    residual_norms: np.ndarray
    target: np.ndarray
    solver: str = "solve"
    true_residual_norms: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary})"

    def __iter__(self) -> Any:
        """Raise: SciPy's solvers return a pair, this is one result."""
        advice = "Use result = cg(A, b): result.x is the solution, result.status says how each sample ended."
        raise TypeError(message(self.solver, "x, info = ...", "take one result", "an unpacking in two", advice))

    @property
    def summary(self) -> str:
        """How many samples converged, in how many iterations, and which ended otherwise."""
        low, high = int(self.iterations.min()), int(self.iterations.max())
        text = f"{self.solver}: {int(self.converged.sum())} of {self.status.size} samples converged, "
        text += f"{high} iteration{'s' * (high != 1)}" if low == high else f"{low} to {high} iterations"
        for outcome in (Status.max_iterations, Status.stagnated, Status.stopped, Status.breakdown):
            samples = np.flatnonzero(self.status == outcome)
            if samples.size:
                text += f"; {outcome.value}: {samples_text(samples, of=self.status.size)}"
        return text

    @property
    def converged(self) -> np.ndarray:
        """True for each sample that reached its target, shape (n_samples,)."""
        converged: np.ndarray = self.status == Status.converged
        return converged

    def raise_if_failed(self) -> SolveResult:
        """This result, or `SolveError` naming the samples that did not converge."""
        failed, n = np.flatnonzero(~self.converged), self.status.size
        if failed.size == 0:
            return self
        norms = self.residual_norms[-1] if self.true_residual_norms is None else self.true_residual_norms
        with np.errstate(all="ignore"):
            excess = norms[failed] / self.target[failed]
        worst = failed[int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))]
        counts = {outcome: int(np.sum(self.status[failed] == outcome)) for outcome in Status}
        ended = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
        ratio = f", {norms[worst] / self.target[worst]:.1e} times that" if self.target[worst] > 0.0 else ""
        raise SolveError(
            f"{self.solver}: {failed.size} of {n} samples did not converge in "
            f"{int(self.iterations[failed].max())} iterations ({samples_text(failed, of=n)}; {ended}; worst residual "
            f"{norms[worst]:.1e}, target {self.target[worst]:.1e}{ratio}).{self._advice(failed)}"
        )

    def _advice(self, failed: np.ndarray) -> str:
        """What to do about the samples that failed; with a space before it."""
        if not (self.status[failed] == Status.stagnated).any():
            late = (self.status[failed] == Status.max_iterations).any() and self.solver in KRYLOV
            return " Give it a better preconditioner M, or take ensemble.krylov.direct." if late else ""
        return " A residual that stagnated is as small as rounding allows: ask for no smaller rtol or atol."


class TracedResult(SolveResult):
    """Outcome of a solve in a function that JAX transforms, or that PyTorch maps.

    `x`, `converged`, `iterations`, `true_residual_norms` and `target` are arrays of the library. `status` and
    `residual_norms` are not known there: they raise a TypeError. Under JAX, samples that do not converge are named in a
    RuntimeWarning when the function runs. Their derivatives are NaN.
    """

    def __init__(self, solver: str, x: Any, parts: tuple[Any, ...]) -> None:
        self.__dict__.update(solver=solver, x=x, parts=parts)

    def __repr__(self) -> str:
        return f"TracedResult({self.solver}: outcome not known in a transformed function)"

    converged = property(lambda self: self.parts[0])
    iterations = property(lambda self: self.parts[1])
    true_residual_norms = property(lambda self: self.parts[2])
    target = property(lambda self: self.parts[3])

    def _unknown(self) -> Any:
        advice = "Use result.converged, an array of the library, or return x and look at a solve outside."
        seen = "a solve in a function that is being transformed"
        raise TypeError(message(self.solver, "status and residual_norms", "be known", seen, advice))

    status = property(_unknown)
    residual_norms = property(_unknown)
    summary = property(_unknown)

    def raise_if_failed(self) -> SolveResult:
        """Raises a TypeError: which samples failed is not known here."""
        return self._unknown()  # type: ignore[no-any-return]
