"""Problems with known solutions, and a plain loop that integrates them with a method."""

import math

import numpy as np

from ensemble._compile.trace.tracer import Scalar, trace
from ensemble.ode.methods import METHODS
from ensemble.ode.system import System

SOLVERS = {"tsit5": {}, "dop853": {}, "taylor": {}, "rodas4": {}, "rk4": {"step": 0.003}}
"""Methods that `ode.solve` is tested with, and their options."""

RHO = np.linspace(0.0, 21.0, 37)
TIMES = np.linspace(0.0, 1.0, 7)


def passage(t, y, p, xp):
    return y[0]


def pendulum(t, y, p, xp):
    """A forced pendulum: smooth, nonlinear, not autonomous, separable."""
    return [y[1], -p[0] * xp.sin(y[0]) + 0.3 * xp.cos(t)]


def lorenz(t, y, p, xp):
    return [10.0 * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]]


def system_of(function, n, k=1, **options):
    return System(function, n, k, np, **options)


def traced_step(method, function, n, n_parameters, dtype="float64", **options):
    """The graph of one step: its inputs are t, h, y, the carried values and p."""
    method = METHODS[method] if isinstance(method, str) else method
    system = System(function, n, n_parameters, None, dtype=dtype, **options).traced()

    def body(t, h, y, carried, p):
        step = method.step(system.bound(t.__array_namespace__()), t, h, y, carried, p)
        return [*step.y, *step.carried, *(step.error or []), *(c for row in step.dense for c in row)]

    real = Scalar(dtype)
    return trace(body, real, real, [real] * n, [real] * method.n_carried(system), [real] * n_parameters)


def fixed_steps(method, system, y0, p, t0, t1, n_steps):
    """All points, and the dense output at the middle of each step, shapes (n_steps + 1, n) and (n_steps, n)."""
    method = METHODS[method] if isinstance(method, str) else method
    t, h = np.float64(t0), np.float64((t1 - t0) / n_steps)
    y = [np.float64(v) for v in y0]
    carried = method.start(system, t, y, p)
    points, middles = [y], []
    for k in range(n_steps):
        step = method.step(system, t, h, y, carried, p)
        assert len(step.y) == len(step.dense) == system.n and len(step.carried) == method.n_carried(system)
        middles.append(dense_at(step, y, 0.5))
        y, carried, t = step.y, step.carried, t0 + (k + 1) * h
        points.append(y)
    return np.array(points), np.array(middles)


def dense_at(step, y, theta):
    return [a + sum(c * theta ** (k + 1) for k, c in enumerate(row)) for a, row in zip(y, step.dense)]


def adaptive(method, system, y0, p, t0, t1, rtol, atol):
    """The final point and the number of steps, with the control of the design, for arrays of one sample."""
    method = METHODS[method] if isinstance(method, str) else method
    t, y = np.float64(t0), [np.float64(v) for v in y0]
    h, n_steps = np.float64(1e-3 * (t1 - t0)), 0
    carried = method.start(system, t, y, p)
    while t < t1:
        h = min(h, t1 - t)
        step = method.step(system, t, h, y, carried, p)
        n_steps += 1
        assert n_steps < 20000
        if method.own_step:
            t, y, carried = t + step.h_used, step.y, step.carried
            h = t1 - t
            continue
        scale = [atol + rtol * max(abs(a), abs(b)) for a, b in zip(y, step.y)]
        error = mean_square(step.error, scale)
        if step.error_3 is not None:
            error = error**2 / (error + 0.01 * mean_square(step.error_3, scale) + 1e-300)
        error = math.sqrt(error)
        last = h == t1 - t
        if error <= 1.0:
            t, y, carried = (t1 if last else t + h), step.y, step.carried
        h = h * min(10.0, max(0.2, 0.9 * max(error, 1e-10) ** (-1.0 / method.error_order)))
    return np.array(y), n_steps


def mean_square(errors, scale):
    return sum((e / s) ** 2 for e, s in zip(errors, scale)) / len(scale)


def hires(t, y, p, xp):
    """Eight reactions of plant physiology (Hairer, Wanner II, section IV.10)."""
    reaction = 280.0 * y[5] * y[7]
    return [
        -1.71 * y[0] + 0.43 * y[1] + 8.32 * y[2] + 0.0007,
        1.71 * y[0] - 8.75 * y[1],
        -10.03 * y[2] + 0.43 * y[3] + 0.035 * y[4],
        8.32 * y[1] + 1.71 * y[2] - 1.12 * y[3],
        -1.745 * y[4] + 0.43 * y[5] + 0.43 * y[6],
        -reaction + 0.69 * y[3] + 1.71 * y[4] - 0.43 * y[5] + 0.69 * y[6],
        reaction - 1.81 * y[6],
        -reaction + 1.81 * y[6],
    ]


def robertson(t, y, p, xp):
    """Three reactions of very different rates (Robertson 1966)."""
    slow, fast, dimer = p[0] * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] * y[1]
    return [fast - slow, slow - fast - dimer, dimer]


def brusselator(t, y, p, xp):
    """The one-dimensional Brusselator (Hairer, Wanner II, section IV.10): two reactions and diffusion, n/2 points."""
    m = len(y) // 2
    u, v = [1.0, *y[:m], 1.0], [3.0, *y[m:], 3.0]
    rate = p[0] * (m + 1) ** 2
    du, dv = [], []
    for i in range(1, m + 1):
        product = u[i] * u[i] * v[i]
        du.append(1.0 + product - 4.0 * u[i] + rate * (u[i - 1] - 2.0 * u[i] + u[i + 1]))
        dv.append(3.0 * u[i] - product + rate * (v[i - 1] - 2.0 * v[i] + v[i + 1]))
    return [*du, *dv]


def brusselator_start(m):
    x = np.arange(1, m + 1) / (m + 1)
    return np.concatenate([1.0 + np.sin(2.0 * np.pi * x), np.full(m, 3.0)])


def brusselator_arrays(t, y, a):
    """The same on an array of all unknowns, for SciPy."""
    m = len(y) // 2
    u, v = (np.concatenate([[edge], part, [edge]]) for edge, part in ((1.0, y[:m]), (3.0, y[m:])))
    inner, rate = slice(1, -1), a * (m + 1) ** 2
    product = u[inner] * u[inner] * v[inner]
    du = 1.0 + product - 4.0 * u[inner] + rate * (u[:-2] - 2.0 * u[inner] + u[2:])
    dv = 3.0 * u[inner] - product + rate * (v[:-2] - 2.0 * v[inner] + v[2:])
    return np.concatenate([du, dv])


def brusselator_sparsity(m):
    import scipy.sparse as sp

    band, eye = sp.diags_array(np.ones((3, m)), offsets=(-1, 0, 1), shape=(m, m)), sp.eye_array(m)
    return sp.block_array([[band, eye], [eye, band]]).tocsc()
