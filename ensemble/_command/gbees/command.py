"""``ensemble gbees``: a probability distribution carried by a drift on a sparse grid, corrected by measurements."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._backend import available_bytes
from ensemble._command.gbees.input import configuration_of
from ensemble._command.gbees.progress import GridProgress
from ensemble._command.gbees.report import Outcome, as_json, as_table
from ensemble._command.shared.backend import require_backend
from ensemble._command.shared.files import (
    require_different,
    require_folder,
    require_plot,
    require_writable,
    save_figure,
)
from ensemble._command.shared.ranks import require_one_process
from ensemble._progress import say
from ensemble.apps.gbees import (
    Configuration,
    Gbees,
    GridError,
    GridWarning,
    RecordedRun,
    bhattacharyya,
    binned,
    draw,
    kernel_density,
    propagate,
)

__all__ = ["run"]


FINEST_BINS = 0.1
"""Each cell is spread over the bins that it covers: (1 / bins) to the power of the dimensions."""

LIVE_STATES = 8
"""States of all samples that an integration by Runge-Kutta's method holds at least."""


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble gbees``."""
    require_one_process("Start it without the launcher. distributed.farm deals runs to ranks in a program of your own.")
    problem = configuration_of(options.problem)
    checkpoint = options.checkpoint or Path(f"{problem.name}.checkpoint.npz")
    require_writable("--out", options.out, (".npz",))
    require_plot("--plot", options.plot)
    require_writable("--checkpoint", checkpoint, (".npz",))
    require_folder("--export", options.export)
    require_different(out=options.out, plot=options.plot, checkpoint=checkpoint)
    require_backend(options.backend)
    require_comparison(problem, options)
    options.output.expect(options.out, options.export, options.plot)
    until = sum(problem.spans) if options.until is None else options.until
    if not 0.0 < until < np.inf:
        raise ValueError(f"--until must be a finite number above zero; got {until:g}.")
    try:
        recorded = begin(problem, checkpoint, options)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{source_of(str(error), options)}{error}") from error
    first = recorded.gbees.cell_steps
    outcome = Outcome(recorded.saved_run, axes_of(problem), {"backend": options.backend, "dtype": options.dtype},
                      cell_steps_before=first, units=problem.units, time_unit=problem.time_unit,
                      published=is_published(options))  # fmt: skip
    with GridProgress(until, start=recorded.gbees.time, quiet=options.quiet) as progress:
        progress.say("compiling, or loading what was compiled before ...")
        warm_up(problem, gbees_options(options))
        status = carry_out(recorded, outcome, progress, options, checkpoint)
        if options.monte_carlo is not None and status == 0:
            try:
                outcome.comparison = compared(problem, recorded, options)
            except KeyboardInterrupt:
                outcome.interrupted, status = True, 130
                progress.say("interrupted: the comparison with Monte Carlo is left out")
            except (ValueError, ArithmeticError, MemoryError) as error:
                status = 1
                text = " ".join(str(error).split())
                say(f"{options.prog}: --monte-carlo: the comparison is left out: {text}")
    try:
        if outcome.saved_run.distributions:
            options.output.print(json.dumps(as_json(outcome), allow_nan=False) if options.json else as_table(outcome))
    finally:
        write_files(outcome, options)
    if status == 0:
        checkpoint.unlink(missing_ok=True)
    return status


def gbees_options(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `Gbees` from the command line; missing ones are the problem's."""
    said = {name: getattr(options, name) for name in ("threshold", "limiter", "cfl", "prune")}
    for name in ("factor", "extent"):
        value = getattr(options, name)
        said[name] = value[0] if value is not None and len(value) == 1 else value
    found = {name: value for name, value in said.items() if value is not None}
    return {**found, "backend": options.backend, "dtype": np.dtype(options.dtype)}


def source_of(text: str, options: argparse.Namespace) -> str:
    """The file that an error message is about; empty for the command line."""
    argument = re.match(r"(?:Gbees|RecordedRun): (\w+) ", text)
    said = argument is not None and getattr(options, argument[1], None) is not None
    in_file = "." in options.problem and not said and not text.startswith(("resume: ", "--"))
    return f"{options.problem}: " if in_file else ""


def axes_of(problem: Configuration) -> tuple[str, ...]:
    """Names of the coordinates."""
    n = len(problem.mean)
    return problem.axes if len(problem.axes) == n else tuple(f"x{i + 1}" for i in range(n))


def begin(problem: Configuration, checkpoint: Path, options: argparse.Namespace) -> RecordedRun:
    """A new run, or the one of the checkpoint."""
    arguments: dict[str, Any] = {"times": options.times, "every": options.every, **gbees_options(options)}
    if not options.resume:
        return RecordedRun(problem, checkpoint=checkpoint, **arguments)
    if not checkpoint.exists():
        raise ValueError(f"--resume must find a checkpoint; got none at {str(checkpoint)!r}.")
    return RecordedRun.resume(problem, checkpoint, **arguments)


def warm_up(problem: Configuration, options: dict[str, Any]) -> None:
    """One step on a coarse grid, so that everything is compiled before a clock runs."""
    arguments = {**problem.options, **options, "factor": 0.25, "threshold": 1e-3}
    # An error concerns this grid alone; the run has reported its own.
    with contextlib.suppress(GridError, MemoryError):
        Gbees(problem.drift, problem.mean, problem.covariance, **arguments).advance(1e-9 * problem.span)


def carry_out(
    recorded: RecordedRun, outcome: Outcome, progress: GridProgress, options: argparse.Namespace, checkpoint: Path
) -> int:
    """Run to the end and return the exit status: 0, 1 for a run that cannot continue, 130 for an interrupted one."""
    progress.restart(outcome.cell_steps_before)
    start = time.perf_counter()
    status = 0
    try:
        with told_warnings(progress, quiet=outcome.published):
            recorded.run(until=options.until, callback=progress.report)
    except KeyboardInterrupt:
        outcome.interrupted, status = True, 130
        again = f"go on with: ensemble gbees {options.problem} --resume --checkpoint {checkpoint} and the same options"
        kept = again if checkpoint.exists() else "no checkpoint could be written"  # Ctrl-C once more, while it was
        progress.say(f"interrupted at t = {recorded.gbees.time:.6g}; {kept}")
    except (GridError, MemoryError) as error:
        status = 1
        text = " ".join(str(error).split())
        say(f"{options.prog}: stopped at t = {recorded.gbees.time:.6g}: {text}")
    outcome.seconds = time.perf_counter() - start
    return status


def is_published(options: argparse.Namespace) -> bool:
    """Whether a built-in problem runs on its published cells: what the table says of its losses is no warning then."""
    said = set(gbees_options(options)) - {"backend", "dtype"}
    return "." not in options.problem and not said and options.dtype == "float64"


@contextlib.contextmanager
def told_warnings(progress: GridProgress, *, quiet: bool) -> Iterator[None]:
    """Show the last warning of each kind about the grid as a line of progress; others stay what they are.

    With `quiet` none is shown of probability that was lost or added, which the table has.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            texts = [str(warning.message) for warning in caught if issubclass(warning.category, GridWarning)]
            latest = {text.partition("; got")[0]: text for text in texts}
            for kind, text in latest.items():
                if not (quiet and kind.startswith("Gbees.advance: ")):
                    line = f"warning: {text}"
                    say(line) if progress.quiet else progress.say(line)
    for warning in caught:
        if not issubclass(warning.category, GridWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def require_comparison(problem: Configuration, options: argparse.Namespace) -> None:
    """Raise unless the comparison with Monte Carlo can be made after the run."""
    n, dimensions = options.monte_carlo, len(problem.mean)
    if n is None:
        return
    if n <= dimensions:
        raise ValueError(f"--monte-carlo must be above the {dimensions} dimensions; got {n}.")
    if not FINEST_BINS <= options.bins < np.inf:
        raise ValueError(f"--bins must be a finite number of at least {FINEST_BINS} cells; got {options.bins:g}.")
    needed, available = 8 * n * dimensions * LIVE_STATES, available_bytes(np.empty(0))
    if needed > available:
        seen = f"{n:,} samples, which need at least {needed / 1e9:.1f} GB"
        raise MemoryError(f"--monte-carlo must fit the {available / 1e9:.1f} GB that are free; got {seen}. Take fewer.")


def compared(problem: Configuration, recorded: RecordedRun, options: argparse.Namespace) -> dict[str, float]:
    """The last distribution before any measurement, against random samples carried to the same time."""
    before = [k for k, span in enumerate(recorded.saved_run.spans) if span == 0]
    if not before:
        raise ValueError("--monte-carlo must find a record before the first measurement; got none.")
    cells = recorded.saved_run.distributions[before[-1]]
    start = time.perf_counter()
    x = draw(problem.mean, problem.covariance, options.monte_carlo, seed=options.seed)
    x = propagate(problem.drift, x, cells.time)
    seconds = time.perf_counter() - start
    widths = options.bins * np.asarray(cells.widths)
    return {
        "samples": float(options.monte_carlo),
        "time": cells.time,
        "seconds": seconds,
        "kernel_density": bhattacharyya(cells, kernel_density(x, cells)),
        "bins": bhattacharyya(cells, binned(x, cells, widths=widths), widths=widths),
        "bin_cells": options.bins,
    }


def write_files(outcome: Outcome, options: argparse.Namespace) -> None:
    """Write the files of --out, --export and --plot."""
    output = options.output
    if options.out is not None:
        output.write(options.out, lambda: outcome.saved_run.save(options.out))
    if options.export is not None:
        output.write(options.export, lambda: outcome.saved_run.export(options.export, form=options.format))
    if options.plot is not None and outcome.saved_run.distributions:
        from ensemble._command.gbees.plot import figure  # Matplotlib takes a second to import

        output.write(options.plot, lambda: save_figure(figure(outcome), options.plot))
