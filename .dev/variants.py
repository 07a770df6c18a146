"""Variants of kernels on tetrahedra, timed on a device: python .dev/variants.py bandwidth|elements [0|1]|matrices|values|sums|forms."""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.mountain import STEP_FORMS, mountain_mesh, step_fields
from ensemble._compile.cuda import KERNEL_MODULES
from ensemble._compile import device
from ensemble._kernels.fem import element, element_matrices  # noqa: F401
from ensemble._kernels.fem.tet_geometry import ONE_VALUE

EMULATED = os.environ.get("EMULATED")
HERE = Path(__file__).parent
BANDWIDTH = 4.8e12
DEADLINE = time.perf_counter() + float(os.environ.get("SECONDS_LIMIT", 55))

if EMULATED:
    from tests import cuda_on_cpu

    xp = np

    def module(source, options, names):
        return cuda_on_cpu.Module(source, options, tuple(names))
else:
    import cupy as xp

    def module(source, options, names):
        return device.raw_module(source, options, tuple(names))


SPIN = r"""
extern "C" __global__ void spin(long long cycles) { const long long start = clock64(); while (clock64() - start < cycles) {} }
"""


@functools.cache
def spinner():
    return xp.RawKernel(SPIN, "spin")


def milliseconds(calls, launches=24, rounds=5, cycles=6_000_000):
    """Per launch, in the steady state over calls on different buffers; launches wait behind a kernel, then follow one another."""
    if EMULATED:
        calls[0]()
        return 1.0
    start, end = xp.cuda.Event(), xp.cuda.Event()
    for call in calls:
        call()
    xp.cuda.Device().synchronize()
    times = []
    for _ in range(rounds):
        spinner()((1,), (1,), (np.int64(cycles),))
        start.record()
        for n in range(launches):
            calls[n % len(calls)]()
        end.record()
        end.synchronize()
        times.append(xp.cuda.get_elapsed_time(start, end) / launches)
    return statistics.median(times)


def fraction_line(name, n_bytes, ms):
    print(f"  {name:<62} {n_bytes / 1e6:8.1f} MB {ms:9.5f} ms  {1e3 * n_bytes / BANDWIDTH / ms:6.3f}", flush=True)


def element_text():
    head = KERNEL_MODULES["fem/element"].source().partition("// Element quantities")[0]
    return head + (HERE / "old_element.cu").read_text() + (HERE / "element_variants.cu").read_text()


def built(names, **macros):
    options = (*ONE_VALUE.options("int"), *(f"-D{k}={v}" for k, v in macros.items()))
    made = module(element_text(), options, names)
    return {name: made.get_function(name) for name in names}


def mesh_of():
    return mountain_mesh((4, 5, 3)) if EMULATED else mountain_mesh()


def late():
    return time.perf_counter() > DEADLINE


# --- what memory gives
def bandwidth():
    n = 20_000 if EMULATED else 80_000_000
    outs = [xp.empty(n) for _ in range(2)]
    try:
        fraction_line(
            "memset",
            8 * n,
            milliseconds([lambda o=o: o.data.memset_async(0, 8 * n, xp.cuda.get_current_stream()) for o in outs]),
        )
        fraction_line(
            "copy by the runtime",
            16 * n,
            milliseconds(
                [lambda: outs[0].data.copy_from_device_async(outs[1].data, 8 * n, xp.cuda.get_current_stream())]
            ),
        )
    except Exception as error:
        print(error)
    for block, stream in itertools.product((256, 512), (0, 1)):
        f = built(["v_fill", "v_copy", "v_fill_rows"], BLOCK=block, STREAM=stream)
        fraction_line(
            f"fill by 16 bytes, {block}, stream {stream}, a grid of all",
            8 * n,
            milliseconds([lambda o=o: f["v_fill"]((-(-n // (2 * block)),), (block,), (o, np.int64(n))) for o in outs]),
        )
        if not EMULATED:
            fraction_line(
                f"fill by 16 bytes, {block}, stream {stream}, 132 x 8",
                8 * n,
                milliseconds([lambda o=o: f["v_fill"]((132 * 8,), (block,), (o, np.int64(n))) for o in outs]),
            )
        fraction_line(
            f"copy by 16 bytes, {block}, stream {stream}",
            16 * n,
            milliseconds([lambda: f["v_copy"]((-(-n // (2 * block)),), (block,), (outs[0], outs[1], np.int64(n)))]),
        )
        for rows in (143, 48, 12):
            e = n // rows // 2 * 2
            fraction_line(
                f"fill {rows} rows by 16 bytes, {block}, stream {stream}",
                8 * rows * e,
                milliseconds(
                    [
                        lambda o=o: f["v_fill_rows"](
                            (-(-e // (2 * block)),), (block,), (o, np.int32(rows), np.int64(e))
                        )
                        for o in outs
                    ]
                ),
            )


# --- element kernels
def copies_for(n_bytes):
    return 1 if EMULATED else max(2, min(12, -(-160_000_000 // int(n_bytes))))


KINDS = {"TRANSFORM": 13, "LENGTHS": 9, "FIRST": 12, "MASS": 1}


def elements():
    from ensemble.apps import fem

    mesh = mesh_of()
    e, n = mesh.n_elements, mesh.n_nodes
    _, w = fem.tetrahedron_rule(4)
    cases = [
        ("TRANSFORM", 11, 143),
        ("LENGTHS", 11, 99),
        ("FIRST", 1, 48),
        ("MASS", 1, 16),
        ("TRANSFORM", 1, 13),
        ("LENGTHS", 1, 9),
    ]
    if len(sys.argv) > 2:
        mesh = mesh.renumbered("rcm") if sys.argv[2] == "rcm" else mesh
    modules = {}
    for kind, copies, n_rows in cases:
        moved = 16 * e + 24 * n + 8 * n_rows * e
        sets = [
            (
                xp.asarray(mesh.points[..., None].copy()),
                xp.asarray(mesh.tets.copy()),
                xp.asarray(w[:copies].copy() if copies > 1 else np.ones(1)),
                xp.empty((n_rows, e, 1)),
            )
            for _ in range(copies_for(moved))
        ]
        print(f"\n{kind}, {copies} copies, {n_rows} rows; bound {1e3 * moved / BANDWIDTH:.5f} ms")

        def current(p, t, weights, o):
            if kind == "TRANSFORM":
                element.tet_transform(p, t, weights, o)
            elif kind == "LENGTHS":
                element.tet_edge_lengths(p, t, copies, o)
            else:
                element.tet_closed_form(p, t, kind == "FIRST", o)

        fraction_line("present", moved, milliseconds([functools.partial(current, *s) for s in sets]))
        expected = sets[0][3].copy()

        def timed(name, function, block, per=1, ny=1):
            grid = (-(-e // (block * per)), ny)
            calls = [
                functools.partial(function, grid, (block,), (*s, np.int32(copies), np.int32(n_rows), np.int64(e)))
                for s in sets
            ]
            sets[0][3].fill(7.0)
            calls[0]()
            right = "" if bool((sets[0][3] == expected).all()) else "  WRONG"
            fraction_line(name + right, moved, milliseconds(calls))

        for block, policy in ((128, 1), (256, 0), (256, 1)):
            if late():
                return
            f = built([f"v_bulk<{kind}>"], BLOCK=block, POLICY=policy)
            timed(f"bulk,   block {block}, policy {policy}", f[f"v_bulk<{kind}>"], block)
        for block in (256, 384):
            f = built([f"v_rows<{kind}, false>"], BLOCK=block, STREAM=1, ALIGN=2)
            timed(f"rows,   block {block}", f[f"v_rows<{kind}, false>"], block)
        f = built([f"v_direct<{kind}, 1, false>"], BLOCK=128, STREAM=1)
        timed("direct, block 128", f[f"v_direct<{kind}, 1, false>"], 128)


def matrices():
    from ensemble._kernels.fem.element_matrices import tet_gradient_tensor, tet_shape_dshape, tet_shape_shape

    rng = np.random.default_rng(1)
    e, Q = (1000 if EMULATED else 554394), 11
    shape = xp.asarray(rng.uniform(0, 1, (Q, 4)))
    products = (
        xp.asarray(np.ascontiguousarray((shape[:, :, None] * shape[:, None, :])))
        if EMULATED
        else shape[:, :, None] * shape[:, None, :]
    )
    text = KERNEL_MODULES["fem/element_matrices"].source() + (HERE / "matrix_variants.cu").read_text()

    def random(*size):
        return xp.asarray(rng.uniform(0.5, 1, size)) if EMULATED else xp.random.uniform(0.5, 1, size)

    for n_points in (11, 1):
        weights = [random(n_points, e, 1) for _ in range(copies_for(104 * n_points * e))]
        moved = (104 * n_points + 384) * e
        if n_points == 11:
            tensors, total = random(n_points, 3, 3, e, 1), (176 * Q + 128) * e
            dshape, out = random(n_points, 4, 3, e, 1), xp.empty((16, e, 1))
            fraction_line(
                "gradient tensor, present",
                total,
                milliseconds([lambda: tet_gradient_tensor(dshape, tensors, None, weights[0], out)]),
            )
            del tensors
        sets = [
            (shape[:n_points], random(n_points, 4, 3, e, 1), weights[k % len(weights)], xp.empty((48, e, 1)))
            for k in range(2 if not EMULATED else 1)
        ]
        print(f"\nshape_dshape, {n_points} points; bound {1e3 * moved / BANDWIDTH:.5f} ms")
        fraction_line("present", moved, milliseconds([functools.partial(tet_shape_dshape, *s) for s in sets]))
        expected = sets[0][3].copy()
        for block, stream in itertools.product((96, 192, 384), (0, 1)):
            if late():
                return
            names = [f"v_shape_dshape<{u}>" for u in (1, 2, 4)]
            made = module(text, (*ONE_VALUE.options("int"), f"-DBLOCK={block}", f"-DSTREAM={stream}"), names)
            for name in names:
                f = made.get_function(name)
                calls = [
                    functools.partial(f, (-(-e // (block // 3)),), (block,), (*s, np.int32(n_points), np.int64(e)))
                    for s in sets
                ]
                sets[0][3].fill(7.0)
                calls[0]()
                right = "" if bool((sets[0][3] == expected).all()) else "  WRONG"
                fraction_line(f"{name}, block {block}, stream {stream}" + right, moved, milliseconds(calls))
        moved = (8 * n_points + 128) * e
        sets = [(products[:n_points], w, xp.empty((16, e, 1))) for w in weights]
        sets = sets * 2 if len(sets) < 2 else sets
        print(f"\nshape_shape, {n_points} points; bound {1e3 * moved / BANDWIDTH:.5f} ms")
        fraction_line("present", moved, milliseconds([functools.partial(tet_shape_shape, *s) for s in sets]))
        expected = sets[0][2].copy()
        for block, stream in itertools.product((128, 256), (0, 1)):
            if late():
                return
            names = [f"v_shape_shape<{per}, {u}>" for per in (1, 2) for u in (4, 11)]
            made = module(text, (*ONE_VALUE.options("int"), f"-DBLOCK={block}", f"-DSTREAM={stream}"), names)
            for name in names:
                f, per = made.get_function(name), int(name[14])
                calls = [
                    functools.partial(f, (-(-e // (block * per)),), (block,), (*s, np.int32(n_points), np.int64(e)))
                    for s in sets
                ]
                sets[0][2].fill(7.0)
                calls[0]()
                right = "" if bool((sets[0][2] == expected).all()) else "  WRONG"
                fraction_line(f"{name}, block {block}, stream {stream}" + right, moved, milliseconds(calls))
        del sets, weights


def values():
    mesh = mesh_of()
    mesh = mesh.renumbered("rcm") if "rcm" in sys.argv else mesh
    e, n = mesh.n_elements, mesh.n_nodes
    rng = np.random.default_rng(1)
    for c in (1, 3, 9):
        moved = (16 + 32 * c) * e + 8 * c * n
        host = rng.standard_normal((n, c, 1))
        sets = [
            (xp.asarray(host.copy()), xp.asarray(mesh.tets.copy()), xp.empty((4, c, e, 1)))
            for _ in range(copies_for(moved))
        ]
        expected = xp.asarray(np.ascontiguousarray(np.moveaxis(host[mesh.tets], (1, 2), (0, 1))))
        print(f"\nvalues of {c}; bound {1e3 * moved / BANDWIDTH:.5f} ms")
        fraction_line("present", moved, milliseconds([functools.partial(element.tet_values, *s) for s in sets]))
        for block, stream in ((128, 1),):
            if late():
                return
            names = [f"v_values_direct<{c}, {per}>" for per in (1, 2)]
            small = 4 * c * (block + 6) * 8 + 16 * block < 49152
            names += [f"v_values<{c}, {r}>" for r in ("true", "false")] if small else []
            for align in (2,):
                f = built(names, BLOCK=block, STREAM=stream, ALIGN=align)
                for name in names:
                    if align == 16 and "true" not in name:
                        continue
                    per = int(name[-2]) if "direct" in name else 1
                    calls = [
                        functools.partial(f[name], (-(-e // (block * per)),), (block,), (*s, np.int64(e))) for s in sets
                    ]
                    sets[0][2].fill(7.0)
                    calls[0]()
                    right = "" if bool((sets[0][2] == expected).all()) else "  WRONG"
                    fraction_line(
                        f"{name}, block {block}, stream {stream}, align {align}" + right, moved, milliseconds(calls)
                    )


# --- sums
def sliced(first, incidences, slots, order, block, width):
    """Rows of blocks in an order of falling length: (slices, table, who) with 32 // width rows side by side."""
    rows_here, side = block // width, 32 // width
    n_rows = first.size - 1
    counts = np.diff(first)
    n_blocks = -(-n_rows // rows_here)
    padded = np.full(n_blocks * rows_here, -1, np.int64)
    padded[:n_rows] = counts
    who = np.argsort(-padded.reshape(n_blocks, rows_here), axis=1, kind="stable")
    rows = (who + np.arange(n_blocks)[:, None] * rows_here).reshape(-1)
    length = np.where(rows < n_rows, counts[np.minimum(rows, n_rows - 1)], 0)
    longest = length.reshape(-1, side).max(axis=1)
    slices = np.concatenate([[0], np.cumsum(longest * side)]).astype(np.int32)
    table = np.full((slices[-1], 2), 0, np.int32)
    table[:, 0] = -1
    total = int(length.sum())
    lane = np.repeat(np.arange(rows.size), length)
    t = np.arange(total) - np.repeat(np.cumsum(length) - length, length)
    at = slices[lane // side] + t * side + lane % side
    pair = first[rows[lane]] + t
    table[at, 0] = incidences[pair]
    if slots is not None:
        s = slots[incidences[pair]].astype(np.uint32)
        table[at, 1] = (s[:, 0] | s[:, 1] << 8 | s[:, 2] << 16 | s[:, 3] << 24).view(np.int32)
    return slices, table, rows, who.reshape(-1)


def sums():
    from ensemble._kernels.sparse.gather_sums import gather_sums, staged_sums, staging
    from ensemble.linalg import ElementAssembly

    mesh = mesh_of()
    rng = np.random.default_rng(1)
    text = (
        "".join(KERNEL_MODULES["fem/element"].source().partition("// Element quantities")[0])
        + (HERE / "sum_variants.cu").read_text()
    )
    mesh = mesh.renumbered("rcm") if "rcm" in sys.argv else mesh
    tested = [("by first node", mesh.tets[mesh.tets[:, 0].argsort(kind="stable")])]
    for label, tets in tested:
        assembly = ElementAssembly(tets, mesh.n_nodes)
        made = assembly.map
        slots, n_rows, nnz = made.slots.reshape(-1, 4), mesh.n_nodes, assembly.graph.nnz
        moved = 8 * (slots.size + nnz)
        host = rng.standard_normal((slots.size, 1))
        sets = [(xp.asarray(host), xp.empty((nnz, 1))) for _ in range(1 if EMULATED else 3)]
        expected = xp.asarray(gather_sums(*assembly._matrix_sources, host, None))
        print(f"\nmatrices, {label}; bound of values {1e3 * moved / BANDWIDTH:.5f} ms")
        if not EMULATED:
            places = assembly._arrays_on(sets[0][0], "matrix", assembly._matrix_sources)
            fraction_line("gather", moved, milliseconds([functools.partial(gather_sums, *places, *s) for s in sets]))
        for name, block, unrolled, load in (
            ("v_row_sums_t", 64, 4, "__ldg"),
            ("v_row_sums_t", 64, 8, "__ldg"),
            ("v_row_sums_t", 128, 8, "__ldg"),
            ("v_row_sums_t", 64, 8, "__ldcs"),
            ("v_row_sums_t", 32, 8, "__ldg"),
            ("v_row_sums_4", 64, 4, "__ldg"),
            ("v_row_sums_4", 128, 4, "__ldg"),
            ("v_row_sums_4", 128, 8, "__ldg"),
            ("v_row_sums_4", 128, 12, "__ldg"),
            ("v_row_sums_4", 256, 8, "__ldg"),
            ("v_row_sums_4", 128, 8, "__ldcs"),
            ("v_row_sums", 32, 8, "__ldg"),
        ):
            if late():
                return
            width = 4 if name == "v_row_sums_4" else 1
            slices, table, rows, _ = sliced(made.first, made.incidences, slots, None, block, width)
            rows_here = block // width
            n_blocks = rows.size // rows_here
            bounds = np.minimum(np.arange(n_blocks + 1) * rows_here, n_rows)
            bases = made.indptr[bounds].astype(np.int32)
            begins = made.indptr[np.minimum(rows, n_rows)].astype(np.int32)
            offsets = (begins - np.repeat(bases[:-1], rows_here)).astype(np.int32)
            shared = int(np.diff(bases).max()) * 8
            tables = (slices, table, offsets, bases)
            if name == "v_row_sums_t":
                lengths = (made.indptr[np.minimum(rows + 1, n_rows)] - begins).astype(np.int32)
                heights = np.concatenate([[0], np.cumsum(lengths.reshape(-1, 32).max(axis=1))]).astype(np.int32)
                shared = int(np.diff(heights[:: block // 32]).max()) * 256
                tables = (slices, table, heights, begins, lengths)
            source = text
            if EMULATED:
                source = text.replace(
                    "extern __shared__ __align__(16) char memory[];",
                    f"static __attribute__((aligned(16))) char memory[{shared}];",
                )
            f = module(
                source,
                (*ONE_VALUE.options("int"), f"-DBLOCK={block}", f"-DUNROLLED={unrolled}", f"-DLOAD={load}"),
                [name],
            ).get_function(name)
            if shared > 49152 and not EMULATED:
                f.max_dynamic_shared_size_bytes = shared
            there = [xp.asarray(a) for a in tables]
            calls = [functools.partial(f, (n_blocks,), (block,), (*there, *s), shared_mem=shared) for s in sets]
            sets[0][1].fill(7.0)
            calls[0]()
            right = "" if bool((sets[0][1] == expected).all()) else "  WRONG"
            fraction_line(
                f"{name}, {block}, {unrolled} at once, {load}, table {table.nbytes / 1e6:.1f} MB, shared {shared}"
                + right,
                moved,
                milliseconds(calls),
            )
        host = rng.standard_normal((slots.shape[0], 1))
        sets = [(xp.asarray(host), xp.empty((n_rows, 1))) for _ in range(1 if EMULATED else 10)]
        expected = xp.asarray(gather_sums(made.first, made.incidences, host, None))
        moved = 8 * slots.shape[0] + 8 * n_rows
        print(f"\nright-hand side, {label}; bound of values {1e3 * moved / BANDWIDTH:.5f} ms")
        if not EMULATED:
            places = [xp.asarray(a) for a in (made.first, made.incidences)]
            fraction_line("gather", moved, milliseconds([functools.partial(gather_sums, *places, *s) for s in sets]))
        for block, unrolled in ((64, 8), (128, 4), (128, 8), (128, 16)):
            if late():
                return
            slices, table, rows, who = sliced(made.first, made.incidences, None, None, block, 1)
            source = (
                text.replace(
                    "extern __shared__ __align__(16) char memory[];",
                    "static __attribute__((aligned(16))) char memory[16];",
                )
                if EMULATED
                else text
            )
            f = module(
                source, (*ONE_VALUE.options("int"), f"-DBLOCK={block}", f"-DUNROLLED={unrolled}"), ["v_vector_sums"]
            ).get_function("v_vector_sums")
            there = [xp.asarray(np.ascontiguousarray(a)) for a in (slices, table[:, 0], who.astype(np.int32))]
            calls = [
                functools.partial(f, (rows.size // block,), (block,), (*there, *s, np.int32(n_rows))) for s in sets
            ]
            sets[0][1].fill(7.0)
            calls[0]()
            right = "" if bool((sets[0][1] == expected).all()) else "  WRONG"
            fraction_line(f"rows, block {block}, {unrolled} at once" + right, moved, milliseconds(calls))


# --- forms
def forms():
    from benchmarks.bench_forms import diffusion, diffusivities, laplace, mass
    from benchmarks.bench_forms_device import on_device
    from ensemble._kernels.fem import form_cuda
    from ensemble.apps import fem

    mesh = mountain_mesh()
    many = on_device({"kappa": diffusivities(mesh, 32)})
    step = on_device(step_fields(mesh))
    eight = list(STEP_FORMS.values())
    cases = {
        "Laplace and mass": ([laplace, mass], {}),
        "diffusion, 32": ([diffusion], many),
        "momentum": ([STEP_FORMS["momentum"]], step),
        "temperature": ([STEP_FORMS["temperature"]], step),
        "pressure diffusion": ([STEP_FORMS["pressure diffusion"]], step),
        "eight": (eight, step),
    }
    usual = dict(
        SHARED_BYTES=48 << 10,
        THREADS=256,
        BLOCKS=5,
        CAPACITIES=(512, 256, 192, 128, 96, 64),
        MOST_BYTES=96 << 10,
        STORE="store_once",
    )
    settings = {
        "present": {},
        "plain stores": {"STORE": "store"},
        "shared 72 KiB": {"SHARED_BYTES": 72 << 10},
        "shared 96 KiB": {"SHARED_BYTES": 96 << 10},
        "shared 96 KiB, 512 threads": {"SHARED_BYTES": 96 << 10, "THREADS": 512, "BLOCKS": 2},
        "128 threads, 24 KiB": {"SHARED_BYTES": 24 << 10, "THREADS": 128, "BLOCKS": 8},
        "6 blocks, 36 KiB": {"SHARED_BYTES": 36 << 10, "BLOCKS": 6},
    }
    chosen = sys.argv[2:] or list(cases)
    for label, numbers in settings.items():
        for key, value in (usual | numbers).items():
            setattr(form_cuda, key, value)
        form_cuda._kernel.cache_clear()
        print(f"\n{label}")
        for name, (fs, fields) in cases.items():
            if late():
                return
            if name not in chosen:
                continue
            try:
                call = lambda: fem.assemble(mesh, *fs, backend="cupy", check=False, **fields)
                ms = milliseconds([call], launches=6, rounds=3, cycles=20_000_000)
                print(f"  {name:<30} {ms:9.5f} ms", flush=True)
            except Exception as error:
                print(f"  {name:<30} {type(error).__name__}: {str(error)[:150]}", flush=True)


if __name__ == "__main__":
    {
        "bandwidth": bandwidth,
        "elements": elements,
        "values": values,
        "matrices": matrices,
        "sums": sums,
        "forms": forms,
    }[sys.argv[1]]()
