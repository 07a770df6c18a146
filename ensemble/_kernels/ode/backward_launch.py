"""The CUDA kernel of gradients: a thread takes the steps of its sample, records them, and runs them backwards.

An entry of the record has the start, the length and the state of an accepted step: written once and read once, by
neighbouring threads in neighbouring places while they take as many steps.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile import device
from ensemble._compile.trace.cuda_source import OPTIONS, PRELUDE, TYPES, device_function
from ensemble._compile.trace.graph import Graph
from ensemble._kernels.ode.ode_launch import ARRAYS, REINTERPRETED, THREADS, Shape, Text, call

__all__ = ["arguments", "kernel", "source"]


class _Gradient(Text):
    """The parts of one kernel; `degree` is that of the dense output, 0 without output times."""

    def __init__(self, start: Graph, loop: Graph, rows: Any, shape: Shape, degree: int) -> None:
        super().__init__(start, loop, None, rows, shape)
        self.size, self.degree = shape.n + shape.n_carried, degree

    def forward(self) -> list[str]:
        """Lines of one step with its entry of the record."""
        r, shape = self.rows, self.shape
        state = [r.y + i for i in range(shape.n)] + [r.carried_values + k for k in range(shape.n_carried)]
        news = [f"n{k}" for k in range(self.n_loop)]
        ends = ["t_old", "h_used", *(f"x{k}" for k in range(len(self.loop.outputs) - self.n_loop - 4))]
        return [
            "if (count < capacity) {",
            *(f"    ENTRY(count, {2 + i}) = v{row};" for i, row in enumerate(state)),
            "}",
            f"REAL {', '.join([*news, *ends])}; bool now, waits;",
            call("loop_body", self.loop, self.inputs, [*news, "now", "waits", *ends]),
            *(f"v{k} = n{k};" for k in range(self.n_loop)),
            f"if (v{r.t} != t_old && count < capacity) {{",
            "    ENTRY(count, 0) = t_old; ENTRY(count, 1) = h_used; ++count;",
            "}",
        ]

    def steps(self) -> list[str]:
        """Lines that take all steps."""
        r = self.rows
        if not self.shape.alike:
            return [f"while (v{r.status} == 0) {{", *self.forward(), "}"]
        number = "" if self.counts() else f"v{r.n_steps} = k;"
        return [
            f"const int count_of_steps = (int)v{r.max_steps};",
            "for (int k = 1; k < count_of_steps; ++k) {", *self.forward(), number, "}",
            f"v{r.h} = v{r.t1} - (v{r.t0} + v{r.n_steps} * v{r.longest});",
            "{", *self.forward(), "}", f"v{r.t} = v{r.t1};",
        ]  # fmt: skip

    def sweep(self, graph: Graph) -> list[str]:
        """Lines that run the steps backwards."""
        r, n, k, size, degree = self.rows, self.shape.n, self.shape.n_parameters, self.size, self.degree
        dense = [f"d{j}" for j in range(n * degree + 2 * n)] if degree else []
        entry = [f"e{i}" for i in range(2 + size)]
        cotangents = [f"c{i}" for i in range(size)] + [f"m{j}" for j in range(k)]
        inputs = [*cotangents, *(f"v{r.p + j}" for j in range(k)), *entry, *dense]
        news = [f"b{i}" for i in range(size + k)]
        lines = [f"REAL t_next = v{r.t};", "for (int k = count - 1; k >= 0; --k) {"]
        lines += [f"const REAL {name} = ENTRY(k, {i});" for i, name in enumerate(entry)]
        if degree:
            lines += [
                f"REAL {', '.join(f'{name} = 0' for name in dense)};",
                "while (at >= 0) {",
                "    const REAL wanted = TIME(at);",
                "    const bool ends = (wanted - t_next) * e1 >= 0;",
                "    if (!ends && (wanted - e0) * e1 <= 0) break;",
                "    const REAL theta = (wanted - e0) / e1;",
            ]
            for i in range(n):
                lines += ["    {", f"    REAL w = WEIGHT(at, {i});", f"    if (ends) d{n * degree + i} += w;",
                          f"    else {{ d{n * degree + n + i} += w;"]  # fmt: skip
                lines += [f"    w = w * theta; d{i * degree + j} += w;" for j in range(degree)]
                lines += ["    }", "    }"]
            lines += ["    --at;", "}"]
        lines += [f"REAL {', '.join(news)};", call("sweep_body", graph, inputs, news)]
        lines += [f"{name} = {new};" for name, new in zip(cotangents, news, strict=True)]
        return [*lines, "t_next = e0;", "}"]

    def kernel_body(self, sweep: Graph, back_start: Graph | None) -> list[str]:
        """Lines of the kernel."""
        r, n, k, size = self.rows, self.shape.n, self.shape.n_parameters, self.size
        lines = [f"REAL {', '.join(self.inputs)};",
                 "const i64 s = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (s >= S) return;",
                 "int count = 0, at = n_times - 1;", *self.loads(), *self.begin()]  # fmt: skip
        lines += [f"if (!(bad || v{r.t0} == v{r.t1})) {{", *self.steps(), "}"]
        first = [f"c{i} = WEIGHT(0, {i})" if i < n and not self.degree else f"c{i} = 0" for i in range(size)]
        lines.append(f"REAL {', '.join([*first, *(f'm{j} = 0' for j in range(k))])};")
        lines += self.sweep(sweep)
        if self.degree:
            lines += ["for (; at >= 0; --at) {", *(f"    c{i} += WEIGHT(at, {i});" for i in range(n)), "}"]
        if back_start is not None:
            begun = [f"y0[(i64){i} * (y0_step ? S : 1) + s * y0_step]" for i in range(n)]
            inputs = [f"v{r.t0}", *begun, *(f"v{r.p + j}" for j in range(k)), *(f"c{i}" for i in range(n, size)),
                      *(f"m{j}" for j in range(k))]  # fmt: skip
            news = [f"a{i}" for i in range(n + k)]
            lines += [f"REAL {', '.join(news)};", call("back_start_body", back_start, inputs, news)]
            lines += [f"c{i} = c{i} + a{i};" for i in range(n)] + [f"m{j} = a{n + j};" for j in range(k)]
        lines += [f"by_y0[(i64){i} * S + s] = c{i};" for i in range(n)]
        return lines + [f"by_p[(i64){j} * S + s] = m{j};" for j in range(k)]


def source(
    start: Graph, loop: Graph, sweep: Graph, back_start: Graph | None, rows: Any, shape: Shape, degree: int
) -> str:
    """The CUDA C++ of the kernel ``gradient``; `rows` are the offsets of `ode/control.py`."""
    text, real = _Gradient(start, loop, rows, shape._replace(dense=False), degree), TYPES[shape.dtype]
    reads = [f"const REAL* __restrict__ {name}, const i64 {name}_step" for name in ARRAYS]
    others = ["const i64 S", "const int n_times", "const int capacity", "const REAL* __restrict__ weights",
              "REAL* record", "REAL* by_y0", "REAL* by_p"]  # fmt: skip
    functions = [device_function(start, "start_body"), device_function(loop, "loop_body"),
                 device_function(sweep, "sweep_body")]  # fmt: skip
    functions += [] if back_start is None else [device_function(back_start, "back_start_body")]
    return "\n".join(
        [PRELUDE, REINTERPRETED, f"typedef {real} REAL;", "typedef long long i64;", *functions,
         "#define TIME(k) times[(k) * (times_step ? S : 1) + s * times_step]",
         f"#define WEIGHT(k, i) weights[((i64)(k) * {shape.n} + (i)) * S + s]",
         f"#define ENTRY(k, i) record[((i64)(k) * {2 + text.size} + (i)) * S + s]",
         f'extern "C" __global__ void __launch_bounds__({THREADS}) gradient({", ".join([*reads, *others])}) {{',
         *text.kernel_body(sweep, back_start), "}"]
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def kernel(text: str) -> Any:
    """The compiled kernel of a source."""
    return device.raw_module(text, OPTIONS, ("gradient",)).get_function("gradient")


def arguments(
    arrays: dict[str, Any], n_samples: int, n_times: int, capacity: int, others: list[Any]
) -> tuple[Any, ...]:
    """The arguments of a launch."""
    given: list[Any] = []
    for name in ARRAYS:
        given += [arrays[name], np.int64(arrays[name].shape[-1] != 1)]
    return (*given, np.int64(n_samples), np.int32(n_times), np.int32(capacity), *others)
