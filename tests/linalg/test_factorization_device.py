"""Factorisations by the kernels of a device, on the emulator or a device: the bits of the CPU in every form."""

import numpy as np
import pytest

from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble._kernels.direct import levels, on_device, slots
from ensemble._kernels.direct.chains import is_chain
from ensemble._kernels.direct.forms.factors import factorized
from ensemble._kernels.direct.forms.triangular import factor_solve
from ensemble._kernels.direct.symbolic.schedules import LAZY
from ensemble.krylov import direct
from ensemble.linalg import CrsMatrix, Factorization, IncompleteFactorization
from ensemble.scalar import Ensemble
from tests.linalg.eliminated_graphs import banded, elimination, matrices, network

factorized_with_solution = on_device.factorized_with_solution.implementations["cuda"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def small_blocks(request, monkeypatch):
    """The emulator takes its time for each thread."""
    if "[device" not in request.node.name:
        monkeypatch.setattr(levels, "MOST_THREADS", 24)


GRAPHS = {"network": (network(), None), "tridiagonal": (banded(29, 1), np.arange(29)), "band": (banded(20, 3), None)}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_form_has_the_bits_of_the_cpu(name, symmetric, dtype, put):
    """By levels and in the form of choice, a right-hand side with the values or after them."""
    base, order = GRAPHS[name]
    graph, values = matrices(base, 5, dtype)
    plan = elimination(graph, symmetric, order)
    b = np.random.default_rng(5).standard_normal((graph.shape[0], 5)).astype(dtype)
    expected, broken = factorized.implementations["numba"](values, plan, None)
    x = factor_solve.implementations["numba"](expected, plan, b[:, None, :], False, None)[:, 0, :]
    assert (broken != broken).tolist() == [False] * 3 + [True] * 2
    assert is_chain(plan) == (name == "tridiagonal")
    for form in (levels.factorized_by_levels, factorized_with_solution):
        for rhs in (None, b):
            got, marks, solution = form(put(values), plan, put(rhs))
            np.testing.assert_array_equal(to_numpy(got), expected)
            np.testing.assert_array_equal(to_numpy(marks), broken)
            assert solution is None or np.array_equal(to_numpy(solution), x, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.complex128, pytest.param(np.complex64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_complex_numbers_have_the_bits_of_the_cpu(symmetric, dtype, put):
    """LU, and LDL^T without conjugates; the samples that are broken are so in one part or in both."""
    graph, values = matrices(network(), 5, np.float64)
    rng = np.random.default_rng(6)
    values = (values * np.exp(1j * rng.uniform(0.0, 0.4, values.shape))).astype(dtype)
    plan, b = elimination(graph, symmetric, None), rng.standard_normal((2, graph.shape[0], 2, 5))
    b = (b[0] + 1j * b[1]).astype(dtype)
    expected, broken = factorized.implementations["numba"](values, plan, None)
    got, marks, x = factorized_with_solution(put(values), plan, put(b[:, 0].copy()))
    np.testing.assert_array_equal(to_numpy(got), expected)
    np.testing.assert_array_equal(to_numpy(marks) != to_numpy(marks), broken != broken)
    for transposed in (False, True):
        right = factor_solve.implementations["numba"](expected, plan, b, transposed, None)
        found = factor_solve.implementations["cuda"](put(expected), plan, put(b), transposed, None)
        np.testing.assert_array_equal(to_numpy(found), right)
        assert transposed or np.array_equal(to_numpy(x), right[:, 0], equal_nan=True)
    assert np.isfinite(right[..., :3]).all()


FORMS = [
    slots.Form(1, 4, False),
    slots.Form(4, 4, False),
    slots.Form(4, LAZY, True),
    slots.Form(2, 0, False),
    slots.Form(6, 8, False),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("most_kept", [0, 1024])
def test_values_in_slots_have_the_bits_of_the_cpu(most_kept, symmetric, dtype, form, put, monkeypatch):
    """One warp or more, backward substitution among the values or after them, rows at multiples of 16 bytes or not."""
    monkeypatch.setattr(slots, "FORMS", (form,))
    monkeypatch.setattr(slots, "MOST_KEPT", most_kept)
    n_samples = 36 if most_kept else 35
    graph, values = matrices(network(), n_samples, dtype)
    plan = elimination(graph, symmetric, None)
    b = np.random.default_rng(8).standard_normal((graph.shape[0], 2, n_samples)).astype(dtype)
    expected, broken = factorized.implementations["numba"](values, plan, None)
    solve = factor_solve.implementations["numba"]
    for rhs in (None, b[:, 0].copy()):
        got, marks, x = slots.slots_factorized(put(values), plan, put(rhs))
        np.testing.assert_array_equal(to_numpy(got), expected)
        np.testing.assert_array_equal(to_numpy(marks), broken)
        if rhs is not None:
            np.testing.assert_array_equal(to_numpy(x), solve(expected, plan, b[:, :1].copy(), False, None)[:, 0])
    for transposed in (False, True):
        for factors in (expected, expected[:, :1].copy()):
            got = slots.slots_solved(put(factors), plan, put(b), transposed, None)
            np.testing.assert_array_equal(to_numpy(got), solve(factors, plan, b, transposed, None))


@pytest.mark.parametrize("n_samples", [1, 3, 8, 32, 33])
def test_any_number_of_samples_has_the_bits_of_the_cpu(n_samples, put):
    graph, values = matrices(network(), n_samples)
    plan = elimination(graph, False, None)
    b = np.random.default_rng(9).standard_normal((graph.shape[0], n_samples))
    expected, broken = factorized.implementations["numba"](values, plan, None)
    got, marks, x = slots.slots_factorized(put(values), plan, put(b))
    np.testing.assert_array_equal(to_numpy(got), expected)
    np.testing.assert_array_equal(to_numpy(marks), broken)
    right = factor_solve.implementations["numba"](expected, plan, b[:, None].copy(), False, None)
    np.testing.assert_array_equal(to_numpy(x), right[:, 0])
    np.testing.assert_array_equal(
        to_numpy(slots.slots_solved(put(expected), plan, put(b[:, None].copy()), False, None)), right
    )


def test_pivots_of_all_magnitudes_have_the_bits_of_the_cpu(put):
    graph, values = matrices(network(), 36)
    values = values * 2.0 ** np.linspace(-1074, 1020, 36).astype(int)
    plan = elimination(graph, False, None)
    expected, broken = factorized.implementations["numba"](values, plan, None)
    assert 0 < (broken == 0).sum() < 36
    got, marks, _ = slots.slots_factorized(put(values), plan, None)
    np.testing.assert_array_equal(to_numpy(got), expected)
    np.testing.assert_array_equal(to_numpy(marks), broken)


@pytest.mark.parametrize("which", ["values", "b"])
def test_arrays_that_begin_at_no_multiple_of_16_bytes_have_the_bits_of_the_cpu(which, put):
    graph, values = matrices(network(), 8)
    plan = elimination(graph, False, None)
    b = np.random.default_rng(9).standard_normal((graph.shape[0], 8))
    expected, _ = factorized.implementations["numba"](values, plan, None)
    shifted = lambda array: put(np.append(0.0, array))[1:].reshape(array.shape)
    given = {"values": put(values), "b": put(b)} | {which: shifted(values if which == "values" else b)}
    got, _, x = slots.slots_factorized(given["values"], plan, given["b"])
    np.testing.assert_array_equal(to_numpy(got), expected)
    solved = factor_solve.implementations["numba"](expected, plan, b[:, None].copy(), False, None)
    np.testing.assert_array_equal(to_numpy(x), solved[:, 0])
    factors, rhs = (shifted(expected), put(b)) if which == "values" else (put(expected), given["b"])
    np.testing.assert_array_equal(to_numpy(slots.slots_solved(factors, plan, rhs[:, None], False, None)), solved)


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_what_does_not_fit_into_slots_goes_by_levels(most, put, monkeypatch):
    graph, values = matrices(network(), 3)
    plan = elimination(graph, False, None)
    monkeypatch.setattr(slots, "SHARED_BYTES", most)
    for found in (
        slots.slots_factorized(put(values), plan, None),
        slots.slots_solved(put(np.ones((plan.n_values, 3))), plan, put(np.ones((60, 1, 3))), False, None),
    ):
        assert (found is None) == (most == 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_solutions_have_the_bits_of_the_cpu(name, symmetric, transposed, dtype, put):
    """Vectors of `dtype`, factors of either type."""
    base, order = GRAPHS[name]
    graph, values = matrices(base, 5)
    plan = elimination(graph, symmetric, order)
    factors = factorized.implementations["numba"](values, plan, None)[0]
    b = np.random.default_rng(6).standard_normal((graph.shape[0], 2, 5)).astype(dtype)
    single = factors.astype(np.float32)
    for given in (factors, factors[:, :1].copy(), single, single[:, :1].copy()):
        expected = factor_solve.implementations["numba"](given, plan, b, transposed, None)
        for form in (factor_solve.implementations["cuda"], levels.solved_by_levels):
            got = form(put(given), plan, put(b), transposed, None)
            np.testing.assert_array_equal(to_numpy(got), expected)
        place = put(b.copy())
        factor_solve.implementations["cuda"](put(given), plan, place, transposed, place)
        np.testing.assert_array_equal(to_numpy(place), expected)


def test_a_sample_has_the_bits_of_its_own_run(put):
    graph, values = matrices(network(), 40)
    plan = elimination(graph, False, None)
    together = to_numpy(factorized_with_solution(put(values), plan, None)[0])
    for s in (0, 31, 32, 37):
        alone = to_numpy(factorized_with_solution(put(values[:, s : s + 1].copy()), plan, None)[0])
        np.testing.assert_array_equal(together[:, s], alone[:, 0])


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_operators_run_on_the_device(kind, as_device):
    base = network()
    base = base + base.T if kind == "ldlt" else base
    matrix = [base, 2.0 * base]
    b = np.linspace(1.0, 2.0, base.shape[0])
    F = Factorization(matrix, kind=kind)
    np.testing.assert_allclose(base @ (F @ b).samples[:, 0], b, rtol=1e-12)
    np.testing.assert_allclose(base.T @ (2.0 * (F.T @ b).samples[:, 1]), b, rtol=1e-12)
    made = IncompleteFactorization(matrix, kind=kind)
    assert np.abs(base @ (made @ b).samples[:, 0] - b).max() < 1.0


def test_what_has_no_list_is_factorized_on_the_cpu(as_device, monkeypatch):
    graph, values = matrices(network(), 2)
    plan, b = elimination(graph, False, None), np.ones((60, 2))
    expected = factorized_with_solution(values, plan, b)
    monkeypatch.setattr(on_device, "MOST_MULTIPLY_ADDS", 10)
    monkeypatch.setattr(on_device, "factorized_by_levels", None)
    for got, right in zip(factorized_with_solution(values, plan, b), expected, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dtype", [None, "float32"])
@pytest.mark.parametrize("where", ["emulator", pytest.param("device", marks=pytest.mark.cuda)])
def test_direct_solves_have_the_bits_of_the_cpu(where, dtype, request):
    """Also those of samples that are refined, go through a pivoting solver, or are singular."""
    graph, values = matrices(network(), 6)
    values[graph.diagonal_entries[49], 1] = 1e-17  # a pivot that loses all digits
    A, b = CrsMatrix(graph, values), Ensemble(np.random.default_rng(7).standard_normal((60, 6)))
    expected = direct(A, b, dtype=dtype)
    if where == "emulator":
        request.getfixturevalue("as_device")
    else:
        like = prototype("cupy")
        A, b = CrsMatrix(graph, asarray_like(values, like)), Ensemble(asarray_like(b.samples, like))
    got = direct(A, b, dtype=dtype)
    assert got.repaired.tolist() == [False, True, False, False, False, False]
    assert got.converged.tolist() == [True, True, True, True, False, False]
    for name in ("status", "iterations", "repaired", "backward_errors"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
    np.testing.assert_array_equal(to_numpy(got.x.samples), expected.x.samples)
