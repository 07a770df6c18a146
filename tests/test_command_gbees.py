"""``ensemble gbees``: what it prints, what it writes, how it ends, and that it goes on where it was interrupted."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from ensemble.__main__ import main
from ensemble._command import parsers
from ensemble._command.gbees.input import configuration_of
from ensemble._command.gbees.progress import GridProgress
from ensemble._kernels.gbees.limiters import LIMITERS
from ensemble.apps.gbees import Gbees, SavedRun, configuration, read_binary
from ensemble.apps.gbees.engines.backends import BACKENDS
from ensemble.apps.gbees.run.recorded_run import PausingCallback
from tests.command_line import exit_status


def test_the_choices_are_those_of_the_tables():
    """The parser names them itself, so that `--help` imports no engine."""
    assert set(parsers.BACKENDS) == set(BACKENDS)
    assert set(parsers.LIMITERS) == set(LIMITERS)


CIRCLE = """
drift = "model.py:circle"
mean = [1.0, 0.0]
covariance = [0.04, 0.04]
span = 0.5
records = 3
threshold = 1e-4
axes = ["x", "v"]

[[measurements]]
coordinates = [0]
y = 0.9
R = 0.01
span = 0.4
"""

MODEL = """
import dataclasses
import numpy as np
from ensemble.apps.gbees import Configuration, Drift, configuration

def circle(x, t, xp):
    return x[1], -x[0]

spring = Drift(lambda x, t, xp, k: (x[1], -k * x[0]), (1.0,), ("k",))

def energy(x, xp):
    return x[0] * x[0] + x[1] * x[1]

def both(x, xp):
    return x[0], x[1]

def line():
    return Configuration("line", lambda x, t, xp: (1.0 + 0.0 * x[0],), np.zeros(1), np.eye(1), 0.5,
                         options={"threshold": 1e-5})

def stops(x, t, xp):
    return x[1] / xp.sqrt(1.3 - x[0]), 0.0 * x[0]

cube = dataclasses.replace(configuration("aizawa"), name="cube", options={"threshold": 1e-3, "factor": 0.5})
four = Configuration("four", lambda x, t, xp: (x[1], -x[0], x[3], -x[2]), np.ones(4), np.eye(4), 0.1,
                     options={"threshold": 1e-3, "factor": 0.5})
wrong = 3
def raises():
    raise RuntimeError("no")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a model and a problem in it."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "circle.toml").write_text(CIRCLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def interrupt_after(monkeypatch):
    """Press Ctrl-C at the given report of a run."""

    def arrange(n):
        call, calls = PausingCallback.__call__, []

        def counted(self, *arguments):
            calls.append(1)
            if len(calls) == n:
                raise KeyboardInterrupt
            return call(self, *arguments)

        monkeypatch.setattr(PausingCallback, "__call__", counted)

    return arrange


def changed(folder, text, old="", new="", name="circle.toml"):
    """Another problem file beside the model."""
    (folder / name).write_text(text.replace(old, new) if old else text)
    return name


def test_json_is_one_object_and_right(folder, capsys):
    assert main(["gbees", "circle.toml", "--json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out)
    assert out.count("\n") == 1
    run = Gbees(lambda x, t, xp: (x[1], -x[0]), [1.0, 0.0], [0.04, 0.04], threshold=1e-4)
    run.advance(0.25)
    run.advance(0.5)
    evidence = run.update(lambda x, xp: x[0], 0.9, 0.01)
    assert found["log_evidences"] == [pytest.approx(evidence, rel=1e-12)]
    assert [r["time"] for r in found["records"]] == pytest.approx([0.0, 0.25, 0.5, 0.5, 0.7, 0.9])
    assert found["records"][3]["measurements"] == 1
    run.advance(0.7)
    run.advance(0.9)
    assert (found["steps"], found["cell_steps"]) == (run.n_steps, run.cell_steps)
    assert found["records"][-1]["mean"] == pytest.approx(run.mean().tolist(), abs=2e-3)  # of active cells only
    assert found["axes"] == ["x", "v"] and found["interrupted"] is False and found["monte_carlo"] is None
    assert [path.name for path in folder.iterdir() if path.suffix == ".npz"] == []


def test_the_table_tells_records_measurements_and_speed(folder, capsys):
    assert main(["gbees", "circle.toml", "--monte-carlo", "500", "--factor", "2,1"]) == 0
    out, err = capsys.readouterr()
    for text in (
        "GBEES circle: 2 dimensions, threshold 0.0001, cells of 0.05 x 0.1, float64",
        "mean x",
        "measurement 1: log evidence",
        "cell-steps, at most",
        "probability before normalising",
        "M cell-steps/s",
        "500 Monte Carlo samples at t = 0.5",
        "Bhattacharyya coefficient",
    ):
        assert text in out
    assert "compiling" in err


@pytest.mark.slow
def test_the_published_comparison_with_monte_carlo(folder, capsys):
    assert main(["gbees", "lorenz63", "--until", "1", "--monte-carlo", "20000", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Table 1 of the paper has 0.9027 with 100,000 samples; fewer samples have wider kernels and a lower coefficient.
    assert found["monte_carlo"]["kernel_density"] == pytest.approx(0.894, abs=0.01)
    assert found["steps"] == 431 and len(found["records"]) == 6


def test_probability_that_a_published_problem_loses_is_in_the_table_and_no_warning(folder, capsys):
    assert main(["gbees", "lorenz63", "--until", "0.3"]) == 0
    out, err = capsys.readouterr()
    assert "warning" not in err and "\n(on the published cells and threshold; --factor, " in out
    assert main(["gbees", "lorenz63", "--until", "0.3", "--threshold", "1e-5"]) == 0
    out, err = capsys.readouterr()
    assert err.count("warning: Gbees.advance: negative values must be") == 1 and "published" not in out


def test_quiet_says_nothing_on_stderr(folder, capsys):
    assert main(["gbees", "circle.toml", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["gbees", "circle.toml", "--json"]) == 0
    err = capsys.readouterr().err
    assert "of 0.9" in err and "M cell-steps/s" in err and "cells" in err


def test_elsewhere_a_line_now_and_then(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 6.0, 7.0]).__next__
    monkeypatch.setattr("ensemble._command.gbees.progress.time.perf_counter", clock)
    with GridProgress(2.0) as progress:
        for k in range(1, 4):
            progress.report(0.5 * k, 10 * k, 10_000_000 * k)
    assert capsys.readouterr().err == "t = 1 of 2, 20 cells, 3.33 M cell-steps/s\n"


def test_files_are_written_and_nothing_else_is_left(folder, capsys):
    arguments = ["--out", "o.npz", "--export", "pdf", "--format", "binary", "--plot", "p.png", "--quiet"]
    assert main(["gbees", "circle.toml", *arguments]) == 0
    saved_run = SavedRun.load("o.npz")
    assert saved_run.spans == [0, 0, 0, 1, 1, 1] and saved_run.title == "circle"
    for k, name in enumerate(["P0/pdf_0", "P0/pdf_1", "P0/pdf_2", "P1/pdf_0", "P1/pdf_1", "P1/pdf_2"]):
        points = read_binary(folder / "pdf" / f"{name}.bin", 2)
        np.testing.assert_array_equal(points.probabilities, saved_run.distributions[k].probabilities)
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    names = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert names == {"model.py", "circle.toml", "o.npz", "pdf", "p.png"}
    capsys.readouterr()


@pytest.mark.parametrize("backend", ["array", pytest.param("numpy", marks=pytest.mark.slow)])
@pytest.mark.parametrize("problem", ["model.py:line", "model.py:cube", "model.py:four"])
def test_every_number_of_dimensions_has_a_picture(problem, backend, folder, capsys):
    options = ["--until", "4", "--times", "0,0.05", "--plot", "p.svg", "--quiet", "--backend", backend]
    assert main(["gbees", problem, *options]) == 0
    assert (folder / "p.svg").read_bytes().startswith(b"<?xml")
    capsys.readouterr()


def test_a_picture_has_units_and_says_what_its_surfaces_hold(folder, monkeypatch, capsys):
    units = 'units = ["rad", "rad/s"]\ntime_unit = "s"\n'
    changed(folder, CIRCLE, 'axes = ["x", "v"]', 'axes = ["angle", "rate"]\n' + units)
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    assert main(["gbees", "circle.toml", "--backend", "array", "--plot", "p.png", "--quiet"]) == 0
    first, second, cells = drawn[0].axes
    assert (first.get_xlabel(), first.get_ylabel()) == ("angle (rad)", "rate (rad/s)")
    assert cells.get_xlabel() == "time (s)"
    entries = [text.get_text() for text in second.get_legend().get_texts()]
    assert entries == ["t = 0.5 s", "t = 0.7 s", "t = 0.9 s", "50 % inside", "90 % inside", "99 % inside"]
    capsys.readouterr()


# --- interrupted


@pytest.mark.parametrize("n", [3, 10])
def test_ctrl_c_leaves_a_checkpoint_that_the_run_goes_on_from(n, folder, capsys, interrupt_after):
    problem = ["gbees", "circle.toml", "--backend", "array"]  # which reports every step
    assert main([*problem, "--out", "whole.npz", "--quiet"]) == 0
    interrupt_after(n)
    assert main([*problem, "--out", "part.npz", "--json"]) == 130
    out, err = capsys.readouterr()
    found = json.loads(out.splitlines()[-1])
    assert found["interrupted"] is True and found["steps"] == n
    assert "go on with: ensemble gbees circle.toml --resume --checkpoint circle.checkpoint.npz" in err
    assert (folder / "circle.checkpoint.npz").exists()
    assert main([*problem, "--resume", "--out", "rest.npz", "--json", "--quiet"]) == 0
    whole, rest = (SavedRun.load(name).arrays() for name in ("whole.npz", "rest.npz"))
    assert set(whole) == set(rest)
    for name, value in whole.items():
        np.testing.assert_array_equal(rest[name], value, err_msg=name)
    assert not (folder / "circle.checkpoint.npz").exists()
    assert len(SavedRun.load("part.npz").steps) == n


def test_a_grid_that_cannot_go_on_ends_with_one_line_and_what_there_is(folder, capsys):
    changed(folder, CIRCLE, "model.py:circle", "model.py:stops")
    (folder / "circle.toml").write_text((folder / "circle.toml").read_text().replace("[1.0, 0.0]", "[0.0, 1.0]"))
    assert main(["gbees", "circle.toml", "--quiet", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("ensemble gbees: stopped at t = ") and err.count("\n") == 1 and "finite" in err
    assert len(json.loads(out)["records"]) >= 1 and (folder / "circle.checkpoint.npz").exists()


def test_a_resumed_run_needs_the_same_options_and_a_checkpoint(folder, capsys):
    assert main(["gbees", "circle.toml", "--resume"]) == 2
    assert "--resume must find a checkpoint; got none at 'circle.checkpoint.npz'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "model, problem, options, text",
    [
        (("-x[0]", "-2.0 * x[0]"), None, [], "another drift, in line 1 of its program: t0 = negative(x[0])"),
        (None, ("R = 0.01", "R = 0.02"), [], "another R of measurement 0: [[0.01]] there, [[0.02]] here"),
        (None, None, ["--limiter", "minmod", "--cfl", "0.5"],
         "another limiter: mc there, minmod here; another cfl: 1.0 there, 0.5 here"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_problem_is_not_gone_on_with(model, problem, options, text, folder, capsys,
                                                             interrupt_after):  # fmt: skip
    command = ["gbees", "circle.toml", "--backend", "array", "--quiet"]
    interrupt_after(3)
    assert main(command) == 130
    kept = (folder / "circle.checkpoint.npz").read_bytes()
    if model is not None:
        (folder / "model.py").write_text(MODEL.replace(*model))
    if problem is not None:
        changed(folder, CIRCLE, *problem)
    capsys.readouterr()
    assert exit_status([*command, "--resume", *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and text in err
    assert (folder / "circle.checkpoint.npz").read_bytes() == kept


# --- problems


def test_a_file_may_change_a_published_problem(folder):
    text = 'system = "lorenz63"\nthreshold = 1e-5\nmean = [1, 2, 3]\n[parameters]\nr = 28\n'
    found = configuration_of(changed(folder, text, name="l.toml"))
    published = configuration("lorenz63")
    assert found.name == "l" and found.options == {"threshold": 1e-5} and found.spans == published.spans
    np.testing.assert_array_equal(found.mean, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(found.drift((1.0, 2.0, 3.0), 0.0, np), [4.0, -5.0, -3.0 + 2.0 - 28.0])


def test_a_file_says_which_coordinates_have_no_period(folder):
    text = CIRCLE.replace("records = 3", 'records = 3\nperiods = ["none", 4.0]\ndiffusion = 0.01\nrotate = false')
    found = configuration_of(changed(folder, text, name="p.toml"))
    assert found.options["periods"] == (None, 4.0) and found.options["diffusion"] == 0.01


def test_a_file_may_name_functions_and_the_public_programs_files(folder):
    (folder / "start.txt").write_text("x v\n1 0\n\nCovariance(x, v)\n0.1 0\n0 0.2\n\nT\n0.7\n")
    (folder / "seen.txt").write_text("x v\n0.5 0.6\n\nCovariance(x, v)\n0.01 0\n0 0.02\n\nT\n0.3\n")
    text = (
        'drift = "model.py:spring"\ninitial = "start.txt"\nthreshold = 1e-4\nbounds = "model.py:energy"\n'
        "factor = [1, 2]\n"
        '[parameters]\nk = 4.0\n[[measurements]]\nh = "model.py:both"\nfile = "seen.txt"\n'
    )
    found = configuration_of(changed(folder, text, name="f.toml"))
    assert found.spans == (0.7, 0.3) and found.options["bounds"]((1.0, 2.0), np) == 5.0
    np.testing.assert_array_equal(found.covariance, np.diag([0.1, 0.2]))
    assert found.drift((1.0, 2.0), 0.0, np) == (2.0, -4.0)
    (seen,) = found.measurements
    assert seen.y == (0.5, 0.6) and seen.h((3.0, 4.0), np) == (3.0, 4.0)
    np.testing.assert_array_equal(seen.R, np.diag([0.01, 0.02]))


@pytest.mark.parametrize(
    "problem, text",
    [
        ("lorenz", "PROBLEM must be one of lorenz63, lorenz96, duffing"),
        ("none.toml", "there must be a file 'none.toml'; got none"),
        ("none.py", "there must be a file 'none.py'; got none"),
        ("model.py:absent", "model.py must define 'absent'; got no such name"),
        ("model.py", "model.py must be a function without arguments that runs; got TypeError: configuration() missing"),
        ("model.py:raises", "a function without arguments that runs; got RuntimeError: no."),
        ("model.py:energy", "must be a function without arguments"),
        ("model.py:tuple", "model.py must define 'tuple'"),
        ("model.py:both_of_them", "model.py must define 'both_of_them'"),
        ("model.py:energy", "energy() missing 2 required positional arguments"),
        ("model.py:wrong", "'int' object is not callable"),
    ],
)
def test_a_problem_that_is_none_is_one_line(problem, text, folder, capsys):
    assert exit_status(["gbees", problem]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("ensemble gbees: error:")
    assert text in err


@pytest.mark.parametrize(
    "old, new, text",
    [
        ("span = 0.5", "span = ", "circle.toml must be TOML; got an error"),
        ("records", "record", "circle.toml must have no keys but"),
        ("coordinates", "coordinate", "circle.toml must have no keys but R, coordinates, file, h, likelihood, span, y"),
        ("threshold = 1e-4", "", "circle.toml must say threshold; got"),
        ("mean = [1.0, 0.0]", "", "circle.toml must say mean; got"),
        ('drift = "model.py:circle"', "", "must have a system or a drift; got neither"),
        ("model.py:circle", "circle", "a function must be given as FILE.py:NAME; got 'circle'"),
        ("y = 0.9", "", "measurement 0 must say y, R, span (or a file), and either coordinates or h"),
        ("coordinates = [0]", "", "measurement 0 must say y, R, span"),
        ("R = 0.01", "R = 0.01\nlikelihood = 'cells'", "measurement 0: likelihood must be one of auto, point, cell"),
        ('axes = ["x", "v"]', "parameters = {k = 1.0}", "parameters must belong to a system or a gbees.Drift"),
        ("covariance = [0.04, 0.04]", "covariance = [0.04, -0.04]", "covariance must be"),
        ("threshold = 1e-4", "threshold = 2.0", "circle.toml: Gbees: threshold must be a probability below 1; got 2.0"),
        (
            "threshold = 1e-4",
            "threshold = 0.5",
            "circle.toml: Gbees: threshold must leave active cells on the first grid",
        ),
        ("records = 3", "records = 1", "circle.toml: records must be an integer of at least 2; got 1"),
        ("records = 3", "records = 2.5", "circle.toml: records must be a whole number; got 2.5"),
        ("records = 3", "records = true", "circle.toml: records must be a whole number; got True"),
        ("span = 0.5", "span = nan", "circle.toml: span must be a finite number above zero; got nan"),
        ("span = 0.5", "span = inf", "circle.toml: span must be a finite number above zero; got inf"),
        ("span = 0.5", 'span = "long"', "circle.toml: span must be a finite number above zero; got 'long'"),
        ("span = 0.4", "span = -1", "circle.toml: measurement 0: span must be a finite number above zero; got -1"),
        ("y = 0.9", "y = nan", "circle.toml: measurement 0: y must be a finite number, or a list of them; got nan"),
        ("R = 0.01", "R = -0.01", "circle.toml: measurement 0: R must be a covariance matrix, positive definite; got"),
        ("R = 0.01", "R = [[1, 0], [0]]", "circle.toml: measurement 0: R must be a finite number, a list of them"),
        ("coordinates = [0]", "coordinates = [2]", "measurement 0: coordinates must be below the number of dimensions"),
        (
            "coordinates = [0]",
            "coordinates = [-1]",
            "measurement 0: coordinates must be a coordinate, or a list of them",
        ),
        (
            "coordinates = [0]",
            'h = "model.py:both"',
            "circle.toml: measurement 0: h must give one number for each of y",
        ),
        ("coordinates = [0]", 'h = "model.py:no"', "circle.toml: measurement 0: h: model.py:no: model.py must define"),
        ('axes = ["x", "v"]', 'axes = ["x"]', "circle.toml: axes must be 2 names, one for each coordinate; got ['x']"),
        ('axes = ["x", "v"]', 'axes = "xv"', "circle.toml: axes must be a list of strings; got 'xv'"),
        ('axes = ["x", "v"]', "factor = -1", "circle.toml: Gbees: factor must be above zero"),
        ('axes = ["x", "v"]', 'rotate = "yes"', "circle.toml: rotate must be true or false; got 'yes'"),
        (
            'axes = ["x", "v"]',
            "periods = [0.1, 'none']",
            "circle.toml: Gbees: periods must hold 3 cells, to half a cell; got",
        ),
        ('axes = ["x", "v"]', "periods = 3", "circle.toml: periods must be a list of numbers above zero, with"),
        ('axes = ["x", "v"]', "parameters = 3", "circle.toml: parameters must be a table; got 3"),
        (
            "model.py:circle",
            'model.py:spring"\nparameters = {q = 1.0} #',
            "circle.toml: parameters: Drift: parameters must",
        ),
        ("model.py:circle", "model.py:nothing", "circle.toml: drift: model.py:nothing: model.py must define 'nothing'"),
        ('drift = "model.py:circle"', 'system = "lorenz"', "circle.toml: system must be one of lorenz63, lorenz96"),
        (
            "mean = [1.0, 0.0]",
            'mean = "here"',
            "circle.toml: mean must be a finite number, or a list of them; got 'here'",
        ),
        (
            "mean = [1.0, 0.0]",
            'initial = "none.txt"',
            "circle.toml: initial must be a file that can be read; got 'none.txt'",
        ),
        ("[[measurements]]", "[measurements]", "circle.toml: measurements must be tables, one for each measurement"),
    ],
)
def test_a_file_that_does_not_say_enough_is_one_line(old, new, text, folder, capsys):
    assert old in CIRCLE
    changed(folder, CIRCLE, old, new)
    assert exit_status(["gbees", "circle.toml"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and text in err


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--backend", "abacus"], "argument --backend: invalid choice: 'abacus'"),
        (["--factor", "1,much"], "argument --factor: must be a number, or several between commas; got '1,much'"),
        (["--every", "0"], "argument --every: must be an integer of at least 1"),
        (["--until", "-1"], "--until must be a finite number above zero; got -1"),
        (["--times", "3"], "error: RecordedRun: times must lie between 0 and 0.9; got [3.0]"),
        (["--times", "0.1,nan,0.5"], "times must lie between 0 and 0.9; got [0.1, nan, 0.5]"),
        (["--until", "nan"], "--until must be a finite number above zero; got nan"),
        (["--threshold", "0.5"], "error: Gbees: threshold must leave active cells on the first grid; got 0.5, and the"),
        (["--out", "result.txt"], "--out must end in one of .npz; got 'result.txt'"),
        (["--plot", "/nowhere/at/all.png"], "--plot must name a file that can be written"),
        (["--checkpoint", "/nowhere/c.npz"], "--checkpoint must name a file that can be written"),
        (["--threshold", "-1"], "threshold"),
        (["--limiter", "none at all"], "argument --limiter: invalid choice"),
        (["--cfl", "7"], "cfl"),
    ],
)
def test_bad_options_are_one_line_before_any_work(arguments, text, folder, capsys, monkeypatch):
    def advance(*_, **__):
        raise AssertionError("a run was begun")

    monkeypatch.setattr(Gbees, "advance", advance)
    assert exit_status(["gbees", "circle.toml", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("ensemble") and "error:" in err
    assert text in err


HOWTO = Path(__file__).parents[1] / "docs" / "howto" / "gbees.md"


def blocks(language):
    """The code in the how-to page, block by block."""
    return re.findall(rf"```{language}\n(.*?)```", HOWTO.read_text(), re.DOTALL)


def test_the_how_to_pages_code_runs(folder, capsys):
    names = {}
    exec(blocks("python")[0], names)
    assert names["run"].time == 2.0 and names["run"].sample(10, seed=1).shape == (2,)
    (folder / "model.py").write_text(MODEL + "\n\ndef pendulum(x, t, xp):\n    return x[1], -xp.sin(x[0])\n")
    (folder / "pendulum.toml").write_text(blocks("toml")[0])
    assert main(["gbees", "pendulum.toml", "--until", "1", "--every", "5", "--threshold", "1e-4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["axes"] == ["angle", "rate"] and len(found["records"]) > 3
