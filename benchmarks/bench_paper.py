"""Every table and figure of a paper: published numbers, ours, the ratio, and what differs in the set-up.

``python -m benchmarks paper 000|001|002|003|004 [--backend cupy] [--from-records] [--page]``: the benchmarks behind our
numbers run first, each as a process of its own that writes its record into a folder of this call (``--results``); with
``--from-records`` nothing runs. Numbers of a device come from the stored records unless ``--backend cupy`` is given.
``--page`` writes ``docs/papers/NNN.md`` instead of printing; ``paper all --from-records --page`` all of them and the
list of papers.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.papers import Paper, Record, Stored
from benchmarks.papers.page import PAGES, markdown, printed, write_index

MODULES = {"000": "gbees", "001": "analyses", "002": "kalman", "003": "atmosphere", "004": "ensembles"}


def module(number: str) -> Any:
    """What holds the tables of a paper."""
    return importlib.import_module(f"benchmarks.papers.{MODULES[number]}")


def make(records: tuple[Record, ...], device: bool, folder: Path) -> None:
    """Run the benchmarks of `records`, each once, those of a device if there is one."""
    given = {record.words: record for record in records if device or not record.device}
    for record in given.values():
        print(f"python -m benchmarks {' '.join(record.words)}", flush=True)
        environment = {**os.environ, "ENSEMBLE_BENCHMARK_RESULTS": str(folder)}
        done = subprocess.run([sys.executable, "-m", "benchmarks", *record.words], env=environment, check=False)
        if done.returncode:
            print(f"it ended with {done.returncode}: the stored record {record.name} stands", flush=True)


def page_of(number: str, stored: Stored) -> Paper:
    """The tables of a paper beside records."""
    made: Paper = module(number).paper(stored)
    return made


def write(number: str, stored: Stored) -> None:
    """The page of a paper, and the list of all."""
    PAGES.mkdir(exist_ok=True)
    (PAGES / f"{number}.md").write_text(markdown(page_of(number, stored), stored))
    papers = {n: page_of(n, stored) for n in MODULES}
    (PAGES / "index.md").write_text(write_index({n: (paper.title, paper.citation) for n, paper in papers.items()}))


def main() -> None:
    """Run, then print or write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paper", choices=(*MODULES, "all"))
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy", help="cupy: run a device's, too")
    parser.add_argument("--from-records", action="store_true", help="run nothing: the records of benchmarks/results")
    parser.add_argument("--page", action="store_true", help="write docs/papers/NNN.md")
    parser.add_argument("--results", type=Path, help="folder of the records of this call (default: a new one)")
    options = parser.parse_args()
    numbers = list(MODULES) if options.paper == "all" else [options.paper]
    folder = None
    if not options.from_records:
        folder = (options.results or Path(tempfile.mkdtemp(prefix="ensemble-paper-"))).resolve()
        for number in numbers:
            make(module(number).RECORDS, options.backend == "cupy", folder)
        print(f"records of this call: {folder}", flush=True)
    stored = Stored(folder)
    for number in numbers:
        if options.page:
            write(number, stored)
        else:
            print(printed(page_of(number, stored), stored))


if __name__ == "__main__":
    main()
