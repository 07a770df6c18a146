"""Ranks on emulated devices: NumPy arrays in the role of device arrays, on the emulator of CUDA."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ensemble._compile import cuda, device, registry
from ensemble._kernels import all_kernels  # noqa: F401  registers the modules
from ensemble._kernels.krylov.device_scalars import scalars
from ensemble._kernels.multigrid import galerkin
from ensemble.distributed.devices import DeviceCommunicator, HostMessages
from ensemble.krylov import _iteration
from ensemble.krylov.host_scalars import gmres
from tests import cuda_on_cpu
from tests.conftest import COMPILED


class HostCopies:
    """`PinnedCopies` where the memory of the device is that of the host. A buffer is written when `wait` is called."""

    def __init__(self) -> None:
        self.queue: list[tuple[np.ndarray, np.ndarray]] = []
        self.buffers: dict[Any, np.ndarray] = {}

    def has(self, array: np.ndarray) -> bool:
        return registry.backend_of(array) == "cuda"

    def buffer(self, name: Any, like: np.ndarray) -> np.ndarray:
        return self.buffers.setdefault((name, like.shape, like.dtype), np.zeros(like.shape, like.dtype))

    def fetch(self, array: np.ndarray, buffer: np.ndarray) -> None:
        self.queue.append((buffer, array))

    def put(self, buffer: np.ndarray, array: np.ndarray) -> None:
        self.wait()  # kernels that follow are not queued here
        array[...] = buffer

    def wait(self) -> None:
        for out, values in self.queue:
            out[...] = values
        self.queue.clear()


def emulated_devices(comm: Any) -> DeviceCommunicator:
    """What `devices` returns, for emulated ones."""
    return DeviceCommunicator(comm, HostMessages(comm.Dup(), HostCopies()), "an emulated device")


@contextlib.contextmanager
def on_emulator() -> Iterator[None]:
    """NumPy arrays are treated as arrays of a device, in a process without the fixture `as_device`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "raw_module", cuda_on_cpu.Module)
        for module in cuda.KERNEL_MODULES.values():
            patch.setattr(module, "_functions", COMPILED.setdefault(module.name, {}))
        for module in (registry, galerkin, scalars):
            patch.setattr(module, "backend_of", lambda *arrays: "cuda")
        for module in (_iteration, gmres):
            patch.setattr(module, "has_compiled_numbers", lambda array: False)
        yield
