"""Response of a beam to random loads in time, by convolution (Gaurav and Wojtkiewicz 2011, example 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.fft

from ensemble._backend import array_namespace, prototype
from ensemble._check import floating, integer, one_of, positive, require
from ensemble._compile.numba import thread_count
from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.apps.analyses.beam import Modes, cantilever, checked_output, real_array, shared_array
from ensemble.apps.analyses.frequency import ar1_load, first_period
from ensemble.scalar import Ensemble

__all__ = ["convolution_response", "impulse_response"]

CHUNK = {"host": 1 << 20, "device": 1 << 27}
"""Numbers of a transform that is held at a time: on the host in memory that is used again."""


@explains_calls("convolution_response")
def convolution_response(
    n_dofs: int, n_times: int, load: Any = None, *, n_samples: int = 100, seed: int = 20731, initial: Any = None,
    output: Any = None, step: float | None = None, dtype: DType = np.float64, backend: str = "numpy",
) -> Ensemble:  # fmt: skip
    """Compute outputs ``y(t) = C (e^(A t) x_0 + integral of e^(A (t - s)) B f(s) ds)`` of a cantilever [1]_, eqs. 3-4.

    The impulse response comes from the modes; the integral is the sum over time steps, by fast Fourier transforms of at
    least ``2 n_times - 1`` numbers, so that the end of a load does not act on the beginning.

    Parameters
    ----------
    n_dofs : int, even, at least 2
        Deflections and rotations of ``n_dofs / 2`` nodes; length, rigidity and mass per length are 1, damping is 2 % in
        the first two modes of the continuous beam. The ``2 n_dofs`` states are these and their rates.
    n_times : int, at least 1
    load : array or Ensemble, shape (n_times,) with samples, i.e. (n_times, n_samples), optional
        Tip loads at the times; samples of `ar1_load` where it is None.
    n_samples, seed : int
        Of loads that are drawn.
    initial : array, shape (2 n_dofs,), optional
        The state x_0 at the first time; zero where it is None. (The paper writes ``C x_0`` for its free response.)
    output : array, shape (n_outputs, 2 n_dofs), optional
        The output matrix C; the unit matrix where it is None.
    step : float, s, optional
        Between times; a hundredth of the first period of the continuous beam where it is None.
    dtype : float64 or float32
    backend : {"numpy", "cupy"}

    Returns
    -------
    Ensemble, shape (n_outputs, n_times)

    Raises
    ------
    ValueError
        If an argument is out of range or has another shape.

    References
    ----------
    .. [1] Gaurav, Wojtkiewicz (2011), Scientific Programming 19, 199-212, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> tip = np.eye(1, 8, 2)
    >>> constant = convolution_response(4, 8000, np.ones((8000, 1)), output=tip)
    >>> abs(float(constant.samples[0, -1, 0]) - 1 / 3) < 1e-3
    True
    """
    name = "convolution_response"
    beam = cantilever(n_dofs, name)
    n_times = integer(n_times, name, "n_times", minimum=1)
    one_of(backend, ("numpy", "cupy"), name, "backend")
    dtype = floating(dtype, name, "dtype")
    step = first_period() / 100.0 if step is None else positive(step, name, "step")
    load = ar1_load(n_times, n_samples, seed=seed) if load is None else load
    xp = array_namespace(prototype(backend))
    f = xp.asarray(real_array(load, name, "load"), dtype=dtype)
    fits = f.ndim == 2 and f.shape[0] == n_times
    require(fits, name, "load", f"have shape ({n_times}, n_samples)", f"shape {f.shape}")
    C = checked_output(output, 2 * n_dofs, name)
    modes, times = beam.modes(), step * np.arange(n_times)
    h = impulse_response(modes, modes.shapes[beam.tip], times, C)
    free = None
    if initial is not None:
        state = shared_array(initial, name, "initial")
        require(state.shape == (2 * n_dofs,), name, "initial", f"have shape ({2 * n_dofs},)", f"shape {state.shape}")
        free = xp.asarray(free_response(modes, state, times, C), dtype=dtype)
    y = convolved(xp, xp.asarray(h, dtype=dtype), f, float(step))
    return Ensemble(y if free is None else y + free[:, :, None])


def responses(modes: Modes, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every mode, shape (n_modes, n_times): the response to a unit impulse and its first two derivatives."""
    w, ratio = modes.frequencies[:, None], modes.ratios[:, None]
    spread = w * np.sqrt(ratio**2 - 1.0 + 0j)
    spread = np.where(spread == 0.0, 1e-8 * w, spread)
    first, second = -ratio * w + spread, -ratio * w - spread
    one, two = np.exp(first * times), np.exp(second * times)
    parts = [(first**k * one - second**k * two) / (2.0 * spread) for k in range(3)]
    return parts[0].real, parts[1].real, parts[2].real


def through(C: np.ndarray | None, shapes: np.ndarray, deflections: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Outputs of modal deflections and rates, shape (n_outputs, n_times)."""
    n = shapes.shape[0]
    if C is None:
        return np.concatenate([shapes @ deflections, shapes @ rates])
    outputs: np.ndarray = (C[:, :n] @ shapes) @ deflections + (C[:, n:] @ shapes) @ rates
    return outputs


def impulse_response(modes: Modes, participation: np.ndarray, times: np.ndarray, C: np.ndarray | None) -> np.ndarray:
    """``C e^(A t) B`` at `times`, for a load that acts on the modes by `participation`: shape (n_outputs, n_times)."""
    deflections, rates, _ = responses(modes, times)
    return through(C, modes.shapes, participation[:, None] * deflections, participation[:, None] * rates)


def free_response(modes: Modes, state: np.ndarray, times: np.ndarray, C: Any) -> np.ndarray:
    """``C e^(A t) x_0`` at `times`: shape (n_outputs, n_times)."""
    n = modes.frequencies.size
    inverse = np.linalg.inv(modes.shapes)
    q, rate = (inverse @ part for part in (state[:n], state[n:]))
    unit, slope, curvature = responses(modes, times)
    damping = (2.0 * modes.ratios * modes.frequencies)[:, None]
    start, start_slope = slope + damping * unit, curvature + damping * slope
    deflections = q[:, None] * start + rate[:, None] * unit
    return through(C, modes.shapes, deflections, q[:, None] * start_slope + rate[:, None] * slope)


def convolved(xp: Any, h: Any, f: Any, step: float) -> Any:
    """``step * sum over j of h[:, k - j] f[j]``: shape (n_outputs, n_times, n_samples)."""
    n_outputs, n_times, n_samples = h.shape[0], h.shape[1], f.shape[1]
    length = scipy.fft.next_fast_len(2 * n_times - 1, real=True)
    forward, backward = transforms(xp, length)
    spectrum = forward(f, 0)
    result = xp.empty((n_outputs, n_times, n_samples), dtype=h.dtype)
    rows = max(1, CHUNK["host" if isinstance(h, np.ndarray) else "device"] // (length * n_samples))
    for first in range(0, n_outputs, rows):
        product = (step * forward(h[first : first + rows], 1))[:, :, None] * spectrum
        result[first : first + rows] = backward(product, 1)[:, :n_times]
    return result


def transforms(xp: Any, length: int) -> Any:
    """The transforms of real numbers of a given length along an axis, on all threads."""
    if isinstance(xp.zeros(1), np.ndarray):
        workers = thread_count()
        return (
            lambda x, axis: scipy.fft.rfft(x, length, axis, workers=workers),
            lambda x, axis: scipy.fft.irfft(x, length, axis, workers=workers),
        )
    return lambda x, axis: xp.fft.rfft(x, n=length, axis=axis), lambda x, axis: xp.fft.irfft(x, n=length, axis=axis)
