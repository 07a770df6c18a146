"""`SavedRun`: recorded distributions and step sizes of a run, and its ``.npz`` file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ensemble import _check
from ensemble._backend import to_numpy
from ensemble._files import write_arrays
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.io.formats import write_binary, write_text

__all__ = ["SavedRun", "read_arrays"]

FORMAT = 1
"""Version of the file format; incompatible changes increment it."""


@dataclass
class SavedRun:
    """Recorded distributions, evidences and steps of one run.

    Attributes
    ----------
    distributions : list of Cells
        Active cells at each recorded time, as NumPy arrays.
    spans : list of int
        Number of measurements before each distribution; two of one time are those before and after a measurement.
    log_evidences : list of float
        Log evidence of each measurement so far.
    steps : Steps
        Length, cells stored and mass before normalising of every step.
    threshold : float
        Cells of smaller probability are left out of `distributions`.
    title : str
    """

    distributions: list[Cells] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)
    log_evidences: list[float] = field(default_factory=list)
    steps: Steps = field(default_factory=lambda: Steps.of([]))
    threshold: float = 0.0
    title: str = ""

    @property
    def step_times(self) -> np.ndarray:
        """Time at the end of every step, shape (n_steps,); the run starts at the first distribution's time."""
        start = self.distributions[0].time if self.distributions else 0.0
        return start + np.cumsum(self.steps.lengths)

    @property
    def cell_steps(self) -> int:
        """Sum over steps of the cells stored."""
        return int(np.sum(self.steps.cells))

    def keep(self, cells: Cells, span: int) -> None:
        """Append the active cells of a distribution, copied to the host."""
        p = to_numpy(cells.probabilities)
        chosen = p >= self.threshold
        indices = to_numpy(cells.indices)[chosen]
        kept = replace(cells, indices=indices, probabilities=p[chosen])
        self.distributions.append(kept)
        self.spans.append(span)

    def arrays(self) -> dict[str, np.ndarray]:
        """All attributes as arrays by name."""
        found: dict[str, np.ndarray] = {
            "format": np.array(FORMAT),
            "title": np.array(self.title),
            "threshold": np.array(self.threshold),
            "times": np.array([cells.time for cells in self.distributions]),
            "spans": np.array(self.spans, dtype=np.int64),
            "log_evidences": np.array(self.log_evidences, dtype=np.float64),
            "step_lengths": self.steps.lengths,
            "step_cells": self.steps.cells,
            "step_masses": self.steps.masses,
            "step_clipped": self.steps.clipped,
        }
        if self.distributions:
            first = self.distributions[0]
            found |= {"origin": np.asarray(first.origin), "widths": np.asarray(first.widths)}
            if first.rotation is not None:
                found["rotation"] = np.asarray(first.rotation)
            if any(first.periods):
                found["periods"] = np.array([count or 0 for count in first.periods], dtype=np.int64)
        for k, cells in enumerate(self.distributions):
            found[f"indices_{k}"] = compact(cells.indices)
            found[f"probabilities_{k}"] = cells.probabilities
        return found

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], source: str = "arrays") -> SavedRun:
        """The run that `arrays` came from.

        Raises
        ------
        ValueError
            If one is missing or has the wrong length; the message names `source`.
        """

        def need(name: str) -> np.ndarray:
            return needed(arrays, name, source)

        version = int(need("format"))
        if version != FORMAT:
            raise ValueError(
                f"SavedRun: {source} must be of format {FORMAT}; got {version}. Use the version that wrote it."
            )
        times, spans = need("times"), need("spans")
        masses = need("step_masses")
        # absent from files written before clipped mass was stored
        clipped = arrays.get("step_clipped", np.full(masses.shape, np.nan))
        steps = Steps(need("step_lengths"), need("step_cells"), masses, clipped)
        lengths = {len(part) for part in vars(steps).values()}
        if len(lengths) > 1 or len(times) != len(spans):
            raise ValueError(f"SavedRun: {source} must have one entry per step and a time; got lengths that differ.")
        rotation = arrays.get("rotation")
        counts = np.asarray(arrays.get("periods", ())).tolist()  # absent from files written before they were stored
        periods = tuple(count or None for count in counts) if any(counts) else ()
        distributions = []
        for k, time in enumerate(times):
            indices, p = need(f"indices_{k}"), need(f"probabilities_{k}")
            if indices.ndim != 2 or p.shape != indices.shape[:1]:
                raise ValueError(
                    f"SavedRun: {source}: distribution {k} must have one probability per cell; "
                    f"got shapes {indices.shape} and {p.shape}."
                )
            distributions.append(
                Cells(indices.astype(np.int64), p, need("origin"), need("widths"), rotation, float(time), periods)
            )
        evidences = [float(value) for value in need("log_evidences")]
        return cls(
            distributions, [int(m) for m in spans], evidences, steps, float(need("threshold")), str(need("title"))
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run to an ``.npz`` file, atomically.

        Parameters
        ----------
        path : path
        """
        write_arrays(path, self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedRun:
        """Read a file of `save`, or a checkpoint.

        Parameters
        ----------
        path : path

        Raises
        ------
        ValueError
            If the file is damaged or has another format.
        """
        return cls.of(read_arrays(path), str(path))

    def export(self, directory: str | os.PathLike[str], *, form: str = "text") -> list[Path]:
        """Write the distributions as the public GBEES programs do: ``P0/pdf_0.txt`` and so on, one folder per span.

        Parameters
        ----------
        directory : path
            Created if missing.
        form : {"text", "binary"}
            See `write_text` and `write_binary`; the latter end in ``.bin``.

        Returns
        -------
        list of Path
        """
        _check.one_of(form, ("text", "binary"), "export", "form")
        write: Callable[..., None] = write_text if form == "text" else write_binary
        written, counts = [], dict.fromkeys(self.spans, 0)
        for cells, span in zip(self.distributions, self.spans):
            path = Path(directory) / f"P{span}" / f"pdf_{counts[span]}.{'txt' if form == 'text' else 'bin'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, cells)
            written.append(path)
            counts[span] += 1
        return written


def compact(indices: np.ndarray) -> np.ndarray:
    """Indices in the shortest integers that hold them."""
    largest = int(np.max(np.abs(indices), initial=0))
    for kind in (np.int8, np.int16, np.int32):
        if largest <= np.iinfo(kind).max:
            return indices.astype(kind)
    return indices


def needed(arrays: Mapping[str, np.ndarray], name: str, source: str) -> np.ndarray:
    """The array called `name`."""
    if name not in arrays:
        raise ValueError(f"SavedRun: {source} must hold {name!r}; got {len(arrays)} other arrays. Is it a saved run?")
    return arrays[name]


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All arrays of an ``.npz`` file.

    Raises
    ------
    ValueError
        If the file is damaged or not an ``.npz`` archive.
    """
    try:
        Path(path).stat()  # raises for a missing file, which the next line would report as damaged
        if not zipfile.is_zipfile(path):
            raise ValueError("no archive, or one that is cut off")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError) as error:
        raise ValueError(f"SavedRun: {path} must be a whole .npz file; got something else ({error}).") from None
