"""Numbers, times and descriptions of inputs as texts of a report."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["count", "described_input", "duration", "moment", "number", "percent"]

DASH = "–"


def number(value: Any) -> str:
    """A number to five digits; a dash for what is not finite."""
    if isinstance(value, complex | np.complexfloating):
        return f"{value:.5g}"
    found = float(value)
    return f"{found:.5g}".replace("-", "−") if np.isfinite(found) else DASH


def count(n: int, one: str, several: str | None = None) -> str:
    """How many there are: ``1 sample``, ``1,024 samples``."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def percent(part: float, whole: float) -> str:
    """A share in percent, with a digit more where it is small."""
    if not whole:
        return "0 %"
    share = 100.0 * part / whole
    if 0.0 < share < 0.001:
        return "less than 0.001 %"
    return f"{share:.0f} %" if share >= 10.0 or share == 0.0 else f"{share:.2g} %"


def moment(seconds: float) -> str:
    """A time as date and time of day, UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= 1.5 * size or (unit == "s" and seconds >= 1.0):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def described_input(described: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of an input and its parameters, from a description in a manifest; unknown ones by their kind."""
    kind = str(described.get("kind", "unknown"))
    if kind == "scipy" and ("digest" in described or "inverse" in described):  # of values, or of a histogram
        return ("given values" if "digest" in described else "given distribution"), ""
    if kind in ("scipy", "own"):
        parameters = described.get("parameters")
        return str(described.get("distribution", kind)), pairs(parameters) if isinstance(parameters, Mapping) else ""
    if kind == "truncated" and isinstance(described.get("of"), Mapping):
        name, text = described_input(described["of"])
        ends = (f"{name} {number(described[name])}" for name in ("low", "high") if is_number(described.get(name)))
        return f"{name}, truncated", ", ".join([text, *ends])
    if kind == "constant":
        array = f"an array of shape {tuple(described.get('shape') or ())}"
        return "constant", number(described["value"]) if is_number(described.get("value")) else array
    if kind == "categorical":
        found = zip(described.get("labels") or (), described.get("probabilities") or ())
        return "categories", pairs({str(label): share for label, share in found})
    if kind == "vector":
        parts = described.get("components") or [described.get("component") or {}]
        listed = [described_input(part) for part in parts if isinstance(part, Mapping)]
        size = described.get("size", len(parts))
        text = "; ".join(f"{name}({text})" for name, text in listed[:4]) + ("; …" if len(listed) > 4 else "")
        return f"vector of {size}", text
    if kind == "mixture":
        parts = [described_input(part) for part in described.get("parts") or () if isinstance(part, Mapping)]
        weights = described.get("weights") or ()
        return "mixture", " + ".join(f"{w:.3g} {name}({text})" for w, (name, text) in zip(weights, parts))
    if "coefficients" in described:
        expansion = described.get("expansion")
        known = {k: v for k, v in expansion.items() if k not in ("digest",)} if isinstance(expansion, Mapping) else {}
        facts = {key: described[key] for key in ("mean", "std") if is_number(described.get(key))} | known
        return f"random field ({kind.replace('_', '-')})", pairs(facts)
    return kind.replace("_", " "), ""


def is_number(value: Any) -> bool:
    """Whether this is a plain number."""
    return isinstance(value, int | float)


def pairs(facts: Mapping[str, Any]) -> str:
    """Names and values."""
    return ", ".join(f"{name} = {number(v) if is_number(v) else plain(v)}" for name, v in facts.items())


def plain(value: Any) -> str:
    """A value that is no number: entries of a list one after the other."""
    if isinstance(value, list):
        return " × ".join(plain(one) for one in value) if len(value) <= 6 else f"{len(value)} numbers"
    return number(value) if is_number(value) else str(value)
