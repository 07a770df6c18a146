"""Figures of `docs/images`, drawn from the records in `benchmarks/results`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def record(name: str) -> Any:
    """The content of ``benchmarks/results/NAME.json``."""
    return json.loads((Path(__file__).parents[1] / "results" / f"{name}.json").read_text())


def pyplot() -> Any:
    """Matplotlib without a window."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
