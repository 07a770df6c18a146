"""Sparse linear algebra on one graph for all samples; `small` has many small dense matrices."""

from ensemble.linalg import small
from ensemble.linalg.affine import AffineMatrix
from ensemble.linalg.bcrs_matrix import BcrsMatrix
from ensemble.linalg.block_matrices import block, kron
from ensemble.linalg.crs_matrix import CrsMatrix, TransposedMatrix
from ensemble.linalg.diagonal import Diagonal
from ensemble.linalg.dirichlet import apply_dirichlet
from ensemble.linalg.eigenvalues.eigen import EigenResult, eigsh
from ensemble.linalg.elements import ElementAssembly, add_elements
from ensemble.linalg.factorizations.factorization import Factorization
from ensemble.linalg.factorizations.incomplete import IncompleteFactorization
from ensemble.linalg.galerkin import GalerkinProduct
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.operators import Identity
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import dot, norm

__all__ = [
    "AffineMatrix",
    "BcrsMatrix",
    "CrsGraph",
    "CrsMatrix",
    "Diagonal",
    "EigenResult",
    "ElementAssembly",
    "Factorization",
    "GalerkinProduct",
    "Identity",
    "IncompleteFactorization",
    "SymmetricCrsMatrix",
    "TransposedMatrix",
    "add_elements",
    "apply_dirichlet",
    "block",
    "dot",
    "eigsh",
    "kron",
    "norm",
    "small",
]
