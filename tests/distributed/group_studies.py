"""Studies of models that use a communicator, for the tests of groups: each runs on every rank of a job."""

from __future__ import annotations

import functools
import hashlib
import io
import sys
import threading
import time

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.distributed.groups import groups
from ensemble.uq.store.store import Store

INPUTS = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
SEED, N, SIZE = 40961, 256, 16
SERIAL_STUDY = {"n": N, "seed": SEED, "ensemble_size": SIZE, "progress": False}


def model(x, comm):
    """A sum over the ranks of the group, exact for every number of them."""
    total = comm.allreduce(sum(range(comm.rank, 12, comm.size)))
    y = x.load / x.stiffness * total
    return {"tip": y, "u": en.Ensemble(np.stack([y.samples, y.samples * x.load.samples]))}


LONG_STUDY = {"n": 1024, "seed": SEED, "ensemble_size": 4, "progress": False}
"""On one group it takes 5 s: Python drops an exception that comes while it collects garbage, and then it goes on."""


def slow_model(x, comm):
    """`model`, which takes a while on several ranks; one ensemble after the other on one."""
    time.sleep(0.02 if comm.size > 1 or hasattr(comm, "Get_attr") else 0.0)
    return model(x, comm)


def failing(how, x, comm):
    """A model that fails on the last rank of a group: samples 20 and 21, or the ensemble of sample 20."""
    here, places = comm.rank == comm.size - 1, np.flatnonzero(np.isin(x.ids, [20, 21]))
    found = model(x, comm)
    if here and places.size:
        if how == "mark":
            x.fail(np.isin(x.ids, [20, 21]), "marked")
        elif how == "nan":
            found["tip"].samples[places] = np.nan
        elif how == "raise":
            raise ZeroDivisionError("of one rank")
        elif how == "interrupt":
            raise KeyboardInterrupt
        elif how == "exit":
            sys.exit(3)
    if here and how == "name":
        return undefined_name  # noqa: F821
    if how == "run":
        return en.run(lambda load: dividing(load, here, comm), x.load)
    if how == "root":
        return found if comm.rank == 0 else None
    if how == "local" and comm.rank:
        found["u"].samples[0, -1] += 1.0
    return found


def dividing(load, here, comm):
    """A program of one sample that fails for small loads, on the last rank alone."""
    if here and load < 0.6:
        raise ValueError("a small load")
    return {"y": load * 2.0}


class NeverPickledError(Exception):
    """An exception that no other process can read."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def refusing(x, comm):
    found = model(x, comm)
    if 20 in x.ids and comm.rank == comm.size - 1:
        raise NeverPickledError("this", "that")
    return found


def summary(result):
    """What a study gave, to the bit."""
    values = [result.values(name).tobytes() for name in result.names] if result.keep == "all" else []
    digest = hashlib.sha256(b"".join([*values, result.failed.tobytes(), result.done.tobytes()]))
    intervals = [np.asarray(result.confidence_interval(name, 0.95)).tolist() for name in result.names]
    means = [np.asarray(result.mean(name)).tolist() for name in result.names]
    return digest.hexdigest(), result.n_done, result.n_failed, sorted(result.reasons), means, intervals


def error_of(work, workers, settings):
    """The error of a study: its type, its text, its notes and how many samples were done."""
    try:
        run(work, workers, settings)
    except BaseException as error:
        done = getattr(getattr(error, "result", None), "n_done", None)
        return type(error).__name__, str(error), "\n".join(getattr(error, "__notes__", ())), done
    return None


def divisors(n):
    return [k for k in range(1, n + 1) if n % k == 0]


def plain(comm):
    """Studies by the number of ranks in a group, as samples and as statistics alone, and indices."""
    found = {}
    for k in divisors(comm.size):
        workers = groups(comm, k)
        found["all", k] = summary(en.propagate(model, INPUTS, executor=workers, **SERIAL_STUDY))
        kept = en.propagate(model, INPUTS, executor=workers, keep="statistics", group_by="load", **SERIAL_STUDY)
        found["statistics", k] = summary(kept)
        indices = en.sobol_indices(model, INPUTS, 32, seed=SEED, executor=workers, progress=False)
        found["indices", k] = indices.first["tip"].tolist(), indices.total["u"].tolist()
    return found


def failures(comm, per_group):
    """Studies whose model fails on one rank of a group."""
    workers, found = groups(comm, per_group), {}
    for how in ("mark", "nan", "raise", "run", "root"):
        work = functools.partial(failing, how)
        found[how] = run(work, workers, SERIAL_STUDY | {"on_failure": "mask"})
        if how in ("raise", "run"):
            found[how, "retry"] = run(work, workers, SERIAL_STUDY | {"on_failure": "retry"})
    work = functools.partial(failing, "nan")
    found["may not fail"] = error_of(work, workers, SERIAL_STUDY | {"on_failure": "raise"})
    for how in ("name", "local", "interrupt", "exit"):
        found[how] = error_of(functools.partial(failing, how), workers, SERIAL_STUDY)
    found["pickle"] = run(refusing, workers, SERIAL_STUDY)
    found["n"] = error_of(model, workers, SERIAL_STUDY | {"n": N + comm.rank})
    found["after"] = run(model, workers, SERIAL_STUDY)
    return found


def run(work, workers, settings):
    result = en.propagate(work, INPUTS, executor=workers, **settings)
    return *summary(result), sorted(set(result.reasons.values()))


def stored(comm, per_group, path, n, resume):
    """A study with a store that only rank 0 may touch."""
    settings = SERIAL_STUDY | {"n": n, "store": path, "resume": resume}
    with pytest.MonkeyPatch.context() as patch:
        if comm.rank:
            patch.setattr(Store, "create", None)
            patch.setattr(Store, "open", None)
        result = en.propagate(model, INPUTS, executor=groups(comm, per_group), **settings)
    return summary(result)


def shown(comm):
    """What each rank writes while a study of unknown ensemble size runs, and in which threads models ran."""
    main = []

    def watched(x, comm):
        main.append(threading.current_thread() is threading.main_thread())
        return model(x, comm)

    kept, sys.stderr = sys.stderr, io.StringIO()
    try:
        result = en.propagate(watched, INPUTS, 64, seed=SEED, executor=groups(comm, 1))
        return sys.stderr.getvalue().splitlines(), all(main), result.ensemble_size
    finally:
        sys.stderr = kept


def shares(comm, per_group, slow):
    """How many ensembles each rank ran where the first of rank `slow` takes long; which group runs which differs."""
    calls = []

    def work(x, group):
        calls.append(x.ids[0])
        time.sleep(0.5 if comm.rank == slow and len(calls) == 1 else 0.01)
        group.allreduce(1)
        return model(x, group)

    en.propagate(work, INPUTS, executor=groups(comm, per_group), **SERIAL_STUDY)
    return len(calls)


def limited(comm, per_group):
    """Samples that were done, and the time, of a study that is given 0.4 s of 3.2 s."""

    def work(x, group):
        time.sleep(0.2)
        return model(x, group)

    start = time.perf_counter()
    result = en.propagate(work, INPUTS, executor=groups(comm, per_group), max_seconds=0.4, **SERIAL_STUDY)
    return result.n_done, time.perf_counter() - start


def job(comm, folder):
    """All of these, in one job."""
    found = {"plain": plain(comm)}
    widest = max(k for k in divisors(comm.size) if k < comm.size)
    found["failures"] = failures(comm, widest)
    found["stored"] = stored(comm, widest, f"{folder}/run.zarr", N // 2, False)
    found["shown"] = shown(comm)
    found["shares"] = {slow: shares(comm, 1, slow) for slow in (0, comm.size - 1)}
    found["limited"] = limited(comm, 1)
    return found


def job_without_threads(comm, folder):
    """What needs no threads of MPI, and a study that goes on on another number of ranks."""
    from mpi4py import MPI

    found = {"threads": MPI.Query_thread() == MPI.THREAD_MULTIPLE, "plain": plain(comm)}
    found["stored"] = stored(comm, 1, f"{folder}/run.zarr", N, True)
    found["failures"] = failures(comm, comm.size)
    found["shares"] = shares(comm, 1, 0)
    return found
