"""Static deflection of a beam under random loads (Gaurav and Wojtkiewicz 2011, example 1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla

from ensemble._backend import array_namespace, prototype, to_numpy
from ensemble._check import floating, integer, message, one_of, require, warn_caller
from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.apps.analyses.beam import Beam, banded_product, cantilever, checked_output, real_array
from ensemble.scalar import Ensemble

__all__ = ["StaticResponse", "static_beam"]

ALLOWED = 1e-2
"""The error of a tip load's deflection above which `static_beam` warns."""


class StaticResponse(NamedTuple):
    """Outputs, and the largest relative residual ``|K u - f| / |f|`` of a sample with finite loads, in float64.

    Attributes
    ----------
    y : Ensemble, shape (n_outputs,)
    residual : float
    """

    y: Ensemble
    residual: float


@explains_calls("static_beam")
def static_beam(
    n_dofs: int, load: Any = None, *, n_samples: int = 1000, seed: int = 20731, output: Any = None,
    method: str = "banded", dtype: DType = np.float64, backend: str = "numpy",
) -> StaticResponse:  # fmt: skip
    """Compute the outputs ``y = C u``, ``K u = f``, of a cantilever for samples of its load ([1]_, eqs. 7-8).

    Length and flexural rigidity are 1, so that a tip load P deflects the tip by P / 3.

    Parameters
    ----------
    n_dofs : int, even, at least 2
        Deflections and rotations of ``n_dofs / 2`` nodes.
    load : array, shape (n_samples,) or (n_dofs, n_samples), optional
        Tip loads, or forces and moments on all unknowns. None: tip loads of mean 1 and standard deviation 0.2.
    n_samples : int
        Of loads that are drawn.
    seed : int
    output : array, shape (n_outputs, n_dofs), optional
        The output matrix C; the unit matrix where it is None.
    method : {"banded", "dense"}
        "banded": one Cholesky factorisation of the band (LAPACK pbtrf), on the host; tip loads take one solution.
        "dense": LU factorisation of the full matrix, ``2 n_dofs**3 / 3`` operations, as in the paper.
    dtype : float64 or float32
    backend : {"numpy", "cupy"}

    Returns
    -------
    StaticResponse

    Raises
    ------
    ValueError
        If an argument is out of range or has another shape.

    Warns
    -----
    RuntimeWarning
        If rounding changes the deflection under a tip load, which is known exactly, by more than 1 %.

    Notes
    -----
    The condition number grows with the fourth power of the number of elements: 1.6e12 at 1024 unknowns. In float32 the
    answer is 1 % wrong at 128 unknowns, 81 % at 192, and has no correct digit from 512 on; in float64 it has lost all
    but two digits at 16,384. The residual does not show this.

    References
    ----------
    .. [1] Gaurav, Wojtkiewicz (2011), Scientific Programming 19, 199-212, section 3.1.

    Examples
    --------
    >>> response = static_beam(32, [3.0, 6.0])
    >>> response.y.samples[-2].round(9)
    array([1., 2.])
    """
    name = "static_beam"
    beam = cantilever(n_dofs, name)
    one_of(method, ("banded", "dense"), name, "method")
    one_of(backend, ("numpy", "cupy"), name, "backend")
    dtype = floating(dtype, name, "dtype")
    if load is None:
        n_samples = integer(n_samples, name, "n_samples", minimum=1)
        load = np.random.default_rng(integer(seed, name, "seed", minimum=0)).normal(1.0, 0.2, n_samples)
    load = np.asarray(to_numpy(real_array(load, name, "load")), np.float64)
    fits = load.ndim == 1 or (load.ndim == 2 and load.shape[0] == n_dofs)
    require(fits, name, "load", f"have shape (n_samples,) or ({n_dofs}, n_samples)", f"shape {load.shape}")
    C = checked_output(output, n_dofs, name)
    xp = array_namespace(prototype(backend))
    if method == "banded":
        forces = load if load.ndim == 2 else np.eye(n_dofs, 1, -beam.tip)
        u = sla.solveh_banded(beam.stiffness.astype(dtype), forces.astype(dtype), lower=True, check_finite=False)
        warn_of_rounding(beam, u[:, 0] if load.ndim == 1 else unit_tip_load(beam, dtype), dtype)
        outputs = xp.asarray(u if C is None else C.astype(dtype) @ u)
        y = outputs if load.ndim == 2 else outputs * xp.asarray(load, dtype=dtype)
        wanted = banded_product(beam.stiffness, u.astype(np.float64)) - forces
        return StaticResponse(Ensemble(y), largest(wanted, forces))
    warn_of_rounding(beam, unit_tip_load(beam, dtype), dtype)
    forces = xp.zeros((n_dofs, load.shape[-1]), dtype=dtype)
    forces[beam.tip if load.ndim == 1 else slice(None)] = xp.asarray(load, dtype=dtype)
    K = xp.asarray(beam.dense(), dtype=dtype)
    # NumPy's own solver would compute float32 in float64
    on_host = isinstance(K, np.ndarray)  # a load that is not finite concerns its own sample
    u = sla.lu_solve(sla.lu_factor(K), forces, check_finite=False) if on_host else xp.linalg.solve(K, forces)
    y = u if C is None else xp.matmul(xp.asarray(C, dtype=dtype), u)
    found, given = (to_numpy(part).astype(np.float64) for part in (u[:, :8], forces[:, :8]))
    return StaticResponse(Ensemble(y), largest(banded_product(beam.stiffness, found) - given, given))


def unit_tip_load(beam: Beam, dtype: DType) -> np.ndarray:
    """The response to a tip load of 1 in precision `dtype`; NaN where rounding makes the matrix indefinite."""
    force = np.eye(beam.n_dofs, 1, -beam.tip, dtype)[:, 0]
    try:
        found: np.ndarray = sla.solveh_banded(beam.stiffness.astype(dtype), force, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.full(beam.n_dofs, np.nan, dtype)
    return found


def warn_of_rounding(beam: Beam, response: np.ndarray, dtype: DType) -> None:
    """Warn where the response to a tip load of 1 is not the exact one, a third at the tip, to `ALLOWED`."""
    error = abs(3.0 * float(response[beam.tip]) - 1.0)
    if error <= ALLOWED:
        return
    name, digits = np.dtype(dtype).name, np.format_float_positional(100.0 * error, 2, fractional=False, trim="-")
    advice = "Use float64 or fewer unknowns." if name == "float32" else "Use fewer unknowns."
    seen = (
        f"{name} and n_dofs {beam.n_dofs}, with which a tip load deflects the tip by {digits} % too much or too little"
    )
    text = message("static_beam", "dtype", "resolve the stiffness to 1 %", seen, advice)
    warn_caller(text, RuntimeWarning)


def largest(rest: np.ndarray, forces: np.ndarray) -> float:
    """The largest relative norm of a column that is finite; that of a column without forces counts as it is."""
    norms, scales = np.linalg.norm(rest, axis=0), np.linalg.norm(forces, axis=0)
    quotients = norms / np.where(scales == 0.0, 1.0, scales)
    return float(np.max(quotients, where=np.isfinite(quotients), initial=0.0))
