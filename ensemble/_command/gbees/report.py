"""The results of a grid's run: a table as text, or one JSON object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble.apps.gbees import Cells, SavedRun
from ensemble.apps.gbees.analysis.distribution import covariance, mean

__all__ = ["Outcome", "as_json", "as_table"]


@dataclass
class Outcome:
    """A run and how it went; the command fills it."""

    saved_run: SavedRun
    axes: tuple[str, ...]
    options: dict[str, Any]
    seconds: float = 0.0
    cell_steps_before: int = 0
    interrupted: bool = False
    comparison: dict[str, float] = field(default_factory=dict)
    units: tuple[str, ...] = ()
    time_unit: str = ""
    published: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the coordinates, with units where they have some."""
        units = self.units if len(self.units) == len(self.axes) else ("",) * len(self.axes)
        return tuple(f"{name} ({unit})" if unit else name for name, unit in zip(self.axes, units, strict=True))

    @property
    def rate(self) -> float:
        """Cell-steps a second of this call."""
        return (self.saved_run.cell_steps - self.cell_steps_before) / max(self.seconds, 1e-9)


def moments(cells: Cells) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each coordinate."""
    return mean(cells).tolist(), np.sqrt(np.diag(covariance(cells))).tolist()


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The run as plain numbers, None for what is not known."""
    saved_run = outcome.saved_run
    steps = saved_run.steps
    records = []
    for cells, span in zip(saved_run.distributions, saved_run.spans):
        centre, deviation = moments(cells)
        held = float(np.sum(cells.probabilities, dtype=np.float64))
        records.append(
            {"time": cells.time, "measurements": span, "active_cells": len(cells.probabilities), "mean": centre,
             "std": deviation, "probability": held}
        )  # fmt: skip
    first = saved_run.distributions[0] if saved_run.distributions else None
    return {
        "problem": saved_run.title,
        "dimensions": len(outcome.axes),
        "axes": list(outcome.axes),
        "widths": None if first is None else np.asarray(first.widths).tolist(),
        "threshold": saved_run.threshold,
        **outcome.options,
        "records": records,
        "log_evidences": saved_run.log_evidences,
        "steps": len(steps),
        "cell_steps": saved_run.cell_steps,
        "largest_grid": int(np.max(steps.cells, initial=0)),
        "mass_min": float(np.min(steps.masses)) if len(steps) else None,
        "mass_max": float(np.max(steps.masses)) if len(steps) else None,
        "mass_loss": known(float(np.sum(steps.losses))),
        "mass_gain": known(float(np.sum(steps.clipped))),
        "interrupted": outcome.interrupted,
        "seconds": outcome.seconds,
        "cell_steps_per_second": outcome.rate,
        "monte_carlo": outcome.comparison or None,
    }


PUBLISHED = "(on the published cells and threshold; --factor, --threshold and --cfl set others)"
"""What the table says of probability that a built-in problem loses."""


def known(value: float) -> float | None:
    """None for NaN: older files have no clipped mass."""
    return value if np.isfinite(value) else None


def as_table(outcome: Outcome) -> str:
    """The run as lines of text."""
    found = as_json(outcome)
    widths = " x ".join(f"{width:.3g}" for width in found["widths"] or [])
    lines = [
        f"GBEES {found['problem']}: {found['dimensions']} dimensions, threshold {found['threshold']:g}, cells of "
        f"{widths or 'no size yet'}, {found['dtype']}, backend {found['backend']}"
        + ("; interrupted" if outcome.interrupted else ""),
        "",
        "       time  active cells  " + "  ".join(f"{f'mean {name}':>11s} {'std':>9s}" for name in outcome.axes),
    ]
    span = 0
    for record in found["records"]:
        if record["measurements"] > span:
            span = record["measurements"]
            lines.append(f"  measurement {span}: log evidence {found['log_evidences'][span - 1]:.6g}")
        numbers = "  ".join(f"{m:11.5g} {s:9.3g}" for m, s in zip(record["mean"], record["std"]))
        lines.append(f"{record['time']:11.6g}  {record['active_cells']:12,d}  {numbers}")
    lines += [
        "",
        f"{found['steps']:,} steps, {found['cell_steps']:,} cell-steps, at most {found['largest_grid']:,} cells",
    ]
    if found["steps"]:
        lines.append(f"probability before normalising: {found['mass_min']:.6f} to {found['mass_max']:.6f}")
    if found["steps"] and found["mass_loss"] is not None:
        lines.append(
            f"probability lost over the rim: {found['mass_loss']:.2g}, added by clipping: {found['mass_gain']:.2g}"
        )
        if outcome.published:
            lines.append(PUBLISHED)
    lines.append(f"{found['seconds']:.3g} s, {found['cell_steps_per_second'] / 1e6:.3g} M cell-steps/s")
    if outcome.comparison:
        lines += ["", *comparison_lines(outcome.comparison)]
    return "\n".join(lines)


def comparison_lines(found: dict[str, float]) -> list[str]:
    """The comparison with Monte Carlo."""
    return [
        f"{found['samples']:,.0f} Monte Carlo samples at t = {found['time']:g}, carried in {found['seconds']:.3g} s",
        f"  Bhattacharyya coefficient  {found['kernel_density']:.4f}  with their kernel density estimate (Scott)",
        f"                             {found['bins']:.4f}  with their counts in bins of {found['bin_cells']:g} cells",
    ]
