"""The defaults of `LinearOperator`: a subclass with nothing but a product does what a matrix does."""

import numpy as np

from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.scalar import Ensemble


class Product(LinearOperator):
    def __init__(self, matrix):
        self.matrix, self.shape = matrix, matrix.shape
        self.n_samples, self.dtype = matrix.n_samples, matrix.dtype

    def apply(self, x, out=None):
        return self.matrix.apply(x, out)

    def take_samples(self, samples):
        return Product(self.matrix.take_samples(samples))


def test_defaults_are_a_matrix_s_own_methods(rng):
    A = poisson((5, 4), n_samples=3)
    own, x, b = Product(A), rng.standard_normal((20, 3)), rng.standard_normal((20, 3))
    assert as_operator(own, "test", "A") is own
    for got, expected in zip(own.apply_dot(x), A.apply_dot(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-14)
    np.testing.assert_allclose(own.residual(x, b), A.residual(x, b), rtol=0, atol=1e-13)
    out = np.empty_like(x)
    np.testing.assert_allclose(own.precondition_dot(x, out, own.workspace(3)), np.sum(x * out, axis=0), rtol=1e-14)
    np.testing.assert_array_equal(out, A.apply(x))
    np.testing.assert_array_equal(own.sample(1).apply(x[:, 1:2].copy()), A.sample(1).apply(x[:, 1:2].copy()))
    assert own.astype(np.float32) is own and own.in_own_order(A) is None


def test_an_adapted_object_keeps_the_methods_that_it_has(rng):
    """An object of another class with `apply` and `take_samples`: finished samples are taken out of it, too."""

    class Foreign:
        def __init__(self, matrix, seen):
            self.matrix, self.shape, self.n_samples, self.seen = matrix, matrix.shape, matrix.n_samples, seen

        def apply(self, x, out=None):
            self.seen.append(x.shape[1])
            return self.matrix.apply(x)  # an array of its own

        def take_samples(self, samples):
            return Foreign(self.matrix.take_samples(samples), self.seen)

    A, seen = poisson((30,), n_samples=8), []
    b = np.zeros((30, 8))
    b[:, 6:] = rng.standard_normal((30, 2))
    b[0, :6] = 1e-3
    own = as_operator(Foreign(A, seen), "test", "A")
    out = np.empty((30, 8))
    assert own.apply(b, out) is out and own.takes_samples
    np.testing.assert_array_equal(out, A.apply(b))
    atol = np.where(np.arange(8) < 6, 1.0, 0.0)
    whole = cg(Foreign(A, seen), Ensemble(b), rtol=1e-9, atol=atol, compact=False)
    narrow = cg(Foreign(A, seen), Ensemble(b), rtol=1e-9, atol=atol)
    np.testing.assert_array_equal(whole.x.samples, narrow.x.samples)
    assert min(seen) < 8
