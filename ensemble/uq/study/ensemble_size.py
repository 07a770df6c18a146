"""``ensemble_size="auto"``: groups of several sizes are timed, and their results kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ensemble._backend import available_bytes, prototype
from ensemble.uq.study.groups import Group
from ensemble.uq.study.outputs import Outcome

if TYPE_CHECKING:
    from ensemble.uq.study.plan import Plan

__all__ = ["choose_ensemble_size"]

CANDIDATES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
GAIN = 0.95
"""A larger size goes on being tried while a sample takes at most this share of the time."""

TIMES = 2
"""Groups of each size: the first may compile kernels."""


def peak_memory() -> int:
    """Bytes that this process has held at most, 0 where that is not known."""
    try:
        import resource
    except ImportError:
        return 0
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def choose_ensemble_size(
    study: Plan,
    run: Callable[[Group], Outcome | None],
    is_time_up: Callable[[], bool],
    n_parallel: int = 1,
    backend: str = "numpy",
) -> tuple[int, str]:
    """The size at which a sample takes least time, and a line on why.

    `run` runs a group, keeps its results, and gives None where it did not fit into memory.
    """
    pending = study.pending
    most = max(CANDIDATES[0], pending.size // (2 * n_parallel))
    seconds: dict[int, float] = {}
    start, first, reason = peak_memory(), 0, ""
    for size in CANDIDATES:
        if size > most or pending.size - first < TIMES * size:
            reason = f"{study.n} samples are too few for larger groups"
            break
        grown = 2 * (peak_memory() - start)
        if n_parallel == 1 and grown > available_bytes(prototype(backend)) // 2:
            reason = f"larger groups would take half of the free memory ({grown / 1e9:.2g} GB)"
            break
        times = []
        for ids in np.split(pending[first : first + TIMES * size], TIMES):
            if is_time_up():
                return max(seconds, key=lambda k: -seconds[k], default=CANDIDATES[0]), "the time is up"
            outcome = run(study.group(ids))
            if outcome is None and is_time_up():
                return max(seconds, key=lambda k: -seconds[k], default=CANDIDATES[0]), "the time is up"
            if outcome is None or outcome.out_of_memory:
                break
            times.append(outcome.seconds)
        if len(times) < TIMES:
            reason = f"groups of {size} do not fit into memory"
            break
        first += TIMES * size
        best = min(seconds.values(), default=np.inf)
        seconds[size] = min(times) / size
        if seconds[size] > GAIN * best:
            reason = "larger groups are not faster"
            break
    if not seconds:
        return CANDIDATES[0] if not reason.startswith("groups of") else 1, reason
    size = min(seconds, key=lambda k: seconds[k])
    return size, f"{1e3 * seconds[size]:.3g} ms a sample" + (f"; {reason}" if reason else "")
