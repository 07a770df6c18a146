"""The picture of `docs/howto/sensitivity.md`: a swing over time, and the Sobol' indices at each time."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy import stats

import ensemble as en
from benchmarks.plots import panels, save
from ensemble import xp

TIMES = np.linspace(0.0, 6.0, 120)


def swing(x: Any) -> dict[str, Any]:
    """The place of a mass that was released at 1."""
    frequency = xp.sqrt(x.stiffness / x.mass - x.damping**2)
    return {"place": xp.stack([xp.exp(-x.damping * t) * xp.cos(frequency * t) for t in TIMES])}


def main() -> None:
    """Draw ``docs/images/sensitivity.png``."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    inputs = en.Inputs(
        stiffness=stats.lognorm(0.15, scale=2.0), damping=stats.uniform(0.1, 0.2), mass=stats.norm(1.0, 0.05)
    )
    study = en.propagate(swing, inputs, 4096, seed=12, progress=False)
    indices = en.sobol_indices(swing, inputs, 4096, seed=11, progress=False)
    figure, (above, below) = panels(2, 1, 6.0)
    study.plot.fan("place", TIMES, ax=above)
    above.set_xlim(TIMES[0], TIMES[-1])
    indices.plot("place", along=TIMES, ax=below)
    below.set_xlabel("time in s")
    for axes in (above, below):
        for text in axes.get_legend().get_texts():
            text.set_fontsize(10.5)
    save(figure, "sensitivity.png")
