"""Fused functions on CuPy arrays, on a device; `tests/test_emit_cuda.py` runs the same source on the host."""

import numpy as np
import pytest

from ensemble.scalar import Ensemble, fuse
from tests.scalar.fused import SPECIAL, combined, transcendental

pytestmark = pytest.mark.cuda


@pytest.fixture
def cupy():
    """CuPy, with a device."""
    library = pytest.importorskip("cupy")
    library.cuda.runtime.getDeviceCount()
    return library


def on_device(cupy, *arrays):
    return [Ensemble(cupy.asarray(array)) for array in arrays]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int64])
@pytest.mark.parametrize(
    "shapes",
    [
        ((6, 5, 8), (6, 5, 1), (5, 8)),
        ((999, 7), (7,), (999, 1)),
        ((70_000, 32), (70_000, 32), (32,)),
        ((1,), (1,), (1,)),
    ],
    ids=str,
)
def test_arithmetic_has_the_bits_of_numpy(cupy, shapes, dtype, rng):
    operands = [(9.0 * rng.normal(size=shape)).astype(dtype) for shape in shapes]
    got = combined(*on_device(cupy, *operands)).samples
    expected = operands[0] * operands[1] - operands[2]
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(cupy.asnumpy(got), expected)


def test_masks_and_several_results(cupy, rng):
    x = np.concatenate([SPECIAL, rng.normal(size=51)]).reshape(-1, 8)

    @fuse
    def f(x, xp):
        return x > 0.0, (xp.where(xp.isfinite(x), x, 0.0), xp.isnan(x) & (x == x)), xp.astype(x > 1.0, xp.int32)

    got = f(*on_device(cupy, x))
    more, (finite, none), whole = f.original(x, np)
    for one, other in ((got[0], more), (got[1][0], finite), (got[1][1], none), (got[2], whole)):
        np.testing.assert_array_equal(cupy.asnumpy(one.samples), other)


def test_functions_are_right(cupy, rng):
    x, y = rng.normal(size=(2, 1000, 4))
    for got, expected in zip(transcendental(*on_device(cupy, x, y)), transcendental.original(x, y, np), strict=True):
        np.testing.assert_allclose(cupy.asnumpy(got.samples), expected, rtol=1e-14, atol=1e-14)


def test_views_and_targets(cupy, rng):
    values = rng.normal(size=(40, 6))
    memory = cupy.asarray(values)
    for view in (lambda a: a[::2], lambda a: a[:, ::-1], lambda a: a.T, lambda a: a[1:]):
        got = combined(view(memory), view(memory), 1.0)
        np.testing.assert_array_equal(cupy.asnumpy(got), view(values) * view(values) - 1.0)
    line = memory.reshape(-1)
    expected = values.reshape(-1)[:-1] ** 2 - 1.0
    combined(line[:-1], line[:-1], 1.0, out=line[1:])
    np.testing.assert_array_equal(cupy.asnumpy(line[1:]), expected)
