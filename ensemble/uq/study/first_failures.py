"""`FirstFailures`: whether the first samples of a study all raised the same, which the program does and no sample."""

from __future__ import annotations

from collections.abc import Iterator

from ensemble._check import samples_text
from ensemble.uq.study.evaluation import SampleError
from ensemble.uq.study.groups import Group
from ensemble.uq.study.outputs import Outcome

__all__ = ["FirstFailures"]

ENOUGH = 8
"""Samples that have to raise the same; a study of fewer samples needs all of them."""


class FirstFailures:
    """Holds the first outcomes back while all their samples raised exceptions of the same type and text.

    Parameters
    ----------
    n_samples : int
        Samples that the study has to run; 0 lets all outcomes pass.
    names : tuple of str
        Names of the inputs.
    """

    def __init__(self, n_samples: int, names: tuple[str, ...]) -> None:
        self.enough, self.names = min(ENOUGH, n_samples), names
        self.held: list[tuple[Group, Outcome]] = []

    def passed(self, group: Group, outcome: Outcome) -> Iterator[tuple[Group, Outcome]]:
        """The outcomes that may be kept now; SampleError where enough samples raised the same."""
        if not self.enough:
            yield group, outcome
            return
        self.held.append((group, outcome))
        alike = outcome.alike if outcome.alike == self.held[0][1].alike else ""
        if not alike or outcome.out_of_memory:
            self.enough = 0
            yield from self.rest()
            return
        n_alike = sum(one.n_samples for one, _ in self.held)
        if n_alike >= self.enough:
            held, self.held = self.held, []
            raise self.error([int(i) for one, _ in held for i in one.ids], held[0][1]) from held[0][1].error

    def rest(self) -> Iterator[tuple[Group, Outcome]]:
        """What is held back, as where a study ends before there are enough samples."""
        held, self.held = self.held, []
        yield from held

    def error(self, ids: list[int], outcome: Outcome) -> SampleError:
        """The error that ends the study."""
        error = SampleError(
            f"propagate: the model must run on one of the first {len(ids)} samples; got the same exception on all "
            f"({samples_text(ids)}): {outcome.alike}. The inputs are {', '.join(self.names)}. on_failure='mask' takes "
            "samples that raise for failed ones and goes on."
        )
        if outcome.trace:
            error.add_note(f"In the model:\n{outcome.trace}")
        return error
