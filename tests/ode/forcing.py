"""Forces that jump and bend, with their exact solutions: ``y' = u(t) - k y`` and doses."""

import itertools
from typing import Any, NamedTuple

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(30)


class Forcing(NamedTuple):
    """A force that depends on time and four parameters, and the times at which it jumps or bends."""

    u: Any
    """``u(t, p, xp)``"""
    breaks: Any
    """``breaks(p, low, high)``: those times, at least all between low and high."""


def periods(p, low, high, *fractions):
    k = np.arange(np.floor(low / p[0]) - 1, np.ceil(high / p[0]) + 2)
    return np.concatenate([p[0] * k + f for f in fractions])


TABLE = np.array([0.0, 1.3, 1.34, 1.38, 4.0, 6.0, 7.5, 20.0]), np.array([0.0, 0.0, 9.0, 0.0, 1.0, 1.0, -1.0, -1.0])

FORCES = {
    "infusion": Forcing(lambda t, p, xp: xp.where(t % p[0] < p[1], p[2], 0.0),
                        lambda p, a, b: periods(p, a, b, 0.0, p[1])),
    "square wave": Forcing(lambda t, p, xp: xp.where(t % p[0] < 0.5 * p[0], 1.0, -1.0),
                           lambda p, a, b: periods(p, a, b, 0.0, 0.5 * p[0])),
    "wave of sines": Forcing(lambda t, p, xp: xp.where(xp.sin(6.0 * t / p[0]) > 0.0, p[2], -0.3),
                             lambda p, a, b: np.pi * p[0] / 6.0 * np.arange(-20, 200)),
    "lag": Forcing(lambda t, p, xp: xp.where((t > p[0]) & (t <= p[0] + p[1]), p[2], 0.1 * t),
                   lambda p, a, b: np.array([p[0], p[0] + p[1]])),
    "stairs": Forcing(lambda t, p, xp: xp.floor(t / p[0]) * p[2] + xp.cos(t),
                      lambda p, a, b: periods(p, a, b, 0.0)),
    "saw": Forcing(lambda t, p, xp: t % p[0] + xp.abs(t - p[1]),
                   lambda p, a, b: np.append(periods(p, a, b, 0.0), p[1])),
    "ramp": Forcing(lambda t, p, xp: xp.minimum(xp.maximum((t - p[0]) / p[1], 0.0), p[2]),
                    lambda p, a, b: np.array([p[0], p[0] + p[1] * p[2]])),
    "table": Forcing(lambda t, p, xp: xp.interp(t, *TABLE) * p[2], lambda p, a, b: TABLE[0]),
    "periodic table": Forcing(lambda t, p, xp: xp.interp(t % p[0], [0.0, 0.1, 0.2], [5.0, 1.0, 0.0]),
                              lambda p, a, b: periods(p, a, b, 0.0, 0.1, 0.2)),
    "guard": Forcing(lambda t, p, xp: xp.where(t > p[0], p[2] * xp.sqrt(xp.maximum(t - p[0], 0.0) + 0.01), 0.0),
                     lambda p, a, b: np.array([p[0]])),
}  # fmt: skip


def exact(force, k, p, y0, t0, t1, doses=()):
    """y at t1 for one sample; `doses` are pairs (time, amount), from t0 on and before t1."""

    class Space:
        def __getattr__(self, name):
            return getattr(np, name)

    sign = 1.0 if t1 > t0 else -1.0
    times = [s for s in force.breaks(p, min(t0, t1), max(t0, t1)) if (s - t0) * sign > 0.0 and (t1 - s) * sign > 0.0]
    times += [s for s, _ in doses]
    edges = np.unique(np.concatenate([[t0, t1], times]))[:: int(sign)]
    y = y0
    for a, b in itertools.pairwise(edges):
        y += sum(amount for s, amount in doses if s == a)
        cuts = np.linspace(a, b, 9)
        for c, d in itertools.pairwise(cuts):
            s = 0.5 * (c + d) + 0.5 * (d - c) * NODES
            u = force.u(s, p, Space()) + 0.0 * s
            y = y * np.exp(-k * (d - c)) + 0.5 * (d - c) * float(WEIGHTS @ (np.exp(-k * (d - s)) * u))
    return y
