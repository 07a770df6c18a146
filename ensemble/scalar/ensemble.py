"""`Ensemble`: many samples of one array, with the interface of one array.

Longer than 400 lines: one class.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ensemble._backend import as_index, base_of, copy_of, is_array, to_device, to_numpy
from ensemble._check import (
    array_of,
    host_array,
    kind_of,
    message,
    require,
    require_one_library,
    require_type,
    sample_number,
)
from ensemble._typing import Array, Namespace
from ensemble.scalar._memory import MemoryToken, follow, refill
from ensemble.scalar._operators import NUMBERS
from ensemble.scalar.divergence.policy import call_under_policy, failure_of_sample, one_bool, one_number
from ensemble.scalar.interop.methods import Methods
from ensemble.scalar.interop.sample_attributes import know_attributes_of
from ensemble.scalar.labels import Label, labelled, labels_of_numbers
from ensemble.scalar.plain_arrays import array_like, plain_array, plain_arrays
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import SampleSet

__all__ = ["Ensemble", "from_samples", "shared"]


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bool": bool, "int": int, "float": float, "complex": complex, "index": operator.index,
}  # fmt: skip


class Ensemble(Methods):
    """An array of which every entry has `n_samples` values, one per sample.

    Parameters
    ----------
    samples : array, shape (\\*shape, n_samples)
        An array of any Array API library; the last axis counts samples. It is kept, not copied, except for a NumPy
        array whose last axis is not contiguous. One sample means data that is the same for every sample: it
        broadcasts against any ensemble and is never copied.
    sample_set : SampleSet, optional
        What the samples are; operations carry it along.

    Raises
    ------
    TypeError
        If `samples` is no array of numbers or bools.
    ValueError
        If it has no axis, or `sample_set` has another number of samples.

    Notes
    -----
    `shape`, `ndim`, `size`, indices and axes never count the sample axis. Arithmetic is sample by sample; a plain array
    among the operands is the same for every sample. Comparisons give a bool ensemble. ``bool(x)``, ``float(x)``,
    ``if x > 0`` work where all samples agree and raise `DivergenceError` where they do not.

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]))
    >>> x.shape, x.n_samples
    ((2,), 3)
    >>> 2.0 * x + np.array([0.0, 1.0])
    Ensemble(shape=(2,), n_samples=3, float64) [4 ± 1.63, 9 ± 0]
    >>> float(x[1])
    4.0
    """

    __slots__ = ()

    def __init__(self, samples: Array, sample_set: SampleSet | None = None) -> None:
        advice = "Make an array first, or use from_samples([x0, x1, ...])."
        if type(samples) is not np.ndarray:
            samples = plain_array(samples, "Ensemble", "samples")
            valid = is_array(samples) and not isinstance(samples, np.generic | Ensemble)
            if not valid:
                seen = kind_of(samples)
                raise TypeError(message("Ensemble", "samples", "be an array of an Array API library", seen, advice))
            know_attributes_of(type(samples))
        if type(samples) is np.ndarray and samples.dtype.kind not in "biufc":
            seen = f"dtype {samples.dtype}"
            raise TypeError(message("Ensemble", "samples", "hold numbers or bools", seen, "Convert the values first."))
        shape = samples.shape
        if not (shape and shape[-1] > 0):  # text is made where it is needed: this is called for every result
            axis = "have a last axis that counts samples"
            require(len(shape) > 0, "Ensemble", "samples", axis, "a 0-d array", advice)
            require(shape[-1] > 0, "Ensemble", "samples", "hold one sample or more", f"shape {tuple(shape)}")
        n_samples = shape[-1]
        if sample_set is not None:
            require_type(sample_set, SampleSet, "Ensemble", "sample_set", "be a SampleSet", "SampleSet(weights=...)?")
            seen = f"{sample_set.n_samples} for {n_samples} samples"
            require(sample_set.n_samples == n_samples, "Ensemble", "sample_set", "have as many samples", seen)
        PROTOCOLS.register_jax()
        self.samples = packed(samples)
        self.sample_set = None if n_samples == 1 else sample_set
        self._memory_token = None

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def n_samples(self) -> int:
        """How many samples it holds; 1 means shared by all."""
        return int(self.samples.shape[-1])

    @property
    def is_shared(self) -> bool:
        """Whether the data is one and the same for every sample."""
        return bool(self.samples.shape[-1] == 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each sample."""
        return tuple(self.samples.shape[:-1])

    @property
    def ndim(self) -> int:
        """The number of visible axes."""
        return len(self.samples.shape) - 1

    @property
    def size(self) -> int:
        """The number of entries of each sample."""
        return math.prod(self.samples.shape[:-1])

    @property
    def dtype(self) -> Any:
        """The type of every value."""
        return self.samples.dtype

    @property
    def device(self) -> Any:
        """Where the values lie; None of an array that JAX is tracing, which lies nowhere yet."""
        return getattr(self.samples, "device", None)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Ensemble:
        """The same ensemble on `device`."""
        if isinstance(self.samples, np.ndarray) and device != "cpu":
            wanted, advice = "be 'cpu' for NumPy's arrays", "Ensemble(cupy.asarray(x.samples)) lies on a GPU."
            raise ValueError(message("Ensemble.to_device", "device", wanted, repr(device), advice))
        samples = to_device(self.samples, device, stream)
        return view(self, samples) if samples is self.samples else wrap(samples, self.sample_set)

    @property
    def T(self) -> Ensemble:
        """The transpose of a matrix: a view; a vector as it is."""
        if self.ndim < 2:
            return self
        if self.ndim > 2:
            raise ValueError(message("Ensemble", "x in x.T", "have 2 axes", f"shape {self.shape}", "Use x.mT."))
        return self.mT

    @property
    def mT(self) -> Ensemble:
        """The last two visible axes exchanged: a view."""
        transposed: Ensemble = self.__array_namespace__().matrix_transpose(self)
        return transposed

    def sample(self, i: int) -> Array:
        """Sample `i` as a plain array of the base library, shape `shape`: a copy.

        The one sample of a shared ensemble is returned for every `i` from 0.
        """
        chosen = self.samples[..., sample_number(i, self.samples.shape[-1], "Ensemble")]
        labels = labels_of_numbers(self)
        if labels is not None and type(self.samples) is np.ndarray and chosen.ndim == 0:
            return Label(chosen, labels)
        if type(self.samples) is np.ndarray:
            return np.array(chosen)
        return copy_of(chosen)

    def take_samples(self, chosen: Any) -> Ensemble:
        """The ensemble of some samples, in the order named; their weights, points and ids go along.

        Parameters
        ----------
        chosen : array of integers, or of bools, shape (n_samples,); bool Ensemble, shape ()
            Numbers of samples, or which of them: ``x.take_samples(result.converged)``. `take` is NumPy's, along
            visible axes.

        Returns
        -------
        Ensemble, shape `shape`
            A copy. Shared data stays as it is. A single sample is shared data, which has no sample set.

        Raises
        ------
        ValueError, IndexError
            If no sample is chosen, or one that is not there.

        Examples
        --------
        >>> x = Ensemble(np.array([1.0, 2.0, 6.0]), SampleSet(weights=[1.0, 3.0, 1.0]))
        >>> x.take_samples([True, True, False]).sample_set.weights
        array([1., 3.])
        """
        name, wanted = "Ensemble.take_samples", "be a vector of integers or bools"
        given = to_numpy(chosen.samples) if isinstance(chosen, Ensemble) else chosen
        places = host_array(given, name, "chosen", wanted)
        valid = places.ndim == 1 and places.dtype.kind in "biu" and places.size > 0
        seen = f"dtype {places.dtype}, shape {places.shape}"
        require(valid, name, "chosen", wanted, seen)
        if self.is_shared:
            return self.copy()
        n_samples = self.n_samples
        if places.dtype.kind == "b":
            fits = places.size in (1, n_samples)
            seen = f"{places.size} for {n_samples} samples"
            require(fits, "Ensemble.take_samples", "chosen", "have one entry per sample", seen)
            places = np.flatnonzero(np.broadcast_to(places, n_samples))
        require(places.size > 0, "Ensemble.take_samples", "chosen", "name one sample or more", "none")
        if places.min() < -n_samples or places.max() >= n_samples:
            seen = f"{places.min()} to {places.max()}"
            requirement = f"be from {-n_samples} to {n_samples - 1}"
            raise IndexError(message("Ensemble.take_samples", "chosen", requirement, seen))
        base = self._base()
        indices = base.asarray(places % n_samples, device=self.device)
        samples = base.take(self.samples, indices, axis=-1)
        taken = Ensemble(samples, None if self.sample_set is None else self.sample_set.take(places))
        found: Ensemble = labelled(taken, labels_of_numbers(self))
        return found

    # -- one value -----------------------------------------------------------------------------------------------------

    def _of_zero_axes(self, kind: str, advice: str) -> Array:
        if len(self.samples.shape) != 1:
            error = TypeError(message("Ensemble", f"x in {kind}(x)", "have no axis", f"shape {self.shape}", advice))
            raise failure_of_sample(CONVERSIONS[kind], self, error)
        return self.samples

    def __bool__(self) -> bool:
        samples = self.samples
        if len(samples.shape) > 1 and self.size == 1 and not type(samples).__module__.startswith("array_api_strict"):
            samples = self._base().reshape(samples, (-1,))  # array libraries, but for the strict one, take one entry
            return one_bool(samples)
        return one_bool(self._of_zero_axes("bool", "Use xp.all(x) or xp.any(x)."))

    def __int__(self) -> int:
        return int(one_number(self._of_zero_axes("int", "Index one entry."), "Python int"))

    def __float__(self) -> float:
        return float(one_number(self._of_zero_axes("float", "Index one entry."), "Python float"))

    def __complex__(self) -> complex:
        return complex(one_number(self._of_zero_axes("complex", "Index one entry."), "Python complex"))

    def __index__(self) -> int:
        return as_index(one_number(self._of_zero_axes("index", "Index one entry."), "index"))

    # -- container -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.ndim:
            _, advice = PROTOCOLS.what_to_call() or ("", "The samples are x.n_samples.")
            text = message("len", "x", "have an axis", "a 0-d ensemble", advice)
            raise failure_of_sample(len, self, TypeError(text))
        return int(self.samples.shape[0])

    def __iter__(self) -> Iterator[Ensemble]:
        if not self.ndim:
            advice = "To go over samples, use per_sample or x.sample(i)."
            raise failure_of_sample(
                iter, self, TypeError(message("iter", "x", "have an axis", "a 0-d ensemble", advice))
            )
        return (self[i] for i in range(self.samples.shape[0]))

    def __contains__(self, value: Any) -> bool:
        if not self.ndim:
            error = TypeError(message("in", "x of `value in x`", "have an axis", "a 0-d ensemble"))
            raise failure_of_sample(lambda sample: value in sample, self, error)
        return bool(self.__array_namespace__().any(self == value))

    def __getitem__(self, key: Any) -> Ensemble:
        kind = type(key)
        if (kind is int or (kind is slice and key.step is None)) and len(self.samples.shape) > 1:
            return entry_or_view(self, self.samples[key, ...])
        if kind is tuple and type(self.samples) is np.ndarray and self._is_basic(key):
            return entry_or_view(self, self.samples[key])
        entries: Ensemble = PROTOCOLS.get_item(self, key)
        return entries

    def __setitem__(self, key: Any, value: Any) -> None:
        # The common case in few steps: integers and slices, a number or as many samples of the same set.
        samples, one = self.samples, type(key) is int or type(key) is slice
        basic = samples.ndim > 1 if one else type(key) is tuple and self._is_basic(key)
        if basic and type(samples) is np.ndarray:
            kind = type(value)
            if kind in NUMBERS:
                samples[key] = value
                if self._memory_token is not None:
                    refill(self._memory_token)
                return
            if kind is Ensemble and value.sample_set is self.sample_set:
                given = value.samples
                alike = type(given) is np.ndarray and given.shape[-1] == samples.shape[-1]
                if alike and (given.ndim == 1 or type(key) is slice or self._fits(key, value)):
                    samples[key] = given
                    if self._memory_token is not None:
                        refill(self._memory_token)
                    return
        PROTOCOLS.set_item(self, key, value)
        refill(self._memory_token)

    def _fits(self, key: Any, value: Ensemble) -> bool:
        """Whether `key` names more than an entry for a `value` with axes, and no row that may be exchanged."""
        if type(key) is int:
            return value._memory_token is None and self.samples.ndim > 2
        return len(key) < self.samples.ndim - 1 or slice in map(type, key)

    def _is_basic(self, key: tuple[Any, ...]) -> bool:
        """Whether `key` holds integers and slices alone, one or more, at most one for every visible axis."""
        if not 0 < len(key) < self.samples.ndim:
            return False
        for item in key:
            kind = type(item)
            if kind is not int and kind is not slice:
                return False
        return True

    # -- protocols -----------------------------------------------------------------------------------------------------

    def _base(self) -> Namespace:
        return base_of(self.samples)

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        """The Array API over ensembles of this number of samples."""
        return PROTOCOLS.namespace_of(self, api_version)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return call_under_policy(PROTOCOLS.call_ufunc, ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        for kind in types:
            if (
                kind is Ensemble
                or kind is np.ndarray
                or issubclass(kind, Ensemble)
                or kind.__module__.startswith("cupy")
            ):
                continue
            if kind.__array_function__ is not np.ndarray.__array_function__:
                return NotImplemented  # a type that holds arrays of others, as those with units do
            args, options = plain_arrays(args, function.__name__), plain_arrays(options, function.__name__)
        return call_under_policy(PROTOCOLS.call_numpy_function, function, args, options)

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *arguments: Any, **options: Any) -> Any:
        return call_under_policy(PROTOCOLS.call_cupy_kernel, kernel, arguments, options)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return PROTOCOLS.call_torch_function(function, args, kwargs or {})

    def _widen(self, n_samples: int) -> None:
        """Take own memory for `n_samples`, before samples that differ are written into shared data."""
        token = self._memory_token
        used = token is not None and token.in_use()
        del token  # a reference of its own
        if used or (self._memory_token is not None and sys.getrefcount(self._memory_token) > _ALONE):
            advice = (
                "Write into a copy, or make x with as many samples: namespace(xp, n_samples) and its zeros, full, ..."
            )
            seen = f"{n_samples} samples for shared data that another ensemble is a view of"
            raise ValueError(message("Ensemble", "a value assigned in place", "fit the samples of x", seen, advice))
        base = self._base()
        self.samples = packed(copy_of(base.broadcast_to(self.samples, (*self.samples.shape[:-1], n_samples))))
        self._memory_token = None if self._memory_token is None else MemoryToken()


def wrap(samples: Array, sample_set: SampleSet | None = None) -> Ensemble:
    """An Ensemble of `samples` that are known to be valid, without checks: for results."""
    x = _blank(Ensemble)
    x.samples = samples
    x.sample_set = sample_set
    x._memory_token = None
    return x


def entry_or_view(x: Ensemble, samples: Array) -> Ensemble:
    """`samples` picked from `x`: one entry of a NumPy array is a value, as NumPy has it, and anything else a view."""
    if type(samples) is np.ndarray and samples.ndim == 1:
        return wrap(samples.copy(), x.sample_set)
    return view(x, samples)


def view(x: Ensemble, samples: Array) -> Ensemble:
    """An Ensemble of `samples`, which share memory with `x` as far as NumPy's would.

    The forms of a value are copies, as those of NumPy's scalars are. A view that cannot keep its samples contiguous is
    a copy that refuses to be written into.
    """
    kept, token = packed(samples), x._memory_token
    if kept is samples and (token is not None or x.samples.ndim > 1):
        y = wrap(samples, x.sample_set)
        if token is None:
            x._memory_token = token = MemoryToken()
        y._memory_token = token
        return y
    if token is None and x.samples.ndim == 1 and x.is_value:
        if kept is samples:
            kept = samples.copy()
        kept.flags.writeable = samples.flags.writeable  # `broadcast_to` gives what must not be written into
        return wrap(kept, x.sample_set)
    y = wrap(kept, x.sample_set)
    if kept is not samples:
        if type(kept) is np.ndarray and np.may_share_memory(samples, x.samples):
            followed: Ensemble = follow(x, y, lambda memory: np.copyto(memory, samples))
            return followed
        return y if y.ndim else as_array(y)
    if x._memory_token is None:
        x._memory_token = MemoryToken()
    y._memory_token = x._memory_token
    return y


def as_array(x: Ensemble) -> Ensemble:
    """`x`, known as an array without axes where it has none: operations in place change it, as NumPy's arrays."""
    if x._memory_token is None and x.samples.ndim == 1:
        x._memory_token = MemoryToken()
    return x


def packed(samples: Array) -> Array:
    """`samples`, copied if they are an array of NumPy or CuPy whose last axis is not contiguous."""
    kind = type(samples)
    if (kind is np.ndarray or kind.__module__.startswith("cupy")) and samples.shape[-1] > 1:
        return samples if samples.strides[-1] == samples.itemsize else samples.copy(order="C")
    return samples


def from_samples(samples: Sequence[Array], sample_set: SampleSet | None = None) -> Ensemble:
    """Stack plain arrays of one shape, one per sample.

    Parameters
    ----------
    samples : sequence of arrays or numbers, each of shape `shape`
    sample_set : SampleSet, optional

    Returns
    -------
    Ensemble, shape `shape`, ``n_samples = len(samples)``

    Raises
    ------
    ValueError
        If there is no sample, or the shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> from_samples([np.zeros(2), np.ones(2)]).samples
    array([[0., 1.],
           [0., 1.]])
    >>> from_samples([1.0, 2.0, 6.0])
    Ensemble(shape=(), n_samples=3, float64) 3 ± 2.16
    """
    if not isinstance(samples, Iterable):
        raise TypeError(message("from_samples", "samples", "be arrays or numbers, one per sample", kind_of(samples)))
    columns = list(samples)
    require(len(columns) > 0, "from_samples", "samples", "hold one sample or more", "none")
    if any(isinstance(column, Ensemble) for column in columns):
        advice = "Take x.sample(i) of each; np.stack puts ensembles side by side on a visible axis."
        raise TypeError(message("from_samples", "samples", "be plain arrays or numbers", "an Ensemble", advice))
    first = next((column for column in columns if is_array(column)), None)
    base = base_of(np.empty(0) if first is None else first)
    columns = [plain_array(array_like(column), "from_samples", "samples") for column in columns]
    columns = [column if is_array(column) else base.asarray(column) for column in columns]
    require_one_library("from_samples", "samples", *columns)
    shapes = {tuple(column.shape) for column in columns}
    seen = ", ".join(str(shape) for shape in sorted(shapes))
    require(len(shapes) == 1, "from_samples", "samples", "have one shape", seen)
    return Ensemble(base.stack(columns, axis=-1), sample_set)


def shared(x: Array) -> Ensemble:
    """Declare `x` the same for every sample; no copy is made.

    Parameters
    ----------
    x : array, number or Ensemble, shape `shape`

    Returns
    -------
    Ensemble, shape `shape`, ``n_samples = 1``

    Raises
    ------
    ValueError
        If `x` is an ensemble of several samples.

    Examples
    --------
    >>> shared([1.0, 2.0])
    Ensemble(shape=(2,), shared, float64) [1, 2]
    """
    if isinstance(x, Ensemble):
        require(x.is_shared, "shared", "x", "be the same for every sample", f"{x.n_samples} samples")
        return x
    plain = x
    if not is_array(x) or isinstance(x, np.generic):
        plain = array_of(x, "shared", "x", "be an array or a number")
    return Ensemble(plain[..., None])


_blank: Callable[[type[Ensemble]], Ensemble] = object.__new__
_probe = wrap(np.zeros(1))
_probe._memory_token = MemoryToken()
_ALONE = sys.getrefcount(_probe._memory_token)
