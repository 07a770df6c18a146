"""`open_indices`: the sensitivity indices of a store, without the model."""

from __future__ import annotations

import json
import warnings
from os import PathLike
from typing import Any

import numpy as np

from ensemble._check import check_level, message
from ensemble._keywords import explains_calls
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.samplers.stored import sampler_of_description
from ensemble.uq.sensitivity.indices import ShapleyEffects, SobolIndices
from ensemble.uq.sensitivity.row_plan import RowStream
from ensemble.uq.sensitivity.rows import PermutedRows
from ensemble.uq.sensitivity.shapley import sums_of_rows
from ensemble.uq.sensitivity.sobol_sums import PairSums, SobolSums
from ensemble.uq.store.anywhere import open_store
from ensemble.uq.store.axes import AXES
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.stored_study import StoredStudy

__all__ = ["open_indices"]

FUNCTION = "open_indices"


@explains_calls("open_indices")
def open_indices(
    store: str | PathLike[str], *, inputs: Inputs | None = None, level: float = 0.95
) -> SobolIndices | ShapleyEffects:
    """Read the sensitivity indices of a store, finished or not, also while another process goes on with it.

    Parameters
    ----------
    store : path
        What `sobol_indices` or `shapley_effects` was given.
    inputs : Inputs, optional
        Those of the study. Shapley effects need them where some are objects of the program: a store does not say them.
    level : float in (0, 1), dimensionless
        Probability of the intervals.

    Returns
    -------
    SobolIndices or ShapleyEffects
        From the rows that are whole so far, in the order of their numbers.

    Raises
    ------
    ValueError
        If there is no such study, its files are damaged, or no row is whole and without failures.

    Examples
    --------
    >>> import os, tempfile
    >>> from scipy import stats
    >>> import ensemble as en
    >>> path = os.path.join(tempfile.mkdtemp(), "run.zarr")
    >>> inputs = en.Inputs(a=stats.norm(0.0, 2.0), b=stats.norm(0.0, 1.0))
    >>> made = en.sobol_indices(lambda x: {"y": x.a + x.b}, inputs, 64, seed=5, store=path, progress=False)
    >>> bool((open_indices(path).first["y"] == made.first["y"]).all())
    True
    """
    level = check_level(level, FUNCTION)
    study = StoredStudy(open_store(store))
    manifest = study.store.manifest
    described = manifest.get("inputs", {}).get("inputs", {})
    names = tuple(name for name, one in described.items() if one.get("kind") != "constant")
    kind = manifest.get("sampler", {}).get("name")
    n_replicates = study.sampler.n_replicates
    parts = manifest.get("sampler", {}).get("parts")
    if kind == "pick_freeze" and parts in (len(names) + 2, 2 * len(names) + 2):
        sums_of = SobolSums if parts == len(names) + 2 else PairSums
        make: Any = lambda: sums_of(len(names), n_replicates)
        result: type[SobolIndices] | type[ShapleyEffects] = SobolIndices
    elif kind == "permuted" and parts == len(names) + 1:
        rows = permuted_rows(study, study.require_inputs(inputs, FUNCTION))
        make, result = lambda: sums_of_rows(rows, study.seed, len(names)), ShapleyEffects
    else:
        advice = "open_study reads another study; chaos gives indices of its samples."
        seen = f"one of {kind or 'an unknown sampler'}"
        raise ValueError(message(FUNCTION, "store", "be one of sobol_indices or shapley_effects", seen, advice))
    streams = {name: RowStream(shape, make()) for name, (shape, _) in study.layout.items()}
    for ids, outputs, failed in study.store.blocks():
        for name, stream in streams.items():
            stream.add(ids, outputs.get(name), ~failed)
    sums = {name: stream.sums for name, stream in streams.items()}
    for one in sums.values():
        one.finish()
    if not sums or next(iter(sums.values())).n_used == 0:
        seen = f"{np.count_nonzero(study.failed)} failed of {np.count_nonzero(study.is_done)} samples that were run"
        raise ValueError(message(FUNCTION, "the study", "have a whole row without failures", seen))
    shapes = {name: shape for name, (shape, _) in study.layout.items()}
    declared = Outputs.from_description(manifest.get(AXES))
    return result(
        names, shapes, sums, level=level, n_failed=int(np.count_nonzero(study.failed)), seed=study.seed,
        declared=declared, dims=declared.dims(study.layout, FUNCTION),
    )  # fmt: skip


def permuted_rows(study: StoredStudy, inputs: Inputs) -> Any:
    """The rows of a study of Shapley effects, as its manifest describes them."""
    described = study.store.manifest["sampler"]
    germs = [part for part in inputs.germs.values() if part.stop > part.start]
    points = sampler_of_description(described.get("rows", {}), inputs, study.n // described["parts"])
    if points is not None:
        rows: Any = PermutedRows(points, germs, inputs.copula, inputs.n_germs, FUNCTION)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the number of rows, which the run has given
            rows = rows.for_inputs(inputs, study.n)
        if json.loads(json.dumps(rows.description())) == described:
            return rows
    raise ValueError(message(FUNCTION, "store", "say its sampler", "points of the program"))
