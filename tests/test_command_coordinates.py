"""Coordinates and units of outputs from the command line: a TOML file, a Python file, options."""

import csv
import json
import sys

import numpy as np
import pytest

import ensemble as en
from tests.command_line import exit_status

MODEL = """
import numpy as np
from scipy import stats
import ensemble as en

inputs = en.Inputs(speed=stats.norm(20.0, 1.0))

def flight(x):
    return {"height": x.speed * np.linspace(0.0, 2.0, 5), "flow": x.speed * np.arange(3.0), "tip": x.speed}
"""

INPUTS = '[inputs]\nspeed = {distribution = "norm", loc = 20.0, scale = 1.0}\n'

OUTPUTS = """
[outputs]
t = {start = 0.0, stop = 2.0, count = 5}
species = ["CO2", "N2", "O2"]
units = {t = "s", height = "m"}
"""

OPTIONS = ["--coordinate", "t=0:2:5", "--coordinate", "species=CO2,N2,O2", "--unit", "t=s", "--unit", "height=m"]

PYTHON = (
    'outputs = en.Outputs(t=np.linspace(0.0, 2.0, 5), species=["CO2", "N2", "O2"], units={"t": "s", "height": "m"})\n'
)

WAYS = {
    "TOML": (MODEL, INPUTS + OUTPUTS, []),
    "options": (MODEL, INPUTS, OPTIONS),
    "Python": (MODEL + PYTHON, INPUTS, []),
    "options over TOML": (MODEL, INPUTS + OUTPUTS.replace("2.0", "3.0"), ["--coordinate", "t=0,0.5,1,1.5,2"]),
    "TOML over Python": (MODEL + PYTHON.replace("2.0", "3.0"), INPUTS + OUTPUTS, []),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a model in it."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def ensemble(capsys, *arguments):
    """Status and what was printed."""
    status = exit_status([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def started(folder, capsys, way="TOML", n=64):
    model, config, options = WAYS[way]
    (folder / "model.py").write_text(model)
    (folder / "a.toml").write_text(config)
    arguments = ("run", "model.py:flight", "-c", "a.toml", "-n", n, "--store", "run.zarr", "--quiet", *options)
    assert ensemble(capsys, *arguments)[0] == 0


@pytest.mark.parametrize("way", WAYS)
def test_coordinates_are_the_same_from_a_file_and_from_options(folder, capsys, way):
    started(folder, capsys, way)
    assert ensemble(capsys, "resume", "run.zarr", "-n", 128, "--quiet")[0] == 0
    result = en.uq.open_study("run.zarr")
    assert result.dims == {"height": ("t",), "flow": ("species",), "tip": ()} and result.n_done == 128
    assert np.array_equal(result.coordinates["t"], np.linspace(0.0, 2.0, 5))
    assert result.coordinates["species"].tolist() == ["CO2", "N2", "O2"] and result.units == {"t": "s", "height": "m"}


def test_commands_on_a_store_show_coordinates_and_units(folder, capsys):
    started(folder, capsys)
    out = ensemble(capsys, "status", "run.zarr")[1]
    assert "height, shape (5,) (t), float64, m\n" in out and "tip, shape (), float64\n" in out
    assert json.loads(ensemble(capsys, "status", "run.zarr", "--json")[1])["outputs"]["flow"]["dims"] == ["species"]
    found = json.loads(ensemble(capsys, "stats", "run.zarr", "--json")[1])["outputs"]["height"]
    assert (found["dims"], found["units"]) == (["t"], "m")
    assert ensemble(capsys, "export", "run.zarr", "run.csv")[0] == 0
    with (folder / "run.csv").open() as file:
        head = next(csv.reader(file))
    assert head[2:5] == ["height(t=0 s) [m]", "height(t=0.5 s) [m]", "height(t=1 s) [m]"]
    assert head[7:10] == ["flow(species=CO2)", "flow(species=N2)", "flow(species=O2)"]
    for output in ("height", "flow"):
        assert ensemble(capsys, "plot", "run.zarr", "run.svg", "--output", output)[0] == 0


def test_a_study_is_not_resumed_with_other_coordinates(folder, capsys):
    started(folder, capsys)
    status, _, err = ensemble(capsys, "resume", "run.zarr", "-n", 128, "--coordinate", "t=0:3:5")
    assert status == 2 and "axes.coordinates.t.values: stored [0.0, 0.5, 1.0, 1.5, 2.0], given [0.0, 0.75" in err
    (folder / "a.toml").write_text(INPUTS + OUTPUTS.replace('"m"', '"km"'))
    status, _, err = ensemble(capsys, "resume", "run.zarr", "--model", "model.py:flight", "-c", "a.toml", "-n", 128)
    assert status == 2 and 'axes.units.height: stored "m", given "km"' in err
    assert en.uq.open_study("run.zarr").n == 64


WRONG = {
    "a number": ("t = 3", "outputs: t must be a list of numbers, texts or dates, or a table with start, stop"),
    "a key": (
        "t = {start = 0.0, stop = 1.0, step = 0.1}",
        "no keys but count, start, stop; got step",
    ),
    "missing": ("t = {start = 0.0, stop = 1.0}", "outputs.t must have start, stop and count"),
    "count": ("t = {start = 0.0, stop = 1.0, count = 1}", "count must be a whole number of at least 2; got 1"),
    "twice": ("t = [1, 1]", "outputs: Outputs: t must be a vector of different"),
    "units": ("t = [1, 2]\nunits = {t = 1}", "units: t must be a string"),
    "axes": ('t = [1, 2]\naxes = {height = "t"}', "axes: height must be a list of strings"),
    "unknown axis": ('t = [1, 2]\naxes = {height = ["x"]}', "name coordinates \\(t\\); got 'x'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tables_are_named(folder, capsys, case):
    text, expected = WRONG[case]
    (folder / "a.toml").write_text(f"{INPUTS}[outputs]\n{text}\n")
    status, _, err = ensemble(capsys, "run", "model.py:flight", "-c", "a.toml")
    assert status == 2 and expected.replace("\\", "") in err


def test_axes_of_the_file_name_what_lengths_leave_open(folder, capsys):
    (folder / "model.py").write_text(MODEL + "def square(x):\n    return {'a': x.speed * np.ones((3, 3))}\n")
    axes = '[outputs]\nx = [1, 2, 3]\naxes = {a = ["none", "x"]}\n'
    (folder / "a.toml").write_text(INPUTS + axes)
    assert (
        ensemble(capsys, "run", "model.py:square", "-c", "a.toml", "-n", 64, "--store", "run.zarr", "--quiet")[0] == 0
    )
    assert en.uq.open_study("run.zarr").dims == {"a": ("a_dim_0", "x")}


@pytest.mark.parametrize("option", ["t", "=1", "t="])
def test_options_without_a_name_or_a_value_are_refused(folder, capsys, option):
    status, _, err = ensemble(capsys, "run", "model.py:flight", "--coordinate", option)
    assert status == 2 and "must be NAME=VALUE" in err
