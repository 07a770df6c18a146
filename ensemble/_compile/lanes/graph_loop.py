"""A traced body as a loop on lanes, written to LLVM: values stay in registers from one evaluation to the next.

Numba would infer the type of every line of a body, which takes seconds for a long one. Here the nodes of its graph
become instructions directly; functions of the mathematical library are those of `functions.py` and `circular.py`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir.instructions import CallInstr
from numba import types
from numba.extending import intrinsic

from ensemble._compile.lanes import arithmetic, circular, functions, quotients
from ensemble._compile.lanes import tables as _tables
from ensemble._compile.lanes import types as _types
from ensemble._compile.lanes.arithmetic import instruction
from ensemble._compile.lanes.types import Lanes
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.operations import OPERATIONS, Table

__all__ = ["Body", "described", "graph_loop", "graph_of"]

MOST_INLINED = 48
"""Functions of the mathematical library that a body may have inlined: compilers take seconds for hundreds of them."""

REALS = {"float64": types.float64, "float32": types.float32}
KINDS: dict[str, Any] = {**REALS, "int64": types.int64, "int32": types.int32, "bool": types.boolean}

DIRECT = {"add": ("fadd", "add"), "subtract": ("fsub", "sub"), "multiply": ("fmul", "mul"), "divide": ("fdiv", None)}
COMPARED = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!="}
LOGICAL = {
    f"{kind}_{name}": method
    for kind in ("logical", "bitwise")
    for name, method in (("and", "and_"), ("or", "or_"), ("xor", "xor"))
}


def described(graph: Graph) -> str:
    """Python source of the nodes and outputs of a graph; `graph_of` is the inverse."""
    nodes = []
    for node in graph.nodes:
        value = node.value
        if isinstance(value, Table):
            value = ("table", value.points.tolist(), value.values.tolist())
        nodes.append((node.operation, node.inputs, node.dtype, value))
    lines = ",\n    ".join(map(repr, nodes))
    return f"({graph.n_inputs}, {graph.outputs!r}, (\n    {lines},\n))"


def graph_of(description: Any) -> Graph:
    """The graph that `described` wrote."""
    n_inputs, outputs, lines = description
    nodes = []
    for operation, inputs, dtype, value in lines:
        if operation == "interp":
            value = Table(np.array(value[1]), np.array(value[2]))
        nodes.append(Node(operation, inputs, dtype, value))
    return Graph(tuple(nodes), n_inputs, outputs, tuple(range(len(outputs))))


def graph_loop(graph: Graph, n_carried: int, width: int, dtype: str) -> Any:
    """A function for Numba, ``run(rows, threshold, limit)``: evaluate the body until enough lanes ask to stop.

    `rows` points at rows of `width` numbers: first the inputs of the graph in their order, of which the first
    `n_carried` are carried, then what is written at the end. The outputs of the graph are the new carried values, a
    mask of lanes that end the loop at once, a mask of lanes that end it when `threshold` of them do, and further
    values, which are written to the rows behind the inputs as they were in the last evaluation. Inputs beyond the
    carried ones are constant. Without carried inputs the body is evaluated once, and all outputs are written to the
    rows behind the inputs. At most `limit` evaluations are made; the number made is returned.
    """
    body = Body(graph, width, dtype)

    @intrinsic
    def run(typingctx, rows, threshold, limit):
        def codegen(context, builder, signature, arguments):
            body.begin(context, builder, arguments[0])
            return body.loop(n_carried, *arguments[1:]) if n_carried else body.once()

        return types.int64(rows, threshold, limit), codegen

    return run


class Body:
    """The instructions of one graph."""

    def __init__(self, graph: Graph, width: int, dtype: str) -> None:
        self.graph, self.width, self.dtype = graph, width, dtype
        self.real = ir.DoubleType() if dtype == "float64" else ir.FloatType()
        self.vector = ir.VectorType(self.real, width)
        self.values: dict[int, Any] = {}
        self.n_calls = sum(OPERATIONS[node.operation].libm for node in graph.nodes if node.operation in OPERATIONS)

    # -- rows
    def place(self, row: int) -> Any:
        pointer = self.builder.gep(self.rows, [ir.IntType(64)(row * self.width)])
        return self.builder.bitcast(pointer, self.vector.as_pointer())

    def load(self, row: int) -> Any:
        return self.builder.load(self.place(row), align=64)

    def store(self, row: int, value: Any) -> None:
        if value.type.element == ir.IntType(1):
            value = self.builder.uitofp(value, self.vector)
        elif value.type != self.vector:
            raise TypeError(f"graph_loop: stored values must be {self.dtype} or bool.")
        self.builder.store(value, self.place(row), align=64)

    # -- the loop
    def begin(self, context: Any, builder: Any, rows: Any) -> None:
        """Load all inputs."""
        self.functions: dict[Any, Any] = {}
        self.context, self.builder, self.rows = context, builder, rows
        self.inputs = [self.load(row) for row in range(self.graph.n_inputs)]

    def evaluate(self, inputs: list[Any]) -> list[Any]:
        """The outputs."""
        self.values = {}
        for k, node in enumerate(self.graph.nodes):
            self.values[k] = inputs[node.value] if node.operation == "input" else self.result(node)
        return [self.values[k] for k in self.graph.outputs]

    def write(self, values: list[Any]) -> None:
        """Store further values behind the inputs."""
        for k, value in enumerate(values):
            self.store(self.graph.n_inputs + k, value)

    def once(self) -> Any:
        self.write(self.evaluate(self.inputs))
        return ir.Constant(ir.IntType(64), 1)

    def loop(self, n_carried: int, threshold: Any, limit: Any) -> Any:
        builder, integer = self.builder, ir.IntType(64)
        before = builder.block
        head, end = builder.append_basic_block("evaluate"), builder.append_basic_block("write")
        builder.branch(head)
        builder.position_at_end(head)
        phis = [builder.phi(self.vector) for _ in range(n_carried)]
        count = builder.phi(integer)
        outputs = self.evaluate([*phis, *self.inputs[n_carried:]])
        new, (at_once, waiting), rest = (
            outputs[:n_carried],
            outputs[n_carried : n_carried + 2],
            outputs[n_carried + 2 :],
        )
        made = builder.add(count, integer(1))
        ends = builder.icmp_unsigned("!=", self.packed(at_once), self.packed(at_once).type(0))
        enough = builder.icmp_signed(">=", self.counted(waiting), threshold)
        last = builder.icmp_signed(">=", made, limit)
        builder.cbranch(builder.or_(builder.or_(ends, enough), last), end, head)
        for phi, first, value in zip(phis, self.inputs, new, strict=False):
            phi.add_incoming(first, before)
            phi.add_incoming(value, builder.block)
        count.add_incoming(integer(0), before)
        count.add_incoming(made, builder.block)
        builder.position_at_end(end)
        for row, value in enumerate(new):
            self.store(row, value)
        self.write(rest)
        return made

    def packed(self, mask: Any) -> Any:
        """The lanes of a mask as the bits of an integer."""
        return self.builder.bitcast(mask, ir.IntType(self.width))

    def counted(self, mask: Any) -> Any:
        """How many lanes of a mask are set."""
        bits = self.builder.ctpop(self.packed(mask))
        return self.builder.zext(bits, ir.IntType(64)) if self.width < 64 else bits

    # -- nodes
    def result(self, node: Node) -> Any:
        builder = self.builder
        operands = [self.values[k] for k in node.inputs]
        kinds = [self.graph.nodes[k].dtype for k in node.inputs]
        real = bool(kinds) and kinds[-1] in REALS
        name = node.operation
        if name == "constant":
            return self.constant(node)
        if name == "cast":
            lanes = Lanes(KINDS[node.dtype], self.width)
            return arithmetic.converted(builder, KINDS[kinds[0]], KINDS[node.dtype], operands[0], lanes)
        if name in DIRECT and (real or DIRECT[name][1]):
            return getattr(builder, str(DIRECT[name][0 if real else 1]))(*operands)
        if name == "bits":
            return builder.bitcast(operands[0], ir.VectorType(ir.IntType(int(node.dtype[3:])), self.width))
        if name == "from_bits":
            return builder.bitcast(operands[0], self.vector)
        if name == "high_word":
            return builder.lshr(operands[0], ir.Constant(operands[0].type, [32] * self.width))
        if name == "fma":
            return instruction(builder, "fma", operands)
        if name == "negative" and real:
            return builder.fneg(operands[0])
        if name == "square" and real:
            return builder.fmul(operands[0], operands[0])
        if name in ("sqrt", "floor", "ceil", "trunc") and real:
            return instruction(builder, name, operands)
        if name == "round" and real:
            return instruction(builder, "rint", operands)
        if name == "abs" and real:
            return instruction(builder, "fabs", operands)
        if name in COMPARED and real:
            compare = builder.fcmp_unordered if name == "not_equal" else builder.fcmp_ordered
            return compare(COMPARED[name], *operands)
        if name in LOGICAL:
            return getattr(builder, LOGICAL[name])(*operands)
        if name in ("logical_not", "bitwise_invert"):
            return builder.not_(operands[0])
        if name == "where":
            return builder.select(*operands)
        return self.called(node, operands, kinds)

    def constant(self, node: Node) -> Any:
        if node.dtype in REALS:
            kind: Any = ir.DoubleType() if node.dtype == "float64" else ir.FloatType()
        else:
            kind = ir.IntType({"bool": 1, "int32": 32, "int64": 64}[node.dtype])
        return ir.Constant(ir.VectorType(kind, self.width), [node.value] * self.width)

    def called(self, node: Node, operands: list[Any], kinds: list[str]) -> Any:
        """An operation whose lanes have a function of their own."""
        key = (node.operation, *kinds, node.dtype, node.value)
        if key not in self.functions:
            signature = Lanes(KINDS[node.dtype], self.width)(*(Lanes(KINDS[kind], self.width) for kind in kinds))
            function = _function(node.operation, tuple(kinds), node.value)
            self.functions[key] = self.context.compile_subroutine(self.builder, function, signature).fndesc, signature
        description, signature = self.functions[key]
        block = self.builder.block
        result = self.context.call_internal(self.builder, description, signature, operands)
        if self.n_calls > MOST_INLINED:
            call = next(each for each in reversed(block.instructions) if isinstance(each, CallInstr))
            call.attributes.add("noinline")
        return result


NAMESPACE: dict[str, Any] = {"np": np}
for _module in (arithmetic, circular, functions, quotients, _tables, _types):
    NAMESPACE |= {name: getattr(_module, name) for name in _module.__all__}


@functools.cache
def _function(name: str, kinds: tuple[str, ...], table: Table | None) -> Any:
    """The operation as a function of lanes, as in generated elementwise kernels."""
    names = [f"x{k}" for k in range(len(kinds))]
    if name == "interp":
        text, extra = "interpolated_lanes(x0, points, values)", {"points": table.points, "values": table.values}  # type: ignore[union-attr]
    else:
        extra = {}
        operation = OPERATIONS[name]
        single = operation.libm and kinds[-1] == "float32"  # in float64, rounded once more at the end
        given = [f"as_float64({x})" for x in names] if single else names
        text = operation.text("lanes", not kinds[-1].startswith("float")).format(*given)
        text = f"as_float32({text})" if single else text
    scope = {**NAMESPACE, **extra}
    exec(f"def function({', '.join(names)}):\n    return {text}\n", scope)
    return scope["function"]
