"""Assembly of forms in passes over the elements: forms with common samples and one rule share a pass.

Longer than 400 lines: the checks of fields and of results belong to the passes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import (
    array_namespace,
    asarray_like,
    backend_of,
    contiguous,
    is_writable,
    library_and_device,
    prototype,
)
from ensemble._check import kind_of, message, one_of, require
from ensemble._compile.trace.fingerprint import kept_under_code
from ensemble._compile.trace.tracer import Scalar, Traced, trace
from ensemble._kernels.fem.form_cuda import suit_one_kernel
from ensemble._kernels.fem.form_terms import CONSTANT, FieldKind, FormTerms, Input, form_terms
from ensemble._kernels.fem.forms import ElementTables
from ensemble._kernels.fem.forms import assemble as assemble_terms
from ensemble._typing import Array
from ensemble.apps.fem.arguments import Vector
from ensemble.apps.fem.fields import Field, common_samples, fitting_places, placed_field, warn_if_not_finite
from ensemble.apps.fem.spaces import Space, space_of
from ensemble.linalg import BcrsMatrix, CrsMatrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["assemble", "assembled"]

REAL = Scalar("float64")

KEPT = 64
"""Traces that a form keeps."""

SMALLEST, LARGEST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)
"""The range of products of constants that are one factor of a term."""


def assemble(
    mesh: Any, *forms: Any, out: Sequence[Any] | None = None, backend: str | None = None, check: bool = True,
    **fields: Any,
) -> list[Any]:  # fmt: skip
    """Assemble several forms in as few passes over the elements as possible.

    A pass computes the geometry of an element once and reads each field once. Bilinear forms without samples share a
    pass, bilinear forms with samples share another; linear forms likewise. Within a pass all terms that need
    quadrature use the rule of the highest degree, so values may differ in the last bits from those of a form alone.
    On a CUDA device a pass is as many kernels as keep it busy; values are those of one.

    Parameters
    ----------
    mesh : TetMesh or a space
    *forms : BilinearForm or LinearForm
    out : list, optional
        The list of an earlier call, whose values are overwritten.
    backend, check
        See `BilinearForm.assemble`.
    **fields
        The fields of all forms; a form reads those that its integrand names.

    Returns
    -------
    list of CrsMatrix, BcrsMatrix and Ensemble
        One per form, in their order.

    Raises
    ------
    TypeError, ValueError
        As `BilinearForm.assemble`; ValueError where `out` has another length than `forms`.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> @fem.bilinear_form
    ... def mass(u, v, w):
    ...     return u * v
    >>> @fem.bilinear_form
    ... def diffusion(u, v, w):
    ...     return w.kappa * fem.dot(fem.grad(u), fem.grad(v))
    >>> M, K = fem.assemble(fem.TetMesh.box(2), mass, diffusion, kappa=2.0)
    >>> float(M.values.sum().round(12)), K.shape
    (1.0, (27, 27))
    """
    for form in forms:
        if not hasattr(form, "integrated"):
            advice = "Decorate it: @fem.bilinear_form."
            raise TypeError(message("assemble", "forms", "be forms", kind_of(form), advice))
    if not isinstance(out, list | tuple | None):
        raise TypeError(message("assemble", "out", f"be a list of {len(forms)} results", kind_of(out)))
    outs: list[Any] = [None] * len(forms) if out is None else list(out)
    require(len(outs) == len(forms), "assemble", "out", f"have {len(forms)} entries, one per form", len(outs))
    given = [id(each) for each in outs if each is not None]
    require(len(set(given)) == len(given), "assemble", "out", "name each result once", "one twice")
    return assembled(mesh, forms, outs, backend, check, fields)


class _Given(NamedTuple):
    """The fields of a call: their kinds, their values (None: those of the space) and their samples."""

    kinds: tuple[FieldKind, ...]
    values: list[Any]
    n_samples: int
    sample_set: SampleSet | None


def assembled(
    mesh: Any, forms: Sequence[Any], outs: Sequence[Any], backend: str | None, check: bool, fields: Mapping[str, Any]
) -> list[Any]:
    """The results of `forms`, in the objects of `outs` where there is one."""
    name = forms[0].name if len(forms) == 1 else "assemble"
    space = space_of(mesh, name)
    if space.part is not None:
        return _over_ranks(space, name, forms, outs, backend, check, fields)
    return _assembled(space, name, forms, outs, backend, check, _given(name, space, fields), fields)


def _over_ranks(
    space: Space, name: str, forms: Sequence[Any], outs: Sequence[Any], backend: str | None, check: bool, fields: Any
) -> list[Any]:
    """The results over ranks: each assembles what its elements give to its rows, without messages."""
    part = space.part
    with part.alike():
        fresh = all(out is None for out in outs)
        require(fresh, name, "out", "be None on a mesh over ranks", "a result of an earlier call")
        require(backend in (None, "numpy"), name, "backend", "be None or 'numpy' on a mesh over ranks", repr(backend))
        places = {field: fitting_places(value, space) for field, value in fields.items()}
    common = part.common_places(name, places)
    placed = {f: Field(v.values if isinstance(v, Field) else v, common.get(f)) for f, v in fields.items()}
    with part.alike():
        given = _given(name, space, placed)
        for kind, v in zip(given.kinds, given.values, strict=True):
            on_host = v is None or isinstance(v, np.ndarray)
            require(on_host, name, kind.name, "be an array of NumPy on a mesh over ranks", type(v).__name__)
    values = {kind.name: v for kind, v in zip(given.kinds, given.values, strict=True) if v is not None}
    part.agree(name, {kind.name: (kind.place, len(values[kind.name])) for kind in given.kinds if kind.name in values})
    n_own = part.partition.n_local
    whole = [
        part.with_ghosts(v) if v is not None and kind.place == "node" and len(v) == n_own else v
        for kind, v in zip(given.kinds, given.values, strict=True)
    ]
    made = _assembled(space, name, forms, outs, backend, check, given._replace(values=whole), fields)
    return [
        part.vector(result) if isinstance(result, Ensemble) else part.matrix(space.rank_graphs, result)
        for result in made
    ]


def _assembled(
    space: Space, name: str, forms: Sequence[Any], outs: Sequence[Any], backend: str | None, check: bool,
    given: _Given, fields: Mapping[str, Any],
) -> list[Any]:  # fmt: skip
    """The results of `forms` on the elements of this process."""
    like = next((v for v in given.values if v is not None and not isinstance(v, np.ndarray)), np.empty(0))
    if backend is not None:
        like = prototype(one_of(backend, ("numpy", "cupy"), name, "backend"))
    passes: dict[Any, list[int]] = {}
    buffers: list[Any] = [None] * len(forms)
    n_components = getattr(space, "n_components", 1)
    for n, form in enumerate(forms):
        require(
            n_components == 1 or "vector" in form.components, form.name, "functions", "be vectors on this space",
            "scalars", 'Write trial="vector", test="vector", or make the space of the scalar element.',
        )  # fmt: skip
        terms = _terms([form], given.kinds, space.dim)
        per_sample = any(given.kinds[j].per_sample for j in terms.used_fields)
        passes.setdefault((form.places, per_sample, form.degree), []).append(n)
        if outs[n] is not None:
            n_samples = given.n_samples if per_sample else 1
            buffers[n] = _buffer(name, form, outs[n], space, terms.block_shapes[0], n_samples, like)
    _require_own_memory(name, buffers, given)
    arrays: dict[int, Array] = {}
    prepared: list[tuple[bool, list[int], FormTerms, ElementTables]] = []
    for (_, per_sample, degree), members in passes.items():  # all of them, before the first result is written
        terms = _terms([forms[n] for n in members], given.kinds, space.dim)
        require(
            space.has_gradients or not terms.has_derivatives, name, "the integrand",
            f"take no gradients on this {space.name}", "grad or div", f"Make it by {space.name}(..., gradients=True).",
        )  # fmt: skip
        _require_points(name, space, given, terms, terms.degree if degree is None else degree)
        _load(name, space, given, terms, like, arrays, fields if check else ())
        tables = space.tables(terms.degree if degree is None else degree)
        prepared.append((per_sample, members, terms, tables))
    results: list[Any] = [None] * len(forms)
    for per_sample, members, terms, tables in prepared:
        n_samples = given.n_samples if per_sample else 1
        sample_set = given.sample_set if per_sample else None
        for part, own_terms in _launches(terms, forms, members, given.kinds, space, tables.element, n_samples, like):
            used = {j: arrays[j] for j in own_terms.used_fields}
            values = assemble_terms(own_terms, tables, used, n_samples, like, [buffers[n] for n in part])
            for n, block, own in zip(part, own_terms.components, values, strict=True):
                results[n] = _result(forms[n], space, block, own, sample_set) if outs[n] is None else outs[n]
                results[n].sample_set = sample_set if n_samples > 1 else None
    return results


def _launches(
    joint: FormTerms, forms: Sequence[Any], members: list[int], kinds: tuple[FieldKind, ...], space: Space,
    element: Any, n_samples: int, like: Array,
) -> list[tuple[list[int], FormTerms]]:  # fmt: skip
    """The forms of a pass that are computed together, with their terms: all of them, but on a device.

    There a form goes to the first of the groups before it with which it suits one kernel.
    """
    if len(members) == 1 or backend_of(like) != "cuda":
        return [(members, joint)]
    cache: dict[Any, tuple[list[list[int]], list[FormTerms]]] = forms[members[0]].traced
    key = ("launches", joint, element, n_samples)
    if key not in cache:
        alone = [_terms([forms[n]], kinds, space.dim) for n in members]
        parts: list[list[int]] = []
        for m in range(len(members)):
            for part in parts:
                both = _terms([forms[members[i]] for i in (*part, m)], kinds, space.dim)
                if suit_one_kernel(both, [alone[i] for i in (*part, m)], element, n_samples):
                    part.append(m)
                    break
            else:
                parts.append([m])
        cache[key] = parts, [_terms([forms[members[i]] for i in part], kinds, space.dim) for part in parts]
    return [([members[i] for i in part], terms) for part, terms in zip(*cache[key], strict=True)]


# --- fields
def _given(name: str, space: Space, fields: Mapping[str, Any]) -> _Given:
    """The fields of a call and those of the space, as coordinates `x` and sizes `h` of the elements."""
    given = {field: placed_field(name, field, value, space) for field, value in fields.items()}
    for own, (place, shape, _) in space.own_fields.items():
        given.setdefault(own, (FieldKind(own, place, shape, False), None, None))
    kinds = tuple(kind for kind, _, _ in given.values())
    return _Given(kinds, [values for _, values, _ in given.values()], *common_samples(name, given))


def _load(
    name: str, space: Space, given: _Given, terms: FormTerms, like: Array, arrays: dict[int, Array], checked: Any
) -> None:
    """Put the fields that `terms` reads where `like` lives, as (places, components, samples)."""
    for j in terms.used_fields:
        if j in arrays:
            continue
        kind, values = given.kinds[j], given.values[j]
        values = asarray_like(space.own_fields[kind.name][2]()[..., None] if values is None else values, like)
        xp = array_namespace(values)
        arrays[j] = contiguous(xp.reshape(values, (-1, kind.size, values.shape[-1])))
        if kind.name in checked:
            warn_if_not_finite(name, kind.name, arrays[j])


def _require_points(name: str, space: Space, given: _Given, terms: FormTerms, degree: int) -> None:
    n_points = space.tables(degree).element.n_points
    for kind, values in ((given.kinds[j], given.values[j]) for j in terms.used_fields):
        if kind.place == "point" and values is not None and values.shape[1] != n_points:
            rule = f"rule of degree {degree}" if space.n_points is None else "space"
            advice = "Set degree= of the form." if space.n_points is None else ""
            wanted = f"have {n_points} points per element, as the {rule}"
            require(False, name, kind.name, wanted, values.shape[1], advice)


# --- traces
def _terms(forms: Sequence[Any], kinds: tuple[FieldKind, ...], dim: int) -> FormTerms:
    """The terms of `forms` for fields of these kinds; the trace is kept where all that integrands read is compared."""
    traced: dict[Any, FormTerms] = forms[0].traced
    members = tuple(map(weakref.ref, forms))  # a form that kept itself would live until a collection
    integrands = [form.integrand for form in forms]
    return kept_under_code(traced, KEPT, lambda: _traced(forms, kinds, dim), integrands, members, kinds, dim)


def _traced(forms: Sequence[Any], kinds: tuple[FieldKind, ...], dim: int) -> FormTerms:
    inputs: list[Input] = []
    for j, kind in enumerate(kinds):
        inputs += [Input(j, c, -1) for c in range(kind.size)]
        if kind.place == "node":
            inputs += [Input(j, c, axis) for c in range(kind.size) for axis in range(dim)]
    terms: list[tuple[int, Any, Any, float, int]] = []

    def body(values: Any) -> Any:
        named = _named(kinds, inputs, values, dim)
        outputs: list[Any] = []
        for number, form in enumerate(forms):
            for (test, trial), coefficient in form.integrated(named, dim).terms.items():
                factor, rest = _split(coefficient)
                slots = (number, tuple(test or ()), trial and tuple(trial))
                if rest is None:
                    terms.append((*slots, factor, CONSTANT))
                else:
                    terms.append((*slots, factor, len(outputs)))
                    outputs.append(rest)
        return tuple(outputs)

    graph = trace(body, tuple([REAL] * len(inputs)), function=forms[0].name)
    return form_terms(graph, terms, kinds, tuple(inputs), tuple(form.counts(dim) for form in forms), dim)


def _named(kinds: tuple[FieldKind, ...], inputs: list[Input], values: Any, dim: int) -> dict[str, Any]:
    """The traced fields by name, nested as their values are; gradients of nodal fields are noted in the trace."""
    at = dict(zip(inputs, values, strict=True))
    found = {}
    for j, kind in enumerate(kinds):
        components = [at[Input(j, c, -1)] for c in range(kind.size)]
        if kind.place == "node":
            for c, value in enumerate(components):
                value._tracer.gradients[value._node] = tuple(at[Input(j, c, axis)]._node for axis in range(dim))
        found[kind.name] = _nested(components, kind.shape)
    return found


# --- coefficients
def _split(coefficient: Any) -> tuple[float, Any]:
    """(constant factor, the rest) of a coefficient; the rest is None for a number."""
    if not isinstance(coefficient, Traced):
        return _constant(coefficient), None
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
            number = _constant(tracer.nodes[constants[0]].value) if len(constants) == 1 else np.nan
            if number == 0.0 or SMALLEST <= abs(factor * number) <= LARGEST:
                factor *= number
                k = next(i for i in node.inputs if i != constants[0])
                continue
        return factor, Traced(tracer, k)


def _constant(factor: Any) -> float:
    """A factor that no field is part of, as a finite number."""
    try:
        if isinstance(factor, Ensemble):  # of equal samples it would be a number
            raise TypeError
        number = float(factor)
    except (TypeError, ValueError):
        advice = "Pass arrays and samples as fields."
        raise TypeError(message("form", "a constant factor", "be a real number", repr(factor), advice)) from None
    require(np.isfinite(number), "form", "a constant factor", "be finite", number)
    return number


def _nested(components: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return components[0]
    step = len(components) // shape[0]
    return Vector(_nested(components[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


# --- results
def _buffer(name: str, form: Any, out: Any, space: Space, block: tuple[int, int], n_samples: int, like: Array) -> Array:
    """The values of a result of an earlier call, (entries, n_samples), if this call can fill them."""
    if form.places == 1:
        wanted: Any = Ensemble
        shape = (space.n_unknowns, *([block[0]] if form.components[0] == "vector" else []), n_samples)
    else:
        wanted = CrsMatrix if block == (1, 1) else BcrsMatrix
        shape = (space.graph.nnz, *(() if block == (1, 1) else block), n_samples)
    if not isinstance(out, wanted):
        raise TypeError(message(name, "out", f"be a result of {form.name} ({wanted.__name__})", type(out).__name__))
    values = out.samples if isinstance(out, Ensemble) else out.values
    advice = "Leave out= away where the mesh or the number of samples is another."
    seen = f"{values.dtype} {tuple(values.shape)}"
    fits = tuple(values.shape) == shape and str(values.dtype).endswith("float64")
    require(fits, name, "out", f"hold float64 values of shape {shape}", seen, advice)
    same_graph = isinstance(out, Ensemble) or out.graph.same_as(space.graph)
    require(same_graph, name, "out", "have the graph of this space", "another", advice)
    require(
        library_and_device(values) == library_and_device(like), name, "out",
        f"live where the result does ({' '.join(library_and_device(like))})", " ".join(library_and_device(values)),
    )  # fmt: skip
    flags = getattr(values, "flags", None)
    writable = is_writable(values)
    require(writable, name, "out", "be writable", "an array that is not", "Leave out= away.")
    contiguous_rows = flags is None or flags.c_contiguous
    require(contiguous_rows, name, "out", "be contiguous, samples last", f"strides {getattr(values, 'strides', '')}")
    return array_namespace(values).reshape(values, (-1, n_samples))


def _require_own_memory(name: str, buffers: list[Any], given: _Given) -> None:
    """Refuse results whose memory a field of NumPy or another result has: they are written while fields are read."""
    others = [(f"the field {kind.name}", values) for kind, values in zip(given.kinds, given.values, strict=True)]
    for n, buffer in enumerate(buffers):
        for what, values in [*others, *(("another result", each) for each in buffers[:n])]:
            both = isinstance(buffer, np.ndarray) and isinstance(values, np.ndarray)
            apart = not (both and np.may_share_memory(buffer, values))
            require(apart, name, "out", f"not share memory with {what}", "memory of both")


def _result(form: Any, space: Space, block: tuple[int, int], values: Array, sample_set: SampleSet | None) -> Any:
    """The vector or the matrix: of blocks where a function is a vector."""
    xp, (rows, columns) = array_namespace(values), block
    if form.places == 1:
        shape = (space.n_unknowns, *([rows] if form.components[0] == "vector" else []), values.shape[-1])
        return Ensemble(xp.reshape(values, shape), sample_set)
    if rows == columns == 1:
        return CrsMatrix(space.graph, Ensemble(values, sample_set))
    blocks = xp.reshape(values, (space.graph.nnz, rows, columns, values.shape[-1]))
    return BcrsMatrix(space.graph, Ensemble(blocks, sample_set))
