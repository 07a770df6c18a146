"""The CUDA kernels of filters and smoothers, run on this machine's processor."""

import numpy as np
import pytest

from ensemble._kernels import kalman_blocks, kalman_cuda, kalman_ranges, kalman_scans
from tests import cuda_on_cpu

SENTINEL = """
#include <vector>
static std::vector<REAL> memory;
static REAL* guarded(long long n)
{
    if ((long long)memory.size() != n + 64) memory.assign(n + 64, REAL(12345.5));
    return memory.data();
}
#define WORKSPACE Workspace work{guarded(sizes.space)};
extern "C" __global__ void check_workspace(int* clean)
{
    for (size_t i = memory.size() - 64; i < memory.size(); ++i) *clean = *clean && memory[i] == REAL(12345.5);
}
"""


class Blocks:
    """Stands in for `kalman_blocks.function`: an error where a kernel leaves its work space."""

    def __init__(self):
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("no g++")
        self.modules = {}

    def __call__(self, dtype, name):
        family = next(family for family, names in kalman_blocks.FAMILIES.items() if name in names)
        if (dtype, family) not in self.modules:
            names = (*kalman_blocks.FAMILIES[family], "check_workspace")
            text = SENTINEL + kalman_blocks.source(family)
            options = kalman_blocks.compile_options(dtype)
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
        family = next(family for family, (names, _) in kalman_cuda.FAMILIES.items() if name in names)
        key = dtype, nx, ny, family
        if key not in self.modules:
            text = "#define STAGES alignas(16) static char stages[STAGE_BYTES + 16];\n" + kalman_cuda.source(family)
            names = kalman_cuda.FAMILIES[family][0]
            self.modules[key] = cuda_on_cpu.Module(text, kalman_cuda.options(*key), names)
        return self.modules[key].get_function(name)


def emulate(patch):
    """Launch all kernels on this machine's processor."""
    threads = Threads()
    for module in (kalman_cuda, kalman_scans, kalman_ranges):
        patch.setattr(module, "function", threads)
    patch.setattr(kalman_blocks, "function", Blocks())
    patch.setattr(kalman_blocks, "threads_of", lambda nx, ny: 32)
