"""Traced bodies as loops on lanes that write a record of each evaluation, or read one backwards.

A record has one entry per evaluation: rows of lanes, one behind the other. Both loops keep carried values in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.lanes.graph_loop import Body
from ensemble._compile.trace.graph import Graph

__all__ = ["reading_loop", "recording_loop"]


def recording_loop(graph: Graph, n_carried: int, n_rows: int, width: int, dtype: str) -> Any:
    """A function for Numba, ``run(rows, record, limit)``: evaluate until all lanes wait, at most `limit` times.

    `rows` points at the inputs of the graph, of which the first `n_carried` are carried. The outputs of the graph are
    the new carried values, a mask of lanes that wait, and the first of the `n_rows` rows of an entry of the record.
    Returns the evaluations made; the carried values are written to their rows.
    """
    body = _Recording(graph, width, dtype)

    @intrinsic
    def run(typingctx, rows, record, limit):
        def codegen(context, builder, signature, arguments):
            body.begin(context, builder, arguments[0])
            return body.run(n_carried, n_rows, *arguments[1:])

        return types.int64(rows, record, limit), codegen

    return run


def reading_loop(graph: Graph, n_carried: int, n_shared: int, width: int, dtype: str) -> Any:
    """A function for Numba, ``run(rows, record, count)``: evaluate for `count` entries of a record, the last one first.

    `rows` points at the first `n_carried` inputs of the graph, which are carried, and `n_shared` further ones; the
    other inputs are the rows of an entry. The outputs are the new carried values, written to their rows at the end.
    """
    body = _Reading(graph, width, dtype)

    @intrinsic
    def run(typingctx, rows, record, count):
        def codegen(context, builder, signature, arguments):
            body.open(context, builder, arguments[0], n_carried + n_shared)
            return body.run(n_carried, *arguments[1:])

        return types.int64(rows, record, count), codegen

    return run


class _Loop(Body):
    """What both loops share."""

    def entry(self, record: Any, number: Any, row: int, n_rows: int) -> Any:
        """Where a row of an entry lies."""
        integer, builder = ir.IntType(64), self.builder
        first = builder.mul(number, integer(n_rows * self.width))
        pointer = builder.gep(record, [builder.add(first, integer(row * self.width))])
        return builder.bitcast(pointer, self.vector.as_pointer())


class _Recording(_Loop):
    def run(self, n_carried: int, n_rows: int, record: Any, limit: Any) -> Any:
        builder, integer = self.builder, ir.IntType(64)
        before = builder.block
        head, end = builder.append_basic_block("evaluate"), builder.append_basic_block("write")
        builder.branch(head)
        builder.position_at_end(head)
        phis = [builder.phi(self.vector) for _ in range(n_carried)]
        count = builder.phi(integer)
        outputs = self.evaluate([*phis, *self.inputs[n_carried:]])
        new, waiting, rows = outputs[:n_carried], outputs[n_carried], outputs[n_carried + 1 :]
        for row, value in enumerate(rows):
            builder.store(value, self.entry(record, count, row, n_rows), align=64)
        made = builder.add(count, integer(1))
        enough = builder.icmp_signed(">=", self.counted(waiting), integer(self.width))
        last = builder.icmp_signed(">=", made, limit)
        builder.cbranch(builder.or_(enough, last), end, head)
        for phi, first, value in zip(phis, self.inputs, new, strict=False):
            phi.add_incoming(first, before)
            phi.add_incoming(value, builder.block)
        count.add_incoming(integer(0), before)
        count.add_incoming(made, builder.block)
        builder.position_at_end(end)
        for row, value in enumerate(new):
            self.store(row, value)
        return made


class _Reading(_Loop):
    def open(self, context: Any, builder: Any, rows: Any, count: int) -> None:
        """Load the inputs that do not come from the record."""
        self.functions: dict[Any, Any] = {}
        self.context, self.builder, self.rows = context, builder, rows
        self.inputs = [self.load(row) for row in range(count)]

    def run(self, n_carried: int, record: Any, count: Any) -> Any:
        builder, integer = self.builder, ir.IntType(64)
        before, n_rows = builder.block, self.graph.n_inputs - len(self.inputs)
        head, end = builder.append_basic_block("evaluate"), builder.append_basic_block("write")
        builder.cbranch(builder.icmp_signed(">", count, integer(0)), head, end)
        builder.position_at_end(head)
        phis = [builder.phi(self.vector) for _ in range(n_carried)]
        left = builder.phi(integer)
        number = builder.sub(left, integer(1))
        read = [builder.load(self.entry(record, number, row, n_rows), align=64) for row in range(n_rows)]
        new = self.evaluate([*phis, *self.inputs[n_carried:], *read])
        builder.cbranch(builder.icmp_signed(">", number, integer(0)), head, end)
        after = builder.block
        for phi, first, value in zip(phis, self.inputs, new, strict=False):
            phi.add_incoming(first, before)
            phi.add_incoming(value, after)
        left.add_incoming(count, before)
        left.add_incoming(number, after)
        builder.position_at_end(end)
        for row, (first, value) in enumerate(zip(self.inputs, new, strict=False)):
            found = builder.phi(self.vector)
            found.add_incoming(first, before)
            found.add_incoming(value, after)
            new[row] = found
        for row, value in enumerate(new):
            self.store(row, value)
        return count
