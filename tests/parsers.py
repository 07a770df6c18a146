"""The parsers of the commands, as these build them: caught where they would read the command line."""

import argparse
import importlib
import sys
from functools import cache
from unittest import mock

from benchmarks.__main__ import has_table_options, programs, table_parser
from ensemble.__main__ import main


class ParserFoundError(Exception):
    """Carries a parser out of the function that made it."""


def parser_made_by(function):
    """The parser on which `function` reads the command line, as ``parse_args`` does, too."""

    def catch(self, *_):
        raise ParserFoundError(self)

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", catch),
        mock.patch.object(sys, "argv", ["program"]),
    ):
        try:
            function()
        except ParserFoundError as found:
            return found.args[0]
    raise AssertionError(f"{function} parses no arguments")


def flags_of(parser):
    """The options that a parser takes, as they are written."""
    return {text for action in parser._actions for text in action.option_strings}


@cache
def parser_of_benchmark(name):
    """That of ``python -m benchmarks NAME``."""
    if has_table_options(name):
        return table_parser(name)
    module, function = programs()[name]
    return parser_made_by(getattr(importlib.import_module(f"benchmarks.{module}"), function))


@cache
def parsers_of_command():
    """By its words, ``ensemble`` or ``ensemble diffusion``, each parser of the installed command."""
    top = parser_made_by(main)
    (commands,) = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    return {"ensemble": top} | {f"ensemble {name}": parser for name, parser in commands.choices.items()}
