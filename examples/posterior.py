"""
Parameters from measurements
============================

Draws from a posterior by affine-invariant MCMC: the chains are the samples of an ensemble.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import ensemble as en

# %%
# A body cools; its temperature was measured ten times, with an error of 0.5 K.
rng = np.random.default_rng(5)
times = np.linspace(0.0, 10.0, 10)
measured = 20.0 + 60.0 * np.exp(-0.3 * times) + rng.normal(scale=0.5, size=10)


def log_likelihood(x):
    misfit = 20.0 + x.start * en.xp.exp(-x.rate * times) - measured
    return -0.5 * (misfit**2).sum(axis=0) / 0.5**2


# %%
# What is known before, and 64 chains.
inputs = en.Inputs(start=stats.norm(50.0, 20.0), rate=stats.uniform(0.05, 0.95))
result = en.uq.mcmc(log_likelihood, inputs, 4000, n_chains=64, seed=1)
draws = result.draws()
print(result.status)
for name, truth in (("start", 60.0), ("rate", 0.3)):
    value = getattr(draws, name)
    print(f"{name}: {en.sample_mean(value):.3f} ± {en.sample_std(value):.3f} (it was {truth})")

plt.plot(draws.start.samples[:2000], draws.rate.samples[:2000], ".", markersize=2)
plt.xlabel("start in K")
plt.ylabel("rate")
plt.tight_layout()
