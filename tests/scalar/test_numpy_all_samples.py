"""NumPy's functions for all samples at once: each sample keeps the bits of its own call."""

import tracemalloc
import warnings

import numpy as np
import pytest

from benchmarks.numpy_cases import CASES, arguments
from ensemble import DivergenceError
from ensemble.scalar import Ensemble
from ensemble.scalar.interop.numpy_batches import BATCHES
from ensemble.scalar.interop.numpy_each_sample import EACH_SAMPLE
from ensemble.scalar.interop.numpy_entries import ENTRIES
from ensemble.scalar.interop.numpy_rules import RULES
from ensemble.scalar.interop.numpy_writes import WRITES
from ensemble.scalar.plain_arrays import samples_of_stack, stack_of
from ensemble.scalar.pooled import LARGE
from tests.walked import every

SUMS = frozenset((
    "sum", "mean", "std", "var", "nansum", "nanmean", "nanstd", "dot", "vecdot", "linalg.norm", "add.reduce", "matmul",
    "A@x", "meanaxis", "stdaxis", "linalg.normaxis", "linalg.normofamatrix", "matmulsharedmatrix",
))  # fmt: skip
"""Sums whose order is the library's: equal to rounding."""

SIZES = {"vector": (10, 38), "matrix": (4, 9)}


def calls_of_each(f, given, n_samples):
    columns = [[(a[0] if isinstance(a, tuple) else a[..., s].copy()[()]) for a in given] for s in range(n_samples)]
    return columns, [f(*column) for column in columns]


def assert_same(result, alone, s, exact=True):
    if isinstance(alone, tuple | list):
        assert len(alone) == len(result)
        for part, one in zip(result, alone, strict=True):
            assert_same(part, one, s, exact)
        return
    own = result.sample(s)
    assert own.shape == np.shape(alone) and own.dtype == np.asarray(alone).dtype
    if exact:
        assert own.tobytes() == np.asarray(alone).tobytes()
    else:
        np.testing.assert_allclose(own, alone, rtol=1e-13)


@every("name", [name for name in CASES if name != "allclose"])
def test_each_sample_of_a_call_is_its_own_call(name):
    kind, f = CASES[name]
    exact = "".join(name.replace(",", "").split()) not in SUMS
    for n in SIZES[kind]:
        for n_samples in (1, 3, 8):
            given = arguments(kind, f, n, n_samples)
            lifted = [a[0] if isinstance(a, tuple) else Ensemble(a.copy()) for a in given]
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                columns, alone = calls_of_each(f, given, n_samples)
                try:
                    result = f(*lifted)
                except DivergenceError:
                    assert len({np.shape(one) for one in alone}) > 1  # another shape in another sample
                    continue
            for s in range(n_samples):
                if alone[s] is None:  # it writes to its first argument
                    assert lifted[0].sample(s).tobytes() == columns[s][0].tobytes()
                else:
                    assert_same(result, alone[s], s, exact)


def test_the_table_of_calls_has_every_function_that_is_called_for_all_or_for_each_sample():
    text = " ".join(name for _, f in CASES.values() for name in f.__code__.co_names)
    named = set(text.split())
    functions = {f.__name__ for table in (BATCHES, ENTRIES, WRITES) for f in table}
    assert sorted(functions - named) == []
    assert len({name.rpartition(".")[2] for name in EACH_SAMPLE} - named) < 60
    assert len({f.__name__ for f in RULES} - named) < 60


CALLS_LEFT_TO_EACH_SAMPLE = {
    "a step of zero in one sample": lambda x, y: np.linspace(x[0], np.where(y[0] > 0.5, x[0], y[0]), 7),
    "NaN in one sample": lambda x, y: np.nanmedian(np.where(y > 0.5, np.nan, x)),
    "a product of three factors": lambda x, y: np.einsum("i,i,j->j", x, y, x),
    "more entries than a buffer": lambda x, y: np.einsum("i,i->", np.tile(x, 900), np.tile(y, 900)),
    "a matrix in another order of memory": lambda x, y: np.trapezoid(np.outer(x, y).T, axis=0),
    "weights along an axis": lambda x, y: np.average(np.outer(x, y), axis=1, weights=y),
    "spacing of each sample": lambda x, y: np.gradient(y, np.cumsum(x)),
    "complex numbers": lambda x, y: np.outer(x + 1j * y, y),
    "float32": lambda x, y: np.vander(x.astype(np.float32), 3),
    "a slice with a step": lambda x, y: np.convolve(x[::-2], y[1::3]),
    "a matrix beside a vector": lambda x, y: np.kron(np.outer(x, y), x[:3]),
    "shared beside samples": lambda x, y: np.searchsorted(np.sort(x), np.linspace(0.0, 1.0, 5)),
    "one number to be found": lambda x, y: np.searchsorted(np.sort(x), y[0]),
    "a stack of three": lambda x, y: np.vstack([x, y, np.ones(10)]),
    "a column": lambda x, y: np.column_stack([x, np.outer(y, y[:2])]),
    "widths for each side": lambda x, y: np.pad(np.outer(x, y), ((1, 2), (0, 3)), "reflect"),
    "a mean around": lambda x, y: np.pad(x, 3, "mean"),
}


@pytest.mark.parametrize("name", list(CALLS_LEFT_TO_EACH_SAMPLE))
def test_other_forms_of_a_call_give_each_sample_its_own(name):
    f = CALLS_LEFT_TO_EACH_SAMPLE[name]
    given = arguments("vector", lambda x, y: None, 10, 6)
    with np.errstate(all="ignore"):
        result = f(*map(Ensemble, given))
        _, alone = calls_of_each(f, given, 6)
    for s in range(6):
        assert_same(result, alone[s], s)


WRONG = {
    "shapes that do not broadcast": lambda x, y: np.cross(x[:4], y[:3]),
    "an axis that is not there": lambda x, y: np.trapezoid(x, axis=3),
    "letters that do not fit": lambda x, y: np.einsum("ij,j->i", x, y),
    "a table that is no vector": lambda x, y: np.searchsorted(np.outer(x, y), y),
    "an option that is not there": lambda x, y: np.outer(x, y, axis=1),
    "places beyond the end": lambda x, y: np.put(x, [40], 1.0),
    "an empty vector": lambda x, y: np.convolve(x[:0], y),
    "too few entries": lambda x, y: np.gradient(x[:1]),
    "numbers below zero": lambda x, y: np.bincount((x * 10).astype(int) - 20),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_raises_for_a_sample_raises_the_same_for_all(name):
    given = arguments("vector", lambda x, y: None, 10, 6)
    with pytest.raises(Exception) as alone:
        WRONG[name](*(a[:, 0].copy() for a in given))
    with pytest.raises(type(alone.value)):
        WRONG[name](*map(Ensemble, given))


@pytest.mark.parametrize("exponents", [[2.0, 0.5, -1.0, 1.7, 2.0], [2.0] * 5, [2.0], [0.5], [3.0, 1.1, 2.0, 0.0, 5.5]])
@pytest.mark.parametrize("shape", [(4,), (3, 5), (4, 1)])
def test_a_power_of_each_sample_has_the_bits_of_its_own(shape, exponents):
    x = np.random.default_rng(5).random((*shape, 5))
    p = np.array(exponents)
    for base in (x, x[..., :1].copy()):
        result = Ensemble(base) ** Ensemble(p)
        for s in range(result.n_samples):
            alone = base[..., s % base.shape[-1]].copy() ** np.asarray(p[s % p.size])
            assert result.sample(s).tobytes() == alone.tobytes()


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x * 2 + x,
        lambda x, y: 3 - x / y,
        lambda x, y: -abs(x - y),
        lambda x, y: np.maximum(np.sqrt(x), y),
        lambda x, y: x < y,
        lambda x, y: x + y[0],
        lambda x, y: x.T + y.T,
        lambda x, y: x.astype(np.float32) + y.astype(np.float32),
        lambda x, y: x + 2**70,
    ],
)
def test_large_results_have_the_values_and_the_order_of_memory_of_numpy(f):
    rng = np.random.default_rng(8)
    x, y = rng.random((2, 40, 30, LARGE // 1000))
    result = f(Ensemble(x), Ensemble(y)).samples
    plain = [f(x[..., s].copy(), y[..., s].copy()) for s in range(3)]
    assert result.dtype == plain[0].dtype
    for s in range(3):
        assert result[..., s].tobytes() == plain[s].tobytes()


def test_an_expression_of_large_arrays_allocates_once():
    x = Ensemble(np.random.default_rng(9).random((4000, 32)))
    kept = x * 2 + x
    del kept
    tracemalloc.start()
    for _ in range(5):
        x * 2 + x
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.samples.nbytes // 4


@pytest.mark.parametrize("shape", [(3,), (5000,), (40, 50), (129, 3, 7)])
def test_a_stack_of_samples_and_back_are_copies_of_the_same_numbers(shape):
    x = np.random.default_rng(3).random((*shape, 33))
    stack = stack_of(x)
    assert stack.flags.c_contiguous and np.array_equal(stack, np.moveaxis(x, -1, 0))
    back = samples_of_stack(stack)
    assert back.flags.c_contiguous and np.array_equal(back, x) and not np.shares_memory(stack, back)
    assert np.array_equal(stack_of(x[::2]), np.moveaxis(x[::2], -1, 0))
