"""Heat through a wall whose conductivity is a random field, by linear triangles; many samples in a solve."""

import numpy as np

import ensemble as en
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix, apply_dirichlet

WIDE, HIGH = 24, 12  # cells of a wall of 0.6 m by 0.3 m; heat flows along it
DX = 0.6 / WIDE

i, j = np.meshgrid(np.arange(WIDE + 1), np.arange(HIGH + 1), indexing="ij")
nodes = DX * np.stack([i.ravel(), j.ravel()], axis=1)
first = (np.arange(WIDE)[:, None] * (HIGH + 1) + np.arange(HIGH)).ravel()
lower = np.stack([first, first + HIGH + 1, first + HIGH + 2], axis=1)
upper = np.stack([first, first + HIGH + 2, first + 1], axis=1)
triangles = np.concatenate([lower, upper])
centres = nodes[triangles].mean(axis=1)

# The stiffness of a right triangle for a conductivity of 1 W/(m K): the right angle is the second corner, the third.
lower_stiffness = 0.5 * np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
upper_stiffness = 0.5 * np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0], [-1.0, -1.0, 2.0]])
stiffness = np.concatenate([np.tile(lower_stiffness, (len(lower), 1, 1)), np.tile(upper_stiffness, (len(upper), 1, 1))])

warm, cold = np.arange(HIGH + 1), len(nodes) - 1 - np.arange(HIGH + 1)[::-1]
held = np.concatenate([warm, cold])


def heat(x):
    kappa = x.conductivity(centres).samples  # (n_triangles, n_samples)
    K = CrsMatrix.from_elements(triangles, stiffness[..., None] * kappa[:, None, None, :], (len(nodes), len(nodes)))
    rise = x.inside.samples - x.outside.samples
    values = np.zeros((held.size, x.n_samples))
    values[: warm.size] = rise
    b = en.Ensemble(np.zeros((len(nodes), x.n_samples)))
    A, b = apply_dirichlet(K, b, held, en.Ensemble(values))
    solved = cg(A, b, rtol=1e-9)
    x.fail(~solved.converged, "not converged")
    flow = (K @ solved.x).samples[warm].sum(axis=0)  # W for each metre of depth
    middle = solved.x.samples.reshape(WIDE + 1, HIGH + 1, -1)[:, HIGH // 2] + x.outside.samples
    return {"flow": en.Ensemble(flow), "middle": en.Ensemble(middle)}
