"""Hierarchies set up once for all samples: affine levels, and the mean's hierarchy scaled to each sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ensemble import gallery
from ensemble.krylov import cg
from ensemble.linalg import AffineMatrix, CrsMatrix
from ensemble.multigrid import Chebyshev, scaled_aggregation, smoothed_aggregation
from ensemble.multigrid.affine import AffineHierarchy
from ensemble.scalar import Ensemble
from tests.conftest import examples

OPTIONS = {"coarse_size": 12}


def affine_matrix(n_samples, seed=71993, shape=(12, 11)):
    """The Laplacian plus up to 40 % of an anisotropic one."""
    mean, other = gallery.poisson(shape), gallery.anisotropic(shape, 1)
    terms = np.concatenate([mean.values, 0.4 * other.values, 0.1 * mean.values], axis=1)
    return AffineMatrix(mean.graph, terms, Ensemble(np.random.default_rng(seed).uniform(0, 1, (2, n_samples))))


BUILDERS = {"affine": smoothed_aggregation, "scaled": scaled_aggregation}


@pytest.fixture(params=BUILDERS)
def build(request):
    return BUILDERS[request.param]


@given(
    n_samples=st.sampled_from([1, 3, 7, 33]), seed=st.integers(0, 2**32 - 1), narrow=st.booleans(), scaled=st.booleans()
)
@hypothesis_settings(max_examples=examples(15))
def test_each_sample_is_its_own_run(n_samples, seed, narrow, scaled):
    rng = np.random.default_rng(seed)
    A = affine_matrix(n_samples, seed)
    r = Ensemble(rng.standard_normal((132, n_samples)))
    make = scaled_aggregation if scaled else smoothed_aggregation
    options = {**OPTIONS, "dtype": np.float32 if narrow else None}
    M = make(A, **options)
    z = M @ r
    chosen = rng.integers(0, n_samples, 2)
    part = M.take_samples(chosen) @ Ensemble(np.ascontiguousarray(r.samples[:, chosen]))
    for j, i in enumerate(chosen):
        assert np.array_equal(z.sample(i), make(A.sample(i), **options) @ r.sample(i))
        assert np.array_equal(z.sample(i), part.sample(j))


def test_affine_levels_are_the_galerkin_products_of_the_stored_matrices():
    A = affine_matrix(3)
    M = smoothed_aggregation(A, **OPTIONS)
    assert isinstance(M, AffineHierarchy) and len(M.levels) >= 2
    for fine, coarse in zip(M.levels, M.levels[1:], strict=False):
        assert fine.P.n_samples == 1
        for i in range(3):
            P = fine.P.to_scipy()
            expected = (P.T @ fine.A.to_scipy(i) @ P).toarray()
            np.testing.assert_allclose(coarse.A.to_scipy(i).toarray(), expected, rtol=0, atol=1e-12)


def test_the_eigenvalue_bound_follows_the_sample():
    """Right to first order: against the power method on each sample, within two parts in a hundred."""
    A = affine_matrix(6)
    shared, own = (smoothed_aggregation(m, **OPTIONS).levels[0].lambda_max for m in (A, A.to_crs()))
    np.testing.assert_allclose(shared, own, rtol=0.05)
    plain = smoothed_aggregation(A.with_coefficients(np.zeros(2)), **OPTIONS)
    mean = smoothed_aggregation(A.mean, dtype=np.float64, **OPTIONS)
    assert plain.levels[0].lambda_max[0] == mean.levels[0].lambda_max[0]


def test_update_equals_a_new_hierarchy(rng, build):
    old, new = affine_matrix(3, seed=1), affine_matrix(5, seed=2)
    r = Ensemble(rng.standard_normal((132, 5)))
    M = build(old, **OPTIONS)
    assert M.update(new) is M
    assert np.array_equal((M @ r).samples, (build(new, **OPTIONS) @ r).samples)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_preconditioner_is_symmetric_positive(rng, build, degree, dtype):
    A = affine_matrix(3)
    M = build(A, smoother=Chebyshev(degree=degree), dtype=dtype, **OPTIONS)
    x, y = (Ensemble(rng.standard_normal((132, 3))) for _ in range(2))
    left, right = (np.sum(u.samples * (M @ v).samples, axis=0) for u, v in ((x, y), (y, x)))
    size = np.sqrt(np.prod([np.sum(v.samples * (M @ v).samples, axis=0) for v in (x, y)], axis=0))
    assert np.all(np.abs(left - right) <= 1000 * np.finfo(dtype).eps * size)
    assert np.all(np.sum(x.samples * (M @ x).samples, axis=0) > 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_solutions_and_iterations_are_those_of_the_stored_hierarchy(rng, build, dtype):
    A = affine_matrix(5, shape=(30, 31))
    b = Ensemble(rng.standard_normal((930, 5)))
    stored = cg(A.to_crs(), b, M=smoothed_aggregation(A.to_crs(), coarse_size=40), rtol=1e-9)
    once = cg(A, b, M=build(A, coarse_size=40, dtype=dtype), rtol=1e-9)
    assert once.converged.all() and once.x.dtype == np.float64
    assert np.all(once.iterations <= stored.iterations + 3)  # the second matrix is anisotropic, the prolongator is not
    for i in range(
        5
    ):  # the true residuals of both are at most 1e-9 of b: the answers are that close, times the condition
        a = A.to_scipy(i)
        assert np.linalg.norm(a @ once.x.sample(i) - b.sample(i)) <= 1.0001e-9 * np.linalg.norm(b.sample(i))
        difference = once.x.sample(i) - stored.x.sample(i)
        assert np.linalg.norm(difference) <= 2e-9 * np.linalg.norm(b.sample(i)) / np.linalg.eigvalsh(a.toarray())[0]


@given(factor=st.floats(0.1, 10), seed=st.integers(0, 2**32 - 1))
@hypothesis_settings(max_examples=examples(20))
def test_scaling_undoes_a_diagonal_congruence(factor, seed):
    """For D A_0 D the scaled V-cycle is D^-1 V D^-1: the error propagation, hence every iterate, is the mean's own."""
    mean = gallery.poisson((9, 9))
    d = 1.0 + factor * np.random.default_rng(seed).random(81)
    rows, columns = mean.graph.row_of_entry, mean.graph.indices
    A = CrsMatrix(mean.graph, mean.values * (d[rows] * d[columns])[:, None])
    r = np.random.default_rng(seed + 1).standard_normal(81)
    options = {"coarse_size": 12, "dtype": np.float64}
    expected = (smoothed_aggregation(mean, **options) @ (r / d)) / d
    np.testing.assert_allclose(scaled_aggregation(A, mean, **options) @ r, expected, rtol=1e-10, atol=1e-13)


def test_nan_stays_in_its_sample(rng, build):
    A = affine_matrix(4)
    r = Ensemble(rng.standard_normal((132, 4)))
    clean = (build(A, **OPTIONS) @ r).samples
    A.coefficients[1, 2] = np.nan
    z = (build(A, **OPTIONS) @ r).samples
    assert np.isnan(z[:, 2]).any()
    assert np.array_equal(np.delete(z, 2, axis=1), np.delete(clean, 2, axis=1))


def test_a_float32_hierarchy_holds_no_float64(build):
    """Stored, affine and scaled alike: whatever is as long as a level's vectors or entries is float32."""
    A = affine_matrix(3)
    for M in (build(A, dtype=np.float32, **OPTIONS), smoothed_aggregation(A.to_crs(), dtype=np.float32, **OPTIONS)):
        hierarchy = getattr(M, "hierarchy", M)
        for level in hierarchy.levels:
            held = [getattr(level.A, "values", getattr(level.A, "terms", None))]
            held += [level.P.values] if level.P is not None else []
            held += [level.smoother.dinv] if level.smoother is not None else []
            assert {a.dtype for a in held} == {np.dtype(np.float32)}
        assert hierarchy.coarse.inverse.dtype == np.float32
        assert getattr(M, "scale", np.zeros(1, np.float32)).dtype == np.float32


def test_precondition_dot_is_apply_and_its_inner_product(rng, build):
    A = affine_matrix(5)
    r = rng.standard_normal((132, 5))
    for dtype in (np.float64, np.float32):
        M = build(A, dtype=dtype, **OPTIONS)
        out = np.empty_like(r)
        inner = M.precondition_dot(r, out)
        assert np.array_equal(out, M.apply(r))
        np.testing.assert_allclose(inner, np.sum(r * out, axis=0), rtol=1e-12)


def test_one_level_is_solved_directly(rng, build):
    A = affine_matrix(3)
    M = build(A, dtype=np.float32)
    assert "direct" in repr(M)
    assert cg(A, Ensemble(rng.standard_normal((132, 3))), M=M).converged.all()


def test_misuse_is_refused(rng):
    A = affine_matrix(3)
    M = scaled_aggregation(A, **OPTIONS)
    with pytest.raises(ValueError, match=r"ScaledHierarchy.update: A must have shape \(132, 132\)"):
        M.update(gallery.poisson((4, 4)))
    with pytest.raises(ValueError, match=r"AffineHierarchy\.update: A must be like the matrix this was built for"):
        smoothed_aggregation(A, **OPTIONS).update(A.to_crs())
    with pytest.raises(TypeError, match="mean must be given for a matrix without a mean of its own; got None"):
        scaled_aggregation(A.to_crs())
    with pytest.raises(ValueError, match=r"mean must have shape .* and one sample"):
        scaled_aggregation(A, mean=A.to_crs())
    with pytest.raises(ValueError, match="x must have 132 rows"):
        M @ np.ones(3)
    with pytest.raises(ValueError, match="operands must have the same n_samples, or 1; got 3 and 2"):
        M @ Ensemble(np.ones((132, 2)))
    with pytest.raises(TypeError, match=r"A must be a CrsMatrix, .* or AffineMatrix; got a Diagonal.*to_crs"):
        from ensemble.linalg import Diagonal

        smoothed_aggregation(Diagonal(np.ones(4)))
