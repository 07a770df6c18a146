"""A traced body as a loop on lanes, in LLVM's assembly: values stay in registers from one evaluation to the next.

Numba would infer the type of every line of a body, and objects that stand for instructions take as long to build and
print as their translation. Here each node of a graph becomes a line or two of text. Functions of the mathematical
library are those of `functions.py` and `circular.py` (`library.py`).
"""

from __future__ import annotations

import struct
from typing import Any

from ensemble._compile.instructions import ARITHMETIC, COMPARISONS, CONDITIONS, INTRINSICS, conversion
from ensemble._compile.lanes.carried_values import is_input, repeated
from ensemble._compile.lanes.interleaving import interleaved
from ensemble._compile.lanes.library import LaneFunction
from ensemble._compile.machine_code import Assembly
from ensemble._compile.processor import STACK_ALIGNMENT, register_bytes
from ensemble._compile.trace.graph import Graph, Node, seldom_read
from ensemble._compile.trace.operations import OPERATIONS

__all__ = ["Body", "copies_of", "graph_loop"]

ELEMENTS = {"float64": "double", "float32": "float", "int64": "i64", "int32": "i32", "bool": "i1"}
BITS = {"float64": 64, "float32": 32, "int64": 64, "int32": 32, "bool": 1}

DIRECT = {name: ARITHMETIC[OPERATIONS[name].host] for name in ("add", "subtract", "multiply", "divide")}
"""The instruction of an operation of the tracer on real numbers, and on integers."""
COMPARED = {
    name: CONDITIONS[COMPARISONS[OPERATIONS[name].host]]
    for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
}
LOGICAL = {f"{kind}_{name}": name for kind in ("logical", "bitwise") for name in ("and", "or", "xor")}
INTRINSIC = ("fma", "sqrt", "floor", "ceil", "trunc", "round", "abs", "copysign")
"""Operations of real numbers that are one intrinsic function of LLVM."""
OTHERS = ("constant", "input", "negative", "square", "reciprocal", "positive", "bits", "maximum", "minimum", "isnan",
          "isfinite", "isinf", "cast", "where", "from_bits", "high_word", "logical_not", "bitwise_invert")  # fmt: skip
INSTRUCTIONS = frozenset([*DIRECT, *COMPARED, *LOGICAL, *INTRINSIC, *OTHERS])
"""Operations of real numbers and masks that call no function of lanes."""


def graph_loop(
    graph: Graph, name: str, n_carried: int, width: int, dtype: str, parts: tuple[int, ...] = ()
) -> Assembly:
    """The C function ``int64 name(rows, int64 threshold, int64 limit)``: evaluate until enough lanes have ended.

    `rows` points at rows of `width` numbers: first the inputs of the graph in their order, of which the first
    `n_carried` are carried, then what is written at the end. The outputs of the graph are the new carried values, a
    mask of lanes that end the loop at once, a mask of lanes that end it when `threshold` of them do, and further
    values, which are written to the rows behind the inputs as they were in the last evaluation. Inputs beyond the
    carried ones are constant. Without carried inputs the body is evaluated once, and all outputs are written to the
    rows behind the inputs. At most `limit` evaluations are made; the number made is returned.

    What no later evaluation reads is computed behind the loop, and what does not change before it. Nodes from each of
    `parts` on are a block of instructions, where a value is one register.
    """
    count = copies_of(graph, width, dtype) if n_carried else 1
    body = Body(interleaved(graph, count), width // count, dtype)
    body.parts = frozenset(parts if count == 1 else ())
    body.begin()
    if n_carried:
        body.loop(n_carried * count, count)
    else:
        body.once()
    return body.function(name, "ptr %rows, i64 %threshold, i64 %limit")


def copies_of(graph: Graph, width: int, dtype: str) -> int:
    """How many copies of a body, a register of lanes each, are interleaved.

    Functions of lanes take all registers at once: their own instructions alternate.
    """
    calls = any(node.operation not in INSTRUCTIONS for node in graph.nodes)
    return 1 if calls else max(1, width * BITS[dtype] // 8 // register_bytes())


class Body:
    """The instructions of one graph, as lines of text. A value is a register, or the text of a constant."""

    def __init__(self, graph: Graph, width: int, dtype: str) -> None:
        self.graph, self.width, self.dtype = graph, width, dtype
        self.vector, self.element = self.type_of(dtype), ELEMENTS[dtype]
        self.lines: list[str] = []
        self.values: list[str] = [""] * len(graph.nodes)
        self.declared: dict[str, str] = {}
        self.called: dict[LaneFunction, None] = {}
        self.n_registers = 0
        self.parts: frozenset[int] = frozenset()
        self.n_blocks, self.n_branches, self.block = 0, 0, ""
        self.seldom = seldom_read(graph)
        self.hidden = frozenset(i for nodes in self.seldom.values() for i in nodes)

    def type_of(self, dtype: str) -> str:
        return f"<{self.width} x {ELEMENTS[dtype]}>"

    def add(self, text: str) -> str:
        """One more instruction; its result."""
        self.n_registers += 1
        register = f"%r{self.n_registers}"
        self.lines.append(f"  {register} = {text}")
        return register

    def function(self, name: str, parameters: str) -> Assembly:
        """All lines as a function of this name."""
        first = f"define i64 @{name}({parameters}) alignstack({STACK_ALIGNMENT}) {{"
        text = "\n".join([first, "entry:", *self.lines, "}"])
        return Assembly(text, tuple(self.declared.values()), tuple(self.called), self.n_blocks > 0)

    # -- rows
    def place(self, row: int) -> str:
        return self.add(f"getelementptr {self.element}, ptr %rows, i64 {row * self.width}")

    def load(self, place: str) -> str:
        return self.add(f"load {self.vector}, ptr {place}, align 64")

    def store(self, place: str, value: str, dtype: str) -> None:
        if dtype == "bool":
            value = self.add(f"uitofp {self.type_of(dtype)} {value} to {self.vector}")
        elif dtype != self.dtype:
            raise TypeError(f"graph_loop: stored values must be {self.dtype} or bool.")
        self.lines.append(f"  store {self.vector} {value}, ptr {place}, align 64")

    # -- the loop
    def begin(self, count: int | None = None) -> None:
        """Load the first `count` inputs, by default all."""
        count = self.graph.n_inputs if count is None else count
        self.inputs = [self.load(self.place(row)) for row in range(count)]

    def prepare(self, n_carried: int) -> None:
        """Evaluate the nodes that depend on constant inputs alone, before the loop."""
        nodes, outputs = self.graph.nodes, self.graph.outputs
        constant = {k for k, output in enumerate(outputs[:n_carried]) if is_input(nodes[output], k)}
        constant |= set(range(n_carried, len(self.inputs)))
        for k, node in enumerate(nodes):
            fixed = node.value in constant if node.operation == "input" else all(self.values[i] for i in node.inputs)
            if fixed:
                self.values[k] = self.inputs[node.value] if node.operation == "input" else self.result(node)

    def evaluate(self, inputs: list[str], chosen: set[int] | None = None) -> list[str]:
        """The outputs; nodes that have a value keep it. Nodes not in `chosen` get none."""
        values, begins = self.values, False
        for k, node in enumerate(self.graph.nodes):
            begins = begins or k in self.parts
            if not values[k] and k not in self.hidden and (chosen is None or k in chosen):
                if begins and chosen is not None:
                    self.n_blocks += 1
                    self.go_on(f"part{self.n_blocks}")
                begins = False
                values[k] = inputs[node.value] if node.operation == "input" else self.chosen(k)
        return [values[k] for k in self.graph.outputs]

    def go_on(self, block: str) -> None:
        """End a block of instructions and begin one of this name."""
        self.lines += [f"  br label %{block}", f"{block}:"]
        self.block = block

    def chosen(self, k: int) -> str:
        """The value of node k; of one whose condition seldom holds, by a branch that a lane takes where it does."""
        node, own = self.graph.nodes[k], self.seldom.get(k)
        if not own:
            return self.result(node)
        self.n_branches += 1
        name = f"seldom{self.n_branches}"
        self.go_on(name)
        mask, second = self.values[node.inputs[0]], self.values[node.inputs[2]]
        some = self.add(f"icmp ne {self.packed([mask])}, 0")
        self.lines += [f"  br i1 {some}, label %{name}.own, label %{name}.end", f"{name}.own:"]
        self.block = f"{name}.own"
        inner = {i for place in own for i in self.seldom.get(place, ())}
        for place in own:
            if not self.values[place] and place not in inner:
                self.values[place] = self.chosen(place)
        taken, last = self.selected(node.dtype, mask, self.values[node.inputs[1]], second), self.block
        self.go_on(f"{name}.end")
        return self.add(f"phi {self.type_of(node.dtype)} [{taken}, %{last}], [{second}, %{name}]")

    def write(self, values: list[str], first: int) -> None:
        """Store outputs, of which `first` is the number of the first, behind the inputs."""
        for k, value in enumerate(values):
            self.store(self.place(self.graph.n_inputs + k), value, self.graph.dtypes[first + k])

    def once(self) -> None:
        self.write(self.evaluate(self.inputs), 0)
        self.lines.append("  ret i64 1")

    def enter(self, n_carried: int) -> list[str]:
        """Begin the block that is repeated; the registers of what is carried, and of the evaluations made."""
        self.prepare(n_carried)
        self.lines += ["  br label %evaluate", "evaluate:"]
        self.head = len(self.lines)
        return [f"%c{k}" for k in range(n_carried)]

    def repeat(self, new: list[str], waiting: list[str], others: list[str], threshold: str) -> None:
        """End the block where `threshold` lanes of the masks `waiting` wait, or one of the conditions `others` holds.

        Carried values whose new value in `new` is empty do not change in the loop.
        """
        made = "%made"
        self.lines.append("  %made = add i64 %count, 1")
        total = self.width * len(waiting)
        bits = self.add(f"call i{total} {self.intrinsic('ctpop', f'i{total}', 1)}({self.packed(waiting)})")
        waits = self.add(f"zext i{total} {bits} to i64") if total < 64 else bits
        ends = self.add(f"icmp sge i64 {waits}, {threshold}")
        for other in [*others, self.add(f"icmp sge i64 {made}, %limit")]:
            ends = self.add(f"or i1 {ends}, {other}")
        self.lines += [f"  br i1 {ends}, label %write, label %evaluate", "write:"]
        last = f"%{self.block or 'evaluate'}"
        phis = [
            f"  %c{k} = phi {self.vector} [{self.inputs[k]}, %entry], [{value}, {last}]"
            for k, value in enumerate(new)
            if value
        ]
        self.lines[self.head : self.head] = [*phis, f"  %count = phi i64 [0, %entry], [{made}, {last}]"]

    def loop(self, n_carried: int, n_masks: int = 1) -> None:
        """The whole loop; `n_masks` masks stand for each of the two of `graph_loop`."""
        carried = self.enter(n_carried)
        first = n_carried + 2 * n_masks
        changing, counters, within = repeated(self.graph, n_carried, first)
        given = [*carried, *self.inputs[n_carried:]]
        outputs = self.evaluate(given, within)
        new = [value if k in changing else "" for k, value in enumerate(outputs[:n_carried])]
        at_once, waiting = outputs[n_carried : n_carried + n_masks], outputs[n_carried + n_masks : first]
        self.repeat(new, waiting, [self.add(f"icmp ne {self.packed(at_once)}, 0")], "%threshold")
        for k in counters:
            given[k] = self.counted(self.inputs[k])
        outputs = self.evaluate(given)
        for row, value in enumerate(outputs[:n_carried]):
            self.store(self.place(row), value, self.dtype)
        self.write(outputs[first:], first)
        self.lines.append("  ret i64 %made")

    def counted(self, first: str) -> str:
        """`first` and one for each evaluation before the last."""
        number = self.add(f"sitofp i64 %count to {self.element}")
        return self.add(f"fadd {self.vector} {first}, {self.spread(self.element, number)}")

    def spread(self, element: str, value: str) -> str:
        """A number in all lanes."""
        kind = f"<{self.width} x {element}>"
        one = self.add(f"insertelement {kind} poison, {element} {value}, i64 0")
        return self.add(f"shufflevector {kind} {one}, {kind} poison, <{self.width} x i32> zeroinitializer")

    def packed(self, masks: list[str]) -> str:
        """The lanes of masks as the bits of an integer, as an operand."""
        kind, total = f"i{self.width}", f"i{self.width * len(masks)}"
        bits = ""
        for number, mask in enumerate(masks):
            more = self.add(f"bitcast {self.type_of('bool')} {mask} to {kind}")
            if len(masks) > 1:
                more = self.add(f"zext {kind} {more} to {total}")
            if number:
                more = self.add(f"shl {total} {more}, {number * self.width}")
            bits = self.add(f"or {total} {bits}, {more}") if bits else more
        return f"{total} {bits}"

    # -- nodes
    def result(self, node: Node) -> str:
        """The value of a node whose operands are known."""
        name, dtype = node.operation, node.dtype
        if name == "constant":
            return self.constant(dtype, node.value)
        operands = [self.values[k] for k in node.inputs]
        kinds = [self.graph.nodes[k].dtype for k in node.inputs]
        kind = self.type_of(kinds[-1])
        if kinds[-1].startswith("float"):
            direct = self.of_reals(node, operands, kind)
            if direct is not None:
                return direct
        else:
            direct = self.of_integers(name, operands, kinds[-1])
            if direct is not None:
                return direct
        if name == "cast":
            return self.converted(operands[0], kinds[0], dtype)
        if name == "where":
            return self.selected(dtype, *operands)
        if name == "from_bits":
            return self.add(f"bitcast {kind} {operands[0]} to {self.type_of(dtype)}")
        if name == "high_word":
            return self.add(f"lshr {kind} {operands[0]}, {self.constant(dtype, 32)}")
        if name in LOGICAL:
            return self.add(f"{LOGICAL[name]} {kind} {', '.join(operands)}")
        if name in ("logical_not", "bitwise_invert"):
            every = self.constant(dtype, True if dtype == "bool" else -1)
            return self.add(f"xor {kind} {operands[0]}, {every}")
        return self.function_of_lanes(node, operands, kinds)

    def of_reals(self, node: Node, operands: list[str], kind: str) -> str | None:
        """An operation on real numbers that is a few instructions; None for the others."""
        name, first = node.operation, operands[0]
        if name in DIRECT:
            return self.add(f"{DIRECT[name][0]} {kind} {', '.join(operands)}")
        if name in INTRINSIC:
            return self.of_intrinsic(name, operands, kind)
        if name in COMPARED:
            ordered = "u" if name == "not_equal" else "o"  # NaN is unequal to all numbers
            return self.add(f"fcmp {ordered}{COMPARED[name]} {kind} {', '.join(operands)}")
        if name == "negative":
            return self.add(f"fneg {kind} {first}")
        if name == "square":
            return self.add(f"fmul {kind} {first}, {first}")
        if name == "reciprocal":
            return self.add(f"fdiv {kind} {self.constant(node.dtype, 1.0)}, {first}")
        if name == "positive":
            return first
        if name == "bits":
            return self.add(f"bitcast {kind} {first} to {self.type_of(node.dtype)}")
        if name in ("maximum", "minimum"):  # NumPy's rule: NaN where one operand is NaN
            beyond = self.add(f"fcmp {'ogt' if name == 'maximum' else 'olt'} {kind} {', '.join(operands)}")
            unordered = self.add(f"fcmp uno {kind} {first}, {first}")
            chosen = self.add(f"or {self.type_of('bool')} {beyond}, {unordered}")
            return self.selected(node.dtype, chosen, *operands)
        if name == "isnan":
            return self.add(f"fcmp uno {kind} {first}, {first}")
        if name in ("isfinite", "isinf"):
            kinds = self.graph.nodes[node.inputs[0]].dtype
            size = self.of_intrinsic("abs", operands, kind)
            compare = "olt" if name == "isfinite" else "oeq"
            return self.add(f"fcmp {compare} {kind} {size}, {self.constant(kinds, float('inf'))}")
        return None

    def of_integers(self, name: str, operands: list[str], dtype: str) -> str | None:
        """An operation on integers or masks that is an instruction; None for the others."""
        kind, given = self.type_of(dtype), ", ".join(operands)
        if DIRECT.get(name, (None, None))[1]:
            return self.add(f"{DIRECT[name][1]} {kind} {given}")
        if name in COMPARED:
            sign = "" if name in ("equal", "not_equal") else "u" if dtype == "bool" else "s"
            return self.add(f"icmp {sign}{COMPARED[name]} {kind} {given}")
        if dtype == "bool":
            return None
        if name == "square":
            return self.add(f"mul {kind} {operands[0]}, {operands[0]}")
        if name == "negative":
            return self.add(f"sub {kind} zeroinitializer, {operands[0]}")
        if name in ("maximum", "minimum"):
            beyond = self.add(f"icmp {'sgt' if name == 'maximum' else 'slt'} {kind} {given}")
            return self.selected(dtype, beyond, *operands)
        return None

    def selected(self, dtype: str, mask: str, a: str, b: str) -> str:
        kind = self.type_of(dtype)
        return self.add(f"select {self.type_of('bool')} {mask}, {kind} {a}, {kind} {b}")

    def of_intrinsic(self, name: str, operands: list[str], kind: str) -> str:
        function = self.intrinsic(INTRINSICS[name], kind, len(operands))
        return self.add(f"call {kind} {function}({', '.join(f'{kind} {value}' for value in operands)})")

    def intrinsic(self, name: str, kind: str, n_operands: int) -> str:
        """Declare LLVM's intrinsic function of this name for operands of type `kind`; return its name there."""
        count, _, element = kind.strip("<>").rpartition(" x ")
        suffix = {"double": "f64", "float": "f32"}.get(element, element)
        function = f"@llvm.{name}.{f'v{count}' if count else ''}{suffix}"
        self.declared[function] = f"declare {kind} {function}({', '.join([kind] * n_operands)})"
        return function

    def converted(self, value: str, source: str, target: str) -> str:
        """A conversion by the processor's rules."""
        if source == target:
            return value
        kind = self.type_of(source)
        if target == "bool":
            unequal = "fcmp une" if source.startswith("float") else "icmp ne"
            return self.add(f"{unequal} {kind} {value}, zeroinitializer")
        return self.add(f"{conversion(source, target)} {kind} {value} to {self.type_of(target)}")

    def constant(self, dtype: str, value: Any) -> str:
        if dtype.startswith("float"):
            if dtype == "float32":
                value = struct.unpack("f", struct.pack("f", value))[0]
            text = f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
        else:
            text = str(int(value)) if dtype != "bool" else str(bool(value)).lower()
        return f"<{', '.join([f'{ELEMENTS[dtype]} {text}'] * self.width)}>"

    def function_of_lanes(self, node: Node, operands: list[str], kinds: list[str]) -> str:
        """An operation whose lanes have a function of their own."""
        function = LaneFunction(node.operation, tuple(kinds), node.dtype, self.width, node.value)
        self.called[function] = None
        types = ", ".join(map(self.type_of, kinds))
        self.declared[function.name] = f"declare {self.type_of(node.dtype)} @{function.name}({types})"
        given = ", ".join(f"{self.type_of(kind)} {value}" for kind, value in zip(kinds, operands, strict=True))
        return self.add(f"call {self.type_of(node.dtype)} @{function.name}({given})")
