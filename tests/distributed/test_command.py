"""``mpiexec -n P ensemble diffusion``: one voice, the numbers of one rank; a plain run knows no MPI."""

import json
import os
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from ensemble import _blas
from ensemble.__main__ import main
from ensemble._command.shared import ranks
from tests.distributed import runner

OPTIONS = ["--cells=6", "--samples=12", "--ensemble-size=8", "--scalar-runs=1", "--source=1", "--json"]
ARGUMENTS = [sys.executable, "-m", "ensemble", "diffusion"]

NUMBERS = (
    "unknowns", "samples", "response_mean", "response_std", "iterations", "iterations_min", "iterations_max",
    "newton_iterations_max",
)  # fmt: skip


LAUNCHERS = (*ranks.SIZES, *ranks.NUMBERS, *_blas.LOCAL_SIZES)


def started(command, timeout=200.0, without=(), **settings):
    """The finished process; a rank that hangs fails the test."""
    environment = {**os.environ, **runner.ENVIRONMENT, **settings}
    environment = {name: value for name, value in environment.items() if name not in without}
    return subprocess.run(
        command, cwd=runner.ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def on_ranks(n):
    if runner.launcher() is None:
        pytest.skip("no mpiexec or no mpi4py: pip install '.[mpi]'")
    return [runner.launcher(), "-n", str(n), *ARGUMENTS]


def numbers_of(run, n, samples=12):
    """The summary of a run on `n` ranks that printed it once."""
    assert run.returncode == 0, run.stderr
    (line,) = run.stdout.splitlines()
    assert run.stderr.count("compiling kernels") == 1 and run.stderr.count(f"{samples}/{samples} samples") == 1
    summary = json.loads(line)
    assert summary["ranks"] == n
    return [summary[name] for name in NUMBERS]


@pytest.mark.slow
def test_two_ranks_print_once_the_numbers_of_a_plain_run_which_imports_no_mpi():
    code = (
        "import sys; from ensemble.__main__ import main; "
        f"assert main(['diffusion', *{OPTIONS!r}]) == 0; assert 'mpi4py' not in sys.modules"
    )
    plain = numbers_of(started([sys.executable, "-c", code], without=LAUNCHERS), 1)
    assert numbers_of(started([*on_ranks(2), *OPTIONS]), 2) == pytest.approx(plain, rel=1e-6)


@pytest.mark.slow
def test_three_ranks_have_the_bits_of_one_in_numbers_and_files(tmp_path):
    found = []
    for n in (1, 2, 3):
        out = tmp_path / f"{n}.npz"
        run = started([*on_ranks(n), *OPTIONS, "--cells=18", f"--out={out}"])
        numbers = numbers_of(run, n)
        with np.load(out) as arrays:
            digits = [arrays[name].tobytes() for name in sorted(arrays.files) if name != "summary"]
        found.append((numbers, digits))
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_an_error_on_all_ranks_is_printed_once():
    run = started([*on_ranks(3), "--cells=4", "--variance=9"])
    assert run.returncode != 0 and run.stdout == ""
    assert run.stderr.count("keep the diffusivity above zero") == 1 and "Traceback" not in run.stderr


@pytest.mark.slow
def test_an_error_on_one_rank_ends_all(tmp_path):
    code = (
        "import sys, ensemble._command.diffusion.command as c; from mpi4py import MPI; own = c.solve_all\n"
        "def fail(*a):\n"
        "    if MPI.COMM_WORLD.rank == 1: raise ArithmeticError('the cause')\n"
        "    own(*a)\n"
        "c.solve_all = fail; from ensemble.__main__ import main; sys.exit(main(['diffusion', '--cells=4']))"
    )
    start = time.monotonic()
    run = started([*on_ranks(2)[:3], sys.executable, "-c", code])
    assert run.returncode != 0 and "error on rank 1 of 2: the cause" in run.stderr and run.stdout == ""
    assert time.monotonic() - start < 120.0


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, 0), ({"PMI_SIZE": "4", "PMI_RANK": "1"}, 4), ({"OMPI_COMM_WORLD_SIZE": "2"}, 2), ({"PMIX_RANK": "0"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, 0), ({"SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, 0), ({"PMI_SIZE": "many"}, 0),
    ],
)  # fmt: skip
def test_launchers_are_known_by_their_variables(monkeypatch, variables, expected):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ranks.launched() == expected


def test_copies_without_mpi_are_refused(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ValueError, match=r"the launcher started 3 processes, but mpi4py cannot be used"):
        ranks.communicator(False)
    monkeypatch.setenv("PMI_SIZE", "0")
    with pytest.raises(ValueError, match=r"ranks were asked for, but mpi4py cannot be used"):
        ranks.communicator(True)


@pytest.mark.slow
def test_copies_that_are_each_alone_in_mpi_are_refused():
    """As under a launcher of another MPI than mpi4py's."""
    pytest.importorskip("mpi4py")
    run = started([*ARGUMENTS, "--cells=3"], SLURM_STEP_NUM_TASKS="2", SLURM_PROCID="0")
    assert run.returncode == 2 and run.stdout == ""
    assert "the launcher started 2 processes, but each is alone in MPI" in run.stderr


def test_threads_are_shared_out(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")  # what is set below goes with it
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(12), raising=False)
    _blas.share_processors()
    assert os.environ["NUMBA_NUM_THREADS"] == "6"
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    _blas.share_processors()
    assert os.environ["NUMBA_NUM_THREADS"] == "3"


@pytest.mark.parametrize("processors, own, share", [(12, 12, 6), (12, 3, 3), (2, 2, 1), (1, 1, 1)])
def test_threads_are_shared_out_where_numba_was_imported_first(monkeypatch, processors, own, share):
    """Ranks that the launcher bound keep the processors that they see."""
    taken = []
    config = types.SimpleNamespace(NUMBA_NUM_THREADS=own)
    monkeypatch.setitem(sys.modules, "numba", types.SimpleNamespace(set_num_threads=taken.append, config=config))
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(own), raising=False)
    _blas.share_processors()
    assert taken == [share] and "NUMBA_NUM_THREADS" not in os.environ


COPIES = {
    "ode": ["ode", "problem.py"],
    "gbees": ["gbees", "problem.toml"],
    "run": ["run", "model.py:model", "-n", "8"],
    "resume": ["resume", "run.zarr"],
}


@pytest.mark.parametrize("size, number", [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK")])
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_other_commands_are_refused_once(monkeypatch, capsys, name, size, number):
    for variable in LAUNCHERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(size, "3")
    monkeypatch.setenv(number, "0")
    with pytest.raises(SystemExit, match="2"):
        sys.exit(main(COPIES[name]))
    (line,) = capsys.readouterr().err.splitlines()
    assert "this command must run in one process; the launcher started 3 copies of it." in line
    assert "distributed." in line
    monkeypatch.setenv(number, "1")
    with pytest.raises(SystemExit, match="2"):
        sys.exit(main(COPIES[name]))
    assert capsys.readouterr().err == ""
