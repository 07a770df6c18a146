"""What `run` returns: values for all samples, the paths that they took, and their exceptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._check import message, samples_text
from ensemble._errors import again
from ensemble.scalar.divergence.paths import Decision
from ensemble.scalar.divergence.plain_loop import as_numpy
from ensemble.scalar.divergence.regroup import sample_of

__all__ = ["IN_ROUNDING", "TO_THE_BIT", "Group", "RunResult"]

TO_THE_BIT, IN_ROUNDING = "equal to the bit", "equal within rounding"

FEW = 4
"""Samples finished per call below which `run` advises a loop over samples."""


@dataclass(frozen=True, eq=False)
class Group:
    """Samples that took one path.

    Attributes
    ----------
    samples : numpy.ndarray of int
        Their numbers, rising.
    decisions : tuple of Decision
        The expressions at which other samples had other values, in the order of the run, each with their value.
    carried : int
        How many samples were computed in the run that gave their results: these and at most as many others, which
        took another path after a decision. 1: the run was of plain numbers and arrays.
    reason : str
        Why a sample had to run alone although no decision parted it from the others; empty otherwise.
    error : Exception or None
        What their run ended with.
    """

    samples: np.ndarray
    decisions: tuple[Decision, ...]
    carried: int
    reason: str = ""
    error: Exception | None = None

    @property
    def n_samples(self) -> int:
        """How many samples took this path."""
        return self.samples.size


@dataclass(eq=False)
class RunResult:
    """What `run` returns.

    Attributes
    ----------
    value : any
        What `f` returned, for all samples: numbers and arrays as ensembles, in the dicts, lists, tuples and dataclasses
        that `f` built. What no ensemble can hold, say texts or arrays of different shapes, is a `SampleList` where
        samples differ and the value itself where all are equal. Samples that failed hold NaN (``None`` in a
        `SampleList`). Without an ensemble among the inputs it is what `f` returned.
    errors : dict of int to Exception
        What `f` raised, by sample, without tracebacks, which would keep the arrays of their frames; a note of each
        says where it was raised.
    n_samples : int
    n_runs : int
        How often `f` was called.
    work : int
        Samples computed, over all calls of `f`; `n_samples` would be one call for all.
    execution : {"ensembles", "loop", "both"}
        Whether `f` was called with ensembles, with plain numbers in a loop over samples, or with ensembles first and in
        a loop over what remained.
    checked : dict of int to str
        The samples that ``check=`` ran alone, each with "equal to the bit" or "equal within rounding".
    """

    value: Any
    errors: dict[int, Exception]
    n_samples: int
    n_runs: int
    work: int
    execution: str
    checked: dict[int, str]
    _values: list[tuple[np.ndarray, Any]] = field(repr=False)
    _find_groups: Callable[[], tuple[Group, ...]] | None = field(repr=False)
    _found: list[tuple[Group, ...]] = field(default_factory=list, repr=False)
    _rows: list[Any] | None = field(default=None, repr=False)
    _rows_are_exact: bool = field(default=False, repr=False)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The paths, by their first sample.

        After a loop over samples they are found at the first use, by a run with
        ensembles. That is done for functions without effects outside themselves only.
        """
        if not self._found and self._find_groups is not None:
            found = self._find_groups()
            firsts = [int(group.samples[0]) for group in found]
            self._found.append(
                tuple(
                    dataclasses.replace(group, error=self.errors.get(first))
                    for group, first in zip(found, firsts, strict=True)
                )
            )
        return self._found[0]

    @property
    def way(self) -> str:
        """The former name of `execution`."""
        return self.execution

    @property
    def failed(self) -> np.ndarray:
        """Which samples raised, bools of shape (n_samples,)."""
        return np.isin(np.arange(self.n_samples), list(self.errors))

    def sample(self, i: int) -> Any:
        """What `f` returned for sample `i`, as a plain value; or raises what it raised."""
        i = range(self.n_samples)[i]
        if i in self.errors:
            raise again(self.errors[i])
        if self._rows is not None:
            value = sample_of(self._rows[i], 0)
            return as_numpy(value) if self._rows_are_exact else value
        ids, value = next((ids, value) for ids, value in self._values if i in ids)
        return sample_of(value, int(np.flatnonzero(ids == i)[0]))

    def group_of(self, i: int) -> Group:
        """The path that sample `i` took."""
        i = range(self.n_samples)[i]
        return next(group for group in self.groups if i in group.samples)

    def raise_if_failed(self) -> RunResult:
        """Raise the exceptions of all samples as one `ExceptionGroup`; without any, give the result itself."""
        if self.errors:
            seen = f"{len(self.errors)} of {self.n_samples} that raised ({samples_text(sorted(self.errors))})"
            text = message("run", "f", "return in every sample", seen, "result.errors holds them by sample.")
            raise ExceptionGroup(text, list({id(error): error for error in self.errors.values()}.values()))
        return self

    def __repr__(self) -> str:
        paths = f"{len(self.groups)} {'path' if len(self.groups) == 1 else 'paths'}"
        calls = f"{self.n_runs} {'call' if self.n_runs == 1 else 'calls'} of {self.work} samples in all"
        failed = f", {len(self.errors)} failed" if self.errors else ""
        lines = [f"RunResult: {self.n_samples} samples, {paths}, {calls}{failed}", *self._notes()]
        for group in self.groups[:12]:
            steps = [str(decision) for decision in group.decisions]
            steps = steps if len(steps) <= 3 else ["...", *steps[-2:]]
            steps += [f"alone: {group.reason}"] if group.reason else []
            steps += [f"raised {type(group.error).__name__}: {group.error}"] if group.error is not None else []
            lines.append(f"  {samples_text(group.samples)}: {'; '.join(steps) or 'no decision'}")
        lines += [f"  ... {len(self.groups) - 12} paths more"] if len(self.groups) > 12 else []
        return "\n".join(lines)

    def _notes(self) -> list[str]:
        """How `f` was called, what would cost less, and what was checked."""
        notes = []
        if self.execution == "loop" and self._find_groups is not None:
            notes.append("  a loop over samples: f is arithmetic on numbers, which costs less than on small ensembles")
        elif self.execution == "both":
            notes.append("  ensembles, then a loop over the samples of small groups")
        elif self.execution == "ensembles" and 1 < self.n_samples < FEW * len(self.groups):
            notes.append("  few samples share a path: run(..., loop=True) or per_sample(f), a loop, may cost less")
        if self.checked:
            exact = sum(how == TO_THE_BIT for how in self.checked.values())
            notes.append(
                f"  {len(self.checked)} samples checked alone: {exact} equal to the bit, the others in rounding"
            )
        return notes
