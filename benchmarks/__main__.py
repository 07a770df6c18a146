"""`python -m benchmarks NAME [--cells N] [--threads T]`: one table, peers in the same run, kept as JSON."""

from __future__ import annotations

import argparse

import numba

from benchmarks import (
    bench_affine,
    bench_cost,
    bench_fem,
    bench_fuse,
    bench_gpu,
    bench_grouping,
    bench_multigrid,
    bench_spmv,
)
from benchmarks.common import save

TABLES = {
    "spmv": bench_spmv.main,
    "assembly": bench_fem.main,
    "multigrid": bench_multigrid.main,
    "affine": bench_affine.main,
    "affine-variants": bench_affine.variants,
    "cost": bench_cost.main,
    "fuse": bench_fuse.main,
    "gpu": bench_gpu.main,
    "grouping": bench_grouping.main,
    "memory": lambda cells, threads: bench_cost.memory(cells),
    "iterations": lambda cells, threads: save("iterations", bench_multigrid.iterations()),
}


def main() -> None:
    """Run the benchmark named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*TABLES, "all"])
    parser.add_argument("--cells", type=int, default=64, help="hexahedra along each edge (default 64)")
    parser.add_argument("--threads", type=int, default=numba.get_num_threads(), help="threads of our kernels")
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    for name in [n for n in TABLES if n != "gpu"] if options.name == "all" else [options.name]:
        TABLES[name](options.cells, options.threads)


if __name__ == "__main__":
    main()
