"""Seconds of whole processes whose cache of compiled code is empty, imports included, and what they compile.

Run it on two checkouts in turn, with PYTHONPATH at the library that is measured, for a comparison.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import save, show

PROBLEM = """
import numpy as np
import ensemble as en
from ensemble.linalg import CrsMatrix
laplacian = en.gallery.poisson((40, 40))
kappa = np.random.default_rng(7).lognormal(sigma=0.3, size=32)
A = CrsMatrix(laplacian.graph, laplacian.values * kappa)
"""

CG = (
    PROBLEM
    + """
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation
result = cg(A, np.ones(1600), M=smoothed_aggregation(A), rtol=1e-8)
"""
)

PROGRAMS = {
    "cg, aggregation": CG,
    "README": CG + "cg(A.sample(3), np.ones(1600), M=smoothed_aggregation(A.sample(3)), rtol=1e-8)\n",
    "direct": PROBLEM + "from ensemble.krylov import direct\ndirect(A, np.ones(1600))\n",
    "eigsh": PROBLEM + "from ensemble.linalg import eigsh\neigsh(A.sample(3), 3)\n",
    "ode.solve": """
import numpy as np
import ensemble as en
f = lambda t, y, p, xp: [10.0 * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]]
en.ode.solve(f, en.Ensemble(np.random.default_rng(5).random((3, 32))), (0.0, 1.0), p=[28.0])
""",
    "kalman_filter": """
import numpy as np
import ensemble as en
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
one = np.ones((1, 1))
q = en.Ensemble(np.random.default_rng(4).random(32) + 0.5)
model = LinearGaussianModel(F=one, Q=q * one, H=one, R=one, m0=np.zeros(1), P0=one)
kalman_filter(model, np.random.default_rng(3).normal(size=(100, 1)))
""",
}
"""First uses, each a program of its own."""


def first_use(program: str) -> tuple[float, int, int]:
    """Seconds of a process with an empty cache; the kernels that `loops/` translated, and those that Numba compiled."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        seconds = time.perf_counter() - start
        return seconds, len([*Path(folder).rglob("code_*.o")]), len([*Path(folder).rglob("kernel_*.nbc")])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks first-uses", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each program (default 5)")
    found: dict[str, list[tuple[float, int, int]]] = {name: [] for name in PROGRAMS}
    for _ in range(parser.parse_args().rounds):
        for name, program in PROGRAMS.items():
            found[name].append(first_use(program))
    rows: list[dict[str, Any]] = [
        {
            "first use": name,
            "s": np.median([each[0] for each in runs]),
            "translated": runs[0][1],
            "by Numba": runs[0][2],
        }
        for name, runs in found.items()
    ]
    show("Whole processes with an empty cache", rows)
    save("first-uses", rows)


if __name__ == "__main__":
    main()
