"""Links within the built site: pages, pictures and places on pages that are not there. No network is needed.

``python -m tools.site_links docs/_build/html`` prints a line for each broken link, and ends with status 1 where there
is one.
"""

from __future__ import annotations

import argparse
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The places that a page has, and the links that leave from it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := found.get(name))}
        self.links |= {value for name in ("href", "src") if (value := found.get(name))}


def broken_links(folder: Path) -> list[str]:
    """``page: link`` for each link to a file or a place that the folder does not have."""
    folder = folder.resolve()
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html")) if "asv" not in path.parts}
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:  # outside
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            missing = target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].places
            if missing or not target.exists():
                broken.append(f"{path.relative_to(folder)}: {link}")
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the built site")
    folder = parser.parse_args().folder
    if not (folder / "index.html").exists():
        parser.error(f"folder must hold a built site; got {folder} without index.html. `make docs` builds it.")
    broken = broken_links(folder)
    print(*broken, f"{len(broken)} broken links within the site", sep="\n")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
