"""The table of kernels with every module of kernels in it, for the tests that iterate over it."""

from ensemble._compile.registry import KERNELS
from ensemble._kernels.dense import small, symmetric3  # noqa: F401
from ensemble._kernels.direct import inverse, on_device  # noqa: F401
from ensemble._kernels.direct.forms import factors, triangular  # noqa: F401
from ensemble._kernels.fem import assembly, element, element_matrices, matrix_free  # noqa: F401
from ensemble._kernels.kalman import recursions, sums  # noqa: F401
from ensemble._kernels.krylov import backward_error, basis, bicgstab, minres, narrowing, vectors  # noqa: F401
from ensemble._kernels.multigrid import (  # noqa: F401
    aggregation,
    dense,
    galerkin,
    gauss_seidel,
    measures,
    reduction,
    relaxation,
    scaling,
    splitting,
    symmetric,
)
from ensemble._kernels.sparse import (  # noqa: F401
    affine,
    bcrs,
    crs,
    exact_sums,
    gather_sums,
    packed_rows,
    staged_sums,
)

__all__ = ["KERNELS"]
