"""Attributes that a sample has and an ensemble has not: ``x.hex()`` of floats, ``x.ctypes`` of arrays.

A method `__getattr__` would serve every name, but the interpreter does not cache any attribute of a class that has one:
operators would take a sixth longer. So the names are those of the types that samples have; of another name Python's
own error is right, for no sample has it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ensemble.scalar.divergence.policy import failure_of_sample

__all__ = ["SampleAttributes", "know_attributes_of", "know_libraries"]

ARRAYS = {"torch": "Tensor", "cupy": "ndarray", "jax": "Array"}
"""The class of the arrays of a library, whose attributes are known once it has been imported."""


class _AttributeOfSamples:
    """Raises: in code that runs as if for one sample, such an attribute parts the samples."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, kind: type) -> Any:
        name = self.name
        if x is None:
            raise AttributeError(f"type object {kind.__name__!r} has no attribute {name!r}", name=name, obj=kind)
        error = AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=x)
        raise failure_of_sample(lambda sample: getattr(sample, name), x, error)


class SampleAttributes:
    """Base of `Ensemble`, the last one: attributes of samples that no other class defines."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        classes = [kind for kind in type(self).__mro__ if kind is not SampleAttributes]
        return sorted({name for kind in classes for name in vars(kind)})


_known: set[Any] = set()


def know_attributes_of(kind: type) -> None:
    """Add the attributes of `kind`, a type of samples; those of Python's protocols are left to Python."""
    if kind in _known:
        return
    _known.add(kind)
    for name in dir(kind):
        if not name.startswith("__") and name not in vars(SampleAttributes):
            setattr(SampleAttributes, name, _AttributeOfSamples(name))


def know_libraries() -> None:
    """Add the attributes of the arrays of libraries that have been imported."""
    for library, name in ARRAYS.items():
        if library in sys.modules and library not in _known:
            kind = getattr(sys.modules[library], name, None)
            if isinstance(kind, type):  # it has been imported to its end
                _known.add(library)
                know_attributes_of(kind)


for _kind in (bool, int, float, complex, np.bool_, np.int64, np.float64, np.complex128, np.ndarray):
    know_attributes_of(_kind)
