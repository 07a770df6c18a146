"""``ensemble run`` and the commands on its store: what they print and write, how they end, what they refuse."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble._command.study.configuration import read_configuration
from tests.command_line import exit_status
from tests.uq.store.trees import tree

MODEL = """
import time
import numpy as np
from scipy import stats
import ensemble as en

inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))

def tip(x):
    return {"tip": x.load / x.stiffness}

def line(x):
    return {"line": en.Ensemble(np.linspace(0.0, 1.0, 5)[:, None] * x.load.samples)}

def some_fail(x):
    x.fail(x.load > 1.3, "too much load")
    return {"tip": x.load / x.stiffness}

def slow(x):
    time.sleep(0.02)
    return tip(x)

def uses_config(x):
    return x.a + x.v[1] + x.k

wrong = 3

def raises(x):
    raise RuntimeError("no")
"""

CONFIG = """
correlation_kind = "spearman"

[study]
n = 64
sampler = "monte_carlo"
seed = 7
ensemble_size = 16

[inputs]
a = {distribution = "norm", loc = 1.0, scale = 0.5}
v = {distribution = "uniform", size = 3}
k = 2.5
w = [1.0, 2.0]
material = {categories = {steel = 0.25, wood = 0.75}}
both = {mixture = [{distribution = "norm", weight = 3.0}, {distribution = "norm", loc = 5.0}]}
kappa = {field = "exponential", domain = [[0.0, 1.0]], length = 0.5, n_terms = 3}
mine = {object = "model.py:own"}

[correlation]
"a, v[1]" = 0.5
"""


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


def test_a_run_prints_what_propagate_gives(folder, capsys):
    status, out, err = ensemble(capsys, "run", "model.py:tip", "-n", 128, "--quiet")
    inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
    expected = en.propagate(lambda x: {"tip": x.load / x.stiffness}, inputs, 128, seed=1, progress=False)
    assert (status, out, err) == (0, f"{expected!r}\n", "")


def test_warnings_are_one_line_without_a_place_in_the_package(folder):
    command = [sys.executable, "-m", "ensemble", "run", "model.py:tip", "-n", "33", "--quiet"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    text = "ensemble run: warning: Sobol: 33 samples are not balanced; take 8 times a power of two, say 32.\n"
    assert found.stderr == text


def test_json_holds_the_statistics(folder, capsys):
    status, out, _ = ensemble(
        capsys, "run", "model.py:line", "-n", 64, "--sampler", "monte_carlo", "--seed", 5, "--json"
    )
    found = json.loads(out)
    inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
    load = inputs.samples(64, sampler="monte_carlo", seed=5).load.samples
    assert status == 0 and (found["n"], found["failed"], found["seed"]) == (64, 0, 5)
    assert found["outputs"]["line"]["mean"] == pytest.approx(np.linspace(0.0, 1.0, 5) * load.mean(), rel=1e-13)
    assert found["outputs"]["line"]["quantiles"]["0.5"][4] == pytest.approx(np.median(load), rel=1e-13)


def test_every_kind_of_input_of_a_file(folder):
    (folder / "model.py").write_text("from scipy import stats\nown = stats.gamma(2.0)\n")
    (folder / "inputs.toml").write_text(CONFIG)
    options, inputs = read_configuration(folder / "inputs.toml")
    assert options == {"n": 64, "sampler": "monte_carlo", "seed": 7, "ensemble_size": 16}
    assert inputs.names == ("a", "v", "k", "w", "material", "both", "kappa", "mine")
    same = en.Inputs(
        a=stats.norm(1.0, 0.5), v=en.uq.Vector(stats.uniform(), 3), k=2.5, w=[1.0, 2.0],
        material=en.Categorical({"steel": 0.25, "wood": 0.75}),
        both=en.uq.Mixture([stats.norm(), stats.norm(loc=5.0)], [0.75, 0.25]),
        kappa=en.fields.KarhunenLoeve.exponential([[0.0, 1.0]], 0.5, 3), mine=stats.gamma(2.0),
        correlation={("a", ("v", 1)): 0.5}, correlation_kind="spearman",
    )  # fmt: skip
    assert inputs.description() == same.description()


def test_the_example_of_the_page_runs(folder, capsys):
    page = (Path(__file__).parents[1] / "docs" / "howto" / "command.md").read_text()
    for language, name in (("python", "beam.py"), ("toml", "beam.toml")):
        (folder / name).write_text(re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)[1])
    command = re.search(r"```sh\nensemble (.*?)\n```", page, re.DOTALL)[1]
    status, out, _ = ensemble(capsys, *command.split(), "--quiet")
    assert status == 0 and "1,024 of 1,024 samples" in out


def test_options_of_the_file_yield_to_the_command_line(folder, capsys):
    (folder / "inputs.toml").write_text(
        "[study]\nn = 32\nseed = 9\n[inputs]\na = {distribution = 'norm'}\nk = 1\nv=[1, 2]\n"
    )
    status, out, _ = ensemble(capsys, "run", "model.py:uses_config", "-c", "inputs.toml", "--seed", 4, "--json")
    found = json.loads(out)
    assert status == 0 and (found["n"], found["seed"]) == (32, 4) and list(found["outputs"]) == ["y"]


def test_failed_samples_give_status_one_and_their_reasons(folder, capsys):
    status, out, _ = ensemble(capsys, "run", "model.py:some_fail", "-n", 256, "--store", "run.zarr", "--quiet")
    assert status == 1 and "too much load" in out
    status, out, _ = ensemble(capsys, "status", "run.zarr", "--json")
    found = json.loads(out)
    assert status == 1 and found["pending"] == 0 and found["failed"] > 0
    assert set(found["reasons"].values()) == {"too much load"}


def test_a_store_is_extended_to_the_bytes_of_a_longer_run(folder, capsys):
    assert ensemble(capsys, "run", "model.py:tip", "-n", 128, "--store", "a.zarr", "--quiet")[0] == 0
    assert ensemble(capsys, "resume", "a.zarr", "-n", 256, "--ensemble-size", 24, "--quiet")[0] == 0
    assert ensemble(capsys, "run", "model.py:tip", "-n", 256, "--store", "b.zarr", "--quiet")[0] == 0
    assert tree(folder / "a.zarr") == tree(folder / "b.zarr")
    status, out, _ = ensemble(capsys, "status", "a.zarr")
    assert status == 0 and "256 of 256 samples done, 0 failed" in out
    status, _, err = ensemble(capsys, "resume", "a.zarr", "-n", 64, "--quiet")
    assert status == 0 and "got 64, and the study has 256: no sample is left out, and none is added.\n" in err


def test_a_killed_run_is_resumed_with_other_groups_and_two_processes(folder, capsys):
    assert ensemble(capsys, "run", "model.py:slow", "-n", 256, "--store", "whole.zarr", "--quiet")[0] == 0
    command = [sys.executable, "-m", "ensemble", "run", "model.py:slow", "-n", "256", "--store", "killed.zarr"]
    environment = os.environ | {"PYTHONPATH": str(Path(en.__file__).parents[1])}
    process = subprocess.Popen([*command, "--ensemble-size", "4", "--quiet"], env=environment)
    journal = folder / "killed.zarr" / ".ensemble" / "journal"
    while not (journal.exists() and journal.stat().st_size > 2000):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    status, out, _ = ensemble(capsys, "status", "killed.zarr")
    assert status == 1 and "pending: ensemble resume killed.zarr" in out
    assert ensemble(capsys, "stats", "killed.zarr")[0] == 0
    assert ensemble(capsys, "resume", "killed.zarr", "--ensemble-size", 32, "--workers", 2, "--quiet")[0] == 0
    assert tree(folder / "killed.zarr") == tree(folder / "whole.zarr")


def test_a_study_is_resumed_to_its_target(folder, capsys):
    """The target of the run holds where no number of samples is given."""
    options = ["--sampler", "monte_carlo", "--target", "tip=0.01", "--quiet"]
    assert ensemble(capsys, "run", "model.py:tip", *options, "--store", "whole.zarr")[0] == 0
    whole = en.uq.open_study(folder / "whole.zarr")
    assert whole.n > 1024
    assert ensemble(capsys, "run", "model.py:tip", *options[:3], "tip=0.5", "--store", "part.zarr", "--quiet")[0] == 0
    status, _, _ = ensemble(capsys, "resume", "part.zarr", "--target", "tip=0.01", "--quiet")
    assert status == 0 and en.uq.open_study(folder / "part.zarr").n == whole.n
    file = folder / "part.zarr" / ".ensemble" / "command.json"
    assert json.loads(file.read_text())["target"] == ["tip", 0.01]
    assert ensemble(capsys, "resume", "part.zarr", "-n", 2 * whole.n, "--quiet")[0] == 0
    assert en.uq.open_study(folder / "part.zarr").n == 2 * whole.n


def test_a_moved_study_is_resumed_where_its_files_are_now(folder, capsys):
    (folder / "a.toml").write_text(CONFIG)
    (folder / "model.py").write_text(MODEL + "\nown = stats.norm(1.0, 0.1)\n")
    assert ensemble(capsys, "run", "model.py:uses_config", "-c", "a.toml", "--store", "a.zarr", "--quiet")[0] == 0
    (folder / "b").mkdir()
    (folder / "a.toml").rename(folder / "b" / "c.toml")
    (folder / "model.py").rename(folder / "b" / "model.py")
    assert ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet")[0] == 2
    where = ["--model", "b/model.py:uses_config", "-c", "b/c.toml"]
    assert ensemble(capsys, "resume", "a.zarr", "-n", 128, *where, "--quiet")[0] == 0
    assert ensemble(capsys, "resume", "a.zarr", "-n", 256, "--quiet")[0] == 0


def test_a_model_that_has_come_to_raise_always_ends_a_resumed_study_at_once(folder, capsys):
    """As where a file is missing: no sample is lost."""
    text = MODEL + "\nclass Missing(Exception): pass\n\ndef reads(x):\n    try:\n        open('data').close()\n"
    text += "    except OSError as error:\n        raise Missing('data') from error\n    return tip(x)\n"
    (folder / "model.py").write_text(text)
    (folder / "data").write_text("1")
    assert ensemble(capsys, "run", "model.py:reads", "-n", 64, "--store", "a.zarr", "--quiet")[0] == 0
    (folder / "data").unlink()
    status, _, err = ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet")
    assert status == 2 and "model.py:reads raised Missing in line" in err and ": data (" in err and err.count("\n") == 1
    assert en.uq.open_study(folder / "a.zarr").n_done == 64
    (folder / "data").write_text("1")
    assert ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet")[0] == 0
    assert en.uq.open_study(folder / "a.zarr").n_failed == 0


HANDLED = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
sys.path.insert(0, "")
runpy.run_module("ensemble", run_name="__main__")
"""


def test_an_interrupted_run_says_how_to_go_on(folder):
    command = [sys.executable, "-c", HANDLED, "run", "model.py:slow", "-n", "4096", "--store", "run.zarr"]
    command += ["--ensemble-size", "4"]
    environment = os.environ | {"PYTHONPATH": str(Path(en.__file__).parents[1])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    journal = folder / "run.zarr" / ".ensemble" / "journal"
    while not (journal.exists() and journal.stat().st_size > 2000):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "go on with: ensemble resume run.zarr" in err
    assert en.uq.open_study("run.zarr").n_done > 0


def test_stats_of_chosen_outputs_and_quantiles(folder, capsys):
    ensemble(capsys, "run", "model.py:tip", "-n", 128, "--store", "run.zarr", "--quiet")
    result = en.uq.open_study("run.zarr")
    status, out, _ = ensemble(
        capsys, "stats", "run.zarr", "--output", "tip", "--quantiles", "0.25", "--level", 0.9, "--json"
    )
    found = json.loads(out)["outputs"]["tip"]
    assert status == 0 and found["quantiles"] == {"0.25": float(result.quantile("tip", 0.25))}
    assert [found["low"], found["high"]] == list(map(float, result.confidence_interval("tip", 0.9)))
    status, out, _ = ensemble(capsys, "stats", "run.zarr", "--quantiles", "0.25")
    assert f"quantile 0.25         {result.quantile('tip', 0.25):.6g}" in out


def test_exports_hold_inputs_and_outputs(folder, capsys):
    import xarray

    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--seed", 2**40, "--quiet")
    assert ensemble(capsys, "export", "run.zarr", "run.csv")[0] == 0
    table = np.genfromtxt("run.csv", delimiter=",", names=True)
    values = en.uq.open_study("run.zarr").values("tip")
    assert np.array_equal(table["tip"], values) and np.array_equal(table["tip"], table["load"] / table["stiffness"])
    assert ensemble(capsys, "export", "run.zarr", "run.nc")[0] == 0
    with xarray.open_dataset("run.nc") as dataset:
        assert np.array_equal(dataset["tip"], values)


def test_csv_has_a_column_for_each_entry_of_a_field_and_refuses_large_ones(folder, capsys):
    ensemble(capsys, "run", "model.py:line", "-n", 64, "--store", "run.zarr", "--quiet")
    assert ensemble(capsys, "export", "run.zarr", "run.csv")[0] == 0
    head, first = Path("run.csv").read_text().splitlines()[:2]
    assert head == "sample,load,stiffness,line(0),line(1),line(2),line(3),line(4),failed,done"
    assert float(first.split(",")[7]) == en.uq.open_study("run.zarr").values("line")[4, 0]
    Path("model.py").write_text(MODEL.replace("0.0, 1.0, 5", "0.0, 1.0, 20_000"))
    ensemble(capsys, "run", "model.py:line", "-n", 8, "--store", "large.zarr", "--quiet")
    status, _, err = ensemble(capsys, "export", "large.zarr", "large.csv")
    assert status == 2 and "got line (20000,)" in err and "--output" in err and "UqResult" not in err
    assert not Path("large.csv").exists()


@pytest.mark.parametrize("kind", ["hist", "scatter"])
def test_plots_are_written(folder, capsys, kind):
    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet")
    assert ensemble(capsys, "plot", "run.zarr", "run.png", "--kind", kind)[0] == 0
    assert Path("run.png").stat().st_size > 5000


@pytest.mark.parametrize("kind", ["fan", "field"])
def test_plots_of_fields_are_written(folder, capsys, kind):
    ensemble(capsys, "run", "model.py:line", "-n", 64, "--store", "run.zarr", "--quiet")
    assert ensemble(capsys, "plot", "run.zarr", "run.png", "--kind", kind)[0] == 0
    assert Path("run.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "body, text",
    [
        ("'x' + 1", "model.py:wrong_line raised TypeError in line 43: can only concatenate str"),
        ("open('no such file')", "model.py:wrong_line raised FileNotFoundError in line 43"),
        ("x.nope", "model.py:wrong_line raised UnknownInputError in line 43"),
    ],
)
def test_errors_of_the_model_say_where_they_were_raised(folder, capsys, body, text):
    head = MODEL + "\n" * (40 - MODEL.count("\n"))
    (folder / "model.py").write_text(f"{head}\ndef wrong_line(x):\n    {body}\n    return tip(x)\n")
    status, _, err = ensemble(capsys, "run", "model.py:wrong_line", "-n", 16, "--quiet")
    assert status == 2 and text in err and len(err.strip().splitlines()) == 1


def test_a_study_of_failed_samples_has_no_picture(folder, capsys):
    options = ("-n", 64, "--on-failure", "mask", "--store", "run.zarr", "--quiet")
    ensemble(capsys, "run", "model.py:raises", *options)
    status, _, err = ensemble(capsys, "plot", "run.zarr", "run.png")
    assert status == 2 and "run.zarr must have a sample that did not fail; got 64 failed." in err


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["run", "model.py"], "a function must be given as FILE.py:NAME"),
        (["run", "none.py:tip"], "there must be a file 'none.py'"),
        (["run", "model.py:none"], "must define 'none'"),
        (["run", "model.py:wrong"], "must be a function of one argument; got an int"),
        (["run", "model.py:tip", "-c", "none.toml"], "there must be a file 'none.toml'"),
        (["run", "model.py:tip", "-n", "0"], "must be an integer of at least 1; got '0'"),
        (["run", "model.py:tip", "-n", "64", "--target", "tip=0.1"], "--target must stand without -n; got -n 64"),
        (["run", "model.py:tip", "--target", "tip"], "must be NAME=NUMBER"),
        (["run", "model.py:tip", "-n", "64", "--group-by", "none", "--quiet"], "none"),
        (["status", "none.zarr"], "be a stored study; got none.zarr, which does not exist"),
        (["stats", "none.zarr"], "be a stored study"),
        (["resume", "none.zarr"], "be a stored study"),
        (["plot", "none.zarr", "x.jpg"], "must end in one of .png"),
        (["export", "none.zarr", "x.txt"], "must end in one of .csv, .nc"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_status_two(folder, capsys, arguments, text):
    status, out, err = ensemble(capsys, *arguments)
    assert (status, out) == (2, "") and text in err and len(err.strip().splitlines()) == 1


def test_a_store_is_not_started_twice(folder, capsys):
    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet")
    status, _, err = ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet")
    assert status == 2 and "Go on with: ensemble resume run.zarr" in err


def test_a_store_of_a_program_is_not_resumed_by_the_command(folder, capsys):
    inputs = en.Inputs(load=stats.norm())
    en.propagate(lambda x: x.load, inputs, 8, store="run.zarr", progress=False)
    status, _, err = ensemble(capsys, "resume", "run.zarr")
    assert status == 2 and "Call propagate(..., resume=True)" in err
    en.uq.mcmc(lambda z: -0.5 * en.xp.sum(z * z, axis=0), 2, 50, seed=1, store="chain.zarr", progress=False)
    status, _, err = ensemble(capsys, "resume", "chain.zarr")
    assert status == 2 and "Call mcmc(..., resume=True)" in err
    status, out, _ = ensemble(capsys, "status", "chain.zarr")
    assert status == 0 and "again" not in out


def made_by(maker, store):
    """A study of a store, with failed samples, by a command or a function."""
    inputs = en.Inputs(load=stats.norm())

    def model(x):
        x.fail(x.load > 1.0)
        return x.load

    options = {"store": store, "seed": 1, "progress": False}
    if maker == "propagate":
        en.propagate(model, inputs, 64, **options)
    elif maker == "sobol_indices":
        en.sobol_indices(model, inputs, 16, **options)
    else:
        en.uq.shapley_effects(model, inputs, 16, **options)


@pytest.mark.parametrize("maker", ["propagate", "sobol_indices", "shapley_effects"])
def test_status_names_what_goes_on_with_a_study_of_a_program(folder, capsys, maker):
    """Not `ensemble resume`, which goes on with studies of `ensemble run` alone."""
    made_by(maker, "run.zarr")
    status, out, _ = ensemble(capsys, "status", "run.zarr")
    assert status == 1 and "ensemble resume" not in out
    assert f"again: {maker}(..., store='run.zarr', resume=True, retry_failed=True)" in out
    assert " failed: no reason was given" in out


def test_a_changed_model_is_refused_unless_forced(folder, capsys):
    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet")
    (folder / "model.py").write_text(MODEL.replace("x.load / x.stiffness", "x.load * x.stiffness"))
    status, _, err = ensemble(capsys, "resume", "run.zarr", "-n", 128, "--quiet")
    assert status == 2 and "source has changed" in err
    assert ensemble(capsys, "resume", "run.zarr", "-n", 128, "--force", "--quiet")[0] == 0


@pytest.mark.parametrize(
    "text, message",
    [
        ("inputs = 3", "inputs must be a table"),
        ("", "must have a table [inputs]; got an empty file"),
        ("extra = 1\n[inputs]\na = 1", "must have no keys but"),
        ("[inputs]\na = {}", "got a table with nothing"),
        ("[inputs]\na = 'norm'", "must be a finite number, or a list of them; got 'norm'"),
        ("[inputs]\na = {distribution = 'nrom'}", "a name of scipy.stats, as norm or uniform; got 'nrom'"),
        ("[inputs]\na = {distribution = 'gamma', b = 3}", "parameters of gamma must be a, loc, scale; got b = 3"),
        ("[inputs]\na = {distribution = 'norm', size = 0}", "size must be a whole number of at least 1; got 0"),
        ("[inputs]\na = {categories = {steel = 0.5}}", "inputs.a"),
        ('[inputs]\na = {distribution = "norm", loc = "x"}', "inputs.a: loc must be a finite number; got 'x'"),
        ('[inputs]\na = {distribution = "norm", loc = [1, 2], size = 2}', "inputs.a: loc must be a finite number"),
        ("[inputs]\na = {field = 'gauss'}", 'must be "exponential"'),
        ("[inputs]\na = 1\n[correlation]\n'a' = 0.5", "must be two inputs"),
        ("[study]\nm = 1\n[inputs]\na = 1", "must have no keys but"),
        ("[study]\nn = 0\n[inputs]\na = 1", "n must be a whole number of at least 1; got 0"),
        ("[study]\nseed = -1\n[inputs]\na = 1", "seed must be a whole number from 0; got -1"),
    ],
)
def test_errors_of_a_file_name_the_key(folder, text, message):
    (folder / "inputs.toml").write_text(text)
    with pytest.raises(ValueError) as error:
        read_configuration(Path("inputs.toml"))
    assert "inputs.toml" in str(error.value) and message in str(error.value)


def test_inputs_are_looked_for_in_the_model_without_a_file(folder, capsys):
    (folder / "model.py").write_text("def tip(x):\n    return x.a\n")
    status, _, err = ensemble(capsys, "run", "model.py:tip")
    assert status == 2 and "must define 'inputs'" in err
    (folder / "model.py").write_text("inputs = 3\ndef tip(x):\n    return x.a\n")
    status, _, err = ensemble(capsys, "run", "model.py:tip")
    assert status == 2 and "inputs must be an ensemble.Inputs; got an int" in err


def test_a_model_that_raises_everywhere_has_no_statistics(folder, capsys):
    status, out, _ = ensemble(capsys, "run", "model.py:raises", "-n", 32, "--on-failure", "mask", "--quiet")
    assert status == 1 and "32 failed" in out and "RuntimeError: no" in out


def test_samples_are_doubled_until_the_target_is_met(folder, capsys):
    status, out, _ = ensemble(capsys, "run", "model.py:tip", "--target", "tip=0.01", "--json", "--quiet")
    found = json.loads(out)
    half = 0.5 * (found["outputs"]["tip"]["high"] - found["outputs"]["tip"]["low"])
    assert status == 0 and found["target_met"] and half <= 0.01 * found["outputs"]["tip"]["mean"]


def test_the_picture_fits_the_output_or_the_command_says_which_does(folder, capsys):
    ensemble(capsys, "run", "model.py:line", "-n", 64, "--store", "run.zarr", "--quiet")
    assert ensemble(capsys, "plot", "run.zarr", "run.png")[0] == 0
    for kind in ("hist", "scatter"):
        status, _, err = ensemble(capsys, "plot", "run.zarr", "run.png", "--kind", kind, "--output", "line")
        assert status == 2 and "'line'" in err and "of shape (5,)" in err and "--" in err and "UqResult" not in err


def test_categories_are_exported_by_their_labels(folder, capsys):
    pytest.importorskip("xarray")
    (folder / "a.toml").write_text("[inputs]\nkind = {categories = {steel = 0.3, wood = 0.7}}\n")
    (folder / "model.py").write_text("def tip(x):\n    return x.kind * 2.0\n")
    assert ensemble(capsys, "run", "model.py:tip", "-c", "a.toml", "-n", 64, "--store", "a.zarr", "--quiet")[0] == 0
    assert ensemble(capsys, "export", "a.zarr", "a.csv")[0] == 0
    rows = [line.split(",") for line in (folder / "a.csv").read_text().splitlines()]
    kind, value = rows[0].index("kind"), rows[0].index("y")
    assert {(row[kind], float(row[value])) for row in rows[1:]} == {("steel", 0.0), ("wood", 2.0)}
    import xarray

    assert ensemble(capsys, "export", "a.zarr", "a.nc")[0] == 0
    with xarray.open_dataset(folder / "a.nc") as dataset:
        assert set(dataset.kind.values.astype(str).tolist()) == {"steel", "wood"}
    array = json.loads((folder / "a.zarr" / "kind" / "zarr.json").read_text())
    assert array["attributes"]["labels"] == ["steel", "wood"]
    assert ensemble(capsys, "plot", "a.zarr", "a.png", "--kind", "scatter")[0] == 0
    figure = en.uq.open_study(folder / "a.zarr").plot.scatter()
    assert [text.get_text() for text in figure.axes[-2].get_xticklabels()] == ["steel", "wood"]
