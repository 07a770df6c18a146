"""Calls of SciPy and other libraries with ensembles: sparse products work, the others name what does it."""

import re

import numpy as np
import pytest
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
import scipy.sparse.linalg as spl
import scipy.stats

from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix
from ensemble.scalar import DivergenceError, Ensemble, SampleSet, run

plt = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.default_rng(9177)

PLAIN = sp.csr_array(np.where(RNG.random((4, 5)) < 0.6, RNG.normal(size=(4, 5)), 0.0))
SQUARE = sp.diags_array([-1.0, 3.0, -1.0], offsets=[-1, 0, 1], shape=(4, 4)).tocsr()

X = Ensemble(RNG.normal(size=(4, 3)))
K = Ensemble(np.array([1.0, 2.0, 3.0]))

FORMATS = ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("shape", [(5,), (5, 2)])
def test_a_sparse_matrix_times_an_ensemble_is_each_samples_product(shape, kind, dtype):
    drawn = SampleSet(weights=[1.0, 2.0, 3.0])
    x = Ensemble((9.0 * RNG.normal(size=(*shape, 3))).astype(dtype), drawn)
    for A in (PLAIN.asformat(kind), sp.csr_matrix(PLAIN).asformat(kind)):
        # The method of `coo_array` takes arrays alone.
        for product in (lambda A, x: A @ x, lambda A, x: A @ x if A.format == "coo" else A.dot(x)):
            got = product(A, x)
            assert got.sample_set is drawn
            for s in range(3):
                wanted = product(A, x.sample(s))
                assert got.dtype == wanted.dtype
                np.testing.assert_array_equal(got.sample(s), wanted)
    np.testing.assert_array_equal((sp.csr_matrix(PLAIN) * x).samples, (PLAIN @ x).samples)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_an_ensemble_times_a_sparse_matrix_is_each_samples_product(shape, kind):
    x, A = Ensemble(RNG.normal(size=(*shape, 3))), PLAIN.asformat(kind)
    for s in range(3):
        np.testing.assert_array_equal((x @ A).sample(s), x.sample(s) @ A)
    matrix = sp.csr_matrix(A)
    np.testing.assert_array_equal((x * matrix).samples, (x @ matrix).samples)


def test_products_of_shapes_that_do_not_fit_are_refused():
    for call in (lambda: PLAIN @ X, lambda: PLAIN @ K, lambda: Ensemble(np.ones((5, 3))) @ PLAIN):
        with pytest.raises(ValueError, match="a SciPy matrix and an ensemble must have shapes of a matrix product"):
            call()


def test_a_product_inside_run_keeps_samples_together():
    result = run(lambda x: SQUARE @ x, X)
    assert result.n_runs == 1
    np.testing.assert_array_equal(result.value.samples, (SQUARE @ X).samples)


def assigned(value, key):
    plain = np.zeros(4)
    plain[key] = value
    return plain


CALLS = {
    "spsolve": (lambda: spl.spsolve(SQUARE, X), r"scipy.sparse.linalg.spsolve\. ensemble.krylov.direct"),
    "cg": (lambda: spl.cg(SQUARE, X), r"scipy.sparse.linalg.cg\. ensemble.krylov.cg\(A, b\)"),
    "gmres": (lambda: spl.gmres(SQUARE, X), r"scipy.sparse.linalg.gmres\. ensemble.krylov.gmres\(A, b\)"),
    "coo_array": (lambda: sp.coo_array((X, (range(4), range(4)))), r"scipy.sparse.coo_array\. .*CrsMatrix.from_coo"),
    "csr_array": (lambda: sp.csr_array((X, np.arange(4), np.arange(5))), r"scipy.sparse.csr_array\. .*CrsMatrix"),
    "csr_array * x": (lambda: SQUARE * X, r"CrsMatrix.from_scipy\(A\)"),
    "k * csr_array": (lambda: K * SQUARE, r"CrsMatrix.from_scipy\(A\)"),
    "csr_array + x": (lambda: SQUARE + X, r"CrsMatrix.from_scipy\(A\)"),
    "csr_array / k": (lambda: SQUARE / K, r"CrsMatrix.from_scipy\(A\)"),
    "sparse.kron": (lambda: sp.kron(SQUARE, X), r"scipy.sparse.kron\. ensemble.linalg.kron"),
    "LinearOperator": (lambda: spl.aslinearoperator(SQUARE) @ X, r"LinearOperator\. .*CrsMatrix.from_scipy\(A\) @ x"),
    "solve_ivp": (lambda: scipy.integrate.solve_ivp(lambda t, y: -y, (0, 1), X), r"solve_ivp\. ensemble.ode.solve"),
    "its function": (lambda: scipy.integrate.solve_ivp(lambda t, y: -K * y, (0, 1), [1.0]), r"ensemble.ode.solve"),
    "odeint": (lambda: scipy.integrate.odeint(lambda y, t: -y, X, [0, 1]), r"odeint\. ensemble.ode.solve"),
    "quad": (lambda: scipy.integrate.quad(lambda t: t * K, 0, 1), r"scipy.integrate.quad .*ensemble.quadrature.gauss"),
    "trapezoid": (lambda: scipy.integrate.trapezoid(X), r"scipy.integrate.trapezoid\. np.trapezoid"),
    "minimize": (lambda: scipy.optimize.minimize(lambda y: y @ y, X), r"scipy.optimize.minimize\. ensemble.run"),
    "newton": (lambda: scipy.optimize.newton(lambda y: y * y - K, 1.0), r"scipy.optimize.newton .*ensemble.run"),
    "least_squares": (lambda: scipy.optimize.least_squares(lambda y: y - K, [0.0]), r"least_squares\. ensemble.run"),
    "curve_fit": (lambda: scipy.optimize.curve_fit(lambda t, a: a * t, np.arange(4.0), X), r"curve_fit\. ensemble.run"),
    "interp1d": (lambda: scipy.interpolate.interp1d([0, 9], [0, 1])(X), r"scipy.interpolate.interp1d\. np.interp"),
    "CubicSpline": (
        lambda: scipy.interpolate.CubicSpline(np.arange(4.0), X),
        r"CubicSpline\. ensemble.run",
    ),
    "linalg.solve": (lambda: scipy.linalg.solve(np.eye(4), X), r"scipy.linalg.solve\. np.linalg.solve"),
    "linalg.expm": (lambda: scipy.linalg.expm(X), r"scipy.linalg.expm\. ensemble.run"),
    "stats": (lambda: scipy.stats.norm.pdf(X), r"scipy.stats.norm_gen\. ensemble.run"),
    "an assignment": (lambda: assigned(X, np.arange(4)), r"assignment to entries .* ensemble.shared\(y\).copy\(\)"),
    "a slice": (lambda: assigned(X, slice(None)), r"assignment to entries .* ensemble.shared\(y\).copy\(\)"),
    "np.asarray": (lambda: np.asarray(X), r"got np.asarray\(x\)\. Use x.samples"),
    "np.array of two": (lambda: np.array([X, X]), r"np.stack"),
    "plot": (lambda: plt.plot(X), r"matplotlib.pyplot.plot .*Draw x.samples.T"),
    "hist": (lambda: plt.hist(K), r"ensemble.plot_histogram"),
    "x, info = cg": (lambda: dict([tuple(cg(SQUARE, X))]), r"cg: x, info = ... must take one result; .*result.x"),
    "np.asarray of a matrix": (lambda: np.asarray(CrsMatrix.from_scipy(SQUARE)), r"A.toarray\(\) .*A.to_scipy\(i\)"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_takes_plain_arrays_names_what_takes_ensembles(name):
    call, text = CALLS[name]
    with pytest.raises((TypeError, DivergenceError), match=text):
        call()


CAUSES = {
    "csr_array of one": (lambda: sp.csr_array(X), r"scipy.sparse.csr_array\. .*CrsMatrix.from_coo"),
    "csr_matrix of one": (lambda: sp.csr_matrix(X), r"scipy.sparse.csr_matrix\. .*CrsMatrix.from_coo"),
    "one entry": (lambda: assigned(K, 0), r"ensemble.shared\(y\).copy\(\)"),
    "a minimum": (
        lambda: scipy.optimize.minimize(lambda y: K * y[0], [0.0]),
        r"optimize.minimize\b.*ensemble.run",
    ),
    "spsolve of a matrix": (lambda: spl.spsolve(CrsMatrix.from_scipy(SQUARE), np.ones(4)), r"ensemble.krylov.direct"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_where_the_library_raises_its_own_error_the_cause_names_it(name):
    call, text = CAUSES[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    causes, error = [], caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__ or error.__context__
    assert any(re.search(text, cause) for cause in causes), causes


def test_scikit_fem_condenses_matrices_with_samples():
    skfem = pytest.importorskip("skfem")
    A = CrsMatrix.from_scipy([SQUARE, 2.0 * SQUARE])
    x, fixed = np.array([1.0, 0.0, 0.0, 2.0]), np.array([0, 3])
    condensed, b, _, free = skfem.condense(A, np.ones(4), x=x, D=fixed)
    for s in range(2):
        one, right, _, places = skfem.condense(A.to_scipy(s), np.ones(4), x=x, D=fixed)
        np.testing.assert_array_equal(condensed.to_scipy(s).toarray(), one.toarray())
        np.testing.assert_array_equal(b.sample(s), right)
        np.testing.assert_array_equal(free, places)
