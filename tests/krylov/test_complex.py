"""Complex systems: right answers in SciPy's iterations, each sample by itself, and nothing dropped in silence."""

import importlib

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from ensemble import gallery
from ensemble.krylov import Status, bicgstab, cg, direct, gmres, minres, newton
from ensemble.krylov._complex import RealParts
from ensemble.krylov._iteration import KrylovIteration
from ensemble.krylov.host_scalars import scalars
from ensemble.linalg import (
    BcrsMatrix,
    CrsGraph,
    CrsMatrix,
    Diagonal,
    Factorization,
    IncompleteFactorization,
    SymmetricCrsMatrix,
)
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation
from ensemble.scalar import Ensemble, SampleSet
from tests.krylov.problems import equal, same

direct_module = importlib.import_module("ensemble.krylov.direct")

N = 24
HERMITIAN = {"cg": cg, "minres": minres, "gmres": gmres, "bicgstab": bicgstab, "direct": direct}
GENERAL = {"gmres": gmres, "bicgstab": bicgstab, "direct": direct}


def numbers(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def matrices(n_samples, hermitian, seed=40961):
    """On one graph; the diagonal dominates."""
    rng = np.random.default_rng(seed)
    pattern = sp.random_array((N, N), density=0.1, rng=rng).tocsr()
    made = []
    for _ in range(n_samples):
        a = sp.csr_array((numbers(rng, pattern.nnz), pattern.indices, pattern.indptr), shape=(N, N))
        a = a + (a.conj().T if hermitian else sp.csr_array((N, N)))
        size = np.asarray(abs(a).sum(axis=1)).reshape(-1)
        made.append(a + sp.diags_array((size + 1.0) * (1.0 if hermitian else np.exp(0.3j))))
    return CrsMatrix.from_scipy(made if n_samples > 1 else made[0])


def exact(A, b):
    each = b.shape[1] > 1
    return np.stack([np.linalg.solve(A.to_scipy(s).toarray(), b[:, s if each else 0]) for s in range(A.n_samples)], 1)


@pytest.mark.parametrize("n_samples", [1, 3, 9])
@pytest.mark.parametrize("hermitian, name", [(True, name) for name in HERMITIAN] + [(False, name) for name in GENERAL])
def test_solutions_are_numpys(rng, hermitian, name, n_samples):
    A, b = matrices(n_samples, hermitian), numbers(rng, N, n_samples)
    result = HERMITIAN[name](A, Ensemble(b), rtol=1e-11)
    assert result.converged.all() and result.x.dtype == np.complex128 and result.x.shape == (N,)
    np.testing.assert_allclose(result.x.samples, exact(A, b), rtol=0, atol=1e-9)
    residual = b - (A @ result.x).samples
    assert np.all(np.linalg.norm(residual, axis=0) <= 1e-11 * np.linalg.norm(b, axis=0) * 1.001 + 1e-14)


@pytest.mark.parametrize("name", HERMITIAN)
def test_each_sample_is_its_scalar_run(rng, name):
    A, b = matrices(5, True), Ensemble(numbers(rng, N, 5))
    M = {} if name == "direct" else {"M": Diagonal(1.0 / A.diagonal())}
    result = HERMITIAN[name](A, b, **M)
    for s in range(5):
        M = {} if name == "direct" else {"M": Diagonal(1.0 / A.sample(s).diagonal())}
        assert same(result, HERMITIAN[name](A.sample(s), b.sample(s), **M), s)


def test_conjugate_gradients_take_the_iterations_of_complex_arithmetic(rng):
    A, b = matrices(1, True), numbers(rng, N)
    seen = []
    scipy.sparse.linalg.cg(A.to_scipy(), b, rtol=1e-9, callback=lambda x: seen.append(x.copy()))
    result = cg(A, b, rtol=1e-9)
    assert abs(result.iterations[0] - len(seen)) <= 1
    norms = [np.linalg.norm(b - A.to_scipy() @ x) for x in seen[:8]]
    np.testing.assert_allclose(result.residual_norms[1:9, 0], norms, rtol=1e-8)


def model_problem(name, cells=20):
    """Crank-Nicolson's matrix of Schroedinger's equation, a damped Helmholtz equation, and a skew-Hermitian matrix."""
    L = gallery.poisson((cells, cells)).to_scipy()
    eye = sp.eye_array(L.shape[0])
    return sp.csr_array({"schroedinger": eye + 1j * L, "helmholtz": L - (0.3 - 0.1j) * eye, "skew": 1j * L}[name])


ITERATIONS = [
    ("schroedinger", "gmres"), ("helmholtz", "gmres"), ("schroedinger", "bicgstab"), ("helmholtz", "bicgstab"),
    ("skew", "gmres"), ("skew", "bicgstab"),
]  # fmt: skip


@pytest.mark.parametrize("problem, name", ITERATIONS)
def test_nonsymmetric_methods_take_scipys_iterations(rng, problem, name):
    """With real and imaginary parts as real unknowns they took four to eight times as many, or broke down."""
    A = model_problem(problem, 10 if problem == "skew" else 20)
    b, seen = numbers(rng, A.shape[0]), []
    if name == "gmres":
        options = {"restart": 30, "maxiter": 40, "callback_type": "pr_norm"}
    else:
        options = {"maxiter": 1000}
    scipys = getattr(scipy.sparse.linalg, name)
    scipys(A, b, rtol=1e-8, callback=lambda x: seen.append(0), **options)
    result = GENERAL[name](A, b, rtol=1e-8)
    assert result.converged.all() and np.linalg.norm(b - A @ result.x) <= 1.001e-8 * np.linalg.norm(b)
    assert result.iterations[0] <= 1.1 * len(seen) + 3


def test_residual_norms_of_gmres_are_scipys(rng):
    A, b = model_problem("helmholtz"), numbers(rng, 400)
    norms = []
    scipy.sparse.linalg.gmres(
        A, b, rtol=1e-8, restart=20, maxiter=1, callback=lambda norm: norms.append(norm), callback_type="pr_norm"
    )
    result = gmres(A, b, rtol=1e-8, restart=20, max_iterations=20)
    np.testing.assert_allclose(result.residual_norms[1:, 0] / np.linalg.norm(b), norms[:20], rtol=1e-7)


def test_coupled_gmres_knows_each_samples_residual(rng):
    A, b = matrices(3, False), Ensemble(numbers(rng, N, 3))
    result = gmres(A, b, coupling="ensemble", rtol=1e-10, restart=6)
    residual = np.linalg.norm((b - A @ result.x).samples, axis=0)
    assert result.converged.all() and np.all(residual <= 1.001 * result.target)
    part = gmres(A, b, coupling="ensemble", rtol=1e-10, restart=6, max_iterations=4)
    residual = np.linalg.norm((b - A @ part.x).samples, axis=0)
    np.testing.assert_allclose(part.residual_norms[4], residual, rtol=1e-6)


@pytest.mark.parametrize("name", ["cg", "gmres", "bicgstab"])
@pytest.mark.parametrize("size", [2.0**-700, 2.0**700])
def test_units_far_from_one_change_nothing(rng, name, size):
    A, b = matrices(2, True), numbers(rng, N, 2)
    plain, far = (HERMITIAN[name](A, Ensemble(b * unit), rtol=1e-10) for unit in (1.0, size))
    assert far.converged.all() and np.array_equal(far.iterations, plain.iterations)
    assert np.array_equal(far.x.samples / size, plain.x.samples)


@pytest.mark.parametrize("name", ["cg", "gmres", "bicgstab"])
def test_solves_on_a_device_agree_with_the_cpu(rng, name, request):
    A, b = matrices(3, True), Ensemble(numbers(rng, N, 3))
    expected = HERMITIAN[name](A, b, rtol=1e-10)
    request.getfixturevalue("as_device")
    found = HERMITIAN[name](A, b, rtol=1e-10)
    assert found.converged.all() and np.all(abs(found.iterations - expected.iterations) <= 1)
    np.testing.assert_allclose(found.x.samples, expected.x.samples, rtol=0, atol=1e-9)


def test_matrices_of_other_storage_give_the_bits_of_a_crs_matrix(rng):
    """Their products in a solve are those of one."""
    dense = numbers(rng, 8, 8, 3) + 20.0 * np.eye(8)[:, :, None]
    graph = CrsGraph(np.arange(9) * 8, np.tile(np.arange(8), 8), (8, 8))
    A, b = CrsMatrix(graph, dense.reshape(64, 3)), Ensemble(numbers(rng, 8, 3))
    blocks = BcrsMatrix.from_crs(A, 2)
    upper = SymmetricCrsMatrix.from_crs(CrsMatrix(graph, (dense + dense.transpose(1, 0, 2)).reshape(64, 3)))
    for stored, plain in ((blocks, A), (upper, upper.to_crs())):
        found, expected = gmres(stored, b), gmres(plain, b)
        assert found.converged.all() and all(same(found, expected, s, s) for s in range(3))


@pytest.mark.parametrize("dtype", [pytest.param(np.complex64, marks=pytest.mark.slow), np.complex128])
@pytest.mark.parametrize("real, n_samples", [("matrix", 1), ("matrix", 3), ("vector", 3)])
def test_products_of_real_and_complex_factors(rng, dtype, real, n_samples):
    part = np.finfo(dtype).dtype
    if real == "matrix":
        A, x = gallery.poisson((5, 5), n_samples=n_samples).astype(part), Ensemble(numbers(rng, 25, 3).astype(dtype))
    else:
        A = matrices(3, False).astype(dtype)
        x = Ensemble(rng.standard_normal((N, 3)).astype(part))
    found = A @ x
    assert found.dtype == dtype
    for s in range(3):
        one = A.sample(s if A.n_samples > 1 else 0)
        expected = one.to_scipy() @ x.samples[:, s]
        np.testing.assert_allclose(found.samples[:, s], expected, rtol=0, atol=200 * np.finfo(dtype).eps)
        assert np.array_equal(np.asarray(one @ x.sample(s)).reshape(-1), found.samples[:, s])
    transposed = A.T @ x
    np.testing.assert_allclose(transposed.samples[:, 0], A.to_scipy().T @ x.samples[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", HERMITIAN)
@pytest.mark.parametrize("where", ["A", "b", "x0", "M"])
def test_one_complex_argument_makes_the_system_complex(rng, name, where):
    real = CrsMatrix.from_scipy([a.real for a in map(matrices(3, True).to_scipy, range(3))])
    A, b, options = real, rng.standard_normal((N, 3)), {"rtol": 1e-11}
    if name == "direct" and where in ("x0", "M"):
        pytest.skip("direct has none")
    if where == "A":
        A = matrices(3, True)
    elif where == "b":
        b = numbers(rng, N, 3)
    elif where == "x0":
        options["x0"] = Ensemble(numbers(rng, N, 3))
    else:
        options["M"] = Diagonal(1.0 / A.diagonal() + 0j)
    result = HERMITIAN[name](A, Ensemble(b), **options)
    assert result.converged.all() and result.x.dtype == np.complex128
    np.testing.assert_allclose(result.x.samples, exact(A, b), rtol=0, atol=1e-9)


def test_every_kind_of_operator_and_vector(rng):
    A, b = matrices(1, True), numbers(rng, N)
    expected = exact(A, b[:, None])[:, 0]
    scipys = A.to_scipy()
    for operator in (scipys, scipys.toarray(), scipy.sparse.linalg.aslinearoperator(scipys), A.T.T, A.H):
        found = cg(operator, b, rtol=1e-11).x
        assert isinstance(found, np.ndarray) and found.shape == (N,)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(cg(A, b.tolist(), rtol=1e-11).x, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(direct(scipys, b[:, None]).x, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(direct(A, b, kind="ldlt").x, expected, rtol=0, atol=1e-12)
    blocks = BcrsMatrix(
        CrsGraph([0, 1, 2], [0, 1], (2, 2)), 2.0 * np.stack([np.eye(2) + 0j, [[1.0, 0.5j], [-0.5j, 1.0]]])
    )
    found = cg(blocks, numbers(rng, 2, 2)).x
    assert found.shape == (2, 2)
    symmetric = SymmetricCrsMatrix.from_crs(CrsMatrix.from_scipy(gallery.poisson((N,)).to_scipy() * (1.0 + 0.2j)))
    np.testing.assert_allclose(direct(symmetric, b).x, np.linalg.solve(symmetric.to_scipy().toarray(), b), rtol=1e-10)


def test_real_hierarchies_precondition_complex_systems(rng):
    """Damped waves: a complex shift of a Laplacian."""
    laplacian = gallery.poisson((20, 20), n_samples=4)
    A, b = laplacian + Diagonal(np.full(400, 0.05j)), Ensemble(numbers(rng, 400, 4))
    result = gmres(A, b, M=smoothed_aggregation(laplacian))
    assert result.converged.all() and result.iterations.max() <= 30
    assert np.all(np.linalg.norm((b - A @ result.x).samples, axis=0) <= result.target * 1.001)


PRECONDITIONERS = {
    "smoothed aggregation": smoothed_aggregation, "reduction": approximate_ideal_restriction,
    "LU": Factorization, "incomplete": IncompleteFactorization,
}  # fmt: skip


@pytest.mark.parametrize("n_samples", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(
    "name", ["LU", *(pytest.param(n, marks=pytest.mark.slow) for n in PRECONDITIONERS if n != "LU")]
)
def test_each_sample_is_its_scalar_run_with_a_real_preconditioner(rng, name, n_samples):
    laplacian = gallery.poisson((12, 12), n_samples=n_samples)
    laplacian = CrsMatrix(laplacian.graph, laplacian.values * np.linspace(1.0, 1.3, n_samples))
    A, M = laplacian + Diagonal(np.full(144, 0.05j)), PRECONDITIONERS[name](laplacian)
    b = Ensemble(numbers(rng, 144, 3))
    result = gmres(A, b, M=M)
    assert result.converged.all() and result.iterations.max() <= 25
    for s in range(3):
        alone = (A, M) if n_samples == 1 else (A.sample(s), M.sample(s))
        assert same(result, gmres(alone[0], b.sample(s), M=alone[1]), s)


@pytest.mark.parametrize("name", list(PRECONDITIONERS)[:2])
def test_complex_matrices_are_refused_by_what_would_drop_their_imaginary_parts(name):
    real = gallery.poisson((12, 12))
    A, M = real + Diagonal(np.full(144, 0.05j)), PRECONDITIONERS[name](real)
    advice = r"A hierarchy of a real matrix, A.real say, is an M for gmres and bicgstab with a complex A\."
    with pytest.raises(TypeError, match=r"A must be real; got dtype complex128\. " + advice):
        M.update(A)
    x = np.arange(144) + 1j
    assert np.array_equal(np.asarray(M @ x), np.asarray(M @ x.real) + 1j * np.asarray(M @ x.imag))


@pytest.mark.parametrize("name", list(PRECONDITIONERS)[2:])
def test_real_factors_take_no_complex_matrix(name):
    F = PRECONDITIONERS[name](gallery.poisson((12,)))
    with pytest.raises(TypeError, match="complex128"):
        F.update(gallery.poisson((12,)).astype(complex))


def test_compaction_and_coupling(rng, monkeypatch):
    narrowed, compact = [], KrylovIteration.compact
    monkeypatch.setattr(KrylovIteration, "compact", lambda self, kept: (narrowed.append(kept), compact(self, kept))[1])
    A, b = matrices(8, True), numbers(rng, N, 8)
    monkeypatch.setattr(scalars, "MOST", 8)  # iterations of one call, after which samples may be taken out
    easy = CrsMatrix(A.graph, A.values + 1e4 * (A.graph.row_of_entry == A.graph.indices)[:, None] * (np.arange(8) > 1))
    wide, narrow = cg(easy, Ensemble(b), compact=False), cg(easy, Ensemble(b))
    assert narrowed and np.array_equal(wide.x.samples, narrow.x.samples) and np.unique(wide.iterations).size > 1
    coupled = cg(A, Ensemble(b), coupling="ensemble", rtol=1e-10)
    np.testing.assert_allclose(coupled.x.samples, exact(A, b), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", HERMITIAN)
def test_bad_samples_are_flagged_and_the_others_are_their_own_runs(rng, name):
    A, b = matrices(4, True), numbers(rng, N, 4)
    values = A.values.copy()
    values[3, 1] = complex(0.0, np.nan)
    b[5, 2] = complex(np.inf, 0.0)
    bad = CrsMatrix(A.graph, values)
    with np.errstate(all="ignore"):
        result = HERMITIAN[name](bad, Ensemble(b))
        assert [status is Status.converged for status in result.status] == [True, False, False, True]
        for s in (0, 3):
            assert equal(result, HERMITIAN[name](A.sample(s), b[:, s]), s)


def test_single_precision_and_sample_sets(rng):
    points = SampleSet(points=np.arange(3.0)[None, :])
    A = matrices(3, True).astype(np.complex64)
    b = Ensemble(numbers(rng, N, 3).astype(np.complex64), points)
    for solve in (cg, direct):
        result = solve(A, b, rtol=1e-4)
        assert result.converged.all() and result.x.dtype == np.complex64 and result.x.sample_set is points
        weighted = CrsMatrix(A.graph, Ensemble(A.values, points))
        assert solve(weighted, b.samples[:, 0], rtol=1e-4).x.sample_set is points


def test_orders_of_elimination_count_complex_unknowns():
    A, b = sp.csr_array(np.diag([2.0, 3.0, 4.0]) + 1j * np.triu(np.ones((3, 3)))), np.array([1.0, 2.0, 3.0])
    expected = np.linalg.solve(A.toarray(), b)
    np.testing.assert_allclose(direct(A, b, ordering=[2, 0, 1]).x, expected, rtol=1e-13)
    with pytest.raises(ValueError, match=r"direct: ordering must be .* or a permutation of 0 ... 2"):
        direct(A, b, ordering=np.arange(6))


def test_newton_solves_complex_equations():
    """u^2 = z, near the root of positive real part."""
    z = np.array([[1j, -1.0 + 0.1j, 2.0]])
    result = newton(
        lambda u: u * u - Ensemble(z), lambda u: CrsMatrix(CrsGraph([0, 1], [0], (1, 1)), 2.0 * u.samples),
        Ensemble(np.ones((1, 3)) + 0.5j), solver=gmres, rtol=1e-12, max_iterations=30,
    )  # fmt: skip
    assert result.converged.all()
    np.testing.assert_allclose(result.u.samples, np.sqrt(z), rtol=1e-12)


def without_pivots(rng, n_samples, n=40):
    """Matrices that need exchanges: their diagonals are tiny, and the entries beside them large."""
    beside = sp.diags_array([np.ones(n - 1), np.ones(1)], offsets=[1, 1 - n], shape=(n, n))
    pattern = sp.csr_array(sp.random_array((n, n), density=0.05, rng=rng) + sp.eye_array(n) + beside)
    graph = CrsMatrix.from_scipy(pattern).graph
    values, distance = numbers(rng, graph.nnz, n_samples), (graph.indices - graph.row_of_entry) % n
    values[distance == 0] *= 1e-9
    values[distance == 1] = 9.0 * np.exp(1j * rng.uniform(0.0, 6.0, (n, n_samples)))
    return CrsMatrix(graph, values)


SLOW = pytest.mark.slow
OPTIONS = [{}, *(pytest.param(o, marks=SLOW) for o in ({"dtype": np.float32}, {"ordering": "nd"}, {"kind": "ldlt"}))]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_samples_that_need_exchanges_get_them(rng, options):
    A, b = without_pivots(rng, 4), Ensemble(numbers(rng, 40, 4))
    result = direct(A, b, **options)
    assert result.converged.all() and result.repaired.all()
    np.testing.assert_allclose(result.x.samples, exact(A, b.samples), rtol=1e-9)
    for s in range(4):
        alone = direct(A.sample(s), b.sample(s), **options)
        assert equal(result, alone, s) and alone.rcond[0] == result.rcond[s]


def test_matchings_by_means_serve_complex_matrices(rng):
    A, b = without_pivots(rng, 3), Ensemble(numbers(rng, 40, 3))
    result = direct(A, b, matching="mean")
    assert result.converged.all() and np.allclose(result.x.samples, exact(A, b.samples), rtol=1e-8)


def test_condition_numbers_are_those_of_the_real_system():
    A = CrsMatrix.from_scipy(model_problem("helmholtz", 6))
    dense = A.to_scipy().toarray()
    real = np.block([[dense.real, -dense.imag], [dense.imag, dense.real]])
    rcond = 1.0 / np.linalg.cond(real, 1)
    result = direct(A, np.ones(36))
    assert rcond * (1.0 - 1e-9) <= result.rcond[0] <= 3.0 * rcond
    singular = CrsMatrix.from_scipy(sp.csr_array(np.array([[1.0, 1j], [1j, -1.0]])))
    with np.errstate(all="ignore"):
        assert not direct(singular, np.array([1.0, 2.0])).converged.any()


@pytest.mark.parametrize(
    "n_samples, dtype",
    [(1, np.complex128), pytest.param(20, np.complex128, marks=SLOW), pytest.param(20, np.complex64, marks=SLOW)],
)
def test_symmetric_storage_takes_symmetric_elimination(rng, n_samples, dtype, monkeypatch):
    seen, make = [], direct_module.complex_factors
    monkeypatch.setattr(direct_module, "complex_factors", lambda *a: (seen.append(make(*a)), seen[-1])[1])
    A = CrsMatrix.from_scipy(model_problem("helmholtz", 8))
    scaled = CrsMatrix(A.graph, (A.values * np.linspace(1.0, 1.5, n_samples)).astype(dtype))
    b, rtol = Ensemble(numbers(rng, 64, n_samples).astype(dtype)), 1e-12 if dtype == np.complex128 else 1e-4
    found = direct(SymmetricCrsMatrix.from_crs(scaled), b, rtol=rtol)
    expected = direct(scaled, b, rtol=rtol)
    assert [each.plan.symmetric for each in seen] == [True, False] and found.converged.all()
    np.testing.assert_allclose(found.x.samples, expected.x.samples, rtol=1e5 * np.finfo(dtype).eps)


# --- what is refused
class Unnamed:
    """A complex operator without a dtype."""

    shape = (4, 4)

    def __matmul__(self, x):
        return 1j * x


def test_what_would_lose_imaginary_parts_is_refused(rng):
    with pytest.raises(TypeError, match="Unnamed @: the product of a real vector must be real; got dtype complex128"):
        gmres(Unnamed(), np.ones(4))
    found = gmres(Unnamed(), np.ones(4) + 0j)
    assert found.converged.all() and np.allclose(found.x, -1j)
    A, b = matrices(1, True), numbers(rng, N)
    with pytest.raises(TypeError, match="cg: b and A must come from one array library; got array_api_strict and numpy"):
        cg(A, Ensemble(strict.asarray(b[:, None])))
    with pytest.raises(TypeError, match="direct: factorization must be None where numbers are complex"):
        direct(A, b, factorization=Factorization(gallery.poisson((N,))))
    with pytest.raises(ValueError, match="direct: b must be a vector of length 24"):
        direct(A, b[:3])
    with pytest.raises(TypeError, match="direct: A must be a sparse matrix; got an ndarray"):
        direct(A.to_scipy().toarray(), b)


@pytest.mark.parametrize("n_samples", [1, 2])
def test_real_operators_are_applied_to_the_parts_of_complex_vectors(rng, n_samples):
    A, x = gallery.poisson((N,), n_samples=n_samples), numbers(rng, N, 2)
    form, out = RealParts(A, np.dtype(complex)), np.full((N, 2), np.nan + 0j)
    expected = A.apply(x.real.copy()) + 1j * A.apply(x.imag.copy())
    assert form.apply(x, out) is out and np.array_equal(out, expected)
    assert np.array_equal(form.precondition(x, np.empty_like(x), form.workspace(2)), expected)
    assert form.shape == (N, N) and form.n_samples == n_samples and form.dtype == np.complex128
    assert form.astype(np.dtype(np.complex64)).operator.dtype == np.float32
    last = [1] if n_samples == 2 else [0]
    assert np.array_equal(form.take_samples(last).apply(x[:, 1:].copy()), expected[:, 1:])
