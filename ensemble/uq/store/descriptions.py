"""`Output`, and checks of what the files of a store say of its arrays before memory or a path is made of them."""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import message

__all__ = ["GROUP_FILE", "MOST_SAMPLES", "RESERVED", "Output", "described_output", "is_name", "supported"]

GROUP_FILE = "zarr.json"
"""Name of the metadata of the group and of each array."""

RESERVED = ("done", "failed", "sample", GROUP_FILE)
"""Names of arrays and files that a store has beside the outputs."""

MOST_SAMPLES = 2**31 - 1
"""The index of a store counts samples by 32 bits."""

LARGEST_SAMPLE = 2**38
"""Bytes of an output per sample; a description of more is no output of a model."""


class Output(NamedTuple):
    """Name, data type and shape per sample of one output."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of values per sample."""
        return math.prod(self.shape)


def supported(dtype: np.dtype) -> bool:
    """Whether arrays of `dtype` can be stored: bools, integers, and real and complex numbers of 16 to 128 bits."""
    floats = (np.float16, np.float32, np.float64, np.complex64, np.complex128)
    return dtype.kind in "biu" or dtype.newbyteorder("=") in floats


def is_name(name: Any) -> bool:
    """Whether an array of a store may have this name, which is that of its folder."""
    return isinstance(name, str) and bool(name) and name[0] not in "._" and not set(name) & {"/", os.sep, "\0"}


def described_output(function: str, where: str, name: Any, dtype: Any, shape: Any) -> Output:
    """The array that the file `where` describes; ValueError with its path where a store can have no such array."""

    def refuse(argument: str, requirement: str, seen: Any) -> ValueError:
        text = f"{str(seen)[:80]} in {where}, which is damaged"
        return ValueError(message(function, argument, requirement, text, "Restore the file from a copy."))

    if not is_name(name):
        raise refuse("names of arrays", "have no '/' and no '.' or '_' at their start", repr(name))
    try:
        kind = np.dtype(dtype) if isinstance(dtype, str) else np.dtype(object)
    except (TypeError, ValueError, SyntaxError):
        kind = np.dtype(object)
    if not supported(kind):
        raise refuse(f"the data type of {name!r}", "be one of bools or numbers", repr(dtype))
    whole = isinstance(shape, (list, tuple)) and all(type(length) is int and length >= 0 for length in shape)
    if not whole or len(shape) > 32:
        raise refuse(f"the shape of {name!r}", "be at most 32 lengths of 0 or more", shape)
    if math.prod(shape) * kind.itemsize > LARGEST_SAMPLE:
        raise refuse(f"the shape of {name!r}", f"take at most {LARGEST_SAMPLE:,} bytes per sample", shape)
    return Output(name, kind.newbyteorder("<"), tuple(shape))
