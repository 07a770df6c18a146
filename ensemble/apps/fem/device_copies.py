"""Fields that the host gives for every step: copied to a device while it works on the step before."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import prototype
from ensemble._blas import n_processors
from ensemble._check import integer, message, one_of, require_unmasked
from ensemble._compile.staging import HostStream, StagedCopies, StagedCopy
from ensemble._compile.streams import CopyStream
from ensemble._typing import DType
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["DeviceCopies", "DeviceCopy"]

THREADS = 4
"""Threads by default: one alone copies into pinned memory at a fraction of what the bus takes."""


class DeviceCopy:
    """A copy that `DeviceCopies.start` began."""

    def __init__(self, copy: StagedCopy, is_ensemble: bool, sample_set: SampleSet | None) -> None:
        self._copy, self._is_ensemble, self._sample_set = copy, is_ensemble, sample_set

    def __repr__(self) -> str:
        return f"DeviceCopy({'done' if self.done() else 'under way'})"

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._copy.done()

    def wait(self) -> Any:
        """The values on the device, once all of them are there; from then on the source may be changed.

        Returns
        -------
        array or Ensemble
            As the source, with its bits. The same object's memory is returned by every call.
        """
        made = self._copy.wait()
        return Ensemble(made, self._sample_set) if self._is_ensemble else made


class DeviceCopies:
    """Copies of host arrays to a device that run beside the kernels of the device.

    `start` returns at once. Threads copy the array piece by piece into pinned buffers, two for each thread in turn, and
    a stream of its own copies from them to the device. A copy waits for the kernels that were queued before its
    `start`: start the copy of the next step before the kernels of the present one are queued.

    Parameters
    ----------
    backend : "cupy" or "numpy"
        Where the copies are made: on the current CUDA device, or on the host, where a program has the same results.
    threads : int, optional
        Threads that fill pinned buffers, 8 MiB each; by default 4, or one per processor if there are fewer.

    Raises
    ------
    RuntimeError
        If `backend` is "cupy" and there is no CUDA device.
    ValueError
        If `backend` is unknown or `threads` below 1.

    Examples
    --------
    >>> import numpy as np
    >>> winds = [np.full((4, 3), float(step)) for step in range(3)]
    >>> copies = DeviceCopies(backend="numpy")
    >>> coming = copies.start(winds[0])
    >>> for step in range(3):
    ...     wind = coming.wait()
    ...     if step < 2:
    ...         coming = copies.start(winds[step + 1])  # copied while this step is computed
    ...     print(float(wind.sum()))
    0.0
    12.0
    24.0
    """

    def __init__(self, *, backend: str = "cupy", threads: int | None = None) -> None:
        one_of(backend, ("cupy", "numpy"), "DeviceCopies", "backend")
        n_threads = min(THREADS, n_processors())
        if threads is not None:
            n_threads = integer(threads, "DeviceCopies", "threads", minimum=1)
        prototype(backend)
        self._copies = StagedCopies(CopyStream() if backend == "cupy" else HostStream(), n_threads)

    @property
    def threads(self) -> int:
        """The number of threads that fill pinned buffers."""
        return self._copies.threads

    def empty(self, shape: tuple[int, ...], dtype: DType = np.float64) -> np.ndarray:
        """An uninitialised array of NumPy in pinned memory, from which `start` copies without buffers.

        Pinned memory is taken from what the host has for everything else, and allocating it is slow: make two such
        arrays once, and fill them in turn by ``out=``.

        Parameters
        ----------
        shape : tuple of int
        dtype : dtype

        Returns
        -------
        array, shape `shape`
        """
        made: np.ndarray = self._copies.stream.pinned(tuple(shape), dtype)
        return made

    def start(self, values: Any) -> DeviceCopy:
        """Begin a copy; `values` must not be changed until `DeviceCopy.wait` has returned.

        Parameters
        ----------
        values : array of NumPy, or Ensemble of one
            An array that is not contiguous in memory is first made so, in the calling thread.

        Returns
        -------
        DeviceCopy

        Raises
        ------
        TypeError
            If `values` is no array of NumPy, or its entries are no numbers.
        """
        is_ensemble = isinstance(values, Ensemble)
        array, sample_set = (values.samples, values.sample_set) if is_ensemble else (values, None)
        if not isinstance(array, np.ndarray):
            seen = f"{'an Ensemble of ' if is_ensemble else ''}{type(array).__module__}.{type(array).__name__}"
            advice = "Arrays of other libraries are where their library keeps them."
            raise TypeError(message("DeviceCopies.start", "values", "be an array of NumPy, or an Ensemble of one",
                                    seen, advice))  # fmt: skip
        require_unmasked(array, "DeviceCopies.start", "values")
        if array.dtype.kind not in "biufc":
            raise TypeError(message("DeviceCopies.start", "values", "hold numbers", f"dtype {array.dtype}"))
        contiguous = np.array(array, order="C", copy=None, subok=False)
        return DeviceCopy(self._copies.start(contiguous), is_ensemble, sample_set)
