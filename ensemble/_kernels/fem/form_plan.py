"""How the terms of a form are evaluated on one element: what both targets of code generation share.

Blocks of the matrix (pairs of components) with equal terms share one entry, a pattern: the three diagonal blocks of a
vector mass matrix are computed once. On linear simplices a term whose coefficient is constant within an element needs
no quadrature: its factor is geometry alone, shared by all samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from ensemble._kernels.fem.form_terms import CONSTANT, FormTerms, Term

__all__ = ["Element", "Pattern", "patterns"]


@dataclass(frozen=True)
class Element:
    """The local basis. `simplex`: linear functions on a tetrahedron, geometry from its corners; else tabulated.

    A tabulated basis reads its gradients and ``dx`` (weights times Jacobian determinants) at each point of each
    element. `varying`: its values too; otherwise they are equal on all elements.
    """

    n_functions: int
    n_points: int
    dim: int
    simplex: bool
    varying: bool = False


@dataclass(frozen=True)
class Pattern:
    """Terms of one entry and the blocks (integrand, test component, trial component) that receive it.

    `exact` are integrated in closed form, by coefficient; `quadrature` are summed over points.
    """

    blocks: tuple[tuple[int, int, int], ...]
    exact: tuple[tuple[int, tuple[Term, ...]], ...]
    quadrature: tuple[Term, ...]

    def by_test(self) -> list[tuple[int, list[Term]]]:
        """The terms of `quadrature` by the derivative of the test function."""
        derivatives = sorted({term.test[1] for term in self.quadrature})
        return [(d, [term for term in self.quadrature if term.test[1] == d]) for d in derivatives]


def patterns(form: FormTerms, element: Element) -> list[Pattern]:
    """The entries that differ, in the order of their first block."""
    groups: dict[tuple[Term, ...], list[tuple[int, int, int]]] = {}
    blocks: dict[tuple[int, int, int], list[Term]] = {}
    for term in form.terms:
        block = (term.form, term.test[0], term.trial[0] if term.trial else 0)
        blocks.setdefault(block, []).append(term)
    for block, terms in sorted(blocks.items()):
        key = tuple(
            Term((0, t.test[1]), t.trial and (0, t.trial[1]), t.factor, t.coefficient, 0)
            for t in sorted(terms, key=lambda t: (t.coefficient, t.test, t.trial or (0, 0)))
        )
        groups.setdefault(key, []).append(block)
    exactly = {CONSTANT, *form.element.numbers} if element.simplex else set()
    found = []
    for key, places in groups.items():
        exact = [t for t in key if t.coefficient in exactly]
        numbers = sorted({t.coefficient for t in exact})
        by_number = tuple((c, tuple(t for t in exact if t.coefficient == c)) for c in numbers)
        found.append(Pattern(tuple(places), by_number, tuple(t for t in key if t.coefficient not in exactly)))
    return found
