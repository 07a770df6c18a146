"""
Many sparse systems
===================

One matrix of SciPy, 64 sets of values on its graph, and one solve with one multigrid hierarchy for all of them.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

import ensemble as en
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation

# %%
# A matrix as a program for one sample has it: diffusion on a square, unit conductivity.
n = 40
line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
one = sp.csr_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line))

# %%
# 64 conductivities: the graph is stored once, the values have a column for each sample.
conductivity = np.random.default_rng(7).lognormal(sigma=0.3, size=64)
A = CrsMatrix.from_scipy([one * value for value in conductivity])
result = cg(A, np.ones(n * n), M=smoothed_aggregation(A), rtol=1e-8)
print(f"{result.x.n_samples} systems of {n * n} unknowns: at most {result.iterations.max()} iterations")

# %%
# The solution is an array whose entries have 64 samples. Statistics are functions of it.
middle = result.x.reshape(n, n)[n // 2]
mean, deviation = en.sample_mean(middle), en.sample_std(middle)
print(f"in the middle: {mean[n // 2]:.1f} ± {deviation[n // 2]:.1f}")

plt.plot(mean, label="mean")
plt.fill_between(range(n), mean - deviation, mean + deviation, alpha=0.3, label="standard deviation")
plt.xlabel("node along the middle line")
plt.ylabel("solution")
plt.legend()
plt.tight_layout()
