"""Kernels: a reference function, and faster implementations that the arrays' type picks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ensemble._backend import backend_of, one_complex_type

KERNELS: dict[str, Kernel] = {}
"""Every kernel by name; the kernel tests iterate over this table."""


class Kernel:
    """One numerical kernel: `reference` defines it, `implementations` speed it up."""

    __name__: str

    def __init__(self, reference: Callable[..., Any]) -> None:
        functools.update_wrapper(self, reference)
        self.reference = reference
        self.implementations: dict[str, Callable[..., Any]] = {}
        self.carries_complex: set[str] = set()
        """Backends whose implementation takes complex numbers, all floating arrays of one type."""

    def __call__(self, *arguments: Any) -> Any:
        backend = backend_of(*arguments)
        if backend == "reference" and "numba" in self.carries_complex and one_complex_type(*arguments):
            backend = "numba"
        return self.implementations.get(backend, self.reference)(*arguments)

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}: {', '.join(['reference', *sorted(self.implementations)])}>"

    def register(
        self, backend: str, complex_numbers: bool = False
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate the implementation for `backend` ("numba" or "cuda"), which may take `complex_numbers`, too."""

        def add(implementation: Callable[..., Any]) -> Callable[..., Any]:
            if backend in self.implementations:
                raise ValueError(f"{self.__name__}: backend {backend!r} must be registered once; got a second one.")
            if implementation.__name__ == "_":
                name_in_tracebacks(implementation, f"{self.__name__}_{backend}")
            self.implementations[backend] = implementation
            if complex_numbers:
                self.carries_complex.add(backend)
            return implementation

        return add


def name_in_tracebacks(function: Callable[..., Any], name: str) -> None:
    """Name a function that was written as ``_``, so that tracebacks and profiles tell which it is."""
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)


def kernel(reference: Callable[..., Any]) -> Kernel:
    """Make `reference`, written over the Array API, the definition of a kernel of the same name."""
    if reference.__name__ in KERNELS:
        raise ValueError(f"kernel: name must be new; got {reference.__name__!r} twice.")
    KERNELS[reference.__name__] = Kernel(reference)
    return KERNELS[reference.__name__]


def into(out: Any, result: Any) -> Any:
    """End of a reference implementation: `result` itself, or written into the caller's buffer `out`."""
    if out is None:
        return result
    out[...] = result
    return out
