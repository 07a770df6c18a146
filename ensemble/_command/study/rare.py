"""``ensemble rare``: a small probability by subset simulation, or a probability from the samples of a store."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ensemble import uq
from ensemble._command.running_options import LIMITS
from ensemble._command.shared import toml_values as kinds
from ensemble._command.study.analyses import is_store, options_of, read_analysis, require_no_options
from ensemble._command.study.report import plain
from ensemble._command.study.user_errors import told_in_one_line

__all__ = ["run"]


def number(value: Any) -> float:
    """a finite number"""
    if isinstance(value, list):
        raise TypeError
    return float(kinds.numbers(value))


def event(value: Any) -> str:
    """one of "below" and "above\""""
    if value not in ("below", "above"):
        raise ValueError
    return str(value)


def count(value: Any) -> int:
    """a whole number of at least 1"""
    if kinds.whole(value) < 1:
        raise ValueError
    return int(value)


KINDS: Mapping[str, Callable[[Any], Any]] = {
    "threshold": number, "event": event, "output": kinds.text, "n_per_level": count, "fraction": kinds.positive,
    "rtol": kinds.positive, "max_runs": count, "max_levels": count,
}  # fmt: skip

OF_A_RUN = {
    "samples": "-n", "seed": "--seed", "ensemble_size": "--ensemble-size", "fraction": "--fraction", "rtol": "--rtol",
    "max_runs": "--max-runs", "max_levels": "--max-levels", "config": "-c", "store": "--store", "resume": "--resume",
    "workers": "--workers", "sample_seconds": "--sample-seconds", "max_seconds": "--max-seconds",
}  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble rare``: 1 where the target was missed, or samples of a store failed or are pending."""
    if not 0.0 < (options.level or 0.95) < 1.0:
        raise ValueError(f"--level must be in (0, 1); got {options.level:g}. Divide percentages by 100.")
    if is_store(options.source):
        require_no_options(options, OF_A_RUN, "with a store")
        return of_store(options)
    found, level = simulated(options), options.level or 0.95
    low, high = found.confidence_interval(level)
    if options.json:
        options.output.print(json.dumps(as_json(found, low, high, level), allow_nan=False))
    else:
        options.output.print(f"{found!r}\n{100 * level:g} % interval {low:.4g} to {high:.4g}")
    return 0 if found.converged else 1


def simulated(options: argparse.Namespace) -> uq.SubsetResult:
    """Subset simulation of a model."""
    analysis = read_analysis(options, "rare", KINDS)
    own = {**analysis.own, **named(options)}
    chosen = {"seed": 1} | {key: analysis.study[key] for key in ("seed",) if key in analysis.study}
    if isinstance(analysis.study.get("ensemble_size"), int):
        chosen["ensemble_size"] = analysis.study["ensemble_size"]
    chosen |= {name: analysis.study[name] for name in LIMITS if name in analysis.study}
    if options.samples is not None:
        chosen["n_per_level"] = options.samples
    if options.store is not None and not options.resume and uq.Store.exists(options.store):
        raise ValueError(f"--store must be a new folder; got a run at {options.store}. Go on with it: --resume.")
    with told_in_one_line(options.source):
        return simulation(
            analysis.model, analysis.inputs, executor=analysis.study.get("workers"), store=options.store,
            resume=options.resume, progress=not options.quiet, **{"threshold": 0.0, **own, **chosen},
        )  # fmt: skip


def simulation(*arguments: Any, **options: Any) -> uq.SubsetResult:
    """The result of `subset_simulation`; that it has none is bad input of a command."""
    try:
        return uq.subset_simulation(*arguments, **options)
    except uq.AlgorithmError as error:
        raise ValueError(str(error)) from error


def named(options: argparse.Namespace) -> dict[str, Any]:
    """The output that the command line names."""
    return {} if options.output_name is None else {"output": options.output_name}


def as_json(found: uq.SubsetResult, low: float, high: float, level: float) -> dict[str, Any]:
    """The estimate and its levels."""
    return {
        "status": found.status, "probability": found.probability, "low": plain(low), "high": plain(high),
        "level": level, "coefficient_of_variation": plain(found.coefficient_of_variation),
        "evaluations": found.n_evaluations, "failed": found.n_failed, "seed": found.seed,
        "thresholds": plain(found.thresholds), "fractions": plain(found.fractions),
        "acceptance": plain(found.acceptance), "probabilities": plain(found.probabilities),
    }  # fmt: skip


def of_store(options: argparse.Namespace) -> int:
    """The probability of an event in the samples of a store, with its interval."""
    result, said = uq.open_study(options.source), options_of(options, KINDS) | named(options)
    names = result.names
    if "output" not in said and len(names) != 1:
        raise ValueError(f"--output must name one of {', '.join(names) or 'the outputs'}; got none.")
    name = said.get("output", names[0] if names else "")
    if name not in names:
        raise ValueError(f"--output must be one of {', '.join(names)}; got {name!r}.")
    condition = f"{'<=' if said.get('event', 'below') == 'below' else '>='} {said.get('threshold', 0.0)!r}"
    if np.ndim(result.mean(name)):
        raise ValueError(
            f"--output must name an output of one number; got {name!r} of shape {np.shape(result.mean(name))}."
        )
    found, level = result.probability(name, condition), options.level or 0.95
    facts: dict[str, Any] = {
        "output": name, "condition": condition, "probability": plain(found.value), "n": result.n,
        "done": result.n_done, "failed": result.n_failed, "least": plain(found.low), "most": plain(found.high),
        "level": level,
    }  # fmt: skip
    if not result.no_interval():
        low, high = result.confidence_interval(name, level, of="probability", condition=condition)
        facts |= {"low": plain(low), "high": plain(high)}
    if options.json:
        options.output.print(json.dumps(facts, allow_nan=False))
    else:
        lines = [f"P({name} {condition}) = {found.value:.4g}, from {result.ids.size:,} samples"]
        lines += [f"  {100 * level:g} % interval {facts['low']:.4g} to {facts['high']:.4g}"] if "low" in facts else []
        lines += (
            [f"  {found.low:.4g} to {found.high:.4g} whatever the failed samples would give"] if result.n_failed else []
        )
        options.output.print("\n".join(lines))
    return 1 if result.n_failed or result.n_done < result.n else 0
