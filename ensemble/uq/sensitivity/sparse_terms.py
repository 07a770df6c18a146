"""The terms of a sparse polynomial expansion, chosen by least angle regression and leave-one-out errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["chosen_terms", "nested_error"]

PATIENCE = 2
"""Degrees in a row without a smaller error after which no higher one is tried."""

STALL = 10, 0.1
"""Terms taken up without a smaller error after which a path ends: so many, and a part of the largest number."""

DEPENDENT = 1e-8
"""Part of a term that the chosen ones must leave, for it to be chosen."""

FOLDS = 5
"""Parts of the samples that are left out one after the other, terms and coefficients chosen anew."""


def angle_order(x: np.ndarray, y: np.ndarray, most: int) -> Iterator[int]:
    """The columns of `x` (n, P), in the order in which least angle regression takes them up (Efron et al. 2004).

    Columns have mean zero and length one, `y` mean zero; at most `most` columns.
    """
    fitted, active = np.zeros_like(y), np.zeros(0, dtype=np.int64)
    free = np.ones(x.shape[1], dtype=bool)
    while active.size < most and free.any():
        correlations = x.T @ (y - fitted)
        largest = np.abs(correlations[free]).max()
        if not largest > 1e-12 * np.linalg.norm(y):
            return
        if active.size == 0 or not free.all():
            new = int(np.argmax(np.where(free, np.abs(correlations), -1.0)))
        active = np.append(active, new)
        free[new] = False
        yield new
        signs = np.where(correlations[active] < 0.0, -1.0, 1.0)
        chosen = x[:, active] * signs
        try:
            weights = np.linalg.solve(chosen.T @ chosen, np.ones(active.size))
        except np.linalg.LinAlgError:
            return
        scale = weights.sum()
        if not scale > 0.0:
            return
        direction = chosen @ (weights / np.sqrt(scale))
        speed, along = 1.0 / np.sqrt(scale), x.T @ direction
        top = float(np.abs(correlations[active]).max())
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.concatenate(
                [(top - correlations[free]) / (speed - along[free]), (top + correlations[free]) / (speed + along[free])]
            )
        steps = steps[np.isfinite(steps) & (steps > 1e-14)]
        fitted = fitted + (steps.min() if steps.size else top / speed) * direction


def _best_of_path(design: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The smallest corrected leave-one-out error along the path, relative to the variance, and the terms there.

    Each set of terms is fitted by least squares [1]_. The error is multiplied by the correction of few samples
    (ibid., eq. 29), ``n / (n - P) (1 + trace(inverse(X.T X)))``.

    References
    ----------
    .. [1] Blatman, Sudret (2011), Journal of Computational Physics 230(6), 2345-2367, section 3.4.
    """
    n = y.size
    centred = design[1:].T - design[1:].mean(axis=1)
    sizes = np.linalg.norm(centred, axis=0)
    usable = np.flatnonzero(sizes > 1e-12 * np.sqrt(n))
    deviation = y - y.mean()
    variance = float(deviation @ deviation)
    most = min(usable.size, n // 2)
    basis = np.empty((most + 1, n))
    basis[0] = n**-0.5
    residual, leverage = deviation.copy(), np.full(n, 1.0 / n)
    inverse, triangle = np.array([[n**-0.5]]), 1.0 / n
    best, terms = float(np.sum((residual / (1.0 - leverage)) ** 2) / variance), np.zeros(1, dtype=np.int64)
    taken = [0]
    for k in angle_order(centred[:, usable] / sizes[usable], deviation, most):
        term = int(usable[k]) + 1
        column, q = design[term], basis[: len(taken)]
        parts = q @ column
        rest = column - parts @ q
        again = q @ rest
        rest, parts = rest - again @ q, parts + again
        size = float(np.linalg.norm(rest))
        if not size > DEPENDENT * np.linalg.norm(column):
            continue
        new = rest / size
        basis[len(taken)] = new
        taken.append(term)
        residual -= (new @ residual) * new
        leverage += new * new
        # the inverse of the triangular factor grows by one column
        last = np.append(-(inverse @ parts) / size, 1.0 / size)
        inverse = np.pad(inverse, ((0, 1), (0, 1)))
        inverse[:, -1] = last
        triangle += float(last @ last)
        left = 1.0 - leverage
        if left.min() < 1e-10 or len(taken) >= n:
            break
        error = float(np.sum((residual / left) ** 2) / variance) * n / (n - len(taken)) * (1.0 + triangle)
        if error < best:
            best, terms = error, np.sort(np.array(taken, dtype=np.int64))
        elif len(taken) - terms.size > STALL[0] + STALL[1] * most:
            break
    return best, terms


def chosen_terms(design: np.ndarray, y: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """The rows of `design` (n_terms, n) that make the best sparse expansion of `y` (n,), the constant first.

    `degrees` are those of the terms. Higher degrees are tried until the error has not fallen for two in a row.
    """
    best, terms, worse = np.inf, np.zeros(1, dtype=np.int64), 0
    for degree in range(1, int(degrees.max()) + 1):
        within = np.flatnonzero(degrees <= degree)
        error, chosen = _best_of_path(design[within], y)
        if error < best * (1.0 - 1e-9):
            best, terms, worse = error, within[chosen], 0
        else:
            worse += 1
        if worse == PATIENCE:
            break
    return terms


def nested_error(design: np.ndarray, y: np.ndarray, degrees: np.ndarray) -> float:
    """The mean square of the errors at samples left out, terms and coefficients from the others, over the variance."""
    n = y.size
    errors = np.zeros(n)
    for fold in range(FOLDS):
        out = np.arange(n) % FOLDS == fold
        terms = chosen_terms(design[:, ~out], y[~out], degrees)
        coefficients = np.linalg.lstsq(design[terms][:, ~out].T, y[~out], rcond=None)[0]
        errors[out] = y[out] - coefficients @ design[terms][:, out]
    return float(np.mean(errors**2) / y.var())
