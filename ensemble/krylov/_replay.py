"""Recorded iterations that serve later solves too: with the same matrix and hierarchy only new numbers come in.

Recording an iteration costs as much time on the host as some iterations take on the device. A hierarchy therefore keeps
the graphs of its last solves, and the memory that they work on: a few vectors beside the some twenty-seven that
the entries of a matrix in three dimensions take. They go with the matrix of the solve, with the hierarchy, and when it
is updated.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from typing import Any

from ensemble._compile.device import address, is_on_device
from ensemble._compile.streams import CudaGraph, stream_number
from ensemble.krylov._iteration import KrylovIteration

MOST_KEPT = 2
"""Recorded solves that a hierarchy keeps: of different methods, numbers of samples, types or streams."""


class Replay:
    """The graphs of an iteration, and the vectors and scalars that they read and write.

    Parameters
    ----------
    state : KrylovIteration
        Its scalars are on the device.
    parts : tuple
        Those of `parts_of`.
    graphs : list of CudaGraph
        Of the parts of an iteration.
    max_iterations : int
    """

    def __init__(
        self, state: KrylovIteration, parts: tuple[Any, ...], graphs: list[CudaGraph], max_iterations: int
    ) -> None:
        self.matrix, self.parts = weakref.ref(state.A), parts
        self.max_iterations, self.graphs = max_iterations, graphs
        self.names = tuple(name for name in (*state.vectors, *state.scratch) if name != "b")
        self.memory = {name: getattr(state, name) for name in self.names}
        self.scalars, self.workspace = state.scalars, state.workspace

    def serves(self, state: KrylovIteration, parts: tuple[Any, ...], max_iterations: int) -> bool:
        """Whether a solve that has not begun would queue what was recorded."""
        if self.matrix() is not state.A or max_iterations != self.max_iterations:
            return False
        return len(parts) == len(self.parts) and all(map(is_same, parts, self.parts))

    def take_over(self, state: KrylovIteration) -> None:
        """Move the vectors and scalars of a solve that begins into the recorded memory."""
        for name in self.names:
            if name in state.vectors:
                self.memory[name][...] = getattr(state, name)
            setattr(state, name, self.memory[name])
        self.scalars.copy_from(state.scalars)
        state.workspace, state.scalars = self.workspace, self.scalars


def release_launches(graphs: list[CudaGraph]) -> bool:
    """Whether all parts of an iteration are recorded; those that are let go of the solve that they were made from."""
    return sum(graph.release_launches() for graph in graphs) == len(graphs)


def parts_of(state: KrylovIteration) -> tuple[Any, ...] | None:
    """List the arrays and objects that decide what an iteration queues; None where they are not known."""
    matrix, preconditioner = state.A.replay_parts(), state.M.replay_parts()
    return None if matrix is None or preconditioner is None else (*matrix, *preconditioner)


def is_same(part: Any, other: Any) -> bool:
    """Whether two parts are one object, or one piece of memory."""
    if part is other:
        return True
    if not (hasattr(part, "strides") and hasattr(other, "strides")):
        return False
    alike = (part.shape, part.dtype, part.strides) == (other.shape, other.dtype, other.strides)
    return alike and address(part) == address(other)


def kind_of_solve(state: KrylovIteration) -> Hashable:
    """Return what solves that share one record have in common beside their operators."""
    x, names = state.x, (*state.vectors, *state.scratch)
    return type(state), names, x.shape, x.dtype, is_on_device(x), stream_number(x), threading.get_ident()


def found_replay(state: KrylovIteration, parts: tuple[Any, ...], max_iterations: int) -> Replay | None:
    """Find the record that serves a solve which has not begun; drop one of its kind that does not."""
    kept: dict[Hashable, Replay] = getattr(state.M, "replays", {})
    if not kept:
        return None
    kind = kind_of_solve(state)
    replay = kept.get(kind)
    if replay is None or replay.serves(state, parts, max_iterations):
        return replay
    del kept[kind]
    return None


def keep_replay(state: KrylovIteration, replay: Replay) -> None:
    """Let the preconditioner of a solve keep its record until the matrix, or the preconditioner, is gone."""
    kept, kind = getattr(state.M, "replays", {}), kind_of_solve(state)
    kept.pop(kind, None)
    while len(kept) >= MOST_KEPT:
        del kept[next(iter(kept))]
    kept[kind] = replay
    own, preconditioner = weakref.ref(replay), weakref.ref(state.M)
    replay.matrix = weakref.ref(state.A, lambda _: forget(preconditioner(), kind, own()))


def forget(preconditioner: Any, kind: Hashable, replay: Replay | None) -> None:
    """Drop a record whose matrix is gone."""
    if preconditioner is not None and replay is not None and preconditioner.replays.get(kind) is replay:
        del preconditioner.replays[kind]


def separate_solution(state: KrylovIteration) -> None:
    """Give a solve that has ended an x outside of the recorded memory."""
    x = state.A.space.vector(state.x)
    x[...] = state.x
    state.x = x
