"""``ensemble ode``: samples of an initial value problem, and statistics of where they end."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble import gallery, ode
from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble._command.shared import toml_values as kinds
from ensemble._command.shared.backend import require_backend
from ensemble._command.shared.files import require_different, require_plot, require_writable, save_figure
from ensemble._command.shared.ranks import require_one_process
from ensemble._command.shared.sources import object_in, raised_in, reject_unknown, toml_table
from ensemble._command.shared.toml_values import read
from ensemble._command.study.configuration import inputs_from_table
from ensemble._files import write_arrays
from ensemble._progress import say
from ensemble.scalar import Ensemble, plot_histogram

__all__ = ["run"]

LEVELS = (0.05, 0.95)

KEYS = {"y0", "p", "t", "method", "step", "rtol", "atol", "times", "inputs", "correlation", "correlation_kind"}

SYSTEMS = ("brusselator", "figure_eight", "fitzhugh_nagumo", "hires", "lorenz63", "lorenz96", "pharmacokinetics",
           "pleiades", "robertson", "van_der_pol")  # fmt: skip
"""Problems of `ensemble.gallery`."""

STIFF = ("brusselator", "hires", "robertson")
"""Those of them that "rodas4" integrates where no method is named."""


class Problem(NamedTuple):
    """A problem to integrate: its name, and the arguments of `ode.solve`."""

    name: str
    f: Any
    y0: list[Any]
    p: list[Any]
    t: tuple[float, float]
    options: dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble ode``."""
    require_one_process(
        "Start it without the launcher. distributed.farm deals samples to ranks in a program of your own."
    )
    require_writable("--out", options.out, (".npz",))
    require_plot("--plot", options.plot)
    require_different(out=options.out, plot=options.plot)
    require_backend(options.backend)
    options.output.expect(options.out, options.plot)
    problem = problem_of(options)
    said = {"method": options.method, "step": options.step, "rtol": options.rtol, "atol": options.atol}
    chosen = problem.options | {name: value for name, value in said.items() if value is not None}
    if options.times is not None:
        chosen["times"] = options.times
    times = chosen.pop("times", None)
    if times is not None:
        chosen["t_eval"] = np.linspace(*problem.t, times) if np.ndim(times) == 0 else times
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ode.OdeWarning)  # the table has it
        try:
            result = ode.solve(problem.f, problem.y0, problem.t, p=problem.p, backend=options.backend,
                               progress=not options.quiet, **chosen)  # fmt: skip
        except Exception as error:  # of the user's function, of any kind
            text = raised_in(options.problem, error)
            if text is None:
                raise
            raise ValueError(text) from error
        status = to_numpy(result.status)
    seconds = time.perf_counter() - started
    found = outcome(problem, result, status, seconds)
    options.output.print(json.dumps(found) if options.json else as_table(found))
    if options.out is not None:
        arrays = {"y": to_numpy(result.y.samples), "t": to_numpy(getattr(result.t, "samples", result.t)),
                  "status": status, "n_steps": to_numpy(result.n_steps)}  # fmt: skip
        options.output.write(options.out, lambda: write_arrays(options.out, arrays))
    if options.plot is not None:
        options.output.write(options.plot, lambda: save_figure(figure(problem, result), options.plot))
    return 0 if result.all_succeeded else 1


def problem_of(options: argparse.Namespace) -> Problem:
    """The problem of a name, or of a function of a Python file and a TOML file.

    Raises
    ------
    ValueError
        If there is no such problem, or a value is missing or not what its key needs.
    """
    table = {} if options.config is None else toml_table(options.config)
    where = str(options.config)
    reject_unknown(where, table, KEYS)
    if ".py" in options.problem:
        given = object_in(options.problem, Path(), "f")
        missing = [key for key in ("y0", "t") if key not in table]
        if missing:
            raise ValueError(f"{options.problem} must come with y0 and t in -c FILE.toml; got no {missing[0]}.")
        f, y0, p, t = given, table["y0"], table.get("p", []), table["t"]
        name = getattr(given, "__name__", options.problem)
    elif options.problem in SYSTEMS:
        known, name = getattr(gallery, options.problem)(), options.problem
        f, y0, p, t = known.f, list(known.y0), list(known.p), known.t
        y0, p, t = table.get("y0", y0), table.get("p", p), table.get("t", t)
    else:
        raise ValueError(f"PROBLEM must be FILE.py:FUNCTION or one of {', '.join(SYSTEMS)}; got {options.problem!r}.")
    values: dict[str, Any] = {}
    if "inputs" in table:
        drawn = inputs_from_table(options.config, table).samples(
            options.samples, sampler=options.sampler, seed=options.seed
        )
        values = {name: getattr(drawn, name) for name in drawn.names}
    y0, p = (placed(where, key, row, values, options.backend) for key, row in (("y0", y0), ("p", p)))
    ends = read(where, table, "t", kinds.numbers) if "t" in table else t
    if np.shape(ends) != (2,):
        raise ValueError(f"{where}: t must be two numbers; got {t!r}.")
    if not values and options.samples != 1:
        say(f"{options.prog}: no [inputs]: the problem has one sample")
    readers = {"method": kinds.text, "step": kinds.positive, "rtol": kinds.positive, "atol": kinds.positive,
               "times": output_times}  # fmt: skip
    chosen = {"method": "rodas4"} if options.problem in STIFF else {}
    chosen |= {key: read(where, table, key, reader) for key, reader in readers.items() if key in table}
    return Problem(name, f, y0, p, (float(ends[0]), float(ends[1])), chosen)


def output_times(value: Any) -> Any:
    """a whole number of at least 2, or a list of finite numbers"""
    times = kinds.numbers(value) if isinstance(value, list) else kinds.whole(value)
    if np.ndim(times) == 0 and times < 2:
        raise ValueError
    return times


def placed(where: str, key: str, row: Any, values: dict[str, Any], backend: str) -> list[Any]:
    """Numbers, and the samples of the inputs that `row` names."""
    like = prototype(backend)
    found: list[Any] = []
    for entry in row if isinstance(row, list | tuple) else [row]:
        if isinstance(entry, str):
            if entry not in values:
                raise ValueError(f"{where}: {key} must name inputs of [inputs]; got {entry!r}.")
            found.append(Ensemble(asarray_like(np.asarray(values[entry].samples, dtype=np.float64), like)))
        else:
            found.append(read(where, {key: entry}, key, a_number))
    return found


def a_number(value: Any) -> float:
    """finite numbers and names of inputs"""
    return float(kinds.numbers([value])[0])


def outcome(problem: Problem, result: ode.OdeResult, status: np.ndarray, seconds: float) -> dict[str, Any]:
    """The statistics of the states at the end of the run, whatever the output times, and of the steps."""
    last = to_numpy(result.y_reached.samples)[:, result.succeeded]
    steps = to_numpy(result.n_steps)
    rows = []
    for i, values in enumerate(last):
        low, middle, high = np.nanquantile(values, [LEVELS[0], 0.5, LEVELS[1]]) if values.size else [np.nan] * 3
        mean, std = (float(np.nanmean(values)), float(np.nanstd(values))) if values.size else (np.nan, np.nan)
        rows.append({"component": i, "mean": mean, "std": std, "5 %": float(low), "median": float(middle),
                     "95 %": float(high)})  # fmt: skip
    ends = {outcome.name: int((status == outcome).sum()) for outcome in ode.OdeStatus if (status == outcome).any()}
    return {"problem": problem.name, "method": result.method, "t": list(problem.t), "samples": int(status.size),
            "status": ends, "steps": [int(steps.min()), int(steps.max())], "seconds": seconds,
            "samples per second": status.size / seconds, "states": rows}  # fmt: skip


def as_table(found: dict[str, Any]) -> str:
    """The outcome as text."""
    ends = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found["status"].items())
    lines = [
        f"{found['problem']}, {found['method']}: {found['samples']} samples, t from {found['t'][0]:g} to "
        f"{found['t'][1]:g}",
        f"{ends}; {found['steps'][0]} to {found['steps'][1]} steps per sample",
        f"{found['seconds']:.2f} s with compilation, {found['samples per second']:.4g} samples per second",
        "",
    ]
    keys = list(found["states"][0])
    lines.append("  ".join(key.rjust(12) for key in keys))
    for row in found["states"]:
        lines.append("  ".join(f"{row[key]:12d}" if key == "component" else f"{row[key]:12.5g}" for key in keys))
    return "\n".join(lines)


def figure(problem: Problem, result: ode.OdeResult) -> Any:
    """Fan charts of the first components over time, or histograms of the last states."""
    from matplotlib.figure import Figure

    n = min(result.y.shape[-1], 6)
    drawing = Figure(figsize=(7.0, 2.2 * n), layout="constrained")
    axes = np.atleast_1d(drawing.subplots(n, 1))
    good = result.succeeded
    for i, ax in enumerate(axes):
        if result.y.ndim == 2 and np.ndim(result.t) == 1:
            result.plot(i, ax=ax)
        else:
            y = to_numpy(result.y.samples)
            plot_histogram(Ensemble((y[-1] if y.ndim == 3 else y)[i, good]), ax=ax)
            ax.set_xlabel(f"y[{i}]")
    axes[0].set_title(problem.name)
    return drawing
