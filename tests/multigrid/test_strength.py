"""Strength of connection: which couplings aggregates follow, and what it makes of anisotropy and jumps."""

import numpy as np
import pyamg.gallery
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble._kernels.multigrid.aggregation import square_on_graph
from ensemble.krylov import cg
from ensemble.linalg import AffineMatrix, CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid import EvolutionStrength, SymmetricStrength, smoothed_aggregation
from ensemble.multigrid.aggregation import aggregates_of
from ensemble.multigrid.strength import StrongGraph, mean_matrix, strength_of
from ensemble.scalar import Ensemble


def rotated(n, epsilon, angle, kind="FE"):
    stencil = pyamg.gallery.diffusion_stencil_2d(epsilon=epsilon, theta=np.radians(angle), type=kind)
    return sp.csr_array(pyamg.gallery.stencil_grid(stencil, (n, n)))


def jumps(n, kappa):
    """Five-point finite volumes on n by n cells with harmonic means, zero values on the boundary."""
    K, place = kappa.reshape(n, n), np.arange(n * n).reshape(n, n)
    down, right = 2 / (1 / K[1:] + 1 / K[:-1]), 2 / (1 / K[:, 1:] + 1 / K[:, :-1])
    pairs = [(place[1:], place[:-1], down), (place[:, 1:], place[:, :-1], right)]
    rows, columns, values = (np.concatenate([p[k].ravel() for p in pairs]) for k in range(3))
    off = sp.csr_array((values, (rows, columns)), shape=(n * n, n * n))
    off = off + off.T
    outside = np.zeros((n, n))
    for side in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        outside[side] += 2 * K[side]
    return sp.csr_array(sp.diags_array(off.sum(axis=1) + outside.ravel()) - off)


def iterations(A, **options):
    A = A if isinstance(A, CrsMatrix) else CrsMatrix.from_scipy(A)
    b = np.random.default_rng(60221).standard_normal(A.shape[0])
    result = cg(A, b, M=smoothed_aggregation(A, **options), rtol=1e-8, max_iterations=300)
    assert result.converged.all()
    return int(result.iterations.max())


@pytest.mark.parametrize("strength", [0.25, SymmetricStrength(theta=0.25), EvolutionStrength()], ids=str)
def test_anisotropy_is_followed(strength):
    """PyAMG with theta = 0.25: 8 iterations; without strength 55."""
    A = rotated(60, 1e-3, 0)
    assert iterations(A, strength=strength) <= 10
    assert iterations(A) > 50


def test_rotated_anisotropy_is_followed():
    """PyAMG with the evolution measure, epsilon = 2: 11 and 13 iterations; without strength 35 and 23."""
    assert iterations(rotated(60, 1e-3, 22.5, "FD"), strength=EvolutionStrength(epsilon=2.0)) <= 14
    assert iterations(rotated(60, 1e-3, 45), strength=EvolutionStrength(epsilon=2.0)) <= 14


def test_jumps_of_a_coefficient_are_followed():
    """Squares of 10 by 10 cells like a checkerboard; PyAMG with theta = 0.08: 7 iterations."""
    kappa = np.kron(np.where(np.indices((5, 5)).sum(axis=0) % 2, 1e6, 1.0), np.ones((10, 10)))
    assert iterations(jumps(50, kappa), strength=0.08) <= 9
    assert iterations(jumps(50, kappa)) > 30


def test_candidates_are_improved_for_a_scaled_matrix():
    d = 10.0 ** np.random.default_rng(31337).uniform(-2, 2, 3600)
    A = gallery.poisson((60, 60)).to_scipy()
    A = sp.csr_array(sp.diags_array(d) @ A @ sp.diags_array(d))
    assert iterations(A, improve_candidates=8) <= 14
    assert iterations(A, near_nullspace=1 / d) <= 11
    assert iterations(A) > 50


def test_blocks_take_the_norms_of_their_couplings():
    A, B = pyamg.gallery.linear_elasticity((30, 30))
    options = {"near_nullspace": B, "block_size": 2}
    assert iterations(sp.csr_array(A.tocsr()), strength=0.08, **options) <= 10


# --- the choice is shared, the rest is each sample's own
def anisotropic(n_samples):
    """Samples of one strong graph: each a multiple of one anisotropic matrix, with a perturbed diagonal."""
    rng = np.random.default_rng(27644)
    A = CrsMatrix.from_scipy(rotated(16, 1e-2, 0))
    values = A.values * rng.uniform(0.5, 2.0, (1, n_samples))
    values[A.graph.diagonal_entries] *= rng.uniform(1.0, 1.05, (256, n_samples))
    return CrsMatrix(A.graph, values)


OPTIONS = {
    "symmetric": {"strength": 0.2},
    "largest": {"strength": SymmetricStrength(0.2, over="largest")},
    "evolution": {"strength": EvolutionStrength()},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_sample_of_the_same_strong_graph_is_its_scalar_run(name, rng):
    A = anisotropic(3)
    r = Ensemble(rng.standard_normal((256, 3)))
    M = smoothed_aggregation(A, max_levels=2, **OPTIONS[name])
    z, part = M @ r, M.take_samples([2, 0]) @ Ensemble(r.samples[:, [2, 0]])
    assert np.array_equal(part.samples, z.samples[:, [2, 0]])
    for i in range(3):
        alone = smoothed_aggregation(A.sample(i), max_levels=2, **OPTIONS[name])
        assert np.array_equal(alone.levels[0].plan.strong.nodes[1], M.levels[0].plan.strong.nodes[1])
        assert np.array_equal(alone @ r.sample(i), z.sample(i))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_broken_sample_changes_no_other(name, rng):
    A = anisotropic(3)
    r = Ensemble(rng.standard_normal((256, 3)))
    alone = smoothed_aggregation(A.take_samples([0, 2]), coarse_size=20, improve_candidates=2, **OPTIONS[name])
    values = A.values.copy()
    values[:, 1] = np.nan
    M = smoothed_aggregation(CrsMatrix(A.graph, values), coarse_size=20, improve_candidates=2, **OPTIONS[name])
    z = (M @ r).samples
    assert np.isnan(z[:, 1]).any()
    assert np.array_equal(z[:, [0, 2]], (alone @ Ensemble(r.samples[:, [0, 2]])).samples)


def test_update_keeps_the_strong_graph(rng):
    A = anisotropic(2)
    scaled = CrsMatrix(A.graph, 3.0 * A.values)
    r = Ensemble(rng.standard_normal((256, 2)))
    options = {"coarse_size": 20, "strength": 0.2}
    M = smoothed_aggregation(A, **options)
    nodes = M.levels[0].plan.strong.nodes
    assert np.array_equal((M.update(scaled) @ r).samples, (smoothed_aggregation(scaled, **options) @ r).samples)
    isotropic = CrsMatrix(A.graph, np.where(A.values < 0, -1.0, 8.5))
    assert M.update(isotropic).levels[0].plan.strong.nodes is nodes


def test_the_largest_quotient_over_samples_counts_where_it_is_asked_for():
    """Two samples, each strong along another axis: the mean of 0.5 and 0.005 lies below 0.3, the largest above."""
    line, other = gallery.poisson((12,)).to_scipy(), sp.eye_array(12)
    along_x, along_y = sp.kron(line, other), sp.kron(other, line)
    A = CrsMatrix.from_scipy([sp.csr_array(along_x + 0.01 * along_y), sp.csr_array(along_y + 0.01 * along_x)])
    B = np.ones((144, 1))
    assert SymmetricStrength(0.3).strong(A, mean_matrix(A), B, 1).nnz == 0
    off_diagonal = A.nnz - 144
    assert SymmetricStrength(0.3, over="largest").strong(A, mean_matrix(A), B, 1).nnz == off_diagonal


@pytest.mark.parametrize("near_nullspace", ["constant", "varying"])
def test_the_filtered_matrix_maps_the_near_nullspace_as_the_matrix_does(near_nullspace, rng):
    A = anisotropic(3)
    B = np.ones((256, 1)) if near_nullspace == "constant" else rng.uniform(0.9, 1.1, (256, 1))
    F = StrongGraph(A, SymmetricStrength(0.2), B, 1).filtered(A)
    assert F.nnz < 0.6 * A.nnz
    for i in range(3):
        np.testing.assert_allclose(F.to_scipy(i) @ B, A.to_scipy(i) @ B, rtol=0, atol=1e-14 * np.abs(A.values).max())


def test_lone_nodes_join_the_neighbour_on_which_they_depend():
    """A cell of conductivity 1 among cells of 1e6 has no strong coupling; a dominant diagonal keeps a node out."""
    kappa = np.full((9, 9), 1e6)
    kappa[4, 4] = 1.0
    A = CrsMatrix.from_scipy(jumps(9, kappa))
    strong = StrongGraph(A, SymmetricStrength(0.08), np.ones((81, 1)), 1)
    member, _ = aggregates_of(A, 1, strong)
    assert strong.nodes[0][41] == strong.nodes[0][40] and member[40] == member[31]
    dominant = A.values.copy()
    dominant[A.graph.diagonal_entries[40]] = 1e3
    member, _ = aggregates_of(
        A, 1, StrongGraph(CrsMatrix(A.graph, dominant), SymmetricStrength(0.08), np.ones((81, 1)), 1)
    )
    assert member[40] == -1


def test_equal_neighbours_are_all_strong_at_their_own_quotient():
    A = CrsMatrix(gallery.poisson((9, 9)).graph, gallery.poisson((9, 9)).values * np.array([[1 / 3, 0.7, 1.3]]))
    assert SymmetricStrength(0.25).strong(A, mean_matrix(A), np.ones((81, 1)), 1).nnz == A.nnz - 81


def test_an_affine_matrix_takes_the_strength_of_its_mean():
    mean = CrsMatrix.from_scipy(rotated(16, 1e-2, 0))
    terms = np.concatenate([mean.values, 0.1 * mean.values], axis=1)
    A = AffineMatrix(mean.graph, terms, Ensemble(np.array([[-0.5, 0.5]])))
    M = smoothed_aggregation(A, strength=0.2, coarse_size=20)
    expected = smoothed_aggregation(mean, strength=0.2, coarse_size=20)
    assert [level.A.shape for level in M.levels] == [level.A.shape for level in expected.levels]
    assert cg(A, np.ones(256), M=M).converged.all()


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: SymmetricStrength(theta=1.0), ValueError, "SymmetricStrength: theta must be below 1; got 1.0"),
        (lambda: SymmetricStrength(over="any"), ValueError, "over must be 'mean' or 'largest'; got 'any'"),
        (lambda: EvolutionStrength(epsilon=1.0), ValueError, "epsilon must be above 1; got 1.0"),
        (lambda: smoothed_aggregation(gallery.poisson((4, 4)), strength="strong"), TypeError, "strength must be None"),
        (
            lambda: smoothed_aggregation(gallery.poisson((4, 4)), improve_candidates=-1),
            ValueError,
            "of at least 0; got -1",
        ),
        (
            lambda: smoothed_aggregation(gallery.poisson((40, 40)), strength=EvolutionStrength(), block_size=2),
            ValueError,
            "EvolutionStrength: near_nullspace must be one vector of single unknowns; got 2 vectors, block_size 2",
        ),
    ],
)
def test_bad_options_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_the_square_on_a_graph_is_that_part_of_the_square(rng):
    """Over several runs of rows; a graph that is not symmetric, with empty rows."""
    M = sp.random_array((9000, 9000), density=5e-4, rng=rng, format="csr")
    M.sort_indices()
    got = np.full(M.nnz, np.nan)
    square_on_graph(M.indptr, M.indices, M.data, got)
    rows = np.repeat(np.arange(9000), np.diff(M.indptr))
    np.testing.assert_allclose(got, (M @ M)[rows, M.indices], rtol=0, atol=1e-13)


def test_float32_hierarchies_follow_strong_couplings():
    assert iterations(rotated(60, 1e-3, 0), strength=0.25, dtype=np.float32) <= 11


def islands(n, jump):
    """Cells of 1 with squares of `jump` of 4 by 4 cells in a regular array."""
    inside = np.arange(n) % 10 < 4
    return jumps(n, np.where(np.outer(inside, inside), jump, 1.0))


def test_jumps_are_found_by_themselves():
    A = islands(80, 1e6)
    assert iterations(A) > 50
    assert iterations(A, strength="auto") <= 12
    blocks = sp.kron(A, np.array([[2.0, 0.5], [0.5, 1.0]]), format="csr")
    assert iterations(blocks, strength="auto", block_size=2) <= 15


@pytest.mark.parametrize(
    "A",
    [
        gallery.poisson((40, 40)).to_scipy(),
        rotated(40, 1e-4, 0),
        rotated(40, 1e-3, 22.5, "FD"),
        jumps(40, np.exp(np.sin(np.arange(1600) / 100) * 3)),
        islands(40, 20.0),
        sp.csr_array(sp.kron(gallery.poisson((20, 20)).to_scipy(), np.array([[1e6, 1.0], [1.0, 1.0]]))),
    ],
    ids=["poisson", "anisotropic", "rotated", "smooth", "small jumps", "units"],
)
def test_without_jumps_auto_is_the_default(A):
    block_size = 2 if A.shape[0] == 800 else 1
    v = np.random.default_rng(86028121).standard_normal(A.shape[0])
    M, N = (smoothed_aggregation(A, strength=strength, block_size=block_size) for strength in ("auto", None))
    assert np.array_equal(M @ v, N @ v)


def test_auto_wants_jumps_in_every_finite_sample():
    one, other = (CrsMatrix.from_scipy(islands(40, jump)) for jump in (1e6, 1.0))

    def measure(*values):
        A = CrsMatrix(one.graph, np.concatenate(values, axis=1))
        return strength_of("auto", A, 1)

    nan = np.full_like(one.values, np.nan)
    assert measure(one.values, 3.0 * one.values) == SymmetricStrength()
    assert measure(one.values, nan) == SymmetricStrength()
    assert measure(one.values, other.values) is None
    assert measure(nan) is None
    assert measure(1e-200 * one.values) == SymmetricStrength()
    scale = 10.0 ** np.random.default_rng(15485863).uniform(-3, 3, 1600)
    scaled = sp.diags_array(scale) @ gallery.poisson((40, 40)).to_scipy() @ sp.diags_array(scale)
    assert strength_of("auto", CrsMatrix.from_scipy(scaled), 1) is None
    assert strength_of("auto", SymmetricCrsMatrix.from_crs(one), 1) == SymmetricStrength()


def test_samples_with_the_same_jumps_have_the_bits_of_their_own_runs():
    one = CrsMatrix.from_scipy(islands(40, 1e6))
    A = CrsMatrix(one.graph, one.values * np.array([1.0, 8.0, 0.3]))
    v = np.random.default_rng(32452843).standard_normal((1600, 3))
    got = smoothed_aggregation(A, strength="auto").apply(v)
    for s in range(3):
        alone = smoothed_aggregation(A.sample(s), strength="auto").apply(v[:, s : s + 1].copy())
        assert np.array_equal(alone[:, 0], got[:, s])
