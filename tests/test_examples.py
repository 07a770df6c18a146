"""Every example runs, is short, and finds what is known; the gallery of the site runs them, too."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"

PRINTED = {
    "branches": "equal to single calls: True",
    "many_odes": "1000 of 1000 samples finished",
    "outside_program": "UqResult: 16 of 16 samples",
    "own_solver": "(90,) 32",
    "posterior": "converged",
    "resumed_study": "read: 1024 samples; equal: True",
    "scikit_fem_model": "n_samples=64",
    "sobol": "error of the first indices: 0.0",
    "sparse_systems": "64 systems of 1600 unknowns",
    "time_series": "variance of the walk 0.",
}
NEEDS = {"scikit_fem_model": "skfem", "resumed_study": "zarr"}
PLOTS = {"branches", "many_odes", "posterior", "scikit_fem_model", "sobol", "sparse_systems", "time_series"}
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


def test_there_are_ten_and_the_page_and_the_readme_lead_to_them():
    assert sorted(PRINTED) == EXAMPLES and len(EXAMPLES) == 10
    page = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", page, re.MULTILINE)) == EXAMPLES
    assert "](examples/sparse_systems.py)" in (FOLDER.parent / "README.md").read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_draws_one_picture_at_most(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 60 and text.startswith('"""\n') and "savefig" not in text
    assert ("plt." in text) == (name in PLOTS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_prints_what_matters(name, capsys, monkeypatch, tmp_path):
    pytest.importorskip(NEEDS.get(name, "matplotlib"))
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    plt.close("all")  # those that other tests left
    runpy.run_path(str(FOLDER / f"{name}.py"))
    assert PRINTED[name] in capsys.readouterr().out
    assert len(plt.get_fignums()) == (name in PLOTS) and list(tmp_path.iterdir()) == []
    plt.close("all")
