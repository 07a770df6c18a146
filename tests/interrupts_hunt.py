"""SIGINT at random moments: ``python -m tests.interrupts_hunt COUNT SEED [--size N] [--only TEXT]`` reports as JSON.

Each round makes a job of `interrupt_cases`, sends this process SIGINT after a random part of the time that the job
takes undisturbed, goes on until it is done, and compares all bits with those of the undisturbed job.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.interrupt_cases import CASES, Job, leaves, quiet, same


class Bell:
    """Sends SIGINT to this process after `delay` seconds, from another thread, unless it is stopped before."""

    def __init__(self, delay: float) -> None:
        self.rung_at: float | None = None
        self.stopped, self.lock = threading.Event(), threading.Lock()
        self.thread = threading.Thread(target=self.wait, args=(delay,), daemon=True)

    def wait(self, delay: float) -> None:
        if self.stopped.wait(delay):
            return
        with self.lock:
            if not self.stopped.is_set():
                self.rung_at = time.perf_counter()
                os.kill(os.getpid(), signal.SIGINT)

    def stop(self) -> None:
        with self.lock:
            self.stopped.set()
        self.thread.join()


def until_heard(job: Job, delay: float) -> float | None:
    """Go on with `job`, with a SIGINT after `delay`: how long it took to be heard, None where the job ended before."""
    bell = Bell(delay)
    try:
        bell.thread.start()
        job.go()
        bell.stop()
        time.sleep(0.0)  # a signal that came late is raised here
    except KeyboardInterrupt:
        heard = time.perf_counter() - (bell.rung_at or 0.0)
        bell.stop()
        return heard
    return None


def made(name: str, size: int) -> tuple[Job, Any]:
    folder = tempfile.TemporaryDirectory(prefix="interrupts-")
    with quiet():
        return CASES[name](Path(folder.name), size), folder


def undisturbed(name: str, size: int) -> tuple[Any, float]:
    """The bits of a job without interrupts, and the seconds that it takes when everything is compiled."""
    for _ in range(2):
        job, folder = made(name, size)
        started = time.perf_counter()
        with quiet():
            job.go()
        seconds = time.perf_counter() - started
        bits = [leaf.copy() for leaf in leaves(job.bits())]
        folder.cleanup()
    return bits, seconds


def disturbed(name: str, size: int, delays: list[float], bits: Any) -> tuple[list[float], list[str]]:
    """How long interrupts took to be heard, and what was wrong when the job had ended."""
    job, folder = made(name, size)
    given = [leaf.copy() for leaf in leaves(list(job.given))]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    heard, wrong = [], []
    try:
        with quiet():
            for delay in delays:
                seconds = until_heard(job, delay)
                if seconds is not None:
                    heard.append(seconds)
            job.go()
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error}")
    else:
        if not same(bits, job.bits()):
            wrong.append("other bits than undisturbed")
    finally:
        signal.signal(signal.SIGINT, before)
    if not same([given, 0], [leaves(list(job.given)), 0]):
        wrong.append("an argument was changed")
    folder.cleanup()
    return heard, wrong


def hunt(names: list[str], count: int, seed: int, size: int, shown: bool = False) -> dict[str, Any]:
    """Interrupt until `count` interrupts were heard, going round the cases."""
    rng = np.random.default_rng(seed)
    whole: dict[str, Any] = {}
    latencies: dict[str, list[float]] = {}
    wrong: list[str] = []
    rounds = 0
    while sum(map(len, latencies.values())) < count and rounds < 4 * count:
        name = names[rounds % len(names)]
        if name not in whole:
            whole[name] = undisturbed(name, size)
        bits, seconds = whole[name]
        delays = [float(rng.uniform(0.0, seconds)) for _ in range(int(rng.integers(1, 3)))]
        heard, found = disturbed(name, size, delays, bits)
        latencies.setdefault(name, []).extend(heard)
        wrong += [f"{name}, after {', '.join(f'{d:.4f}' for d in delays)} s of {seconds:.4f}: {text}" for text in found]
        rounds += 1
        if shown:
            print(f"{name}: {[round(t, 3) for t in heard]} {found}", file=sys.stderr, flush=True)
    every = [t for times in latencies.values() for t in times]
    return {
        "interrupts": len(every),
        "rounds": rounds,
        "cases": len(latencies),
        "wrong": wrong,
        "longest_seconds": round(max(every, default=0.0), 3),
        "median_seconds": round(float(np.median(every)) if every else 0.0, 4),
        "by_case": {name: {"interrupts": len(t), "longest_seconds": round(max(t, default=0.0), 3)}
                    for name, t in sorted(latencies.items())},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    names = [name for name in CASES if options.only in name]
    print(json.dumps(hunt(names, options.count, options.seed, options.size, shown=True), indent=1))


if __name__ == "__main__":
    main()
