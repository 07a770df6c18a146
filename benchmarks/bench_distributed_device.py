"""Distributed solves with a rank for each GPU: checks, and times against no ranks, copies and other numbers of GPUs.

``python -m benchmarks distributed-device``: runs the tests of ranks on devices, then product, V-cycle and CG without
ranks, on one rank with NCCL and on three ranks that share one GPU, the kernels of exchange and reduction beside a copy,
and, where there are 2, 4 or 8 GPUs, weak and strong scaling and times of messages. Each is a process, or one for each
rank, with a time limit; what fails is shown, and the others still run. The table is also kept as JSON, in the folder
OUT where that variable is set. The status is 0 where all checks hold.
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

SECTOR = 32
"""Bytes that a GPU reads at once."""

LIMIT = 465.0
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
        write(options, comm, row)
        del A, b
        cupy.get_default_memory_pool().free_all_blocks()
    if options.job == "ranks":
        times_of_messages(options, comm)


def times_of_messages(options: argparse.Namespace, comm: Any) -> None:
    """Microseconds of all-reduces of exact sums, and of exchanges with both neighbours in a ring."""
    import cupy

    from benchmarks.distributed_problem import repeated, seconds
    from ensemble._kernels.sparse.exact_sums import ROW_LENGTH

    if comm.size == 1:
        return
    messages = comm.device_messages
    n_samples = [1, 2, 4, 8, 16, 32, 64]
    for rows in (1, 4225, 16641):
        us = []
        for s in n_samples:
            out, into = cupy.ones((rows, s)), cupy.zeros((2 * rows, s))
            beside = sorted({(comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size})
            sends = [(r, out) for r in beside]
            receives = [(r, into[k * rows : (k + 1) * rows]) for k, r in enumerate(beside)]
            call = repeated(partial(messages.exchange, sends, receives), 20)
            us.append(1e6 * seconds(call, out, comm, 7) / 20)
        write(options, comm, fitted(options, comm, f"exchange of {rows} rows", n_samples, us))
    us = []
    for s in n_samples:
        digits = cupy.zeros((s, ROW_LENGTH), dtype=np.int64)
        us.append(1e6 * seconds(repeated(partial(messages.all_reduce, digits), 20), digits, comm, 7) / 20)
    write(options, comm, fitted(options, comm, "all-reduce of exact sums", n_samples, us))


def fitted(options: argparse.Namespace, comm: Any, what: str, s: list[int], us: list[float]) -> dict[str, Any]:
    """Times by the number of samples, and their fit a + b s with its largest relative error."""
    x = np.stack([np.ones(len(s)), np.array(s, float)], axis=1)
    weight = 1.0 / np.array(us)
    a, b = np.linalg.lstsq(x * weight[:, None], np.ones(len(s)), rcond=None)[0]
    error = float(np.abs((x @ [a, b]) * weight - 1.0).max())
    times = {f"{k}": t for k, t in zip(s, us, strict=True)}
    return {"run": options.name, "ranks": comm.size, "messages": comm.messages, "message": what, "a us": float(a),
            "b us": float(b), "error": error, "us": times}  # fmt: skip


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
        scaling = []
        for k in counts:
            shape, samples = [options.cells * k, options.cells, options.cells], [options.scaling_samples]
            scaling.append((f"weak {k}", line("ranks", k, f"weak {k}", shape, samples), 100.0, {}))
        for k in counts:
            shape = [options.strong] * 3
            scaling.append((f"strong {k}", line("ranks", k, f"strong {k}", shape, samples), 150.0, {}))
        found = [*scaling, found[-1], *found[:-1]]
    return [job for job in found if not options.only or any(job[0].startswith(word) for word in options.only)]


def checks(rows: list[dict[str, Any]]) -> list[str]:
    """What does not hold: convergence, and equal bits of all numbers of ranks."""
    wrong, digests = [], {}  # type: ignore[var-annotated]
    for row in rows:
        if "solve ms" not in row:
            continue
        if not row["converged"]:
            wrong.append(f"{row['run']}, {row['samples']} samples: not converged")
        if row["digest"]:
            first = digests.setdefault((row["box"], row["samples"]), row)
            if first["digest"] != row["digest"] or first["iterations"] != row["iterations"]:
                wrong.append(f"{row['run']}, {row['samples']} samples: other bits than {first['run']}")
    return wrong


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of solves, each beside no ranks, or beside one rank where it scales."""
    table = []
    for row in rows:
        if "solve ms" not in row:
            continue
        kind = row["run"].partition(" ")[0]
        base = f"{kind} 1" if kind in ("weak", "strong") else "no ranks"
        others = [r for r in rows if r["run"] == base and r.get("samples") == row["samples"] and "solve ms" in r]
        shown = {key: row[key] for key in ("run", "ranks", "messages", "box", "samples", "iterations", "set-up s")}
        for part in ("product", "V-cycle", "solve"):
            shown[f"{part} ms"] = row[f"{part} ms"]
            shown["/" + part] = row[f"{part} ms"] / others[0][f"{part} ms"] if others else float("nan")
        table.append({**shown, "/ what": base})
    return table


def gpus() -> int:
    """GPUs of this machine, counted in a process that ends: this one holds none."""
    code = "import cupy; print(cupy.cuda.runtime.getDeviceCount())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(told.stdout) if told.returncode == 0 else 0


def drive(options: argparse.Namespace) -> int:
    """Run all jobs within the limit, show and keep what they found."""
    start, out = time.monotonic(), Path(os.environ.get("OUT") or RESULTS)
    out.mkdir(exist_ok=True, parents=True)
    log, options.file = out / "distributed-device.log", out / "distributed-device.jsonl"
    for path in (log, options.file):
        path.unlink(missing_ok=True)
    n_gpus, wrong, rows = gpus(), [], []
    print(f"{n_gpus} GPUs, logs in {log}", flush=True)
    if not n_gpus:
        print("no GPU: nothing is run")
        return 1
    for name, words, most, environment in jobs(options, n_gpus):
        found = run(words, min(most, options.limit - (time.monotonic() - start)), log, **environment)
        if found:
            wrong.append(f"{name}: {found}")
    if options.file.exists():
        rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    wrong += checks(rows)
    save("distributed-device", rows, path=out / "distributed-device.json", gpus=n_gpus, wrong=wrong)
    options.file.unlink(missing_ok=True)
    for tail in log.read_text().split("\n=== ")[1:]:
        if "test_devices.py" in tail.splitlines()[0] or "Traceback" in tail:
            print("\n".join(["...", *tail.splitlines()[-25:]]))
    print_tables(rows)
    print("\nwrong: " + ("; ".join(wrong) if wrong else "nothing"))
    return 1 if wrong else 0


def print_tables(rows: list[dict[str, Any]]) -> None:
    """Solves, kernels and messages."""
    about = {
        "kernel": ("Kernels", ("samples", "us", "of copy", "over no ranks")),
        "message": ("Messages, a + b s", ("run", "ranks", "messages", "a us", "b us", "error")),
    }
    tables = [("Solves, CG with smoothed aggregation to 1e-8", compared(rows))]
    for kind, (title, keys) in about.items():
        tables.append((title, [{key: row.get(key, "") for key in (kind, *keys)} for row in rows if kind in row]))
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
    parser.add_argument(
        "--only", nargs="+", help="names of jobs, or how they begin: one, no, three, kernels, tests, weak"
    )
    for name in ("--job", "--name"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.job:
        sys.exit(drive(options))
    comm = communicator(options.job)
    try:
        (kernels if options.job == "kernels" else solves)(options, comm)
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    main()
