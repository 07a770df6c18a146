"""The products of `affine` on a device's matrix units for doubles: when they go there, and how they are cut.

They have the bits of the plain kernel. What counts is what comes out of the first-level cache: a term that is
broadcast to all lanes takes as long there as one for each, and here none is. A row of k entries takes ``k S/16``
passes of 128 bytes for x and ``k (m + 1)/16`` for the terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile import cuda, device

__all__ = ["INSTANCES", "queue"]

INSTANCES = [
    *(f"affine_product<{ending}>" for ending in ("SET", "RESIDUAL")),
    *(f"affine_chebyshev<{kind}>" for kind in ("FIRST", "STEP", "LAST")),
]

LAYOUT = cuda.Layout("double", 8, 2, 1)
"""The only one: a unit takes two samples of a row from each of eight groups of lanes."""

PACK = 16
"""Samples that one instruction takes."""

FEWEST_TERMS = 4
"""With 3 both kernels take as long: the units work on 8 at once (`benchmarks diffusion-device`)."""

FEWEST_ROWS = 1000
"""Below, the plain kernel is as fast."""


def cut(n_terms: int, n_samples: int) -> tuple[int, int, int]:
    """Packs of samples per warp, steps of four entries per piece of a row, and warps per block: what registers hold."""
    if n_terms > 8:
        return 1, 7, 12
    return (2, 7, 12) if n_samples % (2 * PACK) == 0 else (1, 7, 20)


def options(n_terms: int, n_samples: int) -> tuple[str, ...]:
    """Options of the compiler beyond the layout."""
    packs, steps, warps = cut(n_terms, n_samples)
    return (f"-DTERMS={n_terms}", f"-DPACKS={packs}", f"-DSTEPS={steps}", f"-DWARPS={warps}")


CUDA = cuda.KernelModule(
    "sparse/affine_mma",
    INSTANCES,
    ("sparse/affine.cuh",),
    (options(6, 32), options(5, 16), options(21, 16)),
    only=LAYOUT,
)


def suits(n_rows: int, n_terms: int, n_samples: int, *arrays: Any) -> bool:
    """Whether a product of so many rows, terms and samples is faster on the matrix units, and they are there."""
    if n_rows < FEWEST_ROWS or n_terms < FEWEST_TERMS or n_samples % PACK:
        return False
    if any(array.dtype != np.float64 for array in arrays) or cuda.layout_of(n_samples, *arrays).vector != 2:
        return False
    return device.ordered_matrix_units() > 0


def product(function: str, n_rows: int, n_terms: int, n_samples: int, arguments: tuple[Any, ...], wide: bool) -> None:
    """Queue one of the kernels: one block per multiprocessor, each on a tile of samples of a range of rows."""
    packs, _, warps = cut(n_terms, n_samples)
    tiles = n_samples // (PACK * packs)
    n_ranges = max(1, min(device.ordered_matrix_units() // tiles, -(-n_rows // warps)))
    extent = (np.int64(n_rows), np.int32(n_samples))
    extra = options(n_terms, n_samples)
    CUDA.launch(function, LAYOUT, (n_ranges * tiles,), 32 * warps, (*arguments, *extent), wide, extra)


def queue(
    plain: cuda.KernelModule,
    function: str,
    n_rows: int,
    n_samples: int,
    arguments: tuple[Any, ...],
    vectors: tuple[Any, ...],
) -> None:
    """Queue a product with (indptr, indices, terms, ...): one of the module `plain` without matrix units."""
    indptr, _, terms, *_ = arguments
    n_terms, wide = terms.shape[1], cuda.is_wide(indptr)
    if suits(n_rows, n_terms, n_samples, terms, *vectors):
        product(function, n_rows, n_terms, n_samples, arguments, wide)
        return
    layout = cuda.layout_of(n_samples, *vectors)
    arguments = (*arguments[:2], cuda.aligned(terms), *arguments[3:])
    plain.rows(function, n_rows, n_samples, arguments, layout, wide, (f"-DTERMS={n_terms}",))
