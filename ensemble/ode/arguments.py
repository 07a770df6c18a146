"""Checks of single arguments of `solve`, and their arrays."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, is_array, prototype, to_numpy
from ensemble._check import message, one_of, require, require_arguments
from ensemble._compile.device import current_device, device_array
from ensemble._keywords import call_error
from ensemble._typing import Array
from ensemble.scalar import Ensemble
from ensemble.scalar.ensemble import wrap
from ensemble.scalar.namespace import set_of

__all__ = [
    "ARGUMENTS",
    "NAME",
    "bound_arguments",
    "check_numbers",
    "check_times",
    "events_of",
    "fixed_steps",
    "like_of",
    "number",
    "numbers_of",
    "on_device",
    "require_no_events",
    "require_real",
    "sign",
    "stacked",
    "step_counts",
    "together",
]

NAME = "ode.solve"

ARGUMENTS = "t, y, p, xp"
"""Of right-hand sides, noises, events and functionals."""

MOST_KEPT = 4096
"""Bytes of numbers whose copy on a device is kept."""


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Found once: it takes 80 us."""
    return inspect.signature(function)


@functools.cache
def _names(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """The arguments without a default, which come first, and the defaults of the others."""
    parameters = _signature(function).parameters.values()
    required = [each.name for each in parameters if each.default is each.empty]
    return required, {each.name: each.default for each in parameters if each.default is not each.empty}


def bound_arguments(
    function: Callable[..., Any], name: str, *arguments: Any, **keywords: Any
) -> types.SimpleNamespace:  # fmt: skip
    """The arguments of a call of `function`, with its names and defaults."""
    required, defaults = _names(function)
    if len(arguments) == len(required) and keywords.keys() <= defaults.keys():
        return types.SimpleNamespace(**dict(zip(required, arguments, strict=True)), **(defaults | keywords))
    try:
        bound = _signature(function).bind(*arguments, **keywords)
    except TypeError:
        raise call_error(function, name, arguments, keywords) or TypeError(name) from None
    bound.apply_defaults()
    return types.SimpleNamespace(**bound.arguments)


NOTHING = Ensemble(np.zeros((0, 1)))
"""A vector without entries; nobody writes to it."""


def count_by_name(values: Mapping[str, Ensemble]) -> int:
    """The common number of samples of arguments; one error names those that differ."""
    counts = {name: value.n_samples for name, value in values.items() if value.n_samples > 1}
    if len(set(counts.values())) > 1:
        seen = ", ".join(f"{name}: {n}" for name, n in counts.items())
        raise ValueError(message(NAME, " and ".join(counts), "have one number of samples, or be shared", seen))
    return next(iter(counts.values()), 1)


def stacked(value: Any, name: str) -> Ensemble:
    """A vector of samples, from an array, an Ensemble or a list of numbers and Ensembles."""
    if type(value) is tuple and not value:
        return NOTHING
    if isinstance(value, list | tuple) and any(isinstance(part, Ensemble) for part in value):
        parts = [number(part, f"{name}[{k}]") for k, part in enumerate(value)]
        n_samples = count_by_name({f"{name}[{k}]": part for k, part in enumerate(parts)})
        given = [part.samples for part in value if isinstance(part, Ensemble)]
        xp = array_namespace(*given)
        dtype = xp.result_type(*given)  # plain numbers take it, as they do beside arrays
        dtype = dtype if xp.isdtype(dtype, "real floating") else xp.float64
        rows = [xp.broadcast_to(xp.asarray(part.samples, dtype=dtype), (n_samples,)) for part in parts]
        value = wrap(xp.stack(rows), set_of(*value))
    if not isinstance(value, Ensemble):
        if np.isscalar(value):
            raise ValueError(message(NAME, name, "have one axis", repr(value), f"Write [{value!r}] for one entry."))
        try:
            array = value if is_array(value) else np.asarray(value, dtype=None if len(value) else np.float64)
        except (TypeError, ValueError):  # a ragged list, or an object without a length
            raise TypeError(message(NAME, name, "be an array, an Ensemble or a list of numbers", repr(value))) from None
        if not _is_of(array.dtype, "biufc", ("bool", "float", "int", "uint", "complex")):
            raise TypeError(message(NAME, name, "be real numbers", str(array.dtype)))
        value = Ensemble(array[..., None])
    assert isinstance(value, Ensemble)
    if value.ndim != 1:
        advice = "Write Ensemble(x) for an array whose last axis is the samples." if value.ndim == 2 else ""
        require(False, NAME, name, "have one axis", f"shape {value.shape}", advice)
    require_real(value, name)
    return value


def require_real(value: Ensemble, name: str, function: str = NAME) -> None:
    """Refuse samples that are no real numbers, or of a library that no loop is for."""
    if not isinstance(value.samples, np.ndarray) and backend_of(value.samples) != "cuda":
        library = type(value.samples).__module__.partition(".")[0]
        raise TypeError(message(function, name, "be of NumPy or CuPy", f"an array of {library}"))
    if not _is_of(value.dtype, "fiu", ("float", "int", "uint")):
        require(False, function, name, "be real numbers", str(value.dtype), "Split complex unknowns.")


def _is_of(dtype: Any, kinds: str, names: tuple[str, ...]) -> bool:
    """Whether a type is one of NumPy's `kinds`; the text of a type, which other libraries need, takes a microsecond."""
    return dtype.kind in kinds if isinstance(dtype, np.dtype) else str(dtype).startswith(names)


def numbers_of(o: types.SimpleNamespace, t: Any) -> dict[str, Ensemble]:
    """Return the times, the tolerance and the steps of a solve by the names that errors have for them."""
    pair = isinstance(t, list | tuple) or (isinstance(t, np.ndarray) and t.ndim == 1)
    if not (pair and len(t) == 2):
        require(False, NAME, "t", "be a pair (t0, t1)", repr(t))
    wanted = {"t[0]": t[0], "t[1]": t[1], "rtol": o.rtol, "max_step": np.inf if o.max_step is None else o.max_step}
    wanted |= {name: value for name in ("step", "first_step") if (value := getattr(o, name)) is not None}
    return {name: number(value, name) for name, value in wanted.items()}


def like_of(given: list[Ensemble], backend: str) -> Array:
    """Return an array of the library that the solve runs in: of a device if an argument is there, else of `backend`."""
    like = next((each.samples for each in given if backend_of(each.samples) == "cuda"), None)
    if like is None:
        one_of(backend, ("numpy", "cupy"), NAME, "backend")
        like = prototype(backend)
    return like


def number(value: Any, name: str) -> Ensemble:
    """One number per sample."""
    if isinstance(value, Ensemble):
        if value.ndim:
            require(False, NAME, name, "be a number or have shape ()", f"shape {value.shape}")
        require_real(value, name)
        return value
    if isinstance(value, str | bytes):
        raise TypeError(message(NAME, name, "be a number or an Ensemble of shape ()", repr(value)))
    try:
        return Ensemble(np.asarray([float(value)]))
    except (TypeError, ValueError):
        raise TypeError(message(NAME, name, "be a number or an Ensemble of shape ()", repr(value))) from None


def check_numbers(
    given: dict[str, Array], numbers: dict[str, Ensemble], absolute: Array, atol: Ensemble, n: int
) -> None:
    """Tolerances, times and step lengths of all samples are in range."""
    require(atol.shape[0] in (1, n), NAME, "atol", f"be a number or have shape ({n},)", atol.shape)
    for name in ("t[0]", "t[1]"):
        _require_all(abs(given[name]) < np.inf, name, "be finite", numbers[name])
    for name in ("rtol", "step", "first_step"):
        if name in given:
            _require_all(given[name] > 0.0, name, "be above zero", numbers[name])
            _require_all(given[name] < np.inf, name, "be finite", numbers[name])
    _require_all(given["max_step"] > 0.0, "max_step", "be above zero", numbers["max_step"])
    _require_all(absolute >= 0.0, "atol", "be zero or above", atol)
    _require_all(absolute < np.inf, "atol", "be finite", atol)


def _require_all(condition: Array, name: str, requirement: str, x: Ensemble) -> None:
    """Raise unless a condition on `x` holds for all samples; a text is made where it is needed, as calls are short."""
    if not condition.all():
        require(False, NAME, name, requirement, _shown(x))


def _shown(x: Ensemble) -> Any:
    values = to_numpy(x.samples).reshape(-1)
    return float(values[0]) if values.size == 1 else f"values from {values.min():.6g} to {values.max():.6g}"


def sign(x: Array) -> Array:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def together(a: Array, b: Array, operation: Any) -> Array:
    """A ufunc of two arrays, of which a NumPy one, shared by the samples, follows the other to its device."""
    if type(a) is not type(b):
        a, b = asarray_like(a, b), asarray_like(b, a)
    return operation(a, b)


def on_device(rows: list[Array], like: Array) -> list[Array]:
    """The arrays on the device of `like`; NumPy's are small and copied together."""
    host = [row for row in rows if isinstance(row, np.ndarray)]
    if isinstance(like, np.ndarray) or not host:
        return rows
    flat, shapes = np.concatenate([row.reshape(-1) for row in host]), tuple(row.shape for row in host)
    if flat.nbytes <= MOST_KEPT:
        there = iter(_copies(flat.tobytes(), flat.dtype.str, shapes, current_device()))
    else:
        there = iter(_split(asarray_like(flat, like), shapes))
    return [next(there) if isinstance(row, np.ndarray) else row for row in rows]


def _split(flat: Array, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    """Arrays of these shapes, one after another in a flat one."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [flat[end - math.prod(shape) : end].reshape(shape) for shape, end in zip(shapes, ends.tolist(), strict=True)]


@functools.lru_cache(maxsize=256)
def _copies(numbers: bytes, dtype: str, shapes: tuple[tuple[int, ...], ...], device: int) -> list[Array]:
    """The same numbers on a device, kept for the next call: nothing writes to them, and no result holds them."""
    return _split(device_array(np.frombuffer(numbers, dtype)), shapes)


def step_counts(span: np.ndarray, step: np.ndarray, size: np.ndarray, dtype: str) -> np.ndarray:
    """The number of steps of length `step` in `span`, the last of which may be shorter.

    `size` is the sum of the magnitudes of both ends. A rest of their rounding is no step: the last one is longer by it,
    by a hundredth at most.
    """
    step = np.where(step == 0.0, 1.0, step)  # of a sample that stays at its start
    exact = span.astype(np.float64) / step
    nearest, eps = np.rint(exact), float(np.finfo(dtype).eps)
    rounding = 8.0 * eps * nearest + np.minimum(eps * size / step, 0.01)
    counts: np.ndarray = np.where((abs(exact - nearest) <= rounding) & (nearest > 0.0), nearest, np.ceil(exact))
    return counts


def fixed_steps(given: dict[str, Array], direction: Array, dtype: str) -> tuple[Array, Array]:
    """The number of fixed steps and their length with its sign."""
    t0, t1, step = (to_numpy(given[name]) for name in ("t[0]", "t[1]", "step"))
    counts = step_counts(abs(t1 - t0), step, abs(t0) + abs(t1), dtype)
    most = 2 ** (np.finfo(dtype).nmant + 1)
    seen = float(counts.max())
    require(seen <= most, NAME, "step", f"need at most {most} steps of {dtype}", f"{seen:.3g} steps")
    return asarray_like(counts.astype(dtype), given["step"]), together(given["step"], direction, np.multiply)


def check_times(times: Array, given: dict[str, Array], direction: Array, t_eval: Ensemble) -> None:
    if times.shape[0]:
        _require_all(abs(times) < np.inf, "t_eval", "be ordered, finite numbers", t_eval)
        steps = together(times[1:, :] - times[:-1, :], direction, np.multiply)
        _require_all(steps >= 0.0, "t_eval", "be ordered from t0 to t1", t_eval)
        ends = ((times[0, :], given["t[0]"], 1.0), (times[-1, :], given["t[1]"], -1.0))
        for time, end, side in ends:
            distance = together(time, end, np.subtract)
            inside = together(distance, direction, np.multiply) * side >= 0.0
            moves = together(direction, distance * 0.0, np.add) != 0.0  # t0 = t1 is the one time of a sample at rest
            _require_all(inside & (moves | (distance == 0.0)), "t_eval", "lie between t0 and t1", t_eval)


def require_no_events(options: Mapping[str, Any], function: str, advice: str) -> None:
    """Refuse events among the options of a function that runs without."""
    events = options.get("events")
    require(events is None or events in ((), []), function, "events", "be left out", "events", advice)


def events_of(events: Any) -> tuple[tuple[Callable[..., Any], ...], list[int], list[int]]:
    """The event functions, the roots that end a run, and the sides that count."""
    events = () if events is None else events
    functions: Sequence[Any] = tuple(events) if isinstance(events, list | tuple) else (events,)
    terminal, sides = [], []
    for g in functions:
        require(callable(g), NAME, "events", "be callable", repr(g))
        require_arguments(g, ARGUMENTS, NAME, "events")
        last, direction = getattr(g, "terminal", False), getattr(g, "direction", 0)
        last = False if last is None else last
        rule = "have a terminal that is True, False or the number of a root"
        try:
            terminal.append(operator.index(last))
        except TypeError:
            raise TypeError(message(NAME, "events", rule, repr(last))) from None
        require(terminal[-1] >= 0, NAME, "events", rule, repr(last))
        if not isinstance(direction, int | float | np.number):
            raise TypeError(message(NAME, "events", "have a direction that is a number", repr(direction)))
        require(direction == direction, NAME, "events", "have a direction that is a number", repr(direction))
        sides.append(int(np.sign(direction)))
    return tuple(functions), terminal, sides
