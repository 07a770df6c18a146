"""`DaskWorkers`: a client of Dask as the executor of a study, whose workers may die with what they hold."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from typing import Any

__all__ = ["DaskWorkers", "is_dask"]

SECONDS_BETWEEN_LOOKS = 5.0
"""Time between two questions for the workers, while nothing is finished."""

SECONDS_WITHOUT_WORKERS = 120.0
"""Time after which a cluster that has lost all its workers is taken for broken."""


def is_dask(executor: Any) -> bool:
    """Whether an executor is a client of Dask."""
    return callable(getattr(executor, "scatter", None)) and callable(getattr(executor, "nthreads", None))


def as_it_is(model: bytes) -> bytes:
    """The pickled model, as a task."""
    return model


class DaskWorkers:
    """Submits to a client of Dask, and looks after its workers while a study waits."""

    def __init__(self, client: Any) -> None:
        self.client, self.n_workers = client, len(client.nthreads())
        self.looked = time.monotonic()
        self.empty_since: float | None = None
        import dask

        # A cluster of this process forgets workers that are not back in 15 s, which is less than imports may take.
        self._config = dask.config.set({"distributed.deploy.lost-worker-timeout": f"{SECONDS_WITHOUT_WORKERS:g}s"})

    def close(self) -> None:
        """Give the configuration back."""
        self._config.__exit__(None, None, None)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """A future. Equal calls would have equal keys, and a key that has failed is not run again."""
        return self.client.submit(work, *arguments, pure=False)

    def placed(self, model: bytes) -> Any:
        """The model as the result of a task, which runs again where the workers that hold it have died.

        Scattered data would be lost with them, and scattering waits for workers that have not started again.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once, and not with every group
            return self.submit(as_it_is, model)

    def result(self, future: Any, seconds: float) -> Any:
        """The result of a finished future; it is computed again where it died with its worker.

        Another thread waits for it, as there may be no worker left: time limits of Dask's own calls leave them half
        done.
        """
        found: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def wait() -> None:
            try:
                found.put((future.result(), None))
            except BaseException as error:
                found.put((None, error))

        threading.Thread(target=wait, daemon=True).start()
        while True:
            try:
                value, error = found.get(timeout=seconds)
            except queue.Empty:
                self.look()
            else:
                break
        if error is not None:
            raise error
        return value

    def look(self) -> None:
        """Start workers again where all are lost; BrokenExecutor where none comes."""
        now = time.monotonic()
        if now - self.looked < SECONDS_BETWEEN_LOOKS:
            return
        self.looked = now
        present = len(self.client.nthreads())
        self.n_workers = max(self.n_workers, present)
        if present or not self.n_workers:  # those of a queue have not come yet
            self.empty_since = None
            return
        self.empty_since = self.empty_since or now
        cluster = getattr(self.client, "cluster", None)
        if cluster is not None and not getattr(cluster, "workers", True):  # it has given up those that died
            with suppress(Exception):
                cluster.scale(self.n_workers)
        if now - self.empty_since > SECONDS_WITHOUT_WORKERS:
            raise BrokenExecutor(
                f"the cluster had {self.n_workers} workers, and has none for {now - self.empty_since:.0f} s"
            )
