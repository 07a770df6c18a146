"""`open_study`: the results in a store, without the model and without the inputs' definitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from types import SimpleNamespace
from typing import Any

import numpy as np

from ensemble._check import message, places_of, require
from ensemble._keywords import explains_calls
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.samples import InputSamples
from ensemble.uq.inputs.stored import inputs_of_description
from ensemble.uq.samplers.sampler import Sampler
from ensemble.uq.samplers.stored import sampler_of_description
from ensemble.uq.store.anywhere import open_store
from ensemble.uq.store.axes import AXES
from ensemble.uq.store.costs import read_costs
from ensemble.uq.store.store import Store
from ensemble.uq.study.dataset import WEIGHTS
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.study_result import UqResult

__all__ = ["StoredSampler", "open_study", "open_with_inputs", "require_possible"]


class StoredSampler(Sampler):
    """What statistics need to know of a sampler, from a manifest."""

    extendable = False

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        require_possible(manifest)
        facts = manifest.get("statistics", {})
        self.name = str(manifest.get("sampler", {}).get("name", ""))
        self.n_replicates = int(facts.get("n_replicates", 1))
        self.is_quadrature = bool(facts.get("is_quadrature", False))
        self.independent = bool(facts.get("independent", False))
        self._text = str(facts.get("sampler", self.name))

    def __repr__(self) -> str:
        return self._text


MOST_REPLICATES = 2**16


def require_possible(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError for what no study has written: numbers of it size the statistics."""
    algorithm = manifest.get("algorithm")
    advice = "Call it with store= and resume=True: it repeats its steps with what the store has."
    seen = f"one of {str(algorithm)[:40]}"
    require(algorithm is None, "open_study", "store", "be one of propagate", seen, advice)
    facts = manifest.get("statistics", {})
    inputs = manifest.get("inputs", {})
    replicates = facts.get("n_replicates", 1) if isinstance(facts, dict) else None
    wanted = {
        "have a table 'statistics'": isinstance(facts, dict),
        "have a table 'sampler'": isinstance(manifest.get("sampler", {}), dict),
        "have a table 'inputs'": isinstance(inputs, dict) and isinstance(inputs.get("inputs", {}), dict),
        "have a seed from 0": type(manifest.get("seed", 0)) is int and manifest.get("seed", 0) >= 0,
        f"have 1 to {MOST_REPLICATES} replicates": type(replicates) is int and 1 <= replicates <= MOST_REPLICATES,
    }
    for requirement, holds in wanted.items():
        require(holds, "open_study", "the manifest", requirement, "a damaged manifest", "Restore it from a copy.")


class StoredInputs:
    """The values of the inputs, as far as the store has them."""

    def __init__(self, values: dict[str, np.ndarray], weights: Any, ids: np.ndarray, described: Any) -> None:
        self._values, self.weights, self.ids, self.described = values, weights, ids, described

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(self._values)

    @property
    def n_samples(self) -> int:
        """How many samples these are."""
        return int(self.ids.size)

    def __getitem__(self, name: str) -> Ensemble:
        return Ensemble(self._values[name])

    def take(self, places: Any) -> StoredInputs:
        """The samples at some places."""
        numbers = places_of(places, self.n_samples, "StoredInputs.take", "places", bools=True)
        values = {name: np.ascontiguousarray(value[..., numbers]) for name, value in self._values.items()}
        weights = None if self.weights is None else self.weights[numbers]
        return StoredInputs(values, weights, self.ids[numbers], self.described)


class StoredStudy:
    """What `UqResult` needs of a plan, read from a store."""

    streams = None
    keep = "all"

    def __init__(self, store: Store) -> None:
        self.sampler = StoredSampler(store.manifest)
        self.store, self.declared = store, Outputs.from_description(store.manifest.get(AXES))
        self.n = store.n
        self.is_done, self.failed, self.reasons = store.done(), store.failed(), store.reasons()
        self.earlier = store.earlier_reasons()
        self.layout = {name: (tuple(o.shape), np.dtype(o.dtype)) for name, o in store.outputs.items()}
        self.seed = int(store.manifest.get("seed", 0))
        self.ensemble_size = None
        values, weighted = store.inputs(), store.manifest.get("statistics", {}).get("weighted")
        self.inputs = inputs_of_description(store.manifest.get("inputs", {}))
        weights = self._weights(values.pop(WEIGHTS, None)) if weighted else None
        described = store.manifest.get("inputs", {}).get("inputs", {})
        self.samples = StoredInputs(values, weights, np.arange(self.n), described)
        self.costs = SimpleNamespace(runs=read_costs(store.path))

    def manifest(self) -> dict[str, Any]:
        """What makes the study this study, for a copy of it."""
        own = ("format", "identity", "outputs", "later_versions")
        return {key: value for key, value in self.store.manifest.items() if key not in own}

    def _weights(self, stored: np.ndarray | None) -> np.ndarray:
        """The weights of a study that has some; they are stored with the values of the inputs."""
        weights = np.full(self.n, np.nan) if stored is None else stored
        again = self.drawn() if np.isnan(weights).any() else None
        if again is not None and again[0].weights is not None:
            weights = np.where(np.isnan(weights), again[0].weights, weights)
        missing = np.flatnonzero(np.isnan(weights) & self.is_done & ~self.failed)
        advice = "They are stored at the end of a run: wait, or resume it."
        require(missing.size == 0, "open_study", "the weights", "be stored", f"none of {missing.size} samples", advice)
        return weights

    def require_inputs(self, inputs: Inputs | None, function: str) -> Inputs:
        """The inputs of the study: those of the manifest, or the same ones as objects of a program."""
        given = self.inputs if inputs is None else inputs
        advice = "Give the Inputs of the study: some are objects of the program, which a store does not say."
        if given is None:
            raise ValueError(message(function, "inputs", "be given for this store", None, advice))
        stored = self.store.manifest.get("inputs", {})
        same = inputs is None or json.loads(json.dumps(given.description())) == stored
        require(same, function, "inputs", "be those of the study", "others", "Give the Inputs that the run had.")
        self.inputs = given
        return given

    def drawn(self) -> tuple[InputSamples, Sampler] | None:
        """The inputs of all samples, drawn once more, and their sampler; None where the manifest does not say how."""
        if self.inputs is None:
            return None
        sampler = sampler_of_description(self.store.manifest.get("sampler", {}), self.inputs, self.n)
        return None if sampler is None else (self.inputs.samples(self.n, sampler=sampler, seed=self.seed), sampler)


@explains_calls("open_study")
def open_study(store: str | PathLike[str]) -> UqResult:
    """Read the statistics of a study in a store, finished or not, also while another process goes on with it.

    Parameters
    ----------
    store : path, or URL
        What `propagate` or `plan` was given.

    Returns
    -------
    UqResult
        Statistics of the samples that were stored when it was opened. The values of inputs are those that were
        compacted: NaN for the samples of a study that was killed or is running.

    Raises
    ------
    ValueError
        If there is no study, or files of it are missing, damaged or of another study; or samples have weights, which a
        run stores at its end, and they are not there yet.

    Examples
    --------
    >>> import os, tempfile
    >>> from scipy import stats
    >>> import ensemble as en
    >>> path = os.path.join(tempfile.mkdtemp(), "run.zarr")
    >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2))
    >>> first = en.propagate(lambda x: {"tip": x.load / 3.0}, inputs, 64, seed=5, store=path, progress=False)
    >>> bool(open_study(path).mean("tip") == first.mean("tip"))
    True
    """
    return UqResult(StoredStudy(open_store(store)))


def open_with_inputs(
    store: str | PathLike[str], inputs: Inputs | None = None, function: str = "open_study"
) -> tuple[UqResult, Inputs]:
    """A result of a store with the values of its inputs, also of those that are not compacted yet, and the inputs."""
    study = StoredStudy(open_store(store))
    known = study.require_inputs(inputs, function)
    result, redrawn = UqResult(study), study.drawn()
    return (result if redrawn is None else result.with_inputs(*redrawn)), known
