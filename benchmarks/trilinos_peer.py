"""CG with smoothed aggregation by Trilinos' ensembles (`trilinos_peer.cpp`): compiled and run for `bench_distributed`.

Debian's trilinos-all-dev has them for 16 samples on one thread; its libraries are of ``-O2`` code without an
instruction set of its own. What the headers make is compiled for this processor.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

HEADERS, COMPILER = Path("/usr/include/trilinos"), "/usr/bin/mpicxx"
FLAGS = "-std=c++17 -O2 -march=native -w"
ENSEMBLES = ("muelu", "ifpack2", "xpetra", "tpetraext", "tpetra", "tpetra_sd")
LIBRARIES = (
    *(f"stokhos_{part}_mp_16_serial" for part in ENSEMBLES),
    "stokhos_muelu", "stokhos_ifpack2", "stokhos_xpetra", "stokhos_tpetra", "stokhos_sacado", "stokhos",
    "belostpetra", "belos", "muelu-adapters", "muelu", "ifpack2", "amesos2", "xpetra-sup", "xpetra", "tpetraext",
    "tpetra", "sacado", "kokkoskernels", "teuchoskokkoscompat", "teuchoskokkoscomm", "teuchosremainder",
    "teuchosnumerics", "teuchoscomm", "teuchosparameterlist", "teuchosparser", "teuchoscore", "kokkosalgorithms",
    "kokkoscontainers", "kokkoscore",
)  # fmt: skip


def compiled(folder: Path) -> Path | None:
    """The program, made in `folder`; None where Trilinos' ensembles or a compiler for MPI are not installed."""
    if not (HEADERS / "Stokhos_MueLu_MP_Vector.hpp").exists() or shutil.which(COMPILER) is None:
        return None
    program = folder / "trilinos_peer"
    command = [COMPILER, *FLAGS.split(), f"-I{HEADERS}", str(Path(__file__).with_suffix(".cpp")), "-o", str(program)]
    subprocess.run([*command, *(f"-ltrilinos_{name}" for name in LIBRARIES)], check=True)
    return program


def rounds(program: Path, folder: Path, number: int, seconds: float) -> list[dict[str, Any]]:
    """Seconds of set-up and solve to 1e-7, iterations and residuals of each round, on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [str(program), str(folder), str(number), str(seconds)]
    if pinned := shutil.which("taskset"):
        command = [pinned, "-c", "0", *command]
    subprocess.run(command, env=environment, check=True)
    found: list[dict[str, Any]] = json.loads((folder / "trilinos.json").read_text())
    assert all(row["converged"] for row in found)
    return found
