"""What translators from Python's syntax trees to LLVM share: blocks, slots of variables, branches."""

from __future__ import annotations

import abc
import ast
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

__all__ = ["Blocks"]


class Blocks(abc.ABC):
    """The blocks of the function `made`; ``run_<Statement>`` of a derived class translates a statement."""

    def __init__(self, made: ir.Function) -> None:
        self.made = made
        self.start = made.append_basic_block("variables")
        self.builder = ir.IRBuilder(made.append_basic_block("start"))

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

    @abc.abstractmethod
    def refused(self, node: ast.AST) -> Exception:
        """The error about something that is not in the language."""

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Translate statements, up to one that leaves their block."""
        for statement in statements:
            translate = getattr(self, f"run_{type(statement).__name__}", None)
            if translate is None:
                raise self.refused(statement)
            translate(statement)
            if self.builder.block.is_terminated:
                return

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
