"""Results of a diffusion run as a table or as one JSON object."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._command.diffusion.record import Record

__all__ = ["as_json", "as_table"]

PHASES = {
    "coefficient": "Karhunen-Loeve field",
    "assembly": "assembly",
    "setup": "multigrid setup",
    "solve": "conjugate gradients",
}


def spread(counts: np.ndarray) -> tuple[int, float, int]:
    """Smallest, median and largest."""
    return int(counts.min()), float(np.median(counts)), int(counts.max())


def scalar_seconds(record: Record) -> float | None:
    """The median time of one sample solved alone; None where none was."""
    return float(np.median(record.scalar_seconds)) if record.scalar_seconds else None


def ensemble_seconds(record: Record) -> float | None:
    """The time per sample in ensembles; None where only the first was solved, whose time is that of compiling."""
    return record.seconds["total"] / record.timed if record.timed else None


def as_json(record: Record) -> dict[str, Any]:
    """The run as plain numbers, None for what is not known."""
    found = record.estimate
    iterations = spread(record.iterations[: record.done])
    alone, in_ensembles = scalar_seconds(record), ensemble_seconds(record)

    def number(x: float | None) -> float | None:
        return float(x) if x is not None and np.isfinite(x) else None

    options = record.options
    return {
        "cells": options.cells,
        "unknowns": record.problem.mesh.n_nodes,
        "ranks": 1 if record.comm is None else record.comm.size,
        "samples": record.done,
        "samples_asked_for": options.samples,
        "samples_failed": record.done - record.good.size,
        "interrupted": record.interrupted,
        "ensemble_size": record.ensemble_size,
        "sampler": options.sampler,
        "seed": options.seed,
        "terms": options.terms,
        "correlation_length": options.correlation_length,
        "mean": options.mean,
        "variance": options.variance,
        "source": options.source,
        "grading": options.grading,
        "mode_order": options.mode_order,
        "rtol": options.rtol,
        "response_mean": number(found.mean),
        "response_std": number(found.std),
        "response_interval": [number(found.low), number(found.high)],
        "response_interval_method": found.method,
        "iterations": iterations[1],
        "iterations_min": iterations[0],
        "iterations_max": iterations[2],
        "newton_iterations_max": int(record.newton_iterations[: record.done].max()),
        "samples_timed": record.timed,
        "seconds": record.seconds["total"],
        "seconds_by_phase": {name: record.seconds.get(name, 0.0) for name in ("prepare", "compile", *PHASES)},
        "seconds_per_sample": in_ensembles,
        "seconds_per_sample_alone": alone,
        "speedup": None if alone is None or in_ensembles is None else alone / in_ensembles,
    }


def as_table(record: Record) -> str:
    """The results as lines of text."""
    options, found, seconds = record.options, record.estimate, record.seconds
    n = record.done
    x, y, z = record.problem.mesh.cells
    points = "Sobol' points" if options.sampler == "sobol" else "Monte Carlo points"
    newton, cg = spread(record.newton_iterations[:n]), spread(record.iterations[:n])
    failed = n - record.good.size
    lines = [
        f"Random diffusion: {x} x {y} x {z} cells, {record.problem.mesh.n_nodes:,} unknowns, {options.terms} terms"
        + ("" if record.comm is None else f", {record.comm.size} ranks"),
        f"{n:,} samples ({points}, seed {options.seed}), {record.ensemble_size} at a time"
        + (f"; interrupted, {options.samples:,} were asked for" if n < options.samples else "")
        + (f"; {failed} did not converge and are left out" if failed else ""),
        "",
        "response: mean of u^2 over the nodes",
        f"  mean           {found.mean:.10g}",
        f"  std            {found.std:.4e}",
        f"  95 % interval  {found.low:.10g} .. {found.high:.10g}  of the mean; {found.method}",
        "",
        "iterations per sample  min  median  max",
        f"  Newton           {newton[0]:7d} {newton[1]:7g} {newton[2]:4d}",
        f"  CG, all steps    {cg[0]:7d} {cg[1]:7g} {cg[2]:4d}",
        "",
    ]
    first = n - record.timed
    in_ensembles = ensemble_seconds(record)
    if in_ensembles is not None:
        rows = [(title, seconds[name]) for name, title in PHASES.items()]
        rows.append(("other", seconds["total"] - sum(value for _, value in rows)))
        rows.append(("all", seconds["total"]))
        heading = "seconds" if not first else f"seconds, {record.timed:,} samples"
        lines.append(f"{heading:24s} {'total':>7s}  per sample")
        lines += [f"  {title:22s} {value:7.2f}  {value / record.timed:8.4f}" for title, value in rows]
    compiled = "compiling or loading kernels" + (f" and solving the first {first:,} samples" if first else "")
    lines.append(f"  before: {seconds['prepare']:.2f} preparing, {seconds['compile']:.2f} {compiled}")
    alone = scalar_seconds(record)
    if alone is not None and in_ensembles is not None:
        lines += [
            "",
            f"one sample at a time, same solver: {alone:.4f} s per sample (median of {len(record.scalar_seconds)}); "
            f"in ensembles {in_ensembles:.4f} s: {alone / in_ensembles:.1f} times as fast",
        ]
    return "\n".join(lines)
