"""Arrays of NumPy's subclasses as plain ones, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import kind_of, message

__all__ = ["plain_array", "plain_arrays"]


def plain_array(value: Any, function: str, argument: str) -> Any:
    """`value`; an array of a subclass of NumPy's as a plain one over the same memory.

    Masked arrays and matrices are refused: a mask would be lost, and products of matrices are others.
    """
    if not isinstance(value, np.ndarray) or type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray | np.matrix):
        masked = isinstance(value, np.ma.MaskedArray)
        advice = "Use np.ma.filled(x, np.nan), or en.where with the mask." if masked else "Use np.asarray(x)."
        raise TypeError(message(function, argument, "be arrays or numbers", kind_of(value), advice))
    return np.asarray(value)


def plain_arrays(tree: Any, function: str) -> Any:
    """The arguments `tree` of NumPy's `function` with plain arrays alone."""
    if type(tree) is dict:
        return {key: plain_arrays(value, function) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(plain_arrays(value, function) for value in tree)
    return plain_array(tree, f"np.{function}", "operands")
