"""The methods by which ``scipy.sparse.linalg`` takes a matrix or a preconditioner of one sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import require, sample_number


class SciPyOperator:
    """`matvec` and `matmat` for a class with `@` and `n_samples`; SciPy's ``aslinearoperator`` looks for them."""

    n_samples: Any
    take_samples: Any

    def sample(self, i: int) -> Any:
        """Sample `i` alone."""
        return self.take_samples(np.array([sample_number(i, self.n_samples, type(self).__name__)]))

    def matvec(self, x: Any) -> Any:
        """The product with a vector, shape (n,) or (n, 1), for ``scipy.sparse.linalg``.

        Raises
        ------
        ValueError
            If this holds more than one sample: SciPy's methods solve one system.
        """
        return one_sample(self, "matvec") @ x

    def matmat(self, x: Any) -> Any:
        """The product with the columns of `x`, shape (n, k); one sample, as for `matvec`."""
        return one_sample(self, "matmat") @ x


class SciPyMatrix(SciPyOperator):
    """`SciPyOperator` for a class that has a transpose, and so an adjoint."""

    T: Any

    def rmatvec(self, x: Any) -> Any:
        """The product of the adjoint with a vector, shape (n,) or (n, 1); one sample, as for `matvec`."""
        return (one_sample(self, "rmatvec").T @ x.conj()).conj()

    def rmatmat(self, x: Any) -> Any:
        """The product of the adjoint with the columns of `x`, shape (n, k); one sample, as for `matvec`."""
        return (one_sample(self, "rmatmat").T @ x.conj()).conj()


def one_sample(operator: Any, method: str) -> Any:
    """`operator` itself, which must hold one sample."""
    name = f"{type(operator).__name__}.{method}"
    advice = "Take one with .sample(i), or solve all samples with ensemble.krylov."
    require(operator.n_samples == 1, name, "the operator", "hold one sample", operator.n_samples, advice)
    return operator
