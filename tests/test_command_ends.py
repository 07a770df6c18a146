"""The command where it is stopped, cut off, or asked for what cannot be done: one line, and nothing lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ensemble import _backend
from ensemble.__main__ import main
from ensemble._command.shared.output import Output
from ensemble.apps.fem import RandomDiffusion
from ensemble.apps.fem.solves import solve_memory as fem_memory
from ensemble.apps.gbees import RecordedRun
from ensemble.scalar import Ensemble
from tests.command_line import exit_status

SMALL = ["diffusion", "--cells", "4", "--samples", "8", "--ensemble-size", "4", "--scalar-runs", "0", "--quiet"]
GRID = ["gbees", "lorenz63", "--until", "0.02", "--threshold", "1e-4", "--quiet"]
ROOT = Path(__file__).parents[1]


def started(arguments, **options):
    """The command in a process of its own."""
    code = "import sys; from ensemble.__main__ import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, **options
    )


@pytest.fixture
def no_solve(monkeypatch):
    """Any solve fails the test: the complaint has to come before."""

    def begun(*_, **__):
        raise AssertionError("a solve was begun")

    monkeypatch.setattr(RandomDiffusion, "solve", begun)
    monkeypatch.setattr(RecordedRun, "run", begun)


@pytest.mark.skipif(sys.platform == "win32", reason="another way of closing pipes")
@pytest.mark.parametrize("arguments, status", [(SMALL, 0), (GRID, 0), (["--help"], 0), (["--version"], 0)])
def test_a_reader_that_goes_away_ends_nothing(arguments, status, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    files = [] if arguments[0].startswith("--") else ["--out", str(tmp_path / "all.npz")]
    process = started([*arguments, *files], stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writing)
    assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == status
    assert [path.name for path in tmp_path.iterdir()] == (["all.npz"] if files else [])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="another way of closing streams")
def test_messages_without_a_reader_end_nothing(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    loud = [part for part in SMALL if part != "--quiet"]
    process = started([*loud, "--json"], stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    assert json.loads(process.communicate(timeout=300)[0])["samples"] == 8
    assert process.returncode == 0


def test_without_stderr_it_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    assert main([part for part in SMALL if part != "--quiet"]) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
def test_a_full_stdout_does_not_cost_the_files(tmp_path):
    with open("/dev/full", "w") as full:
        process = started([*SMALL, "--out", str(tmp_path / "a.npz")], stdout=full, stderr=subprocess.PIPE)
        error = process.communicate(timeout=300)[1]
    assert (tmp_path / "a.npz").exists() and process.returncode == 2
    assert error.startswith("ensemble diffusion: error: ") and error.count("\n") == 1


@pytest.mark.usefixtures("no_solve")
@pytest.mark.parametrize("arguments", [SMALL, GRID])
def test_cupy_without_a_device_is_one_line(arguments, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert exit_status([*arguments, "--backend", "cupy"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "CuPy is not installed" in err and "ensemble-arrays[cuda13]" in err


@pytest.mark.usefixtures("no_solve")
@pytest.mark.parametrize(
    "arguments, text",
    [
        ([*SMALL, "--cells", "1000000"], "cells must fit the free memory of"),
        ([*SMALL, "--cells", "9" * 30], "must be a count of at least 1"),
        ([*SMALL, "--cells", "²"], "must be a count of at least 1"),
        ([*SMALL, "--terms", "999999999999"], "--terms must be at most 21201 with Sobol' points"),
        ([*SMALL, "--terms", "999999999999", "--sampler", "monte-carlo"], "must fit"),
        ([*SMALL, "--samples", "1000000000000"], "--samples must fit the"),
        ([*SMALL, "--samples", "9" * 30], "must be an integer of at most"),
        ([*SMALL, "--rtol", "1"], "--rtol must be below 1"),
        ([*SMALL, "--rtol", "1e-30"], "not below float64's 2.2e-16; got 1e-30"),
        ([*SMALL, "--correlation-length", "1e-300"], "correlation_length must lie between"),
        ([*SMALL, "--correlation-length", "1e300"], "correlation_length must lie between"),
        ([*GRID, "--monte-carlo", "1000000000000"], "--monte-carlo must fit the"),
        ([*GRID, "--monte-carlo", "3"], "--monte-carlo must be above the 3 dimensions; got 3"),
        ([*GRID, "--monte-carlo", "9", "--bins", "nan"], "--bins must be a finite number of at least 0.1 cells"),
        ([*GRID, "--monte-carlo", "9", "--bins", "1e-300"], "--bins must be a finite number of at least 0.1 cells"),
        ([*GRID, "--until", "inf"], "--until must be a finite number above zero; got inf"),
        ([*GRID, "--factor", "1e300"], "the grid must fit"),
        ([*GRID, "--extent", "1e300"], "the grid must fit"),
        ([*GRID, "--export", "/dev/null/x"], "--export must name a folder that can be written to"),
        ([*GRID, "--out", "a.npz", "--checkpoint", "./a.npz"], "--checkpoint must name another file than --out"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_work(arguments, text, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert exit_status(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("ensemble ") and "error:" in err
    assert text in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_solve")
def test_a_problem_file_that_cannot_be_read_is_named(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name, text in (("folder.toml", "must be a file that can be read"), ("binary.toml", "must be TOML")):
        assert exit_status(["gbees", name]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and f"{name} {text}" in err


def test_an_ensemble_that_does_not_fit_the_host_says_what_would(monkeypatch):
    problem = RandomDiffusion(8)
    own, shared = fem_memory.bytes_needed(problem.discretization, 1, 8)
    of_own, of_shared = fem_memory.HOST_FRACTIONS
    monkeypatch.setattr(fem_memory, "available_bytes", lambda _: int(shared * of_shared + 5.5 * own * of_own))
    assert problem.solve(Ensemble(np.zeros((5, 4)))).converged.all()
    with pytest.raises(MemoryError, match=r"need at least .* GB\. At most 5 samples at once"):
        problem.solve(Ensemble(np.zeros((5, 9))))


def test_memory_of_the_host_is_bounded_by_its_control_group(monkeypatch, tmp_path):
    free = _backend.available_bytes(np.empty(0))
    assert 0 < free < 1 << 50
    texts = {"memory.max": "1000\n", "memory.stat": "anon 400\nfile 500\n"}
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: texts.get(path.name) or read(path))
    assert _backend.available_bytes(np.empty(0)) == 600
    texts["memory.max"] = "max\n"
    assert _backend.available_bytes(np.empty(0)) > 1 << 20


@pytest.mark.parametrize("arguments", [SMALL, GRID])
def test_a_second_ctrl_c_says_what_is_written(arguments, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    module = sys.modules[f"ensemble._command.{arguments[0]}.command"]
    monkeypatch.setattr(module, "save_figure", interrupted)
    assert main([*arguments, "--out", "a.npz", "--plot", "b.png"]) == 130
    out, err = capsys.readouterr()
    assert out != "" and (tmp_path / "a.npz").exists()
    assert err.endswith(
        "interrupted after results: the results were printed, a.npz was written, b.png was not written\n"
    )


def test_ctrl_c_while_printing_still_writes_the_files(capsys, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Output, "print", interrupted)
    assert main([*SMALL, "--out", str(tmp_path / "a.npz")]) == 130
    assert (tmp_path / "a.npz").exists()
    assert "interrupted after results" in capsys.readouterr().err


def test_a_comparison_that_fails_does_not_cost_the_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def failing(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr("ensemble._command.gbees.command.kernel_density", failing)
    assert main([*GRID, "--monte-carlo", "20", "--out", "a.npz", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["monte_carlo"] is None and (tmp_path / "a.npz").exists()
    assert "the comparison is left out: no room" in err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_during_the_import_prints_nothing(tmp_path):
    (tmp_path / "numba.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    code = (  # a job of a shell's background inherits that Ctrl-C is ignored
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from _ensemble_command import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "diffusion"], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == -signal.SIGINT
    assert (done.stdout, done.stderr) == ("", "")


def test_the_entry_point_runs_the_command():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = "import sys; from _ensemble_command import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.startswith("ensemble ")
