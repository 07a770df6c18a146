"""Finite elements: forms on tetrahedra for many samples, and random diffusion; `README.md` describes both."""

from ensemble.apps.fem.arguments import Vector, ddot, div, dot, grad, mul, sym_grad, transpose
from ensemble.apps.fem.assembly import assemble
from ensemble.apps.fem.boundary_space import BoundarySpace
from ensemble.apps.fem.device_copies import DeviceCopies, DeviceCopy
from ensemble.apps.fem.diffusion_operator import DiffusionOperator
from ensemble.apps.fem.element_arrays import TetArrays, Transform
from ensemble.apps.fem.element_kernels import (
    dshape_tensor_dshape,
    edge_lengths,
    element_values,
    shape_dshape,
    shape_shape,
    transform_to_physical,
)
from ensemble.apps.fem.fields import Field, at_nodes, at_points, constant, per_element
from ensemble.apps.fem.forms import BilinearForm, LinearForm, bilinear_form, linear_form
from ensemble.apps.fem.interop import from_skfem
from ensemble.apps.fem.matrices import mass_matrix, pressure_stabilisation, stiffness_matrix
from ensemble.apps.fem.mesh import HexMesh
from ensemble.apps.fem.mesh_files import write_mesh
from ensemble.apps.fem.periodic import merge_nodes, periodic
from ensemble.apps.fem.quadrature import tetrahedron_rule, triangle_rule
from ensemble.apps.fem.random_diffusion import DiffusionResult, RandomDiffusion
from ensemble.apps.fem.solves.preconditioner import Multigrid
from ensemble.apps.fem.spaces import LinearSpace, TabulatedSpace
from ensemble.apps.fem.tet_mesh import TetMesh
from ensemble.uq.fields.unit_cube import KarhunenLoeve, exponential_covariance

__all__ = [
    "BilinearForm",
    "BoundarySpace",
    "DeviceCopies",
    "DeviceCopy",
    "DiffusionOperator",
    "DiffusionResult",
    "Field",
    "HexMesh",
    "KarhunenLoeve",
    "LinearForm",
    "LinearSpace",
    "Multigrid",
    "RandomDiffusion",
    "TabulatedSpace",
    "TetArrays",
    "TetMesh",
    "Transform",
    "Vector",
    "assemble",
    "at_nodes",
    "at_points",
    "bilinear_form",
    "constant",
    "ddot",
    "div",
    "dot",
    "dshape_tensor_dshape",
    "edge_lengths",
    "element_values",
    "exponential_covariance",
    "from_skfem",
    "grad",
    "linear_form",
    "mass_matrix",
    "merge_nodes",
    "mul",
    "per_element",
    "periodic",
    "pressure_stabilisation",
    "shape_dshape",
    "shape_shape",
    "stiffness_matrix",
    "sym_grad",
    "tetrahedron_rule",
    "transform_to_physical",
    "transpose",
    "triangle_rule",
    "write_mesh",
]
