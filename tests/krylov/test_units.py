"""A right-hand side may have any units: its size changes no iteration, and no sample is called solved that is not."""

import numpy as np
import pytest

from ensemble import gallery
from ensemble.krylov import Status, bicgstab, cg, gmres, minres
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble, SampleSet

each_solver = pytest.mark.parametrize("solve", [cg, bicgstab, gmres, minres])
A = gallery.poisson((7, 7), 5)


@each_solver
@pytest.mark.parametrize(
    "dtype, powers", [(np.float64, [0, -700, 600, -1030, 900]), (np.float32, [0, -80, 70, -120, 90])]
)
def test_the_size_of_b_changes_nothing(solve, dtype, powers, rng):
    b = rng.uniform(0.5, 1.0, (49, 1)).astype(dtype)
    matrix, rtol = CrsMatrix(A.graph, A.values[:, 0].astype(dtype)), 1e-9 if dtype is np.float64 else 1e-4
    alone = solve(matrix, b[:, 0], rtol=rtol)
    scales = np.ldexp(np.ones(5, dtype), powers)
    seen = []
    result = solve(matrix, Ensemble(b * scales), rtol=rtol, callback=lambda k, norms: seen.append(norms))
    assert result.converged.all() and np.all(result.iterations == alone.iterations[0])
    np.testing.assert_array_equal(result.x.samples[:, :3], alone.x[:, None] * scales[:3])
    # samples 3 and 4 come near the ends of the range, where x has fewer bits
    np.testing.assert_allclose(result.x.samples / scales, np.repeat(alone.x[:, None], 5, axis=1), rtol=1e-3)
    np.testing.assert_allclose(result.target, alone.target * np.ldexp(1.0, powers), rtol=1e-6, atol=5e-324)
    np.testing.assert_allclose(result.residual_norms[0], alone.residual_norms[0] * np.ldexp(1.0, powers), rtol=1e-6)
    assert np.all(seen[0][[1, 2]] > 0.0) and seen[0][1] < 1e-20 and seen[0][2] > 1e15


@each_solver
def test_a_starting_guess_and_a_tolerance_have_the_units_of_b(solve, rng):
    b, guess = rng.uniform(0.5, 1.0, 49), rng.uniform(0.0, 1.0, 49)
    scale = 2.0**-650
    wanted = solve(A, b, x0=guess, rtol=0.0, atol=1e-6)
    got = solve(A, b * scale, x0=guess * scale, rtol=0.0, atol=1e-6 * scale)
    assert got.converged.all() and np.array_equal(got.iterations, wanted.iterations)
    np.testing.assert_array_equal(got.x.samples, wanted.x.samples * scale)


def test_every_sample_keeps_its_own_bits_beside_others_of_any_size(rng):
    b = rng.standard_normal((49, 5)) * np.array([1.0, 1e-200, 0.0, 1e180, np.nan])
    hierarchy = smoothed_aggregation(A, coarse_size=20)
    together = cg(A, Ensemble(b), M=hierarchy)
    assert [status is Status.converged for status in together.status] == [True, True, True, True, False]
    for s in range(5):
        alone = cg(A.sample(s), b[:, s], M=hierarchy.take_samples([s]))
        np.testing.assert_array_equal(together.x.sample(s), alone.x)
        assert together.status[s] is alone.status[0]


def test_coupled_samples_share_one_unit(rng):
    b = rng.uniform(0.5, 1.0, (49, 5))
    wanted = cg(A, Ensemble(b), coupling="ensemble")
    got = cg(A, Ensemble(b * 2.0**-650), coupling="ensemble")
    assert got.converged.all()
    np.testing.assert_array_equal(got.x.samples, wanted.x.samples * 2.0**-650)


def test_a_sample_too_small_beside_the_others_is_no_success(rng):
    b = rng.uniform(0.5, 1.0, (49, 5)) * np.array([1.0, 1e-300, 0.0, 1.0, 1.0])
    result = cg(A, Ensemble(b), coupling="ensemble")
    assert result.status.tolist() == [Status.converged, Status.breakdown, *[Status.converged] * 3]


# --- matrices of any size
SIZES = {np.float64: [0, -700, 640, -960, 964], np.float32: [0, -80, 64, -90, 90]}


def of_sizes(dtype, count=5):
    """One matrix in units of its own in each sample, and the powers of two."""
    powers = np.array(SIZES[dtype][:count])
    return CrsMatrix(A.graph, np.ldexp(A.values[:, :1].astype(dtype), powers)), powers


@each_solver
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("guessed", [False, True])
def test_the_size_of_a_matrix_changes_nothing(solve, dtype, preconditioned, guessed, rng):
    """Also where a preconditioner has another size than its inverse."""
    matrix, powers = of_sizes(dtype)
    b, guess = (rng.uniform(0.5, 1.0, (49, 1)).astype(dtype) for _ in range(2))
    options = {"rtol": 1e-9 if dtype is np.float64 else 1e-4}
    if preconditioned:
        options["M"] = Diagonal(rng.uniform(0.5, 2.0, 49).astype(dtype))
    x0 = Ensemble(np.ldexp(guess, -powers)) if guessed else None
    result = solve(matrix, Ensemble(b), x0=x0, **options)
    assert result.converged.all() and np.all(result.iterations == result.iterations[0]) and result.iterations[0] > 5
    found = np.ldexp(result.x.samples, powers)
    np.testing.assert_array_equal(found, np.repeat(found[:, :1], 5, axis=1))
    np.testing.assert_array_equal(result.target, np.full(5, result.target[0]))
    np.testing.assert_array_equal(result.residual_norms, np.repeat(result.residual_norms[:, :1], 5, axis=1))
    for s in range(5):
        own = None if x0 is None else x0.sample(s)
        alone = solve(matrix.sample(s), b[:, 0], x0=own, **options)
        np.testing.assert_array_equal(alone.x, result.x.samples[:, s])
        assert alone.true_residual_norms[0] == result.true_residual_norms[s] <= result.target[s]


@pytest.mark.parametrize("solve", [bicgstab, gmres, minres])
def test_sizes_of_right_hand_side_and_matrix_are_independent(solve, rng):
    matrix, powers = of_sizes(np.float64)
    b = rng.uniform(0.5, 1.0, (49, 1)) * 2.0 ** np.array([0, -600, 500, -950, 30])
    result = solve(matrix, Ensemble(b), rtol=1e-9)
    alone = solve(A.sample(0), b[:, 0], rtol=1e-9)
    assert result.converged.all() and np.all(result.iterations == alone.iterations[0])
    np.testing.assert_array_equal(result.x.samples * 2.0**powers / 2.0 ** np.array([0, -600, 500, -950, 30]),
                                  np.repeat(alone.x[:, None], 5, axis=1))  # fmt: skip


@pytest.mark.parametrize("solve", [bicgstab, gmres, minres])
def test_samples_that_fail_for_other_reasons_stay_failed(solve, rng):
    matrix, _ = of_sizes(np.float64)
    values, b = matrix.values.copy(), rng.uniform(0.5, 1.0, 49)
    values[:, 3], values[5, 4] = 0.0, np.nan
    result = solve(CrsMatrix(A.graph, values), b, rtol=1e-9)
    assert result.converged.tolist() == [True, True, True, False, False]
    few = solve(matrix, b, rtol=1e-9, max_iterations=3)
    assert all(status is Status.max_iterations for status in few.status)
    np.testing.assert_array_equal(few.residual_norms, np.repeat(few.residual_norms[:, :1], 5, axis=1))


class Stacked:
    """A matrix that does not let samples be taken out."""

    def __init__(self, matrix):
        self.matrix, self.shape, self.n_samples = matrix, matrix.shape, matrix.n_samples

    def __matmul__(self, x):
        return self.matrix @ x


@pytest.mark.parametrize("solve", [bicgstab, gmres, minres])
def test_samples_that_cannot_be_taken_out_are_solved_in_their_places(solve, rng):
    matrix, _ = of_sizes(np.float64)
    b, seen = rng.uniform(0.5, 1.0, 49), []
    wanted = solve(matrix, b, rtol=1e-9)
    got = solve(Stacked(matrix), b, rtol=1e-9, callback=lambda k, norms: seen.append((k, norms)))
    np.testing.assert_array_equal(got.x.samples, wanted.x.samples)
    np.testing.assert_array_equal(got.iterations, wanted.iterations)
    assert all(norms.shape == (5,) and np.isfinite(norms[0]) for _, norms in seen)
    assert [k for k, _ in seen].count(1) == 2  # the samples in other units begin again
    stopped = solve(matrix, b, rtol=1e-9, callback=lambda k, norms: k == 4)
    assert all(status is Status.stopped for status in stopped.status)


@pytest.mark.parametrize("solve", [bicgstab, gmres, minres])
def test_coupled_samples_keep_their_units(solve):
    matrix, _ = of_sizes(np.float64)
    assert not solve(matrix, np.ones(49), rtol=1e-9, coupling="ensemble").converged.all()


# --- what else solvers take
@each_solver
def test_tolerances_may_be_an_ensemble(solve, rng):
    rtol, b = np.array([1e-2, 1e-4, 1e-6, 1e-8, 1e-10]), rng.standard_normal(49)
    wanted, got = solve(A, b, rtol=rtol), solve(A, b, rtol=Ensemble(rtol))
    assert np.array_equal(got.iterations, wanted.iterations) and got.iterations[0] < got.iterations[4]


@each_solver
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_tolerance_that_is_none_is_named(solve, bad):
    for given in ([1e-2, bad, 1e-2, 1e-2, 1e-2], Ensemble(np.array([1e-2, bad, 1e-2, 1e-2, 1e-2]))):
        with pytest.raises(ValueError, match=r"rtol must be a finite number, zero or above, in every sample; got .* 1"):
            solve(A, np.ones(49), rtol=given)


@each_solver
def test_weights_reach_the_solution(solve):
    weights = SampleSet(weights=[1.0, 2.0, 3.0, 4.0, 0.0])
    matrix = CrsMatrix(A.graph, Ensemble(A.values, weights))
    assert solve(matrix, np.ones(49)).x.sample_set == weights
    assert solve(A, np.ones(49), x0=Ensemble(np.zeros((49, 5)), weights)).x.sample_set == weights
    other = Ensemble(np.ones((49, 5)), SampleSet(weights=[1.0, 1.0, 1.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="operands must share one sample set"):
        solve(matrix, other)


@each_solver
def test_what_is_no_matrix_is_named(solve):
    with pytest.raises(TypeError, match=r"A must be a matrix or a linear operator .*; got an array of shape \(3,\)"):
        solve(np.ones(3), np.ones(3))


@each_solver
def test_solutions_beyond_the_range_of_numbers_are_not_called_converged(solve):
    """Samples whose solution is infinite, rounds to zero, or is in range although b is out of it."""
    A = gallery.poisson((3,))
    factors = np.array([1e-100, 1e200, 1.0, 1e-200])
    b = np.ones((3, 1)) * np.array([1e250, 1e-200, 1e200, 1e-200])
    result = solve(CrsMatrix(A.graph, Ensemble(A.values * factors)), Ensemble(b))
    assert result.status.tolist() == [Status.breakdown, Status.stagnated, Status.converged, Status.converged]
    x = result.x.samples
    assert np.isinf(x[:, 0]).all() and not x[:, 1].any()
    np.testing.assert_allclose(x[:, 2:], np.array([[1.5, 2.0, 1.5]]).T * np.array([1e200, 1.0]), rtol=1e-12)
    assert not np.isfinite(result.true_residual_norms[0])
    assert result.true_residual_norms[1] == pytest.approx(np.sqrt(3.0) * 1e-200)


@each_solver
def test_a_tolerance_above_b_does_not_hide_a_matrix_that_is_not_finite(solve):
    A = gallery.poisson((3,))
    values = np.repeat(A.values, 3, axis=1)
    values[0, 1] = np.nan
    result = solve(CrsMatrix(A.graph, Ensemble(values)), Ensemble(np.ones((3, 3))), atol=10.0)
    assert result.status.tolist() == [Status.converged, Status.breakdown, Status.converged]


@each_solver
def test_a_matrix_free_operator_near_the_end_of_the_range(solve, rng):
    class Operator:
        shape = A.shape

        def __matmul__(self, x):
            return gallery.poisson((7, 7)) @ x

    b = rng.uniform(0.5, 1.0, 49) * 2.0**-1050
    result = solve(Operator(), b, rtol=1e-3)
    assert result.converged.all() and np.linalg.norm((Operator() @ result.x - b) * 2.0**1000) <= 2e-3 * 2.0**-50 * 7.0


BESIDE = {"zero b, infinite A": (0.0, np.inf), "infinite A": (1.0, np.inf), "infinite b": (np.inf, 1.0)}
"""b and one entry of A of a sample without a solution of its own."""


@each_solver
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("case", BESIDE)
def test_a_sample_that_fails_has_its_own_outcome_beside_any_other(solve, dtype, case, rng):
    """Beside right-hand sides that are tiny, infinite, or within atol at the start."""
    b, values = np.ones((49, 4), dtype), A.values[:, :4].astype(dtype)
    b[3, 0], values[11, 0] = BESIDE[case]
    b[:, 0] = b[:, 0] if b[3, 0] else 0.0
    b[:, 1], b[5, 2], b[:, 3] = 1e-200, np.inf, 1e-9
    matrix, options = CrsMatrix(A.graph, values), {"atol": 1e-6, "max_iterations": 50}
    together, alone = solve(matrix, Ensemble(b), **options), solve(matrix.sample(0), b[:, 0], **options)
    assert together.status[0] is alone.status[0] and together.iterations[0] == alone.iterations[0]
    np.testing.assert_array_equal(together.x.samples[:, 0], alone.x)
    last = int(alone.iterations[0])
    np.testing.assert_array_equal(together.residual_norms[: last + 1, 0], alone.residual_norms[:, 0])
