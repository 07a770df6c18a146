"""Traced bodies as loops on lanes that write a record of each evaluation, or read one backwards.

A record has one entry per evaluation: rows of lanes, one behind the other. Both loops keep carried values in registers.
"""

from __future__ import annotations

from ensemble._compile.lanes.graph_loop import Body
from ensemble._compile.machine_code import Assembly
from ensemble._compile.trace.graph import Graph

__all__ = ["reading_loop", "recording_loop"]


def recording_loop(graph: Graph, name: str, n_carried: int, n_rows: int, width: int, dtype: str) -> Assembly:
    """The C function ``int64 name(rows, record, int64 limit)``: evaluate until all lanes wait, at most `limit` times.

    `rows` points at the inputs of the graph, of which the first `n_carried` are carried. The outputs of the graph are
    the new carried values, a mask of lanes that wait, and the first of the `n_rows` rows of an entry of the record.
    Returns the evaluations made; the carried values are written to their rows.
    """
    body = _Loop(graph, width, dtype)
    body.begin()
    carried = body.enter(n_carried)
    outputs = body.evaluate([*carried, *body.inputs[n_carried:]])
    new, waiting = outputs[:n_carried], outputs[n_carried]
    for row, value in enumerate(outputs[n_carried + 1 :]):
        body.store(body.entry("%count", row, n_rows), value, graph.dtypes[n_carried + 1 + row])
    body.repeat(new, [waiting], [], str(width))
    for row, value in enumerate(new):
        body.store(body.place(row), value, dtype)
    body.lines.append("  ret i64 %made")
    return body.function(name, "ptr %rows, ptr %record, i64 %limit")


def reading_loop(graph: Graph, name: str, n_carried: int, n_shared: int, width: int, dtype: str) -> Assembly:
    """The C function ``int64 name(rows, record, int64 count)``: evaluate for `count` entries, the last one first.

    `rows` points at the first `n_carried` inputs of the graph, which are carried, and `n_shared` further ones; the
    other inputs are the rows of an entry. The outputs are the new carried values, written to their rows at the end.
    """
    body = _Loop(graph, width, dtype)
    body.begin(n_carried + n_shared)
    body.prepare(n_carried)
    n_rows, lines = graph.n_inputs - len(body.inputs), body.lines
    some = body.add("icmp sgt i64 %count, 0")
    lines += [f"  br i1 {some}, label %evaluate, label %write", "evaluate:"]
    head = len(lines)
    number = body.add("sub i64 %left, 1")
    read = [body.load(body.entry(number, row, n_rows)) for row in range(n_rows)]
    new = body.evaluate([*(f"%c{k}" for k in range(n_carried)), *body.inputs[n_carried:], *read])
    more = body.add(f"icmp sgt i64 {number}, 0")
    lines += [f"  br i1 {more}, label %evaluate, label %write", "write:"]
    firsts = body.inputs[:n_carried]
    pairs = [f"phi {body.vector} [{a}, %entry], [{b}, %evaluate]" for a, b in zip(firsts, new, strict=True)]
    phis = [f"  %c{k} = {pair}" for k, pair in enumerate(pairs)]
    lines[head:head] = [*phis, f"  %left = phi i64 [%count, %entry], [{number}, %evaluate]"]
    for row, value in enumerate([body.add(pair) for pair in pairs]):
        body.store(body.place(row), value, dtype)
    lines.append("  ret i64 %count")
    return body.function(name, "ptr %rows, ptr %record, i64 %count")


class _Loop(Body):
    """What both loops share."""

    def entry(self, number: str, row: int, n_rows: int) -> str:
        """Where a row of an entry of the record lies."""
        first = self.add(f"mul i64 {number}, {n_rows * self.width}")
        place = self.add(f"add i64 {first}, {row * self.width}")
        return self.add(f"getelementptr {self.element}, ptr %record, i64 {place}")
