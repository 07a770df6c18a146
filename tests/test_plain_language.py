"""Plain technical English: no metaphors, nothing personified, no reference to a brief nobody has seen."""

import re
from pathlib import Path

from tests.pages import pages

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "EXPERIMENTS.md"]
PAGES += [*pages(), *(ROOT / "ensemble").rglob("*.md")]
SOURCES = sorted(path for path in (ROOT / "ensemble").rglob("*") if path.suffix in (".py", ".cu", ".cuh"))

WORDS = [
    "votes?", "voted", "party|parties", "houses?", "says? so", "without a word", "brought near", "house-?keeping",
    "eject(?:s|ed)?", "stitch(?:es|ed)?", "touchy", "a sample sees", "keeps the books", "kin", "cared for",
    "complain(?:s|ts?)?", "g(?:i|a)ves? up", "believed",
]  # fmt: skip
"""Regular expressions of whole words, in any case."""

WORDS_OF_PAGES = [*WORDS, "asked for", "resident", "rooms?", "answered", "wants?", "knows", "sees", "looks at"]
"""Pages have none of these either; in sources some are names or terms of CUDA."""


def found(text, words):
    """The words in a text, each with what stands before it."""
    text = " ".join(text.split())
    hits = re.finditer(rf"\b(?<!third )(?<!third-)(?:{'|'.join(words)})\b", text, re.IGNORECASE)
    return [text[max(0, hit.start() - 30) : hit.end()] for hit in hits]


def test_no_metaphors_on_the_pages():
    hits = {str(page.relative_to(ROOT)): found(page.read_text(), WORDS_OF_PAGES) for page in PAGES}
    assert {name: hit for name, hit in hits.items() if hit} == {}


def test_no_metaphors_in_the_sources():
    words = re.compile(rf"\b(?:{'|'.join(WORDS)})\b")
    hits = {str(path.relative_to(ROOT)): words.findall(path.read_text()) for path in SOURCES}
    assert {name: hit for name, hit in hits.items() if hit} == {}


FILE = re.compile(r"(?<![\w/<>*.-])((?:[\w.]+/)*\w+\.(?:py|cu|cuh|md))\b")
PLACEHOLDERS = {"FILE.py"}


def test_files_that_sources_name_exist():
    """A name may leave out the folders before it. A file that moved leaves such a name behind."""
    files = [str(path.relative_to(ROOT)) for top in ("ensemble", "tests", "benchmarks", "docs")
             for path in (ROOT / top).rglob("*")]  # fmt: skip
    files += [path.name for path in ROOT.iterdir()]
    ends = {name[k:] for name in files for k in [0, *(m.end() for m in re.finditer("/", name))]}
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for line in path.read_text().splitlines()
        if ".py" in line or ".cu" in line or ".md" in line
        for name in FILE.findall(line)
        if name.removeprefix("../") not in ends and name not in PLACEHOLDERS
    }
    assert missing == set()


OTHERS = (
    "apps/analyses/", "apps/fem/", "krylov/", "linalg/", "ode/", "quadrature/",
    "_kernels/direct/", "_kernels/fem/", "_kernels/oscillator/", "_kernels/quadrature/",
)  # fmt: skip
"""Folders with descriptions that have no noun yet."""

WITHOUT_NOUN = re.compile(
    r"""^ *\"""(?:Of|From where|After which) .*|^ +[*\w, ]+ : .*\n +(?:Of|From where|After which) .*""", re.MULTILINE
)


def test_descriptions_begin_with_a_noun():
    """'Terms of an expansion', not 'Of an expansion': a description is read without the name beside it."""
    texts = {str(path.relative_to(ROOT / "ensemble")): path.read_text() for path in SOURCES if path.suffix == ".py"}
    hits = {name: WITHOUT_NOUN.findall(text) for name, text in texts.items() if not name.startswith(OTHERS)}
    assert {name: hit for name, hit in hits.items() if hit} == {}


def test_the_design_has_a_picture_and_at_most_1500_words():
    text = (ROOT / "docs" / "design.md").read_text()
    assert len(text.split()) <= 1500
    picture = text[text.index("```") : text.index("array_api_compat")]
    folders = {
        path.parent.name for top in ("_kernels", "apps") for path in (ROOT / "ensemble" / top).glob("*/__init__.py")
    }
    assert {name for name in folders if not re.search(rf"\b{name}\b", picture)} == set()
