"""
A solver of one's own
=====================

Code over the Array API runs on plain arrays and on ensembles; the loop ends when every sample is done.
"""

import numpy as np

import ensemble as en


# %%
# Kepler's equation ``E - e sin(E) = M`` by Newton's method, for an array of mean anomalies M.
def residual(state, anomaly, eccentricity):
    xp = anomaly.__array_namespace__()
    return state - eccentricity * xp.sin(state) - anomaly


def kepler(anomaly, eccentricity):
    xp = anomaly.__array_namespace__()
    state = anomaly + 0.0 * eccentricity
    for _ in range(50):
        error = residual(state, anomaly, eccentricity)
        if en.all_samples(xp.all(xp.abs(error) < 1e-13)):
            break
        state = state - error / (1.0 - eccentricity * xp.cos(state))
    return state


# %%
# 90 anomalies, and 32 eccentricities as samples.
anomaly = np.linspace(0.1, 3.0, 90)
eccentricity = en.Ensemble(np.linspace(0.0, 0.9, 32))
state = kepler(en.shared(anomaly), eccentricity)
print(state.shape, state.n_samples)
print("largest residual:", f"{abs(residual(state, en.shared(anomaly), eccentricity)).samples.max():.0e}")
