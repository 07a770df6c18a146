"""Power spectral density of a beam's response (Gaurav and Wojtkiewicz 2011, example 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sla

from ensemble._backend import array_namespace, prototype
from ensemble._check import finite, floating, integer, one_of, positive, require
from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.apps.analyses.beam import Beam, cantilever, checked_output, shared_array

__all__ = ["ar1_load", "ar1_spectrum", "frequency_response"]


def ar1_spectrum(omega: Any, step: float, *, correlation: float = 0.9, scale: float = 1.0) -> np.ndarray:
    """Compute the two-sided power spectral density of ``f_k = correlation f_(k-1) + scale e_k`` at time step `step`.

    ``S(omega) = scale^2 step / (2 pi |1 - correlation exp(-i omega step)|^2)``; its integral between the Nyquist
    frequencies is the variance [1]_.

    Parameters
    ----------
    omega : array, rad/s
    step : float, s
    correlation : float between -1 and 1
    scale : float, unit of the load

    References
    ----------
    .. [1] Priestley (1981), Spectral Analysis and Time Series, section 4.12, eq. 4.12.21.

    Examples
    --------
    >>> float(ar1_spectrum(0.0, 1.0, correlation=0.5).round(6))
    0.63662
    """
    step, correlation = positive(step, "ar1_spectrum", "step"), checked_correlation(correlation, "ar1_spectrum")
    gain = np.abs(1.0 - correlation * np.exp(-1j * np.asarray(omega) * step))
    return np.asarray(scale**2 * step / (2.0 * np.pi * gain**2))


@explains_calls("ar1_load")
def ar1_load(
    n_times: int, n_samples: int, *, correlation: float = 0.9, scale: float = 1.0, seed: int = 20731
) -> np.ndarray:
    """Draw samples of the stationary process of `ar1_spectrum`, shape (n_times, n_samples).

    Examples
    --------
    >>> ar1_load(3, 2, seed=1).shape
    (3, 2)
    """
    correlation = checked_correlation(correlation, "ar1_load")
    counts = {"n_times": (n_times, 1), "n_samples": (n_samples, 1), "seed": (seed, 0)}
    n_times, n_samples, seed = (
        integer(value, "ar1_load", name, minimum=least) for name, (value, least) in counts.items()
    )
    load = scale * np.random.default_rng(seed).standard_normal((n_times, n_samples))
    load[0] /= np.sqrt(1.0 - correlation**2)
    for k in range(1, n_times):
        load[k] += correlation * load[k - 1]
    return load


def checked_correlation(value: Any, function: str) -> float:
    number = finite(value, function, "correlation")
    require(abs(number) < 1.0, function, "correlation", "be between -1 and 1", number)
    return number


@explains_calls("frequency_response")
def frequency_response(
    n_dofs: int, omega: Any, spectrum: Any = None, *, output: Any = None, step: float | None = None,
    dtype: DType = np.float64, backend: str = "numpy",
) -> Any:  # fmt: skip
    """Compute the spectral densities ``C H S_ff H^H C^T`` of a cantilever under a random tip load ([1]_, eqs. 5-6).

    The load acts on one unknown, so that the product is a column times its conjugate times the density of the load.

    Parameters
    ----------
    n_dofs : int, even, at least 2
        Deflections and rotations of ``n_dofs / 2`` nodes; length, rigidity and mass per length are 1, damping is 2 % in
        the first two modes of the continuous beam.
    omega : float or array, shape (n_frequencies,), rad/s
    spectrum : array of the shape of `omega`, optional
        The two-sided density of the load; that of `ar1_spectrum` with `step` where it is None.
    output : array, shape (n_outputs, n_dofs), optional
        The output matrix C; the unit matrix where it is None.
    step : float, s, optional
        Of the load; a hundredth of the first period of the continuous beam where it is None.
    dtype : float64 or float32
        Of the parts of the complex result.
    backend : {"numpy", "cupy"}

    Returns
    -------
    array, shape (n_outputs, n_outputs), or (n_frequencies, n_outputs, n_outputs)
        Complex.

    Raises
    ------
    ValueError
        If an argument is out of range or has another shape.

    References
    ----------
    .. [1] Gaurav, Wojtkiewicz (2011), Scientific Programming 19, 199-212, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> S = frequency_response(20, [1.0, 3.516], output=np.eye(1, 20, 18))
    >>> bool(S[1, 0, 0].real > 100 * S[0, 0, 0].real)
    True
    """
    name = "frequency_response"
    beam = cantilever(n_dofs, name)
    one_of(backend, ("numpy", "cupy"), name, "backend")
    dtype = floating(dtype, name, "dtype")
    omega = shared_array(omega, name, "omega")
    require(omega.ndim <= 1, name, "omega", "be a number or have one axis", f"shape {omega.shape}")
    step = first_period() / 100.0 if step is None else positive(step, name, "step")
    density = ar1_spectrum(omega, step) if spectrum is None else shared_array(spectrum, name, "spectrum")
    require(density.shape == omega.shape, name, "spectrum", f"have shape {omega.shape}", f"shape {density.shape}")
    require(not (density < 0.0).any(), name, "spectrum", "be zero or above", f"{(density < 0.0).sum()} below")
    C = checked_output(output, n_dofs, name)
    columns = tip_response(beam, np.atleast_1d(omega))
    columns = columns if C is None else columns @ C.T
    xp = array_namespace(prototype(backend))
    kind = np.complex128 if dtype == np.float64 else np.complex64
    h = xp.asarray(columns.astype(kind))
    scaled = h * xp.asarray(np.atleast_1d(density)[:, None].astype(dtype))
    products = scaled[:, :, None] * xp.conj(h)[:, None, :]
    return products if omega.ndim else products[0]


def first_period() -> float:
    """Of the continuous beam, in s."""
    return float(2.0 * np.pi / 1.875104068711961**2)


def tip_response(beam: Beam, omega: np.ndarray) -> np.ndarray:
    """The response of all unknowns to a unit tip load at each frequency, shape (n_frequencies, n_dofs)."""
    a, b = beam.rayleigh
    load = np.eye(beam.n_dofs, 1, -beam.tip)[:, 0].astype(np.complex128)
    width = beam.stiffness.shape[0] - 1
    found = np.empty((omega.size, beam.n_dofs), np.complex128)
    for k, w in enumerate(omega):
        lower = (1.0 + 1j * w * b) * beam.stiffness + (1j * w * a - w * w) * beam.mass
        band = np.zeros((2 * width + 1, beam.n_dofs), np.complex128)
        band[width:] = lower
        for d in range(1, width + 1):
            band[width - d, d:] = lower[d, : beam.n_dofs - d]
        found[k] = sla.solve_banded((width, width), band, load, check_finite=False)
    return found
