"""What stands in for a matrix: identity and diagonal; and how operands become bare arrays and back."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace, moved
from ensemble._check import require
from ensemble.scalar import Ensemble


def samples_of(x: Any) -> Any:
    """The bare array of shape ``(*shape, n_samples)`` behind `x`; a plain array is one shared sample."""
    return x.samples if isinstance(x, Ensemble) else x[..., None]


def wrap_like(x: Any, samples: Any, n_samples: int) -> Any:
    """`samples` as what the operands call for: plain if `x` is plain and the operator is shared, else an Ensemble."""
    if isinstance(x, Ensemble):
        return Ensemble(samples, sample_set=x.sample_set)
    return samples[..., 0] if n_samples == 1 else Ensemble(samples)


class Identity:
    """The operator that changes nothing: the preconditioner of plain CG."""

    shape = (0, 0)
    queues_kernels = True

    def apply(self, x: Any, out: Any = None) -> Any:
        """`x` itself, or copied into `out`."""
        if out is None:
            return x
        out[...] = x
        return out

    def take_samples(self, samples: Any) -> Identity:
        """The same for every choice of samples."""
        return self

    def __matmul__(self, x: Any) -> Any:
        return x


class Diagonal:
    """A diagonal matrix, for Jacobi preconditioning: ``Diagonal(1 / A.diagonal())``.

    Parameters
    ----------
    entries : Ensemble or array, shape (n,)

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> A = poisson((3,), n_samples=2)
    >>> M = Diagonal(1 / A.diagonal())
    >>> (M @ A.diagonal()).samples
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """

    __array_ufunc__ = None
    queues_kernels = True

    def __init__(self, entries: Any) -> None:
        self.entries = samples_of(entries)
        require(self.entries.ndim == 2, "Diagonal", "entries", "be a vector", f"shape {tuple(self.entries.shape[:-1])}")
        self.shape = (self.entries.shape[0],) * 2
        self.n_samples = self.entries.shape[1]

    @property
    def home(self) -> Any:
        """An array that lives where this matrix does."""
        return self.entries

    def apply(self, x: Any, out: Any = None) -> Any:
        """The product on bare arrays of shape (n, n_samples)."""
        return array_namespace(x).multiply(self.entries, x, **({} if out is None else {"out": out}))

    def take_samples(self, samples: Any) -> Diagonal:
        """The diagonal of the samples named."""
        if self.n_samples == 1:
            return self
        return Diagonal(
            Ensemble(array_namespace(self.entries).take(self.entries, moved(samples, self.entries), axis=1))
        )

    def __matmul__(self, x: Any) -> Any:
        return wrap_like(x, self.apply(samples_of(x)), self.n_samples)
