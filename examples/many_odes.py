"""
A differential equation for 1,000 parameters
============================================

Each sample takes steps of its own; the function is written once, for plain numbers.
"""

import matplotlib.pyplot as plt
import numpy as np

import ensemble as en


# %%
# An epidemic: susceptible, infected, recovered; the rates of infection and of recovery are parameters.
def epidemic(t, y, p, xp):
    new, gone = p[0] * y[0] * y[1], p[1] * y[1]
    return [-new, new - gone, gone]


rng = np.random.default_rng(3)
infection, recovery = en.Ensemble(rng.normal(0.5, 0.05, 1000)), en.Ensemble(rng.normal(0.1, 0.01, 1000))
days = np.linspace(0.0, 90.0, 91)
result = en.ode.solve(epidemic, [0.999, 0.001, 0.0], (0.0, 90.0), p=[infection, recovery], t_eval=days)
print(result)

# %%
# The result has shape (times, unknowns), and 1,000 samples.
infected = result.y[:, 1]
peak = infected.max(axis=0)
low, high = en.sample_quantile(peak, [0.05, 0.95])
print(f"infected at the peak: {en.sample_mean(peak):.2f}, in nine of ten samples {low:.2f} to {high:.2f}")

en.plot_ribbon(infected, days)
plt.xlabel("day")
plt.ylabel("infected")
plt.tight_layout()
