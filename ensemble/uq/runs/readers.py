"""`FromFile`: an output of a program from a file that it has written."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._check import message, require
from ensemble._keywords import explains_construction
from ensemble._optional import optional

__all__ = ["FromFile", "OutputMissingError", "reader_of"]


class OutputMissingError(RuntimeError):
    """A program has not written what is read."""


@explains_construction("FromFile")
@dataclass(frozen=True)
class FromFile:
    """An output of a program: numbers of a file in its run folder.

    Parameters
    ----------
    file : str
        Name of the file; ``stdout.txt`` and ``stderr.txt`` are what the program printed.
    column : str or int, optional
        A column of a CSV file, by the name in its first line or by its number from 0; with a number, a first line
        without numbers is one of names.
    row : int, optional
        A row of that column, from 0, or from -1 at the end. Default: all of them, a vector.
    delimiter : str
        Between columns. No line may have more columns than the first one, blank ones at its end left out.
    key : str, optional
        A value of a JSON file, as in ``"fit.peaks[0].height"``, or ``'["a.b"]'`` for a name with a dot; ``""`` is the
        whole of it.
    variable : str, optional
        A variable of a NetCDF file.
    pattern : str, optional
        A regular expression with one group, which is a number; the last match counts. Without any of these the file
        holds numbers alone, between blanks or commas: one is a number, several in a line or in a column are a vector.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "out.csv").write_text("t,u\\n0.0,1.5\\n1.0,2.5\\n")
    >>> FromFile("out.csv", column="u")(folder), float(FromFile("out.csv", column="u", row=-1)(folder))
    (array([1.5, 2.5]), 2.5)
    """

    file: str
    column: str | int | None = None
    row: int | None = None
    delimiter: str = ","
    key: str | None = None
    variable: str | None = None
    pattern: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("column", "key", "variable", "pattern") if getattr(self, name) is not None]
        seen = ", ".join(given)
        require(len(given) < 2, "FromFile", "arguments", "name one of column, key, variable and pattern", seen)
        require(self.row is None or self.column is not None, "FromFile", "row", "go with a column", self.row)
        wanted = 'be a path as fit.peaks[0].height; ["a.b"] is a name with a dot'
        good = self.key is None or re.fullmatch(rf"(?:(?:{STEP})\.?)*", self.key)
        require(bool(good), "FromFile", "key", wanted, repr(self.key))
        if self.pattern is not None:
            groups = re.compile(self.pattern).groups
            require(groups == 1, "FromFile", "pattern", "have one group", f"{groups} in {self.pattern!r}")

    def description(self) -> dict[str, Any]:
        """Describe what is read, for the digest of a model."""
        return dict(vars(self))

    def __call__(self, folder: Path) -> Any:
        """The output of the run in `folder`.

        Raises
        ------
        OutputMissingError
            If the file is not there, or has no such numbers.
        """
        path = folder / self.file
        try:
            found = self._read(path)
            if not np.size(found):
                raise ValueError("there are none")
            return found
        except (FileNotFoundError, IsADirectoryError):
            raise OutputMissingError(f"there is no file {self.file!r}") from None
        except (ValueError, KeyError, IndexError, TypeError, OSError, StopIteration, csv.Error) as error:
            raise OutputMissingError(f"{self.file} has no {self._what()} ({type(error).__name__}: {error})") from error

    def _what(self) -> str:
        """What is read, for a message."""
        for name in ("column", "key", "variable", "pattern"):
            if getattr(self, name) is not None:
                row = f", row {self.row}" if self.row is not None else ""
                return f"number at {name} {getattr(self, name)!r}{row}"
        return "numbers alone"

    def _read(self, path: Path) -> Any:
        if self.column is not None:
            return self._from_csv(path)
        if self.key is not None:
            return np.asarray(at_key(json.loads(text_of(path)), self.key), np.float64)[()]
        if self.variable is not None:
            return from_netcdf(path, self.variable)
        if self.pattern is not None:
            found = re.findall(self.pattern, text_of(path), re.MULTILINE)
            return number(found[-1])
        return numbers_of(text_of(path))

    def _from_csv(self, path: Path) -> Any:
        lines = csv.reader(
            io.StringIO(text_of(path, newline=""), newline=""), delimiter=self.delimiter, skipinitialspace=True
        )
        rows = [row for row in lines if row and not row[0].startswith("#")]
        width = len(rows[0])
        if any(any(row[width:]) for row in rows):
            raise ValueError(f"a line has more columns than the first one, {width}, between {self.delimiter!r}")
        if isinstance(self.column, str):
            names = [name.strip() for name in rows[0]]
            if names.count(self.column) > 1:
                raise ValueError(f"{names.count(self.column)} columns have that name")
            place, rows = names.index(self.column), rows[1:]
        else:
            assert self.column is not None
            place = self.column
            rows = rows if any(map(is_number, rows[0])) else rows[1:]
        if self.row is not None:
            return number(rows[self.row][place])
        return np.array([number(row[place]) for row in rows])


FORTRAN = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+))[dD]([+-]?\d+)\s*|\s*([+-]?\d*\.\d+)([+-]\d{3})\s*")
"""1.5D+03, and 1.5+103, which Fortran writes where three digits of an exponent leave no place for the letter."""


def text_of(path: Path, newline: str | None = None) -> str:
    """The text of a file in UTF-8, or in UTF-16 with its mark; bytes of another code, as in a log, are replaced."""
    with path.open("rb") as stream:
        mark = stream.read(2)
    kind = "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with path.open(encoding=kind, errors="replace", newline=newline) as text:
        return text.read()


def number(text: str) -> float:
    """A number in decimals, as programs write it; Python takes 1_5 for 15."""
    if "_" in text:
        raise ValueError(f"could not convert string to float: {text!r}")
    try:
        return float(text)
    except ValueError:
        found = FORTRAN.fullmatch(text)
        if found is None:
            raise
        return float(f"{found[1] or found[3]}e{found[2] or found[4]}")


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        number(text)
    except ValueError:
        return False
    return True


STEP = r"""([^.\[\]"]+)|\[(-?\d+)\]|\["([^"]*)"\]"""
"""One step of a path: a name, a place, or a name in quotes, which may have dots."""


def at_key(value: Any, key: str) -> Any:
    """The value at a path of names and places."""
    for name, place, quoted in re.findall(STEP, key):
        value = value[int(place)] if place else value[name or quoted]
    return value


def numbers_of(text: str) -> Any:
    """The numbers of a text: one, a vector of those of a line or a column, or a matrix."""
    lines = [line.partition("#")[0].replace(",", " ").split() for line in text.splitlines()]
    rows = [[number(part) for part in line] for line in lines if line]
    array = np.array(rows)  # rows of several lengths are an error
    if not array.size:
        raise ValueError("the file is empty")
    if array.size == 1:
        return float(array[0, 0])
    return array.reshape(-1) if 1 in array.shape else array


def from_netcdf(path: Path, variable: str) -> Any:
    """A variable of a NetCDF file."""
    if path.read_bytes()[:3] == b"CDF":  # version 3, which SciPy reads faster
        from scipy.io import netcdf_file

        with netcdf_file(path, mmap=False, maskandscale=True) as found:
            one = found.variables[variable]
            values = np.ma.asarray(one[:] if one.shape else one.getValue(), np.float64)
            return np.asarray(values.filled(np.nan))[()]
    xarray = optional("xarray", "FromFile")

    with xarray.open_dataset(path, decode_times=False) as dataset:
        return np.asarray(dataset[variable].values, np.float64)[()]


def reader_of(name: str, given: Any) -> Callable[[Path], Any]:
    """The reader of an output: the name of a file of numbers, `FromFile`, or a function of the run folder."""
    if isinstance(given, str):
        return FromFile(given)
    if callable(given):
        return given  # type: ignore[no-any-return]
    wanted = "be the name of a file, FromFile or a function of the run folder"
    raise TypeError(message("Program", f"outputs[{name!r}]", wanted, repr(given)))
