"""Array libraries by name, told to work in double precision."""

import contextlib

import array_api_strict
import numpy as np
import pytest

BASES = ("numpy", "strict", "torch", "jax", "cupy")


@contextlib.contextmanager
def double_precision(name):
    """The base library of that name, with float64 for its default; skips where it is not installed."""
    match name:
        case "numpy":
            yield np
        case "strict":
            yield array_api_strict
        case "torch":
            torch = pytest.importorskip("torch")
            usual = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            yield torch
            torch.set_default_dtype(usual)
        case "jax":
            jax = pytest.importorskip("jax")
            jax.config.update("jax_enable_x64", True)
            yield jax.numpy
        case "cupy":
            yield cupy_with_a_device()


def cupy_with_a_device():
    """CuPy; skips where there is no device."""
    cupy = pytest.importorskip("cupy")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if not count:
        pytest.skip("no CUDA device")
    return cupy
