"""Straight-line code on lanes, written to LLVM as one basic block."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.instructions import arithmetic, compared, instruction, unpacked
from ensemble._compile.lanes.types import data_of, fill_lanes
from ensemble._compile.plain_language import Function
from ensemble._compile.plain_translation import Group

__all__ = ["StraightLine", "straight_line"]


class StraightLine(Function):
    """Statements without branches on `width` lanes, as a function of one array and one offset for each part.

    `parts` are names; arguments are all arrays, then all offsets. Each line of `statements` is a result, an operation
    and its operands, ``x + a b``. Operations are those of `OPERATIONS`, ``!=``, ``<=``, ``pick c a b`` (a if c, else
    b), ``fma a b c`` (a b + c) and ``fnma a b c`` (c - a b); an operand is a result, a name in `numbers`, or entry c of
    a part, ``F_c``, at ``offset + c * width``. `writes` lists stores such as ``mean_0 t5``, which follow all
    statements.

    Parts in `shared` have one number for all lanes, entry c at ``offset + c``.

    On one lane, a line of `groups` names results that share one SIMD register, "-" for an unused entry: an operation on
    all of them is one instruction. The bits of the results do not depend on it.
    """

    attribute = "alwaysinline"

    def __init__(
        self, parts: str, statements: str, writes: str, numbers: dict[str, float], width: int, groups: str = "",
        shared: str = "",
    ) -> None:  # fmt: skip
        self.parts, self.statements, self.writes = parts.split(), statements, writes
        self.numbers, self.width, self.groups, self.shared = numbers, width, groups, shared
        arrays, offsets = ([(name, kind) for name in self.parts] for kind in ("Numbers", "int"))
        super().__init__("straight_line", arrays + offsets, ["None"])

    def write(self, group: Group, made: ir.Function) -> None:
        builder = ir.IRBuilder(made.append_basic_block())
        n = len(self.parts)
        self.emit(builder, group.number, made.args[:n], made.args[n:])
        builder.ret_void()

    def emit(self, builder: Any, number: ir.Type, arrays: Any, offsets: Any) -> None:
        """Emit the instructions at the builder's position."""
        starts = {
            name: builder.gep(array, [offset], inbounds=True)
            for name, array, offset in zip(self.parts, arrays, offsets, strict=True)
        }
        split = (line.split() for line in self.statements.splitlines())
        named = {target: tuple(rest) for target, *rest in split}
        emit = _Emitter(builder, number, self.width, starts, named)
        emit.shared = frozenset(self.shared.split())
        for name, value in self.numbers.items():
            emit.values[name] = ir.Constant(emit.type, value if self.width == 1 else [value] * self.width)
        grouped = [tuple(None if name == "-" else name for name in line.split()) for line in self.groups.splitlines()]
        writes = (line.split() for line in self.writes.splitlines())
        emit.run([(target, source) for target, source in writes], grouped)


def straight_line(*description: Any) -> Any:
    """`StraightLine` as a function for Numba: ``f(arrays, offsets)``, two tuples."""
    line = StraightLine(*description)

    @intrinsic
    def run(typingctx, arrays, offsets):
        def codegen(context, builder, signature, arguments):
            structs = unpacked(builder, arguments[0])
            places = unpacked(builder, arguments[1])
            kind = arrays.dtype
            data = [data_of(context, builder, kind, struct) for struct in structs]
            line.emit(builder, context.get_value_type(kind.dtype), data, places)
            return context.get_dummy_value()

        return types.void(arrays, offsets), codegen

    return run


OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}

Names = tuple[str | None, ...]


class _Emitter:
    """Writes the statements of `straight_line` to LLVM: in order, those on which a stored result depends.

    A result with an assignment, a group and its lane in it, is computed by one instruction for the whole group.
    """

    def __init__(
        self, builder: Any, scalar: Any, width: int, starts: dict[str, Any], statements: dict[str, tuple[str, ...]]
    ) -> None:
        self.builder, self.scalar, self.width, self.starts, self.statements = builder, scalar, width, starts, statements
        self.type = scalar if width == 1 else ir.VectorType(scalar, width)
        self.shared: frozenset[str] = frozenset()
        self.alignment = 8 if isinstance(scalar, ir.DoubleType) else 4
        self.depths: dict[str, int] = {}
        for name, (_, *operands) in statements.items():
            self.depths[name] = 1 + max(self.depths.get(operand, 0) for operand in operands)
        self.assignments: dict[str, tuple[Names, int]] = {}
        self.values: dict[str, Any] = {}
        self.vectors: dict[Names, Any] = {}

    def run(self, writes: list[tuple[str, str]], groups: list[Names]) -> None:
        """Emit the stores of `writes` and the statements that they depend on."""
        for group in groups:
            self.assign(group)
        live, pending = set(), [source for _, source in writes]
        while pending:
            name = pending.pop()
            if name in self.statements and name not in live:
                live.add(name)
                pending += self.statements[name][1:]
        for name in self.statements:
            if name in live:
                self.vector(self.assignments[name][0]) if name in self.assignments else self.value(name)
        step = len(groups[0]) if groups else 1
        while writes:
            count = step if self.adjacent(tuple(target for target, _ in writes[:step]), step) else 1
            neighbours, writes = writes[:count], writes[count:]
            names = tuple(source for _, source in neighbours)
            stored = self.value(names[0]) if count == 1 else self.vector(names)
            self.builder.store(stored, self.pointer(neighbours[0][0], stored.type)).align = self.alignment

    def assign(self, group: Names) -> None:
        """Assign the results of one operation to the lanes of a register, and then their operands.

        Results of equal depth in the expression graph do not depend on each other.
        """
        named = [name for name in group if name is not None]
        assigned = any(name not in self.statements or name in self.assignments for name in named)
        if assigned or not 1 < len(named) == len(set(named)):
            return
        if len({(self.statements[name][0], self.depths[name]) for name in named}) > 1:
            return
        self.assignments |= {name: (group, i) for i, name in enumerate(group) if name is not None}
        for operand in self.operands(group):
            if len(set(operand)) > 1:
                self.assign(operand)

    def operands(self, group: Names) -> list[Names]:
        """The groups of operands of a group's statements."""
        rows = [(None,) if name is None else self.statements[name][1:] for name in group]
        n = max(len(row) for row in rows)
        return [tuple(row[i] if row != (None,) else None for row in rows) for i in range(n)]

    def adjacent(self, names: Names, count: int) -> bool:
        """Whether entries of a part are adjacent in memory."""
        if len(names) < count or names[0] is None or names[0] in self.statements:
            return False
        part, _, c = names[0].rpartition("_")
        return part in self.starts and list(names) == [f"{part}_{int(c) + i}" for i in range(count)]

    def pointer(self, entry: str, type: Any) -> Any:
        part, _, c = entry.rpartition("_")
        apart = 1 if part in self.shared else self.width
        place = self.builder.gep(self.starts[part], [ir.IntType(64)(int(c) * apart)], inbounds=True)
        return place if type == self.scalar else self.builder.bitcast(place, type.as_pointer())

    def loaded(self, entry: str, type: Any) -> Any:
        value = self.builder.load(self.pointer(entry, type))
        value.align = self.alignment
        return value

    def value(self, name: str) -> Any:
        """A result, a number, or an entry of a part."""
        if name not in self.values:
            if name in self.assignments:
                group, place = self.assignments[name]
                self.values[name] = self.builder.extract_element(self.vector(group), ir.IntType(32)(place))
            elif name in self.statements:
                operation, *operands = self.statements[name]
                self.values[name] = self.result(operation, *(self.value(operand) for operand in operands))
            elif name.rpartition("_")[0] in self.shared:
                self.values[name] = self.spread(self.loaded(name, self.scalar), self.width)
            else:
                self.values[name] = self.loaded(name, self.type)
        return self.values[name]

    def vector(self, names: Names) -> Any:
        """The values of `names` in one register."""
        if names not in self.vectors:
            self.vectors[names] = self.packed(names)
        return self.vectors[names]

    def packed(self, names: Names) -> Any:
        """`vector`, from another register, from memory or from single values."""
        live = [(i, name) for i, name in enumerate(names) if name is not None]
        assignments = [self.assignments.get(name) for _, name in live]
        group = assignments[0][0] if assignments[0] else None
        if group and all(assignment == (group, i) for assignment, (i, _) in zip(assignments, live, strict=True)):
            if group != names:
                return self.vector(group)
            operation = self.statements[live[0][1]][0]
            return self.result(operation, *(self.vector(operand) for operand in self.operands(group)))
        if self.adjacent(names, len(names)):
            return self.loaded(live[0][1], ir.VectorType(self.scalar, len(names)))
        first = self.value(live[0][1])
        if len({name for _, name in live}) == 1:
            return self.spread(first, len(names))
        start = None if None in names else ir.Undefined  # zeros: arithmetic on stale subnormal numbers is slow
        vector = ir.Constant(ir.VectorType(first.type, len(names)), start)
        for i, name in live:
            vector = self.builder.insert_element(vector, self.value(name), ir.IntType(32)(i))
        return vector

    def spread(self, value: Any, width: int) -> Any:
        return value if width == 1 else fill_lanes(self.builder, value, width)

    def result(self, operation: str, *operands: Any) -> Any:
        if operation in OPERATIONS:
            return arithmetic(self.builder, OPERATIONS[operation], *operands)
        if operation == "pick":
            return self.builder.select(*operands)
        if operation in ("fma", "fnma"):
            a, b, c = operands
            return instruction(self.builder, "fma", [self.builder.fneg(a) if operation == "fnma" else a, b, c])
        return compared(self.builder, operation, *operands)
