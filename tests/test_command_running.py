"""Options of the command for long studies: reruns, time limits, programs, parts of a study."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from ensemble import uq
from ensemble._command.running_options import ARRAY, NO_ARRAY
from ensemble.uq.store.parts import ids_of_part
from tests.command_line import exit_status
from tests.uq.store.trees import tree

MODEL = """
import os
from scipy import stats
import ensemble as en

inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))

def tip(x):
    if not os.path.exists("licence"):
        x.fail(x.load > 1.2, "no licence")
    return {"tip": x.load / x.stiffness}

@en.vectorize
def hangs(s):
    while s.load > 1.4:
        pass
    return s.load
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


def test_failed_samples_run_again_from_the_shell(folder, capsys):
    status, _, _ = ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet")
    assert status == 1
    status, out, _ = ensemble(capsys, "status", "run.zarr")
    assert status == 1 and "failed: no licence" in out and "ensemble resume --failed run.zarr" in out
    (folder / "licence").touch()
    assert ensemble(capsys, "resume", "run.zarr", "--quiet")[0] == 1  # without the option they stay as they are
    status, out, _ = ensemble(capsys, "resume", "--failed", "run.zarr", "--quiet")
    assert status == 0 and "succeeded when run again: no licence" in out
    status, out, _ = ensemble(capsys, "status", "run.zarr", "--json")
    found = json.loads(out)
    counts = found["failures"]["no licence"]
    assert status == 0 and counts == {"failed": 0, "repeated": 0, "recovered": found["run_again"]}
    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "calm.zarr", "--quiet")
    printed = [ensemble(capsys, "stats", store)[1].splitlines()[2:] for store in ("run.zarr", "calm.zarr")]
    assert [line for line in printed[0] if "run again" not in line] == printed[1]


def test_a_number_of_attempts_ends_reruns_from_the_shell(folder, capsys):
    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet")
    for repeated in (2, 3, 3):
        ensemble(capsys, "resume", "--failed", "--attempts", 3, "run.zarr", "--quiet")
        assert set(uq.open_study("run.zarr").attempts) == {1, repeated}
    status, _, err = ensemble(capsys, "resume", "--attempts", 3, "run.zarr", "--quiet")
    assert status == 2 and "--attempts must stand with --failed; got --attempts 3 alone" in err
    for wrong in ("1", "x", "-2"):
        status, _, err = ensemble(capsys, "resume", "--failed", f"--attempts={wrong}", "run.zarr")
        assert status == 2 and f"must be a number of attempts, at least 2; got '{wrong}'" in err


@pytest.mark.parametrize("where", ["option", "table"])
def test_a_sample_that_hangs_is_ended_from_the_shell(folder, capsys, where):
    option = ["--sample-seconds", "0.2"] if where == "option" else ["-c", "study.toml"]
    inputs = '[inputs]\nload = {distribution = "norm", loc = 1.0, scale = 0.2}\n'
    (folder / "study.toml").write_text(f"[study]\nsample_seconds = 0.2\n{inputs}")
    given = ["run", "model.py:hangs", "-n", 64, "--ensemble-size", 64, "--json", "--quiet", *option]
    status, out, _ = ensemble(capsys, *given)
    found = json.loads(out)
    assert status == 1 and found["failed"] > 0
    assert list(found["failures"]) == ["TimeLimit: it ran longer than sample_seconds=0.2"]
    status, _, err = ensemble(capsys, "run", "model.py:hangs", "--sample-seconds", "0")
    assert status == 2 and "must be a number of seconds above zero; got '0'" in err


STUDY = """
[study]
n = 16
ensemble_size = 8

[inputs]
load = {distribution = "norm", loc = 1.0, scale = 0.2}

[program]
command = "./go.sh {{load:.3f}}"
template = "template"
keep = "none"

[program.outputs]
load = "out.txt"
twice = {function = "post.py:twice"}
rounded = {file = "out.csv", column = "v", row = 0}
"""


@pytest.fixture
def program(folder):
    """A template, and a function that reads."""
    (folder / "template").mkdir()
    (folder / "template" / "go.sh").write_text(
        "#!/bin/sh\necho {{load}} > out.txt; printf 'u,v\\n0,%s\\n' $1 > out.csv\n"
    )
    (folder / "template" / "go.sh").chmod(0o755)
    (folder / "post.py").write_text("def twice(folder):\n    return 2.0 * float((folder / 'out.txt').read_text())\n")
    (folder / "study.toml").write_text(STUDY)
    (folder / "inputs.toml").write_text(STUDY.partition("[program]")[0])
    return folder


BY_OPTIONS = ["--command", "./go.sh {{load:.3f}}", "--template", "template", "--read", "load=out.txt",
              "--read", "rounded=out.csv:v", "-c", "inputs.toml", "--keep", "none"]  # fmt: skip


@pytest.mark.parametrize("given", [["-c", "study.toml"], BY_OPTIONS], ids=["table", "options"])
def test_a_program_runs_from_the_shell_and_is_resumed(program, capsys, given):
    status, out, _ = ensemble(capsys, "run", *given, "--store", "run.zarr", "--json", "--quiet")
    found = json.loads(out)
    assert status == 0 and found["failed"] == 0 and found["n"] == 16
    assert abs(found["outputs"]["load"]["mean"] - 1.0) < 0.05
    status, out, err = ensemble(capsys, "resume", "run.zarr", "-n", 32, "--json", "--quiet")
    assert (status, err) == (0, "") and json.loads(out)["done"] == 32
    (program / "template" / "more.txt").write_text("")
    status, _, err = ensemble(capsys, "resume", "run.zarr", "-n", 64, "--quiet")
    assert status == 2 and "template/more.txt" in err and "Nothing of it has run" in err


@pytest.mark.parametrize(
    "given, text",
    [
        (["--command", "a", "-c", "inputs.toml"], "--command must stand beside --read NAME=FILE"),
        (["--read", "y=y.txt", "-c", "inputs.toml"], "--read must stand beside --command; got no command"),
        (["--command", "a", "--read", "y=y.txt"], "-c must name a TOML file with the inputs of the program"),
        (["model.py:tip", "--command", "a", "--read", "y=y"], "--command must stand without FILE.py:FUNCTION"),
        (["-c", "inputs.toml"], "the model must be FILE.py:FUNCTION, --command or a table [program]; got none"),
        (["--command", "a", "--read", "y"], "must be NAME=FILE"),
    ],
)
def test_options_of_programs_are_checked(program, capsys, given, text):
    status, _, err = ensemble(capsys, "run", *given)
    assert status == 2 and text in err


@pytest.mark.parametrize(
    "change, text",
    [
        ('keep = "none"', "program: Program: keep must be one of"),
        ('template = "template"', "program: Program: template must be a folder"),
        ('load = "out.txt"', "outputs.load must be the name of a file or a table; got 3"),
    ],
)
def test_a_table_of_a_program_is_checked(program, capsys, change, text):
    wrong = {"keep": 'keep = "some"', "template": 'template = "none"', "load": "load = 3"}[change.split()[0]]
    (program / "study.toml").write_text(STUDY.replace(change, wrong))
    status, _, err = ensemble(capsys, "run", "-c", "study.toml")
    assert status == 2 and text in err


def test_a_store_that_names_a_program_runs_nothing_of_another_user(program, capsys, monkeypatch):
    ensemble(capsys, "run", *BY_OPTIONS, "--store", "run.zarr", "--quiet")
    monkeypatch.setenv("XDG_STATE_HOME", str(program / "other"))
    status, _, err = ensemble(capsys, "resume", "run.zarr", "-n", 32, "--quiet")
    assert status == 2 and "Nothing of it has run" in err and "--command ./go.sh" in err


def array(folder, n_jobs, *further):
    """The command of the page on clusters, as jobs of an array."""
    given = [sys.executable, "-m", "ensemble", "run", "model.py:tip", "-n", "64", "--store", "run.zarr", "--quiet"]
    given += ["--part", f"array/{n_jobs}", "--ensemble-size", "2", *further]
    return [
        subprocess.Popen(given, cwd=folder, env={**os.environ, "SLURM_ARRAY_TASK_ID": str(k)}, stderr=subprocess.PIPE)
        for k in range(1, n_jobs + 1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [2, 8])
def test_an_array_of_jobs_writes_the_store_of_one_job(folder, capsys, n_jobs):
    (folder / "model.py").write_text(
        MODEL.replace("    if not os.path", "    __import__('time').sleep(0.05)\n    if not os.path")
    )
    for job in array(folder, n_jobs):
        _, err = job.communicate(timeout=300)
        assert (job.returncode in (0, 1), err) == (True, b"")
    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "calm.zarr", "--quiet", "--ensemble-size", 64)
    assert tree(folder / "run.zarr") == tree(folder / "calm.zarr")
    (folder / "licence").touch()
    status, out, _ = ensemble(capsys, "resume", "--failed", "run.zarr", "--quiet")  # its origin was signed by one job
    assert status == 0 and "succeeded when run again" in out


def test_parts_are_listed_by_status(folder, capsys):
    given = ["run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet"]
    status, out, _ = ensemble(capsys, *given, "--part", "1/3")
    assert status == 1 and ("43 not run" in out or "42 not run" in out)
    status, out, _ = ensemble(capsys, "status", "run.zarr")
    assert status == 1 and "parts     1 ended, 3 in all" in out
    found = json.loads(ensemble(capsys, "status", "run.zarr", "--json")[1])
    assert found["parts"][0]["finished"] is True and found["parts"][0]["done"] == found["parts"][0]["n"]
    (folder / "licence").touch()
    assert ensemble(capsys, *given, "--part", "1/3", "--failed")[0] == 0
    assert ensemble(capsys, "resume", "run.zarr", "--quiet")[0] == 0
    assert json.loads(ensemble(capsys, "status", "run.zarr", "--json")[1])["parts"] == []


@pytest.mark.parametrize(
    "given, text",
    [
        (["--part", "1/3"], "--part must stand with --store, into which all parts write"),
        (["--part", "4/3", "--store", "run.zarr"], "must be K/N with K from 1 to N, as in 3/16; got '4/3'"),
        (["--part", "0/3", "--store", "run.zarr"], "got '0/3'"),
        (["--part", "array/3", "--store", "run.zarr"], "must be in a job array, with one of SLURM_ARRAY_TASK_ID"),
        (["--part", "1/3", "--store", "run.zarr", "--target", "tip=0.1"], "--part must stand with -n"),
        (["--failed"], "--failed must stand with --part; got none"),
    ],
)
def test_options_of_parts_are_checked(folder, capsys, given, text):
    status, _, err = ensemble(capsys, "run", "model.py:tip", *given)
    assert status == 2 and text in err and not (folder / "run.zarr").exists()


@pytest.mark.parametrize("name", ARRAY)
def test_the_number_of_a_job_is_that_of_its_scheduler(folder, capsys, monkeypatch, name):
    given = ["run", "model.py:tip", "-n", 32, "--store", "run.zarr", "--quiet", "--part", "array/4"]
    for other in ARRAY:
        monkeypatch.delenv(other, raising=False)
    for wrong, text in {
        NO_ARRAY.get(name, ""): "must be in a job array, with one of SLURM_ARRAY_TASK_ID",
        "5": "must be K/N with K from 1 to N, as in 3/16; got 'array/4' with number 5",
        "-1": "got 'array/4' with number -1",
    }.items():
        monkeypatch.setenv(name, wrong)
        status, _, err = ensemble(capsys, *given)
        assert status == 2 and text in err and not (folder / "run.zarr").exists()
    monkeypatch.setenv(name, "3")
    ensemble(capsys, *given)
    assert np.array_equal(uq.Store.open("run.zarr").done(), ids_of_part(3, 4, 32))


NONE = "RunFailedError: there is no program 'nowhere'"
KEYS = "must have no keys but column, delimiter, file, key, pattern, row, variable; got colum."


@pytest.mark.parametrize(("old", "new", "text"), [("./go.sh", "nowhere", NONE), ("column = ", "colum = ", KEYS)])
def test_a_wrong_program_is_one_line(program, capsys, old, new, text):
    (program / "study.toml").write_text(STUDY.replace(old, new))
    status, _, err = ensemble(capsys, "run", "-c", "study.toml", "--quiet")
    assert status == 2 and err.startswith("ensemble run: error: ") and text in err and err.count("\n") == 1


def test_whatever_a_model_raises_is_one_line_that_names_its_place(folder, capsys):
    text = MODEL + "\ndef zero(x):\n    return 1 // 0\n"
    (folder / "wrong.py").write_text(text)
    status, _, err = ensemble(capsys, "run", "wrong.py:zero", "-n", 16, "--quiet")
    place = f"line {text.count(chr(10))}: "
    assert status == 2 and err.startswith(f"ensemble run: error: wrong.py:zero raised ZeroDivisionError in {place}")
    assert err.count("\n") == 1


def test_a_store_that_is_a_file_is_named(folder, capsys):
    (folder / "file").write_text("")
    status, _, err = ensemble(capsys, "run", "model.py:tip", "-n", 16, "--store", "file", "--quiet")
    assert (status, err) == (2, "ensemble run: error: --store must be a new folder; got the file file.\n")
