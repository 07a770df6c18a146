"""The namespace of traced arrays: functions of NumPy and of the Array API, entry by entry.

Everything that takes a graph of scalars takes what is traced so. Sums and products of matrices add their terms in
order. Entries of a constant matrix that are zero leave no term.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._compile.trace.namespace import NUMPY_NAMES, TracedNamespace
from ensemble._compile.trace.traced_array import TracedArray, elementwise, items_of, object_array, wrapped
from ensemble._compile.trace.tracer import FLOATS, Traced, caller

__all__ = ["ArrayNamespace"]

OUTER = ("add", "subtract", "multiply", "divide", "true_divide", "maximum", "minimum", "hypot")
"""Ufuncs of which ``outer`` can be traced."""

REDUCED = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
"""Ufuncs of which ``reduce`` can be traced, and the functions that it is."""


def is_zero(value: Any) -> bool:
    return not isinstance(value, Traced) and value == 0


class ArrayNamespace(TracedNamespace):
    """The namespace of traced arrays and numbers: functions of NumPy and of the Array API."""

    def _operation(self, name: str) -> Callable[..., Any]:
        scalar, tracer = super()._operation(name), self._tracer

        def function(*operands: Any) -> Any:
            if any(isinstance(each, TracedArray | np.ndarray | list | tuple) for each in operands):
                return elementwise(tracer, name, *operands)
            return scalar(*operands)

        function.__name__ = name
        return function

    def __getattr__(self, name: str) -> Any:
        known = NUMPY_NAMES.get(name, name)
        known = {"cumulative_sum": "cumsum", "permute_dims": "transpose"}.get(known, known)
        if known in MOVING:
            tracer = self._tracer
            function = getattr(np, known)

            def moved(*arguments: Any, **options: Any) -> Any:
                given = [self._whole(each) for each in arguments]
                return wrapped(tracer, function(*given, **options))

            return moved
        if known in CONSTANT:
            return getattr(np, known)
        return super().__getattr__(name)

    def _whole(self, value: Any) -> Any:
        """An argument of a function that moves entries: arrays of objects, also in lists."""
        if isinstance(value, list | tuple) and any(isinstance(each, TracedArray | Traced) for each in value):
            return [items_of(each) for each in value]
        return value.items if isinstance(value, TracedArray) else items_of(value) if type(value) is Traced else value

    def ufunc(self, ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A ufunc of NumPy on traced arrays."""
        name, tracer = ufunc.__name__, self._tracer
        if method == "__call__" and not options:
            return getattr(self, name)(*inputs)
        if method == "outer" and name in OUTER and not options:
            a, b = map(items_of, inputs)
            return getattr(self, name)(self._array(a.reshape(a.shape + (1,) * b.ndim)), self._array(b))
        if method == "reduce" and name in REDUCED and set(options) <= {"axis", "keepdims"}:
            return getattr(self, REDUCED[name])(inputs[0], **({"axis": 0} | options))
        raise tracer.unsupported(f"np.{name}.{method}, or an option of it")

    # -- made
    def _array(self, items: np.ndarray) -> TracedArray:
        return TracedArray(self._tracer, items)

    def asarray(self, x: Any, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> Any:
        """An array of plain numbers as NumPy's; one of traced numbers, also in lists."""
        if type(x) is Traced or isinstance(x, TracedArray):
            x = x if dtype is None else self.astype(x, dtype)
            return self.copy(x) if copy else x
        items = items_of(x)
        if any(type(entry) is Traced for entry in items.reshape(-1)):
            made = self._array(items.copy())
            return made if dtype is None else self.astype(made, dtype)
        plain = x.toarray() if hasattr(x, "toarray") else x
        return np.asarray(plain, dtype=dtype)

    array = asarray

    def _filled(self, shape: Any, value: Any, dtype: Any) -> TracedArray:
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        if dtype is not None and type(value) is not Traced:
            value = np.dtype(dtype).type(value)
        return self._array(object_array([value] * int(np.prod(shape, dtype=np.int64)), shape))

    def zeros(self, shape: Any, dtype: Any = None, **options: Any) -> TracedArray:
        """Return an array of zeros whose entries can be assigned in the trace."""
        return self._filled(shape, 0.0, dtype)

    empty = zeros

    def ones(self, shape: Any, dtype: Any = None, **options: Any) -> TracedArray:
        """Return an array of ones whose entries can be assigned in the trace."""
        return self._filled(shape, 1.0, dtype)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None, **options: Any) -> TracedArray:
        """One value everywhere."""
        return self._filled(shape, fill_value, dtype)

    def full_like(self, x: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Any:
        """One value in the shape and dtype of `x`."""
        if not isinstance(x, TracedArray | np.ndarray | list):
            return super().full_like(x, fill_value, dtype=dtype)
        items = items_of(x)
        one = next((entry for entry in items.reshape(-1) if type(entry) is Traced), None)
        value = fill_value if one is None or dtype is not None else super().full_like(one, fill_value)
        return self._filled(items.shape, value, dtype)

    def zeros_like(self, x: Any, *, dtype: Any = None, **options: Any) -> Any:
        """Zeros in the shape and dtype of `x`."""
        return self.full_like(x, 0, dtype=dtype)

    empty_like = zeros_like

    def ones_like(self, x: Any, *, dtype: Any = None, **options: Any) -> Any:
        """Ones in the shape and dtype of `x`."""
        return self.full_like(x, 1, dtype=dtype)

    def copy(self, x: Any, **options: Any) -> Any:
        """The same entries in another array."""
        return self._array(items_of(x).copy()) if isinstance(x, TracedArray | np.ndarray | list) else x

    def item(self, x: Any) -> Any:
        """The one entry of an array."""
        return items_of(x).item()

    # -- entry by entry
    def astype(self, x: Any, dtype: Any, *, copy: bool = True) -> Any:
        """`x` converted to `dtype`."""
        return self._each(super().astype, x, dtype)

    def _each(self, function: Callable[..., Any], x: Any, *more: Any) -> Any:
        if not isinstance(x, TracedArray | np.ndarray | list | tuple):
            return function(x, *more)
        items = items_of(x)
        made = [function(entry, *more) for entry in items.reshape(-1)]
        return wrapped(self._tracer, object_array(made, items.shape))

    def interp(self, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
        """The value at each `x` of the lines through points that are known."""
        return self._each(super().interp, x, xp, fp, left, right)

    # -- sums and products
    def _reduced(self, x: Any, axis: Any, keepdims: bool, together: Callable[[list[Any]], Any]) -> Any:
        items = items_of(x)
        axes = range(items.ndim) if axis is None else [axis] if isinstance(axis, int | np.integer) else axis
        chosen = sorted({int(k) % items.ndim for k in axes}) if items.ndim else []
        others = [k for k in range(items.ndim) if k not in chosen]
        shape = tuple(items.shape[k] for k in others)
        rows = items.transpose([*others, *chosen]).reshape(*shape, -1)
        made = [together(list(row)) for row in rows.reshape(-1, rows.shape[-1])]
        if keepdims:
            shape = tuple(1 if k in chosen else extent for k, extent in enumerate(items.shape))
        return wrapped(self._tracer, object_array(made, shape))

    def _folded(self, name: str, values: list[Any]) -> Any:
        return functools.reduce(lambda a, b: self._tracer.apply(name, a, b), values)

    def sum(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The sums along axes, terms in order."""
        return self._reduced(x, axis, keepdims, lambda v: self._folded("add", v) if v else 0.0)

    def prod(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The products along axes, factors in order."""
        return self._reduced(x, axis, keepdims, lambda v: self._folded("multiply", v) if v else 1.0)

    def mean(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The means along axes."""
        return self._reduced(
            x, axis, keepdims, lambda v: self._tracer.apply("divide", self._folded("add", v), float(len(v)))
        )

    def max(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The largest values along axes."""
        return self._reduced(x, axis, keepdims, lambda v: self._folded("maximum", v))

    def min(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The smallest values along axes."""
        return self._reduced(x, axis, keepdims, lambda v: self._folded("minimum", v))

    def _dotted(self, a: Sequence[Any], b: Sequence[Any]) -> Any:
        """``a[0] b[0] + a[1] b[1] + ...`` without the terms of plain zeros."""
        tracer, total = self._tracer, None
        column = self._plain_nodes(b)
        if column and all(type(x) is np.float64 for x in a):
            return self._linear(a, column)
        for x, y in zip(a, b, strict=True):
            if not (is_zero(x) or is_zero(y)):
                term = self._simple("multiply", x, y)
                total = term if total is None else self._simple("add", total, term)
        return 0.0 if total is None else Traced(tracer, total) if type(total) is int else total

    def _plain_nodes(self, values: Sequence[Any]) -> list[int]:
        """The nodes of traced numbers of float64 that are not constant; none where others are among them."""
        nodes, found = self._tracer.nodes, []
        for value in values:
            if type(value) is not Traced:
                return []
            k = self._tracer.number(value)
            if nodes[k].dtype != "float64" or nodes[k].operation == "constant":
                return []
            found.append(k)
        return found

    def _linear(self, factors: Sequence[Any], column: list[int]) -> Any:
        """``factors[0] column[0] + ...``, without what `_simple` looks at for each term."""
        add, total = self._tracer.add, None
        for factor, k in zip(factors, column, strict=True):
            if factor != 0.0:
                term = add("multiply", (add("constant", (), "float64", float(factor)), k), "float64")
                total = term if total is None else add("add", (total, term), "float64")
        return 0.0 if total is None else Traced(self._tracer, total)

    def _simple(self, name: str, x: Any, y: Any) -> Any:
        """An operation on two numbers, nodes of the trace among them; a node where it needs no promotion.

        Matrices have tens of thousands of terms, and `Tracer.apply` looks at each operand in turn.
        """
        tracer = self._tracer
        i, j = (each if type(each) is int else tracer.number(each) for each in (x, y))
        first, second = tracer.nodes[i], tracer.nodes[j]
        plain = first.dtype == second.dtype and first.dtype in FLOATS
        if (plain and "constant" not in (first.operation, second.operation)) or (
            plain and first.operation != second.operation
        ):
            return tracer.add(name, (i, j), first.dtype)
        result = tracer.apply(name, Traced(tracer, i), Traced(tracer, j))
        return tracer.number(result)

    def matmul(self, a: Any, b: Any) -> Any:
        """The product of matrices and vectors; leading axes of matrices broadcast."""
        left, right = items_of(a), items_of(b)
        if left.ndim == 0 or right.ndim == 0:
            raise ValueError(f"{self._tracer.function}: operands of @ must have axes; got a number{caller()}.")
        rows = left[None] if left.ndim == 1 else left
        columns = right[:, None] if right.ndim == 1 else right
        if rows.shape[-1] != columns.shape[-2]:
            seen = f"{left.shape} and {right.shape}"
            raise ValueError(f"{self._tracer.function}: operands of @ must fit; got shapes {seen}{caller()}.")
        lead = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
        rows = np.broadcast_to(rows, lead + rows.shape[-2:])
        columns = np.broadcast_to(columns, lead + columns.shape[-2:])
        made = [
            self._dotted(row, column)
            for place in np.ndindex(*lead)
            for row in rows[place]
            for column in columns[place].T
        ]
        shape = (*lead, *(rows.shape[-2:-1] if left.ndim > 1 else ()), *(columns.shape[-1:] if right.ndim > 1 else ()))
        return wrapped(self._tracer, object_array(made, shape))

    def dot(self, a: Any, b: Any) -> Any:
        """NumPy's ``dot`` of vectors and matrices."""
        left, right = items_of(a), items_of(b)
        if left.ndim == 0 or right.ndim == 0:
            return elementwise(self._tracer, "multiply", a, b)
        if right.ndim > 2:
            raise self._tracer.unsupported("dot of more than two axes")
        return self.matmul(a, b)

    def vecdot(self, a: Any, b: Any, *, axis: int = -1) -> Any:
        """The sums of products along an axis."""
        left, right = (np.moveaxis(each, axis, -1) for each in np.broadcast_arrays(items_of(a), items_of(b)))
        pairs = zip(left.reshape(-1, left.shape[-1]), right.reshape(-1, left.shape[-1]), strict=True)
        return wrapped(self._tracer, object_array([self._dotted(list(x), list(y)) for x, y in pairs], left.shape[:-1]))

    inner = dot

    def norm(self, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
        """The 2-norm of vectors."""
        items = items_of(x)
        if ord not in (None, 2) or (axis is None and items.ndim > 1) or np.ndim(axis):
            raise self._tracer.unsupported("norms other than the 2-norm of vectors")
        squares = elementwise(self._tracer, "square", x)
        return elementwise(self._tracer, "sqrt", self.sum(squares, axis, keepdims=keepdims))

    vector_norm = norm

    @property
    def linalg(self) -> types.SimpleNamespace:
        """Functions of linear algebra."""
        names = ("norm", "vector_norm", "matmul", "outer", "vecdot")
        return types.SimpleNamespace(**{name: getattr(self, name) for name in names})

    def outer(self, a: Any, b: Any) -> Any:
        """All products of entries of two vectors."""
        return elementwise(self._tracer, "multiply", self._array(items_of(a).reshape(-1, 1)), self.reshape(b, (1, -1)))

    def reshape(self, x: Any, *shape: Any, **options: Any) -> Any:
        """The same entries in another shape."""
        shape = shape or (options["shape"],)
        return wrapped(self._tracer, items_of(x).reshape(*shape))


MOVING = frozenset((
    "append", "atleast_1d", "atleast_2d", "block", "broadcast_to", "column_stack", "concat", "concatenate",
    "cumsum", "delete", "diag", "diagonal", "diff", "einsum", "expand_dims", "flip", "fliplr", "flipud", "hstack",
    "insert", "matrix_transpose", "moveaxis", "pad", "ravel", "repeat", "roll", "rot90", "split", "squeeze",
    "stack", "swapaxes", "take", "tile", "transpose", "tril", "triu", "unstack", "vstack", "array_split",
))  # fmt: skip
"""Functions that only move, add and subtract entries: NumPy's, on arrays of objects."""

CONSTANT = frozenset(("arange", "eye", "linspace", "meshgrid", "int64", "ndindex"))
"""Functions of plain numbers: NumPy's."""
