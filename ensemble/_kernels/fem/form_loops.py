"""Source of the assembly loops of a form on the CPU: integration and scatter in one pass over the elements.

A part is a range of rows that one thread fills. It visits the elements that touch its rows, in ascending order, and
adds the rows that are its own: no two threads write one entry, and every entry has one order of summation whatever the
number of parts. A SIMD register holds samples; geometry is computed once per element for all of them.

Bytes that must move (float64, S samples, E elements of k functions, Z blocks of b values): ``8 Z b S`` written;
``8 S`` per element and component of a field given per element; shared by all samples ``(4 + 4 + 2 k) k E``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes import tables as lane_tables
from ensemble._compile.trace.numba_source import imports_of, lanes_function, load_module, tables
from ensemble._kernels.fem.form_plan import Element, Pattern, patterns
from ensemble._kernels.fem.form_terms import CONSTANT, Coefficients, FormTerms, Term, fields_of

__all__ = ["assembly_loop", "assembly_source"]

AHEAD = 8
"""Elements by which points, fields and entries are prefetched: they are visited in another order than they lie in."""

ROW = 24
"""Numbers of a row that are prefetched at once where an entry is one number."""

HEAD = '''"""The assembly loop of a finite-element form, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import compiled, inner, prange
{imports}

WIDTH = {width}
"""Samples that are computed at a time."""
{tables}
{bodies}

@compiled
def assemble(
    points, elements, nodes, unknowns, slots, indptr, shape, weights, gradients, dx, part_first, part_elements,
    part_rows, {fields}{outs}n_samples, first,
):
    out = out0
    for part in prange(part_first.size - 1):
        work = np.empty({n_work}, out.dtype)
        sums = np.empty({n_sums} * WIDTH, out.dtype)
        low, high = np.int64(part_rows[part]), np.int64(part_rows[part + 1])
{clear}
{numbers}
        for t in range(part_first[part], part_first[part + 1]):
            e = np.int64(part_elements[t])
            g = np.int64(elements[e])
{ahead}
{geometry}
{element}
{quadrature}
            for i in range({k}):
                row = np.int64(unknowns[e * {k} + i])
                if low <= row and row < high:
{scatter}
'''

GEOMETRY = """
n0, n1, n2, n3 = (np.int64(nodes[e * 4]) * 3, np.int64(nodes[e * 4 + 1]) * 3, np.int64(nodes[e * 4 + 2]) * 3,
                  np.int64(nodes[e * 4 + 3]) * 3)
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
    """The pieces of one loop."""

    def __init__(self, form: FormTerms, element: Element) -> None:
        self.form, self.cell = form, element
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
        """Component `place` of a field, as lanes."""
        if self.form.fields[field].per_sample:
            return f"load(f{field}, ({place}) * n_samples + first, WIDTH)"
        return f"splat(f{field}[{place}], out, WIDTH)"

    def numbers(self) -> list[str]:
        """Definitions of the inputs that are one number for the domain."""
        lines = {}
        for coefficients in (self.form.element, self.form.point):
            for p, given in fields_of(self.form, coefficients):
                if self.form.fields[given.field].place == "number":
                    lines[p] = f"a{p} = {self.loaded(given.field, str(given.component))}"
        return [lines[p] for p in sorted(lines)]

    def inputs(self, coefficients: Coefficients) -> list[str]:
        """Definitions of the inputs of some coefficients, within an element or at its point q."""
        lines = []
        for p, given in fields_of(self.form, coefficients):
            kind = self.form.fields[given.field]
            if kind.place == "element":
                lines.append(f"a{p} = {self.loaded(given.field, f'g * {kind.size} + {given.component}')}")
            elif kind.place == "point":
                place = f"(g * {self.cell.n_points} + q) * {kind.size} + {given.component}"
                lines.append(f"a{p} = {self.loaded(given.field, place)}")
            elif kind.place == "node":
                value = self.loaded(given.field, f"np.int64(nodes[e * {self.k} + b]) * {kind.size} + {given.component}")
                lines += [
                    f"a{p} = zeros(out, WIDTH)",
                    f"for b in range({self.k}):",
                    f"    a{p} = a{p} + splat({self.basis('b', given.axis + 1)}, out, WIDTH) * {value}",
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
        n = self.k
        values = len(slots) - len(gradients)
        if values == 2:
            return f"{term.factor!r} * ({2.0 / (n * (n + 1))!r} if i == j else {1.0 / (n * (n + 1))!r})"
        factor = term.factor / n if values else term.factor
        product = " * ".join(gradients) or "1.0"
        return product if factor == 1.0 else f"{factor!r} * {product}"

    def entry(self, number: int, pattern: Pattern, at: int) -> tuple[str, int]:
        """The entry of one pattern as an expression of lanes, and where the next factors lie."""
        place = f"i * {self.k} + j" if self.form.is_bilinear else "i"
        size = self.k * self.k if self.form.is_bilinear else self.k
        parts = []
        if pattern.quadrature:
            parts.append(f"load(sums, ({number * size} + {place}) * WIDTH, WIDTH)")
        for coefficient, _ in pattern.exact:
            factor = f"splat(work[{at} + {place}], out, WIDTH)"
            parts.append(factor if coefficient == CONSTANT else f"c{coefficient} * {factor}")
            at += size
        return " + ".join(parts), at

    # --- terms summed over points
    def quadrature(self) -> list[str]:
        """The loop over points."""
        if not any(pattern.quadrature for pattern in self.patterns):
            return []
        size = self.k * self.k if self.form.is_bilinear else self.k
        lines = [f"for m in range({len(self.patterns) * size}):", "    store(sums, m * WIDTH, zeros(out, WIDTH))"]
        lines.append(f"for q in range({self.cell.n_points}):")
        inside = []
        if not self.cell.simplex:
            inside += self.evaluated(self.form.element, "element_coefficients")
        inside += self.evaluated(self.form.point, "point_coefficients")
        scale = "volume * weights[q]" if self.cell.simplex else f"dx[g * {self.cell.n_points} + q]"
        inside.append(f"scale = {scale}")
        for number, pattern in enumerate(self.patterns):
            for derivative, terms in pattern.by_test():
                inside += self._point_terms(number * size, derivative, terms)
        return [*lines, *("    " + line for line in inside)]

    def _point_terms(self, first: int, derivative: int, terms: list[Term]) -> list[str]:
        flux = []
        for term in terms:
            factors = ["scale"] if term.factor == 1.0 else ["scale", repr(term.factor)]
            factors += [self.basis("j", term.trial[1])] if term.trial else []
            scalar = f"splat({' * '.join(factors)}, out, WIDTH)"
            flux.append(scalar if term.coefficient == CONSTANT else f"c{term.coefficient} * {scalar}")
        test = f"splat({self.basis('i', derivative)}, out, WIDTH)"
        if self.form.is_bilinear:
            return [
                f"for j in range({self.k}):",
                f"    flux = {' + '.join(flux)}",
                f"    for i in range({self.k}):",
                f"        m = ({first} + i * {self.k} + j) * WIDTH",
                f"        store(sums, m, load(sums, m, WIDTH) + flux * {test})",
            ]
        return [
            f"flux = {' + '.join(flux)}",
            f"for i in range({self.k}):",
            f"    m = ({first} + i) * WIDTH",
            f"    store(sums, m, load(sums, m, WIDTH) + flux * {test})",
        ]

    def scatter(self) -> list[str]:
        """Lines that add row i of the element to its row of the matrix or vector."""
        lines, at = [], 12
        depth = ""
        if self.form.is_bilinear:
            lines += ["base = np.int64(indptr[row])", f"for j in range({self.k}):"]
            lines.append(f"    place = base + slots[(e * {self.k} + i) * {self.k} + j]")
            depth = "    "
        place = "place" if self.form.is_bilinear else "row"
        for number, pattern in enumerate(self.patterns):
            value, at = self.entry(number, pattern, at)
            lines.append(f"{depth}entry = {value}")
            for form, a, b in pattern.blocks:
                rows, columns = self.form.block_shapes[form]
                lines.append(f"{depth}k = ({place} * {rows * columns} + {a * columns + b}) * n_samples + first")
                lines.append(f"{depth}store(out{form}, k, load(out{form}, k, WIDTH) + entry)")
        return lines

    def prefetches(self, width: int) -> list[str]:
        """Lines that prefetch what a later element reads and adds to."""
        lines = [
            f"soon = np.int64(part_elements[min(t + {AHEAD}, part_first[part + 1] - 1)])",
            "near = np.int64(elements[soon])",
            f"for i in range({self.k}):",
            f"    node, row = np.int64(nodes[soon * {self.k} + i]), np.int64(unknowns[soon * {self.k} + i])",
        ]
        lines += ["    prefetch(points, node * 3, 4)"] if self.cell.simplex else []
        for field in self.form.used_fields:
            kind = self.form.fields[field]
            if kind.place == "node":
                lines += self._field_prefetches(field, "node", width, "    ")
        lines += ["    " + line for line in self._row_prefetches(width)]
        for field in self.form.used_fields:
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
        lines, entries = ["start = np.int64(indptr[row])"], []
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
        low, high = ("np.int64(indptr[low])", "np.int64(indptr[high])") if self.form.is_bilinear else ("low", "high")
        lines = []
        for form, (rows, columns) in enumerate(self.form.block_shapes):
            lines.append(f"for k in range({low} * {rows * columns}, {high} * {rows * columns}):")
            lines.append(f"    store(out{form}, k * n_samples + first, zeros(out, WIDTH))")
        return lines


def assembly_source(form: FormTerms, element: Element, width: int) -> str:
    """The module with the loop ``assemble`` for tiles of `width` samples."""
    source = _Source(form, element)
    bodies = []
    for name, coefficients in (("element_coefficients", form.element), ("point_coefficients", form.point)):
        if coefficients.numbers:
            bodies.append("\n@inner\n" + lanes_function(coefficients.graph, name))
    always = {arithmetic: ["spread"], types: ["load", "prefetch", "splat", "store", "zeros"]}
    modules = [arithmetic, circular, functions, quotients, lane_tables, types]
    text = "\n".join(bodies)
    imports = [imports_of(text, module, always.get(module, ())) for module in modules]
    factors, n_work = source.exact_factors()
    simplex = element.simplex
    size = element.n_functions ** (2 if form.is_bilinear else 1)
    return HEAD.format(
        imports="\n".join(filter(None, imports)),
        width=width,
        tables="\n".join(tables(c.graph) for c in (form.element, form.point)),
        bodies=text,
        fields="".join(f"f{j}, " for j in form.used_fields),
        n_work=n_work,
        n_sums=len(source.patterns) * size,
        outs="".join(f"out{n}, " for n in range(len(form.components))),
        clear=indented(source.clear(), 2),
        ahead=indented(source.prefetches(width), 3),
        numbers=indented(source.numbers(), 2),
        geometry=indented(GEOMETRY.split("\n") if simplex else [], 3),
        element=indented([*(source.evaluated(form.element, "element_coefficients") if simplex else []), *factors], 3),
        quadrature=indented(source.quadrature(), 3),
        k=element.n_functions,
        scatter=indented(source.scatter(), 5),
    )


@functools.cache
def assembly_loop(form: FormTerms, element: Element, width: int) -> Any:
    """The compiled loop."""
    return load_module(assembly_source(form, element, width)).assemble
