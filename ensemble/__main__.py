"""The `ensemble` command; ``python -m ensemble`` is the same."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

from ensemble._check import PACKAGE
from ensemble._command.parsers import add_diffusion, add_gbees, add_ode, add_study
from ensemble._command.parsers_of_analyses import add_analyses
from ensemble._command.shared.output import Output, flush_stdout
from ensemble._progress import say
from ensemble._version import __version__
from ensemble.scalar import DivergenceError

__all__ = ["main"]


class OneLineParser(argparse.ArgumentParser):
    """A parser whose error messages are one line each."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}. See {self.prog} --help.\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        flush_stdout()
        super().exit(status, message)


@contextlib.contextmanager
def one_line_warnings(program: str) -> Iterator[None]:
    """Show warnings in one line, those of the user's files with their place."""
    before = warnings.formatwarning

    def text_of(message: Any, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
        own = filename.startswith((PACKAGE, "<")) or filename.endswith(("_ensemble_command.py", sys.argv[0]))
        text = " ".join(str(message).split())
        return f"{program}: warning: {text}\n" if own else f"{filename}:{lineno}: {category.__name__}: {text}\n"

    warnings.formatwarning = text_of
    try:
        yield
    finally:
        warnings.formatwarning = before


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (by default the process's own) and return its exit status.

    0: done. 1: some samples did not converge. 2: bad input, before any solve, or results that could not be written.
    130: interrupted. A reader of stdout that goes away, as ``| head`` does, changes none of them.
    """
    parser = OneLineParser(prog="ensemble", description="Run many samples of a numerical model at once.")
    parser.add_argument("--version", action="version", version=f"ensemble {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=OneLineParser)
    add_diffusion(commands)
    add_gbees(commands)
    add_ode(commands)
    add_study(commands)
    add_analyses(commands)
    options, unknown = parser.parse_known_args(argv)
    if unknown:  # the help of the sub-command has its options
        known = commands.choices[options.prog.split()[1]]._option_string_actions
        close = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1)
        advice = f"Use {close[0]}" if close else f"See {options.prog} --help"
        text = f"unrecognized arguments: {' '.join(unknown)}. {advice}."
        parser.exit(2, f"{options.prog}: error: {text}\n")
    options.output = Output()
    try:
        with one_line_warnings(options.prog):
            return int(options.run(options))
    except KeyboardInterrupt:
        say(f"{options.prog}: {options.output.interrupted()}")
        return 130
    except (ValueError, TypeError, OSError, MemoryError, ImportError, DivergenceError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        say(f"{options.prog}: error: {text}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
