"""Assembly of diffusion on tetrahedra: time per sample against samples, of a core and of a device.

From the records `forms-samples-1threads` and `forms-cuda`, on one mesh.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import BLUE, GREEN, panels, record, save


def draw(on_cpu: dict[str, Any], on_device: dict[str, Any]) -> None:
    """Milliseconds per sample of both, and the bound of the device."""
    there = [row for row in on_device["rows"] if row["assembled"].startswith("diffusion")]
    figure, axes = panels(1, 1, 4.2)
    bound = [row["bound ms"] / row["samples"] for row in there]
    curves = [
        (on_cpu["rows"], "one core", BLUE, "o"),
        (there, on_device["device"].removeprefix("NVIDIA "), GREEN, "^"),
    ]
    for rows, name, colour, mark in curves:
        sizes, times = [row["samples"] for row in rows], [row["ms per sample"] for row in rows]
        axes.plot(sizes, times, mark + "-", color=colour, label=name)
        for size, time in ((sizes[0], times[0]), (sizes[-1], times[-1])):
            axes.annotate(f"{time:.2g}", (size, time), textcoords="offset points", xytext=(0, 7), ha="center")
    axes.plot([row["samples"] for row in there], bound, "--", color="0.5", label="bytes that must move")
    axes.set(xscale="log", yscale="log", xlabel="samples in the ensemble", ylabel="milliseconds per sample")
    axes.set_xticks([row["samples"] for row in there], [str(row["samples"]) for row in there])
    axes.minorticks_off()
    axes.margins(y=0.12)
    axes.legend()
    axes.set_title(f"Diffusion matrix, {on_device['elements']:,} tetrahedra, a coefficient per element")
    save(figure, "assembly-per-sample.png")


def main() -> None:
    """Draw the records; where the meshes differ they are not comparable."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    on_cpu, on_device = record("forms-samples-1threads"), record("forms-cuda")
    if on_cpu["elements"] != on_device["elements"]:
        raise ValueError(f"meshes of {on_cpu['elements']} and {on_device['elements']} tetrahedra are not comparable")
    draw(on_cpu, on_device)
