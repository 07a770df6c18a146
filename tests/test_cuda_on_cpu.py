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


MISALIGNED = """
extern "C" __global__ void copy(const double* from, double* to, int shift)
{
    __shared__ double2 held[4];
    double* stage = (double*)held;
    stage[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 2) *(double2*)(to + 2 * threadIdx.x) = *(double2*)(stage + 2 * threadIdx.x + shift);
}
"""


def test_an_access_that_a_device_refuses_is_an_error():
    copy = cuda_on_cpu.Module(MISALIGNED, (), ("copy",)).get_function("copy")
    given = np.arange(6.0)
    aligned = np.zeros(5)
    shift = aligned.ctypes.data % 16 // 8
    for out in (aligned[shift : shift + 4], aligned[1 - shift : 5 - shift]):
        for offset in (0, 1):
            if out.ctypes.data % 16 or offset:
                with pytest.raises(AssertionError, match=r"copy: address .* is no multiple of 16 in line .*double2"):
                    copy((1,), (4,), (given, out, np.int32(offset)))
            else:
                copy((1,), (4,), (given, out, np.int32(offset)))
                np.testing.assert_array_equal(out, given[:4])
