"""Arrays of a loop that is translated: entries, rows, parts, memory."""

from __future__ import annotations

import ast
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ensemble._compile.instructions import counted, packed, unpacked, zero_bytes
from ensemble._compile.lanes.types import item_size
from ensemble._compile.loops.native_call import ARRAYS, flat_types, python_function
from ensemble._compile.loops.scope import Scope, TranslationError, Value, is_constant
from ensemble._compile.loops.values import BYTES, I1, I64, SIGNED, UNSIGNED, Values

__all__ = ["Arrays"]

LINE = 64
"""Bytes of a cache line, with which memory begins."""


def last_index(node: ast.Subscript) -> ast.expr:
    """The last index of a subscript."""
    return node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice


class ArrayValue(Value):
    """An array as its address, extents and size; Numba's structure of it is written where an operation takes that."""

    __slots__ = ("owner",)

    def __init__(self, owner: Arrays, kind: Any, parts: tuple[Any, list[Any], Any]) -> None:
        self.owner, self.kind, self.parts, self.natural = owner, kind, parts, False

    @property
    def made(self) -> Any:
        """Write the structure where the translation stands, as later uses may stand elsewhere."""
        data, shape, size = self.owner.parts(self)
        builder = self.owner.builder
        itemsize = I64(item_size(self.kind.dtype))
        strides = [itemsize]
        for extent in shape[:0:-1]:
            strides.insert(0, builder.mul(strides[0], extent))
        model = self.owner.context.data_model_manager[self.kind]
        made = ir.Constant(model.get_value_type(), None)  # no owner is known
        entries = {"data": data, "itemsize": itemsize, "nitems": size, "shape": packed(builder, shape)}
        entries["strides"] = packed(builder, strides)
        for name, entry in entries.items():
            made = builder.insert_value(made, entry, model.get_field_position(name))
        return made


class Arrays(Values):
    """Operations on arrays: each is an address, extents and a size."""

    def __init__(self, made: ir.Function, scope: Scope) -> None:
        super().__init__(made, scope)
        self.memory: list[Any] = []
        """Where the addresses of arrays stand that were allocated."""

    def value_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, tuple):
            raise self.refused(node)
        if not isinstance(owner, Value):
            return getattr(owner, node.attr)
        if isinstance(owner.kind, types.Array):
            if node.attr in ("dtype", "itemsize"):
                dtype = np.dtype(str(owner.kind.dtype) if owner.kind.dtype is not types.boolean else "bool")
                return dtype if node.attr == "dtype" else dtype.itemsize
            data, shape, size = self.parts(owner)
            if node.attr == "size":
                return Value(SIGNED, size)
            if node.attr == "shape":
                return tuple(Value(SIGNED, part) for part in shape)
            if node.attr == "reshape":
                return functools.partial(self.reshaped, owner)
            if node.attr == "ctypes":
                return SimpleNamespace(data=Value(SIGNED, self.builder.ptrtoint(data, I64)))
        raise self.refused(node)

    def parts(self, array: Value) -> tuple[Any, list[Any], Any]:
        """The address of an array's data, its extents and its size."""
        if array.parts is None:
            at = self.context.data_model_manager[array.kind].get_field_position
            data, shape, size = (
                self.builder.extract_value(array.made, at(name)) for name in ("data", "shape", "nitems")
            )
            array.parts = data, unpacked(self.builder, shape), size
        return array.parts

    def reshaped(self, array: Value, *shape: Any) -> Value:
        """The array in one dimension, or in another shape of as many entries."""
        data, _, size = self.parts(array)
        extents = [size] if shape == (-1,) else [self.cast(extent, SIGNED) for extent in shape]
        return self.array(array.kind.dtype, data, extents, array.kind.mutable)

    def array(self, dtype: Any, data: Any, shape: list[Any], mutable: bool = True) -> Value:
        """Return a value for an array in C order at the address `data`, which nothing keeps alive."""
        kind, size = types.Array(dtype, len(shape), "C", readonly=not mutable), shape[-1]
        for extent in shape[-2::-1]:
            size = self.builder.mul(size, extent)
        return ArrayValue(self, kind, (data, shape, size))

    def place(self, node: ast.AST, array: Any, index: Any) -> tuple[Any, Any, list[Any]]:
        """The type of an array, and the address of an entry or of a row; the row's extents."""
        if isinstance(array, np.ndarray):
            array = self.constant_array(array)
        if not (isinstance(array, Value) and isinstance(array.kind, types.Array)):
            raise self.refused(node)
        indices = [self.made_of(part) for part in (index if isinstance(index, tuple) else (index,))]
        data, shape, _ = self.parts(array)
        if len(indices) > len(shape) or any(part.kind not in (SIGNED, UNSIGNED) for part in indices):
            raise self.refused(node)
        at = self.from_start(indices[0], shape[0]) if indices else I64(0)
        for part, extent in zip(indices[1:], shape[1:], strict=False):
            at = self.builder.add(self.builder.mul(at, extent), self.from_start(part, extent))
        rest = shape[len(indices) :]
        for extent in rest:
            at = self.builder.mul(at, extent)
        return array.kind, self.builder.gep(data, [at], inbounds=True), rest

    def from_start(self, index: Value, extent: Any) -> Any:
        """The place of an index, which counts from the end where it is negative."""
        number = index.made
        if index.kind is UNSIGNED or index.natural:
            return number
        if isinstance(number, ir.Constant):
            return number if number.constant >= 0 else self.builder.add(number, extent)
        negative = self.builder.icmp_signed("<", number, I64(0))
        return self.builder.select(negative, self.builder.add(number, extent), number)

    def constant_array(self, array: np.ndarray) -> Value:
        """An array in the scope of a function, whose numbers become part of the code."""
        kind = ARRAYS.get(array.dtype)
        if kind in (None, types.boolean) or isinstance(kind, types.Complex):
            raise TranslationError(f"a constant array of {array.dtype}")
        (entry, *_), module = flat_types([types.Array(kind, 1, "C")]), self.builder.module
        numbers = ir.Constant(ir.ArrayType(entry.pointee, array.size), array.reshape(-1).tolist())
        place = ir.GlobalVariable(module, numbers.type, module.get_unique_name("numbers"))
        place.initializer, place.global_constant, place.linkage = numbers, True, "internal"
        shape = [I64(extent) for extent in array.shape]
        return self.array(kind, self.builder.bitcast(place, entry), shape, mutable=False)

    def value_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        last = last_index(node)
        if isinstance(last, ast.Slice) and isinstance(owner, tuple):
            low, high, step = (None if end is None else self.value(end) for end in (last.lower, last.upper, last.step))
            return owner[low:high:step]
        if isinstance(last, ast.Slice):
            return self.part_of(node, owner)
        return self.entry(node, owner, self.value(node.slice))

    def entry(self, node: ast.AST, owner: Any, index: Any) -> Any:
        """An entry of an array or a tuple, or a row of an array."""
        if isinstance(owner, np.ndarray) or (isinstance(owner, Value) and isinstance(owner.kind, types.Array)):
            kind, place, rest = self.place(node, owner, index)
            if rest:
                return self.array(kind.dtype, place, rest, kind.mutable)
            dtype, made = kind.dtype, self.builder.load(place)
            if dtype is types.boolean:
                return Value(dtype, self.builder.trunc(made, I1))
            if not isinstance(dtype, types.Integer) or dtype in (SIGNED, UNSIGNED):
                return Value(dtype, made)
            widen = self.builder.sext if str(dtype).startswith("int") else self.builder.zext
            return Value(SIGNED, widen(made, I64))
        if isinstance(owner, Value) and isinstance(owner.kind, types.UniTuple) and isinstance(index, int):
            return Value(owner.kind.dtype, self.builder.extract_value(owner.made, index))
        if is_constant(index) and not isinstance(owner, Value):
            return owner[index]
        raise self.refused(node)

    def part_of(self, node: ast.Subscript, owner: Any) -> Value:
        """The part of an array between two places, which lie in it; of a row, where indices stand before."""
        *indices, part = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for index in indices:
            owner = self.entry(node, owner, self.value(index))
        if not (isinstance(owner, Value) and isinstance(owner.kind, types.Array) and isinstance(part, ast.Slice)):
            raise self.refused(node)
        if part.step is not None:
            raise self.refused(node)
        data, shape, _ = self.parts(owner)
        first = I64(0) if part.lower is None else self.cast(self.value(part.lower), SIGNED)
        last = shape[0] if part.upper is None else self.cast(self.value(part.upper), SIGNED)
        at = first
        for extent in shape[1:]:
            at = self.builder.mul(at, extent)
        start = self.builder.gep(data, [at], inbounds=True)
        return self.array(owner.kind.dtype, start, [self.builder.sub(last, first), *shape[1:]], owner.kind.mutable)

    def in_memory(self, value: Any, dtype: Any) -> Any:
        """LLVM's value of an entry as it lies in an array."""
        made = self.cast(value, dtype)
        return self.builder.zext(made, BYTES.pointee) if dtype is types.boolean else made

    def write_all(self, array: Value, value: Any) -> None:
        """A number to all entries."""
        if not array.kind.mutable:
            raise TranslationError("entries of a read-only array are assigned")
        data, _, size = self.parts(array)
        entry = self.in_memory(value, array.kind.dtype)
        with counted(self.builder, size) as k:
            self.builder.store(entry, self.builder.gep(data, [k]))

    def allocate(self, cleared: bool, shape: Any, dtype: Any = np.float64) -> Value:
        """Memory for an array; it ends where this statement is met again, or with the function."""
        if isinstance(dtype, np.dtype):
            dtype = dtype.type
        kind = ARRAYS.get(np.dtype(dtype)) if isinstance(dtype, type) else None
        if kind in (None, types.boolean):
            raise TranslationError(f"an array of {dtype}")
        extents = [self.cast(extent, SIGNED) for extent in (shape if isinstance(shape, tuple) else (shape,))]
        n = functools.reduce(self.builder.mul, extents)
        builder, place = self.builder, self.slot(BYTES)
        n_bytes = builder.mul(n, I64(item_size(kind)))
        ir.IRBuilder(self.start).store(ir.Constant(BYTES, None), place)
        self.memory.append(place)
        self.free(place)
        taken = builder.call(python_function(builder.module, "PyMem_RawMalloc"), [builder.add(n_bytes, I64(LINE))])
        builder.store(taken, place)
        start = builder.and_(builder.add(builder.ptrtoint(taken, I64), I64(LINE - 1)), I64(-LINE))
        memory = builder.inttoptr(start, BYTES)
        if cleared:
            zero_bytes(builder, memory, n_bytes)
        element = self.context.get_value_type(kind)
        return self.array(kind, self.builder.bitcast(memory, element.as_pointer()), extents)

    def filled(self, shape: Any, value: Any) -> Value:
        """``np.full(shape, value)``."""
        array = self.allocate(False, shape, np.dtype(str(self.made_of(value).kind)).type)
        self.write_all(array, value)
        return array

    def free(self, place: Any) -> None:
        """End the memory whose address stands in `place`."""
        self.builder.call(python_function(self.builder.module, "PyMem_RawFree"), [self.builder.load(place)])
