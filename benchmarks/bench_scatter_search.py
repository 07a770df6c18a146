"""Element matrices added by a search for each entry's place in its row, against places worked out once; one thread.

`python -m benchmarks scatter-search` compares the scatter of Fluidity-Atmosphere (Li et al., section 4.3), which looks
for the column of each entry in its sorted row, with `CrsMatrix.from_elements`, whose table of places is made once per
mesh: its time, and after how many assemblies it is paid, too; and sums of element vectors. Milliseconds are processor
time. Record: `scatter-search-1threads`; on a device `scatter-search-device`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.common import SEED, interleaved, median, one_thread, ratio, save, show
from benchmarks.mountain import mountain_mesh
from benchmarks.papers.published_atmosphere import ASSEMBLY
from ensemble._compile.numba import compiled_serial
from ensemble.linalg import CrsMatrix, ElementAssembly

PUBLISHED = dict(zip(("cpu", "a100"), ASSEMBLY["matrix"], strict=True))
"""Milliseconds of a matrix of one sample, on one core and on an A100, table 6 there."""


@compiled_serial
def scatter_by_search(indptr, indices, dofs, matrices, values):
    """Add matrices (n_elements, k, k, n_samples) to values (nnz, n_samples); entries that are zero are left out."""
    n_elements, k = dofs.shape
    for e in range(n_elements):
        for a in range(k):
            row = dofs[e, a]
            for b in range(k):
                column = dofs[e, b]
                low, high = indptr[row], indptr[row + 1] - 1
                while low < high:
                    middle = (low + high) >> 1
                    if indices[middle] < column:
                        low = middle + 1
                    else:
                        high = middle
                for s in range(matrices.shape[3]):
                    value = matrices[e, a, b, s]
                    if value != 0.0:
                        values[low, s] += value


def assembly_and_matrices(n_samples: int) -> tuple[ElementAssembly, np.ndarray]:
    """Elements ordered by their first node, and random matrices of all of them."""
    mesh = mountain_mesh()
    dofs = mesh.tets[mesh.tets[:, 0].argsort(kind="stable")]
    rng = np.random.default_rng(SEED)
    return ElementAssembly(dofs, mesh.n_nodes), rng.standard_normal((len(dofs), 4, 4, n_samples))


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scatter-search", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    one_thread()
    rows: list[dict[str, Any]] = []
    for n_samples in options.samples:
        assembly, matrices = assembly_and_matrices(n_samples)
        graph = assembly.graph
        values = np.zeros((graph.nnz, n_samples))

        def search(values: np.ndarray = values, matrices: np.ndarray = matrices, a: Any = assembly) -> None:
            values[:] = 0.0
            scatter_by_search(a.graph.indptr, a.graph.indices, a.dofs, matrices, values)

        def table(matrices: np.ndarray = matrices, a: Any = assembly) -> CrsMatrix:
            return CrsMatrix.from_elements(a, matrices)

        search()
        assert bool((table().values == values).all())  # both add elements in ascending order
        vectors = np.ascontiguousarray(matrices[:, :, 0])
        runs = {
            "search": search,
            "table of places": table,
            "map of places": lambda a=assembly: ElementAssembly(a.dofs, a.n_unknowns),
            "vector": lambda a=assembly, vectors=vectors: a.vector(vectors),
        }
        seconds = interleaved(runs, options.rounds, time.process_time)
        middle = {name: 1e3 * median(times) for name, times in seconds.items()}
        rows.append({
            "samples": n_samples,
            **{f"{name}, ms": ms for name, ms in middle.items()},
            "x": ratio(seconds["search"], seconds["table of places"]),
            "map is paid after": middle["map of places"] / (middle["search"] - middle["table of places"]),
        })  # fmt: skip
    show(f"{len(matrices)} tetrahedra: sums of element matrices", rows)
    save("scatter-search-1threads", rows, published=PUBLISHED, elements=len(matrices))


if __name__ == "__main__":
    main()
