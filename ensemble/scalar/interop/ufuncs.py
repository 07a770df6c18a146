"""NumPy's ufuncs on ensembles: ``np.sin(x)``, ``plain * x``, ``np.add.reduce(x)`` work or raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import is_array
from ensemble._check import kind_of, message, require_one_library
from ensemble._compile.trace.operations import ARRAY_API_NAMES
from ensemble._typing import Array
from ensemble.scalar._memory import refill
from ensemble.scalar._operators import NUMBERS as PYTHON_NUMBERS
from ensemble.scalar._operators import (
    is_foreign,
    operand,
    operand_error,
    weak_beside,
)
from ensemble.scalar.divergence.policy import agreed, failure, in_run, split
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.namespace import samples_of, set_of
from ensemble.scalar.plain_arrays import plain_array
from ensemble.scalar.pooled import LARGE, pooled
from ensemble.scalar.powers import array_power, power
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.row_reductions import reduced, running, sums_between
from ensemble.scalar.sample_set import common_set

__all__ = ["call_ufunc", "first_ensemble", "unsupported"]


def first_ensemble(values: Any) -> Any:
    """The first ensemble among nested arguments."""
    for value in values:
        if isinstance(value, Ensemble):
            return value
        inner = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else None
        found = None if inner is None else first_ensemble(inner)
        if found is not None:
            return found
    return None


def unsupported(function: str, why: str) -> TypeError:
    """Return the TypeError of a function of NumPy that cannot be lifted over samples; it names three ways out."""
    advice = "Use x.__array_namespace__(), x.samples (the last axis holds the samples) or per_sample."
    seen = f"one that is not: {why}"
    return TypeError(message(function, "a function of an Ensemble", "be lifted over the samples", seen, advice))


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The implementation of ``__array_ufunc__``."""
    if not options and method == "__call__" and ufunc.signature is None:
        result = _plain_call(ufunc, inputs)
        if result is not NotImplemented:
            return result
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    given = (*inputs, *(value for key, value in options.items() if key != "out"), *options.get("out", ()))
    if any(is_foreign(value) for value in given):
        return NotImplemented
    first = first_ensemble(given)
    if not isinstance(first.samples, np.ndarray):
        return _on_other_library(ufunc, method, inputs, options, first)
    if ufunc.signature is not None:
        return _generalised(ufunc, name, method, inputs, options, first)
    return METHODS[method](ufunc, name, inputs, dict(options))


def _plain_call(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """The common case in few steps: ensembles, arrays and numbers, no options; else NotImplemented."""
    if len(inputs) == 1:
        (value,) = inputs
        samples = value.samples
        if type(value) is not Ensemble or type(samples) is not np.ndarray:
            return NotImplemented
        results = pooled(ufunc, samples) if samples.size >= LARGE else None
        return result_of(ufunc(samples) if results is None else results, value.sample_set, ufunc.__name__)
    arrays: list[Array] = []
    sample_set = None
    for value in inputs:
        if type(value) is Ensemble:
            samples = value.samples
            if type(samples) is not np.ndarray:
                return NotImplemented
            if value.sample_set is not None:
                sample_set = set_of(*inputs)
            arrays.append(samples)
        elif type(value) is np.ndarray:
            arrays.append(value[..., None])
        elif isinstance(value, int | float | complex | np.number | np.bool):
            arrays.append(value)
        else:
            return NotImplemented
    try:
        if ufunc is np.power:  # a scalar's operator comes here too, and is of another routine than the ufunc
            whole = type(inputs[1]) in PYTHON_NUMBERS
            results = (power if isinstance(inputs[0], np.generic) else np.power if whole else array_power)(*arrays)
        else:
            size = max(getattr(array, "size", 0) for array in arrays)
            results = pooled(ufunc, *arrays) if size >= LARGE else None
            if results is None:
                results = ufunc(*arrays)
    except ValueError as error:
        samples_of(f"np.{ufunc.__name__}", *inputs)
        raise operand_error(error, *inputs) from None
    return result_of(results, sample_set, ufunc.__name__)


NUMBERS = frozenset(np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?")
"""The characters of dtypes whose values are numbers or booleans."""


def result_of(results: Any, sample_set: Any, name: str) -> Any:
    if type(results) is tuple:
        return tuple(result_of(r, sample_set, name) for r in results)
    if results.dtype.char not in NUMBERS:
        raise unsupported(f"np.{name}", f"the result has dtype {results.dtype}")
    return wrap(packed(results), sample_set)


def samples_in(value: Any) -> Any:
    """The operand on the samples: plain arrays gain the sample axis, numbers stay as they are."""
    if isinstance(value, Ensemble):
        return value.samples
    if isinstance(value, list | tuple):
        value = np.asarray(value)
    value = plain_array(value, "Ensemble", "operands")
    if not isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        value = np.asarray(value) if hasattr(value, "__array__") and not is_array(value) else value
    if not isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        value = operand(np.empty(1), value)
        if value is NotImplemented:
            raise TypeError(message("Ensemble", "operands", "be arrays or numbers", "another type"))
    return value[..., None] if isinstance(value, np.ndarray) else value


def refuse_value(name: str, target: Ensemble) -> None:
    """Raise in code that runs as if for one sample: NumPy does not write into its scalars."""
    if target.is_value and in_run():
        seen = "a value without axes, as a scalar is"
        raise failure(TypeError(message(name, "what is written to", "be an array", seen)))


def taken_outputs(name: str, options: dict[str, Any], n_samples: int) -> tuple[Ensemble | None, ...]:
    """The ensembles that `out` names, made wide enough; `options` then holds their arrays."""
    outputs = options.pop("out", None) or ()
    for output in outputs:
        if output is None:
            continue
        if not isinstance(output, Ensemble):
            seen, advice = kind_of(output), "A plain array cannot hold samples."
            raise TypeError(message(name, "out", "be an Ensemble", seen, advice))
        refuse_value(name, output)
        if output.is_shared and n_samples > 1:
            output._widen(n_samples)
    if outputs:
        options["out"] = tuple(None if output is None else output.samples for output in outputs)
    return outputs


def written_to_outputs(outputs: Any, results: Any, sample_set: Any, name: str) -> Any:
    """The results as ensembles: those of `outputs` where they were given; their set stays where inputs have none."""
    if not any(output is not None for output in outputs):
        return result_of(results, sample_set, name)
    for output in outputs:
        if output is not None:
            output.sample_set = output.sample_set if sample_set is None else sample_set
            refill(output._memory_token)
    several = results if isinstance(results, tuple) else (results,)
    final = tuple(result_of(r, sample_set, name) if o is None else o for r, o in zip(several, outputs, strict=True))
    return final if isinstance(results, tuple) else final[0]


def _call(ufunc: Any, name: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    where = options.get("where", True)
    n_samples = samples_of(name, *inputs, where)
    outputs = taken_outputs(name, options, n_samples)
    samples_of(name, *inputs, where, *outputs)
    sample_set = set_of(*inputs, where)
    arrays = [samples_in(value) for value in inputs]
    weak = [isinstance(value, Ensemble) and value._is_weak for value in inputs]
    if any(weak):
        strong = [getattr(a, "dtype", None) for a, own in zip(arrays, weak, strict=True) if not own]
        arrays = [weak_beside(a, *strong) if own else a for a, own in zip(arrays, weak, strict=True)]
    if "where" in options:
        options["where"] = samples_in(where)
        for output in outputs:  # which keeps some of its samples
            common_set(sample_set, None if output is None else output.sample_set)
    return written_to_outputs(outputs, ufunc(*arrays, **options), sample_set, ufunc.__name__)


def _outer(ufunc: Any, name: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    a, b = (value if isinstance(value, Ensemble) else wrap(np.asarray(value)[..., None]) for value in inputs)
    wide = a.samples.reshape((*a.shape, *(1,) * b.ndim, a.n_samples))
    return _call(ufunc, name, (wrap(wide, a.sample_set), b), options)


def _reduce(ufunc: Any, name: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    from ensemble.scalar.lift.reductions import visible_axes

    where, initial = options.pop("where", True), options.pop("initial", np._NoValue)
    if isinstance(initial, Ensemble | np.ndarray):
        raise unsupported(name, "initial= must be a number")
    n_samples = samples_of(name, inputs[0], where)
    x = _lifted(inputs[0])
    samples = np.broadcast_to(x.samples, (*x.shape, n_samples))
    outputs = taken_outputs(name, options, n_samples)
    samples_of(name, x, where, *outputs)
    axes = visible_axes(options.pop("axis", 0), x.ndim, name)
    options = {key: value for key, value in options.items() if value is not None}
    name_of = REDUCED.get(ufunc) if where is True and initial is np._NoValue and not outputs else None
    if name_of is not None and options.keys() <= {"keepdims"}:
        found = reduced(name_of, samples, axes, **options)
        if found is not None:
            return result_of(found, x.sample_set, ufunc.__name__)
    # NumPy distinguishes an absent `initial` from every value of it.
    given = {} if initial is np._NoValue else {"initial": initial}
    result = ufunc.reduce(samples, axis=axes, where=samples_in(where), **given, **options)
    return written_to_outputs(outputs, result, set_of(x, where), ufunc.__name__)


def _accumulate(ufunc: Any, name: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    from ensemble.scalar.lift.reductions import visible_axis

    x = _lifted(inputs[0])
    places = inputs[1:]
    if places:
        places = (_agreed_places(name, places[0]),)
    outputs = taken_outputs(name, options, x.n_samples)
    samples_of(name, x, *outputs)
    axis = visible_axis(options.pop("axis", 0), x.ndim, name)
    options = {key: value for key, value in options.items() if value is not None}
    if not places and not outputs and not options and ufunc in (np.add, np.multiply):
        found = running(x.samples, axis, ufunc is np.multiply)
        if found is not None:
            return result_of(found, x.sample_set, ufunc.__name__)
    if places and ufunc is np.add and not outputs and not options and axis == 0:
        found = sums_between(x.samples, places[0])
        if found is not None:
            return result_of(found, x.sample_set, ufunc.__name__)
    result = getattr(ufunc, "reduceat" if places else "accumulate")(x.samples, *places, axis=axis, **options)
    return written_to_outputs(outputs, result, x.sample_set, ufunc.__name__)


REDUCED: dict[Any, str] = {
    np.add: "sum",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_or: "any",
    np.logical_and: "all",
}
"""Ufuncs whose reduction is that of a function."""


def _agreed_places(name: str, places: Any) -> Any:
    if isinstance(places, Ensemble):
        if not agreed(places.samples):
            seen = f"{places.n_samples} samples that differ"
            raise split(f"the indices of {name} must be the same for all samples", seen, "Use per_sample.")
        return places.sample(0)
    return np.asarray(places)


def _lifted(value: Any) -> Ensemble:
    return value if isinstance(value, Ensemble) else wrap(np.asarray(value)[..., None])


def _at(ufunc: Any, name: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
    """``ufunc.at(x, indices, values)``: in place, index by index, each sample by itself."""
    from ensemble.scalar._indexing import index_of, items_of, with_samples

    x, key, *values = inputs
    if not isinstance(x, Ensemble):
        seen, advice = kind_of(x), "A plain array cannot hold samples."
        raise TypeError(message(name, "the array written to", "be an Ensemble", seen, advice))
    refuse_value(name, x)
    if isinstance(x.samples, np.ndarray) and not x.samples.flags.writeable:  # some of NumPy's loops do not look
        seen = "a part that cannot be written to"
        raise ValueError(message(name, "the array written to", "not be read-only", seen, "Write into x.copy()."))
    keys = [item for item in (key if isinstance(key, tuple) else (key,)) if isinstance(item, Ensemble)]
    n_samples = samples_of(name, x, *keys, *values)
    if x.is_shared and n_samples > 1:
        x._widen(n_samples)
    sample_set = set_of(x, *keys, *values)
    items = items_of(x, key)
    if any(isinstance(item, Ensemble) for item in items):
        columns = [value if isinstance(value, Ensemble) else _lifted(value) for value in values]
        for s in range(n_samples):
            place = tuple(index_of(item, s) for item in items)
            ufunc.at(x.samples[..., s], place, *(column.sample(s) for column in columns))
    else:
        ufunc.at(x.samples, with_samples(items), *(samples_in(value) for value in values))
    x.sample_set = sample_set
    refill(x._memory_token)


METHODS: dict[str, Callable[..., Any]] = {
    "__call__": _call,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "reduceat": _accumulate,
    "outer": _outer,
    "at": _at,
}


def _generalised(ufunc: Any, name: str, method: str, inputs: Any, options: dict[str, Any], first: Ensemble) -> Any:
    """A ufunc of vectors or matrices: samples become one more batch axis in front, and come back last."""
    if method != "__call__" or options.keys() - {"out", "dtype", "casting"}:
        raise unsupported(name, f"of its options only dtype, casting and out are lifted; got {sorted(options)}")
    if not options and ufunc.__name__ in ("matmul", "vecdot"):
        return getattr(first.__array_namespace__(), ufunc.__name__)(*inputs)
    outputs = options.pop("out", ())
    lifted = [_lifted(value) for value in inputs]
    n_samples = samples_of(name, *lifted)
    core = [len(part.split(",")) if part else 0 for part in ufunc.signature.partition("->")[0][1:-1].split("),(")]
    dropped: tuple[int, ...] = ()
    for x, n in zip(lifted, core, strict=True):
        least = 1 if "?" in ufunc.signature else n
        if x.ndim < least:
            raise ValueError(message(name, "operands", f"have {least} axes or more", f"shape {x.shape}"))
    if "?" in ufunc.signature:  # matmul: a vector is a matrix of one row or one column
        if lifted[0].ndim == 1:
            lifted[0], dropped = wrap(lifted[0].samples[None, :, :], lifted[0].sample_set), (*dropped, -2)
        if lifted[1].ndim == 1:
            lifted[1], dropped = wrap(lifted[1].samples[:, None, :], lifted[1].sample_set), (*dropped, -1)
    n_loops = max(x.ndim - n for x, n in zip(lifted, core, strict=True))
    fronts = []
    for x, n in zip(lifted, core, strict=True):
        front = np.moveaxis(x.samples, -1, 0)
        fronts.append(front.reshape(front.shape[0], *(1,) * (n_loops - x.ndim + n), *front.shape[1:]))
    results = ufunc(*fronts, **options)
    results = np.squeeze(results, axis=dropped) if dropped else results
    columns = [np.moveaxis(r, 0, -1) for r in (results if isinstance(results, tuple) else (results,))]
    found = [result_of(r, set_of(*lifted), ufunc.__name__) for r in columns]
    writing = {"out": outputs} if outputs else {}
    for k, output in enumerate(taken_outputs(name, writing, n_samples)):
        if output is not None:
            np.copyto(output.samples, found[k].samples, casting=options.get("casting", "same_kind"))
            output.sample_set = found[k].sample_set
            refill(output._memory_token)
            found[k] = output
    return tuple(found) if isinstance(results, tuple) else found[0]


def _on_other_library(ufunc: Any, method: str, inputs: Any, options: dict[str, Any], first: Ensemble) -> Any:
    """NumPy scalars with an ensemble of another library: its own function, on Python's numbers."""
    name = ARRAY_API_NAMES.get(ufunc.__name__, ufunc.__name__)
    plain = [value.item() if isinstance(value, np.generic) else value for value in inputs]
    arrays = [value for value in plain if is_array(value) and not isinstance(value, Ensemble)]
    require_one_library(f"np.{ufunc.__name__}", "operands", *arrays, first.samples)
    if method != "__call__" or options or any(isinstance(value, np.ndarray) for value in plain):
        raise unsupported(f"np.{ufunc.__name__}", f"the samples are {kind_of(first.samples)}")
    lifted = getattr(first.__array_namespace__(), name, None)
    if lifted is None:
        raise unsupported(f"np.{ufunc.__name__}", "it is not in the Array API")
    return lifted(*plain)


PROTOCOLS.call_ufunc = call_ufunc


def options_in(given: dict[str, Any], shape: tuple[int, ...], samples: Any) -> dict[str, Any]:
    """Give arrays among the options, of visible shapes, the axis of samples."""
    found = dict(given)
    mean, weights = given.get("mean"), given.get("weights")
    if mean is not None and mean is not np._NoValue:
        found["mean"] = np.asarray(mean)[..., None]
    if weights is not None and np.shape(weights) == shape:
        found["weights"] = np.broadcast_to(np.asarray(weights)[..., None], samples.shape)
    return found
