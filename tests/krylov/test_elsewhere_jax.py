"""Solves of JAX's arrays: NumPy's bits, and derivatives of any order, under jit, grad, vmap and forward mode."""

import warnings

import numpy as np
import pytest

from ensemble.krylov import SolveResult, TracedResult, cg, direct, gmres
from ensemble.linalg import CrsMatrix, Factorization
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.krylov.derivative_problems import (
    BASE,
    GENERAL,
    GRAPH,
    MODES,
    SAMPLES,
    SOLVERS,
    SYMMETRIC,
    N,
    dense,
    gradients,
    matrix,
    parameters,
)

jax = pytest.importorskip("jax")
jnp = jax.numpy
jax.config.update("jax_enable_x64", True)
from jax.test_util import check_grads  # noqa: E402

RNG = np.random.default_rng(71527)


def solution(name):
    """The function of parameters and right-hand sides whose derivatives are judged."""

    def x(k, b):
        values = jnp.asarray(MODES[name]) @ jnp.asarray(k)
        return SOLVERS[name](matrix(values), Ensemble(jnp.asarray(b)), rtol=1e-12).x.samples

    return x


@pytest.mark.parametrize("of_a, of_b", SAMPLES)
@pytest.mark.parametrize("name", SOLVERS)
def test_gradients_are_those_of_dense_solves(name, of_a, of_b):
    k, b = parameters(of_a), RNG.normal(size=(N, of_b))
    total = jax.grad(lambda k, b: solution(name)(k, b).sum(), argnums=(0, 1))
    for got, expected in zip(total(k, b), gradients(MODES[name], k, b)):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["direct", pytest.param("gmres", marks=pytest.mark.slow)])
def test_derivatives_agree_with_differences_in_both_modes_and_twice(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_grads(solution(name), (parameters(2), RNG.normal(size=(N, 1))), order=2, atol=1e-4, rtol=1e-4)


def test_jit_has_the_bits_of_a_plain_call_and_transforms_agree():
    k, b = jnp.asarray(parameters(2)), RNG.normal(size=(N, 2))
    f = lambda k: solution("gmres")(k, b)
    np.testing.assert_array_equal(jax.jit(f)(k), f(k))
    np.testing.assert_array_equal(f(k), gmres(matrix(GENERAL @ np.asarray(k)), Ensemble(b), rtol=1e-12).x.samples)
    np.testing.assert_allclose(jax.jacfwd(f)(k), jax.jit(jax.jacrev(f))(k), rtol=1e-8, atol=1e-10)
    mapped = jax.vmap(f)(jnp.stack([k, 2.0 * k]))
    np.testing.assert_array_equal(mapped[0], f(k))


def test_the_hessian_is_that_of_the_closed_form():
    b, whole = jnp.ones(N), float(np.linalg.solve(BASE.to_scipy().toarray(), np.ones(N)).sum())

    def total(k):
        return direct(matrix(jnp.asarray(SYMMETRIC[:, :1]) * k), b).x.samples.sum()

    k = jnp.asarray([1.0, 2.0])
    np.testing.assert_allclose(jax.hessian(total)(k), np.diag(2.0 * whole / k**3), rtol=1e-12)


def test_a_plain_call_has_the_outcome_of_numpy():
    k = parameters(3)
    got = cg(matrix(jnp.asarray(SYMMETRIC @ k)), jnp.ones(N))
    expected = cg(matrix(SYMMETRIC @ k), np.ones(N))
    assert type(got) is SolveResult
    np.testing.assert_array_equal(got.x.samples, expected.x.samples)
    np.testing.assert_array_equal(got.residual_norms, expected.residual_norms)
    assert isinstance(cg(matrix(jnp.asarray(BASE.values)), jnp.ones(N)).x, jax.Array)


def test_a_sample_that_fails_under_jit_is_named_and_its_derivatives_are_nan():
    def outcome(v):
        result = cg(matrix(v), Ensemble(jnp.ones((N, 1))))
        assert isinstance(result, TracedResult)
        assert "not known" in repr(result)
        return result.x.samples, result.converged, result.iterations

    v = jnp.asarray(SYMMETRIC[:, :1] * np.array([1.0, np.nan, 2.0]))
    with pytest.warns(RuntimeWarning, match=r"cg: 1 of 3 samples did not converge .*sample 1"):
        _, converged, iterations = jax.block_until_ready(jax.jit(outcome)(v))
    assert converged.tolist() == [True, False, True]
    assert iterations.tolist() == [3, 0, 3]
    with pytest.warns(RuntimeWarning, match="sample 1"):
        got = jax.grad(lambda v: jnp.nansum(outcome(v)[0]))(v)
    assert np.isnan(got[:, 1]).all()
    alone = jax.grad(lambda v: jnp.sum(outcome(v)[0]))(v[:, 2:])
    np.testing.assert_array_equal(got[:, 2], alone[:, 0])


def test_what_is_not_known_under_jit_is_refused():
    v = jnp.asarray(BASE.values)
    with pytest.raises(TypeError, match="cg: status and residual_norms must be known; got a solve in a function"):
        jax.jit(lambda v: cg(matrix(v), jnp.ones(N)).status)(v)
    with pytest.raises(TypeError, match="smoothed_aggregation: A must hold numbers that are known"):
        jax.jit(lambda v: cg(matrix(v), jnp.ones(N), M=smoothed_aggregation(matrix(v))).x)(v)
    with pytest.raises(TypeError, match="Factorization: A must hold numbers that are known"):
        jax.jit(lambda v: Factorization(matrix(v)).values)(v)
    with pytest.raises(ValueError, match="cg: b must be a vector of length 6"):
        jax.jit(lambda v: cg(matrix(v), jnp.ones(N + 1)).x)(v)


def test_a_hierarchy_from_outside_preconditions_inside():
    v = jnp.asarray(SYMMETRIC @ parameters(2))
    M = smoothed_aggregation(matrix(v), coarse_size=2)
    f = lambda v: cg(matrix(v), jnp.ones(N), M=M, rtol=1e-12).x.samples
    plain = lambda v: cg(matrix(v), jnp.ones(N), rtol=1e-12).x.samples
    np.testing.assert_allclose(jax.jit(f)(v), plain(v), rtol=1e-10)
    got, expected = (jax.grad(lambda v, g=g: g(v).sum())(v) for g in (f, plain))
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_factors_have_derivatives_under_jit():
    k, b = parameters(2), RNG.normal(size=(N, 2))

    def factors(k):
        return Factorization(matrix(jnp.asarray(GENERAL) @ jnp.asarray(k)))

    check_grads(jax.jit(lambda k, b: (factors(k) @ Ensemble(jnp.asarray(b))).samples), (k, b), order=1)
    check_grads(jax.jit(lambda k: factors(k).logdet().samples), (k,), order=1, modes=["rev"])
    A, _ = dense(GENERAL, k, 1)
    np.testing.assert_allclose(
        jax.jit(lambda k: factors(k).logdet().samples)(k)[1], np.linalg.slogdet(A)[1], rtol=1e-12
    )
    np.testing.assert_allclose((factors(k).T @ jnp.ones(N)).sample(1), np.linalg.solve(A.T, np.ones(N)), rtol=1e-11)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_have_derivatives_under_jit(transposed):
    def product(v, x):
        A = CrsMatrix(GRAPH, Ensemble(jnp.asarray(v)))
        return ((A.T if transposed else A) @ Ensemble(jnp.asarray(x))).samples

    v, x = RNG.normal(size=(GRAPH.nnz, 2)), RNG.normal(size=(N, 1))
    check_grads(product, (v, x), order=1)
    A = CrsMatrix(GRAPH, v)
    np.testing.assert_allclose(jax.jit(product)(v, x), ((A.T if transposed else A) @ Ensemble(x)).samples, rtol=1e-14)
