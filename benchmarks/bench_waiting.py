"""What a user waits for: the import, the help, the first run and first uses from empty caches of kernels.

``python -m benchmarks waiting [--rounds 3]``: whole processes, each with caches of its own in a new folder; seconds by
the clock and of processor time, children included, the median of the rounds. Record: `waiting-now`; that of `waiting`
is a history of such figures that was written by hand.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.common import median, save, show

ODE = """
import numpy as np, ensemble as en
f = lambda t, y, p, xp: (10.0 * (y[1] - y[0]), y[0] * (28.0 - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2])
en.ode.solve(f, np.ones(3), (0.0, 1.0))
"""

SPARSE = """
import numpy as np, scipy.sparse as sp, ensemble as en
line = sp.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(20, 20))
A = en.linalg.CrsMatrix.from_scipy(sp.csr_array(sp.kron(line, sp.eye_array(20)) + sp.kron(sp.eye_array(20), line)))
A = en.linalg.CrsMatrix(A.graph, np.repeat(A.values, 8, axis=1))
b = en.Ensemble(np.ones((400, 8)))
{solve}
"""

PROGRAMS: dict[str, list[str]] = {
    "python -c pass": ["-c", "pass"],
    "import ensemble": ["-c", "import ensemble"],
    "ensemble --help": ["-m", "ensemble", "--help"],
    "first run of ensemble diffusion": ["-m", "ensemble", "diffusion"],
    "ode.solve": ["-c", ODE],
    "krylov.direct, 400 unknowns, 8 samples": ["-c", SPARSE.format(solve="en.krylov.direct(A, b)")],
    "cg with smoothed_aggregation, the same": [
        "-c", SPARSE.format(solve="en.krylov.cg(A, b, M=en.multigrid.smoothed_aggregation(A))")
    ],
    "ensemble gbees lorenz63 --until 0.2": ["-m", "ensemble", "gbees", "lorenz63", "--until", "0.2"],
}  # fmt: skip
"""Words after ``python``."""


def once(words: list[str]) -> tuple[float, float]:
    """Seconds by the clock and of processor time of a process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"NUMBA_CACHE_DIR": f"{folder}/numba", "XDG_CACHE_HOME": f"{folder}/cache"}
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *words], env={**os.environ, **places}, cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks waiting", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    rows: list[dict[str, Any]] = []
    for name, words in PROGRAMS.items():
        found = [once(words) for _ in range(rounds)]
        rows.append({"process": name, "s": median([s for s, _ in found]), "processor s": median([p for _, p in found])})
    show("Whole processes from empty caches", rows)
    save("waiting-now", rows, rounds=rounds, load=os.getloadavg())


if __name__ == "__main__":
    main()
