"""A fused expression against NumPy, numexpr and JAX's jit, and against the memory bandwidth of the same run."""

from __future__ import annotations

import importlib
import timeit
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, ratio, save, show
from ensemble._backend import asarray_like
from ensemble._compile.lanes.types import load, store, stream
from ensemble._compile.numba import compiled, empty, prange
from ensemble.scalar import Ensemble, fuse

SHAPE = (1_000_000, 32)
ROUNDS, MEMORY_ROUNDS = 3, 15


def twelve(x: Any, y: Any, k: float, xp: Any) -> Any:
    """Twelve operations: four products, five sums, a quotient, a comparison and a choice."""
    d = x - y
    smooth = x * x + y * y
    ahead = smooth - k * d
    return xp.where(d > 0.0, ahead / (1.0 + smooth), ahead + y)


def with_functions(x: Any, y: Any, k: float, xp: Any) -> Any:
    """Twelve operations, of which three are functions of the mathematical library."""
    d = x - y
    wave = xp.sin(k * d) + xp.exp(-d * d)
    return xp.where(d > 0.0, wave / (1.0 + x * x), xp.log(1.0 + y * y))


EXPRESSIONS = {"arithmetic": twelve, "sin, exp, log": with_functions}


class Fuse(EnsembleBenchmark):
    """Fused calls on 10,000 numbers per sample."""

    params = (*EnsembleBenchmark.params, list(EXPRESSIONS))
    param_names = (*EnsembleBenchmark.param_names, "expression")

    def setup(self, backend: str, n_samples: int, expression: str) -> None:
        super().setup(backend, n_samples)
        numbers = np.random.default_rng(SEED).standard_normal((2, 10_000, n_samples))
        self.x, self.y = (Ensemble(asarray_like(part, self.reference_array)) for part in numbers)
        self.fused = fuse(EXPRESSIONS[expression])
        self.time_call(backend, n_samples, expression)

    def time_call(self, backend: str, n_samples: int, expression: str) -> None:
        self.fused(self.x, self.y, 0.3)
        self.wait()


NUMEXPR = {
    "arithmetic": "where(x - y > 0.0, (x * x + y * y - k * (x - y)) / (1.0 + (x * x + y * y)),"
    " x * x + y * y - k * (x - y) + y)",
    "sin, exp, log": "where(x - y > 0.0, (sin(k * (x - y)) + exp(-(x - y) * (x - y))) / (1.0 + x * x),"
    " log(1.0 + y * y))",
}


@compiled
def _add(x, y, out):
    """Read two arrays, write one: the bandwidth that an expression of two operands can reach."""
    block = 1 << 14
    for b in prange(x.size // block):
        for i in range(b * block, (b + 1) * block, 8):
            store(out, i, load(x, i, 8) + load(y, i, 8))


@compiled
def _add_streaming(x, y, out):
    """The same, written past the caches."""
    block = 1 << 14
    for b in prange(x.size // block):
        for i in range(b * block, (b + 1) * block, 8):
            stream(out, i, load(x, i, 8) + load(y, i, 8))


def _peer(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def peers(name: str, x: np.ndarray, y: np.ndarray, k: float, threads: int) -> dict[str, Callable[[], Any]]:
    """The same expression in the libraries that are installed."""
    functions: dict[str, Callable[[], Any]] = {}
    numexpr = _peer("numexpr")
    if numexpr is not None:
        numexpr.set_num_threads(threads)
        names, room, text = {"x": x, "y": y, "k": k}, np.empty_like(x), NUMEXPR[name]
        functions["numexpr, out="] = lambda: numexpr.evaluate(text, local_dict=names, out=room)
    jax = _peer("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
        jitted = jax.jit(lambda x, y, k: EXPRESSIONS[name](x, y, k, jax.numpy))
        jx, jy = jax.numpy.asarray(x), jax.numpy.asarray(y)
        functions["jax.jit"] = lambda: jitted(jx, jy, k).block_until_ready()
    return functions


def table(shape: tuple[int, int] = SHAPE) -> list[dict[str, Any]]:
    """Milliseconds of each way to evaluate each expression, in turn, medians.

    Ours and the memory come first, many short rounds of them, then the peers with ours among them: their long passes
    over fresh memory, and their threads, would disturb what is measured next to them.
    """
    rng = np.random.default_rng(20731)
    x, y, out = (empty(shape, np.float64) for _ in range(3))
    x[...], y[...] = rng.normal(size=shape), rng.normal(size=shape)
    X, Y, OUT, k = Ensemble(x), Ensemble(y), Ensemble(out), 0.75
    moved = float(x.nbytes + y.nbytes + out.nbytes)
    flat = [a.reshape(-1) for a in (x, y, out)]  # the very memory that fuse works on
    fused = {name: fuse(function) for name, function in EXPRESSIONS.items()}
    memory: dict[str, Callable[[], Any]] = {
        "x + y, out=": lambda: _add(*flat),
        "x + y, streamed": lambda: _add_streaming(*flat),
        **{f"fuse, out=: {name}": lambda f=f: f(X, Y, k, out=OUT) for name, f in fused.items()},
        **{f"fuse: {name}": lambda f=f: f(X, Y, k) for name, f in fused.items()},
    }
    seconds = interleaved(memory, MEMORY_ROUNDS)
    bound = [min(pair) for pair in zip(seconds["x + y, out="], seconds["x + y, streamed"], strict=True)]
    rows = [_row(way, times, moved, bound) for way, times in seconds.items()]
    for name, function in EXPRESSIONS.items():
        ways: dict[str, Callable[[], Any]] = {
            "numpy": lambda f=function: f(x, y, k, np),
            **peers(name, x, y, k, numba.get_num_threads()),
            "settle": lambda: _add(*flat),  # a peer's threads may still spin: what follows them is not counted
            "fuse": lambda f=fused[name]: f(X, Y, k, out=OUT),
        }
        seconds = interleaved(ways, ROUNDS)
        for way, times in seconds.items():
            if way not in ("settle", "fuse"):
                rows.append({**_row(f"{way}: {name}", times, moved, None), "x fuse": ratio(times, seconds["fuse"])})
    show(f"Twelve operations on {shape[0]} x {shape[1]} float64", rows)
    return rows


def _row(way: str, times: list[float], moved: float, bound: list[float] | None) -> dict[str, Any]:
    """One line: `bound` are the seconds that the same traffic took in the same rounds."""
    row = {"way": way, "ms": 1e3 * median(times), "GB/s": moved / median(times) / 1e9}
    return {**row, "% of read+write": "" if bound is None else 100 * ratio(bound, times), "x fuse": ""}


def layouts(rounds: int = MEMORY_ROUNDS) -> list[dict[str, Any]]:
    """What broadcasting costs: one operand is shared by the samples, or the same for every row."""
    rng = np.random.default_rng(83161)
    rows: list[dict[str, Any]] = []
    for n_samples in (8, 32):
        n = SHAPE[0] * SHAPE[1] // n_samples
        x, out = Ensemble(rng.normal(size=(n, n_samples))), Ensemble(empty((n, n_samples), np.float64))
        others = {
            "full": Ensemble(rng.normal(size=(n, n_samples))),
            "shared": Ensemble(rng.normal(size=(n, 1))),
            "one a sample": Ensemble(rng.normal(size=n_samples)),
        }
        fused = fuse(twelve)
        ways = {name: lambda y=y, f=fused, x=x, out=out: f(x, y, 0.75, out=out) for name, y in others.items()}
        for name, times in interleaved(ways, rounds).items():
            moved = 2 * x.samples.nbytes + others[name].samples.nbytes
            rows.append({"n_samples": n_samples, "second operand": name, "ms": 1e3 * median(times),
                         "GB/s": moved / median(times) / 1e9})  # fmt: skip
    show("Broadcast operands, twelve operations, out=", rows)
    return rows


def overhead() -> list[dict[str, Any]]:
    """Microseconds of a call on 10 x 8 values."""
    rng = np.random.default_rng(5113)
    x, y = (Ensemble(rng.normal(size=(10, 8))) for _ in range(2))
    fused = fuse(twelve)
    ways: dict[str, Callable[[], Any]] = {
        "fuse": lambda: fused(x, y, 0.75),
        "ensembles": lambda: twelve(x, y, 0.75, x.__array_namespace__()),
        "numpy": lambda: twelve(x.samples, y.samples, 0.75, np),
    }
    for way in ways.values():
        way()
    rows = [{"way": way, "us": 1e6 * min(timeit.repeat(f, number=2000, repeat=9)) / 2000} for way, f in ways.items()]
    show("Twelve operations on 10 x 8 float64", rows)
    return rows


def main(cells: int, threads: int) -> None:
    """Print and keep the tables; the size is fixed."""
    save(f"fuse-{threads}threads", table(), layouts=layouts(), overhead=overhead())
