"""Forms written as integrands: a plain function, traced once, gives an assembly loop for all samples."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

from ensemble._check import integer, kind_of, message, one_of
from ensemble._kernels.fem.form_terms import FormTerms
from ensemble._keywords import explains_calls
from ensemble.apps.fem.arguments import Argument, Polynomial, Vector
from ensemble.apps.fem.assembly import assembled
from ensemble.apps.fem.fields import Fields
from ensemble.scalar import Ensemble

__all__ = ["BilinearForm", "LinearForm", "bilinear_form", "linear_form"]


class _Form:
    """An integrand and what its traces gave.

    Attributes
    ----------
    components : tuple of str
        "scalar" or "vector" for the test function, then for the trial function.
    places : int
        1 for a linear form, 2 for a bilinear form.
    traced : dict
        The terms of passes over elements that begin with this form.
    """

    places: int

    def __init__(self, integrand: Callable[..., Any], components: tuple[str, ...], degree: int | None) -> None:
        if not callable(integrand):
            raise TypeError(message(type(self).__name__, "integrand", "be a function", repr(integrand)))
        functools.update_wrapper(self, integrand)
        self.name: str = getattr(integrand, "__name__", "form")
        self.integrand = integrand
        self.degree = None if degree is None else integer(degree, self.name, "degree", minimum=0)
        self.components = tuple(one_of(c, ("scalar", "vector"), self.name, "functions") for c in components)
        self.traced: dict[Any, FormTerms] = {}
        needed, signature = self.places + 1, inspect.signature(integrand)
        names = "test v and fields w" if self.places == 1 else "trial u, test v and fields w"
        try:
            signature.bind(*[None] * needed)  # further parameters may have defaults
        except TypeError:
            wanted = f"take {needed} arguments, {names}"
            raise ValueError(message(self.name, "the integrand", wanted, len(signature.parameters))) from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def __call__(self, *arguments: Any) -> Any:
        return self.integrand(*arguments)

    def integrated(self, values: Mapping[str, Any], dim: int) -> Polynomial:
        """The integrand of symbols and traced fields, checked to be linear in each function."""
        counts = self.counts(dim)
        functions: list[Any] = []
        for place in range(self.places):
            components = [Argument(place, c, dim) for c in range(counts[place])]
            functions.append(components[0] if self.components[place] == "scalar" else Vector(components))
        result = self.integrand(*reversed(functions), Fields(self.name, values))
        if not isinstance(result, Polynomial):
            raise TypeError(self._not_linear(result, values))
        whole = {(True, self.places == 2)}
        if {(test is not None, trial is not None) for test, trial in result.terms} != whole:
            names = "the test function" if self.places == 1 else "the trial and the test function"
            raise TypeError(message(self.name, "every term", f"hold {names}", "one without"))
        return result

    def _not_linear(self, result: Any, values: Mapping[str, Any]) -> str:
        if not isinstance(result, tuple):
            return message(self.name, "the integrand", "be linear in each of its functions", kind_of(result))
        vectors = {name: value for name, value in values.items() if isinstance(value, tuple)}
        fields = ", ".join(f"{name} has shape {_shape(value)}" for name, value in vectors.items())
        advice = f"Write dot(a, b), or a component ({fields})."
        return message(self.name, "the integrand", "be one number at a point", f"a vector of {len(result)}", advice)

    def counts(self, dim: int) -> tuple[int, int]:
        """Components of the test and of the trial function; the latter 0 in a linear form."""
        counts = [dim if c == "vector" else 1 for c in self.components]
        return counts[0], counts[1] if self.places == 2 else 0


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of nested vectors."""
    return (len(value), *_shape(value[0])) if isinstance(value, tuple) else ()


class BilinearForm(_Form):
    """A form a(u, v); made by `bilinear_form`."""

    places = 2

    def assemble(
        self, mesh: Any, *, out: Any = None, backend: str | None = None, check: bool = True, **fields: Any
    ) -> Any:
        """The matrix with entry (i, j) = a(phi_j, phi_i), one per sample of the fields.

        Parameters
        ----------
        mesh : TetMesh or a space
            A space is a `LinearSpace`, a `BoundarySpace`, a `TabulatedSpace`, or what `from_skfem` gives.
        out : CrsMatrix or BcrsMatrix, optional
            The matrix of an earlier call, whose values are overwritten.
        backend : "numpy" or "cupy", optional
            Where the matrix is made; by default where the fields are.
        check : bool
            Whether fields are searched for values that are not finite; a sample with one gets a warning.
        **fields : number, array, Ensemble or Field
            One per attribute that the integrand reads. A number or Ensemble of shape (); shape (n_nodes, ...): at
            nodes; (n_elements, ...): per element; (n_elements, n_points, ...): at quadrature points. The rest of the
            shape is () for a scalar, (3,) for a vector, (3, 3) for a tensor.

        Returns
        -------
        CrsMatrix or BcrsMatrix
            For scalar functions a `CrsMatrix` of shape (n, n). For vector functions a `BcrsMatrix` with one block per
            pair of nodes: shape (3 n, 3 n), or (n, 3 n) and (3 n, n) where one function is a scalar; component c of
            node j has number ``3 j + c``. ``to_crs()`` stores it entry by entry.
            On a mesh over ranks a `DistributedCrsMatrix` in place of both, on ``mesh.part.partition`` or, of vectors,
            ``mesh.part.blocked(3)``; nodal fields are given at the rank's own nodes, in the order of
            ``mesh.part.partition.rows``, or at all nodes of its elements, as ``mesh.points``. Assembly needs no
            messages but one for fields at own nodes. `out` is None there.

        Raises
        ------
        TypeError
            If the integrand is not linear in u and v, or a field is no number, array or Ensemble.
        ValueError
            If the shape of a field fits no place of the mesh, or fits two.
        """
        return assembled(mesh, [self], [out], backend, check, fields)[0]


class LinearForm(_Form):
    """A form L(v); made by `linear_form`."""

    places = 1

    def assemble(
        self, mesh: Any, *, out: Any = None, backend: str | None = None, check: bool = True, **fields: Any
    ) -> Ensemble:
        """The vector with entry i = L(phi_i), an Ensemble of shape (n,), or (n, 3) for vector functions.

        On a mesh over ranks its rows of this rank, shape (n_local,), or (3 n_local,) with the components of a node side
        by side.

        Parameters and errors are those of `BilinearForm.assemble`; `out` is an Ensemble of an earlier call.
        """
        made: Ensemble = assembled(mesh, [self], [out], backend, check, fields)[0]
        return made


@overload
def bilinear_form(integrand: Callable[..., Any]) -> BilinearForm: ...
@overload
def bilinear_form(
    *, trial: str = "scalar", test: str = "scalar", degree: int | None = None
) -> Callable[[Callable[..., Any]], BilinearForm]: ...
@explains_calls("bilinear_form")
def bilinear_form(
    integrand: Any = None, *, trial: str = "scalar", test: str = "scalar", degree: int | None = None
) -> Any:
    """Make a form of an integrand ``f(u, v, w)``.

    The integrand is called once per kind of fields with symbols and gives the value at one point: `u` is the trial
    function, `v` the test function, `w` has the fields as attributes, with `w.x` the coordinates, `w.h` the element
    size and, on facets, `w.n` the outward unit normal. Operators: ``grad dot mul div ddot transpose sym_grad``;
    functions of NumPy on fields.

    Parameters
    ----------
    integrand : callable
        Linear in `u` and in `v`; it must not branch on fields (use ``np.where``). Numbers that it reads from outside
        are arguments of the compiled loop: where one has changed, the integrand is traced again and nothing compiled.
        On a device, and for an exponent, the loop is compiled anew: pass the time of a step as a field there.
    trial, test : "scalar" or "vector"
        Vector functions have one component per axis.
    degree : int, optional
        Polynomial degree that the quadrature rule integrates exactly. By default that of the integrand; a quotient or
        function of a nodal field counts as two degrees more. A `TabulatedSpace`, as `from_skfem` makes it, has a rule
        of its own.

    Returns
    -------
    BilinearForm

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> @fem.bilinear_form
    ... def diffusion(u, v, w):
    ...     return w.kappa * fem.dot(fem.grad(u), fem.grad(v))
    >>> diffusion.assemble(fem.TetMesh.box(2), kappa=1.5)
    CrsMatrix(shape=(27, 27), nnz=223, n_samples=1, float64)
    """
    if integrand is None:
        return lambda function: BilinearForm(function, (test, trial), degree)
    return BilinearForm(integrand, (test, trial), degree)


@overload
def linear_form(integrand: Callable[..., Any]) -> LinearForm: ...
@overload
def linear_form(*, test: str = "scalar", degree: int | None = None) -> Callable[[Callable[..., Any]], LinearForm]: ...
@explains_calls("linear_form")
def linear_form(integrand: Any = None, *, test: str = "scalar", degree: int | None = None) -> Any:
    """Make a form of an integrand ``f(v, w)``, linear in the test function; see `bilinear_form`.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> @fem.linear_form
    ... def load(v, w):
    ...     return w.f * v
    >>> mesh = fem.TetMesh.box(2)
    >>> float(load.assemble(mesh, f=2.0).samples.sum().round(12))
    2.0
    """
    if integrand is None:
        return lambda function: LinearForm(function, (test,), degree)
    return LinearForm(integrand, (test,), degree)
