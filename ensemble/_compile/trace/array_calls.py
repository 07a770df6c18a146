"""Calls of functions that take lists of numbers, or arrays, whatever they were written for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ensemble._compile.trace.arrays import ArrayNamespace
from ensemble._compile.trace.namespace import TracedNamespace
from ensemble._compile.trace.traced_array import TracedArray, items_of, object_array
from ensemble._compile.trace.tracer import Tracer

__all__ = ["SPARSE", "alone", "called", "meets_sparse"]

FAILURES = (TypeError, AttributeError, ValueError, IndexError)
"""What a function of arrays may raise where it is given lists."""

SPARSE = (
    "a sparse matrix of SciPy must be multiplied as an array of xp; got its own product with values that are not plain "
    "numbers. Write xp.asarray(A) @ y."
)


class Unknowns(list[Any]):
    """A list of numbers that a function may take for an array: what means something else then is noted."""

    __array_ufunc__ = None
    """Operators of NumPy's arrays and lists end in a TypeError: the function is then called with arrays."""

    def __init__(self, values: Iterable[Any], noted: list[str]) -> None:
        super().__init__(values)
        self.noted = noted

    def __getitem__(self, key: Any) -> Any:
        chosen = super().__getitem__(key)
        return Unknowns(chosen, self.noted) if isinstance(key, slice) else chosen

    def __add__(self, other: Any) -> Any:
        self.noted.append("+")
        return Unknowns([*self, *other], self.noted) if isinstance(other, list) else NotImplemented

    def __iadd__(self, other: Any) -> Any:
        self.noted.append("+=")
        return super().__iadd__(other)

    def __mul__(self, other: Any) -> Any:
        self.noted.append("*")
        return super().__mul__(other)

    __rmul__ = __mul__


def called(function: Callable[..., Any], t: Any, y: list[Any], p: list[Any], xp: Any) -> Any:
    """``function(t, y, p, xp)`` with lists `y` and `p` of values; where lists are not enough, with arrays.

    Values other than traced ones are handed on as lists. A function that works with both, and does something else with
    each, is refused.
    """
    if not isinstance(xp, TracedNamespace):
        return function(t, y, p, xp)
    tracer = xp.tracer
    tracer.arrays = ArrayNamespace
    given, noted = ArrayNamespace(tracer, xp.__name__), list[str]()

    def with_arrays() -> Any:
        return function(t, *(TracedArray(tracer, object_array(each, (len(each),))) for each in (y, p)), given)

    failed: Exception | None = None
    try:
        result = function(t, Unknowns(y, noted), Unknowns(p, noted), given)
    except FAILURES as error:
        failed = error
    if failed is not None:
        try:
            return with_arrays()
        except FAILURES as error:
            if meets_sparse(error):
                raise TypeError(f"{tracer.function}: {SPARSE}") from error
            if own(tracer, failed) and not own(tracer, error):
                raise failed from failed.__cause__
            raise
        finally:
            failed = None  # it refers to this frame
    if noted:
        try:
            other = with_arrays()
        except FAILURES:
            return result
        one, two = nodes_of(tracer, result), nodes_of(tracer, other)
        if len(one) == len(two) and one != two:
            advice = f"Write list(y) for lists, xp.asarray(y) for arrays, before {noted[0]!r}."
            raise ValueError(
                f"{tracer.function}: f(t, y, p, xp) must do the same with a list y and an array y; got a function "
                f"that does not. {advice}"
            )
    return result


def alone(value: Any) -> Any:
    """The entry of a traced array of one entry; anything else is itself."""
    return value.items.reshape(-1)[0] if isinstance(value, TracedArray) and value.size == 1 else value


def meets_sparse(error: Exception) -> bool:
    """Whether a sparse matrix of SciPy, which knows its own numbers alone, has met others."""
    words = ("unsupported data types in input", "no supported conversion for types")
    return any(each in str(error) for each in words)


def own(tracer: Tracer, error: Exception) -> bool:
    """Whether an error is of the tracer, and says what to do."""
    return str(error).startswith(tracer.function)


def nodes_of(tracer: Tracer, result: Any) -> list[Any]:
    """The nodes of a result, for comparison; of no values, none."""
    if result is None or isinstance(result, dict | set | str):
        return []
    return [tracer.number(entry) for entry in items_of(result).reshape(-1)]
