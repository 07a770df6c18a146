"""CUDA source of the assembly of symmetric forms in closed form, for many samples: elements once a block.

On linear simplices, terms that take the same derivative of test and trial function give entries (i, j) and (j, i) the
same bits: each is computed once and written twice. A block has some rows that lie near each other, all elements around
them, and the entries of these rows that no block before has. Where `form_cuda` stages geometry and coefficients for
each pair of row and element, here each element of the block is staged once, with 10 factors instead of 16, and
coefficients that are fields are copied without registers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._compile.cuda import Layout, layout_of, output, sources
from ensemble._compile.device import raw_module
from ensemble._compile.trace.cuda_source import OPTIONS, device_function
from ensemble._kernels.fem.form_cuda import FormSource, joined
from ensemble._kernels.fem.form_plan import Element
from ensemble._kernels.fem.form_terms import CONSTANT, FormTerms, Term
from ensemble._kernels.fem.form_text import GEOMETRY, SYMMETRIC
from ensemble._typing import Array

__all__ = ["assemble_symmetric", "is_symmetric", "symmetric_source"]

FEWEST_SAMPLES = 16
"""Samples from which on a block's time goes into coefficients and entries, not into geometry."""

CAPACITIES = (160, 128, 96, 64)
"""Elements of a block."""

BLOCK_BYTES = 73 << 10
"""Shared memory of a block: a multiprocessor holds three."""

MULTIPROCESSOR_BYTES = 226 << 10
STATIC_BYTES = 48 << 10
THREADS, MOST_BLOCKS = 256, 5
"""Threads of a block; blocks of a multiprocessor, for which registers are limited."""


def is_symmetric(form: FormTerms, element: Element) -> bool:
    """Whether entries (i, j) and (j, i) of every pattern have the same bits, and need neither points nor gradients."""
    if not (form.is_bilinear and element.simplex):
        return False
    source = FormSource(form, element)
    exact = not source.summed and not source.with_gradients
    return exact and all(_is_symmetric(term) for p in source.patterns for _, terms in p.exact for term in terms)


def _is_symmetric(term: Term) -> bool:
    """Products of two derivatives take another factor before one of them: it must not round."""
    same = term.trial is not None and term.test[1] == term.trial[1]
    return same and (term.test[1] == 0 or abs(math.frexp(term.factor)[0]) == 0.5)


class _Source:
    """The pieces of one kernel."""

    def __init__(self, form: FormTerms, element: Element) -> None:
        self.form, self.k, self.source = form, element.n_functions, FormSource(form, element)
        self.n_pairs = self.k * (self.k + 1) // 2
        self.exact = [(n, c, terms) for n, p in enumerate(self.source.patterns) for c, terms in p.exact]
        count = self.n_pairs * len(self.exact)
        self.n_factors = count + 1 - count % 2  # odd: threads write to different banks

    def factors(self) -> list[str]:
        """Lines that stage the factors of an element: the mean of the terms of each coefficient over it, by pairs."""
        lines, at = [], 0
        for _, _, terms in self.exact:
            for a in range(self.k):
                for j in range(a, self.k):
                    value = " + ".join(self._factor(term, a, j) for term in terms)
                    lines.append(f"stage[{at}] = volume * ({value});")
                    at += 1
        return lines

    def _factor(self, term: Term, a: int, j: int) -> str:
        if term.test[1] == 0:
            return f"{term.factor!r} * {(2.0 if a == j else 1.0) / (self.k * (self.k + 1))!r}"
        d = term.test[1] - 1
        product = f"gradient[{3 * a + d}] * gradient[{3 * j + d}]"
        return product if term.factor == 1.0 else f"{term.factor!r} * {product}"

    def _copied_fields(self) -> list[str] | None:
        """For each staged coefficient its field and place, where all are values of fields on elements."""
        form, graph, places = self.form, self.form.element.graph, []
        for output_node in graph.outputs:
            node = graph.nodes[output_node]
            given = form.inputs[node.value] if node.operation == "input" else None
            kind = form.fields[given.field] if given else None
            if given is None or kind is None or given.axis >= 0 or kind.place != "element" or not kind.per_sample:
                return None
            places.append(f"f{given.field} + (g * {kind.size} + {given.component}) * n_samples + s")
        return places

    def coefficients(self, layout: Layout) -> list[str]:
        """Lines that stage the coefficients of an element."""
        copied = self._copied_fields() if layout.vector == 2 else None
        if copied is None:
            return self.source.element_values()
        at = "coefficients + ({} * CAPACITY + t) * LANES + lane"
        return [f"copy_async_once<16>({at.format(n)}, {place});" for n, place in enumerate(copied)]

    def added(self) -> list[str]:
        """Lines that add what one element gives to an entry."""
        lines = [
            f"const Pack c{number} = coefficients[({n} * CAPACITY + t) * LANES + lane];"
            for n, number in enumerate(self.source.staged)
        ]
        for n in range(len(self.source.patterns)):
            parts = []
            for at, (pattern, number, _) in enumerate(self.exact):
                if pattern == n:
                    factor = f"spread(stage[{at * self.n_pairs} + j])"
                    parts.append(factor if number == CONSTANT else f"c{number} * {factor}")
            lines.append(f"total{n} = total{n} + ({' + '.join(parts)});")
        return lines

    def bytes_of(self, layout: Layout, capacity: int) -> int:
        """Shared memory of a block, but for its sources."""
        return 8 * capacity * (self.n_factors + len(self.source.staged) * layout.lanes * layout.vector)


def capacity_of(form: FormTerms, element: Element, layout: Layout, longest: int) -> int:
    """The elements of a block; 0 where those of a row do not fit one."""
    source = _Source(form, element)
    return next((c for c in CAPACITIES if c >= longest and source.bytes_of(layout, c) <= BLOCK_BYTES), 0)


def symmetric_source(
    form: FormTerms, element: Element, layout: Layout, capacity: int, most_sources: int
) -> tuple[str, int]:
    """The kernel for blocks of at most so many elements and sources, and its shared memory."""
    source = _Source(form, element)
    shared = source.bytes_of(layout, capacity) + 2 * most_sources
    blocks = max(1, min(MOST_BLOCKS, MULTIPROCESSOR_BYTES // (shared + 1024)))
    body = device_function(form.element.graph, "element_coefficients") if form.element.numbers else ""
    includes = ("types", "samples", "elementwise", "async_copies")
    text = SYMMETRIC.format(
        lanes=layout.lanes, vector=layout.vector, threads=THREADS, blocks=blocks, capacity=capacity,
        headers=sources(*(f"_compile/include/{name}.cuh" for name in includes)), bodies=body,
        ahead=-(-capacity * layout.lanes // THREADS), n_coefficients=len(source.source.staged),
        n_factors=source.n_factors, n_pairs=source.n_pairs,
        fields="".join(f"const real* __restrict__ f{j}, " for j in form.used_fields),
        outs=" ".join(f"real* __restrict__ out{n}," for n in range(len(form.components))),
        numbers=joined(source.source.numbers(), 2), element=joined(source.coefficients(layout), 3),
        geometry=joined(GEOMETRY.split("\n"), 2), exact=joined(source.factors(), 2),
        totals=joined(source.source.totals(False), 2), added=joined(source.added(), 3),
        written=joined([line.replace("store(", "store_past(", 1) for line in source.source.written()], 3),
    )  # fmt: skip
    return text, shared


@functools.lru_cache(maxsize=256)
def _kernel(form: FormTerms, element: Element, layout: Layout, capacity: int, most_sources: int) -> tuple[Any, int]:
    text, shared = symmetric_source(form, element, layout, capacity, most_sources)
    kernel = raw_module(text, OPTIONS).get_function("assemble")
    if shared > STATIC_BYTES:
        kernel.max_dynamic_shared_size_bytes = shared
    return kernel, shared


def assemble_symmetric(
    form: FormTerms, tables: Any, fields: dict[int, Array], n_samples: int, like: Array, outs: Sequence[Any]
) -> list[Array] | None:
    """Queue the kernel; returns as `form_cuda.assemble_on_device`, or None where that is to do it."""
    if n_samples < FEWEST_SAMPLES or not is_symmetric(form, tables.element):
        return None
    made = [output(out, like, (n, n_samples)) for out, n in zip(outs, tables.n_values(form), strict=True)]
    given = [fields[j] for j in form.used_fields]
    per_sample = [fields[j] for j in form.used_fields if form.fields[j].per_sample]
    layout = layout_of(n_samples, *made, *per_sample)
    capacity = capacity_of(form, tables.element, layout, tables.gather.longest)
    if not capacity:
        return None
    arrays, n_blocks, most_sources = tables.symmetric_on_device(made[0], capacity)
    kernel, shared = _kernel(form, tables.element, layout._replace(tiles=0), capacity, most_sources)
    kernel((n_blocks, layout.tiles), (THREADS,), (*arrays, *given, *made, np.int32(n_samples)), shared_mem=shared)
    return made
