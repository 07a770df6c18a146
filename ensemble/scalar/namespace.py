"""The Array API lifted over the sample axis, from one table of names.

`TABLE` gives each name of the standard the rule that lifts it. A rule is called as ``rule(ns, name)`` and returns the
function for one base library and one number of samples; a namespace builds a function at its first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import base_of, is_array
from ensemble._check import integer, kind_of, message, one_of, require, require_one_library
from ensemble._typing import Namespace
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.interop.sample_attributes import know_libraries
from ensemble.scalar.plain_arrays import plain_array
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = ["EnsembleNamespace", "namespace"]

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)

BEYOND_THE_STANDARD = frozenset(
    ["bool_", "concatenate", "cross", "cumprod", "cumsum", "einsum", "gradient", "lib", "pad", "quantile", "transpose"]
)
"""What xarray asks the namespace of arrays of NumPy for besides the standard: NumPy's own functions."""

Rule = Callable[[Any, str], Any]


class EnsembleNamespace:
    """The Array API over ensembles; build one with `namespace`.

    Two are equal where they lift one library by one version of the standard, whatever their numbers of samples.
    """

    def __init__(
        self, base: Namespace, n_samples: int, table: dict[str, Rule], name: str, main: EnsembleNamespace | str
    ) -> None:
        self.base = base
        self.main = self if isinstance(main, str) else main
        self.n_samples = n_samples
        self.__name__ = name
        self.__array_api_version__: str = main if isinstance(main, str) else main.__array_api_version__
        self._table = table
        know_libraries()  # a run may be the first to import one
        self.own_types: set[type] = set()  # types of arrays that are known to be the base library's

    def __getattr__(self, name: str) -> Any:
        rule = self.__dict__.get("_table", {}).get(name)
        if rule is None and name in BEYOND_THE_STANDARD and self.main is self and self.base.__name__.endswith("numpy"):
            return getattr(np, name)
        if rule is None:
            raise AttributeError(f"{self.__dict__.get('__name__', 'namespace')} has no attribute {name!r}")
        value = rule(self, name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted((*self._table, "__array_api_version__"))

    def __repr__(self) -> str:
        return f"<{self.__name__}, n_samples={self.n_samples}>"

    # Code that gathers the namespaces of its arguments in a set must find one: shared data mixes with any ensemble.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnsembleNamespace) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.base, id(self._table), self.__array_api_version__

    def sequence(self) -> type:
        """What several arrays come in: a tuple since 2025.12, a list before."""
        return tuple if self.__array_api_version__ >= "2025.12" else list

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.base.__name__, self.n_samples, self.__array_api_version__)

    def require_own(self, array: Any, function: str) -> None:
        """Raise TypeError for an array of another library than this namespace's."""
        if type(array) not in self.own_types:
            require_one_library(function, "operands", self.main.base.empty(0), array)
            self.own_types.add(type(array))

    def lift(self, value: Any, function: str) -> Ensemble:
        """`value` as an ensemble: a plain array is shared by all samples."""
        if type(value) is Ensemble:
            if type(value.samples) not in self.own_types:
                self.require_own(value.samples, function)
            return value
        if isinstance(value, np.generic):
            return wrap(self.main.base.asarray(value)[..., None])
        if is_array(value):
            self.require_own(value, function)
            return wrap(plain_array(value, function, "x")[..., None])
        advice = "Make one with xp.asarray."
        raise TypeError(message(function, "x", "be an Ensemble or an array", kind_of(value), advice))


def set_of(*values: Any) -> SampleSet | None:
    """The one sample set of all ensembles among `values`."""
    sample_set = None
    for value in values:
        if type(value) is Ensemble and value.sample_set is not None:
            sample_set = common_set(sample_set, value.sample_set)
    return sample_set


def samples_of(function: str, *values: Any) -> int:
    """The common number of samples of the ensembles among `values`, of one array library; 1 where all are shared."""
    count, kind = 1, None
    for value in values:
        if type(value) is not Ensemble:
            continue
        samples = value.samples
        n_samples = samples.shape[-1]
        kind = kind or type(samples)
        if type(samples) is not kind or (n_samples not in (count, 1) and count != 1):
            arrays = (value.samples for value in values if type(value) is Ensemble)
            require_one_library(function, "operands", *arrays)
            return common_count(function, *values)
        count = count if n_samples == 1 else n_samples
    return count


def common_count(function: str, *values: Any) -> int:
    """The common number of samples of the ensembles among `values`, of any library; 1 where all are shared."""
    counts = {value.samples.shape[-1] for value in values if type(value) is Ensemble} - {1}
    if len(counts) > 1:
        seen = " and ".join(str(n) for n in sorted(counts))
        raise ValueError(message(function, "operands", "have one number of samples, or be shared", f"{seen} samples"))
    return counts.pop() if counts else 1


def bound(function: Callable[..., Any]) -> Rule:
    """The rule of a function that is written out: its first parameter is the namespace."""

    def rule(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
        lifted = functools.partial(function, ns)
        functools.update_wrapper(lifted, function)
        lifted.__name__ = name  # type: ignore[attr-defined]
        del lifted.__wrapped__  # type: ignore[attr-defined]
        return lifted

    return rule


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function` under the name of the standard, with a docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` of the Array API, sample by sample."
    return function


def constant(ns: EnsembleNamespace, name: str) -> Any:
    """A constant or a dtype: the base library's own."""
    return getattr(ns.base, name)


@functools.cache
def _namespace(base: Namespace, n_samples: int, api_version: str) -> EnsembleNamespace:
    PROTOCOLS.register_jax()
    names = PROTOCOLS.lifted_names
    return EnsembleNamespace(base, n_samples, names, f"ensemble.namespace({base.__name__})", api_version)


def _restored(base: str, n_samples: int, api_version: str) -> EnsembleNamespace:
    import importlib

    return _namespace(importlib.import_module(base), n_samples, api_version)


def _version(api_version: str | None, function: str) -> str:
    if api_version is None:
        return API_VERSIONS[-1]
    return one_of(api_version, API_VERSIONS, function, "api_version")


def namespace(xp: Namespace, n_samples: int = 1, *, api_version: str | None = None) -> EnsembleNamespace:
    """Return the Array API of `xp` lifted over the sample axis: the same names, on ensembles.

    Parameters
    ----------
    xp : module
        An Array API library: numpy, cupy, torch, jax.numpy, array_api_strict; or such a namespace already lifted.
    n_samples : int, at least 1
        The samples that `empty`, `zeros`, `ones`, `full` allocate. Functions that only describe data
        (`asarray`, `arange`, `linspace`, `eye`) give shared data whatever `n_samples` is.
    api_version : str, optional
        The version of the standard, "2021.12" to "2025.12"; the newest by default. Before 2025.12, `meshgrid`,
        `broadcast_arrays` and the list of devices are lists, and since then tuples. Nothing else depends on it.

    Returns
    -------
    EnsembleNamespace
        The functions, dtypes and constants of the standard, with `linalg` and `fft`. Axes never count the sample axis.

    Raises
    ------
    ValueError, TypeError
        If `n_samples` is below 1 or no integer, or there is no such version.

    Notes
    -----
    A plain array among the arguments is the same for every sample. Where the shape of a result depends on the data
    (`nonzero`, `unique_values`, `repeat` by an array), all samples must agree on it. Order is per sample: entry j of
    `sort` or of the eigenvalues is not the same quantity in every sample. Where a factorisation fails for some samples
    of several, these come out as NaN, with a RuntimeWarning that names them.

    Examples
    --------
    >>> import numpy as np
    >>> xp = namespace(np, n_samples=3)
    >>> x = xp.zeros(2)
    >>> x[0] = Ensemble(np.array([1.0, 2.0, 3.0]))
    >>> xp.sum(x).samples
    array([1., 2., 3.])
    """
    n_samples = integer(n_samples, "namespace", "n_samples", minimum=1)
    version = _version(api_version, "namespace")
    if isinstance(xp, EnsembleNamespace):
        return _namespace(xp.base, n_samples, version)
    require(hasattr(xp, "empty"), "namespace", "xp", "be an Array API library", repr(xp))
    return _namespace(base_of(xp.empty(0)), n_samples, version)


def namespace_of(x: Ensemble, api_version: str | None) -> EnsembleNamespace:
    """The namespace of an ensemble, by its base library and its number of samples."""
    version = API_VERSIONS[-1] if api_version is None else _version(api_version, "__array_namespace__")
    return _namespace(base_of(x.samples), x.n_samples, version)


PROTOCOLS.namespace_of = namespace_of
