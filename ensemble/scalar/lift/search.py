"""Sorting, searching, sets and gathers: order and places differ from sample to sample."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.lift.each_sample import each_sample
from ensemble.scalar.lift.reductions import flat, visible_axis
from ensemble.scalar.lift.shapes import concat
from ensemble.scalar.namespace import EnsembleNamespace, named, samples_of, set_of
from ensemble.scalar.own_places import picked


def ordering(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `sort` and `argsort`; the order is each sample's own."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Ensemble:
        x = ns.lift(x, name)
        k = visible_axis(axis, x.ndim, name)
        return wrap(packed(f(x.samples, axis=k, descending=descending, stable=stable)), x.sample_set)

    return named(lifted, name)


def take(ns: EnsembleNamespace, x: Array, indices: Any, /, *, axis: int | None = None) -> Ensemble:
    """The entries of `x` at `indices` along a visible axis; each sample may have its own indices."""
    x, indices = ns.lift(x, "take"), ns.lift(indices, "take")
    if axis is None:
        x, axis = flat(ns, x), 0
    k = visible_axis(axis, x.ndim, "take")
    if indices.is_shared and indices.ndim == 1:
        return wrap(packed(ns.base.take(x.samples, indices.samples[..., 0], axis=k)), x.sample_set)
    result: Ensemble = each_sample(ns, "take", functools.partial(ns.base.take, axis=k), x, indices)
    return result


def take_along_axis(ns: EnsembleNamespace, x: Array, indices: Any, /, *, axis: int = -1) -> Ensemble:
    """The entries of `x` at `indices`, matched along the other axes; each sample may have its own indices."""
    x, indices = ns.lift(x, "take_along_axis"), ns.lift(indices, "take_along_axis")
    samples_of("take_along_axis", x, indices)
    k = visible_axis(axis, x.ndim, "take_along_axis")
    if indices.ndim != x.ndim:
        result: Ensemble = each_sample(
            ns, "take_along_axis", functools.partial(ns.base.take_along_axis, axis=axis), x, indices
        )
        return result
    arrays = x.ndim == 1 and type(x.samples) is np.ndarray and type(indices.samples) is np.ndarray
    found = picked(x.samples, indices.samples) if arrays else None
    if found is not None:
        return wrap(found, set_of(x, indices))
    samples = ns.base.take_along_axis(x.samples, indices.samples, axis=k)  # the sample axes broadcast
    return wrap(packed(samples), set_of(x, indices))


def searchsorted(ns: EnsembleNamespace, x1: Array, x2: Array, /, *, side: str = "left", sorter: Any = None) -> Ensemble:
    """Where `x2` would go into sorted `x1`."""
    x1 = ns.lift(x1, "searchsorted")
    if not isinstance(x2, int | float):
        x2 = ns.lift(x2, "searchsorted")
    sorter = sorter if sorter is None else ns.lift(sorter, "searchsorted")

    def search(line: Any, values: Any, order: Any) -> Any:
        return ns.base.searchsorted(line, values, side=side, sorter=order)

    result: Ensemble = each_sample(ns, "searchsorted", search, x1, x2, sorter)
    return result


def isin(ns: EnsembleNamespace, x1: Array, x2: Array, /, *, invert: bool = False) -> Ensemble:
    """Whether each entry of `x1` is found in `x2`."""
    x1, x2 = (v if isinstance(v, int) else ns.lift(v, "isin") for v in (x1, x2))
    result: Ensemble = each_sample(ns, "isin", functools.partial(ns.base.isin, invert=invert), x1, x2)
    return result


def nonzero(ns: EnsembleNamespace, x: Array, /) -> tuple[Ensemble, ...]:
    """The places of the entries that are not zero; as many in every sample."""
    result: tuple[Ensemble, ...] = each_sample(ns, "nonzero", ns.base.nonzero, ns.lift(x, "nonzero"))
    return result


def unique_values(ns: EnsembleNamespace, x: Array, /) -> Ensemble:
    """The values of `x`, each once; as many in every sample."""
    result: Ensemble = each_sample(ns, "unique_values", ns.base.unique_values, ns.lift(x, "unique_values"))
    return result


def unique_counts(ns: EnsembleNamespace, x: Array, /) -> Any:
    """The values of `x` and how often each occurs."""
    return each_sample(ns, "unique_counts", ns.base.unique_counts, ns.lift(x, "unique_counts"))


def unique_inverse(ns: EnsembleNamespace, x: Array, /) -> Any:
    """The values of `x` and which of them each entry is."""
    return each_sample(ns, "unique_inverse", ns.base.unique_inverse, ns.lift(x, "unique_inverse"))


def unique_all(ns: EnsembleNamespace, x: Array, /) -> Any:
    """The values of `x`, where each first occurs, which of them each entry is, and how often."""
    return each_sample(ns, "unique_all", ns.base.unique_all, ns.lift(x, "unique_all"))


def diff(
    ns: EnsembleNamespace, x: Array, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Ensemble:
    """Differences of neighbours along a visible axis, `n` times."""
    x = ns.lift(x, "diff")
    k = visible_axis(axis, x.ndim, "diff")
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = concat(ns, parts, axis=k)
    return wrap(packed(ns.base.diff(x.samples, axis=k, n=n)), x.sample_set)
