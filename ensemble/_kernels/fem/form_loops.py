"""Source of the assembly loops of a form on the CPU: integration and scatter in one pass over the elements.

A part is a range of rows that one thread fills. It visits the elements that touch its rows, in ascending order, and
adds the rows that are its own: no two threads write one entry, and every entry has one order of summation whatever the
number of parts. A SIMD register holds samples; geometry is computed once per element for all of them.

Bytes that must move (float64, S samples, E elements of k functions, Z blocks of b values): ``8 Z b S`` written;
``8 S`` per element and component of a field given per element; shared by all samples ``(4 + 4 + 2 k) k E``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ensemble._compile.c_functions import call_part
from ensemble._compile.lanes.graph_function import GraphFunction
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import Code, Module, assembled, kept_code
from ensemble._compile.numba import compiled, prange
from ensemble._compile.plain_code import PlainText, module_text
from ensemble._compile.trace.numbers import hoisted
from ensemble._kernels.fem.form_plan import Element, Pattern, patterns
from ensemble._kernels.fem.form_terms import (
    CONSTANT,
    Coefficients,
    FormTerms,
    Input,
    Term,
    simplex_mean,
    weighted_term,
)

__all__ = ["ARRAYS", "fill_parts", "part_loop", "part_source"]

AHEAD = 8
"""Elements by which points, fields and entries, which lie in another order, are prefetched (`benchmarks forms`)."""

ROW = 24
"""Numbers of a row that are prefetched at once where an entry is one number (`benchmarks forms`)."""

WIDE = 32
"""Samples from which on the loops of vectors are not unrolled: unrolled, registers of one round wait for the next."""

PART = """
def fill(places: Integers, part: int, n_samples: int, first: int) -> int:
{arrays}
    low, high = part_rows[part], part_rows[part + 1]
{clear}
{numbers}
    for t in range(part_first[part], part_first[part + 1]):
        e = part_elements[t]
        g = elements[e]
{ahead}
{geometry}
{element}
{quadrature}
        for i in range({k}):
            row = unknowns[e * {k} + i]
            if low <= row and row < high:
{scatter}
    return 0
"""
"""The function that fills the rows of one part, in `plain_code`."""

GEOMETRY = """
n0, n1, n2, n3 = nodes[e * 4] * 3, nodes[e * 4 + 1] * 3, nodes[e * 4 + 2] * 3, nodes[e * 4 + 3] * 3
x, y, z = points[n0], points[n0 + 1], points[n0 + 2]
ax, ay, az = points[n1] - x, points[n1 + 1] - y, points[n1 + 2] - z
bx, by, bz = points[n2] - x, points[n2 + 1] - y, points[n2 + 2] - z
cx, cy, cz = points[n3] - x, points[n3 + 1] - y, points[n3 + 2] - z
ux, uy, uz = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
vx, vy, vz = cy * az - cz * ay, cz * ax - cx * az, cx * ay - cy * ax
wx, wy, wz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
determinant = ax * ux + ay * uy + az * uz
inverse = 1.0 / determinant
volume = determinant * (1.0 / 6.0)
work[3], work[4], work[5] = ux * inverse, uy * inverse, uz * inverse
work[6], work[7], work[8] = vx * inverse, vy * inverse, vz * inverse
work[9], work[10], work[11] = wx * inverse, wy * inverse, wz * inverse
work[0], work[1], work[2] = (-(work[3] + work[6] + work[9]), -(work[4] + work[7] + work[10]),
                             -(work[5] + work[8] + work[11]))
"""
"""Gradients of the four linear functions in ``work[3 * i + axis]``, and the volume; the Jacobian's cofactors."""


def indented(lines: Sequence[str], depth: int) -> str:
    """Lines of source at one depth of indentation."""
    return "\n".join("    " * depth + line for line in lines if line.strip())


class _Source:
    """The pieces of one loop; constants of coefficients and factors of terms are `constants`, which the loop reads."""

    def __init__(self, form: FormTerms, element: Element) -> None:
        first, parts, self.constants = len(form.inputs), {}, list[float]()
        for name in ("element", "point"):
            graph, values = hoisted(getattr(form, name).graph, first + len(self.constants), differentiable=True)
            parts[name] = dataclasses.replace(getattr(form, name), graph=graph)
            self.constants += values
        self.moved = range(first, first + len(self.constants))
        """The inputs that are `constants`."""
        self.form, self.cell = dataclasses.replace(form, **parts), element
        self.used_fields = form.used_fields
        self.patterns = patterns(form, element)
        self.k, self.dim = element.n_functions, element.dim

    def basis(self, function: str, derivative: int) -> str:
        """The value or a derivative of a local function at point q."""
        if derivative == 0:
            point = f"(g * {self.cell.n_points} + q)" if self.cell.varying else "q"
            return f"shape[{point} * {self.k} + {function}]"
        if self.cell.simplex:
            return f"work[{function} * {self.dim} + {derivative - 1}]"
        return f"gradients[((g * {self.cell.n_points} + q) * {self.k} + {function}) * {self.dim} + {derivative - 1}]"

    def loaded(self, field: int, place: str) -> str:
        """Component `place` of a field: a register where samples differ, else a number."""
        if self.form.fields[field].per_sample:
            return f"load(f{field}, ({place}) * n_samples + first)"
        return f"f{field}[{place}]"

    def numbers(self) -> list[str]:
        """Definitions of constants and of inputs that are one number for the domain, once all factors are known."""
        lines = {p: f"a{p} = constants[{k}]" for k, p in enumerate(self.moved)}
        lines |= {-1 - k: f"constant{k} = constants[{k}]" for k in range(len(self.constants))}
        for coefficients in (self.form.element, self.form.point):
            for p, given in self.fields_of(coefficients):
                if self.form.fields[given.field].place == "number":
                    lines[p] = f"a{p} = {self.loaded(given.field, str(given.component))}"
        return [lines[p] for p in sorted(lines)]

    def fields_of(self, coefficients: Coefficients) -> Iterator[tuple[int, Input]]:
        """The inputs of some coefficients that are fields, with their positions in the graph."""
        for position in coefficients.graph.strong_inputs:
            if position not in self.moved:
                yield position, self.form.inputs[position]

    def factor(self, value: float) -> str:
        """A factor of a term: a number that is read before the loop."""
        if value not in self.constants:
            self.constants.append(value)
        return f"constant{self.constants.index(value)}"

    def inputs(self, coefficients: Coefficients) -> list[str]:
        """Definitions of the inputs of some coefficients, within an element or at its point q."""
        lines = []
        for p, given in self.fields_of(coefficients):
            kind = self.form.fields[given.field]
            if kind.place == "element":
                lines.append(f"a{p} = {self.loaded(given.field, f'g * {kind.size} + {given.component}')}")
            elif kind.place == "point":
                place = f"(g * {self.cell.n_points} + q) * {kind.size} + {given.component}"
                lines.append(f"a{p} = {self.loaded(given.field, place)}")
            elif kind.place == "node":
                value = self.loaded(given.field, f"nodes[e * {self.k} + b] * {kind.size} + {given.component}")
                lines += [
                    f"a{p} = {'spread(0.0)' if kind.per_sample else '0.0'}",
                    f"for b in range({self.k}):",
                    f"    a{p} = a{p} + {self.basis('b', given.axis + 1)} * {value}",
                ]
        return lines

    def evaluated(self, coefficients: Coefficients, name: str) -> list[str]:
        """The call of the body that computes some coefficients."""
        if not coefficients.numbers:
            return []
        arguments = ", ".join(coefficients.graph.parameters)
        targets = ", ".join(f"c{number}" for number in coefficients.numbers)
        return [*self.inputs(coefficients), f"{targets} = {name}({arguments})"]

    # --- terms integrated in closed form
    def exact_factors(self) -> tuple[list[str], int]:
        """Lines that compute the geometric factors of `exact` terms, and the numbers in `work` they end at."""
        at, lines = 12, []
        for pattern in self.patterns:
            for _, terms in pattern.exact:
                value = " + ".join(self._exact(term) for term in terms)
                if self.form.is_bilinear:
                    lines += [f"for i in range({self.k}):", f"    for j in range({self.k}):"]
                    lines.append(f"        work[{at} + i * {self.k} + j] = volume * ({value})")
                    at += self.k * self.k
                else:
                    lines += [f"for i in range({self.k}):", f"    work[{at} + i] = volume * ({value})"]
                    at += self.k
        return lines, at

    def _exact(self, term: Term) -> str:
        """The mean over a simplex of one product of slots."""
        slots = [("i", term.test[1]), *([("j", term.trial[1])] if term.trial else [])]
        gradients = [self.basis(function, derivative) for function, derivative in slots if derivative]
        return simplex_mean(term, self.k, gradients, self.factor, "({} if i == j else {})")

    def entry(self, number: int, pattern: Pattern, at: int) -> tuple[str, int]:
        """The entry of one pattern as an expression of lanes, and where the next factors lie."""
        place = f"i * {self.k} + j" if self.form.is_bilinear else "i"
        size = self.k * self.k if self.form.is_bilinear else self.k
        parts = []
        if pattern.quadrature:
            parts.append(f"load(sums, ({number * size} + {place}) * WIDTH)")
        for coefficient, _ in pattern.exact:
            factor = f"work[{at} + {place}]"
            parts.append(factor if coefficient == CONSTANT else f"c{coefficient} * {factor}")
            at += size
        return " + ".join(parts), at

    # --- terms summed over points
    def quadrature(self) -> list[str]:
        """The loop over points."""
        if not any(pattern.quadrature for pattern in self.patterns):
            return []
        size = self.k * self.k if self.form.is_bilinear else self.k
        lines = [f"for m in range({len(self.patterns) * size}):", "    store(sums, m * WIDTH, 0.0)"]
        lines.append(f"for q in range({self.cell.n_points}):")
        inside = []
        if not self.cell.simplex:
            inside += self.evaluated(self.form.element, "element_coefficients")
        inside += self.evaluated(self.form.point, "point_coefficients")
        scale = "volume * weights[q]" if self.cell.simplex else f"dx[g * {self.cell.n_points} + q]"
        inside.append(f"scale = {scale}")
        for number, pattern in enumerate(self.patterns):
            for derivative, terms in pattern.by_test():
                inside += self._point_terms(number, derivative, terms)
        return [*lines, *("    " + line for line in inside)]

    def _point_terms(self, number: int, derivative: int, terms: list[Term]) -> list[str]:
        parts, flux = [], f"flux{number}_{derivative}"
        for term in terms:
            parts.append(weighted_term(term, self.factor, self.basis, "({})"))
        lines, test, place = [f"{flux} = {' + '.join(parts)}"], self.basis("i", derivative), "i"
        if self.form.is_bilinear:
            lines, place = [f"for j in range({self.k}):", "    " + lines[0]], f"i * {self.k} + j"
        size = self.k * self.k if self.form.is_bilinear else self.k
        loop = [
            f"for i in range({self.k}):",
            f"    m = ({number * size} + {place}) * WIDTH",
            f"    store(sums, m, load(sums, m) + {flux} * {test})",
        ]
        return lines + ["    " * self.form.is_bilinear + line for line in loop]

    def scatter(self) -> list[str]:
        """Lines that add row i of the element to its row of the matrix or vector."""
        lines, at = [], 12
        depth = ""
        if self.form.is_bilinear:
            lines += ["base = indptr[row]", f"for j in range({self.k}):"]
            lines.append(f"    place = base + slots[(e * {self.k} + i) * {self.k} + j]")
            depth = "    "
        place = "place" if self.form.is_bilinear else "row"
        for number, pattern in enumerate(self.patterns):
            value, at = self.entry(number, pattern, at)
            lines.append(f"{depth}entry{number} = {value}")
            for form, a, b in pattern.blocks:
                rows, columns = self.form.block_shapes[form]
                lines.append(f"{depth}k = ({place} * {rows * columns} + {a * columns + b}) * n_samples + first")
                lines.append(f"{depth}store(out{form}, k, load(out{form}, k) + entry{number})")
        return lines

    def prefetches(self, width: int) -> list[str]:
        """Lines that prefetch what a later element reads and adds to."""
        lines = [
            f"soon = part_elements[min(t + {AHEAD}, part_first[part + 1] - 1)]",
            "near = elements[soon]",
            f"for i in range({self.k}):",
            f"    node, row = nodes[soon * {self.k} + i], unknowns[soon * {self.k} + i]",
        ]
        lines += ["    prefetch(points, node * 3, 4)"] if self.cell.simplex else []
        for field in self.used_fields:
            kind = self.form.fields[field]
            if kind.place == "node":
                lines += self._field_prefetches(field, "node", width, "    ")
        lines += ["    " + line for line in self._row_prefetches(width)]
        for field in self.used_fields:
            if self.form.fields[field].place == "element":
                lines += self._field_prefetches(field, "near", width, "")
        return lines

    def _field_prefetches(self, field: int, place: str, width: int, indent: str) -> list[str]:
        """Lines that prefetch the value of a field at a node or element."""
        kind = self.form.fields[field]
        if width == 1 or not kind.per_sample:
            stride = "n_samples" if kind.per_sample else "1"
            return [f"{indent}prefetch(f{field}, {place} * {kind.size} * {stride}, {max(kind.size, 4)})"]
        first = f"({place} * {kind.size} + {{}}) * n_samples + first"
        return [f"{indent}prefetch(f{field}, {first.format(c)}, WIDTH)" for c in range(kind.size)]

    def _row_prefetches(self, width: int) -> list[str]:
        """Lines that prefetch what row i of the element is added to: whole rows of numbers, or entry by entry."""
        shapes = enumerate(self.form.block_shapes)
        if not self.form.is_bilinear:
            return [
                f"prefetch(out{n}, row * {a * b} * n_samples + first, {max(a * b, width, 4)})" for n, (a, b) in shapes
            ]
        lines, entries = ["start = indptr[row]"], []
        for n, (a, b) in shapes:
            if width == a * b == 1:
                lines.append(f"prefetch(out{n}, start * n_samples + first, {ROW})")
            elif width == 1:
                entries.append(f"    prefetch(out{n}, place * {a * b} * n_samples + first, {max(a * b, 4)})")
            else:
                at = f"(place * {a * b} + {{}}) * n_samples + first"
                entries += [f"    prefetch(out{n}, {at.format(c)}, WIDTH)" for c in range(a * b)]
        if entries:
            lines += [f"for j in range({self.k}):", f"    place = start + slots[(soon * {self.k} + i) * {self.k} + j]"]
        return lines + entries

    def clear(self) -> list[str]:
        """Lines that set the rows of a part to zero."""
        low, high = ("indptr[low]", "indptr[high]") if self.form.is_bilinear else ("low", "high")
        lines = []
        for form, (rows, columns) in enumerate(self.form.block_shapes):
            lines.append(f"for k in range({low} * {rows * columns}, {high} * {rows * columns}):")
            lines.append(f"    store(out{form}, k * n_samples + first, 0.0)")
        return lines


ARRAYS = (
    "points", "elements", "nodes", "unknowns", "slots", "indptr", "shape", "weights", "gradients", "dx", "part_first",
    "part_elements", "part_rows",
)  # fmt: skip
"""Arrays of `ElementTables` and of its parts, in the order of their addresses, which follow that of the scratch."""


def part_source(form: FormTerms, element: Element, width: int, dtypes: Sequence[np.dtype]) -> tuple[str, _Source, int]:
    """The function `fill` for tiles of `width` samples, its pieces, and the numbers of scratch memory of a part.

    `dtypes` are those of `ARRAYS`: float64 and signed integers.
    """
    source = _Source(form, element)
    factors, n_work = source.exact_factors()
    n_work += -n_work % 8  # a cache line
    n_scratch = n_work + len(source.patterns) * element.n_functions ** (2 if form.is_bilinear else 1) * width
    n_scratch += -n_scratch % 8
    arrays = [f"work = behind(numbers_at(places[0]), part * {n_scratch})", f"sums = behind(work, {n_work})"]
    for k, (name, dtype) in enumerate(zip(ARRAYS, dtypes, strict=True)):
        at = f"places[{k + 1}]"
        made = f"numbers_at({at})" if dtype == np.float64 else f"integers_at({at}, {8 * dtype.itemsize})"
        arrays.append(f"{name} = {made}")
    others = [*(f"f{j}" for j in form.used_fields), *(f"out{n}" for n in range(len(form.components))), "constants"]
    arrays += [f"{name} = numbers_at(places[{len(ARRAYS) + 1 + k}])" for k, name in enumerate(others)]
    simplex = element.simplex
    text = PART.format(
        arrays=indented(arrays, 1),
        clear=indented(source.clear(), 1),
        ahead=indented(source.prefetches(width), 2),
        geometry=indented(GEOMETRY.split("\n") if simplex else [], 2),
        element=indented(
            [*(source.evaluated(source.form.element, "element_coefficients") if simplex else []), *factors], 2
        ),
        quadrature=indented(source.quadrature(), 2),
        k=element.n_functions,
        scatter=indented(source.scatter(), 4),
        numbers=indented(source.numbers(), 1),  # last: all factors are known
    )
    return text, source, n_scratch


class PartLoop(NamedTuple):
    """The compiled function of a part."""

    address: int
    scratch: int
    """Numbers of memory that a part needs."""
    code: Code
    """What lies there, held while it runs."""
    constants: np.ndarray
    """Numbers that the loop reads: functions that differ in them alone share the code."""


@functools.lru_cache(maxsize=1024)
def part_loop(form: FormTerms, element: Element, width: int, dtypes: tuple[np.dtype, ...]) -> PartLoop:
    """The machine code of `part_source`."""
    source, pieces, scratch = part_source(form, element, width, dtypes)
    named = {"element_coefficients": pieces.form.element, "point_coefficients": pieces.form.point}
    bodies = {name: GraphFunction(each.graph, name, width) for name, each in named.items() if each.numbers}
    names = {"WIDTH": width, **bodies}
    written = {name: body.assembly() for name, body in bodies.items()}

    def module() -> Module:
        fill = PlainText("fill", source, names)
        fill.rolled = not form.is_bilinear and width >= WIDE
        linked = assembled(written.values())
        return Module(module_text(fill, width), linked.called, (linked.text,), has_loops=True)

    key = "\n".join([f"{width}", source, *(body.text for body in written.values())])
    code = kept_code(key, module, ["fill"], assembly_of)
    return PartLoop(code["fill"], scratch, code, np.array(pieces.constants))


@compiled
def fill_parts(body, n_parts, places, n_samples, first):
    """The rows of all parts, by the C function at `body`."""
    for part in prange(n_parts):
        call_part(body, (places, part, n_samples, first))
