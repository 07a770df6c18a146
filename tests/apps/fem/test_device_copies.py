"""Copies of fields to a device beside its kernels; those marked cuda run on one (make test-gpu)."""

import numpy as np
import pytest

from ensemble import Ensemble, SampleSet
from ensemble.apps import fem


@fem.bilinear_form
def carried(u, v, w):
    return fem.dot(w.wind, fem.grad(u)) * v


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.cuda)])
def copies(request):
    return fem.DeviceCopies(backend=request.param, threads=3)


def on_host(array):
    return array if isinstance(array, np.ndarray) else array.get()


@pytest.mark.parametrize("shape", [(), (0,), (3,), (200_000, 3, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.complex64])
def test_the_bits_arrive(copies, shape, dtype, rng):
    source = np.asarray(100.0 * rng.normal(size=shape)).astype(dtype)
    pinned = copies.empty(shape, dtype)
    pinned[...] = source
    for values in (source, pinned):
        made = copies.start(values).wait()
        assert made.shape == shape and made.dtype == dtype and on_host(made).tobytes() == source.tobytes()
        assert not isinstance(made, np.ndarray) or not np.shares_memory(made, values)


def test_views_and_ensembles_keep_values_and_sample_set(copies, rng):
    source = rng.normal(size=(50_000, 3, 4))
    view = source[::2, ::-1]
    np.testing.assert_array_equal(on_host(copies.start(view).wait()), view)
    kept = SampleSet.monte_carlo(4, 2, seed=1)
    made = copies.start(Ensemble(source, kept)).wait()
    assert isinstance(made, Ensemble) and made.sample_set is kept
    np.testing.assert_array_equal(on_host(made.samples), source)


def test_every_step_reads_its_own_field(copies, request, rng):
    """Fields of 10 MB in turn in two host arrays, as a program fills them; each step's matrix is that of its field."""
    mesh = fem.TetMesh.box(12)
    backend = request.node.callspec.params["copies"]
    winds = [rng.normal(size=(mesh.n_elements, 3, 40)) for _ in range(6)]
    expected = [carried.assemble(mesh, wind=Ensemble(wind), backend=backend).values.copy() for wind in winds]
    held = [copies.empty(winds[0].shape), np.empty(winds[0].shape)]
    held[0][...] = winds[0]
    coming, matrix = copies.start(Ensemble(held[0])), None
    for k, values in enumerate(expected):
        wind = coming.wait()
        if k + 1 < len(winds):
            held[(k + 1) % 2][...] = winds[k + 1]
            coming = copies.start(Ensemble(held[(k + 1) % 2]))
        matrix = carried.assemble(mesh, wind=wind, out=matrix)
        assert bool((matrix.values == values).all())


def test_a_copy_that_nobody_waits_for_does_no_harm(copies, rng):
    source = rng.normal(size=(400_000, 3))
    for _ in range(20):
        copies.start(source)
    np.testing.assert_array_equal(on_host(copies.start(source).wait()), source)


@pytest.mark.cuda
def test_a_copy_does_not_overwrite_what_queued_kernels_read(rng):
    import cupy

    copies, size = fem.DeviceCopies(), 4_000_000
    sources, sums = [np.full(size, float(k)) for k in range(8)], []
    busy = cupy.zeros(1 << 26)
    for source in sources:
        made = copies.start(source).wait()
        for _ in range(20):
            busy += 1.0  # the kernel below is queued long before it runs
        sums.append(made.sum())
        del made  # its memory goes to the next copy
    assert [float(s) for s in sums] == [float(k) * size for k in range(8)]


HOLD = r"""
extern "C" __global__ void hold(const volatile int* released)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (!*released && now - start < 10000000000ULL);
}
"""
"""A kernel that ends when the host sets a flag, or after ten seconds."""


@pytest.mark.cuda
@pytest.mark.parametrize("is_pinned", [True, False])
def test_copies_and_kernels_of_a_device_run_at_once(is_pinned):
    import cupy

    copies, source = fem.DeviceCopies(), np.full(10_000_000, 3.0)
    values = copies.empty(source.shape) if is_pinned else source
    values[...] = source
    memory = cupy.cuda.alloc_pinned_memory(4)
    released, hold = np.frombuffer(memory, np.int32, 1), cupy.RawKernel(HOLD, "hold")
    released[0] = 1
    hold((1,), (1,), (np.uint64(memory.ptr),))  # all is loaded, and buffers are allocated
    for _ in range(3):  # every thread has its buffers then
        copies.start(values).wait()
    cupy.cuda.Device().synchronize()
    released[0] = 0
    end = cupy.cuda.Event()
    coming = copies.start(values)
    hold((1,), (1,), (np.uint64(memory.ptr),))
    end.record()
    made = coming.wait()
    ran_beside = not end.done
    released[0] = 1
    end.synchronize()
    assert ran_beside
    np.testing.assert_array_equal(made.get(), source)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="DeviceCopies: backend must be one of 'cupy', 'numpy'; got 'torch'"):
        fem.DeviceCopies(backend="torch")
    with pytest.raises(ValueError, match="DeviceCopies: threads must be an integer of at least 1; got 0"):
        fem.DeviceCopies(backend="numpy", threads=0)
    copies = fem.DeviceCopies(backend="numpy")
    with pytest.raises(TypeError, match=r"DeviceCopies.start: values must be an array of NumPy, .* got builtins.list"):
        copies.start([1.0, 2.0])
    with pytest.raises(TypeError, match=r"DeviceCopies.start: values must hold numbers; got dtype object"):
        copies.start(np.array([None]))


def test_without_a_device_the_error_says_what_is_missing():
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:
        with pytest.raises(RuntimeError, match='backend "cupy" needs a CUDA device'):
            fem.DeviceCopies()
    else:
        pytest.skip("there is a device")
