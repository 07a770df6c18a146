"""`vectorize`: a model of plain numbers, called once per sample."""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._check import kind_of, message
from ensemble._keywords import explains_calls
from ensemble._sample_numbers import numbered_by_place, numbered_in_turn
from ensemble.scalar import Ensemble
from ensemble.scalar.plain_arrays import masked_as_nan
from ensemble.uq.inputs.samples import PlainSample, UnknownInputError, plain_rows
from ensemble.uq.study.outputs import CallError, OutputError, Raised, blank
from ensemble.uq.study.sample_clock import SampleClock, running_clock

__all__ = ["VectorizedModel", "vectorize"]

FLOATS = frozenset((float, np.float64))


class VectorizedModel:
    """A model of plain numbers as a model of ensembles; made by `vectorize`."""

    def __init__(self, model: Callable[..., Any], keywords: bool) -> None:
        functools.update_wrapper(self, model)
        self.model, self.keywords = model, keywords

    def __call__(self, x: Any, /, *others: object) -> dict[str, Ensemble]:
        if others or not hasattr(x, "names"):
            seen = f"{len(others) + 1} arguments" if others else kind_of(x)
            advice = "Use ensemble.run(f, x), which calls f with numbers where samples differ."
            raise TypeError(message("vectorize", "x", "be the samples of inputs that propagate gives", seen, advice))
        results: list[Any] = []  # of each sample a float, its outputs by name, or None where it failed
        clock = running_clock.get()
        if clock is not None:
            self._timed(x, clock, results)
        else:
            with numbered_by_place(x.ids, results):
                self._in_turn(x, results)
        if set(map(type, results)) == {float}:
            return {"y": Ensemble(np.array(results))}
        found = {place: {"y": value} if type(value) is float else value
                 for place, value in enumerate(results) if value is not None}  # fmt: skip
        return stacked(found, x.ids)

    def _in_turn(self, x: Any, results: list[Any]) -> None:
        """Call the model for each sample; what happens for one costs nothing for the others."""
        model, append, given, by_name = self.model, results.append, *self._given(x)
        while True:
            try:
                if by_name:
                    for inputs in given:
                        value = model(**inputs)
                        if type(value) is float:
                            append(value)
                            continue
                        outputs = usual_outputs(value)
                        if outputs is None:
                            break
                        append(outputs)
                    else:
                        return
                else:
                    for inputs in given:
                        value = model(*inputs)
                        if type(value) is float:
                            append(value)
                            continue
                        outputs = usual_outputs(value)
                        if outputs is None:
                            break
                        append(outputs)
                    else:
                        return
            except (NameError, ImportError, SyntaxError, UnknownInputError):
                raise
            except Exception as error:
                self._failed(x, len(results), error)
                append(None)
                continue
            append(plain_outputs(value, int(x.ids[len(results)])))

    def _given(self, x: Any) -> tuple[Iterator[Any], bool]:
        """The arguments of each call, and whether they are by name."""
        names, rows = x.names, plain_rows(x)
        if not self.keywords:
            return plain_samples(names, rows, x.ids), False
        order = order_of_arguments(self.model, names)
        if order is None:
            return by_names(names, rows), True
        same = order == [*range(len(names))]
        return iter(rows) if same or not names else map(operator.itemgetter(*order), rows), False

    def _timed(self, x: Any, clock: SampleClock, results: list[Any]) -> None:
        """Call the model for each sample and start its time limit. A call that is late may go on: its number stays."""
        model, keywords, rows = self.model, self.keywords, by_names(x.names, plain_rows(x))
        with numbered_in_turn() as set_number:
            for place, (given, number) in enumerate(zip(rows, x.ids[:, None], strict=True)):
                set_number(number)
                clock.begin(place)
                try:
                    value = model(**given) if keywords else model(PlainSample(**given, _id=int(number[0])))
                except (NameError, ImportError, SyntaxError, UnknownInputError):
                    raise
                except Exception as error:
                    self._failed(x, place, error)
                    results.append(None)
                    continue
                results.append(value if type(value) is float else plain_outputs(value, int(number[0])))

    def _failed(self, x: Any, place: int, error: Exception) -> None:
        """Mark a sample as failed, unless the model does not take what it is given."""
        if isinstance(error, TypeError) and is_of_call(error):
            given = ", ".join(x.names) if self.keywords else "one argument, the sample"
            advice = "keywords=True gives it the inputs by name."
            text = message("vectorize", "model", f"take {given}", error, "" if self.keywords else advice)
            raise CallError(text) from error  # by the call itself, not inside the model
        x.fail(np.arange(x.n_samples) == place, Raised(error))

    def __repr__(self) -> str:
        return f"vectorize({getattr(self.model, '__name__', self.model)!s})"

    def __reduce__(self) -> str | tuple[object, ...]:
        """As a decorator it stands under the name of the function: then that name is what is pickled."""
        place: Any = sys.modules.get(getattr(self, "__module__", ""))
        name = getattr(self, "__qualname__", "")
        for part in name.split("."):
            place = getattr(place, part, None)
        return name if place is self else (VectorizedModel, (self.model, self.keywords))


def plain_samples(names: Sequence[str], rows: Iterable[tuple[Any, ...]], ids: np.ndarray) -> Iterator[tuple[Any]]:
    """Each sample with its number, as the one argument of a call."""
    for row, number in zip(rows, ids.tolist(), strict=True):
        sample = PlainSample(_id=number)
        vars(sample).update(zip(names, row, strict=True))  # half the time of keywords
        yield (sample,)


def by_names(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """The inputs of each sample by name."""
    return (dict(zip(names, row, strict=True)) for row in rows)


def order_of_arguments(model: Any, names: Sequence[str]) -> list[int] | None:
    """The places in `names` of the first arguments of a function, which can then be called without names.

    None where that might not be the call by name: other callables, arguments that have to be named, or are missing.
    """
    if type(model) is not types.FunctionType:
        return None
    code, defaults = model.__code__, len(model.__defaults__ or ())
    arguments = code.co_varnames[: code.co_argcount]
    named = len(model.__kwdefaults__ or ()) == code.co_kwonlyargcount
    first, others = arguments[: len(names)], arguments[len(names) :]
    if not named or code.co_posonlyargcount or len(others) > defaults or {*first} != {*names}:
        return None
    return [names.index(argument) for argument in first]


def is_of_call(error: Exception) -> bool:
    """Whether a call in `VectorizedModel` raised it, and not the model inside."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def usual_outputs(value: Any) -> dict[str, Any] | None:
    """The outputs of one sample by name: floats, tuples of floats, arrays of numbers; None where others are among them.

    Lists and arrays are copied: the model may return one again and again.
    """
    result: dict[str, Any] = {}
    for name, one in (value if type(value) is dict else {"y": value}).items():
        kind = type(one)
        if kind in FLOATS:
            result[name] = one
        elif kind is np.ndarray and one.dtype.kind in "biufc":
            result[name] = one.copy()
        elif kind in (list, tuple) and FLOATS.issuperset(map(type, one)):
            result[name] = tuple(one)
        else:
            return None
    return result


def plain_outputs(value: Any, sample: int) -> dict[str, Any]:
    """The outputs of one sample by name: floats as they are, others as arrays; integers of Python as floats."""
    result: dict[str, Any] = {}
    for name, one in (value if type(value) is dict or isinstance(value, Mapping) else {"y": value}).items():
        if isinstance(one, int) and not isinstance(one, bool):
            one = float(one)
        if type(one) in FLOATS:
            result[name] = one
            continue
        one = masked_as_nan(one)
        given = to_numpy(one) if is_array(one) and not isinstance(one, Ensemble) else _numbers(one)
        array = np.array(given)  # a copy: the model may return one array again and again
        if array.dtype.kind not in "biufc":
            requirement = "be a number or an array of numbers"
            raise OutputError(message("vectorize", f"output {name!r}", requirement, f"{one!r} in sample {sample}"))
        result[name] = array
    return result


def _numbers(value: Any) -> Any:
    return value if isinstance(value, (int, float, complex, np.generic, list, tuple)) else np.array(value, object)


def stacked(found: Mapping[int, dict[str, Any]], ids: np.ndarray) -> dict[str, Ensemble]:
    """The outputs of the samples at places `found` as ensembles over all `ids`."""
    if not found:
        return {}
    first, places = next(iter(found)), list(found)
    orders = set(map(tuple, found.values()))
    if len(orders) == 1:  # the usual case: all have the same names, in one order
        columns = zip(*(outputs.values() for outputs in found.values()), strict=True)
        return {
            name: Ensemble(_column(name, places, column, ids))
            for name, column in zip(orders.pop(), columns, strict=True)
        }
    for place, outputs in found.items():
        if outputs.keys() != found[first].keys():
            seen = f"{', '.join(map(repr, outputs))} in sample {ids[place]}"
            requirement = f"be {', '.join(map(repr, found[first]))} as in sample {ids[first]}"
            raise OutputError(message("vectorize", "outputs", requirement, seen))
    return {
        name: Ensemble(_column(name, places, [outputs[name] for outputs in found.values()], ids))
        for name in found[first]
    }


def _column(name: str, places: list[int], values: Sequence[Any], ids: np.ndarray) -> np.ndarray:
    """The samples of one output, `values` at `places`."""
    if FLOATS.issuperset(map(type, values)):
        samples = blank((), np.dtype(np.float64), ids.size)
        samples[places] = values
        return samples
    if set(map(type, values)) == {tuple} and len(set(map(len, values))) == 1:
        lists = np.array(values, np.float64)
        samples = blank(lists.shape[1:], lists.dtype, ids.size)
        samples[:, places] = lists.T
        return samples
    arrays = [np.asarray(value) for value in values]
    shape = arrays[0].shape
    samples = blank(shape, np.result_type(*{array.dtype for array in arrays}), ids.size)
    if {array.shape for array in arrays} == {shape}:
        samples[..., places] = np.moveaxis(np.array(arrays), 0, -1)
        return samples
    for place, array in zip(places, arrays, strict=True):
        if array.shape != shape:
            seen = f"shape {array.shape} in sample {ids[place]}"
            requirement = f"have shape {shape} as in sample {ids[places[0]]}"
            raise OutputError(message("vectorize", f"output {name!r}", requirement, seen))
        samples[..., place] = array
    return samples


@explains_calls("vectorize")
def vectorize(model: Callable[..., Any], *, keywords: bool = False) -> VectorizedModel:
    """Make a model of plain numbers one that `propagate` takes: a loop over the samples of a group.

    Parameters
    ----------
    model : callable
        Takes an object with a plain number, array, label or field for each input, and returns a number, an array, or a
        dict of them by name. Also as a decorator.
    keywords : bool
        Call ``model(E=..., nu=...)`` instead of ``model(x)`` with ``x.E`` and ``x.nu``.

    Returns
    -------
    VectorizedModel
        It takes input samples and returns Ensembles. A sample on which the model raises has failed, alone; where the
        first samples of a study all raise the same, the study ends with that error, as `propagate` says.

    Raises
    ------
    ValueError
        When it is called: if a sample's outputs have other names or shapes than the first one's, or hold no numbers.
    TypeError
        If `model` cannot be called, or, when it is called, does not take what it is given.
    AttributeError
        When it is called: if the model reads an input that does not exist.

    Notes
    -----
    `en.run` runs code with branches on many samples at once instead, where it can.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> def beam(load, stiffness):
    ...     if stiffness < 0.0:
    ...         raise ValueError("negative stiffness")
    ...     return load / stiffness
    >>> inputs = en.Inputs(load=stats.uniform(1.0, 1.0), stiffness=stats.norm(3.0, 0.1))
    >>> result = en.propagate(en.vectorize(beam, keywords=True), inputs, 64, seed=3, progress=False)
    >>> round(float(result.mean("y")), 1)
    0.5
    """
    if not callable(model):
        raise TypeError(message("vectorize", "model", "be callable", kind_of(model)))
    return VectorizedModel(model, bool(keywords))
