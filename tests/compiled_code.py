"""The LLVM code of some kernels and their results, as JSON: ``python -m tests.compiled_code [own] [CASE ...]``.

With ``own``, Numba's own compiler makes them; without cases all of `CASES` are made.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import warnings
from typing import Any

import numba
import numpy as np
from numba.core import event

from ensemble._compile import passes

if sys.argv[1:2] == ["own"]:
    passes.TESTED = ()

from ensemble import Ensemble, fuse, gallery, linalg, ode
from ensemble._compile.kernel_cache import KernelCache
from ensemble._compile.numba import compiled_regions, compiled_serial, prange
from ensemble._compile.passes import KernelCompiler

SEED = 20731


class Recorded(event.Listener):
    """The functions that are compiled, in order."""

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, Any]] = []

    def on_start(self, event: Any) -> None:
        self.compiled.append((event.data["dispatcher"], event.data["args"]))

    def on_end(self, event: Any) -> None:
        pass


def factors() -> list[np.ndarray]:
    """An elimination and its values."""
    matrix = gallery.poisson((4, 5))
    return [linalg.Factorization(matrix).solve(matrix, np.arange(20.0))]


@fuse
def expression(x, y):
    return np.exp(-x * y) + np.where(x > y, x, np.sqrt(y))


def fused() -> list[np.ndarray]:
    x = np.random.default_rng(SEED).random((7, 11))
    return [expression(Ensemble(x), Ensemble(x[::-1].copy())).samples]


def decay(t, y, p, xp):
    return [-p[0] * y[0] + xp.sin(t)]


def initial_value_problem() -> list[np.ndarray]:
    return [ode.solve(decay, [1.0], (0.0, 1.0), p=[Ensemble(np.linspace(1, 2, 9))]).y.samples]


@compiled_regions
def two_regions(x, y):
    total = 0.0
    for i in prange(x.shape[0]):
        y[i] = np.sin(x[i]) + x[i] * 2
    for i in prange(x.shape[0]):
        total += y[i]
    return total


@compiled_serial
def checked(x, names):
    """Exceptions, allocation, slices, tuples, objects that are counted, and a closure."""
    if x.size == 0:
        raise ValueError("no entries")
    scaled = [2.0 * value for value in x if value > 0]
    for value in scaled:
        if value > 10:
            raise OverflowError("too large", value)
    low, high = min(scaled), max(scaled)

    def middle(a, b):
        return 0.5 * (a + b)

    copy = x[1:].copy()
    return middle(low, high), copy * low + np.sqrt(copy), len(names)


def regions() -> list[np.ndarray]:
    x = np.linspace(0.1, 1, 50)
    y = np.empty_like(x)
    return [np.array([two_regions(x, y)]), y]


def exceptions() -> list[np.ndarray]:
    raised = []
    for bad in (np.zeros(0), np.array([6.0])):
        try:
            checked(bad, ("a", "b"))
        except (ValueError, OverflowError) as error:
            raised.append(repr(error))
    middle, values, n = checked(np.linspace(0.5, 2, 9), ("a", "b"))
    assert raised == ["ValueError('no entries')", "OverflowError('too large', 12.0)"], raised
    return [np.array([middle, n]), values]


CASES = {
    "factors of a graph": factors,
    "fused expression": fused,
    "initial value problem": initial_value_problem,
    "parallel regions": regions,
    "exceptions": exceptions,
}


PASSING = re.compile(r" *; preds = .*| #\d+|!\d+|B\d+v\d+|0x[\da-f]+|\d{8,}")
"""Comments, numbers of attributes, of metadata and of functions, and addresses."""

VALUE = re.compile(r'%("[^"]*"|[\w.$-]+)|^("[^"]*"|[\w.$-]+):', re.MULTILINE)
"""A value or a block, and the start of a block."""


def numbered(text: str) -> str:
    """The function with values and blocks numbered as they come: their names are no part of the code."""
    numbers: dict[str, int] = {}
    return VALUE.sub(lambda name: f"%{numbers.setdefault(name[1] or name[2], len(numbers))}", text)


def functions_of(library: Any) -> dict[str, str]:
    """Digests of the functions that the optimised code has, the wrapper for Python apart, by their names."""
    found = {}
    for text in re.findall(r"^define .*?^}", str(library._final_module), re.MULTILINE | re.DOTALL):
        name = re.search(r'@("[^"]+"|[\w.$]+)\(', text)[1]
        if "cpython" not in name:
            found[PASSING.sub("", name)] = hashlib.sha256(numbered(PASSING.sub("", text)).encode()).hexdigest()
    return found


def main() -> None:
    """Print the digests of the cases."""
    warnings.simplefilter("error")
    KernelCache.load_overload = lambda *_: None
    KernelCache.save_overload = lambda *_: None
    made = {}
    for name in [word for word in sys.argv[1:] if word != "own"] or CASES:
        with event.install_listener("numba:compile", Recorded()) as recorded:
            results = CASES[name]()
        kernels = [(f, args) for f, args in recorded.compiled if args in f.overloads]
        made[name] = {
            "results": [hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest() for result in results],
            "code": [functions_of(f.overloads[args].library) for f, args in kernels],
            "by us": sum(f._compiler.pipeline_class is KernelCompiler for f, _ in kernels),
        }
    print(json.dumps({"version": numba.__version__, "cases": made}))


if __name__ == "__main__":
    main()
