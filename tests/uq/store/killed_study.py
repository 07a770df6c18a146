"""A study killed again and again: ``python -m tests.uq.store.killed_study KIND FOLDER KILLS SEED`` reports as JSON."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import sys
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import ensemble as en
from ensemble import uq
from ensemble.uq import InputSamples, Store
from ensemble.uq.store import compaction, widths, zarr_array
from tests.uq.store.trees import tree

N = 700
CREATING, APPENDING, COMPACTING = range(3)
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
    widths.MAX_SAMPLES, widths.MIN_SAMPLES = 64, 16
    zarr_array.CHUNK_BYTES, widths.COLUMN_BYTES = 4096, 16384
    compaction.FLUSH_BYTES, compaction.PANEL_BYTES = 30000, 20000


def with_workers(seed: int) -> bool:
    """Whether two workers run the groups: threads here, processes in `propagate`."""
    return seed % 3 == 0


def run_store(path: Path, n: int, seed: int, undisturbed: bool) -> None:
    """Start or continue the study; by the seed with two threads, and with compactions in between."""
    rng = np.random.default_rng(seed)
    manifest = {"n": n, "seed": 1, "inputs": {"E": ["sqrt", 0.5]}, "source_digest": "d"}
    store = Store.open(path, manifest) if Store.exists(path) else Store.create(path, manifest)
    pending = np.flatnonzero(~store.done())
    if not undisturbed:
        rng.shuffle(pending)
    size = int(rng.choice([1, 7, 16, 32, 50]))
    groups = [pending[k : k + size] for k in range(0, len(pending), size)]
    inputs = {name: values[..., :n] for name, values in INPUTS.items()}
    with ThreadPoolExecutor(2) as workers:
        parallel = with_workers(seed) and not undisturbed
        calls = {workers.submit(outputs_of, ids): ids for ids in groups} if parallel else {}
        finished = (
            ((calls[c], c.result()) for c in as_completed(calls)) if calls else ((g, outputs_of(g)) for g in groups)
        )
        for ids, outputs in finished:
            store.append(ids, outputs, *failed_of(ids))
            if not undisturbed and rng.random() < 0.1:
                store.compact(inputs)
    store.compact(inputs)
    store.close()


def model(x: InputSamples) -> dict[str, en.Ensemble]:
    """The outputs by sample ids."""
    time.sleep(0.001)
    failed, reasons = failed_of(x.ids)
    for place in np.flatnonzero(failed):
        x.fail(np.arange(len(x.ids)) == place, reasons[int(x.ids[place])])
    return {name: en.Ensemble(values) for name, values in outputs_of(x.ids).items()}


def run_propagate(path: Path, n: int, seed: int, undisturbed: bool) -> None:
    """The same through `propagate`: by the seed in this process or with two workers."""
    rng = np.random.default_rng(seed)
    inputs = en.Inputs(E=stats.norm(3.0, 0.5), k=stats.uniform(), v=uq.Vector(stats.uniform(), 2))
    en.propagate(
        model,
        inputs,
        n,
        ensemble_size=32 if undisturbed else int(rng.choice([1, 7, 16, 32, 50])),
        sampler="monte_carlo",
        seed=20511,
        store=path,
        resume=Store.exists(path),
        progress=False,
        executor=2 if with_workers(seed) and not undisturbed else None,
        group_by=None if undisturbed or seed % 2 else "E",
    )


RUNS = {"store": run_store, "propagate": run_propagate}


def note_phases(shared: mmap.mmap) -> None:
    """Let the methods of `Store` tell the parent what this process is doing, and which samples are stored."""
    append, compact = Store.append, Store.compact

    def noted_append(self: Store, ids: np.ndarray, *arguments: Any) -> None:
        shared[0] = APPENDING
        append(self, ids, *arguments)
        for i in ids:
            shared[1 + i] = 1

    def noted_compact(self: Store, inputs: Any = None) -> None:
        shared[0] = COMPACTING
        compact(self, inputs)

    Store.append, Store.compact = noted_append, noted_compact  # type: ignore[method-assign]


def in_child(kind: str, path: Path, n: int, seed: int, shared: mmap.mmap) -> int:
    """Run the study in a forked process of its own group."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            note_phases(shared)
            with warnings.catch_warnings(record=True) as caught:
                warnings.filterwarnings("always", "Store.open: record", RuntimeWarning)  # a kill may cut a write
                RUNS[kind](path, n, seed, False)
            for warning in caught:
                print(warning.message, file=sys.stderr)
            code = 0
        except BaseException:
            traceback.print_exc()
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


def one_round(kind: str, path: Path, rng: np.random.Generator, seconds: float, kills: int) -> list[tuple[int, bool]]:
    """Kill the study up to `kills` times, then let it finish; of each kill the phase, and whether two workers ran."""
    phases: list[tuple[int, bool]] = []
    shared = mmap.mmap(-1, N + 1)
    while True:
        n = N if phases else 400
        shared[0] = CREATING
        seed = int(rng.integers(10**6))
        child = in_child(kind, path, n, seed, shared)
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
            phases.append((shared[0], with_workers(seed)))
            check(path, shared)
        elif os.WEXITSTATUS(status):
            raise SystemExit("the study failed")
        elif n == N:
            return phases


def main(kind: str, folder: str, kills: int, seed: int) -> None:
    small_chunks()
    rng = np.random.default_rng(seed)
    started = time.perf_counter()
    RUNS[kind](Path(folder) / "undisturbed", N, 1, True)
    expected = tree(Path(folder) / "undisturbed")
    seconds = 1.5 * (time.perf_counter() - started)
    phases: list[tuple[int, bool]] = []
    differing: set[str] = set()
    rounds = 0
    while len(phases) < kills:
        path = Path(folder) / f"killed_{rounds}"
        phases += one_round(kind, path, rng, seconds, min(6, kills - len(phases)))
        found = tree(path)
        differing |= {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
        rounds += 1
    by_phase = [sum(phase == one for phase, _ in phases) for one in (CREATING, APPENDING, COMPACTING)]
    report = {"kills": len(phases), "phases": by_phase, "with_workers": sum(parallel for _, parallel in phases)}
    print(json.dumps({**report, "rounds": rounds, "differing": sorted(differing), "files": len(expected)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
