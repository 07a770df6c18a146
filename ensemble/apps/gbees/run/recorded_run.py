"""The run of a configuration: predictions, measurements, records, and checkpoints to resume from."""

from __future__ import annotations

import dataclasses
import json
import os
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._files import write_arrays
from ensemble._interrupts import held
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.gbees import Gbees
from ensemble.apps.gbees.io.records import SavedRun, compact, read_arrays
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.run import identity
from ensemble.apps.gbees.run.arguments import checked_call
from ensemble.apps.gbees.run.measurement import noise_of
from ensemble.apps.gbees.systems.configurations import Configuration

__all__ = ["RecordedRun"]

Callback = Callable[[float, int, int], None]


@dataclass(frozen=True)
class Stop:
    """A point of the schedule: the time where a step ends, whether to record, and the measurement to use."""

    time: float
    span: int
    record: bool
    measurement: int | None = None


class PauseError(Exception):
    """Raised by the callback to stop between two steps; caught in this module."""


class RecordedRun:
    """A `Gbees` run of a `Configuration` with records and checkpoints.

    Parameters
    ----------
    configuration : Configuration
    times : sequence of float, optional
        Record at these times instead of the configuration's own; steps end exactly there.
    every : int, optional
        Record also every so many steps: at the engine's next report once they are done. No step is cut for it.
    checkpoint : path, optional
        An ``.npz`` file that is written at every record, every `checkpoint_seconds`, and when the run is interrupted or
        fails; `resume` continues from it, to the bit.
    checkpoint_seconds : float
    **options
        Arguments of `Gbees`, in place of the configuration's.

    Attributes
    ----------
    gbees : Gbees
    saved_run : SavedRun
    done : bool

    Raises
    ------
    TypeError, ValueError
        As for `Gbees`, or if a time lies outside the run.

    Examples
    --------
    >>> from ensemble.apps.gbees import configuration
    >>> run = RecordedRun(configuration("duffing"), times=[0.1], factor=1.0, threshold=1e-4, backend="array")
    >>> [cells.time for cells in run.run(until=0.1).distributions]
    [0.1]
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        times: Sequence[float] | None = None,
        every: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 600.0,
        **options: Any,
    ) -> None:
        self.configuration = configuration
        self.every = None if every is None else _check.integer(every, "RecordedRun", "every", minimum=1)
        self.checkpoint = checkpoint
        self.checkpoint_seconds = _check.positive(checkpoint_seconds, "RecordedRun", "checkpoint_seconds")
        self.stops = schedule(configuration, times)
        self.next = 0
        arguments = {**configuration.options, **options}
        self.gbees = Gbees(configuration.drift, configuration.mean, configuration.covariance, **arguments)
        _check.require(
            self.gbees.n_samples is None, "RecordedRun", "configuration", "describe one run",
            f"Ensembles of {self.gbees.n_samples} samples", "Record each of them, or drive Gbees yourself.",
        )  # fmt: skip
        self.saved_run = SavedRun(threshold=float(arguments["threshold"]), title=configuration.name)
        check_measurements(configuration, np.asarray(self.gbees.mean()))
        self.saved_at = clock.monotonic()
        self.recorded_steps = 0
        self.identity = self.described()

    @classmethod
    def resume(cls, configuration: Configuration, checkpoint: str | os.PathLike[str], **options: Any) -> RecordedRun:
        """The run that wrote `checkpoint`, in the state of the file.

        Parameters
        ----------
        configuration : Configuration
            The same as before.
        checkpoint : path
            Also the file of later checkpoints.
        **options
            The same as before: they are not in the file.

        Raises
        ------
        ValueError
            If the file is damaged, no checkpoint, or of another run: the message names what differs (drift and other
            functions are compared by their traced programs, or by values where they cannot be traced, and all that
            changes a bit of the results by value) and gives both values.
        """
        run = cls(configuration, checkpoint=checkpoint, **options)
        arrays = read_arrays(checkpoint)
        if "identity" not in arrays:
            raise ValueError(f"resume: {checkpoint} must be a checkpoint; got an .npz file without 'identity'.")
        stored = json.loads(str(arrays["identity"]))
        differences = [
            identity.difference(name, stored.get(name, "nothing"), run.identity.get(name, "nothing"))
            for name in {**run.identity, **stored}
            if stored.get(name) != run.identity.get(name)
        ]
        if differences:
            raise ValueError(
                f"resume: {checkpoint} must be of the same run; got {'; '.join(differences)}. "
                "Give the problem and the options that it was started with."
            )
        run.saved_run = SavedRun.of(arrays, str(checkpoint))
        state = {name.removeprefix("state_"): widened(a) for name, a in arrays.items() if name.startswith("state_")}
        run.gbees.restore(state)
        run.next, run.recorded_steps = (int(n) for n in arrays["position"])
        return run

    @property
    def done(self) -> bool:
        """Whether the run is at its end."""
        return self.next == len(self.stops)

    def described(self) -> dict[str, identity.Entry]:
        """The inputs that determine the run, as text by name; a checkpoint must have the same ones."""
        (problem,), cells = self.gbees.problems, self.gbees.cells()
        assert isinstance(problem, Problem) and isinstance(cells, Cells)
        found = identity.of_problem(problem)
        found["backend"] = self.gbees.backend
        found["start"] = identity.of_start(cells)
        found["schedule"] = identity.of_value([stop.time for stop in self.stops])
        for k, measurement in enumerate(self.configuration.measurements):
            for attribute in dataclasses.fields(measurement):
                name, value = f"{attribute.name} of measurement {k}", getattr(measurement, attribute.name)
                function = callable(value)
                found[name] = identity.of_function(value, problem) if function else identity.of_value(value)
        return found

    def run(self, *, until: float | None = None, callback: Callback | None = None) -> SavedRun:
        """Advance to the end.

        Parameters
        ----------
        until : float, optional
            Stop after the records at this time instead of the end.
        callback : callable, optional
            ``callback(time, cells, cell_steps)``, called at intervals; may raise to interrupt.

        Returns
        -------
        SavedRun

        Raises
        ------
        ValueError
            If `until` is NaN.
        GridError, MemoryError
            As `Gbees.advance` and `Gbees.update`. The checkpoint, if any, is written before.
        """
        _check.require(until is None or until == until, "RecordedRun.run", "until", "be a number", until)
        with held():  # Ctrl-C is taken between steps: position, records and grid belong together
            return self._run(until, callback)

    def _run(self, until: float | None, callback: Callback | None) -> SavedRun:
        try:
            while not self.done and (until is None or self.stops[self.next].time <= until):
                self.advance_to_stop(self.stops[self.next], callback)
                self.next += 1
                if self.stops[self.next - 1].record:
                    self.save()
        except BaseException:
            self.save()
            raise
        finally:
            self.saved_run.steps = self.steps
        return self.saved_run

    @property
    def steps(self) -> Steps:
        """All steps since the start."""
        found = self.gbees.steps
        assert isinstance(found, Steps)
        return found

    def record(self, span: int) -> None:
        """Record the distribution as it is now."""
        cells = self.gbees.cells()
        assert isinstance(cells, Cells)
        self.saved_run.keep(cells, span)
        self.recorded_steps = len(self.steps)

    def advance_to_stop(self, stop: Stop, callback: Callback | None) -> None:
        """Steps, measurement and record of one point of the schedule."""
        if stop.measurement is not None:
            seen = self.configuration.measurements[stop.measurement]
            evidence = self.gbees.update(seen.h, np.array(seen.y), seen.R, likelihood=seen.likelihood)
            self.saved_run.log_evidences.append(float(evidence))
        else:
            self.advance(stop, callback)
        if stop.record:
            self.record(stop.span)

    def advance(self, stop: Stop, callback: Callback | None) -> None:
        """Steps to the time of `stop`, with pauses to record and to save."""
        calls_wanted = 1
        while self.gbees.time < stop.time:
            start = len(self.steps)
            pausing = PausingCallback(self, stop.time, calls_wanted, callback)
            if self.every is not None:
                self.gbees.report_each_step()
            try:
                self.gbees.advance(stop.time, pausing)
                return
            except PauseError:
                taken = len(self.steps) - start
            if self.every is not None:
                if len(self.steps) - self.recorded_steps >= self.every:
                    self.record(stop.span)
                left = self.every - (len(self.steps) - self.recorded_steps)
                # Engines call back after every step or every few; without progress more calls are awaited.
                calls_wanted = max(1, left * pausing.calls // taken) if taken else 2 * calls_wanted
            if self.checkpoint_due:
                self.save()

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is due."""
        return self.checkpoint is not None and clock.monotonic() - self.saved_at > self.checkpoint_seconds

    def save(self) -> None:
        """Write the checkpoint, if any."""
        self.saved_at = clock.monotonic()
        if self.checkpoint is None:
            return
        self.saved_run.steps = self.steps
        arrays = self.saved_run.arrays()
        arrays["identity"] = np.array(json.dumps(self.identity))
        arrays |= {f"state_{name}": shortened(value) for name, value in self.gbees.state().items()}
        arrays["position"] = np.array([self.next, self.recorded_steps])
        write_arrays(self.checkpoint, arrays)


class PausingCallback:
    """Calls `callback`, and raises `PauseError` after `calls_wanted` calls or when a checkpoint is due."""

    def __init__(self, run: RecordedRun, end: float, calls_wanted: int, callback: Callback | None) -> None:
        self.run, self.end, self.calls_wanted, self.callback = run, end, calls_wanted, callback
        self.calls = 0

    def __call__(self, time: float, n_cells: int, cell_steps: int) -> None:
        self.calls += 1
        if self.callback is not None:
            self.callback(time, n_cells, cell_steps)
        enough = self.run.every is not None and self.calls >= self.calls_wanted
        if time < self.end and (enough or self.run.checkpoint_due):
            raise PauseError


def shortened(value: np.ndarray) -> np.ndarray:
    """Multi-indices in the shortest integers; anything else as it is."""
    return compact(value) if value.ndim == 2 and value.dtype == np.int64 else value


def widened(value: np.ndarray) -> np.ndarray:
    """The inverse of `shortened`."""
    return value.astype(np.int64) if value.ndim == 2 and value.dtype.kind == "i" else value


def check_measurements(configuration: Configuration, x: np.ndarray) -> None:
    """Raise for a measurement that `Gbees.update` would refuse at its time: `h` is called at the point `x`."""
    for k, measurement in enumerate(configuration.measurements):
        where, y = f"measurement {k}", np.atleast_1d(np.asarray(measurement.y, dtype=np.float64))
        _check.require(bool(np.all(np.isfinite(y))), where, "y", "be finite", y.tolist())
        noise_of(measurement.R, len(y), where)
        place = tuple(np.asarray(value) for value in x)
        with np.errstate(all="ignore"):
            given = checked_call(partial(measurement.h, place, np), where, "h", "take n scalars x and a namespace")
        count = len(given) if isinstance(given, tuple | list) else 1
        _check.require(count == len(y), where, "h", "give one number for each of y", f"{count} for {len(y)} measured")


def schedule(configuration: Configuration, times: Sequence[float] | None) -> list[Stop]:
    """All stops in order."""
    stops: list[Stop] = []
    start = 0.0
    wanted = None if times is None else sorted(float(time) for time in times)
    end = float(sum(configuration.spans))
    if wanted is not None and not all(0.0 <= time <= end for time in wanted):  # no NaN is
        raise ValueError(_check.message("RecordedRun", "times", f"lie between 0 and {end}", wanted))
    for m, span in enumerate(configuration.spans):
        if m > 0:
            stops.append(Stop(start, m, wanted is None, m - 1))
        elif wanted is None:
            stops.append(Stop(start, m, True))
        if wanted is None:
            n = configuration.records - 1
            stops += [Stop(start + span * k / n if k < n else start + span, m, True) for k in range(1, n + 1)]
        else:
            last = m == len(configuration.spans) - 1
            inside = [time for time in wanted if (start < time or (m == 0 and time == 0.0)) and time <= start + span]
            stops += [Stop(time, m, True) for time in inside]
            if (not inside or inside[-1] < start + span) and not (last and inside and inside[-1] == end):
                stops.append(Stop(start + span, m, False))
        start += span
    return stops
