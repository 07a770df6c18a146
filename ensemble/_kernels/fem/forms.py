"""Assembly of traced forms: element tables and fields in, matrix or vector values out.

Arrays of NumPy go to generated loops on the CPU, those of CuPy to generated CUDA kernels, all others to the reference,
which is Array API code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, library_and_device
from ensemble._compile.numba import empty, output, thread_count, tiles
from ensemble._compile.registry import into
from ensemble._compile.trace.replay import replay
from ensemble._kernels.fem.form_cuda import assemble_on_device
from ensemble._kernels.fem.form_loops import fill_parts, part_loop
from ensemble._kernels.fem.form_plan import Element
from ensemble._kernels.fem.form_symmetric import assemble_symmetric
from ensemble._kernels.fem.form_terms import CONSTANT, FormTerms
from ensemble._kernels.fem.symmetric_blocks import symmetric_blocks
from ensemble._kernels.sparse.gather import Gather
from ensemble._typing import Array

__all__ = ["ElementTables", "assemble"]


@dataclass(frozen=True, eq=False)
class ElementTables:
    """The elements of a space and a quadrature rule, on the host; E elements, k functions, n_q points, `dim` axes.

    Elements stand in the order in which they are added; `elements` (E,) are their numbers in fields, `gradients` and
    `dx`. `points` (n_nodes, dim) and `nodes` (E, k): corners and fields given at nodes; `unknowns` (E, k): rows of the
    matrix. `indptr` and `slots` as in `ElementMap`. `shape` (n_q, k), or (E, n_q, k) where it varies: values of the
    functions; `weights` (n_q,) sum to one. `gradients` (E, n_q, k, dim) and `dx` (E, n_q) are empty on linear
    simplices; `gradients` also where no form reads them. `parts` gives, for a number of threads, (first, elements,
    rows): part p visits ``elements[first[p]:first[p + 1]]`` and fills the rows ``rows[p]:rows[p + 1]``. `gather` is for
    devices, where rows gather their elements; `copies` keeps what was copied there.
    """

    element: Element
    points: np.ndarray
    elements: np.ndarray
    nodes: np.ndarray
    unknowns: np.ndarray
    indptr: np.ndarray
    slots: np.ndarray
    shape: np.ndarray
    weights: np.ndarray
    gradients: np.ndarray
    dx: np.ndarray
    parts: Any
    gather: Gather
    copies: dict[Any, Any] = field(default_factory=dict)

    def on_device(self, like: Array, capacity: int, bilinear: bool) -> tuple[list[Array], int]:
        """What `form_cuda` reads, where `like` lives, and the number of blocks; copied once."""
        key = (*library_and_device(like), capacity, bilinear)
        if key not in self.copies:
            gather = self.gather
            blocks = gather.blocks(capacity)
            rows = (blocks, gather.starts, gather.starts, gather.rows)  # a vector has one entry per row
            entry_starts, source_starts, sources, targets = gather.entries(capacity) if bilinear else rows
            arrays = (
                gather.padded(self.points), gather.pair_elements(self.elements), self.nodes, self.shape, self.weights,
                self.gradients, self.dx,
                *(gather.block_nodes(self.nodes, capacity) if self.element.simplex else (self.dx, self.dx, self.dx)),
                blocks, gather.starts, entry_starts,
                gather.incidences, source_starts, sources, targets,
            )  # fmt: skip
            self.copies[key] = [self._copied(array, like) for array in arrays], blocks.size - 1
        found: tuple[list[Array], int] = self.copies[key]
        return found

    def symmetric_on_device(self, like: Array, capacity: int) -> tuple[list[Array], int, int]:
        """What `form_symmetric` reads, where `like` lives, the number of blocks and the most sources of one."""
        key = (*library_and_device(like), "symmetric", capacity)
        if key not in self.gather.copies:
            made = symmetric_blocks(self.gather, self.unknowns, self.elements, self.indptr, self.slots, capacity)
            points, nodes = self.gather.padded(self.points), self.nodes
            arrays = [
                self._copied(points, like),
                self._copied(nodes, like),
                *(asarray_like(a, like) for a in made[:-1]),
            ]
            self.gather.copies[key] = arrays, made.element_starts.size - 1, made.most_sources
        found: tuple[list[Array], int, int] = self.gather.copies[key]
        return found

    def _copied(self, array: np.ndarray, like: Array) -> Array:
        """`array`, which the space keeps, where `like` lives: one copy for all rules and forms."""
        key = (*library_and_device(like), id(array))
        if key not in self.gather.copies:
            self.gather.copies[key] = (asarray_like(array, like), array)  # kept: its id stays its own
        return self.gather.copies[key][0]

    @property
    def n_rows(self) -> int:
        """Unknowns of one component."""
        return int(self.indptr.size) - 1

    def n_values(self, form: FormTerms) -> list[int]:
        """Values of one sample that each integrand gives."""
        entries = int(self.indptr[-1]) if form.is_bilinear else self.n_rows
        return [entries * rows * columns for rows, columns in form.block_shapes]


def assemble(
    form: FormTerms, tables: ElementTables, fields: dict[int, Array], n_samples: int, like: Array, outs: Sequence[Any]
) -> list[Array]:
    """The values of each integrand, shape (n_values, n_samples); blocks in row-major order within an entry.

    `outs` has a buffer or None for each. `fields` are those that the form uses, by number, each of shape (places,
    components, samples or 1). `like` is an array of the library and device of the result; fields have the same.
    """
    backend = backend_of(like)
    if backend == "numba":
        return _on_cpu(form, tables, fields, n_samples, outs)
    if backend == "cuda":
        symmetric = assemble_symmetric(form, tables, fields, n_samples, like, outs)
        return symmetric or assemble_on_device(form, tables, fields, n_samples, like, outs)
    made = reference(form, tables, fields, n_samples, like)
    return [into(out, values) for out, values in zip(outs, made, strict=True)]


def _on_cpu(
    form: FormTerms, tables: ElementTables, fields: dict[int, Array], n_samples: int, outs: Sequence[Any]
) -> list[Array]:
    made = [output(out, (n, n_samples), np.float64) for out, n in zip(outs, tables.n_values(form), strict=True)]
    first, elements, rows = tables.parts(thread_count())
    arrays = (
        tables.points, tables.elements, tables.nodes, tables.unknowns, tables.slots, tables.indptr, tables.shape,
        tables.weights, tables.gradients, tables.dx, first, elements, rows,
    )  # fmt: skip
    dtypes, n_parts = tuple(array.dtype for array in arrays), first.size - 1
    given = [np.ascontiguousarray(array) for array in (*arrays, *(fields[j] for j in form.used_fields))]
    places = np.array([0, *(array.ctypes.data for array in (*given, *made)), 0])
    for start, width in tiles(n_samples):
        loop = part_loop(form, tables.element, width, dtypes)
        scratch = empty((n_parts, loop.scratch), np.float64)
        places[0], places[-1] = scratch.ctypes.data, loop.constants.ctypes.data
        fill_parts(loop.address, n_parts, places, n_samples, start)
    return made


# --- reference
def reference(
    form: FormTerms, tables: ElementTables, fields: dict[int, Array], n_samples: int, like: Array
) -> list[Array]:
    """Assemble by Array API code: element matrices (E, k, k, S) in memory, then sums over the sorted entries."""
    xp = array_namespace(like)
    gradients, dx = _gradients(tables)
    n_elements, k = tables.nodes.shape
    values_of = tables.shape[tables.elements] if tables.element.varying else tables.shape[None]
    arrays = (gradients, dx, values_of, tables.nodes, tables.elements)
    gradients, dx, shape, nodes, elements = (asarray_like(array, like) for array in arrays)
    values: dict[int, Any] = {}
    local = (k, k) if form.is_bilinear else (k,)
    totals = [xp.zeros((n_elements, *local, *block, n_samples), dtype=xp.float64) for block in form.block_shapes]
    for q in range(tables.element.n_points):
        basis = [
            xp.broadcast_to(shape[:, q, :], (n_elements, k)),
            *(gradients[:, q, :, d] for d in range(gradients.shape[-1])),
        ]
        values = {CONSTANT: 1.0}
        for coefficients in (form.element, form.point):
            inputs = {
                p: _input(xp, form, form.inputs[p], fields, (elements, nodes), basis, q)
                for p in coefficients.graph.strong_inputs
            }
            values |= dict(zip(coefficients.numbers, replay(coefficients.graph, inputs, xp), strict=True))
        for term in form.terms:
            weight = dx[:, q, None] * basis[term.test[1]] * term.factor
            if term.trial is not None:
                weight = weight[:, :, None] * basis[term.trial[1]][:, None, :]
            value = values[term.coefficient]
            if not isinstance(value, float):
                value = xp.reshape(value, (value.shape[0], *(1 for _ in local), value.shape[-1]))
            block = (term.test[0], term.trial[0] if term.trial else 0)
            totals[term.form][..., block[0], block[1], :] += weight[..., None] * value
    slots = tables.slots.astype(np.int64) + tables.indptr[tables.unknowns][:, :, None]
    target = slots if form.is_bilinear else tables.unknowns.astype(np.int64)
    n_targets = int(tables.indptr[-1]) if form.is_bilinear else tables.n_rows
    return [
        xp.reshape(_gathered(xp.reshape(total, (target.size, -1)), target, n_targets, like), (-1, n_samples))
        for total in totals
    ]


def _gathered(source: Array, target: np.ndarray, n_targets: int, like: Array) -> Array:
    """The sums of the rows of `source` that have one target, in ascending order."""
    xp = array_namespace(like)
    out = xp.zeros((n_targets, source.shape[1]), dtype=xp.float64)
    order = np.argsort(target.reshape(-1), kind="stable")
    starts = np.searchsorted(target.reshape(-1)[order], np.arange(n_targets + 1))
    for offset in range(int(np.max(np.diff(starts), initial=0))):
        live = starts[:-1] + offset < starts[1:]
        chosen = order[np.where(live, np.minimum(starts[:-1] + offset, order.size - 1), 0)]
        term = xp.take(source, asarray_like(chosen, like), axis=0)
        out = xp.where(asarray_like(live, like)[:, None], out + term, out)
    return out


def _gradients(tables: ElementTables) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (E, n_q, k, dim) and dx (E, n_q) of any element."""
    if not tables.element.simplex:
        empty = np.zeros((tables.elements.size, tables.element.n_points, tables.element.n_functions, 0))
        return tables.gradients[tables.elements] if tables.gradients.size else empty, tables.dx[tables.elements]
    corners = tables.points[tables.nodes]
    edges = corners[:, 1:] - corners[:, :1]
    inverse = np.linalg.inv(edges)  # column i is the gradient of function i + 1
    g = np.swapaxes(inverse, 1, 2)
    g = np.concatenate([-g.sum(axis=1, keepdims=True), g], axis=1)
    volume = np.linalg.det(edges) / 6.0
    shape = (g.shape[0], tables.weights.size, *g.shape[1:])
    return np.broadcast_to(g[:, None], shape), volume[:, None] * tables.weights


def _input(
    xp: Any, form: FormTerms, given: Any, fields: dict[int, Array], places: tuple[Array, Array], basis: list[Array],
    q: int,
) -> Array:  # fmt: skip
    """One input of the graph at point q: shape (E or 1, S or 1)."""
    kind, field = form.fields[given.field], fields[given.field]
    column = field[:, given.component, :]
    elements, nodes = places
    if kind.place == "node":
        n_elements, k = nodes.shape
        at = xp.reshape(xp.take(column, xp.reshape(nodes, (-1,)), axis=0), (n_elements, k, -1))
        return xp.sum(at * basis[given.axis + 1][:, :, None], axis=1)
    if kind.place == "point":
        n_points = field.shape[0] // nodes.shape[0]
        return xp.take(xp.reshape(column, (nodes.shape[0], n_points, -1))[:, q, :], elements, axis=0)
    return xp.take(column, elements, axis=0) if kind.place == "element" else column
