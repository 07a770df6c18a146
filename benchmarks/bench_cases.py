"""One table from the records: calls that were once slower than what their users had, then and now.

"x" is the time of the peer over ours, per sample; "before" is what was measured when the case was reported, on another
machine. Where a case has several matrices, sizes or functions, the table shows the lowest and the median of them.
Nothing is measured here: `COMMANDS` makes the records, one after the other, on a machine with nothing beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.common import RESULTS, show

Row = dict[str, Any]

COMMANDS = (
    "eigen", "direct-exchanges --name direct-exchanges-1threads", "complex --name complex-1threads",
    "plain-iterations --name plain-iterations-1threads", "spmv-small --name spmv-small-1threads", "numpy-functions",
    "operators", "run", "time-steps --squares 60 --name time-steps-1threads", "kalman-calls", "vectorize", "propagate",
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


def cases() -> list[Case]:
    """The lines of the table."""
    every = has()
    found = [
        Case("eigsh, both ends and sigma = 0", "SciPy", "0.01 to 0.5", "eigen-1threads", every, x_of("ratio"), count)
    ]
    for name in ("rajat19", "bayer10", "west0479", "hangGlider_2", "bp_1200"):
        for family in ("values", "units"):
            found.append(Case(
                f"direct, {name}, {family}", "KLU", "0.02 to 0.3", "direct-exchanges-1threads",
                has(case=name, family=family), x_of("x KLU"), count,
            ))  # fmt: skip
    for task, before in (("product", "0.1 to 0.4"), ("gmres", "-"), ("bicgstab", "-"), ("direct", "0.8 to 5")):
        found.append(Case(f"complex {task}", "SciPy", before, "complex-1threads", has(task=task), x_of("x"), count))
    for method, before in (("cg", "0.4 to 1"), ("minres", "0.4 to 1"), ("bicgstab", "0.4 to 1"), ("gmres", "0.4, 0.6")):
        wanted = lambda row, method=method: row["method"] == method and row["rows"] >= 10_000
        found.append(
            Case(
                f"{method}, 10,000 rows and more",
                "SciPy",
                before,
                "plain-iterations-1threads",
                wanted,
                x_of("x"),
                count,
            )
        )
    found += [
        Case("A @ x, small matrices", "SciPy", "0.3 to 0.5", "spmv-small-1threads", every, x_of("x SciPy"), count),
        Case("NumPy's functions", "a loop", "0.1 to 0.7", "numpy-functions-1thread", every, x_of("x"), count),
        Case("x * 2 + x, 10,000", "NumPy", "0.02 to 0.06", "operators-1thread", has(expression="x * 2 + x", n=10_000),
             x_of("x numpy"), count),
        Case("run, loops over floats", "the loop", "0.1 to 0.25", "run", every,
             lambda row: 1.0 / row["run / loop over floats"], count),
        Case("implicit steps, cg", "SciPy's splu", "0.8", "time-steps-1threads", every, x_of("cg x splu"), count),
        Case("implicit steps, cg without hierarchy", "SciPy's splu", "-", "time-steps-1threads", every,
             x_of("plain cg x splu"), count),
        Case("implicit steps, Factorization", "SciPy's splu", "3.8", "time-steps-1threads", every,
             x_of("Factorization x splu"), count),
        Case("one log-likelihood", "statsmodels", "0.18", "kalman-calls", has(case="log-likelihood*"),
             x_of("x 1"), count),
        Case("fit by L-BFGS", "statsmodels", "0.41", "kalman-calls", has(case="fit*"), x_of("x 1"), count),
        Case("online steps", "simdkalman", "0.29 to 0.9", "kalman-calls", has(case="online step, *"),
             x_of("x 1"), count),
        Case("online step with S", "filterpy", "0.11", "kalman-calls", has(case="online step with S*"),
             x_of("x 1"), count),
        Case("73 observations", "statsmodels, collapsed", "0.38", "kalman-calls", has(case="likelihood, 73*"),
             x_of("x 2"), count),
        Case("vectorize", "a loop", "0.03", "vectorize", has(way="vectorize*"), x_of("x loop"),
             lambda row: 1),
    ]  # fmt: skip
    for name, before in (("Kuramoto*", "below 0.01"), ("matrix*", "below 0.01")):
        found.append(Case(name[:-1], "SciPy", before, "ode-dense", has(case=name), x_of("ratio"), count, 64))
    for name, before in (("53 species, 325 reactions", "0.5"), ("100 species, 600 reactions", "-")):
        for case in (name, f"{name}, at LSODA's error"):
            wanted = lambda row, case=case: row["case"] == case and row["method"] in ("rodas4", "bdf")
            best = lambda row: float(row["ratio"])
            found.append(Case(f"{case}, rodas4 and bdf", "numbalsoda", before, "ode-dense", wanted, best, count))
    found += [
        Case("small stiff systems, bdf", "SciPy's BDF", "0.3", "ode-dense",
             lambda row: "beside SciPy BDF" in row["case"] and row["method"] == "bdf", x_of("ratio"), count, 8),
        Case("band of 2000", "LSODA, bands", "0.14 to 0.19", "ode-dense",
             lambda row: row["case"] == "band of 2000" and row["method"] in ("rodas4", "bdf"), x_of("ratio"), count),
        Case("set-up on 16 cores", "one core", "5.4", "threads", has(call="set-up*"), x_of("gain"), lambda row: 32),
        Case("cg on 16 cores", "one core", "9.9", "threads", has(call="cg*"), x_of("gain"), lambda row: 32),
        Case("product on 16 cores", "one core", "9.8", "threads", has(call="product*"), x_of("gain"), lambda row: 32),
    ]  # fmt: skip
    return found


def of_samples(case: Case, rows: list[Row], n_samples: int) -> str:
    """The lowest and the median ratio of the rows of so many samples; one number where there is one row."""
    values = [case.value(row) for row in rows if case.samples(row) == n_samples]
    if not values:
        return "-"
    low = f"{min(values):.2f}"
    return low if len(values) == 1 else f"{low} ({statistics.median(values):.2f} of {len(values)})"


def table() -> list[Row]:
    """The table's rows; "no record" where a record is missing."""
    lines = []
    for case in cases():
        path = RESULTS / f"{case.record}.json"
        line = {"case": case.case, "peer": case.peer, "before": case.before}
        if path.exists():
            rows = [row for row in json.loads(path.read_text())["rows"] if case.wanted(row)]
            line |= {"S = 1": of_samples(case, rows, 1), "S = 32": of_samples(case, rows, case.many)}
        else:
            line |= {"S = 1": "no record", "S = 32": "no record"}
        lines.append({**line, "many": case.many, "record": case.record})
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cases", description=__doc__.partition("\n")[0])
    parser.add_argument("--commands", action="store_true", help="print the commands that make the records")
    if parser.parse_args().commands:
        print("\n".join(f"python -m benchmarks {command}" for command in COMMANDS))
        return
    show("The peer's time over ours: lowest (median of so many rows)", table())
