"""Runs a function of a test module on several ranks of MPI.

In a test, with the fixture `mpi` of this folder's conftest::

    def total(comm, add):
        return comm.allreduce(comm.rank + add)

    def test_every_rank_has_the_total(mpi):
        assert mpi(total, 3, 10) == [33, 33, 33]

The function stands in a module of tests, its arguments and values can be pickled. What it raises on one rank ends all
ranks and is shown with the traceback of each rank that failed; at the time limit each rank shows where it stands.
The same from a shell: ``mpiexec -n 3 python -m tests.distributed.runner tests.distributed.test_runner:total``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

FOLDER = "ENSEMBLE_TEST_MPI_FOLDER"
"""The variable of the environment that names the folder for arguments, values and tracebacks."""

LIMIT = "ENSEMBLE_TEST_MPI_LIMIT"
"""The variable of the environment with the seconds after which a rank shows where it stands and ends."""

GRACE = 10.0
"""Seconds that the launcher may take, beyond the limit, to end what a rank left behind."""

ENVIRONMENT = {
    **{f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OMP", "OPENBLAS", "MKL")},
    # More ranks than cores, and the user root of a container: Open MPI 4 and 5 refuse both unless told.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip


class RanksFailedError(AssertionError):
    """A rank raised, ended early or did not end; the message has what each rank and the launcher wrote."""


def launcher() -> str | None:
    """The path of `mpiexec`, that beside this Python first; None without one or without mpi4py."""
    if importlib.util.find_spec("mpi4py") is None:
        return None
    return shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")


def run_on_ranks(function: Callable[..., Any] | str, ranks: int, *arguments: Any, limit: float = 60.0) -> list[Any]:
    """What ``function(comm, *arguments)`` returned on each of `ranks` ranks, in the order of ranks.

    `function` is a function of a module, or its name "module:function". After `limit` seconds all ranks are ended.
    """
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    program = launcher()
    assert program is not None, "no mpiexec or no mpi4py"
    with tempfile.TemporaryDirectory(prefix="ensemble-ranks-") as folder:
        Path(folder, "arguments").write_bytes(pickle.dumps(arguments))
        command = [program, "-n", str(ranks), sys.executable, "-m", "tests.distributed.runner", name]
        settings = {**os.environ, **ENVIRONMENT, FOLDER: folder, LIMIT: str(limit)}
        code, written = _ended(command, settings, limit + GRACE)
        values = [Path(folder, f"value-{rank}") for rank in range(ranks)]
        if code != 0 or not all(path.exists() for path in values):
            raise RanksFailedError(_report(name, ranks, code, written, Path(folder)))
        return [pickle.loads(path.read_bytes()) for path in values]


def _ended(command: list[str], settings: dict[str, str], limit: float) -> tuple[int | None, str]:
    """The exit status of a command (None: ended here at the limit) and what it wrote."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        written, _ = process.communicate(timeout=limit)
        return process.returncode, written
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends its ranks, which may stand in sessions of their own
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    written, _ = process.communicate()
    return None, written


def _report(name: str, ranks: int, code: int | None, written: str, folder: Path) -> str:
    """What a failed run has to say, the tracebacks of its ranks first."""
    ending = "did not end" if code is None else f"ended with status {code}"
    lines = [f"{name} on {ranks} ranks {ending}"]
    for rank in range(ranks):
        state = "returned" if (folder / f"value-{rank}").exists() else "returned nothing"
        said = folder / f"said-{rank}"
        text = said.read_text(errors="replace").strip() if said.exists() else ""
        lines.append(f"--- rank {rank}: {text or (state if said.exists() else 'did not start')}")
    return "\n".join([*lines, "--- written by all:", written.strip()[-6000:]])


def main(name: str) -> None:
    """Run one rank."""
    from mpi4py import MPI

    comm, folder = MPI.COMM_WORLD, os.environ.get(FOLDER)
    said = open(Path(folder, f"said-{comm.rank}"), "w") if folder else sys.stderr  # noqa: SIM115  open to the end
    faulthandler.enable(said)
    if LIMIT in os.environ:
        faulthandler.dump_traceback_later(float(os.environ[LIMIT]), exit=True, file=said)
    try:
        arguments = pickle.loads(Path(folder, "arguments").read_bytes()) if folder else ()
        from tests import conftest  # noqa: F401  the settings of the other tests, so that kernels on disk serve

        module, _, path = name.partition(":")
        function = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
        warnings.simplefilter("error")  # as for the other tests
        value = function(comm, *arguments)
        if folder:
            part = Path(folder, f"part-{comm.rank}")
            part.write_bytes(pickle.dumps(value))
            part.rename(Path(folder, f"value-{comm.rank}"))
        comm.Barrier()  # no rank ends before the others: an abort of theirs would hide behind it
    except BaseException:
        traceback.print_exc(file=said)
        said.flush()
        comm.Abort(1)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1])
