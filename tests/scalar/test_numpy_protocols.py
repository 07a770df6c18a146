"""NumPy's functions on ensembles: right, or refused with a reason; never sample 0 in silence."""

import array_api_strict
import numpy as np
import pytest

from ensemble.scalar import Ensemble

A = np.random.default_rng(51151).normal(size=(4, 4)) + 4 * np.eye(4)
CALLS = {
    "sin": lambda x: np.sin(x),
    "add": lambda x: np.add(x, 1.5),
    "plain left": lambda x: np.ones((4, 4)) * x,
    "plain minus": lambda x: np.arange(4.0) - x,
    "plain compare": lambda x: np.zeros(4) < x,
    "plain matmul": lambda x: A @ x,
    "matmul plain": lambda x: x @ A,
    "dot": lambda x: np.dot(A, x),
    "dot 1-d": lambda x: np.dot(A[0], x[0]),
    "dot number": lambda x: np.dot(2.0, x),
    "solve": lambda x: np.linalg.solve(A, x),
    "norm": lambda x: np.linalg.norm(x),
    "norm axis": lambda x: np.linalg.norm(x, axis=-1),
    "norm nuc": lambda x: np.linalg.norm(x, "nuc"),
    "norm 1": lambda x: np.linalg.norm(x, 1, axis=0, keepdims=True),
    "eigvalsh": lambda x: np.linalg.eigvalsh(x + np.matrix_transpose(x)),
    "fft": lambda x: np.fft.fft(x),
    "where": lambda x: np.where(x > 0, x, 0.0),
    "sum": lambda x: np.sum(x),
    "sum axis": lambda x: np.sum(x, -1),
    "mean": lambda x: np.mean(x, axis=0, keepdims=True),
    "std": lambda x: np.std(x, ddof=1),
    "max": lambda x: np.max(x, axis=1),
    "amax": lambda x: np.amax(x),
    "argmax": lambda x: np.argmax(x, axis=0),
    "cumsum": lambda x: np.cumsum(x),
    "cumsum axis": lambda x: np.cumsum(x, axis=1),
    "concatenate": lambda x: np.concatenate([x, A], axis=1),
    "stack": lambda x: np.stack([x, x], axis=-1),
    "transpose": lambda x: np.transpose(x),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "reshape": lambda x: np.reshape(x, (2, -1)),
    "ravel": lambda x: np.ravel(x),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "sort": lambda x: np.sort(x, axis=0),
    "squeeze": lambda x: np.squeeze(x[:1]),
    "expand_dims": lambda x: np.expand_dims(x, 0),
    "zeros_like": lambda x: np.zeros_like(x),
    "full_like": lambda x: np.full_like(x, 2.0),
    "tril": lambda x: np.tril(x),
    "trace": lambda x: np.linalg.trace(x),
    "outer": lambda x: np.linalg.outer(x[0], x[1]),
    "isclose": lambda x: np.isclose(x, x + 1e-12),
    "copy": lambda x: np.copy(x),
    "add.reduce": lambda x: np.add.reduce(x),
    "add.reduce -1": lambda x: np.add.reduce(x, axis=-1),
    "multiply.accumulate": lambda x: np.multiply.accumulate(x, axis=-1),
    "modf": lambda x: np.modf(x)[1],
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 4, 4)),
    "flip": lambda x: np.flip(x, axis=-1),
    "roll": lambda x: np.roll(x, 1, axis=0),
    "take": lambda x: np.take(x, np.array([2, 0]), axis=1),
    "isnan": lambda x: np.isnan(x),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("n_samples", [1, 3])
def test_numpy_functions_work_sample_by_sample(name, n_samples):
    x = Ensemble(np.random.default_rng(93283).normal(size=(4, 4, n_samples)))
    got = CALLS[name](x)
    assert isinstance(got, Ensemble)
    for s in range(n_samples):
        # 100: sums of 16 terms, and a solve of condition below 10
        np.testing.assert_allclose(got.sample(s), CALLS[name](x.sample(s)), rtol=100 * np.finfo(float).eps, atol=1e-13)


REFUSED = {
    "asarray": (lambda x: np.asarray(x), "a conversion to a plain array must name what it wants"),
    "array": (lambda x: np.array(x), "a conversion to a plain array"),
    "assignment": (lambda x: np.zeros((4, 4)).__setitem__(slice(None), x), "a conversion to a plain array"),
    "entry assignment": (
        lambda x: np.zeros(4).__setitem__(0, x[0, 0]),
        "a conversion to a plain array|an array element with a sequence",
    ),
    "plain in place": (lambda x: np.zeros((4, 4)).__iadd__(x), "np.add: out must be an Ensemble; got a ndarray"),
    "out": (lambda x: np.sin(x, out=np.zeros((4, 4))), "np.sin: out must be an Ensemble"),
    "outer": (lambda x: np.add.outer(x, x), "np.add.outer: a function of an Ensemble must be lifted"),
    "at": (lambda x: np.add.at(x, 0, 1.0), "np.add.at"),
    "not standard": (lambda x: np.interp(x[0], [0, 1], [0, 1]), "np.interp.*it is not in the Array API"),
    "median": (lambda x: np.median(x), "np.median"),
    "unknown option": (lambda x: np.sum(x, where=np.zeros((4, 4), dtype=bool)), "the option where is not"),
    "initial": (lambda x: np.max(x, initial=100.0), "the option initial is not"),
    "quantile": (lambda x: np.quantile(x, 0.5), "np.quantile"),
    "random": (lambda x: np.random.default_rng(1).normal(x), "conversion to a plain array|float"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_lifted_is_refused_with_a_reason(name):
    call, text = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=text):
        call(Ensemble(np.random.default_rng(93283).normal(size=(4, 4, 3))))


def test_out_may_be_an_ensemble():
    x, out = Ensemble(np.ones((2, 3))), Ensemble(np.zeros((2, 1)))
    assert np.add(x, 1.0, out=out) is out
    np.testing.assert_array_equal(out.samples, np.full((2, 3), 2.0))


def test_allclose_asks_every_sample():
    x = Ensemble(np.ones((2, 3)))
    assert np.allclose(x, 1.0)


def test_shapes_are_visible_shapes(matrix):
    assert np.shape(matrix) == (3, 4)
    assert np.ndim(matrix) == 2


def test_numpy_scalars_and_functions_meet_other_libraries():
    x = Ensemble(array_api_strict.asarray([1.0, 2.0]))
    assert isinstance(np.float64(2.0) * x, Ensemble)
    with pytest.raises(TypeError, match=r"np\.add"):
        np.add(np.ones(3), x)
