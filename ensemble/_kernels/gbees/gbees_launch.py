"""The CUDA kernels of one drift: their source, and the record that describes a grid to them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import cuda, device
from ensemble._compile.trace.cuda_source import OPTIONS, PRELUDE, TYPES, device_function
from ensemble._compile.trace.graph import Graph
from ensemble._kernels.gbees.limiters import trace_limiter

__all__ = ["OPTIONS", "Reason", "Setting", "kernels", "launch", "layout", "source"]

FILES = ("cells.cuh", "step.cuh", "prune.cuh", "kernels.cu")

KERNELS = (
    "advance", "build_table", "link_all", "link_some", "link_between", "mark_downwind_all", "mark_all", "compact",
)  # fmt: skip

SCANNED = 4

LINE = (16,)


class Reason:
    """Why `advance` returned, as in `cells.cuh`."""

    RUNNING, FINISHED, PAUSED, PRUNE, FULL, KEY_OVERFLOW, NOT_FINITE, NOTHING_LEFT, STEP_TOO_SHORT = range(9)


class Setting(NamedTuple):
    """Compile-time parameters of the kernels."""

    n: int
    n_parameters: int
    dtype: str
    limiter: str
    rotated: bool
    time_varying: bool
    periodic: bool
    diffusive: bool
    mixing: bool
    """Whether noise along different axes is correlated."""
    time_order: int
    cluster: int
    """Blocks of the cluster that works on one grid; 0: all blocks of the launch work on one grid."""
    threads: int
    blocks: int
    """Resident blocks per multiprocessor."""


def fields(n: int, n_parameters: int) -> list[tuple[str, str, tuple[int, ...]]]:
    """(name, type, shape) of the fields of an instance: 8 bytes each, so that no compiler pads."""
    one: tuple[int, ...] = ()
    pointers = [("keys", "uint64*"), ("other_keys", "uint64*"), ("p", "real*"), ("q", "real*"), ("T", "real*"),
                ("neighbours", "int*"), ("table", "uint64*"), ("places", "int*"), ("marks", "unsigned char*"),
                ("log", "double*")]  # fmt: skip
    given = ["capacity", "slots", "prune_every", "sequential", "prune_limit", "list_limit", "max_steps"]
    given += ["max_cell_steps", "only_prune"]
    state = ["n_complete", "count", "taken", "reason", "n_sorted"]
    reals = ["time", "span", "elapsed", "velocity_time", "threshold", "cfl", "lower", "upper", "scale"]
    return [
        *((name, kind, one) for name, kind in pointers),
        *((name, "int64", one) for name in (*given, *state)),
        *((name, "double", one) for name in reals),
        ("corner_rate", "double", one),
        *((name, "double", (n,)) for name in ("widths", "origin", "diffusion", "faces")),
        ("corners", "double", (n * n,)),
        ("rotation", "double", (n * n,)), ("parameters", "double", (max(n_parameters, 1),)),
        *((name, "int64", (n,)) for name in ("shifts", "masks", "lows", "periods")),
        # each of these on its own cache line: threads spin on one while others add to another
        ("padding_0", "int64", LINE), ("n", "int64", one), ("padding_1", "int64", LINE), ("arrivals", "uint64", one),
        ("padding_2", "int64", LINE), ("masses", "uint64", (2,)), ("clips", "uint64", (2,)),
        ("padding_3", "int64", LINE), ("rates", "uint64", (2,)),
        ("padding_4", "int64", LINE), ("full", "int64", one), ("bad_key", "uint64", one),
        *((name, "int64", one) for name in ("listed", "kept")),
        *((name, "uint64", one) for name in ("candidates", "deleted_below", "deleted_listed", "kept_mass")),
        ("padding_5", "int64", LINE),
    ]  # fmt: skip


def layout(n: int, n_parameters: int) -> np.dtype[Any]:
    """The record of an instance."""
    kinds = {"int64": "i8", "double": "f8"}
    return np.dtype([(name, kinds.get(kind, "u8"), shape) for name, kind, shape in fields(n, n_parameters)])


def _struct(n: int, n_parameters: int) -> str:
    lines = [f"    {kind} {name}{f'[{shape[0]}]' if shape else ''};" for name, kind, shape in fields(n, n_parameters)]
    return "\n".join(["struct Instance {", *lines, "};"])


def _called(graph: Graph, name: str, places: list[str], results: list[str]) -> str:
    """A call of the emitted function `name`: inputs read from `places`, results assigned to `results`."""
    kinds = [TYPES[graph.nodes[k].dtype] for k in graph.outputs]
    lines = [f"    {kind} r{k};" for k, kind in enumerate(kinds)]
    given = ", ".join([*(places[p] for p in graph.strong_inputs), *(f"r{k}" for k in range(len(kinds)))])
    lines += [f"    {name}({given});", *(f"    {where} = r{k};" for k, where in enumerate(results))]
    return "\n".join(lines)


def source(velocity: Graph, bounds: Graph | None, setting: Setting) -> str:
    """The CUDA C++ for the graphs of `frame.trace_velocity` and of `frame.trace_bounds`."""
    n, rotated = setting.n, setting.rotated
    z = [f"z[{i}]" for i in range(n)]
    axes = [f"g.origin[{i}]" for i in range(n)] + [f"g.rotation[{k}]" for k in range(n * n * rotated)]
    given = [*z, "t", *axes, *(f"g.parameters[{k}]" for k in range(setting.n_parameters))]
    flags = {
        "N": n, "CLUSTER": setting.cluster,
        "THREADS": setting.threads, "BLOCKS": setting.blocks,
        "BOUNDED": int(bounds is not None), "TIME_VARYING": int(setting.time_varying),
        "PERIODIC": int(setting.periodic), "DIFFUSIVE": int(setting.diffusive), "MIXING": int(setting.mixing),
        "SECOND_ORDER": int(setting.time_order == 2), "SCANNED": SCANNED,
        "DIMENSIONS_AT_ONCE": 1 if setting.dtype == "float32" else 3,
    }  # fmt: skip
    limiter, real = trace_limiter(setting.limiter, setting.dtype), TYPES[setting.dtype]
    parts = [f"#define REAL {real}", PRELUDE, *(f"#define {name} {value}" for name, value in flags.items())]
    parts.append(_struct(n, setting.n_parameters))
    parts += [
        device_function(limiter, "limiter"),
        f"__device__ __forceinline__ {real} limited({real} a, {real} d) {{",
        f"    {real} slope;",
        _called(limiter, "limiter", ["a", "d"], ["slope"]),
        "    return slope;\n}",
        device_function(velocity, "drift_along_axes"),
        f"__device__ __forceinline__ void velocity_at(const Instance& g, const double (&z)[{n}], double t, "
        f"double (&v)[{n}]) {{",
        _called(velocity, "drift_along_axes", given, [f"v[{i}]" for i in range(n)]),
        "}",
    ]
    if bounds is not None:
        parts += [
            device_function(bounds, "bounds"),
            f"__device__ __forceinline__ double bounds_at(const Instance& g, const double (&z)[{n}]) {{",
            "    double value;",
            _called(bounds, "bounds", [*z, *axes], ["value"]),
            "    return value;\n}",
        ]
    return "\n".join([*parts, cuda.sources(*(f"_kernels/gbees/cuda/{name}" for name in FILES))])


@functools.cache
def kernels(text: str) -> dict[str, Any]:
    """The compiled kernels of a source, by name."""
    module = device.raw_module(text, OPTIONS, KERNELS)
    return {name: module.get_function(name) for name in KERNELS}


def launch(kernel: Any, n_blocks: int, n_threads: int, arguments: tuple[Any, ...], cooperative: bool = False) -> None:
    """Queue a kernel; `cooperative`: the device starts it only when all its blocks can run at once."""
    inner = getattr(kernel, "kernel", None)
    if cooperative and inner is not None:
        inner((n_blocks,), (n_threads,), arguments, enable_cooperative_groups=True)
    else:
        kernel((n_blocks,), (n_threads,), arguments)
