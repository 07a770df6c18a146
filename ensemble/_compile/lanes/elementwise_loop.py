"""A traced body as a loop over elements of arrays, in LLVM's assembly.

The instructions of nodes are those of `graph_loop.py`. The loop over chunks, which calls these functions, is
`trace/elementwise.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ensemble._compile.lanes.graph_loop import BITS, ELEMENTS, Body
from ensemble._compile.machine_code import Assembly
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.operations import WEAK

__all__ = ["elementwise_loop", "width_of"]

MEMORY = {**ELEMENTS, "bool": "i8"}
"""Types of entries in memory."""


def item_size(dtype: str) -> int:
    """Bytes of an entry in memory."""
    return max(8, BITS[dtype]) // 8


def width_of(graph: Graph) -> int:
    """Numbers in a set of lanes: one cache line of the widest dtype."""
    return 64 // max(item_size(node.dtype) for node in graph.nodes if node.dtype not in WEAK)


def elementwise_loop(graph: Graph, arrays: Sequence[int], name: str) -> Assembly:
    """The C function ``int64 name(places, count, streamed, numbers)``: evaluate `graph` for `count` elements.

    `places` holds the address of the first element of each input of `arrays`, then of each output. The other parameters
    of the graph are numbers, each in eight bytes of `numbers`. With `streamed`, outputs but masks are written past the
    caches: their addresses must be multiples of the bytes of a set of lanes.
    """
    body = ElementwiseBody(graph, arrays)
    body.prepare_numbers()
    body.loop_over_elements()
    return body.function(name, "ptr %places, i64 %count, i64 %streamed, ptr %numbers")


class ElementwiseBody(Body):
    """The loop over whole sets of lanes, and the elements after the last."""

    def __init__(self, graph: Graph, arrays: Sequence[int]) -> None:
        super().__init__(graph, width_of(graph), "float64")
        self.arrays = list(arrays)
        self.loaded = [k for k, node in enumerate(graph.nodes) if node.operation == "input" and node.value in arrays]
        self.fixed: list[str] = []

    def function(self, name: str, parameters: str) -> Assembly:
        made = super().function(name, parameters)
        return made._replace(text=f"{made.text}\n\n!0 = !{{i32 1}}")

    # -- before the loop
    def prepare_numbers(self) -> None:
        """Load addresses and numbers, and evaluate the nodes that depend on numbers alone."""
        self.pointers = [
            self.add(f"load ptr, ptr {self.add(f'getelementptr i64, ptr %places, i64 {k}')}")
            for k in range(len(self.arrays) + len(self.graph.outputs))
        ]
        entering = {k: f"s{place}" for place, k in enumerate(self.graph.entering)}
        names = [name for name in self.graph.parameters if name not in {f"a{p}" for p in self.arrays}]
        for k, node in enumerate(self.graph.nodes):
            given = f"a{node.value}" if node.operation == "input" else entering.get(k)
            if given in names:
                self.values[k] = self.number(names.index(given), node.dtype)
            elif node.dtype not in WEAK and node.operation != "input" and all(self.values[i] for i in node.inputs):
                self.values[k] = self.result(node)
        self.fixed = list(self.values)

    def number(self, place: int, dtype: str) -> str:
        """A number in all lanes."""
        value = self.add(f"load {MEMORY[dtype]}, ptr {self.add(f'getelementptr i64, ptr %numbers, i64 {place}')}")
        if dtype == "bool":
            value = self.add(f"icmp ne i8 {value}, 0")
        return self.spread(ELEMENTS[dtype], value)

    # -- memory
    def memory_type(self, dtype: str) -> str:
        return f"<{self.width} x {MEMORY[dtype]}>"

    def element_place(self, pointer: str, dtype: str, index: str) -> str:
        return self.add(f"getelementptr {MEMORY[dtype]}, ptr {pointer}, i64 {index}")

    def lanes_of(self, read: str, dtype: str) -> str:
        """What was read, as it is held in registers: masks have one bit per lane."""
        if dtype != "bool":
            return read
        return self.add(f"icmp ne {self.memory_type(dtype)} {read}, zeroinitializer")

    def memory_of(self, value: str, dtype: str) -> str:
        if dtype != "bool":
            return value
        return self.add(f"zext {self.type_of(dtype)} {value} to {self.memory_type(dtype)}")

    def masked(self, name: str, dtype: str, returned: str, arguments: str) -> str:
        """A call of LLVM's masked access to lanes of one type."""
        entry = {"double": "f64", "float": "f32"}.get(MEMORY[dtype], MEMORY[dtype])
        function = f"@llvm.masked.{name}.v{self.width}{entry}.p0"
        kinds = {"load": "ptr, i32, {mask}, {lanes}", "store": "{lanes}, ptr, i32, {mask}"}[name]
        kinds = kinds.format(mask=self.type_of("bool"), lanes=self.memory_type(dtype))
        self.declared[function] = f"declare {returned} {function}({kinds})"
        return f"call {returned} {function}({arguments})"

    # -- the loop
    def elements(self, index: str, mask: str | None) -> list[str]:
        """The outputs of the elements from `index` on; where there is a mask, of its lanes."""
        self.values = list(self.fixed)
        for k in self.loaded:
            node = self.graph.nodes[k]
            dtype, size = node.dtype, item_size(node.dtype)
            kind = self.memory_type(dtype)
            place = self.element_place(self.pointers[self.arrays.index(node.value)], dtype, index)
            if mask is None:
                read = self.add(f"load {kind}, ptr {place}, align {size}")
            else:
                given = f"ptr {place}, i32 {size}, {self.type_of('bool')} {mask}, {kind} zeroinitializer"
                read = self.add(self.masked("load", dtype, kind, given))
            self.values[k] = self.lanes_of(read, dtype)
        for k, node in enumerate(self.graph.nodes):
            if not self.values[k] and node.dtype not in WEAK and node.operation != "input":
                self.values[k] = self.result(node)
        return [self.memory_of(self.values[k], self.graph.nodes[k].dtype) for k in self.graph.outputs]

    def write_elements(self, values: list[str], index: str, streamed: bool, mask: str | None = None) -> None:
        """Store the outputs of the elements from `index` on."""
        for k, (value, dtype) in enumerate(zip(values, self.graph.dtypes, strict=True)):
            place = self.element_place(self.pointers[len(self.arrays) + k], dtype, index)
            kind, size = self.memory_type(dtype), item_size(dtype)
            if mask is not None:
                given = f"{kind} {value}, ptr {place}, i32 {size}, {self.type_of('bool')} {mask}"
                self.lines.append("  " + self.masked("store", dtype, "void", given))
            elif streamed and dtype != "bool":
                whole = min(64, self.width * size)
                self.lines.append(f"  store {kind} {value}, ptr {place}, align {whole}, !nontemporal !0")
            else:
                self.lines.append(f"  store {kind} {value}, ptr {place}, align {size}")

    def loop_over_elements(self) -> None:
        """Whole sets of lanes, stored past the caches or not, then the elements that are left, under a mask."""
        whole = self.add(f"and i64 %count, -{self.width}")
        past = self.add("icmp ne i64 %streamed, 0")
        some = self.add(f"icmp sgt i64 {whole}, 0")
        self.lines += [f"  br i1 {some}, label %evaluate, label %rest", "evaluate:"]
        self.lines.append("  %index = phi i64 [0, %entry], [%next, %advance]")
        values = self.elements("%index", None)
        self.lines += [f"  br i1 {past}, label %stream, label %plain", "stream:"]
        self.write_elements(values, "%index", True)
        self.lines += ["  br label %advance", "plain:"]
        self.write_elements(values, "%index", False)
        self.lines += ["  br label %advance", "advance:", f"  %next = add i64 %index, {self.width}"]
        more = self.add(f"icmp slt i64 %next, {whole}")
        self.lines += [f"  br i1 {more}, label %evaluate, label %rest", "rest:"]
        count = self.add(f"sub i64 %count, {whole}")
        left = self.add(f"icmp sgt i64 {count}, 0")
        self.lines += [f"  br i1 {left}, label %last, label %done", "last:"]
        lanes = f"<{self.width} x i64>"
        order = f"<{', '.join(f'i64 {k}' for k in range(self.width))}>"
        mask = self.add(f"icmp slt {lanes} {order}, {self.spread('i64', count)}")
        self.write_elements(self.elements(whole, mask), whole, False, mask)
        self.lines += ["  br label %done", "done:", "  ret i64 0"]
