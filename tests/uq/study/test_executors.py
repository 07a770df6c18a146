"""Groups on threads, processes, Dask and MPI: the bits of the serial run, also when workers die."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import ensemble as en
from ensemble.uq.study.executors import is_worker_failure, n_deaths
from tests.distributed import runner
from tests.uq.study.models import INPUTS, DyingBeam, beam, failing_above, same_bits, slow_beam

ROOT = Path(__file__).parents[3]


def run(model=beam, n=256, **options):
    return en.propagate(model, INPUTS, n, **{"seed": 7, "progress": False, "ensemble_size": 32} | options)


class Here:
    """Runs what is submitted at once; an id of `deadly` breaks it, and all that follows fails."""

    def __init__(self, deadly=(), log=None):
        self.deadly, self.broken, self.log = set(deadly), False, [] if log is None else log

    def submit(self, function, *arguments):
        future = Future()
        self.log.append(arguments[1].ids.tolist())
        if self.broken or self.deadly & set(arguments[1].ids.tolist()):
            self.broken = True
            future.set_exception(BrokenExecutor("a worker died"))
        else:
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)
        return future

    def shutdown(self, **_):
        pass


@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize("group_by", [None, "load"])
@pytest.mark.parametrize("size", [8, 33])
def test_threads_give_the_bits_of_the_serial_run(size, group_by, keep):
    with ThreadPoolExecutor(3) as pool:
        found = run(slow_beam, executor=pool, ensemble_size=size, group_by=group_by, keep=keep)
    assert same_bits(found, run(keep=keep))


def test_groups_in_flight_are_bounded():
    log, most = [], []

    class Pool(ThreadPoolExecutor):
        def submit(self, *arguments):
            log.append(1)
            future = super().submit(*arguments)
            future.add_done_callback(lambda _: log.append(-1))
            most.append(sum(log))
            return future

    with Pool(2) as pool:
        run(slow_beam, executor=pool, ensemble_size=8)
    assert max(most) <= 5


def test_a_size_is_chosen_on_the_workers():
    with ThreadPoolExecutor(1) as pool:
        assert same_bits(run(executor=pool, ensemble_size="auto"), run())


def test_errors_of_the_program_come_back_with_what_was_done():
    with ThreadPoolExecutor(2) as pool, pytest.raises(NameError) as caught:
        run(lambda x: missing if x.ids[0] == 64 else beam(x), executor=pool)  # noqa: F821
    assert 0 <= caught.value.result.n_done < 256


@pytest.mark.parametrize("on_failure", ["mask", "retry"])
def test_a_group_that_kills_its_worker_three_times_has_failed(on_failure):
    pools = []

    def factory():
        pools.append(Here(deadly=[70]))
        return pools[-1]

    result = run(executor=factory, on_failure=on_failure, ensemble_size=8)
    bad = list(range(64, 72)) if on_failure == "mask" else [70]
    assert np.flatnonzero(result.failed).tolist() == bad and result.reasons[70] == "its worker died: BrokenExecutor"
    good = ~result.failed
    np.testing.assert_array_equal(result.values("field")[:, good], run().values("field")[:, good])
    assert len(pools) == 4 + (on_failure == "retry")


def test_a_deadly_group_raises_where_failures_do():
    with pytest.raises(RuntimeError, match=r"the worker of samples 64 to 71 died 3 times .* on_failure='mask' leaves"):
        run(executor=lambda: Here(deadly=[70]), on_failure="raise", ensemble_size=8)


def test_groups_beside_a_deadly_one_are_not_blamed():
    log = []
    run(executor=lambda: Here(deadly=[70], log=log), ensemble_size=8)
    deadly = [ids for ids in log if 70 in ids]
    assert len(deadly) == 3 and {i for ids in log for i in ids} == set(range(256))


def test_a_broken_executor_of_the_user_loses_nothing(tmp_path):
    with pytest.raises(RuntimeError, match=r"executor must keep its workers; got BrokenExecutor: a worker died") as e:
        run(executor=Here(deadly=[200]), store=tmp_path / "a")
    assert "function that makes one" in str(e.value) and "resume=True goes on" in e.value.__notes__[0]
    assert e.value.result.n_done == 192
    assert same_bits(run(executor=Here(), store=tmp_path / "a", resume=True), run())


def test_dasks_own_retries_count_for_two_deaths():
    KilledWorker = type("KilledWorker", (Exception,), {})

    class Client(Here):
        def submit(self, function, *arguments):
            future = Future()
            self.log.append(arguments[1].ids.tolist())
            if 70 in arguments[1].ids:
                future.set_exception(KilledWorker("died 4 times"))
            else:
                future.set_result(function(*arguments))
            return future

    client = Client()
    result = run(executor=client, ensemble_size=8)
    assert np.flatnonzero(result.failed).tolist() == list(range(64, 72))
    assert len([ids for ids in client.log if 70 in ids]) == 2


@pytest.mark.parametrize("executor", [3.5, "pool", lambda: 3])
def test_what_submits_nothing_is_refused(executor):
    with pytest.raises(TypeError, match=r"propagate: executor must have a method submit, or give an executor"):
        run(executor=executor)


@pytest.mark.parametrize("executor", [0, -1])
def test_a_number_of_processes_is_positive(executor):
    with pytest.raises(ValueError, match=r"propagate: executor must be an integer of at least 1"):
        run(executor=executor)


class WithLock:
    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, x):
        return beam(x)


def test_a_model_that_cannot_travel_is_refused_before_work():
    with pytest.raises(TypeError, match=r"propagate: model must be picklable for other processes; got TypeError"):
        run(WithLock(), executor=Here())
    with ThreadPoolExecutor(1) as pool:
        assert run(WithLock(), executor=pool).n_failed == 0


def test_processes_give_the_bits_of_the_serial_run(tmp_path):
    """A worker is killed once on the way, and its group is run again."""
    (tmp_path / "deaths").mkdir()
    model = DyingBeam(tmp_path / "deaths", sample=100, times=1)
    assert same_bits(run(model, executor=2, store=tmp_path / "run.zarr"), run())
    assert len(list((tmp_path / "deaths").iterdir())) == 1


@pytest.mark.slow
def test_a_sample_that_always_kills_its_process_fails_alone(tmp_path):
    model = DyingBeam(tmp_path, sample=100, times=99)
    result = run(model, executor=lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")), on_failure="retry")
    assert np.flatnonzero(result.failed).tolist() == [100]
    assert result.reasons[100] == "its worker died: BrokenProcessPool"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("times", [0, 1])
def test_dask_gives_the_bits_of_the_serial_run(tmp_path, times):
    distributed = pytest.importorskip("distributed")
    model = DyingBeam(tmp_path, sample=100, times=times)
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert same_bits(run(model, executor=client), run())
    assert len(list(tmp_path.iterdir())) == times


MPI_PROGRAM = """
from mpi4py.futures import MPIPoolExecutor
import ensemble as en
from tests.uq.study.models import INPUTS, beam, same_bits

if __name__ == "__main__":
    options = dict(seed=7, progress=False, ensemble_size=32)
    with MPIPoolExecutor() as pool:
        found = en.propagate(lambda x: beam(x), INPUTS, 256, executor=pool, **options)
    print(same_bits(found, en.propagate(beam, INPUTS, 256, **options)))
"""


@pytest.mark.slow
def test_mpi_gives_the_bits_of_the_serial_run(tmp_path):
    mpiexec = runner.launcher()
    if mpiexec is None:
        pytest.skip("mpi4py or mpiexec is not installed")
    (tmp_path / "program.py").write_text(MPI_PROGRAM)
    command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", tmp_path / "program.py"]
    settings = {**os.environ, **runner.ENVIRONMENT}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False, env=settings)
    assert done.returncode == 0 and done.stdout.split()[-1] == "True", done.stderr[-3000:]


def test_failures_come_back_from_workers():
    with ThreadPoolExecutor(2) as pool:
        assert same_bits(run(failing_above(1.3), executor=pool), run(failing_above(1.3)))


DEADLY = """
import os, sys, time
import dask.distributed as distributed
import ensemble as en
from tests.uq.study.models import INPUTS, DyingBeam

if __name__ == "__main__":
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        model = DyingBeam(sys.argv[1], sample=100, times=99)
        result = en.propagate(model, INPUTS, 128, seed=7, progress=False, ensemble_size=32, executor=client)
    print(result.failed.nonzero()[0].tolist() == list(range(96, 128)), result.reasons[100])
"""


@pytest.mark.slow
def test_a_sample_that_always_kills_its_dask_worker_fails_its_group(tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "program.py").write_text(DEADLY)
    (tmp_path / "deaths").mkdir()
    command = [sys.executable, tmp_path / "program.py", tmp_path / "deaths"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
    assert done.stdout.strip() == "True its worker died: KilledWorker", done.stderr[-3000:]


def test_each_task_of_dask_has_a_key_of_its_own():
    """Equal keys are equal tasks: one that has failed would not run again."""
    keys = []

    class Client(Here):
        def nthreads(self):
            return {"one": 1}

        def scatter(self, *_, **__):
            raise AssertionError("scattered data are lost with a worker")

        def submit(self, function, *arguments, pure=True):
            assert not pure
            keys.append(function.__name__)
            future = Future()
            future.set_result(function(*(a.result() if isinstance(a, Future) else a for a in arguments)))
            return future

    pytest.importorskip("dask")
    assert same_bits(run(executor=Client()), run()) and keys[0] == "as_it_is"


@pytest.mark.parametrize(
    "error, alone, deaths",
    [
        (BrokenExecutor(), False, 1),
        (type("KilledWorker", (Exception,), {"allowed_failures": 3})(), False, 2),
        (type("KilledWorker", (Exception,), {"allowed_failures": 0})(), True, 1),
        (type("FutureCancelledError", (Exception,), {})(), False, 0),
        (type("FutureCancelledError", (Exception,), {})(), True, 1),
    ],
)
def test_deaths_are_counted_for_the_group_that_may_have_caused_them(error, alone, deaths):
    assert is_worker_failure(error) and n_deaths(error, alone=alone) == deaths


ORPHANS = """
import os, sys, time
import ensemble as en
from scipy import stats

def busy(x):
    with open(sys.argv[1] if len(sys.argv) > 1 else os.environ["STARTED"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    if os.environ["HOLD"] == "1":
        sum(range(10**12))  # holds Python's lock
    time.sleep(300)
    return x.a

if __name__ == "__main__":
    executor = 2
    if os.environ["POOL"] == "user":
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        executor = ProcessPoolExecutor(2, mp_context=get_context("forkserver"))
    inputs = en.Inputs(a=stats.norm())
    en.propagate(busy, inputs, 64, seed=1, progress=False, ensemble_size=8, executor=executor)
"""


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def children_of(process: int) -> set[int]:
    """Processes below another, their trackers too."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == process:
                found |= {int(folder.name)} | children_of(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
@pytest.mark.parametrize("pool, hold", [("own", "1"), pytest.param("user", "0", marks=pytest.mark.slow)])
def test_workers_and_trackers_end_when_the_study_is_killed(tmp_path, pool, hold):
    (tmp_path / "program.py").write_text(ORPHANS)
    started = tmp_path / "started"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "STARTED": str(started), "HOLD": hold, "POOL": pool}
    process = subprocess.Popen([sys.executable, tmp_path / "program.py"], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline and (not started.exists() or len(started.read_text().split()) < 2):
        time.sleep(0.1)
    left = children_of(process.pid)
    assert len(left) >= 3  # two workers and their tracker
    process.kill()
    process.wait()
    until = time.monotonic() + 10.0
    while any(map(is_running, left)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, left))


UNGUARDED = """
from scipy import stats
import ensemble as en
def model(x):
    return {{"y": x.a}}
en.propagate(model, en.Inputs(a=stats.norm()), 16, seed=1, ensemble_size=8, progress=False, executor=2{more})
"""


@pytest.mark.parametrize("more", ["", pytest.param(", max_seconds=100", marks=pytest.mark.slow)])
def test_a_script_that_starts_processes_while_they_import_it_is_told_so(tmp_path, more):
    (tmp_path / "study.py").write_text(UNGUARDED.format(more=more))
    found = subprocess.run(
        [sys.executable, "study.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.returncode == 1
    assert found.stderr.count("Error: propagate: executor must start processes; got processes that ended before") == 1
    assert 'below `if __name__ == "__main__":`, for each process imports' in found.stderr
    assert "freeze_support" not in found.stderr


def test_a_communicator_is_told_how_it_becomes_an_executor():
    class Communicator:
        def Get_rank(self):
            return 0

    with pytest.raises(TypeError, match=r"got a Communicator\. ensemble\.distributed\.groups\(comm, 1\) is"):
        run(executor=Communicator())
