"""Try every function of the lifted namespace on every array library and write down what works: `make support`.

A library that is not installed, or has no device here, keeps what an earlier run found; ``--only cupy`` tries one
library alone, ``--page`` none.

Writes ``ensemble/scalar/support.json``, which `ensemble.support` prints, and ``docs/reference/support.md``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

TABLE_PATH = ROOT / "ensemble" / "scalar" / "support.json"
PAGE_PATH = ROOT / "docs" / "reference" / "support.md"
DRAWS = ((41201, 1, ""), (50291, 3, ""), (81799, 3, "b"), (29401, 3, "a"), (13217, 5, ""))
NAMES = {"numpy": "numpy", "strict": "array_api_strict", "torch": "torch", "jax": "jax", "cupy": "cupy"}


def outcome(base, case, extension) -> str:
    """ "yes", "no" where the library itself has no such function, or "fails"."""
    from tests.scalar.law_cases import check_law

    try:
        for seed, n_samples, shared in DRAWS:
            check_law(base, case, extension, seed, n_samples, shared)
    except (AttributeError, NotImplementedError):
        return "no"
    except Exception as error:
        print(f"{base.__name__} {extension} {case.name}: {type(error).__name__} {str(error)[:200]}")
        return "fails"
    return "yes"


def tried(library: str) -> dict[str, str]:
    """For every function a word for one library; the worst of its cases counts."""
    from tests.scalar.law_cases import ALL_CASES
    from tests.scalar.libraries import double_precision

    worst = ("yes", "no", "fails")
    words: dict[str, str] = {}
    with double_precision(library) as base:
        for case, extension in (parameters.values for parameters in ALL_CASES):
            name = f"{extension}.{case.name}" if extension else case.name
            words[name] = max(words.get(name, "yes"), outcome(base, case, extension), key=worst.index)
    return words


def add_columns(table: dict, chosen: list[str]) -> None:
    """Try the `chosen` libraries and put what was found into `table`."""
    import pytest

    for library in chosen:
        try:
            words = tried(library)
        except pytest.skip.Exception as reason:
            print(f"{library}: kept as it was, {reason}")
            continue
        table["libraries"][NAMES[library]] = importlib.import_module(NAMES[library]).__version__
        for name, word in words.items():
            table["functions"].setdefault(name, {})[NAMES[library]] = word
        print(f"{library}: {', '.join(f'{n} {w}' for w, n in Counter(words.values()).items())}")
    table["functions"] = dict(sorted(table["functions"].items(), key=lambda item: ("." in item[0], item[0])))


def one_line_a_function(table: dict) -> str:
    """JSON that shows a change of one function as a change of one line."""
    functions = ",\n".join(f"  {json.dumps(name)}: {json.dumps(words)}" for name, words in table["functions"].items())
    rest = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items() if key != "functions"]
    rest.insert(1, f' "functions": {{\n{functions}\n }}')
    return "{\n" + ",\n".join(rest) + "\n}\n"


def page(table: dict, passes: dict) -> str:
    """The documentation page of both tables."""
    libraries = list(table["libraries"])
    versions = ", ".join(f"{name} {version}" for name, version in table["libraries"].items())
    lines = ["# What works on which array library", "", "Written by `make support`; do not edit.", ""]
    lines += [f"Tried with {versions}. `ensemble.support()` prints the first table.", ""]
    lines += ["## Functions of the Array API", ""]
    lines += ["*yes*: on samples that differ, each sample of the result was the result of that sample alone. *no*: the"]
    lines += ["library itself has no such function. On NumPy and array_api_strict, elementwise functions agree to the"]
    lines += ["bit; on PyTorch and JAX to round-off, as the ends of their vector loops round otherwise.", ""]
    lines += [f"| function | {' | '.join(libraries)} |", f"|---|{'---|' * len(libraries)}"]
    lines += [
        f"| `{name}` | {' | '.join(words[library] for library in libraries)} |"
        for name, words in table["functions"].items()
    ]
    lines += ["", "## NumPy's own functions", ""]
    lines += [
        "`np.f(x)` of a function in the Array API takes its lifted form. These see all samples at once "
        "where a rule covers the call, else each sample by itself:"
    ]
    lines += ["", " ".join(f"`{name}`" for name in table["each_sample"]), ""]
    lines += [
        "Ufuncs: a call, `reduce`, `accumulate`, `reduceat`, `outer`, `at`, with `where=` and `out=` (an Ensemble)."
    ]
    lines += ["Everything else raises and says what to write instead.", ""]
    lines += ["## Special functions", ""]
    lines += [
        "`xp.special.f(x)`: the elementwise functions of `scipy.special`, as far as the library has them (NumPy all"
    ]
    lines += [
        "of them; JAX, PyTorch and CuPy their own). SciPy uses them where `SCIPY_ARRAY_API=1`: `scipy.special.erf(x)`,"
    ]
    lines += ["`scipy.stats.ttest_1samp(x, 0.0)` run on all samples at once.", ""]
    lines += ["## PyTorch's own functions", ""]
    lines += [" ".join(f"`{name}`" for name in table["torch"]), ""]
    lines += ["## data-apis/array-api-tests", ""]
    lines += [
        "Tests of the public suite, by `make conformance`. *base* is the bare library; the modes are explained in"
    ]
    lines += ["`tests/conformance/subject.py`. *as base*: known failures of the bare library, listed with reasons in"]
    lines += [
        "`tests/conformance/xfails_*.txt`; *failed*: anything else; *examples*: what `--max-examples` was. The version"
    ]
    lines += ["of the standard is 2025.12 where the mode does not say another.", ""]
    lines += ["| library | mode | examples | passed | failed | as base | skipped |", "|---|---|---|---|---|---|---|"]
    for library, modes in passes.items():
        for mode, row in modes.items():
            counts = " | ".join(str(row[key]) for key in ("examples", "passed", "failed", "inherited", "skipped"))
            lines.append(f"| {library} | {mode} | {counts} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both files."""
    warnings.simplefilter("ignore")
    from ensemble.scalar.interop.numpy_functions import EACH_SAMPLE
    from ensemble.scalar.interop.torch import ELEMENTWISE, FFT, LINALG, SPECIAL

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=NAMES, help="try this library alone")
    parser.add_argument("--page", action="store_true", help="try none: write the page anew")
    chosen = parser.parse_args()
    table = json.loads(TABLE_PATH.read_text())
    if not chosen.page:
        add_columns(table, [chosen.only] if chosen.only else list(NAMES))
        table["each_sample"] = sorted(EACH_SAMPLE)
        extensions = {f"linalg.{name}" for name in LINALG} | {f"fft.{name}" for name in FFT}
        named = {name for name in SPECIAL if not name.startswith(("_", "linalg_"))}
        table["torch"] = sorted(ELEMENTWISE | named | extensions)
    TABLE_PATH.write_text(one_line_a_function(table))
    passes_path = HERE / "passes.json"
    passes = json.loads(passes_path.read_text()) if passes_path.exists() else {}
    PAGE_PATH.parent.mkdir(parents=True, exist_ok=True)
    PAGE_PATH.write_text(page(table, passes))


if __name__ == "__main__":
    main()
