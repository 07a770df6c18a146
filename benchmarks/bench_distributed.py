"""One problem on several ranks of MPI: halo exchanges, solves beside one process and PETSc, predicted weak scaling.

``python -m benchmarks distributed [--parts PART ...] [--minutes M]``. Ranks are pinned to cores. Two ranks exchange
through shared memory and through TCP of the loopback interface; the time of an exchange is fitted as ``a + b s``
(Phipps et al. 2017, equations 13 and 14). PETSc runs under the system's Python, and is left out where it has no
petsc4py. Predictions come from the records: `ensemble.distributed.cost_model` on the domains and levels of
`simulated_domains`. The part "trilinos" compiles `trilinos_peer.cpp` where Debian's trilinos-all-dev is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import trilinos_peer
from benchmarks.common import RESULTS, median, save, show
from benchmarks.predicted_scaling import fitted, predictions, simulated_levels
from ensemble.distributed.cost_model import fit_messages

ROOT = Path(__file__).parents[1]
TCP = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OMP", "OPENBLAS", "MKL")}
SYSTEM_PYTHON, SYSTEM_MPI = "/usr/bin/python3", "/usr/bin/mpiexec.openmpi"
TPETRA_US = 660.0
"""Microseconds of Tpetra's import of 4,291 rows of 16 samples, measured on another machine (machine E)."""


def on_ranks(ranks: int, task: str, options: dict[str, Any], environment: dict[str, str] | None = None) -> Any:
    """The rows of a task of `distributed_ranks`, each rank on a core of its own."""
    launcher = shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")
    if launcher is None:
        raise SystemExit("no mpiexec: pip install '.[mpi]'")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [launcher, "-bind-to", "core", "-n", str(ranks), sys.executable, "-m", "benchmarks.distributed_ranks"]
        environment = {**os.environ, **ONE_THREAD, **(environment or {})}
        subprocess.run([*command, task, str(file), json.dumps(options)], cwd=ROOT, env=environment, check=True)
        return json.loads(file.read_text())


# --- exchanges
def halo(options: argparse.Namespace) -> None:
    """Exchanges between two ranks by rows and samples, a + b s of each, and the gain beside equation 14."""
    samples = [1, 2, 4, 8, 16, 32, 64]
    rows = [50, 200, 1000, 4000, 4291]
    found, fits = [], []
    for way, environment in (("shared memory", {}), ("TCP", TCP)):
        budget = 60.0 * options.minutes / 2 / (2 * len(rows) * len(samples) + 2 * len(samples) + 6)
        measured = on_ranks(2, "halo", {"rows": rows, "samples": samples, "pieces": [1, 2, 4, 8, 13, 26],
                                        "budget": budget}, environment)  # fmt: skip
        found += [{"way": way, **row} for row in measured]
        fits += [fit_of(way, n, measured) for n in rows]
    show("Exchange between two ranks: a + b s, and the gain per sample of 32 samples in one message", fits)
    goals = goals_of(found)
    show("Goals", goals)
    save("distributed-halo", found, fits=fits, goals=goals, load=os.getloadavg(),
         times="us: median over batches of 10 exchanges; least us: their lower decile")  # fmt: skip


def fit_of(way: str, rows: int, measured: list[dict[str, Any]]) -> dict[str, Any]:
    """One line and two lines through the times of one size, and their largest relative errors."""
    own = [row for row in measured if row["what"] == "exchange" and row["rows"] == rows]
    s, t = (np.array([row[key] for row in own], float) for key in ("samples", "least us"))
    (b, a), two = np.polyfit(s, t, 1, w=1.0 / t), fit_messages(8.0 * rows * s, 1e-6 * t)
    by_two = np.array([1e6 * two(8.0 * rows * k) for k in s])
    at = {int(k): float(v) for k, v in zip(s, t, strict=True)}
    return {
        "way": way,
        "rows": rows,
        "a us": float(a),
        "b us": float(b),
        "error of one line": float(np.max(np.abs((a + b * s) / t - 1.0))),
        "error of two lines": float(np.max(np.abs(by_two / t - 1.0))),
        "gain at 32": 32 * at[1] / at[32],
        "eq. 14, one line": float(32 * (a + b) / (a + 32 * b)),
        "eq. 14, two lines": two.gain(8.0 * rows, 32),
    }


def goals_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was wanted of exchanges through shared memory, and what was measured."""
    at = {
        (row["rows"], row["samples"]): row["least us"]
        for row in found
        if row["way"] == "shared memory" and row["what"] == "exchange"
    }
    gains = {n: 32 * at[n, 1] / at[n, 32] for n in (50, 1000)}
    rows = [{"what": f"32 samples per sample, {n} rows, x one", "goal": goal, "measured": gains[n]}
            for n, goal in ((50, 8.0), (1000, 5.0))]  # fmt: skip
    return [*rows, {"what": "4,291 rows, 16 samples: 660 us over ours", "goal": 5.0,
                    "measured": TPETRA_US / at[4291, 16]}]  # fmt: skip


# --- solves
def solve(options: argparse.Namespace) -> None:
    """A solve without ranks, by one rank and by two, and products alone by one process and by two."""
    rows, raw = [], []
    for cells in options.cells:
        for S in options.samples:
            seconds = 60.0 * options.minutes / (len(options.cells) * len(options.samples))
            found = on_ranks(2, "solve", {"cells": cells, "samples": S, "rounds": options.rounds, "seconds": seconds})
            raw += [{"cells": cells, "samples": S, **row} for row in found]
            rows.append(summary(cells, S, found))
            show("One rank over none, two ranks over one, two processes of products alone over one", rows)
            save("distributed-solve", rows, rounds=raw, load=os.getloadavg())


def summary(cells: int, S: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds of the ratios within a round."""

    def total(row: dict[str, Any], what: str, suffix: str = "") -> float:
        return float(row[what][f"setup{suffix}"] + row[what][f"solve{suffix}"])

    def of(ratio: Any) -> float:
        return median([ratio(row) for row in found])

    gain = of(lambda r: r["one rank"]["solve"] / r["all ranks"]["solve"])
    alone = of(lambda r: r["one product"]["product"] / r["all products"]["product"])
    return {
        "cells": cells,
        "samples": S,
        "rounds": len(found),
        "stored": found[0]["stored"]["serial"] + ", " + found[0]["stored"]["all ranks"],
        "iterations, serial": found[0]["serial"]["iterations"],
        "iterations, ranks": found[0]["all ranks"]["iterations"],
        "serial, ms a sample": of(lambda r: 1e3 * total(r, "serial") / S),
        "one rank, ms a sample": of(lambda r: 1e3 * total(r, "one rank") / S),
        "two ranks, ms a sample": of(lambda r: 1e3 * total(r, "all ranks") / S),
        "one rank / serial, an iteration, processor time": of(
            lambda r: (
                r["one rank"]["solve cpu"]
                / r["one rank"]["iterations"]
                / (r["serial"]["solve cpu"] / r["serial"]["iterations"])
            )
        ),
        "the same of set-up": of(lambda r: r["one rank"]["setup cpu"] / r["serial"]["setup cpu"]),
        "two ranks x one, solve": gain,
        "two ranks x one, set-up": of(lambda r: r["one rank"]["setup"] / r["all ranks"]["setup"]),
        "two processes x one, product": alone,
        "solve / product": gain / alone,
        "load": of(lambda r: r["load"]),
    }


def weak(options: argparse.Namespace) -> None:
    """Microseconds of an iteration on one rank, and on two ranks with twice the cells."""
    found = []
    for edge in options.edges:
        task = {"edge": edge, "samples": [1, 8, 16, 32], "rounds": options.rounds,
                "seconds": 60.0 * options.minutes / 4 / len(options.edges)}  # fmt: skip
        found += on_ranks(2, "weak", task)
        save("distributed-weak", found, load=os.getloadavg())
    show("Weak scaling, one and two ranks", found)


def kernels(options: argparse.Namespace) -> None:
    """Products, levels of V-cycles and iterations on one rank, for the model."""
    task = {"cells": [8, 16, 24, 32, 48, 64], "samples": [1, 8, 16, 32], "calls": 60, "seconds": 60.0 * options.minutes}
    found = on_ranks(1, "kernels", task)
    save("distributed-kernels", found, load=os.getloadavg(), times="processor time on one thread, lower decile")


# --- peers
def has_petsc() -> bool:
    """Whether the system's Python has petsc4py, and a launcher of its MPI."""
    if not (shutil.which(SYSTEM_PYTHON) and shutil.which(SYSTEM_MPI)):
        return False
    return subprocess.run([SYSTEM_PYTHON, "-c", "import petsc4py"], capture_output=True, check=False).returncode == 0


def peers(options: argparse.Namespace) -> None:
    """PETSc for one sample beside our ensembles: milliseconds a sample, set-up counted, on one rank and on two."""
    if not has_petsc():
        print("PETSc: not installed (apt-get install python3-petsc4py libpetsc-real-dev)")
        return
    rows: list[dict[str, Any]] = []
    cells, clean = options.cells[0], {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    clean |= {**ONE_THREAD, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    seconds = 60.0 * options.minutes / 6
    with tempfile.TemporaryDirectory() as folder:
        write_system(Path(folder), cells)
        for kind, ranks in (("gamg", 1), ("gamg", 2), ("hypre", 1), ("hypre", 2)):
            command = [SYSTEM_MPI, "-bind-to", "core", "-n", str(ranks), SYSTEM_PYTHON]
            command += [str(ROOT / "benchmarks" / "petsc_peer.py"), folder, kind, str(options.rounds), str(seconds)]
            done = subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"PETSc, {kind}, {ranks} ranks: {done.stderr[-500:]}")
                continue
            timed = json.loads((Path(folder) / f"{kind}-{ranks}.json").read_text())
            rows.append({"run": f"PETSc, {kind}", "ranks": ranks, "samples": 1, "iterations": timed[0]["iterations"],
                         "setup ms": 1e3 * median([r["setup"] for r in timed]),
                         "solve ms": 1e3 * median([r["solve"] for r in timed]), "rounds": len(timed),
                         "load": os.getloadavg()[0]})  # fmt: skip
    for S in (1, 16, 32):
        found = on_ranks(2, "solve", {"cells": cells, "samples": S, "rounds": options.rounds, "seconds": seconds})
        for what, ranks in (("one rank", 1), ("all ranks", 2)):
            rows.append({"run": "ours", "ranks": ranks, "samples": S, "iterations": found[0][what]["iterations"],
                         "setup ms": 1e3 * median([r[what]["setup"] for r in found]) / S,
                         "solve ms": 1e3 * median([r[what]["solve"] for r in found]) / S, "rounds": len(found),
                         "load": os.getloadavg()[0]})  # fmt: skip
    show(f"Milliseconds a sample, {cells}^3 cells", rows)
    save("distributed-peers", rows, cells=cells, trilinos="record distributed-trilinos")


def trilinos(options: argparse.Namespace) -> None:
    """Trilinos' ensembles of 16 samples on one rank beside ours in turn: milliseconds a sample, set-up counted."""
    cells, S, rows = options.cells[0], 16, []
    with tempfile.TemporaryDirectory() as folder:
        program = trilinos_peer.compiled(Path(folder))
        if program is None:
            print("Trilinos: not installed (apt-get install trilinos-all-dev)")
            return
        write_ensembles(Path(folder), cells, S)
        seconds = 60.0 * options.minutes / 6
        for turn in range(options.turns):
            for run, found in (
                ("Trilinos", trilinos_peer.rounds(program, Path(folder), options.rounds, seconds)),
                ("ours", [row["one rank"] for row in on_ranks(1, "solve", {
                    "cells": cells, "samples": S, "rounds": options.rounds, "seconds": seconds})]),
            ):  # fmt: skip
                rows.append({"turn": turn, "run": run, "samples": S, "iterations": found[0]["iterations"],
                             "setup ms": 1e3 * median([r["setup"] for r in found]) / S,
                             "solve ms": 1e3 * median([r["solve"] for r in found]) / S, "rounds": len(found),
                             "load": os.getloadavg()[0]})  # fmt: skip
    show(f"Milliseconds a sample, {cells}^3 cells, one rank", rows)
    times = [row["setup ms"] + row["solve ms"] for row in rows]
    ratios = [theirs / own for theirs, own in zip(times[::2], times[1::2], strict=True)]
    print(f"Trilinos over ours: {median(ratios):.1f} ({', '.join(f'{r:.1f}' for r in ratios)})")
    save("distributed-trilinos", rows, cells=cells, ratio=median(ratios), ratios=ratios, flags=trilinos_peer.FLAGS)


def write_ensembles(folder: Path, cells: int, S: int) -> None:
    """The systems of all samples for `trilinos_peer`, zeros of eliminated rows taken out."""
    from benchmarks.distributed_ranks import system

    A, b = system(None, cells, S)
    matrix = A.to_crs().eliminate_zeros()
    for name, array, kind in (
        ("rows", matrix.graph.indptr, np.int32), ("columns", matrix.graph.indices, np.int32),
        ("values", matrix.values, np.float64), ("b", b.samples, np.float64),
    ):  # fmt: skip
        np.ascontiguousarray(array, kind).tofile(folder / f"{name}.bin")


def write_system(folder: Path, cells: int) -> None:
    """One sample's system for `petsc_peer`, zeros of eliminated rows taken out, in the order of two ranks."""
    from benchmarks.distributed_ranks import system
    from ensemble.apps.fem import RandomDiffusion
    from ensemble.distributed import serial

    A, b = system(None, cells, 1)
    partition = RandomDiffusion(cells, comm=serial()).partition
    order = partition.rows
    matrix = A.to_scipy(0).tocsr()[order][:, order]
    matrix.eliminate_zeros()
    matrix.sort_indices()
    middle = partition.domain_offsets[partition.domains // 2]
    arrays = {"indptr": matrix.indptr, "indices": matrix.indices, "values": matrix.data, "b": b.samples[order, 0],
              "offsets": np.array([0, middle, order.size])}  # fmt: skip
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


# --- predictions
def simulate(options: argparse.Namespace) -> None:
    """Domains and levels of up to 131,072 ranks: rows, ranks, messages and rows that are sent."""
    rows = simulated_levels()
    save("distributed-levels", rows, sent="ghost_rows: rows of 4 bytes a sample, of the busiest rank")
    shown = ("variant", "level", "total_rows", "ranks", "rows", "messages", "ghost_rows", "restriction_messages",
             "restriction_rows", "mean neighbours")  # fmt: skip
    show("Levels of 131,072 ranks", [{k: row[k] for k in shown} for row in rows if row["of ranks"] == 131_072])


def predict(options: argparse.Namespace) -> None:
    """Weak scaling to 131,072 ranks, from the records of this machine and of the simulation."""
    parts = ("halo", "kernels", "levels")
    halo, kernels, levels = (json.loads((RESULTS / f"distributed-{name}.json").read_text())["rows"] for name in parts)
    model = fitted(halo, kernels)
    rows = predictions(model, levels)
    shown = [{k: v for k, v in row.items() if k != "us of levels"} for row in rows]
    show("Predicted weak scaling", [row for row in shown if row["ranks"] in (1, 8, 512, 131_072)])
    save("distributed-scaling", rows, model=model.described())


PARTS = {f.__name__: f for f in (halo, kernels, weak, solve, peers, trilinos, simulate, predict)}


def main() -> None:
    """Run the parts named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks distributed", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to run")
    parser.add_argument("--minutes", type=float, default=2.0, help="minutes of each part, about (default 2)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of solves at most (default 7)")
    parser.add_argument("--cells", type=int, nargs="+", default=[64, 48], help="cells along an edge of solves")
    parser.add_argument("--edges", type=int, nargs="+", default=[16, 32], help="cells along an edge of a rank: weak")
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 8, 32], help="sizes of ensembles of solves")
    parser.add_argument("--turns", type=int, default=3, help="turns of Trilinos and ours (default 3)")
    options = parser.parse_args()
    for name in options.parts:
        PARTS[name](options)
