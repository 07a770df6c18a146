"""`python -m benchmarks NAME [--cells N] [--threads T]`: one table, peers in the same run, kept as JSON."""

from __future__ import annotations

import argparse
import ast
import importlib
import textwrap
from pathlib import Path
from typing import Any

import numba

MODULES = {
    "spmv": "bench_spmv", "assembly": "bench_fem", "multigrid": "bench_multigrid", "cost": "bench_cost",
    "fuse": "bench_fuse", "memory": "bench_cost", "iterations": "bench_multigrid", "affine": "bench_affine",
    "affine-variants": "bench_affine", "grouping": "bench_grouping", "gpu": "bench_gpu",
    "convection": "bench_convection", "run": "bench_run",
}  # fmt: skip
"""Where each table is made; imported when it is asked for."""


PURPOSES = {
    "memory": "Peak memory of a solve of 32 samples, in a process of its own.",
    "iterations": "CG iterations to 1e-7 on three sizes of mesh, even and graded, for 1 and 8 samples.",
    "affine-variants": "Solves by affine operators with every kind of hierarchy.",
}
"""Of tables that share a module with another one, whose docstring speaks of that."""


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


def purpose(module: str) -> str:
    """The first sentence of a module's docstring, read without importing it."""
    text = ast.get_docstring(ast.parse((Path(__file__).parent / f"{module}.py").read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def programs() -> list[str]:
    """The modules beside this one that are commands of their own."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [file.stem for file in files if file.stem != "__main__" and '__name__ == "__main__"' in file.read_text()]


def listing() -> str:
    """Every table and every program, with what it is for."""
    rows = [(name, PURPOSES.get(name) or purpose(module)) for name, module in MODULES.items()]
    own = [(f"python -m benchmarks.{name}", purpose(name)) for name in programs()]
    lines = ["tables:"]
    for name, text in rows:
        lines += textwrap.wrap(text, 100, initial_indent=f"  {name:16}", subsequent_indent=18 * " ")
    lines += ["", "commands of their own, whose files say what they take:"]
    for name, text in own:
        lines += [f"  {name}", *textwrap.wrap(text, 100, initial_indent=18 * " ", subsequent_indent=18 * " ")]
    return "\n".join(lines)


def parser_of_arguments() -> argparse.ArgumentParser:
    """What may follow ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=[*MODULES, "all"], metavar="NAME", help="a table below, or all but gpu's")
    parser.add_argument("--cells", type=int, default=64, help="hexahedra along each edge (default 64)")
    parser.add_argument("--threads", type=int, default=numba.get_num_threads(), help="threads of our kernels")
    return parser


def main() -> None:
    """Run the benchmark named, or all of them."""
    options = parser_of_arguments().parse_args()
    numba.set_num_threads(options.threads)
    for name in [n for n in MODULES if n != "gpu"] if options.name == "all" else [options.name]:
        run(name, options.cells, options.threads)


if __name__ == "__main__":
    main()
