"""Hierarchies that keep their matrices in bfloat16 or float32 values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble import gallery
from ensemble._kernels.sparse.rounded import as_floats, as_stored
from ensemble.krylov import Status, cg
from ensemble.linalg import AffineMatrix, CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.multigrid.rounded import RoundedMatrix
from ensemble.scalar import Ensemble

BFLOAT16 = np.dtype(np.uint16)
KINDS = [(np.float32, "bfloat16"), (np.float64, "bfloat16"), (np.float64, np.float32)]


def poissons(n_samples, seed, shape=(13, 11)):
    """Poisson problems scaled from both sides, each sample by numbers of its own that vary smoothly."""
    A = gallery.poisson(shape)
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 1.0, A.shape[0])[:, None]
    scale = np.exp(0.5 * np.sin(x * rng.uniform(1.0, 6.0, n_samples)))
    rows, columns = A.graph.row_of_entry, A.graph.indices
    return CrsMatrix(A.graph, A.values * scale[rows] * scale[columns])


# --- the numbers
@pytest.mark.parametrize(
    "value, bits",
    [
        (1.0, 0x3F80), (-2.0, 0xC000), (0.0, 0x0000), (-0.0, 0x8000), (np.inf, 0x7F80),
        (1.0 + 2.0**-8, 0x3F80), (1.0 + 3 * 2.0**-8, 0x3F82),  # ties go to the even neighbour
        (1.0 + 2.0**-8 + 2.0**-20, 0x3F81), (3.3895314e38, 0x7F7F), (3.4e38, 0x7F80), (2.0**-133, 0x0001),
    ],
)  # fmt: skip
def test_bfloat16_is_the_upper_half_of_a_float32(value, bits):
    stored = as_stored(np.array([[value]]), np.empty(0, np.uint16))
    assert stored[0, 0] == bits


def test_a_nan_stays_a_nan():
    awkward = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)[:, None]
    assert np.isnan(as_floats(as_stored(awkward, np.empty(0, np.uint16)), np.float64)).all()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=2.0**-100, max_value=2.0**100))
def test_rounding_is_to_nearest(value):
    near = as_floats(as_stored(np.array([[value]]), np.empty(0, np.uint16)), np.float64)[0, 0]
    assert abs(near - value) <= 2.0**-8 * 2.0 ** np.floor(np.log2(value)) * (1 + 1e-12)


# --- the matrix
@pytest.mark.parametrize("dtype, storage", [(np.float32, BFLOAT16), (np.float64, BFLOAT16), (np.float64, np.float32)])
def test_rows_keep_their_sums(dtype, storage):
    A = poissons(3, seed=30911)
    A = CrsMatrix(A.graph, A.values.astype(dtype))
    rounded = RoundedMatrix.of(A, np.dtype(storage))
    ones = np.ones((A.shape[0], 3), dtype)
    largest = np.abs(A.values).max()
    kept, meant = rounded.apply(ones), A.apply(ones)
    np.testing.assert_allclose(kept, meant, rtol=0, atol=16 * np.finfo(dtype).eps * largest)
    assert np.abs(kept - A.apply(ones)).max() < 1e-3 * np.abs(as_floats(rounded.values, dtype) - A.values).max()


def test_energies_change_by_a_small_fraction():
    """Off-diagonal entries are right to 2^-8 and rows keep their sums, so x . A x of a Laplacian is right to that."""
    A = gallery.poisson((40, 40))
    A = CrsMatrix(A.graph, A.values * np.float64(0.777))
    rounded = RoundedMatrix.of(A, BFLOAT16)
    i, j = np.divmod(np.arange(1600), 40)
    for k in (1, 2, 7, 20):
        x = (np.sin(np.pi * k * (i + 1) / 41) * np.sin(np.pi * (j + 1) / 41))[:, None]
        energy, kept = (float(x[:, 0] @ M.apply(x)[:, 0]) for M in (A, rounded))
        assert abs(kept - energy) <= 2.0**-8 * energy


# --- the hierarchy
@pytest.mark.parametrize("dtype, values_dtype", KINDS)
def test_rounding_costs_no_iteration(dtype, values_dtype):
    """The true residuals meet the tolerance as before, after as many iterations."""
    A = poissons(4, seed=70117, shape=(40, 40))
    b = Ensemble(np.random.default_rng(12007).standard_normal((1600, 4)))
    plain = cg(A, b, M=smoothed_aggregation(A, coarse_size=100), rtol=1e-9)
    result = cg(A, b, M=smoothed_aggregation(A, coarse_size=100, dtype=dtype, values_dtype=values_dtype), rtol=1e-9)
    assert result.converged.all()
    assert np.all(result.iterations <= plain.iterations + 1)
    true = np.linalg.norm(b.samples - A.apply(result.x.samples), axis=0)
    assert np.all(true <= 1e-9 * np.linalg.norm(b.samples, axis=0))


@given(st.integers(1, 9), st.integers(0, 2**31))
def test_each_sample_is_its_scalar_hierarchy(n_samples, seed):
    A = poissons(n_samples, seed)
    r = np.random.default_rng(seed).standard_normal((A.shape[0], n_samples))
    options = {"coarse_size": 30, "dtype": np.float32, "values_dtype": "bfloat16"}
    together = smoothed_aggregation(A, **options).apply(r)
    i = seed % n_samples
    alone = smoothed_aggregation(A.sample(i), **options).apply(r[:, i : i + 1].copy())
    np.testing.assert_array_equal(together[:, i], alone[:, 0])


def test_a_shared_hierarchy_serves_every_sample():
    A = poissons(1, seed=44029)
    r = np.random.default_rng(44029).standard_normal((A.shape[0], 5))
    M = smoothed_aggregation(A, coarse_size=30, values_dtype="bfloat16")
    together = M.apply(r)
    for i in range(5):
        np.testing.assert_array_equal(M.apply(r[:, i : i + 1].copy())[:, 0], together[:, i])


def test_update_and_taking_samples_equal_a_new_hierarchy():
    old, new = poissons(4, seed=51203), poissons(4, seed=90787)
    r = np.random.default_rng(3301).standard_normal((new.shape[0], 4))
    options = {"coarse_size": 30, "dtype": np.float32, "values_dtype": "bfloat16"}
    expected = smoothed_aggregation(new, **options).apply(r)
    M = smoothed_aggregation(old, **options)
    np.testing.assert_array_equal(M.update(new).apply(r), expected)
    some = M.take_samples(np.array([2, 0]))
    np.testing.assert_array_equal(some.apply(r[:, [2, 0]].copy()), expected[:, [2, 0]])


def test_nan_stays_in_its_sample():
    A = poissons(3, seed=61553)
    b = Ensemble(np.ones((A.shape[0], 3)))
    clean = cg(A, b, M=smoothed_aggregation(A, coarse_size=30, values_dtype="bfloat16"))
    A.values[5, 1] = np.nan
    spoiled = cg(A, b, M=smoothed_aggregation(A, coarse_size=30, values_dtype="bfloat16"))
    assert spoiled.status[1] == Status.breakdown
    np.testing.assert_array_equal(spoiled.x.samples[:, ::2], clean.x.samples[:, ::2])


def test_the_diagonal_is_that_of_the_rounded_matrix():
    rounded = RoundedMatrix.of(poissons(2, seed=20249), BFLOAT16)
    unit = np.zeros((rounded.shape[0], 2))
    unit[17] = 1.0
    np.testing.assert_array_equal(rounded.diagonal().samples[17], rounded.apply(unit)[17])


@pytest.mark.parametrize(
    "dtype, values_dtype", [(np.float32, np.float64), (None, np.float16), (None, "bf16"), (None, 8)]
)
def test_other_types_are_refused(dtype, values_dtype):
    with pytest.raises(ValueError, match="values_dtype must be 'bfloat16', or a floating type no wider"):
        smoothed_aggregation(poissons(2, seed=1), dtype=dtype, values_dtype=values_dtype)


def test_an_affine_matrix_has_no_values_to_round():
    A = gallery.poisson((9,))
    affine = AffineMatrix(A.graph, np.concatenate([A.values, A.values], axis=1), np.zeros(1))
    with pytest.raises(ValueError, match="values_dtype must be None for an AffineMatrix"):
        smoothed_aggregation(affine, values_dtype="bfloat16")


def test_the_repr_names_the_type():
    assert "float64 in bfloat16" in repr(smoothed_aggregation(gallery.poisson((700,)), values_dtype="bfloat16"))
