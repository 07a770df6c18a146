"""Shapes, views and targets of fused functions."""

import numpy as np
import pytest

from ensemble._compile.numba import empty
from ensemble._compile.trace import fused as _fused
from ensemble.scalar import Ensemble, SampleSet, fuse
from tests.scalar.fused import assert_same_bits, combined

SHAPES = [
    ((6, 5, 8), (6, 5, 8), (6, 5, 8)),
    ((6, 5, 8), (6, 5, 1), (5, 8)),
    ((6, 1, 8), (5, 1), (6, 5, 1)),
    ((8,), (6, 5, 1), (1,)),
    ((1,), (6, 5, 1), (6, 1, 1)),
    ((4, 1, 3, 1, 8), (1, 2, 1, 5, 1), (2, 3, 5, 8)),
    ((0, 8), (0, 1), (8,)),
    ((1500, 3), (1500, 1), (3,)),
    ((3, 4100), (3, 1), (4100,)),
    ((40, 1, 7), (30, 1), (40, 30, 7)),
    ((70000, 2), (70000, 1), (70000, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_visible_shapes_and_shared_ensembles_broadcast(shapes, rng):
    operands = [rng.normal(size=shape) for shape in shapes]
    got = combined(*(Ensemble(a) for a in operands))
    assert_same_bits(got.samples, operands[0] * operands[1] - operands[2])


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::-1],
        lambda a: a[::2].repeat(2, axis=0),
        lambda a: a.swapaxes(0, 1).copy().swapaxes(0, 1),
        lambda a: a[:, ::-1],
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: np.asarray(a, order="F"),
        lambda a: a.astype(">f8").view(">f8"),
    ],
    ids=["reversed", "copy", "transposed", "columns", "readonly", "fortran", "big-endian"],
)
def test_views_are_read_where_they_stand(view, rng):
    x, y, z = rng.normal(size=(3, 6, 10, 4))
    assert_same_bits(combined(view(x), y, z), view(x) * y - z)
    assert_same_bits(combined(x[::2], y[::2], z[::2]), (x * y - z)[::2])


def test_plain_arrays_and_numbers_are_the_same_for_every_sample(rng):
    x = Ensemble(rng.normal(size=(3, 4)))
    plain = rng.normal(size=3)
    got = combined(x, plain, 0.5)
    assert_same_bits(got.samples, x.samples * plain[:, None] - 0.5)
    assert combined(np.ones(3), 2.0, np.float64(1.0)).tolist() == [1.0, 1.0, 1.0]


def test_a_shared_result_stays_shared():
    x = Ensemble(np.ones((3, 1)))
    assert combined(x, x, 0.0).is_shared


def test_only_numbers_call_the_function_itself():
    assert combined(2.0, 3.0, 1.0) == 5.0


def test_the_sample_set_goes_along(rng):
    points = SampleSet(ids=[3, 4, 5])
    x = Ensemble(rng.normal(size=(2, 3)), points)
    assert combined(x, 1.0, 0.0).sample_set is points
    other = Ensemble(rng.normal(size=(2, 3)), SampleSet(ids=[1, 2, 9]))
    with pytest.raises(ValueError, match="share one sample set"):
        combined(x, other, 0.0)


# --- results
def test_several_results_are_nested_as_the_function_nests_them(rng):
    x = Ensemble(rng.normal(size=(2, 3)))

    @fuse
    def f(x):
        return {"both": (x + 1.0, [x * 2.0]), "sign": x > 0.0, "same": x, "one": 1.0}

    got = f(x)
    assert_same_bits(got["both"][0].samples, x.samples + 1.0)
    assert_same_bits(got["both"][1][0].samples, x.samples * 2.0)
    assert_same_bits(got["sign"].samples, x.samples > 0.0)
    assert_same_bits(got["same"].samples, x.samples)
    assert got["one"].shape == (2,)


def test_out_is_written_into(rng):
    x, y = (Ensemble(rng.normal(size=(5, 6))) for _ in range(2))
    out = Ensemble(np.empty((5, 6)))
    expected = x.samples * y.samples - 1.0
    assert combined(x, y, 1.0, out=out) is out
    assert_same_bits(out.samples, expected)
    combined(x, y, 1.0, out=x)
    assert_same_bits(x.samples, expected)


def test_out_may_be_a_view(rng):
    x = rng.normal(size=(5, 6))
    whole = np.zeros((5, 12))
    combined(x, 2.0, 0.0, out=whole[:, ::2])
    assert_same_bits(whole[:, ::2], x * 2.0)
    assert not whole[:, 1::2].any()


def test_out_that_overlaps_an_operand_changes_nothing_too_early(rng):
    memory = rng.normal(size=5001)
    expected = memory[:-1] * 2.0 - memory[:-1]
    combined(memory[:-1], 2.0, memory[:-1], out=memory[1:])
    assert_same_bits(memory[1:], expected)
    column = rng.normal(size=(6, 4))
    expected = column * column[0] - 1.0
    combined(column, column[0], 1.0, out=column)
    assert_same_bits(column, expected)


def test_out_of_the_wrong_kind_is_refused(rng):
    x = Ensemble(rng.normal(size=(2, 3)))
    with pytest.raises(TypeError, match="out must be an Ensemble; got an ndarray"):
        combined(x, x, x, out=np.empty((2, 3)))
    with pytest.raises(
        ValueError, match=r"out must have shape \(2, 3\) and dtype float64, samples last; got shape \(2, 1\)"
    ):
        combined(x, x, x, out=Ensemble(np.empty((2, 1))))
    with pytest.raises(ValueError, match="float32"):
        combined(x, x, x, out=Ensemble(np.empty((2, 3), np.float32)))
    with pytest.raises(ValueError, match="out must be nested like the result; got 2 arrays"):
        combined(x, x, x, out=(x, x))


@pytest.mark.parametrize("n", [pytest.param(8192, marks=pytest.mark.slow), 40_003])
def test_results_written_past_the_caches_are_the_same(n, rng, monkeypatch):
    @fuse
    def f(x, y, i):
        return x * y + 1.0, x - y, i + i, i < 3

    x = Ensemble(rng.normal(size=(n, 8)))
    y = Ensemble(rng.normal(size=(n, 1)).astype(np.float32))
    i = Ensemble(rng.integers(-9, 9, 8).astype(np.int32))
    expected = f.original(x.samples, y.samples, i.samples + np.zeros((n, 1), np.int32))
    monkeypatch.setattr(_fused, "STREAMED", -1)
    for got, one in zip(f(x, y, i), expected, strict=True):
        assert_same_bits(got.samples, one)
    three = fuse(lambda x, y, i: f.original(x, y, i)[:3])
    for got, one in zip(three(x, y, i), expected, strict=False):
        assert_same_bits(got.samples, one)
    memory = empty((n, 8), np.float64)
    memory[...] = x.samples
    combined(memory, memory, 1.0, out=memory)
    assert_same_bits(memory, x.samples * x.samples - 1.0)


@pytest.mark.parametrize("n", [1000, 1 << 17])
def test_functions_that_differ_in_one_operation_are_kernels_of_their_own(n):
    # The loops around the two bodies read alike; they are shared by threads from some size on.
    twice, thrice = fuse(lambda x: x * 2.0 + 1.0), fuse(lambda x: x * 3.0 + 1.0)
    x = np.linspace(0.5, 1.0, n)
    np.testing.assert_array_equal(twice(x), x * 2.0 + 1.0)
    np.testing.assert_array_equal(thrice(x), x * 3.0 + 1.0)
