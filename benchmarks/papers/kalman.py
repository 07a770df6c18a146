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


def _said_of_operations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not _complete(rows):
        return []
    short, long = _ranking(rows, 10_000), _ranking(rows, 1_000_000)
    methods = sorted(METHODS, key=lambda method: _time(rows, 1_000_000, "Ladner-Fischer", method))
    slowest = _time(rows, 1_000_000, "Hillis-Steele") / _time(rows, 1_000_000, long[-2])
    return [
        _statement("Hillis-Steele and Sengupta B are the fastest at 1e3 and 1e4 steps",
                   f"at 1e4: {', '.join(short[:2])}", set(short[:2]) == {"Hillis-Steele", "Sengupta B"}),
        _statement("Hillis-Steele is significantly slower at 1e5 and 1e6",
                   f"{slowest:.1f} x the next at 1e6", long[-1] == "Hillis-Steele"),
        _statement("Inplace LaFi and Sengupta A are slightly faster than the others at 1e5 and 1e6",
                   f"at 1e6: {', '.join(long[:3])}", set(long[:2]) == {"Ladner-Fischer", "Sengupta A"}),
        _statement("PKF is the fastest, then PRTS, then PTFS", ", ".join(methods), methods == list(METHODS)),
    ]  # fmt: skip


def _said_of_cuda(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not _complete(rows):
        return []
    short, long = _ranking(rows, 10_000), _ranking(rows, 1_000_000)
    methods = sorted(METHODS, key=lambda method: _time(rows, 1_000_000, "Ladner-Fischer", method))
    return [
        _statement("Blelloch and Inplace LaFi are slightly slower than the others at 1e3 and 1e4",
                   f"slowest at 1e4: {', '.join(short[:2:-1])}", set(short[3:]) == {"Blelloch", "Ladner-Fischer"}),
        _statement("Sengupta A and B are the best at 1e5 and 1e6", f"best at 1e6: {', '.join(long[:3])}",
                   set(long[:2]) == {"Sengupta A", "Sengupta B"}),
        _statement("Hillis-Steele is worse at 1e5 and 1e6", f"last at 1e6: {long[-1]}", long[-1] == "Hillis-Steele"),
        _statement("PKF is the fastest, then PRTS, then PTFS", ", ".join(methods), methods == list(METHODS)),
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
            one, two = ms["PTFS, one"], ms["PTFS, two"]
            missing = isinstance(one, NotRun) or isinstance(two, NotRun)
            rows.append({"steps": T, "scan": scan, "published": "curve", **ms,
                         "PTFS: one / two": "" if missing else one / two})  # fmt: skip
    return rows


def _speedups(stored: Stored) -> list[dict[str, Any]]:
    rows = stored.rows(DEVICE)
    filters = [row for row in rows if row["method"] == "PKF" and "graph ms" in row]
    alone = {row["T"]: row["call ms"] for row in filters if row["scan"] == "one thread"}
    table: list[dict[str, Any]] = [
        {"computer": "Metal", "scan": "Ladner-Fischer", "steps": "up to 1e6", "published": SPEEDUP["Metal"],
         "ours": NotRun("no Apple GPU is at hand, and this library has no Metal backend")}
    ]  # fmt: skip
    for T in sorted(alone):
        for scan in ("Ladner-Fischer", "ours"):
            at = [row["graph ms"] for row in filters if row["T"] == T
                  and (row["scan"] == scan or (scan == "ours" and row["scan"].startswith("chunks")))]  # fmt: skip
            said = SPEEDUP["CUDA"] if LENGTHS[-1] == T and scan != "ours" else "curve"
            ours = alone[T] / min(at) if at else NotRun("classical scans are run up to 1e6 steps")
            table.append({"computer": "CUDA", "scan": scan, "steps": T, "published": said, "ours": ours,
                          "ours / published": ours / said if isinstance(said, float) else ""})  # fmt: skip
    return table


def _jax(stored: Stored) -> list[dict[str, Any]]:
    table = []
    for T in LENGTHS[1:]:
        for method in METHODS:
            walls = {row["scan"]: row["wall ms"] for row in stored.rows(DEVICE)
                     if (row["T"], row["method"]) == (T, method) and "wall ms" in row}  # fmt: skip
            chunks = min((ms for scan, ms in walls.items() if scan.startswith("chunks")), default=None)
            if chunks is None or "JAX library" not in walls:
                continue
            library, fused = walls["JAX library"], walls["JAX fused"]
            table.append({"steps": T, "method": method, "JAX, ms": library, "JAX, fused, ms": fused, "ours, ms": chunks,
                          "JAX / ours": library / chunks})  # fmt: skip
    return table


SETUP = (
    "The same random model: 4 states, 2 observations, all matrices vary with time, float32. Times are medians of 10 "
    "between events of a recorded CUDA graph, without Python's share; the paper's are medians of 10 of Julia's clock. "
    "The device is newer than the paper's A100. Sengupta B has N = 20,000 as in the paper."
)
ON_TWO = (
    "Times are by the clock of the host and contain all launches. The paper finds two GPUs significantly faster than "
    "one. Here two are slower than the two-filter smoother on one up to 1e6 steps, but for Sengupta A at 1e5 (2 %): "
    "the "
    "copy of means and covariances between devices and the second set of launches cost 0.2 to 0.6 ms, as much as the "
    "pass that moved. Against PRTS on one, as the paper compares, two devices "
    "win with Blelloch (6.25 to 5.59 ms) and Sengupta B (3.87 to 3.52 ms) at 1e6. Ours splits the series in half "
    "instead and wins at 1e7. The paper copies through the CPU, ours between the devices."
)
SPEED = (
    "The published numbers are read in the text: up to around 750 and 500. One thread of the device runs the "
    "recursion. "
    "'ours' divides the series into chunks; Ladner-Fischer is the paper's scan. Only the second is the paper's number."
)


def paper(stored: Stored) -> Paper:
    """The figures beside the records."""
    counted = [{**row, "published": "curve"} for row in _by_length(stored, OPERATIONS, "time", (*SCANS, "ours"))]
    measured = _by_length(stored, DEVICE, "graph ms", (*SCANS, "ours"))
    tables = [
        Table("Figures 6 and 7", "operations one after another on 15,000 simulated threads", "section VI-B", counted,
              (NO_NUMBERS, "Operations are counted of our code: a combination of two elements takes other numbers of "
               "additions and products than the paper's.", "Sengupta B has N = 15,000 here, as in the paper."),
              (OPERATIONS,), "kalman-operations.png"),
        Table("Section VI-B", "what the paper says of figures 6 and 7", "section VI-B", _said_of_operations(counted),
              ("PTFS is after PRTS in operations; on the device it is before, see figures 10 and 11.",), (OPERATIONS,)),
        Table("Figures 10 and 11", "run times on the CUDA computer, ms", "section VI-D", measured, (NO_NUMBERS, SETUP),
              (DEVICE,), "kalman-gpu.png"),
        Table("Section VI-D", "what the paper says of figures 10 and 11", "section VI-D", _said_of_cuda(measured),
              ("Ladner-Fischer comes first here, and PTFS is before PRTS: a second scan of elements costs less than "
               "elements made from states. The paper's best on CUDA are Sengupta A and B.",), (DEVICE,)),
        Table("Figures 12 and 13", "smoothers on one GPU and on two, ms", "section VI-E", _two(stored), (ON_TWO,),
              (TWO,), "kalman-two-gpus.png"),
        Table("Figures 14 and 15", "the parallel filter over the recursion on one thread of the GPU", "section VI-F",
              _speedups(stored), (SPEED,), (DEVICE,), "kalman-gpu-speedup.png"),
        Table("Section I", "the JAX implementation that the paper mentions, in the same run", "section I", _jax(stored),
              ("The paper times none. Times are by the clock of the host until the device is done.",), (DEVICE,)),
    ]  # fmt: skip
    metal = "no Apple GPU is at hand, and this library has no Metal backend."
    return Paper(
        "002", "prefix-sum parallel Kalman filters and smoothers on GPUs",
        "S. Särkkä and Á. F. García-Fernández, On The Performance of Prefix-Sum Parallel Kalman Filters and Smoothers "
        "on "
        "GPUs.",
        "CUDA: NVIDIA A100-SXM4-80GB (four) and an AMD EPYC 7643. Metal: Apple M3 Max, 30 cores of its GPU.",
        tables,
        ("Speed-up of the filter by Ladner and Fischer's scan over one thread at 1e6 steps: about 500 published, 876 "
         "here. "
         "The 5130 of the performance page are of chunks at 1e7 steps and stand beside no number of the paper.",
         "Sengupta's N is the number of elements at which that scan stops halving and runs Hillis and Steele's: "
         "`threshold=` of `prefix_scan`. The filters and smoothers take no such number. By the table of figures 10 and "
         "11, N = 20,000 instead of 1 takes 0.78 of the filter's time at 1e4 steps and 0.98 at 1e6; the default of the "
         "filters, which has no N, takes 0.42 and 0.17. `prefix_scan` takes any other N.",
         "What does not hold here: Inplace LaFi and Sengupta A before Sengupta B in operations, the ranking of scans "
         "on "
         "CUDA, PRTS before PTFS on one GPU, and two GPUs before one."),
        (("Figures 1 to 3", "drawings of scans."), ("Figures 4 and 5", "listings."), ("Figures 8 and 9", metal)),
    )  # fmt: skip
