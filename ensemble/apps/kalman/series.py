"""A model and observations in one form, and the conversion of arrays to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ensemble._backend import array_namespace, backend_of, is_array
from ensemble._check import message, require
from ensemble._typing import Array
from ensemble.apps.kalman.interop.arguments import real_array
from ensemble.scalar import Ensemble

__all__ = [
    "Series",
    "check_not_infinite",
    "check_samples",
    "common_dtype",
    "common_namespace",
    "masked",
    "time_first",
    "wider_dtype",
]


@dataclass(frozen=True)
class Series:
    """A model and observations in one form: time first, one dtype, batch axes that broadcast.

    `F` has shape (T or 1, *batch or 1s, nx, nx) and so on; `m0` (*batch or 1s, nx), `P0` alike; `y` (T, *batch, ny).
    `diffuse` is (*batch or 1s, nx, n_diffuse); `S` is None where noises have been made independent. `index` is that of
    a pandas table `y`. `root` is a factor of P0 where that is known with more digits than P0 shows.
    Without `sees_exactly`, no entry is seen without noise.
    """

    F: Array
    Q: Array
    H: Array
    R: Array
    u: Array
    d: Array
    m0: Array
    P0: Array
    y: Array
    batch: tuple[int, ...]
    predict_first: bool
    diffuse: Array | None = None
    S: Array | None = None
    index: Any = None
    root: Array | None = None
    sees_exactly: bool = True

    @property
    def is_mixed(self) -> bool:
        """Whether vectors are wider than matrices."""
        return bool(self.y.dtype != self.F.dtype)

    @property
    def n_steps(self) -> int:
        """The number of observations."""
        return int(self.y.shape[0])

    def at(self, name: str, k: int) -> Array:
        """Part `name` at step `k`; a constant is every step."""
        a = getattr(self, name)
        return a[k if a.shape[0] > 1 else 0, ...]

    def each(self, name: str, steps: slice) -> Array:
        """Part `name` at `steps`, one entry for all of them where it is constant."""
        a = getattr(self, name)
        return a[steps, ...] if a.shape[0] > 1 else a


def check_not_infinite(y: Array, function: str) -> None:
    """Refuse infinite observations; on a device, where the test would synchronise, `raise_if_failed` names them."""
    values = _values(y)
    if backend_of(values) == "cuda":
        return
    xp = array_namespace(values)
    infinite = bool(xp.any(xp.isinf(values)))
    require(not infinite, function, "y", "be finite, or NaN where missing", "infinity in it", "Missing is NaN.")


def common_namespace(given: dict[str, Any], function: str) -> Any:
    """The namespace of a model's parts, observations and mask."""
    arrays = [a for a in given.values() if is_array(a) or isinstance(a, Ensemble)]
    try:
        return array_namespace(*arrays)
    except TypeError:
        seen = ", ".join(sorted({type(_values(a)).__module__.split(".")[0] for a in arrays}))
        advice = "Move one of them with xp.asarray or from_dlpack."
        raise TypeError(message(function, "model, y and mask", "be of one array library", seen, advice)) from None


def common_dtype(xp: Any, arrays: Sequence[Array]) -> Any:
    """The type that holds the numbers of all arrays."""
    first = arrays[0].dtype
    return first if all(a.dtype == first for a in arrays) else xp.result_type(*(a.dtype for a in arrays))


def check_samples(counts: dict[str, int], function: str) -> None:
    """Raise unless all named Ensembles have one number of samples, or are shared."""
    counts = {name: n for name, n in counts.items() if n > 1}
    if len(set(counts.values())) <= 1:
        return
    seen = ", ".join(f"{name}: {n}" for name, n in counts.items())
    require(False, function, "Ensembles", "have one number of samples", seen)


def wider_dtype(xp: Any, dtype: Any, narrow: Any, function: str) -> Any:
    """The floating type called `dtype`, which must hold every number of type `narrow`."""
    names = ("float32", "float64")
    fit = isinstance(dtype, type) or not (is_array(dtype) or isinstance(dtype, Ensemble))
    known = next((getattr(xp, name) for name in names if fit and (dtype == name or dtype == getattr(xp, name))), None)
    fits = known is not None and xp.result_type(known, narrow) == known
    require(fits, function, "mean_dtype", f"be float32 or float64 and as wide as {narrow}", dtype)
    return known


def time_first(xp: Any, a: Array, n_batch: int, tail: int) -> Array:
    """`a` of shape (*batch, time, *tail) with time first and `n_batch` batch axes."""
    lead = len(a.shape) - tail
    if lead == 0:
        return xp.reshape(a, (1,) * (n_batch + 1) + tuple(a.shape))
    if lead == 1 and n_batch == 0:  # the usual case
        return a
    a = xp.moveaxis(a, lead - 1, 0)
    return xp.reshape(a, (a.shape[0], *(1,) * (n_batch - lead + 1), *a.shape[1:]))


def masked(xp: Any, y: Array, mask: Any, dtype: Any, function: str) -> Array:
    """`y` with NaN where `mask` holds; `mask` has the shape of `y`, or one entry per step."""
    mask = xp.asarray(mask if isinstance(mask, Ensemble) else real_array(mask, "mask", function, as_is=True))
    seen = f"dtype {mask.dtype}"
    require(xp.isdtype(mask.dtype, "bool"), function, "mask", "hold bools, true where y is missing", seen)
    shapes = tuple(y.shape), tuple(y.shape[:-1])
    seen = f"shape {tuple(mask.shape)} for {shapes[0]}"
    require(tuple(mask.shape) in shapes, function, "mask", "have the shape of y, or of y without its last axis", seen)
    if tuple(mask.shape) != shapes[0]:
        mask = xp.expand_dims(mask, axis=-1)
    y = xp.astype(xp.asarray(y), dtype, copy=False)
    return xp.where(mask, xp.asarray(float("nan"), dtype=dtype), y)


def _values(a: Array) -> Array:
    return a.samples if isinstance(a, Ensemble) else a
