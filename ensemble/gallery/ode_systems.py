"""Initial value problems of ordinary differential equations, each with its parameters and its solution where known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import expm

from ensemble._check import integer, positive

__all__ = [
    "InitialValueProblem",
    "brusselator",
    "figure_eight",
    "fitzhugh_nagumo",
    "hires",
    "lorenz63",
    "lorenz96",
    "pharmacokinetics",
    "pleiades",
    "robertson",
    "van_der_pol",
]


class InitialValueProblem(NamedTuple):
    """A system ``dy/dt = f(t, y, p)`` with a start, parameters and a range of time.

    Attributes
    ----------
    f : callable
        ``f(t, y, p, xp)`` takes the time, n values `y`, k parameters `p` and the namespace of their functions, and
        returns a list of n values. The values are numbers, arrays of one shape or ensembles.
    y0 : array, shape (n,)
        The values at ``t[0]``.
    p : array, shape (k,)
        The parameters.
    t : (float, float)
        The first and the last time.
    y_end : array, shape (n,), or None
        The published or exact values at ``t[1]`` for `y0` and `p`; None where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> problem = robertson()
    >>> problem.f(0.0, problem.y0, problem.p, np)
    [np.float64(-0.04), np.float64(0.04), np.float64(0.0)]
    """

    f: Callable[..., list[Any]]
    y0: np.ndarray
    p: np.ndarray
    t: tuple[float, float]
    y_end: np.ndarray | None = None


def problem_of(f: Any, y0: Any, p: Any, t: tuple[float, float], y_end: Any = None) -> InitialValueProblem:
    """The problem with float64 arrays of its own."""
    end = None if y_end is None else np.array(y_end, np.float64)
    return InitialValueProblem(f, np.array(y0, np.float64), np.array(p, np.float64), t, end)


# --- chaotic systems
def lorenz63() -> InitialValueProblem:
    """Return Lorenz's convection model [1]_: three values, parameters sigma = 10, rho = 28, beta = 8/3, t from 0 to 1.

    References
    ----------
    .. [1] Lorenz (1963), Journal of the Atmospheric Sciences 20, 130-141, eqs. 25-27.

    Examples
    --------
    >>> lorenz63().y0
    array([1., 1., 1.])
    """

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        sigma, rho, beta = p[0], p[1], p[2]
        return [sigma * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - beta * y[2]]

    return problem_of(f, [1.0, 1.0, 1.0], [10.0, 28.0, 8.0 / 3.0], (0.0, 1.0))


def lorenz96(n: int = 40) -> InitialValueProblem:
    """Return Lorenz's ring of `n` values [1]_: ``dy_i/dt = (y_(i+1) - y_(i-2)) y_(i-1) - y_i + F``, F = 8, t to 1.

    All values start at F, the first at F + 0.01.

    Parameters
    ----------
    n : int, at least 4

    References
    ----------
    .. [1] Lorenz (1996), Predictability: a problem partly solved, ECMWF Seminar on Predictability 1, 1-18, eq. 1.

    Examples
    --------
    >>> lorenz96(5).y0
    array([8.01, 8.  , 8.  , 8.  , 8.  ])
    """
    n = integer(n, "lorenz96", "n", minimum=4)

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        return [(y[(i + 1) % n] - y[i - 2]) * y[i - 1] - y[i] + p[0] for i in range(n)]

    return problem_of(f, [8.01] + [8.0] * (n - 1), [8.0], (0.0, 1.0))


# --- oscillators
VAN_DER_POL_END = {1e-6: [0.1706167732170483e1, -0.8928097010247975]}
"""By the small parameter: reference solutions of the test set for IVP solvers, release 2.4, section II-13."""


def van_der_pol(epsilon: float = 1e-6) -> InitialValueProblem:
    """Return the stiff Van der Pol oscillator ``x'' = ((1 - x^2) x' - x) / epsilon`` [1]_, t from 0 to 2.

    The values are x and x', from 2 and 0. The one parameter is `epsilon`, dimensionless; small is stiff. `y_end` is
    the published one where `epsilon` is 1e-6 [2]_.

    Parameters
    ----------
    epsilon : float, above zero

    References
    ----------
    .. [1] Hairer, Wanner (1996), Solving Ordinary Differential Equations II, section IV.1, eq. 1.5'.
    .. [2] Mazzia, Magherini (2008), Test set for initial value problem solvers, release 2.4, problem "vdpol".

    Examples
    --------
    >>> van_der_pol(0.5).p
    array([0.5])
    """

    epsilon = positive(epsilon, "van_der_pol", "epsilon")

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        return [y[1], ((1.0 - y[0] * y[0]) * y[1] - y[0]) / p[0]]

    return problem_of(f, [2.0, 0.0], [epsilon], (0.0, 2.0), VAN_DER_POL_END.get(epsilon))


def fitzhugh_nagumo() -> InitialValueProblem:
    """Return FitzHugh's model of a nerve cell [1]_ with a constant current: spikes, t from 0 to 200.

    ``v' = v - v^3 / 3 - w + I``, ``w' = epsilon (v + a - b w)`` from (-1, 1). The parameters are a = 0.7, b = 0.8,
    epsilon = 0.08 and I = 0.5; all are dimensionless.

    References
    ----------
    .. [1] FitzHugh (1961), Biophysical Journal 1(6), 445-466, eqs. 1-2.

    Examples
    --------
    >>> fitzhugh_nagumo().p
    array([0.7 , 0.8 , 0.08, 0.5 ])
    """

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        v, w = y[0], y[1]
        return [v - v * v * v / 3.0 - w + p[3], p[2] * (v + p[0] - p[1] * w)]

    return problem_of(f, [-1.0, 1.0], [0.7, 0.8, 0.08, 0.5], (0.0, 200.0))


# --- chemical and biological kinetics
ROBERTSON_END = [0.2083340149701255e-7, 0.8333360770334713e-13, 0.9999999791665050]


def robertson() -> InitialValueProblem:
    """Return Robertson's three reactions [1]_: stiff, t from 0 to 1e11.

    The values are mass fractions from (1, 0, 0). The parameters are the rates 0.04, 3e7 and 1e4. `y_end` is the
    published one [2]_.

    References
    ----------
    .. [1] Robertson (1966), in Walsh (ed.), Numerical Analysis, an Introduction, 178-182.
    .. [2] Mazzia, Magherini (2008), Test set for initial value problem solvers, release 2.4, problem "rober".

    Examples
    --------
    >>> robertson().t
    (0.0, 100000000000.0)
    """

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        first, second, third = p[0] * y[0], p[1] * (y[1] * y[1]), p[2] * (y[1] * y[2])
        return [third - first, first - second - third, second]

    return problem_of(f, [1.0, 0.0, 0.0], [0.04, 3e7, 1e4], (0.0, 1e11), ROBERTSON_END)


HIRES_RATES = [1.71, 0.43, 8.32, 0.69, 0.035, 8.32, 280.0, 0.69, 0.69, 0.0007]
HIRES_END = [
    0.7371312573325668e-3, 0.1442485726316185e-3, 0.5888729740967575e-4, 0.1175651343283149e-2,
    0.2386356198831331e-2, 0.6238968252742796e-2, 0.2849998395185769e-2, 0.2850001604814231e-2,
]  # fmt: skip


def hires() -> InitialValueProblem:
    """Return the high irradiance responses of plants: eight chemical reactants [1]_, stiff, t from 0 to 321.8122.

    The values start at (1, 0, 0, 0, 0, 0, 0, 0.0057). The ten parameters are the rates ``k_1`` to ``k_6``, ``k_+``,
    ``k_-``, ``k*`` and the constant supply ``o_ks``. `y_end` is the published one [2]_.

    References
    ----------
    .. [1] Schaefer (1975), Journal of Mathematical Biology 2, 41-56.
    .. [2] Mazzia, Magherini (2008), Test set for initial value problem solvers, release 2.4, problem "hires".

    Examples
    --------
    >>> hires().y0[[0, 7]]
    array([1.    , 0.0057])
    """

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        k1, k2, k3, k4, k5, k6 = (p[i] for i in range(6))
        bound, released, consumed, supply = p[6] * (y[5] * y[7]), p[7], p[8], p[9]
        last = bound - (k2 + released + consumed) * y[6]
        return [
            -k1 * y[0] + k2 * y[1] + k6 * y[2] + supply,
            k1 * y[0] - (k2 + k3) * y[1],
            -(k1 + k6) * y[2] + k2 * y[3] + k5 * y[4],
            k3 * y[1] + k1 * y[2] - (k2 + k4) * y[3],
            -(k1 + k5) * y[4] + k2 * (y[5] + y[6]),
            -bound + k4 * y[3] + k1 * y[4] - k2 * y[5] + released * y[6],
            last,
            -last,
        ]

    return problem_of(f, [1.0, *[0.0] * 6, 0.0057], HIRES_RATES, (0.0, 321.8122), HIRES_END)


def brusselator(n_cells: int = 100) -> InitialValueProblem:
    """Return the Brusselator with diffusion on a line, differences on `n_cells` inner points [1]_: stiff, t to 10.

    ``u_t = A + u^2 v - (B + 1) u + D u_xx`` and ``v_t = B u - u^2 v + D v_xx`` for x between 0 and 1, with u = A and
    v = B / A at the ends, from ``u = 1 + sin(2 pi x)`` and ``v = 3``. The values are u_1, v_1, u_2, v_2, ..., so that
    the Jacobian has two diagonals beside the main one on each side. The parameters are A = 1, B = 3 and D = 1/50, all
    dimensionless.

    Parameters
    ----------
    n_cells : int, at least 2
        The system has ``2 n_cells`` values.

    References
    ----------
    .. [1] Hairer, Wanner (1996), Solving Ordinary Differential Equations II, section IV.10, "BRUSS".

    Examples
    --------
    >>> brusselator(3).y0
    array([2., 3., 1., 3., 0., 3.])
    """
    n = integer(n_cells, "brusselator", "n_cells", minimum=2)
    spacing = 1.0 / (n + 1)

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        a, b = p[0], p[1]
        spread = p[2] * (1.0 / spacing**2)
        rates = []
        for i in range(n):
            u, v = y[2 * i], y[2 * i + 1]
            before = (a, b / a) if i == 0 else (y[2 * i - 2], y[2 * i - 1])
            after = (a, b / a) if i == n - 1 else (y[2 * i + 2], y[2 * i + 3])
            reaction = u * u * v
            rates.append(a + reaction - (b + 1.0) * u + spread * (before[0] - 2.0 * u + after[0]))
            rates.append(b * u - reaction + spread * (before[1] - 2.0 * v + after[1]))
        return rates

    x = spacing * np.arange(1, n + 1)
    y0 = np.empty(2 * n)
    y0[0::2], y0[1::2] = np.round(1.0 + np.sin(2.0 * np.pi * x), 15), 3.0
    return problem_of(f, y0, [1.0, 3.0, 0.02], (0.0, 10.0))


def pharmacokinetics() -> InitialValueProblem:
    """Return the system of a drug taken by mouth, two compartments [1]_: amounts in mg, t from 0 to 24 h, linear.

    The values are the amounts in the gut, in the central and in the peripheral compartment, from a dose of 100 mg. The
    parameters are the absorption rate 1 / h, the clearance 5 L / h, the central volume 20 L, the flow between the
    compartments 10 L / h and the peripheral volume 40 L. `y_end` is the exact one, from the matrix exponential.

    References
    ----------
    .. [1] Gibaldi, Perrier (1982), Pharmacokinetics, 2nd ed., chapter 2.

    Examples
    --------
    >>> pharmacokinetics().y_end.round(3)
    array([ 0.   ,  4.538, 12.398])
    """
    absorption, clearance, central, flow, peripheral = p = [1.0, 5.0, 20.0, 10.0, 40.0]
    out, there, back = clearance / central, flow / central, flow / peripheral
    matrix = [[-absorption, 0.0, 0.0], [absorption, -out - there, back], [0.0, there, -back]]
    y0 = np.array([100.0, 0.0, 0.0])

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        taken = p[0] * y[0]
        exchange = p[3] * (y[1] / p[2] - y[2] / p[4])
        return [-taken, taken - exchange - p[1] * (y[1] / p[2]), exchange]

    return problem_of(f, y0, p, (0.0, 24.0), expm(24.0 * np.array(matrix)) @ y0)


# --- gravitation
def gravitation(n: int) -> Callable[..., list[Any]]:
    """The motion of `n` bodies in a plane: values x, y, x', y', each of all bodies; parameters the masses."""

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        pulls: list[list[Any]] = [[], []]
        for i in range(n):
            total = [0.0, 0.0]
            for j in range(n):
                if j != i:
                    dx, dy = y[j] - y[i], y[n + j] - y[n + i]
                    square = dx * dx + dy * dy
                    strength = p[j] / (square * xp.sqrt(square))
                    total = [total[0] + strength * dx, total[1] + strength * dy]
            pulls[0].append(total[0])
            pulls[1].append(total[1])
        return [*(y[2 * n + i] for i in range(2 * n)), *pulls[0], *pulls[1]]

    return f


FIGURE_EIGHT = (0.97000436, -0.24308753), (-0.93240737, -0.86473146), 6.32591398


def figure_eight() -> InitialValueProblem:
    """Return three bodies of equal mass on one curve, an eight [1]_: t from 0 to 6.32591398, one period.

    The values are x, y, x' and y', each of all three bodies. The parameters are the masses 1, 1 and 1; the constant of
    gravitation is 1. `y_end` is `y0`, up to the eight digits of the published start: 1e-6.

    References
    ----------
    .. [1] Chenciner, Montgomery (2000), Annals of Mathematics 152(3), 881-901; numbers by C. Simo.

    Examples
    --------
    >>> figure_eight().y0[:3]
    array([ 0.97000436, -0.97000436,  0.        ])
    """
    (x, y), (vx, vy), period = FIGURE_EIGHT
    y0 = [x, -x, 0.0, y, -y, 0.0, -0.5 * vx, -0.5 * vx, vx, -0.5 * vy, -0.5 * vy, vy]
    return problem_of(gravitation(3), y0, [1.0, 1.0, 1.0], (0.0, period), y0)


PLEIADES_END = [
    0.3706139143970502, 0.3237284092057233e1, -0.3222559032418324e1, 0.6597091455775310,
    0.3425581707156584, 0.1562172101400631e1, -0.7003092922212495,
    -0.3943437585517392e1, -0.3271380973972550e1, 0.5225081843456543e1, -0.2590612434977470e1,
    0.1198213693392275e1, -0.2429682344935824, 0.1091449240428980e1,
    0.3417003806314313e1, 0.1354584501625501e1, -0.2590065597810775e1, 0.2025053734714242e1,
    -0.1155815100160448e1, -0.8072988170223021, 0.5952396354208710,
    -0.3741244961234010e1, 0.3773459685750630, 0.9386858869551073, 0.3667922227200571,
    -0.3474046353808490, 0.2344915448180937e1, -0.1947020434263292e1,
]  # fmt: skip


def pleiades() -> InitialValueProblem:
    """Return seven stars in a plane with near encounters [1]_: 28 values, t from 0 to 3.

    The values are x, y, x' and y', each of all seven stars. The parameters are the masses 1 to 7; the constant of
    gravitation is 1. `y_end` is the published one [2]_.

    References
    ----------
    .. [1] Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, section II.10, eq. 10.3.
    .. [2] Mazzia, Magherini (2008), Test set for initial value problem solvers, release 2.4, problem "plei".

    Examples
    --------
    >>> pleiades().p
    array([1., 2., 3., 4., 5., 6., 7.])
    """
    x, y = [3.0, 3.0, -1.0, -3.0, 2.0, -2.0, 2.0], [3.0, -3.0, 2.0, 0.0, 0.0, -4.0, 4.0]
    vx, vy = [0.0, 0.0, 0.0, 0.0, 0.0, 1.75, -1.5], [0.0, 0.0, 0.0, -1.25, 1.0, 0.0, 0.0]
    return problem_of(gravitation(7), [*x, *y, *vx, *vy], np.arange(1.0, 8.0), (0.0, 3.0), PLEIADES_END)
