"""Special functions: `erf`, `gammaln`, ... of SciPy and its counterparts, lifted as they are elementwise.

The standard has no such extension yet [1]_. SciPy already looks for one in an unknown namespace, and with it
runs what needs a distribution (`scipy.stats.ttest_1samp`, `pearsonr`) on all samples at once.

References
----------
.. [1] https://github.com/data-apis/array-api/issues/725
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.lift.elementwise import other
from ensemble.scalar.namespace import EnsembleNamespace, named, samples_of, set_of

MODULES = {
    "jax": "jax.scipy.special",  # before NumPy, whose name is in jax.numpy
    "cupy": "cupyx.scipy.special",
    "torch": "torch.special",
    "numpy": "scipy.special",
}
"""The module of special functions of each library."""


class SpecialFunctions:
    """The ufuncs of `scipy.special` over ensembles, as far as the base library has them."""

    def __init__(self, ns: EnsembleNamespace, module: str) -> None:
        self._ns, self._module = ns, module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import scipy.special

        # With SCIPY_ARRAY_API=1 the ufunc is wrapped by a function that looks up namespaces.
        known: Any = getattr(scipy.special, name, None)
        known = getattr(known, "__wrapped__", known)
        found = getattr(importlib.import_module(self._module), name, None) if isinstance(known, np.ufunc) else None
        if found is None:
            raise AttributeError(f"{self._ns.__name__}.special has no elementwise function {name!r}")
        lifted = _elementwise(self._ns, name, known if self._module == "scipy.special" else found)
        setattr(self, name, lifted)
        return lifted


def _elementwise(ns: EnsembleNamespace, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def lifted(*arrays: Array) -> Any:
        arrays = tuple(x if isinstance(x, int | float | complex) else ns.lift(x, name) for x in arrays)
        samples_of(name, *arrays)
        sample_set = set_of(*arrays)
        first = next(x for x in arrays if isinstance(x, Ensemble)).samples
        results = function(*(x.samples if isinstance(x, Ensemble) else other(first, x, name) for x in arrays))
        if isinstance(results, tuple):
            return tuple(wrap(packed(part), sample_set) for part in results)
        return wrap(packed(results), sample_set)

    return named(lifted, name)


def special(ns: EnsembleNamespace, name: str) -> SpecialFunctions:
    """Rule of the extension."""
    words = ns.base.__name__.split(".")
    library = next((word for word in MODULES if word in words), None)
    if library is None:
        raise AttributeError(f"{ns.__name__} has no special functions")
    return SpecialFunctions(ns, MODULES[library])
