"""`chaos`: polynomial chaos expansions of a study's outputs, many outputs at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtri

from ensemble._blas import one_blas_thread
from ensemble._check import (
    check_level,
    integer,
    kind_of,
    message,
    one_of,
    positive,
    random_generator,
    require,
    warn_caller,
)
from ensemble._keywords import explains_calls
from ensemble.scalar import Ensemble, sample_var
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.samples import InputSamples, differing
from ensemble.uq.inputs.variable import inside
from ensemble.uq.sensitivity.chaos_basis import Basis
from ensemble.uq.sensitivity.chaos_expansion import ChaosExpansion
from ensemble.uq.sensitivity.observations import observations
from ensemble.uq.sensitivity.sparse_terms import chosen_terms, nested_error
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.study_result import UqResult

__all__ = ["chaos"]

CHUNK = 2**22
"""Values of outputs by samples that are fitted at a time."""

ROUNDING = (64.0 * np.finfo(float).eps) ** 2
"""Variance over the square of the mean below which an output is constant up to rounding."""

SURE = 1e-3
"""Leave-one-out error below which an expansion is the model, whatever the variance of the samples is."""

LARGE_ERROR = 0.05
"""Part of the variance that an expansion may miss before there is a note: its indices are off by about as much."""

LARGE_CONDITION = 1e8
"""Condition number above which coefficients lose half their digits."""


@explains_calls("chaos")
def chaos(
    inputs: Inputs,
    study: Any,
    outputs: Any = None,
    *,
    degree: int,
    norm: float = 1.0,
    basis: str = "marginal",
    method: str = "auto",
    n_resamples: int = 0,
    seed: int = 0,
    level: float = 0.95,
) -> ChaosExpansion:
    """Estimate a polynomial chaos expansion of every output: moments, Sobol' indices and predictions.

    Parameters
    ----------
    inputs : Inputs
    study : UqResult or InputSamples
        The result of `propagate`, or samples of `inputs` with their `outputs`.
    outputs : dict of str to Ensemble or array ``(*shape, n_samples)``, or one of these: output "y"
        Outputs of the samples; None for a `UqResult`, which has them. Samples with a value that is not finite are left
        out.
    degree : int, at least 0
        Total degree of the polynomials.
    norm : float in (0, 1], dimensionless
        Below 1 the truncation is hyperbolic: ``sum(k_i**norm) <= degree**norm``, with fewer interactions.
    basis : {"marginal", "hermite"}
        Polynomials orthonormal with respect to each input's own distribution, or Hermite polynomials of its normal
        germ. Lognormal and correlated inputs and random fields have the latter in any case.
    method : {"auto", "regression", "sparse", "quadrature"}
        Least squares, one factorisation for all outputs; least squares with the terms that each entry of an output
        needs, chosen among those up to `degree` [2]_; or sums over the points of `Gauss` or `SparseGrid` with their
        weights. "auto": quadrature where the samples are the points of a rule, else least squares with all terms.
    n_resamples : int
        Bootstrap resamples of the samples, which give `ChaosExpansion.interval`; 0 for none, 100 are usual. Sparse
        expansions keep their terms. The intervals are those of the coefficients, widened by what the expansion misses
        at samples that it has not seen (see Notes).
    seed : int
        Seed of the resamples.
    level : float in (0, 1), dimensionless
        Probability of the intervals.

    Returns
    -------
    ChaosExpansion

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range; if there are fewer samples than terms; if the quadrature
        rule does not integrate products of the polynomials.

    Warns
    -----
    UserWarning
        If the least-squares problem has a condition number above 1e8; if the variance of the expansion of an output is
        not that of its samples, by a quarter or four standard errors; or if it misses more than 5 % of the variance, by
        its leave-one-out error or by what the residuals make of its coefficients. Both are also among the `notes`.

    Notes
    -----
    Outputs that are fitted together agree with those fitted alone to rounding; BLAS chooses the order of summation.
    The leave-one-out error follows from the residuals and the leverages, without further fits [1]_. It is that at the
    samples: where these leave a range of an input with few of them, as the tails of a normal number, terms of a high
    degree swing in between. Residuals of variance s^2 give the expansion an expected squared error of
    ``s^2 * (1 + trace(inverse(design.T @ design)))`` over the distribution of the inputs, the second term from the
    coefficients; it is compared with the variance, too.

    "sparse" takes terms up in the order of least angle regression, fits each set by least squares, and keeps the one
    with the smallest corrected leave-one-out error; degrees from 1 up to `degree` are tried until it has not fallen
    twice in a row. What the terms and coefficients from four fifths of the samples miss at the others is compared with
    the variance, too: the leave-one-out error of chosen terms is too good.

    Intervals: with V of the variance in the expansion, V_i of it in an index, and the part M that it misses (as in the
    notes: from the residuals and their growth, or from fifths left out), the index is between ``V_i / (V + M)`` and
    ``(V_i + M) / (V + M)``; the spread of the resamples is added on both sides. They are wide where an expansion is not
    the model: `sobol_indices` has narrower ones there.

    References
    ----------
    .. [1] Blatman, Sudret (2011), Journal of Computational Physics 230(6), 2345-2367, eq. 27.
    .. [2] Ibid., section 3.4.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(a=stats.uniform(-1.0, 2.0), b=stats.norm())
    >>> study = en.propagate(lambda x: {"y": x.a + 2.0 * x.b}, inputs, 64, seed=3, progress=False)
    >>> expansion = en.uq.chaos(inputs, study, degree=2)
    >>> expansion.n_terms, expansion.first["y"].round(4)
    (6, array([0.0769, 0.9231]))
    """
    if not callable(getattr(inputs, "from_uniform", None)):
        raise TypeError(message("chaos", "inputs", "be Inputs", kind_of(inputs)))
    degree = integer(degree, "chaos", "degree", minimum=0)
    norm = positive(norm, "chaos", "norm")
    require(norm <= 1.0, "chaos", "norm", "be at most 1", norm)
    one_of(basis, ("marginal", "hermite"), "chaos", "basis")
    one_of(method, ("auto", "regression", "sparse", "quadrature"), "chaos", "method")
    n_resamples = integer(n_resamples, "chaos", "n_resamples", minimum=0)
    level = check_level(level, "chaos")
    require(inputs.n_germs > 0, "chaos", "inputs", "have one that is not constant", repr(inputs))
    samples, values, notes = observations(study, outputs, "chaos")
    require(samples.names == inputs.names, "chaos", "study", "have samples of the inputs", ", ".join(samples.names))
    others = differing(samples, inputs.variables)
    advice = "Give the Inputs of the study."
    require(
        not others, "chaos", "inputs", "be those of the study", f"other distributions of {', '.join(others)}", advice
    )
    polynomials = Basis(inputs, degree, norm, basis)
    germs = _germs(polynomials, samples, getattr(study, "sampler", None)) if polynomials.needs_germs else None
    weights = samples.weights
    if method == "auto":
        rule = getattr(getattr(study, "sampler", None), "is_quadrature", False)
        method = "quadrature" if weights is not None and rule else "regression"
    design = polynomials.evaluate(samples, germs)
    flat = {name: array.reshape(-1, samples.n_samples) for name, array in values.items()}
    if method == "quadrature":
        coefficients, condition = _project(design, weights, flat, degree)
        errors = {name: np.full(len(array), np.nan) for name, array in flat.items()}
        missed = errors
    elif method == "sparse":
        require(weights is None, "chaos", "study", "have samples of equal weight for sparse terms", "weights")
        with one_blas_thread():
            coefficients, errors, missed, condition = _sparse(design, flat, polynomials.indices.sum(axis=1))
    else:
        coefficients, errors, missed, condition = _least_squares(design, weights, flat)
    for name, array in flat.items():
        set_constants(coefficients[name], array)
    notes += variance_notes(coefficients, flat, weights, errors, missed)
    expansion = ChaosExpansion(
        inputs, polynomials, {name: array.shape[:-1] for name, array in values.items()}, coefficients, errors,
        method=method, n_samples=samples.n_samples, condition_number=condition, notes=notes,
        declared=Outputs(study.coordinates, units=study.units) if isinstance(study, UqResult) else None,
        dims=study.dims if isinstance(study, UqResult) else None,
    )  # fmt: skip
    if n_resamples:
        require(
            method != "quadrature" and weights is None, "chaos", "n_resamples", "be 0 for weighted samples", n_resamples
        )
        rng = random_generator(seed, "chaos")
        draws = (rng.integers(samples.n_samples, size=samples.n_samples) for _ in range(n_resamples))
        resampled = (_refitted(design[:, draw], flat, draw, coefficients) for draw in draws)
        lost = {name: _missed_variance(missed[name], array) for name, array in flat.items()}
        expansion.set_intervals(resampled, lost, level)
    return expansion


def _missed_variance(missed: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The part of the variance that is missed, in the unit of the output squared; nothing of a constant output."""
    variance = values.var(axis=-1)
    constant = variance <= ROUNDING * values.mean(axis=-1) ** 2
    result: np.ndarray = np.where(constant, 0.0, missed * variance)
    return result


def _refitted(design: np.ndarray, values: Coefficients, draw: np.ndarray, coefficients: Coefficients) -> Coefficients:
    """Coefficients of the same terms from a resample; `design` is that of the resample."""
    found = {}
    for name, array in values.items():
        fitted = np.zeros_like(coefficients[name])
        used = coefficients[name] != 0.0
        patterns, kind = np.unique(used, axis=1, return_inverse=True)
        for k, terms in enumerate(patterns.T):
            entries = np.flatnonzero(kind.ravel() == k)
            if terms.any():
                solution = np.linalg.lstsq(design[terms].T, array[entries][:, draw].T, rcond=None)[0]
                fitted[np.ix_(terms, entries)] = solution
        found[name] = fitted
    return found


def set_constants(coefficients: np.ndarray, values: np.ndarray) -> None:
    """Give outputs whose samples are all equal their value and no further term, ``(n_terms, n_outputs)`` in place."""
    constant = np.all(values == values[:, :1], axis=-1)
    coefficients[1:, constant] = 0.0
    coefficients[0, constant] = values[constant, 0]


def variance_notes(
    coefficients: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    weights: np.ndarray | None,
    errors: Mapping[str, np.ndarray],
    missed: Mapping[str, np.ndarray],
) -> tuple[str, ...]:
    """Where an expansion is not the model: a warning and a note for each such output.

    A fit to few samples may agree with them, and still swing between them where inputs have long tails: the
    leave-one-out error does not show it, the variance does. An expansion of too low a degree has about the variance of
    the samples and misses a part of it.
    """
    notes = []
    for name, array in values.items():
        expanded = np.sum(coefficients[name][1:] ** 2, axis=0)
        sampled = np.asarray(sample_var(Ensemble(array), ddof=1.0) if weights is None else weighted_var(array, weights))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = expanded / sampled
        allowed = allowed_ratio(array)
        unsure = ~(errors[name] < SURE)  # NaN of quadrature is unsure, too
        varies = sampled > ROUNDING * coefficients[name][0] ** 2
        off = varies & unsure & ~((ratio >= 1.0 / allowed) & (ratio <= allowed))
        large = varies & ((errors[name] > LARGE_ERROR) | (missed[name] > LARGE_ERROR))
        found = np.flatnonzero(off if off.any() else large)
        if not found.size:
            continue
        size = np.abs(np.log(np.maximum(ratio[found], 1e-300))) if off.any() else missed[name][found]
        worst = found[np.argmax(size)]
        where = f" in {found.size} of {len(array)} entries, at most" if len(array) > 1 else ""
        error = errors[name][worst]
        known = f" (leave-one-out error {error:.2g})" if np.isfinite(error) else ""
        what = f"the variance of the expansion is {expanded[worst]:.3g} and of the samples {sampled[worst]:.3g}"
        so = "Its Sobol' indices are not those of the model: take more samples, a lower degree, or sobol_indices."
        if not off.any():
            part = np.fmax(missed[name][worst], error)
            what = f"the expansion misses {part:.2g} of the variance"
            so = "Its Sobol' indices may be off by as much: take another degree, more samples, or sobol_indices."
        text = f"output {name!r}: {what}{where}{known}. {so}"
        notes.append(text)
        warn_caller(f"chaos: {text}")
    return tuple(notes)


def weighted_var(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The variance of each row by the weights of a rule."""
    shares = weights / weights.sum()
    mean = (values * shares).sum(axis=-1, keepdims=True)
    variance: np.ndarray = ((values - mean) ** 2 * shares).sum(axis=-1)
    return variance


def allowed_ratio(values: np.ndarray) -> np.ndarray:
    """By which factor the two variances may differ: a quarter, or four standard errors of that of the samples."""
    squares = (values - values.mean(axis=-1, keepdims=True)) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = (
            np.mean(squares * squares, axis=-1) / np.mean(squares, axis=-1) ** 2
        )  # ``** 4`` takes ten times as long
    error = np.sqrt(np.maximum(np.nan_to_num(kurtosis, nan=1.0) - 1.0, 0.0) / values.shape[-1])
    result: np.ndarray = 1.0 + np.maximum(0.25, 4.0 * error)
    return result


def _germs(basis: Basis, samples: InputSamples, sampler: Any) -> np.ndarray:
    """The independent normal germs of a study's samples, from the points of its sampler."""
    if sampler is None or samples.seed is None:
        advice = "Give the result of propagate, or take independent inputs with basis='marginal'."
        raise ValueError(message("chaos", "study", "tell its sampler for polynomials of germs", "samples", advice))
    points: np.ndarray = sampler.points(samples.ids, basis.inputs.n_germs, samples.seed)
    return points if getattr(sampler, "space", "") == "normal" else ndtri(inside(points))


Coefficients = dict[str, np.ndarray]


def _row_squares(rows: np.ndarray) -> np.ndarray:
    """The sum of squares of each row."""
    squares: np.ndarray = np.einsum("ij,ij->i", rows, rows)
    return squares


def _least_squares(
    design: np.ndarray, weights: np.ndarray | None, values: Coefficients
) -> tuple[Coefficients, Coefficients, Coefficients, float]:
    """Coefficients ``(n_terms, n_outputs)``, relative leave-one-out errors, missed variance, and condition number."""
    from scipy.linalg import lapack, solve_triangular

    n_terms, n = design.shape
    advice = "Take a lower degree, norm=0.5, or more samples; two to three per term are usual."
    require(n >= n_terms, "chaos", "study", f"have at least {n_terms} samples, one per term", n, advice)
    roots = None
    if weights is not None:
        good = bool(np.all(weights >= 0.0))
        advice = "Take method='quadrature'."
        require(good, "chaos", "weights", "be zero or above for least squares", "negative ones", advice)
        roots = np.sqrt(weights * (n / weights.sum()))
        design = design * roots
    q, r = np.linalg.qr(design.T)
    reciprocal = lapack.dtrcon(r, norm="1")[0]
    condition = 1.0 / reciprocal if reciprocal > 0.0 else np.inf
    if condition > 0.1 / np.finfo(float).eps:
        seen = f"a condition number of {condition:.2g} for {n_terms} terms and {n} samples"
        raise ValueError(message("chaos", "study", "tell the terms from each other", seen, "Take a lower degree."))
    if condition > LARGE_CONDITION:
        text = f"chaos: the condition number is {condition:.2g} for {n_terms} terms and {n} samples: take more samples."
        warn_caller(text)
    free = 1.0 - _row_squares(q)
    free[free < 1e-12] = np.nan  # a sample that alone determines a coefficient cannot be left out
    inverse = solve_triangular(r, np.eye(n_terms))
    growth = (1.0 + np.sum(inverse * inverse)) * n / (n - n_terms) if n > n_terms else np.nan
    coefficients, errors, missed = {}, {}, {}
    for name, array in values.items():
        fitted, error, miss = np.empty((n_terms, len(array))), np.empty(len(array)), np.empty(len(array))
        step = max(1, CHUNK // n)
        for start in range(0, len(array), step):
            chunk = slice(start, start + step)
            y = array[chunk] if roots is None else array[chunk] * roots
            projected = y @ q
            fitted[:, chunk] = solve_triangular(r, projected.T)
            residual = projected @ q.T
            np.subtract(y, residual, out=residual)
            # the first column of q is the constant: the others and the residual make the variance
            squares = _row_squares(projected[:, 1:]) + _row_squares(residual)
            squares[squares <= ROUNDING * projected[:, 0] ** 2] = np.nan
            miss[chunk] = growth * (_row_squares(residual) / squares)
            residual /= free
            error[chunk] = _row_squares(residual) / squares
        coefficients[name], errors[name], missed[name] = fitted, error, miss
    return coefficients, errors, missed, condition


def _sparse(
    design: np.ndarray, values: Coefficients, degrees: np.ndarray
) -> tuple[Coefficients, Coefficients, Coefficients, float]:
    """As `_least_squares`, with the terms that each entry of an output needs; the largest condition number."""
    n_terms, worst = len(design), 1.0
    coefficients, errors, missed = {}, {}, {}
    for name, array in values.items():
        fitted, error, miss = np.zeros((n_terms, len(array))), np.full(len(array), np.nan), np.full(len(array), np.nan)
        for k, y in enumerate(array):
            if np.var(y) <= ROUNDING * np.mean(y) ** 2:
                fitted[0, k] = np.mean(y)
                continue
            terms = chosen_terms(design, y, degrees)
            own, left_out, _, condition = _least_squares(design[terms], None, {name: y[None]})
            fitted[terms, k], error[k] = own[name][:, 0], left_out[name][0]
            miss[k], worst = nested_error(design, y, degrees), max(worst, condition)
        coefficients[name], errors[name], missed[name] = fitted, error, miss
    return coefficients, errors, missed, worst


def _project(
    design: np.ndarray, weights: np.ndarray | None, values: Coefficients, degree: int
) -> tuple[Coefficients, float]:
    """Coefficients ``(n_terms, n_outputs)`` as weighted means, and the condition number of the Gram matrix."""
    if weights is None:
        advice = "Draw the samples by uq.Gauss or uq.SparseGrid, or take method='regression'."
        raise ValueError(message("chaos", "study", "have the weights of a quadrature rule", "none", advice))
    weighted = design * weights
    gram = weighted @ design.T
    error = float(np.abs(gram - np.eye(len(gram))).max())
    advice = f"Take degree below {degree}, more points, or method='regression'."
    seen = f"an error of {error:.2g}"
    require(error < 1e-8, "chaos", "the rule", "integrate products of the polynomials", seen, advice)
    return {name: weighted @ array.T for name, array in values.items()}, float(np.linalg.cond(gram, 1))
