"""Shape manipulation: visible shapes and axes in, the sample axis kept last."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._check import message, require
from ensemble._typing import Array
from ensemble.scalar.divergence.policy import agreed
from ensemble.scalar.ensemble import Ensemble, entry_or_view, packed, view, wrap
from ensemble.scalar.lift.each_sample import each_sample
from ensemble.scalar.lift.reductions import flat, visible_axes, visible_axis
from ensemble.scalar.namespace import EnsembleNamespace, samples_of, set_of


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """`shape` as a tuple of ints."""
    if isinstance(shape, tuple | list):
        return tuple(operator.index(n) for n in shape)
    return (operator.index(shape),)  # type: ignore[arg-type]


def spread(ns: EnsembleNamespace, x: Ensemble, n_samples: int) -> Any:
    """The samples of `x`, as many as `n_samples`: a view of shared data, not a copy."""
    if x.n_samples == n_samples:
        return x.samples
    return ns.base.broadcast_to(x.samples, (*x.shape, n_samples))


def broadcast_to(ns: EnsembleNamespace, x: Array, /, shape: tuple[int, ...]) -> Ensemble:
    """`x`, read as if it had the visible `shape`."""
    x = ns.lift(x, "broadcast_to")
    shape = as_shape(shape)
    if len(shape) < x.ndim:
        raise ValueError(message("broadcast_to", "shape", f"have {x.ndim} axes or more", shape))
    return view(x, ns.base.broadcast_to(x.samples, (*shape, x.n_samples)))


def broadcast_arrays(ns: EnsembleNamespace, *arrays: Array) -> Sequence[Ensemble]:
    """All arrays broadcast to their common visible shape; shared data stays shared."""
    lifted = [ns.lift(x, "broadcast_arrays") for x in arrays]
    samples_of("broadcast_arrays", *lifted)
    shape = np.broadcast_shapes(*(x.shape for x in lifted))
    result: Sequence[Ensemble] = ns.sequence()(broadcast_to(ns, x, shape) for x in lifted)
    return result


def broadcast_shapes(ns: EnsembleNamespace, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which arrays of `shapes` broadcast."""
    return np.broadcast_shapes(*shapes)


def concat(ns: EnsembleNamespace, arrays: Sequence[Any], /, *, axis: int | None = 0) -> Ensemble:
    """Arrays one after the other along a visible axis."""
    lifted = [ns.lift(x, "concat") for x in arrays]
    n_samples = samples_of("concat", *lifted)
    if axis is None:
        lifted, axis = [flat(ns, x) for x in lifted], 0
    k = visible_axis(axis, lifted[0].ndim if lifted else 0, "concat")
    return wrap(packed(ns.base.concat([spread(ns, x, n_samples) for x in lifted], axis=k)), set_of(*lifted))


def stack(ns: EnsembleNamespace, arrays: Sequence[Any], /, *, axis: int = 0) -> Ensemble:
    """Arrays stacked along a new visible axis."""
    lifted = [ns.lift(x, "stack") for x in arrays]
    n_samples = samples_of("stack", *lifted)
    k = visible_axis(axis, lifted[0].ndim + 1 if lifted else 0, "stack")
    return wrap(packed(ns.base.stack([spread(ns, x, n_samples) for x in lifted], axis=k)), set_of(*lifted))


def unstack(ns: EnsembleNamespace, x: Array, /, *, axis: int = 0) -> tuple[Ensemble, ...]:
    """The slices of `x` along a visible axis."""
    x = ns.lift(x, "unstack")
    front = ns.base.moveaxis(x.samples, visible_axis(axis, x.ndim, "unstack"), 0)
    return tuple(entry_or_view(x, front[k, ...]) for k in range(front.shape[0]))


def expand_dims(ns: EnsembleNamespace, x: Array, /, axis: Any) -> Ensemble:
    """`x` with a new visible axis of length 1; a tuple names several."""
    x = ns.lift(x, "expand_dims")
    if not isinstance(axis, tuple | list):
        return view(x, ns.base.expand_dims(x.samples, axis=visible_axis(axis, x.ndim + 1, "expand_dims")))
    samples = x.samples
    for k in sorted(visible_axes(axis, x.ndim + len(axis), "expand_dims")):
        samples = ns.base.expand_dims(samples, axis=k)
    return view(x, samples)


def squeeze(ns: EnsembleNamespace, x: Array, /, axis: int | tuple[int, ...]) -> Ensemble:
    """`x` without the visible axes `axis`, each of length 1."""
    x = ns.lift(x, "squeeze")
    return view(x, ns.base.squeeze(x.samples, axis=visible_axes(axis, x.ndim, "squeeze")))


def flip(ns: EnsembleNamespace, x: Array, /, *, axis: int | tuple[int, ...] | None = None) -> Ensemble:
    """`x` with the order along visible axes reversed."""
    x = ns.lift(x, "flip")
    return view(x, ns.base.flip(x.samples, axis=visible_axes(axis, x.ndim, "flip")))


def moveaxis(ns: EnsembleNamespace, x: Array, source: Any, destination: Any, /) -> Ensemble:
    """`x` with visible axes moved to other places."""
    x = ns.lift(x, "moveaxis")
    places = (visible_axes(axis, x.ndim, "moveaxis") for axis in (source, destination))
    return view(x, ns.base.moveaxis(x.samples, *places))


def permute_dims(ns: EnsembleNamespace, x: Array, /, axes: tuple[int, ...]) -> Ensemble:
    """`x` with its visible axes in the order `axes`."""
    x = ns.lift(x, "permute_dims")
    require(len(axes) == x.ndim, "permute_dims", "axes", f"name {x.ndim} axes", tuple(axes))
    return view(x, ns.base.permute_dims(x.samples, (*visible_axes(tuple(axes), x.ndim, "permute_dims"), x.ndim)))


def matrix_transpose(ns: EnsembleNamespace, x: Array, /) -> Ensemble:
    """The last two visible axes exchanged."""
    x = ns.lift(x, "matrix_transpose")
    require(x.ndim > 1, "matrix_transpose", "x", "have 2 axes or more", f"shape {x.shape}")
    return view(x, ns.main.base.moveaxis(x.samples, -3, -2))


def reshape(ns: EnsembleNamespace, x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Ensemble:
    """The entries of `x` in the visible `shape`; one entry may be -1."""
    x = ns.lift(x, "reshape")
    shape = as_shape(shape)
    if shape.count(-1) == 1:
        rest = math.prod(n for n in shape if n != -1)
        fits = rest > 0 and x.size % rest == 0
        require(fits, "reshape", "shape", f"hold the {x.size} entries of x", shape)
        shape = tuple(x.size // rest if n == -1 else n for n in shape)
    fits = math.prod(shape) == x.size and min(shape, default=0) >= 0
    require(fits, "reshape", "shape", f"hold the {x.size} entries of x", shape)
    samples = ns.base.reshape(x.samples, (*shape, x.n_samples), copy=copy)
    return wrap(samples, x.sample_set) if copy else view(x, samples)


def roll(ns: EnsembleNamespace, x: Array, /, shift: Any, *, axis: Any = None) -> Ensemble:
    """`x` with its entries shifted cyclically along visible axes; along the flattened array without `axis`."""
    x = ns.lift(x, "roll")
    if axis is None:
        samples = ns.base.roll(flat(ns, x).samples, shift, axis=0)
        return wrap(ns.base.reshape(samples, x.samples.shape), x.sample_set)
    axes = visible_axes(axis, x.ndim, "roll")
    if not isinstance(axis, tuple | list):
        return wrap(packed(ns.base.roll(x.samples, shift, axis=axes[0])), x.sample_set)
    shifts = tuple(shift) if isinstance(shift, tuple | list) else (shift,) * len(axes)
    return wrap(packed(ns.base.roll(x.samples, shifts, axis=axes)), x.sample_set)


def tile(ns: EnsembleNamespace, x: Array, repetitions: tuple[int, ...], /) -> Ensemble:
    """Copies of `x` laid out along visible axes."""
    x = ns.lift(x, "tile")
    repetitions = as_shape(repetitions)
    samples = x.samples
    if len(repetitions) > x.ndim:
        samples = ns.base.reshape(samples, (*(1,) * (len(repetitions) - x.ndim), *samples.shape))
    return wrap(packed(ns.base.tile(samples, (*repetitions, 1))), x.sample_set)


def repeat(ns: EnsembleNamespace, x: Array, repeats: Any, /, *, axis: int | None = None) -> Ensemble:
    """Each entry `repeats` times along a visible axis; the samples may have their own counts, of one sum."""
    x = ns.lift(x, "repeat")
    sample_set = set_of(x, repeats)
    n_samples = samples_of("repeat", x, repeats)
    if isinstance(repeats, Ensemble):
        if not agreed(repeats.samples):
            result: Ensemble = each_sample(
                ns, "repeat", lambda v, counts: ns.base.repeat(v, counts, axis=axis), x, repeats
            )
            return result
        repeats = repeats.sample(0)
    if axis is None:
        x, axis = flat(ns, x), 0
    k = visible_axis(axis, x.ndim, "repeat")
    if is_array(repeats):
        # Spelled as a gather: libraries differ in what shapes of counts they take.
        counts = np.broadcast_to(to_numpy(repeats), (x.shape[k],))
        indices = ns.base.asarray(np.repeat(np.arange(x.shape[k]), counts))
        samples = ns.base.take(x.samples, indices, axis=k)
    else:
        samples = ns.base.repeat(x.samples, repeats, axis=k)
    return wrap(packed(samples), sample_set if n_samples == x.n_samples else None)
