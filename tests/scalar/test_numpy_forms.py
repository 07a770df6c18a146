"""Functions of NumPy whose meaning depends on the number or the kind of their arguments, or that write to one."""

import warnings

import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble.scalar import DivergenceError, Ensemble, run
from tests.scalar.libraries import double_precision
from tests.scalar.numpy_calls import Call, Own, compared

RNG = np.random.default_rng(52807)
X, Y = Own(RNG.normal(size=(5, 3))), Own(np.sort(RNG.normal(size=(5, 3)), axis=0))
A, Q = Own(RNG.normal(size=(3, 4, 3))), Own(RNG.normal(size=(4, 4, 3)))
I = Own(RNG.integers(0, 4, size=(5, 3)))  # noqa: E741
M = Own(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]], dtype=bool))
P = Own(RNG.normal(size=(3, 3)))
V = Own(RNG.uniform(1.0, 2.0, size=3))
B = Own(RNG.normal(size=(5, 3)) > 0.0)
PADDED = Own(np.array([[0.0] * 3, [1.0, 2.0, 3.0], [0.0] * 3]))
T = np.arange(5.0)
windows = np.lib.stride_tricks.sliding_window_view

FORMS = {
    "where, one argument": (lambda m: np.where(m), M),
    "where, one argument of two axes": (lambda a: np.where(a), A),
    "where, three arguments": (lambda m, x: np.where(m, x, 0.0), M, X),
    "where, a list": (lambda x: np.where([True, False, True, True, False], x, -x), X),
    "index by where": (lambda x, m: x[np.where(m)], X, M),
    "clip, one limit": (lambda x: np.clip(x, 0.3, None), X),
    "clip, by name": (lambda x: np.clip(x, max=0.0), X),
    "clip, out by place": (lambda x: np.clip(x, 0.0, 1.0, x), X),
    "round, decimals": (lambda x: np.round(x, 1), X),
    "round, out": (lambda x: np.round(x, 0, x), X),
    "fix, out": (lambda x: np.fix(x, x), X),
    "sum, axis by place": (lambda a: np.sum(a, 1), A),
    "sum, initial": (lambda x: np.sum(x, initial=3.0), X),
    "sum, axis of a value": (lambda v: np.sum(v, axis=0), V),
    "unique, all returns": (lambda x: np.unique(x, True, True, True), X),
    "unique, axis": (lambda x: np.unique(x, axis=0), X),
    "histogram, edges": (lambda x: np.histogram(x, [-3.0, 0.0, 3.0]), X),
    "histogram, weights": (lambda x: np.histogram(T, 4, weights=x), X),
    "histogram, bins": (lambda x: np.histogram(x, 3, density=True), X),
    "histogram_bin_edges": (lambda x: np.histogram_bin_edges(x, 3), X),
    "ix_": (lambda i: np.ix_(i, [0, 1]), I),
    "index by ix_": (lambda a, i: a[np.ix_(i[:2] % 3, [0, 1])], A, I),
    "take, mode": (lambda x, i: np.take(x, i + 9, mode="wrap"), X, I),
    "take, out": (lambda x: np.take(x, [0, 1], out=np.zeros_like(x[:2])), X),
    "choose, mode": (lambda i, x: np.choose(i + 2, [x, x + 1.0], mode="clip"), I, X),
    "select, default": (lambda x: np.select([x > 1.0, x > 0.0], [x, 2.0 * x], default=-7.0), X),
    "piecewise, functions": (lambda x: np.piecewise(x, [x > 0.0], [lambda t: 2.0 * t, lambda t: -t]), X),
    "piecewise, a value": (lambda v: np.piecewise(v, [v > 1.5], [1.0, 2.0]), V),
    "searchsorted, sorter": (lambda x: np.searchsorted(x, [0.1, 0.5], sorter=np.argsort(x)), X),
    "gradient, spacings": (lambda a: np.gradient(a, 0.5, 2.0), A),
    "gradient, places": (lambda x, y: np.gradient(x, y), X, Y),
    "diff, prepend": (lambda x, v: np.diff(x, prepend=v), X, V),
    "diff, by place": (lambda x: np.diff(x, 1, -1, 0.0, x[:1]), X),
    "norm, axes and keepdims": (lambda a: np.linalg.norm(a, axis=(1, 0), keepdims=True), A),
    "norm, ord and axis": (lambda a: np.linalg.norm(a, 1, (0, 1)), A),
    "norm, a matrix": (lambda a: np.linalg.norm(a, 2), A),
    "cross, axis": (lambda a: np.cross(a, a[:, ::-1], axis=0), A),
    "cross, axes by place": (lambda a: np.cross(a, a[:, ::-1], 0, 0, 0), A),
    "interp, period": (lambda x: np.interp(x, T, T**2, period=2.0), X),
    "logspace": (lambda v: np.logspace(v, v + 2.0, 4), V),
    "logspace, base": (lambda v: np.logspace(0.0, 1.0, 3, base=v), V),
    "geomspace": (lambda v: np.geomspace(v, 9.0, 4), V),
    "geomspace, vectors": (lambda x: np.geomspace(x**2 + 1.0, 9.0, 3, axis=-1), X),
    "linspace, retstep": (lambda v: np.linspace(v, 2.0, 4, retstep=True), V),
    "cumsum, out": (lambda x: np.cumsum(x, out=np.zeros_like(x)), X),
    "cumsum, in place": (lambda x: np.cumsum(x, None, None, x), X),
    "cumprod, out": (lambda a: np.cumprod(a, 1, out=np.zeros_like(a)), A),
    "nancumsum, out": (lambda x: np.nancumsum(x, out=x), X),
    "x.cumsum, out": (lambda x: x.cumsum(out=x), X),
    "dot, out": (lambda q: np.dot(q, q, np.zeros_like(q)), Q),
    "einsum, out": (lambda q: np.einsum("ij->ji", q, out=np.zeros_like(q)), Q),
    "concatenate, out": (lambda x: np.concatenate([x, x], out=np.zeros_like(np.append(x, x))), X),
    "concatenate, dtype": (lambda x: np.concatenate([x, x], dtype=np.float32), X),
    "sliding_window_view": (lambda a: windows(a, (2, 2)), A),
    "sliding_window_view, axis": (lambda a: windows(a, 2, axis=1), A),
    "put": (lambda x: np.put(x, [0, 1], [9.0, 8.0]), X),
    "put, places of each sample": (lambda x, i: np.put(x, i, -1.0), X, I),
    "put_along_axis": (lambda a: np.put_along_axis(a, np.argsort(a, 1)[:, :1], 9.0, 1), A),
    "putmask": (lambda x, y: np.putmask(x, x > 0.0, y), X, Y),
    "place": (lambda x: np.place(x, x > 0.0, [1.0, 2.0]), X),
    "fill_diagonal": (lambda q, v: np.fill_diagonal(q, v), Q, V),
    "fill_diagonal, wrap": (lambda a: np.fill_diagonal(a.T, [1.0, 2.0], wrap=True), A),
    "nan_to_num, no copy": (lambda x: np.nan_to_num(x, copy=False), X),
    "eigh, UPLO": (lambda q: np.linalg.eigh(q, "U"), Q),
    "qr, raw": (lambda q: np.linalg.qr(q, "raw"), Q),
    "matrix_rank, tolerance": (lambda a: np.linalg.matrix_rank(a, 0.5), A),
    "packbits": (lambda m: np.packbits(m), M),
    "trim_zeros": (np.trim_zeros, PADDED),
    "polyval of ensembles": (lambda x: np.polyval(x, 0.5), X),
    "reshape, columns first": (lambda a: a.reshape(4, 3, order="F"), A),
    "flat": (lambda a: a.flat[3:5], A),
    "tril_indices_from": (lambda q: q[np.tril_indices_from(q)], Q),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_a_function_is_that_of_each_sample(name):
    function, *arguments = FORMS[name]
    outcome = compared(Call(name, function, tuple(arguments), exact=False))
    if "where" in name and outcome.startswith(("refused: DivergenceError", "some raise")):
        return  # as many entries in every sample are not given here
    assert outcome == "equal"


def test_where_of_one_mask_is_nonzero_by_every_route(base):
    values = np.array([[1.0, 2.0, 0.0], [0.0, 5.0, 6.0], [7.0, 0.0, 9.0]])
    x = Ensemble(base.asarray(values))
    xp = x.__array_namespace__()
    routes = [lambda: xp.nonzero(x), lambda: x.nonzero()]
    routes += [lambda: np.where(x), lambda: np.nonzero(x)] if base is np else []
    for route in routes:
        (places,) = route()
        assert places.shape == (2,) and places.n_samples == 3
        np.testing.assert_array_equal(to_numpy(places.samples), [[0, 0, 1], [2, 1, 2]])
    with pytest.raises(DivergenceError, match="shape of nonzero"):
        np.where(Ensemble(values > 0.0)[:2]) if base is np else xp.nonzero(x[:2])


def test_where_of_one_mask_with_torch():
    torch = pytest.importorskip("torch")
    x = Ensemble(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    (places,) = torch.where(x > 0.0)
    np.testing.assert_array_equal(places.samples.numpy(), [[0, 1]])
    np.testing.assert_array_equal(torch.where(x > 0.0, x, -1.0).samples.numpy(), [[1.0, -1.0], [-1.0, 2.0]])


def test_where_of_one_mask_runs_on_each_sample():
    x = Ensemble(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, -6.0], [7.0, 8.0, 9.0]]))
    result = run(lambda v: np.where(v > 0.0)[0], x)
    for s in range(3):
        np.testing.assert_array_equal(result.value[s], np.where(x.sample(s) > 0.0)[0])


@pytest.mark.parametrize("function", [np.where, np.choose, np.select])
def test_too_few_arguments_are_refused_as_by_numpy(function):
    x = Ensemble(np.ones((3, 3), dtype=int))
    arguments = (x, x) if function is np.where else (x,)
    with pytest.raises((TypeError, ValueError)):
        function(*arguments)


def test_a_failed_write_leaves_every_sample_as_it_was():
    x = Ensemble(np.arange(6.0).reshape(2, 3))
    places = Ensemble(np.array([[0, 1, 5]]))
    with pytest.raises(IndexError):
        np.put(x, places, -1.0)
    np.testing.assert_array_equal(x.samples, np.arange(6.0).reshape(2, 3))


def test_a_write_widens_shared_data_and_refuses_plain_arrays():
    x, v = Ensemble(np.zeros((3, 1))), Ensemble(np.array([1.0, 2.0]))
    np.put(x, [1], v)
    np.testing.assert_array_equal(x.samples, [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    with pytest.raises(TypeError, match=r"np\.put: a must be an Ensemble; got an ndarray. A plain array cannot hold"):
        np.put(np.zeros(3), [1], v)


@pytest.mark.parametrize("name", ["lstsq", "cond", "eigh", "pinv"])
def test_a_matrix_that_a_method_cannot_treat_leaves_the_other_samples_alone(name):
    values = np.stack([np.eye(2), np.full((2, 2), np.nan), 2.0 * np.eye(2)], axis=-1)
    x = Ensemble(values)
    call = {
        "lstsq": lambda a: np.linalg.lstsq(a, np.ones(2), rcond=None)[0],
        "cond": np.linalg.cond,
        "eigh": lambda a: np.linalg.eigh(a, "U")[0],
        "pinv": np.linalg.pinv,
    }[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = call(x)
    for s in (0, 2):
        np.testing.assert_array_equal(got.sample(s), call(x.sample(s)))
    assert np.all(np.isnan(got.sample(1)))


# -- indices -----------------------------------------------------------------------------------------------------------

FLOATS = {
    "whole": np.array([0.0, 1.0, 2.0]),
    "not whole": np.array([0.0, 1.0, 1.5]),
    "agreed": np.array([1.0, 1.0, 1.0]),
    "nan": np.array([0.0, np.nan, 1.0]),
    "vector": np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]),
    "complex": np.array([0.0, 1.0, 2.0]) + 0j,
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_no_indices(name, base):
    x, k = Ensemble(base.asarray(np.arange(12.0).reshape(4, 3))), Ensemble(base.asarray(FLOATS[name]))
    before = to_numpy(x.samples).copy()
    for key in (k, (k, ...), (..., k)):
        with pytest.raises(IndexError, match="an index must hold integers or bools"):
            x[key]
        with pytest.raises(IndexError, match="an index must hold integers or bools"):
            x[key] = -1.0
    with pytest.raises(IndexError):
        x[base.asarray(FLOATS["whole"])]
    np.testing.assert_array_equal(to_numpy(x.samples).copy(), before)


@pytest.mark.parametrize("call", [np.take, np.delete, lambda x, k: x.take(k), lambda x, k: np.add.at(x, k, 1.0)])
def test_floats_are_no_places_for_functions(call):
    with pytest.raises((IndexError, TypeError)):
        call(Ensemble(np.arange(12.0).reshape(4, 3)), Ensemble(np.array([[0.0, 1.0, 2.0]])))


def test_a_float_is_no_bound_of_a_slice():
    with pytest.raises(TypeError):
        Ensemble(np.arange(12.0).reshape(4, 3))[Ensemble(np.array([1.0, 1.0, 1.0])) :]


MASKS = [(1,), (2,), (4,), (1, 3), (3, 1), (3, 2), (2, 3), (3, 3, 1)]


@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_a_mask_of_another_shape_is_refused(shape, base):
    x = Ensemble(base.asarray(np.arange(18.0).reshape(3, 3, 2)))
    before = to_numpy(x.samples).copy()
    mask = np.zeros((*shape, 2), dtype=bool)
    mask[..., 0] = True
    same = np.ones((*shape, 2), dtype=bool)
    for m in (Ensemble(base.asarray(mask)), Ensemble(base.asarray(same)), base.asarray(np.ones(shape, dtype=bool))):
        with pytest.raises(IndexError):
            x[m]
        with pytest.raises(IndexError):
            x[m] = -1.0
    np.testing.assert_array_equal(to_numpy(x.samples).copy(), before)


@pytest.mark.parametrize(
    "key",
    [
        lambda m: m,
        lambda m: (m,),
        lambda m: (..., m),
        lambda m: (m, slice(None, 2)),
        lambda m: (slice(None), m),
        lambda m: (None, m),
        lambda m: (0, m),
    ],
)
def test_a_mask_that_fits_writes_as_in_each_sample(key):
    values = RNG.normal(size=(3, 3, 2))
    mask = np.array([[True, False], [False, True], [True, True]])
    x = Ensemble(values.copy())
    x[key(Ensemble(mask))] = -1.0
    for s in range(2):
        alone = values[..., s].copy()
        alone[key(mask[:, s])] = -1.0
        np.testing.assert_array_equal(x.sample(s), alone)


@pytest.mark.parametrize("name", ["solve", "inv", "det", "cholesky", "eigvals", "svd", "qr", "pinv", "slogdet"])
def test_a_vector_is_no_matrix(name):
    vector = Ensemble(np.ones((1, 3)))
    arguments = (vector, vector) if name == "solve" else (vector,)
    with pytest.raises(np.linalg.LinAlgError):
        getattr(np.linalg, name)(*arguments)


def test_a_value_of_an_entry_has_no_axis():
    x, one = Ensemble(np.zeros((3, 2))), Ensemble(np.ones((1, 2)))
    for value in (one, np.ones(1), [1.0]):
        with pytest.raises(ValueError, match=r"a value assigned to one entry must have no axis|sequence"):
            x[0] = value
    x[0, ...] = one
    np.testing.assert_array_equal(x.samples[0], [1.0, 1.0])


# -- random generators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["Generator", "RandomState", "numpy.random"])
def test_a_shuffle_of_rows_is_refused_before_one_is_lost(module):
    values = np.arange(24.0).reshape(4, 2, 3)
    x = Ensemble(values.copy())
    rng = {"Generator": np.random.default_rng(3), "RandomState": np.random.RandomState(3), "numpy.random": np.random}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError, match=r"Write x\[rng.permutation\(len\(x\)\)\] for rng.shuffle\(x\)"):
            rng[module].shuffle(x)
    np.testing.assert_array_equal(x.samples, values)


def test_a_shuffle_of_values_is_that_of_each_sample():
    values = np.arange(12.0).reshape(4, 3)
    x = Ensemble(values.copy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.random.default_rng(3).shuffle(x)
    for s in range(3):
        alone = values[:, s].copy()
        np.random.default_rng(3).shuffle(alone)
        np.testing.assert_array_equal(x.sample(s), alone)


def test_a_permutation_of_rows_is_an_index():
    values = np.arange(24.0).reshape(4, 2, 3)
    order = np.random.default_rng(3).permutation(4)
    np.testing.assert_array_equal(Ensemble(values)[order].samples, values[order])


def test_rows_exchanged_by_a_statement_are_exchanged_as_numpys_are():
    values = np.arange(24.0).reshape(4, 2, 3)
    x, alone = Ensemble(values.copy()), values.copy()
    x[0], x[1] = x[1], x[0]
    alone[0], alone[1] = alone[1], alone[0]  # both rows are views: NumPy loses one as well
    np.testing.assert_array_equal(x.samples, alone)


DRAWS = {
    "permutation": lambda rng, x: rng.permutation(x),
    "permuted": lambda rng, x: rng.permuted(x),
    "choice": lambda rng, x: rng.choice(x),
    "choice, weights": lambda rng, x: rng.choice(4, p=x),
    "normal": lambda rng, x: rng.normal(x),
    "normal of a value": lambda rng, x: rng.normal(x[0], 1.0),
    "integers": lambda rng, x: rng.integers(0, x),
    "poisson": lambda rng, x: rng.poisson(x),
    "dirichlet": lambda rng, x: rng.dirichlet(x),
    "multivariate_normal": lambda rng, x: rng.multivariate_normal(x, np.eye(4)),
    "out": lambda rng, x: rng.random(out=x),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_that_depend_on_an_ensemble_are_refused(name):
    x = Ensemble(np.arange(1.0, 13.0).reshape(4, 3))
    with pytest.raises((TypeError, ValueError), match=r"conversion to a plain array|output array"):
        DRAWS[name](np.random.default_rng(1), x)


def test_masks_and_floats_of_array_libraries_do_not_reach_other_places():
    with double_precision("jax") as jnp:
        x = Ensemble(jnp.arange(6.0).reshape(3, 2))
        for key in (jnp.asarray([True]), jnp.asarray([0.0])):
            with pytest.raises(IndexError):
                x[key]
