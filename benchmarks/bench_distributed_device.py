"""Distributed work with a rank for each GPU: checks, and times against no ranks, copies and other numbers of GPUs.

``python -m benchmarks distributed-device [--only PART,PART]``. Parts: on machines with 2, 4 or 8 GPUs, each for every
number of them,

- ``kalman``: filter and smoother of one series of ``--steps`` steps for each GPU (weak), and in all (strong);
- ``messages``: exchanges and all-reduces by their bytes;
- ``farms``: differential equations and GBEES grids dealt to GPUs; ``groups``: a study with a GPU for each ensemble;
- ``weak``: product, V-cycle and CG, ``--cells``^3 nodes for each GPU; ``weak128``: 128^3 for each;
- ``strong``: ``--strong``^3 nodes in all; ``strong256``: 256^3 in all, samples as memory allows;
- ``assembly``: on the hosts; ``timeline``: what waits for what, by events on the stream;

and on any machine ``tests``, ``one`` rank with NCCL, ``no`` ranks, ``three`` ranks that share a GPU, ``kernels``.
Without ``--only`` all but weak128, strong256 and timeline run. Each part is a process, or one for each rank, with a
time limit; what fails is shown, and the others still run. Rows are printed and kept as JSON after each part, in the
folder OUT where that variable is set, and each row as soon as it is known in the .jsonl file beside it. The status is 0
where all checks hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import RESULTS, cuda_device, save, show
from benchmarks.distributed_device_jobs import JOBS, count_staged_bytes, staged_bytes

SECTOR = 32
"""Bytes that a GPU reads at once."""

LIMIT = 560.0
"""Seconds for everything."""

ENVIRONMENT = {
    # The user root of a container, and more ranks than Open MPI counts slots.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",  # set-ups have threads
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "NCCL_NVLS_ENABLE": "0",
    "PYTHONUNBUFFERED": "1",
}


# --- what a process does
def communicator(job: str) -> Any:
    """That of MPI; of one rank without MPI where a job has one process."""
    if job in ("alone", "kernels"):
        from ensemble.distributed import serial

        return serial()
    from mpi4py import MPI

    return MPI.COMM_WORLD


def solves(options: argparse.Namespace, comm: Any) -> None:
    """Product, V-cycle and solve for each number of samples: without ranks for the job "alone"."""
    import cupy

    from benchmarks.distributed_problem import distributed_box, measured, without_ranks
    from ensemble import distributed

    comm = distributed.devices(comm)
    shape: Any = tuple(options.shape)
    for n_samples in options.samples:
        partition, A, b = distributed_box(comm, shape, n_samples, cupy.empty(0))
        row = {"run": options.name, "ranks": comm.size, "messages": comm.messages, "box": "x".join(map(str, shape)),
               "samples": n_samples, "domains": partition.domains}  # fmt: skip
        if options.job == "alone":
            row |= {"messages": "none"} | measured(without_ranks(A), b, comm, None)
        else:
            row |= measured(A, b, comm, partition)
        write(options, comm, row | {"staged bytes": staged_bytes(comm)})
        del A, b
        cupy.get_default_memory_pool().free_all_blocks()


def kernels(options: argparse.Namespace, comm: Any) -> None:
    """The kernels of exchange and reduction beside copies of as many bytes."""
    import cupy

    from benchmarks.device_clock import copies_for, copy_milliseconds, milliseconds_in_turn
    from ensemble._kernels.krylov.vectors import dot
    from ensemble._kernels.sparse.exact_sums import ROW_LENGTH, domain_digits, exact_totals, rounded_digits
    from ensemble._kernels.sparse.packed_rows import packed_rows
    from ensemble._kernels.sparse.row_sums import SERIAL, in_space
    from ensemble.distributed import devices
    from ensemble.distributed.space import RankSpace

    comm = devices(comm)
    for s in options.samples:
        n = (1 << 25) // s  # rows of a vector of 256 MiB
        chosen = np.flatnonzero(np.random.default_rng(s).uniform(size=n) < 0.25)
        rows, n_bytes = cupy.asarray(chosen.astype(np.int32)), 8.0 * chosen.size * s
        sectors = np.unique(chosen * s * 8 // SECTOR).size * max(SECTOR, 8 * s)  # bytes that are read, whatever is used
        copies = copies_for(2 * n_bytes)
        x = [cupy.ones((n, s)) for _ in range(min(copies, 3))]
        out = [cupy.empty((chosen.size, s)) for _ in x]
        ms = milliseconds_in_turn([partial(packed_rows, a, rows, o) for a, o in zip(x, out, strict=True)], 9)
        copy = copy_milliseconds(n_bytes + 4.0 * chosen.size, n_bytes, 9)
        of_sectors = copy_milliseconds(sectors + 4.0 * chosen.size, n_bytes, 9)
        row = {"run": "kernels", "kernel": "packed rows, each fourth", "samples": s, "MB": 2e-6 * n_bytes}
        write(options, comm, row | {"us": 1e3 * ms, "of copy": copy / ms, "of copy of sectors": of_sectors / ms})
        space = RankSpace(comm, 0, np.minimum(np.arange(0, n + 2048, 2048), n))
        times = {}
        for name, each in (("no ranks", SERIAL), ("exact", space)):
            with in_space(each):
                times[name] = milliseconds_in_turn([partial(dot, a, x[0], None) for a in x[1:]], 9)
        copy = copy_milliseconds(16.0 * n * s, 16.0, 9)
        row = {"run": "kernels", "kernel": "inner product", "samples": s, "MB": 16e-6 * n * s}
        write(options, comm, row | {"us": 1e3 * times["exact"], "of copy": copy / times["exact"],
                                    "over no ranks": times["exact"] / times["no ranks"]})  # fmt: skip
        del x, out
        partials = cupy.ones((1, 4096, s))  # 64^3 rows
        starts = cupy.arange(0, 4097, 32)
        digits, total = cupy.zeros((1, s, ROW_LENGTH), dtype=np.int64), cupy.empty((1, s))
        turns = cupy.zeros(1, dtype=np.int32)
        calls = {
            "domain_digits": partial(domain_digits, partials, starts, digits),
            "rounded_digits": partial(rounded_digits, digits, total),
            "exact_totals": partial(exact_totals, partials, starts, digits, turns, total),
        }
        for name, call in calls.items():
            ms = milliseconds_in_turn([call, call], 9)
            write(options, comm, {"run": "kernels", "kernel": f"{name} of 64^3 rows", "samples": s, "us": 1e3 * ms})
        cupy.get_default_memory_pool().free_all_blocks()


def write(options: argparse.Namespace, comm: Any, row: dict[str, Any]) -> None:
    """Add a row to the file of this job, which keeps what a job that fails later has found."""
    if comm.rank == 0:
        row = {**cuda_device(), **row}
        with options.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


# --- what runs them
def command(options: argparse.Namespace, job: str, ranks: int, name: str, shape: Any, samples: Any) -> list[str]:
    """The command line of a job."""
    words = ["--job", job, "--name", name, "--file", str(options.file), "--shape", *map(str, shape)]
    words += ["--samples", *map(str, samples)]
    for option in ("steps", "trajectories", "grids", "group_cells", "group_samples", "cells", "scaling_samples"):
        words += [f"--{option.replace('_', '-')}", str(getattr(options, option))]
    if job in ("alone", "kernels"):
        return [sys.executable, "-m", "benchmarks.bench_distributed_device", *words]
    program = shutil.which("mpiexec")
    if program is None:
        raise RuntimeError("distributed-device: mpiexec must be installed.")
    # mpi4py's own runner ends all ranks where one raises
    return [
        program,
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "benchmarks.bench_distributed_device",
        *words,
    ]


def run(words: list[str], seconds: float, log: Path, **environment: str) -> str:
    """Run a program of its own process group; "" where it ended well, else what was wrong."""
    if seconds < 10.0:
        return "no time left"
    start = time.monotonic()
    with log.open("a") as file:
        file.write(f"\n=== {' '.join(words)}\n")
        file.flush()
        threads = {"NUMBA_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks_of(words)))}
        environ = {**os.environ, **ENVIRONMENT, **threads, **environment}
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environ, start_new_session=True,
            cwd=Path(__file__).parents[1],
        )  # fmt: skip
        try:
            code = process.wait(seconds)
            found = "" if code == 0 else f"status {code}"
        except subprocess.TimeoutExpired:
            found = f"not done after {seconds:.0f} s"
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(3.0)
    print(f"{time.monotonic() - start:6.1f} s  {found or 'done':24} {' '.join(words)[-150:]}", flush=True)
    return found


def ranks_of(words: list[str]) -> int:
    """The processes that a command line starts."""
    return int(words[2]) if words[1] == "-n" else 1


def jobs(options: argparse.Namespace, n_gpus: int) -> list[tuple[str, list[str], float, dict[str, str]]]:
    """Name, command, most seconds and environment of each job, in their order."""
    cells, first = [options.cells] * 3, {"CUDA_VISIBLE_DEVICES": "0"}
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "cuda",
        "-p",
        "no:cacheprovider",
        "tests/distributed/test_devices.py",
    ]
    line = lambda job, ranks, name, shape, samples: command(options, job, ranks, name, shape, samples)
    found = [
        ("one rank, NCCL", line("ranks", 1, "one rank, NCCL", cells, options.samples), 150.0, first),
        ("no ranks", line("alone", 1, "no ranks", cells, options.samples), 90.0, first),
        ("three share", line("ranks", 3, "three share", cells, options.samples), 120.0, first),
        ("kernels", line("kernels", 1, "kernels", cells, options.samples), 60.0, first),
        ("tests", tests, 220.0, {}),
    ]
    counts = [k for k in (1, 2, 4, 8) if k <= n_gpus]
    if n_gpus > 1:
        found = [*scaling_jobs(options, counts, line), *found]
    return [job for job in found if chosen(job[0], options.only)]


def chosen(name: str, only: list[str]) -> bool:
    """Whether a job is to run: its part is named, or the names begin so, or nothing is."""
    part = name.partition(" ")[0]
    if not only:
        return part not in ON_DEMAND
    return any(part == word or (part not in ON_DEMAND and name.startswith(word)) for word in only)


ON_DEMAND = ("weak128", "strong256", "timeline")
"""Parts that run where they are named."""


def scaling_jobs(options: argparse.Namespace, counts: list[int], line: Any) -> list[tuple[str, list[str], float, Any]]:
    """The jobs for several GPUs, the short ones first."""
    found: list[tuple[str, list[str], float, Any]] = []
    cells, samples, shape = options.cells, [options.scaling_samples], [options.cells] * 3
    for job, seconds in (("kalman", 120.0), ("messages", 60.0), ("farms", 120.0), ("groups", 120.0)):
        for k in counts:
            if k > 1 or job != "messages":
                found.append((f"{job} {k}", line(job, k, f"{job} {k}", shape, samples), seconds, {}))
    for part, n, seconds in (("weak", cells, 100.0), ("weak128", 128, 250.0)):
        for k in counts:
            found.append((f"{part} {k}", line("ranks", k, f"{part} {k}", [n * k, n, n], samples), seconds, {}))
    for part, n, seconds in (("strong", options.strong, 150.0), ("strong256", 256, 400.0)):
        for k in counts:
            fits = samples if n < 256 else fitting_samples(k, options)
            found.append((f"{part} {k}", line("ranks", k, f"{part} {k}", [n] * 3, fits), seconds, {}))
    for job, seconds in (("assembly", 100.0), ("timeline", 150.0)):
        for k in counts:
            found.append((f"{job} {k}", line(job, k, f"{job} {k}", shape, samples), seconds, {}))
    return found


def fitting_samples(n_gpus: int, options: argparse.Namespace) -> list[int]:
    """Samples of 256^3 nodes: 8, which one GPU of 80 GB holds, and more where each GPU holds its part."""
    per_gpu = 27 * 256**3 * 8 * options.scaling_samples / n_gpus  # bytes of values; levels and vectors need a half more
    return sorted({8, options.scaling_samples}) if 1.8 * per_gpu < options.memory else [8]


def checks(rows: list[dict[str, Any]]) -> list[str]:
    """What does not hold: convergence, and equal bits of all numbers of ranks."""
    wrong, digests = [], {}  # type: ignore[var-annotated]
    for row in rows:
        wrong += series_checks(row, rows)
        if row.get("messages") == "nccl" and row.get("staged bytes", 0):
            wrong.append(f"{row['run']}: {row['staged bytes']} bytes through the host")
        if "solve ms" not in row:
            continue
        if not row["converged"]:
            wrong.append(f"{row['run']}, {row['samples']} samples: not converged")
        if row["digest"]:
            first = digests.setdefault((row["box"], row["samples"]), row)
            if first["digest"] != row["digest"] or first["iterations"] != row["iterations"]:
                wrong.append(f"{row['run']}, {row['samples']} samples: other bits than {first['run']}")
    return wrong


def series_checks(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """What does not hold of a series, a farm or a study: finite numbers, and the bits of the first row alike."""
    wrong = []
    if row.get("finite") is False:
        wrong.append(f"{row['run']}: not finite")
    if row.get("difference / deviation", 0.0) > 0.05:
        wrong.append(f"{row['run']}: {row['difference / deviation']:.2g} deviations from no ranks")
    for keys, bits in (
        (("T",), ("filter bits", "smoother bits", "log-likelihood")),
        (("farm", "samples"), ("bits", "failed")), (("groups", "samples", "cells"), ("bits",)),
    ):  # fmt: skip
        if keys[0] not in row:
            continue
        alike = [r for r in rows if keys[0] in r and (keys[0] == "groups" or all(r[k] == row[k] for k in keys))]
        if any(alike[0][name] != row[name] for name in bits):
            wrong.append(f"{row['run']}: other bits than {alike[0]['run']}")
    return wrong


GOALS = {
    "product": {2: 0.95, 4: 0.9}, "solve": {2: 0.9, 4: 0.85}, "strong solve": {2: 1.7, 4: 3.0},
    "kalman": {2: 1.8},
}  # fmt: skip


def gains(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How much work of the same kind k GPUs do in the time of one: efficiency of weak scaling, else the gain."""
    table = []

    def add(what: str, row: dict[str, Any], base: dict[str, Any], ms: str, work: float, goal: dict[int, float]) -> None:
        gain = work * base[ms] / row[ms]
        entry = {"what": what, "GPUs": row["ranks"], "one": base[ms], "now": row[ms], "gain": gain}
        wanted = goal.get(row["ranks"])
        if what.startswith("weak"):  # goals of weak scaling are efficiencies
            wanted = None if wanted is None else wanted * row["ranks"]
        met = "" if wanted is None else "met" if gain >= wanted else "missed"
        table.append({**entry, "efficiency": gain / row["ranks"], "goal": wanted or "", "is": met})

    for row in rows:
        k, kind = row.get("ranks", 1), row["run"].partition(" ")[0]
        if k == 1:
            continue
        if "solve ms" in row:
            for base in rows:
                if base["run"] != f"{kind} 1" or base.get("samples") != row["samples"] or "solve ms" not in base:
                    continue
                weak = kind.startswith("weak")
                for part in ("product", "V-cycle", "solve"):
                    goal = GOALS.get(part if weak else f"strong {part}", {})
                    add(f"{kind} {part}", row, base, f"{part} ms", k if weak else 1.0, goal)
        elif "kalman" in row:
            for base in rows:
                if base.get("kalman") == row["kalman"] and base["ranks"] == 1:
                    work = row["T"] / base["T"]
                    for part in ("filter ms", "smoother ms"):
                        what = f"kalman {row['kalman']} {part[:-3]}"
                        add(what, row, base, part, work, GOALS["kalman"] if row["kalman"] != "short" else {})
                        add(f"{what} over no ranks", row, {**base, part: base[f"alone, {part}"]}, part, work, {})
        elif "farm" in row or "groups" in row:
            same = ("farm" in row and "farm") or "groups"
            for base in rows:
                if same in base and base["ranks"] == 1 and (same == "groups" or base["farm"] == row["farm"]):
                    add(row.get("farm", "groups"), row, base, "s", 1.0, {})
                    if "longest part s" in row:
                        add(f"{row['farm']}, without joining", row, base, "longest part s", 1.0, {})
        elif "assembly" in row:
            for base in rows:
                if "assembly" in base and base["ranks"] == 1:
                    add("weak assembly", row, base, "assembly s", k, {})
    return table


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of solves, each beside no ranks, or beside one rank where it scales."""
    table = []
    for row in rows:
        if "solve ms" not in row:
            continue
        kind = row["run"].partition(" ")[0]
        base = f"{kind} 1" if kind.startswith(("weak", "strong")) else "no ranks"
        others = [r for r in rows if r["run"] == base and r.get("samples") == row["samples"] and "solve ms" in r]
        shown = {key: row[key] for key in ("run", "ranks", "messages", "box", "samples", "iterations", "set-up s")}
        for part in ("product", "V-cycle", "solve"):
            shown[f"{part} ms"] = row[f"{part} ms"]
            shown["/" + part] = row[f"{part} ms"] / others[0][f"{part} ms"] if others else float("nan")
        table.append({**shown, "/ what": base})
    return table


def gpus() -> tuple[int, int]:
    """GPUs of this machine and the bytes of each, asked in a process that ends: this one holds none."""
    code = "import cupy; r = cupy.cuda.runtime; print(r.getDeviceCount(), r.memGetInfo()[1])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if told.returncode:
        return 0, 0
    count, memory = told.stdout.split()
    return int(count), int(memory)


def drive(options: argparse.Namespace) -> int:
    """Run all jobs within the limit, show and keep what they found."""
    start, out = time.monotonic(), Path(os.environ.get("OUT") or RESULTS)
    out.mkdir(exist_ok=True, parents=True)
    log, options.file = out / "distributed-device.log", out / "distributed-device.jsonl"
    for path in (log, options.file):
        path.unlink(missing_ok=True)
    (n_gpus, options.memory), wrong, rows = gpus(), [], []
    print(f"{n_gpus} GPUs, logs in {log}", flush=True)
    if not n_gpus:
        print("no GPU: nothing is run")
        return 1
    for name, words, most, environment in jobs(options, n_gpus):
        found = run(words, min(most, options.limit - (time.monotonic() - start)), log, **environment)
        if found:
            wrong.append(f"{name}: {found}")
        known, rows = len(rows), rows_of(options.file)
        for row in rows[known:]:
            print(shown(row), flush=True)
        path, about = out / "distributed-device.json", {"gpus": n_gpus, "gains": gains(rows)}
        save("distributed-device", rows, path=path, wrong=[*wrong, *checks(rows)], **about)
    wrong += checks(rows)
    options.file.unlink(missing_ok=True)
    for tail in log.read_text().split("\n=== ")[1:]:
        if "test_devices.py" in tail.splitlines()[0] or "Traceback" in tail:
            print("\n".join(["...", *tail.splitlines()[-25:]]))
    print_tables(rows)
    print("\nwrong: " + ("; ".join(wrong) if wrong else "nothing"))
    return 1 if wrong else 0


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows that jobs have written, but for one that was cut off."""
    rows = []
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def shown(row: dict[str, Any]) -> str:
    """A row in one line, lists below it."""
    short = {k: v for k, v in row.items() if k not in ("device", "cupy", "cuda") and not isinstance(v, list)}
    lists = [f"        {line}" for v in row.values() if isinstance(v, list) for line in v if isinstance(line, str)]
    text = ", ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in short.items())
    return "\n".join([f"    {text}", *lists])


def print_tables(rows: list[dict[str, Any]]) -> None:
    """Solves, kernels and messages."""
    about = {
        "kernel": ("Kernels", ("samples", "us", "of copy", "over no ranks")),
        "message": ("Messages, a + b s", ("run", "ranks", "messages", "a us", "b us", "GB/s", "error")),
        "kalman": ("Series", ("run", "T", "filter ms", "smoother ms", "alone, filter ms", "alone, smoother ms")),
        "farm": ("Farms", ("run", "samples", "s", "longest part s", "failed", "bits")),
        "groups": ("Groups", ("run", "samples", "s", "mean", "bits")),
        "assembly": ("Assembly", ("run", "partition s", "assembly s")),
    }
    tables = [("Solves, CG with smoothed aggregation to 1e-8", compared(rows))]
    for kind, (title, keys) in about.items():
        tables.append((title, [{key: row.get(key, "") for key in (kind, *keys)} for row in rows if kind in row]))
    tables.append(("Gains over one GPU", gains(rows)))
    for title, table in tables:
        if table:
            show(title, table)


def main() -> None:
    """Run everything, or with `--job` the part of one process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=64, help="nodes along each edge of the box, for each GPU")
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument(
        "--strong", type=int, default=128, help="nodes along each edge where the box is the same for all"
    )
    parser.add_argument("--scaling-samples", type=int, default=32)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for everything")
    parser.add_argument("--steps", type=int, default=10_000_000, help="steps of a series for each GPU")
    parser.add_argument("--trajectories", type=int, default=1 << 21, help="differential equations in all")
    parser.add_argument("--grids", type=int, default=64, help="GBEES runs in all")
    parser.add_argument("--group-cells", type=int, default=32, help="cells along an edge, of groups")
    parser.add_argument("--group-samples", type=int, default=2048, help="samples of the study of groups")
    parser.add_argument("--only", nargs="+", default=[], help="parts, or how jobs begin, between commas or blanks")
    for name in ("--job", "--name"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = [word for words in options.only for word in words.split(",") if word]
    if not options.job:
        sys.exit(drive(options))
    comm = communicator(options.job)
    try:
        count_staged_bytes()
        if options.job in JOBS:
            JOBS[options.job](options, comm, partial(write, options, comm))
        else:
            (kernels if options.job == "kernels" else solves)(options, comm)
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    main()
