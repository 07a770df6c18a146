"""`Kept`: the evaluations of an algorithm in a store, by the stream and the number of their points."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from ensemble._check import message
from ensemble._interrupts import held
from ensemble.uq.inputs.variable import array_digest
from ensemble.uq.store.anywhere import manifest_at
from ensemble.uq.store.source_digest import source_digest
from ensemble.uq.study.outputs import Outcome
from ensemble.uq.study.persistence import opened

__all__ = ["ALGORITHM", "Kept", "manifest_of"]

ALGORITHM = "algorithm"
"""Key of a manifest whose samples are the evaluations of an algorithm."""

VALUE, POINT, SECONDS = "value", "point", "seconds"

FIRST_CAPACITY = 1024


class Kept:
    """Values, failures and seconds of evaluations; what is there when it is opened is read at once.

    The sample of a store is the evaluation ``number * n_streams + stream``. Beside its value it has a checksum of its
    point: a run whose points differ from those of the store is refused.
    """

    def __init__(
        self, path: str | PathLike[str], manifest: dict[str, Any], n_streams: int, resume: bool | str, function: str
    ) -> None:
        self.function, self.n_streams = function, n_streams
        if resume:  # it holds as many as it has been extended to, and never shrinks
            manifest = {**manifest, "n": manifest_at(path)["n"]}
        self.store = opened(path, manifest, resume)
        self.path = self.store.path
        self.is_there, self.failed = self.store.done(), self.store.failed()
        self.reasons = self.store.reasons()
        self.n_stored = int(np.count_nonzero(self.is_there))
        self._read: dict[str, np.ndarray] = {}
        ids = np.flatnonzero(self.is_there)
        for name in self.store.outputs:
            values = self.store.read(name, ids)
            self._read[name] = np.zeros((*values.shape[:-1], self.store.n), values.dtype)
            self._read[name][..., ids] = values

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a value; None before there is one."""
        return self.store.outputs[VALUE].shape if VALUE in self.store.outputs else None

    def ids(self, stream: int, numbers: np.ndarray) -> np.ndarray:
        """The samples of the store that are the evaluations `numbers` of a stream."""
        return numbers * self.n_streams + stream

    def has(self, ids: np.ndarray) -> np.ndarray:
        """Which of these evaluations were there when the store was opened."""
        known = np.zeros(ids.size, bool)
        inside = ids < self.is_there.size
        known[inside] = self.is_there[ids[inside]]
        return known

    def read(self, ids: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values ``(*shape, n)``, failures and seconds of evaluations that are there, at the points `z`.

        Raises
        ------
        ValueError
            If the points are others.
        """
        failed = self.failed[ids]
        other = ~failed & (self._read[POINT][ids] != checksums(z)) if POINT in self._read else np.zeros(ids.size, bool)
        if other.any():
            advice = "Give what the run had, or another store: other settings or versions lead to other points."
            seen = f"others for {np.count_nonzero(other)} of {ids.size} evaluations"
            raise ValueError(message(self.function, "store", "have the points of this run", seen, advice))
        return self._read[VALUE][..., ids], failed, self._read[SECONDS][ids]

    def add(self, ids: np.ndarray, outcome: Outcome, values: np.ndarray | None, z: np.ndarray) -> None:
        """Store a finished group; `values` are None where all its samples failed before there was a value."""
        reasons = {int(ids[place]): text for place, text in outcome.reasons.items()}
        if ids.max() >= self.store.n:
            self.store.extend(max(2 * self.store.n, int(ids.max()) + 1))
        outputs = {}
        if values is not None:
            seconds = np.full(ids.size, outcome.seconds / ids.size)
            outputs = {VALUE: values, POINT: checksums(z), SECONDS: seconds}
        with held():
            self.store.append(ids, outputs, outcome.failed, reasons)
            self.n_stored += ids.size

    def close(self) -> None:
        """Close the store; its journal has all."""
        self.store.close()


def checksums(z: np.ndarray) -> np.ndarray:
    """A number for each point, column of `z` (n_germs, n_samples), that changes with every bit of it."""
    bits = np.ascontiguousarray(z, np.float64).view(np.uint64)
    found = np.full(z.shape[1], 0x9E3779B97F4A7C15, np.uint64)
    with np.errstate(over="ignore"):
        for row in bits:
            found = (found ^ row) * np.uint64(0x100000001B3)
            found ^= found >> np.uint64(29)
    return found.view(np.int64)


def manifest_of(
    function: str, models: Sequence[Any], inputs: Any, settings: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Return the manifest by which a store tells one run of an algorithm from another."""
    digests = [source_digest(model) for model in models]
    described = {"germs": inputs} if isinstance(inputs, int) else inputs.description()
    said = {name: array_digest(v) if isinstance(v, np.ndarray) else v for name, v in settings.items()}
    names = [str(getattr(model, "__qualname__", type(model).__qualname__)) for model in models]
    return {
        ALGORITHM: function, "settings": said, "inputs": described, "seed": seed, "n": FIRST_CAPACITY,
        "model": ", ".join(dict.fromkeys(names)),
        "source_digest": digests[0] if len(digests) == 1 else joint_digest(digests),
    }  # fmt: skip


def joint_digest(digests: Sequence[str]) -> str:
    """One digest of several models, in their order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:32]
