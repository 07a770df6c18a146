"""The operators of `Ensemble`: what happens between ensembles, plain arrays and Python's numbers."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

from ensemble._backend import is_array
from ensemble._check import message, require_one_library
from ensemble._typing import Array, Namespace, Values
from ensemble.scalar._memory import MemoryToken, refill
from ensemble.scalar.divergence.policy import conversion_failure, failure, in_run
from ensemble.scalar.labels import labels_of_numbers, place_of_label, places_among
from ensemble.scalar.plain_arrays import NUMBERS, compared_with, never_equals, plain_array
from ensemble.scalar.pooled import LARGE, pooled
from ensemble.scalar.powers import array_power, in_place_power, power
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = [
    "NUMBERS", "Operators", "is_foreign", "mismatch", "operand",
    "operand_error", "promoted", "weak_beside", "wrapped",
]  # fmt: skip

SEQUENCES = (list, tuple)


X = TypeVar("X", bound="Operators")


def operand(samples: Array, other: Any) -> Any:
    """A plain operand in the form that broadcasts against `samples`, or NotImplemented."""
    kind = type(other)
    if kind in NUMBERS:
        return other
    if kind is np.ndarray and other.dtype.kind not in "biufc":
        seen = f"dtype {other.dtype}"
        raise TypeError(message("Ensemble", "operands", "hold numbers or bools", seen))
    if kind is type(samples):
        return other[..., None]
    if isinstance(other, np.ndarray) and kind is not np.ndarray:
        if is_foreign(other):
            return NotImplemented
        return operand(samples, plain_array(other, "Ensemble", "operands"))
    if not is_array(other):
        return other if isinstance(other, int | float | complex) else NotImplemented
    if isinstance(other, np.generic):
        return operand(samples, np.asarray(other)) if isinstance(samples, np.ndarray) else other.item()
    require_one_library("Ensemble", "operands", samples, other)
    return other[..., None]


def is_foreign(value: Any) -> bool:
    """Whether another type may handle the call; CuPy's arrays have returned NotImplemented already."""
    own = getattr(type(value), "__array_ufunc__", None)
    if own is None or own is np.ndarray.__array_ufunc__ or isinstance(value, Operators):
        return False
    return not type(value).__module__.startswith("cupy")


def right_operand(samples: Array, other: Any) -> Any:
    """`operand` on the right of an operator: NumPy's arrays also take lists and tuples of numbers.

    A whole number does not: ``[0] * n`` repeats the list.
    """
    right = operand(samples, other)
    if right is not NotImplemented or not isinstance(other, list | tuple) or type(samples) is not np.ndarray:
        return right
    return operand(samples, np.asarray(other)) if samples.ndim > 1 or samples.dtype.kind in "fc" else right


def promoted(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands, promoted as PyTorch does: a value without axes raises no dtype of its own kind of numbers.

    Its samples have an axis, so that PyTorch itself would take them for an array.
    """
    kinds = type(a).__module__.partition(".")[0], type(b).__module__.partition(".")[0]
    if kinds != ("torch", "torch") or (a.ndim == 1) == (b.ndim == 1):
        return a, b
    import torch

    if a.ndim == 1:
        return a.to(torch.result_type(b, a[0])), b
    return a, b.to(torch.result_type(a, b[0]))


def mismatch(*operands: Any) -> ValueError | None:
    """The error to raise where operands hold different numbers of samples."""
    counts = [x.samples.shape[-1] for x in operands if isinstance(x, Operators)]
    if len(set(counts) - {1}) < 2:
        return None
    seen = " and ".join(str(n) for n in counts)
    return ValueError(message("Ensemble", "operands", "have one number of samples, or be shared", f"{seen} samples"))


def operand_error(error: Exception, *operands: Any) -> Exception:
    """Return what is wrong with operands of which an operation failed, in visible shapes; else the error itself."""
    return mismatch(*operands) or shape_error(*operands) or error


def shape_error(*operands: Any) -> ValueError | None:
    """The error to raise where the visible shapes of operands do not broadcast."""
    arrays = [np.asarray(x) if isinstance(x, list | tuple) else x for x in operands]
    arrays = [x for x in arrays if isinstance(x, Operators) or is_array(x)]
    try:
        np.broadcast_shapes(*(tuple(x.shape) for x in arrays))
        return None
    except ValueError:
        seen = " and ".join(str(tuple(x.shape)) for x in arrays)
        counts = {x.samples.shape[-1:] for x in arrays if isinstance(x, Operators)}
        per_sample = any(x.shape[-1:] in counts for x in arrays if not isinstance(x, Operators))
        advice = "Ensemble(array) takes an array whose last axis counts samples." if per_sample else ""
        return ValueError(message("Ensemble", "operands", "have visible shapes that broadcast", seen, advice))


def _result(x: X, samples: Array, sample_set: SampleSet | None) -> X:
    y = _blank(type(x))
    y.samples = samples
    y.sample_set = sample_set
    y._memory_token = None
    return y


def wrapped(kind: type[X], samples: Array, sample_set: SampleSet | None) -> X:
    """An ensemble of `kind` around `samples` that are known to be valid."""
    y = _blank(kind)
    y.samples = samples
    y.sample_set = sample_set
    y._memory_token = None
    return y


def weak_beside(samples: Any, *dtypes: Any) -> Any:
    """Floats of Python in the type that NumPy gives them beside arrays of `dtypes`: float32 stays float32."""
    kinds = [dtype for dtype in dtypes if isinstance(dtype, np.dtype)]
    found = np.result_type(*kinds, 0.0) if kinds else samples.dtype
    return samples.astype(np.empty(0, found).real.dtype, copy=False) if found.kind in "fc" else samples


def refuse_foreign_equality(samples: Array, other: Any) -> None:
    """Raise in code that runs as if for one sample, where ``x == other`` would be False for want of a rule.

    One sample may equal a `Fraction`, a `Decimal`, a list; it never equals None, a text or a bare object.
    """
    kind = type(other)
    of_python = kind.__module__.partition(".")[0] in sys.stdlib_module_names
    never_equal = samples.ndim == 1 and never_equals(other)
    if of_python and not never_equal and kind.__eq__ is not object.__eq__ and in_run():  # type: ignore[comparison-overlap]
        raise failure(TypeError(message("Ensemble", "operands of ==", "be numbers or arrays", kind.__name__)))


UFUNCS: dict[Any, Any] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.true_divide,
    operator.lt: np.less, operator.le: np.less_equal, operator.gt: np.greater, operator.ge: np.greater_equal,
    operator.eq: np.equal, operator.ne: np.not_equal, operator.neg: np.negative, operator.abs: np.absolute,
}  # fmt: skip
"""The function of NumPy behind an operator."""


def _binary(operation: Callable[[Any, Any], Any], reflected: bool = False) -> Callable[[X, Values], X]:
    compares, multiplies = operation in (operator.eq, operator.ne), operation is operator.mul
    ufunc = UFUNCS.get(operation)

    def method(self: X, other: Values) -> X:
        sample_set, left = self.sample_set, self.samples
        if isinstance(other, Operators):
            right = weak_beside(other.samples, left.dtype) if other._is_weak else other.samples
            if type(right) is not type(left):
                require_one_library("Ensemble", "operands", left, right)
            if other.sample_set is not sample_set:
                sample_set = common_set(sample_set, other.sample_set)
            if compares:
                right = places_among(self, other) if labels_of_numbers(self) is not None else right
        elif type(other) in NUMBERS:
            right = other
        else:
            place = place_of_label(self, other) if compares and isinstance(other, str) else None
            right = right_operand(left, other) if place is None else place
            if right is NotImplemented:
                if compares:
                    if type(left) is np.ndarray and left.ndim > 1 and never_equals(other):
                        return _result(self, np.full_like(left, operation is operator.ne, bool), sample_set)
                    if (right := compared_with(left, other)) is not None:
                        return method(self, right)
                    refuse_foreign_equality(left, other)
                elif hasattr(other, "tocsr"):
                    return PROTOCOLS.beside_sparse(operation, self, other, reflected)
                return NotImplemented
            if multiplies and isinstance(other, SEQUENCES) and left.ndim == 1 and in_run():
                raise failure(TypeError("a list times a number"))  # which one sample of a float refuses
        if type(left) is not np.ndarray:
            left, right = promoted(left, right)
        try:
            if ufunc is not None and type(left) is np.ndarray and left.size >= LARGE:
                samples = pooled(ufunc, right, left) if reflected else pooled(ufunc, left, right)
                if samples is not None:
                    return _result(self, samples, sample_set)
            if operation is power and type(other) is np.ndarray:  # one without axes makes an array of the scalar
                samples = array_power(right, left) if reflected else array_power(left, right)
            else:
                samples = operation(right, left) if reflected else operation(left, right)
        except Exception as error:
            raise failure(operand_error(error, self, other)) from None
        return _result(self, samples, sample_set)

    return method


def _equality(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`_binary`, of a type that `object` allows for ``==``."""
    return _binary(operation)


def _in_place(operation: Callable[[Any, Any], Any], plain: Callable[[Any, Any], Any]) -> Callable[[X, Values], X]:
    def method(self: X, other: Values) -> X:
        left = self.samples
        if left.ndim == 1 and self.is_value:
            return plain(self, other)  # a scalar of NumPy: the name gets another value, the value does not change
        sample_set = self.sample_set
        if isinstance(other, Operators):
            if other.sample_set is not sample_set:
                sample_set = common_set(sample_set, other.sample_set)
            right = weak_beside(other.samples, left.dtype) if other._is_weak else other.samples
            if type(right) is not type(left):
                require_one_library("Ensemble", "operands", left, right)
            if left.shape[-1] == 1 and right.shape[-1] > 1:
                self._widen(right.shape[-1])
        else:
            right = right_operand(left, other)
            if right is NotImplemented:
                return NotImplemented
        if type(left) is not np.ndarray:
            _, right = promoted(self.samples, right)
        try:
            self.samples = operation(self.samples, right)
        except Exception as error:
            raise failure(operand_error(error, self, other)) from None
        self.sample_set = sample_set
        if self._memory_token is not None:
            refill(self._memory_token)
        return self

    return method


def _unary(operation: Callable[[Any], Any]) -> Callable[[X], X]:
    ufunc = UFUNCS.get(operation)

    def method(self: X) -> X:
        left = self.samples
        if ufunc is not None and type(left) is np.ndarray and left.size >= LARGE:
            samples = pooled(ufunc, left)
            if samples is not None:
                return _result(self, samples, self.sample_set)
        return _result(self, operation(self.samples), self.sample_set)

    return method


class Operators:
    """Base of `Ensemble`: its three fields and every operator."""

    __slots__ = ("__weakref__", "_labels", "_memory_token", "sample_set", "samples")

    samples: Array
    sample_set: SampleSet | None
    _memory_token: MemoryToken | None
    _labels: tuple[Any, ...]
    _is_weak = False
    """Whether the values are floats of Python, which take the type of what they are combined with."""

    @property
    def is_value(self) -> bool:
        """Whether it stands for a scalar of NumPy, which never changes; arrays without axes have a memory token."""
        return self._memory_token is None and type(self.samples) is np.ndarray and self.samples.ndim == 1

    def _widen(self, n_samples: int) -> None:
        raise NotImplementedError

    def _base(self) -> Namespace:
        raise NotImplementedError

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        raise NotImplementedError

    __add__, __radd__ = _binary(operator.add), _binary(operator.add, reflected=True)
    __iadd__ = _in_place(operator.iadd, __add__)
    __sub__, __rsub__ = _binary(operator.sub), _binary(operator.sub, reflected=True)
    __isub__ = _in_place(operator.isub, __sub__)
    __mul__, __rmul__ = _binary(operator.mul), _binary(operator.mul, reflected=True)
    __imul__ = _in_place(operator.imul, __mul__)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _binary(operator.truediv, reflected=True)
    __itruediv__ = _in_place(operator.itruediv, __truediv__)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _binary(operator.floordiv, reflected=True)
    __ifloordiv__ = _in_place(operator.ifloordiv, __floordiv__)
    __mod__, __rmod__ = _binary(operator.mod), _binary(operator.mod, reflected=True)
    __imod__ = _in_place(operator.imod, __mod__)
    __pow__, __rpow__ = _binary(power), _binary(power, reflected=True)
    __ipow__ = _in_place(in_place_power, __pow__)
    __and__, __rand__ = _binary(operator.and_), _binary(operator.and_, reflected=True)
    __iand__ = _in_place(operator.iand, __and__)
    __or__, __ror__ = _binary(operator.or_), _binary(operator.or_, reflected=True)
    __ior__ = _in_place(operator.ior, __or__)
    __xor__, __rxor__ = _binary(operator.xor), _binary(operator.xor, reflected=True)
    __ixor__ = _in_place(operator.ixor, __xor__)
    __lshift__, __rlshift__ = _binary(operator.lshift), _binary(operator.lshift, reflected=True)
    __ilshift__ = _in_place(operator.ilshift, __lshift__)
    __rshift__, __rrshift__ = _binary(operator.rshift), _binary(operator.rshift, reflected=True)
    __irshift__ = _in_place(operator.irshift, __rshift__)

    __lt__ = _binary(operator.lt)
    __le__ = _binary(operator.le)
    __gt__ = _binary(operator.gt)
    __ge__ = _binary(operator.ge)
    __eq__ = _equality(operator.eq)
    __ne__ = _equality(operator.ne)
    __neg__ = _unary(operator.neg)
    __pos__ = _unary(operator.pos)
    __abs__ = _unary(operator.abs)
    __invert__ = _unary(operator.invert)

    def __hash__(self) -> int:
        # Not by value, even where all samples agree: a table that outlives a run must not hold an ensemble as key.
        text = message("hash", "x", "be one plain value", "an unhashable type, Ensemble", "Use x.sample(i)[()].")
        raise conversion_failure(TypeError(text), 1)

    def __divmod__(self, other: Values) -> Any:
        quotient = self.__floordiv__(other)
        return quotient if quotient is NotImplemented else (quotient, self % other)

    def __rdivmod__(self, other: Values) -> Any:
        quotient = self.__rfloordiv__(other)
        return quotient if quotient is NotImplemented else (quotient, self.__rmod__(other))

    def __matmul__(self, other: Values) -> Self:
        if hasattr(other, "tocsr"):
            return PROTOCOLS.sparse_product(other, self, transposed=True)
        other = self._factor(other)
        return other if other is NotImplemented else self.__array_namespace__().matmul(self, other)

    def __rmatmul__(self, other: Values) -> Self:
        if hasattr(other, "tocsr"):
            return PROTOCOLS.sparse_product(other, self)
        other = self._factor(other)
        return other if other is NotImplemented else self.__array_namespace__().matmul(other, self)

    def __imatmul__(self, other: Values) -> Self:
        product: Any = self @ other
        shape = tuple(self.samples.shape[:-1])
        if product.shape != shape or len(getattr(other, "shape", shape)) < 2:  # NumPy takes no vector here
            seen = f"a product of shape {product.shape} for shape {shape}"
            raise ValueError(message("Ensemble", "A in x @= A", "be a matrix that keeps the shape of x", seen))
        if type(self.samples) is np.ndarray and not np.can_cast(product.dtype, self.samples.dtype, "same_kind"):
            seen = f"{product.dtype} for {self.samples.dtype}"
            raise TypeError(message("Ensemble", "the product in x @= A", "be of the kind of x", seen))
        self[...] = product  # type: ignore[index]
        return self

    def _factor(self, other: Any) -> Any:
        if isinstance(other, Operators):
            return other
        plain = right_operand(self.samples, other)
        if plain is NotImplemented or not is_array(plain):
            return NotImplemented
        return _result(self, plain, None)


_blank: Callable[[type[X]], X] = object.__new__
