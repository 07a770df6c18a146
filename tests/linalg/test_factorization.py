"""Sparse factorisations of many samples, against SciPy's, dense NumPy, and each sample's own run."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as sla

from ensemble import Ensemble
from ensemble._kernels.direct import inverse
from ensemble._kernels.direct.forms import factors, triangular
from ensemble._kernels.direct.symbolic.minimum_degree import minimum_degree
from ensemble.krylov import gmres
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization, SymmetricCrsMatrix
from ensemble.linalg.factorizations import orderings
from ensemble.linalg.factorizations.orderings import filled_graph, matched_rows
from ensemble.linalg.factorizations.triangular_factors import put_samples, with_capacity


def family(rng, n, n_samples, *, density=0.15, sigma=0.3, symmetric=False, diagonal=6.0):
    """A CrsMatrix of random samples on one graph, lognormal around one matrix, its diagonal dominant or weak."""
    base = sp.random_array((n, n), density=density, rng=rng)
    base = sp.csr_array((base + base.T if symmetric else base) + diagonal * sp.eye_array(n))
    base.sort_indices()
    graph = CrsGraph(base.indptr, base.indices, (n, n))
    values = base.data[:, None] * np.exp(sigma * rng.standard_normal((graph.nnz, n_samples)))
    if symmetric:
        values = 0.5 * (values + values[graph.transposed[2]])
    return CrsMatrix(graph, values if n_samples > 1 else values[:, 0])


def dense(A, s):
    return A.to_scipy(s).toarray()


def grid(cells):
    line = sp.diags_array([-np.ones(cells - 1), 2.0 * np.ones(cells), -np.ones(cells - 1)], offsets=[-1, 0, 1])
    return sp.csr_array(sp.kron(line, sp.eye_array(cells)) + sp.kron(sp.eye_array(cells), line))


@pytest.fixture(params=["flat", "rows", "supernodes"])
def form(request, monkeypatch):
    """Every form of the numbers, whatever the counts."""
    monkeypatch.setattr(orderings, "SUPERNODAL", 0 if request.param == "supernodes" else np.inf)
    monkeypatch.setattr(orderings, "SYMMETRIC_SHARE", 0.0)
    monkeypatch.setattr(orderings, "FLAT", np.inf if request.param == "flat" else -1)
    return request.param


# --- orderings
@pytest.mark.parametrize("n, density", [(0, 0.0), (1, 0.0), (2, 1.0), (30, 0.1), (40, 0.5), (60, 0.03)])
def test_minimum_degree_is_a_permutation(n, density, rng):
    A = sp.random_array((n, n), density=density, rng=rng)
    A = sp.csr_array(A + A.T)
    A.setdiag(0)
    A.eliminate_zeros()
    A.sort_indices()
    order = minimum_degree(A.indptr, A.indices)
    assert sorted(order) == list(range(n))
    np.testing.assert_array_equal(order, minimum_degree(A.indptr, A.indices))


def test_minimum_degree_has_the_fill_of_superlu_on_a_grid():
    """SuperLU's "MMD_AT_PLUS_A" is the older multiple minimum degree on the same graph."""
    A = grid(40)
    own = Factorization(CrsMatrix.from_scipy(A), kind="ldlt").n_values
    lu = sla.splu(sp.csc_matrix(A), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    assert own < 1.1 * lu.L.nnz
    natural = Factorization(CrsMatrix.from_scipy(A), kind="ldlt", ordering=np.arange(1600)).n_values
    assert own < 0.5 * natural


def test_an_arrow_is_eliminated_without_fill():
    n = 300
    A = sp.lil_array((n, n))
    A[0, :] = A[:, 0] = 1.0
    A.setdiag(4.0)
    assert Factorization(CrsMatrix.from_scipy(A.tocsr())).n_values == 3 * n - 2


def test_fill_that_nothing_reaches_is_left_out():
    """A triangular matrix has no fill, whatever the graph of A + A^T has."""
    A = CrsMatrix.from_scipy(sp.csr_array(np.triu(np.ones((12, 12))) + np.eye(12)))
    assert Factorization(A).n_values == 78 and Factorization(A + A.T, kind="ldlt").n_values == 78


# --- kernels
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("n_samples", [1, 5, 33])
@pytest.mark.parametrize("limit", [-1, np.inf])
def test_compiled_kernels_give_the_bits_of_their_references(symmetric, n_samples, limit, rng, monkeypatch):
    monkeypatch.setattr(orderings, "FLAT", limit)
    A = family(rng, 30, n_samples, symmetric=symmetric)
    F = Factorization(A, kind="ldlt" if symmetric else "lu")
    expected, broken = factors.factorized.reference(A.values, F.plan, None)
    np.testing.assert_array_equal(F.values, expected)
    assert not broken.any()
    b = rng.standard_normal((30, 2, n_samples))
    for transposed in (False, True):
        x = triangular.factor_solve(F.values, F.plan, b, transposed, None)
        np.testing.assert_array_equal(x, triangular.factor_solve.reference(F.values, F.plan, b, transposed, None))
        np.testing.assert_array_equal(F._solve(b, transposed), x)
        shared = np.ascontiguousarray(np.broadcast_to(b[..., :1], b.shape))
        np.testing.assert_array_equal(F._solve(b[..., :1].copy(), transposed), F._solve(shared, transposed))
    graph = filled_graph(F.plan)
    z = inverse.selected_inverse(F.values, graph, None)
    np.testing.assert_array_equal(z, inverse.selected_inverse.reference(F.values, graph, None))


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("density", [0.05, 1.0])
def test_inverses_of_few_samples_that_are_kept_dense_have_the_bits_of_the_reference(kind, density, rng, monkeypatch):
    F = Factorization(family(rng, 70, 3, symmetric=True, density=density), kind=kind)
    graph = filled_graph(F.plan)
    assert inverse._is_nearly_dense(graph)
    assert not inverse._is_nearly_dense(filled_graph(Factorization(family(rng, 70, 1, density=0.0), kind=kind).plan))
    values = F.values.copy()
    values[graph.diagonal[9], 1] = np.nan  # of a sample that is lost
    z = inverse.selected_inverse(values, graph, None)
    np.testing.assert_array_equal(z, inverse.selected_inverse.reference(values, graph, None))
    monkeypatch.setattr(inverse, "FEW", 0)
    np.testing.assert_array_equal(z, inverse.selected_inverse(values, graph, None))
    np.testing.assert_array_equal(z[:, :1], inverse.selected_inverse(values[:, :1].copy(), graph, None))


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_staged_and_strided_values_have_the_same_bits(kind, rng, monkeypatch):
    monkeypatch.setattr(orderings, "FLAT", -1)
    A = family(rng, 30, 37, symmetric=True)
    F = Factorization(A, kind=kind)
    monkeypatch.setattr(factors, "LARGE", 0)
    np.testing.assert_array_equal(Factorization(A, kind=kind).values, F.values)


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("density", [0.01, 0.05, 0.3])
def test_supernodes_have_the_bits_of_the_reference(kind, density, rng, monkeypatch):
    monkeypatch.setattr(orderings, "SUPERNODAL", 0)
    A = family(rng, 90, 9, symmetric=True, density=density)
    F = Factorization(A, kind=kind)
    assert F.plan.supernodes is not None and np.diff(F.plan.supernodes.rows).max() > 3
    expected, _ = factors.factorized.reference(A.values, F.plan, None)
    np.testing.assert_array_equal(F.values, expected)


# --- the law
@pytest.mark.parametrize("n_samples", [1, 3, 8, 32, 33])
@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_samples_equal_their_own_runs_to_the_bit(kind, n_samples, form, rng):
    A = family(rng, 25, n_samples, symmetric=kind == "ldlt")
    F, b = Factorization(A, kind=kind), Ensemble(rng.standard_normal((25, 2, n_samples)))
    assert (F.tiles is not None) == (form != "rows" and n_samples > 1)
    results = lambda F, b: (F @ b, F.T @ b, F.logdet(), F.sign(), F.inverse_diagonal())
    together = results(F, b)
    for s in {0, n_samples // 2, n_samples - 1}:
        own = results(Factorization(A.sample(s), kind=kind), Ensemble(b.samples[..., s : s + 1]))
        for many, alone in zip(together, own, strict=True):
            np.testing.assert_array_equal(many.samples[..., s], alone.samples[..., 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_a_broken_sample_changes_no_other(bad, kind, form, rng):
    A = family(rng, 20, 5, symmetric=True)
    b = rng.standard_normal(20)
    good = Factorization(A, kind=kind)
    values = A.values.copy()
    values[A.graph.diagonal_entries[7], 2] = bad
    if bad == 0.0:
        values[:, 2] = 0.0
    F = Factorization(CrsMatrix(A.graph, values), kind=kind)
    assert F.broken.tolist() == [False, False, True, False, False]
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal((F @ b).samples[:, others], (good @ b).samples[:, others])
    assert np.isnan((F @ b).samples[:, 2]).all()
    assert F.logdet().samples[2] == -np.inf if bad == 0.0 else np.isnan(F.logdet().samples[2])
    assert np.isnan(F.inverse_diagonal().samples[:, 2]).all()
    assert "broken: sample 2" in repr(F)
    if kind == "ldlt":
        assert F.inertia()[:, 2].tolist() == ([0, 0] if bad == 0.0 else [-1, -1])


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_forms_have_the_same_bits_in_float32(kind, rng, monkeypatch):
    A, b = family(rng, 25, 21, symmetric=True).astype("float32"), rng.standard_normal(25).astype(np.float32)
    found = []
    for limit in (-1, np.inf):
        monkeypatch.setattr(orderings, "FLAT", limit)
        F = Factorization(CrsMatrix(CrsGraph(A.graph.indptr, A.graph.indices, A.shape), A.values), kind=kind)
        assert (F.tiles is not None) == (limit > 0) and F.values.dtype == np.float32
        found.append((F.values, (F @ b).samples, (F.T @ b).samples, F.logdet().samples))
    for listed, by_rows in zip(*found, strict=True):
        np.testing.assert_array_equal(listed, by_rows)


# --- mathematics
@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_solutions_agree_with_splu(kind, form, rng):
    A = family(rng, 60, 4, symmetric=kind == "ldlt")
    F, b = Factorization(A, kind=kind), rng.standard_normal((60, 3))
    x, y = F @ b, F.T @ b
    for s in range(4):
        lu = sla.splu(sp.csc_matrix(A.to_scipy(s)))
        np.testing.assert_allclose(x.samples[..., s], lu.solve(b), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(y.samples[..., s], lu.solve(b, trans="T"), rtol=1e-12, atol=1e-12)


def test_determinants_agree_with_slogdet(rng):
    A = family(rng, 30, 6, diagonal=3.0)
    swapped = np.arange(30)
    swapped[[3, 8]] = swapped[[8, 3]]  # an odd permutation
    chain = sp.diags_array([rng.uniform(1.0, 2.0, 30), rng.uniform(1.0, 2.0, 29)], offsets=[0, 1]).tocsr()
    permuted = CrsMatrix.from_scipy(sp.csr_array(chain[swapped]))
    assert (Factorization(permuted).plan.rows != Factorization(permuted).plan.columns).sum() == 2
    for matrix in (A, permuted, A * -1):
        F = Factorization(matrix)
        for s in range(matrix.n_samples):
            sign, logarithm = np.linalg.slogdet(dense(matrix, s))
            assert F.sign().samples[s] == sign
            np.testing.assert_allclose(F.logdet().samples[s], logarithm, rtol=1e-12)


def test_inertia_counts_the_signs_of_eigenvalues(rng):
    A = family(rng, 25, 5, symmetric=True, diagonal=0.7)
    counts = Factorization(A, kind="ldlt").inertia()
    for s in range(5):
        eigenvalues = np.linalg.eigvalsh(dense(A, s))
        assert counts[:, s].tolist() == [(eigenvalues < 0).sum(), (eigenvalues > 0).sum()]
    with pytest.raises(ValueError, match="must be LDL"):
        Factorization(A).inertia()


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_entries_of_the_inverse_agree_with_the_dense_one(kind, rng):
    A = family(rng, 30, 3, symmetric=kind == "ldlt", density=0.08)
    F = Factorization(A, kind=kind)
    diagonal, entries = F.inverse_diagonal(), F.inverse_entries()
    for s in range(3):
        exact = np.linalg.inv(dense(A, s))
        np.testing.assert_allclose(diagonal.samples[:, s], np.diag(exact), rtol=1e-11, atol=1e-13)
        rows = A.graph.row_of_entry
        np.testing.assert_allclose(entries.values[:, s], exact[A.graph.indices, rows], rtol=1e-10, atol=1e-13)


def test_inverse_diagonal_where_the_matrix_stores_none(rng):
    order = rng.permutation(20)
    A = CrsMatrix.from_scipy(sp.csr_array(family(rng, 20, 1, density=0.05).to_scipy()[order]))
    F = Factorization(A)
    exact = np.linalg.inv(dense(A, 0))
    np.testing.assert_allclose(F.inverse_diagonal().samples[:, 0], np.diag(exact), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(F.inverse_entries().values[:, 0], exact[A.graph.indices, A.graph.row_of_entry], 1e-9)


@pytest.mark.parametrize("diagonal", [1e-6, 1e-9, 1e-12, 1e-15, 0.0])
def test_small_pivots_spoil_no_determinant_inertia_or_inverse(diagonal, rng):
    """Elimination without exchanges loses all digits there; sample 3 has none of them."""
    A = family(rng, 20, 4, symmetric=True, density=0.2, diagonal=1.0)
    values = A.values.copy()
    values[A.graph.diagonal_entries, :3] *= diagonal
    A = CrsMatrix(A.graph, values)
    for kind in ("lu", "ldlt"):
        F = Factorization(A, kind=kind)
        diagonals, entries = F.inverse_diagonal().samples, F.inverse_entries().values
        for s in range(4):
            a = dense(A, s)
            exact, (sign, logarithm) = np.linalg.inv(a), np.linalg.slogdet(a)
            assert F.sign().samples[s] == sign
            np.testing.assert_allclose(F.logdet().samples[s], logarithm, rtol=0, atol=1e-8)
            tolerance = 1e-12 * np.linalg.cond(a) * np.abs(exact).max()
            np.testing.assert_allclose(diagonals[:, s], np.diag(exact), rtol=0, atol=tolerance)
            of_graph = exact[A.graph.indices, A.graph.row_of_entry]
            np.testing.assert_allclose(entries[:, s], of_graph, rtol=0, atol=tolerance)
            alone = Factorization(A.sample(s), kind=kind)
            assert alone.logdet().samples[0] == F.logdet().samples[s]
            assert F.take_samples([0, s]).sign().samples[1] == sign
            if kind == "ldlt":
                every = np.linalg.eigvalsh(a)
                assert F.inertia()[:, s].tolist() == [(every < 0).sum(), (every > 0).sum()]


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_determinants_of_singular_matrices_are_numpys(kind):
    F = Factorization([sp.csr_array(np.ones((2, 2))), sp.csr_array([[1e-20, 1.0], [1.0, 1.0]])], kind=kind)
    assert F.sign().samples.tolist() == [0.0, -1.0] and F.logdet().samples.tolist() == [-np.inf, 0.0]
    assert np.isnan(F.inverse_diagonal().samples[:, 0]).all()
    np.testing.assert_allclose(F.inverse_diagonal().samples[:, 1], [-1.0, -1e-20])
    if kind == "ldlt":
        assert F.inertia().T.tolist() == [[0, 1], [1, 1]]


def test_values_that_were_changed_in_place_are_not_taken_for_the_old_ones():
    A = CrsMatrix.from_scipy([sp.csr_array([[1e-20, 1.0], [1.0, c]]) for c in (1.0, 2.0)])
    F, before = Factorization(A), Factorization(CrsMatrix(A.graph, A.values.copy())).logdet().samples
    A.values[:, 1] = 3.0
    assert F.logdet().samples[0] == before[0] and np.isnan(F.logdet().samples[1])


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("diagonal", [1e-12, 0.0])
def test_one_entry_that_was_changed_in_place_is_seen(kind, n_samples, diagonal, rng):
    """Whichever it is; a broken sample is that of a copy."""
    A = family(rng, 20, n_samples, symmetric=True, density=0.2, diagonal=1.0)
    A.values[A.graph.diagonal_entries] *= diagonal
    F = Factorization(A, kind=kind)
    before = F.logdet().samples.copy()
    for k in np.flatnonzero(A.graph.indices >= A.graph.row_of_entry).tolist():
        old = A.values[k, 0]
        A.values[k, 0] = old + 1.0
        found = F.logdet().samples
        assert np.isnan(found[0]) or (F.broken.any() and found[0] == before[0])
        np.testing.assert_array_equal(found[1:], before[1:])
        A.values[k, 0] = old
    assert F.lossy.all() and np.array_equal(F.logdet().samples, before)


def test_entries_of_the_inverse_outside_of_the_filled_graph_are_solved_for():
    """A stored zero below the diagonal, nothing above it."""
    A = CrsMatrix(CrsGraph([0, 1, 3, 5], [0, 0, 1, 1, 2], (3, 3)), [2.0, 0.0, 4.0, 0.0, 8.0])
    F = Factorization(A, kind="ldlt")
    assert F.inverse_entries().values[:, 0].tolist() == [0.5, 0.0, 0.25, 0.0, 0.125]


# --- forms of matrices and right-hand sides
def test_every_kind_of_matrix_is_taken(rng):
    A = family(rng, 15, 2, symmetric=True)
    b = rng.standard_normal(15)
    expected = (Factorization(A, kind="ldlt") @ b).samples
    np.testing.assert_array_equal((Factorization(SymmetricCrsMatrix.from_crs(A)) @ b).samples, expected)
    matrices = [A.to_scipy(s) for s in range(2)]
    np.testing.assert_array_equal((Factorization(matrices, kind="ldlt") @ b).samples, expected)
    one = Factorization(matrices[0], kind="ldlt") @ b
    assert isinstance(one, np.ndarray) and np.array_equal(one, expected[:, 0])


def test_a_shared_matrix_takes_samples_and_columns(rng):
    A = family(rng, 15, 1)
    F, b = Factorization(A), Ensemble(rng.standard_normal((15, 2, 5)))
    x = F @ b
    assert x.shape == (15, 2)
    np.testing.assert_array_equal(x.samples[:, 1, 3], F @ b.samples[:, 1, 3])
    assert (F @ np.ones((15, 0))).shape == (15, 0)
    np.testing.assert_allclose(np.ones(15) @ F, np.linalg.solve(dense(A, 0).T, np.ones(15)), rtol=1e-12)


def test_update_keeps_the_plan_and_gives_the_bits_of_a_new_one(rng):
    A, B = (family(np.random.default_rng(3), 20, 4, sigma=sigma) for sigma in (0.1, 0.5))
    F = Factorization(A)
    G = F.update(B)
    assert G.plan is F.plan and Factorization(B.graph and CrsMatrix(A.graph, B.values)).plan is F.plan
    np.testing.assert_array_equal(G.values, Factorization(B).values)
    with pytest.raises(ValueError, match=r"Factorization.update: A must have the same graph"):
        F.update(sp.eye_array(20, format="csr"))


@pytest.mark.parametrize("n_samples", [1, 3, 8, 32, 33, 70])
@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_solve_has_the_bits_of_update_and_product_and_of_each_sample(kind, n_samples, dtype, form, rng):
    A = family(rng, 30, n_samples, symmetric=True).astype(np.dtype(dtype))
    F = Factorization(CrsMatrix(A.graph, np.ones_like(A.values)), kind=kind)
    shared, own = rng.standard_normal(30).astype(dtype), Ensemble(rng.standard_normal((30, n_samples)).astype(dtype))
    for b in (shared, own):
        x, expected = F.solve(A, b), F.update(A) @ b
        assert type(x) is type(expected)
        np.testing.assert_array_equal(getattr(x, "samples", x), getattr(expected, "samples", expected))
        for s in {0, n_samples - 1}:
            right = b if b is shared else Ensemble(b.samples[:, s : s + 1])
            alone = F.solve(A.take_samples([s]), right)
            found = x.samples[:, s] if isinstance(x, Ensemble) else x
            np.testing.assert_array_equal(found, np.reshape(getattr(alone, "samples", alone), 30))


@pytest.mark.parametrize("bad", [np.nan, 0.0])
def test_solve_keeps_a_broken_sample_to_itself(bad, form, rng):
    A = family(rng, 30, 37)
    F, good = Factorization(A), A.values.copy()
    A.values[:, 5] = bad
    x = F.solve(A, np.ones(30)).samples
    assert np.isnan(x[:, 5]).all()
    others = np.arange(37) != 5
    np.testing.assert_array_equal(x[:, others], F.solve(CrsMatrix(A.graph, good), np.ones(30)).samples[:, others])


def test_solve_takes_what_update_and_product_take(rng):
    A, B = family(rng, 20, 4), rng.standard_normal((20, 3))
    F = Factorization(A)
    np.testing.assert_array_equal(F.solve(A, B).samples, (F.update(A) @ B).samples)
    np.testing.assert_array_equal(F.solve([A.to_scipy(s) for s in range(4)], B[:, 0]).samples, (F @ B[:, 0]).samples)
    with pytest.raises(ValueError, match="have 20 rows"):
        F.solve(A, np.ones(19))
    with pytest.raises(ValueError, match="have the same graph"):
        F.solve(family(rng, 20, 4, density=0.3), np.ones(20))


def test_float32_values_solve_in_the_type_of_the_right_hand_side(form, rng):
    A, b = family(rng, 30, 19), rng.standard_normal(30)
    F = Factorization(A, dtype=np.float32)
    assert F.values.dtype == np.float32
    x, exact = (F @ b).samples, (Factorization(A) @ b).samples
    assert x.dtype == np.float64
    error = np.abs(x - exact).max() / np.abs(exact).max()
    assert 1e-12 < error < 1e-5
    reference = triangular.factor_solve.reference(
        F.values, F.plan, np.repeat(b[:, None, None], 19, axis=2), False, None
    )
    np.testing.assert_array_equal(x, reference[:, 0])


def test_it_is_a_preconditioner(rng):
    A, b = family(rng, 40, 5), rng.standard_normal(40)
    result = gmres(A, b, M=Factorization(A, dtype="float32"), rtol=1e-10)
    assert result.converged.all() and result.iterations.max() <= 3


def test_taken_samples_are_those(rng):
    A, b = family(rng, 15, 4), rng.standard_normal(15)
    F = Factorization(A)
    np.testing.assert_array_equal((F.take_samples([2, 0]) @ b).samples, (F @ b).samples[:, [2, 0]])
    np.testing.assert_array_equal(F.T.sample(1) @ b, (F.T @ b).samples[:, 1])


def test_int64_graphs(rng):
    A = family(rng, 20, 3)
    graph = CrsGraph.unchecked(A.graph.indptr.astype(np.int64), A.graph.indices.astype(np.int64), A.shape)
    b = rng.standard_normal(20)
    x = Factorization(CrsMatrix(graph, A.values)) @ b
    np.testing.assert_array_equal(x.samples, (Factorization(A) @ b).samples)


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_one_row_and_none(kind):
    F = Factorization(CrsMatrix.from_scipy(sp.csr_array([[-4.0]])), kind=kind)
    assert (F @ np.array([2.0]))[0] == -0.5 and F.sign().samples[0] == -1.0
    assert F.inverse_diagonal().samples.tolist() == [[-0.25]]
    empty = Factorization(CrsMatrix(CrsGraph([0], [], (0, 0)), np.zeros((0, 3))), kind=kind)
    assert (empty @ np.zeros(0)).shape == (0,) and empty.logdet().samples.tolist() == [0.0, 0.0, 0.0]
    assert empty.inverse_diagonal().shape == (0,)


# --- matching
def test_rows_are_matched_by_the_graph_with_the_diagonal_where_it_is_stored():
    A = CrsMatrix.from_scipy(sp.csr_array([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 3.0, 4.0]]))
    assert matched_rows(A.graph, "f").tolist() == [1, 0, 2]
    np.testing.assert_allclose(Factorization(A) @ np.array([1.0, 2.0, 7.0]), [1.0, 1.0, 1.0])


def test_matching_of_the_mean_takes_the_large_entries(rng):
    """A permuted dominant diagonal under a full graph of small entries, some of the diagonal zero."""
    n, order = 12, rng.permutation(12)
    values = 1e-9 * rng.standard_normal((n * n, 3))
    values[np.arange(n) * n + order] = 1.0
    values[np.arange(n) * (n + 1)] *= 0.0
    values[np.arange(n) * n + order] = 1.0
    A = CrsMatrix(CrsGraph(np.arange(n + 1) * n, np.tile(np.arange(n), n), (n, n)), values)
    b = rng.standard_normal(n)
    F = Factorization(A, matching="mean")
    assert F.plan.rows[np.argsort(F.plan.columns)].tolist() == np.argsort(order).tolist()
    np.testing.assert_allclose((F @ b).samples[:, 1], np.linalg.solve(dense(A, 1), b), rtol=1e-12)


def test_a_structurally_singular_graph_names_its_rows():
    A = sp.csr_array((np.ones(4), ([0, 1, 2, 2], [0, 0, 1, 2])), shape=(3, 3))
    with pytest.raises(ValueError, match=r"structurally singular one: row [01] left without"):
        Factorization(A)
    with pytest.raises(ValueError, match=r"structurally singular one: row 2 left without"):
        Factorization(sp.csr_array([[1.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]), kind="ldlt")


def test_matching_of_the_mean_leaves_rows_of_zeros_to_their_samples():
    """The graph is not singular: the samples are."""
    A = CrsMatrix(CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2)), np.array([[0.0], [0.0], [1.0], [2.0]]))
    assert Factorization(A, matching="mean").broken.tolist() == [True]


def test_a_matrix_that_is_not_symmetric_is_refused_for_ldlt(rng):
    A = family(rng, 12, 3, symmetric=True)
    rounded = CrsMatrix(A.graph, A.values * (1.0 + 1e-15 * rng.standard_normal(A.values.shape)))
    assert not Factorization(rounded, kind="ldlt").broken.any()
    values = A.values.copy()
    values[np.flatnonzero(A.graph.indices != A.graph.row_of_entry)[0], 1] += 1e-3
    text = r'Factorization: A must be symmetric where kind="ldlt"; got .*\(sample 1\). Give kind="lu"'
    with pytest.raises(ValueError, match=text):
        Factorization(CrsMatrix(A.graph, values), kind="ldlt")
    with pytest.raises(ValueError, match="must be symmetric"):
        Factorization(sp.csr_array([[1.0, 1.0], [0.0, 1.0]]), kind="ldlt")


# --- arguments
@pytest.mark.parametrize(
    "A, options, error, match",
    [
        (sp.csr_array(np.ones((2, 3))), {}, ValueError, r"Factorization: A must be square; got shape \(2, 3\)"),
        (np.ones((2, 2)), {}, TypeError, "must be a sparse matrix; got an ndarray"),
        (sp.eye_array(2, format="csr"), {"kind": "qr"}, ValueError, "kind must be one of"),
        (sp.eye_array(2, format="csr"), {"matching": "none"}, ValueError, "matching must be one of"),
        (sp.eye_array(2, format="csr"), {"ordering": [0, 0]}, ValueError, "permutation of 0 ... 1"),
        (sp.eye_array(2, format="csr"), {"ordering": "rcm"}, ValueError, r"or a permutation of 0 ... 1; got 'rcm'"),
        (sp.eye_array(2, format="csr"), {"dtype": int}, ValueError, "dtype must be float32 or float64"),
    ],
)
def test_what_is_refused(A, options, error, match):
    with pytest.raises(error, match=match):
        Factorization(A, **options)


def test_right_hand_sides_are_checked(rng):
    F = Factorization(family(rng, 4, 3))
    with pytest.raises(ValueError, match=r"x must have 4 rows; got shape \(5,\)"):
        F @ np.ones(5)
    with pytest.raises(ValueError, match="same n_samples, or 1; got 3 and 2"):
        F @ Ensemble(np.ones((4, 2)))
    with pytest.raises(TypeError, match=r"Factorization.T @: x must be a vector or an array; got a csr_array"):
        F.T @ sp.csr_array(np.ones((4, 1)))


@pytest.mark.parametrize("columns", [(), (2,)])
def test_complex_right_hand_sides_are_solved_by_their_parts(rng, columns):
    A = family(rng, 6, 3)
    F, x = Factorization(A), rng.standard_normal((6, *columns, 3)) + 1j * rng.standard_normal((6, *columns, 3))
    found = F @ Ensemble(x)
    assert found.dtype == np.complex128
    assert np.array_equal(found.samples.real, (F @ Ensemble(x.real.copy())).samples)
    assert np.array_equal(found.samples.imag, (F @ Ensemble(x.imag.copy())).samples)
    alone, b = Factorization(A.sample(1)), x[..., 1]
    np.testing.assert_allclose(A.sample(1).to_scipy() @ (alone @ b), b, rtol=1e-12)
    np.testing.assert_allclose(A.sample(1).to_scipy().T @ (alone.T @ b), b, rtol=1e-12)
    assert np.array_equal(np.asarray(F.solve(A, Ensemble(x)).samples), found.samples)


@pytest.mark.parametrize("left, right", [(0, 0), (1, 1), (2, 0), (1, 4), (6, 6)])
@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_full_bands_are_scipys(rng, left, right, kind):
    """Without fill, and with the bits of the order given by hand."""
    n, n_samples = 23, 5
    right = left if kind == "ldlt" else right
    diagonals = {d: rng.uniform(-1.0, 1.0, (n - abs(d), n_samples)) for d in range(-left, right + 1)}
    diagonals[0] = 2.0 * (left + right) + rng.uniform(0.5, 1.0, (n, n_samples))
    if kind == "ldlt":
        diagonals = {d: diagonals[abs(d)] for d in diagonals}
    matrices = [
        sp.diags_array([v[:, s] for v in diagonals.values()], offsets=list(diagonals), shape=(n, n))
        for s in range(n_samples)
    ]
    A, b = CrsMatrix.from_scipy(matrices), rng.standard_normal((n, n_samples))
    F = Factorization(A, kind=kind)
    x = (F @ Ensemble(b)).samples
    assert F.n_values == (np.count_nonzero(np.triu(A.to_scipy().toarray())) if kind == "ldlt" else A.nnz)
    assert np.array_equal(x, (Factorization(A, kind=kind, ordering=np.arange(n)) @ Ensemble(b)).samples)
    for s in range(n_samples):
        band = np.zeros((left + right + 1, n))
        for d, v in diagonals.items():
            band[right - d, max(d, 0) : max(d, 0) + n - abs(d)] = v[:, s]
        expected = scipy.linalg.solve_banded((left, right), band, b[:, s])
        np.testing.assert_allclose(x[:, s], expected, rtol=1e-12, atol=1e-13)


# --- samples put into others' places
@pytest.mark.parametrize("n_samples", [1, 5, 40])
def test_samples_that_are_put_into_places_keep_their_bits(n_samples, form, rng):
    A, b = family(rng, 30, n_samples), rng.standard_normal((30, n_samples))
    whole = Factorization(A)
    kept = with_capacity(whole, n_samples + 3)
    assert kept.broken.all()
    places = rng.permutation(n_samples + 3)[:n_samples]
    put_samples(kept, places, whole, np.arange(n_samples))
    assert kept.broken.sum() == 3
    right = np.zeros((30, n_samples + 3))
    right[:, places] = b
    np.testing.assert_array_equal(kept.apply(right)[:, places], whole.apply(b))
    np.testing.assert_array_equal(kept.values[:, places], whole.values)
    one = whole.take_samples([n_samples - 1])
    put_samples(kept, places[:1], one, np.array([0]))
    np.testing.assert_array_equal(kept.values[:, places[:1]], one.values)
    np.testing.assert_array_equal(kept.apply(right)[:, places[1:]], whole.apply(b)[:, 1:])


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_rows_in_very_different_units_need_the_right_exchanges(kind):
    """Small pivots in rows of 1e-150 to 1e150: the largest entry of a column is no good pivot."""
    rng = np.random.default_rng(30517)
    n, dense = 60, rng.normal(size=(60, 60)) * (rng.random((60, 60)) < 0.15)
    dense = dense + dense.T
    np.fill_diagonal(dense, 1e-12)
    units = np.rint(rng.uniform(-500.0, 500.0 if kind == "lu" else 0.0, n)).astype(int)
    across = units if kind == "ldlt" else np.zeros(n, int)
    A = sp.csr_array(np.ldexp(dense, units[:, None] + across))
    F = Factorization(A, kind=kind)
    sign, logdet = np.linalg.slogdet(dense)
    assert F.lossy.all() and F.sign().sample(0) == sign
    np.testing.assert_allclose(F.logdet().sample(0), logdet + (units.sum() + across.sum()) * np.log(2.0), rtol=1e-12)
    inverse = np.ldexp(np.linalg.inv(dense), -units - across[:, None])
    np.testing.assert_allclose(F.inverse_diagonal().sample(0), np.diag(inverse), rtol=1e-9)
    if kind == "ldlt":
        eigenvalues = np.linalg.eigvalsh(dense)
        assert F.inertia()[:, 0].tolist() == [(eigenvalues < 0.0).sum(), (eigenvalues > 0.0).sum()]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n_samples", [1, 5])
def test_solutions_that_lost_digits_are_corrected_before_other_factors_are_made(
    n_samples, transposed, rng, monkeypatch
):
    """Growth of 1e5 costs digits that one correction brings back; SuperLU is asked where two do not."""
    from ensemble.linalg.factorizations import factorization as module

    calls, real = [], module.pivoted
    monkeypatch.setattr(module, "pivoted", lambda A: calls.append(A) or real(A))
    n = 12
    D = rng.standard_normal((n, n)) + 4.0 * np.eye(n)
    D[0, 0] = 0.0
    graph = CrsMatrix.from_scipy(sp.csr_array(np.ones((n, n)))).graph
    values = np.repeat(D.reshape(-1, 1), n_samples, axis=1) * (1.0 + 0.1 * rng.random((n * n, n_samples)))
    pivots = 10.0 ** -(5.0 + np.arange(n_samples))
    pivots[-1] = 1e-16 if n_samples > 1 else pivots[-1]
    values[0] = pivots
    A, b = CrsMatrix(graph, values), rng.standard_normal((n, n_samples))
    F = Factorization(A, ordering=np.arange(n))
    G = F.T if transposed else F
    x = (G @ Ensemble(b)).samples
    assert len(calls) == (n_samples > 1)
    for s in range(n_samples):
        M = values[:, s].reshape(n, n).T if transposed else values[:, s].reshape(n, n)
        assert np.abs(M @ x[:, s] - b[:, s]).max() < 1e-13 * np.abs(M).sum(axis=1).max() * np.abs(x[:, s]).max()
        own = F.update(CrsMatrix(graph, values[:, s : s + 1].copy()))
        alone = (own.T if transposed else own) @ Ensemble(b[:, s : s + 1].copy())
        np.testing.assert_array_equal(alone.samples[:, 0], x[:, s])
    F = F.update(A)
    A.values[3, 0] += 1.0  # changed in place: nothing is known of that sample any more
    changed = ((F.T if transposed else F) @ Ensemble(b)).samples
    assert np.isnan(changed[:, 0]).all() and np.isfinite(changed[:, 1:]).all()
