"""A study that is killed, resumed by workers of Dask, and extended: nothing is lost, and no number changes.

Run it, from any folder: ``python long_study.py`` prints what it finds. It needs
``pip install 'ensemble-arrays[dask]'``.
"""

import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import stats

import ensemble as en

# %% The model: a pendulum with friction, released at rest; how far it has come after 10 s. Every arithmetic operation
# acts on all samples of a group. A pause stands for the work of a larger model.
inputs = en.Inputs(angle=stats.norm(1.0, 0.1), length=stats.uniform(0.9, 0.2), friction=stats.lognorm(0.3, scale=0.05))


def pendulum(x):
    time.sleep(0.02)
    dt, g = 0.01, 9.81
    angle, speed = x.angle, 0.0 * x.angle
    for _ in range(1000):
        speed = speed - dt * (g / x.length * np.sin(angle) + x.friction * speed)
        angle = angle + dt * speed
    return {"angle": angle, "speed": speed}


def study(store, n, **options):
    """The study as each process below calls it; what changes are the options, and no result depends on them."""
    return en.propagate(pendulum, inputs, n, seed=11, store=store, progress=False, **options)


def stored_samples(store):
    """How many samples a store has, also while another process writes to it; none before there is a store."""
    return en.uq.open_study(store).n_done if en.uq.Store.exists(store) else 0


# %% 1. A first process begins and is killed (SIGKILL: no chance to tidy up). Each finished group was handed to the
# operating system before the next began.
def begin_and_kill(store):
    process = multiprocessing.get_context("spawn").Process(
        target=study, args=(store, 512), kwargs={"ensemble_size": 16}
    )
    process.start()
    while stored_samples(store) < 96:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return stored_samples(store)


# %% 2. Two workers of Dask go on, with groups of another size: any executor with `submit` will do, a pool of
# processes or `mpi4py.futures` as well. A worker that dies is no loss either: its groups are run again.
def resume_on_dask(store):
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        return study(store, 512, resume=True, executor=client, ensemble_size=32)


# %% 3. The interval is too wide: the same study, with more samples. Those that are there stay, the new ones join them.
def extend(store):
    return study(store, 2048, resume=True, ensemble_size=64)


def main():
    folder = Path(tempfile.mkdtemp())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Store.open: record .* is incomplete", category=RuntimeWarning)
        done = begin_and_kill(folder / "run.zarr")
        print(f"killed with {done} of 512 samples stored")
        resumed = resume_on_dask(folder / "run.zarr")
    print(f"resumed on Dask: {resumed.n_done} samples, mean angle {resumed.mean('angle'):.4f}")
    extended = extend(folder / "run.zarr")
    low, high = extended.confidence_interval("angle")
    print(f"extended: {extended.n_done} samples, mean angle {extended.mean('angle'):.4f} ({low:.4f} to {high:.4f})")
    whole = study(folder / "whole.zarr", 2048, ensemble_size=64)
    same = all(np.array_equal(extended.values(name), whole.values(name)) for name in extended.names)
    print(f"equal to a study that was never interrupted, every bit: {same}")
    return done, resumed, extended, whole, folder


if __name__ == "__main__":
    main()
