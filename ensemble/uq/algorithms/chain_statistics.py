"""How well Markov chains have mixed: autocorrelation time, R-hat, and the directions that the chains span."""

from __future__ import annotations

import numpy as np
import scipy.fft

__all__ = ["STEPS_PER_TIME", "autocorrelation_time", "n_spanned", "split_r_hat", "status_of", "thinnest_direction"]

MAX_CHAINS = 256
STEPS_PER_TIME = 50.0
"""Steps, in autocorrelation times, from which the estimate of that time is trusted."""
MAX_R_HAT = 1.05
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


def n_spanned(z: np.ndarray, least: float = 0.0, epsilon: float = 2.0**-52) -> tuple[int, np.ndarray]:
    """The dimension of the plane through points of shape (n_quantities, n_points), and which quantities are constant.

    It is the rank of the points about their mean, each quantity in units of its own spread, so that neither units nor
    offsets count. A direction counts as none if its spread is below `least` times that of the widest one, or if it may
    come from the rounding of the points to numbers of relative distance `epsilon`.
    """
    size = np.abs(z).max(axis=1)
    deviations = z - z[:, :1]
    deviations -= deviations.mean(axis=1, keepdims=True)
    spread = np.abs(deviations).max(axis=1)
    rounding = 4.0 * epsilon * size
    constant = (spread <= rounding) | (z == z[:, :1]).all(axis=1)
    moving = ~constant
    if not moving.any():
        return 0, constant
    scaled = deviations[moving] / spread[moving, None]
    values = np.linalg.svd(scaled, compute_uv=False)
    blur = np.linalg.norm(rounding[moving] / spread[moving]) * np.sqrt(z.shape[1])
    return int(np.count_nonzero(values > max(least * values[0], blur))), constant


def thinnest_direction(chain: np.ndarray) -> np.ndarray:
    """The combination of quantities, in units of their spread, that varies least: shape (n_steps, 1, n_chains).

    Quantities may mix well each for itself while one combination of them has not: chains that began near a plane.
    """
    mean, std = chain.mean(axis=(0, 2)), chain.std(axis=(0, 2))
    scaled = (chain - mean[:, None]) / np.where(std > 0.0, std, 1.0)[:, None]
    covariance = np.tensordot(scaled, scaled, axes=((0, 2), (0, 2)))
    direction = np.linalg.eigh(covariance)[1][:, 0]
    thinnest: np.ndarray = np.einsum("tks,k->ts", scaled, direction)[:, None]
    return thinnest


def status_of(used: np.ndarray, times: np.ndarray, r_hat: np.ndarray) -> str:
    """How the chains after the burn-in ended: `McmcResult.status`."""
    n_germs = used.shape[1]
    if n_spanned(used[-1])[0] < n_germs:
        return "subspace"
    mixed = len(used) >= STEPS_PER_TIME * times.max() and r_hat.max() <= MAX_R_HAT
    if mixed and n_germs > 1:
        thin = thinnest_direction(used)
        mixed = len(used) >= STEPS_PER_TIME * autocorrelation_time(thin)[0] and split_r_hat(thin)[0] <= MAX_R_HAT
    return "converged" if mixed else "short"
