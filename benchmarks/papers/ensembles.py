"""Paper 004, Phipps et al. (2017), embedded ensemble propagation: table 2, and figures 8 to 12."""

from __future__ import annotations

from typing import Any

from benchmarks.papers import NotRun, Paper, Record, Stored, Table, found

ONE = Record("spmv-64-1threads", ("spmv", "--threads", "1"))
TWO = Record("spmv-64-2threads", ("spmv", "--threads", "2"))
COST = Record("cost-64-2threads", ("cost", "--threads", "2"))
KERNELS = Record("gpu-kernels-64", ("diffusion-device",), True)
SOLVES = Record("gpu-solves-64-grading0", ("diffusion-device",), True)
HALO = Record("distributed-halo", ("distributed", "--parts", "halo"))
WEAK = Record("distributed-weak", ("distributed", "--parts", "weak"))
RECORDS = (ONE, TWO, COST, KERNELS, SOLVES, HALO, WEAK)

PRODUCTS = {
    "Sandy Bridge": (36.2, 5.9, 6.0, 3.6, 8.5, 9.1, 4.5), "Blue Gene/Q": (28.5, 3.5, 4.8, 2.9, 5.0, 7.1, 3.6),
    "Cray XK7": (11.2, 2.3, 1.9, 1.1, 3.2, 2.8, 1.4), "GPU": (178.0, 17.5, 29.7, 17.8, 34.7, 44.5, 22.3),
    "Accelerator": (147.0, 12.2, 24.5, 14.7, 21.7, 36.8, 18.4),
}  # fmt: skip
"""Table 2: bandwidth in GB/s; GFLOP/s measured, optimistic and pessimistic bound, of one sample and of 32."""

BYTES = {"scalar": (12.0, 20.0), "ensemble": (8.0, 16.0)}
"""Eq. 12: bytes for two operations, where the vector is in a cache and where it comes from memory."""

ENTRIES = 7_189_057
"""Of the 27-point matrix on 64^3 cells."""

SIZES = "the record of the device does not have this number of samples"
CURVE = "The figure has curves and no numbers in the text."


def bounds(bandwidth: float, kind: str) -> tuple[float, float]:
    """The optimistic and the pessimistic bound of eq. 12, GFLOP/s at `bandwidth` GB/s."""
    optimistic, pessimistic = BYTES[kind]
    return 2.0 * bandwidth / optimistic, 2.0 * bandwidth / pessimistic


def _line(name: str, source: str, numbers: tuple[float, ...]) -> dict[str, Any]:
    heads = ("GB/s", "one: GFLOP/s", "one: optimistic", "one: pessimistic", "32: GFLOP/s", "32: optimistic",
             "32: pessimistic")  # fmt: skip
    row: dict[str, Any] = {"machine": name, "from": source, **dict(zip(heads, numbers, strict=True))}
    return {**row, "32 over one": numbers[4] / numbers[1]}


def _ours(stored: Stored) -> list[dict[str, Any]]:
    """Rows of our machines, bounds by their bandwidth."""
    rows = []
    for threads, record in (("one thread", ONE), ("two threads", TWO)):
        content = stored.content(record)
        name = f"{threads}, {content['machine']['processor'] if content else 'no record'}"
        got = {c: found(stored, record, c, n_samples=32)
               for c in ("GFLOP/s", "read GB/s", "x scalar kernel", "x SciPy")}  # fmt: skip
        missing = next((value for value in got.values() if isinstance(value, NotRun)), None)
        if missing is not None:
            rows.append({"machine": name, "from": "ours", "32: GFLOP/s": missing})
            continue
        rate, band = got["GFLOP/s"], got["read GB/s"]
        one = rate / got["x scalar kernel"]
        line = _line(name, "ours", (band, one, *bounds(band, "scalar"), rate, *bounds(band, "ensemble")))
        rows.append({**line, "32 over one of SciPy": got["x SciPy"]})
    kernel = {s: {c: found(stored, KERNELS, c, kernel="spmv", samples=s) for c in ("ms", "TB/s", "of triad")}
              for s in (1, 32)}  # fmt: skip
    if not any(isinstance(value, NotRun) for one in kernel.values() for value in one.values()):
        band = 1e3 * kernel[32]["TB/s"] / kernel[32]["of triad"]
        one, many = (2e-6 * ENTRIES * s / kernel[s]["ms"] for s in (1, 32))
        rows.append(_line("H200", "ours", (band, one, *bounds(band, "scalar"), many, *bounds(band, "ensemble"))))
    return rows


def _beside_bounds(rows: list[dict[str, Any]]) -> str:
    """Where ours stand beside their bounds, and why a gain may exceed that of the bounds."""
    rows = [row for row in rows if "one: GFLOP/s" in row]
    if not rows:
        return "No record of ours."
    above = [row["machine"] for row in rows
             if any(row[f"{n}: GFLOP/s"] > row[f"{n}: optimistic"] for n in ("one", "32"))]  # fmt: skip
    below = [row["machine"] for row in rows if row["one: GFLOP/s"] < row["one: pessimistic"]]
    said = f"Ours above an optimistic bound: {'; '.join(above) or 'none'}."
    if below:
        said += (f" One sample below its pessimistic bound: {'; '.join(below)}. It waits for gathers of the vector, "
                 "which no bound counts, so that the gain is more than the 1.5 of the bounds; the product of SciPy is "
                 "beside it.")  # fmt: skip
    return said


def _gains(stored: Stored, phase: str) -> list[dict[str, Any]]:
    """Eq. 11 against the number of samples: our processor, and the device where a record has it."""
    kernel = {"product": "spmv", "assembly": "assembly"}.get(phase)
    rows = []
    for row in stored.rows(COST):
        s = row["n_samples"]
        line: dict[str, Any] = {"samples": s, "published": "curve", "two threads, ms a sample": row[f"{phase} ms"],
                                "two threads, gain": row[f"x {phase}"]}  # fmt: skip
        if kernel:
            alone, many = (found(stored, KERNELS, "ms", kernel=kernel, samples=n, why=SIZES) for n in (1, s))
        else:
            alone, many = (found(stored, SOLVES, "solve ms", run="stored", samples=n, why=SIZES) for n in (1, s))
        missing = isinstance(many, NotRun) or isinstance(alone, NotRun)
        line |= {"H200, ms a sample": many if isinstance(many, NotRun) else many / s,
                 "H200, gain": "" if missing else s * alone / many}  # fmt: skip
        rows.append(line)
    return rows


def _halo(stored: Stored) -> list[dict[str, Any]]:
    keep = ("way", "rows", "a us", "b us", "gain at 32", "eq. 14, one line")
    return [{"published": "curve", **{key: fit[key] for key in keep},
             "largest error of the line": fit["error of one line"]} for fit in stored.rows(HALO, "fits")]  # fmt: skip


def _weak(stored: Stored) -> list[dict[str, Any]]:
    """Solves; the record has the microseconds of an iteration."""
    rows = []
    for row in stored.rows(WEAK):
        at: dict[str, Any] = {"ranks": 1, "samples": row["samples"], "edge": row["edge"]}
        us, iterations = (found(stored, WEAK, column, **at) for column in ("us", "iterations"))
        rows.append({"published": "curve", "cells of a rank": f"{row['edge']}^3", "samples": row["samples"],
                     "ranks": row["ranks"], "iterations": row["iterations"],
                     "solve, ms": 1e-3 * row["us"] * row["iterations"],
                     "solve over one rank": row["us"] * row["iterations"] / (us * iterations),
                     "an iteration over one rank": row["us"] / us})  # fmt: skip
    return rows


def _problem(stored: Stored) -> str:
    """What the records of figures 8, 9 and 12 are of."""
    content = stored.content(COST) or {}
    stores = str(content.get("stored", "every entry"))
    stores = f"the {stores}" if stores.startswith("upper") else stores
    mesh = "evenly spaced nodes" if content.get("grading") == 0.0 else "nodes that are not evenly spaced"
    return (
        f"The published problem: random diffusion on 64^3 cells, five variables, mean 1, deviation 0.1, correlation "
        f"length 1. On the processor ours has {mesh} and stores {stores} of the matrix; "
        f"on the H200 evenly spaced nodes and every entry."
    )


def _said(gains: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What section 4 says of its figures, of our two machines."""
    at = {name: next((row for row in rows if row["samples"] == 32), {}) for name, rows in gains.items()}
    host: dict[str, Any] = {name: row.get("two threads, gain") for name, row in at.items()}
    device: dict[str, Any] = {name: row.get("H200, gain") for name, row in at.items()}
    if not all(isinstance(value, float) for value in (*host.values(), *device.values())):
        return []
    pair = {name: f"{host[name]:.2f} on two threads, {device[name]:.2f} on the H200, 32 samples" for name in gains}
    rows = [
        ("fig. 8: products gain significantly, more so on GPU and accelerator", "product",
         device["product"] > host["product"] > 1.1),
        ("fig. 9: assembly gains substantially except on the GPU", "assembly",
         host["assembly"] > 1.5 > device["assembly"]),
        ("fig. 12: solves gain on all machines, particularly on GPU and accelerator", "solve",
         device["solve"] > host["solve"] > 1.1),
    ]  # fmt: skip
    return [{"published": said, "ours": pair[name], "agrees": "yes" if holds else "no"} for said, name, holds in rows]


SIGNED = (
    "every number of table 2 and its bounds by eq. 12; the set-up of section 4 and of the multigrid in section 3.5; "
    "eqs. 11, 13 and 14 in figures 8 to 12",
    "figure 11 on two cores says nothing of many nodes; tolerance of the published solves: the text does not say",
)


def paper(stored: Stored) -> Paper:
    """The table and the figures beside the records."""
    products = [_line(name, "published", numbers) for name, numbers in PRODUCTS.items()]
    ours, gains = _ours(stored), {phase: _gains(stored, phase) for phase in ("product", "assembly", "solve")}
    same = _problem(stored)
    tables = [
        Table("Table 2", "sparse product on 64^3 cells and the bounds of eq. 12", "section 4", products + ours,
              ("Bounds are by the triad of STREAM in the paper and on the H200; by reading alone on the processor. The "
               "bound of one sample counts a column number of 4 bytes for each entry, as ours stores. The published "
               "rows of Sandy Bridge and Cray XK7 are of one region of memory of a node.", _beside_bounds(ours)),
              (ONE, TWO, KERNELS)),
        Table("Figure 8", "gain of the product", "section 4", gains["product"],
              (CURVE, same), (COST, KERNELS), "cost-against-size.png"),
        Table("Figure 9", "gain of the assembly", "section 4", gains["assembly"],
              (CURVE, same, "The paper assembles matrix and residual for Newton's method; ours too. On the GPU the "
               "paper has little reuse because nothing is shared between threads; here a block keeps tables of its "
               "cells in shared memory."), (COST, KERNELS)),
        Table("Figure 10", "exchange of halos", "section 4", _halo(stored),
              (CURVE, "T(s) = a + b s is fitted as in eq. 13, and eq. 14 follows. Two processes of one machine here, "
               "by shared memory and by TCP; the paper has many nodes of a Cray XK7 and of a Blue Gene/Q."), (HALO,)),
        Table("Figure 11", "weak scaling of the solve", "section 4", _weak(stored),
              (CURVE, "Two ranks share two cores with other work, and each has 32^3 cells; the paper has 64^3 cells "
               "for each node, and 1 and 32 samples. Two ranks have 64 x 32 x 32 cells of the unit cube, half as "
               "long in one direction as in the others, which takes twice the iterations: the last column is without "
               "them. This table says nothing about many nodes."), (WEAK,)),
        Table("Figure 12", "gain of the solve, CG with multigrid", "section 4", gains["solve"],
              (CURVE, same, "Set-up is not in it, as in the paper. Both have Chebyshev smoothers of degree 2, levels "
               "down to 500 rows, and aggregates or transfers from the graph of each level without dropping; ours "
               "smooths the transfers by the matrix. Ours solves to 1e-7 and each sample has its own steps and end; "
               "the paper couples the samples of an ensemble and gives no tolerance. Its coarsest level is solved on "
               "one thread of the host, ours where the rest runs. Values of the hierarchy are in float64 on the "
               "H200."),
              (COST, SOLVES)),
        Table("Section 4", "what the paper says of figures 8, 9 and 12", "section 4", _said(gains), (),
              (COST, KERNELS, SOLVES)),
    ]  # fmt: skip
    return Paper(
        "004", "embedded ensemble propagation",
        "E. Phipps, M. D'Elia, H. C. Edwards, M. Hoemmen, J. Hu and S. Rajamanickam, Embedded Ensemble Propagation for "
        "Improving Performance, Portability and Scalability of Uncertainty Quantification on Emerging Computational "
        "Architectures, SIAM J. Sci. Comput. 39 (2017).",
        "table 1 there: Sandy Bridge (dual Xeon E5-2670), Blue Gene/Q, Cray XK7, NVIDIA K20X, Xeon Phi 7120P.",
        tables,
        ("A gain is s times the time of one sample over the time of s samples together (eq. 11). A slow product of one "
         "sample raises it: GFLOP/s and milliseconds stand beside every gain.",),
        (("Table 1", "the machines."), ("Figures 1 to 7", "listings and drawings; `EnsembleTrait` of figure 7 is in "
         "the library, see tests/scalar/test_reductions.py.")),
        SIGNED,
    )  # fmt: skip
