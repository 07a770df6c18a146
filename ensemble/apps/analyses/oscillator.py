"""Monte Carlo of a nonlinear oscillator under random force (Gaurav and Wojtkiewicz 2011, example 4)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, prototype
from ensemble._check import finite, floating, integer, one_of, positive, require
from ensemble._compile.numba import heard
from ensemble._kernels.oscillator import oscillator_launch, steps
from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.apps.analyses.beam import checked_output, real_array
from ensemble.scalar import Ensemble

__all__ = ["OscillatorResponse", "oscillator"]

LAYOUTS = ("samples_fastest", "times_fastest")

MULTIPLY_ADDS = 60
"""Of a step of one sample, about."""


class OscillatorResponse(NamedTuple):
    """The response of all samples.

    Attributes
    ----------
    y : Ensemble, shape (n_outputs,)
        The outputs at the last time.
    displacement, velocity : Ensemble, shape (), m and m/s
        At the last time.
    history : array or None
        Displacements and velocities at all times: shape (2, n_steps + 1, n_samples), or (n_samples, 2, n_steps + 1)
        in the layout "times_fastest".
    """

    y: Ensemble
    displacement: Ensemble
    velocity: Ensemble
    history: Any = None


@explains_calls("oscillator")
def oscillator(
    n_samples: int, *, n_steps: int = 1000, step: float = 0.01, mass: Any = 2.0, damping: Any = 1.6,
    root_damping: Any = 1.0, stiffness: Any = 62.84, amplitude: Any = 1.0, displacement: Any = 0.0,
    velocity: Any = 0.0, noise: Any = None, noise_scale: float | None = None, seed: int = 20731, first_sample: int = 0,
    output: Any = None, history: bool = False, layout: str = "samples_fastest", dtype: DType = np.float64,
    backend: str = "numpy",
) -> OscillatorResponse:  # fmt: skip
    """Draw samples of ``m x'' + c x' + r sgn(x') |x'|^0.5 + k x = A (sin t + e)``, white noise e ([1]_, eqs. 14-15).

    The classical Runge-Kutta method with a fixed step; the noise is held over a step.

    Parameters
    ----------
    n_samples : int, at least 1
    n_steps : int, at least 1
    step : float, s
    mass, damping, root_damping, stiffness, amplitude : float or array, shape (n_samples,)
        m in kg, c in N s/m, r in N (s/m)^0.5, k in N/m, A in N.
    displacement, velocity : float or array, shape (n_samples,), m and m/s
        At time 0.
    noise : array, shape (n_steps, n_samples), or (n_samples, n_steps) for "times_fastest", optional
        Or an Ensemble of shape (n_steps,) for both layouts. Standard normal numbers. None: drawn where they are used,
        from the number of the sample, the step and `seed`, from uniform numbers of 52 bits, in float32 of 24.
    noise_scale : float, optional
        What they are multiplied with; ``step**-0.5``, white noise of intensity 1, where it is None.
    seed : int, at least 0
    first_sample : int, at least 0
        The number of the first sample: sample i of this call has the noise of sample ``first_sample + i`` of a larger
        one.
    output : array, shape (n_outputs, 2), optional
        The output matrix of displacement and velocity; the unit matrix where it is None.
    history : bool
        Keep the values of all times.
    layout : {"samples_fastest", "times_fastest"}
        Which index of `noise` and of the history runs fastest in memory. Neighbouring threads of a device read
        neighbouring numbers in the first; the second is slow there.
    dtype : float64 or float32
    backend : {"numpy", "cupy"}

    Returns
    -------
    OscillatorResponse

    Raises
    ------
    ValueError
        If an argument is out of range or has another shape.

    References
    ----------
    .. [1] Gaurav, Wojtkiewicz (2011), Scientific Programming 19, 199-212, section 3.4.

    Examples
    --------
    >>> response = oscillator(2000, seed=1)
    >>> 0.045 < float(response.displacement.samples.std()) < 0.055
    True
    """
    name = "oscillator"
    n_samples = integer(n_samples, name, "n_samples", minimum=1)
    n_steps = integer(n_steps, name, "n_steps", minimum=1)
    h = positive(step, name, "step")
    seed, first = (
        integer(value, name, word, minimum=0) for value, word in ((seed, "seed"), (first_sample, "first_sample"))
    )
    require(seed < 1 << 63, name, "seed", "be below 2**63", seed)
    one_of(layout, LAYOUTS, name, "layout")
    one_of(backend, ("numpy", "cupy"), name, "backend")
    dtype = floating(dtype, name, "dtype")
    xp = array_namespace(prototype(backend))
    given = {"mass": mass, "damping": damping, "root_damping": root_damping, "stiffness": stiffness,
             "amplitude": amplitude, "displacement": displacement, "velocity": velocity}  # fmt: skip
    names = list(given.items())
    parameters, state = (rows_of(xp, dict(part), n_samples, dtype) for part in (names[:5], names[5:]))
    empty = int((parameters[0] == 0.0).sum())
    require(not empty, name, "mass", "be other than zero", f"zero in {empty} of {n_samples} samples")
    x, v = state[0], state[1]
    times_fastest = layout == LAYOUTS[1]
    shape = (n_samples, n_steps) if times_fastest else (n_steps, n_samples)
    if noise is not None:
        numbers = real_array(noise, name, "noise")
        turned = times_fastest and isinstance(noise, Ensemble)
        noise = xp.asarray(numbers.T if turned else numbers, dtype=dtype)
        require(noise.shape == shape, name, "noise", f"have shape {shape}", f"shape {noise.shape}")
    flat = xp.zeros(1, dtype=dtype) if noise is None else xp.asarray(xp.reshape(noise, (-1,)), order="C")
    n_times = n_steps + 1
    stored = (n_samples, 2, n_times) if times_fastest else (2, n_times, n_samples)
    kept = xp.empty(stored if history else (1,), dtype=dtype)
    times = 0.5 * h * np.arange(2 * n_steps + 2)  # read in pairs
    arguments = (
        steps.Run(noise is None, bool(history)), n_steps, xp.arange(first, first + n_samples, dtype=xp.int64), seed,
        parameters, xp.asarray(np.sin(times), dtype=dtype), flat, (1, n_steps) if times_fastest else (n_samples, 1), h,
        h**-0.5 if noise_scale is None else finite(noise_scale, name, "noise_scale"), x, v, xp.reshape(kept, (-1,)),
        (n_times, 1, 2 * n_times) if times_fastest else (n_times * n_samples, n_samples, 1),
    )  # fmt: skip
    if backend == "cupy":
        oscillator_launch.integrate(*arguments)
    else:
        heard(lambda: steps.integrate(*arguments), n_samples * n_steps * MULTIPLY_ADDS)
    C = checked_output(output, 2, name)
    y = state.copy() if C is None else xp.stack([float(a) * x + float(b) * v for a, b in C])
    return OscillatorResponse(Ensemble(y), Ensemble(x), Ensemble(v), kept if history else None)


def rows_of(xp: Any, given: dict[str, Any], n_samples: int, dtype: DType) -> Any:
    """Numbers, or one number for each sample, as the rows of a new array of shape (len(given), n_samples)."""
    values = list(given.values())
    if all(isinstance(value, int | float) for value in values):  # one copy to a device
        column = xp.asarray(np.asarray(values, dtype)[:, None])
        return xp.broadcast_to(column, (len(values), n_samples)).copy()
    return xp.stack([per_sample(xp, value, n_samples, dtype, word) for word, value in given.items()])


def per_sample(xp: Any, value: Any, n_samples: int, dtype: DType, argument: str) -> Any:
    """A number or one number for each sample, as an array of shape (n_samples,)."""
    values = xp.asarray(real_array(value, "oscillator", argument), dtype=dtype)
    fits = values.shape in ((), (1,), (n_samples,))
    require(fits, "oscillator", argument, f"be a number or {n_samples} of them", f"shape {values.shape}")
    return xp.broadcast_to(values, (n_samples,))
