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

__all__ = ["copies_for", "milliseconds", "milliseconds_in_turn"]

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


@functools.cache
def _wait() -> Any:
    import cupy

    return cupy.RawKernel(WAIT, "wait")


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
