"""`python -m benchmarks NAME [options]`: one table, peers in the same run, kept as JSON in ``benchmarks/results``.

NAME stands for ``bench_NAME.py``, or for a figure of ``plots/``; ``NAME --help`` lists the options.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
import textwrap
from pathlib import Path

FOLDER = Path(__file__).parent

FURTHER = {
    "affine-variants": ("bench_affine", "variants"),
    "forms-samples": ("bench_forms", "samples"),
    "iterations": ("bench_multigrid", "iterations"),
    "memory": ("bench_cost", "memory"),
    "spmv-orders": ("bench_spmv", "orders_main"),
    "spmv-small": ("bench_spmv", "small_main"),
}
"""Further tables of a module: its stem and the function."""


def programs() -> dict[str, tuple[str, str]]:
    """For each name the module below this package and the function that runs it."""
    found = {path.stem[6:].replace("_", "-"): (path.stem, "main") for path in FOLDER.glob("bench_*.py")}
    plots = (path.stem for path in (FOLDER / "plots").glob("[!_]*.py"))
    found |= {f"plots-{stem.replace('_', '-')}": (f"plots.{stem}", "main") for stem in plots}
    return dict(sorted({**found, **FURTHER}.items()))


def definition(name: str) -> tuple[ast.Module, ast.FunctionDef]:
    """The syntax trees of a program's module and function, read without importing it."""
    module, function = programs()[name]
    tree = ast.parse((FOLDER / f"{module.replace('.', '/')}.py").read_text())
    return tree, next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)


def has_table_options(name: str) -> bool:
    """Whether the function takes `cells` and `threads`; other functions parse the command line themselves."""
    return [argument.arg for argument in definition(name)[1].args.args] == ["cells", "threads"]


def purpose(name: str) -> str:
    """The first sentence about a program: of its module, or of a further table's function."""
    text = ast.get_docstring(definition(name)[name in FURTHER]) or ""
    return " ".join(text.partition("\n\n")[0].split())


def table_parser(name: str) -> argparse.ArgumentParser:
    """The options of tables that have no parser of their own."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=purpose(name))
    parser.add_argument("--cells", type=int, default=64, help="hexahedra along each edge (default 64)")
    parser.add_argument("--threads", type=int, help="threads of our kernels (default: all cores)")
    return parser


def main_parser() -> argparse.ArgumentParser:
    """What may follow ``python -m benchmarks``, and the list of names."""
    lines = []
    for name in programs():
        lines += textwrap.wrap(purpose(name), 116, initial_indent=f"  {name:24}", subsequent_indent=26 * " ")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(["names:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*programs(), "all"]
    parser.add_argument("name", choices=names, metavar="NAME", help="all: tables of --cells and --threads on the CPU")
    return parser


def run(name: str, words: list[str]) -> None:
    """Run one program with the options `words`."""
    module, function = programs()[name]
    if has_table_options(name):
        options = table_parser(name).parse_args(words)
        import numba

        numba.set_num_threads(options.threads or numba.get_num_threads())
        getattr(importlib.import_module(f"benchmarks.{module}"), function)(options.cells, numba.get_num_threads())
    else:
        sys.argv = [f"python -m benchmarks {name}", *words]
        getattr(importlib.import_module(f"benchmarks.{module}"), function)()


def main(argv: list[str]) -> None:
    """Run the benchmark named, or all of them."""
    name = main_parser().parse_args(argv[:1]).name
    on_cpu = [n for n in programs() if has_table_options(n) and not n.endswith("-device")]
    for each in on_cpu if name == "all" else [name]:
        run(each, argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
