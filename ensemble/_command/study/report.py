"""The statistics of a study as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble.uq import UqResult

__all__ = ["as_json", "as_text", "chosen_outputs"]

LARGEST = 1000
"""Entries of an output up to which its statistics are listed; of larger ones the range is."""

TITLES = {"mean": "mean", "mean_real": "mean, real part", "mean_imaginary": "mean, imaginary part", "std": "std"}


def chosen_outputs(result: UqResult, names: Sequence[str] | None) -> tuple[str, ...]:
    """The outputs called for, by default all."""
    for name in names or ():
        if name not in result.names:
            raise ValueError(f"--output must be one of {', '.join(result.names)}; got {name!r}.")
    return tuple(names) if names else result.names


def as_json(
    result: UqResult,
    names: Sequence[str] | None = None,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    level: float = 0.95,
) -> dict[str, Any]:
    """Counts, and for each output mean, deviation, interval and quantiles; null where there is none."""
    return {
        "n": result.n, "done": result.n_done, "failed": result.n_failed, "seed": result.seed,
        "ensemble_size": result.ensemble_size, "target_met": result.target_met, "level": level,
        "reasons": {str(k): text for k, text in list(result.reasons.items())[:20]},
        "failures": {reason: counts._asdict() for reason, counts in result.failures.items()},
        "outputs": {name: statistics(result, name, quantiles, level) for name in chosen_outputs(result, names)},
    }  # fmt: skip


def statistics(result: UqResult, name: str, quantiles: Sequence[float], level: float) -> dict[str, Any]:
    """The statistics of one output."""
    if not result.ids.size:
        return {}
    mean = np.asarray(result.mean(name))
    found: dict[str, Any] = {"shape": list(mean.shape)}
    found |= {"dims": list(result.dims[name])} if set(result.dims[name]) & set(result.coordinates) else {}
    found |= {"units": result.units[name]} if name in result.units else {}
    if mean.dtype.kind == "c":
        with np.errstate(invalid="ignore"):
            parts = {"mean_real": plain(mean.real), "mean_imaginary": plain(mean.imag), "std": plain(result.std(name))}
        return found | parts
    with np.errstate(invalid="ignore"):
        found |= {"mean": plain(mean), "std": plain(result.std(name))}
    if not result.no_interval():
        low, high = result.confidence_interval(name, level)
        found |= {"low": plain(low), "high": plain(high)}
    try:
        values = result.quantile(name, list(quantiles))
    except ValueError:  # negative weights
        return found
    return found | {"quantiles": {f"{q:g}": plain(value) for q, value in zip(quantiles, values, strict=True)}}


def plain(values: Any) -> Any:
    """Numbers as JSON holds them, null for what is not finite; the range of more than `LARGEST`."""
    array = np.asarray(values, np.float64)
    if array.size > LARGEST:
        return {"min": plain(array.min()), "max": plain(array.max())}
    if not array.ndim:
        return float(array) if np.isfinite(array) else None
    return [plain(part) for part in array]


def as_text(result: UqResult, names: Sequence[str], quantiles: Sequence[float], level: float) -> str:
    """The table of the result, and the quantiles of each output."""
    lines = [repr(result)]
    for name in names:
        lines.append(f"{name}:")
        found = statistics(result, name, quantiles, level)
        rows: list[tuple[str, Any]] = [(title, found[key]) for key, title in TITLES.items() if key in found]
        if "low" in found:
            rows += [(f"{level:.4g} interval, low", found["low"]), (f"{level:.4g} interval, high", found["high"])]
        rows += [(f"quantile {q}", value) for q, value in found.get("quantiles", {}).items()]
        lines += [f"  {title:<22}{shown(value)}" for title, value in rows]
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A number, the range of several, or a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return f"{shown(value['min'])} to {shown(value['max'])}"
    entries = np.array(value, np.float64)
    return f"{np.nanmin(entries):.6g} to {np.nanmax(entries):.6g}" if entries.size else "no entries"
