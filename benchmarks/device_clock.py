"""Times of kernels on a CUDA device between events, without the host's time between launches.

A kernel that waits holds the device until the host has queued what is timed, so that launches follow each other as they
do in a long queue. Buffers that were used before are in the device's cache, and what was written there must still go to
memory: `milliseconds` reads a large buffer first, which leaves lines that need no writing; `milliseconds_in_turn` goes
through copies of all arrays that are larger than the cache together, so that every launch moves its bytes.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = [
    "copies_for", "copy_milliseconds", "empty_milliseconds", "gathered_sectors", "milliseconds",
    "milliseconds_in_turn", "peak_bandwidth",
]  # fmt: skip

PEAK_BANDWIDTHS = {"H200": 4.8e12, "H100": 3.35e12}
"""Bytes per second of memory, as data sheets state them."""

SECTOR = 32
"""Bytes that the second-level cache gives at least."""

CACHE_BYTES = 160e6
"""More than twice the cache of an H200."""

MOST_COPIES = 12

WAIT = r"""
__device__ unsigned long long now()
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
extern "C" __global__ void wait(unsigned long long nanoseconds)
{
    const unsigned long long start = now();
    while (now() - start < nanoseconds) {}
}
"""

COPY = r"""
extern "C" __global__ void nothing() {}
extern "C" __global__ void __launch_bounds__(256)
    copy(const double2* from, double2* to, long long n_read, long long n_written)
{
    const long long n = n_read > n_written ? n_read : n_written;
    double2 sum = {0, 0};
    for (long long i = (long long)blockIdx.x * 1024 + threadIdx.x; i < n; i += (long long)gridDim.x * 1024) {
        double2 x[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            x[u] = {1, 2};
            if (i + 256 * u < n_read) x[u] = __ldcs(from + i + 256 * u);
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            if (i + 256 * u < n_written) __stcs(to + i + 256 * u, x[u]);
            else sum.x += x[u].x, sum.y += x[u].y;
        }
    }
    if (sum.x == 1.2345 && sum.y == 5.4321) to[0] = sum;
}
"""
COPY_BLOCKS = 2112

GATHER = r"""
extern "C" __global__ void __launch_bounds__(256) gather(const double* from, double* to, unsigned n, int rounds)
{
    unsigned at = (blockIdx.x * 256 + threadIdx.x) * 2654435761u;
    double sum = 0;
    for (int i = 0; i < rounds; ++i) {
        double x[8];
#pragma unroll
        for (int u = 0; u < 8; ++u) {
            at = at * 1664525u + 1013904223u;
            x[u] = __ldcg(from + (unsigned)(((unsigned long long)at * n) >> 32));
        }
#pragma unroll
        for (int u = 0; u < 8; ++u) sum += x[u];
    }
    if (sum == 1.2345) to[0] = sum;
}
"""


@functools.cache
def _wait() -> Any:
    import cupy

    return cupy.RawKernel(WAIT, "wait")


def peak_bandwidth() -> float:
    """Bytes per second of the present device's memory."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    for card, bandwidth in PEAK_BANDWIDTHS.items():
        if card in name:
            return bandwidth
    raise ValueError(f"peak_bandwidth: the device must be one of {', '.join(PEAK_BANDWIDTHS)}; got {name}.")


def gathered_sectors(n: int, repeats: int) -> float:
    """Sectors per second that a kernel gathers from `n` doubles in the second-level cache, each by one number."""
    import cupy

    kernel, rounds = cupy.RawKernel(GATHER, "gather"), 64
    arguments = (cupy.ones(n), cupy.empty(1), np.uint32(n), np.int32(rounds))
    ms = milliseconds_in_turn([functools.partial(kernel, (COPY_BLOCKS,), (256,), arguments)] * 2, repeats)
    return 1e3 * COPY_BLOCKS * 256 * 8 * rounds / ms


def copies_for(n_bytes: float) -> int:
    """Copies of arrays of `n_bytes` in all that no cache holds."""
    return max(2, min(MOST_COPIES, -int(-CACHE_BYTES // n_bytes)))


def _timed(queue: Callable[[], Any], seconds: float) -> float:
    """Milliseconds of what `queue` queues, which takes the host at most `seconds`."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    _wait()((1,), (1,), (np.uint64(1e9 * seconds),))
    start.record()
    queue()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end))


def _host_seconds(queue: Callable[[], Any]) -> float:
    """Time that the host needs to queue, with some to spare; the first calls compile and allocate."""
    import cupy

    longest = 0.0
    for n in range(4):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        queue()
        longest = max(longest, time.perf_counter() - start if n else 0.0)
    return 2.0 * longest + 1e-4


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of what one call queues; a buffer larger than the cache is read before each."""
    import cupy

    other, sums = cupy.zeros(1 << 25), cupy.zeros(())
    seconds = _host_seconds(call)
    times = []
    for _ in range(repeats):
        cupy.sum(other, out=sums)
        times.append(_timed(call, seconds))
    return statistics.median(times)


def milliseconds_in_turn(calls: Sequence[Callable[[], Any]], repeats: int) -> float:
    """Median time of a launch where `calls`, on copies of the arrays, take turns; two rounds between events."""

    def queue() -> None:
        for _ in range(2):
            for call in calls:
                call()

    seconds = _host_seconds(queue)
    return statistics.median(_timed(queue, seconds) / (2 * len(calls)) for _ in range(repeats))


def copy_milliseconds(n_read: float, n_written: float, repeats: int) -> float:
    """Median time of a kernel that reads and writes so many bytes, each one contiguous array; 16 bytes at a time."""
    import cupy

    kernel = cupy.RawKernel(COPY, "copy")
    sizes = [int(n) // 16 for n in (n_read, n_written)]
    arrays = [[cupy.ones(2 * n + 2) for n in sizes] for _ in range(copies_for(n_read + n_written))]
    arguments = [(*pair, *map(np.int64, sizes)) for pair in arrays]
    calls = [functools.partial(kernel, (COPY_BLOCKS,), (256,), each) for each in arguments]
    return milliseconds_in_turn(calls, repeats)


def empty_milliseconds(n_blocks: int, repeats: int) -> float:
    """Median time of a kernel that does nothing."""
    import cupy

    kernel = cupy.RawKernel(COPY, "nothing")
    return milliseconds_in_turn([functools.partial(kernel, (n_blocks,), (256,), ())] * 4, repeats)
