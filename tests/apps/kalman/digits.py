"""The filter and the smoother in 60 decimal digits, step after step, with priors of any width."""

import mpmath
import numpy as np

DIGITS = 60


def wide(a):
    return np.vectorize(mpmath.mpf, otypes=[object])(np.asarray(a, float))


def _inverse(S):
    n = len(S)
    return np.array(mpmath.inverse(mpmath.matrix(S.tolist())).tolist(), dtype=object).reshape(n, n)


def in_many_digits(parts, y, prior_at="first_observation", columns=None, kappa=0, digits=DIGITS):
    """Filtered and smoothed means and covariances, as arrays of mpf, and log p(y[k] | y[:k]) of every step.

    Parts are constant or have an axis of time. The prior is ``N(m0, P0 + kappa A A')`` with the columns A. Kalman
    forwards; back by Bryson and Frazier.
    """
    with mpmath.workdps(digits):
        tails = {"F": 2, "Q": 2, "H": 2, "R": 2, "u": 1, "d": 1}
        T, nx = len(y), len(parts["m0"])
        zero = {"u": np.zeros(nx), "d": np.zeros(y.shape[1])}
        parts = {**zero, **{name: a for name, a in parts.items() if a is not None}}
        wides = {name: wide(parts[name]) for name in (*tails, "m0", "P0")}
        at = lambda name, k: wides[name][k] if wides[name].ndim > tails[name] else wides[name]
        m, P = wides["m0"], wides["P0"]
        if columns is not None:
            P = P + mpmath.mpf(kappa) * (wide(columns) @ wide(columns).T)
        kept, filtered, terms, nothing = [], [], [], wide(np.zeros(nx))
        for k in range(T):
            if k or prior_at == "before":
                m, P = at("F", k) @ m + at("u", k), at("F", k) @ P @ at("F", k).T + at("Q", k)
            seen = np.flatnonzero(~np.isnan(y[k]))
            own, gain, term = nothing, wide(np.zeros((nx, nx))), mpmath.mpf(0)
            before = m, P
            if len(seen):
                G = at("H", k)[seen]
                r = wide(y[k][seen]) - G @ m - at("d", k)[seen]
                S = G @ P @ G.T + at("R", k)[np.ix_(seen, seen)]
                inverse = _inverse(S)
                own, gain = G.T @ inverse @ r, G.T @ inverse @ G
                term = -(r @ inverse @ r + mpmath.log(mpmath.det(mpmath.matrix(S.tolist())))) / 2
                term -= len(seen) * mpmath.log(2 * mpmath.pi) / 2
            m, P = m + P @ own, P - P @ gain @ P
            kept.append((*before, own, gain))
            filtered.append((m, P))
            terms.append(term)
        smooth, pull, weight = [], nothing, wide(np.zeros((nx, nx)))
        for k in range(T - 1, -1, -1):
            m, P, own, gain = kept[k]
            if k < T - 1:
                L = at("F", k + 1) @ (wide(np.eye(nx)) - P @ gain)
                pull, weight = own + L.T @ pull, gain + L.T @ weight @ L
            else:
                pull, weight = own, gain
            smooth.append((m + P @ pull, P - P @ weight @ P))
        columns_of = lambda pairs: tuple(np.stack([pair[i] for pair in pairs]) for i in (0, 1))
        return *columns_of(filtered), *columns_of(smooth[::-1]), np.array(terms, dtype=object)


def diffuse_limit(parts, y, columns, prior_at="first_observation"):
    """The limit of infinite kappa, from two finite ones: means, finite and diffuse parts of covariances, likelihood.

    The likelihood is that of all observations times kappa to half the number of columns they determine.
    """
    with mpmath.workdps(DIGITS):
        small, large = mpmath.mpf(10) ** 24, 2 * mpmath.mpf(10) ** 24
        runs = [in_many_digits(parts, y, prior_at, columns, kappa) for kappa in (small, large)]

        def limits(i):
            diffuse = (runs[1][i] - runs[0][i]) / (large - small)
            return (runs[0][i] - small * diffuse).astype(float), diffuse.astype(float)

        totals = [sum(run[4]) for run in runs]
        rank = round(float(2 * (totals[0] - totals[1]) / (mpmath.log(large) - mpmath.log(small))))
        likelihood = float(totals[0] + rank * mpmath.log(small) / 2)
        means = [runs[0][i].astype(float) for i in (0, 2)]
        return means[0], *limits(1), means[1], *limits(3), likelihood


def truth(parts, y):
    """Filtered means and covariances, smoothed means and the log-likelihood, rounded; the prior is before."""
    m, P, s, _, terms = in_many_digits(parts, y, "before")
    return m.astype(float), P.astype(float), s.astype(float), float(sum(terms))
