"""The rules of derivatives of one library, and the same interface where a library has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import asarray_like, library_of, needs_gradient
from ensemble.linalg.bridge.host import host_view
from ensemble.linalg.bridge.system import HostSystem

__all__ = ["HostRules", "rules_of"]


class HostRules:
    """Arrays without derivatives: NumPy's results in the other library."""

    @staticmethod
    def outcome(system: HostSystem, values: Any, b: Any, x0: Any) -> tuple[Any, ...]:
        """x, converged, iterations, norms and targets of a solve."""
        views: list[Any] = [None if part is None else host_view(part, system.name, "b") for part in (values, b, x0)]
        return tuple(asarray_like(np.array(part), b) for part in system.outcome(views[0], views[1], views[2]))

    @staticmethod
    def logdet(compute: Any, differentiate: Any, values: Any) -> Any:
        """``compute(values)``, shape (n_samples,)."""
        return asarray_like(np.array(compute(host_view(values, "logdet", "A"))), values)


def rules_of(*arrays: Any) -> Any:
    """What makes solves on `arrays` differentiable; JAX's known numbers need nothing of the kind."""
    library = next(library_of(array) for array in arrays if array is not None)
    if library == "torch":
        from ensemble.linalg.bridge import torch_rules

        return torch_rules
    if library == "jax" and any(needs_gradient(array) for array in arrays if array is not None):
        from ensemble.linalg.bridge import jax_rules

        return jax_rules
    return HostRules
