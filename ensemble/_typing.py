"""The few types that signatures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

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


class Operator(Protocol):
    """What solvers take for a matrix: a matrix of this library or of SciPy, or an object that multiplies."""

    @property
    def shape(self) -> Any:
        """Rows and columns."""

    def __matmul__(self, x: Any, /) -> Any: ...
