"""Statements of a loop that is translated."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from ensemble._compile.instructions import keep_rolled
from ensemble._compile.loops.arrays import last_index
from ensemble._compile.loops.calls import Calls
from ensemble._compile.loops.scope import Scope, Span, TranslationError, Value, is_constant
from ensemble._compile.loops.values import I64, SIGNED, UNSIGNED

__all__ = ["Statements"]


class Statements(Calls):
    """The translation of the statements of a function, and of those that it calls, to LLVM."""

    def __init__(self, made: ir.Function, scope: Scope, alone: bool = False, unrolled: bool = False) -> None:
        super().__init__(made, scope)
        self.alone, self.keeps_all = alone, unrolled

    def procedure(self, tree: ast.FunctionDef) -> Any:
        """The statements of the function itself; returns the integer that it returns, 0 for nothing."""
        returned = self.returned_by(tree.body)
        values, ends = [0 if value is None else value for value, _ in returned], [end for _, end in returned]
        result = self.met(self.joined(tree, values, ends), ends)
        if result.kind is not SIGNED:
            raise TranslationError("a procedure that returns something else than an integer")
        return result.made

    def finish(self, result: Any) -> None:
        """End the function."""
        for place in self.memory:
            self.free(place)
        self.builder.ret(result)
        ir.IRBuilder(self.start).branch(self.first)

    def run_AugAssign(self, node: ast.AugAssign) -> None:
        target: Any = ast.copy_location(type(node.target)(**{**vars(node.target), "ctx": ast.Load()}), node.target)
        self.store(node.target, self.arithmetic(node, node.op, self.value(target), self.value(node.value)))

    def parts_of(self, target: ast.Tuple, value: Any) -> Sequence[Any]:
        parts = range(len(target.elts))
        return tuple(self.entry(target, value, k) for k in parts) if isinstance(value, Value) else value

    def set_entry(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript) and isinstance(last_index(target), ast.Slice):
            self.write_all(self.part_of(target, self.value(target.value)), value)
        elif isinstance(target, ast.Subscript):
            kind, place, rest = self.place(target, self.value(target.value), self.value(target.slice))
            if rest or not kind.mutable:
                raise self.refused(target)
            self.builder.store(self.in_memory(value, kind.dtype), place)
        else:
            raise self.refused(target)

    def run_Return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.value(node.value)
        if self.scope.end is None:
            raise self.refused(node)
        self.scope.returned.append((value, self.builder.block))
        self.builder.branch(self.scope.end)

    def run_If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        if is_constant(condition):
            self.run(node.body if condition else node.orelse)
            return
        self.branches(condition.made, node)

    def run_For(self, node: ast.For) -> None:
        span = self.value(node.iter)
        if node.orelse or not isinstance(span, tuple):
            raise self.refused(node.iter)
        if not isinstance(span, Span):
            self.unrolled(node, span)
            return
        if is_constant(span) and self.takes_entries(node):
            self.unrolled(node, range(*span))
            return
        first, last, step = span
        kinds = {self.made_of(value).kind for value in (first, last) if type(value) is not int}
        if not kinds <= {SIGNED, UNSIGNED} or self.made_of(step).kind not in (SIGNED, UNSIGNED):
            raise self.refused(node.iter)
        kind = UNSIGNED if kinds == {UNSIGNED} else SIGNED
        if UNSIGNED in kinds and kind is SIGNED:
            raise self.refused(node.iter)
        up = is_constant(step) and step > 0
        natural = up and (first.natural if isinstance(first, Value) else first >= 0)
        self.counted(node, kind, self.cast(first, kind), self.cast(last, kind), self.cast(step, kind), natural)

    def takes_entries(self, loop: ast.For) -> bool:
        """Whether a loop takes entries of tuples by its counter, which is a constant for that."""
        for node in ast.walk(loop):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                name, counters = node.value.id, {each.id for each in ast.walk(node.slice) if isinstance(each, ast.Name)}
                kind = self.scope.places.get(name, (None,))[0]
                holds = isinstance(kind, types.UniTuple) or isinstance(self.scope.values.get(name), tuple)
                if holds and isinstance(loop.target, ast.Name) and loop.target.id in counters:
                    return True
        return False

    def unrolled(self, node: ast.For, rounds: Sequence[Any]) -> None:
        """The rounds of a loop one after another, with the counter as a constant."""
        after = self.block("after")
        for value in rounds:
            body, more = self.block("round"), self.block("more")
            self.builder.branch(body)
            self.builder.position_at_end(body)
            self.store(node.target, value)
            self.round(body, node.body, more, after)
            self.go(more)
            self.builder.position_at_end(more)
        self.go(after)
        self.builder.position_at_end(after)

    def counted(self, node: ast.For, kind: Any, first: Any, last: Any, step: Any, natural: bool) -> None:
        """A loop over a range that is known when the program runs."""
        builder, counter, left = self.builder, self.slot(I64), self.slot(I64)
        compare = builder.icmp_signed if kind is SIGNED else builder.icmp_unsigned
        one = isinstance(step, ir.Constant) and step.constant == 1
        apart = builder.sub(last, first)
        if not one:  # quotients are those of numbers that are not negative, whatever the sign of the step
            up = builder.icmp_signed(">", step, I64(0))
            apart = builder.select(up, apart, builder.neg(apart))
            size = builder.select(up, step, builder.neg(step))
            apart = builder.udiv(builder.add(apart, builder.sub(size, I64(1))), size)
            some = builder.select(up, compare("<", first, last), compare(">", first, last))
        else:
            some = compare("<", first, last)
        builder.store(first, counter)
        builder.store(builder.select(some, apart, I64(0)), left)
        test, body, after = (self.block(name) for name in ("test", "body", "after"))
        builder.branch(test)
        builder.position_at_end(test)
        builder.cbranch(builder.icmp_signed(">", builder.load(left), I64(0)), body, after)
        builder.position_at_end(body)
        self.store(node.target, Value(kind, builder.load(counter)))
        if isinstance(node.target, ast.Name) and natural and node.target.id not in self.scope.variables:
            self.scope.natural.add(node.target.id)
        builder.store(builder.sub(builder.load(left), I64(1), flags=("nsw",)), left)
        builder.store(builder.add(builder.load(counter), step, flags=("nsw",) if kind is SIGNED else ()), counter)
        self.round(body, node.body, test, after)
        self.go(test)
        self.unroll_where_it_pays(body, test)
        self.builder.position_at_end(after)

    def unroll_where_it_pays(self, body: ir.Block, test: ir.Block) -> None:
        """Leave it to LLVM to unroll the loop from `body` to `test` where it computes with real numbers one by one.

        Other loops are equally fast, and take half as long to compile: those with lanes, those of integers alone, and
        those of procedures, which have short ones. `unrolled` is for exceptions.
        """
        if self.keeps_all:
            return
        blocks = self.made.blocks[self.made.blocks.index(body) :]
        made = {each.type for block in blocks for each in block.instructions}
        lanes = {kind for kind in made if isinstance(kind, ir.VectorType)}
        numbers = made | {kind.element for kind in lanes}
        real = bool(numbers & {ir.FloatType(), ir.DoubleType()})
        if self.alone or not real or any(kind.count > 1 for kind in lanes):
            ends = [block.terminator for block in blocks if block.is_terminated]
            keep_rolled(self.builder.module, [end for end in ends if test in end.operands], self.alone)
