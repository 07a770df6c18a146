"""The processor that kernels are compiled for."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import binding
from numba import config

__all__ = ["STACK_ALIGNMENT", "is_zen", "register_bytes", "target"]

STACK_ALIGNMENT = 64
"""Alignment of the stack in functions of lanes, in bytes: LLVM does not align the registers that it keeps there."""


@functools.cache
def target() -> tuple[str, str, str]:
    """The triple, the name and the features of the processor that kernels are compiled for.

    Numba's settings NUMBA_CPU_NAME, NUMBA_CPU_FEATURES and NUMBA_ENABLE_AVX hold, as for functions that it compiles.
    """
    settings: dict[str, Any] = vars(config)
    features = binding.get_host_cpu_features()
    if not settings.get("ENABLE_AVX", True):
        features.update({name: False for name in features if name.startswith("avx")})
    given = settings.get("CPU_FEATURES")
    return (
        binding.get_process_triple(),
        settings.get("CPU_NAME") or binding.get_host_cpu_name(),
        features.flatten() if given is None else given,
    )


@functools.cache
def register_bytes() -> int:
    """Bytes of a vector register of the processor that kernels are compiled for."""
    features = target()[2].split(",")
    return 64 if "+avx512f" in features else 32 if "+avx2" in features else 16


def is_zen() -> bool:
    """Whether the processor is one of AMD's with Zen cores."""
    return target()[1].startswith("znver")
