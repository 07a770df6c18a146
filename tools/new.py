"""Make the files of a new method from those of a model: `python -m tools.new KIND NAME`.

    python -m tools.new krylov richardson           # from conjugate gradients in their shortest form
    python -m tools.new ode bosh3                   # from tsit5
    python -m tools.new sampler lattice             # from monte_carlo
    python -m tools.new kernel halved --folder dense

What is made works at once, as the model does under another name, is registered where its kind is, and has a test that
passes. docs/howto/add.md says what to change then. Nothing is made where one of the files exists.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class Entry:
    """A line in a list of lines that begin alike, such as imports or names in `__all__`: it is put in its order."""

    file: str
    line: str
    alike: str
    """A regular expression: the first run of lines of which each matches is the list."""
    last: bool = False
    """Whether it comes last, for lists in another order than that of the alphabet."""


@dataclass(frozen=True)
class Kind:
    """What is made for one kind of method; `{name}`, `{Name}`, `{NAME}` and `{folder}` stand for what is given."""

    files: dict[str, str]
    """Made files, and the file that is the model of each."""
    words: dict[str, str]
    """Regular expressions in the models, and what they become."""
    entries: tuple[Entry, ...] = field(default=())
    next: str = ""
    """What is to be done by hand."""


KINDS = {
    "krylov": Kind(
        {
            "ensemble/krylov/{name}.py": "tools/models/krylov.txt",
            "ensemble/krylov/host_scalars/{name}.py": "tools/models/krylov_scalars.txt",
            "tests/krylov/test_{name}.py": "tools/models/krylov_test.txt",
        },
        {},
        (
            Entry("ensemble/krylov/__init__.py", "from ensemble.krylov.{name} import {name}",
                  r"from ensemble\.krylov\."),
            Entry("ensemble/krylov/__init__.py", '    "{name}",', r'    "[a-z]\w*",'),
        ),
        "Write the iteration and its scalars.",
    ),
    "ode": Kind(
        {
            "ensemble/ode/methods/{name}.py": "ensemble/ode/methods/tsit5.py",
            "tests/ode/test_{name}.py": "tools/models/ode_test.txt",
        },
        {r"TSIT5": "{NAME}", r"tsit5": "{name}"},
        (
            Entry("ensemble/ode/methods/__init__.py", "from ensemble.ode.methods.{name} import {NAME}",
                  r"from ensemble\.ode\.methods\."),
            Entry("ensemble/ode/methods/__init__.py", "    {NAME},", r"    [A-Z]\w*,|    taylor_method", True),
        ),
        "Write the numbers of the pair, and its orders, in the file and in its test.",
    ),
    "sampler": Kind(
        {
            "ensemble/uq/samplers/{name}.py": "ensemble/uq/samplers/monte_carlo.py",
            "tests/uq/samplers/test_{name}.py": "tools/models/sampler_test.txt",
        },
        {r"MonteCarlo": "{Name}", r"monte_carlo": "{name}"},
        (
            Entry("ensemble/uq/samplers/choice.py", "from ensemble.uq.samplers.{name} import {Name}",
                  r"from ensemble\.uq\.samplers\."),
            Entry("ensemble/uq/samplers/choice.py", "    {Name},", r"    [A-Z]\w*,", True),
            Entry("ensemble/_command/parsers.py", '    "{name}",', r'    "[a-z]\w*",', True),
            Entry("ensemble/uq/__init__.py", "from ensemble.uq.samplers.{name} import {Name}",
                  r"from ensemble\.uq\.samplers\."),
            Entry("ensemble/uq/__init__.py", '    "{Name}",', r'    "[A-Z]\w*",'),
        ),
        "Write `points`; a sequence of low discrepancy derives from `QuasiRandom` and writes `_scramble`.",
    ),
    "kernel": Kind(
        {
            "ensemble/_kernels/{folder}/{name}.py": "tools/models/kernel.txt",
            "tests/test_{name}.py": "tools/models/kernel_test.txt",
        },
        {},
        (
            Entry("tests/cases.py",
                  '    "{name}": lambda seed: vector_cases("{name}", seed, lambda rng, n, s, dtype: (\n'
                  "        (coefficients(rng, s, dtype), numbers(rng, (n, s), dtype), None), ())),",
                  r'    "minres_update": '),
            Entry("ensemble/_kernels/all_kernels.py",
                  "from ensemble._kernels.{folder}.{name} import {name}  # noqa: F401", r"from ensemble\._kernels\."),
        ),
        "Write the reference first, then the loop; a CUDA kernel registers beside it.",
    ),
}  # fmt: skip


def made_files(kind: Kind, given: dict[str, str], root: Path) -> dict[Path, str]:
    """Return the texts of the made files by their paths."""
    texts = {}
    for path, model in kind.files.items():
        text = (root / model).read_text()
        for word, new in kind.words.items():
            text = re.sub(word, filled(new, given), text)
        texts[root / filled(path, given)] = filled(text, given) if model.endswith(".txt") else text
    return texts


def filled(text: str, given: dict[str, str]) -> str:
    """Put what is given into its places in a text."""
    for name, value in given.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def with_entry(text: str, line: str, alike: str, at_end: bool = False) -> str:
    """Put a line into the first list of lines that match `alike`: in its order, or last."""
    lines = text.splitlines()
    first = next(k for k, each in enumerate(lines) if re.match(alike, each))
    last = first
    while last < len(lines) and re.match(alike, lines[last]):
        last += 1
    place = last if at_end else next((k for k in range(first, last) if lines[k] > line), last)
    return "\n".join([*lines[:place], line, *lines[place:]]) + "\n"


def make(kind_name: str, name: str, folder: str = "dense", root: Path = ROOT) -> list[Path]:
    """Write the files of a new method, and its entries in the lists of its kind; returns their paths.

    Raises
    ------
    ValueError
        If the name is no lower-case name, or one of the files exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"new: NAME must be a lower-case name of Python; got {name!r}. Write words with underscores.")
    kind = KINDS[kind_name]
    capital = "".join(part.capitalize() for part in name.split("_"))
    given = {"name": name, "Name": capital, "NAME": name.upper(), "folder": folder}
    texts = made_files(kind, given, root)
    there = [str(path.relative_to(root)) for path in texts if path.exists()]
    if there:
        raise ValueError(f"new: NAME must be that of no file; got {', '.join(there)}. Choose another name.")
    changed = {}
    for entry in kind.entries:
        path = root / entry.file
        changed[path] = with_entry(
            changed.get(path) or path.read_text(), filled(entry.line, given), filled(entry.alike, given), entry.last
        )
    for path, text in {**texts, **changed}.items():
        path.write_text(text)
    return [*texts, *changed]


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.new", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("name", help="in lower case, words with underscores")
    parser.add_argument("--folder", default="dense", help="of a kernel, in ensemble/_kernels (default: dense)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to write to (default: this one)")
    given = parser.parse_args(arguments)
    try:
        paths = make(given.kind, given.name, given.folder, given.root)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for path in paths:
        print(path.relative_to(given.root))
    print(KINDS[given.kind].next, "See docs/howto/add.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
