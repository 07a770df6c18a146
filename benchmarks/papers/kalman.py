"""Paper 002, Särkkä and García-Fernández: figures 6 to 15, which have no numbers but in the text."""

from __future__ import annotations

from typing import Any

from benchmarks.papers import NotRun, Paper, Record, Stored, Table, found

OPERATIONS = Record("kalman-operations", ("kalman-operations",), precision="operations of float32 steps")
DEVICE = Record("kalman-cuda", ("kalman-device", "--jax", "1000000", "10000", "100000"), True, "float32")
TWO = Record("kalman-two-gpus", ("kalman-split-device",), True, "float32")
RECORDS = (OPERATIONS, DEVICE, TWO)

LENGTHS = (1000, 10_000, 100_000, 1_000_000)
METHODS = ("PKF", "PRTS", "PTFS")
SCANS = ("Hillis-Steele", "Blelloch", "Ladner-Fischer", "Sengupta A", "Sengupta B")
SPEEDUP = {"CUDA": 500.0, "Metal": 750.0}
"""What the parallel filter by Ladner and Fischer's scan reaches over the recursion on one core of the same GPU."""

NO_NUMBERS = "The figure has curves or bars, and no numbers in the text: its statements are tabled below."


def _by_length(stored: Stored, record: Record, column: str, scans: tuple[str, ...]) -> list[dict[str, Any]]:
    """A row for each length and scan, a column for each method."""
    rows = stored.rows(record)
    table = []
    for T in LENGTHS:
        for scan in scans:
            row: dict[str, Any] = {"steps": T, "scan": scan, "published": "curve"}
            for method in METHODS:
                at = [r[column] for r in rows if (r["T"], r["method"]) == (T, method)
                      and (r["scan"] == scan or (scan == "ours" and r["scan"].startswith("chunks")))]  # fmt: skip
                row[method] = min(at) if at else NotRun(f"record {record.name} has no such row")
            table.append(row)
    return table


def _time(rows: list[dict[str, Any]], T: int, scan: str, method: str = "PKF") -> float:
    return float(next(row[method] for row in rows if (row["steps"], row["scan"]) == (T, scan)))


def _ranking(rows: list[dict[str, Any]], T: int, method: str = "PKF") -> list[str]:
    """The paper's scans, the fastest first."""
    return sorted(SCANS, key=lambda scan: _time(rows, T, scan, method))


def _statement(said: str, ours: str, holds: bool) -> dict[str, Any]:
    return {"published": said, "ours": ours, "agrees": "yes" if holds else "no"}


def _complete(rows: list[dict[str, Any]]) -> bool:
    return not any(isinstance(row[method], NotRun) for row in rows for method in METHODS)


SHORT, LONG = LENGTHS[:2], LENGTHS[2:]
"""The lengths that the paper's text calls short and long."""


def _order_of_methods(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether the filter is before the RTS smoother, and that before the two-filter smoother, in all the bars."""
    ways = [{m: _time(rows, T, scan, m) for m in METHODS} for T in LENGTHS for scan in SCANS]
    first, after = (sum(m["PKF"] < m["PRTS"] for m in ways), sum(m["PRTS"] < m["PTFS"] for m in ways))
    return _statement("PKF is the fastest, then PRTS, then PTFS",
                      f"PKF before PRTS in {first}, PRTS before PTFS in {after} of {len(ways)} scans and lengths",
                      first == after == len(ways))  # fmt: skip


def _firsts(rows: list[dict[str, Any]], lengths: tuple[int, ...], count: int, last: bool = False) -> str:
    """The first or last scans of the filter at each length."""
    ranked = {T: _ranking(rows, T)[:: -1 if last else 1] for T in lengths}
    return "; ".join(f"{T:,}: {', '.join(scans[:count])}" for T, scans in ranked.items())


def _are(rows: list[dict[str, Any]], lengths: tuple[int, ...], scans: set[str], last: bool = False) -> bool:
    """Whether `scans` are the first, or the last, of the filter at all lengths; equal times count as either."""
    for T in lengths:
        inside = [_time(rows, T, scan) for scan in SCANS if scan in scans]
        outside = [_time(rows, T, scan) for scan in SCANS if scan not in scans]
        if (min(inside) < max(outside)) if last else (max(inside) > min(outside)):
            return False
    return True


def _slower(rows: list[dict[str, Any]]) -> str:
    """How many times the next Hillis and Steele's scan takes at long lengths."""
    return "; ".join(
        f"{T:,}: {_time(rows, T, SCANS[0]) / max(_time(rows, T, scan) for scan in SCANS[1:]):.2f} x the next"
        for T in LONG
    )


def _said_of_operations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not _complete(rows):
        return []
    both = {"Ladner-Fischer", "Sengupta A"}
    return [
        _statement("Hillis-Steele and Sengupta B are the fastest at 1e3 and 1e4 steps", _firsts(rows, SHORT, 2),
                   _are(rows, SHORT, {"Hillis-Steele", "Sengupta B"})),
        _statement("Hillis-Steele is significantly slower at 1e5 and 1e6", _slower(rows),
                   _are(rows, LONG, {"Hillis-Steele"}, last=True)),
        _statement("Inplace LaFi and Sengupta A are slightly faster than the others at 1e5 and 1e6",
                   _firsts(rows, LONG, 3), _are(rows, LONG, both)),
        _order_of_methods(rows),
    ]  # fmt: skip


def _said_of_cuda(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not _complete(rows):
        return []
    return [
        _statement("Blelloch and Inplace LaFi are slightly slower than the others at 1e3 and 1e4",
                   f"slowest at {_firsts(rows, SHORT, 2, last=True)}",
                   _are(rows, SHORT, {"Blelloch", "Ladner-Fischer"}, last=True)),
        _statement("Sengupta A and B are the best at 1e5 and 1e6", f"best at {_firsts(rows, LONG, 3)}",
                   _are(rows, LONG, {"Sengupta A", "Sengupta B"})),
        _statement("Hillis-Steele is worse at 1e5 and 1e6", _slower(rows),
                   _are(rows, LONG, {"Hillis-Steele"}, last=True)),
        _order_of_methods(rows),
    ]  # fmt: skip


def _two(stored: Stored) -> list[dict[str, Any]]:
    """Smoothers on one and on two devices."""
    rows = []
    for T in (*LENGTHS, 10_000_000):
        for scan in ("ours", *SCANS[1:]):
            ms = {run: found(stored, TWO, "ms", T=T, run=f"{run}, {scan}")
                  for run in ("PRTS, one", "PTFS, one", "PTFS, two")}  # fmt: skip
            if LENGTHS[-1] < T and scan != "ours":
                continue
            missing = any(isinstance(value, NotRun) for value in ms.values())
            gains = {f"{one} / PTFS, two": "" if missing else ms[one] / ms["PTFS, two"]
                     for one in ("PRTS, one", "PTFS, one")}  # fmt: skip
            rows.append({"steps": T, "scan": scan, "published": "curve", **ms, **gains})
    return rows


def _said_of_two(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the text says of figures 12 and 13, of the paper's scans."""
    theirs = [row for row in rows if row["scan"] != "ours"]
    if any(isinstance(value, NotRun) for row in theirs for value in row.values()):
        return []
    faster = [row for row in theirs if row["PTFS, two"] < min(row["PRTS, one"], row["PTFS, one"])]
    over = [row for row in theirs if row["PTFS, two"] < row["PRTS, one"]]
    best = {T: min((row for row in theirs if row["steps"] == T), key=lambda row: row["PTFS, two"])["scan"]
            for T in LENGTHS}  # fmt: skip
    slower = sum(row["PTFS, one"] > row["PRTS, one"] for row in theirs)
    return [
        _statement("PTFS on two GPUs is significantly faster than PRTS and PTFS on one",
                   f"than both in {len(faster)}, than PRTS in {len(over)} of {len(theirs)} scans and lengths",
                   len(faster) == len(theirs)),
        _statement("Sengupta B performs the best of PTFS on two GPUs",
                   "; ".join(f"{T:,}: {scan}" for T, scan in best.items()), set(best.values()) == {"Sengupta B"}),
        _statement("on one GPU, PTFS is slower than PRTS", f"in {slower} of {len(theirs)} scans and lengths",
                   slower == len(theirs)),
    ]  # fmt: skip


def _speedups(stored: Stored) -> list[dict[str, Any]]:
    """The recursion on one thread over the filter, as the paper with what launches take, and without."""
    rows = stored.rows(DEVICE)
    filters = [row for row in rows if row["method"] == "PKF" and "graph ms" in row]
    alone = {row["T"]: row["call ms"] for row in filters if row["scan"] == "one thread"}
    table: list[dict[str, Any]] = [
        {"computer": "Metal", "scan": "Ladner-Fischer", "steps": "the longest", "published": SPEEDUP["Metal"],
         "ours": NotRun("no Apple GPU is at hand, and this library has no Metal backend")}
    ]  # fmt: skip
    for T in sorted(alone):
        for scan in ("Ladner-Fischer", "ours"):
            at = [row for row in filters if row["T"] == T
                  and (row["scan"] == scan or (scan == "ours" and row["scan"].startswith("chunks")))]  # fmt: skip
            said = SPEEDUP["CUDA"] if LENGTHS[-1] == T and scan != "ours" else "curve"
            absent: Any = NotRun("classical scans are run up to 1e6 steps")
            ours, graph = (alone[T] / min(row[c] for row in at) if at else absent for c in ("call ms", "graph ms"))
            table.append({"computer": "CUDA", "scan": scan, "steps": T, "published": said, "ours": ours,
                          "ours / published": ours / said if at and isinstance(said, float) else "",
                          "ours without launches": graph})  # fmt: skip
    return table


def _jax(stored: Stored) -> list[dict[str, Any]]:
    table = []
    for T in LENGTHS[1:]:
        for method in METHODS:
            walls = {row["scan"]: row["wall ms"] for row in stored.rows(DEVICE)
                     if (row["T"], row["method"]) == (T, method) and "wall ms" in row}  # fmt: skip
            chunks: Any = min((ms for scan, ms in walls.items() if scan.startswith("chunks")), default=None)
            if chunks is None:
                continue
            row = {"steps": T, "method": method, "ours, ms": chunks}
            for name, scan in (("JAX", "JAX library"), ("fused", "JAX fused")):
                got = walls.get(scan, NotRun("the record has no run of JAX of this length"))
                row |= {f"{name}, ms": got, f"{name} / ours": "" if isinstance(got, NotRun) else got / chunks}
            table.append(row)
    return table


SETUP = (
    "The same random model: 4 states, 2 observations, all matrices vary with time, float32. Times are medians of 10 "
    "between events of a recorded CUDA graph, without what a launch takes; the paper's are medians of 10 by Julia's "
    "clock, with launches (`call ms` of the record has ours with those of Python). "
    "The device is newer than the paper's A100. Sengupta B has N = 20,000 as in the paper. The paper assumes powers of "
    "two and pads other lengths; ours pads for Blelloch's scan alone."
)
ON_TWO = (
    "Times are by the clock of the host and contain all launches; rows of ours are public calls with their checks. "
    "Each device of the paper's scans runs one pass, as in the paper, and what is copied are means and covariances: "
    "the paper copies them through the CPU, here they go between the devices where that is possible. Ours splits the "
    "series in half instead."
)
SPEED = (
    "The published numbers are read in the text, up to around 750 and 500, without a length: they stand here beside "
    "the longest of the figures with bars, 1e6. One thread of the device runs the recursion. The ratio has launches on "
    "both sides, as the paper's clock has; launches of Python take longer than the scan itself up to 1e5 steps. "
    "'ours' divides the series into chunks; Ladner-Fischer is the paper's scan. Only the second is the paper's number."
)
SENGUPTA = (
    "Sengupta B: Algorithm 4 halves log2(T / N) times. Ours halves until N elements or fewer are left, as section II-F "
    "says: 12,500 at 1e5, fewer than the threads. The paper does not say how it rounds. With one halving less, 25,000 "
    "left, the filter takes 2 % more operations at 1e5 than by Ladner and Fischer's scan, as the paper has it, and 1 % "
    "fewer at 1e6."
)


def _headline(speedups: list[dict[str, Any]]) -> str:
    """The gain of the paper's scan, and what the larger number of ours is."""
    ours = {(row["scan"], row["steps"]): row["ours"] for row in speedups if row["computer"] == "CUDA"}
    theirs, best = ours.get(("Ladner-Fischer", LENGTHS[-1])), max(ours, key=lambda key: key[1], default=None)
    if best is None or theirs is None or isinstance(theirs, NotRun):
        return "The gain of the filter over one thread of the GPU, about 500 published, has no record of ours."
    most = max((T for scan, T in ours if scan == "ours"), default=0)
    return (
        f"Speed-up of the filter by Ladner and Fischer's scan over one thread at 1e6 steps, launches counted: about "
        f"500 published, {theirs:.0f} here. Chunks reach {ours['ours', most]:.0f} at {most:,} steps, which stands "
        f"beside no number of the paper."
    )


def _about_threshold(measured: list[dict[str, Any]]) -> str:
    """What N is, where it can be given, and what it changes."""
    said = (
        "Sengupta's N is the number of elements at which that scan stops halving and runs Hillis and Steele's: "
        "`threshold=` of `prefix_scan`, `scan=Sengupta(n)` of filters and smoothers."
    )
    if not _complete(measured):
        return said
    shares = [[_time(measured, T, scan) / _time(measured, T, "Sengupta A") for T in (10_000, 1_000_000)]
              for scan in ("Sengupta B", "ours")]  # fmt: skip
    (b4, b6), (o4, o6) = shares
    return (
        f"{said} By the table of figures 10 and 11, N = 20,000 instead of 1 takes {b4:.2f} of the filter's time at "
        f"1e4 steps and {b6:.2f} at 1e6; the default of the filters, which has no N, takes {o4:.2f} and {o6:.2f}."
    )


SIGNED = (
    "the two numbers of figures 14 and 15 and the set-up of section VI-A; every statement of sections VI-B, VI-D and "
    "VI-E about figures 6, 7 and 10 to 13; N of Sengupta B",
    "how the paper rounds log2(T / N), and the length at which it reaches 500 and 750: the text does not say",
)


def paper(stored: Stored) -> Paper:
    """The figures beside the records."""
    counted = [{**row, "published": "curve"} for row in _by_length(stored, OPERATIONS, "time", (*SCANS, "ours"))]
    measured = _by_length(stored, DEVICE, "graph ms", (*SCANS, "ours"))
    on_two, speedups = _two(stored), _speedups(stored)
    statements = (_said_of_operations(counted), _said_of_cuda(measured), _said_of_two(on_two))
    tables = [
        Table("Figures 6 and 7", "operations one after another on 15,000 simulated threads", "section VI-B", counted,
              (NO_NUMBERS, "Operations are counted of our code: a combination of two elements takes other numbers of "
               "additions and products than the paper's.", "Sengupta B has N = 15,000 here, as in the paper. The paper "
               "assumes powers of two and pads other lengths; ours pads for Blelloch's scan alone."),
              (OPERATIONS,), "kalman-operations.png"),
        Table("Section VI-B", "what the paper says of figures 6 and 7", "section VI-B", statements[0],
              ("Scans are ranked by the filter.", SENGUPTA), (OPERATIONS,)),
        Table("Figures 10 and 11", "run times on the CUDA computer, ms", "section VI-D", measured, (NO_NUMBERS, SETUP),
              (DEVICE,), "kalman-gpu.png"),
        Table("Section VI-D", "what the paper says of figures 10 and 11", "section VI-D", statements[1],
              ("Scans are ranked by the filter. PTFS is made of one more scan of elements, PRTS of elements made from "
               "states and their scan.",), (DEVICE,)),
        Table("Figures 12 and 13", "smoothers on one GPU and on two, ms", "section VI-E", on_two, (NO_NUMBERS, ON_TWO),
              (TWO,), "kalman-two-gpus.png"),
        Table("Section VI-E", "what the paper says of figures 12 and 13", "section VI-E", statements[2],
              ("The copy of means and covariances and the second set of launches cost as much as the pass that "
               "moved.",), (TWO,)),
        Table("Figures 14 and 15", "the parallel filter over the recursion on one thread of the GPU", "section VI-F",
              speedups, (SPEED,), (DEVICE,), "kalman-gpu-speedup.png"),
        Table("Section I", "the JAX implementation that the paper mentions, in the same run", "section I", _jax(stored),
              ("The paper times none. Times are by the clock of the host until the device is done. \"JAX\" is as JAX "
               "libraries are written; \"fused\" has sums of broadcast products in place of small products of "
               "matrices, which is faster and less accurate (`error / deviation` of the record).",), (DEVICE,)),
    ]  # fmt: skip
    disputed = [row["published"] for rows in statements for row in rows if row["agrees"] == "no"]
    metal = "no Apple GPU is at hand, and this library has no Metal backend."
    return Paper(
        "002", "prefix-sum parallel Kalman filters and smoothers on GPUs",
        "S. Särkkä and Á. F. García-Fernández, On The Performance of Prefix-Sum Parallel Kalman Filters and Smoothers "
        "on GPUs.",
        "CUDA: NVIDIA A100-SXM4-80GB (four) and an AMD EPYC 7643. Metal: Apple M3 Max, 30 cores of its GPU.",
        tables,
        (_headline(speedups), _about_threshold(measured),
         f"What the paper says and does not hold here: {'; '.join(disputed) or 'nothing'}."),
        (("Figures 1 to 3", "drawings of scans."), ("Figures 4 and 5", "listings."), ("Figures 8 and 9", metal),
         ("Algorithms 1 to 7", "in the library: five scans of `prefix_scan`, and three of `apps.kalman`.")),
        SIGNED,
    )  # fmt: skip
