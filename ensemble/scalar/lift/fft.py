"""Fourier transforms along visible axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.lift.reductions import visible_axes, visible_axis
from ensemble.scalar.namespace import EnsembleNamespace, named


def along_one_axis(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `fft` and the other one-dimensional transforms."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Ensemble:
        x = ns.lift(x, name)
        return wrap(packed(f(x.samples, n=n, axis=visible_axis(axis, x.ndim, name), norm=norm)), x.sample_set)

    return named(lifted, name)


def along_axes(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `fftn` and the other transforms over several axes; `s` without `axes` means the last visible axes."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Ensemble:
        x = ns.lift(x, name)
        if axes is None and s is not None:
            axes = tuple(range(-len(s), 0))
        return wrap(packed(f(x.samples, s=s, axes=visible_axes(axes, x.ndim, name), norm=norm)), x.sample_set)

    return named(lifted, name)


def shifted(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `fftshift` and `ifftshift`."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /, *, axes: Any = None) -> Ensemble:
        x = ns.lift(x, name)
        return wrap(packed(f(x.samples, axes=visible_axes(axes, x.ndim, name))), x.sample_set)

    return named(lifted, name)


def frequencies(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `fftfreq` and `rfftfreq`: shared."""
    f = getattr(ns.base, name)

    def lifted(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Ensemble:
        return wrap(f(n, d=d, dtype=dtype, device=device)[..., None])

    return named(lifted, name)
