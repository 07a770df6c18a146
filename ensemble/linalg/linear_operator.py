"""`LinearOperator`: what solvers use of a matrix or a preconditioner, with defaults for all but the product."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ensemble._check import kind_of, message, require, sample_number
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.row_sums import SERIAL, Space
from ensemble._typing import Array, DType, Vectors
from ensemble.scalar import Ensemble

if TYPE_CHECKING:
    from ensemble.linalg.graph import Reordering
    from ensemble.scalar.sample_set import SampleSet

BARE = ("apply", "apply_dot", "apply_transpose", "add_product", "residual", "restricted_residual")
"""Methods on bare arrays, by which an Ensemble is refused: some would index it, others add its samples to shapes."""


def on_bare_arrays(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method` of an operator, which refuses an Ensemble in the place of any argument and names that."""
    names = method.__code__.co_varnames[: method.__code__.co_argcount]

    def refused(operator: Any, name: str, value: Any) -> TypeError:
        advice = "The product of Ensembles is A @ x; their bare arrays are x.samples."
        function = f"{type(operator).__name__}.{method.__name__}"
        return TypeError(message(function, name, "be a bare array of shape (n, n_samples)", kind_of(value), advice))

    @functools.wraps(method)
    def of_two(self: Any, x: Any, out: Any = None) -> Any:  # what loops call: it takes half the time of the other
        if isinstance(x, Ensemble) or isinstance(out, Ensemble):
            raise refused(self, *(("x", x) if isinstance(x, Ensemble) else ("out", out)))
        return method(self, x, out)

    @functools.wraps(method)
    def of_any(self: Any, *given: Any, **named: Any) -> Any:
        for name, value in (*zip(names[1:], given, strict=False), *named.items()):
            if isinstance(value, Ensemble):
                raise refused(self, name, value)
        return method(self, *given, **named)

    return of_two if names == ("self", "x", "out") else of_any


class LinearOperator:
    """A matrix or preconditioner for `n_samples` samples, or one that all samples share (``n_samples == 1``).

    A subclass defines `shape`, `apply` and ``@``, and replaces defaults by faster methods: a product and an
    inner product in one pass, say. Arrays of the methods are bare, of shape (n, n_samples). Objects of other classes
    become a LinearOperator by `ensemble.linalg.adapt.as_operator`.

    Attributes
    ----------
    shape : tuple of int
    n_samples : int
    batched : bool
        Whether values were given with an axis of samples: products with plain arrays are Ensembles then, of one sample
        too. Where it is False, `n_samples` of 1 means shared by all samples, and such products are plain.
    block_size : int
        Components of an unknown: vectors may have an axis of them, shape (n / block_size, block_size).
    dtype : data type or None
        Type of the values; None where it is not known.
    sample_set : SampleSet or None
        That of the Ensemble that the values come from.
    reference_array : array or None
        An array of the library and on the device in which products are computed.
    queues_kernels : bool
        Whether `precondition` on a device does nothing but queue kernels, so that a CUDA graph may record it.
    repeats_on_host : bool
        Whether `precondition_dot` on NumPy arrays does nothing but call compiled loops, so that a program of
        `ensemble._compile.programs` may repeat it.
    has_partial_dots : bool
        Whether there is `apply_dot_partials`.
    takes_norms : bool
        Whether `precondition` and `precondition_dot` take the norms of `r`, too, and then do not search its largest
        entries.
    takes_samples : bool
        Whether there is `take_samples`, so that a solver may take finished samples out.
    has_fused_steps : bool
        Whether a smoother's steps are methods that take an inverse diagonal which samples share: `chebyshev_first`,
        `chebyshev_step` and `chebyshev_last`. `arrays` are then no rows of entries.
    stores_upper : bool
        Whether values above the diagonal stand for those below it, too.
    space : Space
        How sums over rows of its vectors are taken: over the rows of this process, or over those of all processes.
    local_shape : tuple of int
        Rows and columns that this process holds of vectors of `shape`.
    """

    shape: Any
    n_samples: Any = 1
    batched: bool = False
    block_size: Any = 1
    dtype: Any = None
    sample_set: SampleSet | None = None
    reference_array: Any = None
    queues_kernels = False
    repeats_on_host: Any = False
    has_partial_dots = False
    takes_norms: Any = False
    takes_samples = True
    has_fused_steps = False
    stores_upper = False
    space: Space = SERIAL

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for name in BARE:
            if name in vars(cls):
                setattr(cls, name, on_bare_arrays(vars(cls)[name]))

    @property
    def local_shape(self) -> tuple[int, int]:
        """Rows and columns that this process holds of vectors of `shape`."""
        n_rows, n_columns = self.shape
        return n_rows, n_columns

    # --- products
    @on_bare_arrays
    def apply(self, x: Vectors, out: Vectors | None = None) -> Array:
        """The product with `x`, in `out` or a new array."""
        raise NotImplementedError

    def whole(self, x: Array) -> Array:
        """`x` with what products read of it: behind it the rows that other processes own."""
        return x

    def arriving(self, x: Array) -> AbstractContextManager[Array]:
        """A context in which one kernel reads `x` as by `whole`, while rows of other processes may still travel."""
        return nullcontext(x)

    @on_bare_arrays
    def apply_dot(self, x: Vectors, out: Vectors | None = None) -> tuple[Array, Array]:
        """The product with `x`, and the inner products of `x` with it, one per sample."""
        y = self.apply(x, out)
        return y, dot(x, y, None)

    def apply_dot_partials(self, x: Vectors, out: Vectors | None = None) -> tuple[Array, Array]:
        """`apply_dot` on a device, its inner products left as partial sums."""
        raise NotImplementedError

    @on_bare_arrays
    def residual(self, x: Vectors, b: Vectors, out: Vectors | None = None) -> Array:
        """b - A x, in `out` or a new array."""
        y = self.apply(x, out)
        y[...] = b - y
        return y

    def replay_parts(self) -> tuple[Any, ...] | None:
        """The arrays and objects that decide which kernels products queue, on which memory; None: not known.

        While they are the same, a recorded product may be replayed; numbers in the arrays may change.
        """
        return None

    # --- as a preconditioner
    def workspace(self, n_samples: int) -> Any:
        """What `precondition` needs beside its vectors; a solver makes it once. None for nothing."""
        return None

    def precondition(self, r: Vectors, out: Vectors, workspace: Any) -> Array:
        """The product with `r` in `out`."""
        return self.apply(r, out)

    def precondition_dot(self, r: Vectors, out: Vectors, workspace: Any) -> Array:
        """`precondition`, and the inner products of `r` with the result, one per sample: returns these."""
        return dot(r, self.precondition(r, out, workspace), None)

    @property
    def matrix_dtype(self) -> Any:
        """Type of the matrix that a preconditioner was built from."""
        return self.dtype

    # --- other operators
    def take_samples(self, samples: Any) -> Any:
        """The operator of the samples named."""
        raise NotImplementedError

    def astype(self, dtype: DType) -> Any:
        """The operator for vectors of type `dtype`: this one, if it takes any type."""
        return self

    def in_own_order(self, A: Any) -> tuple[Any, Any, Reordering] | None:
        """`A` and this preconditioner in the order of rows that this one was built in; None: as they are."""
        return None

    def sample(self, i: int) -> Any:
        """Sample `i` alone, no batch."""
        made = self.take_samples(np.array([sample_number(i, self.n_samples, type(self).__name__)]))
        if getattr(made, "batched", False):
            made = copy.copy(made)
            made.batched = False
        return made

    # --- what `scipy.sparse.linalg.aslinearoperator` looks for
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


class MatrixOperator(LinearOperator):
    """A `LinearOperator` with entries of one type: it has a transpose, and `astype` converts it."""

    T: Any

    def rmatvec(self, x: Any) -> Any:
        """The product of the adjoint with a vector, shape (n,) or (n, 1); one sample, as for `matvec`."""
        return (one_sample(self, "rmatvec").T @ x.conj()).conj()

    def rmatmat(self, x: Any) -> Any:
        """The product of the adjoint with the columns of `x`, shape (n, k); one sample, as for `matvec`."""
        return (one_sample(self, "rmatmat").T @ x.conj()).conj()


_Operator = TypeVar("_Operator", bound=LinearOperator)


def inherited(made: _Operator, *sources: Any) -> _Operator:
    """`made`, batched where one of the operators that it was worked out from is."""
    made.batched = any(getattr(source, "batched", False) for source in sources)
    return made


def one_sample(operator: Any, method: str) -> Any:
    """`operator` itself, which must hold one sample."""
    name = f"{type(operator).__name__}.{method}"
    advice = "Take one with .sample(i), or solve all samples with ensemble.krylov."
    require(operator.n_samples == 1, name, "the operator", "hold one sample", operator.n_samples, advice)
    return operator
