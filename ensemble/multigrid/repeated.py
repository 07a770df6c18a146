"""V-cycles on small problems as programs: compiled code repeats what Python called once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ensemble._backend import backend_of
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.programs import Program, serves_as_program
from ensemble._compile.recording import recordings
from ensemble._kernels.krylov.vectors import dot
from ensemble._typing import Array
from ensemble.linalg import CrsMatrix

__all__ = ["RepeatedCycle", "repeated_cycle"]

MOST_KEPT = 4
"""Programs that a hierarchy keeps: of different threads, numbers of samples and types."""


class RepeatedCycle:
    """A V-cycle from memory of its own to memory of its own, as a program.

    Parameters
    ----------
    hierarchy : Hierarchy
        Its `repeats_on_host` is true.
    r : array, shape (n, n_samples)
        Like the vectors to come.
    """

    def __init__(self, hierarchy: Any, r: Array) -> None:
        self.values = hierarchy.levels[0].A.values  # of a finest matrix with others the program is not
        self.r, self.out, self.squares = empty_like(r), empty_like(r), None
        workspace = hierarchy.workspace(r.shape[1])

        def launches() -> None:
            hierarchy.apply(self.r, self.out, workspace)
            self.squares = dot(self.r, self.out, None)

        self.program = Program(launches)

    def __call__(self, r: Array, out: Array) -> tuple[Array, Any]:
        """The V-cycle of `r` in `out`, and the inner products of both."""
        self.r[...] = r
        self.program()
        self.program.release_launches()  # they hold the hierarchy, which holds this
        out[...] = self.out
        return out, np.array(self.squares)


def repeated_cycle(hierarchy: Any, r: Array) -> RepeatedCycle | None:
    """Return the V-cycle that a program repeats for such vectors; None where Python calls the loops.

    A program runs on the calling thread, for matrices on which the loops do so anyway.
    """
    A = hierarchy.levels[0].A
    if type(r) is not np.ndarray or type(A) is not CrsMatrix or backend_of(r, A.values) != "numba":
        return None
    if not serves_as_program(A.values, r) or threading.get_ident() in recordings:
        return None
    kept: dict[tuple[int, int, np.dtype], RepeatedCycle] = hierarchy.cycles
    key = threading.get_ident(), r.shape[1], r.dtype
    found = kept.get(key)
    if found is not None and found.values is A.values:
        return found
    if not hierarchy.repeats_on_host or r.dtype.kind != "f":
        return None
    kept.pop(key, None)
    while len(kept) >= MOST_KEPT:
        kept.pop(next(iter(kept)), None)
    kept[key] = found = RepeatedCycle(hierarchy, r)
    return found
