"""Hierarchies in single precision of matrices in double precision: as good, in range, and each sample by itself."""

import numpy as np
import pyamg.gallery
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble._kernels.multigrid import measures
from ensemble._kernels.multigrid.measures import reciprocal, too_small
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid import scaled_aggregation, smoothed_aggregation
from ensemble.multigrid.precision import LARGEST_RATIO
from ensemble.scalar import Ensemble

OPTIONS = {"coarse_size": 60}


def diffusion(kappa, shift=0.0, fixed=True):
    """Finite volumes with harmonic means of `kappa` on a square; `fixed`: zero beyond the first and last row."""
    n, m = kappa.shape
    cell = np.arange(n * m).reshape(n, m)
    pairs = (cell[:-1], cell[1:], kappa[:-1], kappa[1:]), (cell[:, :-1], cell[:, 1:], kappa[:, :-1], kappa[:, 1:])
    a = sp.csr_array((n * m, n * m))
    for i, j, ki, kj in pairs:
        link = sp.coo_array(((2 * ki * kj / (ki + kj)).ravel(), (i.ravel(), j.ravel())), shape=a.shape)
        a = a - link - link.T
    ends = np.zeros((n, m))
    ends[0], ends[-1] = (2.0 * kappa[0], 2.0 * kappa[-1]) if fixed else (0.0, 0.0)
    return sp.csr_array(a + sp.diags_array(-a.sum(axis=1) + ends.ravel() + shift))


def islands(jump, n=48):
    kappa = np.ones((n, n))
    for i in range(4, n - 4, 16):
        for j in range(4, n - 4, 16):
            kappa[i : i + 8, j : j + 8] = jump
    return diffusion(kappa)


def half(jump, n=48):
    kappa = np.ones((n, n))
    kappa[:, n // 2 :] = jump
    return diffusion(kappa)


def rescaled(exponents, n=24):
    d = sp.diags_array(10.0 ** np.random.default_rng(40961).uniform(-exponents, exponents, n * n))
    return sp.csr_array(d @ gallery.poisson((n, n)).to_scipy() @ d)


ELASTIC, RIGID = pyamg.gallery.linear_elasticity((24, 24))

PROBLEMS = {
    "poisson-2d": (lambda: gallery.poisson((48, 48)).to_scipy(), {}, True),
    "poisson-3d": (lambda: gallery.poisson((14, 14, 14)).to_scipy(), {}, True),
    "elasticity": (lambda: sp.csr_array(ELASTIC), {"near_nullspace": RIGID, "block_size": 2}, True),
    "jump-1e6": (lambda: half(1e6), {}, True),
    "islands-10": (lambda: islands(10.0), {}, True),
    "chain": (lambda: gallery.poisson((200_000,)).to_scipy(), {}, False),
    "islands-1e6": (lambda: islands(1e6), {}, False),
    "diagonal-scaling-1e12": (lambda: rescaled(3.0), {}, None),
    "nearly-singular": (lambda: diffusion(np.ones((48, 48)), 1e-8, fixed=False), {}, False),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_iterations_and_residuals_are_those_of_double_precision(name):
    make, options, single = PROBLEMS[name]
    a = make()
    A = CrsMatrix.from_scipy(a)
    b = np.random.default_rng(31607).standard_normal(a.shape[0])
    M = smoothed_aggregation(A, **OPTIONS, **options)
    assert single is None or (M.dtype == np.float32) is single
    wide = smoothed_aggregation(A, dtype=np.float64, **OPTIONS, **options)
    rtol = {"nearly-singular": 1e-7, "chain": 1e-5}.get(name, 1e-9)  # what their condition numbers leave attainable
    got, want = (cg(A, b, M=m, rtol=rtol, max_iterations=300) for m in (M, wide))
    assert got.converged[0] and got.x.dtype == np.float64
    assert abs(int(got.iterations[0]) - int(want.iterations[0])) <= want.iterations[0] // 15
    assert np.linalg.norm(b - a @ got.x) <= 1.001 * rtol * np.linalg.norm(b)


def mixed():
    """Three healthy samples, one nearly singular, one with islands, on one graph."""
    n = 24
    kappas = [np.exp(0.3 * np.random.default_rng(seed).standard_normal((n, n))) for seed in (11003, 11027, 11047)]
    matrices = [
        diffusion(kappas[0]), diffusion(np.ones((n, n)), 1e-9, fixed=False), diffusion(kappas[1]),
        islands(1e7, n), diffusion(kappas[2]),
    ]  # fmt: skip
    return CrsMatrix.from_scipy(matrices)


def test_each_sample_decides_by_itself(rng):
    """Samples that single precision does not serve have the bits of double precision, the others their own."""
    A = mixed()
    r = rng.standard_normal((576, 5))
    M = smoothed_aggregation(A, **OPTIONS)
    assert M.double is not None and M.double[1].tolist() == [1, 3] and "(2 in float64)" in repr(M)
    z = (M @ Ensemble(r)).samples
    for i in range(5):
        alone = smoothed_aggregation(A.sample(i), **OPTIONS)
        assert (alone.dtype == np.float64) is (i in (1, 3))
        assert np.array_equal(z[:, i], alone @ r[:, i])
    wide = smoothed_aggregation(A, dtype=np.float64, **OPTIONS) @ Ensemble(r)
    assert np.array_equal(z[:, [1, 3]], wide.samples[:, [1, 3]])
    for chosen in ([3, 0], [1, 3], [4, 2], [3]):
        part = M.take_samples(np.array(chosen))
        assert np.array_equal((part @ Ensemble(r[:, chosen])).samples, z[:, chosen])


def test_update_decides_anew(rng):
    A = mixed()
    r = Ensemble(rng.standard_normal((576, 5)))
    turned = A.take_samples([3, 0, 1, 2, 4])
    M = smoothed_aggregation(A, **OPTIONS)
    z = (M.update(turned) @ r).samples
    assert M.double is not None and M.double[1].tolist() == [0, 2]
    assert np.array_equal(z, (smoothed_aggregation(turned, **OPTIONS) @ r).samples)
    one = smoothed_aggregation(A.sample(1), **OPTIONS)
    assert one.dtype == np.float64 and one.update(A.sample(0)).dtype == np.float32
    column = r.samples[:, 0]
    assert np.array_equal(one @ column, smoothed_aggregation(A.sample(0), **OPTIONS) @ column)


@pytest.mark.parametrize("dtype", [None, np.float32])
@pytest.mark.parametrize("kind", [CrsMatrix, SymmetricCrsMatrix])
@pytest.mark.parametrize("matrix, vector", [(-660, 0), (200, 0), (0, -660), (0, 500), (-300, 400), (330, -500)])
def test_powers_of_two_change_no_bit_of_a_cycle(matrix, vector, kind, dtype, rng):
    """Matrices and vectors far beyond the range of single precision: the answer is the same, times a power of two."""
    A = gallery.anisotropic((20, 20), 2)
    A = A if kind is CrsMatrix else kind.from_crs(A)
    r = rng.standard_normal((400, 2))
    want = (smoothed_aggregation(A, dtype=dtype, **OPTIONS) @ Ensemble(r)).samples
    factors = np.array([2.0**matrix, 1.0])
    M = smoothed_aggregation(kind(A.graph, A.values * factors), dtype=dtype, **OPTIONS)
    assert M.dtype == np.float32 and want.dtype == np.float64
    got = (M @ Ensemble(r * np.array([2.0**vector, 1.0]))).samples
    assert np.array_equal(got * factors * np.array([2.0**-vector, 1.0]), want)


def test_a_sample_beyond_the_range_of_single_precision_is_held_in_double_precision():
    """An identity row beside entries of 1e-40 spans more than float32 holds; its neighbour's bits stay."""
    A = gallery.poisson((20, 20), 2)
    rows, columns = A.graph.row_of_entry, A.graph.indices
    values = A.values * 1e-40
    values[(rows == 7) | (columns == 7)] = 0.0
    values[(rows == 7) & (columns == 7)] = 1.0
    values[:, 1] = np.where((rows == 7) & (columns == 7), 4e-40, values[:, 1])
    A = CrsMatrix(A.graph, values)
    M = smoothed_aggregation(A, **OPTIONS)
    assert M.dtype == np.float32 and M.double is not None and M.double[1].tolist() == [0]
    assert cg(A, Ensemble(np.ones((400, 2))), M=M, rtol=1e-9).converged.all()


def test_a_scaled_hierarchy_takes_samples_of_any_magnitude(rng):
    mean = gallery.poisson((20, 20))
    r = rng.standard_normal((400, 3))
    factors = np.array([2.0**-600, 1.0, 2.0**400])
    A = CrsMatrix(mean.graph, mean.values * factors)
    M = scaled_aggregation(A, mean, **OPTIONS)
    z = (M @ Ensemble(r)).samples
    assert M.dtype == np.float32 and z.dtype == np.float64
    np.testing.assert_array_equal(z * factors, (M.take_samples([1, 1, 1]) @ Ensemble(r)).samples)
    want = smoothed_aggregation(mean, **OPTIONS) @ Ensemble(r)
    np.testing.assert_allclose(z * factors, want.samples, rtol=0, atol=1e-5)  # float32 roundoff


@pytest.mark.parametrize("row", [0, 1023, 1024, 2047, 2048, 2499])
def test_an_entry_out_of_range_is_found_in_any_row(row):
    least = 1.0 / LARGEST_RATIO
    size = np.ones((2500, 4))
    size[row] = [0.0, 0.5 / LARGEST_RATIO, np.nan, 1.0 / LARGEST_RATIO]
    np.testing.assert_array_equal(too_small(size, np.ones(4), least), [False, True, False, False])
    assert not too_small(np.ones((0, 4)), np.ones(4), least).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_arrays_are_measured_as_small_ones(dtype, monkeypatch):
    rng, tiny = np.random.default_rng(5), np.finfo(dtype).smallest_normal
    size = (10.0 ** rng.uniform(-20, 0, (3000, 5))).astype(dtype)
    size[rng.random(size.shape) < 0.05] = 0.0
    size[[1, 2, 3], [0, 1, 2]] = np.nan, np.inf, tiny / 2
    units = np.array([1.0, 0.5, 2.0, 8.0, 1e3], dtype)
    signed = (size * rng.choice([-1, 1], size.shape)).astype(dtype)
    expected = [too_small(size, units, 10.0**k) for k in (-19, -17, -15)], reciprocal(signed.copy())
    monkeypatch.setattr(measures, "LARGE", 1)
    found = [too_small(size, units, 10.0**k) for k in (-19, -17, -15)], reciprocal(signed.copy())
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1].tobytes() == expected[1].tobytes() and 0 < np.sum(expected[0]) < 15


def test_a_matrix_in_single_precision_stays_as_it_is(rng):
    A = gallery.poisson((20, 20)).astype(np.float32)
    r = rng.standard_normal(400).astype(np.float32)
    both = [smoothed_aggregation(A, dtype=dtype, **OPTIONS) for dtype in (None, np.float32)]
    assert both[0].dtype == np.float32 and both[0].precision.unit is None
    assert np.array_equal(both[0] @ r, both[1] @ r) and (both[0] @ r).dtype == np.float32
