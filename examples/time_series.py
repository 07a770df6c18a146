"""
A time series
=============

A level that walks at random, seen in noise: both variances are estimated, the series is smoothed and continued.
"""

import matplotlib.pyplot as plt
import numpy as np

from ensemble.apps.kalman import LinearGaussianModel, forecast, maximum_likelihood, rts_smoother

# %%
# 150 observations, of which some are missing.
rng = np.random.default_rng(11)
level = rng.normal(scale=0.5, size=150).cumsum()
y = (level + rng.normal(size=150))[:, None]
y[60:80] = np.nan

# %%
# The model for two unknown variances, of the walk and of the noise; nothing is known of the first level.
one = np.eye(1)


def model_of(variances):
    walk, noise = variances[0], variances[1]
    return LinearGaussianModel(F=one, Q=walk * one, H=one, R=noise * one, m0=np.zeros(1), P0=0.0 * one, diffuse=[True])


fit = maximum_likelihood(model_of, y, [1.0, 1.0], bounds=[(1e-3, 10.0), (1e-3, 10.0)])
print(f"variance of the walk {fit.estimate[0]:.2f} (0.25 was used), of the noise {fit.estimate[1]:.2f} (1 was used)")

# %%
# The smoothed level, and what comes next.
smooth, future = rts_smoother(fit.model, y), forecast(fit.model, y, 20)
mean, deviation = smooth.mean[:, 0], np.sqrt(smooth.covariance[:, 0, 0])
low, high = future.interval()
plt.plot(y[:, 0], ".", color="0.6", label="observed")
plt.plot(mean, label="smoothed level")
plt.fill_between(range(150), mean - 2 * deviation, mean + 2 * deviation, alpha=0.3)
plt.fill_between(range(150, 170), low[:, 0], high[:, 0], alpha=0.3, label="forecast, 95 %")
plt.legend()
plt.tight_layout()
