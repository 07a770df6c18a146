"""``ensemble ode``: what it prints and writes, how it ends, what it refuses."""

import json

import numpy as np
import pytest
import scipy.integrate

from ensemble import gallery
from tests.command_line import exit_status

MODEL = """
def decay(t, y, p, xp):
    return [-p[0] * y[0]]

def blow_up(t, y, p, xp):
    return [p[0] * y[0] * y[0]]

def misspelt(t, y, p, xp):
    return [-p[0] * y[1]]

def undefined(t, y, p, xp):
    return [-rate * y[0]]
"""

CONFIGURATION = """
y0 = [1.0]
p = ["rate"]
t = [0.0, 2.0]
rtol = 1e-9
[inputs]
rate = {distribution = "uniform", loc = 0.25, scale = 0.5}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "problem.toml").write_text(CONFIGURATION)
    return tmp_path


def test_statistics_of_a_decay(folder, capsys):
    """The mean of exp(-2 k) over k from 0.25 to 0.75 is (exp(-0.5) - exp(-1.5))."""
    command = ["ode", "model.py:decay", "-c", "problem.toml", "-n", "2048", "--quiet", "--json", "--out", "out.npz"]
    assert exit_status([*command, "--times", "5", "--plot", "fan.png"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 2048 and found["status"] == {"finished": 2048}
    assert abs(found["states"][0]["mean"] - (np.exp(-0.5) - np.exp(-1.5))) < 1e-4
    with np.load("out.npz") as arrays:
        assert arrays["y"].shape == (5, 1, 2048) and arrays["t"].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert (folder / "fan.png").stat().st_size > 1000


def test_statistics_are_those_of_the_end_whatever_the_output_times(folder, capsys):
    (folder / "problem.toml").write_text("times = [0.5, 1.0]" + CONFIGURATION)
    assert exit_status(["ode", "model.py:decay", "-c", "problem.toml", "-n", "2048", "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert abs(found["states"][0]["mean"] - (np.exp(-0.5) - np.exp(-1.5))) < 1e-4


def test_a_problem_of_the_gallery(folder, capsys):
    assert exit_status(["ode", "fitzhugh_nagumo", "--method", "dop853", "--rtol", "1e-9", "-n", "1"]) == 0
    problem = gallery.fitzhugh_nagumo()
    end = scipy.integrate.solve_ivp(
        lambda t, y: problem.f(t, y, problem.p, np), problem.t, problem.y0, rtol=1e-11, atol=1e-12, method="DOP853"
    ).y[:, -1]
    text = capsys.readouterr().out
    assert "1 samples" in text and f"{end[0]:.5g}" in text


def test_failed_samples_give_status_1(folder, capsys):
    assert exit_status(["ode", "model.py:blow_up", "-c", "problem.toml", "-n", "16", "--quiet"]) == 1
    assert "step too small" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "configuration", "text"),
    [
        (["nothing"], CONFIGURATION, "PROBLEM must be FILE.py:FUNCTION or one of"),
        (["model.py:decay"], None, "must come with y0 and t"),
        (["model.py:misspelt", "-c", "problem.toml"], CONFIGURATION, "raised IndexError in line 9: index 1 is out"),
        (["model.py:undefined", "-c", "problem.toml"], CONFIGURATION, "raised NameError in line 12: name 'rate'"),
        (["model.py:growth", "-c", "problem.toml"], CONFIGURATION, "must define 'growth'"),
        (["model.py:decay", "-c", "problem.toml"], CONFIGURATION.replace("p =", "q ="), "no keys but"),
        (["model.py:decay", "-c", "problem.toml"], CONFIGURATION.replace('"rate"]', '"k"]'), "must name inputs"),
        (["model.py:decay", "-c", "problem.toml"], CONFIGURATION.replace("2.0]", "2.0, 3.0]"), "t must be two numbers"),
        (
            ["model.py:decay", "-c", "problem.toml"],
            CONFIGURATION.replace("2.0]", "true]"),
            "t must be a finite number, or",
        ),
        (
            ["model.py:decay", "-c", "problem.toml"],
            CONFIGURATION.replace("[1.0]", "[[1.0]]"),
            "y0 must be finite numbers",
        ),
        (
            ["model.py:decay", "-c", "problem.toml"],
            CONFIGURATION.replace("[1.0]", "[true]"),
            "y0 must be finite numbers",
        ),
        (["model.py:decay", "-c", "problem.toml"], "times = 0" + CONFIGURATION, "times must be a whole number of at"),
        (
            ["model.py:decay", "-c", "problem.toml"],
            "times = true" + CONFIGURATION,
            "times must be a whole number of at",
        ),
        (["model.py:decay", "-c", "problem.toml"], "times = [1, 'a']" + CONFIGURATION, "times must be a whole number"),
        (["model.py:decay", "-c", "problem.toml", "--method", "rk5"], CONFIGURATION, "method must be one of"),
        (["model.py:decay", "-c", "problem.toml", "--out", "a.txt"], CONFIGURATION, "--out"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, arguments, configuration, text):
    if configuration is not None:
        (folder / "problem.toml").write_text(configuration)
    assert exit_status(["ode", *arguments, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1


def test_a_file_called_as_one_of_the_library_is_not_blamed_for_its_errors(folder, capsys):
    """`solve.py` of the user, beside the module ``ode/solve.py``, which refuses the step."""
    (folder / "solve.py").write_text((folder / "model.py").read_text())
    (folder / "problem.toml").write_text(CONFIGURATION)
    assert exit_status(["ode", "solve.py:decay", "-c", "problem.toml", "--step", "-1", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "step must be above zero" in error and "raised" not in error


@pytest.mark.parametrize(("name", "options", "method"), [
    ("robertson", [], "rodas4"), ("hires", [], "rodas4"), ("lorenz63", [], "tsit5"),
    ("hires", ["--method", "bdf"], "bdf"),
])  # fmt: skip
def test_a_stiff_problem_of_the_gallery_is_integrated_by_a_stiff_method(folder, capsys, name, options, method):
    assert exit_status(["ode", name, "--json", "--quiet", *options]) == 0
    assert method in capsys.readouterr().out
