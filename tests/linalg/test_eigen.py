"""Eigenpairs: known spectra, SciPy sample by sample, multiple values, and bad samples that harm nobody."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from ensemble import gallery
from ensemble.krylov import SolveError, Status
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix, eigsh, kron
from ensemble.linalg.eigenvalues import eigen, eigen_operators
from ensemble.linalg.eigenvalues.eigen_operators import Pencil
from ensemble.linalg.eigenvalues.eigen_pivots import PivotCounts
from ensemble.linalg.eigenvalues.ritz import products
from ensemble.scalar import Ensemble, SampleSet
from tests.linalg.problems import random_matrix


def symmetric(seed, n, n_samples, density=0.05):
    """Random symmetric matrices on one graph, with a diagonal of both signs."""
    rng = np.random.default_rng(seed)
    A = random_matrix(rng, n, n, n_samples, density)
    return CrsMatrix.from_scipy(
        [a + a.T + sp.diags_array(rng.normal(0, 3, n)) for a in map(A.to_scipy, range(n_samples))]
    )


def mass(n, n_samples=1):
    one = sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr() / 6
    return CrsMatrix.from_scipy([(1 + s) * one for s in range(n_samples)])


def chosen(values, k, which="LM", sigma=None):
    """The values that are wanted of all, ascending."""
    goodness = {"LM": np.abs(values), "SM": -np.abs(values), "LA": values, "SA": -values}[which]
    goodness = goodness if sigma is None else -np.abs(values - sigma)
    return np.sort(values[np.argsort(-goodness)[:k]])


def check(result, A, M=None, tolerance=1e-11):
    """Residuals, order, normalisation and signs, by dense algebra."""
    assert result.converged.all()
    k, n = result.values.shape[0], A.shape[0]
    assert result.vectors.shape == (n, k) and result.residual_norms.shape == (k, result.values.n_samples)
    for s in range(result.values.n_samples):
        a, m = A.to_scipy(s).toarray(), np.eye(n) if M is None else M.to_scipy(s).toarray()
        values, vectors = result.values.sample(s), result.vectors.sample(s)
        assert np.all(np.diff(values) >= 0.0)
        size = np.abs(a).sum(axis=1).max() + np.abs(values) * np.abs(m).sum(axis=1).max()
        norms = np.linalg.norm(a @ vectors - m @ vectors * values, axis=0)
        assert np.all(norms <= tolerance * size * np.linalg.norm(vectors, axis=0))
        np.testing.assert_allclose(norms, result.residual_norms[:, s], rtol=0, atol=1e-13 * size.max())
        np.testing.assert_allclose(vectors.T @ m @ vectors, np.eye(k), rtol=0, atol=1e-8)
        for x in vectors.T:
            assert x[np.flatnonzero(np.abs(x) >= 0.5 * np.abs(x).max())[0]] > 0.0


@pytest.mark.parametrize("which", ["LM", "SM", "LA", "SA"])
@pytest.mark.parametrize("n", [8, 90])
def test_pairs_are_those_of_dense_algebra(which, n):
    A = symmetric(20411, n, 5)
    result = eigsh(A, 4, which=which)
    check(result, A)
    for s in range(5):
        expected = chosen(np.linalg.eigvalsh(A.to_scipy(s).toarray()), 4, which)
        np.testing.assert_allclose(result.values.sample(s), expected, rtol=0, atol=1e-11)
    assert np.all(result.iterations == 0) == (n == 8)


@pytest.mark.parametrize("n", [10, 80])
@pytest.mark.parametrize("shared", [False, True])
def test_pairs_near_a_shift_of_each_sample(n, shared):
    A, shifts = symmetric(60821, n, 4), np.array([0.0, 0.3, -1.7, 4.0])
    sigma = 0.37 if shared else Ensemble(shifts)
    result = eigsh(A, 5, sigma=sigma)
    check(result, A)
    for s in range(4):
        every = np.linalg.eigvalsh(A.to_scipy(s).toarray())
        expected = chosen(every, 5, sigma=0.37 if shared else shifts[s])
        np.testing.assert_allclose(result.values.sample(s), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("which", ["LM", "SM", "LA", "SA"])
@pytest.mark.parametrize("n", [9, 70])
def test_generalised_problems_are_scipys(which, n):
    A, M = gallery.poisson((n,), n_samples=3), mass(n, 3)
    result = eigsh(A, 3, M, which=which, max_iterations=400)
    check(result, A, M)
    for s in range(3):
        every = scipy.linalg.eigh(A.to_scipy(s).toarray(), M.to_scipy(s).toarray(), eigvals_only=True)
        np.testing.assert_allclose(result.values.sample(s), chosen(every, 3, which), rtol=1e-9)


def test_vibrations_of_a_string_are_known():
    """Linear elements on (0, 1): 6 / h^2 (1 - cos(j pi h)) / (2 + cos(j pi h))."""
    n = 200
    h, j = 1.0 / (n + 1), np.arange(1, 6)
    A, M = gallery.poisson((n,)) / h, mass(n) * h
    expected = 6.0 / h**2 * (1.0 - np.cos(j * np.pi * h)) / (2.0 + np.cos(j * np.pi * h))
    result = eigsh(A, 5, M, sigma=0.0)
    check(result, A, M)
    np.testing.assert_allclose(result.values.samples[:, 0], expected, rtol=1e-9)
    exact = np.sin(np.outer(np.arange(1, n + 1) * h, j) * np.pi)
    cosine = np.abs(np.sum(exact * result.vectors.samples[:, :, 0], axis=0))
    norms = np.linalg.norm(exact, axis=0) * np.linalg.norm(result.vectors.samples[:, :, 0], axis=0)
    np.testing.assert_allclose(cosine, norms, rtol=1e-12)


def laplacian_values(shape):
    grids = [2.0 - 2.0 * np.cos(np.arange(1, n + 1) * np.pi / (n + 1)) for n in shape]
    return np.sort(sum(np.meshgrid(*grids, indexing="ij")).reshape(-1))


@pytest.mark.parametrize("shape, k", [((12, 12), 8), ((7, 7, 7), 11)], ids=str)
@pytest.mark.parametrize("which", ["SA", "SM", "LA"])
def test_every_copy_of_a_multiple_value_is_found(shape, k, which):
    """Squares have pairs of equal values, cubes up to six of them."""
    A = gallery.poisson(shape)
    every = laplacian_values(shape)
    result = eigsh(A, k, which=which)
    check(result, A)
    np.testing.assert_allclose(result.values.samples[:, 0], every[-k:] if which == "LA" else every[:k], atol=1e-10)


@pytest.mark.parametrize("copies", [4, 7])
@pytest.mark.parametrize("which", ["SA", "LA"])
def test_more_copies_than_vectors_of_a_block(copies, which):
    A, every = kron(copies, gallery.poisson((40,))), laplacian_values((40,))
    result = eigsh(A, copies + 1, which=which, max_iterations=400)
    check(result, A)
    ends = every[[-2] + [-1] * copies] if which == "LA" else every[[0] * copies + [1]]
    np.testing.assert_allclose(result.values.samples[:, 0], ends, rtol=0, atol=1e-10)


def test_copies_that_the_first_space_does_not_hold():
    """Five equal values: three copies and the next two values meet a wide tolerance before rounding brings others."""
    values = np.concatenate([np.ones(5), np.linspace(100.0, 1000.0, 195)])
    result = eigsh(sp.diags_array(values), 5, which="SM", rtol=1e-4)
    np.testing.assert_allclose(result.values.samples[:, 0], 1.0, rtol=1e-3)


def test_another_start_finds_what_the_first_does_not_hold(monkeypatch):
    """The first vectors have no part in the eigenvector of the smallest value, and products of a diagonal give none."""
    make = eigen._Search.__init__

    def without_the_first(self, *arguments):
        make(self, *arguments)
        self.spare[: -eigen.BLOCK, 0] = 0.0

    monkeypatch.setattr(eigen._Search, "__init__", without_the_first)
    result = eigsh(sp.diags_array(np.linspace(1.0, 30.0, 150)), 3, which="SM")
    np.testing.assert_allclose(result.values.samples[:, 0], np.linspace(1.0, 30.0, 150)[:3], rtol=1e-12)


def test_clustered_values_and_multiples_of_the_identity():
    rng = np.random.default_rng(33119)
    values = np.concatenate([1.0 + 1e-7 * np.arange(6), rng.uniform(2.0, 50.0, 114)])
    A = CrsMatrix.from_scipy([sp.diags_array(values), 3.0 * sp.eye_array(120)])
    result = eigsh(A, 6, which="SA")
    check(result, A)
    np.testing.assert_allclose(result.values.sample(0), values[:6], rtol=1e-13)
    np.testing.assert_allclose(result.values.sample(1), 3.0, rtol=1e-13)


@pytest.mark.parametrize("options", [{"which": "SA"}, {"which": "LM"}, {"sigma": 0.4}], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_each_sample_is_its_scalar_run(options, weighted):
    n_samples = 9
    A = symmetric(73009, 90, n_samples)
    M = mass(90) if weighted else None
    result = eigsh(A, 3, M, **options, max_iterations=300)
    assert np.unique(result.iterations).size > 1  # finished samples have left
    for s in range(n_samples):
        alone = eigsh(A.sample(s), 3, M, **options, max_iterations=300)
        for name in ("values", "vectors"):
            assert np.array_equal(getattr(result, name).sample(s), getattr(alone, name).sample(0))
        assert np.array_equal(result.residual_norms[:, s], alone.residual_norms[:, 0])
        assert result.iterations[s] == alone.iterations[0] and result.status[s] is alone.status[0]


def test_signs_and_order_are_those_of_neighbouring_samples():
    """Modes of a string whose density changes little from sample to sample, odd ones among them, do not flip."""
    n = 61
    line = np.linspace(0.0, 1.0, n)
    matrices = [gallery.poisson((n,)).to_scipy() + sp.diags_array(1e-3 * np.sin(7 * line + s)) for s in range(24)]
    vectors = eigsh(CrsMatrix.from_scipy(matrices), 5, which="SA").vectors.samples
    np.testing.assert_array_less(np.max(np.abs(vectors - vectors[:, :, :1]), axis=(0, 1)), 0.2)


@pytest.mark.parametrize("n", [12, 80])
def test_bad_samples_are_flagged_and_the_others_are_their_own_runs(n):
    A = symmetric(88493, n, 4)
    values = A.values.copy()
    values[5, 1], values[:, 2] = np.nan, np.inf
    result = eigsh(CrsMatrix(A.graph, values), 3, which="SA")
    assert result.status.tolist() == [Status.converged, Status.breakdown, Status.breakdown, Status.converged]
    assert np.isnan(result.values.samples[:, 1:3]).all() and np.isnan(result.residual_norms[:, 1]).all()
    for s in (0, 3):
        assert np.array_equal(result.vectors.sample(s), eigsh(A.sample(s), 3, which="SA").vectors.sample(0))
    assert repr(result) == "EigenResult(3 pairs: 2 of 4 samples converged; not: samples 1, 2)"
    with pytest.raises(SolveError, match=r"eigsh: 2 of 4 samples have pairs .*\(samples 1, 2; 2 breakdown\)"):
        result.raise_if_failed()


@pytest.mark.parametrize("n", [12, 80])
@pytest.mark.parametrize(
    "entry, options",
    [(-1.0, {"sigma": 0.1}), (-1e-3, {"sigma": 0.1}), (-1e-3, {"which": "LA"}), (0.0, {"which": "LA"})],
)
def test_a_weight_that_is_not_positive_definite_breaks_down(n, entry, options):
    """A basis of few vectors may see no vector of negative length, and its pairs had small residuals."""
    A = gallery.poisson((n,), n_samples=2)
    M = CrsMatrix.from_scipy([sp.eye_array(n), sp.diags_array(np.where(np.arange(n) == 4, entry, 1.0))])
    result = eigsh(A, 2, M, **options)
    assert result.converged[0] and result.status[1] is Status.breakdown
    assert np.isnan(result.values.samples[:, 1]).all() and not np.isnan(result.values.samples[:, 0]).any()


@pytest.mark.parametrize("n", [12, 80])
def test_a_matrix_that_is_not_symmetric_breaks_down(n):
    """Whether the wanted vectors see the coupling in one direction or not; sample 0 has none."""
    plain = sp.csr_array(sp.block_diag([gallery.poisson((n,)).to_scipy(), 9.0 * sp.eye_array(n)]))
    unseen, seen = (sp.csr_array(([0.5], ([i], [i + 1])), shape=plain.shape) for i in (n, 2))
    A = CrsMatrix.from_scipy([plain, plain + unseen, plain + seen])
    for options in ({"which": "SA"}, {"sigma": 0.1}):
        result = eigsh(A, 2, **options)
        assert result.status.tolist() == [Status.converged, Status.breakdown, Status.breakdown]
    M = CrsMatrix.from_scipy([sp.eye_array(2 * n), sp.eye_array(2 * n) + seen])
    assert eigsh(plain, 2, M, sigma=0.1).status.tolist() == [Status.converged, Status.breakdown]


@pytest.mark.parametrize("n", [12, 80])
def test_a_shift_that_is_not_finite_breaks_its_sample_down(n):
    result = eigsh(gallery.poisson((n,)), 2, sigma=Ensemble(np.array([0.1, np.nan, np.inf])))
    assert result.status.tolist() == [Status.converged, Status.breakdown, Status.breakdown]
    with pytest.raises(TypeError, match="sigma must be real; got dtype complex128"):
        eigsh(gallery.poisson((n,)), 2, sigma=Ensemble(np.array([1j, 2.0])))


def test_shifts_that_are_eigenvalues_are_moved():
    A = CrsMatrix.from_scipy([sp.diags_array(np.arange(90.0)), sp.diags_array(np.arange(90.0) + 0.25)])
    result = eigsh(A, 3, sigma=7.0)
    check(result, A)
    np.testing.assert_allclose(result.values.sample(0), [6.0, 7.0, 8.0], rtol=1e-12)
    line = gallery.poisson((50,)).to_scipy().tolil()
    line[0, 0] = line[49, 49] = 1.0
    singular = eigsh(line.tocsr(), 2, which="SM")
    assert singular.converged.all() and abs(singular.values.samples[0, 0]) < 1e-12


@pytest.mark.parametrize("distance", [0.0, 1e-14, 1e-12, 1e-9])
@pytest.mark.parametrize("place", [3, 150])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_shifts_within_rounding_of_an_eigenvalue(distance, place, k):
    """Of the string itself, and of samples with other shifts."""
    every = laplacian_values((300,))
    factors, shifts = np.array([1.0, 0.5, 3.0]), np.array([every[place] + distance, 0.1, 3.0 * every[7]])
    A = Ensemble(factors) * gallery.poisson((300,))
    result = eigsh(A, k, sigma=Ensemble(shifts))
    check(result, A)
    for s in range(3):
        expected = chosen(factors[s] * every, k, sigma=shifts[s])
        np.testing.assert_allclose(result.values.sample(s), expected, rtol=0, atol=1e-13)
        alone = eigsh(A.take_samples(np.array([s])), k, sigma=float(shifts[s]))
        np.testing.assert_array_equal(result.vectors.sample(s), alone.vectors.sample(0))


@pytest.mark.parametrize("place", [3, 200])
def test_a_shift_that_is_an_eigenvalue_in_float32(place):
    every = laplacian_values((400,))
    result = eigsh(gallery.poisson((400,)).astype(np.float32), 3, sigma=float(np.float32(every[place])))
    expected = chosen(every, 3, sigma=every[place])
    np.testing.assert_allclose(result.raise_if_failed().values.sample(0), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("options", [{"which": "SM"}, {"which": "SA"}, {"sigma": 0.0}], ids=str)
def test_the_value_zero_of_a_string_with_free_ends(k, options):
    """The next values are as far away as a shift that is moved by 1e-6: it found these instead."""
    n = 3000
    diagonal = np.full(n, 2.0)
    diagonal[[0, -1]] = 1.0
    A = sp.diags_array([-np.ones(n - 1), diagonal, -np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr()
    result = eigsh(A, k, **options).raise_if_failed()
    np.testing.assert_allclose(result.values.sample(0), 2 - 2 * np.cos(np.arange(k) * np.pi / n), rtol=0, atol=1e-13)


@pytest.mark.parametrize("k", [2, 3])
def test_one_of_two_copies_converges(k):
    """The second value of a square membrane is double: the last pair is one of two."""
    result = eigsh(gallery.poisson((20, 20)), k, which="SA").raise_if_failed()
    assert result.iterations[0] < 10
    np.testing.assert_allclose(result.values.sample(0), laplacian_values((20, 20))[:k], rtol=1e-12)


@pytest.mark.parametrize("which", ["LM", "SM", "LA", "SA"])
def test_a_matrix_of_zeros(which):
    result = eigsh(sp.csr_array((300, 300)), 4, which=which).raise_if_failed()
    np.testing.assert_allclose(result.values.sample(0), 0.0, atol=1e-15)


def test_iterations_that_do_not_suffice_say_so():
    result = eigsh(gallery.poisson((30, 30)), 4, which="LA", max_iterations=2)
    assert result.status[0] is Status.max_iterations and result.iterations[0] == 2
    assert np.all(result.residual_norms.max(axis=0) > result.target.min(axis=0))
    with pytest.raises(SolveError, match="Give sigma near the values wanted"):
        result.raise_if_failed()


def test_float32_symmetric_matrices_and_sample_sets():
    points = SampleSet(points=np.arange(3.0)[None, :])
    A = CrsMatrix.from_scipy([gallery.poisson((60,)).to_scipy()] * 3)
    single = CrsMatrix(A.graph, Ensemble(A.values.astype(np.float32), points))
    result = eigsh(single, 2, which="SA")
    assert result.converged.all() and result.values.dtype == result.vectors.dtype == np.float32
    assert result.values.sample_set is points
    np.testing.assert_allclose(result.values.samples[:, 0], laplacian_values((60,))[:2], rtol=1e-2)
    half = eigsh(SymmetricCrsMatrix.from_crs(A), 2, which="SA")
    assert np.array_equal(half.values.samples, eigsh(A, 2, which="SA").values.samples)


def test_all_pairs_of_small_matrices_and_one_of_one():
    A = symmetric(20771, 5, 2, 0.5)
    check(eigsh(A, 5), A)
    one = eigsh(sp.csr_array([[4.0]]), 1, sp.csr_array([[2.0]]))
    assert one.values.samples[0, 0] == pytest.approx(2.0) and one.vectors.samples[0, 0, 0] == pytest.approx(
        np.sqrt(0.5)
    )


def test_a_basis_replaces_what_depends_on_the_rest():
    rng = np.random.default_rng(80177)
    spare, like = rng.standard_normal((6, 30)), np.empty((30, 2))
    basis = eigen.RitzBasis(like, None, spare)
    block = rng.standard_normal((3, 30, 2))
    block[2, :, 1] = block[0, :, 1] - 2.0 * block[1, :, 1]
    basis.extend(block)
    for s in range(2):
        v = basis.vectors[:, :, s]
        np.testing.assert_allclose(v @ v.T, np.eye(3), rtol=0, atol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_vector_that_depends_in_one_sample_changes_no_other(weighted):
    """Two of a kind, a zero vector, and one that depends on the rest: the other sample has the bits of its own run."""
    rng, n = np.random.default_rng(80178), 25
    M = mass(n) if weighted else None
    spare = rng.standard_normal((6, n))
    block = rng.standard_normal((4, n, 2))
    block[1, :, 1], block[2, :, 1] = block[0, :, 1], 0.0
    block[3, :, 1] = 1e-17 * block[3, :, 1] + block[0, :, 1]
    together, own = eigen.RitzBasis(np.empty((n, 2)), M, spare), eigen.RitzBasis(np.empty((n, 1)), M, spare)
    with np.errstate(all="ignore"):
        together.extend(block)
    own.extend(np.ascontiguousarray(block[:, :, :1]))
    np.testing.assert_array_equal(together.vectors[:, :, :1], own.vectors)
    for s in range(2):
        v, mv = together.vectors[:, :, s], together.images[:, :, s]
        np.testing.assert_allclose(v @ mv.T, np.eye(4), rtol=0, atol=1e-13)


def test_solutions_with_small_pivots_are_corrected(monkeypatch):
    """Pivots of 1e-7: without the correction residuals stay a million times above their targets."""
    n, shift = 120, 1e-7
    pairs = [np.array([[0.0, 1.0 + 0.01 * i], [1.0 + 0.01 * i, 0.3]]) for i in range(n // 2)]
    pair = sp.block_diag([sp.coo_array(each) for each in pairs])
    A = CrsMatrix.from_scipy([sp.csr_array(pair), sp.csr_array(pair + sp.eye_array(n))])
    check(eigsh(A, 2, sigma=shift), A)
    pencil = Pencil(A, None, shift, "LM", "eigsh")
    images = np.random.default_rng(80179).standard_normal((2, n, 2))
    found = pencil.operate(images, images)
    plain = pencil._solve(images)
    defects = [np.abs(images - products(pencil.shifted, x)).max(axis=(0, 1)) for x in (found, plain)]
    assert defects[0][0] < 1e-13 and defects[1][0] > 1e-10
    np.testing.assert_array_equal(found[:, :, 1], plain[:, :, 1])  # good enough as it is
    monkeypatch.setattr(eigen_operators, "ROUNDOFFS", np.inf)
    assert np.array_equal(pencil.operate(images, images), plain)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((np.eye(3), 1), {}, TypeError, "eigsh: A must be a sparse matrix"),
        ((sp.csr_array(np.ones((2, 3))), 1), {}, ValueError, "eigsh: A must be square"),
        ((sp.eye_array(3) * 1j, 1), {}, TypeError, "eigsh: A must hold float32 or float64; got complex128"),
        ((sp.eye_array(3), 4), {}, ValueError, "eigsh: k must be at most the number of rows, 3; got 4"),
        ((sp.eye_array(3), 0), {}, ValueError, "eigsh: k must be an integer of at least 1; got 0"),
        ((sp.eye_array(3), 1, sp.eye_array(2)), {}, ValueError, r"M must have shape \(3, 3\); got shape \(2, 2\)"),
        ((sp.eye_array(3), 1), {"which": "BE"}, ValueError, "eigsh: which must be one of"),
        ((sp.eye_array(3), 1), {"which": "LA", "sigma": 1.0}, ValueError, 'which must be "LM" where sigma is given'),
        ((sp.eye_array(3), 1), {"sigma": [1.0, 2.0]}, TypeError, "sigma must be a number or an Ensemble of"),
        ((sp.eye_array(3), 1), {"sigma": np.nan}, ValueError, "sigma must be finite"),
        ((sp.eye_array(3), 1), {"max_iterations": 0}, ValueError, "max_iterations must be an integer of at least 1"),
        ((sp.eye_array(3), 1), {"rtol": -1.0}, ValueError, "rtol must be a finite number, zero or above"),
        (
            (gallery.poisson((3,), n_samples=2), 1), {"sigma": Ensemble(np.zeros(3))}, ValueError,
            r"eigsh: A, M and sigma must have the same n_samples, or 1; got \[2, 3\]",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(arguments, options, error, text):
    with pytest.raises(error, match=text):
        eigsh(*arguments, **options)


def test_a_definite_sample_is_shifted_by_zero_and_an_indefinite_one_is_not(rng, monkeypatch):
    """Gershgorin's bound of a scaled Laplacian lies far below its values."""
    seen, find = [], PivotCounts._shifts_beyond
    monkeypatch.setattr(PivotCounts, "_shifts_beyond", lambda *given: seen.append(find(*given)) or seen[-1])
    A = gallery.poisson((20, 20))
    scale = np.exp(0.2 * rng.standard_normal(400))
    values = A.values[:, 0] * scale[A.graph.row_of_entry] * scale[A.graph.indices]
    moved = values - 0.5 * (A.graph.row_of_entry == A.graph.indices)
    both = CrsMatrix(A.graph, np.stack([values, moved], axis=1))
    result = eigsh(both, 3, which="SA")
    check(result, both)
    for s in range(2):
        every = np.linalg.eigvalsh(both.to_scipy(s).toarray())
        np.testing.assert_allclose(result.values.samples[:, s], every[:3], rtol=0, atol=1e-10)
    shifts, _ = seen[0]
    assert shifts[0] == 0.0 and shifts[1] < every[0] < 0.0


@pytest.mark.parametrize("k", [1, 3, 6, 12])
@pytest.mark.parametrize("distance", [0.0, 1e-5, 1e-3])
def test_a_shift_on_or_near_a_value_of_nine_copies(k, distance):
    """The kept pairs are all the shift, fewer than the copies, or copies and what lies far beyond them."""
    every = 0.5 * laplacian_values((9, 9))
    result = eigsh(0.5 * gallery.poisson((9, 9)), k, sigma=2.0 + distance).raise_if_failed()
    check(result, 0.5 * gallery.poisson((9, 9)))
    expected = np.sort(np.abs(every - 2.0 - distance))[:k]
    np.testing.assert_allclose(np.sort(np.abs(result.values.sample(0) - 2.0 - distance)), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("distance, k", [(1e-3, 6), (1e-5, 3)])
def test_more_copies_of_a_value_than_vectors_are_kept_whatever_the_start(monkeypatch, distance, k):
    """The copy that each basis finds anew is less accurate than the others, and mixes with them."""
    A = 0.5 * gallery.poisson((9, 9))
    for start in range(20):
        monkeypatch.setattr(eigen, "START", start)
        result = eigsh(A, k, sigma=2.0 + distance).raise_if_failed()
        check(result, A)
        np.testing.assert_allclose(result.values.samples, 2.0, rtol=0, atol=1e-13)
        assert result.iterations[0] < 10


def test_rows_without_a_diagonal_entry_have_a_lower_bound():
    """A graph's adjacency matrix, one vertex of which is isolated: no entry is stored in its row."""
    path = sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(80, 80))
    A = sp.block_diag([path, sp.csr_array((1, 1))]).tocsr()
    A.eliminate_zeros()
    result = eigsh(A, 3, which="SA").raise_if_failed()
    np.testing.assert_allclose(result.values.sample(0), -2 * np.cos(np.arange(1, 4) * np.pi / 81), rtol=1e-12)


@pytest.mark.parametrize("n", [8, 90])
@pytest.mark.parametrize("options", [{"which": "LM"}, {"which": "SA"}, {"sigma": 1.5}], ids=repr)
@pytest.mark.parametrize("dtype, exponents", [(np.float64, [0, -700, 700, -950]), (np.float32, [0, -80, 80, 120])])
def test_values_whose_squares_leave_the_range_of_numbers(n, options, dtype, exponents):
    """Powers of two change nothing but the units, and a sample has the bits of its own run beside such ones."""
    one, powers = gallery.poisson((n,)).astype(dtype), np.array(exponents)
    A = CrsMatrix(one.graph, np.ldexp(one.values, powers))
    given = {name: Ensemble(np.ldexp(v, powers)) if name == "sigma" else v for name, v in options.items()}
    alone, result = eigsh(one, 3, **options), eigsh(A, 3, **given)
    assert result.converged.all()
    for s, power in enumerate(exponents):
        np.testing.assert_array_equal(np.ldexp(result.values.samples[:, s], -power), alone.values.samples[:, 0])
        np.testing.assert_array_equal(result.vectors.samples[:, :, s], alone.vectors.samples[:, :, 0])
        np.testing.assert_allclose(np.ldexp(result.target[:, s], -power), alone.target[:, 0], rtol=1e-15)


@pytest.mark.parametrize("n", [8, 90])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_shift_for_samples_of_very_different_sizes(n, dtype):
    one = gallery.poisson((n,)).astype(dtype)
    A = CrsMatrix(one.graph, np.ldexp(one.values, np.array([0, -100])))
    result, alone = eigsh(A, 2, sigma=1.3), eigsh(one, 2, sigma=1.3)
    np.testing.assert_array_equal(result.values.samples[:, 0], alone.values.samples[:, 0])
    np.testing.assert_array_equal(result.vectors.samples[:, :, 0], alone.vectors.samples[:, :, 0])


def beam(n_elements, scale=1.0):
    """Stiffness of a cantilever of Hermite elements and its lumped mass: rotations have none."""
    h = 1.0 / n_elements
    k = np.array([[12, 6 * h, -12, 6 * h], [0, 4 * h * h, -6 * h, 2 * h * h], [0, 0, 12, -6 * h], [0, 0, 0, 4 * h * h]])
    k = scale * (np.triu(k) + np.triu(k, 1).T) / h**3
    stiffness, mass = np.zeros((2 * n_elements + 2,) * 2), np.zeros(2 * n_elements + 2)
    for first in range(0, 2 * n_elements, 2):
        stiffness[first : first + 4, first : first + 4] += k
        mass[first : first + 4 : 2] += h / 2
    return stiffness[2:, 2:], mass[2:]


@pytest.mark.parametrize("n_elements", [20, 80])
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("options", [{"sigma": 0.0}, {"sigma": 100.0}, {"which": "SM"}], ids=str)
def test_unknowns_without_mass(n_elements, stored, options):
    """The values are those of the problem from which these unknowns are eliminated."""
    (K, m), n = beam(n_elements), 2 * n_elements
    M = sp.csr_array((m, np.arange(n), np.arange(n + 1)), shape=(n, n)) if stored else sp.csr_array(np.diag(m))
    A = CrsMatrix.from_scipy([sp.csr_array(K), sp.csr_array(2.5 * K)])
    result = eigsh(A, 3, M, **options)
    assert result.converged.all()
    heavy = m > 0
    inner = K[np.ix_(heavy, ~heavy)] @ np.linalg.solve(K[np.ix_(~heavy, ~heavy)], K[np.ix_(~heavy, heavy)])
    every = scipy.linalg.eigh(K[np.ix_(heavy, heavy)] - inner, np.diag(m[heavy]), eigvals_only=True)
    for s, factor in enumerate((1.0, 2.5)):
        values = factor * every
        nearest = np.sort(values[np.argsort(np.abs(values - options.get("sigma", 0.0)))[:3]])
        np.testing.assert_allclose(result.values.samples[:, s], nearest, rtol=1e-6)
        x = result.vectors.samples[:, :, s]
        np.testing.assert_allclose(x.T @ (m[:, None] * x), np.eye(3), atol=1e-6)
        own = eigsh(A.sample(s), 3, M, **options)
        np.testing.assert_array_equal(own.values.samples[:, 0], result.values.samples[:, s])
    assert eigsh(A, n_elements + 1, M, **options).status[0] is Status.breakdown  # there are fewer finite values


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("name", ["grid", "path", "cycle", "adjacency", "stiff", "negative", "random"])
def test_the_ends_of_spectra_with_small_gaps(which, name):
    """Products with A alone had found none of these in a hundred bases."""
    n, rng = 200, np.random.default_rng(80_311)
    path = sp.diags_array([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1], format="csr")
    corner = sp.csr_array(([-1.0, -1.0], ([0, n - 1], [n - 1, 0])), shape=(n, n))
    square = gallery.poisson((25, 25)).to_scipy()
    noise = sp.random_array((300, 300), density=0.02, rng=rng, data_sampler=lambda size: rng.standard_normal(size))
    A = {
        "grid": square, "path": path, "cycle": path + corner, "adjacency": path - 2 * sp.eye_array(n),
        "stiff": sp.csr_array(beam(100)[0]), "negative": -1.0 * square, "random": noise + noise.T,
    }[name]  # fmt: skip
    result = eigsh([sp.csr_array(A), sp.csr_array(3.0 * A)], 4, which=which)
    assert result.converged.all() and result.iterations.max() <= 40
    every = np.linalg.eigvalsh(A.toarray())
    goodness = {"LM": np.abs(every), "LA": every, "SA": -every}[which]
    found = result.values.samples[:, 0]
    wanted = np.sort(goodness)[-4:]
    have = np.sort({"LM": np.abs(found), "LA": found, "SA": -found}[which])
    np.testing.assert_allclose(have, wanted, rtol=1e-10, atol=1e-12 * np.abs(every).max())
    own = eigsh(sp.csr_array(A), 4, which=which)
    np.testing.assert_array_equal(own.values.samples[:, 0], found)


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
def test_the_ends_of_generalised_spectra(which):
    K, m = beam(60)
    M = np.where(m > 0, m, 1e-7)
    result = eigsh(sp.csr_array(K), 3, sp.csr_array(np.diag(M)), which=which)
    every = scipy.linalg.eigh(K, np.diag(M), eigvals_only=True)
    np.testing.assert_allclose(result.values.samples[:, 0], every[:3] if which == "SA" else every[-3:], rtol=1e-6)
    assert result.converged.all()
