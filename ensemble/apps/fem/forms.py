"""Forms written as integrands: a plain function, traced once, gives an assembly loop for all samples."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, prototype
from ensemble._check import message, one_of, require
from ensemble._compile.trace.tracer import Scalar, Traced, trace
from ensemble._kernels.fem.form_terms import CONSTANT, FieldKind, FormTerms, Input, form_terms
from ensemble._kernels.fem.forms import assemble
from ensemble._typing import Array
from ensemble.apps.fem.arguments import Argument, Polynomial, Vector
from ensemble.apps.fem.fields import Fields, common_samples, placed_field, warn_if_not_finite
from ensemble.apps.fem.spaces import Space, space_of
from ensemble.linalg import CrsMatrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["BilinearForm", "LinearForm", "bilinear_form", "linear_form"]

REAL = Scalar("float64")


class _Form:
    """An integrand and what its traces gave."""

    places: int

    def __init__(self, integrand: Callable[..., Any], components: tuple[str, ...], degree: int | None) -> None:
        functools.update_wrapper(self, integrand)
        self.integrand, self.degree = integrand, degree
        self.name: str = getattr(integrand, "__name__", "form")
        self.components = tuple(one_of(c, ("scalar", "vector"), self.name, "functions") for c in components)
        self._traced: dict[Any, FormTerms] = {}
        needed = self.places + 1
        count = len(inspect.signature(integrand).parameters)
        names = "test v and fields w" if self.places == 1 else "trial u, test v and fields w"
        require(count == needed, self.name, "the integrand", f"take {needed} arguments, {names}", f"{count}")

    def __call__(self, *arguments: Any) -> Any:
        return self.integrand(*arguments)

    def terms(self, kinds: tuple[FieldKind, ...], dim: int) -> FormTerms:
        """The traced terms for fields of these kinds, in `dim` axes."""
        key = (kinds, dim)
        if key not in self._traced:
            self._traced[key] = self._trace(kinds, dim)
        return self._traced[key]

    def _trace(self, kinds: tuple[FieldKind, ...], dim: int) -> FormTerms:
        inputs: list[Input] = []
        for j, kind in enumerate(kinds):
            inputs += [Input(j, c, -1) for c in range(kind.size)]
            if kind.place == "node":
                inputs += [Input(j, c, axis) for c in range(kind.size) for axis in range(dim)]
        counts = tuple(dim if c == "vector" else 1 for c in self.components)
        terms: list[tuple[Any, Any, float, int]] = []

        def body(values: Any) -> Any:
            functions = [self._function(place, counts[place], dim) for place in range(self.places)]
            fields = Fields(self.name, self._fields(kinds, inputs, values, dim))
            result = self.integrand(*reversed(functions), fields)
            return self._coefficients(result, terms)

        graph = trace(body, tuple([REAL] * len(inputs)), function=self.name)
        shape = (counts[0], counts[1] if self.places == 2 else 0)
        return form_terms(graph, terms, kinds, tuple(inputs), shape, dim)

    def _function(self, place: int, n_components: int, dim: int) -> Any:
        components = [Argument(place, c, dim) for c in range(n_components)]
        return components[0] if self.components[place] == "scalar" else Vector(components)

    @staticmethod
    def _fields(kinds: tuple[FieldKind, ...], inputs: list[Input], values: Any, dim: int) -> dict[str, Any]:
        """The traced fields by name, nested as their values are; gradients of nodal fields are noted in the trace."""
        at = dict(zip(inputs, values, strict=True))
        found = {}
        for j, kind in enumerate(kinds):
            components = [at[Input(j, c, -1)] for c in range(kind.size)]
            if kind.place == "node":
                for c, value in enumerate(components):
                    gradient = Vector(at[Input(j, c, axis)] for axis in range(dim))
                    value._tracer.gradients[value._node] = gradient
            found[kind.name] = _nested(components, kind.shape)
        return found

    def _coefficients(self, result: Any, terms: list[Any]) -> tuple[Any, ...]:
        """The coefficients that are no constants, in the order of their numbers in `terms`."""
        if not isinstance(result, Polynomial):
            seen = f"a {type(result).__name__}"
            raise TypeError(message(self.name, "the integrand", "be linear in each of its functions", seen))
        whole = {(True, self.places == 2)}
        if {(test is not None, trial is not None) for test, trial in result.terms} != whole:
            names = "the test function" if self.places == 1 else "the trial and the test function"
            raise TypeError(message(self.name, "every term", f"hold {names}", "one without"))
        outputs: list[Any] = []
        for (test, trial), coefficient in result.terms.items():
            factor, rest = _split(coefficient)
            slots = (tuple(test or ()), trial and tuple(trial))
            if rest is None:
                terms.append((*slots, factor, CONSTANT))
            else:
                terms.append((*slots, factor, len(outputs)))
                outputs.append(rest if rest.dtype == np.float64 else rest * 1.0)
        return tuple(outputs)

    def _assembled(
        self, mesh: Any, out: Any, backend: str | None, check: bool, fields: Mapping[str, Any]
    ) -> _Assembled:
        space = space_of(mesh, self.name)
        given = {name: placed_field(self.name, name, value, space) for name, value in fields.items()}
        kind, x = space.coordinates
        given.setdefault("x", (FieldKind("x", kind, (space.dim,), False), x[..., None], None))
        given.setdefault("h", (FieldKind("h", "element", (), False), None, None))
        form = self.terms(tuple(kind for kind, _, _ in given.values()), space.dim)
        n_samples, sample_set = common_samples(self.name, given)
        like = next((v for _, v, _ in given.values() if v is not None and not isinstance(v, np.ndarray)), np.empty(0))
        if backend is not None:
            like = prototype(one_of(backend, ("numpy", "cupy"), self.name, "backend"))
        arrays: dict[int, Array] = {}
        for j, (kind_of, values, _) in enumerate(given.values()):
            if j in form.used_fields:
                values = space.sizes[:, None] if values is None else values
                values = asarray_like(values, like)
                shape = (-1, kind_of.size, values.shape[-1])
                arrays[j] = contiguous(array_namespace(values).reshape(values, shape))
                if check and kind_of.name in fields:
                    warn_if_not_finite(self.name, kind_of.name, arrays[j])
        degree = self.degree if self.degree is not None else form.degree
        tables = space.tables(degree)
        for kind_of, values, _ in given.values():
            if kind_of.place == "point" and values.shape[1] != tables.element.n_points:
                wanted = f"have {tables.element.n_points} points per element, as the rule of degree {degree}"
                require(False, self.name, kind_of.name, wanted, values.shape[1], "Set degree= of the form.")
        values = assemble(form, tables, arrays, n_samples, like, out)
        return _Assembled(space, form, values, sample_set)


class _Assembled:
    """The values of a form, and what they belong to."""

    def __init__(self, space: Space, form: FormTerms, values: Array, sample_set: SampleSet | None) -> None:
        self.space, self.form, self.values, self.sample_set = space, form, values, sample_set


class BilinearForm(_Form):
    """A form a(u, v); made by `bilinear_form`."""

    places = 2

    def assemble(
        self, mesh: Any, *, out: CrsMatrix | None = None, backend: str | None = None, check: bool = True, **fields: Any
    ) -> CrsMatrix:
        """The matrix with entry (i, j) = a(phi_j, phi_i), one per sample of the fields.

        Parameters
        ----------
        mesh : TetMesh or a space
        out : CrsMatrix, optional
            A matrix of an earlier call with scalar functions, whose values are overwritten.
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
        CrsMatrix
            Shape (n, n) for scalar functions, (3 n, 3 n) for vector functions, (n, 3 n) or (3 n, n) for one of each;
            component c of node j has number ``3 j + c``.

        Raises
        ------
        TypeError
            If the integrand is not linear in u and v, or a field is no number, array or Ensemble.
        ValueError
            If the shape of a field fits no place of the mesh, or fits two.
        """
        if out is not None and "vector" in self.components:
            raise TypeError(message(self.name, "out", "be None for vector functions", f"a {type(out).__name__}"))
        made = self._assembled(mesh, out and out.values, backend, check, fields)
        return _matrix(made) if out is None else out


class LinearForm(_Form):
    """A form L(v); made by `linear_form`."""

    places = 1

    def assemble(
        self, mesh: Any, *, out: Any = None, backend: str | None = None, check: bool = True, **fields: Any
    ) -> Ensemble:
        """The vector with entry i = L(phi_i), an Ensemble of shape (n,), or (n, 3) for vector functions.

        Parameters and errors are those of `BilinearForm.assemble`; `out` is an Ensemble of an earlier call.
        """
        buffer = None
        if out is not None:
            buffer = array_namespace(out.samples).reshape(out.samples, (-1, out.n_samples))
        made = self._assembled(mesh, buffer, backend, check, fields)
        if out is not None:
            return out  # type: ignore[no-any-return]
        n, rows = made.space.n_unknowns, made.form.components[0]
        shape = (n, made.values.shape[-1]) if self.components[0] == "scalar" else (n, rows, made.values.shape[-1])
        return Ensemble(array_namespace(made.values).reshape(made.values, shape), made.sample_set)


@overload
def bilinear_form(integrand: Callable[..., Any]) -> BilinearForm: ...
@overload
def bilinear_form(
    *, trial: str = "scalar", test: str = "scalar", degree: int | None = None
) -> Callable[[Callable[..., Any]], BilinearForm]: ...
def bilinear_form(
    integrand: Any = None, *, trial: str = "scalar", test: str = "scalar", degree: int | None = None
) -> Any:
    """Make a form of an integrand ``f(u, v, w)``.

    The integrand is called once per kind of fields with symbols and gives the value at one point: `u` is the trial
    function, `v` the test function, `w` has the fields as attributes, with `w.x` the coordinates and `w.h` the element
    size. Operators: ``grad dot mul div ddot transpose sym_grad``; functions of NumPy on fields.

    Parameters
    ----------
    integrand : callable
        Linear in `u` and in `v`; it must not branch on fields (use ``np.where``).
    trial, test : "scalar" or "vector"
        Vector functions have one component per axis.
    degree : int, optional
        Polynomial degree that the quadrature rule integrates exactly. By default that of the integrand; a quotient or
        function of a nodal field counts as two degrees more.

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


# --- coefficients
def _split(coefficient: Any) -> tuple[float, Any]:
    """(constant factor, the rest) of a coefficient; the rest is None for a number."""
    if not isinstance(coefficient, Traced):
        return float(coefficient), None
    factor, tracer, k = 1.0, coefficient._tracer, coefficient._node
    while True:
        node = tracer.nodes[k]
        if node.operation == "constant":
            return factor * float(node.value), None
        if node.operation == "negative":
            factor, k = -factor, node.inputs[0]
            continue
        if node.operation == "multiply":
            constants = [i for i in node.inputs if tracer.nodes[i].operation == "constant"]
            if len(constants) == 1:
                factor *= float(tracer.nodes[constants[0]].value)
                k = next(i for i in node.inputs if i != constants[0])
                continue
        return factor, Traced(tracer, k)


def _nested(components: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return components[0]
    step = len(components) // shape[0]
    return Vector(_nested(components[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


# --- results
def _matrix(made: _Assembled) -> CrsMatrix:
    """The matrix of scalar unknowns: component c of node i has number ``components * i + c``."""
    space, (rows, columns) = made.space, made.form.components
    if rows == columns == 1:
        return CrsMatrix(space.graph, Ensemble(made.values, made.sample_set))
    graph, order = space.scalar_graph(rows, columns)
    xp = array_namespace(made.values)
    values = xp.take(made.values, asarray_like(order, made.values), axis=0)
    return CrsMatrix(graph, Ensemble(values, made.sample_set))
