"""``ensemble resume``: continue the study of a store, or extend it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ensemble import uq
from ensemble._check import message
from ensemble._command.running_options import LIMITS, retry_failed
from ensemble._command.shared.ranks import require_one_process
from ensemble._command.study.configuration import model_and_study
from ensemble._command.study.declared import outputs_of_study
from ensemble._command.study.origin import Origin, maker_of
from ensemble._command.study.program import program_options
from ensemble._command.study.run import ADVICE, carry_out
from ensemble._progress import say

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble resume``."""
    require_one_process(ADVICE)
    stored = uq.Store.stored_manifest(options.store)
    origin = Origin.read(options.store)
    if origin is None:
        maker = maker_of(options.store, stored)
        rows = maker in ("sobol_indices", "shapley_effects")
        seen = f"{options.store}, which {'ensemble sensitivity or ' if rows else ''}a program made"
        advice = "ensemble sensitivity --resume goes on with it." if rows else f"Call {maker}(..., resume=True)."
        raise ValueError(f"resume: the store must be one of ensemble run; got {seen}. {advice}")
    require_named(options, origin)
    config = options.config or (None if origin.config is None else Path(origin.config))
    said = (options.coordinates or origin.coordinates, options.units or origin.units)
    program = program_options(options) or origin.program
    reference = options.model or ("" if options.command else origin.model)
    origin = Origin.of(reference, config, options.target or origin.target, *said, None if reference else program)
    options.model = origin.model  # whose file an error of the study names
    place = None if origin.config is None else Path(origin.config)
    model, study, inputs = model_and_study(origin.model, place, origin.program)
    outputs = outputs_of_study(study, options.model, said)
    execution = ("ensemble_size", "group_by", "on_failure", "workers", *LIMITS)
    kept = {name: study[name] for name in execution if name in study}
    given = {name: getattr(options, name) for name in execution}
    chosen = kept | {name: value for name, value in given.items() if value is not None}
    chosen |= {
        "n": options.samples or stored["n"],
        "seed": stored["seed"],
        "sampler": sampler_of(stored),
        "outputs": outputs,
        "retry_failed": retry_failed(options),
    }
    if options.samples is not None and options.samples < stored["n"]:
        seen = f"{options.samples}, and the study has {stored['n']}: no sample is left out, and none is added"
        say(f"{options.prog}: -n must be above the samples of the study to extend it; got {seen}.")
    if origin.target is not None and options.samples is None:
        chosen |= {"n": "auto", "target": dict([origin.target])}
    status = carry_out(model, inputs, chosen, options, resume="force" if options.force else True)
    origin.write(options.store)
    return status


def require_named(options: argparse.Namespace, origin: Origin) -> None:
    """Raise before code runs that the user has not named, unless it is that of the user's own run, and as it was."""
    named = options.model is not None or options.command is not None
    missing = {} if named or not origin.model else {"--model": origin.model}
    if not named and origin.program is not None:
        missing["--command"] = str(origin.program.get("command"))
    if origin.config is not None and options.config is None:
        missing["-c"] = origin.config
    if not missing:
        return
    asked = " ".join(f"{option} {file}" for option, file in missing.items())
    if not origin.is_own(options.store):
        seen = f"{options.store}, which another user, another machine or an earlier version wrote and names {asked}"
        advice = f"Nothing of it has run. Read these files, and run them by naming them: {asked}"
        raise ValueError(message("resume", "the store", "be one of your own runs to name code", seen, advice))
    changed = [] if options.force else origin.changed(options.store)
    if changed:
        seen = f"{', '.join(changed)}: the source has changed, or is not there"
        advice = (
            f"Nothing of it has run. Name the files to compare the model by what it computes ({asked}), or --force."
        )
        raise ValueError(message("resume", "the files", "be as they were when the study began", seen, advice))


def sampler_of(manifest: dict[str, Any]) -> str:
    """The name of the sampler: the command runs samplers by name."""
    return str(manifest["sampler"]["name"])
