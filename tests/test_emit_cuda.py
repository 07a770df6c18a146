"""The CUDA source of fused functions: compiled by NVRTC, no GPU needed, and run on the host by a C++ compiler."""

import functools
import math
import sys

import numpy as np
import pytest

from ensemble._compile.numba import empty
from ensemble._compile.trace import cuda_source as _emit_cuda
from ensemble._compile.trace.broadcast import layout_of
from ensemble._compile.trace.cuda_source import Access
from ensemble._compile.trace.operations import DTYPES
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble.scalar import Ensemble, fuse
from tests import cuda_on_cpu, nvrtc
from tests.bodies import BOOL, F32, F64, I32, I64, everything, lorenz


@pytest.fixture(scope="module")
def compiler():
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    return library


BODIES = {
    "everything": (everything, (F64, F64, I64, BOOL)),
    "everything in float32": (everything, (F32, F32, I32, BOOL)),
    "numbers": (lambda x, k, s: x * k + s * 0.1, (F32, Scalar("pyfloat"), F64)),
    "integers": (lambda i, j: (i // j, i % j, abs(i), i * j - 2**31, -i, ~i, i / j, i * -(2**63) // 3), (I64, I32)),
    "masks": (lambda x, m: (np.where(~(x < 0.5), x, -x), ~m, m & ~(x > 0)), (F64, BOOL)),
    "tables": (lambda x: np.interp(x, [0.0, 0.5, 2.0], [1.0, -1.0, 3.0]) + np.interp(x, [0.0], [2.0]), (F64,)),
    "constants": (lambda x: (x + math.inf, x - math.nan, x * -0.0, x > -math.inf, True, 1e-320, 3), (F64,)),
}


ACCESSES = {
    "everything": Access(1, ("pack", "pack", "same", "pack"), 2),
    "everything in float32": Access(2, ("pack", "same", "pack", "strided"), 4),
    "numbers": Access(3, ("strided", "same"), 1, "long long"),
    "integers": Access(1, ("pack", "strided"), 2, "long long"),
    "masks": Access(1, ("pack", "pack"), 2),
    "tables": Access(1, ("pack",), 2),
    "constants": Access(2, ("same",), 16),
}


@pytest.mark.parametrize("name", BODIES)
def test_cuda_source_compiles(compiler, name):
    body, arguments = BODIES[name]
    graph = trace(body, *arguments)
    arrays = [k for k, argument in enumerate(arguments) if argument.dtype in DTYPES]
    source = _emit_cuda.elementwise_source(graph, arrays, ACCESSES[name])
    assert b"fused" in nvrtc.compiled(compiler, source, *_emit_cuda.OPTIONS)


def test_the_negation_of_a_mask_is_logical():
    """``~true`` is -2 in C++, which is true."""
    graph = trace(*BODIES["masks"][:1], *BODIES["masks"][1])
    text = _emit_cuda.device_function(graph, "masks")
    assert "~" not in text and text.count("!t") + text.count("!a") >= 3


def test_a_body_of_several_scalars_compiles_as_a_device_function(compiler):
    graph = trace(lambda x, t: lorenz(x, t, x[0].__array_namespace__()), (F64, F64, F64), F64)
    source = _emit_cuda.PRELUDE + _emit_cuda.device_function(graph, "drift")
    caller = """
    extern "C" __global__ void step(double* x, double t) {
        double dx, dy, dz;
        drift(x[0], x[1], x[2], t, dx, dy, dz);
        x[0] += dx; x[1] += dy; x[2] += dz;
    }"""
    assert b"step" in nvrtc.compiled(compiler, source + caller, *_emit_cuda.OPTIONS)


def test_cuda_source_that_is_wrong_fails(compiler):
    with pytest.raises(AssertionError, match="undefined"):
        nvrtc.compiled(compiler, "__global__ void fused(double* x) { *x = unknown; }")


# --- the same source on the host
@pytest.fixture
def on_host(monkeypatch):
    """`fuse` takes NumPy arrays for those of a device."""
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")
    monkeypatch.setattr(sys.modules[fuse.__module__], "backend_of", lambda *arrays: "cuda")
    kernel = functools.cache(lambda source: cuda_on_cpu.Module(source, (), ("fused",)).get_function("fused"))
    monkeypatch.setattr(_emit_cuda, "_kernel", kernel)
    return kernel


def mixed(x, y, i, mask, k, xp):
    z = x * y - k * x
    return xp.where(mask, z, y), z > x, i * 2 + xp.astype(mask, xp.int32), z / (1.0 + x * x)


SHAPES = [
    ((6, 5, 8), (6, 5, 1), (5, 8), (6, 1, 1)),
    ((6, 5, 7), (6, 5, 7), (7,), (5, 1)),
    ((1001,), (1001,), (1001,), (1,)),
    ((4, 6), (6,), (4, 1), (4, 6)),
    ((1,), (1,), (1,), (1,)),
    ((0, 3), (3,), (1,), (1,)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_the_source_gives_the_bits_of_numpy(on_host, shapes, real, rng):
    x, y = (rng.normal(size=shape).astype(real) for shape in shapes[:2])
    i, mask = rng.integers(-9, 9, shapes[2]).astype(np.int32), rng.random(shapes[3]) < 0.5
    got = fuse(mixed)(*(Ensemble(a) for a in (x, y, i, mask)), 0.75)
    shape = np.broadcast_shapes(*shapes)
    for one, other in zip(got, mixed(x, y, i, mask, real(0.75), np), strict=True):
        assert one.samples.dtype == other.dtype
        np.testing.assert_array_equal(one.samples, np.broadcast_to(other, shape))


def test_views_targets_and_overlaps(on_host, rng):
    combined = fuse(lambda x, y: x * y - 1.0)
    memory = rng.normal(size=(40, 6))
    for view in (memory[::2], memory[:20, ::-1], memory.T, memory[1:21]):
        y = rng.normal(size=view.shape)
        np.testing.assert_array_equal(combined(view, y), view * y - 1.0)
    line = rng.normal(size=5001)
    expected = line[:-1] * line[:-1] - 1.0
    combined(line[:-1], line[:-1], out=line[1:])
    np.testing.assert_array_equal(line[1:], expected)
    expected = line * line - 1.0
    combined(line, line, out=line)
    np.testing.assert_array_equal(line, expected)
    columns, whole = rng.normal(size=(5, 6)), np.zeros((5, 12))
    combined(columns, columns, out=whole[:, ::2])
    np.testing.assert_array_equal(whole[:, ::2], columns * columns - 1.0)
    assert not whole[:, 1::2].any()


@pytest.mark.parametrize(
    "array, axes, width",
    [
        (np.zeros((8, 4)), 1, 2),
        (empty((33,), np.float64)[1:], 1, 1),
        (np.zeros((8, 4), np.float32), 1, 4),
        (np.zeros((8, 6), bool), 1, 16),
        (np.zeros((8, 5)).T, 2, 2),
    ],
    ids=["float64", "unaligned", "float32", "bool", "transposed"],
)
def test_loads_are_as_wide_as_memory_allows(array, axes, width):
    layout = layout_of(((array.shape, array.strides, array.itemsize),))
    graph = trace(lambda x: x, Scalar(array.dtype.name))
    out = empty(array.shape, array.dtype)
    access = _emit_cuda._access(graph, {0: array}, layout, [out])
    assert (access.n_axes, access.width) == (axes, width)
