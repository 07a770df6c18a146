"""A function of plain arrays on one sample after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._typing import Array
from ensemble.scalar.divergence.policy import failure, in_run, split
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.namespace import EnsembleNamespace, samples_of, set_of
from ensemble.scalar.plain_arrays import samples_of_stack, stack_of_rows

__all__ = ["SCALARS", "each_sample", "stacked_results"]

SCALARS = frozenset((np.float64, np.float32, np.int64, np.bool_))
"""Types of results of which NumPy makes an array of the same type."""


def each_sample(ns: EnsembleNamespace, name: str, f: Callable[..., Any], *values: Any) -> Any:
    """`f` on the plain arrays of one sample after the other, the results stacked along the last axis.

    Called once where all arguments are shared. A result may be a tuple of arrays. Results of different shapes diverge.
    """
    n_samples = samples_of(name, *values)
    sample_set = set_of(*values)
    results = [f(*(v.sample(s) if type(v) is Ensemble else v for v in values)) for s in range(n_samples)]
    return stacked_results(ns, name, results, sample_set)


def stacked_results(ns: EnsembleNamespace, name: str, results: list[Any], sample_set: Any) -> Any:
    """The results of all samples as an ensemble, or as a tuple of ensembles where each result is one."""
    if not isinstance(results[0], tuple):
        return _stacked(ns, name, results, sample_set)
    parts = [_stacked(ns, name, list(part), sample_set) for part in zip(*results, strict=True)]
    kind = type(results[0])
    return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)


def _stacked(ns: EnsembleNamespace, name: str, columns: list[Array], sample_set: Any) -> Ensemble:
    first = columns[0]
    kinds = set(map(type, columns))
    if len(kinds) == 1 and len(columns) > 1:
        if kinds <= SCALARS:  # the common cases in few steps
            return wrap(np.array(columns), sample_set)
        if type(first) is np.ndarray and first.ndim and len({(x.shape, x.dtype) for x in columns}) == 1:
            return wrap(samples_of_stack(stack_of_rows(columns)), sample_set)
    base = ns.main.base
    columns = [base.asarray(column) for column in columns]
    counts = [tuple(column.shape) for column in columns]
    if len(set(counts)) > 1:
        seen = ", ".join(f"{shape} in sample {s}" for s, shape in enumerate(counts[:4]))
        raise split(f"the shape of {name}(x) must be the same for all samples", seen, "Use xp.where or per_sample.")
    if len(columns) == 1:
        return wrap(columns[0][..., None])
    if in_run() and len({column.dtype for column in columns}) > 1:  # as of np.roots: real where all of them are
        raise failure(TypeError(f"results of {name} of several types"))
    return wrap(base.stack(columns, axis=-1), sample_set)
