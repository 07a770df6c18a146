"""Where other ensemble types answer wrongly and say nothing, ours is right or raises.

Each case names the library whose behaviour it is held against; the behaviours were found by running or reading these.
"""

import numpy as np
import pytest

from ensemble.scalar import (
    DivergenceError,
    Ensemble,
    SampleSet,
    all_samples,
    any_sample,
    count_samples,
    divide,
    dot,
    norm,
    probability,
    run,
    sample_mean,
)

VALUES = np.array([[3.0, 0.3, -1.0], [4.0, 0.4, 1.0]])  # two entries, three samples; the first is unlike the mean
MASK = np.array([True, False, False])


def vector():
    return Ensemble(VALUES.copy())


RIGHT = {
    # astropy.uncertainty: the norm of sample 0 alone
    "norm": (lambda: np.linalg.norm(vector()), np.linalg.norm(VALUES, axis=0)),
    "norm of the library": (lambda: norm(vector()), np.linalg.norm(VALUES, axis=0)),
    # MonteCarloMeasurements.jl: isfinite of the mean, comparison of means
    "isfinite": (lambda: np.isfinite(Ensemble(np.array([1.0, np.inf, -np.inf]))), [True, False, False]),
    "comparison": (lambda: vector()[0] < vector()[1], [True, True, True]),
    "maximum": (lambda: np.maximum(vector()[0], 0.35), [3.0, 0.35, 0.35]),
    # Stokhos: the negation of entry 0, parity as "exactly one", a mask turned into its mean
    "not": (lambda: ~Ensemble(MASK), [False, True, True]),
    "xor": (lambda: Ensemble(MASK) ^ True, [False, True, True]),
    "mask and": (lambda: Ensemble(MASK) & (vector()[0] > 0.0), [True, False, False]),
    # Stokhos with ensemble reductions: real and imag as norms over samples
    "real": (lambda: (vector() * (1 - 1j)).real, VALUES),
    "imag": (lambda: (vector() * (1 - 1j)).imag, -VALUES),
    "abs": (lambda: abs(vector()), np.abs(VALUES)),
    # lock-step loops after convergence: 0 / 0
    "masked quotient": (lambda: divide(0.0 * vector(), 0.0 * vector(), where=vector() > 9.0), 0.0 * VALUES),
    # posterior: an average that forgets weights
    "weighted mean": (lambda: sample_mean(Ensemble(VALUES, SampleSet(weights=[1, 3, 0]))), [0.975, 1.3]),
    "weighted share": (lambda: probability(Ensemble(MASK, SampleSet(weights=[1, 3, 0]))), 0.25),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_answer_is_right_in_every_sample(name):
    call, expected = RIGHT[name]
    got = call()
    samples = got.samples if isinstance(got, Ensemble) else got
    np.testing.assert_allclose(samples, expected, rtol=4 * np.finfo(float).eps)


RAISES = {
    # astropy.uncertainty: `any` for a truth value, sample 0 in an assignment
    "truth": (lambda: bool(Ensemble(MASK)), DivergenceError),
    "truth of a number": (
        lambda: bool(vector()[0] * np.array(0.0) + Ensemble(np.array([0.0, 1.0, 2.0]))),
        DivergenceError,
    ),
    "assigned to a plain array": (lambda: np.zeros(2).__setitem__(slice(None), vector()), TypeError),
    "assigned to a plain entry": (lambda: np.zeros(2).__setitem__(0, vector()[0]), (TypeError, ValueError)),
    "plain array": (lambda: np.asarray(vector()), TypeError),
    "list of plain values": (lambda: np.array([vector()[0], 1.0]), (TypeError, ValueError)),
    # Stokhos: entry 0 decides
    "branch": (lambda: "yes" if vector()[0] > 0.5 else "no", DivergenceError),
    "and": (lambda: vector()[0] > 0.5 and True, DivergenceError),
    "not": (lambda: not vector()[0] > 0.5, DivergenceError),
    "chain": (lambda: 0.0 < vector()[0] < 1.0, DivergenceError),
    "max": (lambda: max(vector()[0], 0.5), DivergenceError),
    "float": (lambda: float(vector()[0]), DivergenceError),
    "index": (lambda: [1, 2, 3, 4][Ensemble(np.array([0, 1, 2]))], DivergenceError),
    "filter": (lambda: vector()[0] in [3.0], DivergenceError),
    "sorted": (lambda: sorted([vector()[0], vector()[1], 0.35]), DivergenceError),
    # marray, MonteCarloMeasurements.jl: axes that fall on the samples
    "axis of the samples": (lambda: np.sum(vector(), axis=1), IndexError),
    "index of the samples": (lambda: vector()[0, 1], IndexError),
    # MonteCarloMeasurements.jl: two draws that only happen to be equally long
    "two sample sets": (
        lambda: Ensemble(VALUES, SampleSet(n_samples=3, seed=1)) + Ensemble(VALUES, SampleSet(n_samples=3, seed=2)),
        ValueError,
    ),
    # astropy.uncertainty: a mask of a distribution gives raw values
    "mask that differs": (lambda: vector()[vector() > 0.5], DivergenceError),
    "length of unique values": (lambda: np.unique(np.round(vector())), DivergenceError),
    # NumPy: an object array, one Python call an entry
    "object array": (lambda: np.array([1, 2], dtype=object) * vector(), TypeError),
    "dates": (lambda: vector() * np.timedelta64(1, "s"), TypeError),
    # an order of complex numbers that is none
    "whole number of a NaN": (lambda: round(Ensemble(np.array([1.5, np.nan]))), ValueError),
}


@pytest.mark.parametrize("name", RAISES)
def test_what_has_no_one_answer_raises(name):
    call, error = RAISES[name]
    with pytest.raises(error):
        call()


def checked_step(A, p):
    """A step of conjugate gradients with the usual check."""
    pAp = p @ (A @ p)
    if pAp <= 0.0:
        raise ValueError("A is not positive definite")
    return (p @ p) / pAp


def test_a_check_for_definiteness_looks_at_every_sample():
    A = Ensemble(np.stack([np.eye(2), 2.0 * np.eye(2), -np.eye(2)], axis=-1))
    with pytest.raises(DivergenceError, match=r"1 True among 3 samples \(2\), False for 0, 1 in `pAp <= 0.0`"):
        checked_step(A, np.ones(2))
    result = run(checked_step, A, np.ones(2))
    assert list(result.errors) == [2]
    np.testing.assert_array_equal(result.value.samples, [1.0, 0.5, np.nan])


def test_masks_answer_by_the_name_of_the_question():
    m = Ensemble(MASK)
    assert (all_samples(m), any_sample(m), count_samples(m)) == (False, True, 1)
    assert all_samples(~m | m)


def test_inner_products_couple_samples_only_where_told_to():
    x = vector()
    np.testing.assert_allclose(dot(x, x).samples, np.sum(VALUES**2, axis=0), rtol=1e-15)
    np.testing.assert_allclose(float(dot(x, x, over="all")), np.sum(VALUES**2), rtol=1e-15)
