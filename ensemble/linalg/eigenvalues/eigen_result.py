"""`EigenResult`: eigenpairs of every sample, and how good they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ensemble._check import samples_text
from ensemble.linalg.outcomes import SolveError, Status
from ensemble.scalar import Ensemble

__all__ = ["EigenResult"]


@dataclass(frozen=True, repr=False)
class EigenResult:
    """Eigenpairs of every sample, and how good they are.

    Attributes
    ----------
    values : Ensemble, shape (k,)
        Ascending in every sample.
    vectors : Ensemble, shape (n, k)
        ``x^T M x = 1``. The first component of at least half the largest magnitude is positive.
    residual_norms : array, shape (k, n_samples)
        2-norms of ``A x - value M x``.
    status : array of Status, shape (n_samples,)
        Of the sample's pairs together.
    iterations : array of int, shape (n_samples,)
        Bases that were built; 0 where small matrices were treated as dense.
    target : array, shape (k, n_samples)
        What the residual norms had to reach.
    """

    values: Ensemble
    vectors: Ensemble
    residual_norms: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    target: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        """True for each sample all of whose pairs reached their targets, shape (n_samples,)."""
        converged: np.ndarray = self.status == Status.converged
        return converged

    def __repr__(self) -> str:
        failed = np.flatnonzero(~self.converged)
        text = f"EigenResult({self.values.shape[0]} pairs: {self.status.size - failed.size} of {self.status.size} "
        return f"{text}samples converged{f'; not: {samples_text(failed)}' if failed.size else ''})"

    def raise_if_failed(self) -> EigenResult:
        """This result, or `SolveError` naming the samples with a pair that did not converge."""
        failed = np.flatnonzero(~self.converged)
        if not failed.size:
            return self
        counts = {outcome: int(np.sum(self.status[failed] == outcome)) for outcome in Status}
        ended = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
        advice = 'Give sigma near the values wanted (which="SM" is sigma=0), or allow more iterations.'
        raise SolveError(
            f"eigsh: {failed.size} of {self.status.size} samples have pairs that did not converge "
            f"({samples_text(failed, of=self.status.size)}; {ended}). {advice}"
        )
