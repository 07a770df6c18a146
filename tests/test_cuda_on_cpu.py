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


BESIDE = """
extern "C" __global__ void write(double* out, int place) { out[place] = 1.0; }
"""


@pytest.mark.parametrize("place", [-1, 3])
def test_a_value_written_beside_an_array_is_an_error(place):
    write, out = cuda_on_cpu.Module(BESIDE, (), ("write",)).get_function("write"), np.zeros(3)
    with pytest.raises(AssertionError, match=r"write wrote outside an array of shape \(3,\)"):
        write((1,), (1,), (out, np.int32(place)))
    write((1,), (1,), (out[1:], np.int32(-1)))  # a view of an array lies within it
    np.testing.assert_array_equal(out, [1.0, 0.0, 0.0])


TURNED = """
extern "C" __global__ void turn(double* out)
{
    __shared__ double stage[48];
    stage[threadIdx.x] = out[threadIdx.x];
    BARRIER
    out[threadIdx.x] = stage[threadIdx.x / SIZE * SIZE + SIZE - 1 - threadIdx.x % SIZE];
}
"""


@pytest.mark.parametrize("barrier, size, right", [("__syncthreads();", 48, True), ("__syncwarp();", 16, True),
                                                  ("", 48, False)])  # fmt: skip
def test_threads_see_each_other_after_a_barrier_only(barrier, size, right):
    turn = cuda_on_cpu.Module(TURNED.replace("BARRIER", barrier), (f"-DSIZE={size}",), ("turn",)).get_function("turn")
    out = np.arange(48.0)
    turn((1,), (48,), (out,))
    assert np.array_equal(out, np.arange(48.0).reshape(-1, size)[:, ::-1].ravel()) == right
