"""
Which inputs matter
===================

Sobol' indices of the function of Ishigami, whose values are known in closed form.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import ensemble as en


# %%
# The model takes an Ensemble for each input; ``en.xp`` has the functions of the Array API.
def ishigami(x):
    return {"y": en.xp.sin(x.a) + 7.0 * en.xp.sin(x.b) ** 2 + 0.1 * x.c**4 * en.xp.sin(x.a)}


angle = stats.uniform(-np.pi, 2.0 * np.pi)
inputs = en.Inputs(a=angle, b=angle, c=angle)
indices = en.sobol_indices(ishigami, inputs, 2048, seed=1, progress=False)
print(indices)

# %%
# First indices are shares of the variance that an input explains alone; total ones have its interactions.
exact = [0.3139, 0.4424, 0.0]
print("error of the first indices:", np.abs(indices.first["y"] - exact).max().round(3))
indices.plot("y")
plt.tight_layout()
