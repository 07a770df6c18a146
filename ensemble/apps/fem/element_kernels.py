"""Element kernels on linear tetrahedra: nodal values, transforms, element matrices and edge lengths.

A mesh is a `TetMesh`, or `TetArrays` of any array library, whose points may be an Ensemble. What depends on an Ensemble
is one; otherwise results are plain arrays. Results have the element axis first and lie in memory components first,
elements and samples last (``x.transpose`` of a contiguous array): loads and stores of consecutive elements are then
consecutive. Arguments that lie like that, as results of these functions do, are not copied.

"Collapsed" forms use that gradients are constant on an element; "paper-shaped" forms keep a copy for each quadrature
point, as codes for general elements do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous
from ensemble._check import integer, one_of, require
from ensemble._kernels.fem.element import tet_closed_form, tet_edge_lengths, tet_transform, tet_values
from ensemble._kernels.fem.element_matrices import tet_gradient_tensor, tet_shape_dshape, tet_shape_shape
from ensemble._typing import Array
from ensemble.apps.fem.element_arrays import Arguments, Transform
from ensemble.apps.fem.quadrature import tetrahedron_rule
from ensemble.apps.fem.tet_mesh import EDGES
from ensemble.linalg import small
from ensemble.scalar import Ensemble

__all__ = [
    "dshape_tensor_dshape",
    "edge_lengths",
    "element_values",
    "shape_dshape",
    "shape_shape",
    "transform_to_physical",
]


def element_values(mesh: Any, field: Any) -> Any:
    """Compute values of a nodal field at the corners of each element.

    Parameters
    ----------
    mesh : TetMesh or TetArrays
    field : array or Ensemble, shape (n_nodes,), (n_nodes, 3), (n_nodes, 3, 3) or (n_nodes, ...)

    Returns
    -------
    array or Ensemble, shape (n_elements, 4, ...)

    Raises
    ------
    TypeError
        If `mesh` is no mesh of tetrahedra or `field` no array of real numbers.
    ValueError
        If `field` has not one row per node.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.apps import fem
    >>> element_values(fem.TetMesh.box(1), np.arange(8.0))[0]
    array([0., 1., 3., 7.])
    """
    points, tets = Arguments("element_values").mesh(mesh)  # whose samples do not enter the result
    given = Arguments("element_values")
    samples = given.samples("field", field)
    shape = tuple(samples.shape[1:-1])
    good = len(samples.shape) > 1 and samples.shape[0] == points.shape[0]
    require(good, "element_values", "field", f"have {points.shape[0]} rows, one per node", tuple(samples.shape[:-1]))
    xp = array_namespace(samples)
    flat = xp.reshape(contiguous(samples), (samples.shape[0], -1, samples.shape[-1]))
    out = tet_values(flat, asarray_like(tets, samples), None)
    return given.result(xp.reshape(out, (4, *shape, *out.shape[2:])))


def transform_to_physical(mesh: Any, *, collapsed: bool = True, degree: int = 4) -> Transform:
    """Compute gradients of the linear shape functions, and volumes or weights.

    Function i is 1 at corner i. Gradients are the rows of the inverse Jacobian, by its cofactors [1]_.

    Parameters
    ----------
    mesh : TetMesh or TetArrays
    collapsed : bool
        Whether gradients are given once per element; otherwise once per quadrature point.
    degree : int, at least 0
        Of the polynomials that `tetrahedron_rule` integrates exactly: 4 takes 11 points.

    Returns
    -------
    Transform

    Raises
    ------
    TypeError
        If `mesh` is no mesh of tetrahedra.

    References
    ----------
    .. [1] Zienkiewicz, Taylor, Zhu (2013), The Finite Element Method, 7th edition, section 6.2.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> made = transform_to_physical(fem.TetMesh.box(1))
    >>> made.dshape.shape, float(made.detwei.sum().round(12))
    ((6, 4, 3), 1.0)
    >>> transform_to_physical(fem.TetMesh.box(1), collapsed=False).dshape.shape
    (6, 11, 4, 3)
    """
    given = Arguments("transform_to_physical")
    points, tets = given.mesh(mesh)
    weights = np.ones(1) if collapsed else tetrahedron_rule(degree)[1]
    out = tet_transform(points, asarray_like(tets, points), asarray_like(weights, points), None)
    n, lead = weights.size, () if collapsed else (weights.size,)
    xp = array_namespace(points)
    gradients = xp.reshape(out[: 12 * n, ...], (*lead, 4, 3, *out.shape[1:]))
    return Transform(given.result(gradients), given.result(xp.reshape(out[12 * n :, ...], (*lead, *out.shape[1:]))))


def shape_shape(given: Any, *, degree: int = 4) -> Any:
    """Compute mass matrices of the elements: integrals of ``N_i N_j``.

    Parameters
    ----------
    given : TetMesh, TetArrays or Transform
        A mesh or a collapsed transform is integrated in closed form, ``V / 20 (1 + delta_ij)``; a paper-shaped
        transform is summed over its points.
    degree : int
        That of a paper-shaped transform.

    Returns
    -------
    array or Ensemble, shape (n_elements, 4, 4), in m^3

    Raises
    ------
    TypeError
        If `given` is neither a mesh nor a transform.
    ValueError
        If the transform has not the points of the rule.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> float(shape_shape(fem.TetMesh.box(1)).sum().round(12))
    1.0
    """
    if not isinstance(given, Transform):
        return _closed_form("shape_shape", given, False)
    arguments, _, detwei, shape = _transformed("shape_shape", given, degree)
    exact = (np.ones((1, 4, 4)) + np.eye(4)) / 20.0
    products = exact if shape is None else shape[:, :, None] * shape[:, None, :]
    out = tet_shape_shape(asarray_like(products, detwei), detwei, None)
    return arguments.result(array_namespace(out).reshape(out, (4, 4, *out.shape[1:])))


def shape_dshape(given: Any, *, degree: int = 4) -> Any:
    """Compute integrals of ``N_i dN_j/dx_d`` over the elements.

    Parameters
    ----------
    given : TetMesh, TetArrays or Transform
        A mesh or a collapsed transform is integrated in closed form, ``V / 4 dN_j/dx_d``; a paper-shaped transform is
        summed over its points.
    degree : int
        That of a paper-shaped transform.

    Returns
    -------
    array or Ensemble, shape (n_elements, 3, 4, 4), in m^2
        Indices d, i, j.

    Raises
    ------
    TypeError
        If `given` is neither a mesh nor a transform.
    ValueError
        If the transform has not the points of the rule.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> shape_dshape(fem.TetMesh.box(1)).shape
    (6, 3, 4, 4)
    """
    if not isinstance(given, Transform):
        return _closed_form("shape_dshape", given, True)
    arguments, dshape, detwei, shape = _transformed("shape_dshape", given, degree)
    shape = np.full((1, 4), 0.25) if shape is None else shape
    out = tet_shape_dshape(asarray_like(shape, detwei), dshape, detwei, None)
    return arguments.result(array_namespace(out).reshape(out, (3, 4, 4, *out.shape[1:])))


def dshape_tensor_dshape(a: Any, tensor: Any, b: Any = None, *, detwei: Any) -> Any:
    """Compute integrals of ``grad a_i . T . grad b_j`` over the elements: diffusion with a tensor.

    ``R_ij = sum over q, k, l of a_qik T_qkl b_qjl detwei_q``; the tensor need not be symmetric.

    Parameters
    ----------
    a : array or Ensemble, shape (n_elements, 4, 3) or (n_elements, Q, 4, 3), in 1/m
        Gradients of the test functions: `dshape` of a `Transform`.
    tensor : array or Ensemble, shape (n_elements, 3, 3) or (n_elements, Q, 3, 3)
        Of collapsed gradients its mean over the element.
    b : array or Ensemble, shape of `a`, optional
        Gradients of the trial functions; `a` where it is left out.
    detwei : array or Ensemble, shape (n_elements,) or (n_elements, Q), in m^3

    Returns
    -------
    array or Ensemble, shape (n_elements, 4, 4)

    Raises
    ------
    TypeError
        If an argument is no array of real numbers.
    ValueError
        If the shapes or the numbers of samples do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.apps import fem
    >>> gradients, volumes = transform_to_physical(fem.TetMesh.box(1))
    >>> tensor = np.broadcast_to(np.diag([1.0, 2.0, 3.0]), (6, 3, 3))
    >>> float(np.abs(dshape_tensor_dshape(gradients, tensor, detwei=volumes).sum(axis=2)).max().round(12))
    0.0
    """
    function = "dshape_tensor_dshape"
    given = Arguments(function)
    left = given.samples("a", a)
    points = tuple(left.shape[1:-3])
    good = len(left.shape) in (4, 5) and tuple(left.shape[-3:-1]) == (4, 3)
    require(good, function, "a", "have shape (n_elements, 4, 3) or (n_elements, Q, 4, 3)", tuple(left.shape[:-1]))
    lead = (left.shape[0], *points)
    operands = [given.operand(left, len(points))]
    for name, value, shape in (("tensor", tensor, (3, 3)), ("b", b, (4, 3)), ("detwei", detwei, ())):
        if value is None and name == "b":
            operands.append(None)
            continue
        samples = given.samples(name, value)
        seen = tuple(samples.shape[:-1])
        require(seen == (*lead, *shape), function, name, f"have shape {(*lead, *shape)}, as a", seen)
        operands.append(given.operand(samples, len(points)))
    out = tet_gradient_tensor(*operands, None)
    return given.result(array_namespace(out).reshape(out, (4, 4, *out.shape[1:])))


def edge_lengths(mesh: Any, method: str = "closed", *, copies: int | None = None) -> Any:
    """Compute tensors of the edge lengths: the inverse root of the metric in which the six edges have unit length.

    Parameters
    ----------
    mesh : TetMesh or TetArrays
    method : "closed" or "paper"
        "closed": ``(sum of e e^T / 2)^(1/2)`` over the six edges e, the root by its invariants [1]_. "paper": the six
        equations ``e^T M e = 1`` for the symmetric metric M are solved, then its eigenvalues give ``M^(-1/2)``.
        Errors relative to the longest edge, for elements w times as thin as long: "closed" some units of rounding of
        flat elements, below ``50 eps / w`` of needles; "paper" below ``2000 eps / w^2``, and NaN beyond w of 1e-6.
    copies : int, optional
        Copies per element, one for each quadrature point; without, the axis is left out.

    Returns
    -------
    array or Ensemble, shape (n_elements, 3, 3) or (n_elements, copies, 3, 3), in m
        Of a regular tetrahedron with edges l it is l times the identity.

    Raises
    ------
    TypeError
        If `mesh` is no mesh of tetrahedra.
    ValueError
        If `method` is unknown or `copies` below 1.

    References
    ----------
    .. [1] Hoger, Carlson (1984), Quarterly of Applied Mathematics 42, 113-117.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.apps import fem
    >>> corners = np.array([[1.0, 1, 1], [-1, 1, -1], [1, -1, -1], [-1, -1, 1]])
    >>> edge_lengths(fem.TetMesh.oriented(corners, [[0, 1, 2, 3]]))[0].diagonal().round(12) ** 2
    array([8., 8., 8.])
    """
    given = Arguments("edge_lengths")
    points, tets = given.mesh(mesh)
    one_of(method, ("closed", "paper"), "edge_lengths", "method")
    count = 1 if copies is None else integer(copies, "edge_lengths", "copies", minimum=1)
    xp, tets = array_namespace(points), asarray_like(tets, points)
    lead = () if copies is None else (count,)
    if method == "closed":
        out = tet_edge_lengths(points, tets, count, None)
    else:
        out = _lengths_by_metric(xp, tet_values(points, tets, None))
        out = xp.concat([xp.reshape(out, (9, *out.shape[2:]))] * count)
    return given.result(xp.reshape(out, (*lead, 3, 3, *out.shape[1:])))


def _lengths_by_metric(xp: Any, corners: Array) -> Array:
    """The lengths (3, 3, E, S) from corners (4, 3, E, S), by the metric."""
    edges = [corners[int(j), ...] - corners[int(i), ...] for i, j in EDGES]
    pairs = [(k, m) for k in range(3) for m in range(k, 3)]
    rows = [xp.stack([e[k, ...] * e[m, ...] * (1.0 if k == m else 2.0) for k, m in pairs]) for e in edges]
    ones = xp.ones((*corners.shape[2:3], 6, corners.shape[3]), dtype=corners.dtype)
    metric = small.solve(Ensemble(xp.permute_dims(xp.stack(rows), (2, 0, 1, 3))), Ensemble(ones)).samples
    place = {pair: n for n, pair in enumerate(pairs)}
    M = [xp.stack([metric[:, place[min(k, m), max(k, m)], :] for m in range(3)]) for k in range(3)]
    lengths = small.inverse_sqrtm_spd(Ensemble(xp.permute_dims(xp.stack(M), (2, 0, 1, 3)))).samples
    return xp.permute_dims(lengths, (1, 2, 0, 3))


def _closed_form(function: str, mesh: Any, derivatives: bool) -> Any:
    """Element matrices of a mesh, by one kernel."""
    given = Arguments(function)
    points, tets = given.mesh(mesh)
    out = tet_closed_form(points, asarray_like(tets, points), derivatives, None)
    shape = (3, 4, 4) if derivatives else (4, 4)
    return given.result(array_namespace(out).reshape(out, (*shape, *out.shape[1:])))


def _transformed(function: str, given: Transform, degree: int) -> tuple[Arguments, Array, Array, np.ndarray | None]:
    """Gradients, weights and, of a paper-shaped transform, shape functions at the points of the rule."""
    arguments = Arguments(function)
    dshape, detwei = (arguments.samples(name, value) for name, value in zip(given._fields, given, strict=True))
    n_point_axes = len(detwei.shape) - 2
    seen = tuple(detwei.shape[:-1])
    fits = n_point_axes in (0, 1) and tuple(dshape.shape[:-1]) == (*seen, 4, 3)
    require(fits, function, "transform.detwei", "have shape (n_elements,) or (n_elements, Q), as dshape", seen)
    shape = tetrahedron_rule(degree)[0] if n_point_axes else None
    if shape is not None:
        require(shape.shape[0] == seen[1], function, "degree", f"be that of the transform, {seen[1]} points", degree)
    n_samples = max(dshape.shape[-1], detwei.shape[-1])
    if detwei.shape[-1] < n_samples:
        detwei = array_namespace(detwei).broadcast_to(detwei, (*detwei.shape[:-1], n_samples))
    return arguments, arguments.operand(dshape, n_point_axes), arguments.operand(detwei, n_point_axes), shape
