"""Indexing and assignment on the visible axes; the sample axis cannot be reached by an index."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ensemble._backend import as_index, assigned, is_array, to_numpy
from ensemble._byte_code import assigns_entry
from ensemble._check import message, require_one_library
from ensemble._typing import Array
from ensemble.scalar._memory import follow
from ensemble.scalar._operators import NUMBERS
from ensemble.scalar.divergence.policy import agreed, as_scalars, failure, split
from ensemble.scalar.ensemble import Ensemble, as_array, entry_or_view, view, wrap
from ensemble.scalar.interop.methods import read_only
from ensemble.scalar.namespace import samples_of, set_of
from ensemble.scalar.own_places import picked
from ensemble.scalar.plain_arrays import array_like, plain_array
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import common_set

BASIC = frozenset((int, slice, type(None), type(Ellipsis)))
"""The types of entries of an index that are no array and have no other form."""

ADVICE = "The sample axis has no index; use x.sample(i) or x.samples."


def get(x: Ensemble, key: Any) -> Ensemble:
    """``x[key]``."""
    items = items_of(x, key)
    if any(isinstance(item, Ensemble) for item in items):
        return _get_per_sample(x, items)
    items, reversed_axes = _forward(x, items)
    if reversed_axes:
        x = wrap(x._base().flip(x.samples, axis=reversed_axes), x.sample_set)
    if not any(_is_advanced(item) for item in items):
        part = x.samples[with_samples(items)]
        if any(type(item) is np.ndarray for item in (key if type(key) is tuple else (key,))):
            part = part.copy()  # an integer in a 0-d array: NumPy copies what it picks
        # An Ellipsis keeps the array, as in NumPy; without one, an index of a single entry gives its value.
        return as_array(view(x, part)) if any(item is Ellipsis for item in items) else entry_or_view(x, part)
    try:
        samples = x.samples[with_samples(items)]
    except IndexError:
        # Stricter libraries allow an array index only where it names every axis: index sample by sample.
        samples = _stacked(x, [x.samples[..., s][items] for s in range(x.n_samples)])
    return Ensemble(samples, x.sample_set)


def assign(x: Ensemble, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    # array_api_extra asks whether an array takes assignments, and makes a copy of NumPy's scalars, which do not.
    if x.is_value and as_scalars(x.samples) and "array_api_extra" not in str(sys._getframe(2).f_globals["__name__"]):
        advice = "Write v = xp.where(...), or make an array first: np.atleast_1d(v)."
        text = message("Ensemble", "x in x[...] = value", "be an array", "a value without axes, as a scalar is", advice)
        raise failure(TypeError(text))
    if type(value) is Ensemble and type(key) is int and value._memory_token is not None:
        _require_no_shuffle(x, value)
    if type(key) is Ensemble and type(value) in NUMBERS and _fill_masked(x, key, value):
        return
    items = items_of(x, key)
    if isinstance(value, list | tuple):
        value = x.__array_namespace__().asarray(value)
    elif type(x.samples) is np.ndarray:
        value = array_like(value)
    ensembles = [item for item in (*items, value) if isinstance(item, Ensemble)]
    n_samples = max((e.n_samples for e in ensembles), default=1)
    if x.n_samples == 1 < n_samples:
        x._widen(n_samples)
    for other in ensembles:
        if other.n_samples not in (1, x.n_samples):
            seen = f"{other.n_samples} for {x.n_samples} samples"
            raise ValueError(message("Ensemble", "an assigned value or index", "have the samples of x", seen))
        x.sample_set = common_set(x.sample_set, other.sample_set)
    if any(isinstance(item, Ensemble) for item in items):
        _assign_per_sample(x, items, value)
        return
    plain = _value(value)
    if is_array(plain) and type(plain) is not type(x.samples) and not isinstance(plain, np.generic):
        require_one_library("Ensemble", "an assigned value and x", plain, x.samples)
    one_entry = len(items) == x.ndim and all(type(item) is int for item in items) and type(x.samples) is np.ndarray
    if one_entry and len(getattr(plain, "shape", ())) > 1:
        seen = f"shape {tuple(plain.shape[:-1])}"
        raise ValueError(message("Ensemble", "a value assigned to one entry", "have no axis", seen))
    n_axes = getattr(items[0], "ndim", 0) if len(items) == 1 and _is_mask(items[0]) else 0
    if 0 < n_axes == x.ndim and type(x.samples) is np.ndarray and len(getattr(plain, "shape", ())) > 2:
        requirement = "have no axis or one where a boolean index names its places"
        raise TypeError(message("Ensemble", "an assigned value", requirement, f"shape {tuple(plain.shape[:-1])}"))
    items, reversed_axes = _forward(x, items)
    if reversed_axes:
        flip = x._base().flip
        turned = assigned(flip(x.samples, axis=reversed_axes), with_samples(items), plain)
        x.samples = assigned(x.samples, ..., flip(turned, axis=reversed_axes))
        return
    try:
        x.samples = assigned(x.samples, with_samples(items), plain)
    except IndexError:
        for s in range(x.n_samples):
            _assign_sample(x, s, items, _sample_of(value, s))


def _require_no_shuffle(x: Ensemble, row: Ensemble) -> None:
    """Raise where compiled code, and no line of Python, writes one row of `x` over another.

    NumPy's ``Generator.shuffle`` exchanges rows as ``x[i], x[j] = x[j], x[i]``. Of arrays of NumPy it copies them; here
    they are views, and one of the two would be lost.
    """
    caller = sys._getframe(3).f_code, sys._getframe(3).f_lasti
    if row._memory_token is not x._memory_token or assigns_entry(*caller):
        return
    if {"setitem", "__setitem__"} & {*caller[0].co_names}:
        return
    advice = "Write x[rng.permutation(len(x))] for rng.shuffle(x)."
    seen = "a row of the same ensemble, written by compiled code"
    raise failure(TypeError(message("Ensemble", "a row written in place", "be no view of x", seen, advice)))


def _fill_masked(x: Ensemble, mask: Ensemble, value: Any) -> bool:
    """``x[mask] = value`` of a number, where all is NumPy's and one mask is there for each sample; else nothing."""
    inside, samples = mask.samples, x.samples
    if type(samples) is not np.ndarray or type(inside) is not np.ndarray or inside.dtype != np.bool:
        return False
    if inside.shape != samples.shape or mask.sample_set is not x.sample_set:
        return False
    np.copyto(samples, np.asarray(value, dtype=samples.dtype), where=inside)
    return True


def _assign_sample(x: Ensemble, s: int, items: tuple[Any, ...], value: Any) -> None:
    """``x.sample(s)[items] = value``, written into `x`."""
    column = assigned(x.samples[..., s], items, value)
    x.samples = assigned(x.samples, (..., s), column)


def _forward(x: Ensemble, items: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """`items` without negative steps for PyTorch, which has none, and the axes to reverse first."""
    backward = any(isinstance(item, slice) and (item.step or 1) < 0 for item in items)
    if not backward or not type(x.samples).__module__.startswith("torch"):
        return items, ()
    hidden = x.ndim - sum(_axes_used(item) for item in items)
    axis, forward, axes = 0, [], []
    for item in items:
        if isinstance(item, slice) and (item.step or 1) < 0:
            n = x.shape[axis]
            places = range(*item.indices(n))
            axes.append(axis)
            item = slice(n - 1 - places[0], n - places[-1], -item.step) if places else slice(0, 0)
        axis += hidden if item is Ellipsis else _axes_used(item)
        forward.append(item)
    return tuple(forward), tuple(axes)


def items_of(x: Ensemble, key: Any) -> tuple[Any, ...]:
    """The entries of `key`; ensembles whose samples agree become plain, lists become arrays."""
    given = key if isinstance(key, tuple) else (key,)
    if any(isinstance(item, Ensemble) for item in given):
        # Whether two sets or numbers of samples may be combined does not depend on whether their values agree.
        samples_of("Ensemble", x, *given)
        set_of(x, *given)
    items = tuple(_plain(item) for item in given)
    used = sum(_axes_used(item) for item in items)
    if used > x.ndim:
        requirement = f"have at most {x.ndim} {'entry' if x.ndim == 1 else 'entries'} for shape {x.shape}"
        raise IndexError(message("Ensemble", "an index", requirement, used, ADVICE))
    _require_masks_that_fit(x, items)
    return items


def _require_masks_that_fit(x: Ensemble, items: tuple[Any, ...]) -> None:
    """Raise where a boolean index has another shape than the axes that it stands for: it never broadcasts."""
    axis = 0
    for item in items if any(map(_is_mask, items)) else ():
        n_axes = _axes_used(item)
        fits = not (n_axes and _is_mask(item)) or tuple(item.shape) == x.shape[axis : axis + n_axes]
        if not fits and 0 not in item.shape:  # which NumPy takes: it selects nothing
            requirement = f"have the shape {x.shape[axis : axis + n_axes]} of the axes that it stands for"
            raise IndexError(message("Ensemble", "a boolean index", requirement, f"shape {tuple(item.shape)}"))
        axis += x.ndim - sum(map(_axes_used, items)) if item is Ellipsis else n_axes


def _is_mask(item: Any) -> bool:
    if type(item) in BASIC:
        return False
    return isinstance(item, bool) or _kind(item) == "b"


def _kind(item: Any) -> str:
    """What an array holds: "b" for bools, "i" for integers, another letter or none for anything else."""
    dtype = getattr(item, "dtype", None)
    if isinstance(dtype, np.dtype):  # whose text takes a microsecond
        return "i" if dtype.kind == "u" else dtype.kind
    name = str(dtype)
    return "b" if "bool" in name else "i" if "int" in name else ""


def _plain(item: Any) -> Any:
    if type(item) in BASIC or (type(item) is np.ndarray and item.ndim and item.dtype.kind in "biu"):
        return item  # the common cases
    has_dtype = isinstance(item, Ensemble) or (is_array(item) and len(item.shape))
    if has_dtype and _kind(item) not in ("b", "i"):
        # NumPy's rule for every library: a float is no index; rounding it down would choose an entry without an error.
        seen, advice = f"dtype {item.dtype}", "If the values are whole numbers, convert them first: i.astype(int)."
        raise IndexError(message("Ensemble", "an index", "hold integers or bools", seen, advice))
    if isinstance(item, Ensemble):
        if not _is_known_to_agree(item):
            return item
        item = item.sample(0)
    if isinstance(item, list):
        item = np.asarray(item, dtype=None if item else np.int64)
    if item is None or item is Ellipsis or isinstance(item, slice | bool | int):
        return item
    if is_array(item) and (len(item.shape) or "bool" in str(item.dtype)):
        return item
    try:
        return as_index(item)
    except TypeError:
        requirement = "hold integers, slices, Ellipsis, newaxis, or arrays of integers or bools"
        raise IndexError(message("Ensemble", "an index", requirement, repr(item), ADVICE)) from None


def _is_known_to_agree(x: Ensemble) -> bool:
    """Whether all samples are alike; values that JAX is still tracing are not known."""
    try:
        return agreed(x.samples)
    except TypeError:
        return False


def _is_advanced(item: Any) -> bool:
    if type(item) in BASIC:
        return False
    return isinstance(item, bool) or is_array(item)


def _axes_used(item: Any) -> int:
    if type(item) is int or type(item) is slice:
        return 1
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if is_array(item) or isinstance(item, Ensemble):
        return len(item.shape) if _is_mask(item) else 1
    return 1


def with_samples(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """`items` made to leave the last axis alone."""
    given = any(item is Ellipsis for item in items)
    return (*items, slice(None)) if given else (*items, Ellipsis, slice(None))


def _value(value: Any) -> Array:
    if isinstance(value, Ensemble):
        return value.samples
    value = plain_array(value, "Ensemble", "an assigned value")
    if is_array(value):
        return value[..., None] if not isinstance(value, np.generic) else value
    return value


def _sample_of(value: Any, s: int) -> Any:
    return value.sample(s) if isinstance(value, Ensemble) else value


def _stacked(x: Ensemble, columns: list[Array]) -> Array:
    return x._base().stack(columns, axis=-1)


def _get_per_sample(x: Ensemble, items: tuple[Any, ...]) -> Ensemble:
    """An index that differs from sample to sample."""
    indices = [item for item in items if isinstance(item, Ensemble)]
    sample_set = x.sample_set
    n_samples = x.n_samples
    for index in indices:
        sample_set = common_set(sample_set, index.sample_set)
        if n_samples != index.n_samples and 1 not in (n_samples, index.n_samples):
            seen = f"{index.n_samples} for {n_samples} samples"
            raise ValueError(message("Ensemble", "an index", "have the samples of x", seen))
        n_samples = max(n_samples, index.n_samples)
    for index in indices:
        if not _is_mask(index):
            continue
        counts = to_numpy(index.samples).reshape(-1, index.n_samples)
        if np.unique(np.count_nonzero(counts, axis=0)).size > 1:
            seen = f"{np.count_nonzero(counts, axis=0).tolist()} entries in samples 0 to {index.n_samples - 1}"
            requirement = "a boolean index must select equally many entries in every sample"
            raise split(requirement, seen, "Use xp.where, or per_sample.")
    if len(items) == 1 and x.ndim == 1 and type(x.samples) is np.ndarray and indices[0].samples.dtype.kind in "iu":
        found = picked(x.samples, indices[0].samples)
        if found is not None:
            return wrap(found, sample_set)
        each = np.arange(n_samples) if not x.is_shared else 0
        return wrap(x.samples[indices[0].samples, each], sample_set)
    columns = [
        x.samples[..., 0 if x.is_shared else s][tuple(index_of(item, s) for item in items)] for s in range(n_samples)
    ]
    result = Ensemble(_stacked(x, columns), sample_set)
    is_view = result.ndim and not any(len(item.shape) or "bool" in str(item.dtype) for item in indices)
    if is_view and not any(_is_advanced(item) for item in items if not isinstance(item, Ensemble)):
        return _of_places(x, result, items)  # each sample's own would be a view
    return result


def _of_places(x: Ensemble, entries: Ensemble, items: tuple[Any, ...]) -> Ensemble:
    """`entries` where ``x[items]`` of each sample is a view: it follows `x`, and nothing can be written through it."""
    if type(x.samples) is not np.ndarray:
        return read_only(entries)
    source = x.samples
    places = [tuple(index_of(item, s) for item in items) for s in range(entries.n_samples)]

    def fill(memory: np.ndarray) -> None:
        for s, place in enumerate(places):
            memory[..., s] = source[..., 0 if source.shape[-1] == 1 else s][place]

    result: Ensemble = follow(x, entries, fill)
    return result


def index_of(item: Any, s: int) -> Any:
    if not isinstance(item, Ensemble):
        return item
    plain = item.sample(s)
    if len(plain.shape) or "bool" in str(plain.dtype):
        return plain
    try:
        return int(plain)
    except TypeError:  # JAX is tracing: the index is an array to it
        return plain


def _assign_per_sample(x: Ensemble, items: tuple[Any, ...], value: Any) -> None:
    """Assign where each sample has its own index."""
    if len(items) == 1 and "bool" in str(items[0].dtype):
        mask, plain = items[0], _value(value)
        if 0 in mask.shape:
            return
        if not hasattr(plain, "shape") or len(plain.shape) <= 1:  # one value per sample: no counting of entries
            base = x._base()
            rest = x.ndim - mask.ndim
            wide = base.reshape(mask.samples, (*mask.shape, *(1,) * rest, mask.n_samples))
            # Converted to the dtype of `x` first: entries outside the mask keep every bit.
            plain = base.astype(plain, x.dtype) if is_array(plain) else base.asarray(plain, dtype=x.dtype)
            x.samples = assigned(x.samples, ..., base.where(wide, plain, x.samples))
            return
    for s in range(x.n_samples):
        _assign_sample(x, s, tuple(index_of(item, s) for item in items), _sample_of(value, s))


PROTOCOLS.get_item = get
PROTOCOLS.set_item = assign
