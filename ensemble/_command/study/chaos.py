"""``ensemble chaos``: a polynomial chaos expansion of a model's outputs, or of those of a store."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ensemble import uq
from ensemble._command.shared import toml_values as kinds
from ensemble._command.study.analyses import (
    inputs_named,
    is_store,
    options_of,
    read_analysis,
    require_no_options,
)
from ensemble._command.study.origin import Origin
from ensemble._command.study.report import plain
from ensemble._command.study.user_errors import told_in_one_line
from ensemble.uq.study.stored_study import open_with_inputs

__all__ = ["run"]


def degree(value: Any) -> int:
    """a whole number from 0"""
    if kinds.whole(value) < 0:
        raise ValueError
    return int(value)


def basis(value: Any) -> str:
    """one of "marginal" and "hermite\""""
    if value not in ("marginal", "hermite"):
        raise ValueError
    return str(value)


KINDS: Mapping[str, Callable[[Any], Any]] = {"degree": degree, "norm": kinds.positive, "basis": basis}

OF_A_RUN = {
    "samples": "-n", "seed": "--seed", "ensemble_size": "--ensemble-size", "store": "--store",
    "workers": "--workers", "on_failure": "--on-failure", "sample_seconds": "--sample-seconds",
    "max_seconds": "--max-seconds",
}  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble chaos``: 1 where samples failed or are pending."""
    if is_store(options.source):
        require_no_options(options, OF_A_RUN, "with a store")
        result, inputs = open_with_inputs(options.source, inputs_named(options), "chaos")
        if not result.ids.size:
            raise ValueError(f"{options.source} must have a sample that did not fail; got {result.n_failed} failed.")
        own = options_of(options, KINDS)
    else:
        result, inputs, own = ran(options)
    found = uq.chaos(inputs, result, **{"degree": 3, **own})
    options.output.print(json.dumps(as_json(found, result), allow_nan=False) if options.json else repr(found))
    return 1 if result.n_failed or result.n_done < result.n else 0


def ran(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """The study of a model, its inputs, and the options of the expansion."""
    analysis = read_analysis(options, "chaos", KINDS)
    study = {"n": 256, "seed": 1, **analysis.study}
    workers = study.pop("workers", None)
    if options.store is not None:
        if uq.Store.exists(options.store):
            seen = f"a study at {options.store}"
            raise ValueError(f"--store must be a new folder; got {seen}. Its expansion: ensemble chaos {options.store}")
        Origin.of(options.source, options.config).write(options.store)
    with told_in_one_line(options.source):
        result = uq.propagate(
            analysis.model, analysis.inputs, study.pop("n"), store=options.store, progress=not options.quiet,
            executor=workers, outputs=analysis.outputs, **study,
        )  # fmt: skip
    return result, analysis.inputs, analysis.own


def as_json(found: uq.ChaosExpansion, result: uq.UqResult) -> dict[str, Any]:
    """Counts, and for each output its moments, leave-one-out error, and indices by input; null where there is none."""
    try:
        first, total = found.first, found.total
    except ValueError:  # inputs that depend on each other
        first = total = {}
    outputs = {}
    for name in found.outputs:
        one = {
            "mean": plain(found.mean(name)), "std": plain(found.std(name)),
            "leave_one_out_error": plain(np.asarray(found.loo_error[name])),
        }  # fmt: skip
        for kind, index in (("first", first), ("total", total)):
            if name in index:
                one[kind] = {input_name: plain(index[name][k]) for k, input_name in enumerate(found.inputs)}
        outputs[name] = one
    return {
        "inputs": list(found.inputs), "terms": found.n_terms, "degree": int(found.indices.sum(axis=1).max()),
        "samples": found.n_samples, "failed": result.n_failed, "seed": result.seed, "method": found.method,
        "condition_number": plain(found.condition_number), "notes": list(found.notes), "outputs": outputs,
    }  # fmt: skip
