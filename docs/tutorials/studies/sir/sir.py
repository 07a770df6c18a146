"""An epidemic by the equations of Kermack and McKendrick (1927), solved by SciPy, one sample after the other."""

import numpy as np
from scipy.integrate import solve_ivp

import ensemble as en

DAYS = np.linspace(0.0, 160.0, 41)


def rates(t, y, infection, recovery):
    """Rates of the shares of susceptible and infected people, per day."""
    s, i = y
    return [-infection * s * i, infection * s * i - recovery * i]


@en.vectorize
def epidemic(x):
    recovery = 1.0 / x.days_ill
    solved = solve_ivp(
        rates, (0.0, 160.0), [1.0 - x.first, x.first], args=(x.contacts * recovery, recovery), t_eval=DAYS, rtol=1e-6
    )
    susceptible, infected = solved.y
    return {"infected": infected, "peak": infected.max(), "never_ill": susceptible[-1]}
