"""How well Markov chains have mixed: autocorrelation time and R-hat."""

from __future__ import annotations

import numpy as np
import scipy.fft

__all__ = ["autocorrelation_time", "split_r_hat"]

MAX_CHAINS = 256
WINDOW = 5.0
"""The sum of autocorrelations ends at the first lag of this many autocorrelation times."""


def autocorrelation_time(chain: np.ndarray) -> np.ndarray:
    """Steps per independent draw of each quantity, for a chain of shape (n_steps, n_quantities, n_chains).

    The window is that of Sokal (1997), section 3. Covariances are averaged over chains about the mean of all, before
    they are divided: a chain that never moves makes the time long. Of more than 256 chains, 256 evenly spaced ones
    are used.
    """
    places = np.linspace(0, chain.shape[2] - 1, min(chain.shape[2], MAX_CHAINS)).astype(np.intp)
    return np.array([_time_of(chain[:, k].take(places, axis=1)) for k in range(chain.shape[1])])


def _time_of(x: np.ndarray) -> float:
    n_steps = x.shape[0]
    length = scipy.fft.next_fast_len(2 * n_steps, real=True)
    covariance, mean = np.zeros(n_steps), x.mean()
    padded = np.zeros((length, min(x.shape[1], 64)))
    for first in range(0, x.shape[1], 64):
        part = padded[:, : min(64, x.shape[1] - first)]
        np.subtract(x[:, first : first + 64], mean, out=part[:n_steps])
        transform = scipy.fft.rfft(part, axis=0)
        power = (transform.real**2 + transform.imag**2).sum(axis=1)
        covariance += scipy.fft.irfft(power, length)[:n_steps]
    if not covariance[0] > 0.0:
        return float("inf")
    times = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
    beyond = np.flatnonzero(np.arange(n_steps) >= WINDOW * times)
    return float(max(times[beyond[0] if beyond.size else -1], 1.0))


def split_r_hat(chain: np.ndarray) -> np.ndarray:
    """Split R-hat (Gelman et al. 2013, section 11.4) of each quantity, of a chain shaped as above."""
    half = chain.shape[0] // 2
    if half < 2:
        return np.full(chain.shape[1], np.inf)
    parts, n_chains = (chain[:half], chain[chain.shape[0] - half :]), chain.shape[2]
    means, variances = np.empty((2, chain.shape[1], 2 * n_chains))
    for k in range(chain.shape[1]):  # one quantity at a time: its values fit into a cache
        for part, columns in zip(parts, (slice(0, n_chains), slice(n_chains, None)), strict=True):
            x = part[:, k]
            mean = x.mean(axis=0)
            deviations = x - mean
            deviations *= deviations
            means[k, columns], variances[k, columns] = mean, deviations.sum(axis=0) / (half - 1)
    within, between = variances.mean(axis=1), means.var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: np.ndarray = np.sqrt((half - 1) / half + between / within)
    return ratio
