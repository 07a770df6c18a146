"""A traced elementwise function ready to run on arrays of one set of dtypes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from ctypes import addressof, c_char
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.device import address
from ensemble._compile.lanes.elementwise_loop import elementwise_loop
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import KEPT, Code, assembled, code_of
from ensemble._compile.numba import STREAMED, empty
from ensemble._compile.trace.broadcast import FLAT, LINES, Layout, flattened
from ensemble._compile.trace.cuda_source import launch
from ensemble._compile.trace.elementwise import RESULT, one_span, spans
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numbers import hoisted
from ensemble._typing import Array

__all__ = ["Compiled"]

THREADED_FROM = 1 << 16
"""Elements from which threads are faster; with functions of the C library, fewer (`benchmarks fuse`)."""

ALIGNED_FROM = 1 << 12

HOISTED = ("float64", "float32", "int64", "int32")
"""Dtypes of constants that become arguments."""

first_byte = c_char.from_buffer  # its address takes less than half of the time of `array.ctypes.data`


class Compiled:
    """Compiles a graph at its first call, for the CPU or a device, and runs it on arrays.

    `places` are the positions of the graph's inputs among the arguments of the function, `arrays` those of the
    arguments that are arrays. Constants other than `kept` become arguments of the compiled code
    (`numbers.py`); where that is None, none do.
    """

    def __init__(
        self, graph: Graph, places: Sequence[int], arrays: tuple[int, ...], backend: str, kept: frozenset[float] | None
    ) -> None:
        self.constant = not (graph.strong_inputs or graph.entering)
        graph, constants = (graph, []) if kept is None else hoisted(graph, graph.n_inputs, HOISTED, kept)
        self.graph, self.backend = graph, backend
        dtypes = graph.input_dtypes
        first = graph.n_inputs - len(constants)
        self._constants = {first + k: np.dtype(dtypes[first + k]).type(value) for k, value in enumerate(constants)}
        self.single = graph.structure == 0
        self._places = places
        self._threaded_from = THREADED_FROM // 8 if graph.libm else THREADED_FROM
        self._arrays = [places.index(position) for position in arrays]  # as inputs of the graph
        used = graph.strong_inputs
        self._used = [(k, position) for k, position in enumerate(arrays) if self._arrays[k] in used]
        self._numbers = [place for place in used if place not in self._arrays]
        self._filled = _words([self._constants[place] for place in self._numbers if place in self._constants])
        """The numbers of a call where all are constants."""
        self._dtypes = [np.dtype(dtype) for dtype in graph.dtypes]
        self._entering = bool(graph.entering)

    @functools.cached_property
    def body(self) -> Code:
        """The machine code of the graph."""
        return _body(self.graph, tuple([self._arrays[k] for k, _ in self._used]))

    def run(self, layout: Layout, arrays: dict[int, Array], arguments: Any, targets: list[Array] | None) -> list[Array]:
        """The results, written into `targets` where given."""
        if self.backend == "cuda":
            return self._on_device(layout, arrays, arguments, targets)
        if targets is None:
            make = empty if layout.size >= ALIGNED_FROM else np.empty
            outs = [make(layout.shape, dtype) for dtype in self._dtypes]
        else:
            outs = [_direct(target) for target in targets]
        if layout.size:
            given = [flattened(arrays[position], layout.forms[k]) for k, position in self._used]
            if targets is not None:
                given = [_apart(array, layout, k, outs) for array, (k, _) in zip(given, self._used, strict=True)]
            values = self._values(arguments) if len(self._filled) < len(self._numbers) or self._entering else [(), ()]
            self._compute(layout, given, values, [out.reshape(-1) for out in outs])
        if targets is not None:
            for target, out in zip(targets, outs, strict=True):
                if target is not out:
                    target[...] = out
        return outs

    def _compute(self, layout: Layout, given: list[Array], values: list[Any], outs: list[Array]) -> None:
        table: list[int] = []
        for (k, _), array in zip(self._used, given, strict=True):
            table += (addressof(first_byte(array)), array.itemsize, k)
        for out in outs:
            table += (addressof(first_byte(out)), out.itemsize, RESULT)
        numbers = self._filled
        if len(values[0]) + len(values[1]) > len(numbers):
            numbers = _words([*(value for _, value in values[0]), *values[1]])
        arguments = (layout.plan, np.array(table, np.int64), len(given), numbers)
        if layout.size >= self._threaded_from:
            spans(self.body["elements"], layout.size, int(self._streams(layout, outs)), *arguments)
        else:
            one_span(self.body["elements"], 0, layout.size, 0, *arguments)

    def _streams(self, layout: Layout, outs: list[Array]) -> bool:
        """Whether results go past the caches: large, in whole cache lines, and bound by memory; masks never do.

        A loop full of functions was twice as slow with streaming stores as without.
        """
        lines = int(layout.plan[-1, 0]) % LINES == 0 and not self.graph.libm
        large = [out for out in outs if out.dtype != bool]
        return lines and bool(large) and all(o.nbytes > STREAMED and o.ctypes.data % 64 == 0 for o in large)

    def _values(self, arguments: Any) -> list[Any]:
        """NumPy scalars by their place in the graph, in order, and the numbers that enter through casts."""
        known = self._constants
        numbers = [(n, known[n] if n in known else arguments[self._places[n]]) for n in self._numbers]
        return [numbers, self.graph.scalars([arguments[place] for place in self._places]) if self._entering else []]

    def _on_device(self, layout: Layout, arrays: dict[int, Array], arguments: Any, targets: Any) -> list[Any]:
        xp = array_namespace(*arrays.values())
        given = dict(zip(self._arrays, arrays.values(), strict=True))
        outs = [
            xp.empty(layout.shape, dtype=dtype)
            if target is None or _disturbs(target, given.values(), layout)
            else target
            for target, dtype in zip(targets or [None] * len(self._dtypes), self._dtypes, strict=True)
        ]
        values = self._values(arguments)
        numbers = {f"a{place}": value for place, value in values[0]}
        numbers |= {f"s{k}": value for k, value in enumerate(values[1])}
        if layout.size:
            launch(self.graph, given, layout, numbers, outs)
        for target, out in zip(targets or (), outs, strict=targets is not None):
            if target is not out:
                target[...] = out
        return outs


def _words(values: Sequence[Any]) -> np.ndarray:
    """NumPy scalars, each in the first bytes of a word."""
    words = np.zeros(len(values), np.int64)
    for place, value in enumerate(values):
        words[place : place + 1].view(value.dtype)[0] = value
    return words


@functools.lru_cache(maxsize=KEPT)
def _body(graph: Graph, arrays: tuple[int, ...]) -> Code:
    """Return the machine code of a graph; its inputs numbered in `arrays` are arrays. Equal graphs share code."""
    return code_of(assembled([elementwise_loop(graph, arrays, "elements")]), ["elements"], assembly_of)


def _disturbs(target: Any, arrays: Iterable[Any], layout: Layout) -> bool:
    """Whether a kernel must not write into this array on a device: not in order, or read elsewhere by other threads."""
    if not target.flags.c_contiguous:
        return True
    first = address(target)
    last = first + target.nbytes
    for k, array in enumerate(arrays):
        start = address(array)
        extent = sum((n - 1) * abs(stride) for n, stride in zip(array.shape, array.strides, strict=True))
        back = sum((n - 1) * min(stride, 0) for n, stride in zip(array.shape, array.strides, strict=True))
        in_place = start == first and layout.plan[k + 1, 0] == FLAT and array.itemsize == target.itemsize
        if not in_place and start + back < last and first < start + back + extent + array.itemsize:
            return True
    return False


def _direct(target: np.ndarray) -> np.ndarray:
    """`target` where a kernel can write into it, otherwise a buffer of its shape."""
    valid = target.flags.c_contiguous and target.flags.writeable and target.dtype.isnative
    return target if valid else np.empty(target.shape, target.dtype)


def _apart(array: np.ndarray, layout: Layout, k: int, outs: list[np.ndarray]) -> np.ndarray:
    """Operand `k`, copied where writing a result would change elements that are read later."""
    for out in outs:
        same = layout.plan[k + 1, 0] == 0 and array.ctypes.data == out.ctypes.data and array.itemsize == out.itemsize
        if not same and np.may_share_memory(array, out):
            return array.copy()
    return array
