"""`open_study`: the results in a store, without the model and without the inputs' definitions."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from ensemble._check import places_of, require
from ensemble.scalar import Ensemble
from ensemble.uq.samplers.sampler import Sampler
from ensemble.uq.store.axes import AXES
from ensemble.uq.store.store import Store
from ensemble.uq.study.dataset import WEIGHTS
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.result import UqResult
from ensemble.uq.study.streams import Stream, empty_streams

__all__ = ["open_study"]


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
        weights = self._weights(values.pop(WEIGHTS, None)) if weighted else None
        described = store.manifest.get("inputs", {}).get("inputs", {})
        self.samples = StoredInputs(values, weights, np.arange(self.n), described)

    def manifest(self) -> dict[str, Any]:
        """What makes the study this study, for a copy of it."""
        own = ("format", "identity", "outputs", "later_versions")
        return {key: value for key, value in self.store.manifest.items() if key not in own}

    def _weights(self, stored: np.ndarray | None) -> np.ndarray:
        """The weights of a study that has some; they are stored with the values of the inputs."""
        weights = np.full(self.n, np.nan) if stored is None else stored
        missing = np.flatnonzero(np.isnan(weights) & self.is_done & ~self.failed)
        advice = "They are stored at the end of a run: wait, or resume it."
        require(missing.size == 0, "open_study", "the weights", "be stored", f"none of {missing.size} samples", advice)
        return weights

    def new_streams(self, *, histograms: bool) -> dict[str, Stream]:
        """An empty stream for each output."""
        return empty_streams(self.layout, self.sampler.n_replicates, histograms=histograms)


def open_study(store: str | PathLike[str]) -> UqResult:
    """The statistics of a study in a store, finished or not, also while another process goes on with it.

    Parameters
    ----------
    store : path
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
    return UqResult(StoredStudy(Store.open(store)))
