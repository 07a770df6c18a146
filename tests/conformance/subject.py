"""What the public suite data-apis/array-api-tests is shown: the lifted namespace, in one of three modes.

The suite imports `xp` from here. Environment variables choose it:

``ENSEMBLE_BASE``
    numpy, array_api_strict, torch or jax.
``ENSEMBLE_MODE``
    ``base``: the bare library, without ensembles. ``shared``: every array is the same for all samples. ``equal``: three
    samples that hold the same values. ``isolation``: the suite sees one sample of three, and the others hold other
    values, so that a result which mixes samples is found out.
``ENSEMBLE_SAMPLE``
    In isolation, which sample the suite sees: 0, 1 or 2.
``ARRAY_API_TESTS_VERSION``
    The version of the standard, the suite's own variable.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from types import SimpleNamespace

import numpy as np

from ensemble._backend import to_numpy
from ensemble.scalar import Ensemble, namespace, shared
from ensemble.scalar.namespace import API_VERSIONS, EnsembleNamespace

N_SAMPLES = 3
DATA = ("asarray", "zeros", "ones", "full", "arange", "linspace", "eye")


def base_library(name: str):
    """The bare library, as the suite would be given it."""
    if name == "torch":
        return importlib.import_module("array_api_compat.torch")
    if name == "jax":
        importlib.import_module("jax").config.update("jax_enable_x64", True)
        return importlib.import_module("jax.numpy")
    return importlib.import_module(name)


def other_values(values: np.ndarray) -> np.ndarray:
    """Values for the samples that the suite does not see.

    They stay in the range of what was asked for, keep symmetric positive definite matrices what they are, and change
    neither the number of entries that are not zero nor that of distinct entries, nor the sum of a line of integers
    (`repeat` takes it for counts): where a shape depends on the data, all samples must agree on it, which is a rule of
    the library and not a leak.
    """
    reversed_values = np.flip(values).copy()
    match values.dtype.kind:
        case "b":
            return reversed_values
        case "i" | "u":
            if values.ndim == 1 or not np.array_equal(reversed_values, values):
                return reversed_values
            return values - np.where(np.abs(values) > 1, np.sign(values), 0).astype(values.dtype)
        case _:
            with np.errstate(all="ignore"):
                half = reversed_values * values.dtype.type(0.5)
                normal = np.abs(half) >= np.finfo(values.dtype).tiny
            return half if np.all(normal | (reversed_values == 0) | ~np.isfinite(half)) else reversed_values


def spread(x: Ensemble, shown: int) -> Ensemble:
    """`x` with its values in sample `shown` and other values in the others."""
    plain = to_numpy(x.samples)[..., 0]
    different = other_values(plain)
    columns = [plain if s == shown else different for s in range(N_SAMPLES)]
    return Ensemble(x.__array_namespace__().base.asarray(np.stack(columns, axis=-1), device=x.device))


def equal(x: Ensemble) -> Ensemble:
    """`x` in three samples that are alike."""
    base = x.__array_namespace__().base
    return Ensemble(base.asarray(base.broadcast_to(x.samples[..., :1], (*x.shape, N_SAMPLES)), copy=True))


def creating(f, widen):
    """A creation function whose result has all samples."""

    @functools.wraps(f)
    def create(*arguments, **options):
        x = f(*arguments, **options)
        return widen(x) if x.is_shared else x  # nested lists of ensembles have their samples already

    create.__signature__ = inspect.signature(f)
    return create


def read_one_sample(shown: int) -> None:
    """Let a conversion to a plain value read sample `shown`, where the library would ask all samples to agree."""
    for name, convert in (
        *(("__bool__", bool), ("__int__", int), ("__float__", float), ("__complex__", complex)),
        *(("__index__", lambda value: value.__index__()),),
    ):
        own = getattr(Ensemble, name)

        def read(self, own=own, convert=convert):
            return convert(self.sample(shown)) if self.ndim == 0 and not self.is_shared else own(self)

        setattr(Ensemble, name, read)

    @functools.wraps(Ensemble.__dlpack__)
    def export(self, **options):
        return shared(self.sample(shown)).__wrapped_dlpack__(**options)

    Ensemble.__wrapped_dlpack__, Ensemble.__dlpack__ = Ensemble.__dlpack__, export


def lifted(base, widen) -> SimpleNamespace:
    """The lifted namespace with creation functions that make room for all samples."""
    version = os.environ.get("ARRAY_API_TESTS_VERSION")
    whole: EnsembleNamespace = namespace(base, 1 if widen is None else N_SAMPLES, api_version=version)
    if widen is None:
        return whole
    names = {name: getattr(whole, name) for name in dir(whole) if hasattr(whole, name)}
    names |= {name: creating(getattr(namespace(base), name), widen) for name in DATA}
    return SimpleNamespace(**names, __name__=whole.__name__)


def subject():
    """The namespace that the environment asks for."""
    base = base_library(os.environ.get("ENSEMBLE_BASE", "numpy"))
    match os.environ.get("ENSEMBLE_MODE", "shared"):
        case "base":
            if not hasattr(base, "__array_api_version__"):
                base.__array_api_version__ = API_VERSIONS[-1]
            return base
        case "shared":
            return lifted(base, None)
        case "equal":
            return lifted(base, equal)
        case "isolation":
            shown = int(os.environ.get("ENSEMBLE_SAMPLE", "0"))
            read_one_sample(shown)
            return lifted(base, functools.partial(spread, shown=shown))
        case mode:
            raise ValueError(f"conformance: ENSEMBLE_MODE must be base, shared, equal or isolation; got {mode!r}.")


xp = subject()
