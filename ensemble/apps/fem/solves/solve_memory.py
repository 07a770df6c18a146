"""Memory of a solve of the random diffusion problem, estimated before the solve begins."""

from __future__ import annotations

import math

import numpy as np

from ensemble._backend import available_bytes, free_bytes
from ensemble._check import message
from ensemble._compile.kept_memory import release_memory
from ensemble.apps.fem.discretization import Discretization

__all__ = ["bytes_needed", "require_memory", "require_setup_memory"]

N_VECTORS = 17
"""Arrays of one number per node and sample: of the Krylov method, the V-cycle, the prolongator and its products."""

OPERATOR_COMPLEXITY = 1.04
"""Entries of all levels over those of the finest."""

GALERKIN_BYTES = 2200
"""Bytes per node of the index lists of the Galerkin products."""

SETUP_BYTES = 450
"""Bytes per cell of mesh, graph and incidence, without the modes at the eight Gauss points."""

HOST_FRACTIONS = (0.55, 0.35)
"""Lower bounds of a host solve's bytes, per sample and shared, over those on a device: the host stores half of a
symmetric matrix. Measured from 32^3 to 64^3 cells, 1 to 32 samples, all operators: peaks are 1.0 to 2.5 times this
(`benchmarks memory`)."""


def bytes_needed(
    discretization: Discretization, n_samples: int, itemsize: int, operator: str = "stored", copy_itemsize: int = 0
) -> tuple[int, int]:
    """(bytes for `n_samples` samples, bytes that they share) on a device, to about 10 %.

    A stored solve holds a matrix per sample, the diffusivity at eight Gauss points per cell, and vectors; a
    matrix-free one no matrix. `copy_itemsize`: bytes of a value of the hierarchy where it holds a copy of the matrix in
    a type of its own, else 0.
    """
    nnz, n_terms = discretization.nnz, discretization.modes.shape[1]
    n_rows, n_cells = discretization.n_rows, discretization.n_cells
    index_bytes = nnz * 4 * OPERATOR_COMPLEXITY
    shared = int(index_bytes + n_rows * GALERKIN_BYTES + n_cells * (8 * itemsize * n_terms + 150))
    per_sample = itemsize * N_VECTORS * n_rows
    if operator == "affine":
        shared += int(itemsize * (n_terms + 1) * (OPERATOR_COMPLEXITY * nnz + 8 * n_cells))
    else:
        per_sample += itemsize * 8 * n_cells
    if operator == "stored":
        per_sample += int((itemsize + copy_itemsize) * OPERATOR_COMPLEXITY * nnz)
    return per_sample * n_samples, shared


def host_bytes(needed: int) -> int:
    """The host's free memory; where it is below `needed` bytes, memory kept for later arrays is released first."""
    free = available_bytes(np.empty(0))
    if free < needed:
        release_memory()
        free = available_bytes(np.empty(0))
    return free


def require_setup_memory(cells: list[int], n_terms: int, ranks: int = 1) -> None:
    """Raise MemoryError where the mesh and the modes cannot fit the host's memory, in which both are made.

    Of several ranks each makes its share, perhaps on a host of its own.
    """
    needed = math.prod(cells) * (SETUP_BYTES + 64 * n_terms) // ranks
    free = host_bytes(needed)
    if needed > free:
        seen = f"{' x '.join(map(str, cells))} cells and {n_terms} terms, which need at least {needed / 1e9:.1f} GB"
        advice = "Take fewer cells, or fewer terms."
        raise MemoryError(
            message("RandomDiffusion", "cells", f"fit the free memory of {free / 1e9:.1f} GB", seen, advice)
        )


def require_memory(
    discretization: Discretization, n_samples: int, itemsize: int, operator: str, copy_itemsize: int
) -> None:
    """Raise MemoryError, with the ensemble size that would fit, unless a solve fits the free memory.

    On a device the estimate is right to about 10 %. On the host it is a lower bound.
    """
    own, shared = bytes_needed(discretization, n_samples, itemsize, operator, copy_itemsize)
    free = free_bytes(discretization.reference_array)
    place, about = "the device's", "about"
    if free is None:
        own, shared = (int(part * fraction) for part, fraction in zip((own, shared), HOST_FRACTIONS))
        free, place, about = host_bytes(own + shared), "the", "at least"
    if own + shared <= free:
        return
    fits = max(0, int((free - shared) // (own // n_samples)))
    advice = (
        f"At most {fits} samples at once would fit." if fits else "Not even one sample would fit: take fewer cells."
    )
    cells = " x ".join(str(n) for n in discretization.mesh.cells)
    raise MemoryError(
        message(
            "RandomDiffusion.solve",
            "y",
            f"fit {place} free memory of {free / 1e9:.1f} GB",
            f"{n_samples} samples on {cells} cells, which need {about} {(own + shared) / 1e9:.1f} GB",
            advice,
        )
    )
