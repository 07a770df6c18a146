"""What a solve of the random diffusion problem takes on a device, asked before it is begun."""

from __future__ import annotations

from typing import Any

from ensemble._backend import free_bytes
from ensemble._check import message

__all__ = ["bytes_needed", "require_memory"]

VECTORS = 17
"""Arrays of one number a node and sample: what Krylov method, V-cycle, prolongator and its products hold together."""

COARSE = 1.04
"""Entries of all levels over those of the finest."""

PAIRS = 2200
"""Bytes a node of the lists that the Galerkin products gather by."""


def bytes_needed(problem: Any, n_samples: int, itemsize: int, operator: str = "stored") -> tuple[int, int]:
    """(bytes for `n_samples` samples, bytes that they share) on a device; good to a tenth or so.

    A stored solve holds a matrix a sample, the diffusivity at eight Gauss points a cell, and vectors; a matrix-free one
    no matrix.
    """
    nnz, nodes, cells, terms = problem.graph.nnz, problem.mesh.n_nodes, problem.mesh.n_cells, problem.field.n_terms
    shared = int(nnz * 4 * COARSE + nodes * PAIRS + cells * (8 * itemsize * terms + 150))
    if operator == "affine":
        shared += int(itemsize * (terms + 1) * (COARSE * nnz + 8 * cells))
        return itemsize * n_samples * nodes * VECTORS // 2, shared
    if operator == "matrix-free":
        return itemsize * n_samples * (8 * cells + nodes * VECTORS // 2), shared
    return int(itemsize * n_samples * (COARSE * nnz + 8 * cells + VECTORS * nodes)), shared


def require_memory(problem: Any, home: Any, n_samples: int, itemsize: int, operator: str) -> None:
    """Raise MemoryError, with the ensemble size that would fit, unless a solve fits the free memory of a device."""
    free = free_bytes(home)
    if free is None:
        return
    own, shared = bytes_needed(problem, n_samples, itemsize, operator)
    if own + shared <= free:
        return
    fits = max(0, int((free - shared) // (own // n_samples)))
    advice = f"{fits} samples at once would fit." if fits else "Not even one sample would fit: take fewer cells."
    cells = " x ".join(str(n) for n in problem.mesh.cells)
    raise MemoryError(
        message(
            "RandomDiffusion.solve",
            "y",
            f"fit the device's free memory of {free / 1e9:.1f} GB",
            f"{n_samples} samples on {cells} cells, which need about {(own + shared) / 1e9:.1f} GB",
            advice,
        )
    )
