"""Checks of what a store is given, and the messages of what the file system refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble import _check
from ensemble.uq.store.descriptions import RESERVED, Output, is_name, supported
from ensemble.uq.store.journal import EMPTY
from ensemble.uq.store.places import as_slice
from ensemble.uq.store.zarr_array import fill_value

__all__ = [
    "CheckedGroup", "Reading", "Writing", "group_checked", "has_groups", "local_folder", "require_empty",
    "require_no_journal", "seconds_checked",
]  # fmt: skip

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(:|/)")
"""A scheme of two letters or more (one is a drive of Windows), and a slash or the colons of a chained one."""


class Writing:
    """Say what could not be written where an OSError is raised inside; its kind and number stay.

    Not by `contextlib.contextmanager`, which costs every group some microseconds.
    """

    __slots__ = ("advice", "function", "path")

    requirement = "be a folder in which files can be written"

    def __init__(self, function: str, path: Path, advice: str = "") -> None:
        self.function, self.path, self.advice = function, path, advice

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError) and not isinstance(error, BlockingIOError):
            seen = f"{os.strerror(error.errno) if error.errno else error} at {error.filename or self.path}"
            text = _check.message(self.function, "path", self.requirement, seen, self.advice)
            raise OSError(error.errno, text) from error


class Reading(Writing):
    """Say which file could not be read where an OSError is raised inside."""

    __slots__ = ()

    requirement = "be a folder whose files can be read"

    def __init__(self, function: str, path: Path) -> None:
        super().__init__(function, path, "Restore the file or its permissions.")


def local_folder(function: str, path: Any, argument: str = "path") -> Path:
    """`path` as the absolute path of a folder of this machine; a URL is none, and is refused before it makes a folder.

    `pathlib` merges the slashes of a URL: ``s3:/bucket`` is one, too. A leading ``~`` is the home folder.
    """
    if isinstance(path, bytes) or not isinstance(path, (str, os.PathLike)):
        raise TypeError(_check.message(function, argument, "be the path of a folder", _check.kind_of(path)))
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(_check.message(function, argument, "be the path of a folder", _check.kind_of(path)))
    protocol = getattr(path, "protocol", "")  # of universal_pathlib
    requirement = "be the path of a folder of this machine"
    advice = "propagate and open_study take URLs as texts; all else needs a folder: copy it when it is whole."
    is_url = bool(URL.match(text)) or (isinstance(protocol, str) and protocol not in ("", "file", "local"))
    _check.require(not is_url, function, argument, requirement, f"the URL {text!r}", advice)
    _check.require("\0" not in text, function, argument, requirement, repr(text))
    return Path(os.path.expanduser(text)).absolute()


def has_groups(journal: Path) -> bool:
    """Whether the file `journal` is there and longer than one without groups."""
    return journal.exists() and journal.stat().st_size > len(EMPTY)


def require_no_journal(function: str, journal: Path) -> None:
    """Raise ValueError where groups of a study without a manifest would be overwritten."""
    seen = f"{journal} with groups of a study whose manifest.json is missing"
    advice = "Restore the manifest from a copy, or give another path."
    _check.require(not has_groups(journal), function, "path", "be a new one", seen, advice)


def require_empty(function: str, folder: Path, own: str) -> None:
    """Raise ValueError where `folder` is a file, or holds anything but `own`."""
    requirement = "be a new path or an empty folder"
    try:
        others = [entry for entry in os.listdir(folder) if entry != own]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ValueError(_check.message(function, "path", requirement, f"the file {folder}")) from None
    _check.require(not others, function, "path", requirement, f"{folder} with {len(others)} other files")


def seconds_checked(function: str, seconds: float) -> float:
    """`seconds`, from zero to infinity."""
    return float("inf") if seconds == float("inf") else _check.positive(seconds, function, "sync_seconds", zero=True)


class CheckedGroup(NamedTuple):
    """One group as the journal takes it."""

    ids: np.ndarray
    places: slice | np.ndarray
    """`as_slice` of the ids."""
    outputs: dict[str, np.ndarray]
    failed: np.ndarray
    reasons: dict[int, str]


def group_checked(
    ids: Any, outputs: Mapping[str, Any], failed: Any, reasons: Mapping[int, str] | None, known: Mapping[str, Output],
    done: np.ndarray,
) -> CheckedGroup:  # fmt: skip
    """What `append` is given; `known` are the outputs stored before, `done` the samples that cannot be stored."""
    numbers, places = ids_checked(ids, done)
    mask = np.zeros(len(numbers), dtype=bool) if failed is None else np.ascontiguousarray(failed)
    if mask.dtype != bool or mask.shape != numbers.shape:
        seen = f"shape {mask.shape} of {mask.dtype}"
        raise ValueError(_check.message("Store.append", "failed", f"be a bool array of shape {numbers.shape}", seen))
    if not known:
        known = {name: new_output(name, np.asarray(value)) for name, value in outputs.items()}
    any_failed = bool(mask.any())
    if outputs.keys() != known.keys() and (outputs or not mask.all()):
        seen = ", ".join(map(repr, outputs)) or "none"
        raise ValueError(_check.message("Store.append", "outputs", f"be {', '.join(map(repr, known))}", seen))
    arrays = {name: output_checked(name, value, known[name], len(numbers)) for name, value in outputs.items()}
    if any_failed:
        arrays = {name: masked(array, mask) for name, array in arrays.items()}
    return CheckedGroup(numbers, places, arrays, mask, reasons_checked(numbers, mask, reasons) if reasons else {})


def ids_checked(ids: Any, done: np.ndarray) -> tuple[np.ndarray, slice | np.ndarray]:
    """`ids` as int64, none of them twice or in `done`, and `as_slice` of them."""
    numbers = _check.array_of(ids, "Store.append", "ids", "be an integer array of shape (k,), k > 0")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        seen = f"shape {numbers.shape} of {numbers.dtype}"
        raise ValueError(_check.message("Store.append", "ids", "be an integer array of shape (k,), k > 0", seen))
    numbers = np.ascontiguousarray(numbers, dtype="<i8")
    n, places = len(done), as_slice(numbers)
    if isinstance(places, slice) and places.stop <= n and not done[places].any():
        return numbers, places
    ordered = np.sort(numbers)
    if ordered[0] < 0 or ordered[-1] >= n:
        seen = _check.samples_text(ordered[(ordered < 0) | (ordered >= n)])
        advice = "Store.extend lets the study have more samples."
        raise ValueError(_check.message("Store.append", "ids", f"be from 0 to {n - 1}", seen, advice))
    twice = ordered[1:] == ordered[:-1]
    if twice.any():
        seen = f"{_check.samples_text(np.unique(ordered[1:][twice]))} twice"
        raise ValueError(_check.message("Store.append", "ids", "be different", seen))
    if done[numbers].any():
        seen = _check.samples_text(ordered[done[ordered]])
        raise ValueError(_check.message("Store.append", "ids", "be samples that are not stored", seen))
    return numbers, places


def output_checked(name: str, value: Any, output: Output, n_samples: int) -> np.ndarray:
    """One output of a group as a C-contiguous little-endian array that fits the outputs stored before."""
    array = np.ascontiguousarray(value)
    if array.dtype != output.dtype and array.dtype.newbyteorder("<") == output.dtype:
        array = array.astype(output.dtype)
    if array.dtype != output.dtype or array.shape != (*output.shape, n_samples):
        requirement = f"be {output.dtype.name} of shape {(*output.shape, n_samples)}"
        seen = f"{array.dtype.name} of shape {array.shape}"
        raise ValueError(_check.message("Store.append", f"outputs[{name!r}]", requirement, seen))
    return array


def new_output(name: str, array: np.ndarray) -> Output:
    """The output that a study's first array `array` makes."""
    argument = f"outputs[{name!r}]"
    if not is_name(name) or name in RESERVED:
        requirement = f"have a name without '/', not starting with '.' or '_', and none of {', '.join(RESERVED)}"
        raise ValueError(_check.message("Store.append", argument, requirement, repr(name)))
    if not supported(array.dtype):
        requirement = "be an array of bools, integers, or real or complex numbers of 16 to 128 bits"
        raise TypeError(_check.message("Store.append", argument, requirement, str(array.dtype)))
    if array.ndim == 0:
        raise ValueError(_check.message("Store.append", argument, "have samples as its last axis", "shape ()"))
    return Output(name, array.dtype.newbyteorder("<"), array.shape[:-1])


def masked(array: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """`array` with fill for the failed samples."""
    result = array.copy()
    result[..., failed] = fill_value(array.dtype)
    return result


def reasons_checked(ids: np.ndarray, failed: np.ndarray, reasons: Mapping[int, str]) -> dict[int, str]:
    """`reasons` by plain ints; each must be of a failed sample of the group."""
    found = {int(i): str(reason) for i, reason in reasons.items()}
    others = sorted(found.keys() - set(ids[failed].tolist()))
    if others:
        requirement = "be given for failed samples of the group"
        raise ValueError(_check.message("Store.append", "reasons", requirement, _check.samples_text(others)))
    return found
