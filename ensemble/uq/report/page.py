"""`Report`: a study as one page of HTML."""

from __future__ import annotations

import html
import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ensemble._check import require
from ensemble._files import write_whole
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
from ensemble.uq.report.style import STYLE_SHEET
from ensemble.uq.report.texts import count, percent

if TYPE_CHECKING:
    from ensemble.uq.report.source import Source

__all__ = ["Report"]

HEIGHT = 720
"""Pixels of the frame in a notebook."""


class Report:
    """A page of HTML that tells a study. Made by ``result.report()``.

    Attributes
    ----------
    html : str
        The page: one file that needs no other, and has no script.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2))
    >>> r = en.propagate(lambda x: {"tip": x.load / 3.0}, inputs, 64, seed=5, progress=False)
    >>> r.report().html.startswith("<!DOCTYPE html>")
    True
    """

    def __init__(self, source: Source, level: float) -> None:
        result = source.result
        self._text = f"Report({result.n_done:,} of {count(result.n, 'sample')}, {result.n_failed:,} failed)"
        self.html: str = page_of(source, level)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file, whole.

        Parameters
        ----------
        path : path of a file
            Its name ends in ``.html`` or ``.htm``.

        Raises
        ------
        ValueError
            If it ends otherwise.
        OSError
            If it cannot be written.
        """
        require_page(path, "Report.save")
        write_whole(Path(path), lambda file: file.write(self.html.encode()))

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        """The page in a frame of its own: its style stays out of the notebook."""
        text = html.escape(self.html)
        return (
            f'<iframe title="Report of a study" srcdoc="{text}" sandbox="allow-popups" '
            f'style="width: 100%; height: {HEIGHT}px; border: 1px solid #7c8794"></iframe>'
        )


def require_page(path: str | PathLike[str], function: str) -> None:
    """Raise unless `path` has the ending of a page."""
    good = os.fspath(path).lower().endswith((".html", ".htm"))
    require(good, function, "path", "end in .html", repr(os.fspath(path)))


def made(source: Source, level: float, path: str | PathLike[str] | None) -> Report:
    """The report of `UqResult.report`, written to `path` where there is one."""
    if path is not None:
        require_page(path, "UqResult.report")
    report = Report(source, level)
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
    if result.n_done >= result.n:
        text = f"Finished: all {count(result.n, 'sample')} were run{failed}."
        return paragraph(text, class_="state")
    done = percent(result.n_done, result.n)
    text = f"Not finished: {result.n_done:,} of {count(result.n, 'sample')} were run ({done}){failed}."
    bar = element("progress", done, max=result.n, value=result.n_done, aria_label="Samples that were run")
    now = f"{source.writer} has begun to write to the store, and has not closed it: it is running, or was ended."
    so = "The statistics below are those of the samples that were run."
    return joined((paragraph(text, class_="state"), bar, paragraph(now) if source.writer else None, paragraph(so)))
