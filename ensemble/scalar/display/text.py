"""The text of an ensemble: mean ± standard deviation of each entry, never all samples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._backend import is_array, library_of, to_numpy
from ensemble._check import message, require, samples_text
from ensemble._optional import optional
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import SampleSet
from ensemble.scalar.statistics.moments import scaled


def text(x: Ensemble) -> str:
    """``repr(x)``: shape, number of samples, dtype, and each entry over the samples without NaN."""
    shape = getattr(x.samples, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return f"Ensemble({x.samples!r})"  # a placeholder, as JAX makes trees of
    count = "shared" if shape[-1] == 1 else f"n_samples={shape[-1]}"
    dtype = str(getattr(x.samples, "dtype", None)).rpartition(".")[2]
    about = f"Ensemble(shape={tuple(shape[:-1])}, {count}, {dtype})"
    if shown_values(x.samples) is None:
        return f"{about} <values not known: {type(x.samples).__name__}>"
    return f"{about} {_entries(x, '.3g')}{_note(x)}"


def shown_values(samples: Any) -> np.ndarray | None:
    """`samples` as numbers of NumPy, rounded to float32 where it lacks their type; None where they are not known.

    A placeholder, a tensor without storage or one that is being mapped, an array that JAX compiles for or has deleted.
    """
    if not is_array(samples):
        return None
    try:
        short = library_of(samples) == "torch" and samples.dtype.is_floating_point and samples.dtype.itemsize < 4
        values = to_numpy(samples.float() if short else samples)
        return values if values.dtype.kind in "biufc" else values.astype(np.float32)
    except Exception:  # whatever a library raises where it has no values to give
        return None


def formatted(x: Ensemble, spec: str) -> str:
    """``format(x, spec)``: `spec` applies to the mean and to the standard deviation of the samples without NaN."""
    known = spec and shown_values(x.samples) is not None
    return f"{_entries(x, spec)}{_note(x)}" if known else text(x)


def _note(x: Ensemble) -> str:
    """Which samples the text leaves out."""
    values, _, places = counted(x)
    bad = places[_has_nan(values)]
    return f" ({samples_text(bad)} of {x.n_samples} NaN)" if bad.size and not x.is_shared else ""


def counted(x: Ensemble) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """The samples of weight above 0, their weights (None where all weigh the same), and their numbers."""
    values = shown_values(x.samples)
    assert values is not None
    weights = None if x.sample_set is None else x.sample_set.weights
    if weights is None:
        return values, None, np.arange(x.n_samples)
    places = np.flatnonzero(weights > 0.0)
    return values[..., places], scaled(weights[places]), places


def _has_nan(values: np.ndarray) -> np.ndarray:
    """Which samples hold a NaN."""
    if values.dtype.kind not in "fc":
        return np.zeros(values.shape[-1], dtype=bool)
    result: np.ndarray = np.any(np.isnan(values.reshape(-1, values.shape[-1])), axis=0)
    return result


def _entries(x: Ensemble, spec: str) -> str:
    if not x.size:
        return "[]"
    values, weights, _ = counted(x)
    bad = _has_nan(values)
    if not bad.all():
        values, weights = values[..., ~bad], None if weights is None else weights[~bad]
    return _shown(_entry_texts(values, weights, spec))


def _entry_texts(values: np.ndarray, weights: np.ndarray | None, spec: str) -> np.ndarray:
    kind, n_samples = values.dtype.kind, values.shape[-1]
    if n_samples == 1:
        show = str if kind == "b" else lambda value: format(value, spec)
        texts = [show(value) for value in values[..., 0].ravel().tolist()]
        return np.array(texts, dtype=object).reshape(values.shape[:-1])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wide = values.astype(np.complex128 if kind == "c" else np.float64)
        mean = np.average(wide, axis=-1, weights=weights)
        std = np.sqrt(np.average(np.abs(wide - mean[..., None]) ** 2, axis=-1, weights=weights))
    pairs = zip(mean.ravel().tolist(), std.ravel().tolist(), strict=True)
    if kind == "b":
        texts = [f"{100 * part:.3g}% True" for part, _ in pairs]
    else:
        texts = [f"{format(m, spec)} ± {format(s, spec)}" for m, s in pairs]
    return np.array(texts, dtype=object).reshape(values.shape[:-1])


def _shown(texts: np.ndarray) -> str:
    if not texts.ndim:
        return str(texts[()])
    return np.array2string(texts, separator=", ", threshold=12, edgeitems=3, max_line_width=110, formatter={"all": str})


def to_xarray(x: Ensemble, sample_dim: str, dims: Sequence[str] | None) -> Any:
    """`x` as an ``xarray.DataArray``."""
    xarray = optional("xarray", "to_xarray")

    names = [f"dim_{k}" for k in range(x.ndim)] if dims is None else list(dims)
    require(len(names) == x.ndim, "to_xarray", "dims", f"name {x.ndim} axes", names)
    if sample_dim in names:
        raise ValueError(message("to_xarray", "sample_dim", "be a name of its own", repr(sample_dim)))
    coordinates: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    samples = x.sample_set
    if samples is not None:
        coordinates[sample_dim] = samples.ids
        if samples.weights is not None:
            coordinates["weight"] = (sample_dim, samples.weights)
        if samples.points is not None:  # a coordinate may not add a dimension of its own: one for every input
            for place in np.ndindex(samples.points.shape[:-1]):
                name = "_".join([POINT, *(str(k) for k in place)])
                coordinates[name] = (sample_dim, samples.points[place])
        attributes["sample_method"] = samples.method
        if samples.seed is not None:
            seed = int(samples.seed)
            attributes["sample_seed"] = seed if -(2**63) <= seed < 2**63 else str(seed)  # files have 64 bits
    return xarray.DataArray(to_numpy(x.samples), dims=[*names, sample_dim], coords=coordinates, attrs=attributes)


POINT = "point"


def set_in_xarray(array: Any, sample_dim: str) -> SampleSet | None:
    """The sample set that `to_xarray` wrote into `array`, as far as it is there."""
    given = {name: array.coords[name].values for name in (sample_dim, "weight") if name in array.coords}
    method, seed = array.attrs.get("sample_method"), array.attrs.get("sample_seed")
    columns: dict[tuple[int, ...], np.ndarray] = {}
    for name in array.coords:
        first, *numbers = str(name).split("_")
        if first == POINT and all(k.isdigit() for k in numbers) and array.coords[name].dims == (sample_dim,):
            columns[tuple(int(k) for k in numbers)] = array.coords[name].values
    if not given and not columns and method is None and seed is None:
        return None
    points = None
    if columns:
        shape = tuple(max(ks) + 1 for ks in zip(*columns, strict=True))
        points = np.empty((*shape, array.sizes[sample_dim]), dtype=np.result_type(*columns.values()))
        for place, column in columns.items():
            points[place] = column
    number = None if seed is None else int(seed)
    n_samples = array.sizes[sample_dim]
    weights, ids = given.get("weight"), given.get(sample_dim)
    return SampleSet(points, weights, ids, method or "", number, n_samples=n_samples)


PROTOCOLS.text = text
PROTOCOLS.formatted = formatted
PROTOCOLS.to_xarray = to_xarray
PROTOCOLS.set_in_xarray = set_in_xarray
