"""The CUDA kernel of one right-hand side and method: a thread integrates one sample after another.

A thread that is done with a sample loads its next one, while the other threads of its warp go on with theirs. Steps,
step control and outputs are those of the CPU driver (`driver.py`); the bodies come from the same graphs.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import device
from ensemble._compile.trace.cuda_source import OPTIONS, PRELUDE, TYPES, device_function
from ensemble._compile.trace.graph import Graph

__all__ = ["ARRAYS", "REINTERPRETED", "THREADS", "Shape", "Text", "arguments", "call", "kernel", "source"]

THREADS = 128

ARRAYS = ("y0", "p", "t0", "t1", "h", "max_steps", "rtol", "atol", "longest", "times")
"""Arrays that are read: entry i of sample s at ``i * (step ? S : 1) + s * step``."""

REINTERPRETED = """
__device__ __forceinline__ long long bits_of(double x) { return __double_as_longlong(x); }
__device__ __forceinline__ int bits_of(float x) { return __float_as_int(x); }
__device__ __forceinline__ double from_bits(long long i) { return __longlong_as_double(i); }
__device__ __forceinline__ float from_bits(int i) { return __int_as_float(i); }
"""


class Shape(NamedTuple):
    """Compile-time numbers of a kernel."""

    n: int
    n_carried: int
    n_parameters: int
    n_atol: int
    n_events: int
    degree: int
    dense: bool
    """Whether there are output times or events."""
    alike: bool
    """Whether all samples take the same fixed steps."""
    dtype: str


def call(name: str, graph: Graph, inputs: list[str], outputs: list[str]) -> str:
    """A call of an emitted function with the inputs that it uses."""
    given = [inputs[position] for position in graph.strong_inputs]
    return f"{name}({', '.join([*given, *outputs])});"


class Text:
    """The lines of one kernel, part by part."""

    def __init__(self, start: Graph, loop: Graph, event: Graph | None, rows: Any, shape: Shape) -> None:
        self.start, self.loop, self.event, self.rows, self.shape = start, loop, event, rows, shape
        self.inputs = [f"v{row}" for row in range(rows.n_inputs)]
        self.n_loop = rows.n_carried

    def loads(self) -> list[str]:
        """Lines that load a sample."""
        r, shape = self.rows, self.shape
        entries = [(r.y + i, "y0", i) for i in range(shape.n)] + [(r.p + j, "p", j) for j in range(shape.n_parameters)]
        entries += [(r.t, "t0", 0), (r.t0, "t0", 0), (r.t1, "t1", 0), (r.h, "h", 0), (r.max_steps, "max_steps", 0)]
        entries += [(r.rtol, "rtol", 0), (r.longest, "longest", 0)] + [
            (r.atol + i, "atol", i) for i in range(shape.n_atol)
        ]
        lines = [f"v{row} = {name}[{i} * ({name}_step ? S : 1) + s * {name}_step];" for row, name, i in entries]
        lines.append(f"v{r.direction} = v{r.t1} > v{r.t0} ? REAL(1) : v{r.t1} < v{r.t0} ? REAL(-1) : REAL(0);")
        lines += [f"v{row} = 0;" for row in (r.n_steps, r.n_rejected, r.rejected, r.status)]
        lines.append(f"v{r.t_out} = 0;")
        return lines

    def begin(self) -> list[str]:
        """Lines that start a sample: its first step, what is carried, output times at the start."""
        r, shape = self.rows, self.shape
        firsts = [f"v{r.h}", *(f"v{r.carried_values + k}" for k in range(shape.n_carried))]
        firsts += [f"v{r.events + j}" for j in range(shape.n_events)]
        names = [f"b{k}" for k in range(len(firsts))]
        lines = ["{", f"REAL {', '.join(names)};", call("start_body", self.start, self.inputs, names)]
        lines += [f"{variable} = {name};" for variable, name in zip(firsts, names, strict=True)] + ["}"]
        watched = [f"v{r.y + i}" for i in range(shape.n)] + firsts[: 1 + shape.n_carried]
        lines.append(f"bool bad = {' || '.join(f'!isfinite({name})' for name in watched)};")
        if shape.dense:
            lines += ["at = 0;", f"while (at < n_times && (TIME(at) - v{r.t0}) * v{r.direction} <= 0) {{"]
            lines += [f"    y_out[((i64)at * {shape.n} + {i}) * S + s] = v{r.y + i};" for i in range(shape.n)]
            lines += ["    ++at;", "}", f"v{r.t_out} = at < n_times ? TIME(at) : INFINITY * v{r.direction};"]
            lines += [f"count{j} = (int)n_events[(i64){j} * S + s];" for j in range(shape.n_events)]  # found before
        return lines

    def step(self, *, ends: bool = False) -> list[str]:
        """Lines of one step, which ends at t1 exactly with `ends`; `now` says whether outputs or events lie in it."""
        news = [f"n{k}" for k in range(self.n_loop)]
        r, shape = self.rows, self.shape
        rest = ["t_old", "h_used"]
        if shape.dense:
            rest += [f"old{i}" for i in range(shape.n)]
            rest += [f"d{i}_{k}" for i in range(shape.n) for k in range(shape.degree)]
            rest += [f"e{j}" for j in range(shape.n_events)]
        rest = rest[: len(self.loop.outputs) - self.n_loop - 2]
        lines = [f"REAL {', '.join([*news, *rest])}; bool now, waits;"]
        lines.append(call("loop_body", self.loop, self.inputs, [*news, "now", "waits", *rest]))
        lines += [f"v{k} = n{k};" for k in range(self.n_loop)]
        if ends:
            lines.append(f"v{r.t} = v{r.t1};")
        if shape.dense:
            lines += ["bool ended = false;", f"REAL t_last = v{r.t}, last_theta = REAL(1.5);", "if (now) {"]
            lines += [*self.outputs(), "}"]
        return lines

    def counts(self) -> bool:
        """Whether a step depends on its number, other than by the number itself."""
        reached, found = {self.rows.n_steps}, set()
        for k, node in enumerate(self.loop.nodes):
            if (node.operation == "input" and node.value in reached) or any(i in found for i in node.inputs):
                found.add(k)
        values = self.loop.outputs[self.rows.y : self.rows.n_steps]
        return self.shape.dense or any(k in found for k in values)

    def state(self, theta: str, suffix: str) -> list[str]:
        """Lines that interpolate all unknowns at `theta`."""
        lines = []
        for i in range(self.shape.n):
            lines.append(f"REAL y{suffix}{i} = d{i}_{self.shape.degree - 1};")
            lines += [
                f"y{suffix}{i} = y{suffix}{i} * {theta} + d{i}_{k};" for k in range(self.shape.degree - 2, -1, -1)
            ]
            lines.append(f"y{suffix}{i} = y{suffix}{i} * {theta} + old{i};")
        return lines

    def outputs(self) -> list[str]:
        """Lines that find the roots of events in the step and write what it passes."""
        r, shape = self.rows, self.shape
        lines = []
        for j in range(shape.n_events):
            now = f"v{r.events + j}"
            lines += [
                f"REAL theta{j} = 2;",
                f"if ((e{j} < 0 && {now} >= 0 && sides[{j}] >= 0) || (e{j} > 0 && {now} <= 0 && sides[{j}] <= 0)) {{",
                "    REAL low = 0, high = 1;",
                "    for (int k = 0; k < 60; ++k) {",
                "        const REAL theta = REAL(0.5) * (low + high), t_now = t_old + theta * h_used;",
                *(f"        {line}" for line in self.state("theta", "e")),
                f"        REAL {', '.join(f'g{k}' for k in range(shape.n_events))};",
                "        " + self.event_call(),
                f"        if ((e{j} < 0 && g{j} >= 0) || (e{j} > 0 && g{j} <= 0)) high = theta; else low = theta;",
                "    }",
                f"    theta{j} = high;",
                "}",
            ]
        for j in range(shape.n_events):
            lines += [
                f"if (terminal[{j}] > 0 && theta{j} < last_theta && theta{j} <= 1 && count{j} + 1 >= terminal[{j}]) "
                f"{{ last_theta = theta{j}; ended = true; }}"
            ]
        for j in range(shape.n_events):
            place = f"t_events[((i64){j} * max_roots + count{j}) * S + s]"
            lines += [
                f"if (theta{j} <= last_theta && theta{j} <= 1) {{",
                f"    if (count{j} < max_roots) {place} = t_old + theta{j} * h_used;",
                f"    ++count{j};",
                "}",
            ]
        lines += [
            "if (ended) t_last = t_old + last_theta * h_used;",
            "while (at < n_times) {",
            "    const REAL wanted = TIME(at);",
            f"    if ((wanted - t_last) * v{r.direction} > 0) break;",
            f"    const bool at_end = wanted == v{r.t};",
            "    const REAL theta = (wanted - t_old) / h_used;",
            *(f"    {line}" for line in self.state("theta", "o")),
            *(f"    y_out[((i64)at * {shape.n} + {i}) * S + s] = at_end ? v{r.y + i} : yo{i};" for i in range(shape.n)),
            "    ++at;",
            "}",
            f"v{r.t_out} = at < n_times ? TIME(at) : INFINITY * v{r.direction};",
            "if (ended) {",
            *(f"    {line}" for line in self.state("last_theta", "l")),
            *(f"    v{r.y + i} = yl{i};" for i in range(shape.n)),
            f"    v{r.t} = t_last;",
            "}",
        ]
        return lines

    def event_call(self) -> str:
        r, shape = self.rows, self.shape
        inputs = ["t_now", *(f"ye{i}" for i in range(shape.n)), *(f"v{r.p + j}" for j in range(shape.n_parameters))]
        return (
            ""
            if self.event is None
            else call("event_body", self.event, inputs, [f"g{k}" for k in range(shape.n_events)])
        )

    def finish(self, code: str) -> list[str]:
        """Lines that write the end of a sample."""
        r, shape = self.rows, self.shape
        lines = [f"bool good = {' && '.join(f'isfinite(v{r.y + i})' for i in range(shape.n))};"]
        lines += [f"y[(i64){i} * S + s] = v{r.y + i};" for i in range(shape.n)]
        lines += [f"t_end[s] = v{r.t};", f"status[s] = good ? {code} : 5;"]
        lines += [f"n_steps[s] = (i64)v{r.n_steps};", f"n_rejected[s] = (i64)v{r.n_rejected};"]
        return lines + [f"n_events[(i64){j} * S + s] = count{j};" for j in range(shape.n_events)]

    def body(self) -> list[str]:
        """Lines of the kernel."""
        r, shape = self.rows, self.shape
        lines = [f"REAL {', '.join(self.inputs)};", "int at = 0;"]
        lines += [f"int count{j} = 0;" for j in range(shape.n_events)]
        lines.append("i64 s = (i64)blockIdx.x * blockDim.x + threadIdx.x;")
        lines += [] if shape.alike else ["const i64 stride = (i64)gridDim.x * blockDim.x;"]
        moving = [f"if (bad || v{r.t0} == v{r.t1}) {{", *self.finish("(bad ? 5 : 1)"), "if (bad) status[s] = 5;"]
        if shape.alike:  # a thread for each sample: the compiler moves what is constant out of the one loop
            number = "" if self.counts() else f"v{r.n_steps} = count_of_steps - 1;"  # else the one of the step
            return [
                *lines, "if (s >= S) return;", *self.loads(), *self.begin(), *moving, "return;", "}",
                f"const int count_of_steps = (int)v{r.max_steps};",
                "for (int k = 1; k < count_of_steps; ++k) {", *self.step(), "}", number,
                f"v{r.h} = v{r.t1} - (v{r.t0} + v{r.n_steps} * v{r.longest});",
                "{", *self.step(ends=True), "}", *self.finish("1"),
            ]  # fmt: skip
        ends = f"v{r.status} > 0" + (" || ended" if shape.dense else "")
        code = f"(ended ? 4 : (int)v{r.status})" if shape.dense else f"(int)v{r.status}"
        return [
            *lines, "bool fresh = true;", "while (true) {", "if (fresh) {", "if (s >= S) break;", *self.loads(),
            *self.begin(), *moving, "s += stride; continue;", "}", "fresh = false;", "}", *self.step(),
            f"if ({ends}) {{", *self.finish(code), "s += stride; fresh = true;", "}", "}",
        ]  # fmt: skip


@functools.lru_cache(maxsize=256)
def source(start: Graph, loop: Graph, event: Graph | None, rows: Any, shape: Shape) -> str:
    """The CUDA C++ of the kernel ``solve``; `rows` are the offsets of `ode/control.py`."""
    text, real = Text(start, loop, event, rows, shape), TYPES[shape.dtype]
    reads = [f"const REAL* __restrict__ {name}, const i64 {name}_step" for name in ARRAYS]
    writes = ["REAL* y", "REAL* t_end", "signed char* status", "i64* n_steps", "i64* n_rejected", "REAL* y_out",
              "REAL* t_events", "i64* n_events", "const int* sides", "const int* terminal"]  # fmt: skip
    signature = ", ".join([*reads, "const i64 S", "const int n_times", "const int max_roots", *writes])
    functions = [device_function(start, "start_body"), device_function(loop, "loop_body")]
    functions += [device_function(event, "event_body")] if event is not None else []
    return "\n".join(
        [PRELUDE, REINTERPRETED, f"typedef {real} REAL;", "typedef long long i64;", *functions,
         "#define TIME(k) times[(k) * (times_step ? S : 1) + s * times_step]",
         f'extern "C" __global__ void __launch_bounds__({THREADS}) solve({signature}) {{', *text.body(), "}"]
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def kernel(text: str) -> Any:
    """The compiled kernel of a source."""
    return device.raw_module(text, OPTIONS, ("solve",)).get_function("solve")


def arguments(arrays: dict[str, Any], n_samples: int, n_times: int, max_roots: int, outs: list[Any]) -> tuple[Any, ...]:
    """The arguments of a launch."""
    given: list[Any] = []
    for name in ARRAYS:
        array = arrays[name]
        given += [array, np.int64(array.shape[-1] != 1)]
    return (*given, np.int64(n_samples), np.int32(n_times), np.int32(max_roots), *outs)
