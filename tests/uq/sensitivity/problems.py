"""Models of which the sensitivity indices are known."""

from itertools import permutations

import numpy as np
from scipy import stats

import ensemble as en

A, B = 7.0, 0.1
V1, V2 = 0.5 * (1.0 + B * np.pi**4 / 5.0) ** 2, A**2 / 8.0
V13 = B**2 * np.pi**8 * (1.0 / 18.0 - 1.0 / 50.0)
ISHIGAMI_VARIANCE = V1 + V2 + V13
ISHIGAMI_FIRST = np.array([V1, V2, 0.0]) / ISHIGAMI_VARIANCE
ISHIGAMI_TOTAL = np.array([V1 + V13, V2, V13]) / ISHIGAMI_VARIANCE
"""Ishigami and Homma (1990); their part V13 belongs to inputs 1 and 3 together."""


def ishigami_inputs():
    return en.Inputs(**{f"x{i}": stats.uniform(-np.pi, 2.0 * np.pi) for i in (1, 2, 3)})


def ishigami(x):
    sine = np.sin(x.x1)
    return {"y": sine + A * np.sin(x.x2) ** 2 + B * x.x3**4 * sine}


WEIGHTS = np.array([0.0, 0.5, 3.0, 9.0])
PARTS = 1.0 / (3.0 * (1.0 + WEIGHTS) ** 2)
G_FIRST = PARTS / (np.prod(1.0 + PARTS) - 1.0)
G_TOTAL = PARTS * np.prod(1.0 + PARTS) / (1.0 + PARTS) / (np.prod(1.0 + PARTS) - 1.0)


def g_inputs():
    return en.Inputs(**{f"x{i}": stats.uniform() for i in range(4)})


def g_function(x):
    y = 1.0
    for i, weight in enumerate(WEIGHTS):
        y = y * (np.abs(4.0 * x[f"x{i}"] - 2.0) + weight) / (1.0 + weight)
    return {"y": y}


def shapley_of_linear(coefficients, covariance):
    """The mean over all orders, by conditional variances of normal vectors (Owen and Prieur 2017)."""
    n = len(coefficients)

    def explained(group):
        group = list(group)
        if not group:
            return 0.0
        slope = coefficients @ covariance[:, group]
        return slope @ np.linalg.solve(covariance[np.ix_(group, group)], slope)

    effects = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        for place, i in enumerate(order):
            effects[i] += explained(order[: place + 1]) - explained(order[:place])
    return effects / len(orders) / (coefficients @ covariance @ coefficients)
