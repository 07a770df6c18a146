"""Where the chains of `mcmc` start: points with a finite density, which span all coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble import _check
from ensemble.uq.algorithms.chain_statistics import n_spanned
from ensemble.uq.algorithms.evaluations import normal_points

__all__ = ["starting_points"]

MAX_START_ROUNDS = 100
THINNEST_START = 1e-8
"""Spread of the chains' starts in a direction, over that of the widest, from which on the direction counts."""


def starting_points(density: Any, start: Any, n_chains: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points with a finite density, shape (n_germs, n_chains), and that density."""
    n_germs = density.evaluations.n_germs
    if start is not None:
        z = _check.real_array(start, "mcmc", "start", f"have shape (n_chains, {n_germs})").T.copy()
        n_chains = z.shape[-1] if n_chains is None else n_chains
        fits = z.shape == (n_germs, n_chains)
        _check.require(fits, "mcmc", "start", f"have shape ({n_chains}, {n_germs})", f"shape {z.shape[::-1]}")
    n_chains = max(64, 4 * n_germs) if n_chains is None else _check.integer(n_chains, "mcmc", "n_chains", minimum=2)
    advice = "The moves of fewer chains span less than the whole space."
    enough = n_chains % 2 == 0 and n_chains >= 2 * n_germs
    _check.require(enough, "mcmc", "n_chains", f"be even and at least {2 * n_germs}", n_chains, advice)
    if start is None:
        z = normal_points(seed, 0, 0, n_chains, n_germs)
    else:
        check_span(z, start)
    log_density = density(z).copy()
    bad = np.flatnonzero(~np.isfinite(log_density))
    advice = "Start the chains where the likelihood is not zero."
    seen = f"{bad.size} without one"
    _check.require(start is None or not bad.size, "mcmc", "start", "have a finite log density everywhere", seen, advice)
    for k in range(1, MAX_START_ROUNDS):
        if not bad.size:
            break
        z[:, bad] = normal_points(seed, 0, k * n_chains, n_chains, n_germs)[:, bad]
        log_density[bad] = density(z[:, bad])
        bad = bad[~np.isfinite(log_density[bad])]
    needed = f"have a finite value somewhere in {MAX_START_ROUNDS} draws of the prior per chain"
    _check.require(not bad.size, "mcmc", "log_likelihood", needed, f"none for {bad.size} chains", "Give start.")
    return z, log_density


def check_span(z: np.ndarray, start: Any) -> None:
    """Raise unless starting points, shape (n_germs, n_chains), are finite and span all coordinates.

    A move is along a line through two chains, so that chains never leave the plane through their starts.
    """
    n_germs = len(z)
    bad = int(np.count_nonzero(~np.isfinite(z).all(axis=0)))
    _check.require(bad == 0, "mcmc", "start", "be finite", f"{bad} chains with NaN or infinity")
    dtype = getattr(start, "dtype", None)  # numbers of single precision are rounded to that
    epsilon = float(np.finfo(dtype).eps) if isinstance(dtype, np.dtype) and dtype.kind == "f" else 2.0**-52
    found, constant = n_spanned(z, THINNEST_START, max(epsilon, 2.0**-52))
    seen = f"points that span {found}"
    if constant.any():
        fixed = ", ".join(map(str, np.flatnonzero(constant)[:8])) + (", ..." if constant.sum() > 8 else "")
        seen += f", the same number for all chains in coordinate {fixed}"
    elif (distinct := len(np.unique(z, axis=1).T)) <= n_germs:
        seen += f", {distinct} distinct ones of {z.shape[1]}"
    advice = "Chains stay in the plane through their starts: add noise of the posterior's spread to each coordinate."
    _check.require(found == n_germs, "mcmc", "start", f"span all {n_germs} coordinates", seen, advice)
