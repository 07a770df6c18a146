"""``ensemble sensitivity``, ``chaos`` and ``rare``: from a model, from TOML and from a store."""

import json

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from tests.command_line import exit_status
from tests.uq.store.trees import tree

MODEL = """
import numpy as np
from scipy import stats
import ensemble as en
from ensemble import xp

inputs = en.Inputs(a=stats.norm(0.0, 2.0), b=stats.norm(0.0, 1.0), c=3.0)

def total(x):
    return {"y": x.a + x.b + x.c, "line": xp.stack([x.a, x.b, x.a + x.b])}

def fragile(x):
    x.fail(x.a > 3.0, "too large")
    return {"y": x.a + x.b}

def margin(x):
    return x.capacity - x.load

def wrong(x):
    return x.a + x.nothing
"""

CONFIG = """
[study]
n = 64
seed = 7

[inputs]
a = {distribution = "norm", scale = 2.0}
b = {distribution = "norm"}
c = 3.0

[outputs]
t = [0.0, 1.0, 2.0]

[sensitivity]
level = 0.9

[chaos]
degree = 2
"""

DATA = """
[inputs]
a = {distribution = "norm", scale = 2.0, truncate = [-1.0, 1.5]}
v = {distribution = "norm", size = 2, truncate = [0.0, inf]}
b = {data = "loads.csv", column = "load"}
d = {data = [1.0, 2.0, 9.0], truncate = [0.0, 5.0]}
"""

RARE = """
[inputs]
capacity = {distribution = "norm", loc = 10.0, scale = 1.0}
load = {distribution = "gumbel_r", loc = 4.0, scale = 0.3}

[rare]
n_per_level = 500
threshold = 0.0
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    files = {"model.py": MODEL, "in.toml": CONFIG, "data.toml": DATA, "rare.toml": RARE}
    files["loads.csv"] = "place,load\nnorth,1.5\nsouth,2.5\nwest,1.5\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ensemble(capsys, *arguments):
    status = exit_status([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def made(n=64, seed=7, **options):
    inputs = en.Inputs(a=stats.norm(0.0, 2.0), b=stats.norm(0.0, 1.0), c=3.0)
    return inputs, lambda x: {"y": x.a + x.b + x.c}, {"seed": seed, "progress": False, **options}


# --- sensitivity
def test_indices_of_a_model_are_those_of_the_library(folder, capsys):
    status, out, err = ensemble(capsys, "sensitivity", "model.py:total", "-c", "in.toml", "--json", "--quiet")
    found, (inputs, model, options) = json.loads(out), made()
    own = en.sobol_indices(model, inputs, 64, level=0.9, **options)
    assert (status, err, found["level"], found["inputs"]) == (0, "", 0.9, ["a", "b"])
    assert [found["outputs"]["y"]["first"][name]["value"] for name in "ab"] == own.first["y"].tolist()
    assert found["outputs"]["y"]["total"]["a"]["low"] == own.interval("y", "total")[0][0]
    assert len(found["outputs"]["line"]["first"]["a"]["value"]) == 3


@pytest.mark.parametrize("method", ["sobol", "shapley"])
def test_a_store_gives_its_indices_without_the_model(folder, capsys, method):
    arguments = ["sensitivity", "model.py:total", "-n", 64, "--method", method, "--store", "s.zarr", "--quiet"]
    status, out, _ = ensemble(capsys, *arguments)
    (folder / "model.py").unlink()
    assert status == 0 and ensemble(capsys, "sensitivity", "s.zarr")[:2] == (0, out)


def test_indices_are_extended_to_those_of_one_run(folder, capsys):
    ensemble(capsys, "sensitivity", "model.py:total", "-n", 32, "--store", "s.zarr", "--quiet")
    status, _, err = ensemble(capsys, "sensitivity", "model.py:total", "-n", 64, "--store", "s.zarr", "--quiet")
    assert status == 2 and "Go on with it: --resume" in err
    arguments = ["sensitivity", "model.py:total", "-n", 64, "--store", "s.zarr", "--quiet", "--resume"]
    assert ensemble(capsys, *arguments)[0] == 0
    ensemble(capsys, "sensitivity", "model.py:total", "-n", 64, "--store", "whole.zarr", "--quiet")
    assert tree(folder / "s.zarr") == tree(folder / "whole.zarr")
    status, _, err = ensemble(capsys, "resume", "s.zarr")
    assert status == 2 and "ensemble sensitivity --resume goes on with it" in err


def test_a_killed_study_has_the_indices_of_its_whole_rows(folder):
    inputs, model, options = made()
    whole = en.sobol_indices(model, inputs, 16, **options)
    store = folder / "part.zarr"

    def stopped(x):
        if int(x.ids[-1]) >= 80:  # 16 rows of 4 samples and 4 further rows
            raise KeyboardInterrupt
        return model(x)

    with pytest.raises(KeyboardInterrupt):
        en.sobol_indices(stopped, inputs, 32, store=store, ensemble_size=16, **options)
    part = en.uq.open_indices(store)
    assert part.n_rows == 20 and en.uq.open_study(store).n_done == 80
    assert whole.n_rows == 16 and abs(part.first["y"][0] - 0.8) < 0.3


def test_failed_samples_give_status_one(folder, capsys):
    status, out, _ = ensemble(capsys, "sensitivity", "model.py:fragile", "-n", 64, "--quiet", "--store", "s.zarr")
    assert status == 1 and "rows are left out" in out
    assert ensemble(capsys, "sensitivity", "s.zarr")[:2] == (1, out)


def test_a_store_of_another_study_is_refused(folder, capsys):
    ensemble(capsys, "run", "model.py:total", "-n", 64, "--store", "run.zarr", "--quiet")
    status, _, err = ensemble(capsys, "sensitivity", "run.zarr")
    assert status == 2 and "store must be one of sobol_indices or shapley_effects; got one of sobol" in err
    status, _, err = ensemble(capsys, "sensitivity", "run.zarr", "-n", 3)
    assert status == 2 and "-n must be left out with a store; got 3" in err


# --- chaos
def test_chaos_of_a_model_of_its_store_and_of_the_library_are_one(folder, capsys):
    status, out, _ = ensemble(capsys, "chaos", "model.py:total", "-c", "in.toml", "--store", "c.zarr", "--quiet")
    inputs, model, options = made()
    result = en.propagate(model, inputs, 64, **options)
    expansion = en.uq.chaos(inputs, result, degree=2)
    assert status == 0 and f"a  first {expansion.first['y'][0]:.4f}" in out
    (folder / "model.py").unlink()
    assert ensemble(capsys, "chaos", "c.zarr", "--degree", 2)[:2] == (0, out)
    status, out, _ = ensemble(capsys, "chaos", "c.zarr", "--degree", 1, "--json")
    found = json.loads(out)
    assert (found["degree"], found["terms"], found["inputs"]) == (1, 3, ["a", "b"])
    assert found["outputs"]["y"]["first"]["a"] == pytest.approx(0.8) and len(found["outputs"]["line"]["mean"]) == 3


def test_a_study_of_chaos_goes_on_as_a_run(folder, capsys):
    ensemble(capsys, "chaos", "model.py:total", "-c", "in.toml", "--store", "c.zarr", "--quiet")
    assert ensemble(capsys, "resume", "c.zarr", "-n", 128, "--quiet")[0] == 0
    assert "from 128 samples" in ensemble(capsys, "chaos", "c.zarr")[1]


def test_chaos_of_a_store_that_does_not_say_its_inputs_asks_for_them(folder, capsys):
    ensemble(capsys, "run", "model.py:total", "-c", "data.toml", "-n", 64, "--store", "d.zarr", "--quiet")
    (folder / "model.py").write_text("def sums(x):\n    return {'y': x.a + x.v[0] * x.v[1] + x.b + x.d}\n")
    ensemble(capsys, "run", "model.py:sums", "-c", "data.toml", "-n", 64, "--store", "d.zarr", "--quiet")
    status, _, err = ensemble(capsys, "chaos", "d.zarr")
    assert status == 2 and "inputs must be given for this store" in err
    status, out, _ = ensemble(capsys, "chaos", "d.zarr", "-c", "data.toml", "--degree", 2)
    assert status == 0 and "ChaosExpansion" in out
    status, _, err = ensemble(capsys, "chaos", "d.zarr", "-c", "in.toml")
    assert status == 2 and "inputs must be those of the study" in err


# --- rare
def test_a_small_probability_is_that_of_the_library(folder, capsys):
    status, out, _ = ensemble(capsys, "rare", "model.py:margin", "-c", "rare.toml", "--json")
    inputs = en.Inputs(capacity=stats.norm(10.0, 1.0), load=stats.gumbel_r(4.0, 0.3))
    own = en.uq.subset_simulation(lambda x: x.capacity - x.load, inputs, n_per_level=500, seed=1)
    found = json.loads(out)
    assert (status, found["probability"], found["evaluations"]) == (0, own.probability, own.n_evaluations)
    assert [found["low"], found["high"]] == list(own.confidence_interval())
    assert found["low"] < 5.3e-7 < found["high"]
    status, out, _ = ensemble(capsys, "rare", "model.py:margin", "-c", "rare.toml", "--max-levels", 2)
    assert status == 1 and "max_levels" in out


def test_a_small_probability_goes_on_with_its_store(folder, capsys):
    arguments = ["rare", "model.py:margin", "-c", "rare.toml", "--quiet"]
    whole = ensemble(capsys, *arguments)
    short = [*arguments, "--store", "r.zarr", "--max-seconds", 1e-9]
    status, _, err = ensemble(capsys, *short)
    assert status == 2 and "no run was finished within max_seconds. resume=True goes on" in err
    assert ensemble(capsys, *arguments, "--store", "r.zarr", "--resume") == whole
    status, out, _ = ensemble(capsys, "status", "r.zarr")
    assert status == 0 and "0 failed" in out and "subset_simulation, seed 1" in out
    status, _, err = ensemble(capsys, *arguments, "--store", "r.zarr")
    assert status == 2 and "Go on with it: --resume" in err
    status, _, err = ensemble(capsys, "rare", "r.zarr")
    assert status == 2 and "store must be one of propagate; got one of subset_simulation" in err


def test_a_store_gives_the_probability_in_its_samples(folder, capsys):
    ensemble(capsys, "run", "model.py:total", "-n", 512, "--store", "run.zarr", "--quiet")
    arguments = ["rare", "run.zarr", "--output", "y", "--threshold", 4.0, "--event", "above", "--json"]
    status, out, _ = ensemble(capsys, *arguments)
    found, result = json.loads(out), en.uq.open_study(folder / "run.zarr")
    low, high = result.confidence_interval("y", of="probability", condition=">= 4.0")
    assert status == 0 and found["probability"] == float(result.probability("y", ">= 4.0").value)
    assert (found["low"], found["high"]) == (float(low), float(high))
    assert low < stats.norm.sf(1.0 / np.sqrt(5.0)) < high
    status, _, err = ensemble(capsys, "rare", "run.zarr")
    assert status == 2 and "--output must name one of y, line; got none" in err
    status, _, err = ensemble(capsys, "rare", "run.zarr", "--output", "line")
    assert status == 2 and "of shape (3,)" in err


# --- TOML
def test_bounds_and_observed_numbers_of_a_table(folder):
    from ensemble._command.study.configuration import read_configuration

    x = read_configuration(folder / "data.toml")[1].samples(256, seed=1)
    assert x.a.samples.min() >= -1.0 and x.a.samples.max() <= 1.5 and x.v.samples.min() >= 0.0
    assert np.unique(x.b.samples).tolist() == [1.5, 2.5] and np.unique(x.d.samples).tolist() == [1.0, 2.0]
    assert abs(np.mean(x.b.samples == 1.5) - 2.0 / 3.0) < 0.02


@pytest.mark.parametrize(
    "entry, message",
    [
        ('{distribution = "norm", truncate = [2.0, 1.0]}', "truncate must be a list of two numbers"),
        ('{distribution = "norm", truncate = 2.0}', "truncate must be a list of two numbers"),
        ('{distribution = "poisson", mu = 2.0, truncate = [0, 3]}', "distribution must be continuous"),
        ('{data = "none.csv"}', "data must be a CSV file that can be read"),
        ('{data = "loads.csv"}', "column must name one of the columns"),
        ('{data = "loads.csv", column = "wind"}', "column must be one of place, load"),
        ('{data = "loads.csv", column = "place"}', "data must hold finite numbers; got 'north' in row 2"),
        ("{data = []}", "data must be a list of numbers"),
        ('{data = [1.0], column = "a"}', "column must go with the name of a file"),
        ("{data = [1.0], truncate = [2.0, 3.0]}", "truncate must leave a number between 2 and 3"),
        (
            '{data = [1.0], distribution = "norm"}',
            "must be a number, a list of numbers, or a table with distribution, data",
        ),
    ],
)
def test_wrong_bounds_and_data_are_one_line(folder, capsys, entry, message):
    (folder / "bad.toml").write_text(f"[inputs]\na = {entry}\n")
    status, _, err = ensemble(capsys, "chaos", "model.py:total", "-c", "bad.toml", "--quiet")
    assert status == 2 and message in err and "inputs.a" in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "table, message",
    [
        ("[sensitivity]\nlevel = 95.0", "level must be a number between 0 and 1; got 95.0"),
        ('[sensitivity]\nmethod = "morris"', 'method must be one of "sobol" and "shapley'),
        ("[sensitivity]\nlevels = 1", "must have no keys but level, method"),
    ],
)
def test_wrong_options_of_a_table_are_one_line(folder, capsys, table, message):
    (folder / "bad.toml").write_text(f"{table}\n[inputs]\na = 1.0\n")
    status, _, err = ensemble(capsys, "sensitivity", "model.py:total", "-c", "bad.toml", "--quiet")
    assert status == 2 and message in err


@pytest.mark.parametrize("name", ["sensitivity", "chaos", "rare"])
def test_errors_of_the_model_are_named_with_their_line(folder, capsys, name):
    status, _, err = ensemble(capsys, name, "model.py:wrong", *([] if name == "rare" else ["-n", 64]))
    assert status == 2 and "nothing" in err and len(err.strip().splitlines()) == 1


PROGRAM = """
[study]
n = 32

[inputs]
a = {distribution = "norm", loc = 1.0, scale = 0.2}
b = {distribution = "norm"}

[program]
command = "awk '{print 3 * $1 + $2}' in.txt"
template = "template"
keep = "none"

[program.outputs]
y = "stdout.txt"

[rare]
threshold = 6.0
event = "above"
n_per_level = 100
max_runs = 1
"""


@pytest.mark.parametrize("name", ["sensitivity", "chaos", "rare"])
def test_a_program_of_a_table_is_a_model_of_every_analysis(folder, capsys, name):
    """Given as FILE.py:FUNCTION, or as the table [program] alone."""
    (folder / "template").mkdir()
    (folder / "template" / "in.txt").write_text("{{a}} {{b}}\n")
    (folder / "program.toml").write_text(PROGRAM)
    (folder / "python.py").write_text("def y(x):\n    return {'y': 3 * x.a + x.b}\n")
    (folder / "python.toml").write_text(PROGRAM.partition("[program]")[0] + "[rare]" + PROGRAM.partition("[rare]")[2])
    assert exit_status([name, "-c", "program.toml", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert exit_status([name, "python.py:y", "-c", "python.toml", "--json", "--quiet"]) == 0
    expected = json.loads(capsys.readouterr().out)
    if name == "rare":
        assert found["probability"] == pytest.approx(expected["probability"], rel=1e-3)
    else:
        first, wanted = (one["outputs"]["y"]["first"] for one in (found, expected))
        for one in ("a", "b"):
            number = (lambda value: value["value"]) if name == "sensitivity" else float
            assert number(first[one]) == pytest.approx(number(wanted[one]), rel=1e-3)


def test_an_analysis_of_nothing_asks_for_a_model(folder, capsys):
    assert exit_status(["sensitivity"]) == 2
    assert "or FILE.py:FUNCTION a model; got none" in capsys.readouterr().err
