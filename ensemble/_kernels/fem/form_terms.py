"""The terms of finite-element integrands, traced: which coefficient stands before which pair of slots.

Integrands that are assembled in one pass are traced together. Each is a sum of terms
``coefficient * (slot of the test function) * (slot of the trial function)``. A slot is a value or a derivative of one
component. The coefficients are functions of fields and are recorded as one expression graph. Equal coefficients are
one output of the graph; constant factors are taken out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ensemble._compile.trace.graph import Graph, ancestors, renumbered

__all__ = [
    "CONSTANT", "Coefficients", "FieldKind", "FormTerms", "Input", "Term", "fields_of", "form_terms", "simplex_mean",
    "weighted_term",
]  # fmt: skip

CONSTANT = -1
"""The coefficient of a term that has a factor alone."""


class FieldKind(NamedTuple):
    """Where a field is given and what one value of it is.

    `place` is "number" (one for the domain), "element", "node" or "point" (quadrature points of each element); `shape`
    the shape of one value; `per_sample` tells that samples differ.
    """

    name: str
    place: str
    shape: tuple[int, ...]
    per_sample: bool

    @property
    def size(self) -> int:
        """Components of one value."""
        size = 1
        for length in self.shape:
            size *= length
        return size


class Input(NamedTuple):
    """One scalar that the graph reads: a component of field number `field`; its derivative along `axis` where >= 0."""

    field: int
    component: int
    axis: int


class Term(NamedTuple):
    """``factor * coefficient``, before component and derivative of the test and of the trial function.

    A derivative of 0 is the value, d + 1 the derivative along axis d. `trial` is None in a linear form. `form` is the
    number of the integrand.
    """

    test: tuple[int, int]
    trial: tuple[int, int] | None
    factor: float
    coefficient: int
    form: int


@dataclass(frozen=True)
class Coefficients:
    """An expression graph whose outputs are coefficients, by their numbers in `numbers`."""

    graph: Graph
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class FormTerms:
    """What code generation needs of integrands. Frozen and comparable: the key of generated kernels.

    `element` are the coefficients that do not vary within an element, `point` the others. `degree` is the highest
    polynomial degree of an integrand on affine elements with linear functions, where all are polynomials; otherwise an
    estimate.
    """

    terms: tuple[Term, ...]
    fields: tuple[FieldKind, ...]
    inputs: tuple[Input, ...]
    element: Coefficients
    point: Coefficients
    degree: int
    components: tuple[tuple[int, int], ...]
    """For each integrand, components of the test and of the trial function; the latter 0 in linear forms."""
    dim: int

    @property
    def is_bilinear(self) -> bool:
        """Whether there is a trial function."""
        return self.components[0][1] > 0

    @property
    def block_shapes(self) -> tuple[tuple[int, int], ...]:
        """For each integrand, rows and columns of a block of its matrix, or of its vector with one column."""
        return tuple((rows, max(columns, 1)) for rows, columns in self.components)

    @property
    def has_derivatives(self) -> bool:
        """Whether a derivative of a function or of a field is read."""
        read = {p for c in (self.element, self.point) for p in c.graph.strong_inputs}
        slots = [slot for term in self.terms for slot in (term.test, term.trial) if slot]
        return any(derivative for _, derivative in slots) or any(self.inputs[p].axis >= 0 for p in read)

    @property
    def used_fields(self) -> tuple[int, ...]:
        """The numbers of the fields that are read, ascending."""
        used = {self.inputs[p].field for c in (self.element, self.point) for p in c.graph.strong_inputs}
        return tuple(sorted(used))


def fields_of(terms: FormTerms, coefficients: Coefficients) -> Iterator[tuple[int, Input]]:
    """The inputs of some coefficients, with their positions in the graph."""
    for position in coefficients.graph.strong_inputs:
        yield position, terms.inputs[position]


def form_terms(
    graph: Graph,
    terms: list[tuple[int, Any, Any, float, int]],
    fields: tuple[FieldKind, ...],
    inputs: tuple[Input, ...],
    components: tuple[tuple[int, int], ...],
    dim: int,
) -> FormTerms:
    """Traced terms (form, test, trial, factor, coefficient); coefficient number k is output k of `graph`."""
    merged: dict[tuple[Any, Any, int, int], float] = {}
    node_of = dict(enumerate(graph.outputs))
    first_of: dict[int, int] = {}
    for k, node in node_of.items():
        first_of.setdefault(node, k)
    for form, test, trial, factor, number in terms:
        same = CONSTANT if number == CONSTANT else first_of[node_of[number]]
        key = (test, trial, same, form)
        merged[key] = merged.get(key, 0.0) + factor
    kept = tuple(Term(*key[:2], factor, *key[2:]) for key, factor in merged.items() if factor != 0.0)
    if not kept:  # a loop needs a term
        kept = (Term((0, 0), (0, 0) if components[0][1] else None, 0.0, CONSTANT, 0),)
    places = {p: fields[i.field].place if i.axis < 0 else "element" for p, i in enumerate(inputs)}
    degrees = _degrees(graph, places)
    numbers = sorted({term.coefficient for term in kept} - {CONSTANT})
    constant = {k for k in numbers if degrees[node_of[k]] == 0}
    element = _restricted(graph, tuple(k for k in numbers if k in constant))
    point = _restricted(graph, tuple(k for k in numbers if k not in constant))
    total = 0
    for term in kept:
        own = 0 if term.coefficient == CONSTANT else degrees[node_of[term.coefficient]]
        slots = [term.test, *([term.trial] if term.trial else [])]
        total = max(total, own + sum(derivative == 0 for _, derivative in slots))
    return FormTerms(kept, fields, inputs, element, point, total, components, dim)


def _restricted(graph: Graph, numbers: tuple[int, ...]) -> Coefficients:
    """The part of `graph` that some of its outputs need."""
    outputs = [graph.outputs[k] for k in numbers]
    nodes, places = renumbered(graph.nodes, sorted(ancestors(graph.nodes, outputs)), outputs)
    return Coefficients(Graph(nodes, graph.n_inputs, places, tuple(range(len(outputs)))), numbers)


DEGREES: Mapping[str, int] = {"number": 0, "element": 0, "node": 1, "point": 1}
"""The degree of a field within an element; that of values at points is not known."""


def _degrees(graph: Graph, places: Mapping[int, str]) -> list[int]:
    """The polynomial degree of each node within an element; functions and quotients count two more."""
    degrees: list[int] = []
    for node in graph.nodes:
        of = [degrees[k] for k in node.inputs]
        if node.operation == "input":
            degree = DEGREES[places[node.value]]
        elif node.operation in ("multiply",):
            degree = sum(of)
        elif node.operation == "square":
            degree = 2 * of[0]
        elif node.operation in ("add", "subtract", "negative", "positive", "cast", "constant"):
            degree = max(of, default=0)
        else:
            degree = sum(of) + 2 if sum(of) else 0
        degrees.append(degree)
    return degrees


def simplex_mean(term: Term, n: int, gradients: Sequence[str], number: Callable[[float], str], equal: str) -> str:
    """Write the mean over a simplex of `n` linear functions of one product of slots, in Python or in C++.

    Values of two functions have the mean 2 / (n (n + 1)) where they are the same one, else half of that: `equal` is a
    condition with places for both. `number` writes a factor; `gradients` are the slots that are derivatives.
    """
    values = (1 if term.trial is None else 2) - len(gradients)
    if values == 2:
        return f"{number(term.factor)} * {equal.format(repr(2.0 / (n * (n + 1))), repr(1.0 / (n * (n + 1))))}"
    factor = term.factor / n if values else term.factor
    product = " * ".join(gradients) or "1.0"
    return product if factor == 1.0 else f"{number(factor)} * {product}"


def weighted_term(
    term: Term, number: Callable[[float], str], basis: Callable[[str, int], str], scalar: str
) -> str:  # fmt: skip
    """Write what a term adds to the flux at a point: its coefficient, by the weight ``scale`` and a trial function.

    `scalar` has a place for the product of the numbers that all samples share.
    """
    factors = ["scale"] if term.factor == 1.0 else ["scale", number(term.factor)]
    factors += [basis("j", term.trial[1])] if term.trial else []
    product = scalar.format(" * ".join(factors))
    return product if term.coefficient == CONSTANT else f"c{term.coefficient} * {product}"
