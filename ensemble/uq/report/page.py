"""The page of a `Report`: its sections in their order."""

from __future__ import annotations

from os import PathLike

from ensemble.uq.report.attempts import n_recovered
from ensemble.uq.report.html_report import Report, require_page
from ensemble.uq.report.markup import Markup, element, joined, paragraph
from ensemble.uq.report.pages import PAGES
from ensemble.uq.report.pictures import Pictures
from ensemble.uq.report.sections import (
    cost_section,
    failures_section,
    influence_section,
    inputs_section,
    outputs_section,
    run_section,
)
from ensemble.uq.report.source import Source
from ensemble.uq.report.style import STYLE_SHEET
from ensemble.uq.report.texts import count, percent

__all__ = ["made", "page_of"]


def made(source: Source, level: float, path: str | PathLike[str] | None) -> Report:
    """The report of `UqResult.report`, written to `path` where there is one."""
    if path is not None:
        require_page(path, "UqResult.report")
    result = source.result
    told = f"Report({result.n_done:,} of {count(result.n, 'sample')}, {result.n_failed:,} failed)"
    report = Report(page_of(source, level), told)
    if path is not None:
        report.save(path)
    return report


PAGES.make = made


def page_of(source: Source, level: float) -> Markup:
    """The whole page."""
    pictures = Pictures(source)
    sections = [
        run_section(source),
        inputs_section(source, pictures),
        *outputs_section(source, pictures, level),
        influence_section(source, pictures),
        failures_section(source, pictures),
        cost_section(source),
    ]
    shown = [one for one in sections if one is not None]
    links = element("ul", *(element("li", element("a", title, href=f"#{name}")) for name, title, _ in shown))
    title = f"Study of {source.manifest.get('model') or 'a model'}"
    head = element(
        "head", Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'), element("title", title),
        element("style", Markup(STYLE_SHEET)),
    )  # fmt: skip
    body = element(
        "body", element("a", "To the contents", href="#main", class_="skip"),
        element("header", element("h1", title), state_of(source), element("nav", links, aria_label="Sections")),
        element("main", *(one for _, _, one in shown), id="main", tabindex="-1"),
        element("footer", paragraph("Made by ", source.program, " from the study's own files and samples.")),
    )  # fmt: skip
    return Markup(joined((Markup("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), Markup("\n"))))


def state_of(source: Source) -> Markup:
    """How far the study is."""
    result = source.result
    failed = f", and {result.n_failed:,} failed ({percent(result.n_failed, result.n_done)})" if result.n_failed else ""
    failed = failed or (", and none failed" if result.n_done else "")
    if recovered := n_recovered(result):
        failed += f"; {recovered:,} succeeded when {'it was' if recovered == 1 else 'they were'} run again"
    if result.n_done >= result.n:
        text = f"Finished: all {count(result.n, 'sample')} were run{failed}."
        return paragraph(text, class_="state")
    done = percent(result.n_done, result.n)
    text = f"Not finished: {result.n_done:,} of {count(result.n, 'sample')} were run ({done}){failed}."
    bar = element("progress", done, max=result.n, value=result.n_done, aria_label="Samples that were run")
    now = f"{source.writer} has begun to write to the store, and has not closed it: it is running, or was ended."
    so = "The statistics below are those of the samples that were run."
    return joined((paragraph(text, class_="state"), bar, paragraph(now) if source.writer else None, paragraph(so)))
