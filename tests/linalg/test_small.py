"""Small dense systems and symmetric 3 x 3 matrices, against NumPy, mpmath and bounds of backward errors."""

import warnings

import array_api_strict
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble import Ensemble
from ensemble.linalg import small

SIZES = st.integers(1, 10)
SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from([np.float64, np.float32])


def with_condition(rng, n, condition, *batch):
    """Random matrices with singular values from 1 down to 1 / condition."""
    left, right = (np.linalg.qr(rng.standard_normal((*batch, n, n)))[0] for _ in range(2))
    return left * np.logspace(0.0, -np.log10(condition), n) @ right


def backward_error(A, x, b):
    """|A x - b| over |A| |x| + |b|, in the largest norm, of each system, in longer numbers."""
    A, x, b = (a.astype(np.longdouble) for a in (A, x, b))
    size = np.abs(A).sum(-1).max(-1) * np.abs(x).max((-1, -2)) + np.abs(b).max((-1, -2))
    return np.abs(A @ x - b).max((-1, -2)) / size


# --- solve
@given(SEEDS, SIZES, st.integers(1, 3), DTYPES, st.floats(0.0, 10.0))
def test_the_backward_error_is_of_rounding(seed, n, k, dtype, exponent):
    """Bound: n**2 times the growth of pivots, which is below 2 n for random matrices, in units of rounding."""
    rng = np.random.default_rng(seed)
    A = with_condition(rng, n, 10.0 ** min(exponent, 6.0 if dtype == np.float32 else 10.0), 7).astype(dtype)
    b = rng.standard_normal((7, n, k)).astype(dtype)
    x = small.solve(A, b)
    assert x.dtype == dtype and x.shape == b.shape
    assert backward_error(A, x, b).max() <= 2 * n**2 * np.finfo(dtype).eps


def test_a_system_that_needs_pivots_is_solved():
    """Without exchanges the small pivot loses all digits."""
    A = np.array([[1e-20, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(small.solve(A, np.array([1.0, 2.0])), [1.0, 1.0], rtol=1e-15)


@pytest.mark.parametrize("n", [2, 6])
def test_well_conditioned_systems_agree_with_longer_arithmetic(n, rng):
    A, b = with_condition(rng, n, 100.0), rng.standard_normal(n)
    with mpmath.workdps(40):
        exact = mpmath.lu_solve(mpmath.matrix(A.tolist()), mpmath.matrix(b.tolist()))
    np.testing.assert_allclose(small.solve(A, b), [float(v) for v in exact], rtol=1e-12)


@pytest.mark.parametrize("shapes", [((3, 3), (3,)), ((5, 3, 3), (5, 3)), ((5, 2, 3, 3), (5, 1, 3)), ((3, 3), (3, 2))])
def test_leading_axes_broadcast(shapes, rng):
    A, b = (rng.standard_normal(shape) for shape in shapes)
    sides = b[..., None] if b.ndim < A.ndim else b
    expected = np.linalg.solve(A, np.broadcast_to(sides, (*A.shape[:-1], sides.shape[-1])))
    got = small.solve(A, b)
    np.testing.assert_allclose(got, expected[..., 0] if b.ndim < A.ndim else expected, rtol=1e-10)


@given(SEEDS, SIZES, st.sampled_from([1, 4]), st.sampled_from([1, 4]))
def test_each_sample_is_its_own_solve_to_the_bit(seed, n, own, other):
    rng = np.random.default_rng(seed)
    A, b = Ensemble(rng.standard_normal((3, n, n, own))), Ensemble(rng.standard_normal((3, n, other)))
    x = small.solve(A, b)
    assert x.shape == (3, n) and x.n_samples == max(own, other)
    for i in range(x.n_samples):
        alone = small.solve(A.samples[..., i % own], b.samples[..., i % other])
        np.testing.assert_array_equal(x.samples[..., i], alone)


def test_a_singular_matrix_is_nan_in_its_own_place(rng):
    A, b = rng.standard_normal((4, 3, 3, 5)), rng.standard_normal((4, 3, 5))
    A[2, :, 1, 3] = 0.0
    A[1, 0, 0, 4] = np.nan
    with pytest.warns(RuntimeWarning, match=r"^solve: .* 1 singular of 20 matrices, at 2, in sample 3\.") as caught:
        x = small.solve(Ensemble(A), Ensemble(b)).samples
    assert len(caught) == 1
    lost = np.zeros((4, 5), bool)
    lost[2, 3] = lost[1, 4] = True
    np.testing.assert_array_equal(np.isnan(x).any(axis=1), lost)
    assert np.isnan(x[2, :, 3]).all()


def test_what_is_not_finite_is_not_called_singular():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(small.solve(np.full((2, 2), np.nan), np.ones(2))).all()


HUGE = np.array([[1e300, -1e300], [1.5e308, 1.5e308]])


@pytest.mark.parametrize("make", [np.asarray, array_api_strict.asarray], ids=["numpy", "strict"])
@pytest.mark.parametrize(
    ("A", "b", "expected"),
    [
        (HUGE, [1e300, 1.5e308], [1.0, 0.0]),
        (-HUGE, [1e308, 1.5e308], [-5e7 - 0.5, 5e7 - 0.5]),
        (np.eye(2), [np.finfo(float).max, -5e-324], [np.finfo(float).max, -5e-324]),
        (1e-200 * np.eye(2), [1e200, 1e-200], [np.inf, 1.0]),
        (np.array([[1e300, 1e-20], [1e-20, 0.0]]), [1e300, 1e-20], [1.0, 0.0]),
        (np.array([[1.0, 1e200, 0.0], [1e200, 1.0, 1e200], [0.0, 1e200, 2.0]]), [1e200, 1.0, 1e200], [0, 1.0, 0]),
    ],
)
def test_a_system_whose_elimination_overflows_is_solved(A, b, expected, make):
    """The systems around it keep their bits; expected values by hand."""
    fine = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.125, 0.0, 7.0]])[: len(A), : len(A)]
    alone = small.solve(fine, np.asarray(b) * 0 + 1.0)
    x = np.asarray(small.solve(make(np.stack([fine, A, fine])), make(np.stack([alone * 0 + 1.0, b, alone * 0 + 1.0]))))
    np.testing.assert_allclose(x[1], expected, rtol=1e-15, atol=1e-190)
    np.testing.assert_array_equal(x[[0, 2]], [alone, alone])


def test_a_singular_matrix_of_huge_entries_is_called_singular():
    with pytest.warns(RuntimeWarning, match="1 singular of 2 matrices, at 0"):
        x = small.solve(np.stack([np.full((2, 2), 1.7e308), HUGE]), np.ones((2, 2)))
    assert np.isnan(x[0]).all() and np.isfinite(x[1]).all()


@pytest.mark.parametrize(
    "A, b, error, text",
    [
        (np.ones((2, 3)), np.ones(2), ValueError, r"solve: A must have shape \(\.\.\., n, n\); got \(2, 3\)"),
        (np.eye(2), np.ones(3), ValueError, r"solve: b must have shape \(\.\.\., 2\)"),
        (np.ones((3, 2, 2)), np.ones((4, 2)), ValueError, "solve: b must have leading axes"),
        (np.eye(2) * 1j, np.ones(2), TypeError, "solve: A must be an array of real numbers"),
        ("A", np.ones(2), TypeError, "solve: A must be an array of real numbers"),
        (Ensemble(np.ones((2, 2, 3))), Ensemble(np.ones((2, 4))), ValueError, "solve: b must have 3 samples"),
    ],
)
def test_what_does_not_fit_is_named(A, b, error, text):
    with pytest.raises(error, match=text):
        small.solve(A, b)


# --- symmetric matrices
def symmetric(rng, kind, dtype, n=11):
    """Random ones of some kind, (n, 3, 3)."""
    v = np.linalg.qr(rng.standard_normal((n, 3, 3)))[0]
    w = {
        "any": rng.standard_normal((n, 3)),
        "repeated": np.repeat(rng.uniform(0.5, 2.0, (n, 1)), 3, 1) * [1.0, 1.0, 3.0],
        "nearly repeated": 1.0 + 1e-13 * rng.standard_normal((n, 3)),
        "far apart": 10.0 ** rng.uniform(-12.0, 12.0, (n, 3)),
        "singular": rng.standard_normal((n, 3)) * [0.0, 0.0, 1.0],
        "large": 1e30 * rng.standard_normal((n, 3)),
        "small": 1e-30 * rng.standard_normal((n, 3)),
    }[kind]
    A = (v * w[:, None, :]) @ np.swapaxes(v, 1, 2)
    return ((A + np.swapaxes(A, 1, 2)) / 2).astype(dtype)


KINDS = st.sampled_from(["any", "repeated", "nearly repeated", "far apart", "singular", "large", "small"])


@given(SEEDS, KINDS, DTYPES)
def test_eigenvalues_and_vectors_have_errors_of_rounding(seed, kind, dtype):
    A = symmetric(np.random.default_rng(seed), kind, dtype)
    w, v = small.eigh3(A)
    assert w.dtype == v.dtype == dtype
    eps, norm = np.finfo(dtype).eps, np.abs(A).max((1, 2))
    assert (np.diff(w, axis=1) >= 0).all()
    wide = v.astype(np.longdouble)
    assert np.abs(np.swapaxes(wide, 1, 2) @ wide - np.eye(3)).max() <= 20 * eps
    residual = A.astype(np.longdouble) @ wide - wide * w[:, None, :]
    assert (np.abs(residual).max((1, 2)) <= 30 * eps * norm).all()
    assert (np.abs(w - np.linalg.eigvalsh(A.astype(np.float64))).max(1) <= 30 * eps * norm).all()


@pytest.mark.parametrize("make", [np.asarray, array_api_strict.asarray], ids=["numpy", "strict"])
@pytest.mark.parametrize(
    ("dtype", "powers"), [(np.float64, (1022, 1020, -600, -900, -1010, -1050)), (np.float32, (126, 124, -90, -130))]
)
def test_results_are_scaled_with_their_matrices_over_the_whole_range(dtype, powers, make, rng):
    """To the bit, up to the last bits of subnormal entries; beside NaN and zeros, which have no effect on others."""
    A = symmetric(rng, "any", np.float64, 20)
    A /= np.abs(A).max(axis=(1, 2), keepdims=True) * 1.01
    positive = A @ A
    positive /= np.abs(positive).max(axis=(1, 2), keepdims=True) * 1.01
    for power in powers:
        given, spd = (np.ldexp(X, power).astype(dtype) for X in (A, positive))
        plain, plain_spd = (np.ldexp(X, -power) for X in (given, spd))  # as they were rounded
        given[3], spd[3], given[7], spd[7, 1, 0] = 0.0, 0.0, np.nan, np.nan
        plain[3], plain_spd[3], plain[7], plain_spd[7, 1, 0] = 0.0, 0.0, np.nan, np.nan
        w, v = (np.asarray(part) for part in small.eigh3(make(given)))
        plain_w, plain_v = small.eigh3(plain)
        np.testing.assert_array_equal(v, plain_v)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(w, np.ldexp(plain_w, power))
        assert np.isfinite(v[np.arange(20) != 7]).all() and np.isnan(v[7]).all()
        for f, half in ((small.sqrtm_spd, power // 2), (small.inverse_sqrtm_spd, -power // 2)):
            np.testing.assert_array_equal(np.asarray(f(make(spd))), np.ldexp(f(plain_spd), half))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_largest_and_the_least_numbers(dtype):
    most, least = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    w, v = small.eigh3(np.array([[most, 0, 0], [0, -most, most], [0, most, most]], dtype))
    np.testing.assert_allclose(w, [-np.inf, most, np.inf])  # the others are the root of two times the largest number
    assert np.isfinite(v).all()
    w, v = small.eigh3(np.array([[least, least, 0], [least, least, 0], [0, 0, least]], dtype))
    np.testing.assert_array_equal(w, [0.0, least, 2 * least])
    root = small.sqrtm_spd(np.array([[most, 0, 0], [0, most, most / 2], [0, most / 2, most]], dtype))
    expected = np.sqrt(np.array([1.0, 1.5, 0.5])) * np.sqrt(float(most))
    np.testing.assert_allclose(np.linalg.eigvalsh(root), np.sort(expected), rtol=1e-6)


def test_small_eigenvalues_of_a_graded_matrix_keep_their_digits():
    """Of a scaled diagonally dominant matrix, all of them have small relative errors; NumPy's do not."""
    scale = np.array([1.0, 1e-6, 1e-12])
    A = np.array([[1.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.0]]) * np.outer(scale, scale)
    with mpmath.workdps(60):
        exact = sorted(float(x) for x in mpmath.eigsy(mpmath.matrix(A.tolist()), eigvals_only=True))
    np.testing.assert_allclose(small.eigh3(A).eigenvalues, exact, rtol=1e-14)


def test_only_the_lower_triangle_is_read(rng):
    A = symmetric(rng, "any", np.float64)
    spoilt = A + np.triu(np.full((3, 3), np.nan), 1)
    np.testing.assert_array_equal(small.eigh3(spoilt).eigenvectors, small.eigh3(A).eigenvectors)


@given(SEEDS, st.floats(0.0, 10.0), DTYPES)
def test_roots_give_back_their_matrices(seed, exponent, dtype):
    """R R = A to rounding of |A|; and R, A and the inverse root commute to what their sizes allow."""
    rng = np.random.default_rng(seed)
    exponent = min(exponent, 4.0) if dtype == np.float32 else exponent
    v = np.linalg.qr(rng.standard_normal((9, 3, 3)))[0]
    A = ((v * 10.0 ** (-exponent * rng.uniform(0.0, 1.0, (9, 1, 3)))) @ np.swapaxes(v, 1, 2)).astype(dtype)
    root, inverse = (f(A).astype(np.longdouble) for f in (small.sqrtm_spd, small.inverse_sqrtm_spd))
    A = np.tril(A) + np.swapaxes(np.tril(A, -1), 1, 2)
    eps, norm = np.finfo(dtype).eps, np.abs(A).max((1, 2))
    np.testing.assert_array_equal(root, np.swapaxes(root, 1, 2))
    assert (np.abs(root @ root - A).max((1, 2)) <= 50 * eps * norm).all()
    condition = np.linalg.cond(A.astype(np.float64))
    assert (np.abs(root @ inverse - np.eye(3)).max((1, 2)) <= 50 * eps * np.sqrt(condition)).all()


def test_a_matrix_that_is_not_positive_has_no_root_and_no_effect_on_others(rng):
    A = symmetric(rng, "far apart", np.float64)
    expected = small.sqrtm_spd(A)
    A[3], A[5, 1, 1] = -np.eye(3), np.nan
    got = small.sqrtm_spd(A)
    assert np.isnan(got[5]).all() and np.isnan(np.diagonal(got[3])).all()
    kept = np.setdiff1d(np.arange(len(A)), [3, 5])
    np.testing.assert_array_equal(got[kept], expected[kept])


@given(SEEDS, KINDS)
def test_each_sample_has_the_bits_of_its_own_call(seed, kind):
    A = symmetric(np.random.default_rng(seed), kind, np.float64, 20)
    together = Ensemble(np.moveaxis(A.reshape(4, 5, 3, 3), 1, -1))
    w, v = small.eigh3(together)
    root, inverse = small.sqrtm_spd(together), small.inverse_sqrtm_spd(together)
    assert w.shape == (4, 3) and v.shape == (4, 3, 3)
    for i in range(5):
        alone = np.ascontiguousarray(together.samples[..., i])
        np.testing.assert_array_equal(w.samples[..., i], small.eigh3(alone).eigenvalues)
        np.testing.assert_array_equal(v.samples[..., i], small.eigh3(alone).eigenvectors)
        np.testing.assert_array_equal(root.samples[..., i], small.sqrtm_spd(alone))
        np.testing.assert_array_equal(inverse.samples[..., i], small.inverse_sqrtm_spd(alone))


def test_matrices_have_three_rows():
    with pytest.raises(ValueError, match=r"eigh3: A must have shape \(\.\.\., 3, 3\); got \(2, 2\)"):
        small.eigh3(np.eye(2))


def test_other_libraries_take_the_reference(rng):
    A, b = symmetric(rng, "far apart", np.float64, 4), rng.standard_normal((4, 3))
    given = array_api_strict.asarray(A)
    np.testing.assert_array_equal(np.asarray(small.eigh3(given).eigenvectors), small.eigh3(A).eigenvectors)
    np.testing.assert_array_equal(np.asarray(small.solve(given, array_api_strict.asarray(b))), small.solve(A, b))


@pytest.mark.cuda
def test_a_device_gives_the_bits_of_the_cpu(rng):
    import cupy

    A, b = symmetric(rng, "any", np.float64, 40), rng.standard_normal((40, 3))
    np.testing.assert_array_equal(small.solve(cupy.asarray(A), cupy.asarray(b)).get(), small.solve(A, b))
    for got, expected in zip(small.eigh3(cupy.asarray(A)), small.eigh3(A), strict=True):
        np.testing.assert_array_equal(got.get(), expected)
