"""One table from the records: calls that were once slower than what their users had, then and now.

"x" is the time of the peer over ours, per sample; "before" is what was measured when the case was reported, on another
machine. Where a case has several matrices, sizes or functions, the table shows the lowest and the median of them.
A case that stays below its bar has a note: what bounds it, and which call to use instead. ``--page`` writes
``docs/cases.md``, for users: without bars and history. Nothing is measured here: `COMMANDS` makes the records, one
after the other, on a machine with nothing beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench_page import shown, wrapped
from benchmarks.common import RESULTS, show

PAGE = Path(__file__).parent.parent / "docs" / "cases.md"

Row = dict[str, Any]

COMMANDS = (
    "eigen --name eigen-1threads-amd", "direct-exchanges --name direct-exchanges-1threads",
    "complex --name complex-1threads", "plain-iterations --name plain-iterations-1threads",
    "spmv-small --name spmv-small-1threads", "numpy-functions",
    "operators", "run", "time-steps --name time-steps-1threads", "kalman-calls", "vectorize", "propagate",
    "ode-dense", "threads", "first-uses",
)  # fmt: skip
"""What ``python -m benchmarks`` takes for each record that the table reads; some need ``--matrices``."""


class Case(NamedTuple):
    """A line of the table."""

    case: str
    peer: str
    before: str
    record: str
    wanted: Callable[[Row], bool]
    value: Callable[[Row], float]
    samples: Callable[[Row], int]
    many: int = 32
    """The larger number of samples."""
    bars: tuple[float, float] = (1.0, 3.0)
    """What one sample and many samples should reach."""
    why: str = ""
    """What bounds a case that stays below its bar; empty where the bar is met."""


def x_of(name: str) -> Callable[[Row], float]:
    return lambda row: float(row[name])


def count(row: Row) -> int:
    """The number of samples of a row; one where it names none."""
    return next((int(row[name]) for name in ("n_samples", "samples", "S") if name in row), 1)


def has(**values: Any) -> Callable[[Row], bool]:
    """Whether a row has these values; "*" at the end of a text stands for any further text."""

    def wanted(row: Row) -> bool:
        for name, value in values.items():
            begins = isinstance(value, str) and value.endswith("*")
            if not (str(row[name]).startswith(value[:-1]) if begins else row[name] == value):
                return False
        return True

    return wanted


every = has()

DIRECT = (
    "one sample has no lanes to share the search of units, the test of pivots and the corrections with, which KLU does "
    "not have; of many, memory and loops over rows of few entries take the rest "
    "([performance by topic](performance.md#direct-solves-with-exchanges)). A user of one sample at a time who needs "
    "no judged solution calls KLU."
)
COMPLEX_TASKS = {"product": "`A @ x`"}
COMPLEX = "bytes of vectors: 16 a number, read and written as often as SciPy does; only the graph is shared."
PLAIN = (
    "vectors are read and written by each sample as SciPy does, the matrix too: equal bandwidth would give the column "
    "`bytes, x` of the record, 1.3 to 2.0. What is above comes of fewer passes and longer lanes."
)
OPERATORS = "one read of two arrays and one write each; beside NumPy's own operator the protocol and a pooled result."
DENSE = "one sample's product with a full matrix is BLAS's in SciPy, too; 64 samples are bound by the multiply-adds."
MET = ("100 species, 600 reactions",)
NETWORKS = ("53 species, 325 reactions", "100 species, 600 reactions")
STIFF = {
    "rodas4": "LSODA factorises 39 times in 415 steps, a Rosenbrock method in each of 125; the lanes of many samples "
    "pay it. At equal tolerances its error is a quarter of LSODA's (53 species).",
    "bdf": "f and its Jacobian are interpreted, which LSODA has compiled; 289 steps, 425 iterations and 43 "
    "factorisations stand beside its 415, 654 and 39. Of many samples each has an order and a history of its own, "
    'whose control is not in lanes. `method="auto"` takes `rodas4` here.',
}
STEPS = (
    "one sample has 19 iterations, each a reading of the matrix and five vectors, and 0.2 ms of the call; a kept "
    "factorisation reads its factors twice: call `Factorization`."
)
BAND = "differences of five orders and their sums are read and written at each step: memory bounds it."


def solvers() -> list[Case]:
    """Lines of solvers and products."""
    found = [Case(
        "`eigsh`, both ends and about zero", "SciPy", "0.01 to 0.5", "eigen-1threads-amd", every, x_of("ratio"), count,
        why="`LM` and `LA` of bcsstk13: largest values far apart, which ARPACK has after 40 products. A product of 32 "
        "matrices of 84,000 entries is bound by memory traffic, SciPy's of one is read from the second-level cache.",
    )]  # fmt: skip
    for name in ("rajat19", "bayer10", "west0479", "hangGlider_2", "bp_1200"):
        for family in ("values", "units"):
            found.append(Case(
                f"`direct`, matrix {name}, other {family}", "KLU", "0.02 to 0.3", "direct-exchanges-1threads",
                has(case=name, family=family), x_of("x KLU"), count, why="" if name == "bayer10" else DIRECT,
            ))  # fmt: skip
    for task, before, why in (
        ("product", "0.1 to 0.4", "bytes: a complex matrix is 16 bytes an entry and sample beside 4 bytes of graph, so "
         "that many samples save a fifth of SciPy's traffic and no more."),
        ("gmres", "-", COMPLEX), ("bicgstab", "-", COMPLEX), ("direct", "0.8 to 5", ""),
    ):  # fmt: skip
        name = f"complex numbers, {COMPLEX_TASKS.get(task, f'`{task}`')}"
        found.append(Case(name, "SciPy", before, "complex-1threads", has(task=task), x_of("x"), count, why=why))
    for method, before in (("cg", "0.4 to 1"), ("minres", "0.4 to 1"), ("bicgstab", "0.4 to 1"), ("gmres", "0.4, 0.6")):
        wanted = lambda row, method=method: row["method"] == method and row["rows"] >= 10_000
        found.append(Case(f"`{method}`, 10,000 rows and more", "SciPy", before, "plain-iterations-1threads", wanted,
                          x_of("x"), count, why="" if method == "minres" else PLAIN))  # fmt: skip
    return [
        *found,
        Case("`A @ x`, small matrices", "SciPy", "0.3 to 0.5", "spmv-small-1threads", every, x_of("x SciPy"), count,
             why="complex numbers on 100 rows: 16 bytes an entry and sample, which SciPy's one matrix reads as fast."),
        Case("implicit time steps by `cg`", "SciPy's splu", "0.8", "time-steps-1threads", every,
             x_of("cg x splu"), count,
             why="a kept factorisation needs two triangular solves a step, `cg` seven iterations with a V-cycle each: "
             "call `Factorization` where the matrix stays and its factors fit (the next line)."),
        Case("implicit time steps by `cg` without hierarchy", "SciPy's splu", "-", "time-steps-1threads", every,
             x_of("plain cg x splu"), count, why=STEPS),
        Case("implicit time steps by `Factorization`", "SciPy's splu", "3.8", "time-steps-1threads", every,
             x_of("Factorization x splu"), count,
             why="one sample on 30 x 30 cells: 45 us a step beside 42, of which Python takes a part in each solve."),
        Case("set-up of multigrid on 16 cores", "one core", "5.4", "threads", has(call="set-up*"),
             x_of("gain"), lambda row: 32, bars=(1.0, 10.0),
             why="the product, which memory bounds, gains as much as the last line says, and graphs, "
             "aggregates and the coarsest level of the set-up stay on one thread."),
        Case("`cg` on 16 cores", "one core", "9.9", "threads", has(call="cg*"), x_of("gain"), lambda row: 32),
        Case("`A @ x` on 16 cores", "one core", "9.8", "threads", has(call="product*"), x_of("gain"), lambda row: 32),
    ]  # fmt: skip


def arrays() -> list[Case]:
    """Lines of the array type, `run` and `vectorize`."""
    return [
        Case("NumPy's functions", "a loop over samples", "0.1 to 0.7", "numpy-functions-1thread", every,
             x_of("x"), count, bars=(1.0, 1.0),
             why="a call of one sample takes 3 to 5 us beside NumPy's own; NumPy has no form for "
             "several samples of some functions, whose loop is the bound "
             "([performance by topic](performance.md#numpys-functions-on-ensembles))."),
        Case("`x * 2 + x`, 10,000 numbers", "NumPy", "0.02 to 0.06", "operators-1thread",
             has(expression="x * 2 + x", n=10_000), x_of("x numpy"), count, bars=(1.0, 1.0), why=OPERATORS),
        Case("`run` of a function with loops", "a loop over samples", "0.1 to 0.25", "run", every,
             lambda row: 1.0 / row["run / loop over floats"], count, bars=(1.0, 1.0),
             why="a run costs 6 to 8 us beside its loop of some 14 us; code with `try` cannot run on Python floats."),
        Case("`vectorize`", "a loop over samples", "0.03", "vectorize", has(way="vectorize*"), x_of("x loop"),
             lambda row: 1, why="the model takes 0.25 us a sample, the reader of keywords 0.17 us more."),
    ]  # fmt: skip


def filters() -> list[Case]:
    """Lines of Kalman filters."""
    return [
        Case("a log-likelihood", "statsmodels", "0.18", "kalman-calls", has(case="log-likelihood*"),
             x_of("x 1"), count),
        Case("a fit by L-BFGS", "statsmodels", "0.41", "kalman-calls", has(case="fit*"), x_of("x 1"), count),
        Case("steps of `OnlineFilter`, many series", "simdkalman", "0.29 to 0.9", "kalman-calls",
             has(case="online step, *"), x_of("x 1"), count),
        Case("a step of `OnlineFilter`", "filterpy", "0.11", "kalman-calls", has(case="online step with S*"),
             x_of("x 1"), count),
        Case("a likelihood, 73 observations a step", "statsmodels, collapsed", "0.38", "kalman-calls",
             has(case="likelihood, 73*"), x_of("x 2"), count),
    ]  # fmt: skip


def equations() -> list[Case]:
    """Lines of initial value problems."""
    found = [
        Case("Kuramoto's oscillators", "SciPy", "below 0.01", "ode-dense", has(case="Kuramoto*"), x_of("ratio"),
             count, 64, bars=(1.0, 10.0), why=DENSE),
        Case("y' = A y, full matrix", "SciPy", "below 0.01", "ode-dense", has(case="matrix*"), x_of("ratio"), count, 64,
             bars=(1.0, 10.0), why=DENSE),
    ]  # fmt: skip
    ends = ("", ", at LSODA's error")
    for name, end, method in itertools.product(NETWORKS, ends, ("rodas4", "bdf")):
        case, known = f"{name}{end}", "0.5" if (name, end, method) == (NETWORKS[0], "", "rodas4") else "-"
        why = "" if case in MET and method == "bdf" else STIFF[method]
        found.append(Case(f"chemistry of {case}, `{method}`", "numbalsoda", known, "ode-dense",
                          has(case=case, method=method), x_of("ratio"), count, why=why))  # fmt: skip
    return [
        *found,
        Case("small stiff systems, `bdf`", "SciPy's BDF", "0.3", "ode-dense",
             lambda row: "beside SciPy BDF" in row["case"] and row["method"] == "bdf", x_of("ratio"), count, 8),
        Case("band of 2,000 unknowns, `rodas4`", "LSODA, bands", "0.14 to 0.19", "ode-dense",
             has(case="band of 2000", method="rodas4"), x_of("ratio"), count),
        Case("band of 2,000 unknowns, `bdf`", "LSODA, bands", "-", "ode-dense",
             has(case="band of 2000", method="bdf"), x_of("ratio"), count, why=BAND),
    ]  # fmt: skip


GROUPS = {
    "Solvers and products": solvers,
    "Arrays and functions": arrays,
    "Kalman filters": filters,
    "Differential equations": equations,
}
"""Of the table, by the headings of the page."""


def cases() -> list[Case]:
    """The lines of the table."""
    return [case for group in GROUPS.values() for case in group()]


class Figure(NamedTuple):
    """A line of the second table: one number of a record that should be small, or large."""

    what: str
    before: float
    wanted: float
    unit: str
    record: str
    value: Callable[[dict[str, Any]], float]
    """Of the rows by their first entry."""
    large: bool = False
    """Whether large numbers are good."""
    why: str = ""


def figures() -> list[Figure]:
    """First uses, kept statistics, threads of short calls, one sample on a device."""
    first = "imports and what is read from disk take 0.6 to 0.8 s, which no compilation saves."
    uses = (("cg, aggregation", 3.3), ("direct", 2.0), ("ode.solve", 1.5))
    return [
        *(Figure(f"first use of {name}", before, before / 2, "s", "first-uses",
                 lambda rows, name=name: rows[name]["s"], why=first) for name, before in uses),
        Figure("`keep=\"statistics\"` over keeping all", 8.0, 2.0, "x", "propagate",
               lambda rows: rows["statistics"]["us a group"] / rows["memory"]["us a group"]),
        Figure("Gauss-Hermite of 9 variables, one thread over 16", 1.1, 1.0, "x", "threads",
               lambda rows: rows["Gauss-Hermite, 9 variables"]["gain"], large=True),
        Figure("filter of 1000 series, one thread over 16", 1.6, 1.0, "x", "threads",
               lambda rows: rows["kalman_filter, 1000 series of 1000 steps"]["gain"], large=True),
    ]  # fmt: skip


def figure_of(figure: Figure) -> float | None:
    """The number of a figure; None where the record is missing."""
    path = RESULTS / f"{figure.record}.json"
    if not path.exists():
        return None
    return figure.value({str(next(iter(row.values()))): row for row in json.loads(path.read_text())["rows"]})


def missed(figure: Figure) -> bool:
    """Whether a figure is not what was wanted."""
    found = figure_of(figure)
    return found is not None and (found < figure.wanted if figure.large else found > figure.wanted)


class Ratios(NamedTuple):
    """The ratios of a case at one number of samples."""

    values: list[float]

    def text(self) -> str:
        """The lowest and the median; one number where there is one row, "-" where there is none."""
        if not self.values:
            return "-"
        low = f"{min(self.values):.2f}"
        many = len(self.values) > 1
        return f"{low} ({statistics.median(self.values):.2f} of {len(self.values)})" if many else low

    def median(self) -> str:
        """The lowest and the median in the words of the page."""
        low = self.text().partition(" ")[0]
        return f"{low}, median {statistics.median(self.values):.2f}" if len(self.values) > 1 else low

    def reaches(self, bar: float) -> bool:
        """Whether the lowest one, as it is printed, reaches a bar."""
        return not self.values or float(f"{min(self.values):.2f}") >= bar


def ratios(case: Case) -> tuple[Ratios, Ratios] | None:
    """Those of one sample and of many; None where the record is missing."""
    path = RESULTS / f"{case.record}.json"
    if not path.exists():
        return None
    rows = [row for row in json.loads(path.read_text())["rows"] if case.wanted(row)]
    one, many = ([case.value(row) for row in rows if case.samples(row) == n] for n in (1, case.many))
    return Ratios(one), Ratios(many)


def below(case: Case) -> bool:
    """Whether one of the ratios stays below its bar."""
    found = ratios(case)
    return found is not None and not all(each.reaches(bar) for each, bar in zip(found, case.bars, strict=True))


def table() -> list[Row]:
    """The table's rows; "no record" where a record is missing."""
    lines = []
    for case in cases():
        found = ratios(case)
        one, many = ("no record", "no record") if found is None else (each.text() for each in found)
        bars = " / ".join(f"{bar:g}" for bar in case.bars)
        line = {"case": case.case, "peer": case.peer, "bars": bars, "before": case.before, "S = 1": one, "S > 1": many}
        lines.append({**line, "S": case.many, "below": below(case), "record": case.record})
    return lines


def page_table(group: list[Case], notes: dict[str, int]) -> list[str]:
    """The lines of a table of the page; what stays below its bar gets the number of its note."""
    rows = ["| call | peer | one sample | many samples | of them | note |", "|---|---|---|---|---|---|"]
    for case in group:
        found = ratios(case)
        one, many = ("no record", "no record") if found is None else (each.median() for each in found)
        note = notes.setdefault(case.why, len(notes) + 1) if below(case) else ""
        rows.append(f"| {case.case} | {case.peer} | {one} | {many} | {'' if many == '-' else case.many} | {note} |")
    return rows


def page() -> str:
    """The text of ``docs/cases.md``."""
    notes: dict[str, int] = {}
    tables = [line for name, group in GROUPS.items() for line in (f"## {name}", "", *page_table(group(), notes), "")]
    second = ["| what | measured | note |", "|---|---|---|"]
    for figure in figures():
        note = notes.setdefault(figure.why, len(notes) + 1) if missed(figure) else ""
        second.append(f"| {figure.what} | {shown(figure_of(figure))} {figure.unit} | {note} |")
    names = list(dict.fromkeys(each.record for each in (*cases(), *figures())))
    records = ", ".join(f"[{name}](../benchmarks/results/{name}.json)" for name in names)
    return "\n".join([
        "# Where it is faster, and where not", "", *(line for text in HEAD for line in (wrapped(text), "")),
        *tables, "## First uses, statistics, threads", "", *second, "", "## Notes", "",
        *(wrapped(f"{k}. {why}", 3) for why, k in notes.items()), "", wrapped(f"Records: {records}."), "",
    ])  # fmt: skip


HEAD = (
    "Small and awkward calls beside what their users would call otherwise. A figure is the peer's time for a sample "
    "over ours: 2 is twice as fast, 0.5 takes twice as long. Where several matrices, sizes or functions were measured, "
    "it is the slowest of them, and their median follows. What a large solve gains is in [ten tables](speed.md).",
    "Call something else for one sample of a small or ill-conditioned matrix (`direct`), for one sample of a stiff "
    "system by `bdf`, and for single NumPy calls on a few numbers: their fixed cost needs samples to share it. The "
    "notes say what bounds a figure.",
    "One thread of a virtual machine with an AMD EPYC, AVX-512, but for the lines of 16 cores. Written from the "
    "records by `python -m benchmarks cases --page`.",
)


def main() -> None:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cases", description=__doc__.partition("\n")[0])
    parser.add_argument("--commands", action="store_true", help="print the commands that make the records")
    parser.add_argument("--page", action="store_true", help="write docs/cases.md")
    options = parser.parse_args()
    if options.commands:
        print("\n".join(f"python -m benchmarks {command}" for command in COMMANDS))
        return
    if options.page:
        PAGE.write_text(page())
        print(PAGE)
        return
    show("The peer's time over ours: lowest (median of so many rows)", table())


if __name__ == "__main__":
    main()
