"""Python floats in a run: the results of ``math.sin(x)`` per sample, and arithmetic on them.

A function of `math` returns a float of Python, not of NumPy: a division of it by zero raises, its fractional power may
be complex, and a comparison of it is a bool of Python. Inside a run that holds for each sample.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._containers import mapped
from ensemble.scalar._operators import weak_beside
from ensemble.scalar.divergence.branching import ensembles_in
from ensemble.scalar.divergence.paths import Follower
from ensemble.scalar.divergence.policy import policy_in_force
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import SampleSet

__all__ = ["PythonFloat", "lifted", "python_floats"]

EXACT_INTEGERS = 2**53

FLOAT_FUNCTIONS = frozenset(
    getattr(math, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "degrees", "erf", "erfc",
        "exp", "expm1", "fabs", "fmod", "gamma", "hypot", "lgamma", "log", "log10", "log1p", "log2", "pow", "radians",
        "sin", "sinh", "sqrt", "tan", "tanh",
    )
)  # fmt: skip
"""Functions of `math` that give a float whatever they are given."""


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of Python's numbers, which takes the ensembles of a run: called once for every sample."""

    @functools.wraps(function)
    def sample_by_sample(*arguments: Any, **options: Any) -> Any:
        follower = policy_in_force.get()
        if isinstance(follower, Follower):
            found = ensembles_in((arguments, options))
            if found and all(_is_carried(x, follower) for x in found):
                return _of_each_sample(function, arguments, options, found, follower)
        return function(*arguments, **options)

    return sample_by_sample


def _is_carried(x: Ensemble, follower: Follower) -> bool:
    samples = x.samples
    return type(samples) is np.ndarray and samples.ndim == 1 and samples.shape[0] in (1, follower.ids.size)


def _of_each_sample(
    function: Callable[..., Any], arguments: Any, options: Any, found: list[Ensemble], follower: Follower
) -> Any:
    columns = {id(x): x.samples.tolist() for x in found}

    def number(x: Any, s: int) -> Any:
        column = columns[id(x)] if isinstance(x, Ensemble) else None
        return x if column is None else column[s if len(column) > 1 else 0]

    if all(x.is_shared for x in found):
        return function(*mapped(lambda x: number(x, 0), arguments), **mapped(lambda x: number(x, 0), options))
    flat = all(isinstance(x, Ensemble) or not isinstance(x, list | tuple | dict) for x in arguments) and not options
    sets = [x.sample_set for x in found if x.sample_set is not None]
    sample_set = sets[0] if sets else None
    n_samples, errors = follower.ids.size, dict[int, Exception]()
    if flat and follower.followed.size == n_samples:
        rows = [columns[id(x)] if isinstance(x, Ensemble) else [x] for x in arguments]
        calls = map(function, *[row if len(row) == n_samples else row * n_samples for row in rows])
        try:
            if function in FLOAT_FUNCTIONS:
                return python_floats(np.fromiter(calls, np.float64, n_samples), sample_set)
        except Exception:  # in which samples, is found below
            pass
    values: list[Any] = [None] * n_samples
    for s in follower.followed.tolist():
        try:
            if flat:
                values[s] = function(*[number(x, s) for x in arguments])
            else:
                row, named = mapped(functools.partial(number, s=s), (arguments, options))
                values[s] = function(*row, **named)
        except Exception as error:
            errors[s] = error.with_traceback(None)
    if errors:
        _raise_per_sample(errors, follower)
    return _common_value(values, follower, sample_set)


def python_number(x: Ensemble) -> Any:
    """What ``x.item()`` gives for each sample of a run: a number of Python; `x` itself outside of one.

    Its division by zero raises, its integers have no largest one, and beside an array it has no type of its own.
    """
    follower = policy_in_force.get()
    if not isinstance(follower, Follower) or isinstance(x, PythonFloat):
        return x
    kind = next((kind for name, kind in KINDS.items() if x._base().isdtype(x.samples.dtype, name)), None)
    if kind is float and _is_carried(x, follower):
        return python_floats(x.samples.astype(np.float64), x.sample_set)
    return x if kind is None else kind(x)


KINDS = {"bool": bool, "integral": int, "real floating": float, "complex floating": complex}

PROTOCOLS.python_number = python_number


def _raise_per_sample(errors: dict[int, Exception], follower: Follower) -> None:
    """Group the samples by the exception that a function raised for them, or none."""
    fine = np.array([s not in errors for s in range(follower.ids.size)])
    if follower.truth(fine):
        return
    kinds = {s: (type(error), str(error)) for s, error in errors.items()}
    chosen = _partition_by_value([kinds.get(s) for s in range(follower.ids.size)], follower)
    follower.known.append(errors[chosen])
    raise errors.pop(chosen)


def _partition_by_value(values: list[Any], follower: Follower) -> int:
    """Group the samples by their values, which need no order; the first sample of the group that continues."""
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return follower.number(np.array(codes), "number")


def _common_value(values: list[Any], follower: Follower, sample_set: SampleSet | None) -> Any:
    """One value for all followed samples."""
    first = follower.followed[0]
    kinds = {type(values[s]) for s in follower.followed.tolist()}
    values = [values[first] if value is None else value for value in values]
    if kinds == {float}:
        return python_floats(np.array([v if type(v) is float else np.nan for v in values]), sample_set)
    if kinds == {bool}:
        return follower.truth(np.array([value is True for value in values]))
    if kinds == {int}:
        small = all(type(v) is int and abs(v) < EXACT_INTEGERS for v in values)
        return values[follower.number(np.array(values), "number") if small else _partition_by_value(values, follower)]
    if kinds == {tuple}:
        columns = [[value[k] for value in values] for k in range(len(values[first]))]
        return tuple(_common_value(column, follower, sample_set) for column in columns)
    raise follower.refused(TypeError(f"{' and '.join(sorted(kind.__name__ for kind in kinds))} from several samples"))


# -- floats of Python --------------------------------------------------------------------------------------------------


def _arithmetic(name: str, operation: Callable[[Any, Any], Any], reflected: bool = False) -> Callable[[Any, Any], Any]:
    """An operation that never raises, on all samples at once."""
    of_arrays = getattr(Ensemble, name)
    per_sample = _per_sample(name, operation, reflected)

    def method(self: PythonFloat, other: Any) -> Any:
        kind = type(other)
        if kind is PythonFloat:
            right = other.samples
        elif kind is float or (kind is int and abs(other) <= EXACT_INTEGERS):
            right = other
        else:
            return per_sample(self, other)
        with np.errstate(all="ignore"):  # Python's floats do not warn
            samples = operation(right, self.samples) if reflected else operation(self.samples, right)
        known = self.sample_set
        return python_floats(samples, other.sample_set if known is None and kind is PythonFloat else known)

    return functools.wraps(of_arrays)(method)


def _per_sample(name: str, operation: Callable[[Any, Any], Any], reflected: bool = False) -> Callable[[Any, Any], Any]:
    """An operation that may raise or give something else than a float: sample by sample."""
    of_arrays, of_floats = getattr(Ensemble, name), lifted(operation)

    def method(self: PythonFloat, other: Any) -> Any:
        plain = type(other) is PythonFloat or type(other) in (float, int, bool, complex)
        if plain and isinstance(policy_in_force.get(), Follower):
            return of_floats(other, self) if reflected else of_floats(self, other)
        samples = other.samples if isinstance(other, Ensemble) else other
        mine = weak_beside(self.samples, getattr(samples, "dtype", None))
        return of_arrays(wrap(mine, self.sample_set), other)

    return functools.wraps(of_arrays)(method)


class PythonFloat(Ensemble):
    """A float of Python for each sample of a run."""

    __slots__ = ()
    _is_weak = True

    __add__ = _arithmetic("__add__", operator.add)
    __radd__ = _arithmetic("__radd__", operator.add, reflected=True)
    __sub__ = _arithmetic("__sub__", operator.sub)
    __rsub__ = _arithmetic("__rsub__", operator.sub, reflected=True)
    __mul__ = _arithmetic("__mul__", operator.mul)
    __rmul__ = _arithmetic("__rmul__", operator.mul, reflected=True)
    __truediv__ = _per_sample("__truediv__", operator.truediv)
    __rtruediv__ = _per_sample("__rtruediv__", operator.truediv, reflected=True)
    __floordiv__ = _per_sample("__floordiv__", operator.floordiv)
    __rfloordiv__ = _per_sample("__rfloordiv__", operator.floordiv, reflected=True)
    __mod__ = _per_sample("__mod__", operator.mod)
    __rmod__ = _per_sample("__rmod__", operator.mod, reflected=True)
    __divmod__ = _per_sample("__divmod__", divmod)
    __rdivmod__ = _per_sample("__rdivmod__", divmod, reflected=True)  # type: ignore[assignment]
    __pow__ = _per_sample("__pow__", operator.pow)
    __rpow__ = _per_sample("__rpow__", operator.pow, reflected=True)
    __lt__ = _per_sample("__lt__", operator.lt)
    __le__ = _per_sample("__le__", operator.le)
    __gt__ = _per_sample("__gt__", operator.gt)
    __ge__ = _per_sample("__ge__", operator.ge)
    __eq__ = _per_sample("__eq__", operator.eq)
    __ne__ = _per_sample("__ne__", operator.ne)
    __hash__ = Ensemble.__hash__

    # A float cannot change: the name gets another value.
    __iadd__, __isub__, __imul__ = __add__, __sub__, __mul__
    __itruediv__, __ifloordiv__, __imod__, __ipow__ = __truediv__, __floordiv__, __mod__, __pow__

    def __round__(self, digits: int | None = None) -> Any:
        return lifted(round)(self) if digits is None else lifted(round)(self, digits)

    def is_integer(self) -> Any:
        return lifted(float.is_integer)(self)


def python_floats(samples: np.ndarray, sample_set: SampleSet | None) -> PythonFloat:
    """Floats of Python, shape (n_samples,)."""
    x: PythonFloat = object.__new__(PythonFloat)
    x.samples, x.sample_set, x._memory_token = samples, sample_set, None
    return x
