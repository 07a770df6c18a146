"""Argument checks. Every message gives: function, argument, requirement, what was seen, what to do instead."""

from __future__ import annotations

import inspect
import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._backend import is_array, library_of, to_numpy
from ensemble._sample_numbers import sample_numbers

PACKAGE = str(Path(__file__).parent)


def message(function: str, argument: str, requirement: str, seen: Any, advice: str = "") -> str:
    """Fill the library's one error template."""
    text = f"{function}: {argument} must {requirement}; got {seen}"
    text += "" if text.endswith(".") else "."  # the message of another error has its own
    return f"{text} {advice}" if advice else text


def array_of(value: Any, function: str, argument: str, requirement: str) -> np.ndarray:
    """`value` as a NumPy array; ValueError with the template for nested lists that make none and for masked entries."""
    require_unmasked(value, function, argument)
    try:
        return np.asarray(value)
    except ValueError:  # NumPy's, of parts of different shapes
        seen = f"{kind_of(value)} with parts of different shapes"
        raise ValueError(message(function, argument, requirement, seen)) from None


def host_array(value: Any, function: str, argument: str, requirement: str) -> np.ndarray:
    """Convert `value`, an array of any library or what `array_of` takes, to a NumPy array; it may be a copy."""
    require_unmasked(value, function, argument)
    return to_numpy(value) if is_array(value) else array_of(value, function, argument, requirement)


def real_array(value: Any, function: str, argument: str, requirement: str) -> np.ndarray:
    """`value` as float64, for arguments that NumPy's arrays or lists of real numbers may be."""
    array = array_of(value, function, argument, requirement)
    if array.dtype.kind not in "biuf":
        seen = kind_of(value) if array.dtype.kind == "O" else f"dtype {array.dtype}"
        raise TypeError(message(function, argument, requirement, seen))
    return array.astype(np.float64, copy=False)


def places_of(which: Any, n: int, function: str, argument: str = "samples", *, bools: bool = False) -> np.ndarray:
    """The places from 0 to n - 1 that a vector of integers names, which count from the end where they are negative.

    With `bools` also those where a vector of n bools is True. Samples are one or more.
    """
    requirement = "be integers or bools" if bools else "be integers"
    places = array_of(which, function, argument, requirement)
    require(places.size > 0 or argument != "samples", function, argument, "name one sample or more", "none")
    chooses = bools and places.dtype.kind == "b"
    if places.size and places.dtype.kind not in "iu" and not chooses:
        raise TypeError(message(function, argument, requirement, f"dtype {places.dtype}"))
    if places.ndim != 1:
        raise TypeError(message(function, argument, "be a vector", f"shape {places.shape}"))
    if chooses:
        if places.size != n:
            raise IndexError(message(function, argument, f"have {n} entries where they are bools", places.size))
        return np.flatnonzero(places)
    if places.size and (places.min() < -n or places.max() >= n):
        seen = f"{places.min()} ... {places.max()}"
        raise IndexError(message(function, argument, f"be from {-n} to {n - 1}", seen))
    return places.astype(np.intp) % max(n, 1)


def kind_of(value: Any) -> str:
    """The type of a value with its article: "an int", "a list", "None"."""
    name = type(value).__name__
    article = "an" if name[0].lower() in "aeio" or name == "ndarray" else "a"
    return "None" if value is None else f"{article} {name}"


def require(condition: bool, function: str, argument: str, requirement: str, seen: Any, advice: str = "") -> None:
    """Raise ValueError with the template unless `condition` holds."""
    if not condition:
        raise ValueError(message(function, argument, requirement, seen, advice))


def require_one_library(function: str, argument: str, *arrays: Any) -> None:
    """Raise TypeError unless all of `arrays` come from one array library; what is no array does not count."""
    libraries = dict.fromkeys(library for array in arrays if (library := library_of(array)) is not None)
    if len(libraries) > 1:
        advice = "Convert with xp.asarray (an ensemble by Ensemble(xp.asarray(x.samples)), a matrix by A.to(b))."
        raise TypeError(message(function, argument, "come from one array library", " and ".join(libraries), advice))


def require_type(
    value: Any, kinds: type | tuple[type, ...], function: str, argument: str, requirement: str, advice: str = ""
) -> None:
    """Raise TypeError with the template unless `value` is one of `kinds`."""
    if not isinstance(value, kinds):
        raise TypeError(message(function, argument, requirement, kind_of(value), advice))


def require_arguments(value: Callable[..., Any], arguments: str, function: str, argument: str) -> None:
    """Raise TypeError unless `value` can be called with `arguments`, a text as "t, y, p, xp"."""
    wanted = arguments.split(", ")
    is_function = type(value) is types.FunctionType
    called, given = (value, 0) if is_function else (vars(type(value)).get("__call__"), 1)
    if type(called) is types.FunctionType:  # a signature takes 30 us at each call
        code, names = called.__code__, {*vars(called), *getattr(value, "__dict__", ())}
        is_plain = not names & {"__wrapped__", "__signature__"} and not hasattr(type(value), "__signature__")
        if is_plain and code.co_argcount == len(wanted) + given and not code.co_kwonlyargcount:
            return
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # a builtin function may have none
        return
    try:
        signature.bind(*wanted)
    except TypeError:
        raise TypeError(message(function, argument, f"take ({arguments})", f"a function of {signature}")) from None


def require_unmasked(value: Any, function: str, argument: str) -> None:
    """Raise ValueError where entries of `value` are masked: what stands below the mask is no data."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        seen = f"{int(np.ma.getmaskarray(value).sum())} of {value.size} masked"
        require(False, function, argument, "have no masked entries", seen, "Fill them: values.filled(...).")


def unread(error: OSError, function: str, path: Any) -> OSError:
    """The error of a file that cannot be read, of the same type, by the template."""
    return type(error)(message(function, "path", "be a file to read", f"{path} ({error.strerror})"))


def integer(value: Any, function: str, argument: str, *, minimum: int, advice: str = "") -> int:
    """`value` as an int of at least `minimum`; bools and fractions are refused."""
    requirement = f"be an integer of at least {minimum}"
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(message(function, argument, requirement, repr(value), advice)) from None
    if isinstance(value, bool):
        raise TypeError(message(function, argument, requirement, repr(value), advice))
    require(number >= minimum, function, argument, requirement, number, advice)
    return number


def random_generator(seed: Any, function: str) -> np.random.Generator:
    """NumPy's generator from what its `default_rng` takes; TypeError with the template for anything else."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        wanted = "be None, an integer from 0 or a numpy.random.Generator"
        raise TypeError(message(function, "seed", wanted, repr(seed))) from None


def require_callable(value: Any, function: str, argument: str) -> None:
    """Raise TypeError unless `value` can be called."""
    if not callable(value):
        raise TypeError(message(function, argument, "be callable", kind_of(value)))


def plain_number(value: Any) -> float:
    """`value` as a float; TypeError for a text, of which Python's float() would read "1e-8" or "inf"."""
    if isinstance(value, str | bytes | bytearray) or getattr(getattr(value, "dtype", None), "kind", "") in ("S", "U"):
        raise TypeError(f"got a text, {value!r}")
    return float(value)


def positive(value: Any, function: str, argument: str, *, advice: str = "", zero: bool = False) -> float:
    """`value` as a finite float above zero (or from zero, with ``zero=True``)."""
    requirement = "be a finite number, zero or above" if zero else "be a finite number above zero"
    if isinstance(value, bool | np.bool_):  # a switch, and no number of seconds
        raise TypeError(message(function, argument, requirement, repr(value), advice))
    try:
        number = plain_number(value)
    except Exception:  # what is no number, or an ensemble of different ones
        raise TypeError(message(function, argument, requirement, repr(value), advice)) from None
    good = number < float("inf") and (number >= 0.0 if zero else number > 0.0)
    require(good, function, argument, requirement, number, advice)
    return number


def finite(value: Any, function: str, argument: str) -> float:
    """`value` as a finite float."""
    try:
        number = plain_number(value)
    except Exception:  # what is no number, or an ensemble of different ones
        raise TypeError(message(function, argument, "be a finite number", repr(value))) from None
    require(abs(number) < float("inf"), function, argument, "be finite", number)
    return number


def check_level(value: Any, function: str) -> float:
    """The level of an interval as a float in (0, 1)."""
    good = isinstance(value, int | float | np.floating) and 0.0 < value < 1.0
    require(bool(good), function, "level", "be a number in (0, 1)", repr(value), "Divide percentages by 100.")
    return float(value)


def require_real_numbers(dtype: Any, function: str, argument: str) -> None:
    """Raise TypeError with the template for a data type of other values than real numbers: a cast would change them."""
    if not str(dtype).startswith(("bool", "int", "uint", "float")):
        raise TypeError(message(function, argument, "hold real numbers", f"dtype {dtype}"))


def sample_number(i: Any, n_samples: int, function: str, argument: str = "i in sample(i)") -> int:
    """The place of sample `i` among `n_samples`; the one sample of shared data is used for every `i` from 0."""
    requirement = f"be from {-n_samples} to {n_samples - 1}"
    try:
        number = operator.index(i)
    except TypeError:
        raise TypeError(message(function, argument, requirement, repr(i))) from None
    if number < -n_samples or (number >= n_samples and n_samples > 1):
        raise IndexError(message(function, argument, requirement, number))
    return 0 if n_samples == 1 else number


def floating(value: Any, function: str, argument: str, advice: str = "") -> np.dtype:
    """`value` as one of the two data types that compiled code computes in."""
    try:
        dtype: np.dtype | None = np.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in (np.float32, np.float64):
        raise ValueError(message(function, argument, "be float32 or float64", repr(value), advice))
    return dtype


VALUES = {
    "rk45": "tsit5", "dopri5": "tsit5", "rk23": "tsit5", "radau": "rodas4", "rosenbrock": "rodas4", "lsoda": "auto",
    "cvodes": "bdf", "lhs": "latin_hypercube", "latin": "latin_hypercube", "mc": "monte_carlo", "random": "monte_carlo",
    "qmc": "sobol", "spd": "ldlt", "chol": "ldlt", "cholesky": "ldlt", "pos": "ldlt", "gpu": "cupy", "cuda": "cupy",
    "cpu": "numpy", "leggauss": "legendre", "hermgauss": "hermite",
}  # fmt: skip
"""Values that options have in other libraries, in small letters, and what they are here."""


def one_of(value: Any, choices: Iterable[str], function: str, argument: str, *, advice: str = "") -> str:
    """`value` if it is one of the named `choices`; an error says which one the name of another library means."""
    names = list(choices)
    if not isinstance(value, str) or value not in names:
        small = value.lower() if isinstance(value, str) else ""
        meant = next((name for name in names if name.lower() == small or name == VALUES.get(small)), None)
        advice = f"Use {meant!r}." if meant and not advice else advice
        quoted = ", ".join(repr(name) for name in names)
        raise ValueError(message(function, argument, f"be one of {quoted}", repr(value), advice))
    return value


def samples_text(indices: Iterable[int], limit: int = 6, *, of: int | None = None) -> str:
    """Sample numbers for a message: ``samples 2, 5, 9`` or ``samples 0, 1, 2, ... (17 in all)``.

    In a model that a study calls with `of` samples, the numbers in the study: ``samples 66, 69 of the study``.
    """
    numbers, known = [int(i) for i in indices], sample_numbers()
    if in_study := known is not None and known.size == of:
        numbers = [int(known[i]) for i in numbers]
    word = "sample" if len(numbers) == 1 else "samples"
    shown = f"{word} {', '.join(str(i) for i in numbers[:limit])}"
    if len(numbers) > limit:
        shown += f", ... ({len(numbers)} in all)"
    return f"{shown} of the study" if in_study else shown


def bad_samples(good: Any) -> str:
    """Where entries of `good`, a bool array with samples last, are false: the samples, or "it" where there is one."""
    n = good.shape[-1]
    if n == 1:
        return "it"
    return samples_text(np.flatnonzero(~np.asarray(good).reshape(-1, n).all(axis=0)), of=n)


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest line outside this package, however many of its functions lie between."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
