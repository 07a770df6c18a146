"""``ensemble sensitivity``: Sobol' indices or Shapley effects of a model, or of the store of such a study."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

from ensemble import uq
from ensemble._command.shared import toml_values as kinds
from ensemble._command.study.analyses import inputs_named, is_store, read_analysis, require_no_options
from ensemble._command.study.report import plain
from ensemble._command.study.user_errors import told_in_one_line

__all__ = ["run"]

METHODS: dict[str, Callable[..., Any]] = {"sobol": uq.sobol_indices, "shapley": uq.shapley_effects}


def method(value: Any) -> str:
    """one of "sobol" and "shapley\""""
    if value not in METHODS:
        raise ValueError
    return str(value)


def probability(value: Any) -> float:
    """a number between 0 and 1"""
    if isinstance(value, list) or not 0.0 < kinds.numbers(value) < 1.0:
        raise ValueError
    return float(value)


KINDS: Mapping[str, Callable[[Any], Any]] = {"method": method, "level": probability}

OF_A_RUN = {
    "method": "--method", "samples": "-n", "seed": "--seed", "ensemble_size": "--ensemble-size", "store": "--store",
    "resume": "--resume", "workers": "--workers", "on_failure": "--on-failure", "sample_seconds": "--sample-seconds",
}  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble sensitivity``: 1 where samples failed."""
    if is_store(options.source):
        require_no_options(options, OF_A_RUN, "with a store")
        level = 0.95 if options.level is None else options.level
        found = uq.open_indices(options.source, inputs=inputs_named(options), level=level)
    else:
        found = made(options)
    options.output.print(json.dumps(as_json(found), allow_nan=False) if options.json else repr(found))
    return 1 if found.n_failed else 0


def made(options: argparse.Namespace) -> Any:
    """The indices of a model, from runs of it."""
    analysis = read_analysis(options, "sensitivity", KINDS)
    study = {"n": 1024, "seed": 1, **analysis.study}
    if options.store is not None and not options.resume and uq.Store.exists(options.store):
        raise ValueError(f"--store must be a new folder; got a study at {options.store}. Go on with it: --resume.")
    make = METHODS[analysis.own.pop("method", "sobol")]
    taken = ("seed", "ensemble_size", "on_failure", "sampler", "sample_seconds")
    chosen = {key: study[key] for key in taken if key in study}
    with told_in_one_line(options.source):
        return make(
            analysis.model, analysis.inputs, study["n"], executor=study.get("workers"), store=options.store,
            resume=options.resume, progress=not options.quiet, outputs=analysis.outputs, **chosen, **analysis.own,
        )  # fmt: skip


def as_json(found: Any) -> dict[str, Any]:
    """Counts, and for each output and kind of index values and intervals by input; null where there is none."""
    outputs: dict[str, Any] = {}
    for name in found.outputs:
        outputs[name] = {}
        for kind in found.kinds:
            value = getattr(found, kind if kind in ("first", "total") else "effects")[name]
            low, high = found.interval(name, kind)
            outputs[name][kind] = {
                one: {"value": plain(value[k]), "low": plain(low[k]), "high": plain(high[k])}
                for k, one in enumerate(found.inputs)
            }
    return {
        "inputs": list(found.inputs), "rows": found.n_rows, "used": found.n_used, "samples": found.n_samples,
        "failed": found.n_failed, "seed": found.seed, "level": found.level, "notes": list(found.notes),
        "outputs": outputs,
    }  # fmt: skip
