"""Newton's method: per sample, with finished and failing samples left alone."""

import numpy as np
import pytest

from ensemble import gallery
from ensemble.krylov import Status, cg, direct, newton
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.scalar import Ensemble


def semilinear(n_samples, strength, chosen=None):
    """A u + strength u^3 = 1 on a chain, and its Jacobian, of all samples or of those chosen."""
    A = gallery.poisson((12,), n_samples)
    A = A if chosen is None else A.take_samples(chosen)
    on_diagonal = A.graph.diagonal_entries

    def residual(u):
        return A @ u + strength * u**3 - 1.0

    def jacobian(u):
        values = np.repeat(A.values, u.n_samples // A.n_samples, axis=1)
        values[on_diagonal] += (3.0 * strength * u**2).samples
        return CrsMatrix(A.graph, values)

    return residual, jacobian


def tight(J, r):
    return cg(J, r, rtol=1e-13)


def test_steps_are_solved_directly():
    """A sample that is not finite is flagged, a sample with others takes the steps of its own run."""
    strength = np.array([0.0, 1.0, 100.0])
    start = np.full((12, 3), 0.1)
    start[0, 1] = np.nan
    residual, jacobian = semilinear(3, Ensemble(strength))
    result = newton(residual, jacobian, Ensemble(start), solver=direct, rtol=1e-12, max_iterations=20)
    assert result.status.tolist() == [Status.converged, Status.breakdown, Status.converged]
    for i in (0, 2):
        residual, jacobian = semilinear(3, strength[i], [i])
        alone = newton(residual, jacobian, Ensemble(start[:, i : i + 1]), solver=direct, rtol=1e-12, max_iterations=20)
        np.testing.assert_array_equal(alone.u.samples[:, 0], result.u.samples[:, i])
        assert alone.iterations[0] == result.iterations[i]


def test_every_sample_converges_quadratically():
    strength = Ensemble(np.array([0.0, 1.0, 10.0, 100.0]))
    residual, jacobian = semilinear(4, strength)
    result = newton(residual, jacobian, Ensemble(np.zeros((12, 4))), solver=tight, rtol=1e-10, max_iterations=20)
    assert result.converged.all()
    assert result.iterations[0] == 1 and np.all(np.diff(result.iterations) >= 0)
    assert np.abs(residual(result.u).samples).max() < 1e-9
    assert np.all(result.linear_iterations >= result.iterations)


@pytest.mark.parametrize("n_samples", [1, 5])
def test_a_sample_is_its_scalar_run(n_samples):
    factors = np.linspace(1.0, 60.0, n_samples)
    A = gallery.poisson((12,))
    on_diagonal = A.graph.diagonal_entries

    def solve(c):
        strength = Ensemble(np.atleast_1d(c))

        def jacobian(u):
            values = np.repeat(A.values, u.n_samples, axis=1)
            values[on_diagonal] += (3.0 * strength * u**2).samples
            return CrsMatrix(A.graph, values)

        start = Ensemble(np.zeros((12, strength.n_samples)))
        return newton(
            lambda u: A @ u + strength * u**3 - 1.0, jacobian, start, solver=tight, rtol=1e-9, max_iterations=30
        )

    together = solve(factors)
    for i, c in enumerate(factors):
        alone = solve(c)
        assert np.array_equal(together.u.sample(i), alone.u.sample(0))
        assert together.iterations[i] == alone.iterations[0]
        assert together.linear_iterations[i] == alone.linear_iterations[0]


def test_a_sample_that_is_not_finite_is_flagged_and_the_others_finish():
    strength = Ensemble(np.array([1.0, np.nan, 2.0]))
    residual, jacobian = semilinear(3, strength)
    start = np.zeros((12, 3))
    result = newton(residual, jacobian, Ensemble(start), solver=tight, rtol=1e-10, max_iterations=30)
    assert result.status.tolist() == [Status.converged, Status.breakdown, Status.converged]
    assert np.array_equal(result.u.samples[:, 1], start[:, 1])


def test_a_failed_linear_solve_freezes_its_sample():
    """The middle sample's Jacobian is indefinite: CG breaks down, u stays where it is."""
    residual, jacobian = semilinear(3, Ensemble(np.zeros(3)))

    def indefinite(u):
        J = jacobian(u)
        values = J.values.copy()
        values[:, 1] *= -1.0
        return CrsMatrix(J.graph, values)

    start = np.full((12, 3), 0.25)
    result = newton(residual, indefinite, Ensemble(start), solver=tight, rtol=1e-10)
    assert result.status.tolist() == [Status.converged, Status.breakdown, Status.converged]
    assert np.array_equal(result.u.samples[:, 1], start[:, 1]) and result.iterations[1] == 0


def test_a_start_at_the_solution_takes_no_step():
    residual, jacobian = semilinear(2, Ensemble(np.zeros(2)))
    exact = newton(residual, jacobian, Ensemble(np.zeros((12, 2))), solver=tight, rtol=1e-12).u
    again = newton(residual, jacobian, exact, atol=1e-6)
    assert np.all(again.iterations == 0) and again.u.samples is not exact.samples


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="newton: max_iterations must be an integer of at least 0; got -1"):
        newton(lambda u: u, lambda u: u, np.zeros(2), max_iterations=-1)


@pytest.mark.parametrize(
    "residual, text",
    [
        (lambda u: None, "what residual returns must hold numbers; got dtype object"),
        (lambda u: 1.0, r"what residual returns must have shape \(3,\), as u0; got \(\)"),
        (lambda u: (u * u)[:2], r"what residual returns must have shape \(3,\), as u0; got \(2,\)"),
        (lambda u: np.ones((3, 3)), r"what residual returns must have shape \(3,\), as u0; got \(3, 3\)"),
        (lambda u: Ensemble(np.ones((3, 5))), "what residual returns must have 2 samples, as u0, or 1; got 5"),
        ("f", "residual must be a function; got a str"),
    ],
)
def test_what_a_residual_returns_is_checked(residual, text):
    with pytest.raises((TypeError, ValueError), match=f"newton: {text}"):
        newton(residual, lambda u: Diagonal(2.0 * u), Ensemble(np.ones((3, 2))))


def test_a_residual_of_a_later_step_is_checked():
    calls = []

    def residual(u):
        calls.append(u)
        return u * u - 2.0 if len(calls) == 1 else Ensemble(np.ones((4, 2)))

    with pytest.raises(ValueError, match=r"newton: what residual returns must have shape \(3,\), as u0; got \(4,\)"):
        newton(residual, lambda u: Diagonal(2.0 * u), Ensemble(np.ones((3, 2))))


@pytest.mark.parametrize(
    "options, error, text",
    [
        (
            {"reference": np.ones(3)},
            ValueError,
            r"reference must be one number, or one per sample \(2\)",
        ),
        ({"reference": np.array([np.nan, 1.0])}, ValueError, "reference must be finite and not negative"),
        ({"reference": -1.0}, ValueError, "reference must be finite and not negative"),
        ({"reference": "a"}, TypeError, "reference must hold numbers"),
        ({"solver": lambda J, r: r}, TypeError, "solver must return a SolveResult; got an Ensemble"),
        ({"solver": "cg"}, TypeError, "solver must be a function; got a str"),
        ({"rtol": -1.0}, ValueError, "rtol must be a finite number, zero or above; got -1.0"),
    ],
)
def test_bad_options_are_refused(options, error, text):
    with pytest.raises(error, match=f"newton: {text}"):
        newton(lambda u: u * u - 2.0, lambda u: Diagonal(2.0 * u), Ensemble(np.ones((3, 2))), **options)


@pytest.mark.parametrize(
    "u0, error, text", [(1.0, ValueError, r"be a vector; got shape \(\)"), (None, TypeError, "hold numbers"),
                        (np.ones((3, 2)), ValueError, r"be a vector; got shape \(3, 2\)")], ids=str,
)  # fmt: skip
def test_a_start_is_a_vector(u0, error, text):
    with pytest.raises(error, match=f"newton: u0 must {text}"):
        newton(lambda u: u, lambda u: u, u0)


def test_whole_numbers_as_a_start_and_a_reference_per_sample():
    def J(u):
        return Diagonal(2.0 * u)

    result = newton(lambda u: u * u - 2.0, J, np.array([1, 1]), rtol=1e-12)
    np.testing.assert_allclose(result.u, np.sqrt(2.0), rtol=1e-12)
    result = newton(lambda u: u * u - 2.0, J, Ensemble(np.ones((2, 2))), reference=Ensemble(np.array([1e-3, 1e3])))
    assert result.iterations[0] > result.iterations[1] and result.converged.all()


def test_samples_of_the_jacobian_alone_are_refused_with_the_way_out():
    K, scale = gallery.poisson((5,)), Ensemble(np.array([1.0, 2.0, 4.0]))
    with pytest.raises(ValueError, match=r"what jacobian returns must have 1 samples, as u0 .*; got 3. Give u0 as"):
        newton(lambda u: K @ u - 1.0, lambda u: scale * K, np.zeros(5))
