"""Paper 001, Gaurav and Wojtkiewicz (2011): tables 2 to 7, gains of a device over one thread and over all."""

from __future__ import annotations

from typing import Any

from benchmarks.papers import NotRun, Paper, Record, Stored, Table, found

PARTS = ("static", "frequency", "convolution", "oscillator", "quadrature")
HOST = {part: Record(f"analyses-{part}", ("analyses", "--full", "--part", part), False, "SP and DP") for part in PARTS}
DEVICE = {part: Record(f"analyses-{part}-h200", ("analyses", "--backend", "cupy", "--full", "--part", part), True,
                       "SP and DP") for part in PARTS}  # fmt: skip
ALONE = {part: Record(f"analyses-{part}-h200-alone", (*DEVICE[part].words, "--device-only"), True, "SP and DP")
         for part in PARTS}  # fmt: skip
RECORDS = (*HOST.values(), *DEVICE.values())

NO_PAIR = "no record has host and device of one run"

# Rows: size, S_MC, S_GS in single and in double precision, S_GM in single and in double precision.
STATIC = ((128, 1.00, 1.95, 2.00, 1.95, 2.00), (512, 1.56, 3.67, 6.25, 2.35, 4.01),
          (1024, 3.88, 2.25, 2.38, 0.58, 0.61), (2048, 6.31, 4.04, 3.56, 0.64, 0.56),
          (4096, 6.06, 5.97, 4.19, 0.99, 0.69), (8192, 6.46, 32.10, 27.65, 4.97, 4.28),
          (16384, 7.31, 213.85, 205.33, 29.25, 28.09))  # fmt: skip
FREQUENCY = ((100, 0.32, 0.91, 0.48, 1.02, 1.50), (500, 0.97, 14.71, 6.09, 15.68, 6.30),
             (1000, 1.31, 34.14, 14.16, 35.27, 10.80), (5000, 1.32, 68.17, 27.05, 66.76, 20.42),
             (7500, 1.32, 71.78, 28.47, 67.97, 21.49), (10000, 1.32, 73.82, 29.29, 71.17, 22.11))  # fmt: skip
CONVOLUTION = {1024: ((60, 6.23, 245.44, 132.54, 45.11, 21.26), (124, 6.84, 233.62, 145.32, 37.49, 21.26),
                      (252, 7.33, 294.83, 151.90, 44.01, 20.73)),
               8192: ((64, 7.36, 337.54, 384.71, 54.52, 52.28), (128, 7.42, 692.61, 806.69, 102.65, 108.69),
                      (256, 7.40, 1206.95, 881.04, 181.84, 119.05))}  # fmt: skip
OPTIMISED = ((1, 0.39, 0.48, 0.07, 1.25, 0.20), (10, 1.88, 4.63, 0.73, 2.47, 0.39),
             (100, 2.56, 44.16, 5.22, 17.24, 2.06), (1000, 4.39, 426.93, 51.80, 97.27, 11.94),
             (10_000, 6.58, 1994.32, 121.78, 303.09, 18.83), (50_000, 7.47, 2321.44, 135.79, 310.72, 18.57),
             (100_000, 7.63, 2336.58, 138.08, 306.37, 18.37))  # fmt: skip
UNOPTIMISED = ((1, 0.29, 0.34, 0.07, 1.17, 0.24), (10, 1.82, 1.26, 0.71, 0.69, 0.39),
               (100, 2.26, 9.37, 5.33, 4.15, 2.34), (1000, 4.49, 94.03, 51.20, 20.94, 11.40),
               (10_000, 6.54, 142.60, 111.60, 21.80, 17.06), (50_000, 7.07, 145.74, 120.69, 20.61, 17.07),
               (100_000, 7.33, 147.72, 122.35, 20.15, 16.69))  # fmt: skip
QUADRATURE = ((6, 0.01, 1.17, 1.34, 403.89, 149.89), (7, 0.02, 3.42, 4.13, 368.69, 259.41),
              (8, 0.04, 15.01, 8.60, 345.59, 204.16), (9, 0.16, 33.76, 25.07, 116.11, 153.53),
              (10, 1.71, 39.31, 37.02, 19.43, 21.70), (11, 2.74, 49.44, 34.00, 19.23, 12.41),
              (12, 4.46, 56.12, 27.31, 14.71, 6.13), (13, 4.75, 56.59, 28.90, 11.76, 6.08),
              (14, 5.92, 54.48, 27.98, 10.68, 4.72), (15, 6.16, 54.43, 28.11, 9.60, 4.56))  # fmt: skip
BANDWIDTH = {"stored": 76.4, "stored, times fastest": 4.68}
"""GB/s of the oscillator's memory accesses alone, section 3.4; the device's peak is 102."""


def gains(
    stored: Stored, part: str, name: str, published: tuple[tuple[float, ...], ...], /, **keys: Any
) -> list[dict[str, Any]]:
    """Two rows, single and double precision, for each published row."""
    rows = []
    for size, s_mc, *device in published:
        for k, precision in enumerate(("SP", "DP")):
            at = {**keys, {"unknowns": "DOF"}.get(name, name): size, "precision": precision}
            ours = {c: found(stored, DEVICE[part], c, why=NO_PAIR, **at) for c in ("S_MC", "S_GS", "S_GM", "device ms")}
            if isinstance(ours["S_MC"], NotRun):
                ours["S_MC"] = found(stored, HOST[part], "S_MC", why="no record has this size", **at)
                ours["device ms"] = found(stored, ALONE[part], "device ms", why="no record has this size", **at)
            row = {name: size, "precision": precision, "S_MC published": s_mc, "S_MC ours": ours["S_MC"]}
            for title, value in (("S_GS", device[k]), ("S_GM", device[2 + k])):
                got = ours[title]
                row |= {f"{title} published": value, f"{title} ours": got,
                        f"{title} ratio": "" if isinstance(got, NotRun) else got / value}  # fmt: skip
            rows.append({**row, "device ms": ours["device ms"]})
    return rows


def used(stored: Stored, part: str) -> tuple[Record, ...]:
    """Which records the rows of a part come from."""
    pair = stored.content(DEVICE[part]) is not None
    return (DEVICE[part],) if pair else (HOST[part], ALONE[part])


DOUBLE = (
    "The paper gives one S_MC for both precisions, because a processor takes about as long in both. Its S_GS over S_GM "
    "is that S_MC in double precision alone; in single precision it is another number"
)
MACHINES = "S_MC of the paper is of eight cores; ours is of the threads that the record names."


def _single(stored: Stored) -> str:
    """What single precision does to the tip of the static beam."""
    record = used(stored, "static")[0]
    errors = {row["DOF"]: row.get("tip error") for row in stored.rows(record)
              if (row["precision"], row["method"]) == ("SP", "dense")}  # fmt: skip
    known = "; ".join(f"{n:,}: {100 * e:.0f} %" for n, e in errors.items() if e is not None)
    if not known:
        return "No record has the error of the tip."
    return (
        f"In single precision the deflection of the tip is wrong ({known}; `tip error` of the record, and "
        f"`static_beam` warns): the paper's single-precision column is of times, and cannot be of right deflections "
        f"from 512 unknowns on. It says nothing of errors."
    )


def _static(stored: Stored) -> list[Table]:
    exact = (
        "The matrix of a beam is banded: a band solver, in the record beside the dense one, needs operations in "
        "proportion to the unknowns, not to their cube. " + _single(stored)
    )
    dense = gains(stored, "static", "unknowns", STATIC, method="dense")
    return [
        Table("Table 2", "static beam, 1000 samples of the tip load, dense factorisation", "section 3.1", dense,
              ("The paper factorises with `sgetrf` and `dgetrf` of MKL and of MAGMA, ours with LAPACK and cuSOLVER.",
               MACHINES, exact), used(stored, "static")),
    ]  # fmt: skip


def _oscillator(stored: Stored) -> list[Table]:
    tables = []
    for name, title, variant, published in (
        ("Table 5", "nonlinear oscillator, samples stored side by side", "stored", OPTIMISED),
        ("Table 6", "nonlinear oscillator, times stored side by side", "stored, times fastest", UNOPTIMISED),
    ):
        rows = gains(stored, "oscillator", "samples", published, variant=variant)
        tables.append(
            Table(name, title, "section 3.4", rows,
                  ("The host's code is vectorised over samples in both layouts; the paper's host code works on one "
                   "sample at a time and stores times side by side in both tables.", MACHINES,
                   "The load is given in an array; drawn in the kernel it is faster still (`drawn` in the record)."),
                  used(stored, "oscillator"))
        )  # fmt: skip
    record = DEVICE["oscillator"] if stored.content(DEVICE["oscillator"]) else ALONE["oscillator"]
    size = max((row["samples"] for row in stored.rows(record)), default=0)
    rates = []
    for variant, rate in BANDWIDTH.items():
        for precision in ("SP", "DP"):
            ours = found(stored, record, "GB/s", samples=size, variant=variant, precision=precision)
            rates.append({"layout": variant, "precision": precision, "published GB/s": rate, "of 102 GB/s":
                          rate / 102, "ours GB/s": ours})  # fmt: skip
    tables.append(
        Table("Section 3.4", f"memory accesses of the oscillator, {size:,} samples", "section 3.4", rates,
              ("The paper's numbers are of a kernel without its arithmetic, in a precision that it does not name; ours "
               "are of the whole call.",), (record,))
    )  # fmt: skip
    return tables


SIGNED = (
    "every number of tables 2 to 7, by the text of the paper; eq. 11; the set-up of section 3; the memory accesses of "
    "section 3.4. Changed: the one S_MC of tables 3, 4 and 7, the reason for small S_MC in table 7, the precision of "
    "the memory accesses, the error in single precision",
    "whether the sizes of table 4 are states; gains where our host has less to do than the paper's (tables 4, 6 and "
    "7): only `device ms` compares there",
)


def paper(stored: Stored) -> Paper:
    """The tables beside the records."""
    convolution = [{"times": n, **row} for n, rows in CONVOLUTION.items()
                   for row in gains(stored, "convolution", "states", rows, times=n)]  # fmt: skip
    tables = [
        *_static(stored),
        Table("Table 3", "spectral densities of a beam", "section 3.2",
              gains(stored, "frequency", "unknowns", FREQUENCY),
              ("Ours computes the densities of all unknowns at one frequency in one pass over the result; the paper "
               "calls "
               "`cherk` or `zherk` and then scales.", f"{DOUBLE}, 0.94 to 1.06 from 500 unknowns on.", MACHINES),
              used(stored, "frequency")),
        Table("Table 4", "response in time by convolution, 100 samples of the load", "section 3.3", convolution,
              ("The published column is named number of degrees of freedom, which have two states each in section 2; "
               "ours has as many states, that is half as many unknowns of the beam: the paper stores a column for each "
               "pair of states, and does not say which of the two its sizes count.",
               f"{DOUBLE}, 5.44 to 6.75.", MACHINES),
              used(stored, "convolution")),
        *_oscillator(stored),
        Table("Table 7", "Gauss-Hermite quadrature, 4 nodes along each variable", "section 3.5",
              gains(stored, "quadrature", "variables", QUADRATURE, integrand="sum of squares"),
              ("The integrand q'q is a sum of functions of one variable each, which our sum over the tensor product "
               "uses on "
               "both sides: the host takes milliseconds where the paper's takes minutes, so gains of the device are "
               "smaller. The record has two integrands without that structure, too.",
               "The paper gives no reason for its S_MC below 1 up to 9 variables; starting threads for little work is "
               "one.", f"{DOUBLE}, 2.02 at 10 variables and 5.67 at 15.", MACHINES),
              used(stored, "quadrature")),
    ]  # fmt: skip
    return Paper(
        "001", "uncertainty quantification in computational mechanics on a GPU",
        "Gaurav and S. F. Wojtkiewicz, Use of GPU computing for uncertainty quantification in computational mechanics: "
        "A case study, Scientific Programming 19 (2011).",
        "one NVIDIA Tesla C1060 and two Intel Xeon E5530 with four cores each.",
        tables,
        ("S_MC is one thread over all threads, S_GS one thread over the device, S_GM all threads over the device "
         "(eq. 11). A gain falls where the host gets faster: `device ms` is ours without a comparison.",
         "The text of section 3.3 calls 1200 and 180 the gains over one core in the two precisions; by table 4 they "
         "are "
         "S_GS and S_GM of single precision (1206.95 and 181.84), and 880 and 120 those of double precision. The table "
         "is taken.",),
        (("Figures 1 and 2", "speeds of processors from a vendor's guide."), ("Table 1", "a list of words."),
         ("Figures 3 to 10", "drawings of the method."),
         ("Gflop/s, memory throughput and operations a memory access of kernels in sections 3.2 to 3.5, but those of "
          "the table of section 3.4", "our records have no count of operations.")),
        SIGNED,
    )  # fmt: skip
