"""A tour of the built site in headless Chromium: what a visitor sees, at two widths, dark and light.

``python -m tools.site_tour docs/_build/html`` needs ``pip install playwright axe-core-python`` and a Chromium (its path
in CHROMIUM, /usr/bin/chromium by default). It prints a line for each page and ends with status 1 where something is
wrong:

- a page is wider than the window, has an error in its console, or a link to a page that is not there;
- axe finds something serious or critical;
- the first figure of a page with figures near its start is below the fold, at 1400 pixels;
- the search does not find ``smoothed_aggregation``;
- a copy button does not leave out prompts;
- the reference lacks a public name.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PAGES = (
    "index.html", "tour.html", "start.html", "choose.html", "faq.html", "glossary.html", "examples/index.html",
    "howto/solvers.html", "howto/mcmc.html", "beside/nile.html", "speed.html", "cases.html", "api/index.html",
    "api/ensemble.krylov.html",
)  # fmt: skip
WIDTHS = {400: 800, 1400: 900}
"""Of the window in pixels, and its height: what lies below it is below the fold."""

SCHEMES = {400: "dark", 1400: "light"}
"""Colours of the pages at each width."""

FIRST_FIGURES = ("index.html", "examples/index.html", "howto/mcmc.html")
"""Pages whose first figure is seen without scrolling."""

MOST_BYTES = 2_000_000
"""Of a page with all that it loads."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of the folder on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def of_page(page: Any, address: str, name: str, width: int, axe: Any) -> tuple[list[str], str]:
    """What is wrong on a page, and its figures: bytes that were loaded, and the time of the first paint."""
    wrong: list[str] = []

    def console(message: Any) -> None:
        own = str(message.location.get("url", address)).startswith(address)  # MathJax comes from outside
        if message.type == "error" and own:
            wrong.append(f"console: {message.text}")

    page.on("console", console)
    page.goto(address + name, wait_until="load")
    weight = page.evaluate(
        "() => performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
        ".reduce((sum, one) => sum + (one.encodedBodySize || 0), 0)"
    )
    paint = page.evaluate(
        "() => new Promise(done => { const first = performance.getEntriesByName('first-contentful-paint')[0];"
        " if (first) done(first.startTime); else new PerformanceObserver(list => done(list.getEntries()[0].startTime))"
        ".observe({type: 'paint', buffered: true}); })"
    )
    if page.evaluate("() => document.documentElement.scrollWidth") > width:
        wrong.append(f"wider than {width} pixels")
    if weight > MOST_BYTES:
        wrong.append(f"{weight:,} bytes")
    figure = page.evaluate(
        "() => { const one = document.querySelector('article img');"
        " return one ? one.getBoundingClientRect().top : null; }"
    )
    if name in FIRST_FIGURES and width == 1400 and (figure is None or figure > WIDTHS[width] - 100):
        wrong.append(f"first figure at {figure}")
    found = axe.run(page)
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    wrong += [f"axe: {one['id']}: {one['help']}: {one['nodes'][0]['target']}" for one in serious]
    page.remove_listener("console", console)
    return wrong, f"{weight / 1e3:,.0f} kB, first paint {paint:.0f} ms"


def of_search(page: Any, address: str) -> list[str]:
    """What is wrong with the search."""
    page.goto(address + "search.html?q=smoothed_aggregation", wait_until="load")
    try:
        page.wait_for_selector("#search-results li a", timeout=15_000)
    except Exception:
        return ["search: smoothed_aggregation is not found"]
    links = page.eval_on_selector_all("#search-results li a", "found => found.map(one => one.href)")
    return [] if any("ensemble.multigrid" in link for link in links) else [f"search: {links[:3]}"]


def of_copying(page: Any, address: str) -> list[str]:
    """What is wrong with what a copy button takes from a block with prompts."""
    page.goto(address + "howto/mcmc.html", wait_until="load")
    page.wait_for_selector("button.copybtn", state="attached")
    page.evaluate("() => document.querySelector('button.copybtn').click()")
    text = page.evaluate("() => navigator.clipboard.readText()")
    return [] if text and ">>>" not in text and "import numpy" in text else [f"copy button: {text[:60]!r}"]


def of_reference(folder: Path) -> list[str]:
    """Public names that the reference does not have."""
    from tests.public_api import packages

    wrong = []
    for package in packages():
        text, module = (folder / "api" / f"{package}.html").read_text(), importlib.import_module(package)
        for name in module.__all__:
            there = f'id="{package}.{name}"' in text or f'<span class="pre">{name}</span></code>: see' in text
            if not there and not inspect.ismodule(getattr(module, name)):
                wrong.append(f"reference: {package}.{name} is not there")
    return wrong


def tour(folder: Path, pages: tuple[str, ...] = PAGES) -> list[str]:
    """All that is wrong, a line each; figures of pages are printed."""
    from axe_core_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    wrong = of_reference(folder)
    with served(folder) as address, sync_playwright() as tools:
        program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = tools.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for width, height in WIDTHS.items():
            viewport = {"width": width, "height": height}
            context = browser.new_context(viewport=viewport, color_scheme=SCHEMES[width])
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            page = context.new_page()
            page.route("**/*", lambda route: route.continue_() if address in route.request.url else route.abort())
            for name in pages:
                found, figures = of_page(page, address, name, width, Axe())
                print(f"{name} at {width}: {figures}" + "".join(f"\n  {one}" for one in found))
                wrong += [f"{name} at {width}: {one}" for one in found]
            found = [*of_search(page, address), *of_copying(page, address)]
            wrong += [f"at {width}: {one}" for one in found]
            context.close()
        browser.close()
    return wrong


def main() -> int:
    """Print what is wrong, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the built site")
    wrong = tour(parser.parse_args().folder)
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
