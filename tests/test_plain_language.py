"""Plain technical English on the pages: no metaphors, nothing personified, no reference to a brief nobody has seen."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "EXPERIMENTS.md"]
PAGES += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "ensemble").rglob("*.md")]

WORDS = [
    "resident", "votes?", "voted", "party|parties", "houses?", "rooms?", "asked for", "says so", "brought near",
    "house-?keeping", "eject(?:s|ed)?", "stitch(?:es|ed)?", "touchy", "a sample sees", "keeps the books",
]  # fmt: skip
"""Regular expressions of whole words, in any case."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_metaphors_on_the_pages(page):
    text = re.sub(r"third[- ]party", "", " ".join(page.read_text().split()))
    found = re.findall(rf"[^.]{{0,30}}\b(?:{'|'.join(WORDS)})\b", text, re.IGNORECASE)
    assert found == []
