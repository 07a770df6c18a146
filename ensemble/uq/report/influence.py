"""Which inputs an output depends on, from the samples of a study alone.

Indices of a chaos expansion where inputs are independent and it misses little; else indices of given data; and
correlations of ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ensemble.scalar import Ensemble, sample_corr
from ensemble.uq.report.source import Source
from ensemble.uq.sensitivity.chaos import chaos
from ensemble.uq.sensitivity.given_data import FEWEST, given_data

__all__ = ["LARGE_ERROR", "Influence", "influences"]

LARGE_ERROR = 0.05
"""Share of the variance that an expansion misses from which on indices are also those of given data."""

GIVEN_SAMPLES = 1024
"""Most samples for indices of given data, the first ones."""

GIVEN_COLUMNS = 16
"""Most numbers of inputs for indices of given data: those of the largest correlations of ranks."""

DEGREES = (1, 2, 3, 4, 5)
MOST_TERMS = 400
MOST_VALUES = 2**23
"""Values of an output, over all samples, to which an expansion is fitted."""
SAMPLES_PER_TERM = 2


@dataclass(frozen=True)
class Influence:
    """What the inputs do to one output; of an array, to its entries weighted by their variances.

    Attributes
    ----------
    name : str
    inputs : tuple of str
    first, total : arrays, shape (n_inputs,), or None
        Sobol' indices of the expansion.
    error : float
        The part of the variance that the expansion misses, by its leave-one-out error; NaN without an expansion.
    degree, n_terms : int
        Total degree and number of terms of the expansion.
    ranks : dict of str to float
        Correlation of ranks with each column of the inputs, for outputs of one number.
    """

    name: str
    inputs: tuple[str, ...] = ()
    first: Any = None
    total: Any = None
    error: float = float("nan")
    degree: int = 0
    n_terms: int = 0
    ranks: Any = None
    given: tuple[tuple[str, float, float, float], ...] = ()
    """For each column of the inputs: name, "first" and "delta" index of given data, p-value of delta."""
    n_given: int = 0


def influences(source: Source, names: Sequence[str]) -> tuple[list[Influence], str]:
    """The influence of the inputs on each output, and why there are no indices; an empty text where there are."""
    result = source.result
    if not source.kept:
        return [], "Only statistics were kept, and no samples."
    found = {name: Influence(name, ranks=rank_correlations(source, name)) for name in names}
    reason = without_indices(source)
    size = {name: int(np.asarray(result.std(name)).size) for name in names}
    chosen = [
        name for name in names if 0 < size[name] * result.ids.size <= MOST_VALUES and np.any(result.std(name) > 0.0)
    ]
    if chosen and not reason:
        best, reason = best_expansions(source, chosen)
        found |= {name: with_indices(found[name], expansion) for name, expansion in best.items()}
    for name, one in found.items():
        if one.first is None or one.error > LARGE_ERROR:
            found[name] = with_given_data(one, source)
    return list(found.values()), reason


def without_indices(source: Source) -> str:
    """Why no expansion is fitted."""
    if source.inputs is None:
        return "The store does not say the distributions of all inputs: some are objects of the program."
    if source.inputs.copula.between:
        return "Inputs are correlated: parts of the variance cannot be divided among them by these samples."
    if not hasattr(source.samples, "failures"):
        return "The values of the inputs are not known."
    if source.result.weights is not None and np.any(source.result.weights < 0.0):
        return "Samples have negative weights."
    return ""


def best_expansions(source: Source, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """For each output the expansion of the degree with the smallest leave-one-out error."""
    assert source.inputs is not None
    n_germs, n = source.inputs.n_germs, source.result.ids.size
    degrees = [d for d in DEGREES if comb(n_germs + d, d) <= min(MOST_TERMS, n // SAMPLES_PER_TERM)]
    if not n_germs:
        return {}, "All inputs are constant."
    if not degrees:
        return {}, f"{n:,} samples are too few for {n_germs} numbers of inputs."
    narrowed = copy(source.result)
    narrowed.names = tuple(names)
    best: dict[str, Any] = {}
    for degree in degrees:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the page gives the error of each expansion
                expansion = chaos(source.inputs, narrowed, degree=degree, method="regression")
        except (ValueError, TypeError, np.linalg.LinAlgError) as error:
            return best, "" if best else str(error)
        for name in names:
            if name not in best or missed(expansion, name) < missed(best[name][0], name):
                best[name] = expansion, degree
    return {name: one for name, one in best.items() if np.isfinite(missed(one[0], name))}, ""


def missed(expansion: Any, name: str) -> float:
    """The part of the variance of an output that an expansion misses, over all its entries; infinite where unknown."""
    error, variance = np.ravel(expansion.loo_error[name]), np.ravel(expansion.var(name))
    good = np.isfinite(error) & np.isfinite(variance) & (variance > 0.0)
    if not good.any():
        return float("inf")
    return float((error[good] * variance[good]).sum() / variance[good].sum())


def with_indices(found: Influence, one: tuple[Any, int]) -> Influence:
    """An influence with the indices of an expansion, means over entries weighted by variances."""
    expansion, degree = one
    weights = np.nan_to_num(np.ravel(expansion.var(found.name)))

    def over_entries(index: Any) -> np.ndarray:
        flat = np.asarray(index).reshape(len(index), -1)
        total: np.ndarray = (np.nan_to_num(flat) * weights).sum(axis=1) / weights.sum()
        return total

    return replace(
        found, inputs=tuple(expansion.inputs), first=over_entries(expansion.first[found.name]),
        total=over_entries(expansion.total[found.name]), error=missed(expansion, found.name), degree=degree,
        n_terms=expansion.n_terms,
    )  # fmt: skip


def with_given_data(found: Influence, source: Source) -> Influence:
    """An influence with the indices of given data of an output of one number, the largest first.

    They ask for no structure of the samples, and hold where inputs depend on each other.
    """
    result = source.result
    ids = result.ids[:GIVEN_SAMPLES]
    if found.ranks is None or ids.size < FEWEST:
        return found
    y = np.asarray(result.samples(found.name).samples)[: ids.size]
    ranked = sorted(source.columns, key=lambda column: -abs(found.ranks.get(column.name, 0.0)))
    columns = {column.name: column.values[ids] for column in ranked[:GIVEN_COLUMNS]}
    if y.min() == y.max() or not columns:
        return found
    kinds = ("first", "delta")
    try:
        indices = given_data(columns, {"y": y}, methods=kinds, n_permutations=100, n_resamples=20)
    except ValueError:  # too few samples whose inputs are known
        return found
    first, delta = (getattr(indices, kind)["y"] for kind in kinds)
    p = indices.p_value("y", "delta")
    rows = zip(indices.inputs, first.tolist(), delta.tolist(), p.tolist(), strict=True)
    return replace(found, given=tuple(sorted(rows, key=lambda row: -row[2])), n_given=indices.n_used)


def rank_correlations(source: Source, name: str) -> dict[str, float] | None:
    """The correlation of ranks (Spearman's) of an output of one number with each column of the inputs."""
    result = source.result
    if np.ndim(result.mean(name)) or result.weights is not None or result.ids.size < 3:
        return None
    y = np.asarray(result.samples(name).samples)
    if y.dtype.kind == "c" or y.min() == y.max():
        return None
    found = {}
    for column in source.columns:
        x = column.values[result.ids]
        if not column.labels and np.isfinite(x).all() and x.min() < x.max():
            found[column.name] = float(sample_corr(Ensemble(rankdata(x)), Ensemble(rankdata(y))))
    return found
