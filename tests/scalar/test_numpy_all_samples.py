"""NumPy's functions for all samples at once: each sample keeps the bits of its own call."""

import tracemalloc
import warnings

import numpy as np
import pytest

from benchmarks.numpy_cases import CASES, arguments
from ensemble import DivergenceError
from ensemble.scalar import Ensemble
from ensemble.scalar.interop import numpy_functions
from ensemble.scalar.interop.numpy_batches import BATCHES
from ensemble.scalar.interop.numpy_each_sample import EACH_SAMPLE
from ensemble.scalar.interop.numpy_entries import ENTRIES
from ensemble.scalar.interop.numpy_products import PRODUCTS
from ensemble.scalar.interop.numpy_rules import RULES
from ensemble.scalar.interop.numpy_searches import SEARCHES
from ensemble.scalar.interop.numpy_writes import WRITES
from ensemble.scalar.plain_arrays import samples_of_stack, stack_of
from ensemble.scalar.pooled import LARGE
from tests.walked import every

SUMS = frozenset((
    "nansum", "nanmean", "nanstd", "dot", "vecdot", "vdot", "inner", "linalg.norm", "matmul", "A@x", "einsumii->",
    "einsumij->i", "einsumijj->i", "einsumiijj->", "linalg.normofamatrix", "matmulsharedmatrix",
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
    functions = {f.__name__ for table in (BATCHES, PRODUCTS, ENTRIES, SEARCHES, WRITES) for f in table}
    assert sorted(functions - named) == []
    assert len({name.rpartition(".")[2] for name in EACH_SAMPLE} - named) < 60
    assert len({f.__name__ for f in RULES} - named) < 60


CALLS_LEFT_TO_EACH_SAMPLE = {
    "a step of zero in one sample": lambda x, y: np.linspace(x[0], np.where(y[0] > 0.5, x[0], y[0]), 7),
    "NaN in one sample": lambda x, y: np.nanmedian(np.where(y > 0.5, np.nan, x)),
    "a product of three factors": lambda x, y: np.einsum("i,i,j->j", x, y, x),
    "more entries than a buffer": lambda x, y: np.einsum(
        "ij,ik->jk", np.outer(np.tile(y, 90), x), np.outer(np.tile(x, 90), y)
    ),
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


OTHER_CALLS_OF_ONE_SAMPLE = {
    "several results": lambda x, y: np.gradient(np.outer(x, y)),
    "results with names": lambda x, y: (np.linalg.eigh(np.outer(x, x)), np.linalg.qr(np.outer(x, y))),
    "a matrix that is singular": lambda x, y: np.linalg.cond(np.outer(x, y) * 0.0),
    "axes by name": lambda x, y: np.median(np.outer(x, y), axis=0, keepdims=True),
    "a type by name": lambda x, y: np.cumsum(x, dtype=np.float32),
    "a value": lambda x, y: np.searchsorted(np.sort(x), y[0]),
    "an array without axes": lambda x, y: np.clip(np.reshape(x[0], ()), 0.0, 0.5),
    "a choice of numbers": lambda x, y: (np.where(x[0] > 0.5, x[0], 1.0), np.cov(x), np.clip(x[0], 0.0, 0.5)),
    "forms of a number": lambda x, y: (np.sort(x[:1]), np.full_like(x[0], 2.0), np.zeros_like(x[0]), np.copy(x[0])),
    "numbers of a number": lambda x, y: (np.cumsum(x[0]), np.around(x[0], 1), np.angle(x[0]), np.unwrap(x[:1])),
    "sums of a number": lambda x, y: (np.sum(x[0]), np.max(x[0]), np.median(x[0]), np.any(x[0]), np.diff(x[:1])),
    "a list of vectors": lambda x, y: np.vstack([x, y, np.ones(10)]),
    "places that are found": lambda x, y: (np.argwhere(x > 0.5), np.flatnonzero(x > 0.5), np.where(x > 0.5)),
    "a view": lambda x, y: (np.diag(np.outer(x, y)), np.trim_zeros(x), np.resize(x, 3)),
    "the argument itself": lambda x, y: (np.real_if_close(x), np.delete(x, []), np.take(x, slice(None).indices(3))),
    "an argument to be overwritten": lambda x, y: (np.median(x, overwrite_input=True), x.copy()),
    "a result to be written": lambda x, y: np.cumsum(x, out=y),
    "a result to be written by place": lambda x, y: np.clip(x, 0.2, 0.8, y),
    "a copy refused": lambda x, y: (np.nan_to_num(x, copy=False), x),
    "a function of the user's": lambda x, y: np.apply_along_axis(lambda v: v[:2] * 2.0, 0, x),
    "text": lambda x, y: np.pad(x, 2, mode="wrap"),
    "complex numbers": lambda x, y: np.angle(x + 1j * y),
    "integers": lambda x, y: (np.bincount((x * 5).astype(int)), np.packbits(x > 0.5), np.iscomplex(x)),
    "sets": lambda x, y: (np.union1d(x, y), np.intersect1d(x, x, return_indices=True), np.setdiff1d(x, y[:3])),
    "bins": lambda x, y: (np.histogram(x, 4), np.histogram2d(x, y, 3), np.digitize(x, [0.2, 0.6])),
    "weights": lambda x, y: np.average(x, weights=y, returned=True),
    "a fit with its residuals": lambda x, y: np.polyfit(x, y, 1, full=True)[:2],
}


def seen(result):
    """All that tells one result from another, its bits included."""
    if isinstance(result, tuple | list):
        return type(result), [seen(part) for part in result]
    if not isinstance(result, Ensemble):
        return type(result), repr(result)
    samples = result.samples
    kind = samples.dtype, samples.shape, samples.flags.writeable, result.sample_set
    return *kind, result.is_value, samples.tobytes()


@every("name", [*CASES, *CALLS_LEFT_TO_EACH_SAMPLE, *OTHER_CALLS_OF_ONE_SAMPLE])
def test_one_sample_alone_gives_what_the_rules_for_several_give(name):
    """The call on the plain arrays of one sample is a short cut, and nothing tells that it was taken."""
    kind, f = CASES.get(name, ("vector", {**CALLS_LEFT_TO_EACH_SAMPLE, **OTHER_CALLS_OF_ONE_SAMPLE}.get(name)))
    for n in SIZES[kind]:
        given = arguments(kind, f if name in CASES else lambda x, y: None, n, 1)
        if name not in CASES and n != 10:
            continue
        found = []
        for alone in (numpy_functions.ALONE, frozenset()):
            lifted = [a[0].copy() if isinstance(a, tuple) else Ensemble(a.copy()) for a in given]
            with warnings.catch_warnings(), np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
                warnings.simplefilter("ignore")
                patch.setattr(numpy_functions, "ALONE", alone)
                found.append((seen(f(*lifted)), [seen(a) for a in lifted]))
                for a in lifted:
                    a[...] = 0.0
            found[-1] += tuple(seen(a) for a in lifted)
        assert found[0] == found[1], n


@pytest.mark.parametrize("dtype", ["float64", "int16", "complex64"])
def test_the_place_of_the_largest_entry_of_many_is_that_of_each_sample(dtype):
    x = (np.random.default_rng(3).random((6000, 8)) * 50.0).astype(dtype)
    if dtype != "int16":
        x[70, 2] = x[7, 2] = np.nan
    for f in (np.argmax, np.argmin):
        assert f(Ensemble(x)).samples.tolist() == [int(f(x[:, s])) for s in range(8)]
    if dtype == "float64":
        assert np.nanargmax(Ensemble(x)).samples.tolist() == [int(np.nanargmax(x[:, s])) for s in range(8)]


def test_one_sample_takes_the_short_cut(monkeypatch):
    def refuse(*_):
        raise AssertionError("rules for several samples")

    monkeypatch.setattr(numpy_functions, "_lifted", refuse)
    monkeypatch.setattr(numpy_functions, "on_each_sample", refuse)
    monkeypatch.setattr(numpy_functions, "TABLES", ())
    x = Ensemble(np.random.default_rng(3).random((10, 1)))
    for f in (np.cov, np.sort, np.mean, np.unique, lambda x: np.polyfit(x, x, 1), lambda x: np.concatenate([x, x])):
        f(x)
    with pytest.raises(AssertionError, match="rules"):
        np.cov(Ensemble(np.random.default_rng(3).random((10, 2))))


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
