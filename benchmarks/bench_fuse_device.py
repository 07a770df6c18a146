"""Fused functions on a CUDA device: checked against NumPy, and timed against a triad.

Needs CuPy and a device. Prints what differs (nothing, it should be), then a table, kept as ``results/fuse-cuda.json``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.bench_diffusion_device import milliseconds
from benchmarks.bench_fuse import SHAPE, twelve, with_functions
from benchmarks.common import save, show
from ensemble.scalar import Ensemble, fuse

try:
    import cupy
except ImportError:  # the module can be read without a device, as asv does
    cupy = None

TRIAD = """
extern "C" __global__ void triad(const double2* x, const double2* y, double2* out, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = make_double2(x[i].x + 0.75 * y[i].x, x[i].y + 0.75 * y[i].y);
}"""

LAYOUTS = {
    "full": ((1000, 32), (1000, 32)), "shared": ((1000, 32), (1000, 1)), "one a sample": ((1000, 32), (32,)),
    "odd": ((999, 7), (999, 7)), "three axes": ((20, 30, 8), (30, 8)), "one": ((1, 1), (1, 1)),
}  # fmt: skip


def checks() -> list[dict[str, Any]]:
    """The largest relative difference from NumPy, by expression, layout and dtype."""
    rng = np.random.default_rng(20731)
    rows = []
    for expression in (twelve, with_functions):
        fused = fuse(expression)
        for name, shapes in LAYOUTS.items():
            for dtype in (np.float64, np.float32):
                x, y = (rng.normal(size=shape).astype(dtype) for shape in shapes)
                got = cupy.asnumpy(fused(*(Ensemble(cupy.asarray(a)) for a in (x, y)), 0.75).samples)
                expected = expression(x, y, 0.75, np)
                differs = (got != expected) & ~(np.isnan(got) & np.isnan(expected))
                far = np.max(np.abs(got / expected - 1.0), where=differs, initial=0.0) / np.finfo(dtype).eps
                allowed = 0.0 if expression is twelve else 16.0
                verdict = "right" if far <= allowed and got.dtype == expected.dtype else "WRONG"
                rows.append({"expression": expression.__name__, "layout": name, "dtype": np.dtype(dtype).name,
                             "eps": float(far), "verdict": verdict})  # fmt: skip
    rows += whole_numbers(rng)
    show("Fused on the device against NumPy", rows)
    return rows


def whole_numbers(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Integers, masks and several results, in place too."""

    @fuse
    def mixed(i, j, mask, xp):
        return {"quotient": i // j, "rest": i % j, "chosen": xp.where(mask, i, j) * 3, "more": (i > j) & mask}

    i, j = rng.integers(-9, 9, (2, 101, 6)).astype(np.int32)
    mask = rng.random((101, 1)) < 0.5
    got = mixed(*(Ensemble(cupy.asarray(a)) for a in (i, j, mask)))
    with np.errstate(all="ignore"):
        expected = mixed.original(i, j, mask, np)
    x = cupy.asarray(rng.normal(size=5001))
    moved = x[:-1] * x[:-1] - 1.0
    fuse(lambda a, b: a * b - 1.0)(x[:-1], x[:-1], out=x[1:])
    same = {name: bool(np.array_equal(cupy.asnumpy(got[name].samples), expected[name])) for name in expected}
    same["shifted in place"] = bool((x[1:] == moved).all())
    return [{"expression": name, "layout": "", "dtype": "", "eps": 0.0, "verdict": "right" if ok else "WRONG"}
            for name, ok in same.items()]  # fmt: skip


def timings() -> list[dict[str, Any]]:
    """Each way to evaluate twelve operations, as a fraction of the triad's bandwidth in the same run."""
    rng = cupy.random.default_rng(83161)
    x, y = (rng.standard_normal(SHAPE) for _ in range(2))
    out = cupy.empty_like(x)
    triad = cupy.RawModule(code=TRIAD).get_function("triad")
    n = np.int64(x.size // 2)
    peak = 3 * x.nbytes / milliseconds(lambda: triad((int(-(-n // 256)),), (256,), (x, y, out, n)))
    rows = [{"way": "triad", "ms": 3e-6 * x.nbytes / (peak * 1e-6), "GB/s": peak / 1e6, "% of triad": 100.0}]
    shared, narrow = rng.standard_normal((SHAPE[0], 1)), [a.astype(np.float32) for a in (x, y)]
    cases = {
        "fuse, 12 operations": (twelve, x, y), "fuse, sin, exp, log": (with_functions, x, y),
        "fuse, shared operand": (twelve, x, shared), "fuse, float32": (twelve, *narrow),
    }  # fmt: skip
    for name, (expression, a, b) in cases.items():
        fused, target = fuse(expression), Ensemble(cupy.empty_like(a))
        A, B = Ensemble(a), Ensemble(b)
        ms = milliseconds(lambda f=fused, A=A, B=B, target=target: f(A, B, 0.75, out=target))
        rows.append(_row(name, ms, 2 * a.nbytes + b.nbytes, peak))
    for name, expression in (("CuPy, 12 operations", twelve), ("CuPy, sin, exp, log", with_functions)):
        ms = milliseconds(lambda f=expression: f(x, y, 0.75, cupy), repeats=5)
        rows.append(_row(name, ms, 3 * x.nbytes, peak))
    tiny = Ensemble(cupy.zeros((10, 8)))
    fused = fuse(twelve)
    rows.append(_row("fuse, 10 x 8", milliseconds(lambda: fused(tiny, tiny, 0.75)), 3 * 640, peak))
    show(f"Twelve operations on {SHAPE[0]} x {SHAPE[1]} on the device", rows)
    return rows


def _row(way: str, ms: float, moved: float, peak: float) -> dict[str, Any]:
    return {"way": way, "ms": ms, "GB/s": moved / ms / 1e6, "% of triad": 100 * moved / ms / peak}


def main() -> None:
    """Check, then time; keep both."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    compared = checks()
    save("fuse-cuda", timings(), device=device, cupy=cupy.__version__, checks=compared)
    wrong = [row for row in compared if row["verdict"] != "right"]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(compared)} checks failed")
    print(f"\n{device}: all {len(compared)} checks passed")
