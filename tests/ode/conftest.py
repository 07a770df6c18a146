"""The kernels of `ode` on the CPU, in place of a device."""

import pytest

from ensemble._compile import device as cuda_device
from ensemble._compile.trace.cuda_source import OPTIONS
from ensemble._kernels.ode import ode_launch
from ensemble.ode import device
from tests import cuda_on_cpu


@pytest.fixture
def emulated(monkeypatch):
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")
    monkeypatch.setattr(
        ode_launch, "kernel", lambda text: cuda_on_cpu.Module(text, OPTIONS, ("solve",)).get_function("solve")
    )
    monkeypatch.setattr(cuda_device, "multiprocessors", lambda: 1)
    monkeypatch.setattr(device, "BLOCKS_PER_MULTIPROCESSOR", 1)
    monkeypatch.setattr(ode_launch, "THREADS", 8)  # so that threads take several samples each
