"""`Program`: a program outside Python as a model."""

from __future__ import annotations

import math
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._check import integer, kind_of, message, require, warn_caller
from ensemble._keywords import explains_construction
from ensemble.scalar.plain_arrays import masked_as_nan
from ensemble.uq.inputs.samples import UnknownInputError
from ensemble.uq.runs.folders import RunFolders
from ensemble.uq.runs.processes import last_lines, run_program
from ensemble.uq.runs.readers import FromFile, OutputMissingError, reader_of
from ensemble.uq.runs.template import SAMPLE, Template, Text
from ensemble.uq.study.sample_clock import late_text, running_clock
from ensemble.uq.study.vectorize import VectorizedModel

__all__ = ["Program", "RunFailedError"]

MARGIN = 10.0
"""Seconds beyond the time limit of a sample in which its program is ended here, before anything else ends it."""

DELIMITERS = ("{{", "}}")

UNTOUCHED = (10**9, 10**9)
"""Times of access and change, ns since 1970, of a file of the template that is an output as well."""


class RunFailedError(RuntimeError):
    """A run of a program ended with an error, or without the outputs that are read."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args


@explains_construction("Program")
class Program(VectorizedModel):
    """A model that runs a program for each sample, in a folder of its own.

    The folder is a copy of a template, whose text files have the values of the sample in place of ``{{name}}``. Outputs
    are read from the files that the program writes. An exit code other than 0, an output that is not there, and one
    that the program left as it is in the template, are failures of the sample, with the last lines of what it printed.

    Parameters
    ----------
    command : str or sequence of str
        The program and its arguments, with placeholders, too. A str is split as a shell splits it, and no shell runs
        it: ``["sh", "-c", "a | b"]`` runs one. A program with a slash in its name is in the template, or else relative
        to the present folder.
    outputs : dict of str to str, FromFile or callable
        By the name of an output: a file that holds numbers alone, a `FromFile`, or a function of the run folder (a
        `pathlib.Path`) that returns numbers.
    template : path, optional
        A folder, or one file. ``{{E}}`` stands for the input ``E`` with all its digits, ``{{E:.6e}}`` has a format of
        Python, ``{{bolts:d}}`` is a count without a point, ``{{wind[0]}}`` an entry of a vector, ``{{wind}}`` all of
        them between blanks, ``{{sample}}`` the number of the sample. Files that are no UTF-8 are copied.
    folder : path
        Where run folders are made; it may be one of a local disk.
    keep : {"failed", "all", "packed", "none"}
        Which run folders stay: those of failed samples; all; all as files ``.tar.gz``; none.
    prepare : callable, optional
        ``prepare(sample, folder)`` writes further files, as of a field, before the program starts.
    links : sequence of str
        Names or patterns of files of the template that are linked and not copied: large ones that are only read.
    delimiters : two str
        What stands before and after a placeholder.
    environment : dict of str to str, optional
        Variables of the environment, added to those of this process.
    success_codes : sequence of int
        Exit codes that are no failures.
    log_lines : int
        Lines of the log in the reason of a failure.

    Raises
    ------
    ValueError, TypeError
        If an argument is of the wrong kind, or there is no template.
    AttributeError
        When a study begins: if a placeholder is no input, or what follows the name of an input cannot be read.

    Examples
    --------
    >>> import sys, tempfile
    >>> from scipy import stats
    >>> import ensemble as en
    >>> code = "print(float('{{load}}') / float('{{stiffness}}'))"
    >>> beam = Program([sys.executable, "-c", code], {"tip": "stdout.txt"}, folder=tempfile.mkdtemp(), keep="none")
    >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
    >>> result = en.propagate(beam, inputs, 8, seed=7, progress=False)
    >>> result.n_failed, round(float(result.mean("tip")), 1)
    (0, 0.4)
    """

    def __init__(
        self,
        command: str | Sequence[str],
        outputs: Mapping[str, Any],
        *,
        template: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] = "runs",
        keep: str = "failed",
        prepare: Callable[[Any, Path], Any] | None = None,
        links: Sequence[str] = (),
        delimiters: Sequence[str] = DELIMITERS,
        environment: Mapping[str, str] | None = None,
        success_codes: Sequence[int] = (0,),
        log_lines: int = 10,
    ) -> None:
        wanted = "be two different texts, one before and one after a placeholder"
        good = len(delimiters) == 2 and all(delimiters)
        require(good, "Program", "delimiters", wanted, repr(delimiters))
        self.folders = RunFolders(folder, keep)
        self.template = Template(template, delimiters, links)
        parts = shlex.split(command) if isinstance(command, str) else [os.fspath(part) for part in command]
        require(bool(parts), "Program", "command", "name a program", repr(command))
        self.delimiters = tuple(delimiters)
        self.command = [Text(part, delimiters, "the command") for part in self._placed(parts)]
        if not isinstance(outputs, Mapping) or not outputs:
            seen = "an empty dict" if isinstance(outputs, Mapping) else kind_of(outputs)
            raise TypeError(message("Program", "outputs", "be a dict with a reader for each output", seen))
        self.readers = {name: reader_of(name, given) for name, given in outputs.items()}
        self._in_template = self._outputs_in_template()
        self.prepare, self.success_codes = prepare, tuple(success_codes)
        self.environment = None if environment is None else dict(environment)
        self.log_lines = integer(log_lines, "Program", "log_lines", minimum=0)
        self._checked: set[tuple[str, ...]] = set()
        self.command_text = shortened(command if isinstance(command, str) else shlex.join(parts))
        self.__name__ = Path(parts[0]).name
        self.model, self.keywords = self.run, False

    def _placed(self, parts: list[str]) -> list[str]:
        """The command with the absolute path of a program that is no file of the template."""
        first = parts[0]
        in_template = {file.path for file in self.template.files} | {name for name, _ in self.template.links}
        if os.sep in first and not os.path.isabs(first) and os.path.normpath(first) not in in_template:
            first = os.path.abspath(first)
        return [first, *parts[1:]]

    def _outputs_in_template(self) -> tuple[str, ...]:
        """The files of outputs that the template has, too: of an earlier run by hand, or changed by the program."""
        read = {os.path.normpath(one.file) for one in self.readers.values() if isinstance(one, FromFile)}
        linked = [name for name, _ in self.template.links for one in read if f"{one}/".startswith(f"{name}/")]
        advice = "All runs would write to the file of the template."
        require(not linked, "Program", "links", "name no output", ", ".join(linked), advice)
        return tuple(sorted(read & {file.path for file in self.template.files}))

    @property
    def names(self) -> set[str]:
        """The names that template and command have placeholders for."""
        return self.template.names.union(*(part.names for part in self.command))

    def description(self) -> dict[str, Any]:
        """What decides what it computes: command, contents of the template, readers."""
        return {
            "command": [part.parts for part in self.command],
            "template": self.template.description(),
            "readers": self.readers,
            "prepare": self.prepare,
            "environment": self.environment,
            "success_codes": self.success_codes,
        }

    def check_inputs(self, names: Sequence[str]) -> None:
        """Raise where a placeholder is no input; warn of inputs that have no placeholder."""
        unknown = sorted(self.names - {*names, SAMPLE})
        if unknown:
            wanted = f"be among the inputs, {', '.join(names)}"
            raise UnknownInputError(message("Program", "placeholders", wanted, ", ".join(unknown)))
        self._check_unread({*names, SAMPLE})
        unused = sorted(set(names) - self.names)
        if unused and self.prepare is None:
            text = f"no placeholder of the template or the command takes {', '.join(unused)}"
            warn_caller(f"Program: {text}: the outputs do not depend on that.")

    def _check_unread(self, names: set[str]) -> None:
        """Raise where a text has the name of an input after a delimiter, and no placeholder: it would stay as it is."""
        texts = [*self.template.unread, *((*one, part.where) for part in self.command for one in part.unread)]
        for name, text, where in texts:
            if name in names:
                before, after = self.delimiters
                wanted = "begin " + " or ".join(before + form + after for form in (name, f"{name}[0]", f"{name}:.6e"))
                advice = "Other delimiters leave the text as it is."
                raise UnknownInputError(message("Program", f"{text!r} in {where}", wanted, repr(text), advice))

    def __call__(self, x: Any, /, *others: object) -> dict[str, Any]:
        if not others and hasattr(x, "names") and self.names - {*x.names, SAMPLE}:
            self.check_inputs(x.names)
        return super().__call__(x, *others)

    def run(self, sample: Any) -> dict[str, Any]:
        """The outputs of one sample."""
        number = int(vars(sample)["_id"])
        place, failed = self.folders.new(number), True
        try:
            self.template.write(place, sample, number)
            for name in self._in_template:
                os.utime(place / name, ns=UNTOUCHED)
            if self.prepare is not None:
                self.prepare(sample, place)
            self._carry_out(place, sample, number)
            self._require_written(place)
            found = {name: self._read(reader, place) for name, reader in self.readers.items()}
            failed = not all(map(is_finite, found.values()))
        except Exception as error:
            try:
                self.folders.finish(place, number, failed=True)
            except OSError as other:  # as of a full disk; the reason is still that of the run
                seen = error if isinstance(error, RunFailedError) else f"{type(error).__name__}: {error}"
                raise RunFailedError(f"{seen}; its folder was not kept ({other})") from error
            raise
        except BaseException:
            self.folders.drop(place)
            raise
        self.folders.finish(place, number, failed=failed)
        return found

    def _carry_out(self, place: Path, sample: Any, number: int) -> None:
        """Run the program, to the end of the sample's time."""
        command = [part.filled(sample, number) for part in self.command]
        environment = None if self.environment is None else {**os.environ, **self.environment}
        clock, seconds = running_clock.get(), math.inf
        if clock is not None:
            seconds = clock.seconds
            clock.extend(MARGIN)
        try:
            code = run_program(command, place, environment, seconds)
        except FileNotFoundError:
            raise RunFailedError(f"there is no program {command[0]!r}") from None
        except PermissionError:
            raise RunFailedError(f"{command[0]!r} is no program that can be run") from None
        if code is None:
            text = late_text(seconds, "; its program was ended")
        elif code in self.success_codes:
            return
        else:
            text = f"exit code {code}" if code >= 0 else f"ended by {name_of_signal(-code)}"
        raise RunFailedError(f"{text}; {last_lines(place, self.log_lines)}")

    def _require_written(self, place: Path) -> None:
        """Raise where an output is a file of the template that the program has left as it was."""
        for name in self._in_template:
            path = place / name
            if path.exists() and path.stat().st_mtime_ns == UNTOUCHED[1]:
                text = f"{name} is that of the template: the program has not written it"
                raise RunFailedError(f"{text}; {last_lines(place, self.log_lines)}")

    def _read(self, reader: Callable[[Path], Any], place: Path) -> Any:
        try:
            return reader(place)
        except OutputMissingError as error:
            raise RunFailedError(f"{error}; {last_lines(place, self.log_lines)}") from error

    def __repr__(self) -> str:
        return f"Program({self.__name__!r}; outputs {', '.join(self.readers)})"

    def __reduce__(self) -> tuple[object, ...]:
        return rebuilt, (type(self), {key: value for key, value in vars(self).items() if key != "model"})


def rebuilt(kind: type[Program], state: dict[str, Any]) -> Program:
    """A program as it was, in another process."""
    program = object.__new__(kind)
    vars(program).update(state)
    program.model = program.run
    return program


def is_finite(value: Any) -> bool:
    """Whether an output has numbers alone; what are none is said where samples are put together."""
    array = np.asarray(masked_as_nan(value))
    return array.dtype.kind in "biufc" and bool(np.isfinite(array).all())


def shortened(text: str) -> str:
    """At most 80 characters of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:77]}..."


def name_of_signal(number: int) -> str:
    """Return the name of a signal, ``SIGSEGV`` for 11, or ``signal 99`` where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
