"""``ensemble run`` and ``ensemble resume``: a model of the user's on samples of its uncertain inputs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ensemble import uq
from ensemble._command.running_options import LIMITS, retry_failed
from ensemble._command.shared.ranks import require_one_process
from ensemble._command.study.configuration import model_and_study
from ensemble._command.study.declared import outputs_of_study
from ensemble._command.study.origin import Origin
from ensemble._command.study.program import program_options
from ensemble._command.study.report import as_json
from ensemble._command.study.user_errors import told_in_one_line
from ensemble._progress import say

__all__ = ["ADVICE", "carry_out", "run"]

ADVICE = (
    "Start it without the launcher, with --workers for several processes. On several machines a program of your own "
    "calls ensemble.propagate(..., executor=distributed.groups(comm, 1))."
)
"""What to do where a launcher of MPI has started copies of a study."""

DEFAULTS = {"n": 1024, "sampler": "sobol", "seed": 1, "ensemble_size": "auto"}


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble run``."""
    require_one_process(ADVICE)
    program = program_options(options)
    model, study, inputs = model_and_study(options.model, options.config, program)
    options.model = options.model or ""
    said = {
        "n": options.samples, "sampler": options.sampler, "seed": options.seed,
        "ensemble_size": options.ensemble_size, "group_by": options.group_by, "on_failure": options.on_failure,
        "workers": options.workers, **{name: getattr(options, name) for name in LIMITS},
    }  # fmt: skip
    if options.target is not None:
        if options.samples is not None:
            raise ValueError(f"--target must stand without -n; got -n {options.samples}.")
        said["n"], study["target"] = "auto", dict([options.target])
    study["outputs"] = outputs_of_study(study, options.model, (options.coordinates, options.units))
    chosen = DEFAULTS | study | {name: value for name, value in said.items() if value is not None}
    require_store(options)
    if options.store is not None:
        if options.part is None and uq.Store.exists(options.store):
            seen = f"a study at {options.store}"
            raise ValueError(f"--store must be a new folder; got {seen}. Go on with: ensemble resume {options.store}")
        said_of_outputs = (options.coordinates, options.units)
        Origin.of(options.model, options.config, options.target, *said_of_outputs, program).write(
            options.store, once=options.part is not None
        )
    chosen |= {"part": options.part, "retry_failed": retry_failed(options)}
    return carry_out(model, inputs, chosen, options, resume=False)


def require_store(options: argparse.Namespace) -> None:
    """Raise where options of a part stand without those that they need."""
    retry_failed(options)
    if options.part is not None and options.store is None:
        raise ValueError("--part must stand with --store, into which all parts write; got no store.")
    if options.part is not None and options.target is not None:
        raise ValueError("--part must stand with -n, and without --target; got --target.")
    if options.failed and options.part is None:
        raise ValueError("--failed must stand with --part; got none. Use: ensemble resume --failed STORE.")


def carry_out(model: Any, inputs: Any, chosen: dict[str, Any], options: argparse.Namespace, *, resume: Any) -> int:
    """Run the study, print its statistics, and return the exit status."""
    executor = chosen.pop("workers", None)
    try:
        with told_in_one_line(options.model):
            result = uq.propagate(
                model, inputs, chosen.pop("n", None), store=options.store, resume=resume, progress=not options.quiet,
                executor=executor, **chosen,
            )  # fmt: skip
    except KeyboardInterrupt as interruption:
        found = getattr(interruption, "result", None)
        if getattr(options, "part", None) is not None:
            part = "/".join(map(str, options.part))
            say(f"{options.prog}: interrupted: other jobs, or this command again, run what is left of part {part}")
            return 130
        if options.store is not None and found is not None:
            text = f"{found.n_done} of {found.n} samples are in {options.store}"
            say(f"{options.prog}: interrupted: {text}; go on with: ensemble resume {options.store}")
            return 130
        if found is not None and found.n_done:
            print_result(found, options)
            say(f"{options.prog}: interrupted: the statistics are those of {found.n_done} of {found.n} samples")
            return 130
        raise
    print_result(result, options)
    return 1 if result.n_failed or result.target_met is False else 0


def print_result(result: Any, options: argparse.Namespace) -> None:
    """The statistics as a table, or one JSON object."""
    options.output.print(json.dumps(as_json(result), allow_nan=False) if options.json else repr(result))
