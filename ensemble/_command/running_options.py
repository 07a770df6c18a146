"""Options of how a study runs: reruns, time limits, programs, parts. Nothing is imported here that takes long."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["LIMITS", "add_failed", "add_limits", "add_part", "add_program", "retry_failed"]

KEEP = ("failed", "all", "packed", "none")

LIMITS = ("sample_seconds", "max_seconds")
"""Time limits, as options and as keys of the table ``[study]``."""


def add_failed(add: Callable[..., Any]) -> None:
    """The options that run failed samples again."""
    add(
        "--failed", action="store_true", help="run the samples again that have failed; reasons of all attempts are kept"
    )
    help_text = "with --failed: leave those as they are that have failed in K attempts (default: no limit)"
    add("--attempts", type=attempts, metavar="K", help=help_text)


def attempts(text: str) -> int:
    """A number of attempts, at least two."""
    if not (text.isascii() and text.isdigit() and int(text) >= 2):
        raise argparse.ArgumentTypeError(f"must be a number of attempts, at least 2; got {text!r}")
    return int(text)


def retry_failed(options: argparse.Namespace) -> bool | int:
    """Return the option as the argument `retry_failed` of `propagate`."""
    if options.attempts is not None and not options.failed:
        raise ValueError(f"--attempts must stand with --failed; got --attempts {options.attempts} alone.")
    return options.failed and (options.attempts or True)


def add_limits(add: Callable[..., Any], *, whole: bool = True) -> None:
    """The options of time limits: of a sample, and of the `whole` study."""
    help_text = "end a sample after this time and mark it as failed (default: no limit)"
    add("--sample-seconds", type=seconds, metavar="T", help=help_text)
    if whole:
        add("--max-seconds", type=seconds, metavar="T", help="begin no further samples after this time")


ARRAY = ("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "PBS_ARRAYID", "LSB_JOBINDEX", "SGE_TASK_ID")
"""Variables in which schedulers give a job of an array its number."""

NO_ARRAY = {"LSB_JOBINDEX": "0", "SGE_TASK_ID": "undefined"}
"""What some of them have in a job that is not of an array."""


def add_part(add: Callable[..., Any]) -> None:
    """The option of a part of a study."""
    help_text = (
        "run part K of N of the study, while other jobs run the other parts and write to the same store; "
        "array/N takes K from the job array of Slurm, PBS or LSF"
    )
    add("--part", type=part, metavar="K/N", help=help_text)


def part(text: str) -> tuple[int, int]:
    """``K/N``, or ``array/N``."""
    first, _, last = text.partition("/")
    if first == "array":
        first = next((os.environ[k] for k in ARRAY if os.environ.get(k, "") not in ("", NO_ARRAY.get(k))), "")
        if not first:
            raise argparse.ArgumentTypeError(f"must be in a job array, with one of {', '.join(ARRAY)}; got {text!r}")
    good = first.isascii() and first.isdigit() and last.isascii() and last.isdigit() and 1 <= int(first) <= int(last)
    if not good:
        seen = f"{text!r}" if text.startswith(first) else f"{text!r} with number {first}"
        raise argparse.ArgumentTypeError(f"must be K/N with K from 1 to N, as in 3/16; got {seen}")
    return int(first), int(last)


def add_program(add: Callable[..., Any]) -> None:
    """The options of a program outside Python."""
    help_text = "run this program for each sample, instead of FILE.py:FUNCTION; {{NAME}} stands for an input"
    add("--command", metavar="COMMAND", help=help_text)
    add("--template", type=Path, metavar="FOLDER", help="files of each run, with {{NAME}} in texts for an input")
    help_text = "an output: FILE of numbers, FILE.csv:COLUMN, FILE.json:KEY, FILE.nc:VARIABLE, FILE:PATTERN"
    add("--read", type=named_file, action="append", default=[], metavar="NAME=FILE", help=help_text)
    add("--runs", type=Path, metavar="FOLDER", help="where run folders are made (default: runs)")
    add("--keep", choices=KEEP, help="which run folders stay (default: failed)")


def named_file(text: str) -> str:
    """``NAME=FILE``."""
    name, sign, file = text.partition("=")
    if not name or not sign or not file:
        raise argparse.ArgumentTypeError(f"must be NAME=FILE, as in tip=tip.txt or tip=out.csv:tip; got {text!r}")
    return text


def seconds(text: str) -> float:
    """A time above zero."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above zero; got {text!r}")
    return found
