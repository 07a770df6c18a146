"""`vectorize`: a model of plain numbers, called once per sample."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._check import kind_of, message
from ensemble._sample_numbers import numbered_samples
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.samples import UnknownInputError
from ensemble.uq.study.outputs import CallError, OutputError, Raised, blank

__all__ = ["VectorizedModel", "vectorize"]


class VectorizedModel:
    """A model of plain numbers as a model of ensembles; made by `vectorize`."""

    def __init__(self, model: Callable[..., Any], keywords: bool) -> None:
        functools.update_wrapper(self, model)
        self.model, self.keywords = model, keywords

    def __call__(self, x: Any) -> dict[str, Ensemble]:
        found: dict[int, dict[str, np.ndarray]] = {}
        for place in range(x.n_samples):
            sample = x.sample(place)
            try:
                with numbered_samples(x.ids[place : place + 1]):
                    value = self._value(sample, x.names)
            except (NameError, ImportError, SyntaxError, UnknownInputError):
                raise
            except Exception as error:
                if isinstance(error, TypeError) and is_of_call(error):
                    given = ", ".join(x.names) if self.keywords else "one argument, the sample"
                    advice = "keywords=True gives it the inputs by name."
                    text = message("vectorize", "model", f"take {given}", error, "" if self.keywords else advice)
                    raise CallError(text) from error  # by the call itself, not inside the model
                mask = np.arange(x.n_samples) == place
                x.fail(mask, Raised(error))
                continue
            found[place] = plain_outputs(value, int(x.ids[place]))
        return stacked(found, x.ids)

    def _value(self, sample: Any, names: tuple[str, ...]) -> Any:
        return self.model(**{name: sample[name] for name in names}) if self.keywords else self.model(sample)

    def __repr__(self) -> str:
        return f"vectorize({getattr(self.model, '__name__', self.model)!s})"

    def __reduce__(self) -> Any:
        """As a decorator it stands under the name of the function: then that name is what is pickled."""
        place: Any = sys.modules.get(getattr(self, "__module__", ""))
        name = getattr(self, "__qualname__", "")
        for part in name.split("."):
            place = getattr(place, part, None)
        return name if place is self else (VectorizedModel, (self.model, self.keywords))


def is_of_call(error: Exception) -> bool:
    """Whether a call in `VectorizedModel` raised it, and not the model inside."""
    called = error.__traceback__ and error.__traceback__.tb_next
    return called is not None and called.tb_next is None


def plain_outputs(value: Any, sample: int) -> dict[str, np.ndarray]:
    """The outputs of one sample by name; Python's numbers as float64 or complex128."""
    result = {}
    for name, one in (value if isinstance(value, Mapping) else {"y": value}).items():
        if isinstance(one, int) and not isinstance(one, bool):
            one = float(one)
        array = to_numpy(one) if is_array(one) and not isinstance(one, Ensemble) else np.asarray(_numbers(one))
        if array.dtype.kind not in "biufc":
            requirement = "be a number or an array of numbers"
            raise OutputError(message("vectorize", f"output {name!r}", requirement, f"{one!r} in sample {sample}"))
        result[name] = array
    return result


def _numbers(value: Any) -> Any:
    return value if isinstance(value, (int, float, complex, np.generic, list, tuple)) else np.array(value, object)


def stacked(found: Mapping[int, dict[str, np.ndarray]], ids: np.ndarray) -> dict[str, Ensemble]:
    """The outputs of the samples at places `found` as ensembles over all `ids`."""
    if not found:
        return {}
    first = next(iter(found))
    for place, outputs in found.items():
        if outputs.keys() != found[first].keys():
            seen = f"{', '.join(map(repr, outputs))} in sample {ids[place]}"
            requirement = f"be {', '.join(map(repr, found[first]))} as in sample {ids[first]}"
            raise OutputError(message("vectorize", "outputs", requirement, seen))
    result = {}
    for name, array in found[first].items():
        dtype = np.result_type(*(outputs[name].dtype for outputs in found.values()))
        samples = blank(array.shape, dtype, ids.size)
        for place, outputs in found.items():
            if outputs[name].shape != array.shape:
                seen = f"shape {outputs[name].shape} in sample {ids[place]}"
                requirement = f"have shape {array.shape} as in sample {ids[first]}"
                raise OutputError(message("vectorize", f"output {name!r}", requirement, seen))
            samples[..., place] = outputs[name]
        result[name] = Ensemble(samples)
    return result


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
