"""
A model of scikit-fem
=====================

Mesh, elements and boundary conditions are scikit-fem's; assembly and solution are done for 64 coefficients at once.
"""

import matplotlib.pyplot as plt
import numpy as np
import skfem

import ensemble as en
from ensemble.apps import fem
from ensemble.krylov import cg
from ensemble.linalg import apply_dirichlet
from ensemble.multigrid import smoothed_aggregation

# %%
# A square of quadratic triangles.
mesh = skfem.MeshTri().refined(4)
basis = skfem.Basis(mesh, skfem.ElementTriP2())
space = fem.from_skfem(basis)


# %%
# The forms are written as in scikit-fem.
@fem.bilinear_form
def conduction(u, v, w):
    return w.kappa * fem.dot(fem.grad(u), fem.grad(v))


@fem.linear_form
def heating(v, w):
    return v


# %%
# 64 coefficients that vary in space, their matrices on one graph, and one solve.
x, y = basis.doflocs
weights = np.random.default_rng(7).normal(size=(2, 64))
kappa = en.Ensemble(np.exp(0.3 * (np.cos(np.pi * x)[:, None] * weights[0] + np.cos(np.pi * y)[:, None] * weights[1])))
A, b = conduction.assemble(space, kappa=kappa), heating.assemble(space)
A, b = apply_dirichlet(A, b, basis.get_dofs().flatten())
result = cg(A, b, M=smoothed_aggregation(A))
hottest = result.x.max(axis=0)
print(A)
print(f"hottest place: {en.sample_mean(hottest):.4f} ± {en.sample_std(hottest):.4f}")

deviation = en.sample_std(result.x)
plt.tripcolor(x, y, deviation, shading="gouraud")
plt.colorbar(label="standard deviation of the solution")
plt.gca().set_aspect("equal")
plt.tight_layout()
