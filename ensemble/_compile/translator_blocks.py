"""What the translators of two languages to LLVM share: blocks, slots of variables, statements that steer, operators.

`plain_code.py` declares the types of arguments and has flat arrays; `loops/` takes types from the arguments and has
lanes, tuples and functions of Numba. What a value is differs, and with it the expressions. Statements that lead from
block to block are the same.
"""

from __future__ import annotations

import abc
import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

__all__ = ["OPERATORS", "Blocks"]

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.USub: operator.neg, ast.Invert: operator.invert, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
"""What an operator of the syntax is of constants; of other values, the tables of `instructions.py` have it."""


class Blocks(abc.ABC):
    """The blocks of the function `made`.

    ``run_<Statement>`` translates a statement, ``value_<Expression>`` of a derived class an expression.
    """

    def __init__(self, made: ir.Function) -> None:
        self.made = made
        self.start = made.append_basic_block("variables")
        self.builder = ir.IRBuilder(made.append_basic_block("start"))
        self.loops: list[tuple[ir.Block, ir.Block]] = []
        """Where ``continue`` and ``break`` lead in the open loops."""

    def slot(self, kind: Any, *count: Any) -> Any:
        """Memory for a variable, which LLVM turns into a register, or for `count` numbers."""
        return ir.IRBuilder(self.start).alloca(kind, *count)

    def block(self, name: str) -> ir.Block:
        """A new block."""
        return self.made.append_basic_block(name)

    def go(self, block: ir.Block) -> None:
        """Continue in a block where the present one does not lead elsewhere."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def go_back(self, test: ir.Block) -> None:
        """Begin the next round of a loop."""
        self.go(test)

    def phi(self, ends: Sequence[tuple[Any, ir.Block]]) -> Any:
        """The value of whichever block was left."""
        made = self.builder.phi(ends[0][0].type)
        for value, block in ends:
            made.add_incoming(value, block)
        return made

    @abc.abstractmethod
    def refused(self, node: ast.AST, why: str = "") -> Exception:
        """The error about something that is not in the language."""

    @abc.abstractmethod
    def holds(self, test: ast.expr) -> Any:
        """The bit of a condition."""

    # --- expressions
    def value(self, node: ast.expr) -> Any:
        """Translate an expression."""
        translate = getattr(self, f"value_{type(node).__name__}", None)
        if translate is None:
            raise self.refused(node)
        return translate(node)

    @abc.abstractmethod
    def arithmetic(self, node: ast.AST, operation: ast.operator, a: Any, b: Any) -> Any:
        """Translate an operator on two values."""

    def value_BinOp(self, node: ast.BinOp) -> Any:
        if isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value == 2:
            value = self.value(node.left)
            return self.arithmetic(node, ast.Mult(), value, value)
        return self.arithmetic(node, node.op, self.value(node.left), self.value(node.right))

    def value_Call(self, node: ast.Call) -> Any:
        return self.call(node)

    @abc.abstractmethod
    def call(self, node: ast.Call) -> Any:
        """Translate a call."""

    def chosen(self, condition: Any, node: ast.IfExp) -> tuple[list[Any], list[ir.Block]]:
        """The values of the two parts of a conditional expression, and the blocks that lead from them to this one."""
        blocks, after = (self.block("then"), self.block("other")), self.block("after")
        self.builder.cbranch(condition, *blocks)
        values, ends = [], []
        for block, part in zip(blocks, (node.body, node.orelse), strict=True):
            self.builder.position_at_end(block)
            values.append(self.value(part))
            ends.append(self.builder.block)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        return values, ends

    # --- statements
    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Translate statements, up to one that leaves their block."""
        for statement in statements:
            translate = getattr(self, f"run_{type(statement).__name__}", None)
            if translate is None:
                raise self.refused(statement)
            translate(statement)
            if self.builder.block.is_terminated:
                return

    @abc.abstractmethod
    def assign(self, name: str, value: Any) -> None:
        """Give a name a value."""

    @abc.abstractmethod
    def set_entry(self, target: ast.expr, value: Any) -> None:
        """Write a value to memory."""

    @abc.abstractmethod
    def parts_of(self, target: ast.Tuple, value: Any) -> Sequence[Any]:
        """The values of one that is assigned to several targets."""

    def run_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value)

    def store(self, target: ast.expr, value: Any) -> None:
        """Give what stands on the left of an assignment its value."""
        if isinstance(target, ast.Tuple):
            for part, each in zip(target.elts, self.parts_of(target, value), strict=True):
                self.store(part, each)
        elif isinstance(target, ast.Name):
            self.assign(target.id, value)
        else:
            self.set_entry(target, value)

    def branches(self, condition: Any, node: ast.If) -> None:
        """The two branches of an ``if``."""
        then, after = self.block("then"), self.block("after")
        other = self.block("other") if node.orelse else after
        self.builder.cbranch(condition, then, other)
        for block, statements in ((then, node.body), (other, node.orelse)):
            if block is not after:
                self.builder.position_at_end(block)
                self.run(statements)
                self.go(after)
        self.builder.position_at_end(after)

    def run_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def run_Pass(self, node: ast.Pass) -> None:  # noqa: B027
        """Nothing."""

    def run_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self.refused(node)
        test, body, after = self.block("test"), self.block("body"), self.block("after")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        self.builder.cbranch(self.holds(node.test), body, after)
        self.round(body, node.body, test, after)
        self.go_back(test)
        self.builder.position_at_end(after)

    def round(self, body: ir.Block, statements: Sequence[ast.stmt], more: ir.Block, after: ir.Block) -> None:
        """The statements of a loop, in the block `body`."""
        self.builder.position_at_end(body)
        self.loops.append((more, after))
        self.run(statements)
        self.loops.pop()

    def run_Break(self, node: ast.Break) -> None:
        self.builder.branch(self.loops[-1][1])

    def run_Continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.loops[-1][0])
