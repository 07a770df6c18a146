"""Sparse linear algebra on one graph for all samples; `small` has many small dense matrices."""

from ensemble.linalg import small
from ensemble.linalg.affine import AffineMatrix
from ensemble.linalg.crs_matrix import CrsMatrix, TransposedMatrix
from ensemble.linalg.galerkin import GalerkinProduct
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.operators import Diagonal, Identity
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import dot, norm

__all__ = [
    "AffineMatrix",
    "CrsGraph",
    "CrsMatrix",
    "Diagonal",
    "GalerkinProduct",
    "Identity",
    "SymmetricCrsMatrix",
    "TransposedMatrix",
    "dot",
    "norm",
    "small",
]
