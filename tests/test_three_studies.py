"""The three studies of the page run from their files to a report, and give what the page reads from them."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ensemble.uq import open_study
from tests.command_line import exit_status
from tests.uq.report.page_reader import Page

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials" / "studies"
PAGE = (ROOT / "docs" / "howto" / "three-studies.md").read_text()
BLOCKS = dict(zip(("sir", "truss", "wall"), re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL), strict=True))
FAST = {"n = 512": "n = 64", "n = 128": "n = 64", "n = 256": "n = 64", "-n 512": "-n 64"}
FAST |= {"n_per_level = 500": "n_per_level = 100"}


def carried_out(name, place, monkeypatch, capsys, *, fast):
    """The commands of a study in a copy of its folder: what they print, by command, and the page of the report."""
    shutil.copytree(FOLDER / name, place / name)
    monkeypatch.chdir(place / name)
    commands = BLOCKS[name]
    if fast:
        toml = place / name / f"{name}.toml"
        for long, short in FAST.items():
            toml.write_text(toml.read_text().replace(f"{long}\n", f"{short}\n"))
            commands = commands.replace(long, short)
    printed = {}
    for line in commands.strip().splitlines():
        program, *words = shlex.split(line)
        words += ["--quiet"] if words[0] in ("run", "sensitivity") else []
        assert program == "ensemble" and exit_status(words) == 0
        printed[words[0]] = capsys.readouterr().out
    assert (place / name / f"{name}.png").stat().st_size > 5_000
    return printed, Page((place / name / f"{name}.html").read_text())


@pytest.mark.parametrize("name", ["sir", "truss", pytest.param("wall", marks=pytest.mark.slow)])
def test_a_study_runs_from_its_files_to_a_report(name, tmp_path, monkeypatch, capsys):
    printed, page = carried_out(name, tmp_path, monkeypatch, capsys, fast=True)
    study = open_study(tmp_path / name / f"{name}.zarr")
    assert study.n_done == study.n and study.n_failed == 0 and f"{study.n} of {study.n} samples" in printed["run"]
    titles = [one["text"] for one in page.all("h2")]
    assert {"Statistics", "The most influential inputs", "Cost and throughput"} <= set(titles)
    axis = {"sir": "day", "truss": "bar", "wall": "place"}[name]
    assert len(study.coordinates[axis]) == {"sir": 41, "truss": 10, "wall": 25}[name]
    if name == "sir":
        assert study.units["day"] == "d" and page.table("Sobol' indices of peak")[1][0] == "contacts"
    if name == "truss":
        assert page.table("Sobol' indices of tip")[1][0] == "load" and "tip" in printed["chaos"]
        assert study.coordinates["bar"][0] == "U1" and not list((tmp_path / name / "runs").iterdir())


@pytest.mark.slow
def test_the_numbers_of_the_page_are_those_of_the_studies(tmp_path, monkeypatch, capsys):
    sir, _ = carried_out("sir", tmp_path, monkeypatch, capsys, fast=False)
    assert re.search(r"peak +\(\) +0\.187\d +0\.0519\d +0\.187 to 0\.1877", sir["run"])
    assert re.search(r"peak\n.*\n +contacts +0\.9\d+ \+- 0\.0\d+", sir["sensitivity"])
    truss, _ = carried_out("truss", tmp_path, monkeypatch, capsys, fast=False)
    assert re.search(r"load +first 0\.79|load +first 0\.788", truss["chaos"]) and "0.03125" in truss["rare"]
    wall, _ = carried_out("wall", tmp_path, monkeypatch, capsys, fast=False)
    assert re.search(r"conductivity +first 0\.63", wall["chaos"]) and "2.919e-05" in wall["rare"]


def test_the_forces_of_the_truss_balance_the_load(tmp_path):
    """A cut through the outer bay: the diagonals alone carry the load of the tip; the chords, its moment."""
    place = shutil.copytree(FOLDER / "truss" / "template", tmp_path / "run")
    (place / "truss.in").write_text("4e5 7e10 5e-3 2e-3\n")
    subprocess.run([sys.executable, "-S", "truss.py"], cwd=place, check=True)
    stress = [float(line.split(",")[1]) for line in (place / "bars.csv").read_text().splitlines()[1:]]
    force = [s * a for s, a in zip(stress, [5e-3] * 4 + [2e-3] * 6, strict=True)]
    assert (force[8] - force[9]) / 2**0.5 == pytest.approx(4e5, rel=1e-9)
    assert force[1] + force[3] + (force[8] + force[9]) / 2**0.5 == pytest.approx(0.0, abs=1e-3)
