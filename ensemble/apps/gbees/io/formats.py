"""Files of the public GBEES programs: distributions as text and binary, Gaussian initial states and measurements."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ensemble import _check
from ensemble._backend import to_numpy
from ensemble._files import write_whole
from ensemble._typing import Array
from ensemble.apps.gbees.analysis.distribution import positions
from ensemble.apps.gbees.cells import Cells

__all__ = [
    "GaussianFile",
    "Points",
    "read_binary",
    "read_gaussian",
    "read_text",
    "write_binary",
    "write_gaussian",
    "write_text",
]


@dataclass(frozen=True)
class Points:
    """A distribution in the form of the public programs: cell centres and probabilities, no grid.

    Attributes
    ----------
    time : float
    probabilities : ndarray, shape (N,)
    x : ndarray, shape (N, n)
        Centres of the cells in space.
    """

    time: float
    probabilities: np.ndarray
    x: np.ndarray

    def cells(self, origin: Array, widths: Array, rotation: Array = None) -> Cells:
        """The distribution on the grid with a cell centre at `origin` and cells of `widths`.

        Raises
        ------
        ValueError
            If a point is further than a hundredth of a cell from the nearest centre of this grid.
        """
        n = self.x.shape[1]
        centre, edges = (
            np.asarray(origin, dtype=np.float64),
            np.broadcast_to(np.asarray(widths, dtype=np.float64), (n,)),
        )
        _check.require(centre.shape == (n,), "cells", "origin", f"have shape {(n,)}", f"shape {centre.shape}")
        z = self.x - centre
        if rotation is not None:
            z = z @ np.asarray(rotation)
        s = np.rint(z / edges)
        off = np.abs(z / edges - s).max(axis=1, initial=0.0)
        if off.size and not off.max() <= 0.01:
            worst = int(np.argmax(off))
            seen = f"point {worst} at {self.x[worst].tolist()}, {off[worst]:.3g} cells off a centre"
            requirement = "be those of the grid that was written"
            raise ValueError(_check.message("cells", "origin and widths", requirement, seen))
        order = np.lexsort(s.T[::-1])
        turned = None if rotation is None else np.asarray(rotation)
        return Cells(s[order].astype(np.int64), self.probabilities[order], centre, edges.copy(), turned, self.time)


@dataclass(frozen=True)
class GaussianFile:
    """The content of a ``measurement*.txt``: a Gaussian and the time until the next one.

    Attributes
    ----------
    mean : ndarray, shape (n,)
    covariance : ndarray, shape (n, n)
    span : float
    labels : tuple of str
        Names of the components, with units.
    time_label : str
    """

    mean: np.ndarray
    covariance: np.ndarray
    span: float
    labels: tuple[str, ...] = ()
    time_label: str = "T"


def rows_of(cells: Cells) -> np.ndarray:
    """Probability and centre of each cell, shape (N, 1 + n)."""
    p = to_numpy(cells.probabilities).astype(np.float64)
    return np.column_stack([p, to_numpy(positions(cells))])


def write_text(path: str | os.PathLike[str], cells: Cells) -> None:
    """Write the time, then a line ``p x1 ... xn`` per cell, with 11 digits; the time has 6 decimals.

    Parameters
    ----------
    path : path
    cells : Cells
        The programs write active cells only: see `active`.
    """

    def write(file: BinaryIO) -> None:
        file.write(f"{cells.time:f}\n".encode())
        np.savetxt(file, rows_of(cells), fmt="%.10e")

    write_whole(Path(path), write)


def read_text(path: str | os.PathLike[str]) -> Points:
    """Read a text file of `write_text` or the public programs.

    Parameters
    ----------
    path : path

    Returns
    -------
    Points

    Raises
    ------
    ValueError
        If the file is empty, a line has another number of columns than the first, or an entry is not a number.
    """
    lines = Path(path).read_text().splitlines()
    _check.require(bool(lines), "read_text", "the file", "start with a time", f"an empty file {str(path)!r}")
    time = numbers_in(lines[0], path, 1, "read_text", 1)[0]
    rows: list[list[float]] = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            rows.append(numbers_in(line, path, number, "read_text", len(rows[0]) if rows else None))
    if rows and len(rows[0]) < 2:
        raise ValueError(f"read_text: {path}, line 2: must hold a probability and coordinates; got one number.")
    table = np.array(rows) if rows else np.empty((0, 2))
    return Points(time, table[:, 0], table[:, 1:])


def numbers_in(line: str, path: Any, number: int, function: str, count: int | None = None) -> list[float]:
    """The numbers of a line, `count` of them if given."""
    try:
        values = [float(word) for word in line.split()]
    except ValueError:
        raise ValueError(f"{function}: {path}, line {number}: must hold numbers; got {line[:60]!r}.") from None
    if (count is not None and len(values) != count) or not values:
        wanted = "numbers" if count is None else "1 number" if count == 1 else f"{count} numbers"
        raise ValueError(
            f"{function}: {path}, line {number}: must hold {wanted}; got {len(values)}. Is the file cut off?"
        )
    return values


HEADER = struct.Struct("<dI")


def write_binary(path: str | os.PathLike[str], cells: Cells) -> None:
    """Write float64 time, uint32 count, then float64 ``p x1 ... xn`` per cell, little-endian without padding.

    Parameters
    ----------
    path : path
    cells : Cells
        The programs write active cells only: see `active`.

    Raises
    ------
    ValueError
        If there are 2**32 cells or more.
    """
    rows = rows_of(cells)
    _check.require(len(rows) < 2**32, "write_binary", "cells", "be fewer than 2**32", len(rows))
    content = HEADER.pack(cells.time, len(rows)) + np.ascontiguousarray(rows, dtype="<f8").tobytes()
    write_whole(Path(path), lambda file: file.write(content))


def read_binary(path: str | os.PathLike[str], n: int | None = None) -> Points:
    """Read a binary file of `write_binary` or the public programs.

    Parameters
    ----------
    path : path
    n : int, optional
        Dimensions; by default from the file's length.

    Returns
    -------
    Points

    Raises
    ------
    ValueError
        If the file's length does not fit its count of cells.
    """
    content = Path(path).read_bytes()
    size = len(content)
    if size < HEADER.size:
        raise ValueError(f"read_binary: {path}: must have a header of {HEADER.size} bytes; got {size} bytes in all.")
    time, count = HEADER.unpack_from(content)
    left = size - HEADER.size
    columns = (left // (8 * count) if count else 2) if n is None else n + 1
    if left != 8 * columns * count or columns < 2:
        width = f"{n} dimensions" if n is not None else "any whole number of dimensions"
        raise ValueError(
            f"read_binary: {path}: must hold {count} rows of {width} after the header; got {left} bytes. Is it cut off?"
        )
    table = np.frombuffer(content, dtype="<f8", offset=HEADER.size).astype(np.float64).reshape(count, columns)
    return Points(time, table[:, 0].copy(), table[:, 1:].copy())


def write_gaussian(path: str | os.PathLike[str], content: GaussianFile) -> None:
    """Write a mean or a measurement with its covariance and time span, as the public programs read it.

    Parameters
    ----------
    path : path
    content : GaussianFile
    """
    n = len(content.mean)
    labels = content.labels or tuple(f"x{i + 1}" for i in range(n))

    def line(values: np.ndarray) -> str:
        return " ".join(repr(float(value)) for value in values)

    names = ", ".join(re.sub(r"\s*\(.*?\)", "", label) for label in labels)
    lines = [" ".join(labels), line(content.mean), "", f"Covariance({names})"]
    lines += [line(row) for row in np.asarray(content.covariance)]
    text = "\n".join([*lines, "", content.time_label, repr(float(content.span))]) + "\n"
    write_whole(Path(path), lambda file: file.write(text.encode()))


def read_gaussian(path: str | os.PathLike[str]) -> GaussianFile:
    """Read a ``measurement*.txt`` of the public programs: mean or measured values, covariance, time span.

    Parameters
    ----------
    path : path

    Returns
    -------
    GaussianFile

    Raises
    ------
    ValueError
        If a part is missing, has another number of entries than there are values, or an entry is not a number.
    """
    lines = Path(path).read_text().splitlines()
    if len(lines) < 2:
        raise ValueError(f"read_gaussian: {path}: must start with labels and values; got {len(lines)} lines.")
    mean = numbers_in(lines[1], path, 2, "read_gaussian")
    n = len(mean)
    # Labels, values, blank, label, n rows, blank, label, span.
    if len(lines) < n + 7:
        raise ValueError(
            f"read_gaussian: {path}: must have {n + 7} lines for {n} values; got {len(lines)}. Is the file cut off?"
        )
    rows = [numbers_in(lines[4 + i], path, 5 + i, "read_gaussian", n) for i in range(n)]
    span = numbers_in(lines[n + 6], path, n + 7, "read_gaussian", 1)[0]
    labels = tuple(re.findall(r"\S+(?:\s+\([^)]*\))?", lines[0]))
    return GaussianFile(np.array(mean), np.array(rows), span, labels, lines[n + 5].strip())
