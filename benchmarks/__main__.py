"""`python -m benchmarks NAME [--cells N] [--threads T]`: one table, peers in the same run, kept as JSON."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

import numba

MODULES = {
    "spmv": "bench_spmv", "assembly": "bench_fem", "multigrid": "bench_multigrid", "cost": "bench_cost",
    "fuse": "bench_fuse", "memory": "bench_cost", "iterations": "bench_multigrid", "affine": "bench_affine",
    "affine-variants": "bench_affine", "grouping": "bench_grouping", "gpu": "bench_gpu",
}  # fmt: skip
"""Where each table is made; imported when it is asked for."""


def run(name: str, cells: int, threads: int) -> None:
    """Print and keep one table."""
    module: Any = importlib.import_module(f"benchmarks.{MODULES[name]}")
    if name == "memory":
        module.memory(cells)
    elif name == "iterations":
        importlib.import_module("benchmarks.common").save("iterations", module.iterations())
    elif name == "affine-variants":
        module.variants(cells, threads)
    else:
        module.main(cells, threads)


def main() -> None:
    """Run the benchmark named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*MODULES, "all"])
    parser.add_argument("--cells", type=int, default=64, help="hexahedra along each edge (default 64)")
    parser.add_argument("--threads", type=int, default=numba.get_num_threads(), help="threads of our kernels")
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    for name in [n for n in MODULES if n != "gpu"] if options.name == "all" else [options.name]:
        run(name, options.cells, options.threads)


if __name__ == "__main__":
    main()
