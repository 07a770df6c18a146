"""The options of ``sensitivity``, ``chaos`` and ``rare``. Nothing is imported here that takes long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ensemble._command.parsers import ON_FAILURE, add_output, at_least, command, size
from ensemble._command.running_options import add_limits

__all__ = ["add_analyses"]

SOURCE = "FILE.py:FUNCTION|STORE"


def add_analyses(commands: Any) -> None:
    """Add ``sensitivity``, ``chaos`` and ``rare``."""
    add_sensitivity(commands)
    add_chaos(commands)
    add_rare(commands)


def started(commands: Any, name: str, text: str, more: str) -> Any:
    """A parser with what the three commands share."""
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}")
    add = parser.add_argument
    help_text = "a model, which is run, by default the table [program] of -c; or a store, whose samples are read"
    add("source", nargs="?", metavar=SOURCE, help=help_text)
    add("-c", "--config", type=Path, metavar="FILE.toml", help=f"the inputs, and options under [study] and [{name}]")
    add("--seed", type=at_least(0, None), metavar="K", help="seed of the sampler (default: 1)")
    add("--ensemble-size", type=size, metavar="S", help="samples in one call of the model")
    parser.set_defaults(run=command(f"study.{name}"), prog=parser.prog)
    return parser


def add_running(add: Callable[..., Any], *, whole: bool) -> None:
    """The options of studies that are run group by group; with a time limit of the `whole` study where it takes one."""
    help_text = "what to do when the model raises an error (default: mask, but end at once if it always does)"
    add("--on-failure", choices=ON_FAILURE, help=help_text)
    add("--workers", type=at_least(1), metavar="N", help="processes (default: this one alone)")
    add("--store", type=Path, metavar="STORE", help="keep all results in this folder, a Zarr group")
    add_limits(add, whole=whole)


def add_sensitivity(commands: Any) -> None:
    """Add ``sensitivity``."""
    parser = started(
        commands, "sensitivity", "Sobol' indices or Shapley effects of a model's inputs",
        "A model is run on N rows of D + 2 samples (D + 1 for Shapley effects), D the inputs that are not constant.",
    )  # fmt: skip
    add = parser.add_argument
    add("-n", "--samples", type=at_least(2), metavar="N", help="rows (default: 1024)")
    add("--method", choices=("sobol", "shapley"), help="shapley: for correlated inputs, too (default: sobol)")
    add("--level", type=float, metavar="P", help="probability of the intervals (default: 0.95)")
    add_running(add, whole=False)
    add("--resume", action="store_true", help="go on with the study of --store, also with more rows")
    add_output(add)


def add_chaos(commands: Any) -> None:
    """Add ``chaos``."""
    parser = started(
        commands, "chaos", "a polynomial chaos expansion: moments and Sobol' indices from few samples",
        "A store is one of ensemble run; its inputs are read from it, or from the file of -c.",
    )  # fmt: skip
    add = parser.add_argument
    add("-n", "--samples", type=at_least(1), metavar="N", help="samples (default: 256)")
    add("--degree", type=at_least(0, 100), metavar="D", help="total degree of the polynomials (default: 3)")
    add("--norm", type=float, metavar="Q", help="below 1 fewer interactions of high degree (default: 1)")
    add("--basis", choices=("marginal", "hermite"), help="polynomials of the inputs or of their normal germs")
    add_running(add, whole=True)
    add_output(add)


def add_rare(commands: Any) -> None:
    """Add ``rare``."""
    parser = started(
        commands, "rare", "a small probability by subset simulation",
        "The event is a value of at most, or at least, the threshold. Of a store it is the share of its samples.",
    )  # fmt: skip
    add = parser.add_argument
    add("-n", "--samples", type=at_least(10), metavar="N", help="samples of each level (default: 2000)")
    add("--threshold", type=float, metavar="X", help="threshold of the event (default: 0)")
    add("--event", choices=("below", "above"), help="value at most, or at least, the threshold (default: below)")
    add("--output", dest="output_name", metavar="NAME", help="which output, where there are several")
    add("--fraction", type=float, metavar="P", help="share of a level that the next one starts from (default: 0.1)")
    add("--rtol", type=float, metavar="X", help="coefficient of variation to reach, by further runs")
    add("--max-runs", type=at_least(1), metavar="N", help="independent runs, at most (default: 20)")
    add("--max-levels", type=at_least(1), metavar="N", help="levels of a run, at most (default: 20)")
    add("--level", type=float, metavar="P", help="probability of the interval (default: 0.95)")
    add("--workers", type=at_least(1), metavar="N", help="processes (default: this one alone)")
    add("--store", type=Path, metavar="STORE", help="keep all evaluations in this folder")
    add("--resume", action="store_true", help="go on with the run of --store")
    add_limits(add)
    add_output(add)
