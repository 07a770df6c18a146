"""The site: its settings can be read, its index leads to every page, its packages have one version."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import ensemble
from ensemble.__main__ import main
from tests.pages import DOCS, pages
from tools.site_links import broken_links
from tools.site_tour import tour

ROOT = Path(__file__).parents[1]


def test_extensions_of_the_site_are_those_of_its_extra():
    tree = ast.parse((DOCS / "conf.py").read_text())
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("extensions", "html_theme")
    }
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"]
    names = {re.split("[>=]", one)[0].replace("-", "_") for one in listed}
    packages = {"myst_parser" if one == "myst_parser" else one.partition(".")[0] for one in values["extensions"]}
    assert {*packages, values["html_theme"]} <= names


def test_the_index_of_the_site_leads_to_every_page():
    entries = re.findall(r"^([\w/*-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE)
    found = {path for entry in entries for path in DOCS.glob(f"{entry}.md")}
    assert {*pages()} - found == {DOCS / "index.md"}
    single = [entry for entry in entries if "*" not in entry and not entry.startswith(("api/", "examples/", "beside/"))]
    assert [entry for entry in single if not (DOCS / f"{entry}.md").exists()] == []


def test_the_version_of_the_citation_is_that_of_the_package():
    assert f"version: {ensemble.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("command", ["diffusion", "gbees", "ode"])
def test_a_misspelt_option_names_the_help_of_its_sub_command(command, capsys):
    arguments = {"gbees": ["lorenz63"], "ode": ["lorenz63"]}.get(command, [])
    with pytest.raises(SystemExit, match="2"):
        main([command, *arguments, "--no-such-option"])
    assert capsys.readouterr().err.endswith(f"--no-such-option. See ensemble {command} --help.\n")


def test_the_recipe_has_the_version_and_the_needs_of_the_project():
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"version: {ensemble.__version__}\n" in recipe and f"name: {project['name']}\n" in recipe
    run = re.findall(r"^    - ([\w-]+ >=[\w.]+)$", recipe.partition("  run:")[2], re.MULTILINE)
    assert [one.replace(" ", "") for one in run] == ["python>=3.11", *project["dependencies"]]


@pytest.mark.slow
def test_the_site_that_was_built_last_has_nothing_wrong():
    """`make docs` builds it; the tour needs Chromium."""
    pytest.importorskip("playwright")
    folder = DOCS / "_build" / "html"
    if not (folder / "index.html").exists():
        pytest.skip("make docs has not run")
    assert tour(folder) == []


def test_broken_links_within_the_site_are_found(tmp_path):
    (tmp_path / "how to").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="#gone"></a><a href="how%20to/a.html#here"></a>'
        '<a href="how%20to/a.html#there"></a><a href="b.html"></a><img src="x.png"><a href="https://elsewhere.org/#x"></a>'
    )
    (tmp_path / "how to" / "a.html").write_text('<p id="here"></p><a href="../"></a><a href="../index.html#top"></a>')
    assert broken_links(tmp_path) == [
        f"index.html: {link}" for link in ("#gone", "b.html", "how%20to/a.html#there", "x.png")
    ]
