"""Sphinx: `make docs` builds the pages of this folder, those beside the code, and the API into _build/html."""

import ast
import importlib
import inspect
import logging
import os
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("MPLBACKEND", "Agg")
logging.getLogger("skfem").setLevel(logging.WARNING)  # an example of the gallery makes its meshes

import ensemble  # noqa: E402

project = "ensemble"
author = "The ensemble developers"
copyright = "The ensemble developers"
version = release = ensemble.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx.ext.mathjax", "sphinx_copybutton",
              "sphinx_gallery.gen_gallery"]  # fmt: skip
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
exclude_patterns = ["_build", "tutorials/*.md", "examples/*.ipynb", "examples/*.py", "**sg_execution_times.rst"]
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "examples",
    "filename_pattern": "/",
    "ignore_pattern": "README",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "show_memory": False,
    "show_signature": False,
}
html_theme = "furo"
html_title = f"ensemble {release}"
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
numpydoc_show_class_members = False
numpydoc_validation_checks: set[str] = set()
autodoc_typehints = "none"
autodoc_member_order = "alphabetical"
autosummary_generate = False
suppress_warnings = ["myst.header"]


def is_value(thing: object) -> bool:
    """Whether a public name is neither a class nor a function nor a package."""
    return not (isinstance(thing, type) or inspect.isroutine(thing) or inspect.ismodule(thing))


def text_of(thing: object) -> str:
    """The first sentence about a value."""
    if isinstance(thing, str):
        return f"The version, {thing}."
    return f"``{type(thing).__name__}``: " + (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


def api_pages(folder: Path) -> None:
    """Write a page for each public package, with all of its names."""
    sys.path.insert(0, str(ROOT))
    from tests.public_api import packages

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = list(packages())
    seen: dict[int, str] = {}
    for name in names:
        module = importlib.import_module(name)
        things = {one: getattr(module, one) for one in module.__all__}
        again = {one: seen[id(thing)] for one, thing in things.items() if isinstance(thing, type) and id(thing) in seen}
        seen |= {id(thing): name for thing in things.values() if id(thing) not in seen}
        lines = [f"# {name}", "", "```{eval-rst}", f".. automodule:: {name}", "   :members:", "   :imported-members:"]
        values = {one: thing for one, thing in things.items() if is_value(thing)}
        left = [*again, *values]
        lines += [f"   :exclude-members: {', '.join(left)}"] if left else []
        for one, thing in values.items():
            lines += ["", f".. py:data:: {one}", f"   :module: {name}", "", f"   {text_of(thing)}"]
        lines += ["```", "", *(f"`{one}`: see [{place}]({place}.md).\n" for one, place in again.items())]
        (folder / f"{name}.md").write_text("\n".join(lines))
    entries = "\n".join(names)
    text = f"# API reference\n\nEvery public name, by package.\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
    (folder / "index.md").write_text(text)


api_pages(HERE / "api")

BESIDE = {
    ROOT / "CHANGELOG.md": "changes",
    ROOT / "CONTRIBUTING.md": "contributing",
    **{ROOT / "ensemble" / "apps" / name / "README.md": name for name in ("fem", "gbees", "kalman")},
    **{path: path.stem for path in sorted((HERE / "tutorials").glob("*.py"))},
}
"""Files of the repository that have a page of the site in the folder `beside`, and the page's name."""


def beside_pages(folder: Path) -> None:
    """Write the pages of `BESIDE`: a text as it is, with its links, and a program below its picture."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, name in BESIDE.items():
        text = path.read_text()
        if path.suffix == ".py":
            title, _, rest = ast.get_docstring(ast.parse(text)).partition("\n\n")
            drawn = (HERE / "images" / f"{name}.png").exists()
            picture = f"![What it draws](../images/{name}.png)\n\n" if drawn else ""
            program = f"```{{literalinclude}} ../tutorials/{path.name}\n:language: python\n```\n"
            title, mark, first = title.partition(": " if ": " in title else "? ")
            rest = f"{first[:1].upper()}{first[1:]}\n\n{rest}".replace("``", "`")
            text = f"# {title.rstrip('.')}{mark.strip(': ')}\n\n{rest}\n\n{picture}{program}"
        else:
            based = lambda found, path=path: f"]({os.path.relpath(path.parent / found[1], folder)}"
            text = re.sub(r"\]\(([^)#\s:]+)(?=[)#])", based, text)
        (folder / f"{name}.md").write_text(text)


beside_pages(HERE / "beside")


def outside(app, docname, source):
    """Leave the text alone of links to files that are no pages of the site."""
    page = (HERE / docname).parent

    def lead(found: re.Match) -> str:
        target = (page / found[2]).resolve()
        if target == ROOT / "README.md":
            return f"[{found[1]}](/index.md)"
        if target == ROOT / "examples" / "README.md":
            return f"[{found[1]}](/examples/index.rst)"
        if target in BESIDE:
            return f"[{found[1]}](/beside/{BESIDE[target]}.md)"
        inside = target.is_relative_to(HERE) and target.suffix == ".md"
        return found[0] if inside or not target.exists() else found[1]

    if docname == "index" and not list((HERE / "papers").glob("*.md")):
        source[0] = re.sub(r"```{toctree}\n[^`]*papers/\*\n```\n", "", source[0])
    source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(?:#[^)\s]*)?\)", lead, source[0])


def plain_stars(app, what, name, thing, options, lines):
    """Let the star of a shape, as in (*shape, n), be a star and no emphasis: docstrings are read as plain text, too."""
    for k, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("``")
            parts[::2] = [re.sub(r"(?<=[( ])\*(?=[a-z_]+[,)])", r"\\*", part) for part in parts[::2]]
            lines[k] = "``".join(parts)


def accessible(app, pagename, templatename, context, doctree):
    """Mend roles that programs which read aloud do not understand, and name the links of the gallery."""
    for part in ("furo_navigation_tree", "body"):
        text = context.get(part) or ""
        context[part] = re.sub(r'role="heading"(?! aria-level)', 'role="heading" aria-level="2"', text)
    if "body" in context:  # its children are no items of a list
        context["body"] = re.sub(r'(<div [^>]*)role="list"([^>]*)>', r"\1\2>", context["body"])
    if pagename == "examples/index":
        link = re.compile(r'(<a class="reference internal" href="[^"]+")([^>]*><span[^>]*>([^<]+)</span></a>)')
        context["body"] = link.sub(r'\1 aria-label="\3"\2', context["body"])


def setup(app):
    app.connect("source-read", outside)
    app.connect("html-page-context", accessible, priority=900)
    app.connect("autodoc-process-docstring", plain_stars, priority=100)
