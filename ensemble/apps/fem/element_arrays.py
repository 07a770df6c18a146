"""Arguments and results of the element kernels: meshes as bare arrays, transforms, and the sample axis."""

from __future__ import annotations

from typing import Any, NamedTuple

from ensemble._backend import array_namespace, contiguous, is_array
from ensemble._check import kind_of, message, require, require_unmasked
from ensemble._typing import Array
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = ["Arguments", "TetArrays", "Transform"]


class TetArrays(NamedTuple):
    """Bare arrays of a mesh of tetrahedra, which is not checked: of CuPy, or with points of each sample.

    `points` (n_nodes, 3) is an array or an Ensemble, in m; `tets` (n_elements, 4) an array of int32.
    """

    points: Any
    tets: Any


class Transform(NamedTuple):
    """Derivatives of the shape functions in physical space, and weights.

    Collapsed: `dshape` (n_elements, 4, 3), in 1/m, and `detwei` (n_elements,), the volumes, in m^3. Paper-shaped, with
    Q quadrature points: (n_elements, Q, 4, 3) and (n_elements, Q), weights times volume.
    """

    dshape: Any
    detwei: Any


class Arguments:
    """The arguments of one call, as arrays with a sample axis, and what its results are made into."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.n_samples, self.is_ensemble = 1, False
        self.sample_set: SampleSet | None = None

    def samples(self, name: str, value: Any) -> Array:
        """An argument as float64 array, the samples last."""
        if not isinstance(value, Ensemble) and not is_array(value):
            raise TypeError(message(self.function, name, "be an array or an Ensemble", kind_of(value)))
        require_unmasked(value, self.function, name)
        samples = value.samples if isinstance(value, Ensemble) else value[..., None]
        xp = array_namespace(samples)
        real = xp.isdtype(samples.dtype, ("bool", "integral", "real floating"))
        if not real:
            raise TypeError(message(self.function, name, "be an array of real numbers", f"dtype {samples.dtype}"))
        if isinstance(value, Ensemble):
            fits = value.n_samples == self.n_samples or 1 in (value.n_samples, self.n_samples)
            require(fits, self.function, name, f"have {self.n_samples} samples, as others", value.n_samples)
            self.n_samples = max(self.n_samples, value.n_samples)
            self.is_ensemble, self.sample_set = True, common_set(self.sample_set, value.sample_set)
        return samples if samples.dtype == xp.float64 else xp.astype(samples, xp.float64)

    def mesh(self, mesh: Any) -> tuple[Array, Array]:
        """Points (n_nodes, 3, S) and corners of a mesh."""
        if not (hasattr(mesh, "points") and hasattr(mesh, "tets")):
            seen = kind_of(mesh)
            raise TypeError(message(self.function, "mesh", "be a TetMesh or TetArrays(points, tets)", seen))
        points, tets = self.samples("mesh.points", mesh.points), mesh.tets
        if not is_array(tets):
            raise TypeError(message(self.function, "mesh.tets", "be an array of integers", kind_of(tets)))
        for name, array, width in (("points", points[..., 0], 3), ("tets", tets, 4)):
            good = len(array.shape) == 2 and array.shape[1] == width and array.shape[0] > 0
            require(good, self.function, f"mesh.{name}", f"have shape (n, {width}), n > 0", tuple(array.shape))
        xp = array_namespace(tets)
        if not xp.isdtype(tets.dtype, "integral"):
            raise TypeError(message(self.function, "mesh.tets", "be integers", f"dtype {tets.dtype}"))
        return contiguous(points), contiguous(tets, xp.int32)

    def operand(self, samples: Array, n_point_axes: int) -> Array:
        """(Q, components, E, S) of (E, Q, components, S), in memory as it says; one point where the axis is missing."""
        xp = array_namespace(samples)
        axes = len(samples.shape)
        moved = contiguous(xp.permute_dims(samples, (*range(1, axes - 1), 0, axes - 1)))
        return moved if n_point_axes else moved[None, ...]

    def result(self, out: Array) -> Any:
        """(components, E, S) with the element axis first: a view."""
        axes = len(out.shape)
        view = array_namespace(out).permute_dims(out, (axes - 2, *range(axes - 2), axes - 1))
        return Ensemble(view, self.sample_set) if self.is_ensemble else view[..., 0]
