"""The pages of the documentation: their code runs, their links lead somewhere, the index names them all."""

import ast
import codeop
import functools
import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main_parser, programs
from ensemble._backend import prototype
from tests.pages import pages
from tests.parsers import flags_of, parser_of_benchmark, parsers_of_command

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "howto"
HOWTOS = sorted(FOLDER.glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages()]
PAGES += [*sorted((ROOT / "ensemble").rglob("README.md")), *sorted((ROOT / "ensemble").rglob("NOTES.md"))]
PAGES += [ROOT / "benchmarks" / "EXPERIMENTS.md", ROOT / "examples" / "README.md"]
PAGES += sorted((ROOT / "ensemble").rglob("EXPERIMENTS.md"))


def python_of(page):
    """The Python of a page without prompts; blocks with prompts are doctests, which pytest finds by itself."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return "\n".join(block for block in blocks if not block.startswith(">>>"))


def on_pages(find):
    """What `find` gives of each page, with the page's name in front."""
    return [f"{page.relative_to(ROOT)}: {found}" for page in PAGES for found in find(page, page.read_text())]


def test_links_lead_somewhere():
    def missing(page, text):
        targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text)
        return [t for t in targets if "://" not in t and not (page.parent / t).exists()]

    assert on_pages(missing) == []


def slug(heading):
    """The anchor that a heading has on a page, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@functools.cache
def anchors_of(page):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)}


def test_anchors_are_headings():
    def missing(page, text):
        links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text)
        there = [(page.parent / target if target else page, anchor) for target, anchor in links if "://" not in target]
        return [anchor for other, anchor in there if anchor not in anchors_of(other)]

    assert on_pages(missing) == []


FILES = [
    path
    for top in ("ensemble", "tests", "benchmarks", "docs", "examples", "tools", ".ci")
    for path in (ROOT / top).rglob("*")
]
FILES = [str(path.relative_to(ROOT)) for path in [*FILES, *ROOT.glob("*")] if "__pycache__" not in path.parts]
FILE_NAME = re.compile(r"`(?:python )?((?:[\w.-]+/)*[\w.-]+\.(?:py|cu|cuh|md|json|toml)|(?:[\w.-]+/)+)`")


def test_files_and_folders_named_on_a_page_exist():
    """A name may leave out the folders before it; a table of a folder names its files alone."""
    ends = {"/".join(parts[k:]) for parts in (file.split("/") for file in FILES) for k in range(len(parts))}
    assert on_pages(lambda _, text: {name.rstrip("/") for name in FILE_NAME.findall(text)} - ends) == []


def test_the_help_of_an_option_is_read_alone():
    """ "seed of the sampler", not "of the sampler", and no default that is none."""
    for command, parser in parsers_of_command().items():
        text = parser.format_help()
        assert "default: None" not in text and "default: False" not in text, command
        helps = [action.help for action in parser._actions if action.help]
        assert [text for text in helps if text.split()[0] in ("of", "or", "instead")] == [], command


def test_names_on_the_map_for_contributors_are_defined_in_their_files():
    pairs = re.findall(r"`(\w+)` in `(ensemble/[\w/.]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    definition = r"(?:def|class|struct|void|bool) {0}\b|^ +{0}\("
    assert len(pairs) > 5
    assert [
        (name, file) for name, file in pairs
        if not re.search(definition.format(name), (ROOT / file).read_text(), re.MULTILINE)
    ] == []  # fmt: skip


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [*HOWTOS, *(ROOT / "docs" / "tutorials").glob("*.py"), *(ROOT / "docs" / "reference").glob("*.md")]
    assert [page.name for page in pages if f"{page.parent.name}/{page.name}" not in index] == []


PROGRAMS = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "ensemble" / "_command").rglob("*.py")]
TEXTS = {
    str(p.relative_to(ROOT)): p.read_text().replace("\\\n", " ") for p in [*PAGES, ROOT / "CHANGELOG.md", *PROGRAMS]
}
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
SUBCOMMANDS = "|".join(name.removeprefix("ensemble ") for name in parsers_of_command() if name != "ensemble")
COMMAND = re.compile(
    rf"\b(?:python -m benchmarks ([a-z][\w-]*)|(ensemble (?:{SUBCOMMANDS})\b))([^`\n]*(?:\n[^`\n]+(?=`))?)"
)
OF_OTHERS = {"--fmad": "nvcc", "--max-examples": "Hypothesis", "--durations": "pytest", "--std": "NVRTC"}
OF_OTHERS |= dict.fromkeys(("--nodes", "--ntasks-per-node", "--cpus-per-task", "--constraint", "--time"), "sbatch")
OF_OTHERS |= {"--signal": "sbatch", "--open-mode": "sbatch", "--kill-on-bad-exit": "srun", "--cpu-bind": "srun"}
OF_OTHERS |= dict.fromkeys(("--array", "--dependency", "--job-name", "--ntasks", "--output", "--wrap"), "sbatch")
"""Options of other programs that our pages name."""


def test_commands_of_a_page_exist_and_take_the_options_written_after_them():
    assert [page for page, text in TEXTS.items() if "python -m benchmarks." in text] == []
    commands, benchmarks = parsers_of_command(), {*programs(), "all"}
    for page, text in TEXTS.items():
        for benchmark, command, words in COMMAND.findall(text):
            assert not benchmark or benchmark in benchmarks, (page, benchmark)
            if benchmark != "all":
                known = flags_of(parser_of_benchmark(benchmark) if benchmark else commands[command])
                assert set(FLAG.findall(words)) <= known, (page, command or benchmark)


def test_every_option_named_on_a_page_is_one_of_some_parser():
    parsers = [*parsers_of_command().values(), *map(parser_of_benchmark, programs())]
    known = set(OF_OTHERS).union(*map(flags_of, parsers))
    assert [(page, flag) for page, text in TEXTS.items() for flag in set(FLAG.findall(text)) - known] == []


def test_the_list_of_benchmarks_is_complete():
    text = main_parser().format_help()
    assert [name for name in programs() if f"\n  {name} " not in text] == []
    assert {"gbees-device", "kalman", "kalman-device", "plots-kalman"} <= set(programs()) and "against SciPy" in text


def test_benchmarks_have_names_of_one_kind_and_asv_measures_every_part():
    classes = []
    for path in (ROOT / "benchmarks").glob("*.py"):
        tree = ast.parse(path.read_text())
        has_main = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        assert has_main == path.stem.startswith("bench_") or path.stem == "__main__", path.name
        classes += [n.name for n in tree.body if isinstance(n, ast.ClassDef) and "EnsembleBenchmark" in ast.dump(n)]
    asv = {
        "Affine",
        "Analyses",
        "Assembly",
        "ComplexProducts",
        "Direct",
        "DirectExchanges",
        "Eigenpairs",
        "Forms",
        "Fuse",
        "Kalman",
        "KalmanCalls",
        "Krylov",
        "Lorenz63",
        "Multigrid",
        "PlainIterations",
        "Multilevel",
        "Propagate",
        "Sensitivity",
        "SparseProduct",
        "TimeSteps",
        "Trajectories",
    }
    assert asv == set(classes) - {"EnsembleBenchmark"}


def test_every_benchmark_is_importable_and_has_a_parser():
    for name, (module, function) in programs().items():
        assert callable(getattr(importlib.import_module(f"benchmarks.{module}"), function)), name
        assert "--help" in flags_of(parser_of_benchmark(name)), name


SECTIONS = re.split(r"^## ", (ROOT / "docs" / "performance.md").read_text(), flags=re.MULTILINE)[1:]
NOT_MEASURED = {"not in 500", "x PyAMG, 256 samples", "ms per sample over 256", "199-250 ms"}
"""Limits, sizes, and what others published."""


def numbers_in(content):
    """All numbers of a record, those inside its texts too."""
    if isinstance(content, dict):
        return [number for key, value in content.items() if key != "machine" for number in numbers_in(value)]
    if isinstance(content, list):
        return [number for value in content for number in numbers_in(value)]
    return [float(text) for text in re.findall(r"\d+\.?\d*(?:e[+-]?\d+)?", str(content))]


@pytest.mark.parametrize("section", [s for s in SECTIONS if "results/" in s], ids=lambda s: s.partition("\n")[0])
def test_figures_of_a_table_are_in_the_records_of_its_section(section):
    """As they are rounded, in units or thousands of units."""
    names = re.findall(r"results/([\w-]+\.json)", section)
    kept = [n for name in names for n in numbers_in(json.loads((ROOT / "benchmarks/results" / name).read_text()))]
    kept = np.unique(np.array(kept)[:, None] * [1e-6, 1e-3, 1.0, 1e3, 1e6])
    cells = [cell for line in section.splitlines() if line.startswith("|") for cell in line.split("|")[2:]]
    missing = []
    for cell in (cell for cell in cells if not any(words in cell for words in NOT_MEASURED)):
        plain = re.sub(r"(\d),(?=\d{3})", r"\1", cell.replace("*", ""))
        for text in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", plain):
            rounding = 0.51 * 10.0 ** -len(text.partition(".")[2])
            if np.min(np.abs(kept - float(text))) > max(rounding, 0.005 * float(text) * (float(text) >= 1000)):
                missing.append(f"{text} in {cell.strip()}")
    assert missing == []


def names_of(text, page):
    names = {"__name__": page}
    exec(compile(text, page, "exec"), names)
    return names


def test_code_of_the_page_on_fusing_runs():
    result = names_of(python_of(FOLDER / "fuse.md"), "fuse.md")["result"]
    assert result["capped"].shape == (1_000_000,) and result["capped"].n_samples == 32


def test_code_of_the_page_on_unchanged_code_runs():
    names = names_of(
        python_of(FOLDER / "unchanged-code.md").partition('with en.divergence("majority")')[0], "unchanged"
    )
    assert names["result"].value.samples.tolist() == [0, 8, 16, 0] and len(names["result"].groups) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ensemble.apps.gbees.GridWarning")  # of the published cells
def test_code_and_figures_of_the_page_on_gbees(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of(python_of(FOLDER / "gbees.md"), "gbees.md")
    gbees, x, cells = names["gbees"], names["x"], names["cells"]
    assert abs(gbees.bhattacharyya(cells, gbees.kernel_density(x, cells)) - 0.904) < 5e-4
    assert abs(gbees.bhattacharyya(cells, gbees.binned(x, cells, widths=1.0), widths=1.0) - 0.73) < 5e-3


def check_gpu_page(text):
    names = names_of(text, "gpu.md")
    assert names["on_host"].tolist() == pytest.approx([1.0 + x for x in (3.5 / 121, 31.5 / 121, 91.5 / 121)], rel=1e-12)
    assert names["result"].converged.all() and names["solved"].converged.all()
    assert names["run"].time == 0.5 and names["smooth"].mean.shape == (1000, 1)


@pytest.mark.slow
def test_code_of_the_page_on_gpus_runs_on_numpy_too():
    text = python_of(FOLDER / "gpu.md")
    check_gpu_page(
        text.replace("import cupy as cp", "import numpy as cp").replace("cp.asnumpy", "").replace('"cupy"', '"numpy"')
    )


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")
def test_code_of_the_page_on_gpus_runs():
    prototype("cupy")
    check_gpu_page(python_of(FOLDER / "gpu.md"))


def test_lines_of_pages_have_at_most_120_characters():
    """Tables, code, formulas and pictures may be longer."""
    long = []
    for path in [*PAGES, ROOT / "CHANGELOG.md"]:
        in_code = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            in_code ^= line.startswith("```")
            free = in_code or line.startswith(("|", "    ", "!["))
            if len(line) > 120 and not free:
                long.append(f"{path.relative_to(ROOT)}:{number}")
    assert long == []


PASTED = {
    name: re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    for name in ("README.md", "docs/tour.md")
}
"""Pages whose blocks can be pasted; lines that begin with "# " are what they print."""


def printed(page):
    return [line[2:] for block in PASTED[page] for line in block.splitlines() if line.startswith("# ")]


@pytest.mark.parametrize("page", PASTED)
def test_blocks_of_the_page_run_as_a_script(page, capsys):
    names_of("\n".join(PASTED[page]), page)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == printed(page)


@pytest.mark.parametrize("page", PASTED)
def test_blocks_of_the_page_can_be_pasted_at_the_prompt_of_python(page):
    """Each is taken by the interactive compiler line by line: no empty line within a function, and one behind it."""
    for block in PASTED[page]:
        compiler, pending = codeop.CommandCompiler(), []
        for line in block.splitlines():
            pending.append(line)
            if compiler("\n".join(pending), page, "single") is not None:
                pending = []
        assert "".join(pending).strip() == "" and ">>>" not in block and len(PASTED[page]) > 5


@pytest.mark.slow
@pytest.mark.parametrize("page", PASTED)
def test_blocks_of_the_page_run_as_cells_of_a_notebook(page, tmp_path):
    """In a kernel of Jupyter, a cell for each block: pip install nbclient ipykernel."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    v4 = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(block) for block in PASTED[page]])
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    shown = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert [line.rstrip() for line in shown.splitlines()] == printed(page)
    assert [output for output in outputs if output.get("name") == "stderr" or output.output_type == "error"] == []
