"""A traced body as a function of registers, in LLVM's assembly: functions of `plain_code` call it."""

from __future__ import annotations

from typing import Any

from ensemble._compile.lanes.graph_loop import Body
from ensemble._compile.machine_code import Assembly
from ensemble._compile.plain_language import Function
from ensemble._compile.plain_translation import Group
from ensemble._compile.trace.graph import Graph

__all__ = ["GraphFunction"]


class GraphFunction(Function):
    """`graph`, whose parameters and outputs are float64, on `width` lanes; `assembly` is linked to the callers."""

    def __init__(self, graph: Graph, name: str, width: int) -> None:
        super().__init__(name, [(each, "Register") for each in graph.parameters], ["Register"] * len(graph.outputs))
        self.graph, self.width = graph, width

    def write(self, group: Group, made: Any) -> None:
        """Nothing: the function stands in another module."""
        made.linkage = ""
        made.attributes.discard("noinline")

    def assembly(self) -> Assembly:
        """The function, inlined where it is called."""
        body = Body(self.graph, self.width, "float64")
        values = body.evaluate([f"%a{k}" for k in range(self.graph.n_inputs)])
        kind = body.vector
        if len(values) > 1:
            returned = f"{{{', '.join([kind] * len(values))}}}"
            result = "undef"
            for k, value in enumerate(values):
                result = body.add(f"insertvalue {returned} {result}, {kind} {value}, {k}")
        else:
            returned, result = kind, values[0]
        parameters = ", ".join(f"{kind} %{each}" for each in self.graph.parameters)
        text = [f"define {returned} @{self.name}({parameters}) alwaysinline {{", "entry:", *body.lines]
        text += [f"  ret {returned} {result}", "}"]
        return Assembly("\n".join(text), tuple(body.declared.values()), tuple(body.called))
