"""A study killed again and again: ``python -m tests.uq.store.killed_study FOLDER KILLS SEED`` reports as JSON."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from ensemble.uq import Store
from ensemble.uq.store import compaction, zarr_array
from tests.uq.store.trees import tree

N = 700
CREATING, APPENDING, COMPACTING, FINISHED = range(4)
INPUTS = {"E": np.sqrt(np.arange(N)), "mesh": np.arange(2 * N).reshape(2, N)}


def outputs_of(ids: np.ndarray) -> dict[str, np.ndarray]:
    """A scalar, an integer, and a field whose chunks are split along both of its axes."""
    field = np.sin(np.add.outer(np.arange(60.0).reshape(3, 20), ids))
    return {"tip": np.cos(ids), "count": ids**2, "field": field}


def failed_of(ids: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
    failed = ids % 13 == 5
    return failed, {int(i): f"no convergence in sample {i}" for i in ids[failed]}


def small_chunks() -> None:
    """Many small files, flushed one by one, so that kills hit every step of a compaction."""
    zarr_array.MAX_SAMPLES, zarr_array.MIN_SAMPLES = 64, 16
    zarr_array.CHUNK_BYTES, zarr_array.COLUMN_BYTES = 4096, 16384
    compaction.FLUSH_BYTES, compaction.PANEL_BYTES = 30000, 20000


def run(path: Path, n: int, seed: int, shared: mmap.mmap | None) -> None:
    """Start or continue the study; by the seed with two workers, and with compactions in between."""
    rng = np.random.default_rng(seed)
    manifest = {"n": n, "seed": 1, "inputs": {"E": ["sqrt", 0.5]}, "source_digest": "d"}

    def note(phase: int, ids: np.ndarray | None = None) -> None:
        if shared is not None:
            shared[0] = phase
            for i in () if ids is None else ids:
                shared[1 + i] = 1

    note(CREATING)
    store = Store.open(path, manifest) if Store.exists(path) else Store.create(path, manifest)
    pending = np.flatnonzero(~store.done())
    if shared is not None:
        rng.shuffle(pending)
    size = int(rng.choice([1, 7, 16, 32, 50]))
    groups = [pending[k : k + size] for k in range(0, len(pending), size)]
    inputs = {name: values[..., :n] for name, values in INPUTS.items()}
    with ProcessPoolExecutor(2) as workers:
        parallel = seed % 3 == 0 and shared is not None
        calls = {workers.submit(outputs_of, ids): ids for ids in groups} if parallel else {}
        finished = (
            ((calls[c], c.result()) for c in as_completed(calls)) if calls else ((g, outputs_of(g)) for g in groups)
        )
        for ids, outputs in finished:
            note(APPENDING)
            store.append(ids, outputs, *failed_of(ids))
            note(APPENDING, ids)
            if shared is not None and rng.random() < 0.1:
                note(COMPACTING)
                store.compact(inputs)
    note(COMPACTING)
    store.compact(inputs)
    store.close()
    note(FINISHED)


def in_child(path: Path, n: int, seed: int, shared: mmap.mmap) -> int:
    """Run the study in a forked process of its own group."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            run(path, n, seed, shared)
            code = 0
        finally:
            os._exit(code)
    return child


def check(path: Path, shared: mmap.mmap) -> None:
    """Every group whose `append` had returned is stored, with its values."""
    if not Store.exists(path):
        return
    store = Store.open(path)
    told = np.flatnonzero(np.frombuffer(shared, dtype=np.uint8, count=N, offset=1))
    assert store.done()[told].all(), f"lost: {told[~store.done()[told]]}"
    ids = np.flatnonzero(store.done())
    failed, _ = failed_of(ids)
    assert np.array_equal(store.failed()[ids], failed)
    for name, expected in outputs_of(ids).items() if store.outputs else ():
        assert np.array_equal(store.read(name, ids)[..., ~failed], expected[..., ~failed]), name


def ended(child: int) -> bool:
    """Whether the child has ended; its status stays for `waitpid`."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def one_round(path: Path, rng: np.random.Generator, seconds: float, kills: int) -> list[int]:
    """Kill the study up to `kills` times, then let it finish; the phases in which it was killed."""
    phases: list[int] = []
    shared = mmap.mmap(-1, N + 1)
    while True:
        n = N if phases else 400
        shared[0] = CREATING
        child = in_child(path, n, int(rng.integers(10**6)), shared)
        if len(phases) < kills:
            if rng.random() < 0.5:
                time.sleep(rng.uniform(0.0, seconds))
            else:  # groups are appended in a fraction of the time of a compaction: wait for one
                while shared[0] != APPENDING and not ended(child):
                    time.sleep(0.0002)
                time.sleep(rng.uniform(0.0, 0.003))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # workers that outlive it
        if os.WIFSIGNALED(status):
            phases.append(shared[0])
            check(path, shared)
        elif os.WEXITSTATUS(status):
            raise SystemExit("the study failed")
        elif n == N:
            return phases


def main(folder: str, kills: int, seed: int) -> None:
    small_chunks()
    rng = np.random.default_rng(seed)
    started = time.perf_counter()
    run(Path(folder) / "undisturbed", N, 1, None)
    expected = tree(Path(folder) / "undisturbed")
    seconds = 1.5 * (time.perf_counter() - started)
    phases: list[int] = []
    differing: set[str] = set()
    rounds = 0
    while len(phases) < kills:
        path = Path(folder) / f"killed_{rounds}"
        phases += one_round(path, rng, seconds, min(6, kills - len(phases)))
        found = tree(path)
        differing |= {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
        rounds += 1
    counts = [phases.count(phase) for phase in (CREATING, APPENDING, COMPACTING)]
    report = {"kills": len(phases), "phases": counts, "rounds": rounds, "differing": sorted(differing)}
    print(json.dumps({**report, "files": len(expected), "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
