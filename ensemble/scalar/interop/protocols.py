"""Protocols of Python and of other libraries: copies, bytes, state for files, DLPack, xarray, display."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ensemble._backend import copy_of, to_numpy
from ensemble._check import message, require
from ensemble._typing import Array
from ensemble.scalar._memory import MemoryToken
from ensemble.scalar._operators import Operators
from ensemble.scalar.divergence.policy import (
    agreed,
    conversion_failure,
    require_one_text,
    split,
)
from ensemble.scalar.interop.sample_attributes import SampleAttributes
from ensemble.scalar.labels import labelled, labels_of_numbers, with_labels
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import SampleSet

if TYPE_CHECKING:
    from xarray import DataArray

__all__ = ["Protocols"]

SET_ARRAYS = ("ids", "weights", "points")

POLYNOMIAL = "Write np.polynomial.polynomial.polyval(x, p.convert().coef) for p(x), np.polyfit(t, x, degree) for a fit."

INSTEAD = {
    "AxisConcatenator": (
        "np.r_ or np.c_",
        "Write np.concatenate([x, y]) for np.r_[x, y], np.hstack([0.0, x, 1.0]) where values are among them, and "
        "np.column_stack([x, y]) for np.c_[x, y].",
    ),
    "nd_grid": ("np.mgrid or np.ogrid", "Write np.linspace(start, stop, number), which takes ensembles."),
    "vectorize": ("np.vectorize", "Use per_sample, or call the function: it may take ensembles as it is."),
    "ndenumerate": ("np.ndenumerate", "Write for place in np.ndindex(x.shape): x[place]."),
    "as_strided": ("as_strided", "Write np.lib.stride_tricks.sliding_window_view, or indices."),
    "ABCPolyBase": ("a polynomial class of NumPy", POLYNOMIAL),
    "mapdomain": ("a polynomial class of NumPy", POLYNOMIAL),
    "polyval": (
        "np.polynomial.polynomial.polyval",
        "Write np.polyval(c[::-1], x), whose coefficients may be ensembles.",
    ),
}
"""What is seen and what to write for functions and classes of NumPy that make arrays of all they get."""


NUMBERS = {
    "AbstractArray.__bool__": bool,
    "AbstractArray.__complex__": complex,
    "AbstractArray.__float__": float,
    "AbstractArray.__int__": int,
}
"""How xarray asks for one number: by an array of it."""


def _number_asked_for(frame: FrameType | None) -> Callable[[Any], Any] | None:
    """What an xarray.DataArray around an ensemble is to be made: ``bool(x)`` is that of the ensemble."""
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("xarray."):
        if frame.f_code.co_qualname in NUMBERS:
            return NUMBERS[frame.f_code.co_qualname]
        frame = frame.f_back
    return None


CONVERSION = "a conversion to a plain array", "name the samples that it takes"


def _what_converts(frame: FrameType | None) -> tuple[str, str] | None:
    """Find which function of NumPy asks for a plain array; return its name and an advice, None for others."""
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("numpy."):
        for name in frame.f_code.co_qualname.split("."):
            if name in INSTEAD:
                return INSTEAD[name]
        frame = frame.f_back
    return None


class Protocols(Operators, SampleAttributes):
    """Base of `Ensemble`: the protocols of other libraries."""

    __slots__ = ()

    # -- exchange within the process -----------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if PROTOCOLS.is_asked_by_scipy():
            return np.array(None, dtype=object)  # its sign for what is no array: the product is left to `__rmatmul__`
        frame = sys._getframe(1)
        number = _number_asked_for(frame)
        if number is not None:
            return np.asarray(number(self))
        known = _what_converts(frame)
        text = PROTOCOLS.refusal() if known is None else message("Ensemble", *CONVERSION, *known)
        raise conversion_failure(TypeError(text), self.samples.shape[-1])

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export shared data, or what all samples hold alike; other ensembles export ``x.samples``."""
        n_samples = self.samples.shape[-1]
        if n_samples > 1 and not agreed(self.samples):
            seen = f"{n_samples} different samples"
            raise split("an exported array must be one array", seen, "Export x.samples, or one x.sample(i).")
        plain = self.samples[..., 0]
        if n_samples > 1:
            plain = copy_of(plain)
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return plain.__dlpack__(**{key: value for key, value in options.items() if value is not None})

    def __dlpack_device__(self) -> tuple[Any, int]:
        """The device of the samples, as DLPack names it."""
        device: tuple[Any, int] = self.samples.__dlpack_device__()
        return device

    def __copy__(self) -> Self:
        copied = type(self)(copy_of(self.samples), self.sample_set)  # type: ignore[call-arg]
        if self.samples.ndim == 1 and self._memory_token is not None:
            copied._memory_token = MemoryToken()  # an array without axes as well
        found: Self = labelled(copied, labels_of_numbers(self))
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[object, ...]:
        require_one_text(self.samples.shape[-1])
        labels = labels_of_numbers(self)
        if labels is not None:
            return with_labels, (type(self), self.samples, self.sample_set, labels)
        return type(self), (self.samples, self.sample_set)

    # -- out of the process --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Samples and sample set as NumPy arrays by name: ``np.savez(path, **x.state())``.

        Returns
        -------
        dict
            ``samples``, and of its sample set ``ids``, ``method`` and, where there are any, ``weights``, ``points``,
            ``seed``.

        Examples
        --------
        >>> from ensemble.scalar import Ensemble
        >>> sorted(Ensemble(np.array([1.0, 2.0]), SampleSet(weights=[1.0, 3.0], method="pair")).state())
        ['ids', 'method', 'samples', 'weights']
        """
        state = {"samples": to_numpy(self.samples)}
        if self.sample_set is None:
            return state
        state["method"] = np.array(self.sample_set.method)
        if self.sample_set.seed is not None:
            seed = int(self.sample_set.seed)
            fits = -(2**63) <= seed < 2**63
            state["seed"] = np.array(seed if fits else str(seed))  # an array of objects would be pickled
        arrays = {name: getattr(self.sample_set, name) for name in SET_ARRAYS}
        return state | {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The ensemble with this `state`; the result of ``np.load`` for an npz file is a state.

        Parameters
        ----------
        state : mapping of names to arrays

        Returns
        -------
        Ensemble over NumPy

        Raises
        ------
        ValueError
            If there are no samples in it.

        Examples
        --------
        >>> from ensemble.scalar import Ensemble
        >>> Ensemble.from_state(Ensemble(np.array([1.0, 2.0])).state()).samples
        array([1., 2.])
        """
        names = sorted(state)
        require("samples" in names, "from_state", "state", "have an array named samples", names)
        sample_set = None
        if any(name in names for name in (*SET_ARRAYS, "method", "seed")):
            arrays = {name: state[name] for name in SET_ARRAYS if name in names}
            seed = int(str(state["seed"])) if "seed" in names else None
            method = str(state["method"]) if "method" in names else ""
            n_samples = np.shape(state["samples"])[-1]
            sample_set = SampleSet(**arrays, method=method, seed=seed, n_samples=n_samples)
        return cls(np.asarray(state["samples"]), sample_set)  # type: ignore[call-arg]

    def tobytes(self) -> bytes:
        """All samples in one contiguous message."""
        require_one_text(self.samples.shape[-1])
        return np.ascontiguousarray(to_numpy(self.samples)).tobytes()

    __bytes__ = tobytes

    @classmethod
    def from_bytes(cls, message_bytes: Any, like: Array) -> Self:
        """The ensemble that `tobytes` wrote, in the shape, type and library of `like`.

        Parameters
        ----------
        message_bytes : bytes or buffer
        like : Ensemble
            Its values do not matter; its sample set goes along.

        Returns
        -------
        Ensemble
            With memory of its own.

        Raises
        ------
        ValueError
            If the message has another length.

        Examples
        --------
        >>> from ensemble.scalar import Ensemble
        >>> x = Ensemble(np.array([[1.0, 2.0]]))
        >>> Ensemble.from_bytes(x.tobytes(), like=x).samples
        array([[1., 2.]])
        """
        dtype = to_numpy(like.samples[..., :0]).dtype
        shape = tuple(like.samples.shape)
        n_bytes, wanted = memoryview(message_bytes).nbytes, math.prod(shape) * dtype.itemsize
        require(n_bytes == wanted, "from_bytes", "message_bytes", f"hold {wanted} bytes", n_bytes)
        values = np.frombuffer(message_bytes, dtype=dtype).reshape(shape).copy()
        samples = values if isinstance(like.samples, np.ndarray) else like._base().asarray(values, device=like.device)
        return cls(samples, like.sample_set)  # type: ignore[call-arg]

    def to_xarray(self, sample_dim: str = "sample", dims: Sequence[str] | None = None) -> DataArray:
        """An ``xarray.DataArray`` with the samples on the dimension `sample_dim`; needs xarray."""
        made: DataArray = PROTOCOLS.to_xarray(self, sample_dim, dims)
        return made

    @classmethod
    def from_xarray(cls, array: Array, sample_dim: str = "sample") -> Self:
        """The ensemble in an ``xarray.DataArray``, its samples on the dimension `sample_dim`.

        Parameters
        ----------
        array : xarray.DataArray
        sample_dim : str

        Returns
        -------
        Ensemble, shape: the other dimensions in their order
            Its sample set is made of what `to_xarray` writes of one: the coordinate `sample_dim` (ids), ``weight``,
            ``point_0``, ... and the attributes ``sample_method`` and ``sample_seed``, as far as they are there.

        Raises
        ------
        ValueError
            If there is no such dimension.

        Examples
        --------
        >>> import xarray
        >>> from ensemble.scalar import Ensemble
        >>> Ensemble.from_xarray(xarray.DataArray(np.eye(2), dims=["sample", "t"])).shape
        (2,)
        """
        require(sample_dim in array.dims, "from_xarray", "sample_dim", f"be one of {array.dims}", repr(sample_dim))
        turned = array.transpose(..., sample_dim)
        sample_set = PROTOCOLS.set_in_xarray(array, sample_dim)
        return cls(np.ascontiguousarray(turned.values), sample_set)  # type: ignore[call-arg]

    # -- display -------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        require_one_text(getattr(self.samples, "shape", (0,))[-1])  # a placeholder of a tree has no shape
        return PROTOCOLS.text(self)

    def __format__(self, spec: str) -> str:
        require_one_text(self.samples.shape[-1])
        return PROTOCOLS.formatted(self, spec)

    def _repr_html_(self) -> str:
        return PROTOCOLS.html(self)
