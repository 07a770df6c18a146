"""The CUDA emulator of the tests."""

import numpy as np
import pytest

from tests import cuda_on_cpu

pytestmark = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")

SHARED_MEMORY = """
template <int Unused> __device__ double* shared_array()
{
    __shared__ double stage[COUNT];
    return stage;
}
extern "C" __global__ void fill(double* out)
{
    double* stage = shared_array<0>();
    for (int i = 0; i < COUNT; ++i) stage[i] = i;
    for (int i = 0; i < COUNT; ++i) out[i] = stage[i];
}
"""


def test_shared_memory_of_a_template_belongs_to_its_module():
    """The dynamic linker gave all libraries the array of the first one, which may be shorter."""
    small, large = (cuda_on_cpu.Module(SHARED_MEMORY, (f"-DCOUNT={n}",), ("fill",)) for n in (1, 1 << 20))
    for module, n in ((small, 1), (large, 1 << 20)):
        out = np.zeros(n)
        module.get_function("fill")((1,), (1,), (out,))
        np.testing.assert_array_equal(out, np.arange(n))
