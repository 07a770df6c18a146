"""The CUDA kernels of filters and smoothers, run on this machine's processor."""

import numpy as np
import pytest

from ensemble._kernels.kalman import block_launch, kalman_launch, level_scans, time_ranges
from tests import cuda_on_cpu

SENTINEL = """
static REAL* memory;
static long long length;
static REAL* guarded(long long n)
{
    if (length == n + 64) return memory;
    length = n + 64, memory = (REAL*)realloc(memory, length * sizeof(REAL));
    for (long long i = 0; i < length; ++i) memory[i] = REAL(12345.5);
    return memory;
}
#define WORKSPACE Workspace work{guarded(sizes.space)};
extern "C" __global__ void check_workspace(int* clean)
{
    for (long long i = length - 64; i < length; ++i) *clean = *clean && memory[i] == REAL(12345.5);
}
"""


class Blocks:
    """Stands in for `kalman_blocks.function`: an error where a kernel leaves its work space."""

    def __init__(self):
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("no g++")
        self.modules = {}

    def __call__(self, dtype, name):
        family = next(family for family, names in block_launch.KERNEL_FILES.items() if name in names)
        if (dtype, family) not in self.modules:
            names = (*block_launch.KERNEL_FILES[family], "check_workspace")
            text = SENTINEL + block_launch.source(family)
            options = block_launch.compile_options(dtype)
            self.modules[dtype, family] = cuda_on_cpu.Module(text, options, names)
        run, check = (self.modules[dtype, family].get_function(kernel) for kernel in (name, "check_workspace"))

        def checked(*arguments, **options):
            run(*arguments, **options)
            clean = np.ones(1, np.int32)
            if name != "sum_terms":
                check((1,), (1,), (clean,))
            assert clean[0], f"{name} took more work space than it has"

        return checked


class Threads:
    """Stands in for `kalman_cuda.function`."""

    def __init__(self):
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("no g++")
        self.modules = {}

    def __call__(self, dtype, nx, ny, name):
        family = next(family for family, (names, _) in kalman_launch.KERNEL_FILES.items() if name in names)
        key = dtype, nx, ny, family
        if key not in self.modules:
            stages = "#define STAGES alignas(16) static char stages[STAGE_BYTES + 16];\n"
            text = stages + kalman_launch.source(nx, ny, family)
            names = kalman_launch.KERNEL_FILES[family][0]
            self.modules[key] = cuda_on_cpu.Module(text, kalman_launch.compile_options(*key), names)
        return self.modules[key].get_function(name)


def emulate(patch):
    """Launch all kernels on this machine's processor."""
    threads = Threads()
    for module in (kalman_launch, level_scans, time_ranges):
        patch.setattr(module, "function", threads)
    patch.setattr(block_launch, "function", Blocks())
    patch.setattr(block_launch, "threads_of", lambda nx, ny: 32)
