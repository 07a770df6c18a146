"""Paper 003, Li et al., Fluidity-Atmosphere on a GPU: tables 1 and 3 to 10."""

from __future__ import annotations

from typing import Any

from benchmarks.papers import NotRun, Paper, Record, Stored, Table, found, times_faster
from benchmarks.papers.published_atmosphere import (
    ASSEMBLY,
    CONFIGURATIONS,
    CONSTRUCTION,
    CONSTRUCTION_TOTAL,
    FUNCTIONS,
    GAINS,
    MATRICES,
    STEP_SECONDS,
    STEP_TOTAL,
    TRANSFERS,
    VALUES,
    VERSIONS,
)

FORMS = Record("forms-steps-1threads", ("forms", "--threads", "1"))
FORMS_DEVICE = Record("forms-h200", ("forms-device",), True)
KERNELS = Record("element-kernels-1threads", ("element-kernels-device", "--backend", "numpy"))
KERNELS_DEVICE = Record("element-kernels-h200", ("element-kernels-device",), True)
SUMS = Record("scatter-search-1threads", ("scatter-search",))
SUMS_DEVICE = Record("scatter-search-cuda", ("scatter-search-device",), True)
VECTORS_DEVICE = Record("elements-h200", ("elements-device",), True)
COPIES = Record("transfers-cuda", ("transfers-device",), True)
MOIST = Record("atmosphere-step-1threads", ("atmosphere-step", "--samples", "1"))
STEP = Record("mountain-step-numpy", ("mountain-step", "--threads", "1"))
STEP_DEVICE = Record("mountain-step-cupy", ("mountain-step", "--backend", "cupy"), True)
RECORDS = (FORMS, FORMS_DEVICE, KERNELS, KERNELS_DEVICE, SUMS, SUMS_DEVICE, VECTORS_DEVICE, COPIES, MOIST, STEP,
           STEP_DEVICE)  # fmt: skip

MODULES = (
    "A published time is of a functional module, whose five steps are in section 2: local fields, coordinates, test "
    "functions, contributions to element matrices and right-hand sides, and their sums. Ours is the matrix alone, from "
    "fields where it is assembled, of one set of coefficients for each of the eight. Of one assembly: the paper does "
    "not say how many Picard iterations a step has, but its parts in tables 4 and 6 add up to more than the time of a "
    "scalar's module, so that this cannot hold two. Nor does it say whether transfers of fields are in the times of "
    "the A100. The published host is gfortran's code of one core with -O3 -ffast-math."
)


def _total(values: list[Any]) -> Any:
    missing = next((value for value in values if isinstance(value, NotRun)), None)
    return missing if missing is not None else sum(values)


OUR_STEP = (
    "The paper names the parts of its step and not all of its equations, nor its tolerances and preconditioners. Ours "
    "has the same parts by usual equations: four scalars, condensation and rain, momentum with buoyancy, a pressure "
    "correction; its solvers reach 1e-8. Stabilisation, absorbing layers and the compressible continuity equation are "
    "not in it, and of the published other modules nothing is known: no ratio is formed of them, nor of a whole step. "
    "The published 4 CPUs are four processes."
)


WITH, WITHOUT = "published with stabilisation, ms", "published without, ms"


def _construction(stored: Stored) -> list[dict[str, Any]]:
    rows, ours = [], {}
    for name, (with_term, without) in CONSTRUCTION.items():
        ours[name] = found(stored, FORMS, "ms", matrix=name)
        row = times_faster({"matrix": name}, with_term, ours[name])
        rows.append({"matrix": name, WITH: with_term, WITHOUT: without or "-",
                     "ours, ms": row["ours"], "published / ours": row["published / ours"]})  # fmt: skip
    seven = [name for name in ours if name != "pressure diffusion"]
    for title, published, names in (
        ("all eight, one after another", CONSTRUCTION_TOTAL[0], list(ours)),
        ("the seven of nine in ten steps", CONSTRUCTION_TOTAL[1], seven),
    ):
        total = _total([ours[name] for name in names])
        row = times_faster({}, published, total)
        rows.append({"matrix": title, WITH: published if len(names) == 8 else "-",
                     WITHOUT: published if len(names) == 7 else "-", "ours, ms": total,
                     "published / ours": row["published / ours"]})  # fmt: skip
    one = found(stored, FORMS, "ms", matrix="all eight")
    row = times_faster({}, CONSTRUCTION_TOTAL[0], one)
    rows.append({"matrix": "all eight in one call", WITH: CONSTRUCTION_TOTAL[0], WITHOUT: "-",
                 "ours, ms": one, "published / ours": row["published / ours"]})  # fmt: skip
    rows.append({"matrix": "others of the step", WITH: STEP_TOTAL[0] - CONSTRUCTION_TOTAL[0],
                 WITHOUT: STEP_TOTAL[1] - CONSTRUCTION_TOTAL[1],
                 "ours, ms": NotRun("the paper does not say what these modules compute; see tables 9 and "
                                    "10")})  # fmt: skip
    return rows


def _modules(stored: Stored) -> list[dict[str, Any]]:
    rows = []
    ours: dict[str, tuple[Any, Any]] = {}
    for name, (cpu, device) in MATRICES.items():
        ours[name] = (found(stored, FORMS, "ms", matrix=name),
                      found(stored, FORMS_DEVICE, "ms", under="steps", matrix=name))  # fmt: skip
        rows.append(_pair({"matrix": name}, (cpu, device), ours[name]))
    for title, names in (
        ("sum of the eight", list(ours)),
        ("sum of seven, without pressure diffusion", [n for n in ours if n != "pressure diffusion"]),
    ):
        published = tuple(sum(MATRICES[name][k] for name in names) for k in range(2))
        totals = tuple(_total([ours[name][k] for name in names]) for k in range(2))
        rows.append(_pair({"matrix": title}, published, totals))  # type: ignore[arg-type]
    return rows


def _pair(about: dict[str, Any], published: tuple[Any, Any], ours: tuple[Any, Any]) -> dict[str, Any]:
    """Host and device, published and ours."""
    host, device = (times_faster({}, p, o) for p, o in zip(published, ours, strict=True))
    return {**about, "CPU published, ms": published[0], "ours, ms": host["ours"], "ratio": host["published / ours"],
            "A100 published, ms": published[1], "ours on the device, ms": device["ours"],
            "device ratio": device["published / ours"]}  # fmt: skip


def _kernels(stored: Stored, record: Record, name: str) -> Any:
    return found(stored, record, "ms", kernel=name)


def _both(stored: Stored, about: dict[str, Any], published: tuple[Any, Any], kernel: str) -> dict[str, Any]:
    return _pair(about, published, (_kernels(stored, KERNELS, kernel), _kernels(stored, KERNELS_DEVICE, kernel)))


def _functions(stored: Stored) -> list[dict[str, Any]]:
    rows = []
    for name, (cpu, device, ours) in FUNCTIONS.items():
        rows.append(_both(stored, {"function": name, "ours": "as in the paper, 11 points"}, (cpu, device),
                          f"{ours}, six equations" if ours == "edge_lengths" else f"{ours}, paper-shaped"))  # fmt: skip
        if ours == "edge_lengths":
            rows.append(_both(stored, {"function": name, "ours": "closed form, 11 points"}, (cpu, device),
                              f"{ours}, paper-shaped"))  # fmt: skip
        rows.append(_both(stored, {"function": name, "ours": "one point for constant gradients"}, (cpu, device),
                          f"{ours}, collapsed"))  # fmt: skip
    return rows


def _versions(stored: Stored) -> list[dict[str, Any]]:
    rows = []
    for name, published in VERSIONS.items():
        rows.append(_version(stored, name, published, name))
    return [*rows, _version(stored, "the kernel of this library", VERSIONS[name], "paper-shaped")]


def _version(stored: Stored, title: str, published: tuple[float, float], ours: str) -> dict[str, Any]:
    """A stage with one array of gradients and with two."""
    times = [_kernels(stored, KERNELS_DEVICE, f"dshape_tensor_dshape, {ours}{two}") for two in ("", ", two arrays")]
    same, two = (times_faster({}, p, o) for p, o in zip(published, times, strict=True))
    return {
        "version": title, "one array published, ms": published[0], "ours, ms": same["ours"],
        "ratio": same["published / ours"], "two arrays published, ms": published[1], "ours of two, ms": two["ours"],
        "ratio of two": two["published / ours"],
    }  # fmt: skip


def _assembly(stored: Stored) -> list[dict[str, Any]]:
    """Sums of element matrices: by a search in the row as the paper, and by places that a map holds."""
    device = {way: found(stored, SUMS_DEVICE, "ms", samples=1, way=way)
              for way in ("search, atomic", "places, atomic", "from_elements")}  # fmt: skip
    host = {way: found(stored, SUMS, f"{way}, ms", samples=1) for way in ("search", "table of places", "map of places")}
    rows = [
        _pair({"task": "matrix", "ours": "search in the row, as the paper"}, ASSEMBLY["matrix"],
              (host["search"], device["search, atomic"])),
        _pair({"task": "matrix", "ours": "places from a map, atomic additions"}, ASSEMBLY["matrix"],
              (NotRun("one thread adds without atomic operations"), device["places, atomic"])),
        _pair({"task": "matrix", "ours": "`from_elements`, the map not counted"}, ASSEMBLY["matrix"],
              (host["table of places"], device["from_elements"])),
    ]  # fmt: skip
    made, plain, fast = host["map of places"], host["search"], host["table of places"]
    on_device, d_fast = device["search, atomic"], device["from_elements"]
    counted = (_total([made, fast]), _total([made, d_fast]))
    once = {"task": "matrix", "ours": "the same once, with the map made on the host"}
    rows.append(_pair(once, ASSEMBLY["matrix"], counted))
    if not any(isinstance(value, NotRun) for value in (made, plain, fast, on_device, d_fast)):
        after = [made / (slow - quick) for slow, quick in ((plain, fast), (on_device, d_fast))]
        rows.append({"task": "matrix", "ours": "assemblies after which the map is paid", "ours, ms": f"{after[0]:.1f}",
                     "ours on the device, ms": f"{after[1]:.0f}"})  # fmt: skip
    vector = found(stored, VECTORS_DEVICE, "ms", samples=1, way="right-hand side")
    rows.append(_pair({"task": "right-hand side", "ours": "by a map of places"}, ASSEMBLY["right-hand side"],
                      (found(stored, SUMS, "vector, ms", samples=1), vector)))  # fmt: skip
    return rows


def _gains(stored: Stored) -> list[dict[str, Any]]:
    """One core over the device: the last columns of tables 3, 4, 6 and 8."""
    of_kernels = {name: f"element_values, {name.rpartition('_')[2]}" for name in GAINS[3]}
    of_kernels |= {name: f"{FUNCTIONS[name][2]}, {'six equations' if 'edge' in name else 'paper-shaped'}"
                   for name in GAINS[4]}  # fmt: skip
    ours: dict[str, tuple[Any, Any]] = {
        name: (_kernels(stored, KERNELS, kernel), _kernels(stored, KERNELS_DEVICE, kernel))
        for name, kernel in of_kernels.items()
    }
    ours["matrix"] = (found(stored, SUMS, "search, ms", samples=1),
                      found(stored, SUMS_DEVICE, "ms", samples=1, way="search, atomic"))  # fmt: skip
    ours["right-hand side"] = (found(stored, SUMS, "vector, ms", samples=1),
                               found(stored, VECTORS_DEVICE, "ms", samples=1, way="right-hand side"))  # fmt: skip
    ours |= {name: (found(stored, FORMS, "ms", matrix=name), found(stored, FORMS_DEVICE, "ms", "steps", matrix=name))
             for name in MATRICES}  # fmt: skip
    rows = []
    for number, published in GAINS.items():
        for name, gain in published.items():
            missing = next((value for value in ours[name] if isinstance(value, NotRun)), None)
            rows.append({"table": number, "what": name, "published": gain,
                         "ours": missing or ours[name][0] / ours[name][1]})  # fmt: skip
    return rows


def _transfers(stored: Stored) -> list[dict[str, Any]]:
    rows = []
    for name, (size, pageable, pinned) in TRANSFERS.items():
        row: dict[str, Any] = {"array": name, "bytes": size}
        for way, published in (("pageable", pageable), ("pinned", pinned)):
            ours = found(stored, COPIES, "ms", array=name, direction="to the device", way=way)
            one = times_faster({}, published, ours)
            row |= {f"{way} published, ms": published, f"{way} ours, ms": ours, f"{way} ratio": one["published / ours"]}
        rows.append(row)
    return rows


NO_STEP = "a step is run on one thread of a processor; matrices, products and solvers run on a device, this program not"
TOGETHER = "matrices, right-hand sides and PETSc"
PARTS = {
    "PETSc": ("solution of the scalars", "solution of the momentum", "set-up of the pressure",
              "solution of the pressure"),
    "other modules": ("moisture", "correction of the velocity"),
    TOGETHER: ("temperature matrix", "water vapour matrix", "cloud water matrix", "rain water matrix",
               "momentum matrix", "divergence matrix", "projection matrix", "right-hand sides and boundaries",
               "solution of the scalars", "solution of the momentum", "set-up of the pressure",
               "solution of the pressure"),
    "pressure correction matrix": ("divergence matrix", "projection matrix"),
}  # fmt: skip
"""Which parts of our step stand beside a part of table 10."""


def _of_step(stored: Stored, part: str) -> Any:
    """Seconds of a part of our step."""
    if part == "step":
        ms = [found(stored, MOIST, "step, ms", samples=1)]
    else:
        ms = [found(stored, MOIST, f"{name}, ms", samples=1) for name in PARTS.get(part, (part,))]
    total = _total(ms)
    return total if isinstance(total, NotRun) else 1e-3 * total


def _steps(stored: Stored) -> list[dict[str, Any]]:
    rows = []
    for name, (seconds, gain) in CONFIGURATIONS.items():
        ours = _of_step(stored, "step") if name == "CPU only" else NotRun(NO_STEP)
        rows.append({"configuration": name, "published, s": seconds, "published gain": gain, "ours, s": ours})
    return rows


def _parts(stored: Stored) -> list[dict[str, Any]]:
    """The rows of table 10, and the sum of those that have the same work on both sides."""
    known = [seconds for name, seconds in STEP_SECONDS.items() if name not in ("other modules", "step")]
    together = tuple(sum(column) for column in zip(*known, strict=True))
    rows = []
    for name, (cpu, one, four) in {**STEP_SECONDS, TOGETHER: together}.items():
        row = times_faster({}, cpu, _of_step(stored, name))
        rows.append({"part": name, "1 CPU published, s": cpu, "1 CPU + 1 GPU published, s": one,
                     "4 CPUs + 1 GPU published, s": four, "ours, one thread, s": row["ours"],
                     "1 CPU / ours": "" if name in ("other modules", "step") else row["published / ours"]})  # fmt: skip
    return rows


def _transport(stored: Stored) -> list[dict[str, Any]]:
    names = ("assembly, ms", "right-hand side and boundary, ms", "solve, ms", "step, ms")
    rows = []
    for record, samples in ((STEP, (1, 32)), (STEP_DEVICE, (1, 32))):
        for count in samples:
            at: dict[str, Any] = {"samples": count} | ({"copies": "beside"} if record.device else {})
            values = {name: found(stored, record, name, **at) for name in names}
            rows.append({"run on": "the device" if record.device else "one thread", "samples": count, **values})
    return rows


SIGNED = (
    "every number of tables 1 and 3 to 10, the set-up of sections 5.1 and 5.2, the numbers in the text and in the "
    "answers to reviewers",
    "how many Picard iterations a step has, what a module's time on the A100 contains, and the momentum matrix of "
    "tables 8 and 10: the text does not say",
)


def _mesh(stored: Stored) -> str:
    """Whether the records are of the published mesh."""
    counts = {(content.get("elements"), content.get("nodes")) for record in (FORMS, FORMS_DEVICE, KERNELS,
              KERNELS_DEVICE) if (content := stored.content(record)) is not None}  # fmt: skip
    if counts == {(554_394, 103_635)}:
        return "The mesh has the published 554,394 tetrahedra and 103,635 nodes; it need not be that of the authors."
    sizes = "; ".join(f"{elements:,} tetrahedra and {nodes:,} nodes" for elements, nodes in sorted(counts))
    return f"The published mesh has 554,394 tetrahedra and 103,635 nodes; ours {sizes or 'is of no record'}."


def _picard(stored: Stored) -> str:
    """How often a step makes its matrices, published and ours."""
    count = (stored.content(MOIST) or {}).get("picard")
    ours = (
        "" if count is None else f" Ours makes it {'once' if count == 1 else f'{count} times, and its row holds all'}."
    )
    return (
        "The paper does not say how many Picard iterations a step has; its rows, which hold one assembly each by "
        f"tables 4 and 6, add up to the step, so that each matrix is made once in it.{ours}"
    )


def _throughput(stored: Stored) -> str:
    """The share of the memory's bandwidth of the kernel of table 5."""
    shares = [found(stored, KERNELS_DEVICE, "fraction", kernel=f"dshape_tensor_dshape, {name}")
              for name in ("Templated matrix product and dot product", "paper-shaped")]  # fmt: skip
    if any(isinstance(share, NotRun) for share in shares):
        return ""
    staged, ours = (f"{100 * share:.0f} %" for share in shares)
    return (
        f"By the text, templates raise the memory throughput that a profiler shows from 70 to 82.35 %. Ours is what "
        f"has to be moved over the bandwidth of the data sheet: {staged} of the last stage, {ours} of this library's."
    )


def paper(stored: Stored) -> Paper:
    """The tables beside the records."""
    one = _mesh(stored)
    tables = [
        Table("Table 1", "matrices of a time step on one core", "section 2", _construction(stored),
              ("The ratio is of a step with stabilisation, of the seven without.", MODULES, one),
              (FORMS,)),
        Table("Table 3", "nodal values of elements", "section 5.3.1",
              [_both(stored, {"function": f"ele_val_{kind}"}, ms, f"element_values, {kind}")
               for kind, ms in VALUES.items()],
              ("Ours on the device is between events, launches one after another on copies that no cache holds. On the "
               "host it is processor time of one thread and includes the memory of each result. The paper averages "
               "1000 calls, and does not say whether fields stay in a cache between them.", one),
              (KERNELS, KERNELS_DEVICE)),
        Table("Table 4", "element kernels", "section 5.3.1", _functions(stored),
              ("The paper's edge lengths solve six equations and decompose a matrix: the first of their rows does that "
               "once for each element and writes it for 11 points. Section 3.4 says for every element and point; the "
               "published 1369 ms are 2.5 us an element of one core, too short for 11 of each. "
               "The factor of the closed form, which has the same result, is of a better method and not of a better "
               "kernel. Gradients of linear tetrahedra are the same at all points: the rows of one point store them "
               "once.", "Our kernels of the host run on one thread with vectors of several elements and write the "
               "results of all elements to memory; the paper's host calls its functions element by element."),
              (KERNELS, KERNELS_DEVICE)),
        Table("Table 5", "versions of `dshape_tensor_dshape` on the device", "section 5.3.1", _versions(stored),
              ("The stages are kernels of the benchmark (`tensor_stages`) by the text of section 3.3 and appendix A: "
               "loops of sizes that are arguments; fixed sizes and unrolled loops; functions compiled into the kernel. "
               "The authors' code of the first two is not in the paper.", _throughput(stored)), (KERNELS_DEVICE,)),
        Table("Table 6", "sums of element matrices and vectors", "section 5.3.2", _assembly(stored),
              ("The published sums are of the matrix of temperature, by a binary search and atomic additions. The "
               "authors tried ways without atomic operations, such as colours of a mesh: about 3 ms in place of 5, for "
               "several seconds of preparation on the host, and left them out; the paper has no map of places. Ours is "
               "made on one core of the host: the row with the map counts it in one assembly, and its copy to the "
               "device is not in it. A mesh that adapts needs a new one.",), (SUMS, SUMS_DEVICE, VECTORS_DEVICE)),
        Table("Tables 3, 4, 6 and 8", "times of one core over those of the device", "sections 5.3.1 to 5.3.4",
              _gains(stored),
              ("The rows of ours are the first of each function: as in the paper, sums of matrices by a search, edge "
               "lengths by six equations. The gain falls where the host is faster: ours works on several elements at "
               "once. Host and device of ours are two machines.",),
              (KERNELS, KERNELS_DEVICE, SUMS, SUMS_DEVICE, VECTORS_DEVICE, FORMS, FORMS_DEVICE)),
        Table("Table 7", "copies to the device", "section 5.3.3", _transfers(stored),
              ("The paper's device is behind PCIe 4.0 x 16, 32 GB/s; the record does not know ours. Copies "
               "from pageable memory are of the host, too.",), (COPIES,)),
        Table("Table 8", "functional modules", "section 5.3.4", _modules(stored), (MODULES,), (FORMS, FORMS_DEVICE)),
        Table("Table 9", "a time step of the model", "section 5.3.4", _steps(stored),
              (OUR_STEP, "The published step is 41.838 s in this table and 41.433 s in tables 1 and 10; it makes no "
               "pressure diffusion."), (MOIST,)),
        Table("Table 10", "parts of a time step, seconds", "section 5.3.4", _parts(stored),
              (OUR_STEP, "Each of our rows is the median over steps. Published right-hand sides are in the rows of "
               "their matrices, ours in the last row alone.", _picard(stored), "Table 8 has 46.4 ms for the momentum "
               "matrix on the A100, this table 31.3 ms: the paper does not say why."), (MOIST,)),
        Table("Beside tables 9 and 10", "a step of transport of one scalar", "no section", _transport(stored),
              ("Theta method with SUPG, BiCGSTAB with Jacobi: one of the four scalars, with its solution. The wind of "
               "every step comes from the host.",), (STEP, STEP_DEVICE)),
    ]  # fmt: skip
    return Paper(
        "003", "finite elements of an atmospheric model on a GPU",
        "L. Li, X. Fu, X. Zheng, H. Li and J. Li, GPU-accelerated Finite-Element Method for the Three-dimensional "
        "Unstructured Mesh Atmospheric Dynamic Framework (the text with marked changes and answers to reviewers).",
        "NVIDIA A100 and one core of an AMD EPYC 7713.",
        tables,
        ("The eight matrices of a step, one after another and each of its own coefficients, are the fair comparison; "
         "the "
         "pressure diffusion is made at the first step and where the mesh changes, in this run once in ten steps.",
         "The abstract's older gain of 10.28, and 3.36 of one process, are withdrawn in the answers; the tables have "
         "8.57 and 2.44."),

        (("Table 2", "hardware and compilers."), ("Figures 1 to 3", "drawings of the method."),
         ("Figure 4", "host and device differ by 1e-14 there. Here every device matrix is compared with the host in "
                      "the "
          "benchmark, to 2e-14 of the largest entry; a run that exceeds it stops."),
         ("Percentages of tables 1 and 10, bandwidths of table 7", "they follow from the times beside them.")),
        SIGNED,
    )  # fmt: skip
