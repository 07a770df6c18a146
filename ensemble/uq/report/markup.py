"""Elements of HTML: every text is escaped, unless it is markup already."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Markup", "element", "figure", "joined", "listed", "paragraph", "section", "table"]


class Markup(str):
    """Text that is HTML already."""


def markup_of(content: Any) -> str:
    """A piece of content as HTML; None is nothing."""
    if content is None:
        return ""
    return content if isinstance(content, Markup) else html.escape(str(content))


def joined(contents: Iterable[Any]) -> Markup:
    """Pieces of content one after the other."""
    return Markup("".join(markup_of(one) for one in contents))


def element(tag: str, *contents: Any, **attributes: Any) -> Markup:
    """An element; an attribute that is None is left out, ``class_`` and ``aria_label`` are class and aria-label."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{said}>{joined(contents)}</{tag}>")


def paragraph(*contents: Any, class_: str | None = None) -> Markup:
    """A paragraph."""
    return element("p", *contents, class_=class_)


def listed(facts: Sequence[tuple[str, Any]]) -> Markup:
    """Names and what they stand for; facts that are None or empty are left out."""
    pairs = [joined((element("dt", name), element("dd", value))) for name, value in facts if value not in (None, "")]
    return element("dl", *(element("div", pair) for pair in pairs))


def section(name: str, title: str, *contents: Any, level: int = 2) -> Markup:
    """A section with its heading, whose id is `name`."""
    heading = element(f"h{level}", title, id=name)
    return element("section", heading, *contents, aria_labelledby=name)


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], texts: Sequence[int] = ()) -> Markup:
    """A table whose first column names the rows; numbers stand to the right, the columns `texts` to the left.

    Columns of `texts` have lines as long as the window allows; the names of rows are such texts where 0 is among them.
    """
    head = [element("th", name, scope="col", class_=None if k and k not in texts else "text")
            for k, name in enumerate(columns)]  # fmt: skip
    body = [
        element("tr", element("th", row[0], scope="row", class_="text" if 0 in texts else None),
                *(element("td", cell, class_="text" if k in texts else None) for k, cell in enumerate(row[1:], 1)))
        for row in rows
    ]  # fmt: skip
    inside = element("table", element("caption", caption), element("thead", element("tr", *head)),
                     element("tbody", *body))  # fmt: skip
    # what is wider than the window scrolls, also by the keyboard
    return element("div", inside, class_="wide", role="region", aria_label=caption, tabindex="0")


def figure(picture: Markup | None, caption: str) -> Markup:
    """A picture with its caption; nothing where there is no picture."""
    if picture is None:
        return Markup("")
    return element("figure", picture, element("figcaption", caption))


def plain(text: str) -> str:
    """A name as an id of HTML."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower() or "part"
