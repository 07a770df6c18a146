"""What an integrand is called with: trial and test function as symbols, vectors, and the operators on them.

A symbol is a linear combination of the values and derivatives of a function at a point. The coefficients are numbers or
traced scalars. The product of two symbols has a coefficient for each pair. An integrand that is not linear in a
function raises an error where it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import kind_of
from ensemble._compile.trace.tracer import Traced

__all__ = ["Argument", "Polynomial", "Slot", "Vector", "ddot", "div", "dot", "grad", "mul", "sym_grad", "transpose"]


class Slot(NamedTuple):
    """The value (`derivative` 0) or the derivative along axis `derivative` - 1 of one component of a function."""

    component: int
    derivative: int


Key = tuple[Slot | None, Slot | None]
"""The slots of the test and of the trial function in a product; None where a function does not occur."""


NO_COMPONENTS = (
    "form: a scalar has no components; got an index, or a function of vectors of it. "
    'Vector functions are made by trial="vector" and test="vector", products of scalars by *.'
)


class Polynomial:
    """A sum of coefficients times slots of the test function, of the trial function, or of both."""

    traced_operand = True
    """Operators of traced scalars leave this operand to the methods below."""
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, terms: dict[Key, Any]) -> None:
        self.terms = terms

    def __add__(self, other: Any) -> Any:
        if type(other) in (int, float) and other == 0:  # what `sum` starts from
            return self
        if isinstance(other, Vector):
            return NotImplemented
        terms = dict(self.terms)
        for key, coefficient in _polynomial(other).terms.items():
            terms[key] = terms[key] + coefficient if key in terms else coefficient
        return Polynomial(terms)

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Vector) else self + -_polynomial(other)

    def __neg__(self) -> Polynomial:
        return Polynomial({key: -coefficient for key, coefficient in self.terms.items()})

    def __pos__(self) -> Polynomial:
        return self

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Vector):
            return NotImplemented
        terms: dict[Key, Any] = {}
        for a, x in self.terms.items():
            for b, y in _polynomial(other).terms.items():
                key = (_one(a[0], b[0], "test"), _one(a[1], b[1], "trial"))
                product = _times(x, y)
                terms[key] = terms[key] + product if key in terms else product
        return Polynomial(terms)

    def __truediv__(self, other: Any) -> Polynomial:
        if isinstance(other, Polynomial):
            raise TypeError("form: an integrand must be linear in its functions; got a quotient by one of them.")
        divisor = _factor(other)
        return Polynomial({key: coefficient / divisor for key, coefficient in self.terms.items()})

    def __rtruediv__(self, other: Any) -> Any:
        raise TypeError("form: an integrand must be linear in its functions; got a quotient by one of them.")

    def __pow__(self, other: Any) -> Any:
        raise TypeError("form: an integrand must be linear in its functions; got a power of one of them.")

    def __abs__(self) -> Any:
        raise TypeError("form: an integrand must be linear in its functions; got abs of one of them.")

    def _compared(self, other: Any) -> Any:
        raise TypeError("form: an integrand must be linear in its functions; got a comparison with one of them.")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compared

    def __getitem__(self, place: Any) -> Any:
        raise TypeError(NO_COMPONENTS)

    def __len__(self) -> int:
        raise TypeError(NO_COMPONENTS)

    def __iter__(self) -> Any:
        raise TypeError(NO_COMPONENTS)

    def __bool__(self) -> bool:
        raise TypeError("form: a function must not be a truth value (if, while, and, or); use xp.where on fields.")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"form: the function has no {name!r}. Use grad(u), div(u), dot, mul, ddot, or u[i] for a component."
        )

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Any:
        return _polynomial(other) + -self


def _polynomial(value: Any) -> Polynomial:
    return value if isinstance(value, Polynomial) else Polynomial({(None, None): _factor(value)})


def _factor(value: Any) -> Any:
    """A coefficient in float64: sums and products of bools, small integers and float32 have other values."""
    if type(value) is Traced:
        return value if value.dtype == np.float64 else value * 1.0
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        return float(value)
    return value


def _one(a: Slot | None, b: Slot | None, which: str) -> Slot | None:
    if a is not None and b is not None:
        raise TypeError(f"form: an integrand must be linear in the {which} function; got a product with itself.")
    return b if a is None else a


def _times(x: Any, y: Any) -> Any:
    """The product, without a multiplication by one."""
    if type(x) in (int, float) and x == 1:
        return y
    return x if type(y) in (int, float) and y == 1 else x * y


class Vector(tuple[Any, ...]):
    """A vector, or a tensor as a vector of its rows: sums, differences and products with scalars, entry by entry."""

    traced_operand = True
    __slots__ = ()
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        if type(other) is int and other == 0:  # what `sum` starts from
            return self
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __neg__(self) -> Vector:
        return Vector(-entry for entry in self)

    def __pos__(self) -> Vector:
        return self

    def __mul__(self, factor: Any) -> Any:
        if isinstance(vector(factor), tuple):
            raise TypeError("form: two vectors must be multiplied by dot, mul or ddot; got *.")
        return Vector(entry * factor for entry in self)

    def __truediv__(self, divisor: Any) -> Vector:
        return Vector(entry / divisor for entry in self)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int) and not -len(self) <= place < len(self):
            raise IndexError(f"form: a component must be from 0 to {len(self) - 1}; got {place}.")
        found = super().__getitem__(place)
        return Vector(found) if isinstance(place, slice) else found

    def __matmul__(self, other: Any) -> Any:
        raise TypeError("form: @ is not taken; write dot(a, b) of vectors, mul(A, b) of a tensor and a vector.")

    def _compared(self, other: Any) -> Any:
        raise TypeError("form: a comparison must be of numbers; got a vector. Compare its components.")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compared
    __radd__, __rmul__, __rmatmul__ = __add__, __mul__, __matmul__

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> Vector:
        other = vector(other)
        if not isinstance(other, tuple) or len(other) != len(self):
            seen = f"one of {len(other)}" if isinstance(other, tuple) else kind_of(other)
            raise TypeError(f"form: a vector of {len(self)} entries must be added to its like; got {seen}.")
        return Vector(operation(a, b) for a, b in zip(self, other, strict=True))

    @property
    def T(self) -> Vector:
        """The transpose of a tensor."""
        return transpose(self)


def vector(value: Any) -> Any:
    """Nested tuples, lists and arrays as vectors; anything else as it is."""
    if isinstance(value, Vector):
        return value
    has_entries = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return Vector(vector(entry) for entry in value) if has_entries else value


def _checked(function: str, value: Any, wanted: str, advice: str = "") -> Vector:
    """A value that is to be a "vector" or a "tensor"."""
    found: Vector = vector(value)
    first: Any = found[0] if isinstance(found, tuple) else found
    if isinstance(first, Polynomial) and (first is found or wanted == "tensor"):
        raise TypeError(NO_COMPONENTS)
    depth = 0
    while isinstance(first, tuple):
        first, depth = first[0], depth + 1
    kinds = ("vector", "tensor", "gradient of a tensor")
    kind = kinds[min(depth, 2)] if isinstance(found, tuple) else "number"
    if kind != wanted:
        raise TypeError(f"form: {function} must be of a {wanted}; got a {kind}.{advice and ' '}{advice}")
    return found


class Argument(Polynomial):
    """A scalar trial or test function; `value` alone where it enters a sum or product."""

    def __init__(self, place: int, component: int, dim: int) -> None:
        super().__init__({self._key(place, Slot(component, 0)): 1.0})
        self.gradient = Vector(Polynomial({self._key(place, Slot(component, d + 1)): 1.0}) for d in range(dim))

    @staticmethod
    def _key(place: int, slot: Slot) -> Key:
        return (slot, None) if place == 0 else (None, slot)


def grad(u: Any) -> Any:
    """Return the gradient of a function or of a nodal field: entry d is the derivative along axis d.

    Of a vector, row i is the gradient of component i.
    """
    if isinstance(u, tuple | list):
        return Vector(grad(component) for component in u)
    if isinstance(u, Argument):
        return u.gradient
    gradients = getattr(u._tracer, "gradients", {}) if type(u) is Traced else {}
    if type(u) is Traced and u._node in gradients:
        return Vector(Traced(u._tracer, k) for k in gradients[u._node])
    raise TypeError("form: grad must be of a trial or test function, or of a field given at nodes; got something else.")


def div(u: Any) -> Any:
    """Return the divergence of a vector function or nodal vector field; of a nodal tensor field, that of each row."""
    u = vector(u)
    if isinstance(u, tuple) and isinstance(u[0], tuple):
        return Vector(div(row) for row in u)
    rows = grad(_checked("div", u, "vector"))
    if isinstance(rows[0], tuple) and len(rows) != len(rows[0]):
        raise TypeError(f"form: div must be of a vector of {len(rows[0])} components; got one of {len(rows)}.")
    return sum((rows[d][d] for d in range(1, len(rows))), rows[0][0])


def dot(a: Any, b: Any) -> Any:
    """Return the scalar product of two vectors."""
    advice = "Write mul(A, b) of a tensor and a vector, ddot(A, B) of two tensors."
    a, b = _checked("dot", a, "vector", advice), _checked("dot", b, "vector", advice)
    if len(a) != len(b):
        raise ValueError(f"form: dot must have vectors of one length; got {len(a)} and {len(b)}.")
    return sum((a[i] * b[i] for i in range(1, len(a))), a[0] * b[0])


def mul(tensor: Any, x: Any) -> Vector:
    """Return the product of a tensor with a vector, or with a tensor."""
    rows, x = _checked("mul", tensor, "tensor", "Write dot(a, b) of two vectors."), vector(x)
    if isinstance(x, tuple) and isinstance(x[0], tuple):
        return transpose(Vector(mul(rows, column) for column in transpose(x)))
    return Vector(dot(row, x) for row in rows)


def ddot(a: Any, b: Any) -> Any:
    """Return the sum of the products of the entries of two tensors."""
    a, b = _checked("ddot", a, "tensor"), _checked("ddot", b, "tensor")
    if len(a) != len(b):
        raise ValueError(f"form: ddot must have tensors of one shape; got {len(a)} and {len(b)} rows.")
    rows = [dot(row, other) for row, other in zip(a, b, strict=True)]
    return sum(rows[1:], rows[0])


def transpose(tensor: Any) -> Vector:
    """Return the transpose of a tensor."""
    return Vector(Vector(column) for column in zip(*_checked("transpose", tensor, "tensor"), strict=True))


def sym_grad(u: Any) -> Any:
    """Return the symmetric part of the gradient of a vector function."""
    g = grad(_checked("sym_grad", u, "vector"))
    return (g + transpose(g)) * 0.5
