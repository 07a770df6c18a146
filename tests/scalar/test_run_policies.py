"""Runs inside runs, the other policies, and conjugate gradients under each of them."""

import numpy as np
import pytest

from ensemble.scalar import DivergenceError, Ensemble, divergence, run
from tests.scalar.programs import ensemble_of


def test_a_run_inside_a_run():
    def f(x):
        return run(lambda y: y if y > 0.0 else -y, x).value

    np.testing.assert_array_equal(run(f, ensemble_of(1.0, -1.0, 2.0)).value.samples, [1.0, 1.0, 2.0])


def test_policies_inside_change_nothing():
    def f(x):
        with divergence("any"):
            return 1 if x > 0.0 else 2

    np.testing.assert_array_equal(run(f, ensemble_of(1.0, -1.0, 2.0)).value.samples, [1, 2, 1])


@pytest.mark.parametrize("policy, answer", [("first", 1), ("any", 1), ("all", 2), ("majority", 2)])
def test_other_policies_run_once(policy, answer):
    result = run(lambda x: (x, 1 if x > 0.0 else 2), ensemble_of(1.0, -1.0, -2.0), on_divergence=policy)
    assert result.n_runs == len(result.groups) == 1
    assert int(result.value[1]) == answer
    np.testing.assert_array_equal(result.value[0].samples, [1.0, -1.0, -2.0])


def test_raise_raises_and_other_errors_are_everyones():
    with pytest.raises(DivergenceError, match=r"1 True among 2 samples \(0\), False for 1 in `x > 0.0`"):
        run(lambda x: 1 if x > 0.0 else 2, ensemble_of(1.0, -1.0), on_divergence="raise")
    assert set(run(lambda x: [][0], ensemble_of(1.0, -1.0), on_divergence="any").errors) == {0, 1}
    with pytest.raises(ValueError, match="run: on_divergence must be one of 'split', 'raise'"):
        run(lambda x: x, ensemble_of(1.0), on_divergence="mean")


def textbook_cg(A, b, rtol=1e-8, max_iterations=3000):
    """Hestenes and Stiefel's method, as a textbook prints it."""
    x, r = 0.0 * b, b
    p, rr = r, r @ r
    target = rtol * rtol * (b @ b)
    for iteration in range(max_iterations):
        if rr <= target:
            return x, iteration
        q = A @ p
        alpha = rr / (p @ q)
        x = x + alpha * p
        r = r - alpha * q
        rr, old = r @ r, rr
        p = r + (rr / old) * p
    return x, max_iterations


@pytest.fixture(scope="module")
def eight_systems():
    """Eight symmetric matrices with 200 eigenvalues between 1 and the condition number, and one right-hand side."""
    rng = np.random.default_rng(52711)
    basis, _ = np.linalg.qr(rng.normal(size=(200, 200)))
    conditions = np.geomspace(3.0, 1e5, 8)
    matrices = [basis @ np.diag(np.geomspace(1.0, condition, 200)) @ basis.T for condition in conditions]
    return Ensemble(np.stack(matrices, axis=-1)), rng.normal(size=200)


def relative_residuals(A, x, b):
    return [np.linalg.norm(A.sample(s) @ x.sample(s) - b) / np.linalg.norm(b) for s in range(A.n_samples)]


def test_conjugate_gradients_split_give_every_sample_its_own_answer(eight_systems):
    A, b = eight_systems
    result = run(textbook_cg, A, b)
    x, iterations = result.value
    for s in range(8):
        alone, count = textbook_cg(A.sample(s), b)
        np.testing.assert_array_equal(x.sample(s), alone)
        assert int(iterations.sample(s)) == count
    assert len(np.unique(iterations.samples)) == len(result.groups) == 8
    assert result.n_runs < 16
    assert max(relative_residuals(A, x, b)) < 1e-7


def test_conjugate_gradients_raise_by_default_and_name_the_samples(eight_systems):
    A, b = eight_systems
    with pytest.raises(DivergenceError, match=r"1 True among 8 samples \(0\), False for 1, 2, 3, .* in `rr <= target`"):
        textbook_cg(A, b)


def test_conjugate_gradients_by_the_first_sample_leave_the_others_unsolved(eight_systems):
    A, b = eight_systems
    x, iterations = run(textbook_cg, A, b, on_divergence="first").value
    residuals = relative_residuals(A, x, b)
    assert residuals[0] <= 1e-8
    assert max(residuals) > 0.1
    assert int(iterations) == textbook_cg(A.sample(0), b)[1]


def test_conjugate_gradients_until_all_are_done_lose_the_finished(eight_systems):
    A, b = eight_systems
    with np.errstate(all="ignore"):
        x, _ = run(lambda A, b: textbook_cg(A, b, max_iterations=500), A, b, on_divergence="all").value
    assert 0 < np.isnan(x.samples).any(axis=0).sum() < 8
