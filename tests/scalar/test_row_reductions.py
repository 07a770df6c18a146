"""Reductions, products and entries of samples side by side: the bits of each sample's own call, both ways."""

import numpy as np
import pytest

from ensemble._kernels.arrays import picks, scans, sums, transposes
from ensemble.scalar import Ensemble, plain_arrays
from tests.conftest import examples
from tests.scalar.law_cases import names

pytestmark = pytest.mark.usefixtures("nothing_is_left_to_numba")

SHAPES = [1, 2, 3, 7, 8, 9, 16, 40, 127, 129, 300, 777]
SAMPLES = [1, 2, 3, 8, 9, 33]

TO_THE_BIT = names(
    "sum mean std var max min ptp any all count_nonzero argmax argmin nanmax nanmin cumsum cumprod trapezoid "
    "add.reduce add.accumulate multiply.accumulate maximum.reduce logical_and.reduce add.reduceat isin trim_zeros "
    "histogram_bin_edges sort argsort"
)

CALLS = {
    "trapezoid": lambda x, **more: np.trapezoid(x, dx=0.3),
    "add.reduceat": lambda x, **more: np.add.reduceat(x, [0, len(x) // 2, len(x) // 2]),
    "isin": lambda x, **more: np.isin(x, x.reshape(-1)[:5]),
    "histogram_bin_edges": lambda x, **more: np.histogram_bin_edges(x, 7),
    "sort": lambda x, **more: np.sort(x, axis=0),
    "argsort": lambda x, **more: np.argsort(x, axis=0, kind="stable"),
}


def named(name):
    """A function of NumPy by its name, also that of a ufunc's method."""
    if name in CALLS:
        return CALLS[name]
    first, _, method = name.partition(".")
    return getattr(getattr(np, first), method) if method else getattr(np, first)


def drawn(rng, dtype):
    """An array of samples, in the order of memory that one sample alone has."""
    shape = [int(rng.choice(SHAPES)) for _ in range(rng.integers(1, 3))]
    while np.prod(shape) > 40_000:
        shape.pop()
    x = rng.normal(size=(*shape, int(rng.choice(SAMPLES))))
    if rng.random() < 0.2:
        x = np.round(x)
    if dtype in "fd" and rng.random() < 0.2:
        x[rng.random(x.shape) < 0.02] = rng.choice([np.nan, np.inf, -0.0])
    return (x > 0.3 if dtype == "?" else 3.0 * x).astype(dtype)


def options_for(rng, name, n_axes):
    if name in CALLS or name == "trim_zeros":
        return {}
    options = {}
    if rng.random() < 0.5 and name not in ("cumsum", "cumprod"):
        options["axis"] = int(rng.integers(-n_axes, n_axes))
    elif "." not in name and not name.startswith(("arg", "cum")) and rng.random() < 0.3:
        options["axis"] = tuple(int(k) for k in rng.permutation(n_axes))
    if rng.random() < 0.3 and not name.startswith("cum") and not name.endswith("accumulate"):
        options["keepdims"] = True
    if name in ("std", "var") and rng.random() < 0.3:
        options["ddof"] = 1
    return options


@pytest.fixture(params=["without Numba", "compiled"])
def way(request, monkeypatch):
    """Either way of the same bits: NumPy's calls, or compiled loops."""
    compiled = request.param == "compiled"
    for module in (plain_arrays, *_users()):
        monkeypatch.setattr(module, "compiled_rows", lambda n: compiled)
    monkeypatch.setattr(plain_arrays, "LARGE_STACK", 1 << 10)
    for module in _users():
        monkeypatch.setattr(module, "LARGE_ROWS", 1 << 10)


def _users():
    from ensemble.scalar import own_places, row_reductions

    return row_reductions, own_places


def same(got, expected):
    expected = np.asarray(expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert np.array_equal(got, expected, equal_nan=expected.dtype.kind in "fc")


def test_each_sample_of_a_reduction_has_the_bits_of_its_own(way):
    rng = np.random.default_rng(50231)
    for k in range(examples(600)):
        name = TO_THE_BIT[k % len(TO_THE_BIT)]
        dtype = str(rng.choice(list("ddf" if name in ("mean", "std", "var", "trapezoid") else "ddfil?")))
        x = drawn(rng, dtype)
        columns = [x[..., s].copy() for s in range(x.shape[-1])]
        options, f = options_for(rng, name, x.ndim - 1), named(name)
        try:
            with np.errstate(all="ignore"):
                expected = [f(column, **options) for column in columns]
                shapes = {np.shape(e) for e in expected}
                got = f(Ensemble(x), **options) if len(shapes) == 1 else None
        except (ValueError, TypeError, IndexError):  # NumPy refuses booleans in `ptp`, empty parts
            continue
        for s, one in enumerate(expected if got is not None else []):
            same(got.samples[..., s], one)


FORMS = names("i,i-> i,i->i i,j->ij ij->i ij-> ii-> ij,j->i j,ij->i ij,ij->i i,ij,j-> ij,jk->ik ij,ij->ij i,i,i->")


@pytest.mark.parametrize("dtype", "df")
def test_products_are_those_of_each_sample(way, dtype):
    """Sums of products in an order that no library promises: equal to rounding, entry by entry to the bit."""
    rng = np.random.default_rng(61417)
    near = {"rtol": 2e-4, "atol": 2e-3} if dtype == "f" else {"rtol": 1e-12, "atol": 1e-11}
    for k in range(examples(200)):
        form, n_samples = FORMS[k % len(FORMS)], int(rng.choice(SAMPLES[1:]))
        lengths = {letter: int(rng.choice([1, 2, 3, 9, 40])) for letter in "ijk"}
        own = [1 if rng.random() < 0.2 else n_samples for _ in form.partition("->")[0].split(",")]
        given = [
            rng.normal(size=(*(lengths[letter] for letter in part), n)).astype(dtype)
            for part, n in zip(form.partition("->")[0].split(","), own, strict=True)
        ]
        got = np.einsum(form, *(Ensemble(x) for x in given))
        for s in range(got.n_samples):
            alone = np.einsum(form, *(x[..., s if x.shape[-1] > 1 else 0].copy() for x in given))
            np.testing.assert_allclose(got.samples[..., s], alone, **near)
            if form in ("i,i->i", "i,j->ij", "ij,ij->ij"):
                same(got.samples[..., s], alone)


PRODUCTS = {
    "dot": lambda a, b, x: np.dot(a, x),
    "matmul": lambda a, b, x: a @ b,
    "vdot": lambda a, b, x: np.vdot(x, x),
    "vecdot": lambda a, b, x: np.vecdot(b.T, x),
    "inner": lambda a, b, x: np.inner(a, b.T),
    "tensordot": lambda a, b, x: np.tensordot(a, b, ([1], [0])),
    "multi_dot": lambda a, b, x: np.linalg.multi_dot([a, b, b.T]),
    "norm": lambda a, b, x: np.linalg.norm(a),
    "power": lambda a, b, x: np.linalg.matrix_power(a @ a.T, 3),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices_are_those_of_each_sample(way, name):
    rng = np.random.default_rng(71887)
    for m, n, n_samples in ((1, 1, 2), (3, 5, 9), (20, 30, 33)):
        for shared in (False, True):
            a, b = rng.normal(size=(m, n, n_samples)), rng.normal(size=(n, m, 1 if shared else n_samples))
            x = rng.normal(size=(n, n_samples))
            got = PRODUCTS[name](Ensemble(a), Ensemble(b), Ensemble(x))
            for s in range(n_samples):
                alone = PRODUCTS[name](a[..., s].copy(), b[..., 0 if shared else s].copy(), x[:, s].copy())
                np.testing.assert_allclose(got.samples[..., s], alone, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_entries_at_places_of_each_samples_own(way, dtype):
    rng = np.random.default_rng(80153)
    values, places = (9.0 * rng.normal(size=(200, 33))).astype(dtype), rng.integers(-200, 200, (200, 33))
    x, p = Ensemble(values.copy()), Ensemble(places)
    for got in (x[p], np.take_along_axis(x, p, 0)):
        for s in range(33):
            same(got.samples[:, s], values[places[:, s], s])
    np.put_along_axis(x, p, 7, 0)
    for s in range(33):
        expected = values[:, s].copy()
        expected[places[:, s]] = 7
        same(x.samples[:, s], expected)
    places[5, 5] = 200
    for call in (lambda: x[Ensemble(places)], lambda: np.put_along_axis(x, Ensemble(places), 1, 0)):
        before = x.samples.copy()
        with pytest.raises(IndexError):
            call()
        assert np.array_equal(x.samples, before)


@pytest.mark.parametrize("dtype", "fdFD")
def test_the_order_of_sums_is_numpys(dtype):
    rng = np.random.default_rng(91193)
    for n in (1, 2, 7, 8, 15, 63, 64, 65, 127, 128, 129, 257, 1000, 5003):
        x = rng.normal(size=(2, n, 5)).astype(dtype)
        x = x * (1 + 1j) if dtype in "FD" else x
        found = sums.sum_rows("x", x.astype(dtype), None, np.empty((2, 5), dtype))
        same(found, np.add.reduce(np.ascontiguousarray(x.astype(dtype).transpose(0, 2, 1)), axis=-1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex64, np.int32])
@pytest.mark.parametrize("shape", [(8, 8), (9, 70), (200, 33), (65, 64)])
def test_transposes_move_every_number(dtype, shape):
    x = np.random.default_rng(10177).normal(size=shape).astype(dtype)
    found = np.empty(shape[::-1], dtype)
    transposes.transpose(x, found)
    same(found, x.T)


def test_running_sums_and_places_of_extremes():
    rng = np.random.default_rng(11329)
    for n in (1, 2, 31, 33, 100):
        x = np.round(rng.normal(size=(3, n, 13)))
        x[rng.random(x.shape) < 0.05] = np.nan
        for product, f in ((False, np.cumsum), (True, np.cumprod)):
            same(scans.running(x, np.empty_like(x), product), f(x, axis=1))
        for largest, f in ((True, np.argmax), (False, np.argmin)):
            same(scans.extreme_places(x, np.empty((3, 13), np.int64), largest), f(x, axis=1))


def test_places_that_are_not_there_change_nothing():
    x, places = np.zeros((4, 2)), np.array([[0, 4], [1, 1]])
    assert not picks.put(x, places, 1.0) and not picks.pick(x, places, np.empty((2, 2)))
    assert not x.any()


def test_numba_waits_until_as_much_was_lost_without_it(monkeypatch):
    monkeypatch.setattr(plain_arrays, "_waiting", [100])
    monkeypatch.delitem(__import__("sys").modules, "numba", raising=False)
    assert [plain_arrays.compiled_rows(60) for _ in range(2)] == [False, True]
