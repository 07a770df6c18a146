"""What arrays and floats have as methods: ``x.sum(axis=0)``, ``x.copy()``, ``x.real``, ``round(x)``.

Code written for NumPy's arrays calls methods where the Array API has functions. A method here is NumPy's function of
the same name on the ensemble, so it is lifted where the function is and refused, with the reason, where that is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

from ensemble._backend import library_of, to_numpy
from ensemble._check import kind_of, message, one_of, require, samples_text
from ensemble.scalar._memory import follow, refill
from ensemble.scalar._operators import wrapped
from ensemble.scalar.divergence.policy import as_scalars, failure, in_run
from ensemble.scalar.interop.flat import Flat
from ensemble.scalar.interop.protocols import Protocols
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import common_set

__all__ = ["METHODS", "Methods", "read_only"]

E = TypeVar("E", bound="Methods")

METHODS = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "choose",
    "compress",
    "cumprod",
    "cumsum",
    "diagonal",
    "dot",
    "max",
    "mean",
    "min",
    "nonzero",
    "prod",
    "ravel",
    "repeat",
    "round",
    "searchsorted",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "take",
    "trace",
    "var",
]
"""Methods of `numpy.ndarray` that take what NumPy's function of the same name takes after the array."""


REDUCTIONS = frozenset(["all", "any", "max", "mean", "min", "prod", "sum"])
"""Those of them whose first argument is the axis, as it is in the Array API."""


def _compress(x: Any, condition: Any, *more: Any, **options: Any) -> Any:
    return np.compress(condition, x, *more, **options)


def _method(name: str) -> Callable[..., Any]:
    function, reduces = getattr(np, name), name in REDUCTIONS
    if name == "compress":
        function = _compress

    def method(self: E, *arguments: Any, **options: Any) -> E:
        if "dim" in options or "keepdim" in options or _is_of_a_tensor(self, name, arguments):
            return _as_of_a_tensor(self, name, arguments, options)
        if reduces and not options and len(arguments) < 2:  # what NumPy's function computes, without its overhead
            samples = self.samples
            if type(samples) is np.ndarray and samples.ndim == 2 and (not arguments or arguments[0] in (None, 0)):
                return wrapped(type(self), getattr(samples, name)(axis=0), self.sample_set)
            return getattr(self.__array_namespace__(), name)(self, axis=arguments[0] if arguments else None)
        corrected = name in ("std", "var") and type(self.samples).__module__.startswith("torch")
        if corrected and len(arguments) < 4 and not options.keys() & {"ddof", "correction"}:
            options["ddof"] = 1  # as a tensor's own method has it
        return function(self, *arguments, **options)

    method.__name__, method.__qualname__ = name, f"Ensemble.{name}"
    method.__doc__ = f"``numpy.{name}(x, ...)``, over visible axes and sample by sample."
    return method


def _is_of_a_tensor(x: Methods, name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether PyTorch's method of that name, with arguments by position, means something else than NumPy's."""
    if not arguments or type(x.samples) is np.ndarray or library_of(x.samples) != "torch":
        return False
    return name in ("max", "min", "repeat") or type(arguments[0]) is bool or type(arguments[-1]) is bool


def _as_of_a_tensor(x: Methods, name: str, arguments: Any, options: dict[str, Any]) -> Any:
    """The method of PyTorch's tensors, whose arguments are named `dim` and `keepdim`."""
    if library_of(x.samples) != "torch":
        seen = f"{sorted(options)} for samples of {library_of(x.samples)}"
        raise TypeError(message(f"Ensemble.{name}", "arguments", "be axis and keepdims", seen))
    if name == "repeat":
        sizes = arguments[0] if len(arguments) == 1 and not isinstance(arguments[0], int) else arguments
        require(len(sizes) >= len(x._visible()), "Ensemble.repeat", "sizes", "have a number for each axis", sizes)
        return x._lifted("tile", tuple(sizes))
    import torch

    return PROTOCOLS.call_torch_function(getattr(torch, name), (x, *arguments), options)


class Methods(Protocols):
    """Base of `Ensemble`: the methods of arrays, and those of Python's float besides arithmetic."""

    __slots__ = ()

    # `_method` makes them
    all: Callable[..., Self]
    any: Callable[..., Self]
    argmax: Callable[..., Self]
    argmin: Callable[..., Self]
    argpartition: Callable[..., Self]
    argsort: Callable[..., Self]
    choose: Callable[..., Self]
    compress: Callable[..., Self]
    cumprod: Callable[..., Self]
    cumsum: Callable[..., Self]
    diagonal: Callable[..., Self]
    dot: Callable[..., Self]
    max: Callable[..., Self]
    mean: Callable[..., Self]
    min: Callable[..., Self]
    prod: Callable[..., Self]
    ravel: Callable[..., Self]
    repeat: Callable[..., Self]
    round: Callable[..., Self]
    searchsorted: Callable[..., Self]
    squeeze: Callable[..., Self]
    std: Callable[..., Self]
    sum: Callable[..., Self]
    swapaxes: Callable[..., Self]
    take: Callable[..., Self]
    trace: Callable[..., Self]
    var: Callable[..., Self]
    nonzero: Callable[..., Any]

    def _visible(self) -> tuple[int, ...]:
        return tuple(self.samples.shape[:-1])

    def _lifted(self, name: str, *arguments: Any, **options: Any) -> Self:
        """The function `name` of the namespace, on `self`."""
        result: Self = getattr(self.__array_namespace__(), name)(self, *arguments, **options)
        return result

    # -- as of an array ------------------------------------------------------------------------------------------------

    def copy(self, order: str = "C") -> Self:
        """The same values in memory of their own; samples stay contiguous whatever `order` is."""
        return self.__copy__()

    def astype(self, dtype: Any, *, copy: bool = True) -> Self:
        """The values as another type."""
        return self._lifted("astype", dtype, copy=copy)

    def reshape(self, *shape: Any, order: str = "C") -> Self:
        """The entries, rows first by default, in another shape: ``x.reshape(2, -1)`` or ``x.reshape((2, -1))``."""
        wanted = shape[0] if len(shape) == 1 else shape
        if order != "C":
            one_of(order, ("C", "F", "A"), "reshape", "order")
            return np.reshape(self, wanted, order=order)  # type: ignore[call-overload]
        return self._lifted("reshape", wanted)

    def flatten(self, order: str = "C") -> Self:
        """The entries as a vector, rows first by default: a copy."""
        if order != "C":
            return np.ravel(self, order=order).copy()  # type: ignore[call-overload]
        return self._lifted("reshape", -1, copy=True)

    @property
    def flat(self) -> Flat:
        """The entries in one row, rows first: ``x.flat[3]``, ``x.flat[:2] = 0``, ``for v in x.flat``."""
        if not isinstance(self.samples, np.ndarray):
            seen = kind_of(self.samples)
            raise AttributeError(message("Ensemble", "x in x.flat", "be of NumPy", seen, "Use xp.reshape(x, (-1,))."))
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

    def put(self, indices: Any, values: Any, mode: str = "raise") -> None:
        """Write `values` at places of the flattened array."""
        if not self.is_value:
            np.put(self, indices, values, mode)  # type: ignore[arg-type]

    def partition(self, kth: Any, axis: int = -1) -> None:
        """Put each sample in the order of ``numpy.partition``, in place."""
        self[...] = np.partition(self, kth, axis)  # type: ignore[index]

    def transpose(self, *axes: Any) -> Self:
        """The visible axes in the order `axes`, backwards without them: a view."""
        if len(axes) == 2 and type(self.samples) is not np.ndarray and library_of(self.samples) == "torch":
            return np.swapaxes(self, *axes)  # type: ignore[return-value]  # as of a tensor
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        backwards = tuple(reversed(range(len(self._visible()))))
        return self._lifted("permute_dims", order or backwards)

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Self:
        """Each entry, kept between `min` and `max`; either may be left out."""
        given = options if out is None else {"out": out, **options}
        result: Self = np.clip(self, min, max, **given)
        return result

    def fill(self, value: Any) -> None:
        """Write one value into every entry; a value without axes stays as it is, as NumPy's scalars do."""
        if not self.is_value:
            self[...] = value  # type: ignore[index]

    def sort(self, axis: int = -1) -> Any:
        """Put each sample in its own order, in place; of tensors, give values and places, as their method does."""
        if type(self.samples) is not np.ndarray and library_of(self.samples) == "torch":
            return _as_of_a_tensor(self, "sort", (axis,), {})
        self[...] = self._lifted("sort", axis=axis)  # type: ignore[index]
        return None

    def item(self, *place: Any) -> Self:
        """One entry as a 0-d ensemble; of an ensemble with one entry, that entry. Inside `run` a number of Python."""
        shape = self._visible()
        if not place:
            requirement = "have one entry"
            require(math.prod(shape) == 1, "item", "x", requirement, f"shape {shape}", "Name the entry: x.item(i).")
            return PROTOCOLS.python_number(self.reshape(()).copy())
        if len(place) == 1 and isinstance(place[0], tuple):
            place = place[0]
        place = tuple(k if isinstance(k, Methods) and not k._visible() else operator.index(k) for k in place)
        x = self
        if len(place) == 1 and len(shape) > 1:  # the number of the entry, rows first
            x = self.reshape(-1)
        else:
            require(len(place) == len(shape), "item", "x.item(i, ...)", f"have {len(shape)} indices", len(place))
        entry: Self = x[place]  # type: ignore[index]
        return PROTOCOLS.python_number(entry.copy())

    def tolist(self) -> Any:
        """Nested lists of 0-d ensembles, inside `run` of numbers of Python."""
        if not self._visible():
            return PROTOCOLS.python_number(self.copy())
        return [part.tolist() for part in self]  # type: ignore[attr-defined]

    @property
    def itemsize(self) -> int:
        """The bytes of one value."""
        return to_numpy(self.samples[..., :0]).dtype.itemsize

    # -- as of a number ------------------------------------------------------------------------------------------------

    def _is_complex(self) -> bool:
        return bool(self._base().isdtype(self.samples.dtype, "complex floating"))

    @property
    def real(self) -> Self:
        """The real part; of complex values not for writing into, but ``x.real = value`` sets it."""
        return self._part("real") if self._is_complex() else self

    @real.setter
    def real(self, value: Any) -> None:
        self._set_part("real", value)

    @property
    def imag(self) -> Self:
        """The imaginary part, zero for real values; not for writing into, but ``x.imag = value`` sets it."""
        return self._part("imag" if self._is_complex() else "zeros_like")

    @imag.setter
    def imag(self, value: Any) -> None:
        self._set_part("imag", value)

    def _part(self, name: str) -> Self:
        part = self._lifted(name)
        if self.is_value:
            part.samples, part._memory_token = part.samples.copy(), None  # a value as well
            return part
        if name == "zeros_like" or not isinstance(self.samples, np.ndarray):
            return read_only(part)
        source = getattr(self.samples, name)
        return follow(self, part, lambda memory: np.copyto(memory, source))

    def _set_part(self, name: str, value: Any) -> None:
        if self.is_value or not isinstance(self.samples, np.ndarray):
            seen = "a value without axes" if self.is_value else kind_of(self.samples)
            raise AttributeError(message("Ensemble", f"x in x.{name} = value", "be an array of NumPy", seen))
        if name == "imag" and self.samples.dtype.kind != "c":
            wanted = "be complex: others have no imaginary part to set"
            raise TypeError(message("Ensemble", "x in x.imag = value", wanted, f"dtype {self.samples.dtype}"))
        lifted = isinstance(value, Methods)
        n_samples = value.samples.shape[-1] if lifted else 1
        if self.samples.shape[-1] == 1 < n_samples:
            self._widen(n_samples)
        part = value.samples if lifted else np.asarray(value)[..., None]
        getattr(self.samples, name)[...] = part
        refill(self._memory_token)
        self.sample_set = common_set(self.sample_set, value.sample_set if lifted else None)

    def conj(self) -> Self:
        """The complex conjugate; real values as they are."""
        return self._lifted("conj") if self._is_complex() else self

    conjugate = conj

    def is_integer(self) -> Self:
        """Where a value has no fractional part. Arrays have no such method."""
        if in_run() and (
            self._visible() or not self._base().isdtype(self.samples.dtype, ("real floating", "integral"))
        ):
            raise AttributeError("one sample has no attribute 'is_integer'")
        if not self._base().isdtype(self.samples.dtype, "real floating"):
            return self._lifted("ones_like", dtype=self.__array_namespace__().bool)
        integers: Self = self._lifted("isfinite") & (self._lifted("trunc") == self)
        return integers

    def _as_integer(self, function: Callable[[Any], int]) -> Self:
        """An integer for every sample, as `function` makes one of a float."""
        name = function.__name__
        if len(self.samples.shape) > 1:
            text = message(name, "x", "have no axis", f"shape {self._visible()}", f"Use xp.{name}(x).")
            raise TypeError(text)
        if as_scalars(self.samples):  # code that runs as if for one sample counts on Python's own int
            return function(float(self))  # type: ignore[arg-type, return-value]
        xp = self.__array_namespace__()
        values = self._lifted(name) if self._base().isdtype(self.samples.dtype, "real floating") else self
        array = to_numpy(values.samples)
        bad = np.flatnonzero(
            ~(np.abs(array.astype(np.float64)) < 2.0**63) if array.dtype.kind == "f" else array > np.uint64(2**63 - 1)
        )
        if bad.size:
            requirement = "be finite and fit a 64-bit integer in every sample"
            advice = f"Use xp.{name}(x), which keeps the type."
            seen = f"other values in {samples_text(bad, of=values.samples.shape[-1])}"
            raise failure(ValueError(message(name, "x", requirement, seen, advice)))
        return values._lifted("astype", xp.int64)

    def __round__(self, digits: int | None = None) -> Self:
        if in_run() and self._visible():
            raise TypeError("type numpy.ndarray doesn't define __round__ method")
        return self._as_integer(round) if digits is None else self.round(digits)

    def __floor__(self) -> Self:
        return self._as_integer(math.floor)

    def __ceil__(self) -> Self:
        return self._as_integer(math.ceil)

    def __trunc__(self) -> Self:
        return self._as_integer(math.trunc)


def read_only(part: E) -> E:
    """`part`, marked so that NumPy refuses to write: the array it was taken from would not change with it."""
    if isinstance(part.samples, np.ndarray) and not part.samples.flags.owndata:
        part.samples = part.samples.view()
    if isinstance(part.samples, np.ndarray):
        part.samples.flags.writeable = False
    return part


for _name in METHODS:
    setattr(Methods, _name, _method(_name))
