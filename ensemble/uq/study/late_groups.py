"""`LateGroups`: what becomes of a group of which one sample took too long."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from ensemble.uq.study.evaluation import SampleError
from ensemble.uq.study.groups import Group, part, single
from ensemble.uq.study.outputs import Outcome

__all__ = ["LateGroups"]


class LateGroups:
    """Marks the sample that took too long, and has the others of its group run again.

    Where it is not known which sample that was, as the model ran them together, each runs alone.

    Attributes
    ----------
    waiting : deque of Group
        What is to be run again.
    """

    def __init__(self, on_failure: str) -> None:
        self.on_failure = on_failure
        self.waiting: deque[Group] = deque()
        self._late_once: dict[int, str] = {}

    def settled(self, group: Group, outcome: Outcome) -> Iterator[tuple[Group, Outcome]]:
        """The sample that has failed for good by an outcome that is late."""
        place = 0 if group.n_samples == 1 else outcome.late
        assert place is not None
        if place < 0:
            self.waiting.extend(single(group, k) for k in range(group.n_samples))
            return
        if group.n_samples > 1:
            self.waiting.append(part(group, np.delete(np.arange(group.n_samples), place)))
        number, reason = int(group.ids[place]), outcome.reasons[place]
        if self.on_failure == "retry" and number not in self._late_once:
            self._late_once[number] = reason
            self.waiting.append(single(group, place))
            return
        if self.on_failure == "raise":
            raise SampleError(f"propagate: sample {number} failed ({reason}). on_failure='mask' leaves it out.")
        yield self.noted(single(group, place), Outcome({}, np.ones(1, bool), {0: reason}, late=0))

    def noted(self, group: Group, outcome: Outcome) -> tuple[Group, Outcome]:
        """An outcome for good, with the reasons of samples that were late before."""
        for place, number in enumerate(group.ids.tolist()) if self._late_once else ():
            before = self._late_once.pop(number, None)
            if before is not None:
                outcome.earlier[place] = [before, *outcome.earlier.get(place, [])]
        return group, outcome
