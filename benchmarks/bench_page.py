"""Write the page of ten tables on two machines from the records: ``docs/speed.md``.

Each table has a peer and its ratio where there is one, the bound where one is known, the day of the record, and the
versions. Nothing is measured. ``docs/performance.md`` has all tables by topic.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "speed.md"
CPU = "one thread of a virtual machine with an Intel Xeon, AVX-512"
GPU = "one NVIDIA H200"
PACKAGES = ("python", "numpy", "numba", "scipy", "pyamg", "scikit-fem", "jax")
Row = dict[str, Any]


class Table(NamedTuple):
    """One table of the page."""

    title: str
    machine: str
    record: str
    text: str
    columns: dict[str, Callable[[Row], Any]]
    wanted: Callable[[Row], bool] = lambda row: True
    fact: tuple[str, str] | None = None
    """Where the number of the text stands in the record."""


CLOSED = "edge_lengths, paper-shaped"

KERNELS = ("spmv", "cuSPARSE spmv, same matrix", "cuSPARSE spmm", "residual", "chebyshev_last", "cg_update", "dot")


def key(name: str) -> Callable[[Row], Any]:
    return lambda row: row.get(name)


def ratio(numerator: str, denominator: str) -> Callable[[Row], Any]:
    """The quotient of two entries; None where one is missing."""

    def value(row: Row) -> Any:
        both = row.get(numerator), row.get(denominator)
        return None if None in both else both[0] / both[1]

    return value


def percent(name: str) -> Callable[[Row], Any]:
    """A share in hundredths; None where it is missing, or 0 for a peer whose bytes are not counted."""
    return lambda row: f"{100.0 * row[name]:.0f} %" if row.get(name) else None


TABLES = (
    Table(
        "Sparse product", CPU, "spmv-64-1threads",
        "The 27-point matrix of 64^3 cells. Bound: each byte once, at the read bandwidth of the same round.",
        {"samples": key("n_samples"), "ms": key("ms"), "of the bound": percent("fraction of bound"),
         "x SciPy": key("x SciPy")},
    ),
    Table(
        "Set-up and solution by multigrid", CPU, "multigrid-64-grading1-1threads",
        "Diffusion on 64^3 graded cells to 1e-7, set-up included. Bound: none is known.",
        {"run": key("run"), "iterations": key("iterations"), "ms a sample": key("ms a sample"),
         "x PyAMG": key("x PyAMG")},
    ),
    Table(
        "Sparse factorisation and solution", CPU, "direct-1threads-intel",
        "`krylov.direct`, microseconds a sample. Bound: the operations, or the bytes, of factorisation and solution.",
        {"matrix": key("case"), "samples": key("n_samples"), "us": key("direct us"),
         "of the bound": percent("of bound"),
         "x KLU": ratio("KLU us", "direct us"), "x SuperLU": ratio("splu us", "direct us"),
         "x PARDISO": ratio("PARDISO us", "direct us")},
    ),
    Table(
        "Six eigenpairs", CPU, "eigen-1threads",
        "`linalg.eigsh`, milliseconds a sample; ARPACK of SciPy is the peer. Bound: none is known.",
        {"matrix": key("matrix"), "unknowns": key("rows"), "samples": key("n_samples"), "pairs": key("way"),
         "ms": key("ms"), "x SciPy": key("ratio")},
        lambda row: row["way"] in ("SA", "sigma=0") and row["n_samples"] in (1, 32),
    ),
    Table(
        "Ordinary differential equations", CPU, "ode-1threads",
        "Samples a second at errors of one size. The fixed steps reach {:.0%} of the bound of their operations.",
        {"problem": key("case"), "solver": key("solver"), "a second": key("per second"),
         "x slower than the first": key("x slower than the first")},
        fact=("fractions of the bounds", "of 45 operations"),
    ),
    Table(
        "Kalman filters of many series", CPU, "kalman-batch-1threads",
        "Nanoseconds a step of a series. Bound: none is known.",
        {"way": key("way"), "ns a step": key("ns a step"), "x slower than the first": key("x ours")},
    ),
    Table(
        "Kernels of solvers on a GPU", GPU, "gpu-kernels-64",
        "64^3 cells. Bound: the bytes at the speed of the triad `a = b + 3 c`.",
        {"kernel": key("kernel"), "samples": key("samples"), "ms": key("ms"), "TB/s": lambda row: row["TB/s"] or None,
         "of the bound": percent("of triad")},
        lambda row: row["samples"] in (1, 32) and row["kernel"] in KERNELS,
    ),
    Table(
        "Assembly, set-up and solution on a GPU", GPU, "gpu-solves-64-grading1",
        "Diffusion on 64^3 graded cells to 1e-7; PyAMG on one core of the same machine. Bound: none is known.",
        {"run": key("run"), "samples": key("samples"), "iterations": key("iterations"),
         "ms a sample": key("ms a sample"), "x PyAMG": key("x PyAMG")},
        lambda row: row["run"] in ("PyAMG, one core", "stored", "stored, float32 hierarchy") and row["samples"] != 8,
    ),
    Table(
        "Krylov iterations on a GPU", GPU, "gpu-krylov-64",
        "64^3 cells, no preconditioner, milliseconds an iteration. Peer: the same iteration steered by the host.",
        {"method": key("method"), "preconditioner": key("M"), "samples": key("samples"), "ms": key("device ms"),
         "of the bound": percent("of bound"), "x steered by the host": key("host/device")},
        lambda row: row["M"] == "none",
    ),
    Table(
        "Element matrices on a GPU", GPU, "element-kernels-h200",
        "554,394 tetrahedra. Bound: the bytes at the bandwidth of the data sheet. Peer: what was published for an "
        "A100. The published edge lengths are those of six equations; `paper-shaped` ones are a closed form with the "
        "same result, which has no peer.",
        {"kernel": key("kernel"), "ms": key("ms"), "of the bound": percent("fraction"),
         "x published (A100)": lambda row: None if row["kernel"] == CLOSED else row["x"]},
        lambda row: row["x"] != "-",
    ),
)  # fmt: skip


def day_of(record: str) -> str:
    """When the record was written, by the history of the repository."""
    command = ["git", "log", "-1", "--format=%as", "--", f"benchmarks/results/{record}.json"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def shown(value: Any) -> str:
    """A number with three digits, a text as it is."""
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def lines_of(number: int, table: Table) -> list[str]:
    """A section of the page."""
    record = json.loads((FOLDER / "results" / f"{table.record}.json").read_text())
    versions = {name: record["machine"][name] for name in PACKAGES if name in record["machine"]}
    versions |= record.get("peers", {})
    versions |= {name: str(record[name]) for name in ("cupy", "cuda") if name in record}
    named = ", ".join(f"{name} {text}" for name, text in versions.items())
    rows = [row for row in record["rows"] if table.wanted(row)]
    text = table.text if table.fact is None else table.text.format(record[table.fact[0]][table.fact[1]])
    machine = table.machine[0].upper() + table.machine[1:]
    link = f"[{table.record}](../benchmarks/results/{table.record}.json)"
    return [
        f"## {number}. {table.title}", "", wrapped(f"{text} {machine}."), "",
        "| " + " | ".join(table.columns) + " |", "|---" * len(table.columns) + "|",
        *("| " + " | ".join(shown(value(row)) for value in table.columns.values()) + " |" for row in rows),
        "", wrapped(f"Record {link} of {day_of(table.record)}: {named}."), "",
    ]  # fmt: skip


def wrapped(text: str, indent: int = 0) -> str:
    """Lines of at most 118 characters, those after the first indented."""
    return textwrap.fill(text, 118, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


HEAD = (
    f"Written from the records by `python -m benchmarks page`. Two machines: {CPU}; {GPU}.",
    '"x PEER" is the time of the peer over ours, both in the same run but for what is published; above 1 is faster. '
    '"Of the bound" is the time of the bound over the measured one.',
    "All figures with their commands, on more machines: [performance by topic](performance.md). What was tried and did "
    "not help: [experiments](../benchmarks/EXPERIMENTS.md). Commits beside each other: `make asv-history` "
    "measures ten, kept in `benchmarks/asv`; `make asv-pages` after `make docs` measures this one and adds "
    "asv/index.html to the site.",
)


def page() -> str:
    """The text of the page."""
    lines = [line for number, table in enumerate(TABLES, 1) for line in lines_of(number, table)]
    head = [line for text in HEAD for line in (wrapped(text), "")]
    return "\n".join(["# Performance in ten tables", "", *head, *lines]).rstrip() + "\n"


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page())
    print(PAGE)
