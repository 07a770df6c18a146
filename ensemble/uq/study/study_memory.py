"""`MemoryStore`: the interface of a store for studies that keep nothing on disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ensemble.uq.store.places import as_slice
from ensemble.uq.study.outputs import blank

__all__ = ["MemoryStore"]


class MemoryStore:
    """Outputs by sample id in arrays that grow with the study.

    Parameters
    ----------
    n : int
        Samples of the study so far.
    keeps_outputs : bool
        Whether the outputs are kept, or only which samples are done.
    """

    path = None

    def __init__(self, n: int, *, keeps_outputs: bool = True) -> None:
        self.manifest: dict[str, Any] = {}
        self.keeps_outputs = keeps_outputs
        self._arrays: dict[str, np.ndarray] = {}
        self._done = np.zeros(n, bool)

    def extend(self, n: int) -> None:
        """Make place for samples up to `n`."""
        more = n - self._done.size
        if more > 0:
            self._done = np.concatenate([self._done, np.zeros(more, bool)])
            for name, array in self._arrays.items():
                self._arrays[name] = np.concatenate([array, blank(array.shape[:-1], array.dtype, more)], axis=-1)

    def append(
        self,
        ids: np.ndarray,
        outputs: dict[str, np.ndarray],
        failed: np.ndarray,
        reasons: dict[int, str],
        *,
        again: bool = False,
        earlier: Any = None,
    ) -> None:
        """Keep one finished group; the plan has the reasons."""
        places = as_slice(ids)
        if self.keeps_outputs:
            for name, array in outputs.items():
                if name not in self._arrays:
                    self._arrays[name] = blank(array.shape[:-1], array.dtype, self._done.size)
                self._arrays[name][..., places] = array
        self._done[places] = True

    def done(self) -> np.ndarray:
        """Which samples are there."""
        return self._done.copy()

    def read(self, name: str, ids: np.ndarray) -> np.ndarray:
        """The samples `ids` of an output, shape ``(*shape, len(ids))``."""
        return self._arrays[name][..., as_slice(ids)]

    def blocks(self) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]]:
        """Nothing was there before this process."""
        return iter(())

    def compact(self, inputs_of: Any = None) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""
