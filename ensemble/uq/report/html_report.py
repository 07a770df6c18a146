"""`Report`: a study as one page of HTML."""

from __future__ import annotations

import os
from html import escape
from os import PathLike

from ensemble._check import require
from ensemble._files import write_whole
from ensemble.uq.store.checks import local_folder

__all__ = ["Report", "require_page"]

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

    def __init__(self, html: str, text: str) -> None:
        self.html: str = html
        self._text = text

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
        write_whole(local_folder("Report.save", path), lambda file: file.write(self.html.encode()))

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        """The page in a frame of its own: its style stays out of the notebook."""
        text = escape(self.html)
        return (
            f'<iframe title="Report of a study" srcdoc="{text}" sandbox="allow-popups" '
            f'style="width: 100%; height: {HEIGHT}px; border: 1px solid #7c8794"></iframe>'
        )


def require_page(path: str | PathLike[str], function: str) -> None:
    """Raise unless `path` has the ending of a page."""
    good = os.fspath(path).lower().endswith((".html", ".htm"))
    require(good, function, "path", "end in .html", repr(os.fspath(path)))
