"""Copies between host and device: pageable and pinned memory, and pinned buffers filled by threads.

`python -m benchmarks transfers-device` copies the arrays of a mesh of 554,394 tetrahedra and 103,635 nodes, among them
those of the published table, in both directions. `DeviceCopies` reads pageable arrays. Record: `transfers-cuda`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import cuda_device, interleaved, median, save, show
from benchmarks.papers.published_atmosphere import TRANSFERS
from ensemble.apps import fem

N_NODES, N_ELEMENTS, NNZ = 103_635, 554_394, 1_447_035

ARRAYS: dict[str, tuple[tuple[int, ...], Any]] = {
    "scalar field at nodes": ((N_NODES,), np.float64),
    "vector field at nodes": ((N_NODES, 3), np.float64),
    "tensor field at nodes": ((N_NODES, 3, 3), np.float64),
    "nodes of the elements": ((N_ELEMENTS, 4), np.int32),
    "values of a matrix": ((NNZ,), np.float64),
    "values of a matrix, 32 samples": ((NNZ, 32), np.float64),
    "wind per element, 32 samples": ((N_ELEMENTS, 3, 32), np.float64),
}
"""Shapes and types."""

PUBLISHED = {name: {"pageable": pageable, "pinned": pinned} for name, (_, pageable, pinned) in TRANSFERS.items()}
"""Milliseconds of a copy to an A100 over PCIe 4.0 x 16, Fluidity-Atmosphere (Li et al.), table 7."""


def ways(host: np.ndarray, copies: fem.DeviceCopies) -> dict[tuple[str, str], Callable[[], Any]]:
    """By direction and way a function that copies `host`, or its copy on the device, and ends when it is there."""
    import cupy

    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    pinned, pinned_back = (copies.empty(host.shape, host.dtype) for _ in range(2))
    back, pinned[...] = np.empty_like(host), host
    there = cupy.asarray(host)
    out = cupy.empty_like(there)

    def plain(target: int, source: int, kind: int) -> None:
        runtime.memcpy(target, source, host.nbytes, kind)
        runtime.deviceSynchronize()

    def queued(target: int, source: int, kind: int) -> None:
        runtime.memcpyAsync(target, source, host.nbytes, kind, stream.ptr)
        stream.synchronize()

    def arrays() -> Any:
        made = cupy.asarray(host)
        runtime.deviceSynchronize()
        return made

    up, down = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
    address = host.ctypes.data
    made = {
        ("to the device", "pageable"): lambda: plain(out.data.ptr, address, up),
        ("to the device", "cupy.asarray"): arrays,
        ("to the device", "DeviceCopies"): lambda: copies.start(host).wait(),
        ("to the device", "pinned"): lambda: queued(out.data.ptr, pinned.ctypes.data, up),
        ("to the host", "pageable"): lambda: plain(back.ctypes.data, there.data.ptr, down),
        ("to the host", "cupy.asnumpy"): lambda: cupy.asnumpy(there),
        ("to the host", "pinned"): lambda: queued(pinned_back.ctypes.data, there.data.ptr, down),
    }
    for (direction, _), call in made.items():
        result = call()
        if direction == "to the device":
            np.testing.assert_array_equal(cupy.asnumpy(out if result is None else result), host)
            out.fill(0)
            runtime.deviceSynchronize()
    np.testing.assert_array_equal(back, host)
    np.testing.assert_array_equal(pinned_back, host)
    return made


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks transfers-device", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=30, help="copies of which the median is taken (default 30)")
    parser.add_argument("--threads", type=int, help="threads that fill pinned buffers")
    options = parser.parse_args()
    copies, rows = fem.DeviceCopies(threads=options.threads), []
    for name, (shape, dtype) in ARRAYS.items():
        host = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
        rounds = options.rounds if host.nbytes < 1e8 else max(3, options.rounds // 6)
        for (direction, way), seconds in interleaved(ways(host, copies), rounds).items():
            ms = 1e3 * median(seconds)
            published = PUBLISHED.get(name, {}).get(way) if direction == "to the device" else None
            rows.append({"array": name, "MB": host.nbytes / 1e6, "direction": direction, "way": way, "ms": ms,
                         "GB/s": host.nbytes / ms / 1e6, "published ms": published or "",
                         "x": published / ms if published else ""})  # fmt: skip
    about = cuda_device()
    show(f"{about['device']}: copies between host and device", rows)
    save("transfers-cuda", rows, fill_threads=copies.threads, **about)


if __name__ == "__main__":
    main()
