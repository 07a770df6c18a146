"""`InputSamples`: what a model gets, the values of every input for some samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import array_of, message, places_of, require, sample_number
from ensemble.scalar import Ensemble

if TYPE_CHECKING:
    from ensemble.uq.inputs.variable import Variable

__all__ = ["InputSamples", "PlainSample", "UnknownInputError", "differing", "labels_of", "plain_rows", "values_of"]


class UnknownInputError(AttributeError):
    """A model reads an input that does not exist."""


class UnknownKeyError(UnknownInputError, KeyError):
    """A model reads an item that does not exist."""

    def __str__(self) -> str:
        return str(self.args[0])  # `KeyError` shows its ``repr``


class InputSamples:
    """The values of all inputs for some samples: the one argument of a model.

    An input is an attribute or an item by its name: ``x.E`` and ``x["E"]`` are the same Ensemble. A field is called
    with points: ``x.kappa(points)``. Made by `Inputs.samples`, `Inputs.from_uniform` and `Inputs.from_normal`.

    Attributes
    ----------
    ids : ndarray of int, shape (n_samples,)
        The permanent number of each sample.
    n_samples : int
    names : tuple of str
        Names of the inputs, in their order.
    weights : ndarray, shape (n_samples,), or None
        What each sample counts in a mean; None where all count the same. Sparse grids have negative ones.
    seed : int or None
        The seed of the draw.
    failures : dict of int to str
        Samples that the model marked as failed by `fail`, by their place, and why.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> x = en.Inputs(E=stats.norm(10.0, 1.0), load=2.0).samples(4, sampler="monte_carlo", seed=41)
    >>> x.E.n_samples, x["load"]
    (4, Ensemble(shape=(), shared, float64) 2)
    >>> bool(x.sample(2).E == x.E.sample(2)), x.sample(2).load
    (True, 2.0)
    """

    def __init__(
        self,
        variables: Mapping[str, Variable],
        values: Mapping[str, np.ndarray],
        ids: np.ndarray,
        *,
        weights: np.ndarray | None = None,
        seed: int | None = None,
    ) -> None:
        self._variables = variables
        self._values = dict(values)
        self._lifted: dict[str, Any] = {}
        self.ids = ids
        self.weights = weights
        self.seed = seed
        self.failures: dict[int, str] = {}

    @property
    def n_samples(self) -> int:
        """How many samples these are."""
        return int(self.ids.size)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs, in their order."""
        return tuple(self._variables)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise UnknownKeyError(message("InputSamples", "name", f"be one of {', '.join(self.names)}", repr(name)))
        if name not in self._lifted:
            self._lifted[name] = self._variables[name].lift(self._values[name])
        return self._lifted[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            known = "" if name.startswith("_") else f"; it has {', '.join(self.names)}"
            raise UnknownInputError(f"InputSamples has no input {name!r}{known}.")
        return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]

    def __len__(self) -> int:
        return self.n_samples

    def __repr__(self) -> str:
        return f"InputSamples({', '.join(self.names)}; n_samples={self.n_samples})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lifted": {}}

    def take(self, places: Any) -> InputSamples:
        """The samples at some places, in that order, with their ids and weights; without their failures.

        Parameters
        ----------
        places : array_like of int or bool, shape (n_samples,) if bool

        Raises
        ------
        IndexError
            If a place is not there.
        """
        numbers = places_of(places, self.n_samples, "InputSamples.take", "places", bools=True)
        require(numbers.size > 0, "InputSamples.take", "places", "name one sample or more", "none")
        values = {
            name: value if self._variables[name].n_germs == 0 else np.ascontiguousarray(value[..., numbers])
            for name, value in self._values.items()
        }
        weights = None if self.weights is None else self.weights[numbers]
        return InputSamples(self._variables, values, self.ids[numbers], weights=weights, seed=self.seed)

    def sample(self, i: int) -> PlainSample:
        """Sample `i` in plain numbers, for models that take no ensembles.

        Returns
        -------
        PlainSample
            Under the same names: a number, an array, the label of a category, or a field as a function of points.

        Raises
        ------
        IndexError
            If there is no such sample.
        """
        place = sample_number(i, self.n_samples, "InputSamples")
        plain = {}
        for name, value in self._values.items():
            column = value[..., 0 if value.shape[-1] == 1 else place]
            plain[name] = self._variables[name].plain(np.array(column))
        return PlainSample(**plain, _id=int(self.ids[place]))

    def fail(self, mask: Any, reason: str = "") -> None:
        """Mark samples as failed; a study leaves them out of its statistics and counts them.

        Parameters
        ----------
        mask : bool Ensemble of shape (), or array_like of bool, shape (n_samples,)
        reason : str

        Raises
        ------
        ValueError
            If `mask` does not have one truth value for each sample.
        """
        failed = to_numpy(mask.samples) if isinstance(mask, Ensemble) else mask
        failed = array_of(failed, "InputSamples.fail", "mask", "be one bool for each sample")
        good = failed.dtype == np.bool_ and failed.shape in {(), (1,), (self.n_samples,)}
        seen = f"{failed.dtype} of shape {failed.shape} for {self.n_samples} samples"
        require(good, "InputSamples.fail", "mask", "be one bool for each sample", seen)
        for place in np.flatnonzero(np.broadcast_to(failed, self.n_samples)):
            self.failures[int(place)] = reason


class PlainSample(SimpleNamespace):
    """The inputs of one sample in plain numbers, as attributes and items; its number is ``_id``."""

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise UnknownKeyError(message("PlainSample", "name", f"be one of {', '.join(self._names())}", repr(name)))
        return vars(self)[name]

    def __getattr__(self, name: str) -> Any:
        known = "" if name.startswith("_") else f"; it has {', '.join(self._names())}"
        raise UnknownInputError(f"PlainSample has no input {name!r}{known}.")

    def _names(self) -> list[str]:
        return [name for name in vars(self) if name != "_id"]

    def __reduce__(self) -> tuple[object, ...]:
        return _restored_sample, (vars(self),)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={vars(self)[name]!r}" for name in self._names())
        return f"PlainSample({shown})"


def _restored_sample(values: Mapping[str, Any]) -> PlainSample:
    """A sample from what pickle keeps of it."""
    return PlainSample(**values)


def values_of(samples: InputSamples) -> dict[str, np.ndarray]:
    """The values of the inputs that are no constants, shape (\\*shape, n_samples); coefficients of a field."""
    variables, values = vars(samples)["_variables"], vars(samples)["_values"]
    return {name: value for name, value in values.items() if variables[name].n_germs}


def plain_rows(samples: Any) -> list[tuple[Any, ...]]:
    """The inputs of each sample in plain numbers, in the order of their names: those of `sample`, made at once."""
    own, n = vars(samples).get("_samples", samples), samples.n_samples  # those behind the samples of a device
    if not isinstance(own, InputSamples):
        return [tuple(one[name] for name in samples.names) for one in map(samples.sample, range(n))]
    columns = [_plain_column(own._variables[name], own._values[name], n) for name in own.names]
    return list(zip(*columns, strict=True))


def _plain_column(variable: Variable, values: np.ndarray, n_samples: int) -> list[Any]:
    """What `variable.plain` gives for each sample; `values` has shape ``(*shape, n_samples or 1)``."""
    if values.ndim == 1 and type(variable).plain.__qualname__ == "Variable.plain":
        column: list[Any] = values.tolist()
        return column if len(column) == n_samples else column * n_samples
    last = values.shape[-1]
    return [variable.plain(np.array(values[..., k % last])) for k in range(n_samples)]


def labels_of(samples: Any, name: str) -> tuple[Any, ...] | None:
    """The labels of a categorical input, in the order of their places; None of another input."""
    drawn: Mapping[str, Any] = vars(samples).get("_variables", {})
    described: Mapping[str, Any] = vars(samples).get("described", {})  # of a stored study
    description = drawn[name].description() if name in drawn else described.get(name)
    if not isinstance(description, Mapping) or description.get("kind") != "categorical":
        return None
    return tuple(description["labels"])


def differing(samples: Any, variables: Mapping[str, Variable]) -> list[str]:
    """The names of those of `variables` that are others than the inputs of `samples`, as far as these tell."""
    drawn: Mapping[str, Any] = vars(samples).get("_variables", {})
    described: Mapping[str, Any] = vars(samples).get("described", {})  # of a stored study
    found = []
    for name, variable in variables.items():
        if name in drawn and drawn[name] is not variable:
            described = {**described, name: drawn[name].description()}
        if name in described and json.dumps(described[name]) != json.dumps(variable.description()):
            found.append(name)
    return found
