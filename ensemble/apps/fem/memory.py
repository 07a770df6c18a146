"""What a solve of the random diffusion problem takes, asked before it is begun."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._backend import available_bytes, free_bytes
from ensemble._check import message
from ensemble._compile.memory import release_memory

__all__ = ["bytes_needed", "require_memory", "require_setup_memory"]

VECTORS = 17
"""Arrays of one number per node and sample: what Krylov method, V-cycle, prolongator, its products hold together."""

COARSE = 1.04
"""Entries of all levels over those of the finest."""

PAIRS = 2200
"""Bytes per node of the lists that the Galerkin products gather by."""

SETUP = 450
"""Bytes per cell of mesh, graph and incidence; the modes at the eight Gauss points come on top."""

ON_THE_HOST = (0.55, 0.35)
"""Fractions of a device's bytes, per sample and shared, that a solve on the host takes at least: it stores half of a
symmetric matrix. Measured from 32^3 to 64^3 cells, 1 to 32 samples, all operators: peaks are 1.0 to 2.5 times this."""


def bytes_needed(
    problem: Any, n_samples: int, itemsize: int, operator: str = "stored", converted: int = 0
) -> tuple[int, int]:
    """(bytes for `n_samples` samples, bytes that they share) on a device; good to a tenth or so.

    A stored solve holds a matrix per sample, the diffusivity at eight Gauss points per cell, and vectors; a
    matrix-free one no matrix. `converted`: bytes of a value of the hierarchy where it keeps the matrix in a type of its
    own, else 0.
    """
    nnz, nodes, cells, terms = problem.graph.nnz, problem.mesh.n_nodes, problem.mesh.n_cells, problem.field.n_terms
    shared = int(nnz * 4 * COARSE + nodes * PAIRS + cells * (8 * itemsize * terms + 150))
    own = itemsize * VECTORS * nodes
    if operator == "affine":
        shared += int(itemsize * (terms + 1) * (COARSE * nnz + 8 * cells))
    else:
        own += itemsize * 8 * cells
    if operator == "stored":
        own += int((itemsize + converted) * COARSE * nnz)
    return own * n_samples, shared


def host_bytes(needed: int) -> int:
    """The host's free memory; memory kept for later arrays is given back where `needed` bytes ask for it."""
    free = available_bytes(np.empty(0))
    if free < needed:
        release_memory()
        free = available_bytes(np.empty(0))
    return free


def require_setup_memory(cells: list[int], n_terms: int) -> None:
    """Raise MemoryError where the mesh and the modes cannot fit the host's memory, in which both are made."""
    needed = math.prod(cells) * (SETUP + 64 * n_terms)
    free = host_bytes(needed)
    if needed > free:
        seen = f"{' x '.join(map(str, cells))} cells and {n_terms} terms, which need at least {needed / 1e9:.1f} GB"
        advice = "Take fewer cells, or fewer terms."
        raise MemoryError(
            message("RandomDiffusion", "cells", f"fit the free memory of {free / 1e9:.1f} GB", seen, advice)
        )


def require_memory(
    problem: Any, reference_array: Any, n_samples: int, itemsize: int, operator: str, converted: int = 0
) -> None:
    """Raise MemoryError, with the ensemble size that would fit, unless a solve fits the free memory.

    On a device the estimate is good to a tenth or so. On the host it is what the solve takes at least.
    """
    own, shared = bytes_needed(problem, n_samples, itemsize, operator, converted)
    free = free_bytes(reference_array)
    place, about = "the device's", "about"
    if free is None:
        own, shared = (int(part * fraction) for part, fraction in zip((own, shared), ON_THE_HOST))
        free, place, about = host_bytes(own + shared), "the", "at least"
    if own + shared <= free:
        return
    fits = max(0, int((free - shared) // (own // n_samples)))
    advice = (
        f"At most {fits} samples at once would fit." if fits else "Not even one sample would fit: take fewer cells."
    )
    cells = " x ".join(str(n) for n in problem.mesh.cells)
    raise MemoryError(
        message(
            "RandomDiffusion.solve",
            "y",
            f"fit {place} free memory of {free / 1e9:.1f} GB",
            f"{n_samples} samples on {cells} cells, which need {about} {(own + shared) / 1e9:.1f} GB",
            advice,
        )
    )
