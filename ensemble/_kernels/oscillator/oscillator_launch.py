"""The same steps on a CUDA device: see `steps.cuh`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile import device
from ensemble._compile.cuda import COMMON_TYPES, sources
from ensemble._kernels.oscillator.steps import Run

__all__ = ["OPTIONS", "integrate", "source"]

OPTIONS = ("--fmad=false", "--std=c++17")

TYPES = {"float32": "float", "float64": "double"}

THREADS, AHEAD = 64, 8
"""Threads of a block, few, so that small ensembles still reach many multiprocessors, and steps of an unrolled loop."""

DRAWN = {
    ("float32", False): (32, 8, 1), ("float32", True): (64, 6, 1),
    ("float64", False): (64, 4, 0), ("float64", True): (64, 2, 1),
}  # fmt: skip
"""The same where noise is drawn, by the type and whether values are stored, and whether it is drawn early.

Measured again by `benchmarks oscillator-device`.
"""


def source(kind: Run, dtype: str, **constants: int) -> str:
    """The CUDA C++ of the loop over steps; `constants` replace those at the top of the file."""
    flags = {"REAL": TYPES[dtype], "DRAWN": int(kind.drawn), "STORED": int(kind.stored), "TURNED": int(kind.turned)}
    lines = [f"#define {name} {value}" for name, value in {**flags, **constants}.items()]
    return "\n".join([*lines, sources(COMMON_TYPES, "_kernels/oscillator/steps.cuh")])


@functools.cache
def compiled_run(kind: Run, dtype: str, more: int) -> tuple[Any, int]:
    """The kernel and the threads of a block."""
    chosen = kind.drawn and not kind.turned
    threads, ahead, early = DRAWN[dtype, kind.stored] if chosen else (THREADS, AHEAD, 0)
    text = source(kind, dtype, MORE=more, THREADS=threads, AHEAD=ahead, EARLY=early)
    return device.raw_module(text, OPTIONS, ("integrate",)).get_function("integrate"), threads


def samples_of_thread(kind: Run, dtype: str, n_samples: int, *arrays: Any) -> int:
    """Two neighbours where one instruction can load or store both: they share addresses and forces."""
    if kind.turned or n_samples % 2 or (kind == Run(drawn=True, stored=False) and dtype == "float32"):
        return 1
    return 2 if all(device.address(array) % (2 * array.itemsize) == 0 for array in arrays) else 1


def integrate(
    kind: Run, n_steps: int, numbers: Any, seed: int, parameters: Any, forcing: Any, noise: Any,
    strides: tuple[int, int], h: float, scale: float, x: Any, v: Any, history: Any, places: tuple[int, int, int],
) -> None:  # fmt: skip
    """As `steps.integrate`, on arrays of a device; `forcing` has an entry more, because pairs are read."""
    kind = kind._replace(turned=(not kind.drawn and strides[1] != 1) or (kind.stored and places[2] != 1))
    real, whole = x.dtype.type, np.int64
    arguments = (
        whole(x.size), whole(n_steps), numbers, np.uint64(seed), parameters, forcing, noise, *map(whole, strides),
        real(h), real(scale), x, v, history, *map(whole, places),
    )  # fmt: skip
    if x.size:
        more = samples_of_thread(kind, x.dtype.name, x.size, noise, history)
        kernel, threads = compiled_run(kind, x.dtype.name, more)
        kernel((-(-x.size // (threads * more)),), (threads,), arguments)
