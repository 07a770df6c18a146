"""`save` and `load`: ensembles with their sample sets in one file of NumPy's npz form."""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from ensemble._check import kind_of, message, require, unread
from ensemble._files import write_arrays
from ensemble.scalar.ensemble import Ensemble

__all__ = ["load", "save"]


def path_of(path: Any, function: str) -> str:
    """`path` as a text; a number is none, although `open` takes it for a file that is open."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise TypeError(message(function, "path", "be the path of a file", kind_of(path))) from None


def save(path: str | os.PathLike[str], x: Ensemble | None = None, /, **named: Ensemble) -> None:
    """Write an ensemble, or several by name, to an npz file; sample sets go along.

    Parameters
    ----------
    path : path of the file
        It is written under exactly this name; a file there is replaced once the new one is complete.
    x : Ensemble, optional
        One ensemble without a name.
    **named : Ensemble
        Or several, for which `load` gives a dict.

    Raises
    ------
    TypeError
        If something else than ensembles is given, or nothing, or one with and others without a name.

    Notes
    -----
    Samples of any array library are written as NumPy arrays. Nothing is pickled.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "result.npz")
    >>> save(path, u=Ensemble(np.array([[1.0, 2.0]])), p=Ensemble(np.array([3.0, 4.0])))
    >>> load(path)["p"].samples
    array([3., 4.])
    """
    given = named if x is None else {"": x}
    if (x is None) == (not named):
        seen = "both" if named else "nothing"
        raise TypeError(message("save", "the ensembles", "be one without a name, or several by name", seen))
    path, arrays = path_of(path, "save"), dict[str, np.ndarray]()
    for name, value in given.items():
        if not isinstance(value, Ensemble):
            seen = kind_of(value)
            raise TypeError(message("save", name or "x", "be an Ensemble", seen, "Use en.shared(x) for a plain array."))
        arrays |= {f"{name}.{key}" if name else key: array for key, array in value.state().items()}
    write_arrays(path, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Load the ensemble that `save` wrote, over NumPy; a dict of them where they were saved by name.

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    Ensemble or dict of Ensembles by name

    Raises
    ------
    ValueError
        If the file holds no ensemble.
    OSError
        If there is no such file, or it cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "result.npz")
    >>> save(path, Ensemble(np.array([1.0, 2.0])))
    >>> load(path).samples
    array([1., 2.])
    """
    path, states = path_of(path, "load"), dict[str, dict[str, np.ndarray]]()
    try:
        open(path, "rb").close()
    except OSError as error:
        raise unread(error, "load", path) from None
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            for key in file.files:
                name, _, part = key.rpartition(".")
                states.setdefault(name, {})[part] = file[key]
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, KeyError) as error:
        other = isinstance(error, ValueError) and "pickle" in str(error)  # NumPy's guess of a file that is not its own
        seen = f"{path!r}: {'no file of NumPy' if other else error}"
        raise ValueError(message("load", "path", "name a file that save has written", seen)) from error
    valid = bool(states) and all("samples" in state for state in states.values())
    require(valid, "load", "path", "name a file that save has written", repr(path))
    found = {name: Ensemble.from_state(state) for name, state in states.items()}
    return found.get("", found)
