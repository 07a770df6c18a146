"""The few types that signatures share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from numpy.typing import DTypeLike

Array = Any
"""An array of any Array API library, where its own methods are used: their types are not known."""

Namespace = Any
"""A module or object that offers the Array API."""


class PlainArray(Protocol):
    """What public functions return where they return an array or a scalar of the samples' library.

    Arrays and scalars of NumPy, CuPy, PyTorch and JAX are such objects. A function of NumPy takes one where it is in
    the memory of the host.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""

    @property
    def ndim(self) -> int:
        """The number of axes."""

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""

    def __array__(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __float__(self) -> float: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __abs__(self) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...


class Vectors(PlainArray, Protocol):
    """Vectors of all samples, shape (n, n_samples), of NumPy or CuPy like the matrix that they meet."""

    def astype(self, dtype: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...


class ArrayLike(Protocol):
    """An array of any library, or an Ensemble: what has extents and a type of numbers."""

    @property
    def shape(self) -> Any:
        """The extents."""

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""


Values = ArrayLike | complex | Sequence[Any]
"""What functions take for numbers: a number, an array, an Ensemble, or a list of them."""

Ids = ArrayLike | Sequence[int] | range
"""Numbers of samples: a vector of integers."""

DType = DTypeLike
"""A type of numbers of NumPy or CuPy: ``np.float32``, ``"float32"``, ``A.dtype``."""


class Communicator(Protocol):
    """A communicator of mpi4py, `distributed.serial()`, or what `distributed.devices` makes of one."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def size(self) -> int:
        """How many processes there are."""


class Submits(Protocol):
    """An executor: of `concurrent.futures`, Dask, or one alike."""

    @property
    def submit(self) -> Callable[..., Any]:
        """Begin a call, and return its future."""


class TakesPart(Protocol):
    """An executor that every process of a parallel program calls: `distributed.groups`, or jobs of a scheduler."""

    @property
    def take_part(self) -> Callable[..., Any]:
        """Run this process's part of a study."""


Executor = int | Submits | TakesPart | Callable[[], Submits]
"""What runs a study's groups: a number of processes, an executor, or a function that makes one."""


class Operator(Protocol):
    """What solvers take for a matrix: a matrix of this library or of SciPy, or an object that multiplies."""

    @property
    def shape(self) -> Any:
        """Rows and columns."""

    def __matmul__(self, x: Any, /) -> Any: ...
