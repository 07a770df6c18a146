"""Sums, differences and multiples of matrices, against SciPy sample by sample."""

import operator

import numpy as np
import pytest
import scipy.sparse as sp

import ensemble as en
from ensemble.linalg import AffineMatrix, CrsMatrix, Diagonal, SymmetricCrsMatrix
from tests.walked import every

N = 30


def random_matrix(seed, n_samples, symmetric=False, density=0.15):
    generator = np.random.default_rng(seed)
    pattern = sp.random_array((N, N), density=density, rng=generator, format="csr") + sp.eye_array(N)
    if symmetric:
        pattern = (pattern + pattern.T).tocsr()
    found = []
    for _ in range(n_samples):
        m = pattern.copy()
        m.data[:] = generator.standard_normal(m.nnz)
        found.append(m + m.T if symmetric else m)
    return CrsMatrix.from_scipy(found)


def affine(seed, n_samples):
    terms = random_matrix(seed, 3)
    coefficients = np.random.default_rng(seed + 1).standard_normal((2, n_samples))
    return AffineMatrix(terms.graph, terms.values, en.Ensemble(coefficients))


KINDS = {
    "crs": lambda seed, s: random_matrix(seed, s),
    "transposed": lambda seed, s: random_matrix(seed, s).T,
    "symmetric": lambda seed, s: SymmetricCrsMatrix.from_crs(random_matrix(seed, s, symmetric=True)),
    "affine": affine,
    "diagonal": lambda seed, s: Diagonal(en.Ensemble(np.random.default_rng(seed).standard_normal((N, s)))),
}


def dense(A, s):
    if isinstance(A, Diagonal):
        return np.diag(A.entries[:, s if A.n_samples > 1 else 0])
    return A.to_scipy(s).toarray()


@every("samples", [(1, 1), (3, 3), (1, 3), (3, 1)])
@every("second", KINDS)
@every("first", KINDS)
@every("operation", [operator.add, operator.sub])
def test_sums_and_differences_are_those_of_each_sample(operation, first, second, samples):
    A, B = KINDS[first](51732, samples[0]), KINDS[second](66121, samples[1])
    C = operation(A, B)
    assert C.n_samples == max(samples)
    for s in range(C.n_samples):
        expected = operation(dense(A, s), dense(B, s))  # a value of an affine matrix is rounded a few times
        np.testing.assert_allclose(dense(C, s), expected, rtol=0, atol=4e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_samples", [1, 3])
def test_multiples_are_those_of_each_sample(kind, n_samples):
    A = KINDS[kind](81013, n_samples)
    factors = en.Ensemble(np.array([2.0, -0.5, 3.25]))
    for s in range(3):
        D = dense(A, s)
        for C, expected in (
            (2 * A, 2 * D), (A * 0.3, D * 0.3), (A / 3, D / 3), (-A, -D), (+A, D),
            (factors * A, factors.samples[s] * D), (A * factors, factors.samples[s] * D),
            (A / factors, D / factors.samples[s]), (np.float64(2) * A, 2 * D),
        ):  # fmt: skip
            np.testing.assert_allclose(dense(C, s), expected, rtol=0, atol=4e-15)


@pytest.mark.parametrize("kind", ["crs", "symmetric", "affine"])
def test_a_sample_of_an_expression_is_the_expression_of_the_sample(kind):
    A, M, sigma = KINDS[kind](24601, 4), KINDS[kind](92821, 4), en.Ensemble(np.linspace(0.1, 0.7, 4))
    together = A - sigma * M
    for s in range(4):
        alone = A.sample(s) - en.Ensemble(sigma.samples[s : s + 1]) * M.sample(s)
        assert np.array_equal(dense(together, s), dense(alone, 0))
        x = np.linspace(-1.0, 1.0, N)
        assert np.array_equal((together @ x).samples[:, s], alone @ x)


def test_matrices_on_one_graph_stay_on_it_and_graphs_are_united():
    A = random_matrix(10007, 2)
    assert (A + CrsMatrix(A.graph, A.values)).graph is A.graph
    assert (3 * A).graph is A.graph
    B = random_matrix(10009, 2)
    C = A + B
    union = (abs(A.to_scipy(0)) > 0) + (abs(B.to_scipy(0)) > 0)
    assert C.nnz == union.nnz and type(C) is CrsMatrix
    assert (A - A).nnz == A.nnz  # what cancels stays: the graph does not depend on values


def test_scipy_matrices_enter_from_both_sides():
    A, shift = random_matrix(15485, 2), sp.eye_array(N)
    for s in range(2):
        assert np.array_equal((A - shift).to_scipy(s).toarray(), A.to_scipy(s).toarray() - np.eye(N))
        assert np.array_equal((shift - A).to_scipy(s).toarray(), np.eye(N) - A.to_scipy(s).toarray())
    assert np.array_equal(sum([A, A]).values, (A + A).values)


def test_kinds_are_kept():
    A, B = KINDS["symmetric"](31337, 2), KINDS["symmetric"](31338, 2)
    D = KINDS["diagonal"](31339, 2)
    assert type(A + B) is type(A - D) is type(2 * A) is SymmetricCrsMatrix
    F = affine(31340, 2)
    assert type(F + affine(31341, 2)) is type(F - random_matrix(31342, 1)) is type(F / 2) is AffineMatrix
    assert type(F + random_matrix(31343, 2)) is CrsMatrix and type(D + D) is Diagonal
    assert (np.float32(2) * A.astype(np.float32)).dtype == (2 * A.astype(np.float32)).dtype == np.float32


def test_sample_sets_are_carried():
    points = en.SampleSet.monte_carlo(3, 1, seed=40127)
    A = random_matrix(20011, 3)
    C = en.Ensemble(np.ones(3), points) * A + A
    assert C.sample_set is points


@pytest.mark.parametrize(
    "expression, found",
    [
        (lambda A: A * en.Ensemble(np.ones((N, 2))), r"CrsMatrix \*: the other operand must be a number"),
        (lambda A: np.ones(N) * A, r"of shape \(30,\). A product of matrices is A @ B"),
        (lambda A: A * A, r"got a CrsMatrix. A product of matrices is A @ B"),
        (lambda A: A / np.ones(N), r"CrsMatrix /: the other operand must be a number"),
        (lambda A: A + 1.0, r"CrsMatrix \+: the other operand must be a sparse matrix; got a float"),
        (lambda A: np.ones((N, N)) - A, r"the other operand must be a sparse matrix; got an ndarray"),
    ],
)  # fmt: skip
def test_other_operands_are_refused_by_name(expression, found):
    with pytest.raises(TypeError, match=found):
        expression(random_matrix(27644, 2))


def test_numbers_of_samples_and_shapes_that_differ_are_refused():
    A = random_matrix(11939, 2)
    with pytest.raises(ValueError, match=r"CrsMatrix \+: operands must have the same n_samples, or 1; got 2 and 3"):
        A + random_matrix(11941, 3)
    with pytest.raises(ValueError, match=r"CrsMatrix \*: operands must have the same n_samples, or 1; got 2 and 3"):
        A * en.Ensemble(np.ones(3))
    with pytest.raises(ValueError, match=r"CrsMatrix \+: operands must have one shape; got \(30, 30\) and \(4, 4\)"):
        A + sp.eye_array(4)


# --- entries that are zero in every sample
def test_entries_that_are_zero_in_every_sample_are_dropped():
    A = random_matrix(73859, 3)
    values = A.values.copy()
    values[::3] = 0.0
    values[1::3, 0] = 0.0
    values[3, 2] = np.nan
    B = CrsMatrix(A.graph, en.Ensemble(values)).eliminate_zeros()
    keep = np.ones(A.nnz, bool)
    keep[::3] = False
    keep[3] = True
    assert B.nnz == keep.sum() and np.array_equal(B.values, values[keep], equal_nan=True)
    for s in range(3):
        expected = CrsMatrix(A.graph, values).to_scipy(s).toarray()
        assert np.array_equal(B.to_scipy(s).toarray(), expected, equal_nan=True)


def test_a_matrix_without_zeros_is_its_own_answer():
    A = random_matrix(40961, 2)
    assert A.eliminate_zeros() is A
    S = SymmetricCrsMatrix.from_crs(random_matrix(40963, 2, symmetric=True))
    assert S.eliminate_zeros() is S
    F = affine(40973, 2)
    assert F.eliminate_zeros() is F


def test_a_symmetric_matrix_keeps_its_diagonal():
    A = random_matrix(49999, 2, symmetric=True)
    values = A.values.copy()
    rows, columns = A.graph.row_of_entry, A.graph.indices
    values[(rows + columns) % 3 == 0] = 0.0
    B = SymmetricCrsMatrix.from_crs(CrsMatrix(A.graph, values)).eliminate_zeros()
    assert B.nnz == np.sum(((rows + columns) % 3 != 0) | (rows == columns))
    assert np.array_equal(B.to_scipy(1).toarray(), CrsMatrix(A.graph, values).to_scipy(1).toarray())


def test_an_affine_matrix_drops_entries_whose_terms_are_zero():
    F = affine(60013, 2)
    terms = F.terms.copy()
    terms[::2] = 0.0
    terms[1, :2] = 0.0
    G = AffineMatrix(F.graph, terms, en.Ensemble(F.coefficients)).eliminate_zeros()
    assert G.nnz == F.nnz // 2
    given = AffineMatrix(F.graph, terms, en.Ensemble(F.coefficients))
    assert np.array_equal(G.to_scipy(1).toarray(), given.to_scipy(1).toarray())


def test_a_union_of_graphs_has_no_zeros():
    A = sp.csr_array(np.array([[1.0, 2.0], [0.0, 3.0]]))
    B = sp.csr_array((np.array([1.0, 0.0, 5.0]), np.array([0, 0, 1]), np.array([0, 1, 3])), shape=(2, 2))
    assert B.nnz == 3 and CrsMatrix.from_scipy([A, B]).nnz == 3
    assert CrsMatrix.from_scipy(B).nnz == 3  # one graph stays as it is given


def test_stored_zeros_cost_iterations_until_they_are_dropped():
    from ensemble.gallery import poisson
    from ensemble.krylov import cg
    from ensemble.multigrid import smoothed_aggregation

    A = poisson((60, 60))
    wide = CrsMatrix.from_scipy([A.to_scipy() @ A.to_scipy(), A.to_scipy()]).sample(1)  # A on the pattern of A^2
    dropped = wide.eliminate_zeros()
    assert np.array_equal(dropped.graph.indices, A.graph.indices)
    b = np.ones(A.shape[0])
    few, many = (cg(m, b, M=smoothed_aggregation(m, coarse_size=100)).iterations[0] for m in (dropped, wide))
    assert few <= 0.6 * many
