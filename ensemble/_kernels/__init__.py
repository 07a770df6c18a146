"""Compiled loops over plain arrays; a kernel knows none of the classes above it."""

from ensemble._kernels import (
    affine,
    aggregation,
    assembly,
    basis,
    bicgstab,
    dense,
    galerkin,
    gauss_seidel,
    kalman,
    krylov,
    matrix_free,
    relaxation,
    rounded,
    scaling,
    sparse,
    symmetric,
)
from ensemble._kernels._registry import KERNELS

__all__ = [
    "KERNELS",
    "affine",
    "aggregation",
    "assembly",
    "basis",
    "bicgstab",
    "dense",
    "galerkin",
    "gauss_seidel",
    "kalman",
    "krylov",
    "matrix_free",
    "relaxation",
    "rounded",
    "scaling",
    "sparse",
    "symmetric",
]
