"""What a call on a small ensemble costs, against NumPy's call on the same samples in the same run."""

import operator
import timeit

import numpy as np
import pytest

from ensemble.scalar import Ensemble

ALLOWED = 6.0
"""Times the cost of NumPy's call: measured are 1.2 to 2.6, `np.sqrt` 3.5 to 5.0."""

A, B, COLUMN = np.random.default_rng(20731).normal(size=(3, 10, 8))
PLAIN, ROOTS = COLUMN[:, 0].copy(), abs(A)
X, Y, Z = Ensemble(A), Ensemble(B), Ensemble(ROOTS)

WIDE, OTHER = np.random.default_rng(20731).normal(size=(2, 10, 32))
U, V, POSITIVE = Ensemble(WIDE), Ensemble(OTHER), Ensemble(WIDE > 0.0)
POINTS = np.linspace(-1.0, 1.0, 5)


def written(x, key, value):
    x[key] = value


CALLS = {
    "x * y": (lambda: X * Y, lambda: A * B),
    "x + 1.0": (lambda: X + 1.0, lambda: A + 1.0),
    "2.0 / x": (lambda: 2.0 / X, lambda: 2.0 / A),
    "x < y": (lambda: X < Y, lambda: A < B),
    "-x": (lambda: operator.neg(X), lambda: operator.neg(A)),
    "array * x": (lambda: PLAIN * X, lambda: PLAIN[:, None] * A),
    "abs(x)": (lambda: abs(X), lambda: abs(A)),
    "np.sqrt": (lambda: np.sqrt(Z), lambda: np.sqrt(ROOTS)),
    "np.where": (lambda: np.where(POSITIVE, U, V), lambda: np.where(POSITIVE.samples, WIDE, OTHER)),
    "np.clip": (lambda: np.clip(U, -1.0, 1.0), lambda: np.clip(WIDE, -1.0, 1.0)),
    "np.interp": (lambda: np.interp(U, POINTS, POINTS), lambda: np.interp(WIDE, POINTS, POINTS)),
    "np.median": (lambda: np.median(U), lambda: np.median(WIDE, axis=0)),
    "np.sum": (lambda: np.sum(U), lambda: np.sum(WIDE, axis=0)),
    "np.max": (lambda: np.max(U), lambda: np.max(WIDE, axis=0)),
    "np.argmax": (lambda: np.argmax(U), lambda: np.argmax(WIDE, axis=0)),
    "np.std": (lambda: np.std(U), lambda: np.std(WIDE, axis=0)),
    "np.sort": (lambda: np.sort(U, axis=0), lambda: np.sort(WIDE, axis=0)),
    "np.zeros_like": (lambda: np.zeros_like(U), lambda: np.zeros_like(WIDE)),
    "x.sum()": (lambda: U.sum(), lambda: WIDE.sum(axis=0)),
    "x[3] = 1.": (lambda: written(V, 3, 1.0), lambda: written(OTHER, 3, 1.0)),
    "x[2:5] = 1.": (lambda: written(V, slice(2, 5), 1.0), lambda: written(OTHER, slice(2, 5), 1.0)),
    "x[x > 0] = 0.": (lambda: written(V, POSITIVE, 0.0), lambda: written(OTHER, POSITIVE.samples, 0.0)),
}
"""Calls on 10 entries of 8 or 32 samples, and NumPy's call on the array of all samples."""


def least_times(ours, bare, number=50, attempts=30):
    """Seconds of one call of each: the least of many short measurements in alternation."""
    for call in (ours, bare):
        call()
    least = [np.inf, np.inf]
    for _ in range(attempts):
        for k, call in enumerate((ours, bare)):
            least[k] = min(least[k], timeit.timeit(call, number=number) / number)
    return least


@pytest.mark.parametrize("name", CALLS)
def test_a_call_costs_at_most_six_times_numpys(name):
    ratios = []
    for _ in range(5):  # other programs may slow a whole attempt down
        ours, bare = least_times(*CALLS[name])
        ratios.append(ours / bare)
        if ratios[-1] <= ALLOWED:
            return
    pytest.fail(f"{name}: {min(ratios):.1f} times NumPy's call")
