"""The translation of functions of `plain_code.py` to LLVM."""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from ensemble._compile.instructions import (
    ARITHMETIC,
    COMPARISONS,
    INTRINSICS,
    arithmetic,
    compared,
    instruction,
    is_real,
    keep_rolled,
    packed,
    prefetched,
    smaller,
    unpacked,
)
from ensemble._compile.lanes import complex_numbers
from ensemble._compile.lanes.complex_numbers import vector_of
from ensemble._compile.lanes.types import ROW_BYTES, fill_lanes
from ensemble._compile.plain_language import Function, OfGroup
from ensemble._compile.processor import register_bytes
from ensemble._compile.translator_blocks import OPERATORS, Blocks

__all__ = ["I64", "Body", "Group"]

I1, I16, I32, I64 = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64)


class Group:
    """Functions in one module, and the type of their numbers."""

    is_double: bool
    lanes: int
    part: int

    def __init__(
        self, module: ir.Module, number: ir.Type, lanes: int | None = None, narrow: bool = False, stored: Any = None
    ) -> None:
        self.module, self.number = module, number
        self.is_complex = complex_numbers.is_pair(number)
        self.is_double = isinstance(number.elements[0] if self.is_complex else number, ir.DoubleType)
        self.alignment = 8 if self.is_double else 4
        self.size = self.alignment * (2 if self.is_complex else 1)
        self.lanes = lanes or ROW_BYTES // self.size
        self.part = min(self.lanes, register_bytes() // self.size)
        self.count = self.part if narrow else self.lanes
        self.register = vector_of(number, self.count)
        self.narrow = self if narrow or self.part == self.lanes else Group(module, number, self.lanes, True, stored)
        self.kinds = {"int": I64, "bool": I1, "float": number, "Register": self.register, "None": ir.VoidType()}
        self.kinds |= {"Numbers": number.as_pointer(), "Stored": (stored or number).as_pointer()}
        self.kinds |= {"Integers": I64.as_pointer(), "Indices": I32.as_pointer()}
        self.written: dict[int, ir.Function] = {}

    def function(self, function: Function) -> ir.Function:
        """`function` in this module; written there where it is not yet."""
        if function.narrow and self.narrow is not self:
            return self.narrow.function(function)
        if id(function) not in self.written:
            results = [self.kinds[kind] for kind in function.returned]
            result = results[0] if len(results) == 1 else ir.LiteralStructType(results)
            kind = ir.FunctionType(result, [self.kinds[kind] for _, kind in function.arguments])
            made = ir.Function(self.module, kind, self.module.get_unique_name(function.name))
            made.linkage = "internal"
            made.attributes.add(function.attribute)
            made.attributes.add("nounwind")
            self.written[id(function)] = made
            function.write(self, made)
        return self.written[id(function)]

    def registers(self, builder: Any, numbers: Any, first: Any) -> Any:
        """Where the register of the entries from `first` on lies."""
        kind = vector_of(numbers.type.pointee, self.count)
        return builder.bitcast(builder.gep(numbers, [first], inbounds=True), kind.as_pointer())

    def read(self, builder: Any, place: Any) -> Any:
        """The register at a place."""
        value = builder.load(place)
        value.align = 4 if isinstance(value.type.element, ir.FloatType) else 8
        return value

    def write(self, builder: Any, value: Any, place: Any) -> Any:
        """A register to its place."""
        stored = builder.store(value, place)
        stored.align = self.alignment
        return stored

    def prefetch(self, builder: Any, numbers: Any, first: Any, count: int = 0) -> None:
        """Prefetch the lines of the register, or of so many numbers, from entry `first` on."""
        start, n_bytes = builder.gep(numbers, [first]), (count or self.count) * self.size
        prefetched(builder, start, n_bytes, first_level=not count, least=32 if count else 0)


class Body(Blocks):
    """The translation of a function's statements to LLVM. Variables are stack slots that LLVM promotes to registers."""

    def __init__(self, group: Group, function: Any, made: ir.Function) -> None:
        super().__init__(made)
        self.group, self.function = group, function
        self.places: dict[str, Any] = {}

    def write(self) -> None:
        first = self.builder.block
        for (name, _), value in zip(self.function.arguments, self.made.args, strict=True):
            self.assign(name, value)
        self.run(self.function.body)
        if not self.builder.block.is_terminated:
            if self.function.returned == ["None"]:
                self.builder.ret_void()
            else:
                self.builder.unreachable()
        ir.IRBuilder(self.start).branch(first)

    def refused(self, node: ast.AST, why: str = "") -> NotImplementedError:
        return NotImplementedError(f"{self.function.name}: not in this language: {ast.unparse(node)}{why}")

    def holds(self, test: ast.expr) -> Any:
        return self.value(test)

    # --- statements
    def run_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            place = self.place(node.target)
            change = self.value(node.value)
            value = self.arithmetic(node, node.op, self.builder.load(place), change)
            self.builder.store(self.converted(value, place.type.pointee), place)
        else:
            self.store(node.target, self.arithmetic(node, node.op, self.value(node.target), self.value(node.value)))

    def run_If(self, node: ast.If) -> None:
        self.branches(self.value(node.test), node)

    def run_For(self, node: ast.For) -> None:
        numbers = node.iter
        if node.orelse or not (isinstance(numbers, ast.Call) and ast.unparse(numbers.func) == "range"):
            raise self.refused(node.iter)
        given = [self.value(part) for part in numbers.args]
        first, last = (given[0], given[1]) if len(given) > 1 else (I64(0), given[0])
        step = given[2] if len(given) > 2 else I64(1)
        if not isinstance(step, ir.Constant):
            step = self.whole(numbers.args[2])
        counter = self.slot(I64)
        self.builder.store(first, counter)
        test, body, more, after = (self.block(name) for name in ("test", "body", "more", "after"))
        self.builder.branch(test)
        self.builder.position_at_end(test)
        now = self.builder.load(counter)
        self.builder.cbranch(self.builder.icmp_signed("<" if step.constant > 0 else ">", now, last), body, after)
        self.builder.position_at_end(body)
        self.store(node.target, now)
        self.round(body, node.body, more, after)
        self.go(more)
        self.builder.position_at_end(more)
        self.builder.store(self.builder.add(self.builder.load(counter), step, flags=("nsw",)), counter)
        self.go_back(test)
        self.builder.position_at_end(after)

    def run_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.builder.ret_void()
            return
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        kinds = [self.group.kinds[kind] for kind in self.function.returned]
        values = [self.converted(self.value(part), kind) for part, kind in zip(parts, kinds, strict=True)]
        if len(values) == 1:
            self.builder.ret(values[0])
        else:
            self.builder.ret(packed(self.builder, values, ir.LiteralStructType(kinds)))

    # --- places
    def go_back(self, test: ir.Block) -> None:
        """To the test of a loop."""
        if not self.builder.block.is_terminated:
            branch = self.builder.branch(test)
            if self.function.rolled:
                keep_rolled(self.group.module, [branch], scalar=True, wholly=True)

    def assign(self, name: str, value: Any) -> None:
        if isinstance(value, tuple):
            raise NotImplementedError(f"{self.function.name}: not in this language: several values as {name}")
        if name not in self.places:
            self.places[name] = self.slot(value.type)
        self.builder.store(self.converted(value, self.places[name].type.pointee), self.places[name])

    def set_entry(self, target: ast.expr, value: Any) -> None:
        place = self.place(target)
        self.builder.store(self.converted(value, place.type.pointee), place)

    def parts_of(self, target: ast.Tuple, value: Any) -> Sequence[Any]:
        return value if isinstance(value, tuple) else unpacked(self.builder, value)

    def place(self, node: ast.expr) -> Any:
        if not isinstance(node, ast.Subscript):
            raise self.refused(node)
        return self.builder.gep(self.value(node.value), [self.value(node.slice)], inbounds=True)

    # --- values
    def converted(self, value: Any, kind: ir.Type) -> Any:
        if value.type == kind:
            return value
        if value.type == I64 and kind == self.group.number:
            if isinstance(value, ir.Constant):
                return self.number(value.constant)
            return self.builder.sitofp(value, kind)
        if kind == self.group.register and value.type in (I64, self.group.number):
            return fill_lanes(self.builder, self.converted(value, self.group.number), self.group.count)
        raise TypeError(f"{self.function.name}: a value of type {value.type} where {kind} is declared")

    def number(self, value: Any) -> Any:
        """A real number as a constant of the type of numbers."""
        kind = self.group.number
        if self.group.is_complex:
            return ir.Constant(kind, [ir.Constant(kind.elements[0], part) for part in (float(value), 0.0)])
        return ir.Constant(kind, float(value))

    def alike(self, *values: Any) -> list[Any]:
        """The values as registers where one is, else as numbers where one is."""
        kinds = [value.type for value in values]
        found = [kind for kind in (self.group.register, self.group.number) if kind in kinds]
        return [self.converted(value, found[0] if found else kinds[0]) for value in values]

    def whole(self, node: ast.expr) -> Any:
        """An integer that is known now."""
        return I64(int(ast.literal_eval(node)))

    def constant(self, value: Any) -> Any:
        if isinstance(value, OfGroup):
            value = value.value(self.group)
        if isinstance(value, bool):
            return I1(int(value))
        return I64(value) if isinstance(value, int) else self.number(value)

    def value_Constant(self, node: ast.Constant) -> Any:
        return self.constant(node.value)

    def value_Name(self, node: ast.Name) -> Any:
        if node.id in self.places:
            return self.builder.load(self.places[node.id])
        return self.constant(self.function.names[node.id])

    def value_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.value(part) for part in node.elts)

    def value_Attribute(self, node: ast.Attribute) -> Any:
        return self.constant({"np.nan": np.nan, "np.inf": np.inf}[ast.unparse(node)])

    def value_Subscript(self, node: ast.Subscript) -> Any:
        value = self.builder.load(self.place(node))
        return self.builder.sext(value, I64) if value.type in (I16, I32) else self.as_numbers(value, self.group.number)

    def as_numbers(self, value: Any, kind: ir.Type) -> Any:
        """A number or a register that was loaded from an array of another floating-point type, in the group's."""
        if kind == value.type or not is_real(value.type):
            return value
        return (self.builder.fpext if self.group.is_double else self.builder.fptrunc)(value, kind)

    def value_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return self.builder.not_(value)
        if isinstance(value, ir.Constant):
            return ir.Constant(value.type, -value.constant)
        return arithmetic(self.builder, operator.neg, value)

    def arithmetic(self, node: ast.AST, operation: ast.operator, a: Any, b: Any) -> Any:
        a, b = self.alike(a, b)
        function = OPERATORS[type(operation)]
        if self.group.is_complex and a.type == self.group.register and function in (operator.mul, operator.truediv):
            made = complex_numbers.product if function is operator.mul else complex_numbers.quotient
            return made(self.builder, a, b)
        if function in (operator.floordiv, operator.mod):
            return (self.builder.sdiv if function is operator.floordiv else self.builder.srem)(a, b)
        if function is operator.truediv and a.type == I64:
            a, b = (self.converted(value, self.group.number) for value in (a, b))
        if function not in ARITHMETIC:
            raise self.refused(node)
        flags = {"flags": ("nsw",)} if a.type == I64 else {}
        return arithmetic(self.builder, function, a, b, **flags)

    def value_Compare(self, node: ast.Compare) -> Any:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        result = None
        for operation, a, b in zip(node.ops, values[:-1], values[1:], strict=True):
            met = compared(self.builder, COMPARISONS[OPERATORS[type(operation)]], *self.alike(a, b))
            result = met if result is None else self.builder.and_(result, met)
        return result

    def value_BoolOp(self, node: ast.BoolOp) -> Any:
        decided = I1(int(isinstance(node.op, ast.Or)))
        after = self.block("decided")
        ends = []
        for part in node.values[:-1]:
            value, more = self.value(part), self.block("more")
            ends.append((decided, self.builder.block))
            self.builder.cbranch(value, *((after, more) if decided.constant else (more, after)))
            self.builder.position_at_end(more)
        ends.append((self.value(node.values[-1]), self.builder.block))
        self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.phi(ends)

    def value_IfExp(self, node: ast.IfExp) -> Any:
        values, ends = self.chosen(self.value(node.test), node)
        return self.phi(list(zip(values, ends, strict=True)))

    def call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        called = self.function.names.get(name)
        if isinstance(called, Function):
            written = self.group.function(called)
            given = zip(node.args, written.args, strict=True)
            return self.builder.call(written, [self.converted(self.value(part), a.type) for part, a in given])
        values = [self.value(part) for part in node.args]
        if name == "local_array":
            return self.slot(self.group.number, values[0])
        if name == "numbers_at":
            return self.builder.inttoptr(values[0], self.group.number.as_pointer())
        if name == "integers_at":
            return self.builder.inttoptr(values[0], ir.IntType(values[1].constant).as_pointer())
        if name == "chosen":
            return self.builder.select(values[0], *self.alike(*values[1:]))
        if name == "spread":
            return self.converted(values[0], self.group.register)
        if name in ("min", "max"):
            return smaller(self.builder, name == "min", *self.alike(*values))
        if name == "int":
            return self.builder.fptosi(values[0], I64)
        if name == "float":
            return self.converted(values[0], self.group.number)
        if name == "np.isnan":
            return self.builder.fcmp_unordered("uno", values[0], values[0])
        if name == "behind":
            return self.builder.gep(values[0], [values[1]], inbounds=True)
        if name == "fma":
            return instruction(self.builder, "fma", self.alike(*values))
        if name == "prefetch":
            count = values[2].constant if len(values) > 2 else 0
            return self.group.prefetch(self.builder, values[0], values[1], count)
        if name in ("load", "store"):
            place = self.group.registers(self.builder, values[0], values[1])
            if name == "load":
                return self.as_numbers(self.group.read(self.builder, place), self.group.register)
            return self.group.write(self.builder, self.converted(values[2], self.group.register), place)
        if name not in ("abs", "math.sqrt"):
            raise self.refused(node)
        number = self.converted(values[0], self.group.number)
        return instruction(self.builder, INTRINSICS[name.removeprefix("math.")], [number])
