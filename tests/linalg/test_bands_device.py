"""Full bands by the kernels of a device, on the emulator or a device: the bits of the CPU for every half-width."""

import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble._kernels.direct import bands
from ensemble._kernels.direct.forms.factors import factorized
from ensemble._kernels.direct.forms.triangular import factor_solve
from tests.linalg.eliminated_graphs import banded, elimination, matrices, network

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def compare(put, half, symmetric, dtype, n_samples, n, order=None):
    graph, values = matrices(banded(n, half), n_samples, dtype)
    values[values < 0.1] = -0.0
    plan = elimination(graph, symmetric, np.arange(n) if order is None else order)
    assert bands.half_width(plan) == half
    b = np.random.default_rng(5).standard_normal((n, 2, n_samples)).astype(dtype)
    expected, broken = factorized.implementations["numba"](values, plan, None)
    solve = factor_solve.implementations["numba"]
    x = solve(expected, plan, b[:, :1].copy(), False, None)[:, 0]
    for rhs in (None, b[:, 0].copy()):
        got, marks, solution = bands.band_factorized(put(values), plan, put(rhs))
        np.testing.assert_array_equal(to_numpy(got), expected)
        sign = np.where(expected == 0, np.signbit(expected), False)
        np.testing.assert_array_equal(np.signbit(to_numpy(got)) & (expected == 0), sign)
        np.testing.assert_array_equal(to_numpy(marks), broken)
        assert solution is None or np.array_equal(to_numpy(solution), x, equal_nan=True)
    other = np.float32 if dtype == np.float64 else np.float64
    for transposed in (False, True):
        for factors in (expected, expected[:, :1].copy(), expected.astype(other)):
            got = bands.band_solved(put(factors), plan, put(b), transposed, None)
            np.testing.assert_array_equal(to_numpy(got), solve(factors, plan, b, transposed, None))


@pytest.mark.parametrize("half", range(2, bands.MOST_HALF + 1))
def test_bands_have_the_bits_of_the_cpu(half, put):
    compare(put, half, half % 2 == 0, np.float64, 5, 3 * half + 1)


@pytest.mark.parametrize("half", [3, 8, 20])
def test_the_other_kind_and_type_have_the_bits_of_the_cpu(half, put):
    compare(put, half, half % 2 == 1, np.float32, 5, 2 * half)


@pytest.mark.parametrize("n_samples", [1, 3, 8, 32, 33])
def test_any_number_of_samples_has_the_bits_of_the_cpu(n_samples, put):
    compare(put, 4, False, np.float64, n_samples, 17)


@pytest.mark.parametrize("n", [5, 6, 7])
def test_bands_that_are_nearly_full_matrices(n, put):
    compare(put, 4, n % 2 == 0, np.float64, 3, n)


def test_bands_in_descending_order(put):
    compare(put, 4, False, np.float64, 4, 19, np.arange(19)[::-1].copy())


def test_what_is_no_full_band():
    for base in (network(), banded(20, 1) + 0.1 * np.eye(20, k=3)):
        graph, _ = matrices(base, 1)
        assert bands.half_width(elimination(graph, False, None)) == 0
    graph, values = matrices(banded(60, 30), 1)
    plan = elimination(graph, False, np.arange(60))
    assert bands.half_width(plan) == 30 and bands.band_factorized(values, plan, None) is None
