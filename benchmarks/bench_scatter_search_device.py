"""Element matrices on a CUDA device: a search in each row with atomic additions, against sums by a table of places.

`python -m benchmarks scatter-search-device` runs the scatter of Fluidity-Atmosphere (Li et al., section 4.3): a thread
looks for the column of each entry in its sorted row and adds by an atomic operation, in no fixed order. Beside it are
atomic additions at places worked out once, and `CrsMatrix.from_elements`, which has no atomic operation. Record:
`scatter-search-cuda`; on the CPU `scatter-search`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_scatter_search import PUBLISHED, assembly_and_matrices
from benchmarks.common import cuda_device, save, show
from benchmarks.device_clock import milliseconds, peak_bandwidth
from ensemble.linalg import CrsMatrix

SOURCE = r"""
typedef long long wide;

// One thread for each element and sample: all its entries in turn, as published.
extern "C" __global__ void by_search(const int* indptr, const int* indices, const int* dofs, const double* matrices,
                                     double* values, wide n_elements, int k, int n_samples)
{
    const wide item = (wide)blockIdx.x * blockDim.x + threadIdx.x;
    const wide e = item / n_samples;
    const int s = item % n_samples;
    if (e >= n_elements) return;
    for (int a = 0; a < k; ++a) {
        const int row = dofs[e * k + a];
        for (int b = 0; b < k; ++b) {
            const double value = matrices[((e * k + a) * k + b) * n_samples + s];
            if (value == 0.0) continue;
            const int column = dofs[e * k + b];
            int low = indptr[row], high = indptr[row + 1] - 1;
            while (low < high) {
                const int middle = (low + high) >> 1;
                if (indices[middle] < column) low = middle + 1; else high = middle;
            }
            atomicAdd(values + (wide)low * n_samples + s, value);
        }
    }
}

// One thread for each entry of an element matrix and sample.
extern "C" __global__ void by_place(const int* places, const double* matrices, double* values, wide n_items,
                                    int n_samples)
{
    const wide item = (wide)blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= n_items) return;
    atomicAdd(values + (wide)places[item / n_samples] * n_samples + item % n_samples, matrices[item]);
}
"""

THREADS = 256


def calls(n_samples: int) -> tuple[dict[str, Callable[[], Any]], int]:
    """By name each way to add the same matrices, checked against the CPU, and the bytes that it must move."""
    import cupy

    assembly, host = assembly_and_matrices(n_samples)
    n_elements, k = assembly.dofs.shape
    expected = CrsMatrix.from_elements(assembly, host).values
    matrices, values = cupy.asarray(host), cupy.empty(expected.shape)
    graph = [cupy.asarray(array) for array in (assembly.graph.indptr, assembly.graph.indices, assembly.dofs)]
    places = assembly.map.indptr[:-1][assembly.dofs][:, :, None] + assembly.map.slots
    places = cupy.asarray(places.astype(np.int32).reshape(-1))
    by_search, by_place = (cupy.RawKernel(SOURCE, name) for name in ("by_search", "by_place"))

    def search() -> Any:
        values.fill(0.0)
        sizes = (np.int64(n_elements), np.int32(k), np.int32(n_samples))
        by_search((-(-n_elements * n_samples // THREADS),), (THREADS,), (*graph, matrices, values, *sizes))
        return values

    def place() -> Any:
        values.fill(0.0)
        sizes = (np.int64(matrices.size), np.int32(n_samples))
        by_place((-(-matrices.size // THREADS),), (THREADS,), (places, matrices, values, *sizes))
        return values

    made: dict[str, Callable[[], Any]] = {
        "search, atomic": search,
        "places, atomic": place,
        "from_elements": lambda: CrsMatrix.from_elements(assembly, matrices).values,
    }
    for name, call in made.items():
        error = float(abs(cupy.asnumpy(call()) - expected).max())
        assert error == 0.0 or ("atomic" in name and error < 1e-12), (name, error)
    return made, host.nbytes + expected.nbytes


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scatter-search-device", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 4, 32])
    parser.add_argument("--repeats", type=int, default=20, help="launches of which the median is taken (default 20)")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for n_samples in options.samples:
        ways, n_bytes = calls(n_samples)
        for name, call in ways.items():
            rows.append({"way": name, "samples": n_samples, "ms": milliseconds(call, options.repeats),
                         "least ms": 1e3 * n_bytes / peak_bandwidth(),
                         "published ms": PUBLISHED["a100"] if n_samples == 1 else ""})  # fmt: skip
    about = cuda_device()
    show(f"{about['device']}: sums of element matrices", rows)
    save("scatter-search-cuda", rows, **about)


if __name__ == "__main__":
    main()
