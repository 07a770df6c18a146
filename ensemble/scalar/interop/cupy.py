"""CuPy's own protocol: ``cupy.sin(x)`` gives an ensemble or raises an error.

CuPy is never imported here. Its arithmetic, ``cupy_array * x``, goes through NumPy's ufuncs and comes to
`Ensemble.__array_ufunc__`; its own ufuncs ask for ``__cupy_override_elementwise_kernel__``.
"""

from __future__ import annotations

from typing import Any

from ensemble._check import message
from ensemble.scalar._operators import operand
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.interop.ufuncs import unsupported
from ensemble.scalar.namespace import samples_of, set_of
from ensemble.scalar.protocol_table import PROTOCOLS

__all__ = ["call_kernel"]


def call_kernel(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``__cupy_override_elementwise_kernel__``: an elementwise ufunc runs on the samples."""
    name = f"cupy.{getattr(kernel, '__name__', kernel.name).removeprefix('cupy_')}"
    if len(arguments) > kernel.nin or "out" in options:
        advice = "A plain array cannot hold samples; make an Ensemble of it with en.shared(array)."
        raise TypeError(message(name, "the array written to", "be an Ensemble", "a cupy.ndarray", advice))
    if type(kernel).__name__ != "ufunc" or options:
        raise unsupported(name, "it is not a ufunc" if not options else f"its options {sorted(options)} are not lifted")
    samples_of(name, *arguments)
    first = next(value for value in arguments if isinstance(value, Ensemble))
    plain = [value.samples if isinstance(value, Ensemble) else operand(first.samples, value) for value in arguments]
    if any(value is NotImplemented for value in plain):
        raise unsupported(name, "an operand is neither a number nor an array")
    results = kernel(*plain)
    sample_set = set_of(*arguments)
    if isinstance(results, tuple):
        return tuple(wrap(packed(part), sample_set) for part in results)
    return wrap(packed(results), sample_set)


PROTOCOLS.call_cupy_kernel = call_kernel
