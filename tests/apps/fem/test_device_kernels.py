"""Modules of CUDA kernels that are compiled in threads before they are launched, on the emulator."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ensemble import Ensemble
from ensemble._compile import cuda, device
from ensemble.apps.fem import RandomDiffusion
from ensemble.apps.fem.solves.device_kernels import compile_device_kernels


@pytest.fixture
def compilations(as_device, monkeypatch):
    """The instances and options of each module that is compiled from now on; what was compiled before is forgotten."""
    seen, compiled = [], device.raw_module

    def raw_module(source, options, instances):
        seen.append((instances, options))
        return compiled(source, options, instances)

    for module in cuda.KERNEL_MODULES.values():
        monkeypatch.setattr(module, "_functions", {})
        monkeypatch.setattr(module, "_compiling", {})
    monkeypatch.setattr(device, "raw_module", raw_module)
    return seen


@pytest.mark.parametrize("n_samples", [1, pytest.param(32, marks=pytest.mark.slow)])
def test_a_solve_launches_the_modules_compiled_ahead_and_no_others(n_samples, compilations, monkeypatch):
    problem = RandomDiffusion(10, n_terms=2)
    problem.discretization.stores_upper = False  # as on a device
    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(device, "in_thread", pool.submit)
        compile_device_kernels(n_samples, np.dtype(np.float64), reacts=False)
    ahead = list(compilations)
    y = np.random.default_rng(60317).uniform(-1, 1, (2, n_samples))
    assert problem.solve(Ensemble(y)).converged.all()
    assert compilations == ahead
    assert not any(module._compiling for module in cuda.KERNEL_MODULES.values())


def test_a_module_is_compiled_ahead_once(compilations, monkeypatch):
    layout, module = cuda.layout_of_aligned(1, 8), cuda.KERNEL_MODULES["multigrid/dense"]
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(device, "in_thread", pool.submit)
        for _ in range(2):
            cuda.compile_ahead([("multigrid/dense", layout, (), ())])
        module.function("dense_product<true>", layout, wide=False)
        cuda.compile_ahead([("multigrid/dense", layout, (), ())])
    assert len(compilations) == 1


def test_an_error_of_the_compiler_is_raised_by_the_launch(compilations, monkeypatch):
    def failing(*arguments):
        raise SyntaxError("line 3")

    monkeypatch.setattr(device, "raw_module", failing)
    layout = cuda.layout_of_aligned(1, 8)
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(device, "in_thread", pool.submit)
        cuda.compile_ahead([("multigrid/dense", layout, (), ())])
    with pytest.raises(SyntaxError, match="line 3"):
        cuda.KERNEL_MODULES["multigrid/dense"].function("dense_product<true>", layout, wide=False)
