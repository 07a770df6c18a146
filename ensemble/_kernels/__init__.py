"""Compiled loops over plain arrays; a kernel knows none of the classes above it."""

from ensemble._kernels import aggregation, assembly, galerkin, kalman, krylov, relaxation, sparse
from ensemble._kernels._registry import KERNELS

__all__ = ["KERNELS", "aggregation", "assembly", "galerkin", "kalman", "krylov", "relaxation", "sparse"]
