"""Starting guesses from solved neighbours: exact where they must be, each sample by itself, and worth having."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.apps.fem import RandomDiffusion
from ensemble.krylov import WarmStart, warm_start
from ensemble.scalar import Ensemble


def test_the_nearest_solution_is_taken():
    start = WarmStart("nearest")
    start.add(Ensemble(np.array([[0.0, 1.0, 4.0]])), Ensemble(np.array([[5.0, 6.0, 7.0]])))
    guess = start.guess(Ensemble(np.array([[0.4, 0.6, 100.0, 2.4]])))
    assert guess.samples.tolist() == [[5.0, 6.0, 7.0, 6.0]]


def test_solutions_linear_in_the_inputs_are_guessed_exactly(rng):
    slope, offset = rng.standard_normal((7, 3)), rng.standard_normal((7, 1))
    points = rng.uniform(-1.0, 1.0, (3, 40)) * np.array([[1.0], [1e4], [1e-3]])
    scaled = slope / np.array([1.0, 1e4, 1e-3])
    start = WarmStart()
    start.add(Ensemble(points), Ensemble(scaled @ points + offset))
    new = 0.3 * points[:, :5] + 0.7 * points[:, 5:10]
    np.testing.assert_allclose(start.guess(Ensemble(new)).samples, scaled @ new + offset, rtol=0, atol=1e-9)
    np.testing.assert_allclose(start.guess(points[:, 3]), scaled @ points[:, 3] + offset[:, 0], rtol=0, atol=1e-12)


def test_far_away_the_nearest_is_trusted_more_than_a_line():
    start = WarmStart()
    start.add(Ensemble(np.array([[0.0, 1.0]])), Ensemble(np.array([[0.0, 1.0]])))
    assert start.guess(np.array([1.5])) == pytest.approx([1.5])
    assert start.guess(np.array([50.0])) == pytest.approx([1.0])


@given(n_samples=st.integers(1, 12), seed=st.integers(0, 2**32 - 1), order=st.sampled_from(["linear", "nearest"]))
def test_a_guess_sees_its_own_sample_alone(n_samples, seed, order):
    rng = np.random.default_rng(seed)
    start = WarmStart(order)
    start.add(Ensemble(rng.standard_normal((2, 9))), Ensemble(rng.standard_normal((6, 9))))
    new = rng.standard_normal((2, n_samples))
    new[0, rng.integers(0, 4, n_samples) == 0] = np.nan
    together = start.guess(Ensemble(new)).samples
    for i in range(n_samples):
        np.testing.assert_array_equal(together[:, i], start.guess(new[:, i]))


def test_a_full_store_forgets_the_oldest():
    start = WarmStart("nearest", capacity=3)
    assert start.guess(np.zeros(1)) is None and len(start) == 0
    for value in range(5):
        start.add(np.array([float(value)]), np.array([10.0 * value, 1.0]))
    assert len(start) == 3 and sorted(start.points[0]) == [2.0, 3.0, 4.0]
    assert start.guess(np.array([0.0])).tolist() == [20.0, 1.0]
    assert repr(start) == "WarmStart('nearest', 3 of 3 solutions)"


def test_failed_samples_are_not_kept():
    start = WarmStart("nearest")
    start.add(
        Ensemble(np.array([[0.0, 1.0, 2.0, np.nan]])), Ensemble(np.array([[1.0, np.nan, 3.0, 4.0]])),
        np.array([True, True, False, True]),
    )  # fmt: skip
    assert len(start) == 1 and start.guess(np.array([2.0])).tolist() == [1.0]
    assert start.guess(np.array([np.nan])).tolist() == [0.0]


@pytest.mark.parametrize("options", [{}, {"source": 1.0}, {"advection": 2.0}])
def test_a_study_of_the_diffusion_problem_takes_fewer_iterations(options):
    """Same answers, same tolerance, fewer iterations: the fourth ensemble starts from the three before it."""
    problem = RandomDiffusion(8, n_terms=3, **options)
    y = np.random.default_rng(30011).uniform(-1.0, 1.0, (3, 48))
    start = WarmStart()
    for k in range(0, 36, 12):
        solved = problem.solve(Ensemble(y[:, k : k + 12])).raise_if_failed()
        start.add(Ensemble(y[:, k : k + 12]), solved.u, solved.converged)
    last = Ensemble(y[:, 36:])
    cold, warm = problem.solve(last), problem.solve(last, u0=start.guess(last)).raise_if_failed()
    assert np.all(warm.newton.residual_norms[-1] <= cold.newton.target)
    np.testing.assert_array_equal(warm.newton.target, cold.newton.target)
    np.testing.assert_allclose(warm.u.samples, cold.u.samples, rtol=0, atol=2e-6)
    assert warm.iterations.sum() <= 0.75 * cold.iterations.sum(), (warm.iterations, cold.iterations)
    alone = problem.solve(y[:, 40], u0=start.guess(y[:, 40]))
    np.testing.assert_array_equal(alone.u, warm.u.samples[:, 4])


def test_a_start_at_the_solution_takes_no_step():
    problem = RandomDiffusion(4)
    y = np.full(5, 0.3)
    first = problem.solve(y, rtol=1e-9, cg_rtol=1e-10)
    again = problem.solve(y, u0=first.u)
    assert again.newton_iterations[0] == again.iterations[0] == 0 and again.converged.all()
    with pytest.raises(
        ValueError, match=r"RandomDiffusion.solve: u0 must have shape \(125,\) and 1 samples, or 1; got"
    ):
        problem.solve(y, u0=np.ones(3))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="WarmStart: order must be one of 'linear', 'nearest'; got 'cubic'"):
        WarmStart("cubic")
    with pytest.raises(ValueError, match="WarmStart: capacity must be an integer of at least 1; got 0"):
        WarmStart(capacity=0)
    start = WarmStart()
    with pytest.raises(ValueError, match=r"WarmStart.add: points must have the 2 samples of x; got 3"):
        start.add(Ensemble(np.ones((1, 3))), Ensemble(np.ones((4, 2))))
    start.add(Ensemble(np.ones((1, 2))), Ensemble(np.ones((4, 2))))
    with pytest.raises(ValueError, match=r"WarmStart.add: x must have length 4; got 5"):
        start.add(Ensemble(np.ones((1, 2))), Ensemble(np.ones((5, 2))))
    with pytest.raises(ValueError, match=r"WarmStart.guess: points must have shape \(1,\); got shape \(2,\)"):
        start.guess(np.ones(2))
    with pytest.raises(ValueError, match=r"WarmStart.add: x must be a vector; got shape \(2, 2\)"):
        start.add(Ensemble(np.ones((1, 3))), Ensemble(np.ones((2, 2, 3))))


def test_what_the_store_has_not_written_yet_warns_of_nothing(monkeypatch):
    """Memory may hold any bits: those of a signalling NaN here."""

    def unwritten(like, shape):
        bits = np.full(shape, 0x7F800001, np.int32)
        return bits.view(np.float32)

    monkeypatch.setattr(warm_start, "empty_like", unwritten)
    start = WarmStart()
    start.add(np.array([0.0]), np.ones(2, np.float32))
    start.add(np.array([1.0]), np.array([0.5, 0.5]))


def test_the_store_takes_the_type_of_all_solutions():
    """Integers are real numbers, complex solutions stay complex, and what float32 cannot hold is kept."""
    start = WarmStart()
    start.add(np.array([0.0]), np.array([1, 2, 3]))
    start.add(np.array([1.0]), np.array([0.5, 0.5, 0.5]))
    np.testing.assert_allclose(start.guess(np.array([1.0])), [0.5, 0.5, 0.5], rtol=1e-14)
    np.testing.assert_allclose(start.guess(np.array([0.5])), [0.75, 1.25, 1.75], rtol=1e-14)
    for first, second in ((np.ones(2, np.float32), [1.0 / 3.0, 1e300]), (np.ones(2), [1.0 + 2.0j, 3.0j])):
        start = WarmStart()
        start.add(np.array([0.0]), first)
        start.add(np.array([1.0]), np.array(second))
        np.testing.assert_allclose(start.guess(np.array([1.0])), second, rtol=1e-14)
    with pytest.raises(ValueError, match=r"WarmStart.add: converged must have shape \(4,\)"):
        start.add(Ensemble(np.zeros((1, 4))), Ensemble(np.zeros((2, 4))), converged=[True])
