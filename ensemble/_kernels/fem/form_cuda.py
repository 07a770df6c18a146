"""CUDA source of the assembly of a form: entries of the matrix gather their elements, without atomics.

A block carries some rows that lie near each other in space, and for each row the elements around it. It works in three
steps, with shared memory between them:

1. a thread per (row, element): the geometry, as factors of the terms in closed form; of one sample from staged nodes;
2. LANES threads per (row, element), VECTOR samples each: coefficients, and the terms summed over quadrature points;
3. LANES threads per entry: the sum over its elements, in the order of the CPU, written once.

A row whose elements do not fit shared memory is a block of its own, which takes the steps again for each part of them.

Bytes that must move: as in `form_loops`; for each (row, element) 4 bytes, and 4 for each of its entries.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._compile.cuda import Layout, layout_of, layout_of_width, output, sources
from ensemble._compile.device import raw_module
from ensemble._compile.trace.cuda_source import OPTIONS, device_function
from ensemble._kernels.fem.form_plan import Element, patterns
from ensemble._kernels.fem.form_terms import (
    CONSTANT,
    Coefficients,
    FormTerms,
    Term,
    fields_of,
    simplex_mean,
    weighted_term,
)
from ensemble._kernels.fem.form_text import KERNEL, ONE_PASS, PAIR_GEOMETRY, PASSES, STAGED_POINTS, STAGED_SOURCES
from ensemble._typing import Array

__all__ = ["FormSource", "assemble_on_device", "assembly_source", "joined", "suit_one_kernel"]

SHARED_BYTES = 48 << 10
"""Shared memory of a block, where a row does not need more."""

CAPACITIES = (512, 256, 192, 128, 96, 64)
"""Pairs of row and element that a block may carry."""

THREADS, BLOCKS = 256, 5
"""Threads of a block; blocks that a multiprocessor should hold of forms without quadrature, which limits registers."""

ORDINARY = 32
"""Elements around a node that most meshes seldom exceed: the capacity of a block, whatever the samples."""

MANY_PAIRS = 256
"""Capacity of a block in pairs where forms are joined that have nothing in common."""

MOST_BYTES = 96 << 10
"""Shared memory that a block may have at most: what devices from compute capability 7.0 on can give."""

NODE_BYTES = 24
"""Shared memory of a node."""

STATIC_BYTES = 48 << 10
"""Shared memory that a kernel may have without asking for more."""

UNROLL = '_Pragma("unroll")'


def joined(lines: Sequence[str], depth: int) -> str:
    """Lines of source at one depth of indentation; the first has it already."""
    return ("\n" + "    " * depth).join(line for line in lines if line.strip())


class FormSource:
    """The pieces of one kernel."""

    def __init__(self, form: FormTerms, element: Element) -> None:
        self.form, self.cell = form, element
        self.patterns = patterns(form, element)
        self.bilinear = form.is_bilinear
        self.with_gradients = element.simplex and (
            any(p.quadrature for p in self.patterns)
            or any(i.axis >= 0 for c in (form.element, form.point) for _, i in fields_of(form, c))
        )
        self.with_volume = (element.simplex and any(p.quadrature for p in self.patterns)) or self.with_gradients
        self.n_columns = element.n_functions if self.bilinear else 1

    def basis(self, function: str, derivative: int) -> str:
        """The value or a derivative of a local function at point q."""
        if derivative == 0:
            return f"shape[{'(g * POINTS + q)' if self.cell.varying else 'q'} * K + {function}]"
        if self.cell.simplex:
            return f"stage[1 + {function} * DIM + {derivative - 1}]"
        return f"gradients[((g * POINTS + q) * K + {function}) * DIM + {derivative - 1}]"

    def loaded(self, field: int, place: str) -> str:
        """Component `place` of a field, for the samples of a thread."""
        if self.form.fields[field].per_sample:
            return f"load_shared(f{field} + (int64)({place}) * n_samples + s)"
        return f"spread(f{field}[{place}])"

    def numbers(self) -> list[str]:
        """Definitions of the inputs that are one number for the domain."""
        lines = {}
        for coefficients in (self.form.element, self.form.point):
            for p, given in fields_of(self.form, coefficients):
                if self.form.fields[given.field].place == "number":
                    lines[p] = f"const Pack a{p} = {self.loaded(given.field, str(given.component))};"
        return [lines[p] for p in sorted(lines)]

    def inputs(self, coefficients: Coefficients) -> list[str]:
        """Definitions of the inputs of some coefficients, within an element or at its point q."""
        lines = []
        for p, given in fields_of(self.form, coefficients):
            kind = self.form.fields[given.field]
            if kind.place == "element":
                lines.append(f"const Pack a{p} = {self.loaded(given.field, f'g * {kind.size} + {given.component}')};")
            elif kind.place == "point":
                place = f"(g * POINTS + q) * {kind.size} + {given.component}"
                lines.append(f"const Pack a{p} = {self.loaded(given.field, place)};")
            elif kind.place == "node":
                factor = f"spread({self.basis('b', given.axis + 1)})"
                values = f"n{given.field}_{given.component}[b]"
                lines.append(f"Pack a{p} = spread(0);")
                lines.append(f"{UNROLL} for (int b = 0; b < K; ++b) a{p} = a{p} + {factor} * {values};")
        return lines

    def nodal_values(self) -> list[str]:
        """Lines that load the fields given at nodes, once per element."""
        lines = {}
        for coefficients in (self.form.element, self.form.point):
            for _, given in fields_of(self.form, coefficients):
                kind = self.form.fields[given.field]
                if kind.place == "node":
                    value = self.loaded(given.field, f"(int64)nodes[e * K + b] * {kind.size} + {given.component}")
                    name = f"n{given.field}_{given.component}"
                    lines[name] = f"Pack {name}[K]; {UNROLL} for (int b = 0; b < K; ++b) {name}[b] = {value};"
        return list(lines.values())

    def evaluated(self, coefficients: Coefficients, name: str) -> list[str]:
        """The calls of the body that computes some coefficients, sample by sample."""
        if not coefficients.numbers:
            return []
        targets = [f"c{number}" for number in coefficients.numbers]
        arguments = [f"{parameter}.lane[v]" for parameter in coefficients.graph.parameters]
        call = f"{name}({', '.join([*arguments, *(f'{target}.lane[v]' for target in targets)])});"
        return [
            *self.inputs(coefficients),
            f"Pack {', '.join(targets)};",
            f"{UNROLL} for (int v = 0; v < VECTOR; ++v) {call}",
        ]

    # --- terms integrated in closed form
    @property
    def first_factor(self) -> int:
        """Where the factors of exact terms begin among the numbers of a pair."""
        return 13 if self.with_gradients else int(self.with_volume)

    @property
    def n_factors(self) -> int:
        """Numbers of a pair of row and element; odd, so that threads write to different banks."""
        count = self.first_factor + self.n_columns * sum(len(p.exact) for p in self.patterns)
        return count + 1 - count % 2 if count else 0

    @property
    def staged(self) -> tuple[int, ...]:
        """The coefficients of exact terms, in the order of shared memory."""
        return self.form.element.numbers if self.cell.simplex else ()

    @property
    def summed(self) -> list[int]:
        """The patterns with terms that are summed over points."""
        return [n for n, pattern in enumerate(self.patterns) if pattern.quadrature]

    def exact(self) -> list[str]:
        """Lines that stage the geometry of an element and the factors of its exact terms."""
        if not self.cell.simplex:
            return []
        lines = ["stage[0] = volume;"] if self.with_volume else []
        if self.with_gradients:
            lines.append("for (int m = 0; m < 12; ++m) stage[1 + m] = gradient[m];")
        used = any(t.test[1] for p in self.patterns for _, terms in p.exact for t in terms)
        if used:  # a is not known to the compiler: no array in registers by it
            lines.append("double ga[3];")
            choices = [f"a == {b} ? gradient[{3 * b} + d]" for b in range(3)]
            lines.append(f"for (int d = 0; d < 3; ++d) ga[d] = {' : '.join(choices)} : gradient[9 + d];")
        at = self.first_factor
        for pattern in self.patterns:
            for _, terms in pattern.exact:
                value = " + ".join(self._exact(term) for term in terms)
                if self.bilinear:
                    lines.append(f"{UNROLL} for (int j = 0; j < K; ++j) stage[{at} + j] = volume * ({value});")
                else:
                    lines.append(f"stage[{at}] = volume * ({value});")
                at += self.n_columns
        return lines

    def _exact(self, term: Term) -> str:
        """The mean over a simplex of one product of slots."""
        gradients = [f"ga[{term.test[1] - 1}]"] if term.test[1] else []
        if term.trial and term.trial[1]:
            gradients.append(f"gradient[j * 3 + {term.trial[1] - 1}]")
        return simplex_mean(term, self.cell.n_functions, gradients, repr, "(a == j ? {} : {})")

    def element_values(self) -> list[str]:
        """Lines that compute and stage the coefficients of exact terms."""
        if not self.staged:
            return []
        lines = self.evaluated(self.form.element, "element_coefficients")
        for n, number in enumerate(self.staged):
            lines.append(f"coefficients[({n} * CAPACITY + t) * LANES + lane] = c{number};")
        return lines

    # --- terms summed over points
    def quadrature(self) -> list[str]:
        """The loop over points."""
        if not self.summed:
            return []
        lines = []
        for n in self.summed:
            lines.append(f"Pack sum{n}[{self.n_columns}];")
            lines.append(f"for (int j = 0; j < {self.n_columns}; ++j) sum{n}[j] = spread(0);")
        lines.append("for (int q = 0; q < POINTS; ++q) {")
        if not self.cell.simplex:
            lines += self.evaluated(self.form.element, "element_coefficients")
        lines += self.evaluated(self.form.point, "point_coefficients")
        lines.append(f"const double scale = {'stage[0] * weights[q]' if self.cell.simplex else 'dx[g * POINTS + q]'};")
        loop = f"{UNROLL} for (int j = 0; j < {self.n_columns}; ++j)"
        for n in self.summed:
            for derivative, terms in self.patterns[n].by_test():
                flux = [weighted_term(term, repr, self.basis, "spread({})") for term in terms]
                value = f"({' + '.join(flux)}) * spread({self.basis('a', derivative)})"
                lines.append(f"{loop} sum{n}[j] = sum{n}[j] + {value};")
        lines.append("}")
        for place, n in enumerate(self.summed):
            target = f"sums[(({place} * CAPACITY + t) * {self.n_columns} + j) * LANES + lane]"
            lines.append(f"{loop} {target} = sum{n}[j];")
        return lines

    # --- sums over elements
    def added(self) -> list[str]:
        """Lines that add what one element gives to an entry."""
        lines = [f"const double* stage = factors + t * {self.n_factors};"] if self.n_factors else []
        for n, number in enumerate(self.staged):
            lines.append(f"const Pack c{number} = coefficients[({n} * CAPACITY + t) * LANES + lane];")
        at = self.first_factor
        for n, pattern in enumerate(self.patterns):
            parts = []
            if pattern.quadrature:
                parts.append(f"sums[(({self.summed.index(n)} * CAPACITY + t) * {self.n_columns} + j) * LANES + lane]")
            for coefficient, _ in pattern.exact:
                factor = f"spread(stage[{at} + j])"
                parts.append(factor if coefficient == CONSTANT else f"c{coefficient} * {factor}")
                at += self.n_columns
            lines.append(f"total{n} = total{n} + ({' + '.join(parts)});")
        return lines

    def totals(self, passes: bool) -> list[str]:
        """Lines that define the sums of an entry; those of a later pass go on where the one before left them."""
        lines = []
        for n, pattern in enumerate(self.patterns):
            before = f"done ? load({self.place(*pattern.blocks[0])}) : spread(0)" if passes else "spread(0)"
            lines.append(f"Pack total{n} = {before};")
        return lines

    def place(self, form: int, a: int, b: int) -> str:
        """Where a block of an entry is written."""
        rows, columns = self.form.block_shapes[form]
        return f"out{form} + (place * {rows * columns} + {a * columns + b}) * n_samples + s"

    def written(self) -> list[str]:
        """Lines that write all blocks of an entry."""
        of = {block: n for n, pattern in enumerate(self.patterns) for block in pattern.blocks}
        lines = []
        for form, (rows, columns) in enumerate(self.form.block_shapes):
            for a, b in itertools.product(range(rows), range(columns)):
                value = f"total{of[form, a, b]}" if (form, a, b) in of else "spread(0)"
                lines.append(f"store({self.place(form, a, b)}, {value});")
        return lines


def pair_bytes(source: FormSource, layout: Layout) -> int:
    """Shared memory of one pair of row and element."""
    values = len(source.staged) + len(source.summed) * source.n_columns
    return 8 * (source.n_factors + values * layout.lanes * layout.vector) + 2 * source.cell.n_functions


def node_capacity(source: FormSource, layout: Layout, capacity: int) -> int:
    """Nodes that a block stages, an even number that few blocks exceed; 0 where gathers of points take little time."""
    stages = source.cell.simplex and source.n_factors and not source.summed and layout.lanes * layout.vector == 1
    return 2 * -(-3 * capacity // 8) if stages else 0


def shared_bytes(source: FormSource, layout: Layout, capacity: int) -> int:
    """Shared memory of so many pairs: the packs after the factors begin at a multiple of 16 bytes."""
    nodes = NODE_BYTES * node_capacity(source, layout, capacity)
    return capacity * pair_bytes(source, layout) + 8 * (capacity * source.n_factors % 2) + nodes


def suit_one_kernel(joint: FormTerms, alone: Sequence[FormTerms], element: Element, n_samples: int) -> bool:
    """Whether forms are faster as one kernel: they share what they stage, or a block still takes many pairs."""
    layout = layout_of_width("double", n_samples, 1)
    together = pair_bytes(FormSource(joint, element), layout)
    return together <= max(SHARED_BYTES // MANY_PAIRS, *(pair_bytes(FormSource(f, element), layout) for f in alone))


def fitting_layout(form: FormTerms, element: Element, layout: Layout, longest: int, n_samples: int) -> Layout:
    """`layout` with so few samples per tile that the elements of an ordinary row fit the shared memory of a block."""
    source = FormSource(form, element)
    wanted = min(longest, ORDINARY)
    while shared_bytes(source, layout, wanted) > MOST_BYTES and layout.lanes * layout.vector > 1:
        if layout.lanes > 1:
            layout = layout._replace(lanes=layout.lanes // 2)
        else:
            layout = layout._replace(vector=layout.vector // 2)
    needed = shared_bytes(source, layout, 1)
    if needed > MOST_BYTES:
        raise ValueError(
            f"form: an element must need at most {MOST_BYTES} bytes of shared memory on a device; got {needed}. "
            "Assemble on the CPU."
        )
    return layout._replace(tiles=-(-n_samples // (layout.lanes * layout.vector)))


def capacity_of(source: FormSource, layout: Layout, longest: int) -> int:
    """The pairs of row and element that a block carries at a time."""
    pair = pair_bytes(source, layout)
    for capacity in CAPACITIES:
        many_idle = capacity * layout.lanes <= THREADS // 2  # threads without a pair
        limit = MOST_BYTES if many_idle else SHARED_BYTES
        if capacity >= longest and shared_bytes(source, layout, capacity) <= limit:
            return capacity
    most = (MOST_BYTES - 8 - 2 * NODE_BYTES) // (pair + 3 * NODE_BYTES // 4)
    return max(1, min(max(longest, CAPACITIES[-1]), most))


def assembly_source(form: FormTerms, element: Element, layout: Layout, longest: int) -> tuple[str, int, int]:
    """The kernel for rows of at most `longest` elements, the pairs that a block may carry, and its shared memory."""
    source = FormSource(form, element)
    capacity = capacity_of(source, layout, longest)
    passes = longest > capacity
    parts = PASSES if passes else ONE_PASS
    staged_points = STAGED_POINTS if node_capacity(source, layout, capacity) else "const bool near = false;"
    values = len(source.staged) + len(source.summed) * source.n_columns
    bodies = []
    for name, coefficients in (("element_coefficients", form.element), ("point_coefficients", form.point)):
        if coefficients.numbers:
            bodies.append(device_function(coefficients.graph, name))
    bilinear = form.is_bilinear
    text = KERNEL.format(
        lanes=layout.lanes, vector=layout.vector, threads=THREADS,
        headers=sources(
            "_compile/include/types.cuh", "_compile/include/samples.cuh", "_compile/include/elementwise.cuh"
        ),
        bodies="\n".join(bodies), k=element.n_functions, dim=element.dim, n_points=element.n_points, capacity=capacity,
        n_nodes=node_capacity(source, layout, capacity), staged_points=staged_points,
        geometry_barrier="__syncthreads();" if source.summed or source.with_gradients else "",
        fields="".join(f"const real* __restrict__ f{j}, " for j in form.used_fields),
        outs=" ".join(f"real* __restrict__ out{n}," for n in range(len(form.components))), n_factors=source.n_factors,
        n_coefficients=len(source.staged), n_factors_loop="count" if source.n_factors else "0",
        n_values_loop="(s < n_samples ? count : 0)" if values else "0",
        bounds=f"THREADS, {BLOCKS}" if not source.summed else "THREADS",
        geometry=joined(PAIR_GEOMETRY.split("\n") if element.simplex else [], 3),
        exact=joined(source.exact(), 3), numbers=joined([*source.numbers(), *source.nodal_values()], 3),
        element=joined(source.element_values(), 3), quadrature=joined(source.quadrature(), 3),
        totals=joined(source.totals(passes), 3), factors_size=-(-capacity * source.n_factors // 2) * 2,
        starts="source_starts" if bilinear else "row_starts", n_columns=source.n_columns,
        n_sums=len(source.summed) * source.n_columns, staged_sources=STAGED_SOURCES if bilinear else "",
        source=parts["bilinear" if bilinear else "linear"], pass_begin=parts["pass_begin"], pass_end=parts["pass_end"],
        added=joined(source.added(), 4), written=joined(source.written(), 3),
    )  # fmt: skip
    return text, capacity, shared_bytes(source, layout, capacity)


@functools.lru_cache(maxsize=256)
def _kernel(form: FormTerms, element: Element, layout: Layout, longest: int) -> tuple[Any, int, int]:
    text, capacity, shared = assembly_source(form, element, layout, longest)
    kernel = raw_module(text, OPTIONS).get_function("assemble")
    if shared > STATIC_BYTES:
        kernel.max_dynamic_shared_size_bytes = shared
    return kernel, capacity, shared


def assemble_on_device(
    form: FormTerms, tables: Any, fields: dict[int, Array], n_samples: int, like: Array, outs: Sequence[Any]
) -> list[Array]:
    """Queue the kernel; returns the values of each integrand, shape (n_values, n_samples)."""
    made = [output(out, like, (n, n_samples)) for out, n in zip(outs, tables.n_values(form), strict=True)]
    given = [fields[j] for j in form.used_fields]
    per_sample = [fields[j] for j in form.used_fields if form.fields[j].per_sample]
    layout = layout_of(n_samples, *made, *per_sample)
    longest = tables.gather.longest
    layout = fitting_layout(form, tables.element, layout, longest, n_samples)
    kernel, capacity, shared = _kernel(form, tables.element, layout._replace(tiles=0), longest)
    arrays, n_blocks = tables.on_device(made[0], capacity, form.is_bilinear)
    kernel((n_blocks, layout.tiles), (THREADS,), (*arrays, *given, *made, np.int32(n_samples)), shared_mem=shared)
    return made
