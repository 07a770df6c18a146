"""What a report is made from: a result, its manifest, and the values of its inputs, column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._version import __version__
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.samples import labels_of
from ensemble.uq.inputs.stored import inputs_that_say_themselves
from ensemble.uq.inputs.variable import Variable
from ensemble.uq.store.costs import Cost
from ensemble.uq.store.store import PRIVATE
from ensemble.uq.study.dataset import input_columns
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.study_protocols import StudyResult

__all__ = ["Column", "Source"]

MOST_COLUMNS = 64
"""Numbers of a sample's inputs that are looked at, in the order of the inputs."""


@dataclass(frozen=True)
class Column:
    """One number of every sample's inputs: an input, or a component of one."""

    name: str
    values: np.ndarray
    """Shape (n,), NaN where it is not known."""
    labels: tuple[str, ...] = ()
    """Labels of categories, whose values are places among them."""


@dataclass
class Source:
    """A study as a report reads it.

    Attributes
    ----------
    result : StudyResult
    manifest : dict
        What the study is: as in a store.
    inputs : Inputs or None
        Their definitions; None where a store does not say them.
    samples : InputSamples
        The inputs of all samples, as far as they are known.
    costs : list of Cost
        The runs of the study.
    first : callable
        The result of the first so many samples.
    kept : bool
        Whether there is every sample of the outputs.
    path : path or None
        Folder of the store.
    declared : Outputs
        Coordinates and units of the outputs.
    """

    result: StudyResult
    manifest: Mapping[str, Any]
    inputs: Inputs | None
    samples: Any
    costs: list[Cost]
    first: Callable[[int], StudyResult]
    kept: bool
    path: Path | None
    declared: Outputs

    @property
    def program(self) -> str:
        """The program that makes the page."""
        return f"ensemble {__version__}"

    @cached_property
    def writer(self) -> str:
        """The process that has the store open for writing, as its lock says; empty where none has."""
        if self.path is None:
            return ""
        try:
            text = (self.path / PRIVATE / "lock").read_text(errors="replace").strip()[:120]
        except OSError:
            return ""
        return f"{text[:1].upper()}{text[1:]}"

    @property
    def variables(self) -> list[tuple[str, Variable]]:
        """The inputs of one number, and the components of vectors, that are not constant, where they are known."""
        found = []
        described = self.manifest.get("inputs", {}).get("inputs", {})
        inputs = self.inputs or inputs_that_say_themselves(self.manifest.get("inputs", {}))
        for name, variable in () if inputs is None else inputs.variables.items():
            if "coefficients" in described.get(name, {}):
                continue  # those of a field say little
            parts = variable.components()
            if variable.shape == ():
                found.append((name, variable))
            elif len(parts) == variable.n_germs:
                found += [(f"{name}[{k}]", part) for k, part in enumerate(parts)]
        return [(name, variable) for name, variable in found if variable.n_germs]

    @cached_property
    def columns(self) -> list[Column]:
        """The inputs of all samples that vary, a column for each number, at most `MOST_COLUMNS`."""
        found = []
        for name, values in input_columns(self.samples).items():
            rows = np.asarray(values).reshape(-1, np.shape(values)[-1])
            if rows.shape[-1] != self.result.n or rows.dtype.kind not in "biuf":
                continue  # a constant, or complex numbers
            labels = tuple(str(label) for label in labels_of(self.samples, name) or ())
            for k, row in enumerate(rows):
                column = row.astype(np.float64)
                known = column[np.isfinite(column)]
                if known.size and known.min() < known.max():
                    found.append(Column(name if len(rows) == 1 else f"{name}[{k}]", column, labels))
            if len(found) >= MOST_COLUMNS:
                break
        return found[:MOST_COLUMNS]
