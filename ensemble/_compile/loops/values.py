"""Values of a loop that is translated: constants, numbers, lanes, and operations on them."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ensemble._compile.instructions import ARITHMETIC, COMPARISONS, arithmetic, compared, conversion
from ensemble._compile.lanes.types import OPERATORS as OF_LANES
from ensemble._compile.lanes.types import Lanes, fill_lanes, lanes_among
from ensemble._compile.loops.scope import Scope, TranslationError, Value, is_constant
from ensemble._compile.numba_private import contexts
from ensemble._compile.translator_blocks import OPERATORS, Blocks

__all__ = ["BYTES", "I1", "I64", "SCALARS", "SIGNED", "UNSIGNED", "Values"]

I1, I64, BYTES = ir.IntType(1), ir.IntType(64), ir.IntType(8).as_pointer()

SIGNED, UNSIGNED = types.int64, types.uint64
NUMBERS = {SIGNED, types.float32, types.float64}
"""Types that have float64 in common."""

SCALARS: dict[Any, Any] = {
    np.int64: SIGNED,
    np.uint64: UNSIGNED,
    np.float64: types.float64,
    np.float32: types.float32,
    int: SIGNED,
    float: types.float64,
}


def complex_among(kinds: set[Any]) -> Any:
    """The one complex type among types of numbers; None for none."""
    found = {kind for kind in kinds if isinstance(kind, types.Complex)}
    return found.pop() if len(found) == 1 and kinds - found <= NUMBERS else None


class Values(Blocks):
    """Values and operations on them, in the function `made`."""

    def __init__(self, made: ir.Function, scope: Scope) -> None:
        super().__init__(made)
        self.first = self.builder.block
        both = contexts()
        assert both is not None, "without them nothing is translated"
        self.context, self.typing = both
        self.scope = scope

    def refused(self, node: ast.AST, why: str = "") -> TranslationError:
        return TranslationError(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)} {why}")

    # --- values
    def made_of(self, value: Any) -> Value:
        """A constant as a value of the program."""
        if isinstance(value, Value):
            return value
        if isinstance(value, bool | np.bool_):
            return Value(types.boolean, I1(int(value)))
        if isinstance(value, np.uint64):
            return Value(UNSIGNED, I64(int(value)))
        if isinstance(value, int | np.integer):
            return Value(SIGNED, I64(int(value)))
        if isinstance(value, np.float32):
            return Value(types.float32, ir.Constant(ir.FloatType(), float(value)))
        if isinstance(value, float):
            return Value(types.float64, ir.Constant(ir.DoubleType(), float(value)))
        raise TranslationError(f"a value of type {type(value).__name__}")

    def cast(self, value: Any, kind: Any) -> Any:
        """LLVM's value of `value` in type `kind`."""
        given = self.made_of(value)
        if given.kind == kind:
            return given.made
        builder = self.builder
        if isinstance(kind, Lanes):
            return fill_lanes(builder, self.cast(given, kind.dtype), kind.width)
        whole, target = given.kind in (SIGNED, UNSIGNED), self.context.get_value_type(kind)
        if kind in (SIGNED, UNSIGNED) and whole:
            return given.made
        if isinstance(kind, types.Float) and whole and isinstance(given.made, ir.Constant):
            return ir.Constant(target, float(given.made.constant))
        if isinstance(kind, types.Complex) and given.kind in NUMBERS:
            return builder.insert_value(ir.Constant(target, None), self.cast(given, kind.underlying_float), 0)
        number = isinstance(given.kind, types.Boolean | types.Integer | types.Float)
        real = isinstance(given.kind, types.Boolean | types.Float) or given.kind is SIGNED
        if not (
            (kind in (SIGNED, UNSIGNED) and number)  # narrower integers are entries of lanes
            or (isinstance(kind, types.Integer) and whole)
            or (isinstance(kind, types.Float) and real)
        ):
            raise TranslationError(f"{given.kind} as {kind}")
        return getattr(builder, conversion(str(given.kind), str(kind)))(given.made, target)

    def truth(self, value: Any) -> Any:
        """A condition, as a bit."""
        given = self.made_of(value)
        if given.kind is types.boolean:
            return given.made
        if given.kind in (SIGNED, UNSIGNED):
            return self.builder.icmp_signed("!=", given.made, I64(0))
        if isinstance(given.kind, types.Float):
            return compared(self.builder, "!=", given.made, ir.Constant(given.made.type, 0.0))
        raise TranslationError(f"a condition of type {given.kind}")

    def assign(self, name: str, value: Any) -> None:
        """Give a name a value; one that never gets another may be a constant, an array or a tuple."""
        scope = self.scope
        if isinstance(value, tuple) and name in scope.variables:
            parts = scope.tuples.setdefault(name, tuple(f"{name}.{k}" for k in range(len(value))))
            if len(parts) != len(value):
                raise TranslationError(f"{name} has {len(parts)} entries, then {len(value)}")
            scope.variables = scope.variables.union(parts)
            for part, each in zip(parts, value, strict=True):
                self.assign(part, each)
            return
        stored = isinstance(value, Value) and not isinstance(value.kind, types.Array)
        if not stored and name not in scope.variables:
            scope.values[name] = value
            return
        given = self.made_of(value)
        if name not in scope.places:
            scope.places[name] = given.kind, self.slot(given.made.type)
        kind, place = scope.places[name]
        if isinstance(kind, types.Array) and not kind.mutable and given.kind == kind.copy(readonly=False):
            given = Value(kind, given.made)  # not to be written to under this name
        number = type(value) is int and (kind is types.float64 or (kind is UNSIGNED and value >= 0))
        if given.kind != kind and not number:
            raise TranslationError(f"{name} is {kind}, then {given.kind}")
        self.builder.store(self.cast(given, kind), place)

    def holds(self, test: ast.expr) -> Any:
        return self.made_of(self.condition(test)).made

    def value_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def value_Name(self, node: ast.Name) -> Any:
        scope = self.scope
        if node.id in scope.values:
            return scope.values[node.id]
        if node.id in scope.tuples:
            return tuple(self.value_Name(ast.Name(part)) for part in scope.tuples[node.id])
        if node.id in scope.places:
            kind, place = scope.places[node.id]
            return Value(kind, self.builder.load(place), node.id in scope.natural)
        return scope.names(node.id)

    def value_Tuple(self, node: ast.Tuple) -> Any:
        parts: list[Any] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                parts += self.value(part.value)
            else:
                parts.append(self.value(part))
        return tuple(parts)

    def value_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self.condition(node)
        value = self.value(node.operand)
        if not isinstance(node.op, ast.USub | ast.Invert):
            raise self.refused(node)
        operation = OPERATORS[type(node.op)]
        if is_constant(value):
            return operation(value)
        if isinstance(value.kind, Lanes):
            return Value(value.kind, OF_LANES[operation](self.builder, value.kind.dtype, value.made))
        if operation is operator.neg and (value.kind is SIGNED or isinstance(value.kind, types.Float)):
            return Value(value.kind, arithmetic(self.builder, operation, value.made))
        raise self.refused(node)

    def arithmetic(self, node: ast.AST, operation: ast.operator, a: Any, b: Any) -> Any:
        function = OPERATORS.get(type(operation))
        if function is None:
            raise self.refused(node)
        if is_constant(a) and is_constant(b):
            return function(a, b)
        a, b = self.made_of(a), self.made_of(b)
        builder, kinds = self.builder, (a.kind, b.kind)
        lanes = lanes_among(kinds)
        if function is operator.pow or (lanes is not None and function not in OF_LANES):
            raise self.refused(node)
        if lanes is not None:
            return Value(lanes, OF_LANES[function](builder, lanes.dtype, self.cast(a, lanes), self.cast(b, lanes)))
        if set(kinds) == {SIGNED, types.boolean}:
            a, b, kinds = Value(SIGNED, self.cast(a, SIGNED)), Value(SIGNED, self.cast(b, SIGNED)), (SIGNED, SIGNED)
        if kinds[0] == kinds[1] and kinds[0] in (SIGNED, UNSIGNED) and function is not operator.truediv:
            return Value(kinds[0], self.whole(function, kinds[0], a.made, b.made))
        if set(kinds) <= NUMBERS and ARITHMETIC.get(function, ("",))[0]:
            kind = types.float32 if set(kinds) == {types.float32} else types.float64
            return Value(kind, arithmetic(builder, function, self.cast(a, kind), self.cast(b, kind)))
        if kinds == (types.boolean, types.boolean) and function in (operator.and_, operator.or_, operator.xor):
            return Value(types.boolean, arithmetic(builder, function, a.made, b.made))
        raise self.refused(node, str(kinds))

    def whole(self, function: Any, kind: Any, a: Any, b: Any) -> Any:
        """Arithmetic of integers; quotients are rounded down, and zero where the divisor is, as the rest."""
        builder, signed = self.builder, kind is SIGNED
        if function is operator.rshift and not signed:
            return builder.lshr(a, b)
        if function in ARITHMETIC:
            return arithmetic(builder, function, a, b)
        none = builder.icmp_signed("==", b, I64(0))
        divisor = builder.select(none, I64(1), b)
        if signed:
            quotient, rest = builder.sdiv(a, divisor), builder.srem(a, divisor)
            apart = builder.icmp_signed("<", builder.xor(rest, b), I64(0))
            down = builder.and_(builder.icmp_signed("!=", rest, I64(0)), apart)
            quotient = builder.sub(quotient, builder.zext(down, I64))
            rest = builder.select(down, builder.add(rest, b), rest)
        else:
            quotient, rest = builder.udiv(a, divisor), builder.urem(a, divisor)
        return builder.select(none, I64(0), quotient if function is operator.floordiv else rest)

    def value_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1:
            return self.compared(node, node.ops[0], self.value(node.left), self.value(node.comparators[0]))
        last = [self.value(node.left)]

        def met(comparison: ast.cmpop, part: ast.expr) -> Any:
            last.append(self.value(part))
            return self.compared(node, comparison, last[-2], last[-1])

        pairs = zip(node.ops, node.comparators, strict=True)
        return self.decided([functools.partial(met, *pair) for pair in pairs], False)

    def compared(self, node: ast.AST, comparison: ast.cmpop, a: Any, b: Any) -> Any:
        function = OPERATORS.get(type(comparison))
        if function is None:
            raise self.refused(node)
        symbol = COMPARISONS[function]
        if is_constant(a) and is_constant(b):
            return bool(function(a, b))
        a, b = self.made_of(a), self.made_of(b)
        kinds, builder = {a.kind, b.kind}, self.builder
        lanes = lanes_among((a.kind, b.kind))
        if lanes is not None:
            made = OF_LANES[function](builder, lanes.dtype, self.cast(a, lanes), self.cast(b, lanes))
            return Value(Lanes(types.boolean, lanes.width), made)
        if len(kinds) == 1 and kinds <= {SIGNED, UNSIGNED, types.boolean}:
            return Value(types.boolean, compared(builder, symbol, a.made, b.made, signed=kinds == {SIGNED}))
        if (kind := complex_among(kinds)) is not None and symbol in ("==", "!="):
            wide = [fill_lanes(builder, self.cast(each, kind), 1) for each in (a, b)]
            mask = OF_LANES[function](builder, kind, *wide)
            return Value(types.boolean, builder.extract_element(mask, ir.IntType(32)(0)))
        if kinds <= NUMBERS:
            kind = types.float32 if kinds == {types.float32} else types.float64
            return Value(types.boolean, compared(builder, symbol, self.cast(a, kind), self.cast(b, kind)))
        raise self.refused(node, str(kinds))

    def condition(self, node: ast.expr) -> Any:
        """Whether an expression holds, for which integers count, too."""
        if isinstance(node, ast.BoolOp):
            parts = [functools.partial(self.condition, part) for part in node.values]
            return self.decided(parts, isinstance(node.op, ast.Or))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self.condition(node.operand)
            return not value if is_constant(value) else Value(types.boolean, self.builder.not_(value.made))
        value = self.value(node)
        return bool(value) if is_constant(value) else Value(types.boolean, self.truth(value))

    def value_BoolOp(self, node: ast.BoolOp) -> Any:
        return self.decided([functools.partial(self.value, part) for part in node.values], isinstance(node.op, ast.Or))

    def decided(self, parts: Sequence[Callable[[], Any]], either: bool) -> Any:
        """Whether one (`either`) or all of some conditions hold; those behind the one that decides are not asked."""
        place, after = None, self.block("decided")
        for k, part in enumerate(parts):
            value = part()
            if is_constant(value) and bool(value) != either and k < len(parts) - 1:
                continue
            if is_constant(value) and place is None:
                self.go(after)
                self.builder.position_at_end(after)
                return bool(value)
            given = self.made_of(bool(value) if is_constant(value) else value)
            if given.kind is not types.boolean:
                raise TranslationError(f"a condition of type {given.kind} beside another")
            place = self.slot(I1) if place is None else place
            self.builder.store(given.made, place)
            more = self.block("more")
            self.builder.cbranch(given.made, *((after, more) if either else (more, after)))
            self.builder.position_at_end(more)
        self.builder.branch(after)
        self.builder.position_at_end(after)
        return Value(types.boolean, self.builder.load(place))

    def value_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test)
        if is_constant(condition):
            return self.value(node.body if condition else node.orelse)
        chosen, ends = self.chosen(condition.made, node)
        return self.met(self.joined(node, chosen, ends), ends)

    def joined(self, node: ast.AST, chosen: Sequence[Any], ends: Sequence[ir.Block]) -> Any:
        """The values of two branches in one type, cast at the end of each: tuples entry by entry."""
        if all(isinstance(value, tuple) for value in chosen):
            return tuple(self.joined(node, parts, ends) for parts in zip(*chosen, strict=True))
        if any(value is None or isinstance(value, tuple) for value in chosen):
            raise self.refused(node, "values of several types")
        kinds = {self.made_of(value).kind for value in chosen}
        kind = kinds.pop() if len(kinds) == 1 else types.float64 if kinds <= NUMBERS else lanes_among(kinds)
        kind = complex_among(kinds) if kind is None else kind
        if kind is None:
            raise self.refused(node, f"values of types {kinds}")
        here, made = self.builder, []
        for value, end in zip(chosen, ends, strict=True):
            self.builder = ir.IRBuilder(end)
            if end.is_terminated:
                self.builder.position_before(end.terminator)
            made.append(Value(kind, self.cast(value, kind)))
        self.builder = here
        return made

    def met(self, values: Any, ends: Sequence[ir.Block]) -> Any:
        """The value of whichever block was left."""
        if isinstance(values, tuple):
            return tuple(self.met(part, ends) for part in values)
        return Value(values[0].kind, self.phi([(value.made, end) for value, end in zip(values, ends, strict=True)]))
