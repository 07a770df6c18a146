"""Prints the tables of a paper, and writes them as a Markdown page of the documentation."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from benchmarks.papers import NotRun, Paper, Record, Stored, Table, unique

__all__ = ["PAGES", "markdown", "printed", "write_index"]

PAGES = Path(__file__).parents[2] / "docs" / "papers"

WIDTH = 118

READ = "2026-11-29"
"""The day on which the pages were last read against the papers."""

READING = """\
Every table and figure with numbers of the paper, beside ours. "not run (a)" has its reason below the table. Times of
other machines are compared as they stand: a ratio has the difference of the machines in it. The text of the paper at
hand has no page numbers: its sections are named. Curves are not read off: where a figure has no numbers in the text,
ours stand alone."""


def _text(value: Any, reasons: dict[str, str], quoted: bool = False) -> str:
    """A cell: four digits of ours, all of what is `quoted` from a paper."""
    if isinstance(value, NotRun):
        letter = reasons.setdefault(value.why, "abcdefghijklmnopqrstuvwxyz"[len(reasons)])
        return f"not run ({letter})"
    if isinstance(value, float) and quoted:
        return f"{value:,.12g}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _quoted(heading: str, row: dict[str, Any]) -> bool:
    """Whether a cell holds a number as the paper prints it, and no ratio to one."""
    return ("published" in heading and "/" not in heading) or (
        row.get("from") == "published" and heading != "32 over one"
    )


def cells(table: Table) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """Headings, texts of the cells, and the reasons of what was not run, by letter."""
    reasons: dict[str, str] = {}
    names = ", ".join(record.name for record in table.records)
    rows = table.rows or [{"published": "see the paper", "ours": NotRun(f"no record {names}")}]
    headings = list(dict.fromkeys(key for row in rows for key in row))
    texts = [[_text(row.get(key, ""), reasons, _quoted(key, row)) for key in headings] for row in rows]
    return headings, texts, {letter: why for why, letter in reasons.items()}


def printed(paper: Paper, stored: Stored) -> str:
    """The tables as aligned text."""
    lines = [f"{paper.number}  {paper.title}", *textwrap.wrap(paper.citation, WIDTH), ""]
    for table in paper.tables:
        headings, texts, reasons = cells(table)
        width = [max(len(row[k]) for row in [headings, *texts]) for k in range(len(headings))]
        lines += [f"{table.name}: {table.title} ({table.where})"]
        lines += ["  ".join(t.rjust(w) for t, w in zip(row, width, strict=True)) for row in [headings, *texts]]
        lines += [f"  ({letter}) {why}" for letter, why in reasons.items()]
        lines += [line for text in table.differs for line in textwrap.wrap(text, WIDTH, initial_indent="  ")]
        lines += [f"  {origin(record, stored, link=False)}" for record in unique(table.records)]
        lines += [""]
    lines += [f"{what}: {why}" for what, why in paper.left_out]
    return "\n".join(lines)


def origin(record: Record, stored: Stored, link: bool = True) -> str:
    """What made a record, where, in which precision and with which versions."""
    content = stored.content(record)
    command = f"python -m benchmarks {' '.join(record.words)}"
    if content is None:
        return f"no record {record.name} yet: `{command}`" if link else f"no record {record.name} yet: {command}"
    name = f"[{record.name}](../../benchmarks/results/{record.name}.json)" if link else record.name
    return f"{name}: {f'`{command}`' if link else command}; {machine_of(content)}; {record.precision}"


def machine_of(content: dict[str, Any]) -> str:
    """Processor or device and versions of a record."""
    machine = content.get("machine")
    machine = machine if isinstance(machine, dict) else {"processor": machine} if machine else {}
    about = {**machine, **{key: content[key] for key in ("device", "cupy", "cuda") if key in content}}
    parts = []
    if "device" in about:
        parts += [str(about["device"])]
    if "processor" in about:
        threads = f", {about['threads']} threads" if about.get("threads", 0) != 1 else ", one thread"
        parts += [f"{about['processor']}{threads if 'threads' in about else ''}"]
    if "cuda" in about:
        parts += [f"CUDA {about['cuda'] // 1000}.{about['cuda'] % 1000 // 10}"]
    parts += [f"{name} {about[key]}" for name, key in (("CuPy", "cupy"), ("Numba", "numba"), ("NumPy", "numpy"))
              if key in about]  # fmt: skip
    if not any(key in about for key in ("numba", "cupy")):
        parts += ["without versions"]
    return ", ".join(parts)


def _table(table: Table, stored: Stored) -> list[str]:
    headings, texts, reasons = cells(table)
    where = "Not in the paper." if table.where == "no section" else f"Of {table.where}."
    lines = [f"## {table.name}: {table.title}", "", where, ""]
    lines += [f"| {' | '.join(row)} |" for row in [headings, ["---"] * len(headings), *texts]]
    lines += [""]
    for letter, why in reasons.items():
        lines += [*textwrap.wrap(f"({letter}) {why}.", WIDTH), ""]
    if table.image:
        lines += [f"![{table.title}](../images/{table.image})", ""]
    if table.differs:
        lines += [*textwrap.wrap("**What differs.** " + " ".join(table.differs), WIDTH), ""]
    for record in unique(table.records):
        lines += textwrap.wrap(origin(record, stored), WIDTH, initial_indent="- ", subsequent_indent="  ",
                               break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return [*lines, ""] if table.records else lines


def markdown(paper: Paper, stored: Stored) -> str:
    """The page of a paper."""
    lines = [f"# Paper {paper.number}: {paper.title}", "", *textwrap.wrap(paper.citation, WIDTH), ""]
    lines += [f"`python -m benchmarks paper {paper.number} --from-records --page` writes this page from records.", ""]
    lines += [READING, "", *textwrap.wrap(f"Machines of the paper: {paper.machines}", WIDTH), ""]
    for text in paper.summary:
        lines += [*textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)]
    lines += [""] if paper.summary else []
    for table in paper.tables:
        lines += _table(table, stored)
    if paper.left_out:
        lines += ["## Without a table here", ""]
        for what, why in paper.left_out:
            lines += textwrap.wrap(f"{what}: {why}", WIDTH, initial_indent="- ", subsequent_indent="  ")
    if paper.signed:
        checked, disputed = paper.signed
        text = f"Read against the paper on {READ}: {checked}. What remains disputed: {disputed}."
        lines += ["", *textwrap.wrap(text, WIDTH, break_on_hyphens=False)]
    return "\n".join(lines).rstrip() + "\n"


def write_index(papers: dict[str, tuple[str, str]]) -> str:
    """The page that lists all papers: number, title and the file of each."""
    lines = ["# The five papers", "", *textwrap.wrap(
        "This library began with the methods of five papers. A page for each has every table and figure with numbers, "
        "the published figure, ours, the ratio, and what differs in the set-up. The pages are written from the records "
        "in `benchmarks/results`, each with its machine and versions.", WIDTH), ""]  # fmt: skip
    lines += ["| | paper |", "|---|---|", *(f"| [{number}]({number}.md) | {title}, {citation} |"
                                             for number, (title, citation) in papers.items())]  # fmt: skip
    return "\n".join(lines) + "\n"
