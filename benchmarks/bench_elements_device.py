"""Sums of element matrices on a CUDA device, and products of block matrices, against their bytes.

`python -m benchmarks elements-device` compares three ways to add element matrices that lie on the device (staged in
shared memory, a gather by entries, atomic additions), and block with scalar storage. Launches follow each
other, on copies of what they read and write. Record: `elements-h200` on an H200, `elements-cuda` elsewhere.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import SEED, cuda_device, of_device, save, show
from benchmarks.device_clock import copies_for, copy_milliseconds, milliseconds_in_turn, peak_bandwidth
from benchmarks.mountain import mountain_mesh
from ensemble._kernels.sparse.gather_sums import gather_sums
from ensemble._kernels.sparse.staged_sums import staged_sums
from ensemble.linalg import BcrsMatrix, ElementAssembly

ATOMIC = r"""
extern "C" __global__ void scatter(const int* targets, const double* values, double* out, long long n, int width)
{
    const long long item = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (item < n * width) atomicAdd(out + (long long)targets[item / width] * width + item % width, values[item]);
}
"""


def element_rows(repeats: int, samples: list[int]) -> list[dict[str, Any]]:
    """Milliseconds of each way, per number of samples, on copies of all arrays in turn."""
    import cupy

    mesh = mountain_mesh()
    order = mesh.tets[:, 0].argsort(kind="stable")
    assembly = ElementAssembly(mesh.tets[order], mesh.n_nodes)
    rng, rows = np.random.default_rng(SEED), []
    targets = (assembly.map.indptr[:-1][assembly.dofs][:, :, None] + assembly.map.slots).astype(np.int32).reshape(-1)
    there = cupy.asarray(targets)
    scatter = cupy.RawKernel(ATOMIC, "scatter")
    for n_samples in samples:
        host = rng.standard_normal((targets.size, n_samples))
        expected = gather_sums(*assembly._matrix_sources, host, None)
        n_bytes = host.nbytes + expected.nbytes
        sets = [(cupy.asarray(host), cupy.empty_like(expected)) for _ in range(copies_for(n_bytes))]
        values = sets[0][0]
        places = assembly._arrays_on(values, "matrix", assembly._matrix_sources)
        tables = assembly._staged_tables("matrix", values)

        def atomic(values: Any, out: Any, n_samples: int = n_samples) -> None:
            out.fill(0.0)
            count = -(-values.size // 256)
            scatter((count,), (256,), (there, values, out, np.int64(targets.size), np.int32(n_samples)))

        ways: dict[str, Any] = {"gather": partial(gather_sums, *places), "atomic": atomic}
        if tables is not None:
            arrays = assembly._arrays_on(values, f"staged matrix of {n_samples} {values.dtype}", tables[:5])
            ways["staged"] = partial(staged_sums, arrays, assembly.graph.nnz, tables)
        for name, way in ways.items():
            ms = checked_milliseconds(name, way, sets, expected, repeats)
            rows.append(row(name, mesh, n_samples, ms, host.nbytes, expected.nbytes, repeats))
        del sets, values
    return rows + vector_rows(assembly, mesh, repeats)


def vector_rows(assembly: ElementAssembly, mesh: Any, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of right-hand sides from element vectors."""
    import cupy

    rng, rows = np.random.default_rng(SEED), []
    for n_samples in (1, 32):
        host = rng.standard_normal((mesh.n_elements, 4, n_samples))
        expected = assembly.vector(host)
        n_bytes = host.nbytes + expected.nbytes
        sets = [(cupy.asarray(host), None) for _ in range(copies_for(n_bytes))]
        ms = checked_milliseconds("vector", lambda x, out: assembly.vector(x), sets, expected, repeats)
        rows.append(row("right-hand side", mesh, n_samples, ms, host.nbytes, expected.nbytes, repeats))
    return rows


def checked_milliseconds(name: str, way: Any, sets: list[Any], expected: np.ndarray, repeats: int) -> float:
    """The time of `way` on sets of (values, out) in turn, after a check of the first."""
    import cupy

    made = way(*sets[0])
    error = abs(cupy.asnumpy(sets[0][1] if made is None else made) - expected).max()
    assert error == 0.0 or (name == "atomic" and error < 1e-12), (name, error)
    return milliseconds_in_turn([partial(way, *each) for each in sets], repeats)


def row(name: str, mesh: Any, n_samples: int, ms: float, n_read: int, n_written: int, repeats: int) -> dict[str, Any]:
    """A line of the table, with the time of a plain copy of as many bytes."""
    least = (n_read + n_written) / peak_bandwidth() * 1e3
    copy = copy_milliseconds(n_read, n_written, repeats)
    return {
        "way": name, "elements": mesh.n_elements, "samples": n_samples, "ms": ms, "least ms": least, "copy ms": copy
    }  # fmt: skip


def product_rows(repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of a product by blocks and entry by entry, per number of samples."""
    import cupy

    mesh = mountain_mesh()
    graph, rows = ElementAssembly(mesh.tets, mesh.n_nodes).graph, []
    for n_samples in (1, 4, 32):
        A = BcrsMatrix(graph, cupy.random.standard_normal((graph.nnz, 3, 3, n_samples)))
        B = BcrsMatrix(graph, A.values.copy())
        x = cupy.random.standard_normal((A.shape[1], n_samples))
        y, z = cupy.empty_like(x), cupy.empty_like(x)
        blocks, scalars = (A, B), (A.to_crs(), B.to_crs())
        A.apply(x, y)
        assert bool((y == scalars[0].apply(x, z)).all())
        n_bytes = A.values.nbytes + 4 * graph.nnz + 4 * graph.shape[0] + 2 * x.nbytes
        for name, pair in (("blocks", blocks), ("entries", scalars)):
            ms = milliseconds_in_turn([partial(operator.apply, x, y) for operator in pair], repeats)
            least = n_bytes / peak_bandwidth() * 1e3
            rows.append({"storage": name, "rows": A.shape[0], "samples": n_samples, "ms": ms, "least ms": least})
    return rows


def main() -> None:
    """Run and keep both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=30, help="launches of which the median is taken (default 30)")
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 4, 32], help="of the element matrices")
    options = parser.parse_args()
    sums, products = element_rows(options.repeats, options.samples), product_rows(options.repeats)
    show("sums of element matrices", sums)
    show("products with 3 x 3 blocks", products)
    about = cuda_device()
    save(of_device("elements", about["device"]), [*sums, *products], **about)
