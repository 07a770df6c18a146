"""Lanczos' process: its recurrence, the bits of single samples, what `eigsh` finds by it without the other search."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from ensemble import gallery
from ensemble._kernels.krylov.ritz_pairs import ritz_pairs
from ensemble._kernels.sparse.symmetry import symmetry_and_bounds
from ensemble.linalg import CrsMatrix, Factorization, eigsh
from ensemble.linalg.eigenvalues import eigen, lanczos
from ensemble.linalg.eigenvalues.eigen_quick import QuickSearch
from ensemble.linalg.eigenvalues.lanczos import Inverse, Lanczos, Products, pairs_of
from ensemble.scalar import Ensemble


def scaled(A, n_samples, seed=70_117, spread=0.05):
    rng = np.random.default_rng(seed)
    each = np.exp(spread * rng.standard_normal((n_samples, A.shape[0])))
    return CrsMatrix.from_scipy([sp.csr_array(sp.diags_array(d) @ A @ sp.diags_array(d)) for d in each])


@pytest.fixture
def no_other_search(monkeypatch):
    """The thorough search raises."""

    def refuse(*_):
        raise AssertionError("the usual way was not enough")

    monkeypatch.setattr(eigen, "_thoroughly", refuse)


@pytest.mark.parametrize("n_samples", [1, 3, 8, 11])
@pytest.mark.parametrize("by_products", [True, False])
def test_vectors_are_orthonormal_and_fulfil_the_recurrence(n_samples, by_products):
    A = scaled(gallery.poisson((13, 11)).to_scipy(), n_samples)
    if by_products and n_samples > 8:
        A = A.take_samples(np.arange(8))
    count, n = A.n_samples, A.shape[0]
    start = np.repeat(np.random.default_rng(60_013).standard_normal((n, 1)), count, axis=1)
    process = Lanczos(Products.of(A, np.arange(count)) if by_products else A.apply, start, 20, 8)
    for _ in range(3):
        process.extend("LA")
        V = process.basis.usual(process.basis.vectors)
        assert V.shape == (21, n, count)
        for s in range(count):
            v, a = V[:, :, s], A.to_scipy(s).toarray()
            np.testing.assert_allclose(v @ v.T, np.eye(21), rtol=0, atol=1e-13)
            x = process.ritz_vectors(5, False)[:, :, s]
            defects = x @ a - process.values[s, :5, None] * x
            np.testing.assert_allclose(defects, process.couplings[s, :5, None] * v[20], rtol=0, atol=1e-12)
        process.restart()


@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("by_products", [True, False])
def test_the_recurrence_holds_beside_another_vector(n_samples, by_products):
    """Ritz vectors that had not converged are coupled to a vector that is lost: they are not kept."""
    d = np.concatenate([[20.0, 15.0, 12.0], np.linspace(1.0, 2.0, 80)])
    A = scaled(sp.diags_array(d).tocsr(), n_samples, spread=1e-3)
    start = np.repeat(np.random.default_rng(60_016).standard_normal((83, 1)), n_samples, axis=1)
    process = Lanczos(Products.of(A, np.arange(n_samples)) if by_products else A.apply, start, 20, 8)
    for _ in range(2):
        process.extend("LA")
        process.restart()
    process.extend("LA")
    assert np.abs(process.couplings[:, :3]).max() < 1e-13 < 1e-6 < np.abs(process.couplings[:, 7]).min()
    process = process.take_samples(np.arange(n_samples), process.operator)
    process.restart_beside(np.random.default_rng(60_017).standard_normal(83), 3, False)
    for size in (15, 20):  # as many new vectors as others have
        process.extend("LA")
        V, x = process.basis.usual(process.basis.vectors), process.ritz_vectors(size, False)
        for s in range(n_samples):
            v = V[: size + 1, :, s]
            np.testing.assert_allclose(v @ v.T, np.eye(size + 1), rtol=0, atol=1e-13)
            defects = x[:, :, s] @ A.to_scipy(s).toarray() - process.values[s, :, None] * x[:, :, s]
            np.testing.assert_allclose(defects, process.couplings[s, :, None] * v[size], rtol=0, atol=1e-12)
        process.restart()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_samples", [1, 3, 11])
@pytest.mark.parametrize("inverse", [False, True])
def test_a_basis_in_one_call_is_that_of_single_steps(inverse, n_samples, dtype):
    """To the bit where the operator adds in the same order: products have four partial sums for each row."""
    A = scaled(gallery.poisson((17, 9)).to_scipy(), n_samples).astype(dtype)
    factors = Factorization(A, kind="ldlt", matching="graph")
    start = np.repeat(np.random.default_rng(60_014).standard_normal((153, 1)), n_samples, axis=1).astype(dtype)
    together = Inverse.of(factors) if inverse else Products.of(A, np.arange(n_samples))
    one, other = (Lanczos(each, start, 18, 7) for each in (together, (factors if inverse else A).apply))
    for _ in range(2):
        found = []
        for process in (one, other):
            process.extend("LM")
            process.restart()
            beyond = process.basis.vectors[:, :8, 153:].transpose(0, 3, 1, 2).reshape(-1, 8, 7)[:n_samples]
            assert not beyond.any()
            found.append(process.basis.usual(process.basis.vectors[:, :8]))
        tight = 0.0 if inverse else 1e4 * np.finfo(dtype).eps
        np.testing.assert_allclose(*found, rtol=0, atol=tight)


def test_tiles_of_one_sample_have_the_bits_of_wide_ones(monkeypatch):
    """Large matrices go through the process one after the other, so that their values stay in the cache."""
    A = scaled(gallery.poisson((17, 9)).to_scipy(), 11)
    found = []
    for size in (lanczos.CACHED, 0):
        monkeypatch.setattr(lanczos, "CACHED", size)
        found.append(eigsh(A, 4, which="LA"))
    assert [Products.of(A, np.arange(11)).values.shape[0]] == [11]
    np.testing.assert_array_equal(found[0].values.samples, found[1].values.samples)
    np.testing.assert_array_equal(found[0].vectors.samples, found[1].vectors.samples)


@pytest.mark.parametrize(("m", "first"), [(24, 0), (24, 11), (20, 1), (2, 0), (3, 2)])
def test_small_eigenproblems_have_the_bits_of_their_own_in_each_lane(m, first):
    """Rows coupled to one, couplings of zero, values of any size, NaN: against LAPACK."""
    d, e = np.random.default_rng(60_018).standard_normal((2, 2, m + 1, 3))
    e[0, 0, 0], d[1, :, 1], e[1, :, 1], d[1, 0, 2] = 0.0, 1e150 * d[1, :, 1], 1e150 * e[1, :, 1], np.nan
    e[:, first:] = np.abs(e[:, first:])
    values, vectors, couplings, independent = ritz_pairs(d, e, m, first, "LM", None)
    for t, s in np.ndindex(2, 3):
        lane, H = 8 * t + s, np.diag(d[t, :m, s])
        for j in range(m - 1):
            row = first if j < first else j + 1
            H[row, j] = H[j, row] = e[t, j, s]
        assert independent[lane] == (np.isfinite(H).all() and bool(e[t, first:m, s].all()))
        if not np.isfinite(H).all():
            continue
        alone = ritz_pairs(d[t : t + 1, :, s : s + 1], e[t : t + 1, :, s : s + 1], m, first, "LM", None)
        for a, b in zip(alone, (values, vectors, couplings, independent), strict=True):
            np.testing.assert_array_equal(a[0], b[lane])
        size = 1e-14 * np.abs(H).max()
        np.testing.assert_allclose(np.sort(values[lane]), np.linalg.eigvalsh(H), rtol=0, atol=size)
        np.testing.assert_allclose(vectors[lane] @ H, values[lane][:, None] * vectors[lane], rtol=0, atol=size)
        np.testing.assert_allclose(vectors[lane] @ vectors[lane].T, np.eye(m), rtol=0, atol=1e-14)
        assert (np.diff(np.abs(values[lane])) <= 0.0).all()


@pytest.mark.parametrize("options", [{"which": "LM"}, {"which": "LA"}, {"which": "SA"}, {"sigma": 0.7}], ids=str)
def test_each_sample_has_the_bits_of_its_own_run(options, no_other_search):
    """Eleven samples, groups of eight, and samples that end at different bases."""
    A = scaled(gallery.poisson((16, 11)).to_scipy(), 11, spread=0.3)
    together = eigsh(A, 4, **options)
    assert together.converged.all()
    for s in range(11):
        alone = eigsh(A.sample(s), 4, **options)
        np.testing.assert_array_equal(alone.values.samples[:, 0], together.values.samples[:, s])
        np.testing.assert_array_equal(alone.vectors.samples[..., 0], together.vectors.samples[..., s])
        assert alone.iterations[0] == together.iterations[s]
        dense = np.linalg.eigvalsh(A.to_scipy(s).toarray())
        rated = (
            {"LM": np.abs(dense), "LA": dense, "SA": -dense}[options["which"]]
            if "which" in options
            else -np.abs(dense - 0.7)
        )
        want = np.sort(dense[np.argsort(-rated)[:4]])
        np.testing.assert_allclose(together.values.samples[:, s], want, rtol=1e-11)


@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
@pytest.mark.parametrize("shape", [(14, 14), (7, 7, 7)], ids=str)
def test_copies_are_found_by_counting_pivots(shape, which, no_other_search):
    """One vector spans a space that has one copy of each value; squares and cubes have up to six."""
    lines = [2 - 2 * np.cos(np.pi * np.arange(1, m + 1) / (m + 1)) for m in shape]
    every = np.sort(sum(np.meshgrid(*lines, indexing="ij")).ravel())
    found = eigsh(gallery.poisson(shape), 6, which=which).raise_if_failed().values.samples[:, 0]
    np.testing.assert_allclose(found, every[:6] if which == "SA" else every[-6:], rtol=1e-11)


@pytest.mark.parametrize("n_samples", [1, 3])
def test_pairs_keep_their_accuracy_beside_another_vector(n_samples, no_other_search):
    """Ritz vectors of an inverse lose what couples them to the vector after the basis: images replace them."""
    line = 2 - 2 * np.cos(np.pi * np.arange(1, 101) / 101)
    A = gallery.poisson((100, 100)) * Ensemble(np.linspace(1.0, 2.0, n_samples))
    found = eigsh(A, 6, which="LA").raise_if_failed()
    np.testing.assert_allclose(found.values.samples[:, 0], np.sort((line[:, None] + line).ravel())[-6:], rtol=1e-12)
    assert found.iterations.max() <= 8


def test_another_shift_replaces_one_whose_factors_are_inexact(no_other_search):
    """Pivots at 1 are zero but for rounding: the pairs of that inverse are none of the matrix."""
    line = 2 - 2 * np.cos(np.pi * np.arange(1, 61) / 61)
    every = (line[:, None] + line).ravel()
    found = eigsh(gallery.poisson((60, 60)), 6, sigma=1.0).raise_if_failed().values.samples[:, 0]
    np.testing.assert_allclose(found, np.sort(every[np.argsort(np.abs(every - 1.0))[:6]]), rtol=1e-12)


def test_values_beside_those_of_the_space_are_not_overlooked(no_other_search):
    """The start has no part in the wanted vectors: the count tells, and another vector finds them."""
    values = np.linspace(1.0, 30.0, 200)
    A = sp.diags_array(values).tocsr()
    make = QuickSearch._start
    try:
        QuickSearch._start = lambda self, cycle: make(self, cycle) * (np.arange(200) >= (2 if cycle == 0 else 0))
        for options in ({"which": "SA"}, {"sigma": 0.0}):
            found = eigsh(A, 3, **options).raise_if_failed()
            np.testing.assert_allclose(found.values.samples[:, 0], values[:3], rtol=1e-12)
    finally:
        QuickSearch._start = make


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_the_largest_magnitude_is_sought_at_both_ends(side):
    values = side * np.concatenate([np.linspace(-8.0, 1.0, 150), 10.0 + 0.01 * np.arange(60), [-10.295]])
    found = eigsh(sp.diags_array(values).tocsr(), 5).raise_if_failed().values.samples[:, 0]
    np.testing.assert_allclose(found, np.sort(values[np.argsort(-np.abs(values))[:5]]), rtol=1e-12)


def test_samples_that_the_usual_way_leaves_are_found_by_the_other(monkeypatch):
    """A multiple of the identity, and NaN, beside an ordinary sample."""
    seen, other = [], eigen._thoroughly
    monkeypatch.setattr(eigen, "_thoroughly", lambda A, *rest: seen.append(A.n_samples) or other(A, *rest))
    A = sp.csr_array(gallery.poisson((90,)).to_scipy())
    values = np.stack([A.data, np.where(A.data > 0, 5.0, 0.0), np.where(A.data > 0, np.nan, 1.0)], axis=1)
    result = eigsh(CrsMatrix(CrsMatrix.from_scipy(A).graph, values), 3, which="SA")
    assert seen == [2] and [str(s) for s in result.status] == [
        f"Status.{w}" for w in ("converged", "converged", "breakdown")
    ]
    np.testing.assert_allclose(result.values.samples[:, 1], 5.0)
    np.testing.assert_array_equal(result.values.samples[:, 0], eigsh(A, 3, which="SA").values.samples[:, 0])


@pytest.mark.slow
def test_arpack_converges_to_no_other_values():
    """400 random matrices: weighted graphs, spectra with gaps and without, ends and shifts."""
    rng = np.random.default_rng(50_503)
    for turn in range(100):
        n = int(rng.integers(60, 400))
        noise = sp.random_array((n, n), density=rng.uniform(1, 6) / n, rng=rng, data_sampler=rng.standard_normal)
        A = sp.csr_array(noise + noise.T + sp.diags_array(rng.normal(0, rng.choice([0.1, 3.0]), n)))
        if turn % 2:
            A = sp.csr_array(A @ A.T)
        for options in ({"which": "LM"}, {"which": "LA"}, {"which": "SA"}, {"sigma": float(rng.normal())}):
            found = eigsh(A, 5, **options).raise_if_failed().values.samples[:, 0]
            dense = np.linalg.eigvalsh(A.toarray())
            rated = {"LM": np.abs(dense), "LA": dense, "SA": -dense}.get(options.get("which"))
            rated = -np.abs(dense - options["sigma"]) if rated is None else rated
            want = np.sort(rated)[-5:]
            have = {"LM": np.abs(found), "LA": found, "SA": -found}.get(options.get("which"))
            have = -np.abs(found - options["sigma"]) if have is None else have
            np.testing.assert_allclose(np.sort(have), want, rtol=0, atol=1e-10 * np.abs(dense).max())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_hunt_copies_clusters_and_scales_against_dense_values(dtype):
    """480 searches: blocks up to nine times, or nearly, any sign, far exponents; NaN in one sample."""
    rng, tiny = np.random.default_rng(50_504), np.finfo(dtype).eps
    for turn in range(60):
        m, copies = int(rng.integers(9, 60)), int(rng.integers(1, 10))
        noise = sp.random_array((m, m), density=4.0 / m, rng=rng, data_sampler=rng.standard_normal)
        block = sp.csr_array(noise + noise.T + sp.diags_array(rng.normal(0, 3.0, m)))
        block = sp.csr_array(block @ block.T) if turn % 3 == 0 else block
        apart = 1.0 + np.arange(copies) * rng.choice([0.0, 1e-9, 1e-4])
        A = sp.csr_array(sp.kron(sp.diags_array(apart), block))
        places = rng.permutation(A.shape[0])
        A = sp.csr_array(A[places][:, places])
        power = int(rng.choice([0, 0, 60, -60, 900 if dtype == np.float64 else 90]))
        A.data = np.ldexp(A.data, power)
        A.sort_indices()
        values = np.stack([A.data, A.data, 2.0 * A.data], axis=1).astype(dtype)
        values[0, 1] = np.nan
        E, k = CrsMatrix(CrsMatrix.from_scipy(A).graph, values), int(rng.integers(1, 8))
        dense = np.ldexp(np.linalg.eigvalsh(np.ldexp(A.toarray().astype(dtype), -power).astype(np.float64)), power)
        shift = float(rng.choice([0.0, dense[dense.size // 2], rng.uniform(dense[0], dense[-1])]))
        for options in ({"which": "LM"}, {"which": "LA"}, {"which": "SA"}, {"sigma": shift}):
            result = eigsh(E, k, **options)
            told = f"turn {turn}, {A.shape[0]} rows, {k} pairs, {options}: {result}"
            assert [str(s).split(".")[-1] for s in result.status] == ["converged", "breakdown", "converged"], told
            alone = eigsh(E.sample(0), k, **options)
            np.testing.assert_array_equal(alone.values.samples[:, 0], result.values.samples[:, 0], told)
            np.testing.assert_array_equal(alone.vectors.samples[..., 0], result.vectors.samples[..., 0], told)
            found = result.values.samples[:, 0].astype(np.float64)
            rated = {"LM": np.abs, "LA": np.positive, "SA": np.negative}.get(options.get("which"))
            rated = rated or functools.partial(lambda at, x: -np.abs(x - at), shift)
            want = np.sort(rated(dense))[-k:]
            close = (1e-10 if dtype == np.float64 else 200 * tiny) * np.abs(dense).max()
            np.testing.assert_allclose(np.sort(rated(found)), want, rtol=0, atol=close, err_msg=told)


def test_pairs_of_one_matrix_have_the_bits_of_pairs_of_many():
    A = scaled(gallery.poisson((40,)).to_scipy(), 3)
    x = np.random.default_rng(60_015).standard_normal((4, 40, 3))
    together = pairs_of(A, x)
    for s in range(3):
        for a, b in zip(together, pairs_of(A.take_samples([s]), np.ascontiguousarray(x[..., s : s + 1])), strict=True):
            np.testing.assert_array_equal(a[..., s], b[..., 0])


def test_one_pass_tells_symmetry_norm_and_bounds(rng):
    a = sp.csr_array(sp.random_array((30, 30), density=0.2, rng=rng) - 0.5 * sp.eye_array(30))
    graph = CrsMatrix.from_scipy(sp.csr_array(a + a.T)).graph
    A = CrsMatrix(graph, rng.standard_normal((graph.nnz, 5)))
    A.values[7, 4] = np.inf
    apart, norm, low, high, finite = symmetry_and_bounds(*A.arrays, graph.transposed[2])
    assert finite.tolist() == [True] * 4 + [False]
    for s in range(4):
        d = A.to_scipy(s).toarray()
        sums = np.abs(d).sum(axis=1) - np.abs(d.diagonal())
        want = (
            np.abs(d - d.T).max(),
            np.abs(d).sum(axis=1).max(),
            (d.diagonal() - sums).min(),
            (d.diagonal() + sums).max(),
        )
        np.testing.assert_allclose([apart[s], norm[s], low[s], high[s]], want, rtol=1e-14)


def test_arpack_takes_more_than_the_bases_that_are_built():
    """Products with A, 24 for the first basis and 13 for each further one: no more than twice ARPACK's."""
    A, seen = sp.csr_array(gallery.poisson((20, 20)).to_scipy()), []
    spla.eigsh(spla.LinearOperator(A.shape, lambda x: seen.append(0) or A @ x, dtype=float), 6, which="LA")
    result = eigsh(Ensemble(np.array([1.0, 2.0])) * CrsMatrix.from_scipy(A), 6, which="LA").raise_if_failed()
    assert 24 + 13 * (result.iterations.max() - 1) <= len(seen)
