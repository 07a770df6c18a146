"""Errors on the test problems of other solvers follow the tolerance; references have more digits than float64."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from ensemble import gallery, ode

ARENSTORF_PERIOD = 17.0652165601579625588917206249
"""Hairer, Norsett, Wanner (1993), section II.0, eq. 0.2."""


def arenstorf(t, y, p, xp):
    """The restricted problem of three bodies: a satellite between earth and moon."""
    moon = 0.012277471
    earth = 1.0 - moon
    left, right = y[0] + moon, y[0] - earth
    d1, d2 = left * left + y[1] * y[1], right * right + y[1] * y[1]
    d1, d2 = d1 * xp.sqrt(d1), d2 * xp.sqrt(d2)
    return [y[2], y[3], y[0] + 2.0 * y[3] - earth * left / d1 - moon * right / d2,
            y[1] - 2.0 * y[2] - earth * y[1] / d1 - moon * y[1] / d2]  # fmt: skip


def orbit():
    start = [0.994, 0.0, 0.0, -2.00158510637908252240537862224]
    return gallery.InitialValueProblem(arenstorf, np.array(start), np.zeros(0), (0.0, ARENSTORF_PERIOD),
                                       np.array(start))  # fmt: skip


def lorenz_end():
    """Lorenz 63 at t = 1 by Taylor series of order 40 in numbers of 50 digits."""
    with localcontext() as context:
        context.prec = 50
        sigma, rho, beta = Decimal(10), Decimal(28), Decimal(8.0 / 3.0)
        state, n_steps, order = [Decimal(1)] * 3, 50, 40
        h = Decimal(1) / n_steps
        for _ in range(n_steps):
            x, y, z = ([v] for v in state)
            for k in range(order):
                xz = sum(x[j] * z[k - j] for j in range(k + 1))
                xy = sum(x[j] * y[k - j] for j in range(k + 1))
                new = sigma * (y[k] - x[k]), rho * x[k] - xz - y[k], xy - beta * z[k]
                for series, value in zip((x, y, z), new):
                    series.append(value / (k + 1))
            state = [sum(c * h**k for k, c in enumerate(series)) for series in (x, y, z)]
        return np.array([float(v) for v in state])


PROBLEMS = {
    "lorenz": lambda: gallery.lorenz63()._replace(y_end=lorenz_end()),
    "arenstorf": orbit,
    "pleiades": gallery.pleiades,
    "hires": gallery.hires,
    "robertson": gallery.robertson,
    "van der pol": gallery.van_der_pol,
}
ABSOLUTE = {"hires": 1e-3, "robertson": 1e-8}
"""The absolute tolerance over the relative one."""

TOLERANCES = {"lorenz": (1e-7, 1e-9, 1e-11), "arenstorf": (1e-9, 1e-11, 1e-12), "pleiades": (1e-7, 1e-9, 1e-11)}

AMPLIFIED = {"lorenz": 3.0, "arenstorf": 3e7, "pleiades": 3e3, "hires": 150.0, "robertson": 30.0, "van der pol": 100.0}
"""The most that the error at the end may be, over the tolerance."""


@pytest.mark.parametrize(
    ("name", "method"),
    [(name, method) for name in ("lorenz", "arenstorf", "pleiades") for method in ("tsit5", "dop853", "taylor")
     if (name, method) != ("pleiades", "taylor")]
    + [(name, method) for name in ("hires", "robertson", "van der pol") for method in ("rodas4", "bdf")],
)  # fmt: skip
def test_errors_follow_the_tolerance(name, method):
    problem, errors = PROBLEMS[name](), []
    tolerances = TOLERANCES.get(name, (1e-4, 1e-6, 1e-8))
    least = 0.0 if name == "robertson" else 1e-3
    for rtol in tolerances:
        result = ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method=method, rtol=rtol,
                           atol=ABSOLUTE.get(name, 1.0) * rtol)  # fmt: skip
        ends = result.raise_if_failed().y.samples[:, 0]
        errors.append((np.abs(ends - problem.y_end) / np.maximum(np.abs(problem.y_end), least)).max())
    assert [error < AMPLIFIED[name] * rtol for error, rtol in zip(errors, tolerances)] == [True] * 3, errors
    assert errors[2] < 1e-2 * errors[0], errors
