"""Arrays of traced numbers: operators broadcast and index as NumPy's do, and record a node for each entry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ensemble._compile.trace.tracer import Tracer, caller

__all__ = ["TracedArray", "elementwise", "items_of", "object_array", "wrapped"]


def object_array(values: Iterable[Any], shape: tuple[int, ...]) -> np.ndarray:
    """An array of objects, which NumPy must not look into."""
    values = list(values)
    items = np.empty(len(values), object)
    for k, value in enumerate(values):
        items[k] = value
    return items.reshape(shape)


def items_of(value: Any) -> np.ndarray:
    """The entries of a traced array, a plain array, nested lists or a number, as an array of objects."""
    if isinstance(value, TracedArray):
        return value.items
    if isinstance(value, np.ndarray):
        return value if value.dtype == object else object_array(list(value.reshape(-1)), value.shape)
    if isinstance(value, list | tuple):
        rows = [items_of(each) for each in value]
        shapes = {row.shape for row in rows}
        if len(shapes) > 1:
            raise ValueError(f"xp.asarray: the parts of a list must have one shape; got {sorted(shapes)}.")
        flat = [entry for row in rows for entry in row.reshape(-1)]
        return object_array(flat, (len(rows), *(shapes.pop() if shapes else ())))
    if hasattr(value, "toarray"):  # a sparse matrix of SciPy
        return items_of(np.asarray(value.toarray()))
    return object_array([value], ())


def _binary(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: TracedArray, other: Any) -> Any:
        if isinstance(other, list | tuple):
            other = TracedArray(self.tracer, items_of(other))
        return elementwise(self.tracer, name, *((other, self) if reflected else (self, other)))

    return method


def _unary(name: str) -> Callable[[Any], Any]:
    return lambda self: elementwise(self.tracer, name, self)


class TracedArray:
    """An array whose entries are traced or plain numbers."""

    __slots__ = ("items", "tracer")
    __hash__ = None  # type: ignore[assignment]
    traced_operand = True
    """Operators of `Traced` leave the operation to this class."""

    def __init__(self, tracer: Tracer, items: np.ndarray) -> None:
        self.tracer, self.items = tracer, items

    def names(self, name: str) -> Any:
        """The namespace of arrays of the trace."""
        assert self.tracer.arrays is not None
        return self.tracer.arrays(self.tracer, name)

    # -- shapes
    shape = property(lambda self: self.items.shape)
    ndim = property(lambda self: self.items.ndim)
    size = property(lambda self: self.items.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that holds all entries."""
        kinds = {self.tracer.dtype_of(entry) for entry in self.items.reshape(-1)}
        return np.result_type(*kinds) if kinds else np.dtype("float64")

    @property
    def T(self) -> TracedArray:
        """The axes in reversed order."""
        return TracedArray(self.tracer, self.items.T)

    mT = property(lambda self: TracedArray(self.tracer, self.items.swapaxes(-1, -2)))  # noqa: N815

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Any:
        return (wrapped(self.tracer, entry) for entry in self.items)

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self.tracer, self.items[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        there = self.items[key]
        if isinstance(there, np.ndarray):
            self.items[key] = np.broadcast_to(items_of(value), there.shape)
        elif isinstance(value, TracedArray | np.ndarray | list | tuple):
            entries = items_of(value)
            if entries.size != 1:
                raise ValueError(f"setting an entry needs one number; got shape {entries.shape}.")
            self.items[key] = entries.reshape(-1)[0]
        else:
            self.items[key] = value

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return self.names("xp")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """An array of objects, which ``matrix.dot`` of NumPy adds and multiplies."""
        if dtype is not None and np.dtype(dtype) != object:
            advice = "Make arrays that are filled by xp.zeros or xp.zeros_like."
            raise TypeError(
                f"{self.tracer.function}: a traced array must not be turned into numbers; got one{caller()}. {advice}"
            )
        return self.items.copy()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self.names("np").ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return getattr(self.names("np"), function.__name__)(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in METHODS:
            raise AttributeError(f"{self.tracer.function}: a traced array has no .{name}{caller()}. Use xp.")
        return functools.partial(getattr(self.names("xp"), METHODS[name]), self)

    def __repr__(self) -> str:
        return f"<traced array of shape {self.shape}>"

    def __bool__(self) -> bool:
        if self.size == 1:
            return bool(self.items.reshape(-1)[0])
        advice = "Use xp.where(condition, a, b)."
        raise TypeError(
            f"{self.tracer.function}: a traced array must not be a truth value; got one{caller()}. {advice}"
        )

    def __matmul__(self, other: Any) -> Any:
        return self.names("xp").matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self.names("xp").matmul(other, self)

    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("subtract"), _binary("subtract", True)
    __mul__, __rmul__ = _binary("multiply"), _binary("multiply", True)
    __truediv__, __rtruediv__ = _binary("divide"), _binary("divide", True)
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _binary("floor_divide", True)
    __mod__, __rmod__ = _binary("remainder"), _binary("remainder", True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", True)
    __and__, __rand__ = _binary("bitwise_and"), _binary("bitwise_and", True)
    __or__, __ror__ = _binary("bitwise_or"), _binary("bitwise_or", True)
    __xor__, __rxor__ = _binary("bitwise_xor"), _binary("bitwise_xor", True)
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("abs"), _unary("bitwise_invert")

    def _changed(self, name: str, other: Any) -> TracedArray:
        result = elementwise(self.tracer, name, self, other)
        self.items[...] = items_of(result)
        return self

    def __iadd__(self, other: Any) -> TracedArray:
        return self._changed("add", other)

    def __isub__(self, other: Any) -> TracedArray:
        return self._changed("subtract", other)

    def __imul__(self, other: Any) -> TracedArray:
        return self._changed("multiply", other)

    def __itruediv__(self, other: Any) -> TracedArray:
        return self._changed("divide", other)


METHODS = {name: name for name in (
    "sum", "prod", "mean", "max", "min", "dot", "copy", "reshape", "ravel", "transpose", "astype", "cumsum", "clip",
    "take", "repeat", "squeeze", "swapaxes", "item", "round",
)} | {"flatten": "ravel", "conj": "positive"}  # fmt: skip
"""Methods of arrays, and the functions that they are."""


def wrapped(tracer: Tracer, entries: Any) -> Any:
    """Entries as a traced array; one alone is itself."""
    if isinstance(entries, list | tuple):
        return [wrapped(tracer, each) for each in entries]
    if not isinstance(entries, np.ndarray):
        return entries
    return TracedArray(tracer, entries) if entries.ndim else entries[()]


def elementwise(tracer: Tracer, name: str, *operands: Any) -> Any:
    """An operation on arrays that broadcast, entry by entry."""
    arrays = np.broadcast_arrays(*map(items_of, operands))
    flat = [array.reshape(-1) for array in arrays]
    results = [tracer.apply(name, *entries) for entries in zip(*flat, strict=True)]
    return wrapped(tracer, object_array(results, arrays[0].shape))
