"""The table of engines by backend name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ensemble._backend import prototype
from ensemble._check import kind_of, message
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.engines.cpu import CompiledEngine
from ensemble.apps.gbees.engines.cuda import CudaEngine
from ensemble.apps.gbees.engines.engine import Engine

__all__ = ["BACKENDS", "Backend", "backend_named"]


@dataclass(frozen=True)
class Backend:
    """An engine, and the library of its arrays."""

    engine: Callable[..., Engine]
    library: str


BACKENDS = {
    "numpy": Backend(CompiledEngine, "numpy"),
    "array": Backend(ArrayEngine, "numpy"),
    "cupy": Backend(CudaEngine, "cupy"),
}
"""``"array"`` is the Array API engine on NumPy; the other names pick the fastest engine of the library."""


def backend_named(backend: Any) -> tuple[Callable[..., Engine], Any]:
    """The engine, and an empty array of its library.

    Parameters
    ----------
    backend : str or Array API namespace
        A name of `BACKENDS`, or a namespace to run the Array API engine on.
    """
    if isinstance(backend, str):
        if backend not in BACKENDS:
            names = ", ".join(repr(name) for name in BACKENDS)
            requirement = f"be one of {names}, or an Array API namespace"
            raise ValueError(message("Gbees", "backend", requirement, repr(backend)))
        return BACKENDS[backend].engine, prototype(BACKENDS[backend].library)
    if not hasattr(backend, "searchsorted"):
        requirement = "be a name or an Array API namespace (2023.12 or later)"
        raise TypeError(message("Gbees", "backend", requirement, kind_of(backend)))
    return ArrayEngine, backend.empty(0)
