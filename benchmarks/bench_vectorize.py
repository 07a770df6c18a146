"""`vectorize`: cheap models of plain numbers in a study, against a plain loop over the same samples."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import stats

import ensemble as en
from benchmarks.common import SEED, interleaved, median, ratio, save, show

N = 2**15
ROUNDS = 7


def ishigami(x0: float, x1: float, x2: float) -> float:
    """Three functions of the mathematical library."""
    return math.sin(x0) + 7.0 * math.sin(x1) ** 2 + 0.1 * x2**4


def of_sample(s: Any) -> dict[str, Any]:
    """Two outputs, one a list."""
    return {"y": ishigami(s.x0, s.x1, s.x2), "z": [1.0, 2.0, 3.0]}


def table(n: int) -> list[dict[str, Any]]:
    """Microseconds of processor time a sample; the draw of the inputs counts on both sides."""
    inputs = en.Inputs(**{f"x{i}": stats.uniform() for i in range(3)})

    def loop() -> Any:
        x = inputs.samples(n, seed=SEED)
        columns = [x[name].samples.tolist() for name in x.names]
        return np.array([ishigami(*row) for row in zip(*columns, strict=True)])

    def loop_of_samples() -> Any:
        x = inputs.samples(n, seed=SEED)
        columns = [x[name].samples.tolist() for name in x.names]
        rows = [of_sample(SimpleNamespace(x0=a, x1=b, x2=c)) for a, b, c in zip(*columns, strict=True)]
        return {name: np.array([row[name] for row in rows]) for name in ("y", "z")}

    def study(model: Any) -> Callable[[], Any]:
        return lambda: en.propagate(model, inputs, n, seed=SEED, progress=False)

    ways: dict[str, Callable[[], Any]] = {
        "loop": loop,
        "vectorize, keywords": study(en.vectorize(ishigami, keywords=True)),
        "loop, a dict of outputs": loop_of_samples,
        "vectorize, a dict of outputs": study(en.vectorize(of_sample)),
    }
    found = interleaved(ways, ROUNDS, time.process_time)
    rows = [
        {
            "way": way,
            "us a sample": 1e6 * median(seconds) / n,
            "x loop": ratio(found["loop, a dict of outputs" if "dict" in way else "loop"], seconds),
        }
        for way, seconds in found.items()
    ]
    show(f"vectorize, {n} samples, processor time", rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks vectorize", description=__doc__)
    parser.add_argument("--n", type=int, default=N, help="samples (default 32768)")
    parser.add_argument("--no-save", action="store_true", help="keep no record")
    options = parser.parse_args()
    rows = table(options.n)
    if not options.no_save:
        save("vectorize", rows, n=options.n)


if __name__ == "__main__":
    main()
