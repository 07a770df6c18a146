"""One linear system on NumPy's arrays, with the solves that its derivatives take.

For x in ``A x = b`` the derivative is ``dx = A^-1 (db - dA x)``. The gradient of a function of x whose gradient with
respect to x is g is ``y = A^-H g`` with respect to b, and ``-y_i conj(x_j)`` with respect to entry (i, j) of A [1]_.

.. [1] Giles (2008), in Advances in Automatic Differentiation, Springer, 35-44, section 2.3.1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import samples_text
from ensemble.linalg.graph import CrsGraph

__all__ = ["HostSystem"]

Solve = Callable[[Any, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Values of A and a right-hand side, bare arrays, to the solution and the samples that it is good in."""


class HostSystem:
    """What the rules of the libraries need to know of one call of a solver.

    `solve` and `solve_adjoint` solve with A and its conjugate transpose. `primal` is the call itself: values, b, x0 to
    a result with `x`, `converged`, `iterations`, `true_residual_norms` and `target`. All take bare arrays of NumPy,
    samples last, 1 for what is shared. `values` are those of the entries of `graph`; both are None for an operator
    without entries.
    """

    def __init__(
        self, name: str, graph: CrsGraph | None, shape: tuple[int, int], primal: Callable[..., Any], solve: Solve,
        solve_adjoint: Solve,
    ) -> None:  # fmt: skip
        """`shape` is that of the solution: rows and samples."""
        self.name, self.primal = name, primal
        self.n, self.n_samples = shape
        self.rows = None if graph is None else graph.row_of_entry.astype(np.int64)
        self.columns = None if graph is None else graph.indices.astype(np.int64)
        self._solves = solve, solve_adjoint
        self.latest: Any = None
        """The result of the last call."""

    def outcome(self, values: Any, b: np.ndarray, x0: Any, traced: bool = False) -> tuple[np.ndarray, ...]:
        """x, converged, iterations, norms and targets, each with samples last."""
        self.latest = result = self.primal(values, b, x0)
        if traced and not result.converged.all():  # the caller sees no status
            try:
                result.raise_if_failed()
            except RuntimeError as error:
                warnings.warn(f"{error}", RuntimeWarning, stacklevel=2)
        x = result.x.samples if hasattr(result.x, "n_samples") else result.x[..., None]
        x = np.ascontiguousarray(x.reshape(self.n, x.shape[-1]))
        norms = result.true_residual_norms
        norms = result.residual_norms[-1] if norms is None else norms
        numbers = result.iterations.astype(np.int64), norms, result.target
        return x, result.converged, *(np.broadcast_to(part, x.shape[-1:]) for part in numbers)

    def derivative(self, values: Any, r: np.ndarray, adjoint: bool) -> np.ndarray:
        """The product of the inverse of A, or of its adjoint, with `r`; NaN in samples that did not converge."""
        with np.errstate(all="ignore"):
            x, good = self._solves[adjoint](values, r)
        finite = np.isfinite(r).all(axis=0)
        bad = np.flatnonzero(~np.broadcast_to(good, finite.shape) & finite)
        x = np.array(x)
        x[:, ~(good & finite)] = np.nan
        if bad.size:
            warnings.warn(
                f"{self.name}: the solve for derivatives{' with the adjoint of A' * adjoint} did not converge in "
                f"{samples_text(bad, of=finite.size)}; their derivatives are NaN. Allow more iterations, or a larger "
                "rtol.",
                RuntimeWarning,
                stacklevel=2,
            )
        return x
